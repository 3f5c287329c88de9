"""Endurance (evidence 2 of the engine): 100 000 execs over 8 sessions, clients killed with -9 at
random moments meanwhile; at the end all is as at the start."""

import os
import random
import signal
import subprocess
import threading
import time

import pytest

from rig import wire
from rig.box import Box, shell_path
from rig.places import make_session
from rig.wait import repeats, wait_until

pytestmark = pytest.mark.storm

SESSIONS = 8
SHELLS = ("bash", "dash", "ash")
RSS_SLACK = 1 << 20  # pages that the allocator keeps; a leak of 100 bytes a call would be ten times that

# text -> (status, stdout, stderr); {n}: a number that no other call has
TEXTS = [
    ("echo {n}", 0, "{n}\n", ""),
    ("echo {n}; echo e{n} >&2; (exit 7)", 7, "{n}\n", "e{n}\n"),
    ("x={n}; printf %s $x", 0, "{n}", ""),
    ("false", 1, "", ""),
    ("f() {{ echo f{n}; return 3; }}; f", 3, "f{n}\n", ""),
    ("cat <<E\n{n}\nE", 0, "{n}\n", ""),
    ("for i in 1 2 3; do echo ${{i}}{n}; done", 0, "1{n}\n2{n}\n3{n}\n", ""),
    ("echo {n} | (read v; echo got $v)", 0, "got {n}\n", ""),
    ("(exit 130)", 130, "", ""),
]
RARE = [  # one in fifty: it costs more
    ("(sleep 0.05 &) ; echo {n}", 0, "{n}\n", ""),
    ("head -c 200000 /dev/zero | tr '\\0' x | wc -c", 0, "200000\n", ""),
    ("exit 5", 5, "", ""),
]


class Census:
    """What must be the same at the end."""

    def __init__(self, box):
        self.box = box
        self.fds = box.fds()
        self.files = sorted(str(p.relative_to(box.run)) for p in box.run.rglob("*"))
        self.zombies = len(box.zombies())
        self.processes = len(box.processes())
        self.rss = box.memory()[1]
        self.links = sorted(map(os.path.basename, box.fd_links()))

    def __str__(self):
        extra = [p.command for p in self.box.processes()]
        return (f"{self.fds} descriptors, {len(self.files)} files, {self.zombies} zombies, "
                f"{self.processes} processes, RSS {self.rss >> 10} KiB; {extra}; {self.links}")


def settled(box):
    """A census when what init still closes is closed."""
    fewest = box.fds()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        fewest = min(fewest, box.fds())
        time.sleep(0.01)
    wait_until(lambda: box.fds() == fewest, 5, "as few descriptors as before")
    return Census(box)


class Worker(threading.Thread):
    """Executes texts one after another in one session and checks every answer."""

    def __init__(self, box, session, seed, share, numbers):
        super().__init__(daemon=True)
        self.box, self.session, self.random = box, session, random.Random(seed)
        self.share, self.numbers, self.done, self.wrong = share, numbers, 0, []

    def run(self):
        try:
            while self.done < self.share and not self.wrong:
                self.one()
                self.done += 1
        except Exception as e:  # shown by the test
            self.wrong.append(repr(e))

    def one(self):
        n = next(self.numbers)
        text, status, out, err = self.random.choice(RARE if self.random.random() < 0.02 else TEXTS)
        env = {"E": str(n)} if self.random.random() < 0.1 else None
        r = self.box.call_exec(text.format(n=n), self.session.name, env=env,
                               cwd="/" if self.random.random() < 0.1 else None)
        want = (status, out.format(n=n).encode(), err.format(n=n).encode())
        if r.triple != want:
            self.wrong.append(f"{text!r} with {n} in {self.session.shell}: want {want}, got {r}")


class Killer(threading.Thread):
    """Starts clients in the same sessions and kills them with -9 at random moments."""

    VERBS = [
        ["exec", "-s", "{s}", "sleep 60; echo no"],
        ["exec", "-s", "{s}", "yes"],
        ["exec", "-s", "{s}", "--stdin", "cat"],
        ["exec", "sleep 60 & sleep 61"],
        ["exec", "-s", "{s}", "--timeout", "50ms", "sleep 60"],
        ["start", "-s", "{s}", "sleep 0.2"],
        ["start", "echo {n}; sleep 0.1"],
        ["session", "show", "{s}"],
        ["ps"],
        ["session", "create", "k{n}"],
        ["session", "delete", "k{n}"],
    ]

    def __init__(self, box, sessions, seed):
        super().__init__(daemon=True)
        self.box, self.sessions, self.random = box, sessions, random.Random(seed)
        self.is_over, self.killed = threading.Event(), 0

    def run(self):
        while not self.is_over.is_set():
            self.killed += 1
            words = [w.format(s=self.random.choice(self.sessions).name, n=self.killed % 5)
                     for w in self.random.choice(self.VERBS)]
            p = self.box.ctl_spawn(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
            time.sleep(self.random.random() ** 3 * 0.2)
            p.kill()
            p.wait()
            p.stdin.close()
            p.stdout.close()
            time.sleep(self.random.random() * 0.05)


class Numbers:
    def __init__(self):
        self.lock, self.n = threading.Lock(), 0

    def __next__(self):
        with self.lock:
            self.n += 1
            return self.n


def clean_up(box, sessions):
    """What the killed clients may have left on purpose: sessions, processes that go on."""
    def extra():
        names = [r["name"] for r in box.call("session.list").rows if r["name"].startswith("k")]
        for name in names:
            box.call("session.delete", name=name, check=False)
        return names

    wait_until(lambda: not extra(), 10, "no sessions of killed clients")
    box.call("kill-all", grace_ms="0")
    for s in sessions:  # all in the same state as at the first census
        assert s.exec("true", deadline=20).status == 0
    wait_until(lambda: (x := box.status())["commands"] == 0 and x["processes"] == 0 and
               x["connections"] == 1, 20, lambda: f"all is over: {box.status()}")
    wait_until(lambda: not box.zombies() and len(box.processes()) == len(sessions), 10,
               lambda: f"the shells and no zombies: {box.zombies()}, {[p.command for p in box.processes()]}")


def warm_up(box, sessions, seed):
    """The lists that init keeps (ended processes, pages of the allocator) have their full size."""
    killer = Killer(box, sessions, seed)
    workers = [Worker(box, s, seed + i, 150, Numbers()) for i, s in enumerate(sessions)]
    run_all(workers, killer)
    for s in sessions:
        s.exec("read x", stdin="x")  # the FIFO for stdin stays


def run_all(workers, killer):
    killer.start()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    killer.is_over.set()
    killer.join()
    wrong = [x for w in workers for x in w.wrong]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_soak_execs_with_clients_killed_at_random(kind):
    total = repeats(100_000 if kind == "ns-root" else 20_000)
    seed = int(os.environ.get("SANDBOX_TEST_SEED") or random.randrange(1 << 32))
    print(f"SANDBOX_TEST_SEED={seed}")
    with Box(kind, ini={"init": {"log_level": "warn", "stop_grace": "3s"},
                        "sessions": {"process_keep": "0", "kill_grace": "300ms"}}) as box:
        sessions = [make_session(box, SHELLS[i % 3]) for i in range(SESSIONS)]
        warm_up(box, sessions, seed + 1000)
        clean_up(box, sessions)
        before = settled(box)
        workers = [Worker(box, s, seed + i, total // SESSIONS, Numbers())
                   for i, s in enumerate(sessions)]
        killer = Killer(box, sessions, seed + 99)
        begun = time.monotonic()
        run_all(workers, killer)
        seconds = time.monotonic() - begun
        clean_up(box, sessions)
        wait_until(lambda: Census(box).fds <= before.fds, 10,
                   lambda: f"descriptors: {before} -> {Census(box)}")
        after = Census(box)
        print(f"{total} execs in {seconds:.1f} s, {killer.killed} clients killed; {before} -> {after}")
        assert (after.fds, after.files, after.zombies) == (before.fds, before.files, 0)
        assert after.processes == before.processes == SESSIONS
        assert after.rss - before.rss < RSS_SLACK, f"{before} -> {after}"
        for s in sessions:
            assert box.call("session.delete", name=s.name)["name"] == s.name
        assert [p for p in os.listdir(box.run) if p not in ("control.sock", "lock")] == []
        assert box.stop() == 0
        assert box.survivors() == []


@pytest.mark.parametrize("kind", ["ns-root"])
def test_soak_sessions_come_and_go(kind):
    n = repeats(2000)
    with Box(kind, ini={"init": {"log_level": "warn"}, "sessions": {"kill_grace": "300ms"}}) as box:
        for i in range(20):
            churn(box, i)
        wait_until(lambda: not box.processes(), 5, "nothing lives")
        before = settled(box)
        for i in range(n):
            churn(box, i)
        wait_until(lambda: Census(box).fds <= before.fds, 10, lambda: f"{before} -> {Census(box)}")
        after = Census(box)
        print(f"{n} sessions; {before} -> {after}")
        assert (after.fds, after.files, after.zombies) == (before.fds, before.files, 0)
        assert after.rss - before.rss < RSS_SLACK, f"{before} -> {after}"


def churn(box, i):
    name = box.session(shell=shell_path(SHELLS[i % 3]))
    box.call_exec("sleep 60 & echo $!", name)
    if i % 2:
        box.call("session.reset", name=name)
        assert box.call_exec("echo $$", name).status == 0
    assert "survivors" not in box.call("session.delete", name=name).fields
