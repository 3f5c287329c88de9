"""What init's limits are over HTTP: 503 capacity_exceeded on every route, with init's words, and nobody else is
harmed."""

import pytest

from rig.files import error_of
from rig.wait import wait_until

INI = {"sessions": {"max_sessions": "2", "queue_limit": "1", "max_processes": "6"}}


UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
           ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]


def full(r, *words):
    status, text, code = error_of(r)
    assert (status, code) == (503, "capacity_exceeded"), (status, code, text)
    assert all(w in text for w in words), text


def test_sessions(gw):
    # given as many sessions as there may be; then one more is refused, however it is asked for; when one is
    # deleted, then there is room again
    h = gw.http
    for s in ("one", "two"):
        assert h.exec(["true"], session=s).status == 0
    full(h.request("POST", "exec", {"argv": ["true"]}, [("Session-Id", "three")]), "max_sessions is 2")
    full(h.request("POST", "session", {"id": "three"}), "max_sessions is 2")
    full(h.request("POST", "process", {"argv": ["true"], "session": "three"}), "max_sessions is 2")
    full(h.request("GET", "pty?session=three", headers=UPGRADE), "max_sessions is 2")
    assert h.exec(["echo", "on"], session="one").out == b"on\n"
    h.ok("DELETE", "session/two")
    assert h.exec(["true"], session="three").status == 0
    h.ok("DELETE", "session/three")


def test_queue(gw):
    # given a session in which one runs and one waits; then the next is refused at once, those two are not
    with gw.http.exec_stream(["eval", "until [ -e go ]; do sleep 0.02; done"], session="one") as first:
        first.next()
        with gw.http.exec_stream(["echo", "second"], session="one") as second:
            wait_until(lambda: gw.http.ok("GET", "session/one")["queue"] == 1, 15, "one waits")
            full(gw.http.request("POST", "exec", {"argv": ["true"]}, [("Session-Id", "one")]), "queue_limit is 1")
            (gw.workspace / "go").touch()
            assert first.until("exit")[-1].json["exit_code"] == 0
            assert second.until("exit")[-1].json["exit_code"] == 0


@pytest.mark.parametrize("route", ["exec", "process"])
def test_processes(gw, route):
    # given as many as may live; then one more is refused, and there is room when they have ended
    ids = []
    try:
        while len(ids) < 20:
            r = gw.http.request("POST", "process", {"command": "exec sleep 84.5"})
            if r.status != 200:
                break
            ids.append(r.json["id"])
        assert 0 < len(ids) <= 6
        full(gw.http.request("POST", route, {"argv": ["true"]}), "max_processes is 6")
    finally:
        for id in ids:
            gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})
    assert gw.http.exec(["true"]).status == 0
