"""R. Streams, and clients that go away."""

import signal
import time

import pytest

from rig.box import Box
from rig.follow import Trace
from rig.verbs import nap
from rig.wait import wait_until

TICKS = "i=0; while [ $((i += 1)) -le {n} ]; do echo tick $i; echo tock $i >&2; sleep .01; done"
ECHO = "while read -r x; do echo $x; done"


@pytest.fixture
def user(pool):
    b = pool.get("ns-user")
    yield b
    assert b.is_alive, f"init ended with {b.wait(15)}; log: {b.log()[-2000:]}"


def say(box, id, text, eof=False):
    box.ctl_ok("send", id, *(["--eof"] if eof else []), input=text)


def close(t):
    t.wire.close()


def half_close(t):
    import socket

    t.wire.sock.shutdown(socket.SHUT_RDWR)


def garbage(t):
    t.wire.raw(b"\xff" * 1000)


@pytest.mark.parametrize("leave", [close, half_close, garbage])
def test_case_R1_one_follower_leaves(user, leave):
    # given two followers, when one goes, then the other goes on, and the first comes back where
    # it was
    id, _ = user.start(ECHO, stdin=True)
    say(user, id, b"one\ntwo\n")
    a, b = (Trace(user, id, follow=1) for _ in range(2))
    for t in (a, b):
        t.read(until=lambda t: t.bytes == b"one\ntwo\n")
    leave(a)
    say(user, id, b"three\n")
    b.read(until=lambda t: t.bytes.endswith(b"three\n"))
    again = Trace(user, id, follow=1, **{"from": a.at})
    again.read(until=lambda t: t.bytes)
    say(user, id, b"four\n", eof=True)
    assert again.read().bytes == b"three\nfour\n" and (again.start, again.end) == (8, 19)
    assert b.read().bytes == b"one\ntwo\nthree\nfour\n" and b.end == 19
    for t in (a, b, again):
        t.wire.close()


def test_case_R1_many_come_and_go(user):
    # given followers that come and go all the time, each from where the last one was, then
    # together they have read the log once
    id, _ = user.start(TICKS.format(n=150))
    steady = Trace(user, id, follow=1)
    thread = steady.read_apart()
    at, relay, visits = 0, b"", 0
    while True:
        with Trace(user, id, follow=1, **{"from": at}) as t:
            t.read(until=lambda t: len(t.bytes) > 30)
            relay, at, visits = relay + t.bytes, t.at, visits + 1
            if t.end is not None:
                break
    thread.join(20)
    assert relay == steady.bytes and visits > 20 and not steady.lost
    assert steady.of(b"o") == b"".join(b"tick %d\n" % i for i in range(1, 151))
    steady.wire.close()


@pytest.mark.parametrize("leave", ["closed", "killed", "terminated", "stalled"])
def test_case_R2_the_client_of_a_command_goes(leave):
    # given a command whose client goes, then its whole tree dies, nothing after it in the text
    # runs, and the lock is free
    with Box("ns-user", ini={"init": {"client_stall": "300ms"}}) as box:
        n = box.session(cwd=str(box.work))
        mark = nap(box)
        text = f"echo up; (setsid {mark} &); {mark}; touch z"
        if leave == "stalled":
            text = f"echo up; yes; touch z"
        if leave in ("closed", "stalled"):
            w = box.connect()
            w.request("exec", [("session", n)], text)
            w.finish(until=lambda a: a.out)
            if leave == "closed":
                w.close()
        else:
            p = box.ctl_spawn("exec", "-s", n, text)
            assert p.stdout.readline() == b"up\n"
            p.send_signal(signal.SIGKILL if leave == "killed" else signal.SIGTERM)
            p.communicate()
        assert box.exec("echo next", n, deadline=10).triple == (0, b"next\n", b"")
        wait_until(lambda: not box.find(mark) and not box.find("yes"), 5, "nothing of it lives")
        assert not (box.work / "z").exists()


@pytest.mark.parametrize("where", ["session", "stateless"])
def test_case_R2_a_stateless_command_dies_and_a_process_does_not(user, where):
    n = user.session() if where == "session" else None
    mark, other = nap(user), nap(user)
    id, _ = user.start(f"{other}; :", n)
    wait_until(lambda: user.find(other), 10, "the process is there")
    with user.connect() as w:
        w.request("exec", [("session", n)], f"echo up; {mark}; :")
        w.finish(until=lambda a: a.out)
    wait_until(lambda: not user.find(mark), 5, "the command is gone")
    assert user.find(other) and [r["state"] for r in user.ps() if r["id"] == id] == ["running"]
    user.call("kill", id=id)
    if n:
        user.call("session.delete", name=n)


@pytest.mark.parametrize("how", ["detach", "id and another client"])
def test_case_R2_on_request_the_command_goes_on(user, how):
    # given a command that is to outlive its client, when that goes, then it runs to its end, the
    # lock is held till then and no longer, and who comes back has it all
    n = user.session(cwd=str(user.work))
    mark = f"r2{how[0]}"
    args = [("session", n), ("id", mark), ("detach", "1" if how == "detach" else None)]
    text = f"echo up; sleep 0.5; touch {mark}; echo end"
    with user.connect() as w:
        w.request("exec", args, text)
        w.finish(until=lambda a: a.out)
        other = user.connect()
        if how != "detach":
            other.request("exec", args, text)
            other.finish(until=lambda a: a.out)
    assert user.exec("echo next", n).out == b"next\n" and (user.work / mark).exists()
    other.close()
    with user.connect() as w:
        a = w.request("exec", args, text).finish()
    assert (a.status, a.out) == (0, b"up\nend\n")
    user.call("session.delete", name=n)


def test_case_R2_a_waiter_that_goes_leaves_the_queue(user):
    n, go = user.session(), user.work / "r2-go"
    with user.connect() as holder:
        holder.request("exec", [("session", n)],
                       f"echo up; until [ -e {go} ]; do sleep 0.02; done; echo done")
        a = holder.finish(until=lambda a: a.out)
        for _ in range(3):
            w = user.connect()
            w.request("exec", [("session", n)], "echo never > never")
            wait_until(lambda: user.call("session.show", name=n)["queue"], 5, "it waits")
            w.close()
            wait_until(lambda: not user.call("session.show", name=n)["queue"], 5, "it is gone")
        go.touch()
        assert holder.finish(a).out == b"up\ndone\n"
    go.unlink()
    assert user.exec("ls never 2>/dev/null; echo free", n).out == b"free\n"
    user.call("session.delete", name=n)


@pytest.mark.parametrize("text", [
    ECHO,
    "while read -r x; do echo $x; echo e$x >&2; done",
    "while read -r x; do printf %s $x; done",
    "cat",
])
def test_case_R4_back_after_everybody_had_gone(user, text):
    # given a follower, the only one, when it leaves and comes back with its last offset, then it
    # goes on exactly there; also when the process ended meanwhile
    id, _ = user.start(text, stdin=True)
    seen, at = [], 0
    for i, word in enumerate((b"one", b"two", b"three")):
        say(user, id, word + b"\n")
        with Trace(user, id, follow=1, **{"from": at}) as t:
            t.read(until=lambda t: word in t.bytes)
            while not (t.bytes.endswith(b"\n") or text.startswith("while read -r x; do printf")):
                t.step()
            seen, at = seen + t.tagged, t.at
        wait_until(lambda: user.status()["connections"] <= 1, 5, "nobody follows")
    say(user, id, b"last\n", eof=True)
    user.wait_process(id)
    with Trace(user, id, follow=1, **{"from": at}) as t:
        seen += t.read().tagged
        assert t.end is not None
    whole = Trace(user, id).read()
    for stream in (b"o", b"e"):
        assert b"".join(b for c, b in seen if c == stream) == whole.of(stream)
    assert whole.of(b"o").endswith(b"last\n") or whole.of(b"o") == b"onetwothreelast"
    whole.wire.close()


def test_case_R4_exactly_at_the_end_and_behind_it(user):
    id, _ = user.start(ECHO, stdin=True)
    say(user, id, b"abc\n")
    with Trace(user, id, follow=1) as t:
        t.read(until=lambda t: t.at == 4)
    with Trace(user, id, follow=1, **{"from": 4}) as t:
        t.step()
        say(user, id, b"def\n", eof=True)
        assert t.read().bytes == b"def\n" and t.end == 8
    assert user.call("logs", id=id, check=False, **{"from": "9"})["code"] == "invalid"
    with Trace(user, id, follow=1, **{"from": 8}) as t:
        assert t.read().bytes == b"" and t.end == 8


def test_a_slow_follower_delays_nobody():
    # given followers that read nothing, when a process writes more than its log keeps, then it
    # ends as soon as without them, a quick follower has it all, and the slow ones hear what they
    # have missed
    with Box("ns-user", ini={"sessions": {"output_keep": "256K"}}) as box:
        size = 8_000_000
        id, _ = box.start(f"read -r x; head -c {size} /dev/zero | tr '\\000' x", stdin=True)
        slow = [Trace(box, id, follow=1) for _ in range(5)]
        quick = Trace(box, id, follow=1)
        thread = quick.read_apart()
        begun = time.monotonic()
        with box.connect() as w:
            w.request("send", [("id", id)])
            w.send(b"i", b"\n")
        assert box.wait_process(id).status == 0
        assert time.monotonic() - begun < 10
        thread.join(10)
        assert quick.end == size
        for t in slow:
            assert t.read().end == size and t.lost
            t.check_against(b"x" * size)
            t.wire.close()
        quick.wire.close()


@pytest.mark.parametrize("label", ["-l", "--labelled"])
def test_labelled_lines_of_a_follower(user, label):
    id, _ = user.start("printf 'a\\nb'; sleep .1; echo e >&2; printf 'c\\n\\n'; sleep .1; printf d")
    r = user.ctl("logs", "-f", label, id)
    assert sorted(r.lines) == sorted(["stdout: a", "stdout: bc", "stderr: e", "stdout: ",
                                      "stdout: d"])
    assert user.ctl("logs", label, "--from", "2", "--stdout", id).lines[0] == "stdout: bc"
