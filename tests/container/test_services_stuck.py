"""File systems that never answer under what the ini names: nobody waits but the one who looks."""

import errno
import signal
import subprocess
import time

import pytest

from rig.box import Box, programs
from rig.services import Services, ini_text, order, show
from rig.stuck import StuckFolder
from rig.wait import wait_until


def is_quick(box):
    """init serves clients."""
    for _ in range(5):
        begun = time.monotonic()
        assert box.exec("echo hi", deadline=10).out == b"hi\n"
        assert time.monotonic() - begun < 8


def stuck_ones(box):
    return [p for p in box.processes() if p.state == "D"]


CHECKS = ("file:@WORK@/stuck/nothing", "unix:@WORK@/stuck/nothing")


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_on_a_file_system_that_hangs(check):
    # given checks that hang in the kernel, then init serves on, says what is wrong, and no more than
    # one process hangs for each service; once the file system is gone the check is made again
    ini = ini_text({
        "init": {"stop_grace": "1s"},
        "service:unready": {"command": "sleep 100", "ready": check, "autostart": "no"},
        "service:ill": {"command": "sleep 101", "health": check, "health_interval": "100ms",
                        "health_retries": "1000", "autostart": "no"},
        "service:well": {"command": "sleep 102"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        with StuckFolder(box) as stuck:
            order(box, "start", "unready", no_wait=1)
            order(box, "start", "ill", no_wait=1)
            wait_until(lambda: stuck.taken >= 2, 15, "both hang")
            is_quick(box)
            s.wait("ill", "unhealthy")
            wait_until(lambda: "has not answered" in show(box, "unready")["detail"], 20,
                       lambda: show(box, "unready").get("detail"))
            for name in ("unready", "ill"):
                assert f"{box.work}/stuck/nothing: " in show(box, name)["detail"], show(box, name)
            assert len(stuck_ones(box)) == 2 and stuck.taken == 2
            order(box, "restart", "well")
            is_quick(box)
        assert show(box, "well")["state"] == "running"
        words = f"{box.work}/stuck/nothing: Transport endpoint is not connected"
        wait_until(lambda: words in show(box, "unready")["detail"], 20, "it is looked at again")
        wait_until(lambda: not stuck_ones(box), 10, "nobody hangs")
        assert box.stop() == 0


def test_a_stop_while_a_check_hangs():
    ini = ini_text({"init": {"stop_grace": "1s"},
                    "service:w": {"command": "sleep 100", "ready": CHECKS[0], "autostart": "no"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s, StuckFolder(box) as stuck:
        order(box, "start", "w", no_wait=1)
        wait_until(lambda: stuck.taken, 15, "it hangs")
        order(box, "stop", "w")
        assert show(box, "w")["state"] == "stopped"
        order(box, "start", "w", no_wait=1)
        s.wait("w", "starting")
        box.ctl_ok("shutdown")
        wait_until(lambda: "event=stopped" in box.log(), 15, lambda: box.log()[-1000:])
        stuck.release()
        assert box.wait() == 0


def test_a_log_on_a_file_system_that_hangs():
    # given a log whose folder cannot even be looked at, then init and the logs beside it go on, and
    # its lines are there when it is back
    ini = ini_text({
        "init": {"stop_grace": "2s"},
        "service:lost": {"command": "sh -c 'seq 100000; exec sleep 100'", "log": "file:@WORK@/stuck/nothing/l",
                         "autostart": "no"},
        "service:kept": {"command": "sh -c 'echo kept; exec sleep 101'", "log": "file:@WORK@/kept",
                         "autostart": "no"}})
    with Box("ns-root", ini=ini) as box, StuckFolder(box) as stuck:
        order(box, "start", "lost")
        wait_until(lambda: stuck.taken, 15, "its writer hangs")
        is_quick(box)
        order(box, "start", "kept")
        wait_until(lambda: (box.work / "kept").exists() and (box.work / "kept").read_text() == "kept\n",
                   15, "another one is written")
        wait_until(lambda: int(show(box, "lost").get("log_dropped") or 0) > 0, 15, "lines are lost, and counted")
        order(box, "stop", "lost")
        is_quick(box)
        stuck.release()
        assert box.stop() == 0


FILES = {"include": "[include]\nfiles = {stuck.path}/{name}\n",
         "pattern": "[include]\nfiles = {stuck.path}/*.ini\n",
         "env_file": "[service:n]\ncommand = sleep 106\nenv_file = {stuck.path}/{name}\n"}


@pytest.mark.parametrize("kind", ["include", *(pytest.param(k, marks=pytest.mark.long)
                                               for k in ("pattern", "env_file"))])
def test_a_reload_from_a_file_system_that_hangs(kind):
    # given an ini that leads to a file that nobody can read, then a reload of it fails within its time
    # and names the file; so does the next one, which begins no second process, and all others are
    # served; an ini that is whole again is read as soon as the process is gone
    ini = {"init": {"stop_grace": "1s"}, "service:well": {"command": "sleep 102"}}
    with Box("ns-root", ini=ini_text(ini)) as box, Services(box) as s:
        s.wait("well", "running")
        before = show(box, "well")
        with StuckFolder(box) as stuck:
            name = "" if kind == "pattern" else "file" if kind == "env_file" else "nothing"
            box.write_ini(ini_text(ini) + FILES[kind].format(stuck=stuck, name=name))
            client = box.ctl_spawn("reload", stderr=subprocess.PIPE)
            wait_until(lambda: stuck.taken, 15, "it hangs")
            is_quick(box)
            order(box, "restart", "well")
            said = client.communicate(timeout=40)[1].decode()
            file = f"{stuck.path}/{name if kind != 'pattern' else '*.ini'}"
            words = f"reload: {file}: the file system has not answered"
            assert client.returncode != 0 and f"{words} within 10 s" in said, said
            again = box.ctl("reload")
            assert again.status != 0 and f"{words} (process " in again.err.decode(), again
            assert len(stuck_ones(box)) == 1
            is_quick(box)
        box.write_ini(ini_text({**ini, "service:new": {"command": "sleep 107"}}))
        assert box.call("reload")["changed"] == ["[service:new] added"]
        s.wait("new", "running")
        assert not stuck_ones(box) and show(box, "well")["restarts"] == before["restarts"]
        assert box.stop() == 0


def test_a_stop_while_a_reload_hangs():
    ini = ini_text({"init": {"stop_grace": "1s"}})
    with Box("ns-root", ini=ini) as box, StuckFolder(box) as stuck:
        box.write_ini(ini + FILES["include"].format(stuck=stuck, name="nothing"))
        client = box.ctl_spawn("reload", stderr=subprocess.PIPE)
        wait_until(lambda: stuck.taken, 15, "it hangs")
        box.signal(signal.SIGHUP)
        box.ctl_ok("shutdown")
        assert client.communicate(timeout=30)[1] and client.returncode != 0
        wait_until(lambda: "event=stopped" in box.log(), 15, lambda: box.log()[-1000:])
        stuck.release()
        assert box.wait() == 0


@pytest.mark.parametrize("key", ["cwd", "command", "pre_start"])
def test_a_start_on_a_file_system_that_hangs(key):
    # given a service whose folder, program or hook is looked up for ever; then init serves on; once the
    # file system is gone the start fails with the reason
    keys = {"cwd": {"cwd": "@WORK@/stuck/nothing", "command": "sleep 103"},
            "command": {"command": "@WORK@/stuck/nothing"},
            "pre_start": {"command": "sleep 103", "pre_start": "@WORK@/stuck/nothing"}}[key]
    ini = ini_text({"init": {"stop_grace": "1s"},
                    "service:w": {**keys, "autostart": "no", "restart": "never"},
                    "service:well": {"command": "sleep 104"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        with StuckFolder(box) as stuck:
            order(box, "start", "w", no_wait=1)
            wait_until(lambda: stuck.taken, 15, "it hangs")
            is_quick(box)
            order(box, "restart", "well")
            is_quick(box)
        wait_until(lambda: show(box, "w")["state"] in ("failed", "fatal"), 20, lambda: show(box, "w"))
        step, said = {"command": "exec"}.get(key, key), show(box, "w")["detail"]
        assert said.startswith("pre_start" if key == "pre_start" else f"{step} {box.work}/stuck/nothing: "), said
        assert box.stop() == 0


CALLS = {"shell": ("session", "create", "s", "--shell"), "folder": ("session", "create", "s", "--cwd"),
         "process": ("start", "--cwd"), "call": ("exec", "-s", "s", "--cwd")}
GONE = (b": Transport endpoint", b": Software caused connection abort")


@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_a_file_system_that_hangs(call):
    # given a session whose shell or folder is looked up for ever, or a process' or call's folder; then
    # init serves on, and the client is told when the file system is gone
    rest = {"process": ("--", "sleep", "100"), "call": ("true",)}.get(call, ())
    with Box("ns-root", ini=ini_text({"init": {"stop_grace": "1s"}})) as box:
        with StuckFolder(box) as stuck:
            if call == "call":
                box.ctl_ok("session", "create", "s")
            client = box.ctl_spawn(*CALLS[call], str(stuck.nothing), *rest)
            wait_until(lambda: stuck.taken, 15, "it hangs")
            is_quick(box)
        out, err = client.communicate(timeout=40)
        assert client.returncode != 0 and any(w in out + err for w in GONE), (out, err)
        wait_until(lambda: not stuck_ones(box), 10, "nobody hangs")
        assert box.stop() == 0


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
def test_a_folder_that_its_shell_could_not_enter_and_that_hangs_then(shell):
    # given a call's folder that is not there when the shell goes to it, on a file system that answers
    # nobody afterwards; then init, which looks for the reason, serves on, and the call is answered
    with Box("ns-root", ini=ini_text({"init": {"stop_grace": "1s"}})) as box:
        with StuckFolder(box) as stuck:
            box.ctl_ok("session", "create", "s", "--shell", shell)
            client = box.ctl_spawn("exec", "-s", "s", "--cwd", str(stuck.once), "true",
                                   stderr=subprocess.PIPE)
            wait_until(lambda: stuck.taken, 15, "the look hangs")
            is_quick(box)
            said = client.communicate(timeout=40)[1].decode()
            assert client.returncode != 0 and f"cwd {stuck.once}: the file system has not answered" in said
            assert box.exec("pwd", "s").status == 0
        wait_until(lambda: not stuck_ones(box), 10, "nobody hangs")
        assert box.stop() == 0


@pytest.mark.parametrize("end", ["reset", "delete"])
def test_the_end_of_a_session_whose_calls_folder_is_looked_at(end):
    # given such a look that hangs, then a reset or deletion of its session waits for nobody, and the
    # client hears why the text did not run
    with Box("ns-root", ini=ini_text({"init": {"stop_grace": "1s"}})) as box:
        with StuckFolder(box) as stuck:
            box.ctl_ok("session", "create", "s")
            client = box.ctl_spawn("exec", "-s", "s", "--cwd", str(stuck.once), "true",
                                   stderr=subprocess.PIPE)
            wait_until(lambda: stuck.taken, 15, "the look hangs")
            box.ctl_ok("session", end, "s")
            said = client.communicate(timeout=40)[1].decode()
            assert client.returncode != 0 and f"cwd {stuck.once}: " in said, said
        assert box.stop() == 0


@pytest.mark.parametrize("way", ["the shell ends", "it is deleted", "it is reset", "init stops"])
def test_a_shell_that_nobody_knows_on_a_file_system_that_hangs(way):
    # given a kernel in which init cannot ask about the way to a shell without going there; then another
    # process goes there, which hangs, and all is as if the shell itself did
    refuse = [str(programs() / "misbehave"), "refuse", "openat2", str(errno.ENOSYS), "exec"]
    with Box("ns-root", ini=ini_text({"init": {"stop_grace": "1s"}}), before=refuse) as box:
        with StuckFolder(box) as stuck:
            client = box.ctl_spawn("session", "create", "s", "--shell", str(stuck.nothing))
            wait_until(lambda: stuck.taken, 15, "it hangs")
            is_quick(box)
            assert box.call("session.show", name="s")["state"] == "starting"
            if way == "it is deleted":
                box.ctl_ok("session", "delete", "s")
            elif way == "it is reset":
                reset = box.ctl_spawn("session", "reset", "s")
                wait_until(lambda: "event=session_reset" in box.log(), 15, "it is reset")
                is_quick(box)
            elif way == "init stops":
                box.ctl_ok("shutdown")
                wait_until(lambda: "event=stopped" in box.log(), 15, lambda: box.log()[-1000:])
        out, err = client.communicate(timeout=40)
        if way in ("the shell ends", "it is reset"):
            assert any(w in out + err for w in GONE), (out, err)
        assert client.returncode != 0, (out, err)
        if way == "it is reset":
            assert reset.wait(40) != 0
        if way != "init stops":
            wait_until(lambda: not stuck_ones(box), 10, "nobody hangs")
            assert box.exec("echo $0", box.session(shell="/bin/bash")).out == b"bash\n"
            assert box.stop() == 0
        else:
            assert box.wait() == 0
