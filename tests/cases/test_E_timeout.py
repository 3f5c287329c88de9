"""E. A timeout fires, ends what runs, and leaves the session as it was.

The input that was reported runs everywhere, further ones in one kind of box with the three shells."""

import re
import subprocess
import time

import pytest

from rig.places import make_session
from rig.wait import is_long

SOON = 0.3  # the timeout of most texts here, in seconds
SLACK = 10.0  # what a busy machine may add to it


@pytest.fixture(params=["bash", "dash", "ash"])
def t(request, pool):
    """A session of its own in one kind of box."""
    s = make_session(pool.get("ns-root"), request.param)
    yield s
    s.box.call("session.delete", name=s.name, deadline=10)


def is_timeout(r):
    """The answer names the timeout, by word and number, and the state was kept."""
    return (r["verdict"], r.status, r.fields.get("state")) == ("timeout", 124, "kept")


def given_time(run, got_so_far, first=SOON):
    """The answer of run(timeout). On a busy machine a text may not have got so far when its time is over:
    then again with more of it."""
    for timeout in (first, 4 * first, 16 * first):
        r = run(timeout)
        if got_so_far(r, timeout):
            break
    return r, timeout


def words(err):
    """What the text wrote on stderr, without its shell's own lines on children that were killed."""
    shell_says = rb"^(.*: line \d+: +\d+ )?(Terminated|Killed)( .*)?\n"
    return re.sub(shell_says, b"", err, flags=re.M)


# ---- E1 --------------------------------------------------------------------------------------


def check_E1(s, text):
    pid = s.show()["pid"]
    s.exec("mkdir d; cd d; A=1; export B=2; g() { echo 3; }")
    r = s.run(text, timeout=SOON)
    assert is_timeout(r) and SOON <= r.seconds < SOON + SLACK, r
    r = s.exec('echo ok $A; /bin/sh -c "echo \\$B"; g; pwd')
    assert r.triple == (0, f"ok 1\n2\n3\n{s.work}/d\n".encode(), b"")
    assert s.show()["pid"] == pid


def test_case_E1_the_session_lives_on(s):
    check_E1(s, "sleep 600")


@pytest.mark.parametrize("text", [
    "while :; do :; done",
    "f() { sleep 600; }; f; echo no",
    "sleep 600 & wait; echo no",
    "x=$(sleep 600 | cat); echo no",
])
def test_case_E1_other_hangs(t, text):
    check_E1(t, text)


def test_case_E1_by_sandboxctl(t):
    r = t.box.ctl("exec", "-s", t.name, "-t", "300ms", "sleep 600; echo no")
    told = b"sandboxctl: timed out: its time is over\n"
    assert (r.status, r.out) == (124, b"") and r.err.endswith(told) and r.seconds < SOON + SLACK, r
    assert words(r.err.removesuffix(told)) == b"", r
    assert t.exec("echo ok").triple == (0, b"ok\n", b"")


# ---- E2 --------------------------------------------------------------------------------------


def check_E2(s, text):
    r, timeout = given_time(lambda t: s.run(f"rm -f p; {text}", timeout=t),
                            lambda r, _: r.out.startswith(b"c\nc\n"), 2 * SOON)
    assert is_timeout(r) and r.seconds < timeout + SLACK, r
    assert r.out.startswith(b"c\nc\n") and set(r.out.split()) == {b"c"} and words(r.err) == b"", r
    assert "strays" not in r.fields
    shell = s.shell_pid
    assert [p.command for p in s.box.processes() if p.ppid == shell] == []


def test_case_E2_writer_and_reader_of_a_fifo_end(s):
    check_E2(s, "mkfifo p; (while :; do echo c; sleep 0.1; done) >p & cat p")


@pytest.mark.parametrize("text", [
    "mkfifo p; (while :; do echo c; sleep 0.1; done) >p & while read x; do echo $x; done <p",
    "mkfifo p; (cat p; :) & (while :; do echo c; sleep 0.1; done) >p; echo no",
    "(while :; do echo c; sleep 0.1; done) | cat; echo no",
])
def test_case_E2_other_pairs(t, text):
    check_E2(t, text)


# ---- E4 --------------------------------------------------------------------------------------


def check_E4(s, text):
    # the shared boxes have a grace of half a second
    n = s.sleep_mark()
    pid = s.show()["pid"]
    r, timeout = given_time(lambda t: s.run(text.format(n=n, helper=s.helper), timeout=t),
                            lambda r, t: r.seconds > t + 0.4)
    assert is_timeout(r) and timeout + 0.4 < r.seconds < timeout + 0.5 + SLACK, r
    assert not s.box.find(n) and s.show()["pid"] == pid


def test_case_E4_what_ignores_TERM_is_killed(s):
    check_E4(s, "trap '' TERM INT; (trap '' TERM; sleep {n}) & sleep {n}")


@pytest.mark.parametrize("text", [
    "(trap '' TERM INT HUP; while :; do sleep 0.05; done; echo {n})",
    "sh -c \"trap '' TERM; sh -c 'trap : TERM; while :; do sleep 0.05; done'; :\" {n}",
    "{helper} ignore TERM forever {n} | {helper} ignore TERM forever {n}",
])
def test_case_E4_other_stubborn_ones(t, text):
    check_E4(t, text)


# ---- E5 --------------------------------------------------------------------------------------


def check_E5(s, text, out, err):
    r, _ = given_time(lambda t: s.run(text, timeout=t), lambda r, _: r.out == out)
    assert is_timeout(r), r.fields
    assert (r.out, words(r.err)) == (out, err)
    assert (r["stdout_bytes"], r["stderr_bytes"]) == (len(out), len(r.err))


def test_case_E5_output_before_the_timeout_is_kept(s):
    check_E5(s, "echo first; sleep 60", b"first\n", b"")


@pytest.mark.parametrize("text, out, err", [
    ("printf half; echo other >&2; sleep 60", b"half", b"other\n"),
    ("head -c 300000 /dev/zero | tr '\\0' x; while :; do :; done", b"x" * 300_000, b""),
    ("sh -c 'echo in a child; sleep 60; echo no'", b"in a child\n", b""),
    ("for i in 1 2 3; do echo $i; done; sleep 60 | cat", b"1\n2\n3\n", b""),
])
def test_case_E5_other_output(t, text, out, err):
    check_E5(t, text, out, err)


# ---- E7 --------------------------------------------------------------------------------------


def check_E7(s, text):
    r = s.run(text, timeout=SOON, deadline=15)
    assert r["verdict"] == "timeout" and r.out == b"", r
    for _ in range(2):
        assert s.exec("echo a; echo b >&2").triple == (0, b"a\n", b"b\n")


def test_case_E7_no_message_of_it_in_the_next_answer(s):
    check_E7(s, "sleep 9")


@pytest.mark.parametrize("text", [
    "sleep 9 | cat",
    "(sleep 9; :)",
    "sleep 9 & sleep 9 & wait",
    "sh -c 'kill -KILL $$; :'; sleep 9",
    "set -m; sleep 9 & wait",
    "trap '' TERM; sh -c \"trap '' TERM; sleep 9; :\"",
])
def test_case_E7_other_messages(t, text):
    check_E7(t, text)


# ---- E8 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell, text", [
    ("bash", "yes"),
    ("dash", "yes >&2"),
    ("ash", "cat /dev/zero"),
    ("bash", "while :; do echo builtin; done"),
    ("dash", "while :; do echo a; echo b >&2; done"),
])
def test_case_E8_a_flood_starves_nobody(pool, shell, text):
    box = pool.get("ns-root")
    flood, other = make_session(box, shell), make_session(box, "bash")
    _, before = box.memory()
    pongs = []
    for _ in range(10):  # one is enough, but for a machine that has much else to do
        client = box.ctl_spawn("exec", "-s", flood.name, "-t", "1s", text, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while client.poll() is None:
            r = other.run("echo pong")
            assert r.out == b"pong\n"
            pongs.append(r.seconds)
            assert time.monotonic() - begun < 1 + SLACK
        assert client.returncode == 124
        if len(pongs) > 5:
            break
    pongs.sort()
    print(f"{len(pongs)} answers meanwhile, {pongs[len(pongs) // 2]:.3f} s, at most {pongs[-1]:.3f} s")
    assert len(pongs) > 5 and (pongs[len(pongs) // 2] < 0.1 and pongs[-1] < 1 or not is_long()), pongs
    assert box.memory()[1] - before < 8 << 20
    for each in (flood, other):
        box.call("session.delete", name=each.name)
