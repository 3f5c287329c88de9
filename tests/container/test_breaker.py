"""Faults that came from combinations: each was seen once, and stays mended."""

import select

import pytest

from rig.box import Box
from rig.wait import wait_until
from rig.wire import WireError

# Without an answer nothing is touched: "$d/*" would be all there is.
FOLDER = "d=$(readlink /proc/$$/fd/1); d=${d%/out}; case $d in */run/s*) ;; *) exit 99 ;; esac; "


@pytest.fixture(scope="module")
def box():
    with Box("ns-root") as b:
        yield b


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
@pytest.mark.parametrize("ends", ["exit 3", "return 3", "kill -9 $$"])
def test_fork_of_a_bad_state_from_a_folder_that_is_gone_makes_no_session(box, shell, ends):
    """given: a session in a removed folder, whose user made its state one that cannot be run
    when: it is forked
    then: that is an error, and no session is there, neither half made nor starting for ever"""
    box.session("s", shell=shell)
    try:
        r = box.exec(f"mkdir gone; cd gone; rmdir ../gone; {FOLDER}"
                     f"__sb_dump() {{ printf '{ends}\\n# end\\n' >$d/state; }}", "s")
        assert r.status == 0, r
        with pytest.raises(WireError, match="state of 's'"):
            box.call("session.fork", name="s", new="f", deadline=10)
        assert [x["name"] for x in box.call("session.list").rows] == ["s"]
    finally:
        box.call("session.delete", name="f", check=False)
        box.call("session.delete", name="s", check=False)


STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def ask_create(b):
    """A session whose set-up goes on."""
    b.session("s")
    return "session.create", [("name", "n"), ("setup", "sleep 600")]


def ask_fork(b):
    """A session whose shell cannot be ready: its state waits for a FIFO."""
    b.session("s")
    r = b.exec(f"mkfifo gate; {FOLDER}__sb_dump() {{ printf 'read x <gate\\n# end\\n' >$d/state; }}", "s")
    assert r.status == 0, r
    return "session.fork", [("name", "s"), ("new", "n")]


def ask_reset(b):
    """A session whose end takes longer than the stop."""
    b.session("s")
    b.exec(f"({STUBBORN}) >deaf 2>&1 & until [ -s deaf ]; do sleep 0.01; done", "s")
    return "session.reset", [("name", "s")]


def ask_delete(b):
    ask_reset(b)
    return "session.delete", [("name", "s")]


def ask_kill(b):
    b.call("start", id="p", text=STUBBORN)
    return "kill", [("id", "p"), ("grace_ms", "9000")]


@pytest.mark.parametrize("ask", [ask_create, ask_fork, ask_reset, ask_delete, ask_kill])
def test_who_waits_hears_that_init_stops(ask):
    """given: a client that waits for a session to be made, forked, reset or deleted, or for a kill
    when: init stops
    then: it has an answer (that init stops, or the result that came with it), not just the end of
          its connection"""
    with Box("ns-root", ini={"init": {"stop_grace": "300ms"}, "sessions": {"kill_grace": "10s"}}) as b:
        verb, args = ask(b)
        with b.connect() as w:
            w.request(verb, args)
            if verb.startswith("session"):
                wait_until(lambda: any(r["name"] == "n" or r["state"] == "ending"
                                       for r in b.call("session.list").rows), 5, "it is at it")
            assert b.stop(deadline=10) == 0
            a = w.finish()
        assert a.is_complete, a
        if a.is_error:
            assert a.fields["code"] == "unavailable", a
            assert "init is stopping" in a.fields["message"]


def joined_calls(box, verb, *waits):
    """The same call several times, with waits of its own each (ms, None: no limit), while the session
    is held: the kind of each answer, and for how long it was waited."""
    calls, id = [], "-".join(map(str, (verb, *waits)))
    with box.connect() as holder:
        holder.request("exec", [("session", "q")], "echo up; read x <gate")
        holder.finish(until=lambda a: a.out)
        for ms in waits:
            w = box.connect()
            w.request(verb, [("session", "q"), ("id", id), ("wait_ms", ms)], "echo ran")
            calls.append(w)
            wait_until(lambda: box.call("session.show", name="q").rows or select.select([w], [], [], 0)[0], 5,
                       "it waits, or its time is over")
        limited = [w.finish() for w, ms in zip(calls, waits) if ms is not None]
        rows = box.call("session.show", name="q").rows
        (box.work / "gate").write_text("go\n")
        assert holder.finish().fields["verdict"] == "exited"
    patient = [w.finish() for w, ms in zip(calls, waits) if ms is None]
    for w in calls:
        w.close()
    return limited, patient, rows


@pytest.mark.parametrize("verb", ["exec", "start"])
@pytest.mark.parametrize("waits", [
    ("150", None), (None, "150"), (None, "0"), ("150", None, "0", "50"), (None, "1", "1", None),
    ("50", "300"), ("300", "50", "0")])
def test_each_client_of_one_id_waits_as_long_as_it_says(box, verb, waits):
    """given: a session that is held, and several clients of one call under one id, each with its own
              --wait-for, --no-wait or neither
    when: their times are over, then the session is free
    then: each one with a limit was refused at its own time; who has none got the answer; with nobody
          left the call has left the queue"""
    box.session("q")
    try:
        box.exec("rm -f gate; mkfifo gate", "q")
        limited, patient, rows = joined_calls(box, verb, *waits)
        times = [int(ms) / 1000 for ms in waits if ms is not None]
        for a, s in zip(limited, times):
            assert a.is_error and a.fields["code"] == "busy", a
            assert s - 0.02 <= a.seconds, (s, a)
        assert limited[times.index(min(times))].seconds < min(times) + 10
        assert not any(a.is_error for a in patient) and len({a["pid"] for a in patient if verb == "start"}) <= 1
        if verb == "exec":
            assert [(a.out, a["status"]) for a in patient] == [(b"ran\n", 0)] * len(patient)
        assert len(rows) == bool(patient)
    finally:
        box.call("session.delete", name="q", check=False)
