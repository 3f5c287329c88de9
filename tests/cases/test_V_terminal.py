"""V. The terminal and job control under an init, and in the terminals of sessions."""

import pytest

from rig.box import Box, programs
from rig.tterm import Client
from rig.tty import Terminal


def lines(seen):
    return [l.strip() for l in seen.replace(b"\r", b"").split(b"\n") if l.strip()]


def test_case_V1_job_control(kind):
    with Box(kind, main=["bash", "--norc", "-i", "-c", "jobs; sleep 0.2 & fg; stty -echo; echo ok"],
             terminal=True, ready=False, env={"TERM": "dumb"}) as box:
        code, seen = Terminal(box).wait(box)
        assert code == 0 and b"ok" in lines(seen)
        assert b"job control" not in seen and b"process group" not in seen, seen


@pytest.mark.parametrize("shell", [["dash", "-i"], ["ash", "-i"], ["bash", "--norc", "-i"]],
                         ids=lambda a: a[0])
def test_case_V1_no_warning_in_any_shell(kind, shell):
    shell = [str(programs() / "ash") if shell[0] == "ash" else shell[0], *shell[1:]]
    with Box(kind, main=shell, terminal=True, ready=False, env={"PS1": "$ ", "TERM": "dumb"}) as box:
        t = Terminal(box)
        t.until(b"$ ")
        t.type("echo $-; exit 4\n")
        code, seen = t.wait(box)
        assert code == 4, seen
        assert b"job control" not in seen and b"can't access tty" not in seen, seen
        assert any(b"m" in l and b"echo" not in l for l in lines(seen)), seen


def test_case_V1_the_child_s_group_is_in_the_foreground(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "report"], terminal=True, ready=False) as box:
        code, seen = Terminal(box).wait(box)
        f = dict(l.split(b"=", 1) for l in lines(seen) if b"=" in l and not l.startswith(b"["))
        assert code == 0
        assert f[b"tpgid"] == f[b"pgrp"] and f[b"pgrp"] == f[b"pid"] and f[b"pid"] != b"1", seen


def test_case_V2_reading_under_tostop(kind):
    with Box(kind, main=["sh", "-c", "stty tostop; echo up; read x; echo got $x"], terminal=True,
             ready=False, flags=[]) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        t.type("hello\n")
        t.until(b"got hello\r\n")
        assert t.wait(box)[0] == 0


def test_case_V2_init_writes_under_tostop(kind):
    # given TOSTOP and init that logs to the terminal at its most talkative, then nobody stops
    with Box(kind, ini={"init": {"log_level": "debug"}},
             main=["sh", "-c", "stty tostop; echo up; read x; echo got $x; read y"],
             terminal=True, env={"TERM": "dumb"}) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        box.session("s")
        assert box.exec("echo hi", "s").out == b"hi\n"
        t.type("a\n")
        t.until(b"got a\r\n")
        box.call("session.delete", name="s")
        t.type("b\n")
        assert t.wait(box)[0] in (0, 1)


def test_case_V2_a_password_prompt(kind):
    with Box(kind, main=["sh", "-c", "stty -echo; echo ask; read p; stty echo; echo len ${#p}"],
             terminal=True, ready=False) as box:
        t = Terminal(box)
        t.until(b"ask\r\n")
        t.type("secret\n")
        code, seen = t.wait(box)
        assert code == 0 and b"len 6" in seen and b"secret" not in seen


def test_case_V4_sessions_never_touch_the_terminal(kind):
    # given init with a main command on a terminal, when a session's command reads or asks for a
    # terminal, then it has none and nothing stops
    m = str(programs() / "misbehave")
    with Box(kind, main=["sh", "-c", "echo up; read x; echo got $x"], terminal=True) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        box.session("s")
        r = box.exec("read x </dev/tty; echo rc=$?", "s", deadline=10)
        assert r.status == 0 and b"rc=0" not in r.out
        assert b"\ntpgid=-1\n" in box.exec([m, "report"], "s").out
        t.type("mine\n")
        t.until(b"got mine\r\n")


@pytest.mark.parametrize("where", ["start", "process", "by-name"])
def test_case_V4_nobody_else_gets_at_the_main_command_s_terminal(where):
    # given a main command on a terminal, when a process in the background reads: from /dev/tty, from
    # its stdin, or from the terminal opened by its name (a device like any other, which does not
    # become its own), then it is never stopped, and what is typed is the main command's
    m = str(programs() / "misbehave")
    with Box("ns-root", main=["sh", "-c", "tty; echo up; read x; echo got $x; read y"],
             terminal=True) as box:
        t = Terminal(box)
        tty = next(l.decode() for l in lines(t.until(b"up\r\n")) if l.startswith(b"/dev/"))
        box.session("s")
        text = {"start": "read x </dev/tty; echo rc=$?",
                "process": "cat; echo rc=$?",
                "by-name": f"exec 3<>{tty}; {m} report; echo rc=$?"}[where]
        id, _ = box.start(text, "s")
        box.wait_process(id)
        out = box.logs(id).out
        assert b"rc=" in out and (where != "start" or b"rc=0" not in out)
        if where == "by-name":
            assert b"\ntpgid=-1\n" in out
        t.type("mine\n")
        t.until(b"got mine\r\n")
        t.type("end\n")
        assert t.wait(box)[0] == 0


@pytest.mark.parametrize("actions", [
    ["report"],  # the program of the terminal itself
    ["child", "[", "report", "]", "wait"],  # a child in its group
    ["child", "[", "child", "[", "report", "]", "wait", "]", "wait"],
], ids=["leader", "child", "grandchild"])
@pytest.mark.parametrize("place", ["ns-root", "runc-user"])
def test_case_V4_a_terminal_is_a_session_of_its_own(pool, place, actions):
    # given a program on a session's terminal, then it leads a session of its own, with the terminal
    # as the one that controls it, and its group is in the foreground
    box = pool.get(place)
    with Client(box, "terminal", "--", box.helper, *actions) as c:
        code, seen = c.end()
    f = dict(l.split(b"=", 1) for l in lines(seen) if b"=" in l)
    assert code == 0
    assert f[b"tpgid"] == f[b"pgrp"] == f[b"sid"] != b"1", seen


@pytest.mark.parametrize("text", [
    "read x; echo got $x",
    "read x </dev/tty; echo got $x",
    "bash --norc -ic 'read x; echo got $x'",  # a shell that moves groups in and out
    "sh -c 'read x; echo got $x'",
])
def test_case_V4_reading_on_a_terminal_never_freezes(pool, text):
    box = pool.get("ns-root")
    with Client(box, "terminal", "--", "sh", "-c", f"echo up; {text}") as c:
        c.until(b"up\r\n")
        c.type("hello\n")
        code, seen = c.end()
    assert code == 0 and b"got hello" in seen


def test_case_V4_a_background_group_that_reads_is_stopped_and_its_shell_says_so(pool):
    # given the input of the case on a terminal: a command in a group of its own that is not moved
    # to the foreground; then job control stops it, as it should, and the terminal stays usable
    box = pool.get("ns-root")
    with Client(box, "terminal", "--", "bash", "--norc", "-i", env={"PS1": "$ "}) as c:
        c.type("cat & wait; echo ja; jobs\n")
        c.until(b"\r\nja\r\n")
        c.until(b"Stopped")
        c.type("fg\n")
        c.until(b"\rcat\r\n")
        c.type("mine\n")
        c.until(b"mine\r\nmine\r\n")
        c.type("\x04")
        c.type("exit 3\n")
        assert c.end()[0] == 3
