"""T. PID 1: reaping. (More in container/test_init_reaping.py.)"""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from rig.box import Box, programs, status_fields
from rig.places import make_session
from rig.wait import repeats, wait_until


def test_case_T1_many_children_end_together(kind):
    # given 50 children that end with the main command, when the signals merge, then the main
    # command's end is never missed
    for _ in range(repeats(500 if kind.startswith("ns") else 100)):
        with Box(kind, main=["sh", "-c", "for i in $(seq 50); do sh -c 'exit 0' & done; exit 5"],
                 ready=False) as box:
            assert box.wait() == 5


def test_case_T1_orphans_with_other_codes_change_nothing(kind):
    m = str(programs() / "misbehave")
    for _ in range(repeats(60)):
        with Box(kind, main=[m, "orphans", "20", "3", "exit", "5"], ready=False) as box:
            assert box.wait() == 5


def test_case_T1_two_mains_worth_of_children(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "batch", "300", "zombies", "100", "exit", "9"], ready=False) as box:
        assert box.wait() == 9


def test_case_T2_managed_codes_while_orphans_die(box):
    # given 1000 orphans that die meanwhile, when 100 processes end, then each has its own code
    name = box.session()
    storm = box.ctl_spawn("exec", f"{box.helper} orphans 1000 200")
    with ThreadPoolExecutor(8) as ex:
        def one(i):
            id, _ = box.start(f"exit {i}", name)
            return box.wait_process(id)["status"]
        assert list(ex.map(one, range(100))) == list(range(100))
    storm.communicate(timeout=30)
    wait_until(lambda: not box.zombies(), 10, lambda: f"no zombies: {box.zombies()}")
    box.call("session.delete", name=name)


def test_case_T2_foreground_codes_while_orphans_die(box):
    name = box.session()
    storm = box.ctl_spawn("exec", f"{box.helper} orphans 500 100")
    for i in range(60):
        assert box.exec(f"sh -c 'exit {i}'", name).status == i
    storm.communicate(timeout=30)
    wait_until(lambda: not box.zombies(), 10, lambda: f"no zombies: {box.zombies()}")
    box.call("session.delete", name=name)


@pytest.mark.parametrize("plain", ["plain", "plain-user"])
def test_case_T4_not_pid_1(plain):
    # given init as a plain child, when orphans are made, then they come to init (or to a subreaper
    # below it) and leave no zombie; it says once that it is not PID 1
    with Box(plain) as box:
        assert "subreaper" in box.log() or "PID 1" in box.log(), box.log()
        assert box.status()["is_pid1"] in (False, "false")
        box.session("s")
        nap = "777.25"
        assert box.exec(f"(setsid sleep {nap} &)", "s").status == 0
        p = wait_until(lambda: box.find(f"sleep {nap}"), 5, "the orphan")[0]
        wait_until(lambda: box.init_pid in (_parent(p.pid), _parent(_parent(p.pid))), 5,
                   lambda: f"adopted: {_parent(p.pid)}")
        r = box.exec("(setsid sleep 0.1 &)")
        assert r.status == 0
        wait_until(lambda: not box.zombies(), 5, lambda: f"no zombies: {box.zombies()}")
        assert box.stop() == 0
        assert box.survivors() == []


@pytest.mark.parametrize("plain", ["plain", "plain-user"])
def test_case_T4_not_pid_1_with_a_main_command(plain):
    m = str(programs() / "misbehave")
    with Box(plain, main=[m, "daemon", "[", "forever", "]", "tree", "2", "2", "exit", "3"],
             ready=False) as box:
        assert box.wait() == 3
        assert box.survivors() == [], "the daemon died with its main command"


def _parent(pid):
    return int(status_fields(pid).get("PPid", 0))


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_case_T5_zombies_of_a_living_parent(kind, shell):
    # given a parent that does not reap, when its child is a zombie, then init does not spin, kills
    # nobody and counts it; when the parent ends, the zombie is gone (a box of its own: what tests
    # before have left in a shared one takes CPU time too)
    with Box(kind) as box:
        s = make_session(box, shell)
        r = s.exec(f"{s.helper} catch USR1 zombies 3 until USR1 >/dev/null 2>&1 &", deadline=30)
        assert r.status == 0
        wait_until(lambda: len(box.zombies()) == 3, 20, "three zombies")
        # (the status is an answer within a bounded time: on a busy machine it may not have seen all)
        wait_until(lambda: box.status()["zombies"] == 3, 20, "they are counted")
        cpu = box.cpu_seconds()
        s.exec("sleep 0.5")
        assert box.cpu_seconds() - cpu < 0.2, "no busy loop"
        box.signal(signal.SIGUSR1, box.find("zombies 3")[0].pid)
        wait_until(lambda: not box.zombies(), 20, lambda: f"gone: {box.zombies()}")


@pytest.mark.parametrize("count", [1, 200])
def test_case_T5_killing_the_parent_ends_its_zombies(s, count):
    id, _ = s.start([s.helper, "zombies", str(count), "say", "up", "forever"])
    wait_until(lambda: s.box.logs(id).out, 20, "up")
    assert s.box.ctl("kill", id).status == 0
    wait_until(lambda: not s.box.zombies(), 20, lambda: f"gone: {s.box.zombies()}")
