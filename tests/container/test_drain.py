"""exec with drain, joining by an id alone, and purge: what HTTP needs of init (docs/control-protocol.md)."""

import pytest

from rig.box import Box
from rig.verbs import fresh_name, make, nap
from rig.wait import wait_until
from rig.wire import Wire, WireError


@pytest.fixture(params=["ns-root", "runc-user"], scope="module")
def place_box(request):
    """A box of its own: others would miss what is purged."""
    with Box(request.param, ini={"sessions": {"kill_grace": "500ms"}}) as box:
        yield box


def running(box, text):
    return [p for p in box.processes() if p.command == text and p.state != "Z"]


def test_drain_waits_for_who_holds_the_output(one):
    # given a program that leaves a child with its output; when drain is asked for; then the result
    # comes with the child's end, and without it at the program's
    text = "(sleep 0.3; echo late; exit 3) & echo now"
    a = one.call("exec", text=text, drain=1)
    assert (a.status, a.out, a["drained"]) == (0, b"now\nlate\n", True)
    a = one.call("exec", text=f"({nap(one)}; echo late) & echo now")
    assert a.out == b"now\n" and not a["drained"]
    one.call("kill", id=a["id"])


def test_drain_and_closed_output(one):
    # given programs that close their output before their end, or hold none; then drain waits for them
    assert one.call("exec", text="exec >&- 2>&-; sleep 0.1; exit 4", drain=1).status == 4
    sleep = nap(one)
    a = one.call("exec", text=f"{sleep} >/dev/null 2>&1 & exit 5", drain=1)
    assert a.status == 5 and not a["quiescent"]
    wait_until(lambda: running(one, sleep), 15, "the child lives")  # it may be about to become sleep
    one.call("kill", id=a["id"])
    assert not running(one, sleep)


def test_drain_kill_of_what_is_left(one):
    # given a program that has ended, and a child that holds its output; when it is killed by its id;
    # then that is its end
    id, sleep = fresh_name(), nap(one)
    with Wire(one.socket) as w:
        w.request("exec", [("id", id), ("drain", "1")], f"{sleep} & echo $!")
        a = w.finish(until=lambda a: a.out)
        wait_until(lambda: running(one, sleep), 15, "the child runs")
        wait_until(lambda: one.call("ps", kind="exec").rows[0]["pid"] == 0, 15, "the program has ended")
        one.call("kill", id=id)
        a = w.finish(a)
    assert (a.status, a["verdict"], a["drained"]) == (137, "killed_by_client", True)
    assert not running(one, sleep)


def test_drain_of_a_client_that_leaves(one):
    # given the same, whose client leaves; then the child is killed with what it belongs to
    sleep = nap(one)
    with Wire(one.socket) as w:
        w.request("exec", [("drain", "1")], f"{sleep} & echo $!")
        w.finish(until=lambda a: a.out)
        wait_until(lambda: running(one, sleep), 15, "the child runs")
    wait_until(lambda: not running(one, sleep), 15, "it is gone")


def test_start_comes_before_output(one):
    # given programs that write at once; then their start is told before it
    for _ in range(20):
        with Wire(one.socket) as w:
            w.request("exec", [("arg", "echo"), ("arg", "x")])
            assert w.receive()[0] == b"n"
            w.finish()


def test_joining_by_id_alone(one, name):
    # given a command and a program that are over; when only their id is known; then they are joined
    for args in ([("session", name), ("cwd", "/")], [("env", "A=1")]):
        id = fresh_name()
        with Wire(one.socket) as w:
            first = w.request("exec", [("id", id), *args], "printf 0123; exit 3").finish()
        again = one.call("exec", id=id, **{"from": 2})
        assert (again.status, again.out, again["verdict"]) == (3, b"23", "exited")
        assert again.notes[0] == {**first.notes[0], "joined": True}
    with pytest.raises(WireError) as e:
        one.call("exec", id=fresh_name(), **{"from": 0})
    assert e.value.code == "not_found"


def test_purge(place_box):
    # given sessions, commands, waiters, programs, processes, a terminal and ended ones; when all is
    # purged; then nothing is left, and ids are free
    box = place_box
    name, sleep = make(box), nap(box)
    kept, process = fresh_name(), fresh_name()
    box.call("exec", text="echo x", id=kept)
    box.call("start", text=f"{sleep} & {sleep}", session=name)
    box.call("start", text="echo over", id=process)
    box.call("wait", id=process)
    box.call("terminal.open", detached=1)
    with Wire(box.socket) as a, Wire(box.socket) as b, Wire(box.socket) as c:
        a.request("exec", [("session", name)], f"{sleep}; :").finish(until=lambda r: r.notes)
        b.request("exec", [], f"{sleep} & {sleep}").finish(until=lambda r: r.notes)
        c.request("exec", [("session", name)], "touch never")
        wait_until(lambda: box.call("session.show", name=name)["queue"] == 1, 15, "one waits")
        wait_until(lambda: len(running(box, sleep)) == 5, 15, "all have begun to sleep")
        r = box.call("purge")
        assert r["sessions"] >= 1 and r["processes"] >= 2 and r["killed"] >= 6 and "survivors" not in r.fields
        ends = [w.finish() for w in (a, b, c)]
    assert [e.get("verdict") for e in ends] == ["killed_by_client", "killed_by_client", "spawn_failed"]
    assert not running(box, sleep) and not (box.work / "never").exists()
    wait_until(lambda: box.call("ps").rows == [], 15, lambda: f"no record is left: {box.call('ps').rows}")
    assert box.call("session.list").rows == []
    assert box.call("exec", text="echo y", id=kept).out == b"y\n"
    assert box.call("start", text="echo z", id=process)["id"] == process


def test_purge_of_nothing(place_box):
    for _ in range(2):
        r = place_box.call("purge")
    assert (r["sessions"], r["processes"], r["killed"]) == (0, 0, 0)
