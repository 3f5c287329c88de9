"""A random sequence of everything that can happen to sessions, against a simple model (evidence 6).

Four slots work side by side, each on a session of its own: create, exec, start, kill, timeout,
delete, reset, a shell that ends or is killed, clients killed with -9 at any moment, queues. A slot
knows what must be there: the session, its variables, function and folder, its live processes. Its
next command is asked for all of that after each step. After each round of steps init is looked at
from outside: nothing lives that should not, all that should does, locks are free, no zombies. An
epoch of rounds begins and ends with no session, where descriptors and files must be as at first.

The state is a set of candidates: where the program may do one or the other (a client died before
or after its request was heard), both are in it, and what the session says next decides.

SANDBOX_TEST_SEED=N repeats a run, SANDBOX_TEST_SEED=N:E its epoch E alone.
"""

import collections
import os
import random
import signal
import subprocess
import threading
import time
from typing import NamedTuple

import pytest

from rig import wire
from rig.box import Box, build_dir, shell_path
from rig.wait import is_long, wait_until

SLOTS, ROUNDS, STEPS = 4, 6, 5
SHELLS = ("bash", "dash", "ash")
DEADLINE = 30
KEEP = 30  # ended processes that stay listed: more than end while one slot does a step
UNSET = "unset"


class State(NamedTuple):
    """What the session's shell must say of itself."""

    x: str = UNSET
    y: str = "first"  # exported; a fresh shell has it from the session's environment
    f: str = "none"  # what the function says
    cwd: str = ""


PROBE = ('printf "%s|%s|%s|" "${X-unset}" "${Y-unset}" "$(f 2>/dev/null || echo none)"; '
         'sh -c \'printf "%s|" "${Y-unset}"\'; pwd')

# A text that does not end by itself; {n}: sleeps by this mark, {m}: a file that must not come to be.
HANGS = [
    "sleep {n}; echo >{m}",
    "while :; do :; done; echo >{m}",
    "sleep {n} | cat; echo >{m}",
    "v=$(sleep {n}); echo >{m}",
    "g() {{ sleep {n}; echo >{m}; }}; g; echo >{m}",
    "(trap '' TERM; sleep {n}; sleep {n}); echo >{m}",
    "read v <{fifo}; echo >{m}",
    "sleep {n} & wait; echo >{m}",
    "eval 'sleep {n}; echo >{m}'; echo >{m}",
    "if sleep {n}; then echo >{m}; else echo >{m}; fi",
    "sh -c 'sleep {n} & sleep {n}'; echo >{m}",
    "( setsid sleep {n} & ); sleep {n}; echo >{m}",
    "for i in 1 2 3; do sleep {n} && echo >{m}; done; echo >{m}",
    "{helper} ignore all tree 2 3 say up sleep 999; echo >{m}",
]
STRAYS = ["sleep {n} &", "(exec sleep {n}) &", "( setsid sleep {n} & )", "nohup sleep {n} >/dev/null 2>&1 &",
          "(exec sleep {n} >/dev/null 2>&1) & :", "{helper} daemon [ exec sleep {n} ]",
          "trap '' TERM; sleep {n} & trap - TERM"]
ENDS = [  # (text, statuses, is its state restored); dash and ash survive a parameter error
    ("exit 7", {7}, True), ("exit 0", {0}, True), ("set -e; (exit 3); :", {3}, True),
    ("set -u; echo $nothing_; :", {1, 2, 127}, True), (": ${nothing_?}; :", {1, 2, 127}, True),
    ("kill $$; :", {143}, None), ("kill -9 $$; :", {137}, False), ("exec true", {0}, False),
    ("exec sh -c 'exit 5'", {5}, False), ("(kill -9 $$); sleep 9", {137}, False),
]


class Slot:
    """One session and all that is known of it."""

    def __init__(self, world, number, seed):
        self.world, self.box, self.number = world, world.box, number
        self.random = random.Random(f"{seed}:{number}")
        self.name = f"m{number}"
        self.exists = False
        self.states = set()
        self.shell = "bash"
        self.alive, self.maybe = set(), set()  # marks of what must, what may be alive
        self.processes = {}  # id -> mark
        self.errors = []
        self.folder = self.box.work / f"{self.name}.{seed}"
        for d in (self.folder, self.folder / "a", self.folder / "b"):
            d.mkdir()
            os.chown(d, self.box.uid, self.box.uid)

    # -- helpers ---------------------------------------------------------------------------

    def note(self, text):
        self.world.note(f"{self.name} {text}")

    def mark(self):
        return f"{700 + next(self.world.numbers)}.{os.getpid()}"

    def value(self):
        return f"v{next(self.world.numbers)}"

    def path(self, kind):
        return self.folder / f"{kind}{next(self.world.numbers)}"

    def ctl(self, *args, status=0):
        r = self.box.ctl(*args, deadline=DEADLINE)
        assert r.status == status, f"{self.name}: sandboxctl {args}: want {status}, got {r}"
        return r

    def fill(self, text, mark=None, marker=None):
        fifo = self.path("fifo")
        if "{fifo}" in text:
            os.mkfifo(fifo)
            fifo.chmod(0o666)
        return text.format(n=mark, m=marker, fifo=fifo, helper=self.box.helper)

    def show(self):
        """Its fields; None if there is no session."""
        a = self.box.call("session.show", name=self.name, check=False, deadline=DEADLINE)
        if a.is_error and a["code"] == "not_found":
            return None
        return {"state": "ending", "queue": 0, "restarts": 0} if a.is_error else a.fields

    def exec(self, text, **kw):
        """Status, stdout and fields, by sandboxctl or over the wire."""
        if self.random.random() < 0.5:
            r = self.box.call_exec(text, self.name, deadline=DEADLINE, **kw)
        else:
            r = self.box.exec(text, self.name, deadline=DEADLINE, **kw)
        return r

    def expect(self, what, got, want):
        assert got in want if isinstance(want, (set, list)) else got == want, (
            f"{self.name}: {what}: got {got!r}, want {want!r}")

    def replace(self, **values):
        self.states = {s._replace(**values) for s in self.states}

    def fresh(self):
        return State(cwd=str(self.folder))

    def lost(self):
        """The states of a shell that could save nothing."""
        return {State(cwd=s.cwd) for s in self.states}

    def restored(self):
        """The states that a new shell can have from what the old one wrote."""
        return {s if self.shell == "bash" else s._replace(f="none") for s in self.states}

    def client(self, *args):
        return self.box.ctl_spawn(*args, stderr=subprocess.DEVNULL)

    def end_client(self, p, status=None, what="client"):
        try:
            out, _ = p.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise AssertionError(f"{self.name}: {what}: sandboxctl has not ended in {DEADLINE} s; "
                                 f"session: {self.show()}") from None
        if status is not None:
            self.expect(f"status of {what}", p.returncode, status)
        return out

    def kill_client(self, p):
        p.send_signal(signal.SIGKILL)
        p.communicate()

    def await_idle(self):
        """The session's state when nothing is on its way: idle, or None if there is none."""
        def settled():
            s = self.show()
            return s is None or (s["state"] == "idle" and s["queue"] == 0)

        wait_until(settled, DEADLINE, lambda: f"{self.name} is idle or gone: {self.show()}")
        return self.show()

    def probe(self):
        """What the session says of itself is one of the candidates, and the only one from now on."""
        r = self.exec(PROBE)
        x, y, f, y_of_child, cwd = r.out.decode().rstrip("\n").split("|")
        self.expect("exported", y_of_child, y)
        got = State(x, y, f, cwd)
        self.expect("status of the probe", r.status, 0)
        assert got in self.states, f"{self.name}: is {got}, want one of {self.states}"
        self.states = {got}

    def gone(self):
        """The session is no more, nor anything that it started."""
        self.exists, self.states = False, set()
        self.alive, self.maybe, self.processes = set(), set(), {}

    # -- steps -----------------------------------------------------------------------------

    def step(self):
        ops = WITH if self.exists else WITHOUT
        op = self.random.choices(list(ops), list(ops.values()))[0]
        self.note(f"{op.__name__}")
        op(self)
        if self.exists:
            self.probe()

    def create(self):
        self.shell = self.random.choice(SHELLS)
        r = self.ctl("session", "create", self.name, "--shell", shell_path(self.shell), "--cwd", self.folder,
                     "--env", "Y=first")
        self.expect("create", r.out, self.name.encode() + b"\n")
        self.exists, self.states = True, {self.fresh()}

    def create_again(self):
        self.ctl("session", "create", self.name, status=1)

    def absent(self):
        self.expect("exec without session", self.box.exec("true", self.name).status, 125)
        for verb in ("delete", "reset", "show"):
            self.ctl("session", verb, self.name, status=1)

    def stateless(self):
        n = self.random.randrange(200)
        r = self.box.exec(f"X=lost; echo {n}; exit {n}", deadline=DEADLINE)
        self.expect("stateless", (r.status, r.out), (n, b"%d\n" % n))

    def set(self):
        x, y = self.value(), self.value()
        r = self.exec(f"X={x}; export Y={y}; echo $X$Y")
        self.expect("set", (r.status, r.out.decode()), (0, f"{x}{y}\n"))
        self.replace(x=x, y=y)

    def unset(self):
        self.expect("unset", self.exec("unset X Y").status, 0)
        self.replace(x=UNSET, y=UNSET)

    def cd(self):
        to = self.random.choice([str(self.folder), str(self.folder / "a"), str(self.folder / "b"), "/", "/tmp"])
        self.expect("cd", self.exec(f"cd {to}").status, 0)
        self.replace(cwd=to)

    def function(self):
        f = self.value()
        self.expect("function", self.exec(f"f() {{ echo {f}; }}").status, 0)
        self.replace(f=f)

    def status(self):
        n = self.random.randrange(256)
        for text, want in ((f"(exit {n})", n), ("sh -c 'kill -15 $$'", 143), ("false", 1), ("if", 2)):
            r = self.exec(text)
            self.expect(f"status of {text}", r.status, {want, 1} if text == "if" else want)

    def of_its_own(self):
        """cwd and env of one call only; stdin; a large output."""
        r = self.exec("cat; echo $Y; pwd; X=; head -c 100000 /dev/zero", cwd="/usr", env={"Y": "call"}, stdin="in\n")
        self.expect("of its own", (r.status, r.out), (0, b"in\ncall\n/usr\n" + bytes(100000)))
        self.replace(x="")

    def stray(self):
        mark = self.mark()
        r = self.exec(self.fill(self.random.choice(STRAYS), mark))
        self.expect("stray", r.status, 0)
        self.alive.add(mark)

    def start(self):
        mark, x = self.mark(), self.value()
        self.exec(f"X={x}")
        self.replace(x=x)
        id, _ = self.box.start(f"echo $X; exec sleep {mark}", self.name)
        wait_until(lambda: self.box.logs(id).out, DEADLINE, "the process speaks")
        self.expect("the process's X", self.box.logs(id).out, f"{x}\n".encode())
        self.processes[id] = mark
        self.alive.add(mark)

    def start_short(self):
        n = self.random.randrange(256)
        id, _ = self.box.start(f"X=lost; exit {n}", self.name)
        self.ctl("wait", id, status=n)

    def kill_process(self):
        if not self.processes:
            return self.start()
        id, mark = self.processes.popitem()
        args = self.random.choice([["--signal", "KILL"], [], ["--grace", "0"]])
        self.ctl("kill", *args, id)
        self.alive.remove(mark)
        self.ctl("wait", id, status=137)
        self.ctl("kill", id, status=1)

    def kill_all(self):
        self.ctl("kill-all", "-s", self.name)
        self.alive -= set(self.processes.values())
        self.processes = {}

    def hang(self):
        """A text that hangs: (its client, the file that must not come, the X it sets)."""
        marker, x = self.path("marker"), self.value()
        text = self.fill(self.random.choice(HANGS), self.mark(), marker)
        self.note(text)
        return f"X={x}; echo up; {text}", marker, x

    def after_interrupt(self, marker, x, restarts, fields=None):
        """The shell is the old one, or a new one with what could be saved."""
        now = self.await_idle()
        assert not marker.exists(), f"{self.name}: a statement ran after the interrupt"
        kept = {s._replace(x=x) for s in self.states}
        if now["restarts"] == restarts:
            assert not (fields or {}).get("shell_restarted"), fields
            self.states = kept
            self.world.counts["kept"] += 1
            return
        self.world.counts["replaced"] += 1
        self.states |= kept
        self.states = self.restored() | self.lost()
        self.doubt_strays()

    def doubt_strays(self):
        """A shell has died: its strays may have gone with it. Processes are init's own."""
        own = set(self.processes.values())
        self.maybe |= self.alive - own
        self.alive &= own

    def kill_running(self):
        text, marker, x = self.hang()
        restarts = self.show()["restarts"]
        p = self.client("exec", "-s", self.name, text)
        assert p.stdout.readline() == b"up\n", f"{self.name}: up"
        time.sleep(self.random.random() ** 2 * 0.02)
        way = self.random.choice(["running", "id", "int"])
        if way == "int":
            p.send_signal(signal.SIGINT)
        elif way == "running":
            self.ctl("kill", "--running", self.name)
        else:
            self.ctl("kill", self.show()["running"])
        self.end_client(p, 130 if way == "int" else 137, f"killed by {way}")
        self.after_interrupt(marker, x, restarts)

    def timeout(self):
        text, marker, x = self.hang()
        restarts = self.show()["restarts"]
        r = self.box.call_exec(text, self.name, timeout=self.random.uniform(0.1, 0.3), deadline=DEADLINE)
        self.expect("timeout", (r.status, r["verdict"]), (124, "timeout"))
        if not r.out:  # so late that not even the first statement ran
            self.states |= {s._replace(x=x) for s in self.states}
            x = self.one_x() if len({s.x for s in self.states}) == 1 else x
            self.await_idle()
            return
        self.after_interrupt(marker, x, restarts, r.fields)

    def one_x(self):
        return next(iter(self.states)).x

    def shell_ends(self):
        text, statuses, is_restored = self.random.choice(ENDS)
        x, restarts = self.value(), self.show()["restarts"]
        self.note(text)
        r = self.exec(f"X={x}; {text}")
        self.expect(text, r.status, statuses)
        self.replace(x=x)
        is_survived = self.shell != "bash" and "nothing_" in text
        restarts += not is_survived
        self.expect("restarts", self.await_idle()["restarts"], restarts)
        if r.fields:
            self.expect(f"restarted by {text}", bool(r.get("shell_restarted")), not is_survived)
            if is_restored is not None:
                self.expect(f"state_lost of {text}", bool(r.get("state_lost")), not is_restored)
        if not is_survived:
            self.states = {True: self.restored(), False: self.lost(),
                           None: self.restored() | self.lost()}[is_restored]
            self.doubt_strays()
        self.expect("set +eu", self.exec("set +eu").status, 0)

    def lose_client_of_hang(self):
        text, marker, x = self.hang()
        restarts = self.show()["restarts"]
        p = self.client("exec", "-s", self.name, text)
        assert p.stdout.readline() == b"up\n", f"{self.name}: up"
        time.sleep(self.random.random() ** 2 * 0.02)
        self.kill_client(p)
        self.after_interrupt(marker, x, restarts)

    def lose_client_early(self):
        """Before, while or after its short text runs: all of it took effect, or it was interrupted."""
        x, restarts = self.value(), self.show()["restarts"]
        p = self.client("exec", "-s", self.name, f"X={x}; (exit 3); cd {self.folder}/a")
        time.sleep(self.random.random() ** 2 * 0.02)
        self.kill_client(p)
        self.after_lost_request(restarts)
        set_only = {s._replace(x=x) for s in self.states}
        self.states |= set_only | {s._replace(cwd=f"{self.folder}/a") for s in set_only}

    def after_lost_request(self, restarts):
        for _ in range(3):  # a request that was sent is heard by then
            self.box.call("status", deadline=DEADLINE)
        now = self.await_idle()
        if now and now["restarts"] != restarts:
            self.states |= self.restored() | self.lost()
            self.doubt_strays()
        return now

    def lose_client_of_create(self):
        self.shell = self.random.choice(SHELLS)
        p = self.client("session", "create", self.name, "--shell", shell_path(self.shell), "--cwd", self.folder,
                        "--env", "Y=first")
        time.sleep(self.random.random() * 0.01)
        self.kill_client(p)
        self.states = {self.fresh()}
        self.exists = self.after_lost_request(0) is not None
        if not self.exists:
            self.gone()

    def lose_client_of_start(self):
        mark = self.mark()
        p = self.client("start", "-s", self.name, f"exec sleep {mark}")
        time.sleep(self.random.random() * 0.02)
        self.kill_client(p)
        self.after_lost_request(self.show()["restarts"])
        for row in self.box.ps(self.name):
            if mark in row["text"] and row["state"] == "running":
                self.processes[row["id"]] = mark
                self.alive.add(mark)

    def lose_client_of_delete(self):
        p = self.client("session", self.random.choice(["delete", "reset"]), self.name)
        restarts = self.show()
        time.sleep(self.random.random() * 0.01)
        self.kill_client(p)
        now = self.after_lost_request(restarts["restarts"] if restarts else 0)
        if now is None:
            self.gone()
            return
        self.states |= {self.fresh()}  # reset, or not heard of
        self.maybe |= self.alive
        self.alive = set()
        rows = {r["id"] for r in self.box.ps(self.name) if r["state"] == "running"}
        self.processes = {k: v for k, v in self.processes.items() if k in rows}
        self.alive = set(self.processes.values())
        self.maybe -= self.alive

    def queue(self):
        """Waiters run in the order in which they came; those that leave are skipped."""
        gate, order = self.path("gate"), []
        os.mkfifo(gate)
        gate.chmod(0o666)
        clients = [self.client("exec", "-s", self.name, f"Q=h; echo up; : <{gate}")]
        assert clients[0].stdout.readline() == b"up\n"
        for i in range(self.random.randint(1, 4)):
            clients.append(self.client("exec", "-s", self.name, f"Q=${{Q}}{i}; echo $Q; (exit {i})"))
            wait_until(lambda: self.show()["queue"] == i + 1, DEADLINE, "it waits")
            order.append(i)
        ids = dict(zip(order, self.show()["waiters"]))
        for way in self.random.sample(["client", "kill", "none"], 2):
            if way == "none" or not order:
                continue
            i = order.pop(self.random.randrange(len(order)))
            if way == "client":
                self.kill_client(clients[i + 1])
            else:
                self.ctl("kill", ids[i])
                self.end_client(clients[i + 1], 137, "killed waiter")
            wait_until(lambda: self.show()["queue"] == len(order), DEADLINE, "it has left the queue")
        gate.write_bytes(b"")
        q = "h"
        self.end_client(clients[0], 0, "holder")
        for i in order:
            q += str(i)
            self.expect("output of a waiter", self.end_client(clients[i + 1], i, "waiter"), f"{q}\n".encode())

    def delete(self):
        self.ctl("session", "delete", self.name)
        self.gone()

    def delete_busy(self):
        text, marker, _ = self.hang()
        p = self.client("exec", "-s", self.name, text)
        assert p.stdout.readline() == b"up\n"
        waiter = self.client("exec", "-s", self.name, f"echo >{marker}")
        wait_until(lambda: self.show()["queue"] == 1, DEADLINE, "it waits")
        self.delete()
        self.end_client(p, 137, "command of a deleted session")
        self.end_client(waiter, 125, "waiter of a deleted session")
        assert not marker.exists()

    def reset(self):
        self.ctl("session", "reset", self.name)
        self.alive, self.maybe, self.processes = set(), set(), {}
        self.states = {self.fresh()}


WITHOUT = {Slot.create: 12, Slot.absent: 1, Slot.stateless: 1, Slot.lose_client_of_create: 3}
WITH = {
    Slot.set: 3, Slot.unset: 1, Slot.cd: 3, Slot.function: 3, Slot.status: 2, Slot.of_its_own: 2,
    Slot.stray: 4, Slot.start: 3, Slot.start_short: 2, Slot.kill_process: 3, Slot.kill_all: 1,
    Slot.kill_running: 6, Slot.timeout: 4, Slot.shell_ends: 6, Slot.lose_client_of_hang: 3,
    Slot.lose_client_early: 3, Slot.lose_client_of_start: 2, Slot.lose_client_of_delete: 1, Slot.queue: 2,
    Slot.delete: 2, Slot.delete_busy: 1, Slot.reset: 1, Slot.create_again: 1, Slot.stateless: 1,
}


class Numbers:
    def __init__(self):
        self.lock, self.n = threading.Lock(), 0

    def __next__(self):
        with self.lock:
            self.n += 1
            return self.n


class World:
    """A box, its slots, and the look from outside."""

    def __init__(self, box):
        self.box, self.numbers, self.slots = box, Numbers(), []
        self.history, self.begun = [], time.monotonic()
        self.counts = collections.Counter()

    def note(self, text):
        self.history.append(f"{time.monotonic() - self.begun:8.3f} {text}")

    def epoch(self, seed):
        self.history = [f"SANDBOX_TEST_SEED={seed}"]
        self.slots = [Slot(self, i, seed) for i in range(SLOTS)]
        try:
            for _ in range(ROUNDS):
                self.round()
                self.look()
            for slot in self.slots:
                if slot.exists:
                    slot.delete()
            self.look()
        except BaseException as e:
            raise AssertionError("\n".join([*self.history, f"{type(e).__name__}: {e}",
                                            self.box.log()[-1500:]])) from e

    def round(self):
        def work(slot):
            try:
                for _ in range(STEPS):
                    if any(s.errors for s in self.slots):
                        return
                    slot.step()
                    self.counts["steps"] += 1
            except Exception as e:
                slot.note(f"FAILED {type(e).__name__}: {e}")
                slot.errors.append(e)

        threads = [threading.Thread(target=work, args=(s,)) for s in self.slots]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for s in self.slots:
            if s.errors:
                raise s.errors[0]

    def look(self):
        """Everybody is at rest: the box holds what the model says, and nothing else."""
        assert self.box.is_alive
        listed = lambda: {r["name"]: r for r in self.box.call("session.list").rows}
        # (init may ask a shell to reap its children, for a moment)
        wait_until(lambda: all(r["state"] == "idle" and r["queue"] == 0 for r in listed().values()), DEADLINE,
                   lambda: f"all sessions are idle: {listed()}")
        rows = listed()
        assert set(rows) == {s.name for s in self.slots if s.exists}, rows
        wait_until(lambda: (s := self.box.status())["commands"] == 0 and s["connections"] == 1, DEADLINE,
                   lambda: f"all is over: {self.box.status()}")
        wait_until(lambda: not self.box.zombies(), DEADLINE, lambda: f"no zombies: {self.box.zombies()}")
        must = set().union(*(s.alive for s in self.slots))
        may = set().union(*(s.maybe for s in self.slots))
        own = {r["pid"] for r in rows.values()}
        own |= {r["pid"] for r in self.box.ps() if r["state"] == "running"}

        def found():
            marks, unknown = set(), []
            for p in self.box.processes():
                mine = (must | may) & set(p.command.split())
                marks |= mine
                if not mine and p.inner not in own:
                    unknown.append(f"{p.inner} {p.command}")
            return not unknown and must <= marks, marks, unknown

        wait_until(lambda: found()[0], 3, lambda: f"missing {must - found()[1]}, not to be {found()[2]}")
        for s in self.slots:
            s.maybe &= found()[1]

    def settle(self):
        """Descriptors and files when there is no session: ended processes without output push out
        those that kept some."""
        for id in [self.box.start("exit 0")[0] for _ in range(KEEP)]:
            self.box.wait_process(id)
        low = [self.box.fds()]
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            low.append(self.box.fds())
        files = sorted(str(p.relative_to(self.box.run)) for p in self.box.run.rglob("*"))
        return min(low), [f for f in files if "/" not in f and f[0] not in "px"]


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_sessions_do_what_the_model_does(kind):
    seconds = 300 if is_long() else 15
    seed, _, only = (os.environ.get("SANDBOX_TEST_SEED") or str(random.randrange(1 << 32))).partition(":")
    print(f"SANDBOX_TEST_SEED={seed}; {seconds} s of {300}")
    ini = {"init": {"log_level": "info"}, "sessions": {"process_keep": str(KEEP), "kill_grace": "300ms"}}
    with Box(kind, ini=ini) as box:
        world = World(box)
        world.epoch(f"{seed}:{only or 0}")
        before, rss = world.settle(), box.memory()[1]
        begun, epoch = time.monotonic(), 1
        while not only and time.monotonic() - begun < seconds:
            world.epoch(f"{seed}:{epoch}")
            epoch += 1
            after = world.settle()
            assert after == before, f"descriptors and files: {before} -> {after}\n" + "\n".join(world.history)
        print(f"{epoch} epochs, {dict(world.counts)}, RSS {rss >> 10} -> {box.memory()[1] >> 10} KiB")
        if build_dir().name != "asan":  # which keeps what was freed
            assert box.memory()[1] - rss < 1 << 20
        assert box.stop() == 0
        assert box.survivors() == []
