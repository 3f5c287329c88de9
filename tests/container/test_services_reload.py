"""Reload as a diff: tests 39 and 40 of init-tests.md, several at once, and during a stop."""

import json
import os
import signal
import time

import pytest

from rig.box import Box, build_dir
from rig.services import Services, ini_text, order, show
from rig.wait import wait_until
from rig.wire import WireError

THREE = {"service:a": {"command": "sleep 101"}, "service:b": {"command": "sleep 102"},
         "service:c": {"command": "sleep 103", "requires": "b"}}


def write(box, ini):
    box.write_ini(ini)


def reload(box):
    """What the verb says that took effect."""
    a = box.call("reload")
    assert not a.get("restart_needed")
    return a.get("changed", [])


def pids(box, *names):
    return {n: show(box, n).get("pid") for n in names}


def test_init_39_no_change_touches_nothing(kind):
    with Box(kind, ini=THREE) as box, Services(box) as s:
        for name in THREE:
            s.wait(name.partition(":")[2], "running")
        before, at = pids(box, "a", "b", "c"), s.mark()
        for _ in range(3):
            assert reload(box) == []
        box.signal(signal.SIGHUP)
        wait_until(lambda: sum(e.get("kind") == "reload" for e in events(box)) == 4, 5)
        assert pids(box, "a", "b", "c") == before
        assert s.trace[at:] == []
        assert box.stop() == 0


def events(box):
    return [json.loads(line) for line in box.ctl_ok("events").out.splitlines()]


def test_init_40_only_what_differs_is_touched(kind):
    # given one added, one changed, one removed and one as it was, then only these are started and
    # stopped, and post_stop of the removed one runs after its stop
    first = {**THREE, "service:gone": {"command": "sleep 104", "cwd": "@WORK@",
                                       "post_stop": "sh -c 'pgrep -f \"sleep 10[4]\" || touch ran'"}}
    second = {**THREE, "service:b": {"command": "sleep 202"}, "service:new": {"command": "sleep 105"}}
    with Box(kind, ini=ini_text(first)) as box, Services(box) as s:
        for n in ("c", "gone"):
            s.wait(n, "running")
        before, at = pids(box, "a", "b", "c"), s.mark()
        write(box, ini_text(second))
        told = reload(box)
        assert set(told) == {"[service:gone] removed", "[service:b] changed: restarted",
                             "[service:new] added"}
        s.wait("new", "running", after=at)
        s.wait("c", "running", after=at)
        s.wait("gone", "stopped", after=at)
        after = pids(box, "a", "b", "c")
        assert after["a"] == before["a"] and after["b"] != before["b"]
        assert s.first("c", "waiting", at) < s.first("b", "waiting", at), "c needs b: it ends first"
        assert (box.work / "ran").exists()
        with pytest.raises(WireError, match="not found"):
            show(box, "gone")
        assert box.find("sleep 104") == [] and len(box.find("sleep 202")) == 1
        assert box.stop() == 0


def test_autostart_turned_on():
    # given services that do not start by themselves, when the file says that they do, then they are
    # started; one that an order has stopped stays so, and the answer says why
    first = {f"service:{n}": {"command": f"sleep 10{i}", "autostart": "no"} for i, n in enumerate("abc")}
    second = {f"service:{n}": {"command": f"sleep 10{i}"} for i, n in enumerate("abc")}
    with Box(ini=ini_text(first)) as box, Services(box) as s:
        order(box, "start", "b")
        order(box, "stop", "b")
        order(box, "start", "c")
        write(box, ini_text(second))
        assert reload(box) == ["[service:a] changed: started",
                               "[service:b] changed: not started, since an order stopped it",
                               "[service:c] changed"]
        s.wait("a", "running")
        assert show(box, "b")["state"] == "stopped" and show(box, "c")["state"] == "running"


def test_settings_that_need_no_restart():
    # given changes that a running service can be told, then it goes on, and they count
    first = {"service:w": {"command": "sleep 101", "restart": "never"}}
    second = {"service:w": {"command": "sleep 101", "restart": "always", "restart_delay": "50ms"}}
    with Box("ns-root", ini=first) as box, Services(box) as s:
        s.wait("w", "running")
        pid, at = pids(box, "w"), s.mark()
        write(box, second)
        assert reload(box) == ["[service:w] changed"]
        assert pids(box, "w") == pid
        box.signal(signal.SIGKILL, box.find("sleep 101")[0].pid)
        s.wait("w", "running", after=at)
        assert box.stop() == 0


def test_one_with_a_reload_signal_is_signalled():
    program = ("sh -c 'trap \"echo hup >>got\" HUP; touch up; while :; do sleep 0.02; done'")
    first = {"service:w": {"command": program, "cwd": "@WORK@", "reload_signal": "HUP"}}
    second = {"service:w": {**first["service:w"], "restart_delay": "2s"}}
    with Box("ns-root", ini=ini_text(first)) as box, Services(box) as s:
        s.wait("w", "running")
        wait_until((box.work / "up").exists, 5)
        pid = pids(box, "w")
        write(box, ini_text(second))
        assert reload(box) == ["[service:w] changed: signalled"]
        wait_until((box.work / "got").exists, 5)
        order(box, "reload", "w")
        wait_until(lambda: (box.work / "got").read_text() == "hup\nhup\n", 5)
        assert pids(box, "w") == pid
        assert box.stop() == 0


@pytest.mark.parametrize("bad", ["[service:x]\n", "[service:a]\ncommand = sleep 1\nrequires = nobody\n",
                                 "[service:a]\ncommand = x\nrequires = b\n[service:b]\ncommand = y\n"
                                 "requires = a\n", "garbage\n"])
def test_a_bad_file_changes_nothing(bad):
    with Box("ns-root", ini=THREE) as box, Services(box) as s:
        for name in THREE:
            s.wait(name.partition(":")[2], "running")
        before, at = pids(box, "a", "b", "c"), s.mark()
        write(box, "[init]\nruntime_dir = @RUN@\n" + bad)
        with pytest.raises(WireError, match="sandbox.ini:[0-9]+: "):
            reload(box)
        assert pids(box, "a", "b", "c") == before
        assert s.trace[at:] == []
        assert box.stop() == 0


def test_many_reloads_end_in_the_last_file():
    # given reloads faster than services can follow, then the last file is what is
    slow = "sh -c 'trap \"sleep 0.2; exit 0\" TERM; : %d; while :; do sleep 0.02; done'"
    with Box("ns-root", ini={"service:w": {"command": slow % 0}}) as box, Services(box) as s:
        s.wait("w", "running")
        for i in range(1, 9):
            ini = {"service:w": {"command": slow % i}}
            if i % 3 == 0:
                ini = {"service:v": {"command": slow % i}}
            write(box, ini)
            box.signal(signal.SIGHUP) if i % 2 else reload(box)
        reload(box)
        wait_until(lambda: [p.command for p in box.processes() if p.comm == "sh"] and all(
            ": 8;" in p.command for p in box.processes() if p.comm == "sh"), 10,
            lambda: [p.command for p in box.processes()])
        wait_until(lambda: show(box, "w")["state"] == "running", 5)
        with pytest.raises(WireError):
            show(box, "v")
        wait_until(lambda: len([p for p in box.processes() if p.comm == "sh"]) == 1, 5)
        assert box.stop() == 0
        assert box.survivors() == []


def test_several_reloads_at_once():
    # given a file that several clients and a signal want read at the same time, then it is carried out
    # once, and nothing else is touched
    ini = lambda i: {"service:w": {"command": f"sleep 10{i}"}, "service:v": {"command": "sleep 200"}}
    with Box("ns-user", ini=ini(0)) as box, Services(box) as s:
        for n in ("v", "w"):
            s.wait(n, "running")
        other = pids(box, "v")
        for i in range(1, 4):
            at = s.mark()
            write(box, ini(i))
            clients = [box.ctl_spawn("reload") for _ in range(6)]
            box.signal(signal.SIGHUP)
            assert [c.wait(30) for c in clients] == [0] * 6
            s.wait("w", "running", after=at)
            assert [p.command for p in box.find("sleep 10")] == [f"sleep 10{i}"]
            assert s.of("w", at).count("starting") == 1
        assert pids(box, "v") == other and s.of("v").count("starting") == 1
        assert box.stop() == 0


def test_a_reload_during_the_stop_starts_nothing():
    slow = "sh -c 'trap \"sleep 0.5; exit 0\" TERM; touch up; while :; do sleep 0.02; done'"
    with Box("ns-root", ini=ini_text({"service:w": {"command": slow, "cwd": "@WORK@"}})) as box:
        wait_until((box.work / "up").exists, 5)
        write(box, ini_text({"service:x": {"command": "touch never", "cwd": "@WORK@"}}))
        box.signal(signal.SIGTERM)
        box.signal(signal.SIGHUP)
        assert box.wait() == 0
        assert not (box.work / "never").exists()


@pytest.mark.skipif("asan" in str(build_dir()), reason="ASan keeps freed memory")
def test_memory_of_old_files_is_given_back():
    # given a hundred reloads with a long file, then init is no larger
    pad = {f"env.V{i}": "x" * 1000 for i in range(50)}
    with Box("ns-root", ini={**THREE, "service:p": {"command": "sleep 9", **pad}}) as box:
        sizes = []
        for i in range(60):
            write(box, {**THREE, "service:a": {"command": "sleep 101", "restart_delay": f"{i + 1}s"},
                        "service:p": {"command": "sleep 9", **pad}})
            reload(box)
            if i in (10, 59):
                sizes.append(box.memory()[0])
        assert sizes[1] < sizes[0] + 600 * 1024, sizes
        assert box.stop() == 0


def test_a_failed_service_gets_another_chance():
    with Box("ns-root", ini={"service:w": {"command": "/no/such", "restart": "never"}}) as box, \
            Services(box) as s:
        s.wait("w", "fatal")
        write(box, {"service:w": {"command": "sleep 100"}})
        assert reload(box) == ["[service:w] changed: started anew"]
        s.wait("w", "running")
        order(box, "stop", "w")
        write(box, {"service:w": {"command": "sleep 101"}})
        assert reload(box) == ["[service:w] changed"]
        time.sleep(0.2)
        assert show(box, "w")["state"] == "stopped", "stopped by order: it stays so"
        order(box, "start", "w")
        assert len(box.find("sleep 101")) == 1
        assert box.stop() == 0


def cpu_ticks(pid):
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # utime and stime, proc(5)


def test_long_files_of_variables_cost_init_nothing():
    # given 8 MB of lines for a thousand variables, one of them again and again, then a reload costs init
    # no more than these variables: who reads the files goes through them
    ini = {"init": {"stop_grace": "1s"}, "service:w": {"command": "sleep 100"}}
    with Box("ns-root", ini=ini_text(ini)) as box, Services(box) as s:
        s.wait("w", "running")
        lines = "".join(f"NAME{i}={i}\n" for i in range(1000))
        (box.work / "long.env").write_text(lines + "Z=1\n" * (((1 << 20) - len(lines)) // 4))
        ini["service:w"]["env_file"] = " ".join(["@WORK@/long.env"] * 8)
        box.write_ini(ini_text(ini))
        begun = cpu_ticks(box.init_pid)
        told = box.call("reload", deadline=60)
        assert "[service:w]" in str(told), told
        used = (cpu_ticks(box.init_pid) - begun) / os.sysconf("SC_CLK_TCK")
        assert used < 0.5, f"{used} s of init's CPU time"
        assert box.stop() == 0
