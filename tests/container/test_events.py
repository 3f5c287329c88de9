"""Events: every kind once, numbers without a gap, any number of followers, loss that is said."""

import json
import re
import signal
import time

import pytest

from rig.box import Box, build_dir, shell_path
from rig.quiet import wait_quiet
from rig.verbs import data, end, fresh_name, make, nap, refused, show, start
from rig.wait import wait_until
from rig.wire import WireError, parse_record


def events(box, *options):
    """What the verb prints: a list of objects."""
    r = box.ctl_ok("events", *options)
    assert r.err == b""
    return [json.loads(line) for line in r.out.splitlines()]


def mark(box):
    """The number that the next event will have."""
    return box.call("events", tail=0)["next"]


def since(box, number, **wanted):
    """Events from a number on that have these fields, without number and time."""
    return [{k: v for k, v in e.items() if k not in ("number", "time")}
            for e in events(box, "--from", number)
            if all(e.get(k) == v for k, v in wanted.items())]


def whats(found):
    return [e["what"] for e in found]


class Follower:
    """`sandboxctl events -f`; what it has printed so far is in seen."""

    live = []

    def __init__(self, box, *options):
        self.p = box.ctl_spawn("events", "-f", *options)
        self.seen = []
        self.live.append(self)

    def until(self, *words):
        """Read until an event of this kind and what; returns it."""
        while True:
            line = self.p.stdout.readline()
            assert line, f"the end before {words}; seen: {self.seen[-5:]}"
            self.seen.append(json.loads(line))
            if (self.seen[-1]["kind"], self.seen[-1].get("what")) == words:
                return self.seen[-1]

    def end(self):
        """Read to the end; returns the exit status."""
        out, err = self.p.communicate(timeout=15)
        self.seen += [json.loads(line) for line in out.splitlines()]
        assert err == b"", err
        return self.p.returncode

    def close(self):
        self.p.kill()
        self.p.communicate()


@pytest.fixture(autouse=True)
def no_follower_is_left():
    """A test that fails leaves none to the shared box of the next one."""
    yield
    while Follower.live:
        Follower.live.pop().close()


def run_many(box, name, n, text="true"):
    for _ in range(n):
        box.call("exec", session=name, text=text)


# ---- each kind -------------------------------------------------------------------------------


def test_the_first_event_and_its_shape(box):
    with Box(box.kind, ini={"session:dev": {}}) as own:
        first, *others = events(own)
        assert set(first) == {"number", "time", "kind", "what", "version", "pid"}
        assert (first["number"], first["kind"], first["what"]) == (1, "init", "started")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
        at = time.strptime(first["time"][:19], "%Y-%m-%dT%H:%M:%S")
        assert abs(time.time() - (time.mktime(at) - time.timezone)) < 60
        assert [e["what"] for e in others if e["kind"] == "session"][0] == "created"
        assert all(e["session"] == "dev" for e in others)


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_the_life_of_a_session(one, shell):
    n, at = fresh_name(), mark(one)
    one.ctl_ok("session", "create", n, "--shell", shell_path(shell))
    one.ctl("exec", "-s", n, "exit 3")
    one.ctl("exec", "-s", n, "kill -9 $$")
    one.ctl_ok("exec", "-s", n, "true")
    one.ctl_ok("session", "reset", n)
    one.ctl_ok("session", "delete", n)
    found = since(one, at, kind="session", session=n)
    assert whats(found) == ["created", "ready", "restarted", "ready", "restarted", "ready", "reset",
                            "ready", "deleted"]
    assert found[0]["shell"] == shell_path(shell)
    assert [e["state"] for e in found if e["what"] == "restarted"] == ["restored", "lost"]
    pids = [e["pid"] for e in found if e["what"] == "ready"]
    assert len(set(pids)) == 4
    assert found[6]["killed"] >= 1 and found[8] == {
        "kind": "session", "what": "deleted", "session": n, "killed": 1, "survivors": 0}


def test_a_session_that_fails():
    with Box(ini={"session:dev": {"shell": "/nonexistent"}}) as box:
        wait_until(lambda: show(box, "dev")["state"] == "failed", 5)
        found = since(box, 1, kind="session", session="dev")
        assert whats(found) == ["created", "failed"] and "/nonexistent" in found[1]["why"]
        at = mark(box)
        box.ctl("session", "create", "x", "--shell", "/bin/false")
        found = since(box, at, session="x")
        assert whats(found) == ["created", "failed"] and "/bin/false" in found[1]["why"]


ENDS = [
    ("true", [], {"verdict": "exited", "status": 0}),
    ("exit 7", [], {"verdict": "exited", "status": 7}),
    ("sleep 60", ["--timeout", "100ms"], {"verdict": "timeout", "status": 124}),
    ("kill -9 $$", [], {"verdict": "signaled", "status": 137, "signal": "SIGKILL"}),
]
ENDS_IN_SESSION = [
    ("sh -c 'kill -TERM $$'", [], {"verdict": "exited", "status": 143, "signal": "SIGTERM"}),
    ("true", ["--cwd", "/nonexistent"], {"verdict": "spawn_failed", "status": 125, "step": "cwd"}),
]


@pytest.mark.parametrize("has_session, text, options, ended", [
    *((True, *end) for end in ENDS + ENDS_IN_SESSION), *((False, *end) for end in ENDS)])
def test_the_life_of_a_command(one, name, has_session, text, options, ended):
    at = mark(one)
    where = ["-s", name] if has_session else []
    status = one.ctl("exec", *where, *options, text).status
    first, last = since(one, at, kind="command")
    assert (first["what"], first["text"], last["what"]) == ("started", text, "ended")
    assert first["id"] == last["id"] and first["pid"] > 1
    assert first.get("session") == last.get("session") == (name if has_session else None)
    assert {k: last[k] for k in ended} == ended and last["status"] == status
    assert 0 <= last["duration_ms"] < 30_000


def test_a_command_that_waits_and_is_killed(one, name):
    at = mark(one)
    holder = one.ctl_spawn("exec", "-s", name, nap(one))
    wait_until(lambda: show(one, name)["state"] == "busy", 5)
    waiters = []
    for i in range(3):
        waiters.append(one.ctl_spawn("exec", "-s", name, f"echo {i}"))
        wait_until(lambda: show(one, name)["queue"] == i + 1, 5)
    waiters[1].kill()
    wait_until(lambda: show(one, name)["queue"] == 2, 5, "it has left")
    one.ctl_ok("kill", "--running", name)
    assert [end(p)[0] for p in (holder, waiters[0], waiters[2])] == [137, 0, 0]
    found = since(one, at, kind="command", session=name)
    queued = [e for e in found if e["what"] == "queued"]
    assert [(e["before"], e["text"]) for e in queued] == [(i + 1, f"echo {i}") for i in range(3)]
    lives = {e["id"]: whats(x for x in found if x["id"] == e["id"]) for e in found}
    assert list(lives.values()) == [["started", "ended"], ["queued", "started", "ended"],
                                    ["queued", "ended"], ["queued", "started", "ended"]]
    ends = {e["id"]: e["verdict"] for e in found if e["what"] == "ended"}
    assert list(ends.values()) == ["killed_by_client"] * 2 + ["exited"] * 2


@pytest.mark.parametrize("where", ["session", "alone"])
def test_the_life_of_a_process(box, where):
    n = make(box)
    at = mark(box)
    options = ["-s", n] if where == "session" else []
    id, pid = start(box, *options, "exit 5")
    box.ctl("wait", id)
    first, last = since(box, at, kind="process")
    assert first == {"kind": "process", "what": "started", "id": id, "pid": pid, "text": "exit 5",
                     **({"session": n} if options else {})}
    assert (last["what"], last["id"], last["verdict"], last["status"]) == ("ended", id, "exited", 5)
    id, _ = start(box, *options, nap(box))
    box.ctl_ok("kill", id)
    assert since(box, at, id=id)[-1]["verdict"] == "killed_by_client"
    at = mark(box)
    r = box.ctl("start", *options, "--", "/nonexistent/x")
    assert r.status == (0 if options else 1)
    if options:  # the session's shell looks for it
        box.ctl("wait", r.out.decode().split()[0])
    last = since(box, at, kind="process")[-1]
    assert (last["what"], last["status"]) == ("ended", 127)
    assert last["verdict"] == ("exited" if options else "spawn_failed")
    box.ctl_ok("session", "delete", n)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_the_life_of_a_stray(one, shell):
    # given commands and a process that leave something behind
    n = fresh_name()
    one.ctl_ok("session", "create", n, "--shell", shell_path(shell), "--cwd", one.work)
    first, second = nap(one), nap(one)
    at = mark(one)
    one.ctl_ok("exec", "-s", n, f"{first} &")
    one.ctl_ok("exec", "-s", n, f"setsid {second} & true")
    one.ctl_ok("exec", "-s", n, "true")
    pids = {t: wait_until(lambda: one.find(t), 5, "it runs")[0].inner for t in (first, second)}
    left = since(one, at, kind="stray")
    assert [(e["what"], e["session"], e["pid"]) for e in left] == [
        ("left", n, pids[first]), ("left", n, pids[second])], "each is told once"
    ids = [e["id"] for e in since(one, at, kind="command", what="started")]
    assert [e["id"] for e in left] == ids[:2] and all(e["name"] for e in left)
    # when one ends, then that is told at once, without a look from anybody
    f = Follower(one, "--from", mark(one), "--kind", "stray")
    one.signal(signal.SIGKILL, one.host_pid(pids[first]))
    assert f.until("stray", "ended")["pid"] == pids[first]
    one.ctl_ok("session", "delete", n)
    assert f.until("stray", "ended") == {**f.seen[-1], "pid": pids[second], "id": ids[1]}
    f.close()


def test_the_strays_of_a_process(one):
    at, text = mark(one), nap(one)
    id, _ = start(one, f"setsid {text} & sleep 0.05")
    one.ctl("wait", id)
    one.ctl_ok("kill", id)
    found = wait_until(lambda: len(f := since(one, at, kind="stray")) == 2 and f, 5, "both told")
    assert [(e["what"], e["id"]) for e in found] == [("left", id), ("ended", id)]


def test_many_strays_are_told_within_bounds(one):
    n, at = fresh_name(), mark(one)
    one.ctl_ok("session", "create", n, "--cwd", one.work)
    before = one.fds()
    one.ctl_ok("exec", "-s", n, "for i in {1..60}; do sleep 300 & done")
    assert len(since(one, at, kind="stray")) == 32 and one.fds() - before < 50
    one.ctl_ok("session", "delete", n)
    wait_until(lambda: len(since(one, at, kind="stray", what="ended")) == 32, 5, "all have ended")
    wait_until(lambda: one.fds() <= before, 5, "no descriptor is left")


def test_the_life_of_a_terminal(one, name):
    at, id = mark(one), f"{name}-t"
    one.ctl_ok("terminal", "--detached", "-s", name, "--id", id, "--", "cat")
    w = one.connect()
    w.request("terminal.attach", [("id", id)])
    assert w.receive()[0] == b"n"
    w.close()
    wait_until(lambda: whats(since(one, at, id=id))[-1] == "detached", 5, "the viewer has left")
    one.ctl_ok("terminal", "kill", id)
    found = since(one, at, id=id)
    assert [(e["kind"], e["what"], e.get("viewers")) for e in found] == [
        ("terminal", "opened", None), ("terminal", "attached", 1), ("terminal", "detached", 0),
        ("terminal", "ended", None)]
    assert all(e["session"] == name for e in found) and found[0]["text"] == "cat"
    assert found[0]["pid"] > 1 and found[3]["verdict"] == "killed_by_client"


def test_reload():
    with Box() as box:
        at = mark(box)
        box.ctl_ok("reload")
        box.write_ini({"init": {"max_connections": "99", "control_socket": str(box.run / "x")}})
        box.ctl_ok("reload")
        box.write_ini({"init": {"no_such_key": "1"}})
        assert box.ctl("reload").status == 1
        box.signal(signal.SIGHUP)
        found = wait_until(lambda: len(f := since(box, at, kind="reload")) == 4 and f, 5)
        assert [(e["what"], e.get("changed"), e.get("restart_needed")) for e in found] == [
            ("done", 0, 0), ("done", 1, 1), ("failed", None, None), ("failed", None, None)]
        assert all("no_such_key" in e["why"] for e in found[2:])


@pytest.mark.parametrize("how, why", [
    (lambda box: box.signal(signal.SIGTERM), "SIGTERM"),
    (lambda box: box.signal(signal.SIGINT), "SIGINT"),
    (lambda box: box.call("shutdown"), "shutdown"),
], ids=["term", "int", "shutdown"])
def test_stop(how, why):
    with Box() as box:
        box.session("s")
        f = Follower(box, "--from", mark(box))
        text = nap(box)
        p = box.ctl_spawn("exec", "-s", "s", text)
        wait_until(lambda: any(q.comm == "sleep" for q in box.find(text)), 5, "it sleeps")
        f.until("command", "started")  # it follows
        how(box)
        # then the follower hears all of it, up to the very last, and ends well
        assert f.end() == 0
        p.communicate()
        stops = [e for e in f.seen if e["kind"] == "stop"]
        assert [(e["what"], e.get("why")) for e in stops] == [("begun", why), ("done", None)]
        assert stops[0]["grace_ms"] == 8000 and stops[1]["code"] == 0
        assert f.seen[-1] == stops[1]
        assert any(e["kind"] == "command" and e["what"] == "ended" for e in f.seen)


def test_stop_that_is_hurried():
    with Box() as box:
        f = Follower(box, "--kind", "stop")
        id, _ = start(box, "trap '' TERM; echo up; while :; do sleep 0.05; done")
        wait_until(lambda: box.ctl("logs", id).out == b"up\n", 5)
        box.call("shutdown", grace_ms=60_000)
        f.until("stop", "begun")  # it follows
        box.call("shutdown", grace_ms=100)
        assert f.end() == 0
        assert [(e["what"], e.get("grace_ms")) for e in f.seen] == [
            ("begun", 60_000), ("hurried", 100), ("done", None)]


@pytest.mark.parametrize("main, ended", [
    (["sh", "-c", "read x <go; exit 9"], {"status": 9}),
    (["sh", "-c", "read x <go; kill -KILL $$"], {"status": 137, "signal": "SIGKILL"}),
])
def test_main(main, ended):
    with Box(main=main, before=["sh", "-c", 'mkfifo go; exec "$@"', "sh"]) as box:
        f = Follower(box)
        begun = f.until("main", "started")
        assert begun["command"] == "sh" and begun["pid"] > 1
        (box.work / "go").write_text("\n")
        assert f.end() == 0
        last = next(e for e in f.seen if (e["kind"], e["what"]) == ("main", "ended"))
        assert {k: last[k] for k in ended} == ended
        assert whats(f.seen)[-3:] == ["ended", "begun", "done"]
        assert f.seen[-2]["why"] == "main ended" and f.seen[-1]["code"] == ended["status"]


def test_main_that_cannot_be_started():
    with Box(main=["/nonexistent/main"], ready=False) as box:
        assert box.wait() == 127


# ---- numbers and followers -------------------------------------------------------------------


def test_many_followers_see_the_same_numbers_without_a_gap(one, name):
    # given followers that begin at different places, while commands run in several sessions; none
    # begins with the oldest event, which is the next one that a full ring loses
    begin = max(events(one)[0]["number"], mark(one) - 100)
    followers = [Follower(one, "--from", begin) for _ in range(8)]
    names = [name, *[make(one) for _ in range(2)]]
    for i in range(5):
        clients = [one.ctl_spawn("exec", "-s", n, f"echo {i}") for n in names]
        followers.append(Follower(one, "--from", mark(one) - i))
        followers.append(Follower(one))
        assert [end(p)[0] for p in clients] == [0, 0, 0]
    for n in names[1:]:
        one.ctl_ok("session", "delete", n)
    for f in followers:
        while f.until("session", "deleted")["session"] != names[-1]:
            pass
    last = max(e["number"] for e in followers[0].seen)
    reference = {}
    for f in followers:
        assert [e["number"] for e in f.seen] == list(range(f.seen[0]["number"], last + 1))
        assert all(reference.setdefault(e["number"], e) == e for e in f.seen)
        f.close()
    assert all(f.seen[0]["number"] == begin for f in followers[:8])
    # and one that comes later sees the same
    late = {e["number"]: e for e in events(one, "--from", begin) if e["number"] <= last}
    assert late == {n: e for n, e in reference.items() if n >= begin}


def test_an_event_comes_at_once(one, name):
    f = Follower(one, "--from", mark(one))
    one.ctl_ok("exec", "-s", name, "echo x")
    begun = time.monotonic()
    f.until("command", "ended")
    assert time.monotonic() - begun < 8
    f.close()
    wait_until(lambda: one.status()["connections"] == 1, 5, "a follower that is gone is forgotten")


@pytest.mark.parametrize("options, wanted", [
    (["--kind", "session"], lambda e, n: e["kind"] == "session"),
    (["-k", "session", "-k", "process"], lambda e, n: e["kind"] in ("session", "process")),
    (["-s", "NAME"], lambda e, n: e.get("session") == n),
    (["-s", "NAME", "-k", "command"], lambda e, n: e.get("session") == n and e["kind"] == "command"),
    (["-s", "nowhere"], lambda e, n: False),
    (["--tail", "5"], lambda e, n: True),
    (["-n", "0"], lambda e, n: False),
    (["--tail", "99999999"], lambda e, n: True),
    (["--json"], lambda e, n: True),
])
def test_filters(one, name, options, wanted):
    one.ctl_ok("exec", "-s", name, "true")
    one.ctl_ok("exec", "true")
    one.ctl("wait", start(one, "-s", name, "true")[0])
    everything = events(one)
    expected = [e for e in everything if wanted(e, name)]
    if "5" in options:
        expected = expected[-5:]
    assert events(one, *[name if o == "NAME" else o for o in options]) == expected
    if expected:
        assert expected[-1]["number"] >= mark(one) - 12


@pytest.mark.parametrize("options, wanted", [
    (["--kind", "session"], lambda e, n: e["kind"] == "session"),
    (["-k", "process", "-k", "stray"], lambda e, n: e["kind"] in ("process", "stray")),
    (["-s", "NAME"], lambda e, n: e.get("session") == n),
    (["-s", "NAME", "-k", "command"], lambda e, n: e.get("session") == n and e["kind"] == "command"),
    (["-s", "nowhere"], lambda e, n: False),
    (["-k", "init"], lambda e, n: e["kind"] == "init"),
])
@pytest.mark.parametrize("tail", [0, 1, 2, 99999999])
def test_the_tail_is_of_the_events_that_the_filters_want(one, name, options, wanted, tail):
    # given a few events of each kind, and many of another that are newer
    one.ctl_ok("exec", "-s", name, "true")
    one.ctl_ok("exec", "-s", name, "true")
    one.ctl("wait", start(one, "-s", name, "true")[0])
    for _ in range(5):
        one.ctl_ok("exec", "true")
    options = [name if o == "NAME" else o for o in options]
    expected = [e for e in events(one) if wanted(e, name)]
    expected = expected[-tail:] if tail else []
    assert events(one, *options, "--tail", tail) == expected


def test_a_follower_begins_with_the_tail_that_its_filters_want(one, name):
    one.ctl_ok("exec", "-s", name, "true")
    for _ in range(5):
        one.ctl_ok("exec", "true")
    f = Follower(one, "-s", name, "--tail", "1")
    first = f.until("command", "ended")
    assert f.seen == [first] and first["session"] == name
    one.ctl_ok("exec", "true")
    one.ctl_ok("exec", "-s", name, "true")
    f.until("command", "ended")
    assert [e["what"] for e in f.seen] == ["ended", "started", "ended"]
    assert {e["session"] for e in f.seen} == {name}
    f.close()


# ---- loss ------------------------------------------------------------------------------------


SMALL = {"init": {"events_keep": "4K"}}


def test_from_a_number_that_is_gone():
    with Box(ini=SMALL) as box:
        box.session("s")
        run_many(box, "s", 60)
        kept = events(box)
        first, next_ = kept[0]["number"], mark(box)
        assert [e["number"] for e in kept] == list(range(first, next_)) and 10 < len(kept) < 60
        for start_ in (1, 2, first - 1):
            lost, *rest = events(box, "--from", start_)
            assert lost == {"kind": "lost", "from": start_, "to": first - 1}
            assert rest == kept
        assert events(box, "--from", first) == kept
        assert events(box, "--from", next_ - 1) == kept[-1:]
        assert events(box, "--from", next_) == []


def test_a_slow_follower_loses_some_and_hears_of_it():
    # given two followers of which one reads nothing for a while, when more happens than the ring
    # and the socket hold, then it delays nobody, and what it gets is in order: numbers and losses
    # without a gap
    with Box(ini={"init": {"events_keep": "4K", "client_stall": "60s"}}) as box:
        box.session("s")
        with box.connect() as slow:
            slow.request("events", [("follow", "1"), ("from", "1")])
            slow.sock.setsockopt(1, 8, 2048)  # SOL_SOCKET, SO_RCVBUF
            text = "true #" + "x" * 1000
            rounds = 0
            while len([e for e in events(box) if e["number"] < 2]) or rounds < 15:
                begun = time.monotonic()
                run_many(box, "s", 100, text)
                assert time.monotonic() - begun < 30
                rounds += 1
            at, lost = 1, 0
            while at < mark(box):
                channel, payload = slow.receive()
                row = parse_record(payload)
                assert channel == b"l"
                if row["kind"] == "lost":
                    assert row["from"] == at and row["to"] >= at
                    at, lost = row["to"] + 1, lost + 1
                else:
                    assert row["number"] == at
                    at += 1
            assert lost >= 1


def test_a_follower_that_never_reads_delays_nobody():
    with Box(ini={"init": {"client_stall": "300ms"}}) as box:
        box.session("s")
        silent = [box.connect() for _ in range(5)]
        for w in silent:
            w.request("events", [("follow", "1")])
        text = "true #" + "x" * 1000

        def all_dropped():
            run_many(box, "s", 50, text)
            return box.status()["connections"] == 1

        wait_until(all_dropped, 30, "those who read nothing are dropped after client_stall")
        assert box.stop() == 0
        for w in silent:
            w.close()


def test_reload_changes_what_is_kept():
    with Box(ini=SMALL) as box:
        box.session("s")
        run_many(box, "s", 60)
        f = Follower(box, "--tail", "3")
        f.until("command", "ended")
        before = events(box)
        # when the ring grows, then what there was is still there, and more stays
        box.write_ini({"init": {"events_keep": "1M"}})
        box.ctl_ok("reload")
        run_many(box, "s", 60)
        more = events(box)
        assert more[:len(before)] == before and len(more) == len(before) + 121
        # when it shrinks, then the newest stay
        box.write_ini(SMALL)
        box.ctl_ok("reload")
        less = events(box)
        assert less[:-1] == more[-len(less) + 1:] and 10 < len(less) < 60
        assert less[-1]["kind"] == "reload"
        run_many(box, "s", 3)
        # and a follower has noticed nothing
        while f.seen[-1]["number"] < mark(box) - 1:
            f.until("command", "ended")
        assert [e["number"] for e in f.seen] == list(range(f.seen[0]["number"], mark(box)))
        f.close()


# ---- what is in them -------------------------------------------------------------------------


def test_no_environment_is_told(one, name):
    at = mark(one)
    one.ctl_ok("session", "env", name, "TOKEN=s3cret1")
    one.ctl_ok("exec", "-s", name, "--env", "TOKEN=s3cret2", "true")
    one.ctl_ok("exec", "--env", "TOKEN=s3cret3", "true")
    one.ctl("wait", start(one, "-s", name, "--env", "TOKEN=s3cret4", "true")[0])
    n = fresh_name()
    one.ctl_ok("session", "create", n, "--env", "TOKEN=s3cret5")
    one.ctl_ok("session", "delete", n)
    found = json.dumps(since(one, at))
    assert "s3cret" not in found


@pytest.mark.parametrize("text", [
    "true # ä€🙂 \"quotes\" \\ \t\x1b[31m", "true\n\n# lines\n", "true #" + "x" * 100_000,
    "true #" + "ä" * 5000, "true #x" + "ä" * 5000, "true #" + "€" * 5000, "true #" + "🙂" * 5000,
    b"true # \xff\xfe\xc3", b"true #" + b"\xff" * 5000, b"true #" + b"\x80" * 300,
], ids=range(10))
def test_any_text_is_json(one, name, text):
    at = mark(one)
    raw = text if isinstance(text, bytes) else text.encode()
    one.ctl_ok("exec", "-s", name, "-", input=raw)
    told = since(one, at, what="started")[0]["text"]
    whole = raw.decode("utf-8", "replace")
    if len(raw) <= 200:
        assert told == whole
    else:
        assert told.endswith("…") and whole.startswith(told[:-1]) and len(told.encode()) <= 600
        assert isinstance(text, bytes) or len(told.encode()) >= 190


def test_argv_is_told_as_a_text(one, name):
    at = mark(one)
    one.ctl_ok("exec", "-s", name, "--", "echo", "a b", "$c")
    one.ctl_ok("exec", "--", "echo", "a b")
    assert [e["text"] for e in since(one, at, what="started")] == ["'echo' 'a b' '$c'", "echo a b"]


# ---- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("options, status, word", [
    (["--from", "0"], 1, "begin with 1"), (["--from", "99999999"], 1, "does not exist"),
    (["--from", str(2**63 - 1)], 1, "does not exist"), (["--from", str(2**63)], 2, "not a number"),
    (["--from", "9" * 50], 2, "not a number"), (["--from", "-1"], 2, "not a number"),
    (["--from", "x"], 2, "'x'"), (["--from", ""], 2, "''"), (["--from", "1.5"], 2, "1.5"),
    (["--from", "1", "--tail", "1"], 2, "exclude"), (["--tail", "-3"], 2, "-3"),
    (["--kind", "nothing"], 1, "session, command"), (["--kind", ""], 1, "session, command"),
    (["--kind", "lost"], 1, "session, command"), (["-s", "n" * 65], 1, "too long"),
    (["--kind"], 2, "needs a value"), (["word"], 2, "unexpected"), (["--form", "1"], 2, "--from"),
])
@pytest.mark.parametrize("follow", [[], ["-f"]], ids=["once", "follow"])
def test_refused(one, follow, options, status, word):
    r = one.ctl("events", *follow, *options, deadline=10)
    assert r.status == status and r.out == b"" and word in r.err.decode(), r


@pytest.mark.parametrize("args", [
    {"from": "-1"}, {"from": "x"}, {"from": ""}, {"from": "1", "tail": "1"}, {"tail": "-1"},
    {"from": "9" * 60}, {"kind": "x" * 5000}, {"session": "x" * 5000}, {"nonsense": "1"},
    {"kind": ["session", "what"]},
])
def test_refused_on_the_wire(one, args):
    with pytest.raises(WireError) as e:
        one.call("events", **args)
    assert e.value.code == "invalid" and "events" in e.value.message


def test_too_many_kinds_are_still_a_set(one):
    assert one.call("events", kind=["session"] * 5000).fields["next"] == mark(one)


def test_the_reader_of_the_output_goes(one):
    p = one.ctl_spawn("events", "-f")
    p.stdout.readline()
    p.stdout.close()
    n = fresh_name()
    one.ctl_ok("session", "create", n)
    one.ctl_ok("session", "delete", n)
    assert p.wait(10) in (141, -signal.SIGPIPE)
    p.stderr.close()


# ---- what they cost --------------------------------------------------------------------------


def test_followers_cost_no_wake_ups(one, name):
    followers = [Follower(one) for _ in range(5)]
    for f in followers:
        f.until("session", "created")

    wait_quiet(one.init_pid, seconds=0.5)
    for f in followers:
        f.close()


def test_memory_does_not_grow_with_events():
    with Box(ini={"init": {"events_keep": "64K"}}) as box:
        box.session("s")
        run_many(box, "s", 400)
        before = box.memory()[1]
        run_many(box, "s", 400)
        assert box.memory()[1] - before < 64 * 1024 or build_dir().name == "asan"


def test_an_event_of_a_client_that_has_left(one):
    # given one who listens, and nothing else that happens; when a viewer leaves its terminal; then that is told at once
    w = one.connect(10).request("terminal.open", [("arg", "sleep"), ("arg", "100"), ("hang_up", "1")])
    id = w.finish(until=lambda a: a.notes).notes[0]["id"]
    with one.connect(10).request("events", [("follow", "1"), ("tail", "0"), ("kind", "terminal")]) as events:
        for _ in range(5):
            viewer = one.connect(10).request("terminal.attach", [("id", id)])
            viewer.finish(until=lambda a: any(n["event"] == "live" for n in a.notes))
            wait_quiet(one.init_pid, seconds=0.2)
            viewer.close()
            while parse_record(events.receive()[1])["what"] != "detached":
                pass
    w.close()
    wait_until(lambda: id not in {r["id"] for r in one.call("ps", kind="terminal").rows}, 20, "it is forgotten")
