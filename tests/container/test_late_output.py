"""What outlives its command, exec or process goes on writing: it is neither killed nor blocked for that, and
costs init nothing once it has ended."""

import pytest

from rig.box import Box
from rig.verbs import data, fresh_name, make, nap
from rig.wait import wait_until

# Writes more than a pipe holds to both streams when it may, and tells how that went.
LATE = ("(until [ -e {0}.go ]; do sleep 0.02; done; head -c 1000000 /dev/zero && "
        "head -c 1000000 /dev/zero >&2; echo $? >{0}.done) &")

WAYS = {
    "exec": ("exec", "{late}"),
    "exec argv": ("exec", "--", "sh", "-c", "{late}"),
    "exec, detached": ("exec", "--id", "{id}", "--detach", "{late}"),
    "exec, kept": ("exec", "--id", "{id}", "{late}"),
    "exec, daemon": ("exec", "setsid sh -c '{late}'"),
    "exec, limited": ("exec", "--output-limit", "1K", "{late}"),
    "exec, session": ("exec", "-s", "{s}", "{late}"),
    "start": ("start", "--id", "{id}", "{late}"),
    "start argv": ("start", "--id", "{id}", "--", "sh", "-c", "{late}"),
    "start, session": ("start", "-s", "{s}", "--id", "{id}", "{late}"),
}


def leave(box, way, session):
    """Where its writer tells how it went, once NAME.go is there."""
    name = fresh_name()
    place = box.work / name
    box.ctl_ok(*[a.format(late=LATE.format(place), id=name, s=session) for a in WAYS[way]])
    box.ctl("wait", name)
    return place


def go(box, place):
    place.with_suffix(".go").touch()
    done = place.with_suffix(".done")
    wait_until(lambda: done.exists() and done.read_text(), 30, "it has written all")
    return done.read_text()


@pytest.mark.parametrize("way", WAYS)
def test_who_writes_late_is_neither_killed_nor_blocked(one, name, way):
    # given what outlives an exec or a process, when it writes more than pipes hold, then all goes well
    place = leave(one, way, name)
    assert go(one, place) == "0\n"


def test_nothing_stays_of_those_that_have_ended(one, name):
    # given writers of each kind, when they have ended or were killed, then init has no descriptor of them
    for way in WAYS:  # (what is kept of a run or process has one or two)
        assert go(one, leave(one, way, name)) == "0\n"
    ways = [w for w in WAYS if "{id}" not in WAYS[w]]
    before = one.fds()
    for way in ways:
        assert go(one, leave(one, way, name)) == "0\n"
    left = [data(one, "exec", f"{nap(one)} & echo $!") for _ in range(3)]
    assert one.fds() > before
    for a in left:
        one.ctl_ok("kill", "--stray", a["stdout"].strip())
    wait_until(lambda: one.fds() <= before, 10, lambda: f"{before} descriptors, now {one.fds()}")


def test_writers_of_a_process_that_is_forgotten(pool):
    # given an ended process whose record goes, when what it left writes, then it is well
    with Box(ini={"sessions": {"process_keep": 0}}) as box:
        make(box)
        for way in ("start", "start argv"):
            place = leave(box, way, "")
            wait_until(lambda: place.name not in [r["id"] for r in data(box, "ps")], 10, "its record is gone")
            assert go(box, place) == "0\n"


def test_a_writer_that_never_stops_delays_nobody_and_takes_no_memory(one, name):
    # given strays that write without end, then others are served, and init does not grow
    one.exec("true", name)
    before = one.memory()[0]
    pids = [data(one, "exec", *args, "yes & yes >&2 & echo $! >&2; echo $!")["stdout"] for args in ((), ("-s", name))]
    for _ in range(20):
        assert one.exec("echo served").out == b"served\n" and one.exec("echo served", name).out == b"served\n"
    assert one.memory()[0] < before + 16_000_000  # of gigabytes; ASan keeps what is freed for a while
    for r in [r for r in data(one, "ps") if r["kind"] == "stray" and r["name"] == "yes"]:
        one.ctl_ok("kill", "--stray", r["pid"])
    assert len(pids) == 2 and not one.find("yes")


def test_writers_leave_others_their_descriptors():
    # given few descriptors, and so many strays with a pipe that these could use them up; then sessions and execs
    # have what they need
    with Box(before=["prlimit", "--nofile=160:160", "--"]) as box:
        for _ in range(90):
            assert box.exec("sleep 640.5 & sleep 641.5 & echo x").out == b"x\n"
        assert box.session("t") == "t" and box.exec("echo well", "t").out == b"well\n"
        wait_until(lambda: len([p for p in box.find("sleep 640.5") if p.comm == "sleep"]) == 90, 10, "all live")
        assert box.fds() < 150
