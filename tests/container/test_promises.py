"""Sentences of sandbox-init.8.md that no test of a part shows by the way."""

import os
import signal
import subprocess

import pytest

from rig.box import Box, shell_path
from rig.wait import wait_until


def test_one_init_uses_a_runtime_folder_at_a_time():
    # given an init that runs, when another one is to use its folder, then that says so and ends with 1
    with Box("plain") as box:
        second = subprocess.run([box.init_path], env={"SANDBOX_INIT_RUNTIME_DIR": str(box.run), "PATH": "/bin"},
                                capture_output=True, timeout=20, check=False)
        assert second.returncode == 1 and second.stdout == b""
        line, = [l for l in second.stderr.decode().splitlines() if "event=" not in l]
        assert f"runtime folder {box.run}: another sandbox-init uses it" in line
        assert box.exec("echo unharmed").out == b"unharmed\n"


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_a_shell_that_is_lost_between_two_commands_is_told_in_the_next_answer(one, shell):
    box, name = one, f"lost-{shell}"
    box.session(name, shell=shell_path(shell))
    box.exec("V=1; cd /usr", name)
    pid = box.call("session.show", name=name)["pid"]
    os.kill(box.host_pid(pid), signal.SIGKILL)
    wait_until(lambda: box.call("session.show", name=name).get("pid") not in (None, 0, pid), 10, "another shell")
    # then the next answer tells it, once, and the working directory is the one where it was seen last
    r = box.exec("echo $V; pwd", name, json=True)
    assert (r["shell_restarted"], r["state_lost"], r.out) == (True, True, b"\n/usr\n"), r
    r = box.exec("true", name, json=True)
    assert "shell_restarted" not in r.fields and "state_lost" not in r.fields, r
    box.call("session.delete", name=name)


def test_fewer_ended_commands_stay_when_descriptors_run_short():
    # given few descriptors, and so many ended commands with an id that their outputs could use them up;
    # then the oldest go before, and sessions have what they need
    with Box(ini={"sessions": {"command_keep": "10000"}}, before=["prlimit", "--nofile=160:160", "--"]) as box:
        box.session("s")
        for i in range(200):
            assert box.call("exec", session="s", id=f"c{i}", text="seq 1 5000").status == 0
        kept = {r["id"] for r in box.ps() if r["state"] == "exited"}
        assert "c199" in kept and "c0" not in kept and len(kept) < 150, len(kept)
        assert box.session("t") == "t" and box.exec("echo well", "t").out == b"well\n"


def test_fewer_ended_processes_stay_when_descriptors_run_short():
    with Box(ini={"sessions": {"process_keep": "10000"}}, before=["prlimit", "--nofile=160:160", "--"]) as box:
        for i in range(200):
            box.start("seq 1 5000", id=f"p{i}")
            assert box.wait_process(f"p{i}").status == 0
        kept = {r["id"] for r in box.ps() if r["state"] == "exited"}
        assert "p199" in kept and "p0" not in kept and 8 <= len(kept) < 150, len(kept)
        assert box.session("t") == "t" and box.exec("echo well", "t").out == b"well\n"


def test_a_busybox_ash_that_spins_is_killed_and_its_session_goes_on(one):
    # given what BUGS tells of, where this busybox has it, then it is ended as any other
    one.session("ash-bug", shell=shell_path("ash"))
    r = one.exec("(: ${x?}); echo after", "ash-bug", env={"A": "1"}, timeout=0.5, json=True)
    assert (r["verdict"], r.status) in (("timeout", 124), ("exited", 0)), r
    assert one.exec("echo well", "ash-bug").out == b"well\n"
    one.call("session.delete", name="ash-bug")
