"""I. The container's exit code. (I2, a failing set-up step, waits for services.)"""

import signal

import pytest

from rig.box import Box, programs
from rig.wait import wait_until


@pytest.mark.parametrize("code", [23, 0, 1, 255])
def test_case_I1_the_main_command_s_code(kind, code):
    with Box(kind, main=["sh", "-c", f"exit {code}"], ready=False) as box:
        assert box.wait() == code


@pytest.mark.parametrize("main, code", [
    (["no-such-program-x"], 127), (["/"], 126), (["/etc/passwd"], 126), (["false"], 1),
    (["sh", "-c", "kill -9 $$"], 137), (["sh", "-c", "sleep 9 & exit 4"], 4),
    (["sh", "-c", "exit 256"], 0),
])
def test_case_I1_more_ends_of_the_main_command(kind, main, code):
    with Box(kind, main=main, ready=False) as box:
        assert box.wait() == code
        if code in (126, 127):
            assert main[0] in box.log()
        assert box.survivors() == []


def test_case_I1_without_a_main_command_a_requested_stop_is_0(kind):
    with Box(kind) as box:
        assert box.stop() == 0


def test_case_I4_the_main_command_dies_by_an_outside_signal(kind):
    for sig in (signal.SIGQUIT, signal.SIGKILL, signal.SIGUSR1):
        with Box(kind, main=["sleep", "100"]) as box:
            p = wait_until(lambda: [p for p in box.find("sleep 100") if p.comm == "sleep"], 5,
                           "the main command")[0]
            box.signal(sig, p.pid)
            assert box.wait() == 128 + sig


def test_case_I4_a_forwarded_signal(kind):
    with Box(kind, main=["sleep", "100"]) as box:
        assert box.stop(signal.SIGTERM) == 143
    with Box(kind, main=[programs() / "misbehave", "catch", "TERM", "say", "up", "until", "TERM", "exit", "6"]) as box:
        wait_until(lambda: "up" in box.log().splitlines(), 5, "the main command")
        assert box.stop(signal.SIGTERM) == 6
