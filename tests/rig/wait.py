"""Waiting is always for a condition with a deadline, never for an amount of time."""

import os
import time


# A deadline is there so that a test ends, not to measure: on a machine with busy neighbours five
# seconds pass with nothing wrong. What is to be quick, is measured.
PATIENCE = 15.0


class Late(AssertionError):
    """A condition did not come true before its deadline."""


def wait_until(condition, deadline=10.0, what="the condition", every=0.004):
    """Call condition() until it returns something true; return that. Late after deadline seconds, or
    PATIENCE if that is more."""
    deadline = max(deadline, PATIENCE)
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Late(f"not within {deadline} s: {what() if callable(what) else what}")
        time.sleep(every)


def is_long():
    return os.environ.get("SANDBOX_TEST_LONG", "") not in ("", "0")


def repeats(n):
    """The repeat count of cases.md: n in `make test-long`, a tenth of it otherwise."""
    count = n if is_long() else max(1, n // 10)
    print(f"repeats: {count} of {n}")
    return count
