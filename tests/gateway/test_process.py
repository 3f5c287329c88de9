"""Processes over HTTP: start, list, show, logs, kill, wait, stdin."""

import os
import random
import signal
import threading
import time

import pytest

from rig.http import GatewayBox, HttpError
from rig.wait import repeats, wait_until

INI = {"sessions": {"output_keep": "256K"}}


def start(gw, what, **more):
    """(id, pid); what: argv, or a text as command."""
    body = {"argv": what} if isinstance(what, list) else {"command": what}
    headers = {"Session-Id": more.pop("header")} if "header" in more else {}
    status, r = gw.http.json("POST", "process", {**body, **more}, headers)
    assert status == 200 and set(r) == {"id", "pid"} and r["pid"] > 0, (status, r)
    return r["id"], r["pid"]


def wait(gw, id, query=""):
    return gw.http.ok("GET", f"process/{id}/wait{query}")


def logs(gw, id, query="", headers=()):
    """The events of the logs to their end."""
    with gw.http.stream("GET", f"process/{id}/logs{query}", headers=headers) as events:
        return list(events)


def output(events):
    out, err = b"", b""
    for e in events:
        out += e.bytes if e.name == "stdout" else b""
        err += e.bytes if e.name == "stderr" else b""
    return out, err


def refused(gw, method, target, status, code, *words, **kw):
    got, r = gw.http.json(method, target, **kw)
    assert (got, r["code"]) == (status, code), (got, r)
    assert set(r) == {"error", "code"}
    for w in words:
        assert str(w) in r["error"], (w, r)


def unique():
    return f"u{random.getrandbits(48):x}"


# ---- start ----


def test_start_argv(gw):
    # given an argv; when it is started; then it runs as it is, in the workspace, and is known by id
    id, _ = start(gw, ["/bin/sh", "-c", 'echo "$1|$PWD"; exit 7', "sh", "a  b'c\"$d\n"])
    assert wait(gw, id)["exit_code"] == 7
    assert output(logs(gw, id))[0] == b"a  b'c\"$d\n|/workspace\n"


def test_start_command(gw):
    # given a text; then a shell runs it
    id, _ = start(gw, "echo $((6 * 7)); cd /; pwd >&2")
    assert wait(gw, id)["exit_code"] == 0
    assert output(logs(gw, id)) == (b"42\n", b"/\n")


def test_start_in_a_session(gw):
    # given a session that nobody has made; when something is started in it, by header or by body;
    # then it is made, and what is started has its state
    for how in ("header", "session"):
        s = unique()
        id, _ = start(gw, "X=1; echo $PWD", **{how: s})
        assert wait(gw, id)["exit_code"] == 0 and output(logs(gw, id))[0] == b"/workspace\n"
        gw.call("exec", session=s, text="cd /tmp; export MARK_OF_IT=abc; f() { echo f; }")
        id, _ = start(gw, "echo $PWD $MARK_OF_IT", **{how: s})
        assert wait(gw, id)["exit_code"] == 0
        assert output(logs(gw, id))[0] == b"/tmp abc\n"
        assert gw.http.ok("GET", f"process/{id}")["session"] == s


def test_start_options(gw):
    # given cwd, env and an id; then it has them, for itself only
    os.mkdir(gw.workspace / "sub")
    id = unique()
    assert start(gw, "echo $PWD-$A-$B", cwd="sub/../sub", env={"A": "x y'", "B": 7}, id=id)[0] == id
    wait(gw, id)
    assert output(logs(gw, id))[0] == b"/workspace/sub-x y'-7\n"


def test_start_twice(gw):
    # given an id; when the same call comes again, then it is the same process; another call is refused
    id = unique()
    first = start(gw, "exec sleep 60", id=id)
    assert start(gw, "exec sleep 60", id=id) == first
    assert start(gw, "exec sleep 60", name=id) == first
    refused(gw, "POST", "process", 409, "exists", id, body={"command": "sleep 61", "id": id})
    gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})


@pytest.mark.parametrize("body, text", [
    (b"", "Invalid JSON body"),
    (b"{", "Invalid JSON body"),
    (b'{"argv":["a"],"argv":["b"]}', "Invalid JSON body"),
    ({}, "argv or command must be there: argv must be a non-empty array, or command a text"),
    ([], "argv must be a non-empty array"),
    ({"argv": []}, "argv must be a non-empty array"),
    ({"argv": "ls"}, "argv must be a non-empty array"),
    ({"argv": ["a\0b"]}, "argv must not contain NUL characters"),
    ({"argv": ["a"], "command": "b"}, "give argv or command, not both"),
    ({"command": ""}, "command must be a non-empty string"),
    ({"command": 1}, "command must be a non-empty string"),
    ({"command": "a", "id": 1}, "id must be a string"),
    ({"command": "a", "session": 1}, "session must be a string"),
    ({"command": "a", "session": "a b"}, "Invalid session ID format"),
    ({"command": "a", "session": "a..b"}, "Invalid session ID format"),
    ({"command": "a", "session": "a\0b"}, "Invalid session ID format"),
    ({"command": "a", "env": []}, "env must be an object of names and values"),
    ({"command": "a", "env": {"A=B": "1"}}, "env: a name must not be empty and not contain ="),
    ({"command": "a", "env": {"A": "\0"}}, "env: a value must not contain NUL characters"),
    ({"command": "a", "cwd": 1}, "cwd must be a string"),
    ({"command": "a", "wait_ms": "x"}, "wait_ms must be a number of milliseconds"),
])
def test_start_refused(gw, body, text):
    status, r = gw.http.json("POST", "process", body)
    assert (status, r) == (400, {"error": text, "code": "invalid_request"})


def test_fields_without_effect_are_told(gw):
    # given fields that the route does not know, one that seems to be a limit; then a header names them
    r = gw.http.request("POST", "process", {"argv": ["true"], "timeout_ms": 100, 'a"\n': 1, "env": {}})
    assert r.status == 200 and r.header("warning") == '299 sandbox-gateway "ignored: timeout_ms, a??"'
    r = gw.http.request("POST", "process", {"argv": ["true"], "cwd": None, "stdin": False, "wait_ms": 9000})
    assert r.status == 200 and r.header("warning") is None


def test_start_refused_by_init(gw):
    refused(gw, "POST", "process", 403, "invalid_request", "within /workspace",
            body={"command": "a", "cwd": "../etc"})
    refused(gw, "POST", "process", 400, "spawn_failed", "nonesuch", "No such file",
            body={"argv": ["nonesuch"]})
    refused(gw, "POST", "process", 400, "spawn_failed", "missing", body={"command": "a", "cwd": "missing"})
    refused(gw, "POST", "process", 400, "invalid_request", "bad id", body={"command": "a", "id": "bad id"})
    status, r = gw.http.json("POST", "process", {"command": "a"}, {"Session-Id": "bad id"})
    assert (status, r["error"]) == (400, "Invalid session ID format")


def test_start_goes_on_without_its_client(gw):
    # given a start that waits for its session; when the client leaves; then nothing of it runs later
    s = unique()
    wait(gw, start(gw, ":", session=s)[0])
    marker = gw.workspace / "never"
    holder = threading.Thread(target=gw.call, args=("exec",),
                              kwargs={"session": s, "text": "read -r x < gate; :"})
    os.mkfifo(gw.workspace / "gate")
    os.chmod(gw.workspace / "gate", 0o666)
    holder.start()
    wait_until(lambda: gw.call("session.show", name=s)["state"] == "busy", 10, "busy")
    with gw.http.open() as c:
        c.request("POST", f"{gw.http.root}/process", gw.http.auth(),
                  b'{"session":"%s","command":"touch never"}' % s.encode())
        wait_until(lambda: int(gw.call("session.show", name=s)["queue"]) == 1, 10, "it waits")
    wait_until(lambda: int(gw.call("session.show", name=s)["queue"]) == 0, 10, "it has left")
    refused(gw, "POST", "process", 409, "busy", s, body={"session": s, "command": "a", "wait_ms": 0})
    with open(gw.workspace / "gate", "w") as f:
        f.write("\n")
    holder.join(20)
    assert not marker.exists()


# ---- list and show ----


def test_list(gw):
    # given processes in and out of a session; then they are listed, and can be chosen from
    s = unique()
    inside, _ = start(gw, "exec sleep 60", session=s)
    outside, pid = start(gw, "exec sleep 60")
    ended, _ = start(gw, "exit 3")
    wait(gw, ended)
    rows = {p["id"]: p for p in gw.http.ok("GET", "process")["processes"]}
    assert rows[inside]["session"] == s and rows[inside]["state"] == "running"
    assert rows[outside]["session"] == "" and rows[outside]["pid"] == pid
    assert (rows[ended]["state"], rows[ended]["status"], rows[ended]["verdict"]) == ("exited", 3, "exited")
    assert {p["id"] for p in gw.http.ok("GET", f"process?session={s}")["processes"]} == {inside}
    assert gw.http.ok("GET", "process?kind=terminal")["processes"] == []
    assert {inside, outside} <= {p["id"] for p in gw.http.ok("GET", "process?kind=all")["processes"]}
    # one of them, by its id and by its PID
    by_id, by_pid = gw.http.ok("GET", f"process/{outside}"), gw.http.ok("GET", f"process/{pid}")
    assert by_id["id"] == by_pid["id"] == outside and by_id["text"] == "exec sleep 60"
    for id in (inside, str(pid)):
        gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})
    refused(gw, "GET", f"process/{pid}", 404, "not_found", pid)
    assert gw.http.ok("GET", f"process/{outside}")["verdict"] == "killed_by_client"


@pytest.mark.parametrize("id", ["nonesuch", "0", "999999999", "..", "a%20b", "x" * 100, "%00"])
def test_unknown(gw, id):
    for method, tail in (("GET", ""), ("GET", "/logs"), ("GET", "/logs?follow=1"), ("POST", "/kill"),
                         ("GET", "/wait"), ("POST", "/stdin")):
        status, r = gw.http.json(method, f"process/{id}{tail}")
        assert (status, r["code"]) == (404, "not_found"), (tail, status, r)
        assert "not found" in r["error"]


def test_list_refused(gw):
    assert gw.http.ok("GET", "process?kind=nonesuch")["processes"] == []
    refused(gw, "GET", "process?session=nonesuch", 404, "not_found", "nonesuch")
    refused(gw, "GET", "process?kind=%zz", 400, "invalid_request")


# ---- logs ----


def test_logs(gw):
    # given what has ended; then its log is start, the output, and the outcome, as wait tells it
    id, _ = start(gw, "echo out; echo err >&2; printf 'a\\0\\377'; exit 3")
    outcome = wait(gw, id)
    for query in ("", "?follow=1", "?follow=0", "?since=0"):
        events = logs(gw, id, query)
        assert events[0].name == "start" and events[0].json == {"id": id, "from": 0}
        assert output(events) == (b"out\na\0\xff", b"err\n")
        assert events[-1].name == "exit" and events[-1].json == outcome
    assert outcome["exit_code"] == 3 and outcome["verdict"] == "exited" and outcome["id"] == id
    assert (outcome["stdout_bytes"], outcome["stderr_bytes"]) == (7, 4)


def test_logs_of_what_runs(gw):
    # given what still runs; then its log ends with `end`, or is followed live to its exit
    id, pid = start(gw, "echo one; read -r x; echo two; read -r x", stdin=True)
    with gw.http.stream("GET", f"process/{id}/logs?follow=1") as events:
        assert [events.next().name, events.next().bytes] == ["start", b"one\n"]
        so_far = logs(gw, pid)
        assert [e.name for e in so_far] == ["start", "stdout", "end"] and so_far[-1].json == {"to": 4}
        gw.http.ok("POST", f"process/{id}/stdin", b"\n")
        assert events.next().bytes == b"two\n"
        gw.http.ok("POST", f"process/{id}/stdin?eof=1", b"")
        assert events.next().name == "exit" and events.next() is None


def test_logs_resume(gw):
    # given the id of any event; then Last-Event-ID and since go on exactly behind it
    for _ in range(10):  # init may sleep through it on a busy machine
        id, _ = start(gw, "for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo e$i >&2; sleep 0.01; done")
        wait(gw, id)
        data = [e for e in logs(gw, id) if e.name in ("stdout", "stderr")]
        if len(data) > 3:
            break
    assert len(data) > 3
    for i, e in enumerate(data):
        assert e.id
        rest = [output([d]) for d in data[i + 1:]]
        want = (b"".join(o for o, _ in rest), b"".join(r for _, r in rest))
        assert output(logs(gw, id, f"?since={e.id}")) == want
        assert output(logs(gw, id, headers={"Last-Event-ID": e.id})) == want
    assert output(logs(gw, id, "?tail=2"))[0] + output(logs(gw, id, "?tail=2"))[1] != b""
    assert sum(map(len, output(logs(gw, id, "?tail=2")))) < 10


def test_logs_do_not_split_characters(gw):
    # given characters that come byte by byte; then each is in one event, and a client that comes back
    # in the middle gets it whole
    text = "aä€😀" * 20
    id, _ = start(gw, ["python3", "-c", f"""
import os, time
for b in {text.encode()!r}:
    os.write(1, bytes([b])); time.sleep(0.0005)
"""])
    with gw.http.stream("GET", f"process/{id}/logs?follow=1") as stream:
        events = list(stream)
    assert output(events)[0].decode() == text
    for e in events:
        if e.name == "stdout":
            e.bytes.decode()  # each by itself
            rest = output(logs(gw, id, f"?since={e.id}"))[0].decode()
            assert text.endswith(rest)


def test_logs_lost(gw):
    # given more output than is kept; then what is lost is told, and the rest is contiguous
    id, _ = start(gw, "seq 1 200000")
    total = wait(gw, id)["stdout_bytes"]
    whole = b"".join(b"%d\n" % i for i in range(1, 200001))
    at, lost = 100, 0
    for e in logs(gw, id, "?since=100"):
        if e.name == "stdout":
            assert whole[at:at + len(e.bytes)] == e.bytes
            at += len(e.bytes)
        elif e.name == "lost":
            assert e.json["from"] == at < e.json["to"] == int(e.id)
            at, lost = e.json["to"], lost + 1
        assert e.id in (None, str(at))
    assert at == total == len(whole) and lost == 1


@pytest.mark.parametrize("query, words", [
    ("?since=x", "since"), ("?since=-1", "since"), ("?since=1-x", "since"), ("?since=%zz", "since"),
    ("?since=99999", "behind the end"), ("?tail=x", "tail"), ("?tail=-1", "tail"),
    ("?follow=1&since=99999", "behind the end"),
])
def test_logs_refused(gw, query, words):
    id, _ = start(gw, "echo hi")
    wait(gw, id)
    refused(gw, "GET", f"process/{id}/logs{query}", 400, "invalid_request", words)


def test_a_follower_that_does_not_read(gw):
    # given a follower that does not read; then the process is not held up, the gateway not filled
    id, _ = start(gw, "seq 1 3000000; echo done")
    with gw.http.open() as c:
        c.request("GET", f"{gw.http.root}/process/{id}/logs?follow=1", gw.http.auth())
        assert wait(gw, id)["exit_code"] == 0
        r = c.begin()
        body = b"".join(c.pieces(r))
    assert body.endswith(b"\n\n") and b"event: lost" in body and b"event: exit" in body


# ---- wait ----


def test_wait_too_long(gw):
    id, _ = start(gw, "exec sleep 60")
    begun = time.monotonic()
    refused(gw, "GET", f"process/{id}/wait?timeout_ms=150", 504, "timeout", id, "150 ms")
    assert 0.15 <= time.monotonic() - begun < 10
    refused(gw, "GET", f"process/{id}/wait?timeout_ms=0", 504, "timeout")
    for bad in ("x", "-1", "1.5", "%zz"):
        refused(gw, "GET", f"process/{id}/wait?timeout_ms={bad}", 400, "invalid_request", "timeout_ms")
    # when it ends, then those that wait hear so
    with gw.http.open() as c:
        c.request("GET", f"{gw.http.root}/process/{id}/wait?timeout_ms=60000", gw.http.auth())
        gw.http.ok("POST", f"process/{id}/kill", {"signal": "KILL"})
        r = c.response()
    assert (r.json["exit_code"], r.json["verdict"], r.json["signal"]) == (137, "killed_by_client", "SIGKILL")


# ---- kill ----


def test_kill(gw):
    # given a process with children; when it is killed; then all of it is gone when the answer comes
    id, pid = start(gw, "sleep 700.125 & (setsid sleep 700.125 &) ; wait")
    wait_until(lambda: len([p for p in gw.processes() if "700.125" in p.command
                            and p.comm == "sleep"]) == 2, 10, "two children")
    r = gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 5000})
    assert r["id"] == id and r["state"] == "exited" and r["killed"] >= 3 and not r.get("survivors")
    assert not [p for p in gw.processes() if "700.125" in p.command]
    assert wait(gw, id)["verdict"] == "killed_by_client"
    refused(gw, "POST", f"process/{id}/kill", 409, "state", "already exited")


def test_one_connection_for_all(gw):
    # given a client that keeps its connection; then it can use it for each of these
    id, pid = start(gw, ["cat"], stdin=True)
    with gw.http.open() as c:
        def ask(method, target, body=None):
            c.request(method, f"{gw.http.root}/{target}", gw.http.auth(), body)
            r = c.response()
            assert r.status == 200 and not r.closes, (target, r)
            return r

        for ref in (id, pid):
            ask("GET", f"process/{ref}")
            ask("POST", f"process/{ref}/stdin", b"x" * 1000)
            ask("GET", f"process/{ref}/logs", b"unasked")
            ask("POST", f"process/{ref}/kill", b'{"signal":"CONT"}')
        ask("POST", f"process/{pid}/stdin?eof=1", iter([b"y"]))
        assert ask("GET", f"process/{id}/wait", b"unasked").json["exit_code"] == 0
        ask("GET", "process")


def test_kill_forms(gw):
    # given a signal in the body or the query; then that is sent, and ends nothing by itself
    id, pid = start(gw, "trap 'echo usr1' USR1; trap 'echo term; exit 9' TERM; echo up; "
                        "while :; do sleep 0.05; done")
    with gw.http.stream("GET", f"process/{id}/logs?follow=1") as events:
        said = [b""]

        def says(words):
            while words not in said[0]:
                e = events.next()
                said[0] += e.bytes if e.name == "stdout" else b""
            said[0] = said[0].partition(words)[2]

        says(b"up\n")
        assert gw.http.ok("POST", f"process/{pid}/kill", {"signal": "USR1"})["signalled"] >= 1
        says(b"usr1\n")
        assert gw.http.ok("POST", f"process/{id}/kill?signal=SIGUSR1")["signalled"] >= 1
        says(b"usr1\n")
        refused(gw, "POST", f"process/{id}/kill", 400, "invalid_request", "NONE", body={"signal": "NONE"})
        refused(gw, "POST", f"process/{id}/kill", 400, "invalid_request", body={"grace_ms": "x"})
        refused(gw, "POST", f"process/{id}/kill", 400, "invalid_request", body={"signal": "\0"})
        refused(gw, "POST", f"process/{id}/kill", 400, "invalid_request", "JSON", body=b"{")
        refused(gw, "POST", f"process/{id}/kill", 400, "invalid_request", "JSON", body=b"[]")
        gw.http.ok("POST", f"process/{id}/kill")  # SIGTERM, after a grace SIGKILL
        says(b"term\n")
        assert events.until("exit")[-1].json["verdict"] == "killed_by_client"


# ---- strays ----


def strays(gw, word, query=""):
    return [p for p in gw.http.ok("GET", f"process{query}")["strays"] if word in p["text"]]


def test_strays(gw):
    # given what a session's command and what a process left
    gw = gw
    s = unique()
    assert gw.http.exec("sleep 801.5 >/dev/null 2>&1 & (trap '' TERM; exec sleep 802.5) >/dev/null 2>&1 &",
                        session=s).status == 0
    left, _ = start(gw, "sleep 803.5 >/dev/null 2>&1 & exit 0")
    wait(gw, left)
    # then the list tells of them, whatever kind of rows was asked for
    # (before its exec each has the words of the shell that made it)
    sleeps = lambda n: [p for p in strays(gw, n) if p["text"] == f"sleep {n}" and p["name"] == "sleep"]
    [one] = wait_until(lambda: sleeps("801.5"), what="a stray of the session")
    [stubborn] = wait_until(lambda: sleeps("802.5"), what="another one")
    [other] = wait_until(lambda: sleeps("803.5"), what="a stray of the process")
    assert (one["session"], one["of"], one["name"], one["kind"]) == (s, "", "sleep", "stray")
    assert other["of"] == left
    assert [p["pid"] for p in strays(gw, "801.5", "?kind=terminal")] == [one["pid"]]
    assert strays(gw, "803.5", f"?session={s}") == [] and len(strays(gw, "801.5", f"?session={s}")) == 1
    # when they are killed, then they are gone when the answer comes; SIGKILL, since one takes no SIGTERM
    for stray, body in ((one, None), (stubborn, {"grace_ms": 0}), (other, {"signal": "KILL"})):
        r = gw.http.ok("POST", f"stray/{stray['pid']}/kill", body)
        assert (r["id"], r["state"], r["killed"]) == (str(stray["pid"]), "exited", 1), r
        assert not [p for p in gw.processes() if stray["text"] in p.command]
    assert not strays(gw, "80")
    refused(gw, "POST", f"stray/{one['pid']}/kill", 404, "not_found", one["pid"])
    # and the session goes on
    assert gw.http.exec("echo here", session=s).triple == (0, b"here\n", b"")


def test_strays_may_go_on_writing(gw):
    # given what an exec in a session and what processes left (an exec without a session waits for it), when it
    # writes more than pipes hold, then it is neither killed nor blocked for that
    late = ("(until [ -e {0}.go ]; do sleep 0.02; done; head -c 1000000 /dev/zero && head -c 1000000 /dev/zero >&2; "
            "echo $? >{0}.done) &")
    names = [unique() for _ in range(3)]
    texts = [late.format(n) for n in names]
    assert gw.http.exec(texts[0], session=unique()).status == 0
    for what in (texts[1], ["sh", "-c", texts[2]]):
        wait(gw, start(gw, what)[0])
    for n in names:
        (gw.workspace / f"{n}.go").touch()
    done = lambda: [p.read_text() for n in names if (p := gw.workspace / f"{n}.done").exists()]
    assert wait_until(lambda: len(r := done()) == 3 and all(r) and r, 30, done) == ["0\n"] * 3


def test_stray_kill_takes_nothing_else(gw):
    # given the PIDs of a process that runs, of the gateway, of init; of nothing, and no PIDs
    id, pid = start(gw, "exec sleep 60")
    gateway = next(p["pid"] for p in gw.http.ok("GET", "process?kind=gateway")["processes"] if p["id"] == "gateway")
    for other, words in ((pid, id), (gateway, "is no stray"), (1, "it is init")):
        refused(gw, "POST", f"stray/{other}/kill", 403, "denied", words)
    refused(gw, "POST", "stray/999999999/kill", 404, "not_found", 999999999)
    for other in ("0x1", "-1", "x", "99999999999", "1%30"):
        refused(gw, "POST", f"stray/{other}/kill", 400, "invalid_request")
    refused(gw, "POST", f"stray/{pid}/kill", 400, "invalid_request", "JSON", body=b"{")
    refused(gw, "POST", f"stray/{pid}/kill", 400, "invalid_request", "NONE", body={"signal": "NONE"})
    # then all of them live
    assert gw.http.ok("GET", f"process/{id}")["state"] == "running"
    gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})


# ---- stdin ----


def test_stdin(gw):
    # given a process that reads; when bytes come in several requests; then it has them as they are
    id, _ = start(gw, ["cat"], stdin=True)
    data = bytes(range(256))
    assert gw.http.ok("POST", f"process/{id}/stdin", data) == {"bytes": 256}
    assert gw.http.ok("POST", f"process/{id}/stdin", b"") == {"bytes": 0}
    assert gw.http.ok("POST", f"process/{id}/stdin?eof=1", iter([b"x", b"y" * 100])) == {"bytes": 101}
    assert wait(gw, id)["exit_code"] == 0
    assert output(logs(gw, id))[0] == data + b"x" + b"y" * 100


def test_stdin_by_pid(gw):
    id, pid = start(gw, ["cat"], stdin=True)
    assert gw.http.ok("POST", f"process/{pid}/stdin?eof=1", b"z" * 70_000) == {"bytes": 70_000}
    assert wait(gw, id)["stdout_bytes"] == 70_000


def test_stdin_of_a_slow_reader(gw):
    # given much more than a pipe holds; then it goes as fast as the process reads
    n = 3 << 20
    id, _ = start(gw, "read -r x; wc -c", stdin=True)
    with gw.http.open() as c:
        c.request("POST", f"{gw.http.root}/process/{id}/stdin?eof=1",
                  gw.http.auth() + [("Content-Length", str(n))])
        sender = threading.Thread(target=c.send, args=(b"\n" + b"a" * (n - 1),))
        sender.start()
        assert c.response().json == {"bytes": n}
        sender.join(20)
    assert wait(gw, id)["exit_code"] == 0
    assert int(output(logs(gw, id))[0]) == n - 1


def test_stdin_refused(gw):
    id, _ = start(gw, "exec sleep 60")
    refused(gw, "POST", f"process/{id}/stdin", 409, "state", id, body=b"x")
    gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})
    refused(gw, "POST", f"process/{id}/stdin", 409, "state", id, body=b"x" * 200_000)


def test_stdin_of_one_who_goes(gw):
    # given a process that ends in the middle of its input; then the client is told
    id, _ = start(gw, "head -c 10 >/dev/null; exec sleep 0.1", stdin=True)
    try:
        status, r = gw.http.json("POST", f"process/{id}/stdin", b"x" * (2 << 20))
    except HttpError as e:
        status = e.status
    assert status in (200, 409, 502), r
    assert wait(gw, id)["exit_code"] == 0


# ---- cases ----


def test_case_Q1_quick_processes(gw):
    for i in range(repeats(100)):
        id, pid = start(gw, f"echo hi {i}")
        assert pid > 0 and wait(gw, id)["exit_code"] == 0
        assert output(logs(gw, id)) == (b"hi %d\n" % i, b"")


def test_case_Q4_followers_join_at_any_moment(gw):
    # given followers that join at random moments, some with an offset; then each sees the log from
    # there to its end: no gap, no duplicate
    whole = b"".join(b"%d\n" % i for i in range(1, 30001))
    id, _ = start(gw, "read -r x; seq 1 10000; sleep 0.05; seq 10001 20000; sleep 0.05; seq 20001 30000",
                  stdin=True)
    wrong = []

    def follow(since):
        try:
            events = logs(gw, id, f"?follow=1&since={since}")
            assert output(events)[0] == whole[since:] and events[-1].json["exit_code"] == 0
        except BaseException as e:
            wrong.append(repr(e)[:300])

    threads = [threading.Thread(target=follow, args=(0,)) for _ in range(3)]
    threads[0].start()
    gw.http.ok("POST", f"process/{id}/stdin", b"\n")
    rng = random.Random(4)
    for t in threads[1:]:
        time.sleep(rng.random() * 0.05)
        t.start()
    end = wait(gw, id)["stdout_bytes"]
    assert end == len(whole)
    threads += [threading.Thread(target=follow, args=(rng.randrange(end),)) for _ in range(5)]
    for t in threads[3:]:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong, wrong[0]


def test_case_Q8_what_an_ended_process_left(gw):
    id, _ = start(gw, "sleep 600.5 & sleep 600.5 & exit 0")
    r = wait(gw, id)
    assert (r["exit_code"], r["stray_count"], r["quiescent"]) == (0, 2, False)
    gw.http.ok("POST", f"process/{id}/kill", {"grace_ms": 0})
    assert not [p for p in gw.processes() if "600.5" in p.command]


def test_case_Q10_R4_found_again(gw):
    # given a process whose starter and follower are gone; then it is found, and followed on exactly
    # from where the follower was
    id, _ = start(gw, "echo a; read -r x; echo b; read -r x; echo c", stdin=True)
    with gw.http.stream("GET", f"process/{id}/logs?follow=1") as events:
        last = events.until("stdout")[-1]
    gw.http.ok("POST", f"process/{id}/stdin", b"\n")
    assert gw.http.ok("GET", f"process/{id}")["state"] == "running"
    with gw.http.stream("GET", f"process/{id}/logs?follow=1", headers={"Last-Event-ID": last.id}) as events:
        assert events.until("stdout")[-1].bytes == b"b\n"
        gw.http.ok("POST", f"process/{id}/stdin?eof=1", b"\n")
        assert output(list(events))[0] == b"c\n"


def test_case_R1_followers_are_apart(gw):
    # given two followers; when one leaves; then the other goes on without loss
    id, _ = start(gw, "for i in 1 2 3 4 5; do read -r x; echo $i; done", stdin=True)
    stays = gw.http.stream("GET", f"process/{id}/logs?follow=1")
    leaves = gw.http.stream("GET", f"process/{id}/logs?follow=1")
    gw.http.ok("POST", f"process/{id}/stdin", b"\n\n")
    stays.until("stdout"), leaves.until("stdout")
    leaves.close()
    gw.http.ok("POST", f"process/{id}/stdin?eof=1", b"\n\n\n")
    rest = list(stays)
    assert rest[-1].name == "exit" and output(logs(gw, id))[0] == b"1\n2\n3\n4\n5\n"
    assert output(rest)[0].endswith(b"5\n")
    stays.close()


def test_the_gateway_dies(gateway_boxes):
    # given a process and a follower; when the gateway is killed; then the process has not noticed,
    # and its log goes on from the last id at the next gateway
    gw = gateway_boxes.get("ns-root")
    id, pid = start(gw, "echo a; read -r x; echo b", stdin=True)
    with gw.http.stream("GET", f"process/{id}/logs?follow=1") as events:
        last = events.until("stdout")[-1]
        old = gw.gateway_pid
        os.kill(old, signal.SIGKILL)
    wait_until(lambda: gw.gateway_pid not in (None, old), 10, "another gateway")
    gw.await_gateway()
    assert gw.http.ok("GET", f"process/{id}")["pid"] == pid
    gw.http.ok("POST", f"process/{id}/stdin?eof=1", b"\n")
    events = logs(gw, id, "?follow=1", {"Last-Event-ID": last.id})
    assert output(events)[0] == b"b\n" and events[-1].json["exit_code"] == 0
