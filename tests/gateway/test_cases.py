"""Cases of the groups D, E, H, J, K, Q in the form of HTTP, where no other file of this folder has them.

What differs from the control socket: without a session a call stays open as long as anybody holds its
output, and goes on without its client; with one it ends with its command.
"""

import os
import time

import pytest

from rig.http import GatewayBox, collect
from rig.places import SHARED_INI
from rig.wait import repeats, wait_until

numbers = iter(range(1, 10_000))


@pytest.fixture
def session(gw):
    name = f"case{next(numbers)}"
    yield name
    gw.http.request("DELETE", f"session/{name}")


def in_session(gw, session, text, **kw):
    return gw.http.exec(["eval", text], session=session, **kw)


def alive(gw, text):
    return [p for p in gw.processes() if text in p.command and p.state != "Z"]


# ---- D, E ----


@pytest.mark.parametrize("text", [
    "sleep 81.5 </dev/null >/dev/null & echo a",  # stderr is enough to hold
    "setsid sleep 81.5 & echo a",
    "( setsid sleep 81.5 & ) ; echo a",
    "python3 -c 'import subprocess; subprocess.Popen([\"sleep\", \"81.5\"])'; echo a",
])
def test_case_D2_D4_quiet_holders_and_daemons(gw, session, text):
    # given a child that holds the output of its call; then the call ends at once, and the child lives on
    r = in_session(gw, session, text)
    assert r.triple == (0, b"a\n", b"") and r.seconds < 10
    wait_until(lambda: alive(gw, "sleep 81.5"), 10, "it lives")
    gw.http.ok("DELETE", f"session/{session}")
    assert not alive(gw, "sleep 81.5")


def test_case_D4_nothing_is_kept_per_call(gw, session):
    # given many such calls; then the gateway has as many descriptors as before
    def descriptors():
        return len(os.listdir(f"/proc/{gw.gateway_pid}/fd"))

    in_session(gw, session, "( setsid sleep 82.5 & ) ; echo a")
    before = descriptors()
    for _ in range(repeats(100)):
        assert in_session(gw, session, "( setsid sleep 82.5 & ) ; echo a").out == b"a\n"
    wait_until(lambda: descriptors() <= before, 10, lambda: f"{descriptors()} of {before}")


@pytest.mark.parametrize("where", ["stateless", "session"])
def test_case_E2_writer_and_reader_of_a_fifo_end(gw, session, where):
    fifo = f"fifo-{where}"
    for ms in (700, 3000, 15000):  # on a busy machine they may not have begun when their time is over
        r = gw.http.exec(["eval", f"rm -f {fifo}; mkfifo {fifo}; "
                                  f"(while :; do echo c; sleep 0.05; done) >{fifo} & cat {fifo}"],
                         session=session if where == "session" else None, timeout_ms=ms)
        if r.out:
            break
    assert r.status == 124 and set(r.out.split()) == {b"c"} and r["verdict"] == "timeout"
    assert not alive(gw, fifo)


def test_case_E8_a_flood_starves_nobody(gw, session):
    # given an endless flood with a timeout, whose client reads; then others are served meanwhile, and it ends
    other = f"{session}-other"
    in_session(gw, other, ":")
    with gw.http.exec_stream(["eval", "yes"], session=session, timeout_ms=1000, deadline=60) as events:
        events.until("stdout")
        for _ in range(5):
            r = in_session(gw, other, "echo pong")
            assert r.out == b"pong\n" and r.seconds < 15
        last = None
        for e in events:
            last = e
    assert (last.name, last.json["exit_code"], last.json["verdict"]) == ("exit", 124, "timeout")
    assert in_session(gw, session, "echo on").out == b"on\n"


# ---- H ----


def test_case_H1_a_cut_stream_has_no_end_and_the_end_is_kept(gw):
    # given a client whose connection breaks in the middle; then it had no `exit`; and when it comes back
    # it gets the rest, once, with the true status
    with gw.http.exec_stream("for i in 1 2 3 4 5 6 7 8; do printf %s $i; sleep 0.05; done; exit 7") as events:
        start = events.next()
        first = events.next()
    assert (start.name, first.name) == ("start", "stdout")
    with gw.http.stream("GET", f"exec/{start.json['exec_id']}", headers={"Last-Event-ID": first.id}) as events:
        r = collect(events)
    assert first.bytes + r.out == b"12345678" and (r.status, r["verdict"]) == (7, "exited")
    assert [e.name for e in r.events].count("exit") == 1 and r.events[-1].name == "exit"


def test_case_H5_a_failure_keeps_both_streams(gw, session):
    assert gw.http.exec("echo o; echo e >&2; (exit 3)").triple == (3, b"o\n", b"e\n")
    assert in_session(gw, session, "echo o; echo e >&2; (exit 3)").triple == (3, b"o\n", b"e\n")


# ---- J, K ----


def test_case_J2_lines_are_not_cut_by_the_framing(gw, session):
    # given long lines, of one stream and of two by turns; then their bytes are all that comes
    assert gw.http.exec("head -c 9000 /dev/zero | tr '\\0' x; echo").out == b"x" * 9000 + b"\n"
    text = ("line() { head -c 9000 /dev/zero | tr '\\0' $1; echo; }; "
            "for i in 1 2 3; do line o; line e >&2; done")
    for r in (gw.http.exec(text), in_session(gw, session, text)):
        assert r.triple == (0, (b"o" * 9000 + b"\n") * 3, (b"e" * 9000 + b"\n") * 3)


def test_case_K2_true_numbers_and_stderr_is_kept():
    # given a limit of the configuration; when a command writes more; then head and tail come, the event `cut`
    # says what does not, and stderr is whole
    ini = {**SHARED_INI, "sessions": {**SHARED_INI["sessions"], "output_limit": "1M"}}
    with GatewayBox("ns-root", ini=ini) as gw:
        for session in (None, "s"):
            r = gw.http.exec(["eval", "head -c 5000000 /dev/zero | tr '\\0' y; echo END >&2"], session=session)
            cut = [e.json for e in r.events if e.name == "cut"]
            assert (r.status, r.err, len(cut)) == (0, b"END\n", 1)
            assert (cut[0]["stream"], cut[0]["bytes"]) == ("stdout", 5_000_000)
            assert cut[0]["to"] - cut[0]["from"] == 5_000_000 - len(r.out)
            assert len(r.out) == 1 << 20 and r["stdout_bytes"] == 5_000_000


# ---- Q ----


def start(gw, command, **more):
    return gw.http.ok("POST", "process", {"command": command, **more})["id"]


def logs(gw, id):
    with gw.http.stream("GET", f"process/{id}/logs") as events:
        return b"".join(e.bytes for e in events if e.name == "stdout")


def test_case_Q2_the_last_words(gw):
    # given processes that write right before their end; when they have ended; then it is in their logs
    ids = [start(gw, "echo 1; sleep .1; printf 2") for _ in range(repeats(100))]
    for id in ids:
        assert gw.http.ok("GET", f"process/{id}/wait")["exit_code"] == 0
        assert logs(gw, id) == b"1\n2"


def test_case_Q5_what_a_call_leaves_can_go_on_writing(gw, session):
    # given a loop that a call leaves, which writes to the call's own stdout; then it is not held up
    r = in_session(gw, session, "(while :; do head -c 4000 /dev/zero; echo >>ticks; done) & echo $!")
    ticks = gw.workspace / "ticks"
    size = lambda: ticks.stat().st_size if ticks.exists() else 0
    assert r.status == 0
    before = size()
    wait_until(lambda: size() > before + 60, 20, "it writes on")  # far more than a pipe holds
    pid = r.out.split(b"\n")[-2].lstrip(b"\0").decode()
    assert in_session(gw, session, f"kill -0 {pid}").status == 0


def test_case_Q7_the_end_of_a_session_is_that_of_all_it_started(gw, session):
    in_session(gw, session, "nohup setsid sleep 83.5 >/dev/null 2>&1 &")
    id = start(gw, "exec sleep 83.5", session=session)
    wait_until(lambda: len(alive(gw, "sleep 83.5")) == 2, 10, "both run")
    assert gw.http.ok("DELETE", f"session/{session}")["success"] is True
    assert not alive(gw, "sleep 83.5")
    assert gw.http.ok("GET", f"process/{id}")["state"] == "exited"
