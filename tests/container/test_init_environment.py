"""What a child finds (tests 25 to 27 of init-tests), and how init is scheduled."""

import ctypes
import os
import platform
import struct
import subprocess

import pytest

from rig.box import Box, programs, shell_path
from rig.wait import wait_until


def fields(text):
    return dict(l.split("=", 1) for l in text.splitlines() if "=" in l)


def test_init_25_folders(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "report", "forever"]) as box:
        wait_until(lambda: "fds=" in box.log(), 5, "the report")
        assert fields(box.log())["cwd"] == str(box.work)
        assert os.readlink(f"/proc/{box.init_pid}/cwd") == "/"


@pytest.mark.parametrize("stdin, main, code", [
    ("exit 3", ["sh"], 3), ("hello\n", ["sh", "-c", "cat; exit 4"], 4), ("", ["cat"], 0),
])
def test_init_26_stdin_is_handed_over(kind, stdin, main, code):
    with Box(kind, main=main, stdin=subprocess.PIPE, ready=False) as box:
        box.proc.stdin.write(stdin.encode())
        box.proc.stdin.close()
        assert box.wait() == code
        if "hello" in stdin:
            assert "hello" in box.log()


def test_init_26_stdout_is_untouched(kind):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "write", "300000", "x", "err", "to-stderr"], stdout=subprocess.PIPE,
             ready=False) as box:
        out = box.proc.stdout.read()
        box.proc.stdout.close()
        assert box.wait() == 0
        assert out == b"x" * 300_000, "init writes nothing of its own on stdout"
        assert "to-stderr\n" in box.log()


def test_init_26_stdout_is_closed(kind):
    # given a reader that is gone, when the main command writes, then its own SIGPIPE ends it
    m = str(programs() / "misbehave")
    read_end, write_end = os.pipe()
    os.close(read_end)
    with Box(kind, main=[m, "write", "300000", "x"], stdout=write_end, ready=False) as box:
        os.close(write_end)
        assert box.wait() == 141


@pytest.mark.parametrize("kind", ["ns-root", "ns-user", "plain"])
def test_init_27_no_descriptor_leaks(kind):
    # given a caller with 20 open descriptors, when children start on every path, then they see
    # 0, 1 and 2 only, and init keeps none of the caller's
    m = str(programs() / "misbehave")
    with Box(kind, before=[m, "open", "20", "exec"], main=[m, "report", "forever"]) as box:
        wait_until(lambda: "fds=" in box.log(), 5, "the report")
        assert fields(box.log())["fds"] == "0,1,2"
        targets = [os.readlink(f"/proc/{box.init_pid}/fd/{f}")
                   for f in os.listdir(f"/proc/{box.init_pid}/fd")]
        assert targets.count("/dev/null") <= 3, targets


def test_init_27_descriptors_of_every_path(s):
    m, box = s.helper, s.box
    seen = lambda r: fields(r.out.decode())["fds"]
    assert seen(s.exec([m, "report"])) == "0,1,2"
    assert seen(box.exec([m, "report"])) == "0,1,2"
    for text in ([m, "report"], f"{m} report"):
        id, _ = s.start(text)
        box.wait_process(id)
        assert fields(box.logs(id).out.decode())["fds"] == "0,1,2"
    # texts: nothing of init's either
    assert seen(s.exec(f"{m} report")) == "0,1,2"
    assert seen(box.exec(f"{m} report")) == "0,1,2"


def test_init_27_variables_of_ours_are_not_passed_on(kind):
    with Box(kind, env={"SANDBOX_INIT_STOP_GRACE": "3s", "SANDBOX_OTHER": "x", "KEEP": "y"},
             main=["sh", "-c", "env; exec sleep 100"]) as box:
        wait_until(lambda: "KEEP=y" in box.log(), 5, "the environment")
        assert "SANDBOX_INIT_STOP_GRACE" not in box.log()
        box.session("s")
        for r in (box.exec("env", "s"), box.exec("env")):
            assert b"SANDBOX_INIT_STOP_GRACE" not in r.out and b"SANDBOX_OTHER" not in r.out
            assert b"KEEP=y" in r.out.split(b"\n")


def test_init_27_the_limit_of_open_files_is_handed_back(kind):
    # given a caller with a low soft limit, which init raises for itself, then children on every
    # path have the caller's
    m = str(programs() / "misbehave")
    with Box(kind, before=["sh", "-c", 'ulimit -Sn 300; exec "$@"', "sh"] if kind[:2] == "ns" else [],
             main=[m, "forever"]) as box:
        box.session("s")
        limits = [box.exec("ulimit -n", "s").out, box.exec("ulimit -n").out]
        id, _ = box.start("ulimit -n", "s")
        box.wait_process(id)
        limits.append(box.logs(id).out)
        assert len(set(limits)) == 1, limits
        if kind[:2] == "ns":
            assert limits[0] == b"300\n"


def test_a_client_below_init_finds_its_socket(kind):
    # given a socket at a place where nobody would look, then sandboxctl in the main command, in
    # sessions, in what they start and in texts without one speaks to the init above it
    with Box(kind, main=["sh", "-c", "$0 session create main >said 2>&1; sleep 300",
                         str(programs() / "sandboxctl")]) as box:
        wait_until(lambda: (box.work / "said").exists() and (box.work / "said").read_text(), 20,
                   "main has created a session")
        assert (box.work / "said").read_text() == "main\n"
        list_ = f"{box.bin}/sandboxctl session list | sed -n '2s/ .*//p'"
        for shell in ("bash", "dash"):
            n = box.session(shell=shell_path(shell))
            assert box.exec(list_, n).triple == (0, b"main\n", b"")
            id, _ = box.start(list_, n)
            assert box.wait_process(id)["status"] == 0 and box.logs(id).out == b"main\n"
        assert box.exec(list_).triple == (0, b"main\n", b"")
        assert box.exec("echo $SANDBOX_SOCKET", n).out == f"{box.socket}\n".encode()
        # and it is a variable like others
        box.ctl_ok("session", "env", "-SANDBOX_SOCKET")
        assert box.exec("echo ${SANDBOX_SOCKET-none}", box.session()).out == b"none\n"


def test_a_socket_at_its_usual_place_needs_no_variable():
    with Box("runc-root", ini={"init": {"runtime_dir": None}}, ready=False,
             main=["sh", "-c", "until [ -e go ]; do sleep 0.02; done; env >said; "
                               "$0 session create x >>said; touch done; sleep 300",
                   str(programs() / "sandboxctl")]) as box:
        (box.work / "go").touch()
        wait_until((box.work / "done").exists, 20, "main has run")
        said = (box.work / "said").read_text()
        assert "SANDBOX_SOCKET" not in said and said.endswith("\nx\n"), said


def scheduling(pid):
    """Policy, flags, nice value and slice in ns, by sched_getattr(2)."""
    a = ctypes.create_string_buffer(48)
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, pid, a, 48, 0) == 0
    size, policy, flags, nice, priority, runtime, *_ = struct.unpack("IIQiIQQQ", a.raw)
    return policy, flags, nice, runtime


@pytest.mark.parametrize("before, is_asked", [([], True), (["nice", "-n", "5"], True), (["nice", "-n", "-3"], False)],
                         ids=["usual", "nicer", "less nice"])
def test_init_alone_has_a_short_slice(before, is_asked):
    # given how this very test is scheduled
    usual = scheduling(0)
    with Box("ns-root", before=before) as b:
        # when init and a shell of it run, then init has the shortest slice where the kernel knows one
        # (Linux 6.12), its share of the CPU is what it was given, and the shell is as usual
        b.session("s")
        nice = int(before[2]) if before else 0
        shell = scheduling(b.host_pid(b.call("session.list").rows[0]["pid"]))
        assert shell == (usual[0], 0, usual[2] + nice, usual[3])
        policy, flags, own_nice, slice = scheduling(b.init_pid)
        assert (policy, flags, own_nice) == (usual[0], int(is_asked), usual[2] + nice)
        assert slice == (min(usual[3], 100_000) if is_asked else usual[3])
