"""A root file system without any shell (evidence 4 of the engine): the static program alone runs a
main command and argv execs, and says so where a shell is needed. That one with nothing but busybox
does all is shown by every test on sessions: they run in the `busybox` box too."""

import pytest

from rig import wire
from rig.box import Box, programs
from rig.wait import wait_until

HELPER = str(programs() / "misbehave")


@pytest.mark.parametrize("main, code", [
    ([HELPER, "exit", "7"], 7),
    ([HELPER, "die", "KILL"], 137),
    (["/no/such/program"], 127),
    (["/etc/passwd"], 126),
    (["no-such-word"], 127),
])
def test_no_shell_main_command(main, code):
    with Box("empty", ready=False, main=main) as box:
        assert box.wait() == code
        if code in (126, 127):
            assert main[0] in box.log()


def test_no_shell_a_stop():
    with Box("empty", main=[HELPER, "catch", "TERM", "say", "up", "until", "TERM", "exit", "5"]) as box:
        wait_until(lambda: "up\n" in box.log(), 5, "it runs")
        assert box.stop() == 5
        assert box.survivors() == []
    with Box("empty") as box:
        assert box.stop() == 0


def test_no_shell_argv_execs():
    with Box("empty") as box:
        r = box.call_exec([HELPER, "say", "hi", "err", "e", "exit", "3"])
        assert r.triple == (3, b"hi\n", b"e\n")
        r = box.call_exec([HELPER, "argv", "a b", "", "$HOME", "*", "'\"\n"])
        assert r.triple == (0, b"[a b]\n[]\n[$HOME]\n[*]\n['\"\n]\n", b"")
        assert box.call_exec([HELPER, "eat"], stdin="12345").out.strip() == b"stdin=5"
        assert box.call_exec([HELPER, "report"], cwd="/etc", env={"A": "b"}).out.count(b"cwd=/etc") == 1
        assert box.call_exec([HELPER, "forever"], timeout=0.2).status == 124
        r = box.call_exec(["/no/such/program"])
        assert (r.status, r["step"]) == (127, "exec") and "/no/such/program" in r["message"]
        r = box.exec([HELPER, "exit", "9"])
        assert r.status == 9
        id, _ = box.start([HELPER, "tree", "2", "2", "forever"])
        wait_until(lambda: len(box.processes()) == 7, 5, lambda: f"the tree: {box.processes()}")
        assert box.ctl("kill", "--grace", "200ms", id).status == 0
        assert box.processes() == []
        box.call_exec([HELPER, "daemon", "[", "exit", "0", "]"])
        wait_until(lambda: not box.zombies(), 5, "orphans are reaped")


def test_no_shell_says_so():
    with Box("empty") as box:
        with pytest.raises(wire.WireError) as e:
            box.session("s")
        assert "/bin/sh" in e.value.message and "No such file" in e.value.message
        r = box.call_exec("echo hi")
        assert r.status == 127 and "/bin/sh" in r["message"], r.fields
        assert box.call("session.list").rows == []
        assert box.call_exec([HELPER, "exit", "4"]).status == 4
