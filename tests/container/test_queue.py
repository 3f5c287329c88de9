"""The queue of a session: who holds it, who waits, who would rather not, and what it may cost."""

import json
import os
import re
import select
import signal

import pytest

from rig.box import Box, read_stat
from rig.quiet import wait_quiet
from rig.verbs import data, end, fresh_name, make, nap, refused, show
from rig.wait import wait_until
from rig.wire import WireError


class Queue:
    """A session with a command that holds it until release(); add() puts clients behind it."""

    def __init__(self, box, name, text="echo in; cat go >/dev/null"):
        self.box, self.name = box, name
        self.text = text
        self.waiters = []
        box.exec("mkfifo go", name)
        self.holder = box.ctl_spawn("exec", "-s", name, text)
        assert self.holder.stdout.readline() == b"in\n"

    def add(self, *args):
        before = self.length
        client = self.box.ctl_spawn(args[0], "-s", self.name, *args[1:])
        self.waiters.append(client)
        wait_until(lambda: self.length == before + 1, 5, f"{args} waits")
        return client

    @property
    def length(self):
        return show(self.box, self.name)["queue"]

    def release(self):
        (self.box.work / self.name / "go").write_text("\n")
        return end(self.holder)

    def order(self):
        path = self.box.work / self.name / "order"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def queue(one, name):
    q = Queue(one, name)
    yield q
    for p in [q.holder, *q.waiters]:
        p.kill()
        p.communicate()


def busy(r, queue, *words):
    """The refusal names the holder: id, since when, its text."""
    holder = show(queue.box, queue.name)["running"]
    line = refused(r, f"session '{queue.name}' is busy", f"{holder} has held it for",
                   f"sandboxctl kill {holder}", *words, status=125)
    assert re.search(r"held it for (\d+ms|\d+\.\ds|\d+m\d\ds) ", line), line
    return line


# ---- --no-wait -------------------------------------------------------------------------------


def test_no_wait_names_the_holder(box):
    # given a session that runs something, when a client will not wait, then it hears at once who
    # holds the session, and nothing of its own has run
    q = Queue(box, make(box))
    for verb in ("exec", "start"):
        r = box.ctl(verb, "--no-wait", "-s", q.name, "echo ran >> order")
        busy(r, q, "command", q.text)
    assert q.length == 0
    assert q.release() == (0, b"", b"")
    assert box.exec("echo free", q.name).out == b"free\n" and q.order() == []
    box.ctl_ok("session", "delete", q.name)


def test_no_wait_of_fork_and_save(one, name):
    # the two other requests that need the session for a moment
    q = Queue(one, name)
    copy, file = fresh_name(), one.work / "saved"
    for options in (["--no-wait"], ["--wait-for", "30ms"]):
        busy(one.ctl("session", "fork", *options, name, copy), q, "command", q.text)
        busy(one.ctl("session", "save", *options, name, file), q, "command", q.text)
    assert q.length == 0 and not file.exists()
    refused(one.ctl("session", "show", copy), "not found")
    assert q.release() == (0, b"", b"")
    assert one.ctl("session", "fork", "--no-wait", name, copy).status == 0
    assert one.ctl("session", "save", "--no-wait", name, file).status == 0 and file.exists()
    one.ctl_ok("session", "delete", copy)


@pytest.mark.parametrize("verb", ["exec", "start"])
def test_no_wait_runs_where_nobody_is(one, name, verb):
    # a session that is free, one that was just made, and no session at all
    assert one.ctl(verb, "--no-wait", "-s", name, "true").status == 0
    fresh = fresh_name()
    one.ctl_ok("session", "create", fresh)
    assert one.ctl(verb, "--no-wait", "-s", fresh, "true").status == 0
    assert one.ctl(verb, "--no-wait", "true").status == 0
    one.ctl_ok("session", "delete", fresh)


@pytest.mark.parametrize("text, shown", [
    ("echo in; cat go # a b", "echo in; cat go # a b"),
    ("echo in\ncat go\n", "echo in\\ncat go\\n"),
    ("echo in; cat go # \x1b[31m\x07", "echo in; cat go # \\x1b[31m\\x07"),
    ("echo in; cat go #" + "x" * 5000, "echo in; cat go #xxxx"),
    ("echo in; cat go #" + "ä" * 3000, "echo in; cat go #ääää"),
    ("echo in; cat go #" + "x" + "€" * 3000, "echo in; cat go #x€€€"),
    ("echo in; cat go #" + "🙂" * 3000, "echo in; cat go #🙂🙂"),
], ids=["short", "lines", "escapes", "long", "2 bytes", "3 bytes", "4 bytes"])
def test_the_text_of_the_holder_is_cut(one, name, text, shown):
    q = Queue(one, name, text)
    line = busy(one.ctl("exec", "--no-wait", "-s", name, "true"), q, shown)
    assert len(line.encode()) < 400 and "\N{REPLACEMENT CHARACTER}" not in line
    if len(text) > 100:
        assert line.endswith("…")
    assert len(show(one, name)["running_text"].encode()) <= 200
    q.release()


def test_no_wait_behind_a_start(one, name):
    # given a shell that was stopped, so that a start holds the session for long
    one.exec("mkfifo go", name)
    pid = one.host_pid(show(one, name)["pid"])
    os.kill(pid, signal.SIGSTOP)
    p = one.ctl_spawn("start", "-s", name, "--id", f"{name}-p", "echo hello")
    wait_until(lambda: show(one, name).get("running") == f"{name}-p", 5, "the start holds it")
    s = show(one, name)
    assert (s["running_kind"], s["running_text"]) == ("process", "echo hello")
    refused(one.ctl("exec", "--no-wait", "-s", name, "true"), f"process {name}-p has held it",
            "echo hello", status=125)
    os.kill(pid, signal.SIGCONT)
    assert end(p)[0] == 0


# ---- --wait-for ------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["exec", "start"])
@pytest.mark.parametrize("dur, seconds", [("0", 0), ("1ms", 0), ("300ms", 0.3), ("1s", 1)])
def test_wait_for_ends_in_time(queue, verb, dur, seconds):
    r = queue.box.ctl(verb, "--wait-for", dur, "-s", queue.name, "echo ran >> order")
    after = f" after {dur} in its queue" if dur not in ("0", "1s") else ""
    busy(r, queue, f"is busy{after}", queue.text)
    assert seconds <= r.seconds < seconds + 15
    assert queue.length == 0
    assert queue.release() == (0, b"", b"") and queue.order() == []


def test_wait_for_on_the_wire(queue):
    for verb in ("exec", "start"):
        for ms, words in (("0", "is busy: command"), ("100", "is busy after 100ms in its queue:")):
            with pytest.raises(WireError) as e:
                queue.box.call(verb, session=queue.name, wait_ms=ms, text="true")
            assert e.value.code == "busy" and words in e.value.message


@pytest.mark.parametrize("verb", ["exec", "start"])
def test_wait_for_that_is_long_enough(queue, verb):
    p = queue.add(verb, "--wait-for", "20s", "echo ran >> order")
    queue.release()
    assert end(p)[0] == 0
    wait_until(lambda: queue.order() == ["ran"], 5, "it ran")


def test_impatient_ones_leave_and_the_order_stays(queue):
    # given waiters of which every other one has little patience
    texts = [f"echo {i} >> order" for i in range(6)]
    waiting = lambda: [w["text"] for w in show(queue.box, queue.name)["waiting"]]
    clients = []
    for i, text in enumerate(texts):
        w = queue.box.connect()
        w.request("exec", [("session", queue.name), ("wait_ms", "9500" if i % 2 else None)], text)
        clients.append(w)
        wait_until(lambda: len(queue.box.call("session.show", name=queue.name).rows) == i + 1, 5)
    assert waiting() == texts
    # when that is over, then the others are still there in their order
    for w in clients[1::2]:
        a = w.finish()
        assert a["code"] == "busy" and "after 9.5s in its queue" in a["message"], a
    assert waiting() == texts[::2]
    queue.release()
    assert [w.finish().status for w in clients[::2]] == [0, 0, 0]
    assert queue.order() == ["0", "2", "4"]
    for w in clients:
        w.close()


@pytest.mark.parametrize("what", ["known", "new"])
def test_first_come_first_served_though_init_hears_of_all_at_once(one, name, what):
    # given init busy elsewhere for a moment, and connections that it has taken before, or not
    clients = [one.connect() if what == "known" else None for _ in range(20)]
    wait_until(lambda: what == "new" or one.status()["connections"] > len(clients), 10, "all are taken")
    one.signal(signal.SIGSTOP)
    wait_until(lambda: read_stat(one.init_pid).state == "T", 10, "it is stopped")
    # when each asks for a command, one after the other
    for i, w in enumerate(clients):
        clients[i] = w = w or one.connect()
        w.request("exec", [("session", name)], f"echo {i} >> order")
    one.signal(signal.SIGCONT)
    # then the commands run in this order
    assert [w.finish().status for w in clients] == [0] * len(clients)
    assert (one.work / name / "order").read_text().split() == [str(i) for i in range(len(clients))]
    for w in clients:
        w.close()


# ---- clients that leave ----------------------------------------------------------------------


@pytest.mark.parametrize("leaving", [[0], [2], [4], [1, 3], [4, 3, 2, 1, 0]])
@pytest.mark.parametrize("verb", ["exec", "start"])
def test_a_waiter_whose_client_goes_leaves_the_queue(queue, verb, leaving):
    for i in range(5):
        queue.add(verb, f"echo {i} >> order")
    ids = [w["id"] for w in show(queue.box, queue.name)["waiting"]]
    for i in leaving:
        queue.waiters[i].kill()
    stay = [i for i in range(5) if i not in leaving]
    wait_until(lambda: [w["id"] for w in show(queue.box, queue.name)["waiting"]]
               == [ids[i] for i in stay], 5, "they have left, the others stay in order")
    queue.release()
    for i in stay:
        assert end(queue.waiters[i])[0] == 0
    if verb == "start":  # they hold the session in turn, but run beside each other
        wait_until(lambda: sorted(queue.order()) == [str(i) for i in stay], 5, "they ran")
        known = {row["id"] for row in data(queue.box, "ps", "-s", queue.name)}
        assert known == {ids[i] for i in stay}, "what never began is not listed"
    queue.box.ctl_ok("exec", "-s", queue.name, "true")
    assert sorted(queue.order()) == [str(i) for i in stay]
    assert verb == "start" or queue.order() == [str(i) for i in stay]


def test_a_terminal_waits_like_others(queue):
    box = queue.box
    for patience in (["--no-wait"], ["--wait-for", "50ms"]):
        busy(box.ctl("terminal", *patience, "-s", queue.name, "--", "touch", "order"), queue)
    for detached in ([], ["--detached"]):
        queue.add("terminal", *detached, "--", "touch", "order").kill()
        wait_until(lambda: queue.length == 0, 5, "it has left")
    queue.add("terminal", "--id", f"{queue.name}-t", "--detached", "--", "cat")
    assert show(box, queue.name)["waiting"][0]["kind"] == "terminal"
    queue.release()
    assert end(queue.waiters[-1])[0] == 0
    assert [r["id"] for r in box.call("ps", kind="terminal", session=queue.name).rows] == [f"{queue.name}-t"]
    box.ctl_ok("terminal", "kill", f"{queue.name}-t")
    assert not (box.work / queue.name / "order").exists()


@pytest.mark.parametrize("verb", ["exec", "start"])
def test_the_id_of_what_left_is_free_again(queue, verb):
    # given an id under which calls left the queue: the client went, or had waited enough
    id = f"{queue.name}-x"
    queue.add(verb, "--id", id, "echo first >> order").kill()
    wait_until(lambda: queue.length == 0, 5, "it has left")
    for patience in (["--no-wait"], ["--wait-for", "50ms"]):
        busy(queue.box.ctl(verb, "--id", id, *patience, "-s", queue.name, "echo again >> order"),
             queue)
    # when another call uses it, then that one runs
    p = queue.add(verb, "--id", id, "echo last >> order")
    queue.release()
    assert end(p)[0] == 0
    wait_until(lambda: queue.order() == ["last"], 5, "only the last ran")


@pytest.mark.parametrize("verb", ["exec", "start"])
def test_a_waiter_that_others_have_joined_stays(queue, verb):
    # given a call that waits under an id, and the same call from a second client
    args = [verb, "--id", f"{queue.name}-x", "-s", queue.name, "echo ran >> order"]
    first = queue.add(args[0], *args[1:3], args[5])
    connections = queue.box.status()["connections"]
    second = queue.box.ctl_spawn(*args)
    queue.waiters.append(second)
    wait_until(lambda: queue.box.status()["connections"] == connections + 1, 5, "it has joined")
    # when the first goes, then the call stands in the queue until the second goes too
    first.kill()
    wait_until(lambda: queue.box.status()["connections"] == connections, 5, "the first has left")
    assert queue.length == 1
    queue.release()
    assert end(second)[0] == 0
    wait_until(lambda: queue.order() == ["ran"], 5, "it ran once")


# ---- what is shown ---------------------------------------------------------------------------


def test_show_tells_who_waits_in_which_order(queue):
    queue.add("exec", "echo one # " + "x" * 1000)
    queue.add("start", "--wait-for", "1h", "--", "echo", "two words")
    queue.add("exec", "--wait-for", "90s", "echo three")
    s = show(queue.box, queue.name)
    assert s["state"] == "busy" and s["queue"] == 3
    assert (s["running_kind"], s["running_text"]) == ("command", queue.text)
    assert s["running_pid"] == s["pid"] and 0 < s["running_s"] < 60
    assert [set(w) - {"wait_for_s"} for w in s["waiting"]] == [
        {"id", "kind", "waiting_s", "text"}] * 3
    assert [(w["kind"], w.get("wait_for_s")) for w in s["waiting"]] == [
        ("command", None), ("process", 3600), ("command", 90)]
    texts = [w["text"] for w in s["waiting"]]
    assert texts[0].startswith("echo one # xxx") and texts[0].endswith("…")
    assert len(texts[0].encode()) <= 200 and texts[1:] == ["echo two words", "echo three"]
    waits = [w["waiting_s"] for w in s["waiting"]]
    assert waits == sorted(waits, reverse=True) and 0 <= waits[-1] and waits[0] <= s["running_s"]
    # and for people
    text = queue.box.ctl_ok("session", "show", queue.name).out.decode()
    assert f"running: {s['running']}\n" in text and f"running_text: {queue.text}\n" in text
    head, *rows = text[text.index("WAITING"):].splitlines()
    assert head.split() == ["WAITING", "KIND", "SINCE", "AT", "MOST", "TEXT"]
    assert [r.split()[0] for r in rows] == [w["id"] for w in s["waiting"]]


def test_show_tells_the_last_output(one, name):
    # given a command that writes on demand
    q = Queue(one, name, "mkfifo more; exec 3<>more; echo in; while read x <&3; do echo $x; done")
    first = show(one, name)["last_output_s"]
    later = wait_until(lambda: (s := show(one, name)["last_output_s"]) > first + 0.1 and s, 5,
                       "it grows while nothing is written")

    def writes_again():
        (one.work / name / "more").write_text("again\n")
        assert q.holder.stdout.readline() == b"again\n"
        return show(one, name)["last_output_s"] < later

    wait_until(writes_again, 5, "it begins anew")
    # silent ones have none
    q.holder.kill()
    wait_until(lambda: show(one, name)["state"] == "idle", 10, "it is killed")
    p = one.ctl_spawn("exec", "-s", name, nap(one))
    wait_until(lambda: show(one, name)["state"] == "busy", 5)
    assert "last_output_s" not in show(one, name)
    p.kill()


def test_list_tells_holders_and_waiters(queue):
    queue.add("exec", "true")
    row = next(r for r in data(queue.box, "session", "list") if r["name"] == queue.name)
    assert row["queue"] == 1 and row["running"] == show(queue.box, queue.name)["running"]
    assert row["running_s"] > 0
    queue.release()
    assert end(queue.waiters[0])[0] == 0
    row = next(r for r in data(queue.box, "session", "list") if r["name"] == queue.name)
    assert row["queue"] == 0 and "running" not in row


def test_show_of_a_long_queue_to_a_slow_client():
    # given 400 waiters with long texts, when a client reads slowly, then it gets all of them
    with Box(ini={"init": {"max_connections": "500"}, "sessions": {"queue_limit": "1000"}}) as box:
        box.session("s")
        held = []
        for i in range(401):
            w = box.connect()
            w.request("exec", [("session", "s")], f"sleep 60 # {i} " + "x" * 400)
            held.append(w)
            if i == 0:
                wait_until(lambda: box.status()["commands"] == 1, 5, "the first runs")
        wait_until(lambda: box.call("session.show", name="s")["queue"] == 400, 10, "they wait")
        with box.connect() as w:
            w.request("session.show", [("name", "s")])
            assert wait_until(lambda: box.status()["commands"] == 401, 5)
            rows = w.finish().rows
        assert sorted(int(r["text"].split()[3]) for r in rows) == list(range(1, 401))
        ids = [int(r["id"][1:]) for r in rows]
        assert ids == sorted(ids)
        for w in held:
            w.close()


# ---- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("options, word", [
    (["--no-wait", "--wait-for", "1s"], "exclude each other"),
    (["--wait-for", "soon"], "soon"), (["--wait-for", "-1s"], "-1s"), (["--wait-for", ""], "''"),
    (["--wait-for", "5"], "5"), (["--wait-for", "9" * 30 + "s"], "duration"),
    (["--wait-for"], "needs a value"), (["--no-wait=1"], "takes no value"),
    (["--no-wiat"], "--no-wait"),
])
@pytest.mark.parametrize("verb, status", [("exec", 125), ("start", 2)])
def test_usage(one, name, verb, status, options, word):
    r = one.ctl(verb, "-s", name, "true", *options)
    assert r.status == status and word in r.err.decode() and "--help" in r.err.decode(), r


@pytest.mark.parametrize("ms", ["", "x", "-1", "1.5", "0x10", "9" * 40, str(2**63), "1 "])
@pytest.mark.parametrize("verb", ["exec", "start"])
def test_bad_wait_ms(queue, verb, ms):
    with pytest.raises(WireError) as e:
        queue.box.call(verb, session=queue.name, wait_ms=ms, text="true")
    assert e.value.code == "invalid" and "wait_ms" in e.value.message
    assert queue.length == 0


# ---- what it may cost ------------------------------------------------------------------------


LIMIT = 4 * 64 * 1024  # four texts of the longest kind


@pytest.fixture(scope="module")
def small():
    with Box(ini={"init": {"text_limit": "64K"}, "sessions": {"queue_limit": "1000"}}) as box:
        yield box


def hold(box, name):
    box.session(name)
    w = box.connect()
    w.request("exec", [("session", name)], "echo in; exec 3<>/dev/null; sleep 300")
    assert w.receive()[0] == b"n"
    return w


@pytest.mark.parametrize("verb, load", [
    ("exec", {"text": "#" + "x" * 60_000}),
    ("exec", {"text": ":", "env": ["A=" + "x" * 60_000]}),
    ("exec", {"text": ":", "env": [f"A{i}=" + "x" * 1000 for i in range(60)]}),
    ("start", {"text": "#" + "x" * 60_000}),
    ("start", {"arg": ["echo"] + ["x" * 1000] * 30}),  # held twice: as argv and joined
], ids=["text", "env", "many env", "start", "argv"])
def test_what_waits_is_bounded_over_all_sessions(small, verb, load):
    # given two busy sessions, when clients queue large things in both, then from some point on they
    # are refused, and those who need not wait are not
    names = [fresh_name() for _ in range(2)]
    held = [hold(small, n) for n in names]
    free = small.session()
    args = [(k, v) for k, vs in load.items() if k != "text"
            for v in (vs if isinstance(vs, list) else [vs])]
    for _ in range(3):  # again and again: what leaves gives back all that it held
        waiting = []
        while True:
            w = small.connect()
            w.request(verb, [("session", names[len(waiting) % 2]), *args], load.get("text"))
            waiting.append(w)
            queued = lambda: sum(small.call("session.show", name=n)["queue"] for n in names)
            answered = lambda: select.select([w], [], [], 0)[0]
            wait_until(lambda: queued() == len(waiting) or answered(), 20, "it waits, or is refused")
            if answered():
                break
            assert len(waiting) < 20
        assert len(waiting) == LIMIT // 60_000 + 1
        a = waiting[-1].finish()
        assert a.is_error and a["code"] == "limit" and str(LIMIT) in a["message"], a
        assert small.exec("echo free", free).out == b"free\n"
        big = "echo big #".ljust(64 * 1024, "x")
        assert small.ctl("exec", "-s", free, "-", input=big).out == b"big\n"
        for w in waiting:
            w.close()
        wait_until(lambda: not any(small.call("session.show", name=n)["queue"] for n in names), 5,
                   "they have left")
    for w in held:
        w.close()
    for n in [*names, free]:
        small.call("session.delete", name=n)


def test_waiting_costs_no_wake_ups(queue):
    # given waiters with and without a limit, when nothing happens, then init sleeps
    queue.add("exec", "true")
    queue.add("exec", "--wait-for", "1h", "true")
    queue.add("start", "--wait-for", "1h", "true")

    wait_quiet(queue.box.init_pid, seconds=0.5)


def test_json_of_a_refusal(queue):
    r = queue.box.ctl("exec", "--json", "--no-wait", "-s", queue.name, "true")
    assert r.status == 125
    error = json.loads(r.out)["error"]
    assert error["code"] == "busy" and queue.name in error["message"]
