"""Coming back to an exec: by its id, by Idempotency-Key, after a lost connection, after a lost gateway."""

import os
import re
import signal

import pytest

from rig.http import GatewayBox, HttpError, collect
from rig.wait import wait_until

KEYS = iter(range(1, 10_000))


@pytest.fixture
def key():
    return f"key-{os.getpid()}-{next(KEYS)}"


def attach(gw, exec_id, since=None, last=None):
    headers = [("Last-Event-ID", last)] if last is not None else []
    with gw.http.stream("GET", f"exec/{exec_id}" + ("" if since is None else f"?since={since}"),
                        headers=headers) as events:
        return collect(events)


def with_key(gw, key, argv, **kw):
    return gw.http.exec(argv, headers=[("Idempotency-Key", key)], **kw)


# ---- ids of events ----


def test_ids_are_offsets(gw):
    # given output of both streams; then each event's id is the number of bytes up to its end
    r = gw.http.exec("printf aaa; sleep 0.1; printf bb >&2; sleep 0.1; printf c")
    n = 0
    for e in r.events[1:-1]:
        n += len(e.bytes)
        assert e.id == str(n)
    assert n == 6 and r.events[-1].id == "6"


def test_attach_by_id(gw):
    # given a run that is over; when somebody comes back; then all of it comes, with the same end
    r = gw.http.exec("echo out; echo err >&2; exit 3")
    again = attach(gw, r["exec_id"])
    assert again.triple == r.triple and again.fields == r.fields
    assert again.start == {**r.start, "joined": True} and again.events[0].name == "start"


def test_attach_while_it_runs(gw):
    # given a run that writes; when a second client comes; then both get all of it, live
    with gw.http.exec_stream("echo 1; until [ -e go5 ]; do sleep 0.02; done; echo 2; exit 4") as events:
        exec_id = events.next().json["exec_id"]
        with gw.http.stream("GET", f"exec/{exec_id}") as other:
            assert other.until("stdout")[-1].bytes == b"1\n"
            (gw.workspace / "go5").touch()
            got = collect(other)
        assert (got.status, got.out) == (4, b"2\n")
        assert collect(events).triple == (4, b"1\n2\n", b"")


def test_every_event_is_a_place_to_go_on(gw):
    # given characters of both streams that come in halves; then from each event on comes the rest
    script = r"""printf 'a\303'; sleep .05; printf 'b\360\237' >&2; sleep .05; printf '\251c'; sleep .05
                 printf '\230\200d' >&2; sleep .05; printf 'e'"""
    r = gw.http.exec(script)
    assert (r.out, r.err) == ("aéce".encode(), "b😀d".encode())
    told = [e for e in r.events if e.name in ("stdout", "stderr")]
    assert any("-" in e.id for e in told) and all(re.fullmatch(r"\d+(-[oe]([0-9A-F]{2})+)*", e.id) for e in told)
    for i, e in enumerate(told):
        rest = attach(gw, r["exec_id"], last=e.id)
        for stream, got in (("stdout", rest.out), ("stderr", rest.err)):
            assert got == b"".join(t.bytes for t in told[i + 1:] if t.name == stream), (e.id, rest.events)
        assert rest.status == 0


def test_since_and_last_event_id(gw):
    # given a parameter and a header; then either is taken, and the header is the newer one
    exec_id = gw.http.exec("printf 0123456789")["exec_id"]
    assert attach(gw, exec_id, since=4).out == b"456789"
    assert attach(gw, exec_id, last="7").out == b"789"
    assert attach(gw, exec_id, since=4, last="7").out == b"789"
    assert attach(gw, exec_id, since=10).triple == (0, b"", b"")


@pytest.mark.parametrize("what,status,code", [
    ("exec/none", 404, "not_found"),
    ("exec/%41", 404, "not_found"),
    ("exec/" + "x" * 200, 404, "not_found"),
    ("exec/{id}?since=x", 400, "invalid_request"),
    ("exec/{id}?since=-1", 400, "invalid_request"),
    ("exec/{id}?since=99", 400, "invalid_request"),
    ("exec/{id}?since=1%00", 400, "invalid_request"),
])
def test_attaches_that_are_refused(gw, what, status, code):
    exec_id = gw.http.exec("printf 012")["exec_id"]
    got, body = gw.http.json("GET", what.format(id=exec_id))
    assert (got, body["code"]) == (status, code) and set(body) == {"error", "code"}


def test_head(gw):
    exec_id = gw.http.exec("printf 012")["exec_id"]
    r = gw.http.request("HEAD", f"exec/{exec_id}")
    assert (r.status, r.body) == (200, b"") and r.header("content-type") == "text/event-stream"


def test_what_is_not_kept_is_told(gw):
    # given more output than is kept; when somebody comes late; then what is lost is said, with its place
    r = gw.http.exec(["head", "-c", "3000000", "/dev/zero"])
    assert len(r.out) == 3_000_000 and r["stdout_bytes"] == 3_000_000
    late = attach(gw, r["exec_id"])
    lost = [e.json for e in late.events if e.name == "lost"]
    assert lost and len(late.out) + sum(e["to"] - e["from"] for e in lost) == 3_000_000
    assert late.events[-1].id == "3000000" and late["truncated"] and late["lost_bytes"] > 0


# ---- Idempotency-Key ----


def test_a_key_runs_once(gw, key):
    # given the same request twice with one key; then it ran once, and both got all of it
    first = with_key(gw, key, "echo $$; echo ran >>once; exit 6")
    again = with_key(gw, key, "echo $$; echo ran >>once; exit 6")
    assert again.triple == first.triple and again.start["joined"] and first.status == 6
    assert again["exec_id"] == first["exec_id"] and (gw.workspace / "once").read_text() == "ran\n"
    (gw.workspace / "once").unlink()


def test_a_key_while_it_runs(gw, key):
    # given a run under way; when its request comes again; then that joins it
    text = "echo $$; until [ -e go6 ]; do sleep 0.02; done"
    with gw.http.exec_stream(text, headers=[("Idempotency-Key", key)]) as events:
        pid = events.until("stdout")[-1].bytes
        with gw.http.exec_stream(text, headers=[("Idempotency-Key", key)]) as other:
            assert other.until("stdout")[-1].bytes == pid
            (gw.workspace / "go6").touch()
            assert collect(other).status == 0
        assert collect(events).status == 0
    (gw.workspace / "go6").unlink()


def test_a_key_goes_on_where_the_client_was(gw, key):
    r = with_key(gw, key, "printf 0123456789")
    again = gw.http.exec("printf 0123456789", headers=[("Idempotency-Key", key), ("Last-Event-ID", "4")])
    assert again.out == b"456789" and again["exec_id"] == r["exec_id"]


def test_another_request_with_the_same_key(gw, key):
    with_key(gw, key, ["true"])
    for argv, kw in ((["false"], {}), (["true"], {"session": "k"}), (["true"], {"cwd": "/workspace/."} | {})):
        if kw.get("cwd"):  # the same folder in other words is the same request
            assert with_key(gw, key, argv, **kw).start["joined"]
            continue
        with pytest.raises(HttpError) as e:
            with_key(gw, key, argv, **kw)
        assert (e.value.status, e.value.code) == (409, "invalid_request")


def test_a_key_in_a_session(gw, key):
    gw.http.exec(["eval", "n=0"], session="ks")
    for _ in range(2):
        assert with_key(gw, key, ["eval", "n=$((n + 1)); echo $n"], session="ks").out == b"1\n"
    assert gw.http.exec(["eval", "echo $n"], session="ks").out == b"1\n"


@pytest.mark.parametrize("odd", ["a b", "ü", "x" * 300, "-", "../..", '"quoted"'])
def test_keys_of_any_form(gw, odd, key):
    odd = f"{odd}{key}"
    first = with_key(gw, odd, "echo $$")
    assert with_key(gw, odd, "echo $$").out == first.out
    assert with_key(gw, odd + "x", "echo $$").out != first.out
    assert attach(gw, first["exec_id"]).out == first.out


def test_an_empty_key_is_none(gw):
    assert with_key(gw, "", "echo $$").out != with_key(gw, "", "echo $$").out


# ---- the gateway is killed ----


def kill_gateway(gw):
    pid = gw.gateway_pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gw.gateway_pid not in (None, pid), 15, "there is another gateway")
    gw.await_gateway(15)


@pytest.fixture
def mortal(gateway_boxes):
    """The box, whose gateway may end in the test."""
    return gateway_boxes.get("ns-root")


def test_the_gateway_is_killed_in_the_middle(mortal, key):
    # given a run, and a gateway that is killed with -9 in the middle of it; then the run goes on, and
    # the next gateway tells its outcome, by id and by key
    gw, text = mortal, "echo 1; until [ -e go7 ]; do sleep 0.02; done; echo 2; exit 9"
    gw.http.exec(["eval", "A=here"], session="lives")
    with gw.http.exec_stream(text, headers=[("Idempotency-Key", key)]) as events:
        exec_id = events.next().json["exec_id"]
        place = events.until("stdout")[-1].id
        kill_gateway(gw)
        with pytest.raises(AssertionError):  # the answer is cut, never whole
            collect(events)
    (gw.workspace / "go7").touch()
    r = attach(gw, exec_id, last=place)
    assert (r.status, r.out) == (9, b"2\n")
    r = with_key(gw, key, text)
    assert (r.status, r.out, r["exec_id"]) == (9, b"1\n2\n", exec_id)
    assert gw.http.exec(["eval", "echo $A"], session="lives").out == b"here\n"


def test_a_queued_call_outlives_the_gateway(mortal):
    # given a call that waits for its session when the gateway dies; then it runs in its turn
    gw = mortal
    with gw.http.exec_stream(["eval", "until [ -e go8 ]; do sleep 0.02; done"], session="queue"):
        wait_until(lambda: gw.http.ok("GET", "session/queue")["state"] == "busy", 15, "it is busy")
        with gw.http.exec_stream(["touch", "behind8"], session="queue",
                                 headers=[("Idempotency-Key", "queued")]):
            wait_until(lambda: gw.http.ok("GET", "session/queue")["queue"] == 1, 15, "it waits")
            kill_gateway(gw)
    (gw.workspace / "go8").touch()
    assert gw.http.exec(["touch", "behind8"], session="queue", headers=[("Idempotency-Key", "queued")]).status == 0
    assert (gw.workspace / "behind8").exists()


def test_a_client_that_reads_nothing_is_told_how_to_come_back():
    # given a client that reads nothing for client_stall; then its stream ends with an error that says that the
    # exec goes on and where; and there the rest is, without a gap
    with GatewayBox("ns-root", ini={"init": {"client_stall": "300ms"}}) as box:
        with box.http.exec_stream("yes abcdefg | head -c 30000000; until [ -e go ]; do sleep 0.05; done") as events:
            events.next()
            wait_until(lambda: "stalled" in box.log(), 20, "it is dropped")
            got = collect(events)
            text = got.error["error"]
            exec_id, since = re.search(r"the exec goes on: GET …/exec/(\S+)[?]since=(\d+) comes back", text).groups()
        assert int(since) == len(got.out)
        (box.workspace / "go").touch()
        rest = attach(box, exec_id, since=since)
        lost = sum(e.json["to"] - e.json["from"] for e in rest.events if e.name == "lost")
        assert rest.status == 0 and len(got.out) + lost + len(rest.out) == 30000000


def test_head_and_tail_are_there_again_from_the_beginning():
    # given an output_limit, by which something was left out; then who comes back without an id gets the same
    with GatewayBox("ns-root", ini={"sessions": {"output_limit": "100"}}) as box:
        first = box.http.exec(["seq", "1", "1000"])
        again = attach(box, first["exec_id"])
        cut = {"stream": "stdout", "from": 50, "to": 3843, "bytes": 3893}
        for r in (first, again):
            assert [e.json for e in r.events if e.name == "cut"] == [cut]
            assert r.out.startswith(b"1\n2\n") and r.out.endswith(b"999\n1000\n") and len(r.out) == 100
        assert again.triple == first.triple
