"""U. PID 1: signals lost, doubled, too early, inherited. (U4's services and U5's set-up step wait
for services; here the kinds are shown with a main command, a session and a process.)"""

import signal
import time

import pytest

from rig.box import Box, programs, status_fields
from rig.tty import Terminal
from rig.wait import repeats, wait_until


def test_case_U1_giving_up_the_terminal_kills_nobody(kind):
    # given init as session leader on a terminal, when the main command starts and ends, then the
    # HUP and CONT that the kernel makes reach nobody
    for _ in range(repeats(300 if kind.startswith("ns") else 60)):
        with Box(kind, main=["sleep", "0.05"], terminal=True, ready=False) as box:
            assert box.wait() == 0


def test_case_U1_a_child_that_prints_every_signal_gets_none(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "all", "sleep", "0.3", "say", "end"], terminal=True,
             ready=False) as box:
        code, seen = Terminal(box).wait(box)
        # (WINCH is the terminal's own; URG comes from runc, which passes on what its own language's
        # runtime sends to it)
        for known in (b"got WINCH", b"got URG"):
            seen = seen.replace(known, b"")
        assert code == 0 and b"got" not in seen, seen


def test_case_U2_ctrl_c_arrives_once(kind):
    with Box(kind, main=["sh", "-c", 'trap "echo I" INT; echo up; sleep 5 & wait; wait'],
             terminal=True, ready=False) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        t.type("\x03")
        t.until(b"I\r\n")
        time.sleep(0.2)  # a second one would come by now
        t.pump()
        assert b"I\r\n" not in t.seen


@pytest.mark.parametrize("key, name", [("\x03", "INT"), ("\x1c", "QUIT")])
def test_case_U2_keys_of_the_terminal(kind, key, name):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "INT,QUIT", "say", "up", "until", name, "sleep", "0.2", "exit",
                         "3"], terminal=True, ready=False) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        t.type(key)
        code, seen = t.wait(box)
        assert code == 3 and seen.count(b"got") == 1 and b"got " + name.encode() in seen, seen


def test_case_U2_an_outside_signal_arrives_once_too(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "TERM", "say", "up", "until", "TERM", "sleep", "0.2", "exit",
                         "3"]) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "up")
        assert box.stop() == 3
        assert box.log().count("got TERM") == 1, box.log()


@pytest.mark.parametrize("what", ["serving", "main", "configured"])
def test_case_U4_stop_during_start_up(kind, what):
    # given init in its first milliseconds, when TERM comes, then it always ends within the grace
    # and with the right code. What has not been started is not started.
    step = 1 if kind.startswith("ns") else 5
    count = early = 0
    for ms in range(0, 51, step * (1 if repeats(10) > 1 else 5)):
        kw = {"serving": {}, "main": {"main": ["sleep", "100"]},
              "configured": {"ini": {"init": {}, **{f"session:s{i}": {} for i in range(5)}}}}[what]
        with Box(kind, ready=False, **kw) as box:
            time.sleep(ms / 1000)
            if not _blocks_term(box.init_pid):
                early += 1
                box.close()
                continue
            begun = time.monotonic()
            code = box.stop()
            took = time.monotonic() - begun
            count += 1
            if _before_exec(code):  # the signal was there before sandbox-init was
                continue
            assert code in ((143,) if what == "main" else (0,)) or (what == "main" and code == 0), (
                ms, code, box.log())
            assert took < 8, (ms, took)
            assert box.survivors() == []
    print(f"{count} stops, {early} before init's first instruction")
    with Box(kind, ready=False, **kw) as box:  # one at that very moment
        wait_until(lambda: _blocks_term(box.init_pid), 5, "init has begun", every=0.0002)
        assert box.stop() in ((143, 0) if what == "main" else (0,)), box.log()


def _blocks_term(pid):
    """True once sandbox-init has run its first instruction, which blocks all signals. Before that
    the kernel itself drops a TERM to a PID 1 whose action is the default one (signal(7))."""
    try:
        fields = status_fields(pid)
        blocked = int(fields["SigBlk"], 16)
        # (what comes before it blocks signals for a moment, too)
        return fields["Name"].startswith("sandbox-init") and all(
            blocked >> (n - 1) & 1 for n in (signal.SIGTERM, signal.SIGUSR1))
    except (KeyError, OSError):
        return False


def _before_exec(code):
    """TERM that hits unshare, setpriv or runc's own init before they exec is not ours."""
    return code in (143, 137, 1)


def test_case_U5_stop_in_the_middle_of_a_command(kind):
    # given a long command in a session and a process, when TERM or INT comes, then all end
    for sig in (signal.SIGTERM, signal.SIGINT):
        with Box(kind) as box:
            box.session("s")
            client = box.ctl_spawn("exec", "-s", "s", "echo in; sleep 100")
            assert client.stdout.readline() == b"in\n"
            box.session("t")
            box.start("sleep 101", "t")
            begun = time.monotonic()
            assert box.stop(sig) == 0
            assert time.monotonic() - begun < 8
            out, err = client.communicate(timeout=15)
            assert client.returncode != 0, "the client is told that its command did not end well"
            assert box.survivors() == []


def test_case_U5_main_command_gets_int(kind):
    with Box(kind, main=["sleep", "100"]) as box:
        assert box.stop(signal.SIGINT) == 130


def test_case_U7_sigpipe_is_not_inherited_as_ignored(s):
    if s.shell == "bash":
        r = s.exec("yes | head -1 >/dev/null; echo ${PIPESTATUS[0]}", deadline=10)
        assert r.triple == (0, b"141\n", b"")
    r = s.exec("(yes; echo $? >&2) | head -1", deadline=10)
    assert (r.out, r.err) == (b"y\n", b"141\n")
    id, _ = s.start("(yes; echo $? >&2) | head -1")
    s.box.wait_process(id)
    a = s.box.logs(id)
    assert (a.out, a.err) == (b"y\n", b"141\n")


def test_case_U7_everything_starts_with_default_signals(s):
    # commands, processes, argvs and fresh shells: nothing ignored, nothing blocked
    def look(out):
        f = dict(l.split(b"=", 1) for l in out.splitlines())
        assert int(f[b"ignored"], 16) == 0, f
        assert int(f[b"blocked"], 16) == 0, f

    look(s.exec(f"{s.helper} report").out)
    look(s.exec([s.helper, "report"]).out)
    look(s.box.exec(f"{s.helper} report").out)
    look(s.box.exec([s.helper, "report"]).out)
    for text in (f"{s.helper} report", [s.helper, "report"]):
        id, _ = s.start(text)
        s.box.wait_process(id)
        look(s.box.logs(id).out)


def test_case_U8_int_to_a_background_child_of_a_text(s):
    # given a child that a shell without job control started with &, then SIGINT is ignored in it
    # (the shell's rule) and TERM ends it
    r = s.exec("sleep 99 & echo $!")
    pid = s.box.host_pid(int(r.out))
    wait_until(lambda: status_fields(pid).get("Name") == "sleep", 5, "sleep runs")
    assert int(status_fields(pid)["SigIgn"], 16) & 0x2
    s.box.signal(signal.SIGTERM, pid)
    wait_until(lambda: not s.box.find("sleep 99"), 5, "TERM ends it")


def test_case_U8_int_to_a_process(s):
    nap = s.sleep_mark()
    id, _ = s.start(f"sleep {nap}")
    p = wait_until(lambda: s.box.find(f"sleep {nap}"), 5, "sleep runs")[0]
    assert int(status_fields(p.pid)["SigIgn"], 16) & 0x6 == 0
    assert s.box.ctl("kill", "--signal", "INT", id).status == 0
    a = s.box.wait_process(id, deadline=10)
    assert a["status"] == 130, a.fields


@pytest.mark.parametrize("name, number", [("INT", 2), ("QUIT", 3), ("HUP", 1), ("USR2", 12)])
def test_case_U8_each_signal_ends_a_process(s, name, number):
    id, _ = s.start([s.helper, "say", "up", "forever"])
    wait_until(lambda: s.box.logs(id).out, 5, "up")
    assert s.box.ctl("kill", "--signal", name, id).status == 0
    a = s.box.wait_process(id, deadline=10)
    assert (a["status"], a["signal"]) == (128 + number, f"SIG{name}")
