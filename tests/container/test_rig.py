"""The rig itself, with a toy in the place of sandbox-init: every kind of box starts, shows what is
in it, tells the exit code and leaves nothing behind."""

import os
import signal
import subprocess

import pytest

from rig.box import Box, mark_of, programs
from rig.wait import Late, wait_until

ALL = ("ns-root", "ns-user", "runc-root", "runc-user", "busybox", "empty", "plain", "plain-user")


@pytest.mark.parametrize("kind", ALL)
def test_rig_box(kind):
    toy = ["child", "[", "forever", "]", "zombies", "2", "catch", "TERM", "say", "up", "until",
           "TERM", "exit", "42"]
    with Box(kind, program=[programs() / "misbehave", "report", *toy]) as box:
        wait_until(lambda: "up\n" in box.log(), 15, "the toy is up")
        wait_until(lambda: len(box.zombies()) == 2, 5, "two zombies")
        assert len(box.processes()) == 1
        assert box.fds() == 3
        uid = 0 if kind in ("ns-root", "runc-root", "plain") else 1000
        assert f"\nuid={uid}\n" in box.log()
        assert f"\ncwd={box.work}\n" in box.log()
        if not kind.startswith("plain"):
            assert box.log().startswith("pid=1\n")
            inside = box.inside(box.helper, "report")
            assert b"\nuid=%d\n" % uid in inside.out
        folder, mark = box.dir, box.mark
        assert box.stop() == 42
        if not kind.startswith("plain"):
            assert box.survivors() == []
    assert not folder.exists()
    assert not [n for n in os.listdir("/proc") if n.isdigit() and mark_of(n) == mark]


@pytest.mark.parametrize("kind", ALL)
def test_rig_ends_what_does_not_end(kind):
    with Box(kind, program=[programs() / "misbehave", "ignore", "all", "tree", "2", "2",
                            "forever"]) as box:
        wait_until(lambda: len(box.processes()) == 6, 5, "the tree is up")
        with pytest.raises(Late):
            box.stop(deadline=0.1)
        mark = box.mark
    assert not [n for n in os.listdir("/proc") if n.isdigit() and mark_of(n) == mark]


@pytest.mark.parametrize("kind", [k for k in ALL if not k.startswith("plain")])
def test_rig_terminal(kind):
    with Box(kind, program=[programs() / "misbehave", "report", "forever"], terminal=True) as box:
        seen = b""
        while b"fds=" not in seen:
            seen += os.read(box.tty, 4096)
        assert b"sid=1\r\n" in seen and b"tpgid=1\r\n" in seen


def test_rig_runc_with_a_real_init():
    with Box("runc-user", program=["/usr/bin/tini", "--", "sh", "-c", "exit 7"]) as box:
        assert box.wait() == 7
    with Box("runc-root", program=["/usr/bin/tini", "--", "sleep", "99"]) as box:
        wait_until(lambda: box.find("sleep 99"), 5, "the main command")
        assert box.stop(signal.SIGTERM) == 143
        left = subprocess.run(["runc", "--root", box.dir.parent / "runc", "state", box.mark],
                              capture_output=True)
        assert left.returncode != 0
