"""output_keep_age: how long output is kept."""

import os
import time

import pytest

from rig.box import Box
from rig.follow import Trace
from rig.quiet import wait_quiet
from rig.wait import wait_until

AGE = {"sessions": {"output_keep_age": "1500ms"}}  # time to look at what is young


def outputs(box):
    """Memory files that hold output."""
    names = (os.readlink(f"/proc/{box.init_pid}/fd/{fd}") for fd in os.listdir(f"/proc/{box.init_pid}/fd"))
    return len([n for n in names if "sandbox-output" in n])


@pytest.mark.parametrize("text, size", [
    ("echo a; read -r x; echo b", 2),
    ("echo a >&2; printf xyz; read -r x; echo b", 5),
    ("head -c 2000000 /dev/zero; read -r x; echo b", 2_000_000),
    ("for i in 1 2 3 4 5 6 7 8 9; do printf %s $i; sleep .02; done; read -r x; echo b", 9),
])
def test_old_output_is_dropped_and_told_as_lost(text, size):
    with Box("ns-user", ini=AGE) as box:
        id, _ = box.start(text, stdin=True)
        wait_until(lambda: Trace(box, id).read().lost == [(0, size)], 5, "it is too old")
        wait_until(lambda: outputs(box) == 0, 5, "its memory is given back")
        wait_quiet(box.init_pid)  # nothing is left that could grow old
        box.ctl_ok("send", id, "--eof", input=b"\n")
        a = box.wait_process(id)
        assert a["stdout_bytes"] + a["stderr_bytes"] == size + 2
        t = Trace(box, id).read()
        assert t.lost == [(0, size)] and t.bytes == b"b\n" and t.end == size + 2
        # an ended process as well
        wait_until(lambda: Trace(box, id).read().lost == [(0, size + 2)], 5, "that, too")
        wait_until(lambda: outputs(box) == 0, 5, "all memory is given back")


def test_what_is_young_enough_stays():
    # given a process that writes all the time, when one looks, then the newest lines are there
    # without a gap, none of them is older than the age and its slack, and the loss is at a line
    whole = b"".join(b"line %d\n" % i for i in range(100_000))
    with Box("ns-user", ini={"sessions": {"output_keep_age": "500ms"}}) as box:
        id, _ = box.start("i=0; while :; do echo line $i; i=$((i + 1)); sleep 0.01; done")
        wait_until(lambda: Trace(box, id).read().lost, 5, "something is too old")

        def has_the_newest():
            t = Trace(box, id).read()
            t.check_against(whole)
            (gone,) = t.lost
            assert gone[0] == 0 and whole[gone[1] - 1 : gone[1]] == b"\n"
            return 5 <= t.bytes.count(b"\n") <= 60

        for _ in range(5):  # a machine that lets the process or init wait is asked again
            wait_until(has_the_newest, 10, "lines of the age and its slack", every=0.5)
            time.sleep(0.1)
        assert box.ctl("logs", "--tail", "2", id).out.count(b"\n") == 2
        box.call("kill", id=id, grace_ms="0")


def test_memory_of_old_output_is_given_back_while_it_goes_on():
    # given a log that could keep all of it, when its process writes on and on, then what it holds
    # is no more than what is young, and reads byte for byte
    unit = b"".join(b"%07d\n" % i for i in range(10000))
    ini = {"sessions": {"output_keep": "64M", "output_keep_age": "300ms"}}
    with Box("ns-user", ini=ini) as box:
        id, _ = box.start("for i in $(seq 200); do seq -f %07.0f 0 9999; sleep 0.02; done")

        def held():
            folder = f"/proc/{box.init_pid}/fd"
            fds = [f"{folder}/{fd}" for fd in os.listdir(folder)]
            return sum(os.stat(f).st_blocks * 512 for f in fds if "sandbox-output" in os.readlink(f))

        wait_until(lambda: Trace(box, id).read().at > 60 * len(unit), 20, "it has written a lot")
        for _ in range(3):
            t = wait_until(lambda: (t := Trace(box, id).read()).pieces and t, 10, "something is young")
            assert held() < 50 * len(unit) and t.lost
            t.check_against(unit * (t.end // len(unit) + 1))
        box.call("kill", id=id, grace_ms="0")


def test_a_live_follower_misses_nothing():
    with Box("ns-user", ini={"sessions": {"output_keep_age": "100ms"}}) as box:
        id, _ = box.start("read -r x; i=0; while [ $((i += 1)) -le 60 ]; do echo $i; sleep .01; done", stdin=True)
        t = Trace(box, id, follow=1)
        box.ctl_ok("send", id, input=b"\n")
        t.read()
        assert t.bytes == b"".join(b"%d\n" % i for i in range(1, 61)) and not t.lost


def test_a_slow_client_of_a_command_loses_nothing():
    # given a client of exec that reads nothing for longer than the age, then it gets all
    size = 3_000_000
    with Box("ns-user", ini={"sessions": {"output_keep_age": "100ms"}}) as box:
        n = box.session()
        with box.connect() as w:
            w.request("exec", [("session", n)], f"head -c {size} /dev/zero | tr '\\000' y; echo .")
            time.sleep(0.6)
            a = w.finish()
        assert a.out == b"y" * size + b".\n" and not [x for x in a.notes if "lost_from" in x]


def test_without_an_age_nothing_grows_old_and_nobody_wakes():
    with Box("ns-user", ini={"sessions": {}, "session:young": {"output_keep_age": "200ms"}}) as box:
        old, _ = box.start("echo a; exec sleep 99", box.session())
        young, _ = box.start("echo a; exec sleep 99", "young")
        wait_until(lambda: Trace(box, young).read().lost, 5, "the session's own age counts")
        wait_quiet(box.init_pid)
        assert Trace(box, old).read().bytes == b"a\n"


def test_an_age_is_at_most_a_year_and_at_least_nothing():
    for value, word in (("366d", "not a duration"), ("-1s", "not a duration"), ("5", "not a")):
        with pytest.raises(AssertionError, match="output_keep_age"):
            Box("ns-user", ini={"sessions": {"output_keep_age": value}})
    with Box("ns-user", ini={"sessions": {"output_keep_age": "0"}}) as box:
        assert box.ctl("reload").status == 0
