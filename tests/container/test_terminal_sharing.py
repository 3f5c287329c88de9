"""Terminals that belong to their opener (`hang_up`) or to their session (`shared`), and where the
replay of a view ends (note `live`)."""

import pytest

from rig import wire
from rig.places import make_session
from rig.verbs import nap
from rig.wait import wait_until


@pytest.fixture(autouse=True)
def no_terminal_stays(one):
    yield
    one.call("kill-all", grace_ms="0")


def listed(box):
    return box.call("ps", kind="terminal").rows


def opened(box, *pairs):
    """A connection that looks at a terminal, whose first note has come, and that note."""
    w = wire.Wire(box.socket).request("terminal.open", pairs)
    a = w.finish(until=lambda a: a.notes)
    assert a.notes, a
    return w, a.notes[0]


def seen(w, what):
    """Everything until some output has come."""
    return w.finish(until=lambda a: what in a.out)


def typed(w, text):
    w.send(wire.STDIN, text)
    return w


# ---- hang_up ----


def test_a_terminal_hangs_up_with_its_opener(one):
    # given a shell with a job, one that ignores the hang-up, and a daemon
    before = {r["id"] for r in listed(one)}
    sleep = nap(one)
    w, note = opened(one, ("hang_up", "1"), ("arg", "sh"))
    typed(w, f"{sleep} & (trap '' HUP TERM; {sleep}; {sleep}) & "
             f"setsid {sleep} & echo rea''dy\n")
    seen(w, b"ready\r\n")
    wait_until(lambda: len([p for p in one.find(sleep) if p.command.startswith("sleep")]) == 3, 10,
               "the three run")
    # when the connection closes
    w.close()
    # then all are gone, and nothing is left of it
    wait_until(lambda: not one.find(sleep), 20, "the tree is gone")
    wait_until(lambda: {r["id"] for r in listed(one)} == before, 20, "it is forgotten")


def test_the_end_of_a_terminal_that_would_hang_up(one):
    w, note = opened(one, ("hang_up", "1"), ("arg", "sh"), ("arg", "-c"), ("arg", "echo out; exit 3"))
    a = w.finish()
    assert (a.out, a.status, a["verdict"]) == (b"out\r\n", 3, "exited")
    wait_until(lambda: note["id"] not in {r["id"] for r in listed(one)}, 10, "it is forgotten")
    # killed by somebody else, with a second viewer
    w, note = opened(one, ("hang_up", "1"), ("arg", "sh"))
    other = wire.Wire(one.socket).request("terminal.attach", [("id", note["id"])])
    other.finish(until=lambda a: a.notes)
    one.call("kill", id=note["id"], grace_ms="0")
    assert w.finish()["verdict"] == other.finish()["verdict"] == "killed_by_client"
    # what never ran
    a = wire.call(one.socket, "terminal.open", [("hang_up", "1"), ("arg", "/no/such/shell")])
    assert (a["verdict"], a["step"], a.status) == ("spawn_failed", "exec", 127)
    # a viewer of it has no say
    w, note = opened(one, ("hang_up", "1"), ("arg", "sh"))
    other = wire.Wire(one.socket).request("terminal.attach", [("id", note["id"])])
    other.finish(until=lambda a: a.notes)
    other.close()
    seen(typed(w, "echo al''ive\n"), b"alive\r\n")
    one.call("kill-all", grace_ms="0")
    assert w.finish()["verdict"] == "killed_by_client"


def test_one_that_waits_for_its_session_leaves_with_its_opener(one):
    name = make_session(one).name
    with wire.Wire(one.socket) as busy:
        busy.request("exec", [("session", name)], nap(one)).finish(until=lambda a: a.notes)
        w = wire.Wire(one.socket).request("terminal.open", [("session", name), ("hang_up", "1")])
        wait_until(lambda: len(one.call("session.show", name=name).rows) == 1, 10, "it waits")
        w.close()
        wait_until(lambda: not one.call("session.show", name=name).rows, 10, "it has left")
    one.call("session.delete", name=name)


# ---- shared ----


def test_the_viewers_of_a_session_share_one_terminal(one):
    name = make_session(one).name
    one.call("exec", session=name, text="cd /tmp; X=kept")
    first, note = opened(one, ("session", name), ("shared", "1"))
    assert note["event"] == "started"
    seen(typed(first, "echo $X $PWD on''e\n"), b"kept /tmp one\r\n")
    # when another one comes it sees what was, then what comes, and both see both
    second = wire.Wire(one.socket).request("terminal.open", [("session", name), ("shared", "1")])
    a = second.finish(until=lambda a: len(a.notes) == 2)
    assert [n["event"] for n in a.notes] == ["attached", "live"] and a.notes[0]["id"] == note["id"]
    assert b"kept /tmp one\r\n" in a.out
    typed(second, "X=changed; echo tw''o\n")
    seen(first, b"two\r\n"), seen(second, b"two\r\n")
    # and it lives on without viewers
    first.close(), second.close()
    third, again = opened(one, ("session", name), ("shared", "1"))
    assert again["id"] == note["id"]
    seen(typed(third, "echo $X thr''ee\n"), b"changed three\r\n")
    # until its shell ends: then the next one that comes gets another
    assert typed(third, "exit 5\n").finish().status == 5
    fourth, other = opened(one, ("session", name), ("shared", "1"))
    assert other["event"] == "started" and other["id"] != note["id"]
    # and the session's end is its end
    one.call("session.delete", name=name)
    assert fourth.finish()["verdict"] == "killed_by_client"


def test_to_share_what_waits_for_the_session(one):
    name = make_session(one).name
    busy = wire.Wire(one.socket).request("exec", [("session", name)], nap(one))
    busy.finish(until=lambda a: a.notes)
    views = [wire.Wire(one.socket).request("terminal.open", [("session", name), ("shared", "1")])]
    wait_until(lambda: len(one.call("session.show", name=name).rows) == 1, 10, "it waits")
    views += [wire.Wire(one.socket).request("terminal.open", [("session", name), ("shared", "1")])
              for _ in range(2)]
    # the one that opened it may leave meanwhile
    views.pop(0).close()
    busy.send(wire.SIGNAL), busy.finish()
    notes = [v.finish(until=lambda a: len(a.notes) == 2).notes for v in views]
    assert {n[0]["id"] for n in notes} == {notes[0][0]["id"]}
    assert all([n["event"] for n in of] == ["attached", "live"] for of in notes)
    typed(views[0], "echo he''re\n")
    for v in views:
        seen(v, b"here\r\n")
    one.call("session.delete", name=name)


@pytest.mark.parametrize("args, why", [
    ({"shared": "1"}, "shared needs a session"),
    ({"hang_up": "1", "detached": "1"}, "hang_up goes with neither"),
    ({"hang_up": "1", "shared": "1"}, "hang_up goes with neither"),
])
def test_what_does_not_go_together(one, args, why):
    with pytest.raises(wire.WireError, match=why):
        one.call("terminal.open", **args)


# ---- the end of a replay ----


def test_live_comes_behind_the_whole_replay(one):
    # given more output than is replayed, of a terminal that goes on writing
    w, note = opened(one, ("arg", "sh"), ("arg", "-c"),
                     ("arg", "stty raw -echo; yes abcdefghijklmno | head -c 400000; echo MARK; read x; "
                             "echo LIVE; read y"))
    seen(w, b"MARK\n")
    v = wire.Wire(one.socket).request("terminal.attach", [("id", note["id"])])
    a = v.finish(until=lambda a: len(a.notes) == 2)
    assert [n["event"] for n in a.notes] == ["attached", "live"]
    assert a.out.endswith(b"no\nMARK\n") and 250000 < len(a.out) <= 262144
    typed(v, "\n")
    assert seen(v, b"LIVE\n").out == b"LIVE\n"
    typed(v, "\n"), v.finish(), w.close()
    # one that has ended is replayed, too
    v = wire.Wire(one.socket).request("terminal.attach", [("id", note["id"])])
    a = v.finish()
    assert [n["event"] for n in a.notes] == ["attached", "live"] and a.out.endswith(b"MARK\nLIVE\n")
