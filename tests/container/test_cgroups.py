"""Own cgroups of sessions and processes, where init may make them."""

import os
import shutil
import time
from pathlib import Path

import pytest

from rig.box import USER, Box, programs, read_stat
from rig.verbs import nap
from rig.wait import wait_until

UNIFIED = next((p for p in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
                if (p / "cgroup.controllers").exists() and os.access(p, os.W_OK)), None)

pytestmark = pytest.mark.skipif(UNIFIED is None, reason="no writable cgroup v2")
OFF = "own cgroups"


def cgroup_of(pid):
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return UNIFIED / next(l for l in lines if l.startswith("0::"))[3:].lstrip("/")


def off(box):
    return [o for o in box.status().get("off", []) if OFF in o]


def is_there(folder, inode):
    """That very folder: of its name is perhaps another one by now, of a box of another test."""
    try:
        return folder.stat().st_ino == inode
    except FileNotFoundError:
        return False


KINDS = ["ns-root", "runc-root", "runc-user"]


@pytest.fixture(params=KINDS)
def box(request):
    """A box whose init may make cgroups below its own. In runc: that one is mounted, and belongs to
    the box's user."""
    if request.param == "ns-root":
        with Box("ns-root", ini={"sessions": {"kill_grace": "300ms"}}) as b:
            yield b
        return
    made = []

    class Delegated(Box):
        def _bundle(self, argv, terminal):
            own = UNIFIED / self.mark
            own.mkdir()
            made.append(own)
            for f in (own, *(own / n for n in ("cgroup.procs", "cgroup.threads",
                                               "cgroup.subtree_control"))):
                os.chown(f, self.uid, self.uid)
            self.mounts.append({"destination": "/sys/fs/cgroup", "type": "bind", "source": str(own),
                                "options": ["bind", "rw"]})
            (self.dir / "rootfs" / "sys/fs/cgroup").mkdir(parents=True)
            return super()._bundle(argv, terminal)

    try:
        with Delegated(request.param, ini={"sessions": {"kill_grace": "300ms"}}) as b:
            yield b
    finally:
        for own in made:
            for d in sorted((d for d in own.rglob("*") if d.is_dir()), reverse=True):
                d.rmdir()
            if own.exists():
                own.rmdir()


def test_each_has_its_own_and_it_goes_with_it(box):
    assert not off(box)
    base = cgroup_of(box.init_pid)
    a, b = box.session(), box.session()
    shells = [box.host_pid(box.call("session.show", name=n)["pid"]) for n in (a, b)]
    n = nap(box)
    p, _ = box.start(f"(setsid {n} &); {n}", a)
    sleeps = lambda: [q.pid for q in box.find(n) if q.comm == "sleep"]  # another may be on its way out
    wait_until(lambda: len(sleeps()) == 2, 5, "it runs")
    groups = [cgroup_of(pid) for pid in (*shells, sleeps()[0])]
    assert len({*groups, base}) == 4 and {g.parent.parent for g in groups} == {base}
    assert {cgroup_of(pid) for pid in sleeps()} == {groups[2]}
    box.call("kill", id=p)
    wait_until(lambda: not groups[2].exists(), 5, "it is removed")
    # a new shell is in the same one
    box.exec("kill -9 $$", a)
    box.exec("true", a)
    assert cgroup_of(box.host_pid(box.call("session.show", name=a)["pid"])) == groups[0]
    box.call("session.delete", name=a)
    wait_until(lambda: not groups[0].exists(), 5, "it is removed")
    assert groups[1].exists()
    folder = groups[1].parent
    inode = folder.stat().st_ino
    box.signal(15)
    box.wait()
    assert not is_there(folder, inode)


@pytest.mark.parametrize("text", [
    "env -i setsid {n} & sleep 0.2; kill -9 $$",
    "(env -i setsid sh -c '(setsid {n} &)' &); sleep 0.2; kill -9 $$",
    "env -i {h} daemon [ daemon [ exec {n} ] forever ]; kill -9 $$",
])
def test_an_orphan_without_any_trace_belongs_to_its_session(box, text):
    # no environment, no session id, no parent: only the cgroup tells
    n, other = nap(box), nap(box)
    s, t = box.session(), box.session()
    box.exec(f"env -i setsid {other} & sleep 0.1; kill -9 $$", t)
    box.exec(text.format(n=n, h=box.helper), s)
    for nap_ in (n, other):
        wait_until(lambda: [q for q in box.find(nap_) if q.comm == "sleep"], 5, "it lives")
    assert int(box.call("session.show", name=s)["strays"]) >= 1
    row = next(r for r in box.ps(s) if r["kind"] == "stray" and n in r["text"])
    assert row["session"] == s
    box.call("session.delete", name=s)
    assert not box.find(n) and box.find(other)
    inner = next(q.inner for q in box.find(other) if q.comm == "sleep")
    box.call("kill", stray=inner)
    assert not box.find(other)


def test_the_first_child_is_stopped_by_the_main_command():
    # given a main command that stops all it may, also the child that tries out the cgroups: init
    # answers, whatever becomes of the session, and leaves no cgroup
    for _ in range(5):
        with Box("ns-root", main=[programs() / "misbehave", "stopall"],
                 ini={"init": {"stop_grace": "300ms"}}) as box:
            box.ctl_spawn("session", "create", "s")
            wait_until(lambda: int(box.status()["sessions"]) == 1, 20, "init answers")
            own = cgroup_of(box.init_pid)
            assert not off(box)
            box.stop(deadline=20)
            wait_until(lambda: not [*own.glob("sandbox-init.*/try")], 10, "nothing is left")


def test_an_orphan_without_any_trace_belongs_to_its_process(box):
    n = nap(box)
    p, _ = box.start(f"env -i setsid {n} & sleep 0.2; kill -9 $$")
    box.wait_process(p)
    wait_until(lambda: [q for q in box.find(n) if q.comm == "sleep"], 5, "it lives")
    assert int(next(r for r in box.ps() if r["id"] == p)["strays"]) == 1
    box.call("kill", id=p)
    assert not box.find(n)


RELAY = "trap '' TERM; while :; do {h} relay; done & {h} child [ setsid relay ] forever"
CHAINS = "{h} chains 10 10 & {h} ignore all spawn 30 1 forever"
STOPPED = "kill -STOP $$"


@pytest.mark.parametrize("box, text", [
    ("ns-root", RELAY), *[(kind, t) for kind in KINDS for t in (CHAINS, STOPPED)],
], indirect=["box"])
def test_freeze_and_kill_of_a_cgroup(box, text):
    s, n = box.session(), nap(box)
    limit = Path("/sys/fs/cgroup/pids") / f"sandbox-cg-{os.getpid()}"
    limit.mkdir()
    try:
        (limit / "pids.max").write_text("2000")
        (limit / "cgroup.procs").write_text(str(box.init_pid))
        p, _ = box.start(f"env -i setsid {n} & {text.format(h=box.helper)}", s)
        wait_until(lambda: [q for q in box.find(n) if q.comm == "sleep"], 5, "it lives")
        a = box.call("kill", id=p, deadline=30)
        assert not a.get("survivors") and not box.find(n) and not box.find(box.helper)
        assert box.exec("echo next", s).out == b"next\n"
    finally:
        box.close()
        wait_until(lambda: not (limit / "cgroup.procs").read_text(), 10, "it is empty")
        limit.rmdir()


def test_whoever_may_not_be_signalled_dies_with_the_cgroup():
    # init is root without CAP_KILL: cgroup.kill asks for no such right
    with Box("ns-root", ini={"sessions": {"kill_grace": "200ms"}},
             before=["setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill", "--"]) as box:
        p, _ = box.start(f"exec {box.helper} reuid 1000 exec sleep 711.5")
        wait_until(lambda: box.find("sleep 711.5"), 5, "it runs")
        a = box.call("kill", id=p, deadline=20)
        assert a["state"] == "exited" and not a.get("survivors") and not box.find("sleep 711.5")


@pytest.mark.parametrize("box", ["ns-root"], indirect=True)
def test_a_cgroup_that_is_not_empty_is_removed_later(box):
    base = cgroup_of(box.init_pid)
    s, n = box.session(), nap(box)
    shell = box.host_pid(box.call("session.show", name=s)["pid"])
    group = cgroup_of(shell)
    # somebody else's process sits in it when the session goes
    guest = os.fork()
    if guest == 0:
        time.sleep(60)
        os._exit(0)
    group.joinpath("cgroup.procs").write_text(str(guest))
    try:
        assert cgroup_of(guest) == group
        box.call("session.delete", name=s)  # it is in another PID namespace: init does not see it
        assert group.exists()
        os.kill(guest, 9)
        os.waitpid(guest, 0)
        wait_until(lambda: (box.call("session.delete", name=box.session()), not group.exists())[1],
                   10, "it is removed")
    finally:
        try:
            os.kill(guest, 9)
        except ProcessLookupError:
            pass
    assert group.parent.parent == base


@pytest.mark.parametrize("kind", ["ns-user", "runc-root", "runc-user"])
def test_without_it_is_said_once(kind):
    with Box(kind) as box:
        assert len(off(box)) == 1
        assert box.log().count(OFF) == 1
        s, n = box.session(), nap(box)
        box.exec(f"setsid {n} & sleep 0.1; kill -9 $$", s)
        wait_until(lambda: [q for q in box.find(n) if q.comm == "sleep"], 5, "it lives")
        box.call("session.delete", name=s)
        assert not box.find(n)


def test_what_a_killed_init_left_is_removed_by_the_next():
    with Box("ns-root") as box:
        box.session()
        folder = cgroup_of(box.host_pid(box.call("session.list").rows[0]["pid"])).parent
        left = folder.stat().st_ino
    with Box("ns-root") as other:
        s = other.session()
        mine = cgroup_of(other.host_pid(other.call("session.show", name=s)["pid"]))
        assert mine.exists() and mine.parent.stat().st_ino != left
        assert not is_there(folder, left)


def test_a_service_has_its_own_as_well(box):
    # given a service that leaves a daemon without any trace behind, then it leads a session, both are in
    # a cgroup of its own, the daemon ends before the next start, and the cgroup goes when the service does
    n, m = nap(box), nap(box)
    ini = {"sessions": {"kill_grace": "300ms"}}
    box.write_ini({**ini, "service:w": {"command": f"sh -c '{box.helper} daemon [ setsid exec env -i {n} ]; exec {m}'"}})
    box.call("reload")
    of = lambda text: [q.pid for q in box.find(text) if q.comm == "sleep"]
    wait_until(lambda: of(n) and of(m), 5, lambda: box.log()[-900:])
    group, old = cgroup_of(of(m)[0]), of(n)
    assert read_stat(of(m)[0]).sid == of(m)[0]
    assert cgroup_of(old[0]) == group and group != cgroup_of(box.init_pid)
    box.call("service.restart", name="w")
    wait_until(lambda: of(n) and of(m), 5)
    assert not {*old} & {*of(n)} and len(of(n)) == 1
    box.write_ini(ini)
    box.call("reload")
    wait_until(lambda: not of(n) and not of(m) and not group.exists(), 10, lambda: (of(n), of(m), group))


def test_a_cgroup_that_was_killed_is_used_again(box):
    # given a service that has to be killed with its whole cgroup, when it is started again, then it runs
    # there: the kernel would kill at its birth what is started there without having lived elsewhere before
    n = nap(box)
    box.write_ini({"sessions": {"kill_grace": "300ms"}, "service:deaf": {
        "command": f"{box.helper} ignore all exec {n}", "stop_grace": "100ms"}})
    box.call("reload")
    one = lambda: wait_until(lambda: [q.pid for q in box.find(n) if q.comm == "sleep"], 5, lambda: box.log()[-900:])
    old = one()
    group = cgroup_of(old[0])
    for _ in range(3):
        box.call("service.restart", name="deaf")
        assert one() != old and cgroup_of(one()[0]) == group
        old = one()
