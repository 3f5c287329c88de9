"""A process in state D, which nothing ends: a report, never a hang."""

import os
import signal
import time

import pytest

from rig.box import KINDS, Box, read_stat
from rig.stuck import StuckFolder
from rig.wait import is_long, wait_until

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no FUSE here")
FAST = {"init": {"stop_grace": "300ms"}, "sessions": {"kill_grace": "300ms"}}
# How a process gets stuck -> what it runs as
WAYS = {
    "read": "cat {0.file}",
    "look-up": "ls {0.nothing}",
    "page-fault": "python3 -c 'import mmap; f = open(\"{0.file}\"); "
                  "mmap.mmap(f.fileno(), 4096, prot=1)[0]'",
    "a-thread-wants-its-memory": "python3 -c 'import mmap, threading, time; f = open(\"{0.file}\"); "
                                 "m = mmap.mmap(f.fileno(), 4096, prot=1); "
                                 "threading.Thread(target=lambda: m[0]).start(); time.sleep(0.1); "
                                 "[mmap.mmap(-1, 4096) for i in range(9)]; time.sleep(99)'",
}


def stuck_in(box, stuck, text):
    """The process that has text in its command line, as soon as it is stuck."""
    wait_until(lambda: stuck.taken, 10, "its call has been taken")
    return next(p for p in box.find(text) if p.comm in ("cat", "ls", "python3"))


@pytest.mark.parametrize("way", WAYS if is_long() else ["read", "a-thread-wants-its-memory"])
def test_a_stuck_command_is_told_of(way):
    # given a command that is stuck, when it is killed, then the answer comes and names it, init and
    # the session go on, and once it can die it is gone
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        client = box.ctl_spawn("exec", "-s", "s", "--id", "it", WAYS[way].format(stuck))
        p = stuck_in(box, stuck, "stuck")
        begun = time.monotonic()
        r = box.ctl("kill", "--json", "it")
        assert time.monotonic() - begun < 15
        assert f"{p.inner} {p.comm}" in r.out.decode() and "state D" in r.out.decode(), r
        assert box.exec("echo on", "s", deadline=10).out == b"on\n"
        client.communicate(timeout=15)
        assert read_stat(p.pid).state == "D"
        stuck.release()
        wait_until(lambda: read_stat(p.pid) is None, 5, "it is gone")


@pytest.mark.parametrize("how", ["timeout", "kill"])
def test_a_program_that_is_stuck_is_told_of(how):
    # given an exec of a program that is stuck, when its time is over, or it is killed, then the answer comes and says
    # so, and once the program can die it is gone
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        limit = ["--timeout", "1s"] if how == "timeout" else []
        client = box.ctl_spawn("exec", "--id", "it", *limit, "--", "cat", stuck.file)
        p = stuck_in(box, stuck, "stuck/file")
        if how == "kill":
            assert "state D" in box.ctl("kill", "--json", "it", deadline=20).out.decode()
        err = client.communicate(timeout=20)[1].decode()
        assert client.returncode == (137 if how == "kill" else 124) and f"(state D): PID {p.inner}" in err, err
        assert box.ctl("exec", "--", "echo", "on", deadline=10).out == b"on\n"
        assert read_stat(p.pid).state == "D"
        stuck.release()
        wait_until(lambda: read_stat(p.pid) is None, 5, "it is gone")


@pytest.mark.parametrize("how", ["its folder", "its text", "no timeout"])
def test_a_shell_that_is_stuck_is_told_of_and_replaced(how):
    # given a session's shell that is stuck itself, when its command's time is over, or the command is killed, then the
    # answer comes and says so, the next one has another shell, and once the first can die it is gone
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        limit = [] if how == "no timeout" else ["--timeout", "2s"]
        where = ["--cwd", stuck.nothing] if how == "its folder" else []
        client = box.ctl_spawn("exec", "-s", "s", "--id", "it", *limit, *where, f": <{stuck.nothing}")
        wait_until(lambda: stuck.taken, 10, "its call has been taken")
        [p] = [p for p in box.processes() if p.comm == "bash"]
        if how == "no timeout":
            box.ctl("kill", "it", deadline=20)
        err = client.communicate(timeout=20)[1].decode()
        assert client.returncode == (137 if how == "no timeout" else 124) and f"(state D): PID {p.inner}" in err, err
        assert box.exec("echo on", "s", deadline=10).out == b"on\n"
        assert read_stat(p.pid).state == "D"
        stuck.release()
        wait_until(lambda: read_stat(p.pid) is None, 5, "it is gone")


def test_a_start_that_hangs_keeps_no_end_of_file_back():
    # given a program that is being started and hangs in its folder, when a command's stdin ends, then
    # the command sees the end, however long the other hangs
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        starter = box.ctl_spawn("exec", "--cwd", stuck.nothing, "true")
        wait_until(lambda: stuck.taken, 10, "it hangs")
        for _ in range(20):
            assert box.ctl("exec", "-s", "s", "--stdin", "cat", input=b"in\n", deadline=10).out == b"in\n"
        stuck.release()
        starter.communicate(timeout=10)


@pytest.mark.parametrize("kind", KINDS if is_long() else ["runc-user"])
def test_a_stop_with_a_stuck_process_is_told_of(kind):
    # given a process that is stuck, when the container is stopped, then init says so and ends in
    # bounded time; that the kernel keeps its namespace until the process can die is not init's
    ini = dict(FAST, init={"stop_grace": "2s"})  # time for the main command to end
    with Box(kind, ini=ini, main=["sleep", "100"]) as box, StuckFolder(box) as stuck:
        box.session("s")
        box.start(f"cat {stuck.file}", "s")
        p = stuck_in(box, stuck, "stuck/file")
        box.signal(signal.SIGTERM)
        wait_until(lambda: "survivor " in box.log() and "event=stopped " in box.log(), 15, box.log)
        line = next(l for l in box.log().splitlines() if "survivor " in l)
        assert f"pid={p.inner}" in line and "name=cat" in line and "state D" in line
        stuck.release()
        assert box.wait(10) == 143


def test_a_stuck_main_command_is_told_of():
    with Box("ns-root", ini=FAST, main=["sh", "-c", "until [ -e stuck/file ]; do sleep 0.01; done; "
                                        "exec cat stuck/file"]) as box:
        with StuckFolder(box) as stuck:
            p = stuck_in(box, stuck, "stuck/file")
            box.signal(signal.SIGTERM)
            wait_until(lambda: "event=stopped " in box.log(), 15, box.log)
            line = next(l for l in box.log().splitlines() if "survivor " in l)
            assert f"pid={p.inner}" in line and "state D" in line
            stuck.release()
            assert box.wait(10) == 137


def test_a_stuck_process_is_told_of_and_can_be_stopped_again():
    # given a background process that is stuck, when it is killed twice, then both answers name it;
    # when it could die, its end is known
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        id, _ = box.start(f"cat {stuck.file}", "s")
        p = stuck_in(box, stuck, "stuck/file")
        for _ in range(2):
            r = box.ctl("kill", "--json", id)
            assert f"{p.inner} cat" in r.out.decode() and "state D" in r.out.decode(), r
        stuck.release()
        wait_until(lambda: read_stat(p.pid) is None, 5, "it is gone")
        assert box.wait_process(id).fields


def test_a_session_with_a_stuck_process_is_deleted():
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        box.start(f"cat {stuck.file}", "s")
        p = stuck_in(box, stuck, "stuck/file")
        r = box.ctl("session", "delete", "--json", "s", deadline=15)
        assert f"{p.inner} cat" in r.out.decode() and "state D" in r.out.decode(), r
        box.session("s")
        assert box.exec("echo on", "s", deadline=10).out == b"on\n"


def test_a_stuck_service_is_told_of_and_not_started_again():
    # given a service that is stuck, when it is stopped, then the answer names it; when it is started
    # again, then only after the old process has gone; another service is not held up
    ini = dict(FAST, **{
        "service:it": {"command": "cat stuck/file", "autostart": "no", "stop_grace": "300ms",
                       "restart": "never"},
        "service:other": {"command": "sleep 1000"}})
    with Box("ns-root", ini=ini) as box, StuckFolder(box) as stuck:
        box.ctl_ok("service", "start", "it")
        p = stuck_in(box, stuck, "stuck/file")
        r = box.ctl("service", "stop", "it", deadline=15)
        assert r.status == 1 and f"cannot be ended: {p.inner} cat: state D" in r.err.decode(), r
        assert b"cannot be ended" in box.ctl("service", "show", "it").out
        box.ctl_ok("service", "restart", "other")
        again = box.ctl_spawn("service", "start", "it")
        assert [q.pid for q in box.find("stuck/file") if q.comm == "cat"] == [p.pid]
        stuck.release()
        wait_until(lambda: read_stat(p.pid) is None, 5, "it is gone")
        again.communicate(timeout=15)
        assert box.stop() == 0


def test_a_stop_of_services_does_not_wait_for_a_stuck_one():
    ini = dict(FAST, **{"service:it": {"command": "cat stuck/file", "autostart": "no"},
                        "service:other": {"command": "sleep 1000"}})
    with Box("ns-root", ini=ini) as box, StuckFolder(box) as stuck:
        box.ctl_ok("service", "start", "it")
        p = stuck_in(box, stuck, "stuck/file")
        box.signal(signal.SIGTERM)
        wait_until(lambda: "event=stopped " in box.log(), 15, box.log)
        assert "state D" in box.log() and f"pid={p.inner}" in box.log(), box.log()
        stuck.release()
        assert box.wait(10) == 0
