"""POST, GET and DELETE of sessions, beyond the rows of test_contract.py."""

import re

import pytest

from rig.http import collect
from rig.wait import wait_until


def run(gw, session, text, **kw):
    return gw.http.exec(["eval", text], session=session, **kw)


def test_create(gw):
    # given a folder and variables; when a session is made with them; then its shell has them
    gw = gw
    body = {"id": "made", "cwd": "/tmp", "env": {"A": "x y\n'z", "N": 5, "T": True, "none": None}}
    assert gw.http.ok("POST", "session", body) == {"id": "made"}
    r = run(gw, "made", 'printf "%s|" "$PWD" "$A" "$N" "$T" "${none-unset}"; sh -c \'printf "$N"\'')
    assert r.out == b"/tmp|x y\n'z|5|true|unset|5"
    status, body = gw.http.json("POST", "session", {"id": "made"})
    assert (status, body) == (502, {"error": "session create failed: Session 'made' already exists",
                                    "code": "session_error"})


def test_made_up_ids(gw):
    # given requests without an id; then each has another one, and works
    ids = {gw.http.ok("POST", "session", b)["id"] for b in ({}, None, b"{", {"id": None}, [], {"cwd": ""})}
    assert len(ids) == 6 and all(re.fullmatch(r"session-\d{13}", i) for i in ids)
    for i in ids:
        assert run(gw, i, "pwd").out == b"/workspace\n"


@pytest.mark.parametrize("body,why", [
    ({"id": "a/b"}, "Invalid session ID format"),
    ({"id": ""}, "Invalid session ID format"),
    ({"id": 5}, "Invalid session ID format"),
    ({"id": "a\0b"}, "Invalid session ID format"),
    ({"id": "x" * 129}, "Invalid session ID format"),
    ({"env": []}, "env must be an object"),
    ({"env": {"A B": "1"}}, "env name 'A B': want letters, digits and _, not starting with a digit"),
    ({"env": {"A": "\0"}}, "env must not contain NUL characters"),
    ({"cwd": 5}, "cwd must be a string without NUL characters"),
    ({"cwd": "\0"}, "cwd must be a string without NUL characters"),
])
def test_bodies_that_are_refused(gw, body, why):
    assert gw.http.json("POST", "session", body) == (400, {"error": why, "code": "invalid_request"})


def test_a_folder_that_cannot_be(gw):
    status, body = gw.http.json("POST", "session", {"id": "nowhere", "cwd": "/no/such"})
    assert (status, body["code"]) == (502, "session_error")
    assert body["error"].startswith("session create failed: ") and "/no/such" in body["error"]
    assert gw.http.ok("POST", "session", {"id": "nowhere"}) == {"id": "nowhere"}


def test_relative_folder(gw):
    (gw.workspace / "rel").mkdir(exist_ok=True)
    gw.http.ok("POST", "session", {"id": "rel", "cwd": "rel"})
    assert run(gw, "rel", "pwd").out == b"/workspace/rel\n"


def test_list_and_show(gw):
    # given a session in which something runs and somebody waits; then both lists tell it
    gw.http.ok("POST", "session", {"id": "seen", "env": {"A": "1"}})
    row = next(s for s in gw.http.ok("GET", "session")["sessions"] if s["id"] == "seen")
    assert row["state"] == "idle" and row["cwd"] == "/workspace" and row["queue"] == 0 and row["pid"] > 1
    with gw.http.exec_stream(["sleep", "68.5"], session="seen") as events:
        exec_id = events.next().json["exec_id"]
        with gw.http.exec_stream(["echo", "waits"], session="seen") as second:
            v = wait_until(lambda: (v := gw.http.ok("GET", "session/seen"))["queue"] == 1 and v, 15, "one waits")
            assert (v["id"], v["state"], v["running"], v["running_text"]) == ("seen", "busy", exec_id, "sleep 68.5")
            assert [(w["kind"], w["text"]) for w in v["waiting"]] == [("command", "echo waits")]
            row = next(s for s in gw.http.ok("GET", "session")["sessions"] if s["id"] == "seen")
            assert row["state"] == "busy" and row["running"] == exec_id
            gw.http.ok("POST", f"exec/{exec_id}/kill")
            assert collect(second).out == b"waits\n"


def test_delete(gw):
    # given a session with a command, a waiter and a child left behind; when it is deleted; then all end
    run(gw, "gone", "sleep 69.5 & A=1")
    with gw.http.exec_stream(["sleep", "69.5"], session="gone") as first:
        first.next()
        with gw.http.exec_stream(["touch", "never"], session="gone") as second:
            wait_until(lambda: gw.http.ok("GET", "session/gone")["queue"] == 1, 15, "one waits")
            answer = gw.http.ok("DELETE", "session/gone")
            assert answer["success"] is True and answer["sessionId"] == "gone"
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", answer["timestamp"])
            r = collect(first)
            assert (r.status, r["verdict"]) == (137, "killed_by_client")
            r = collect(second)
            assert r.error and r.error["code"] == "exec_error" and "gone" in r.error["error"]
    assert not [p for p in gw.processes() if "sleep 69.5" in p.command and p.state != "Z"]
    assert not (gw.workspace / "never").exists()
    assert run(gw, "gone", "echo ${A-fresh}").out == b"fresh\n"


@pytest.mark.parametrize("method,what,status,body", [
    ("DELETE", "session/none", 502, {"error": "session delete failed: Session 'none' not found", "code": "session_error"}),
    ("DELETE", "session/a%2Fb", 400, {"error": "Invalid session ID format", "code": "invalid_request"}),
    ("DELETE", "session/a..b", 400, {"error": "Invalid session ID format", "code": "invalid_request"}),
    ("GET", "session/none", 404, {"error": "Session 'none' not found", "code": "not_found"}),
    ("GET", "session/%zz", 400, {"error": "Invalid session ID format", "code": "invalid_request"}),
])
def test_sessions_that_there_are_not(gw, method, what, status, body):
    assert gw.http.json(method, what) == (status, body)


def test_an_escaped_id(gw):
    gw.http.ok("POST", "session", {"id": "e.s_c"})
    assert gw.http.ok("GET", "session/e%2Es%5Fc")["id"] == "e.s_c"
