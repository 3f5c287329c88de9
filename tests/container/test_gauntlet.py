"""The kill gauntlet: whatever a session's programs do to get away, after a kill an independent scan
of /proc finds none of them, and whoever did not belong to them lives."""

import itertools
import os
import re
import shutil
from pathlib import Path

import pytest

from rig.box import Box, read_stat
from rig.wait import is_long, wait_until

pytestmark = pytest.mark.storm

MARK, CONTROL = "GAUNTLET", "GAUNTLET_CONTROL"
PIDS = Path("/sys/fs/cgroup/pids")

# kind -> (text, how many there are at least when it is at its worst)
KINDS = {
    "setsid": ("setsid sleep 777 & setsid setsid sleep 777 & sleep 777", 3),
    "double fork": ("{h} daemon [ daemon [ exec sleep 777 ] exec sleep 777 ]; sleep 777", 3),
    "nohup": ("nohup sleep 777 >/dev/null 2>&1 & nohup setsid sleep 777 >/dev/null 2>&1 & "
              "sleep 777", 3),
    "disown": ("sleep 777 & disown; (sleep 777 & disown); ((sleep 777 &) &); sleep 777", 4),
    "daemon(3)": ("{h} detach child [ detach exec sleep 777 ] exec sleep 777; sleep 777", 3),
    "TERM ignored": ("{h} ignore all child [ ignore all child [ exec sleep 777 ] forever ] forever",
                     3),
    "stopped": ("sh -c 'kill -STOP $$' & {h} child [ raise STOP ] raise STOP & sleep 777", 4),
    "forking thread": ("{h} thread [ thread [ spawn 100 3 sleep 99 ] spawn 100 3 sleep 99 ] forever",
                       40),
    "PID namespace": ("unshare -p --fork --mount-proc sh -c '(setsid sleep 777 &); sleep 777; :'", 4),
    "user namespace": ("unshare -Ur -p --fork --kill-child sh -c '(setsid sleep 777 &); sleep 777; "
                       ":' || sleep 777", 1),
    "vfork storm": ("{h} storm 6", 6),
    "relay": ("{h} relay & {h} child [ setsid relay ] forever", 1),
    "relay that ignores TERM": ("{h} ignore all relay & sleep 777", 1),
    "2000 processes 50 deep": ("{h} chains 40 50 forever", 2000),
}


def marked(mark, value):
    """Host pids with exactly this in their environment, the dead excepted."""
    want, found = f"{mark}={value}".encode(), []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if want in environ:
            p = read_stat(name)
            if p is not None and p.state not in "ZX":
                found.append(p)
    return found


class Confinement:
    """A pids cgroup for a box, so that what gets out of hand cannot use up the PIDs of the machine.
    Tests that fork without end are skipped where there is none."""

    numbers = itertools.count(1)

    def __init__(self, limit):
        self.folder = PIDS / f"sandbox-test-{os.getpid()}-{next(self.numbers)}"
        try:
            self.folder.mkdir()
            (self.folder / "pids.max").write_text(str(limit))
        except OSError as e:
            shutil.rmtree(self.folder, ignore_errors=True)
            pytest.skip(f"no pids limit can be set: {e}")

    def take(self, box):
        """All of a box that has just begun."""
        procs = self.folder / "cgroup.procs"

        def all_in():
            missing = {box.init_pid, *(p.pid for p in box.processes())} - {
                int(p) for p in procs.read_text().split()}
            for pid in missing:
                try:
                    procs.write_text(str(pid))
                except ProcessLookupError:
                    pass
            return not missing

        wait_until(all_in, 10, "all of the box is in it")
        line = rf"pids:.*/{self.folder.name}$"
        assert re.search(line, Path(f"/proc/{box.init_pid}/cgroup").read_text(), re.M)

    def current(self):
        return int((self.folder / "pids.current").read_text())

    def close(self):
        wait_until(lambda: not (self.folder / "cgroup.procs").read_text().split(), 30, "it is empty")
        self.folder.rmdir()


class Arena:
    """A box with a control group: the main command's tree, another session's command, stray and
    process, and a process without a session."""

    def __init__(self, limit=4000, **kw):
        self.cage = Confinement(limit)
        self.control = f"{os.getpid()}.{id(self)}"
        kw.setdefault("before", ["nice", "-n", "10"])  # its storms are not to slow other tests down
        self.box = Box("ns-root", ini={"sessions": {"kill_grace": "200ms", "max_processes": "512"}},
                       main=["env", f"{CONTROL}={self.control}", "sh", "-c",
                             "(setsid sleep 776 &); sleep 776 & exec sleep 776"], **kw)
        self.cage.take(self.box)
        self.number = 0
        self.other = self.box.session()
        self.box.exec(f"export {CONTROL}={self.control}; (setsid sleep 776 &); sleep 776 &",
                      self.other)
        self.box.start(f"export {CONTROL}={self.control}; sleep 776 & sleep 776", self.other)
        self.box.start(f"export {CONTROL}={self.control}; (setsid sleep 776 &); exec sleep 776")
        wait_until(lambda: len(self.controls()) >= 9, 20,
                   lambda: f"the control group: {self.controls()}")
        wait_until(lambda: all(p.comm == "sleep" for p in self.controls()), 20, "all are sleep")
        self.first = {p.pid for p in self.controls()}

    def close(self):
        self.box.close()
        self.cage.close()

    def controls(self):
        return [p for p in marked(CONTROL, self.control) if p.pid != self.box.init_pid]

    def mark(self):
        self.number += 1
        return f"{self.control}.{self.number}"

    def check(self, mark):
        left = marked(MARK, mark)
        assert not left, f"survivors: {[(p.pid, p.comm, p.state, p.ppid) for p in left]}"
        assert {p.pid for p in self.controls()} >= self.first, "the control group lost somebody"
        assert self.box.is_alive


@pytest.fixture(scope="module")
def arena():
    a = Arena()
    yield a
    a.close()


def text_of(box, kind, mark):
    return f"export {MARK}={mark}; " + KINDS[kind][0].format(h=box.helper)


def at_its_worst(mark, kind):
    wait_until(lambda: len(marked(MARK, mark)) >= KINDS[kind][1], 30,
               lambda: f"{KINDS[kind][1]} of {kind}: {len(marked(MARK, mark))}", every=0.05)


def end_of(box, how, session, kind, mark):
    """Run the kind, end it in this way; returns what the answer says about survivors."""
    text = text_of(box, kind, mark)
    if how == "process":
        id, _ = box.start(text, session)
        at_its_worst(mark, kind)
        return box.call("kill", id=id, deadline=60)
    client = box.ctl_spawn("exec", "-s", session, text)
    at_its_worst(mark, kind)
    if how == "command":
        a = box.call("kill", running=session, deadline=60)
    else:
        a = box.call("session.delete", name=session, deadline=60)
    assert client.wait(30) == 137
    return a


# A process and a session end by the same teardown; each of these kinds needs another part of it.
WAYS = [(how, kind) for how in ("command", "process", "session") for kind in KINDS
        if how == "command" or is_long() or kind in (
            "double fork", "stopped", "forking thread", "PID namespace", "2000 processes 50 deep")]


@pytest.mark.parametrize("how, kind", WAYS)
def test_nothing_escapes(arena, how, kind):
    box, mark = arena.box, arena.mark()
    session = box.session()
    a = end_of(box, how, session, kind, mark)
    arena.check(mark)
    assert not a.get("survivors"), a.fields
    if how != "session":
        assert box.exec("echo next", session).triple == (0, b"next\n", b"")
        box.call("session.delete", name=session)


def test_strays_of_all_kinds_die_with_their_session(arena):
    # left with & by commands that have ended; dash, whose shell reaps only when it is poked
    box, mark = arena.box, arena.mark()
    for shell in ("/bin/bash", "/bin/dash"):
        session = box.session(shell=shell)
        want = 0
        for kind, (text, count) in KINDS.items():
            if count <= 100 and (kind != "disown" or "bash" in shell):
                box.exec(f"export {MARK}={mark}; ( {text.format(h=box.helper)} ) >/dev/null 2>&1 &",
                         session)
                want += count
        wait_until(lambda: len(marked(MARK, mark)) >= want, 30,
                   lambda: f"{want}; {len(marked(MARK, mark))}", every=0.05)
        a = box.call("session.delete", name=session, deadline=60)
        arena.check(mark)
        assert not a.get("survivors"), a.fields


def test_kill_all(arena):
    box, mark = arena.box, arena.mark()
    session = box.session()
    for kind, (_, count) in KINDS.items():
        if count <= 100:
            box.start(text_of(box, kind, mark), session)
    want = sum(c for _, c in KINDS.values() if c <= 100)
    wait_until(lambda: len(marked(MARK, mark)) >= want, 30,
               lambda: f"{want}; {len(marked(MARK, mark))}", every=0.05)
    a = box.call("kill-all", session=session, deadline=60)
    arena.check(mark)
    assert not a.get("survivors"), a.fields
    box.call("session.delete", name=session)


def test_container_stop():
    arena = Arena()
    try:
        box, mark = arena.box, arena.mark()
        session = box.session()
        for kind, (_, count) in KINDS.items():
            if count <= 100:
                box.start(text_of(box, kind, mark), session)
        box.ctl_spawn("exec", "-s", session, text_of(box, "2000 processes 50 deep", mark))
        wait_until(lambda: len(marked(MARK, mark)) >= 2000, 30, "all kinds", every=0.05)
        box.signal(15)
        box.wait(60)
        assert not marked(MARK, mark) and not arena.controls() and not box.survivors()
    finally:
        arena.close()


@pytest.mark.parametrize("how", ["command", "process", "session"])
def test_a_fork_bomb_under_a_pids_limit(how):
    arena = Arena(limit=300)
    box, mark = arena.box, arena.mark()
    try:
        session = box.session()
        text = f"export {MARK}={mark}; {box.helper} bomb {arena.cage.folder}/pids.max"
        if how == "process":
            id, _ = box.start(text, session)
        else:
            client = box.ctl_spawn("exec", "-s", session, text)
        wait_until(lambda: arena.cage.current() >= 300, 30, lambda: box.log()[-500:])
        # at the limit: init forks nothing to end it
        if how == "process":
            a = box.call("kill", id=id, deadline=60)
        elif how == "command":
            a = box.call("kill", running=session, deadline=60)
        else:
            a = box.call("session.delete", name=session, deadline=60)
        arena.check(mark)
        assert not a.get("survivors"), a.fields
        if how != "process":
            assert client.wait(20) == 137
        if how != "session":
            assert box.exec("echo next", session).triple == (0, b"next\n", b"")
    finally:
        arena.close()
