"""A gateway without a token, and a browser beside it: pages of others can send it requests ("simple"
ones without asking first), and names that point at it (DNS rebinding) can make them its own."""

import json

import pytest

from rig.http import Client, GatewayBox, collect
from rig.websocket import Refused, WebSocket


@pytest.fixture(scope="module")
def open_box():
    with GatewayBox("ns-root", token=None, port=True) as box:
        box.tcp = Client(("127.0.0.1", box.port), token=None, sandbox=box.http.sandbox)
        yield box


def refused(r):
    assert r.status == 403 and set(r.json) == {"error", "code"} and r.json["code"] == "unauthorized"
    return True


EXEC = json.dumps({"argv": ["touch", "/workspace/owned"]}).encode()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "", "localhost:3000"])
def test_a_simple_request_of_a_foreign_page(open_box, origin):
    # given a page of somebody else, which a browser lets POST text without asking
    simple = {"Origin": origin, "Host": f"localhost:{open_box.port}", "Content-Type": "text/plain"}
    for client in (open_box.tcp, open_box.http):
        assert refused(client.request("POST", "exec", EXEC, simple))
        assert refused(client.request("DELETE", client.root, None, simple))
        assert refused(client.request("POST", "persist", b"", simple))
        assert refused(client.request("PUT", client.file("/workspace/owned"), b"x", simple))
        assert refused(client.request("GET", "/v1/events", None, simple))
        assert refused(client.request("GET", f"port/{open_box.port}/", None, simple))
        with pytest.raises(Refused) as e:
            WebSocket(client, "pty?authorization=Bearer+any", simple)
        assert refused(e.value.response)
        with pytest.raises(Refused):
            WebSocket(client, "pty", {**simple, "Authorization": "Bearer any"})
    # then nothing has happened
    assert not (open_box.workspace / "owned").exists()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:3000", "localhost.evil.example",
                                  "127.0.0.1@evil.example", "", ":3000", pytest.param("x." * 150, id="long"),
                                  "internal.evil.example", "1.2.3.4.5"])
def test_a_name_that_points_here(open_box, host):
    # given a page whose own name has been made to point at the gateway
    for headers in ({"Host": host, "Origin": f"http://{host}"}, {"Host": host}):
        assert refused(open_box.tcp.request("POST", "exec", EXEC, headers))
        assert refused(open_box.tcp.request("GET", "/", None, headers))
    assert not (open_box.workspace / "owned").exists()


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LOCALHOST", "[::1]:{}", "sandbox:{}", "10.1.2.3",
                                  "a.localhost", "host.docker.internal:3000", "localhost.", "box"])
def test_who_is_meant_to_ask(open_box, host):
    # given the gateway under its addresses and names, then programs and its own page are served
    host = host.format(open_box.port)
    for headers in ({"Host": host}, {"Host": host, "Origin": f"http://{host}"}):
        with open_box.tcp.stream("POST", "exec", {"argv": ["echo", "x"]}, headers) as events:
            assert collect(events).triple == (0, b"x\n", b"")
    # and over a Unix socket any name: that is the proxy's before it
    assert open_box.http.request("GET", "running", None, {"Host": "sandbox.example"}).status == 200


def test_cors_origin_names_a_page_and_its_host():
    with GatewayBox("ns-root", token=None, port=True, gateway={"cors_origin": "https://app.example"}) as box:
        tcp = Client(("127.0.0.1", box.port), token=None)
        for headers, status in (({"Origin": "https://app.example"}, 200), ({"Host": "app.example"}, 200),
                                ({"Origin": "https://app.example.evil"}, 403), ({"Host": "evil.example"}, 403)):
            assert tcp.request("GET", "running", None, headers).status == status, headers


def test_with_a_token_nothing_is_asked(gw):
    headers = {"Host": "any.example", "Origin": "https://elsewhere.example"}
    assert gw.http.request("GET", "running", None, headers).status == 200
    assert gw.http.request("GET", "running", None, headers, auth=False).status == 401
