"""W. Stopping: order, grace, stuck processes. (Services wait for their issue.)"""

import signal
import subprocess
import time

import pytest

from rig.box import ROOT, Box, programs
from rig.wait import repeats, wait_until

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"


@pytest.mark.parametrize("what", ["main", "process", "command", "stray"])
def test_case_W1_what_ignores_term_is_killed_after_the_grace(kind, what):
    m = str(programs() / "misbehave")
    main = [m, "ignore", "TERM", "say", "up", "forever"] if what == "main" else None
    with Box(kind, ini={"init": {"stop_grace": "600ms"}}, main=main) as box:
        if what == "main":
            wait_until(lambda: "up\n" in box.log(), 5, "up")
        else:
            box.session("s")
        if what == "process":
            id, _ = box.start(STUBBORN, "s")
            wait_until(lambda: box.logs(id).out, 5, "up")
        elif what == "command":
            client = box.ctl_spawn("exec", "-s", "s", STUBBORN)
            assert client.stdout.readline() == b"up\n"
        elif what == "stray":
            ready = box.work / "ready"
            box.exec(f"{m} daemon [ ignore all touch {ready} forever ]", "s")
            wait_until(ready.exists, 5, "the stray")
        begun = time.monotonic()
        code = box.stop()
        took = time.monotonic() - begun
        assert code == (137 if what == "main" else 0)
        assert 0.5 <= took < 8, took
        assert box.survivors() == []
        if what == "command":
            client.communicate(timeout=15)
            assert client.returncode != 0


def test_case_W2_ends_as_soon_as_all_are_gone(kind):
    m = str(programs() / "misbehave")
    polite = [m, "catch", "TERM", "say", "up", "until", "TERM", "sleep", "0.05", "exit", "0"]
    with Box(kind, ini={"init": {"stop_grace": "10s"}}) as box:
        box.session("s")
        ids = [box.start(polite, "s")[0] for _ in range(3)]
        wait_until(lambda: all(box.logs(i).out for i in ids), 5, "all are up")
        begun = time.monotonic()
        assert box.stop() == 0
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize("sessions", [0, 1, 8])
def test_case_W2_idle_sessions_need_no_grace(kind, sessions):
    with Box(kind, ini={"init": {"stop_grace": "10s"}}) as box:
        for i in range(sessions):
            box.exec("true", box.session(shell=["/bin/bash", "/bin/dash"][i % 2]))
        begun = time.monotonic()
        assert box.stop() == 0
        assert time.monotonic() - begun < 8
        assert box.survivors() == []


def test_case_W2_over_the_socket(kind):
    with Box(kind, ini={"init": {"stop_grace": "10s"}}, main=["sleep", "100"]) as box:
        assert box.ctl("shutdown").status == 0
        assert box.wait(15) == 143


def test_case_W2_a_shorter_grace_over_the_socket(kind):
    m = str(programs() / "misbehave")
    with Box(kind, ini={"init": {"stop_grace": "30s"}},
             main=[m, "ignore", "TERM", "say", "up", "forever"]) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "up")
        assert box.ctl("shutdown", "--grace", "300ms").status == 0
        assert box.wait(15) == 137


def test_case_W4_other_children_have_time_to_finish(kind):
    with Box(kind, ini={"init": {"stop_grace": "5s"}},
             main=["sh", "-c", '(trap "sleep 0.5; touch ok" TERM; touch up; sleep 99 & wait) & '
                               "exec sleep 98"]) as box:
        wait_until((box.work / "up").exists, 5, "the trap is set")
        ok = box.work / "ok"
        assert box.stop() == 143
        assert ok.exists()
        assert box.survivors() == []


def test_case_W4_the_main_command_ends_by_itself(kind):
    # given a main command that ends while a child of it still tidies up, then the child gets TERM
    # and time, and init exits with the main command's code
    with Box(kind, ini={"init": {"stop_grace": "5s"}},
             main=["sh", "-c", '(trap "sleep 0.4; touch ok; exit" TERM; touch up; '
                               "while :; do sleep 0.05; done) & "
                               "while [ ! -e up ]; do sleep 0.02; done; exit 3"],
             ready=False) as box:
        assert box.wait() == 3
        assert (box.work / "ok").exists()


def test_case_W4_each_gets_term_exactly_once(kind):
    m = str(programs() / "misbehave")
    with Box(kind, ini={"init": {"stop_grace": "5s"}}, main=[
            m, "child", "[", "catch", "TERM", "append", "ready", "1", "until", "TERM", "sleep", "0.2",
            "append", "one", "x", "]", "daemon", "[", "catch", "TERM", "append", "ready", "2", "until",
            "TERM", "sleep", "0.2", "append", "two", "x", "]", "catch", "TERM", "say", "up", "until", "TERM", "wait", "exit", "4"]) as box:
        ready = box.work / "ready"
        wait_until(lambda: "up\n" in box.log() and len(box.processes()) == 3 and ready.exists()
                   and sorted(ready.read_text().split()) == ["1", "2"], 5, "all are up")
        assert box.stop() == 4
        assert (box.work / "one").read_text() == (box.work / "two").read_text() == "x\n"
        assert box.log().count("got TERM") == 3, box.log()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_case_W4_a_second_signal_does_not_start_a_second_stop(kind, second):
    m = str(programs() / "misbehave")
    with Box(kind, ini={"init": {"stop_grace": "10s"}}) as box:
        box.session("s")
        id, _ = box.start([m, "catch", "TERM", "say", "up", "until", "TERM", "sleep", "0.4",
                           "touch", "done"], "s", cwd=str(box.work))
        wait_until(lambda: box.logs(id).out, 5, "up")
        box.signal(signal.SIGTERM)
        box.signal(second)
        assert box.wait() == 0
        assert (box.work / "done").exists()


def test_stop_right_before_an_exec():
    # given a shell's child that gets the TERM between fork and exec, where the shell's handler
    # swallows it, then the program that it becomes is told again and does not use up the grace
    for _ in range(repeats(100)):
        with Box("ns-root", ini={"init": {"stop_grace": "20s"}}) as box:
            box.session("s")
            with box.connect() as w:
                w.request("exec", [("session", "s")], "echo in; sleep 300")
                w.finish(until=lambda a: b"in\n" in a.out)
                begun = time.monotonic()
                assert box.stop(deadline=40) == 0
                assert time.monotonic() - begun < 15


@pytest.fixture(scope="module")
def slow_bash():
    """A bash whose forks take as long as they do on a machine that has no CPU to spare."""
    folder = programs() / "slow"
    folder.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-o",
                    folder / "slow_fork.so", ROOT / "tests/helpers/slow_fork.c"], check=True)
    (folder / "bash").write_text(f"#!/bin/sh\nLD_PRELOAD={folder}/slow_fork.so "
                                 'exec /bin/bash "$@"\n')
    (folder / "bash").chmod(0o755)
    return str(folder / "bash")


def forking(box, slow_bash, when, text, w, id):
    """A session that runs text and is in the middle of its first fork now."""
    mark = box.work / "mark"
    mark.unlink(missing_ok=True)
    box.session("s", shell=slow_bash, env=[when, f"SLOW_MARK={mark}"], cwd=str(box.work))
    w.request("exec", [("session", "s"), ("id", id)], text)
    wait_until(mark.exists, 20, "the shell forks")
    return mark


BEFORE, AFTER = "SLOW_BEFORE=0.3", "SLOW_AFTER=0.3"


@pytest.mark.parametrize("when, age", [(BEFORE, 0), (AFTER, 0), ("SLOW_AFTER=1.2", 0.6)])
def test_stop_in_the_middle_of_a_fork(slow_bash, when, age):
    # given a shell that is told to end right before it forks, which it does all the same, or whose
    # child is told between fork and exec, where the signal is lost, however long ago the fork was,
    # then neither waits until the grace is over
    with Box("ns-root", ini={"init": {"stop_grace": "30s"}}) as box, box.connect(60) as w:
        mark = forking(box, slow_bash, when, "sleep 300", w, "x")
        wait_until(lambda: time.time() - mark.stat().st_mtime >= age, 20, "it is in there for long")
        begun = time.monotonic()
        assert box.stop(deadline=60) == 0
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("how", ["delete", "kill"])
def test_kill_in_the_middle_of_a_fork(slow_bash, how, when):
    with Box("ns-root", ini={"sessions": {"kill_grace": "30s"}}) as box:
        for i, text in enumerate(("sleep 300", "sleep 300 | sleep 300", "(sleep 300; touch not)",
                                  "x=$(sleep 300); touch not")):
            with box.connect(60) as w:
                forking(box, slow_bash, when, text, w, f"x{i}")
                begun = time.monotonic()
                if how == "kill":
                    box.call("kill", id=f"x{i}", deadline=60)
                    assert w.finish()["verdict"] == "killed_by_client"
                box.call("session.delete", name="s", deadline=60)
                assert time.monotonic() - begun < 20, text
            assert not box.find("sleep 300"), text
            assert not (box.work / "not").exists(), text


def test_end_leaves_the_children_of_a_trap_alone():
    # given a session whose own TERM trap starts programs to tidy up, then these get no signal
    with Box("ns-root") as box:
        box.session("s", cwd=str(box.work))
        box.exec("trap 'touch in; sleep 0.5 && touch tidy; exit' TERM", "s")
        with box.connect() as w:
            w.request("exec", [("session", "s")], "echo up; while :; do read -t 0.05 <> <(:); done")
            w.finish(until=lambda a: b"up\n" in a.out)
            box.call("session.delete", name="s")
        assert (box.work / "tidy").exists()


def test_a_killed_fork_leaves_no_state_behind(slow_bash):
    # given a text that is killed right after its shell forked, whose child then runs the shell's EXIT
    # trap, when the shell is killed in a later text, then it does not come back as it was back then
    with Box("ns-root") as box, box.connect(60) as w:
        forking(box, slow_bash, AFTER, "X=old; (exit 3); :", w, "x")
        box.call("kill", id="x", deadline=60)
        assert w.finish()["verdict"] == "killed_by_client"
        r = box.call_exec("kill -9 $$; :", "s")
        assert r.status == 137 and r.fields["state"] == "lost", r
        assert box.exec("echo ${X-unset}", "s").out == b"unset\n"
