"""POST …/exec without a session, beyond the rows of test_contract.py: bytes, streams, ends, limits."""

import json
import time

import pytest

from rig.http import HttpError, collect
from rig.wait import repeats, wait_until


def listed(gw, exec_id):
    return next((e for e in gw.http.ok("GET", "exec")["execs"] if e["exec_id"] == exec_id), None)


def commands(gw, text):
    return [p for p in gw.processes() if text in p.command and p.state != "Z"]


# ---- the beginning and the end ----


def test_first_and_last_event(gw):
    # given a program that writes; when it runs; then `start` is first and `exit` has the verdict
    r = gw.http.exec("echo out; echo err >&2; exit 3")
    assert r.triple == (3, b"out\n", b"err\n")
    assert r.events[0].name == "start" and set(r.start) == {"exec_id", "pid"} and r.start["pid"] > 1
    assert list(r.fields)[0] == "exit_code" and "status" not in r.fields
    assert r["exec_id"] == r.start["exec_id"] and r["verdict"] == "exited" and r["duration_s"] >= 0
    assert (r["stdout_bytes"], r["stderr_bytes"], r["drained"]) == (4, 4, True)


def test_case_H2_signals_have_names(gw):
    # given a death by a signal; then it is 128+n with its name, never 0
    r = gw.http.exec("kill -9 $$")
    assert (r.status, r["verdict"], r["signal"]) == (137, "signaled", "SIGKILL")
    r = gw.http.exec("kill -SEGV $$")
    assert (r.status, r["signal"]) == (139, "SIGSEGV")


@pytest.mark.parametrize("argv,status,words", [
    (["no-such-cmd", "x"], 127, b"/bin/bash: line 1: no-such-cmd: command not found\n"),
    (["/no/such"], 127, b"/bin/bash: line 1: /no/such: No such file or directory\n"),
    (["/etc"], 126, b"/bin/bash: line 1: /etc: Permission denied\n"),
    (["/etc/passwd"], 126, b"/bin/bash: line 1: /etc/passwd: Permission denied\n"),
    ([""], 127, b"/bin/bash: line 1: : command not found\n"),
    (["true", "x" * 200_000], 126, b"/bin/bash: line 1: true: Argument list too long\n"),
])
def test_programs_that_cannot_run(gw, argv, status, words):
    # given what is no program; when it is run; then a shell's words, its number, and no start
    r = gw.http.exec(argv)
    assert r.triple == (status, b"", words)
    assert [e.name for e in r.events] == ["stderr", "exit"] and r["verdict"] == "spawn_failed"


def test_words_that_need_a_shell(gw):
    # given builtins and assignments as argv[0]; then a shell runs them, with their words as they are
    assert gw.http.exec(["A=it's", "sh", "-c", 'echo "$A"']).triple[0] in (0, 127)
    assert gw.http.exec(["export", "A=b c"]).triple == (0, b"", b"")
    assert gw.http.exec(["eval", "echo '$HOME  x'; exit 7"]).triple == (7, b"$HOME  x\n", b"")
    assert gw.http.exec(["A=b", "printenv", "A"]).triple == (0, b"b\n", b"")


def test_argv_is_passed_as_it_is(gw):
    # given words with every kind of byte that JSON can tell; then the program gets them unchanged
    words = ["a b", "", "'", '"', "$HOME", "`id`", "*", "~", "\\", "\n", "\t", "é", "😀", "-n", "--", ";", "&"]
    r = gw.http.exec(["sh", "-c", 'for w; do printf "[%s]" "$w"; done', "sh", *words])
    assert r.out == "".join(f"[{w}]" for w in words).encode()


# ---- bytes ----


def test_case_J4_every_byte(gw):
    # given every byte, NUL and broken UTF-8 among them; then they come exactly
    r = gw.http.exec(["sh", "-c", r"printf 'ok\377\376\200\000end'; printf '\303' >&2"])
    assert r.triple == (0, b"ok\xff\xfe\x80\0end", b"\xc3")
    path = gw.workspace / "bytes"
    path.write_bytes(bytes(range(256)) * 300)
    assert gw.http.exec(["cat", "bytes"]).out == bytes(range(256)) * 300


def test_case_J1_no_newline(gw):
    assert gw.http.exec("printf yes; printf c >&2").triple == (0, b"yes", b"c")


def test_no_character_is_split(gw):
    # given characters that a program writes byte by byte; then each event can be decoded by itself
    text = "aé€😀z" * 3
    script = "for b in $1; do printf \"\\\\$b\"; sleep 0.002; done"
    octal = " ".join(f"{b:03o}" for b in text.encode())
    for _ in range(10):  # init may sleep through it on a busy machine
        r = gw.http.exec(["sh", "-c", script, "sh", octal])
        assert r.out.decode() == text
        parts = [e for e in r.events if e.name == "stdout"]
        if len(parts) > 3:
            break
    assert len(parts) > 3, "it was no stream"
    for e in parts:
        e.bytes.decode()


def test_case_J5_slow_reader(gw):
    # given a client that reads slowly; then nothing is lost
    for _ in range(repeats(10)):
        with gw.http.exec_stream(["seq", "1", "1000000"]) as events:
            first = events.next()
            time.sleep(0.3)  # all buffers on the way are full by then, or soon
            r = collect(events)
        assert first.name == "start" and len(r.out) == 6888896 and r.status == 0


def test_output_comes_while_it_runs(gw):
    # given a program that writes and waits for a file; then its output is there before its end
    with gw.http.exec_stream("echo early; until [ -e go ]; do sleep 0.02; done; echo late") as events:
        assert events.until("stdout")[-1].bytes == b"early\n"
        (gw.workspace / "go").touch()
        r = collect(events)
    assert r.triple == (0, b"late\n", b"")
    (gw.workspace / "go").unlink()


def test_case_K1_a_client_that_does_not_read(gw):
    # given an endless writer whose client reads nothing; then it is held up, and memory does not grow
    def size():
        status = (l.split() for l in open(f"/proc/{gw.gateway_pid}/status") if l.startswith("VmRSS"))
        return int(next(status)[1])

    before = size()
    with gw.http.exec_stream("while :; do echo 0123456789012345678901234567890123456789; done") as events:
        exec_id = events.next().json["exec_id"]
        n = 0
        while n < 300:  # init has more than the sockets hold by then
            n += len(gw.http.ok("GET", "exec")["execs"])
        assert size() < before + 8 * 1024
        gw.http.ok("POST", f"exec/{exec_id}/kill", {"signal": "KILL"})


def test_case_K4_long_output_runs_to_its_end(gw):
    r = gw.http.exec("for i in $(seq 20000); do echo line $i; done; echo rc_ok")
    assert r.status == 0 and r.out.endswith(b"line 20000\nrc_ok\n") and r.out.count(b"\n") == 20001


# ---- who holds the output; time ----


def test_case_D5_held_output_is_waited_for(gw):
    # given a child that holds stdout; then the call stays open for it, and nothing is lost
    r = gw.http.exec("(sleep 0.3; echo late) & echo early")
    assert r.triple == (0, b"early\nlate\n", b"") and r["drained"]
    r = gw.http.exec("(sleep 0.2; echo late >&2) >/dev/null & exit 4")
    assert r.triple == (4, b"", b"late\n")


def test_case_D2_redirected_children_hold_nothing(gw):
    # given a child with redirected output; then the call ends at once, and the child lives on
    r = gw.http.exec("sleep 61.5 </dev/null >/dev/null 2>&1 & echo $!")
    assert r.status == 0 and r.seconds < 10 and not r["quiescent"] and r["stray_count"] == 1
    assert commands(gw, "sleep 61.5")
    gw.http.ok("POST", f"exec/{r['exec_id']}/kill")
    assert not commands(gw, "sleep 61.5")


def timed_out(gw, text, ms):
    """(answer, its timeout). On a busy machine a text may have written nothing when its time is over: then
    again with more of it."""
    for ms in (ms, 10 * ms, 50 * ms):
        r = gw.http.exec(text, timeout_ms=ms, deadline=60)
        if r.out:
            break
    return r, ms


def test_case_E1_timeout_of_who_only_holds_the_output(gw):
    # given a program that has ended and a child that holds its output; then the time goes on, and
    # its end is that of the child
    r, ms = timed_out(gw, "sleep 62.5 & echo now", 400)
    assert r.triple == (124, b"now\n", b"Command timed out after %dms\n" % ms) and r["verdict"] == "timeout"
    assert not commands(gw, "sleep 62.5")


def test_case_E4_timeout_of_stubborn_ones(gw):
    # given a tree that ignores TERM; then all of it is gone when the answer comes
    r = gw.http.exec("trap '' TERM INT; (trap '' TERM; sleep 63.5) & sleep 63.5", timeout_ms=300)
    assert (r.status, r["verdict"]) == (124, "timeout") and not commands(gw, "sleep 63.5")


def test_case_E5_output_before_the_timeout(gw):
    r, ms = timed_out(gw, "echo first; sleep 60", 300.25)
    assert r.triple == (124, b"first\n", f"Command timed out after {ms}ms\n".encode())


def test_no_time_at_all(gw):
    # given a timeout of 0 or less; then nothing runs
    r = gw.http.exec(["touch", "ran"], timeout_ms=0)
    assert r.triple == (124, b"", b"Command timed out after 0ms\n") and r["verdict"] == "timeout"
    assert not (gw.workspace / "ran").exists()


# ---- kill, list ----


def test_kill(gw):
    # given a run; when it is killed by its id; then its client hears it, and its tree is gone
    with gw.http.exec_stream("sleep 64.5 & echo; sleep 64.5") as events:
        exec_id = events.next().json["exec_id"]
        events.until("stdout")  # there is a tree
        assert listed(gw, exec_id)["state"] == "running"
        answer = gw.http.ok("POST", f"exec/{exec_id}/kill")
        assert (answer["exec_id"], answer["state"]) == (exec_id, "exited") and answer["killed"] >= 2
        r = collect(events)
    assert (r.status, r["verdict"]) == (137, "killed_by_client") and not commands(gw, "sleep 64.5")
    assert listed(gw, exec_id)["verdict"] == "killed_by_client"
    with pytest.raises(HttpError) as e:
        gw.http.ok("POST", f"exec/{exec_id}/kill")
    assert (e.value.status, e.value.code) == (409, "state")


def test_kill_with_a_signal(gw):
    # given a program with a trap; when it is sent that signal; then only that happens
    with gw.http.exec_stream("trap 'echo got; exit 5' USR1; echo up; while :; do sleep 0.05; done") as events:
        exec_id = events.next().json["exec_id"]
        assert events.next().bytes == b"up\n"
        gw.http.ok("POST", f"exec/{exec_id}/kill", {"signal": "SIGUSR1"})
        r = collect(events)
    assert (r.status, r["verdict"]) == (5, "exited") and b"got\n" in r.out


@pytest.mark.parametrize("what,body,status,code", [
    ("exec/none/kill", None, 404, "not_found"),
    ("exec/a%2fb/kill", None, 404, "not_found"),
    ("exec/..%2e/kill", None, 404, "not_found"),
    ("exec/none/kill", b"{", 400, "invalid_request"),
    ("exec/none/kill", [], 400, "invalid_request"),
    ("exec/none/kill", {"signal": "SIGNONE"}, 400, "invalid_request"),
])
def test_kills_that_are_refused(gw, what, body, status, code):
    got, answer = gw.http.json("POST", what, json.dumps(body).encode() if body == [] else body)
    assert (got, answer["code"]) == (status, code) and set(answer) == {"error", "code"}


def test_many_at_once(gw):
    # given 40 programs at the same time; then each has its own output and status
    streams = [gw.http.exec_stream(f"sleep 0.1; echo {i}; exit {i}") for i in range(40)]
    for i, events in enumerate(streams):
        with events:
            assert collect(events).triple == (i, f"{i}\n".encode(), b"")


# ---- a client that leaves; bad input ----


def test_case_R2_it_goes_on_without_its_client(gw):
    # given a run whose client leaves; then it goes on to its end
    with gw.http.exec_stream("until [ -e go2 ]; do sleep 0.02; done; touch done2") as events:
        exec_id = events.next().json["exec_id"]
    assert listed(gw, exec_id)["state"] == "running"
    (gw.workspace / "go2").touch()
    wait_until(lambda: listed(gw, exec_id)["state"] == "exited", 15, "it is over")
    assert (gw.workspace / "done2").exists() and listed(gw, exec_id)["verdict"] == "exited"


def test_a_client_that_leaves_at_once(gw):
    # given clients that are gone before they have an answer, also where a session has to be made first;
    # then what they asked for is done
    for i in range(10):
        with gw.http.open() as c:
            c.request("POST", f"{gw.http.root}/exec", gw.http.auth() + [("Session-Id", f"left{i}" if i % 2 else "")],
                      json.dumps({"argv": ["touch", f"left{i}"]}).encode())
    wait_until(lambda: all((gw.workspace / f"left{i}").exists() for i in range(10)), 15, "all of it")


@pytest.mark.parametrize("body,why", [
    (b'{"argv":["true"],"argv":["false"]}', "Invalid JSON body"),
    (b"[" * 10000, "Invalid JSON body"),
    (b'{"argv":["\xff"]}', "Invalid JSON body"),
    (b'{"argv":["a\\u0000b"]}', "argv must not contain NUL characters"),
    (b'{"argv":["pwd"],"cwd":7}', "cwd must be a string"),
    (b'{"argv":["pwd"],"cwd":"a\\u0000"}', "cwd must not contain NUL characters"),
], ids=["twice", "deep", "not UTF-8", "NUL", "cwd", "cwd NUL"])
def test_bodies_that_are_refused(gw, body, why):
    status, answer = gw.http.json("POST", "exec", body)
    assert (status, answer) == (400, {"error": why, "code": "invalid_request"})


def test_an_argv_that_is_too_long_for_init(gw):
    # given more arguments than init takes; then that is said, and the next call is served
    status, answer = gw.http.json("POST", "exec", {"argv": ["true", "x" * 5_000_000]})
    assert (status, answer["code"]) == (413, "payload_too_large") and "4194304" in answer["error"]
    assert gw.http.exec(["true"]).status == 0


def test_keep_alive_shows_at_once_that_it_is_taken(gw):
    # given a silent program; then the headers come long before the first keep-alive
    with gw.http.exec_stream("sleep 0.5; exit 2", deadline=10) as events:
        assert collect(events).status == 2


@pytest.mark.long
def test_keep_alive_comments(gw):
    # given a program that says nothing; then a comment comes every 15 s
    begun = time.monotonic()
    with gw.http.exec_stream(["sleep", "33"], deadline=60) as events:
        assert collect(events).status == 0
        when = [t - begun for t, _ in events.comments]
    assert len(when) == 2 and 14 < when[0] < 20 and 29 < when[1] < 40


# ---- what is told ----


@pytest.mark.parametrize("session", [None, "told"])
def test_a_folder_that_is_not_there(gw, session):
    # given a cwd that is not there, or no folder; then the contract's words, and the cause beside them
    (gw.workspace / "plain").write_text("")
    for cwd, why in (("no", "No such file or directory"), ("plain", "Not a directory")):
        r = gw.http.exec(["pwd"], cwd=cwd, session=session)
        assert set(r.error) == {"error", "code", "exec_id", "detail"}, r.error
        assert (r.error["error"], r.error["code"]) == ("Command execution failed", "exec_error")
        assert f"cwd /workspace/{cwd}: {why}" in r.error["detail"], r.error
        assert listed(gw, r.error["exec_id"])["verdict"] == "spawn_failed"


@pytest.mark.parametrize("fields,ignored", [
    ({"timeout_ms": "100"}, "timeout_ms (not a number)"),
    ({"timeout_ms": [100]}, "timeout_ms (not a number)"),
    ({"timeout_ms": True}, "timeout_ms (not a number)"),
    ({"timeout": 100}, "timeout"),
    ({"timeout_ms": {}, "timeout": 1, "é\n": 2}, "timeout_ms (not a number), timeout, ???"),
    ({f"{i}" * 50: i for i in range(10)}, ", ".join(f"{i}" * 40 for i in range(8)) + ", ..."),
    ({"timeout_ms": 30000}, None), ({"timeout_ms": 30000.5}, None), ({"timeout_ms": None}, None), ({}, None),
], ids=["a text", "a list", "true", "timeout", "several", "many", "30000", "30000.5", "null", "none"])
def test_fields_without_effect_are_told(gw, fields, ignored):
    # given what the contract wants to be ignored; then it is, and a header names it
    r = gw.http.request("POST", "exec", {"argv": ["echo", "x"], "cwd": None, **fields})
    assert r.status == 200 and b"exit_code\":0" in r.body
    assert r.header("warning") == (ignored and f'299 sandbox-gateway "ignored: {ignored}"')


def test_fields_without_effect_are_told_elsewhere(gw):
    made = gw.http.request("POST", "session", {"id": "odd-fields", "enviroment": {"A": "b"}, "name": "x"})
    id = gw.http.ok("POST", "process", {"command": "exec sleep 1000"})["id"]
    killed = gw.http.request("POST", f"process/{id}/kill", {"grace": "5s", "signal": "KILL"})
    with gw.http.exec_stream(["sleep", "1000"]) as events:
        exec_id = events.next().json["exec_id"]
        run = gw.http.request("POST", f"exec/{exec_id}/kill", {"grace": "5s", "grace_ms": 0})
    for r, ignored in ((made, "enviroment, name"), (killed, "grace"), (run, "grace")):
        assert (r.status, r.header("warning")) == (200, f'299 sandbox-gateway "ignored: {ignored}"')
    gw.http.ok("DELETE", "session/odd-fields")


def test_fields_without_effect_of_what_does_not_run(gw):
    r = gw.http.request("POST", "exec", {"argv": ["true"], "timeout_ms": -1, "limit": 9})
    assert r.header("warning") == '299 sandbox-gateway "ignored: limit"' and b"timeout" in r.body


def test_what_is_not_known_is_told_in_words_of_http(gw):
    r = gw.http.json("GET", "exec/nosuch")
    assert r == (404, {"error": "exec 'nosuch': not found (any more)", "code": "not_found"})
    r = gw.http.json("POST", "exec", {"argv": ["true"]}, {"Idempotency-Key": "new", "Last-Event-ID": "0"})
    assert r == (404, {"error": "there is no exec with this Idempotency-Key to go on with (any more)",
                       "code": "not_found"})


def test_a_grace_that_is_no_number(gw):
    with gw.http.exec_stream(["sleep", "66.5"]) as events:
        id = events.next().json["exec_id"]
        r = gw.http.json("POST", f"exec/{id}/kill", {"grace_ms": "100"})
        assert r == (400, {"error": "grace_ms must be a number of milliseconds", "code": "invalid_request"})
        assert gw.http.ok("POST", f"exec/{id}/kill", {"grace_ms": 100})["exec_id"] == id
