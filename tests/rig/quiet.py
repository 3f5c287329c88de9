"""Whether processes sleep: for tests of "nobody wakes up while there is nothing to do"."""

import time

from rig.box import status_fields
from rig.wait import wait_until


def _asleep(pids):
    """How often each of them has gone to sleep so far; None if one of them is not asleep now."""
    fields = [status_fields(pid) for pid in pids]
    if not all(f.get("State", "gone").startswith("S") for f in fields):
        return None
    return [int(f["voluntary_ctxt_switches"]) for f in fields]


def slept_through(*pids, seconds):
    """Sleep so long; whether none of these processes woke meanwhile. One that was woken and got no
    processor yet, since others keep the machine busy, is not asleep: it counts as awake."""
    before = _asleep(pids)
    time.sleep(seconds)  # the span that is measured
    return before is not None and _asleep(pids) == before


def wait_quiet(*pids, seconds=1.0, deadline=15.0):
    """Wait for a span of so many seconds in which none of these processes wakes up. What they were
    just asked may keep them for a moment; a timer that goes on for ever makes this Late."""
    wait_until(lambda: slept_through(*pids, seconds=seconds), deadline,
               f"a span of {seconds} s in which nobody of {pids} wakes up")
