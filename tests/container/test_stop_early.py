"""A stop at every 5 ms of the first 500 ms of life ends within the grace, with the right code
(evidence 3 of the engine)."""

import os
import signal
import time

import pytest

from rig import wire
from rig.box import Box, status_fields
from rig.wait import wait_until

GRACE = 2.0
STEP_MS, END_MS = 5, 500
INI = {
    "init": {"stop_grace": "2s"},
    "sessions": {"kill_grace": "500ms"},
    "session:one": {"shell": "/bin/bash", "cwd": "@WORK@"},
    "session:two": {"shell": "/bin/sh"},
}

# what runs as main -> the code after a stop
MAINS = {
    "none": (None, {0}),
    "sleep": (["sleep", "100"], {143}),
    "handler": (["sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.01; done"], {5, 143}),
    "stubborn": (["sh", "-c", "trap '' TERM; sleep 0.8; exit 9"], {9, 143}),
    "short": (["sh", "-c", "sleep 0.25; exit 3"], {3, 143}),
}


def moments():
    """Every 5 ms; the places divide them among them, so that one run has each of them once a kind."""
    return [ms / 1000 for ms in range(0, END_MS, STEP_MS)]


def await_first_instruction(box):
    """From when on a signal to PID 1 can be kept: until main() blocks them the kernel drops what has
    no handler (signal(7)), so the life of init begins there."""
    def is_blocked():
        mask = status_fields(box.init_pid).get("SigBlk", "0")
        return int(mask, 16) >> (signal.SIGTERM - 1) & 1 or not box.is_alive

    wait_until(is_blocked, 5, "signals are blocked", every=0.0002)


def ask_to_stop(box, how):
    if how == "SIGTERM":
        box.signal(signal.SIGTERM)
        return
    try:
        wire.call(box.socket, "shutdown", check=False)
    except (FileNotFoundError, ConnectionRefusedError):
        box.signal(signal.SIGTERM)  # it does not listen yet
    except (ConnectionResetError, AssertionError):
        pass  # it has stopped by itself meanwhile


@pytest.mark.parametrize("how", ["SIGTERM", "shutdown"])
@pytest.mark.parametrize("main", MAINS)
@pytest.mark.parametrize("where", ["ns-root", "ns-user"])
def test_stop_at_every_moment_of_early_life(where, main, how):
    argv, codes = MAINS[main]
    mine = moments()
    if how == "shutdown":
        mine = mine[::4]  # the socket is there after a few ms: the same as later
    late = []
    for moment in mine:
        ini = {k: {a: b.replace("@WORK@", "/tmp") for a, b in v.items()} for k, v in INI.items()}
        with Box(where, ini=ini, main=argv, ready=False) as box:
            await_first_instruction(box)
            time.sleep(moment)
            asked = time.monotonic()
            if box.is_alive:
                ask_to_stop(box, how)
            code = box.wait(GRACE + 3)
            took = time.monotonic() - asked
            assert code in codes, f"at {moment * 1000:.0f} ms: {code}; {box.log()[-1500:]}"
            if took > GRACE + 0.5:
                late.append((moment, took))
            assert box.survivors() == [], f"at {moment * 1000:.0f} ms"
            assert not os.path.exists(box.socket), "the socket is removed"
            assert [n for n in os.listdir(box.run)] == [], "nothing is left in the runtime folder"
    assert not late, late
