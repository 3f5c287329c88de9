"""Signals (tests 11, 13, 17 to 19 of init-tests)."""

import os
import signal
import time

import pytest

from rig.box import Box, programs, read_stat
from rig.wait import wait_until

NAMES = {n: signal.Signals(n).name[3:] for n in range(1, 32) if n in set(signal.Signals)}
NAMES[29] = "IO"
NAMES[16] = "STKFLT"
# Not forwarded: KILL and STOP cannot be, CHLD is init's own. What docs list as init's own besides
# is named where it is tested.
FORWARDED = [n for n in range(1, 32) if n not in (9, 19, 17)]


def test_init_11_every_signal_once_and_in_order(kind):
    # given a main command that prints each signal, when init gets them one by one, then each
    # arrives once, in order. TERM begins the stop: it comes last. (KILL, STOP and CHLD cannot or
    # must not be passed on; URG is sent last but one: runc passes on those of its own runtime.)
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "all", "say", "up", "forever"],
             ini={"init": {"stop_grace": "2s"}}) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "up")
        got = lambda: [l[4:] for l in box.log().splitlines()
                       if l.startswith("got ") and l != "got URG"]
        sent = []
        for n in FORWARDED:
            if n in (signal.SIGTERM, signal.SIGURG):
                continue
            box.signal(n)
            sent.append(NAMES[n])
            wait_until(lambda: len(got()) >= len(sent), 5, lambda: f"{NAMES[n]} arrives: {got()}")
        assert got() == sent
        box.signal(signal.SIGURG)
        wait_until(lambda: "got URG\n" in box.log(), 5, "URG arrives")
        assert len(sent) == 26, sent
        assert box.is_alive
        box.signal(signal.SIGTERM)
        wait_until(lambda: "TERM" in got(), 5, "TERM arrives")
        assert box.wait(15) == 137  # it never ends by itself
        assert got()[-1] == "TERM" and got().count("TERM") == 1


def test_init_11_real_time_signals(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "catch", "34,64", "say", "up", "forever"]) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "up")
        box.signal(34)
        wait_until(lambda: "got RT\n" in box.log(), 5, "a real-time signal arrives")


@pytest.mark.parametrize("block", ["TERM,INT,CHLD,USR1,HUP", "all", "CHLD"])
def test_init_13_a_dirty_start(kind, block):
    # given a parent that blocks and ignores signals, when init starts, then it works and every
    # child on every path has an empty mask and default dispositions
    m = str(programs() / "misbehave")
    with Box(kind, before=[m, "block", block, "ignore", "PIPE,INT,QUIT,TERM,USR2,CHLD", "exec"],
             main=[m, "report", "forever"]) as box:
        def clean(text):
            f = dict(l.split("=", 1) for l in text.splitlines() if "=" in l)
            assert int(f["blocked"], 16) == 0 and int(f["ignored"], 16) == 0, (f, text)

        wait_until(lambda: "fds=" in box.log(), 5, "the main command's report")
        clean(box.log())
        for shell in ("/bin/bash", "/bin/dash", str(programs() / "ash")):
            name = box.session(shell=shell)
            clean(box.exec(f"{m} report", name).out.decode())
            clean(box.exec([m, "report"], name).out.decode())
            id, _ = box.start([m, "report"], name)
            box.wait_process(id)
            clean(box.logs(id).out.decode())
        clean(box.exec(f"{m} report").out.decode())
        clean(box.exec([m, "report"]).out.decode())
        assert box.stop() == 143


def test_init_17_suspend(kind):
    # given a main command, when init gets TSTP, then both stop as far as PID 1 can be stopped (a
    # namespace's PID 1 ignores stop signals from inside; the main command stops); CONT wakes both
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "say", "up", "forever"]) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "up")
        p = box.find("say up")[0].pid
        box.signal(signal.SIGTSTP)
        wait_until(lambda: read_stat(p).state == "T", 5, "the main command is stopped")
        box.signal(signal.SIGCONT)
        wait_until(lambda: read_stat(p).state == "S", 5, "the main command goes on")
        wait_until(lambda: read_stat(box.init_pid).state in "SR", 5, "init goes on")
        assert box.exec("echo hi").out == b"hi\n"
        assert box.stop() == 143


def test_a_stop_of_a_main_command_that_is_stopped(kind):
    # given a main command that a signal has stopped, then the stop of the container lets it go on:
    # it could not act on its TERM otherwise, and would be killed when the time is over
    main = ["sh", "-c", "trap 'exit 6' TERM; sleep 100 & : >up; wait"]
    with Box(kind, main=main) as box:
        wait_until((box.work / "up").exists, 5)
        p = box.host_pid(box.call("status")["main_pid"])
        box.signal(signal.SIGTSTP)
        wait_until(lambda: read_stat(p).state == "T", 5, "the main command is stopped")
        assert box.stop() == 6


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGUSR1, signal.SIGWINCH])
def test_init_18_signals_in_the_first_milliseconds(kind, sig):
    # given a storm of signals from the first moment on, then nothing hangs; TERM stops
    m = str(programs() / "misbehave")
    for ms in (0, 0.5, 1, 1.5, 2, 3, 5, 8):
        with Box(kind, main=[m, "ignore", "USR1", "say", "up", "sleep", "0.1", "exit", "3"],
                 ready=False) as box:
            time.sleep(ms / 1000)
            try:
                box.signal(sig)
            except ProcessLookupError:
                pass
            code = box.wait(15)
            if sig == signal.SIGTERM:
                # (2: of runc's own process, before it was init)
                assert code in (143, 3, 0, 1) or (code == 2 and kind.startswith("runc") and not box.log()), (
                    ms, code, box.log())
            elif sig == signal.SIGUSR1:  # before exec it kills; between fork and exec the child too
                assert code in (3, 138), (ms, code, box.log())
            else:
                assert code == 3, (ms, code, box.log())


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_init_19_term_starts_the_stop(kind, where):
    with Box(kind) as box:
        box.session("s")
        id, _ = box.start([box.helper, "catch", "TERM", "say", "up", "until", "TERM", "sleep", "0.3",
                           "touch", "done", "exit", "0"], "s", cwd=str(box.work))
        wait_until(lambda: box.logs(id).out, 5, "up")
        if where == "inside":
            assert box.exec("kill -TERM 1").status in (0, 125, 143)
        else:
            box.signal(signal.SIGTERM)
        box_signal_quietly(box, signal.SIGTERM)
        assert box.wait() == 0
        assert (box.work / "done").exists(), "the second TERM did not cut the grace short"


def box_signal_quietly(box, sig):
    try:
        os.kill(box.init_pid, sig)
    except ProcessLookupError:
        pass


def test_init_19_signals_that_mean_nothing_to_init(kind):
    # given no main command, when signals come that nobody asked for, then init lives
    with Box(kind) as box:
        for n in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGALRM, signal.SIGWINCH,
                  signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGHUP, signal.SIGTTIN,
                  signal.SIGTTOU, signal.SIGVTALRM, signal.SIGPROF, 34, 64):
            box.signal(n)
        assert box.exec("echo hi").out == b"hi\n"
        assert box.stop() == 0
