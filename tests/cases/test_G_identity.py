"""G. A signal reaches who was meant, and nobody is called dead who was not seen dead."""

import os

import pytest

from rig.box import Box
from rig.verbs import data
from rig.wait import repeats, wait_until

# Start `sleep $2` as PID $1 (which nobody has): the next number is ns_last_pid + 1.
REUSE = """
import os, sys, time
want, nap = int(sys.argv[1]), sys.argv[2]
for _ in range(2000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as f:
        f.write(str(want - 1))
    pid = os.fork()
    if pid == 0:
        if os.getpid() == want:
            os.setsid()
            os.execvp("sleep", ["sleep", nap])
        os._exit(0)
    if pid == want:
        sys.exit(0)
    os.waitpid(pid, 0)
sys.exit(1)
"""


@pytest.fixture
def reuse(one):
    """reuse(pid, nap, session): in that session's next command, `sleep nap` gets that PID."""
    script = one.work / "reuse.py"
    script.write_text(REUSE)
    if not os.path.exists("/proc/sys/kernel/ns_last_pid"):
        pytest.skip("the kernel has no ns_last_pid")

    def run(pid, nap, session=None):
        assert one.exec(f"python3 {script} {pid} {nap}", session).status == 0
        return wait_until(lambda: [p for p in one.find(f"sleep {nap}") if p.inner == int(pid)], 5,
                          f"{pid} is {nap}")

    return run


def test_case_G1_timers_die_with_their_command(one):
    # given commands whose deadline is near when they end, when it passes, then nobody is signalled:
    # neither the shell nor what has started meanwhile
    s = one.session()
    one.exec("true", s)
    threads = len(os.listdir(f"/proc/{one.init_pid}/task"))
    fds = one.fds()
    for _ in range(repeats(20)):
        assert one.exec("true", s, timeout=3600).status == 0
        wait_until(lambda: one.exec("true", s, timeout=0.4).status == 0, 20, "it ends within its time")
    r = one.exec("X=kept; sleep 1.1 & wait; echo $X", s)
    assert r.triple == (0, b"kept\n", b"") and r.seconds >= 1
    assert len(os.listdir(f"/proc/{one.init_pid}/task")) == threads == 1
    wait_until(lambda: one.fds() <= fds, 5, lambda: f"{fds} descriptors; now {one.fds()}")
    one.call("session.delete", name=s)


@pytest.mark.parametrize("text", ["(exit 3)", "sh -c 'kill -9 $$'", "sleep 0.05 &"])
def test_case_G1_other_ends(one, text):
    s = one.session()
    one.exec(text, s, timeout=0.3)
    r = one.exec("sleep 0.6 & wait $!; echo $?", s)
    assert r.triple == (0, b"0\n", b"")
    one.call("session.delete", name=s)


def test_case_G2_a_reaped_process_is_not_signalled(one, reuse):
    p, pid = one.start("true")
    one.wait_process(p)
    reuse(pid, "701.5")
    for args in ({}, {"signal": "SIGKILL"}, {"signal": "SIGTERM"}, {"grace_ms": "0"}):
        a = one.call("kill", id=p, check=False, **args)
        assert a.is_error and "already exited" in a["message"], a.fields
    assert one.find("sleep 701.5")


def test_case_G2_a_leftover_whose_pid_is_another_now(one, reuse):
    # given a process with a leftover that has ended, when its PID is another's, then a kill of the
    # process has nobody to kill
    p, _ = one.start("sleep 702.5 & echo $!; exit 0")
    one.wait_process(p)
    pid = one.logs(p).out.decode().strip()
    os.kill(one.host_pid(pid), 9)
    wait_until(lambda: not one.host_pid(pid), 5, "it is gone")
    reuse(pid, "703.5")
    a = one.call("kill", id=p, check=False)
    assert a.is_error and "already exited" in a["message"]
    assert one.find("sleep 703.5")


def test_case_G2_a_stray_whose_pid_is_a_command_s_now(one, reuse):
    # given a stray that has ended, when a command gets a child of that PID and is killed, then the
    # child dies: it is not taken for the older one; and an older child of another PID lives
    s = one.session()
    pid = one.exec("sleep 704.5 & echo $!", s).out.decode().strip()
    one.exec("sleep 705.5 &", s)
    client = one.ctl_spawn("exec", "-s", s,
                           f"kill -9 {pid}; wait {pid}; python3 {one.work}/reuse.py {pid} 706.5; "
                           "sleep 707.5")
    wait_until(lambda: one.find("sleep 706.5") and one.find("sleep 707.5"), 10, "it runs")
    assert one.find("sleep 706.5")[0].inner == int(pid)
    one.call("kill", running=s)
    client.wait(10)
    assert not one.find("sleep 706.5") and not one.find("sleep 707.5") and one.find("sleep 705.5")
    one.call("session.delete", name=s)


def test_case_G2_the_session_id_of_a_shell_that_was(one, reuse):
    # given a session whose shell died, when its PID is the session leader of somebody else's
    # processes, then those do not die with the session
    s, other = one.session(), one.session()
    pid = one.call("session.show", name=s)["pid"]
    one.exec("kill -9 $$", s)
    wait_until(lambda: not one.host_pid(pid), 5, "it is reaped")
    reuse(pid, "708.5", other)
    one.call("session.delete", name=s)
    assert one.find("sleep 708.5")
    one.call("session.delete", name=other)
    assert not one.find("sleep 708.5")


@pytest.fixture
def powerless():
    """Init is root without CAP_KILL, and has no cgroups: what is another user's cannot be
    signalled."""
    hide = 'mount -t tmpfs none /sys/fs/cgroup 2>/dev/null; exec "$@"'  # in the box's own namespace
    with Box("ns-root", ini={"sessions": {"kill_grace": "200ms"}},
             before=["sh", "-c", hide, "sh", "setpriv", "--bounding-set", "-kill", "--inh-caps",
                     "-kill", "--"]) as box:
        yield box


def await_sleep(box, nap):
    """It is another user's now: what starts it has its words, too, and is still root."""
    wait_until(lambda: [p for p in box.find(f"sleep {nap}") if p.comm == "sleep"], 5, "it sleeps")


def test_case_G4_a_refused_signal_is_told_and_init_lives(powerless):
    box = powerless
    p, _ = box.start(f"exec {box.helper} reuid 1000 exec sleep 711.5")
    await_sleep(box, "711.5")
    r = box.ctl("kill", p, deadline=20)
    assert r.status == 1 and b"Operation not permitted" in r.err
    assert box.is_alive and box.find("sleep 711.5")
    assert next(r for r in box.ps() if r["id"] == p)["state"] == "running"
    r = box.ctl("kill", "--signal", "USR1", p)
    assert r.status == 1 and b"Operation not permitted" in r.err


@pytest.mark.parametrize("end, want", [("exit 3", ("exited", 3)), ("die SEGV", ("signaled", 139)),
                                       ("exec true", ("exited", 0))])
def test_case_G5_no_death_that_was_not_seen(powerless, end, want):
    box = powerless
    go = box.work / "go"
    os.mkfifo(go)
    os.chmod(go, 0o666)
    p, _ = box.start(f"exec {box.helper} reuid 1000 exec sh -c 'read x <{go}; exec {box.helper} "
                     f"{end}'")
    wait_until(lambda: [q for q in box.find("read x") if q.comm == "sh"], 5, "it runs")
    waiter = box.ctl_spawn("wait", "--json", p)
    a = box.call("kill", id=p, grace_ms="100", deadline=20)
    assert a["state"] == "running" and all(
        "Operation not permitted" in v for v in a["survivors"])
    row = next(r for r in box.ps() if r["id"] == p)
    assert row["state"] == "running" and "verdict" not in row
    assert waiter.poll() is None, "a wait does not end before the process does"
    with open(go, "w") as f:
        f.write("\n")
    assert waiter.wait(10) == want[1]
    row = next(r for r in box.ps() if r["id"] == p)
    assert (row["verdict"], int(row["status"])) == want


def test_case_G5_a_session_that_cannot_be_ended_whole_says_so(powerless):
    box = powerless
    s = box.session()
    box.exec(f"{box.helper} reuid 1000 exec sleep 712.5 &", s)
    await_sleep(box, "712.5")
    d = data(box, "session", "delete", s, status=1)
    assert d["survivors"] == [v for v in d["survivors"] if "Operation not permitted" in v]
    assert box.find("sleep 712.5") and box.is_alive


@pytest.mark.parametrize("text", ["kill -KILL 0; sleep 5", "trap '' TERM; kill -TERM 0; kill -9 0"])
def test_case_G7_group_0_is_the_process_s_own(s, text):
    other = s.sleep_mark()
    s.exec(f"X=1; sleep {other} &")
    wait_until(lambda: s.box.find(f"sleep {other}"), 10, "it sleeps")
    p, _ = s.start(text)
    w = s.box.wait_process(p)
    assert (w["verdict"], w["signal"], int(w["status"])) == ("signaled", "SIGKILL", 137)
    assert s.exec("echo $X").out == b"1\n" and s.box.find(f"sleep {other}")


@pytest.mark.parametrize("text", [
    "kill -TERM 0; echo on",
    "kill -KILL 0",
    "kill -HUP 0; kill -INT 0; kill -QUIT 0; kill -ALRM 0",
    "kill -KILL -$$",
    "sh -c 'kill -KILL 0'; echo on",
    "setsid sh -c 'kill -KILL 0; sleep 5'; echo on",
    "kill -TERM -- -$$ & wait",
])
def test_case_G7_a_command_s_group_is_its_session_s(one, text):
    s, other = one.session(), one.session()
    one.exec("Y=2", other)
    p, _ = one.start("sleep 721.5")
    one.exec(text, s, timeout=5)
    assert one.is_alive
    # neither another session nor a process was hit, and the session goes on
    assert one.exec("echo $Y", other).out == b"2\n"
    assert one.exec("echo next", s).triple == (0, b"next\n", b"")
    assert one.find("sleep 721.5")
    one.call("kill", id=p)
    for n in (s, other):
        one.call("session.delete", name=n)
