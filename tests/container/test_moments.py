"""Requests that come at an unlucky moment: twice, in another order, or while what they are for begins or ends."""

import os
import socket
import time

import pytest

from rig import wire
from rig.box import Box
from rig.places import make_session
from rig.stuck import StuckFolder
from rig.verbs import STUBBORN, fresh_name, show
from rig.wait import repeats, wait_until

FAST = {"init": {"stop_grace": "300ms"}, "sessions": {"kill_grace": "300ms"}}
needs_fuse = pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no FUSE here")
# A state that a shell takes long to write and to read.
LARGE = "for ((i = 0; i < 20000; i++)); do declare v$i=$i; done"


def request(box, verb, text=None, **args):
    """The connection of a request that was sent."""
    return box.connect().request(verb, args.items(), text)


def state(box, session):
    return {r["name"]: r["state"] for r in box.call("session.list").rows}.get(session)


def command_state(box, id):
    return {r["id"]: r["state"] for r in box.ps()}.get(id)


def hold(box, session):
    """A command that holds the session until a line is sent to it."""
    w = request(box, "exec", "read x", session=session, stdin=1)
    w.finish(until=lambda a: a.notes)
    return w


# ---- a reset ---------------------------------------------------------------------------------


def test_a_reset_forgets_the_orders_of_the_old_shell():
    # given a configured session whose shell writes its state for a start, when it is reset, then the
    # fresh shell's commands all come to their ends, whatever number their order has
    with Box(ini={"session:dev": {"shell": "/bin/bash"}}) as box:
        assert box.exec(LARGE, "dev").status == 0
        with request(box, "start", "true", session="dev", id="p") as w:
            wait_until(lambda: show(box, "dev").get("running") == "p", 5, "it writes its state")
            box.call("session.reset", name="dev")
            assert w.finish().is_error
        for i in range(10):
            assert box.exec(f"echo {i}", "dev", deadline=10).out == f"{i}\n".encode()


def test_a_fork_that_is_reset_before_it_is_ready(one, name):
    one.exec(LARGE, name)
    new = fresh_name()
    with request(one, "session.fork", name=name, new=new) as w:
        wait_until(lambda: state(one, new) == "starting", 10, "it is made")
        one.call("session.reset", name=new)
        assert w.finish().get("name") == new
    assert one.exec("echo on", new).out == b"on\n"
    one.call("session.delete", name=new)


def test_a_reset_while_a_shell_ends_over_a_bad_state(one):
    # given a session that begins with a state which does not run to its end, when it is reset in the
    # moment in which its shell is ended for that, then it has a fresh shell
    bad = b"# sandbox-init state 1 bash\nx=$((\n# end\n"
    for i in range(repeats(2000)):
        n = fresh_name()
        with request(one, "session.create", bad, name=n, shell="/bin/bash", **{"from": "f"}) as w:
            a = None
            while a is None and state(one, n):
                with request(one, "session.reset", name=n) as r:
                    got = r.finish()
                    a = got if not got.is_error else None
            w.finish()
        if state(one, n):
            assert one.exec("echo on", n, deadline=5).out == b"on\n"
            one.call("session.delete", name=n)


@needs_fuse
def test_a_reset_leaves_a_stuck_shell_alone_for_good():
    # given a shell that is stuck, a kill of its command and, while that goes on, a reset of its session; then the
    # fresh shell is not taken for the one that was to end, and nothing of that one is left in init
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        with request(box, "exec", f": <{stuck.nothing}", session="s", id="it") as w:
            wait_until(lambda: stuck.taken, 10, "its call has been taken")
            with request(box, "kill", id="it"):
                # (the shell is ended after 2 s and given up after 4 s, the reset takes 2.4 s)
                wait_until(lambda: command_state(box, "it") == "stopping", 10, "the kill goes on")
                box.call("session.reset", name="s")
                a = box.call_exec("sleep 4; echo on", "s", deadline=20)
                assert (a.status, a.out) == (0, b"on\n"), a
            assert w.finish().get("state") == "reset"
        assert sum("pipe:" in l for l in box.fd_links()) == 1, "the one that orders go through"
        stuck.release()


# ---- a delete --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["session.delete", "purge"])
def test_a_delete_while_a_session_ends_over_its_set_up(verb):
    # given a session that ends since its set-up failed at a reset, when it is deleted, then it is gone
    with Box(ini={"sessions": {"kill_grace": "3s"}}) as box:
        text = STUBBORN.replace("'", '"').replace("echo up", "touch up")
        setup = f"[ ! -e bad ] || {{ sh -c '{text}' >&2 & until [ -e up ]; do :; done; (exit 3); }}"
        box.call("session.create", name="s", cwd=box.work, setup=setup)
        (box.work / "bad").touch()
        with request(box, "session.reset", name="s") as reset:
            wait_until(lambda: (box.work / "up").exists() and state(box, "s") == "ending", 10, "it ends")
            box.call(verb, **({} if verb == "purge" else {"name": "s"}))
            reset.finish()
        assert state(box, "s") is None


@needs_fuse
def test_a_delete_while_a_kill_waits_for_who_is_stuck():
    # given a command with a child that is stuck, and a kill of it with much patience, when its session is deleted,
    # then its client hears of its end
    with Box("ns-root", ini=FAST) as box, StuckFolder(box) as stuck:
        box.session("s")
        with request(box, "exec", f"cat {stuck.file}", session="s", id="it") as w:
            wait_until(lambda: stuck.taken, 10, "its call has been taken")
            with request(box, "kill", id="it", grace_ms=60000) as kill:
                wait_until(lambda: command_state(box, "it") == "stopping", 10, "the kill goes on")
                box.call("session.delete", name="s")
                a = w.finish()
                assert a.get("verdict") == "killed_by_client", a
                assert not kill.finish().is_error
        box.session("s")
        assert box.exec("echo on", "s").out == b"on\n"
        stuck.release()


def test_what_starts_while_its_session_is_deleted_ends_with_it(one):
    for i in range(repeats(3000)):
        n = fresh_name()
        one.call("session.create", name=n)
        with one.connect() as s, one.connect() as d:
            s.request("start", [("session", n), ("id", f"{n}-p")], "sleep 100")
            t = time.monotonic() + i % 30 / 10000
            while time.monotonic() < t:
                pass
            d.request("session.delete", [("name", n)])
            d.finish()
            s.finish()
        a = one.call("wait", id=f"{n}-p", check=False)
        if not a.is_error:
            assert a["verdict"] in ("killed_by_client", "spawn_failed"), (i, a)


# ---- a kill ----------------------------------------------------------------------------------


def test_a_shell_that_came_anew_is_not_ended_for_the_old_one(one, name):
    # given a text that took the interrupt away and whose child does not end at TERM, when it is killed, then the shell
    # that takes over has the state, though the child's grace goes on
    with request(one, "exec", f"x=here; trap - 40; sh -c '{STUBBORN.replace(chr(39), chr(34))}'", session=name,
                 id=f"{name}-x") as w:
        w.finish(until=lambda a: a.out)
        one.call("kill", id=f"{name}-x", grace_ms=3000)
        a = w.finish()
        assert (a["verdict"], a["state"]) == ("killed_by_client", "restored"), a
    assert one.exec("echo $x", name).out == b"here\n"


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_a_kill_while_a_shell_ends_and_writes_its_state(one, shell):
    # given a text that ends its shell, which takes some time to write its state, when it is killed, then it is
    # written to its end
    s = make_session(one, shell)
    s.exec("i=0; while [ $i -lt 5000 ]; do eval v$i=$i; i=$((i + 1)); done")
    for i in range(10):
        with request(one, "exec", f"x={i}; echo up; exit 3", session=s.name, id=f"{s.name}-{i}") as w:
            w.finish(until=lambda a: a.out)
            time.sleep(0.004)
            one.call("kill", id=f"{s.name}-{i}", check=False)
            a = w.finish()
            assert a.get("state") == "restored", (i, a)
        assert s.exec("echo $x $v4999").out == f"{i} 4999\n".encode()
    one.call("session.delete", name=s.name)


def test_a_shell_that_its_text_has_broken_is_told_of_once(one):
    # given a text that leaves a child and breaks its bash, then its answer tells of the child and of the shell that
    # takes over, and the next answer of nothing
    s = make_session(one, "bash")
    for i in range(repeats(300)):
        a = s.run(f"x={i}; sleep 300 &\n: $(")
        assert (a["state"], a.get("stray_count")) == ("restored", 1), (i, a)
        a = s.run("echo $x")
        assert (a.out, a.get("state")) == (f"{i}\n".encode(), None), (i, a)
    one.call("session.delete", name=s.name)


# ---- input before there is somebody to take it -----------------------------------------------


def test_an_end_of_file_for_a_process_that_waits(one, name):
    with hold(one, name) as h, request(one, "start", "cat; echo end", session=name, id=f"{name}-p", stdin=1) as w:
        wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
        sender = request(one, "send", id=f"{name}-p")
        sender.send(wire.STDIN, b"")
        sender.sock.shutdown(socket.SHUT_WR)
        one.call("status")  # it has come
        h.send(wire.STDIN, b"\n")
        assert not w.finish().is_error and not sender.finish().is_error
        sender.close()
        assert one.wait_process(f"{name}-p", deadline=10).status == 0


@pytest.mark.parametrize("is_held", [True, False])
def test_an_end_of_file_for_a_terminal_that_waits(one, name, is_held):
    with hold(one, name) as h, request(one, "terminal.open", session=name, id=f"{name}-t", arg="cat") as w:
        if not is_held:
            h.send(wire.STDIN, b"\n")
        w.send(wire.STDIN, b"")
        if is_held:
            wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
            h.send(wire.STDIN, b"\n")
        w.sock.settimeout(10)
        assert w.finish().status == 0


# ---- ids and queues --------------------------------------------------------------------------


def test_the_id_of_what_left_is_free_though_somebody_looked_on(one, name):
    # given a command in the queue, and a client that waits for its end, when its own client leaves, then the id is free
    id = f"{name}-x"
    with hold(one, name) as h:
        with request(one, "exec", "echo first", session=name, id=id):
            wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
            w = request(one, "wait", id=id)
            one.call("status")  # it has come
        assert w.finish().get("verdict") == "killed_by_client"
        w.close()
        with request(one, "exec", "echo again", session=name, id=id) as x:
            wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
            h.send(wire.STDIN, b"\n")
            a = x.finish()
            assert (a.status, a.out) == (0, b"again\n"), a


def test_a_purge_leaves_nobody_waiting():
    # given a configured session and another one, with a command that runs and others that wait; when all is purged;
    # then these never run, and nothing is known of them
    with Box(ini={"session:dev": {}}) as box:
        box.session("s")
        for n in "dev", "s":
            box.call("exec", text="true", session=n)
        held = [request(box, "exec", "sleep 100", session=n) for n in ("dev", "s")]
        for w in held:
            w.finish(until=lambda r: r.notes)
        waiting = [request(box, verb, "touch never", session=n, id=f"{verb}-{n}")
                   for n in ("dev", "s") for verb in ("exec", "start")]
        wait_until(lambda: show(box, "dev")["queue"] == show(box, "s")["queue"] == 2, 5, "they wait")
        box.call("purge")
        ends = [w.finish() for w in held + waiting]
        assert [a.get("verdict", a.get("code")) for a in ends] == [
            "killed_by_client", "killed_by_client", "spawn_failed", "system", "spawn_failed", "system"], ends
        assert box.call("ps").rows == []
        assert box.exec("echo on", "dev").out == b"on\n"
        assert not (box.work / "never").exists()
        for w in held + waiting:
            w.close()
