"""The four clocks of a command: total time, time without output, CPU time, and the soft one."""

import json
import os
import signal
import time

import pytest

from rig import wire
from rig.box import Box
from rig.places import make_session
from rig.quiet import slept_through, wait_quiet
from rig.wait import wait_until

SLACK = 12.0  # for a machine that has much else to do

BURN = "while :; do :; done"


@pytest.fixture(params=["bash", "dash", "ash"])
def s(request, pool):
    s = make_session(pool.get("ns-root"), request.param)
    yield s
    s.box.call("session.delete", name=s.name, deadline=10)


@pytest.fixture
def b(pool):
    s = make_session(pool.get("runc-user"), "bash")
    yield s
    s.box.call("session.delete", name=s.name, deadline=10)


def run(s, text, deadline=15, session=True, **clocks):
    """exec over the wire with clocks in milliseconds; the answer (fields, out, seconds)."""
    args = [("session", s.name if session else None)]
    args += [(f"{k}_ms", str(v)) for k, v in clocks.items()]
    return wire.call(s.box.socket, "exec", args, text, timeout=deadline)


def timed_out(a, clock, at_least):
    assert (a["verdict"], a["status"], a.get("clock")) == ("timeout", 124, clock), a.fields
    assert at_least <= a.seconds < at_least + SLACK, a


# ---- total -----------------------------------------------------------------------------------


def test_clock_total(s):
    timed_out(run(s, "while :; do echo x; sleep 0.05; done", timeout=300, idle_timeout=5000,
                  cpu_timeout=5000), "total", 0.3)
    a = run(s, "sleep 0.1; echo hi", timeout=5000)
    assert (a["status"], a.out) == (0, b"hi\n") and "clock" not in a.fields


@pytest.mark.parametrize("session", [True, False])
def test_what_ends_in_time_while_init_is_held_up(session):
    # given a text that ends in time while init does not run (it is throttled, or stopped), then its
    # status is its own, though init hears of both at once
    with Box("ns-root", ini={}) as box:
        if session:
            box.ctl_ok("session", "create", "s")
        with box.connect() as c:
            c.request("exec", [("session", "s" if session else None), ("timeout_ms", "1000")],
                      "touch on; until [ -e go ]; do sleep 0.02; done; touch done")
            wait_until((box.work / "on").exists, 5)
            box.signal(signal.SIGSTOP)
            (box.work / "go").touch()
            wait_until((box.work / "done").exists, 5)
            time.sleep(1.1)
            box.signal(signal.SIGCONT)
            a = c.finish()
        assert (a["verdict"], a["status"]) == ("exited", 0), a.fields


# ---- without output ----------------------------------------------------------------------------


def test_clock_output(s):
    # given a text that falls silent, then the time counts from its last byte, of either stream
    a = run(s, "for i in 1 2 3 4 5; do echo $i >&2; sleep 0.1; echo $i; sleep 0.1; done; sleep 60; "
               "echo no", idle_timeout=2000)
    timed_out(a, "output", 2.8)
    assert a.out == b"1\n2\n3\n4\n5\n" and a["state"] == "kept"
    timed_out(run(s, "sleep 60; echo no", idle_timeout=200), "output", 0.2)
    timed_out(run(s, BURN, idle_timeout=200), "output", 0.2)


def test_clock_output_lets_a_talker_go_on(s):
    # given a command that talks for longer than the clock, then only a silence of the clock's length
    # ends it: a machine whose other work leaves it no CPU makes one, and that try does not count
    text = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); : >beat; printf .; sleep 0.04; done"
    for _ in range(8):
        a = run(s, text, idle_timeout=1000)
        if a["verdict"] == "exited":
            assert (a["status"], a.out) == (0, b"." * 50) and a.seconds > 2
            return
        silence = time.time() - os.stat(f"{s.work}/beat").st_mtime
        timed_out(a, "output", 1)
        assert silence > 0.95, f"it talked until {silence} s ago"
    raise AssertionError("no second of this machine was without a second's silence")


def test_clock_output_is_patient_with_a_slow_client(b):
    # given a client that reads nothing for longer than the clock, then that is not the command's
    # silence
    with b.box.connect(15) as w:
        w.request("exec", [("session", b.name), ("idle_timeout_ms", "1500")],
                  "head -c 3000000 /dev/zero; echo end >&2")
        wait_until(lambda: b.show().get("running"), 5, "it runs")
        time.sleep(3)
        a = w.finish()
    assert (a["verdict"], len(a.out), a.err) == ("exited", 3_000_000, b"end\n")


# ---- CPU -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    BURN,
    f"sh -c '{BURN}'; echo no",
    f"({BURN}) & ({BURN}) & wait; echo no",
    "while :; do sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done'; done",
    f"sh -c 'sh -c \"{BURN}\" & wait' | cat; echo no",
])
def test_clock_cpu(s, text):
    for _ in range(2):  # a machine that lets the shell wait for the whole grace of 500 ms is asked once more
        a = run(s, text, cpu_timeout=200)
        if a["state"] == "kept":
            break
    assert (a["verdict"], a["status"], a["clock"]) == ("timeout", 124, "cpu")
    assert a["state"] == "kept"
    assert b"no" not in a.out and 0.09 < a.seconds < 150, a
    assert run(s, "echo next").out == b"next\n"


def test_clock_cpu_counts_no_sleep_and_nothing_older(s):
    # given children of an earlier command that burn, and end, then a later one is not blamed
    run(s, f"({BURN}) 2>/dev/null & echo $! >pid; (i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done) & :")
    a = run(s, "sleep 0.7; kill $(cat pid); sleep 0.2; wait; sleep 0.1; echo fine", cpu_timeout=300)
    assert (a["verdict"], a.out) == ("exited", b"fine\n"), a.fields


# ---- soft ------------------------------------------------------------------------------------


def test_clock_soft(s):
    a = run(s, "mkfifo gate; echo first; read x <gate; echo second; X=3; sh -c 'exit 5'", soft_timeout=1500)
    assert (a["verdict"], a["clock"], a.out) == ("running", "soft", b"first\n"), a.fields
    assert "status" not in a.fields and a["offset"] == 6 and 1.5 <= a.seconds < 1.5 + SLACK
    id = a["id"]
    assert s.show()["running"] == id
    s.path("gate").write_text("\n")
    # what comes later is found by the id, at the offset of the answer
    rest = s.box.call("logs", id=id, follow="1", **{"from": "6"})
    assert rest.out == b"second\n"
    end = s.box.call("wait", id=id)
    assert (end["verdict"], end["status"]) == ("exited", 5)
    assert run(s, "echo $X").out == b"3\n"


def test_clock_soft_then_kill_or_timeout(s):
    a = run(s, "sleep 60; echo no", soft_timeout=100)
    s.box.call("kill", id=a["id"])
    assert s.box.call("wait", id=a["id"])["status"] == 137
    a = run(s, "sleep 60; echo no", soft_timeout=100, timeout=500)
    assert a["verdict"] == "running"
    end = s.box.call("wait", id=a["id"])
    assert (end["verdict"], end["status"], end["clock"]) == ("timeout", 124, "total")
    assert end["state"] == "kept"
    a = run(s, "echo quick", soft_timeout=30_000)
    assert (a["verdict"], a["status"], a.out) == ("exited", 0, b"quick\n") and a.seconds < 15


def test_clock_soft_by_sandboxctl(s):
    text = "echo a; rm -f gate; mkfifo gate; read x <gate; echo b"
    r = s.box.ctl("exec", "-s", s.name, "--soft-timeout", "1500ms", text)
    assert (r.status, r.out) == (123, b"a\n") and r.seconds < 1.5 + SLACK
    s.path("gate").write_text("\n")
    line = r.err.decode()
    assert line.startswith("sandboxctl: command ") and "sandboxctl wait" in line, line
    id = line.split()[2]
    assert s.box.ctl("wait", id).triple == (0, b"", b"")
    assert s.box.ctl("logs", "--from", "2", id).out == b"b\n"
    r = s.box.ctl("exec", "--json", "-s", s.name, "--soft-timeout", "1500ms", text)
    d = json.loads(r.out)
    assert r.status == 123 and d["verdict"] == "running" and d["stdout"] == "a\n", d
    s.path("gate").write_text("\n")
    assert s.box.ctl("wait", d["id"]).status == 0


# ---- without a session, by default, in what is said ----------------------------------------------


def test_clocks_of_an_exec_without_a_session(b):
    for text in ("sleep 60; echo no", BURN):
        timed_out(run(b, text, session=False, timeout=200), "total", 0.2)
        timed_out(run(b, text, session=False, idle_timeout=200), "output", 0.2)
    a = run(b, f"sh -c '{BURN}'; echo no", session=False, cpu_timeout=200)
    assert (a["verdict"], a["clock"]) == ("timeout", "cpu") and "state" not in a.fields
    a = run(b, f"until [ -e {b.path('go')} ]; do sleep 0.05; done", session=False, soft_timeout=100)
    assert a["verdict"] == "running"
    b.path("go").touch()
    assert b.box.call("wait", id=a["id"])["status"] == 0


def test_clocks_of_the_configuration():
    keys = {"command_idle_timeout": "1500ms", "command_cpu_timeout": "400ms", "kill_grace": "300ms"}
    with Box(ini={"sessions": keys, "session:soft": {"command_soft_timeout": "200ms",
                                                     "command_idle_timeout": "0"}}) as box:
        s = make_session(box)
        os.mkfifo(box.work / "gate")
        shown = s.show()
        assert (shown["command_idle_timeout_s"], shown["command_cpu_timeout_s"]) == (1.5, 0.4)
        timed_out(s.run("sleep 60"), "output", 1.5)
        assert s.run("while :; do echo x; done")["clock"] == "cpu"
        assert run(s, "sleep 1.8; echo on", idle_timeout=0).out == b"on\n"
        a = box.call_exec(f"read x <{box.work}/gate", "soft")
        assert a["verdict"] == "running"
        (box.work / "gate").write_text("\n")
        assert box.call("wait", id=a["id"])["status"] == 0


def test_clocks_leave_no_timer_behind(b):
    # given commands that are over before their clocks, when all that was asked is over and done
    # with, then init wakes up no more at the times at which the clocks would have run out
    ms = 800
    pids = b.box.init_pid, b.shell_pid

    def is_over_in_time():
        begun = time.monotonic()
        answers = [run(b, "true", timeout=ms, idle_timeout=ms, cpu_timeout=ms, soft_timeout=ms)
                   for _ in range(3)]
        wait_quiet(*pids, seconds=0.2)
        return time.monotonic() - begun < ms / 1000 and answers  # else a clock may be gone by now

    answers = wait_until(is_over_in_time, 30, "commands that are over before their clocks")
    assert [a["verdict"] for a in answers] == ["exited"] * 3
    assert slept_through(*pids, seconds=ms / 1000 + 0.1), "no clock runs"


def test_clocks_usage(s):
    for option in ("--idle-timeout", "--cpu-timeout", "--soft-timeout"):
        r = s.box.ctl("exec", "-s", s.name, option, "5", "true")
        assert r.status == 125 and b"duration" in r.err, r
    with pytest.raises(wire.WireError, match="cpu_timeout_ms"):
        run(s, "true", cpu_timeout="x")
