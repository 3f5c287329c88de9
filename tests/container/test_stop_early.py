"""A stop at every 5 ms of the first 500 ms of life ends within the grace, with the right code
(evidence 3 of the engine)."""

import os
import signal
import time

import pytest

from rig import wire
from rig.box import Box, status_fields
from rig.wait import is_long, wait_until

pytestmark = pytest.mark.storm

GRACE = 2.0
STEP_MS, END_MS = 5, 500
INI = {
    "init": {"stop_grace": "2s"},
    "sessions": {"kill_grace": "500ms"},
    "session:one": {"shell": "/bin/bash", "cwd": "/tmp"},
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


def moments(share):
    """Every 5 ms in `make test-long`. Otherwise each main command takes every fifth of them, so that
    together they have all."""
    every = [ms / 1000 for ms in range(0, END_MS, STEP_MS)]
    return every if is_long() else every[share :: len(MAINS)]


def await_first_instruction(box):
    """From when on a signal to PID 1 can be kept: until main() blocks them the kernel drops what has
    no handler (signal(7)), so the life of init begins there."""
    def has_begun():
        try:  # unshare(1) and fork(3) block signals for a moment as well
            is_init = os.readlink(f"/proc/{box.init_pid}/exe").endswith("/sandbox-init")
        except OSError:
            is_init = False
        mask = int(status_fields(box.init_pid).get("SigBlk", "0"), 16)
        return is_init and mask >> (signal.SIGTERM - 1) & 1 or not box.is_alive

    wait_until(has_begun, 5, "signals are blocked", every=0.0002)


def ask_to_stop(box, how):
    try:
        if how == "shutdown":
            wire.call(box.socket, "shutdown", check=False)
            return
    except (FileNotFoundError, ConnectionRefusedError):
        pass  # it does not listen yet, or no more
    except (ConnectionResetError, AssertionError):
        return  # it has stopped by itself meanwhile
    try:
        box.signal(signal.SIGTERM)
    except ProcessLookupError:
        pass


@pytest.mark.parametrize("how", ["SIGTERM", "shutdown"])
@pytest.mark.parametrize("main", MAINS)
@pytest.mark.parametrize("where", ["ns-root", "ns-user"])
def test_stop_at_every_moment_of_early_life(where, main, how):
    argv, codes = MAINS[main]
    mine = moments(list(MAINS).index(main))
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
            code = box.wait(GRACE + 10)
            took = time.monotonic() - asked
            assert code in codes, f"at {moment * 1000:.0f} ms: {code}; {box.log()[-1500:]}"
            if took > GRACE + (0.5 if is_long() else 8):
                late.append((moment, took))
            assert box.survivors() == [], f"at {moment * 1000:.0f} ms"
            assert not os.path.exists(box.socket), "the socket is removed"
            assert [n for n in os.listdir(box.run)] == [], "nothing is left in the runtime folder"
    assert not late, late
