"""Services and the stop of the container, and signals while it starts."""

import signal
import time

import pytest

from rig import wire
from rig.box import Box
from rig.services import Services
from rig.wait import repeats, wait_until

SLEEP = {"command": "sleep 100"}


def trapping(words="", sleep="0.05"):
    """A program that ends sleep seconds after TERM, and notes it in the file `stops`."""
    return f"sh -c 'trap \"sleep {sleep}; echo {words} >>stops; exit 0\" TERM; touch up.{words}; " \
           "while :; do sleep 0.02; done'"


def test_reverse_order(kind):
    # given a chain and a free one, then starts and stops keep the order, and main ends first
    ini = """[init]
runtime_dir = @RUN@
[service:db]
command = %s
cwd = @WORK@
[service:web]
command = %s
cwd = @WORK@
requires = db
[service:log]
command = sleep 100
before = db
""" % (trapping("db"), trapping("web"))
    with Box(kind, ini=ini, main=["sh", "-c", "trap 'echo main >>stops; exit 4' TERM; touch main; "
                                  "while :; do sleep 0.02; done"]) as box, Services(box) as s:
        wait_until(lambda: all((box.work / f).exists() for f in ("up.db", "up.web", "main")), 10)
        begun = time.monotonic()
        assert box.stop() == 4
        assert time.monotonic() - begun < 3
        assert (box.work / "stops").read_text().split() == ["main", "web", "db"]
        s.read_all()
        up = [e["service"] for e in s.trace if e["what"] == "running" and "service" in e]
        assert up == ["log", "db", "web"]
        down = [e["service"] for e in s.trace if e["what"] == "stopped"]
        assert down == ["web", "db", "log"]
        assert box.survivors() == []
