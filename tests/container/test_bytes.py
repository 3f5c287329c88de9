"""Byte-exactness (evidence 4 of the sessions): random outputs on both streams, through exec, through
followers that come at random moments with random offsets, through processes and their logs: every
byte, once, in one order, whatever it is.

SANDBOX_TEST_SEED=N repeats a run, SANDBOX_TEST_SEED=N:I its output I alone.
"""

import hashlib
import os
import random
import shlex
import threading
import time

import pytest

from rig import wire
from rig.box import Box, shell_path
from rig.wait import repeats, wait_until

OUTPUTS = 1000
LARGEST = 64 << 20
WORKERS = 3
STREAMS = (wire.STDOUT, wire.STDERR)
KEEPS = {"all": "256M", "some": "64K"}  # what a session keeps of an output


# ---- what is written -----------------------------------------------------------------------


def utf8(r, n):
    text = "".join(chr(r.choice((0x41, 0xE9, 0x20AC, 0x1F600))) for _ in range(n // 2 + 1)).encode()
    return text[r.randrange(3):]  # begins inside of a character and ends there


BLOCKS = [  # random, size -> about so many bytes
    lambda r, n: r.randbytes(n),
    lambda r, n: bytes(n),
    lambda r, n: b"\xff" * n,
    lambda r, n: b"\n" * n,
    lambda r, n: b"".join(b"line %d\n" % r.randrange(10**6) for _ in range(n // 9 + 1)),
    lambda r, n: b"\r\n".join(b"x" * r.randrange(60) for _ in range(n // 30 + 1)),
    utf8,
    lambda r, n: b"\x01\x01\x01\0\x04\0\0\0\x02\x02\x02\0" * (n // 12 + 1),  # as a log's own headers
    lambda r, n: b"\x1b[31mred\x1b[0m\x07\x04\x03" * (n // 15 + 1),
]


def content(r, size):
    """About `size` bytes of many kinds; sometimes with a final newline."""
    parts, have = [], 0
    while have < size:
        part = r.choice(BLOCKS[:1] if size > 1 << 20 else BLOCKS)(r, r.randrange(1, size - have + 1))
        parts.append(part[: size - have])
        have += len(parts[-1])
    return b"".join(parts)


def size_of(r):
    """Most are small, some have up to 64 MB."""
    dice = r.random()
    if dice < 0.05:
        return 0
    low, high = (20, 26) if dice < 0.08 else (16, 20) if dice < 0.2 else (0, 16)
    return min(LARGEST, int(2 ** r.uniform(low, high)))


class Source:
    """One random output: its bytes and a text that writes them."""

    def __init__(self, r, folder, number, size, helper):
        share = r.choice((0, 0.1, 0.5, 0.9, 1))
        self.bytes = [content(r, int(size * share)), content(r, size - int(size * share))]
        self.size = len(self.bytes[0]) + len(self.bytes[1])
        self.hashes = [digest(b) for b in self.bytes]
        self.files = [folder / f"{number}.out", folder / f"{number}.err"]
        for path, data in zip(self.files, self.bytes):
            path.write_bytes(data)
            path.chmod(0o644)
        self.gate = folder / f"{number}.gate"
        os.mkfifo(self.gate)
        self.gate.chmod(0o666)
        out, err = map(shlex.quote, map(str, self.files))
        self.text = r.choice([f"{helper} pour {out} {err} {r.randrange(1 << 30)}"] * 3 + [
            f"cat {out}; cat {err} >&2",
            f"cat {err} >&2 & cat {out}; wait",
            f"{{ cat {err}; }} >&2; dd bs={r.choice((1000, 4096, 70001))} <{out} 2>/dev/null",
            f"(tail -c +1 {out}) | cat; (head -c {self.size} {err} | cat) 1>&2",
        ])
        self.gated_text = f": <{shlex.quote(str(self.gate))}; {self.text}"

    def open_gate(self):
        """Let the gated text go on: it is there, or on its way."""
        def opened():
            try:
                return os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return None

        os.close(wait_until(opened, 20, "the text waits at its gate"))

    def remove(self):
        for path in (*self.files, self.gate):
            path.unlink()


def digest(data):
    return hashlib.blake2b(data).hexdigest()


# ---- what is seen --------------------------------------------------------------------------


class Sequence:
    """Bytes of both streams in one order."""

    def __init__(self):
        self.runs = []  # [stream, pieces]

    def add(self, stream, data):
        if not data:
            return
        if not self.runs or self.runs[-1][0] != stream:
            self.runs.append([stream, []])
        self.runs[-1][1].append(data)

    def joined(self):
        return [(stream, b"".join(pieces)) for stream, pieces in self.runs]

    def of(self, stream):
        return b"".join(p for s, pieces in self.runs if s == stream for p in pieces)

    def size(self):
        return sum(len(p) for _, pieces in self.runs for p in pieces)

    def cut(self, intervals, wants=STREAMS):
        """What these intervals of offsets hold of some streams."""
        got, at = Sequence(), 0
        for stream, data in self.joined():
            for a, b in intervals:
                if stream in wants:
                    got.add(stream, data[max(0, a - at): max(0, b - at)])
            at += len(data)
        return got

    def tail(self, lines, wants):
        """The offset where the last `lines` lines begin. The streams' lines are told apart by
        their newlines in the common order."""
        starts, at, end = [0], 0, 0
        for stream, data in self.joined():
            if stream in wants:
                end = at + len(data)
                i = data.find(b"\n")
                while i >= 0:
                    starts.append(at + i + 1)
                    i = data.find(b"\n", i + 1)
            at += len(data)
        starts = [0] + [s for s in starts[1:] if s < end]  # a last newline begins no line
        return at if lines == 0 else starts[max(0, len(starts) - lines)]


class Listener:
    """Receives one connection's output: the sequence, notes, the result."""

    def __init__(self, box, random, is_slow=False):
        self.wire, self.random, self.is_slow = box.connect(60), random, is_slow
        self.seen, self.notes, self.result, self.is_error = Sequence(), [], None, False
        self.received = 0

    def take(self):
        """One packet; False at the end."""
        got = self.wire.receive()
        if got is None:
            self.wire.close()
            return False
        channel, payload = got
        assert self.result is None, "a packet after the result"
        if channel in STREAMS:
            self.seen.add(channel, payload)
            self.received += len(payload)
        elif channel == wire.NOTE:
            self.notes.append(wire.parse_record(payload))
        else:
            self.result, self.is_error = wire.parse_record(payload), channel == wire.ERROR
        if self.is_slow and self.random.random() < 0.02:
            time.sleep(self.random.random() * 0.02)
        return True

    def finish(self):
        while self.take():
            pass
        assert self.result is not None, "the connection ended without a result"
        return self


class Follower(threading.Thread):
    """logs (-f) of one id from an offset, for some streams; compared when the whole is known."""

    def __init__(self, box, id, random, low, high, follow=True):
        super().__init__(daemon=True)
        wants = random.choice((STREAMS, STREAMS, (wire.STDOUT,), (wire.STDERR,)))
        self.wants, self.follows = wants, follow
        self.listener = Listener(box, random, random.random() < 0.3)
        self.args = [("id", id), ("follow", "1" if follow else None),
                     ("from", str(random.randint(low, high)))]
        if len(wants) == 1:
            self.args.append(("stream", "stdout" if wants[0] == wire.STDOUT else "stderr"))
        self.failure = None

    def begin(self):
        """Ask and wait until it is heard. False: the command was over already."""
        self.listener.wire.request("logs", self.args)
        self.listener.take()
        if self.listener.is_error:
            assert self.listener.result["code"] == "not_found", self.listener.result
            self.listener.wire.close()
            return False
        self.start()
        return True

    def run(self):
        try:
            self.listener.finish()
        except Exception as e:  # shown by check()
            self.failure = e

    def check(self, whole, may_lose):
        self.join(90)
        assert not self.is_alive() and self.failure is None, (self.args, self.failure)
        a = self.listener
        assert not a.is_error, (self.args, a.result)
        lost = [(n["lost_from"], n["lost_to"]) for n in a.notes if "lost_from" in n]
        assert may_lose or not lost, (self.args, lost)
        at, intervals = a.notes[0]["from"], []
        assert str(at) == dict(self.args)["from"], (self.args, a.notes[0])
        for begin, end in lost:
            assert at <= begin < end <= whole.size(), (self.args, lost)
            intervals.append((at, begin))
            at = end
        assert at <= a.result["to"] and (a.result["to"] == whole.size() or not self.follows)
        intervals.append((at, a.result["to"]))
        same(a.seen, whole.cut(intervals, self.wants), (self.args, lost, whole.size()))


def same(got, want, what):
    """Equal sequences; if not, where they part."""
    a, b = got.joined(), want.joined()
    if a == b:
        return
    at = 0
    for (s, x), (t, y) in zip(a, b):
        if (s, x) != (t, y):
            k = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
            raise AssertionError(f"{what}: they part at byte {at + k}: got {s} …{x[k - 20:k + 40]!r} "
                                 f"of {len(x)}, want {t} …{y[k - 20:k + 40]!r} of {len(y)}")
        at += len(x)
    raise AssertionError(f"{what}: got {got.size()} bytes, want {want.size()}")


# ---- the ways ------------------------------------------------------------------------------


class Trial:
    """One output on one way."""

    def __init__(self, box, r, source, session):
        self.box, self.random, self.source, self.session = box, r, source, session
        self.followers = []

    def expect(self, out, err):
        got = [digest(out), digest(err)]
        assert got == self.source.hashes, (
            f"{len(out)} and {len(err)} bytes, want {[len(b) for b in self.source.bytes]}")

    def follow(self, id, received):
        """A few more readers from anywhere in what there surely is."""
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            f = Follower(self.box, id, self.random, 0, received)
            if f.begin():
                self.followers.append(f)

    def check_followers(self, whole, may_lose):
        for f in self.followers:
            f.check(whole, may_lose)

    def by_sandboxctl(self):
        r = self.box.ctl("exec", "-s", self.session, self.source.text, deadline=60)
        assert r.status == 0, r.status
        self.expect(r.out, r.err)

    def by_sandboxctl_into_files(self):
        paths = [p.with_suffix(p.suffix + ".got") for p in self.source.files]
        with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
            p = self.box.ctl_spawn("exec", "-s", self.session, self.source.text, stdout=out, stderr=err)
            assert p.wait(60) == 0
        self.expect(*(p.read_bytes() for p in paths))
        for p in paths:
            p.unlink()

    def by_stdin(self):
        """The bytes go in as well."""
        data = self.source.bytes[0]
        r = self.box.exec("cat; cat >&2 " + shlex.quote(str(self.source.files[1])), self.session,
                          stdin=data, deadline=60)
        assert r.status == 0, r.status
        self.expect(r.out, r.err)

    def by_wire(self):
        """The client stops in the middle until followers have come: its lag holds the command."""
        a = Listener(self.box, self.random, self.random.random() < 0.3)
        is_gated, come_at = self.random.random() < 0.5, self.random.randint(0, self.source.size)
        a.wire.request("exec", [("session", self.session)],
                       self.source.gated_text if is_gated else self.source.text)
        while not a.notes:
            assert a.take()
        if is_gated:
            self.follow(a.notes[0]["id"], 0)
            self.source.open_gate()
        while a.received < come_at:
            assert a.take()
        self.follow(a.notes[0]["id"], a.received)
        a.finish()
        assert not a.is_error and a.result["status"] == 0, a.result
        self.expect(a.seen.of(wire.STDOUT), a.seen.of(wire.STDERR))
        assert (a.result["stdout_bytes"], a.result["stderr_bytes"]) == tuple(
            len(b) for b in self.source.bytes)
        self.check_followers(a.seen, self.session.endswith("some"))

    def by_process(self):
        """Followers while it runs and afterwards; the log itself is the witness of the order."""
        is_gated = self.random.random() < 0.7
        keeps_all = self.session.endswith("all")
        id, _ = self.box.start(self.source.gated_text if is_gated else self.source.text, self.session)
        self.follow(id, 0)
        if is_gated:
            self.source.open_gate()
        for _ in range(self.random.choice((0, 1, 2))):
            time.sleep(self.random.random() * 0.01)
            self.follow(id, self.box.call("logs", id=id, tail="0", deadline=60)["to"])
        assert self.box.wait_process(id, 60)["status"] == 0
        if not keeps_all:
            self.check_ring(id)
            return
        whole = self.log(id)
        self.expect(whole.of(wire.STDOUT), whole.of(wire.STDERR))
        self.check_followers(whole, False)
        for follow in (True, False):
            f = Follower(self.box, id, self.random, 0, whole.size(), follow)
            assert f.begin()
            f.check(whole, False)
        if whole.size() < 1 << 20:
            self.check_tail(id, whole)

    def by_joining(self):
        """One client begins it and leaves in the middle; others join the run, while it runs and
        afterwards, from the begin or from an offset. What it writes is kept whole."""
        session, id = self.session.replace("some", "all"), f"b{self.source.gate.stem}"
        is_gated, leave_at = self.random.random() < 0.5, self.random.randint(0, self.source.size)
        text = self.source.gated_text if is_gated else self.source.text

        def ask(**args):
            a = Listener(self.box, self.random, self.random.random() < 0.3)
            a.wire.request("exec", [("session", session), ("id", id), *args.items()], text)
            return a

        def join(at):  # in a thread of its own: whoever does not read holds all
            a = ask(**({"from": str(at)} if at is not None else {}))
            a.thread = threading.Thread(target=a.finish, daemon=True)
            a.thread.start()
            return a

        first = ask(detach="1")
        while not first.notes:
            assert first.take()
        if is_gated:
            self.source.open_gate()
        while first.received < leave_at:
            assert first.take()
        first.wire.close()
        joined = {at: join(at) for at in (None, first.received)}
        whole = ask().finish()
        assert not whole.is_error and whole.result["status"] == 0, whole.result
        self.expect(whole.seen.of(wire.STDOUT), whole.seen.of(wire.STDERR))
        late = self.random.randint(0, whole.seen.size())
        joined[late] = join(late)  # when it is over
        same(first.seen, whole.seen.cut([(0, first.received)]), "the first client")
        for at, a in joined.items():
            a.thread.join(90)
            assert a.result == whole.result, (at, a.result, whole.result)
            same(a.seen, whole.seen.cut([(at or 0, whole.seen.size())]), f"joined at {at}")
        r = self.box.ctl("exec", "--id", id, "-s", session, text, deadline=60)
        assert r.status == 0, r.status
        self.expect(r.out, r.err)
        self.check_followers(whole.seen, False)

    def log(self, id, **args):
        a = Listener(self.box, self.random)
        a.wire.request("logs", [("id", id), *args.items()])
        a.finish()
        assert not a.is_error, a.result
        assert not [n for n in a.notes if "lost_from" in n], a.notes
        return a.seen

    def check_tail(self, id, whole):
        for lines in (0, 1, 2, self.random.randrange(1000)):
            at = whole.tail(lines, STREAMS)
            got = self.log(id, tail=str(lines))
            same(got, whole.cut([(at, whole.size())]), f"tail {lines} of {whole.size()}")
        for lines in (1, 3):
            r = self.box.ctl("logs", "--tail", lines, "--stdout", id, deadline=60)
            at = whole.tail(lines, (wire.STDOUT,))
            want = whole.cut([(at, whole.size())]).of(wire.STDOUT)
            assert (r.out, r.err) == (want, b""), f"tail {lines} of stdout: {r.out[-50:]} {want[-50:]}"

    def check_ring(self, id):
        """A small log: what it kept and what it says it lost make up the whole."""
        a = Listener(self.box, self.random)
        a.wire.request("logs", [("id", id)])
        a.finish()
        lost = [(n["lost_from"], n["lost_to"]) for n in a.notes if "lost_from" in n]
        assert a.received + sum(e - b for b, e in lost) == a.result["to"] == self.source.size, (
            lost, a.received, a.result, self.source.size)
        if not lost:
            self.expect(a.seen.of(wire.STDOUT), a.seen.of(wire.STDERR))
            return
        assert lost[0][0] > 0, f"the head is lost: {lost} of {self.source.size}"
        (first, head), (last, tail) = a.seen.joined()[0], a.seen.joined()[-1]
        assert self.bytes_of(first).startswith(head[: min(1000, lost[0][0])])
        assert self.bytes_of(last).endswith(tail[-min(1000, a.result["to"] - lost[-1][1]):])

    def bytes_of(self, stream):
        return self.source.bytes[STREAMS.index(stream)]


WAYS = [Trial.by_sandboxctl, Trial.by_sandboxctl_into_files, Trial.by_stdin, Trial.by_wire,
        Trial.by_wire, Trial.by_process, Trial.by_process, Trial.by_joining, Trial.by_joining]
SHELLS = ("bash", "dash", "ash")


def run_one(box, seed, number):
    r = random.Random(f"{seed}:{number}")
    size = (LARGEST, LARGEST, LARGEST, 0)[number] if number < 4 else size_of(r)
    way = (Trial.by_sandboxctl, Trial.by_wire, Trial.by_process)[number] if number < 3 else r.choice(WAYS)
    session = f"{r.choice(SHELLS)}-{'all' if number < 3 else r.choice(list(KEEPS))}"
    source = Source(r, box.work, number, size, box.helper)
    try:
        way(Trial(box, r, source, session))
    except Exception as e:
        raise AssertionError(f"SANDBOX_TEST_SEED={seed}:{number}: {way.__name__}, {source.size} bytes in "
                             f"{session}, {source.text!r}: {type(e).__name__} {e}") from e
    finally:
        source.remove()


def sessions_ini():
    ini = {"init": {"log_level": "warn"}, "sessions": {"process_keep": "100", "kill_grace": "500ms"}}
    for shell in SHELLS:
        for name, keep in KEEPS.items():
            ini[f"session:{shell}-{name}"] = {"shell": shell_path(shell), "output_keep": keep}
    return ini


@pytest.mark.parametrize("kind, part", [("ns-root", 0), ("runc-user", 1)])
def test_random_outputs_arrive_byte_for_byte(kind, part):
    seed, _, only = (os.environ.get("SANDBOX_TEST_SEED") or str(random.randrange(1 << 32))).partition(":")
    print(f"SANDBOX_TEST_SEED={seed}")
    numbers = [int(only)] if only else list(range(part, repeats(OUTPUTS), 2))
    failures, lock = [], threading.Lock()

    with Box(kind, ini=sessions_ini()) as box:
        def work():
            while not failures:
                with lock:
                    if not numbers:
                        return
                    number = numbers.pop(0)
                try:
                    run_one(box, seed, number)
                except Exception as e:
                    failures.append(e)

        workers = [threading.Thread(target=work) for _ in range(WORKERS)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert box.is_alive, box.log()[-2000:]
        if failures:
            raise failures[0]
