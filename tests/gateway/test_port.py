"""Servers inside, reached through the gateway: port wait, the HTTP proxy, WebSockets."""

import os
import signal
import socket
import threading
import time
from urllib.parse import quote

import pytest

from rig.box import build_dir
from rig.http import TOKEN, Cut, free_port
from rig.inner import Inner, answer, ok
from rig.wait import is_long, repeats, wait_until


QUOTED = quote(TOKEN, safe="")


def error_of(r, status, code, *words):
    assert (r.status, r.json["code"]) == (status, code), (r.status, r.body)
    assert set(r.json) == {"error", "code"}
    for w in words:
        assert str(w) in r.json["error"], (w, r.json)


# ---- the request as the server inside gets it ----


def test_request_head(gw_ns):
    # given a request with all kinds of headers; when it goes through; then what is the server's own
    # affair comes as it was sent, and what belonged to the connection, or is the token, does not
    sent = [("Cookie", "a=1; b=2"), ("X-Own", "one"), ("X-Own", "two"), ("Accept", "*/*"),
            ("Connection", "keep-alive, X-Secret"), ("X-Secret", "1"), ("Keep-Alive", "timeout=5"),
            ("TE", "trailers"), ("Proxy-Authorization", "Basic x"), ("Upgrade", "h2c"),
            ("User-Agent", "test")]
    with Inner(ok()) as server:
        r = gw_ns.http.request("GET", f"port/{server.port}/a%2Fb//c;d?x=1&y=%20&x=2", headers=sent)
        assert (r.status, r.body, r.header("content-type")) == (200, b"ok", "text/plain")
        q = server.got()
    assert (q.method, q.path) == ("GET", "/a%2Fb//c;d?x=1&y=%20&x=2")
    assert q.header("Host") == f"localhost:{server.port}"
    assert q.header("X-Forwarded-Host") == "box" and q.header("X-Forwarded-Proto") == "http"
    assert q.header("X-Forwarded-Prefix") == f"{gw_ns.http.root}/port/{server.port}"
    assert q.header("Cookie") == "a=1; b=2" and q.all("X-Own") == ["one", "two"]
    assert q.header("Connection") == "close"
    for name in ("Authorization", "X-Secret", "Keep-Alive", "TE", "Proxy-Authorization", "Upgrade",
                 "Content-Length", "Transfer-Encoding"):
        assert q.header(name) is None, (name, q.headers)
    assert TOKEN not in str(q.headers) + q.path


def test_request_head_behind_another_proxy(gw_ns):
    # given a proxy in front that has told what it did; then that counts
    sent = {"X-Forwarded-Host": "example.com", "X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/box/"}
    with Inner(ok()) as server:
        gw_ns.http.request("GET", f"port/{server.port}/", headers=sent)
        q = server.got()
    assert q.header("X-Forwarded-Host") == "example.com" and q.header("X-Forwarded-Proto") == "https"
    assert q.header("X-Forwarded-Prefix") == f"/box{gw_ns.http.root}/port/{server.port}"


@pytest.mark.parametrize("query, inner", [
    (f"token={QUOTED}&a=1", "?a=1"),
    (f"a=1&token={QUOTED}", "?a=1"),
    (f"token={QUOTED}", ""),
    (f"authorization=Bearer+{QUOTED}&a=1&b", "?a=1&b"),
    (f"authorization=Bearer%20{QUOTED}", ""),
], ids=str)
def test_token_of_the_query_goes_nowhere(gw_ns, query, inner):
    # given the token in the query; then the rest of the query goes on, and an Authorization that is
    # meant for the server inside does too
    with Inner(ok()) as server:
        r = gw_ns.http.request("GET", f"port/{server.port}/x?{query}", auth=False,
                            headers={"Authorization": "Basic aW5uZXI6eA=="})
        assert r.status == 200, r.body
        q = server.got()
    assert q.path == "/x" + inner and q.header("Authorization") == "Basic aW5uZXI6eA=="


def test_a_parameter_that_is_not_the_token_stays(gw_ns):
    with Inner(ok()) as server:
        gw_ns.http.request("GET", f"port/{server.port}/?token=theirs&authorization=x&%zz")
        assert server.got().path == "/?token=theirs&authorization=x&%zz"


def test_no_token_no_connection(gw):
    # given no token, or another one; then nothing inside hears of it
    with Inner(ok()) as server:
        for headers in ({}, {"Authorization": "Bearer other"}):
            r = gw.http.request("GET", f"port/{server.port}/", headers=headers, auth=False)
            error_of(r, 401, "unauthorized")
        assert server.connections == 0


def test_a_person_with_a_browser(gw_ns):
    # given an address with the token, opened in a browser; then it is sent to the one without, with a
    # cookie for this port, by which what the page loads comes through; the server inside sees neither
    with Inner(ok()) as server:
        prefix = f"{gw_ns.http.root}/port/{server.port}/"
        fetched = {"Sec-Fetch-Mode": "cors", "Accept": "text/html"}
        assert gw_ns.http.request("GET", f"port/{server.port}/?token={QUOTED}", headers=fetched,
                               auth=False).body == b"ok"
        plain = {"Accept": "text/html,*/*"}  # what a browser says to a host without TLS
        assert gw_ns.http.request("GET", f"port/{server.port}/?token={QUOTED}", headers=plain,
                               auth=False).status == 303
        server.got()
        navigate = {"Sec-Fetch-Mode": "navigate", "Accept": "*/*"}
        r = gw_ns.http.request("GET", f"port/{server.port}?token={QUOTED}&a=1", headers=navigate, auth=False)
        assert (r.status, r.header("location"), r.body) == (303, prefix + "?a=1", b"")
        cookie, *attributes = r.header("set-cookie").split("; ")
        assert attributes == [f"Path={prefix}", "HttpOnly", "SameSite=Strict"]
        assert TOKEN not in cookie and server.connections == 1
        for sent, got in ((cookie, None), (f"a=1; {cookie}; b=2", "a=1; b=2"), (f"a=1;{cookie}", "a=1")):
            r = gw_ns.http.request("GET", r.header("location") or prefix, headers={"Cookie": sent}, auth=False)
            assert (r.status, r.body) == (200, b"ok")
            assert server.got().header("Cookie") == got
            r = gw_ns.http.request("GET", f"port/{server.port}/x", headers=UPGRADE + [("Cookie", sent)],
                                auth=False)
            assert server.got().header("Cookie") == got
        # it is good for ports only, and nothing else is good
        for target, value in (("running", cookie), (f"port/{server.port}/wait", cookie),
                              (f"port/{server.port}/", cookie[:-1]), (f"port/{server.port}/", cookie + "0"),
                              (f"port/{server.port}/", "sandbox_port="), (f"port/{server.port}/", "x" + cookie)):
            r = gw_ns.http.request("GET", target, headers={"Cookie": value}, auth=False)
            error_of(r, 401, "unauthorized")


def test_a_cookie_is_good_until_the_gateway_starts_again(gateway_boxes):
    gw = gateway_boxes.get("ns-root")
    with Inner(ok()) as server:
        target = f"port/{server.port}/"
        r = gw.http.request("GET", f"{target}?token={QUOTED}", headers={"Sec-Fetch-Mode": "navigate"}, auth=False)
        cookie = {"Cookie": r.header("set-cookie").split(";")[0]}
        assert gw.http.request("GET", target, headers=cookie, auth=False).body == b"ok"
        old = gw.gateway_pid
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: gw.gateway_pid not in (None, old), 10, "another gateway")
        gw.await_gateway()
        error_of(gw.http.request("GET", target, headers=cookie, auth=False), 401, "unauthorized")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND",
                                    "REPORT", "M-SEARCH"])
def test_any_method(gw_ns, method):
    with Inner(ok()) as server:
        assert gw_ns.http.request(method, f"port/{server.port}/m").body == b"ok"
        assert server.got().line == f"{method} /m HTTP/1.1"


def test_bodies(gw_ns):
    # given bodies with a length, in chunks, empty and absent; then each comes with one framing
    data = bytes(range(256)) * 300
    with Inner(ok()) as server:
        for body, length, coding, want in [(data, str(len(data)), None, data),
                                           (iter([data[:7], data[7:5000], data[5000:]]), None, "chunked", data),
                                           (b"", "0", None, b""), (iter(()), None, "chunked", b"")]:
            assert gw_ns.http.request("POST", f"port/{server.port}/", body).status == 200
            q = server.got()
            assert (q.header("Content-Length"), q.header("Transfer-Encoding")) == (length, coding)
            wait_until(lambda: q.body == want, 10, "the whole body")
        assert gw_ns.http.request("POST", f"port/{server.port}/").status == 200
        assert server.got().header("Content-Length") == "0"


def test_expect_continue(gw_ns):
    # given a client that asks whether its body is wanted; then it is told so by the gateway
    with Inner(ok()) as server, gw_ns.http.open() as c:
        c.request("POST", f"{gw_ns.http.root}/port/{server.port}/",
                  gw_ns.http.auth() + [("Expect", "100-continue"), ("Content-Length", "4")])
        assert c._line(time.monotonic() + 10) == b"HTTP/1.1 100 Continue"
        assert c._line(time.monotonic() + 10) == b""
        c.send(b"body")
        assert c.response().body == b"ok"
        q = server.got()
        assert q.header("Expect") is None
        wait_until(lambda: q.body == b"body", 10, "the body")


def test_keep_alive(gw_ns):
    # given one connection of a client; when it asks several times; then each answer is its own
    with Inner(ok()) as server, gw_ns.http.open() as c:
        for i in range(3):
            c.request("POST", f"{gw_ns.http.root}/port/{server.port}/{i}", gw_ns.http.auth(), b"x" * i)
            r = c.response()
            assert (r.status, r.body) == (200, b"ok") and not r.closes
            assert server.got().path == f"/{i}"


@pytest.mark.parametrize("head", [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"Transfer-Encoding: chunked, gzip\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Content-Length: +5\r\n",
    b"X: a\r\n folded: b\r\n",
    b"Transfer-Encoding : chunked\r\n",
])
def test_no_smuggling(gw, head):
    # given a request that two servers could read in two ways; then it reaches none inside
    with Inner(ok()) as server, gw.http.open() as c:
        c.send(f"POST {gw.http.root}/port/{server.port}/ HTTP/1.1\r\nHost: b\r\n"
               f"Authorization: Bearer {TOKEN}\r\n".encode() + head
               + b"\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: b\r\n\r\n")
        r = c.response()
        assert r.status in (400, 501) and r.closes
        assert server.connections == 0


def test_a_pipelined_request_is_not_the_inner_servers(gw_ns):
    # given two requests in one packet, the first with a body; then each goes to its own place
    with Inner(ok()) as server, gw_ns.http.open() as c:
        auth = f"Host: b\r\nAuthorization: Bearer {TOKEN}\r\n"
        c.send((f"POST {gw_ns.http.root}/port/{server.port}/1 HTTP/1.1\r\n{auth}Content-Length: 2\r\n\r\nab"
                f"GET /health HTTP/1.1\r\n{auth}\r\n").encode())
        assert c.response().body == b"ok"
        assert c.response().json == {"ok": True}
        assert server.got().body == b"ab" and server.connections == 1


# ---- the answer as the client gets it ----


@pytest.mark.parametrize("head, body, status, want", [
    (b"HTTP/1.1 200 OK\nContent-Length: 5\n", b"hello", 200, b"hello"),
    (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 200, b"abcde"),
    (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X\n", b"1\r\na\r\n0\r\nX: y\r\n\r\n", 200, b"a"),
    (b"HTTP/1.1 200 OK\n", b"until close", 200, b"until close"),
    (b"HTTP/1.0 200 OK\nConnection: keep-alive\n", b"old", 200, b"old"),
    (b"HTTP/1.1 204 No Content\n", b"", 204, b""),
    (b"HTTP/1.1 304 Not Modified\nContent-Length: 99\nETag: \"x\"\n", b"", 304, b""),
    (b"HTTP/1.1 103 Early Hints\nLink: </a>\n\nHTTP/1.1 404 Gone\nContent-Length: 2\n", b"no", 404, b"no"),
    (b"HTTP/1.1 418 Teapot\nContent-Length: 0\n", b"", 418, b""),
    (b"HTTP/1.1 200 OK\nUpgrade: h2c\nConnection: Upgrade\nContent-Length: 1\n", b"x", 200, b"x"),
])
def test_answers(gw_ns, head, body, status, want):
    with Inner(answer(head, body)) as server, gw_ns.http.open() as c:
        for _ in range(2):  # the connection of the client can be used again
            c.request("GET", f"{gw_ns.http.root}/port/{server.port}/", gw_ns.http.auth())
            r = c.response()
            assert (r.status, r.body) == (status, want)
            assert not r.closes and r.header("upgrade") is None and r.header("trailer") is None


def test_answer_headers(gw_ns):
    head = (b"HTTP/1.1 200 OK\nContent-Length: 2\nSet-Cookie: a=1; Path=/\nSet-Cookie: b=2\nETag: \"1\"\n"
            b"Connection: X-Hop\nX-Hop: 1\nKeep-Alive: timeout=9\nServer: own\nContent-Encoding: gzip\n"
            b"Date: Thu, 01 Jan 1970 00:00:00 GMT\nX-Empty:\n")
    with Inner(answer(head, b"ok")) as server:
        r = gw_ns.http.request("GET", f"port/{server.port}/")
    assert [v for k, v in r.headers if k == "set-cookie"] == ["a=1; Path=/", "b=2"]
    assert r.header("etag") == '"1"' and r.header("server") == "own" and r.header("x-empty") == ""
    assert r.header("content-encoding") == "gzip" and len([k for k, _ in r.headers if k == "date"]) == 1
    assert r.header("x-hop") is None and r.header("keep-alive") is None and r.header("content-type") is None


def test_head(gw_ns):
    # given HEAD; then the head of the answer is that of GET, and no body is waited for
    with Inner(answer(b"HTTP/1.1 200 OK\nContent-Length: 12345\n")) as server, gw_ns.http.open() as c:
        for _ in range(2):
            c.request("HEAD", f"{gw_ns.http.root}/port/{server.port}/", gw_ns.http.auth())
            r = c.response("HEAD")
            assert (r.status, r.length) == (200, 12345)
            assert server.got().method == "HEAD"


@pytest.mark.parametrize("sent, got", [
    ("/login?x=1", "{prefix}/login?x=1"),
    ("/", "{prefix}/"),
    ("http://localhost:{port}/a", "{prefix}/a"),
    ("{prefix}/a", "{prefix}/a"),
    ("relative", "relative"),
    ("//other/x", "//other/x"),
    ("https://example.com/", "https://example.com/"),
    ("http://localhost:1/a", "http://localhost:1/a"),
])
def test_redirections_stay_inside(gw_ns, sent, got):
    place = {}

    def play(c):
        c.request()
        c.send(f"HTTP/1.1 302 Found\r\nLocation: {sent.format(**place)}\r\nContent-Length: 0\r\n\r\n".encode())

    with Inner(play) as server:
        place.update(port=server.port, prefix=f"{gw_ns.http.root}/port/{server.port}")
        r = gw_ns.http.request("GET", f"port/{server.port}/")
        assert (r.status, r.header("location")) == (302, got.format(**place))


def test_a_path_without_a_slash(gw):
    # given the address of a port without a slash behind it; then a client is sent to the one with it,
    # since a page's relative links would go astray
    with Inner(ok()) as server:
        r = gw.http.request("GET", f"port/{server.port}?a=1")
        assert (r.status, r.header("location")) == (308, f"{gw.http.root}/port/{server.port}/?a=1")
        assert server.connections == 0


@pytest.mark.parametrize("bytes_, words", [
    (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
    (b"", "without an answer"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1", "without an answer"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "not HTTP"),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "protocol"),
    (b"HTTP/1.1 200 OK\r\n" + b"X-Much: %s\r\n" % (b"y" * 1000) * 80 + b"\r\n", "64 KiB"),
])
def test_answers_that_are_none(gw_ns, bytes_, words):
    def play(c):
        c.request()
        c.send(bytes_)

    with Inner(play) as server:
        r = gw_ns.http.request("GET", f"port/{server.port}/")
        error_of(r, 502, "port_error", f"port {server.port}", words)


@pytest.mark.parametrize("head, body", [
    (b"HTTP/1.1 200 OK\nContent-Length: 50\n", b"hello"),
    (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n", b"5\r\nhello\r\n"),
    (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n", b"5\r\nhello\r\nzz\r\n"),
])
def test_an_answer_that_breaks_off(gw_ns, head, body):
    # given an answer that ends too early; then the client sees that it is not whole
    with Inner(answer(head, body)) as server:
        with pytest.raises(Cut):
            gw_ns.http.request("GET", f"port/{server.port}/")


def test_nobody_listens(gw):
    port = free_port()
    for method, body in (("GET", None), ("POST", b"x" * 100_000)):
        error_of(gw.http.request(method, f"port/{port}/", body), 502, "port_error", f"port {port}",
                 "Connection refused", "nobody listens")


def test_a_server_on_v6_only(gw_ns):
    try:
        server = Inner(ok(), socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        assert gw_ns.http.ok("GET", f"port/{server.port}/wait?host=::1")["open"] is True
        assert gw_ns.http.request("GET", f"port/{server.port}/").body == b"ok"


@pytest.mark.parametrize("port", ["0", "65536", "abc", "-1", "8080x", "08080", "1e3", "%38080"])
def test_port_form(gw, port):
    for tail in ("/", "/wait"):
        error_of(gw.http.request("GET", f"port/{port}{tail}"), 400, "invalid_request", "1 to 65535")


def test_the_gateways_own_port(gw):
    # given the gateway's own port; then it does not talk to itself
    for tail in ("/health", "/wait"):
        error_of(gw.http.request("GET", f"port/{gw.port}{tail}"), 400, "invalid_request", "own")


def test_a_real_server(gw):
    # given Python's own server, started as a process; when its port is there; then its files come
    (gw.workspace / "index.html").write_text("<h1>hi</h1>")
    port = free_port()
    id = gw.http.ok("POST", "process", {"argv": ["python3", "-m", "http.server", str(port), "--bind",
                                                      "127.0.0.1"]})["id"]
    assert gw.http.ok("GET", f"port/{port}/wait?timeout_ms=30000")["open"] is True
    r = gw.http.request("GET", f"port/{port}/")
    assert (r.status, r.body, r.header("content-type")) == (200, b"<h1>hi</h1>", "text/html")
    gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})
    error_of(gw.http.request("GET", f"port/{port}/"), 502, "port_error", "nobody listens")


# ---- streams ----


def test_events_pass_at_once(gw_ns):
    # given a server that sends an event when told to; then the client has it before the next one
    go = threading.Semaphore(0)

    def play(c):
        c.request()
        c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")
        for i in range(3):
            go.acquire()
            c.send(b"data: %d\n\n" % i)

    with Inner(play) as server, gw_ns.http.stream("GET", f"port/{server.port}/") as events:
        for i in range(3):
            go.release()
            assert events.next().data == str(i)
        assert events.next() is None


def test_a_body_passes_at_once(gw_ns):
    # given a client that sends its body by and by; then the server has each piece before the next,
    # and its answer may come before the body is over
    pieces = []

    def play(c):
        r = c.head()
        for piece in c.body(r):
            pieces.append(piece)
            if piece == b"two":
                break
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")

    with Inner(play) as server, gw_ns.http.open() as c:
        c.request("POST", f"{gw_ns.http.root}/port/{server.port}/",
                  gw_ns.http.auth() + [("Transfer-Encoding", "chunked")])
        for piece in (b"one", b"two"):
            c.send(b"3\r\n%s\r\n" % piece)
            wait_until(lambda: pieces[-1:] == [piece], 10, f"{piece} inside")
        assert c.response().body == b"early"


def rss_kib(pid):
    """Resident memory; 0 under ASan, which keeps what was freed."""
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4 if build_dir().name != "asan" else 0


def test_much_both_ways_with_flat_memory(gw_ns):
    # given much more than any buffer; when it goes in and out; then all of it comes and the gateway
    # has not grown by it
    block = bytes(range(256)) * 4096  # 1 MiB
    n = 100 if is_long() else 24

    def play(c):
        r = c.head()
        got = sum(len(p) for p in c.body(r))
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (n * len(block)))
        for _ in range(n):
            c.send(block)
        assert got == n * len(block)

    with Inner(play) as server, gw_ns.http.open() as c:
        for coding in ([("Content-Length", str(n * len(block)))], [("Transfer-Encoding", "chunked")]):
            before = rss_kib(gw_ns.gateway_pid)
            c.request("POST", f"{gw_ns.http.root}/port/{server.port}/", gw_ns.http.auth() + coding)
            for _ in range(n):
                c.send(block if "Content" in coding[0][0] else b"100000\r\n%s\r\n" % block)
            if "Transfer" in coding[0][0]:
                c.send(b"0\r\n\r\n")
            r = c.begin()
            total = 0
            for piece in c.pieces(r):
                total += len(piece)
            assert total == n * len(block)
            assert rss_kib(gw_ns.gateway_pid) - before < 12 * 1024


def test_a_client_that_does_not_read(gw_ns):
    # given a client that does not read, then the server inside is held up, not the gateway filled;
    # when it reads, then all comes
    sent = [0]
    block = b"z" * 65536

    def play(c):
        c.request()
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(block) * 500))
        for _ in range(500):
            c.send(block)
            sent[0] += len(block)

    with Inner(play) as server, gw_ns.http.open() as c:
        c.request("GET", f"{gw_ns.http.root}/port/{server.port}/", gw_ns.http.auth())
        still = [-1, 0]

        def stands():
            still[:] = [sent[0], still[1] + 1 if sent[0] == still[0] and sent[0] else 0]
            return still[1] >= 10

        wait_until(stands, 20, "the server is held up", every=0.03)
        assert sent[0] < 24 << 20, "the gateway takes without an end"
        assert sum(map(len, c.pieces(c.begin()))) == len(block) * 500


def test_a_server_that_does_not_read(gw_ns):
    # given a server inside that does not read a body; then the client is held up, not the gateway
    # filled; when it reads, then all comes
    go, total = threading.Event(), [0]
    block = b"z" * 65536

    def play(c):
        r = c.head()
        assert go.wait(30)
        total[0] = sum(map(len, c.body(r)))
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with Inner(play) as server, gw_ns.http.open() as c:
        c.request("POST", f"{gw_ns.http.root}/port/{server.port}/",
                  gw_ns.http.auth() + [("Content-Length", str(len(block) * 500))])
        c.sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < len(block) * 500:
                sent += c.sock.send(block[:min(len(block), len(block) * 500 - sent)])
        assert sent < 24 << 20, "the gateway takes without an end"
        go.set()
        c.sock.settimeout(30)
        while sent < len(block) * 500:
            sent += c.sock.send(block[:min(len(block), len(block) * 500 - sent)])
        assert c.response().status == 200 and total[0] == sent


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("size", [5, 50_000])
def test_an_answer_while_the_body_is_on_its_way(gw_ns, size, coding):
    # given a server inside that does not read a body, answers and closes; then the answer comes, whole, though
    # nobody takes what is still sent
    go = threading.Event()
    body, block = os.urandom(size), b"z" * 65536

    def play(c):
        c.head()
        assert go.wait(30)
        c.send(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: %d\r\n\r\n" % size + body)

    with Inner(play) as server, gw_ns.http.open() as c:
        c.request("POST", f"{gw_ns.http.root}/port/{server.port}/", gw_ns.http.auth() + [
            ("Content-Length", str(len(block) * 500)) if coding == "length" else ("Transfer-Encoding", "chunked")])
        c.sock.settimeout(0.5)
        data = memoryview(block * 500 if coding == "length" else b"1f40000\r\n" + block * 500 + b"\r\n0\r\n\r\n")
        with pytest.raises(TimeoutError):
            while data:
                data = data[c.sock.send(data[:1 << 18]):]
        go.set()
        r = c.response()
    assert (r.status, r.body == body) == (413, True)


# ---- gone ----


def test_the_client_goes(gw_ns):
    # given a client that leaves: before the answer, in the middle of it, in the middle of its body;
    # then the server inside sees its connection end
    ends = []

    def play(c):
        r = c.head()
        if r.path == "/answer":
            c.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        while c.read():
            pass
        ends.append(r.path)

    with Inner(play) as server:
        for path, head in (("/silent", []), ("/answer", []), ("/body", [("Content-Length", "9")])):
            with gw_ns.http.open() as c:
                c.request("GET", f"{gw_ns.http.root}/port/{server.port}{path}", gw_ns.http.auth() + head)
                server.got()
                if path == "/answer":
                    assert next(c.pieces(c.begin())) == b"some"
            wait_until(lambda: ends[-1:] == [path], 10, f"the end of {path}")


def test_the_server_goes(gw_ns):
    # given a server inside that is gone in the middle; then the client of it is cut, nobody else
    def play(c):
        c.head()
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsome")
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with Inner(play) as server:
        with pytest.raises(Cut):
            gw_ns.http.request("GET", f"port/{server.port}/")
    assert gw_ns.http.ok("GET", "/health") == {"ok": True}


def test_case_R1_two_at_once(gw_ns):
    # given two clients of one server's stream; when one leaves; then the other loses nothing
    go = threading.Semaphore(0)

    def play(c):
        r = c.request()
        c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")
        for i in range(4):
            if r.path == "/stays":
                go.acquire()
            try:
                c.send(b"data: %d\n\n" % i)
            except OSError:
                return

    with Inner(play) as server:
        stays = gw_ns.http.stream("GET", f"port/{server.port}/stays")
        leaves = gw_ns.http.stream("GET", f"port/{server.port}/leaves")
        go.release()
        assert stays.next().data == "0" and leaves.next().data == "0"
        leaves.close()
        go.release(3)
        assert [e.data for e in stays] == ["1", "2", "3"]
        stays.close()


# ---- WebSockets ----

UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
           ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Protocol", "chat")]
ACCEPTED = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n\r\n")


def echo(c):
    c.head()
    c.send(ACCEPTED + b"hello")
    while got := c.read():
        c.send(got)


def upgraded(gw, server, early=b""):
    """A connection of a client after 101, without the 5 bytes that came with it."""
    c = gw.http.open()
    c.request("GET", f"{gw.http.root}/port/{server.port}/ws?a=1", gw.http.auth() + UPGRADE)
    if early:
        c.send(early)
    r = c.begin()
    assert r.status == 101, r
    assert (r.header("upgrade"), r.header("connection")) == ("websocket", "Upgrade")
    assert r.header("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert r.header("sec-websocket-protocol") == "chat"
    assert c._exactly(5, time.monotonic() + 10) == b"hello"
    return c


def test_websocket(gw_ns):
    # given a server that speaks WebSocket; when a client upgrades; then it is asked for it, and after
    # 101 all bytes pass both ways as they are
    data = bytes(range(256)) * 4000
    with Inner(echo) as server:
        with upgraded(gw_ns, server, early=b"early") as c:
            q = server.got()
            assert q.path == "/ws?a=1" and q.header("Upgrade") == "websocket"
            assert q.header("Connection") == "Upgrade" and q.header("Authorization") is None
            assert q.header("Sec-WebSocket-Key") == "dGhlIHNhbXBsZSBub25jZQ=="
            assert q.header("Host") == f"localhost:{server.port}"
            assert c._exactly(5, time.monotonic() + 10) == b"early"
            sender = threading.Thread(target=c.send, args=(data,))
            sender.start()
            assert c._exactly(len(data), time.monotonic() + 30) == data
            sender.join(10)


def test_websocket_token_of_the_query(gw_ns):
    with Inner(echo) as server, gw_ns.http.open() as c:
        c.request("GET", f"{gw_ns.http.root}/port/{server.port}/?authorization=Bearer+{QUOTED}",
                  UPGRADE)
        assert c.begin().status == 101
        assert server.got().path == "/"


def test_websocket_refused(gw_ns):
    # given a server that does not want the upgrade; then its answer comes as any other
    with Inner(answer(b"HTTP/1.1 403 Forbidden\nContent-Length: 2\n", b"no")) as server:
        r = gw_ns.http.request("GET", f"port/{server.port}/", headers=UPGRADE)
        assert (r.status, r.body) == (403, b"no")


@pytest.mark.parametrize("who", ["client", "server", "client's reset"])
def test_websocket_ends(gw_ns, who):
    # given an open WebSocket; when one side closes; then the other side sees it
    seen = threading.Event()

    def play(c):
        c.head()
        c.send(ACCEPTED + b"hello")
        if who == "server":
            c.send(b"bye")
            return
        try:
            while c.read():
                pass
        finally:
            seen.set()

    with Inner(play) as server:
        c = upgraded(gw_ns, server)
        if who == "server":
            assert c.rest() == b"bye"
        elif who != "client":
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        c.close()
        assert who == "server" or seen.wait(10)


def test_websocket_back_pressure(gw_ns):
    # given a server that floods and a client that does not read; then the server is held up
    sent = [0]

    def play(c):
        c.head()
        c.send(ACCEPTED + b"hello")
        c.sock.settimeout(0.5)
        with pytest.raises((TimeoutError, OSError)):
            while True:
                sent[0] += c.sock.send(b"f" * 65536)

    with Inner(play) as server:
        before = rss_kib(gw_ns.gateway_pid)
        with upgraded(gw_ns, server):
            wait_until(lambda: not any(t.is_alive() for t in server.threads[1:]), 20, "held up")
            assert sent[0] < 24 << 20
            assert rss_kib(gw_ns.gateway_pid) - before < 8 * 1024


# ---- port wait ----


def test_wait_for_a_port(gw_ns):
    # given nobody who listens; when somebody waits, and then a server comes; then it is told
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
        with gw_ns.http.open() as c:
            c.request("GET", f"{gw_ns.http.root}/port/{port}/wait?timeout_ms=20000", gw_ns.http.auth())
            wait_until(lambda: not c.unread, 10, "the gateway has taken it")
            c.sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                c.sock.recv(1)
            s.listen(5)
            r = c.response()
    assert r.status == 200 and r.json["port"] == port and r.json["open"] is True
    assert r.json["waited_ms"] >= 250


def test_wait_too_long(gw):
    port = free_port()
    begun = time.monotonic()
    r = gw.http.request("GET", f"port/{port}/wait?timeout_ms=200")
    assert 0.2 <= time.monotonic() - begun < 10
    error_of(r, 504, "port_error", f"port {port}", "200 ms", "refused")
    error_of(gw.http.request("GET", f"port/{port}/wait?timeout_ms=0"), 504, "port_error")


@pytest.mark.parametrize("query, words", [
    ("timeout_ms=x", "timeout_ms"), ("timeout_ms=-1", "timeout_ms"), ("timeout_ms=1.5", "timeout_ms"),
    ("timeout_ms=%zz", "timeout_ms"), ("host=example.com", "host"), ("host=" + "1" * 70, "host"),
])
def test_wait_parameters(gw, query, words):
    error_of(gw.http.request("GET", f"port/80/wait?{query}"), 400, "invalid_request", words)


def test_many_at_once(gw_ns):
    # given many requests at once; then each gets its own answer
    def play(c):
        r = c.request()
        c.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(r.path), r.path.encode()))

    wrong = []

    def ask(i):
        if gw_ns.http.request("GET", f"port/{server.port}/{i}").body != b"/%d" % i:
            wrong.append(i)

    with Inner(play) as server:
        for _ in range(repeats(20)):
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
    assert not wrong
