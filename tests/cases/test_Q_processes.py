"""Q. Background processes and their logs."""

import random
import re

import pytest

from rig.box import Box
from rig.follow import Trace
from rig.places import make_session
from rig.verbs import data
from rig.wait import repeats, wait_until

WORDS = {  # what a quick process writes, and how it ends
    "a line": ("echo hi", 0, b"hi\n", b""),
    "no newline": ("printf hi", 0, b"hi", b""),
    "both streams": ("echo out; echo err >&2; exit 3", 3, b"out\n", b"err\n"),
    "nothing": (":", 0, b"", b""),
    "bytes": ("printf 'a\\000\\377\\r\\n'", 0, b"a\0\xff\r\n", b""),
    "by a signal": ("echo last; kill -KILL $$", 137, b"last\n", b""),
    "more than a pipe": ("head -c 200000 /dev/zero | tr '\\000' z", 0, b"z" * 200_000, b""),
}


@pytest.fixture
def user(pool):
    """One box in which nothing is privileged."""
    b = pool.get("ns-user")
    yield b
    assert b.is_alive, f"init ended with {b.wait(15)}; log: {b.log()[-2000:]}"


def started(s, text):
    id, pid = s.start(text)
    assert pid > 0, "always a pid"
    return id


def test_case_Q1_quick_processes(s):
    n = repeats(200) if (s.box.kind, s.shell) == ("ns-user", "bash") else 3
    for i in range(n):
        id = started(s, f"echo hi {i}")
        a = s.box.wait_process(id)
        assert (a["verdict"], a["status"]) == ("exited", 0)
        # 'exited' is visible only when the log is complete
        got = s.box.logs(id)
        assert (got.out, got.err) == (b"hi %d\n" % i, b"")
        assert (a["stdout_bytes"], got["to"]) == (len(got.out), len(got.out))


@pytest.mark.parametrize("what", WORDS)
@pytest.mark.parametrize("where", ["session", "stateless"])
def test_case_Q1_quick_processes_of_other_kinds(user, where, what):
    text, status, out, err = WORDS[what]
    session = user.session() if where == "session" else None
    for _ in range(max(3, repeats(50))):
        id, pid = user.start(text, session)
        a = user.wait_process(id)
        got = user.logs(id)
        assert pid > 0 and (a.status, got.out, got.err) == (status, out, err)
    if session:
        user.call("session.delete", name=session)


def test_case_Q1_who_sees_exited_sees_the_log(user):
    # given one who looks at the list again and again, when it says exited, then the log is whole
    for i in range(repeats(100)):
        id, _ = user.start(f"sleep 0.0{i % 10}; echo a; echo b >&2; printf c")
        wait_until(lambda: [r for r in user.ps() if r["id"] == id][0]["state"] == "exited", 10, id)
        got = user.logs(id)
        assert (got.out, got.err) == (b"a\nc", b"b\n")


@pytest.mark.parametrize("text, out, err", [
    ("echo 1; sleep .1; printf 2", b"1\n2", b""),
    ("echo 1; sleep .1; printf 2 >&2", b"1\n", b"2"),
    ("echo 1; sh -c 'sleep .1; printf 2'", b"1\n2", b""),
    ("echo 1; (sleep .1; printf 2) & wait", b"1\n2", b""),
    ("trap 'printf 2' EXIT; echo 1; sleep .1; exit 0", b"1\n2", b""),
])
def test_case_Q2_the_last_words_under_load(user, text, out, err):
    # given two processes that use all the CPU there is, when others end, then what they wrote
    # right before the end is in their logs
    spin = [user.start("exec nice -n 1 sh -c 'while :; do :; done'")[0] for _ in range(2)]
    n = repeats(200 if text.endswith("printf 2") else 60)
    for at in range(0, n, 10):
        ids = [user.start(text)[0] for _ in range(min(10, n - at))]
        for id in ids:
            assert user.wait_process(id, deadline=60).status == 0
            got = user.logs(id)
            assert (got.out, got.err) == (out, err)
    for id in spin:
        user.call("kill", id=id, grace_ms="0")


FLOODS = {
    "lines": "read -r x; seq 1 200000",
    "both streams": "read -r x; for i in 1 2 3 4 5 6 7 8 9; do seq ${i}0000 ${i}5000; "
                    "seq ${i}0000 ${i}3000 >&2; done",
    "by and by": "read -r x; for i in 1 2 3 4 5 6 7 8 9 0; do seq 1 9999; sleep 0.03; done",
    "no lines": "read -r x; head -c 1500000 /dev/urandom",
    "tiny writes": "read -r x; i=0; while [ $((i += 1)) -lt 9000 ]; do echo $i; done",
}


@pytest.mark.parametrize("what", FLOODS)
def test_case_Q4_followers_join_at_any_moment(what):
    # given 20 followers that join at random moments, some with an offset, then each sees the log
    # from its offset to its end: no gap, no duplicate
    rng = random.Random(what)
    with Box("ns-user", ini={"sessions": {"output_keep": "4M"}}) as box:
        id, _ = box.start(FLOODS[what], stdin=True)
        first = Trace(box, id, follow=1)
        readers = [first]
        threads = [first.read_apart()]
        with box.connect() as w:
            w.request("send", [("id", id)])
            w.send(b"i", b"go\n")
            w.send(b"i", b"")
        while len(readers) < 20:
            seen = first.at or 0
            at = rng.choice([None, 0, rng.randint(0, seen), seen, rng.randint(0, seen)])
            args = {} if at is None else {"from": at}
            readers.append(Trace(box, id, follow=1, **args))
            threads.append(readers[-1].read_apart())
        for t in threads:
            t.join(30)
        whole = Trace(box, id).read()
        flat, size = whole.bytes, whole.end
        assert len(flat) == size and not whole.lost
        if what == "lines":
            assert flat == b"".join(b"%d\n" % i for i in range(1, 200001))
        for r in readers:
            assert r.end == size and not r.lost, (r.start, r.end, r.lost)
            assert r.bytes == flat[r.start:], f"from {r.start}"
            r.check_against(flat)
            if r.start == 0:
                assert r.tagged == whole.tagged, "the same order of both streams"
            r.wire.close()


def test_case_Q4_what_a_small_log_has_lost_is_told(user):
    # given a log that keeps 16K and readers of which some are slow, then each byte that a reader
    # did not get is in an interval that was told
    with Box("ns-user", ini={"sessions": {"output_keep": "16K"}}) as box:
        whole = b"".join(b"%d\n" % i for i in range(1, 60001))
        id, _ = box.start("read -r x; seq 1 60000", stdin=True)
        readers = [Trace(box, id, follow=1) for _ in range(4)]
        readers += [Trace(box, id, follow=1, **{"from": 0}) for _ in range(4)]
        with box.connect() as w:
            w.request("send", [("id", id)])
            w.send(b"i", b"\n")
        box.wait_process(id)
        readers.append(Trace(box, id))
        for r in readers:
            assert r.read().end == len(whole)
            r.check_against(whole)
            assert r.bytes.endswith(b"60000\n"), "the newest bytes are there"
            r.wire.close()
        assert readers[-1].lost, "a late reader hears of it"


def test_case_Q5_what_a_call_leaves_can_go_on_writing(s):
    goes_on_writing(s, "(while :; do echo tick; sleep .02; done) & echo $! > {pid}")


@pytest.mark.parametrize("text", [
    "(while :; do echo tick >&2; sleep .02; done) & echo $! > {pid}",
    "(trap '' PIPE; while echo tick; do sleep .02; done) & echo $! > {pid}",
    "(yes tick) & echo $! > {pid}",
    "setsid sh -c 'echo $$ > {pid}; while :; do echo tick; sleep .02; done' & "
    "until [ -s {pid} ]; do sleep .02; done",
])
def test_case_Q5_other_writers(user, text):
    goes_on_writing(make_session(user), text)


def goes_on_writing(s, text):
    # given a background child that writes to the output of a call that is over, then it lives, and
    # never waits for a reader: it gets on
    pid = s.path("pid")
    assert s.exec(text.format(pid=pid), deadline=10).status == 0
    host = s.box.host_pid(int(pid.read_text()))
    written = lambda: int(re.search(r"wchar: (\d+)", open(f"/proc/{host}/io").read()).group(1))
    before = written()
    wait_until(lambda: written() > before + 40, 10, "it writes on")
    assert s.exec("kill -0 $(cat pid); echo $?", cwd=s.work).out == b"0\n"
    s.box.call("session.delete", name=s.name)  # it would write on, at the cost of all tests to come


def test_case_Q7_delete_ends_all_and_lists_it(s):
    # The rule: a deleted session takes with it all that it started, processes too.
    delete_ends_all(s, "nohup setsid sleep {n} >/dev/null 2>&1 &")


@pytest.mark.parametrize("text", [
    "(setsid sh -c 'sleep {n} & sleep {n}' &)",
    "sleep {n} & disown 2>/dev/null",
    "{helper} daemon [ exec sleep {n} ]",
    "trap '' TERM HUP; (sleep {n}; sleep {n}) >/dev/null 2>&1 &",
])
def test_case_Q7_delete_ends_other_kinds(user, text):
    delete_ends_all(make_session(user), text)


def delete_ends_all(s, text):
    nap = s.sleep_mark()
    if s.box.kind == "busybox":
        text = text.replace("nohup ", "")
    s.exec(text.format(n=nap, helper=s.helper), deadline=10)
    id = started(s, f"sleep {nap}")
    here = lambda: s.box.find(f"sleep {nap}")
    wait_until(lambda: len([p for p in here() if p.comm == "sleep"]) >= 2, 5, "both are there")
    names = [f"{p.inner} {p.comm}" for p in here() if p.comm == "sleep"]
    a = s.box.call("session.delete", name=s.name)
    assert not here()
    assert set(names) <= set(a["ended"]) and a["killed"] >= len(names), (names, a.fields)
    assert a["killed"] == len(a["ended"]) <= 32
    assert [r["state"] for r in s.box.ps() if r["id"] == id] == ["exited"]


def test_case_Q7_a_long_list_is_cut_and_says_so(user):
    n = user.session()
    user.exec("for i in $(seq 1 80); do sleep 99 & done", n)
    a = user.call("session.delete", name=n)
    assert a["killed"] == 81 and len(a["ended"]) == 32
    n = user.session()
    user.exec("sleep 99.5 &", n)
    wait_until(lambda: user.find("sleep 99.5"), 15, "it is no shell any more")
    d = data(user, "session", "delete", n)
    assert sorted(x.split()[1] for x in d["ended"]) == ["bash", "sleep"]


def test_case_Q8_the_starter_ends_and_its_workers_go_on(s):
    workers_go_on(s, "sleep 60 & sleep 61 & exit 0", 2)


@pytest.mark.parametrize("text, left", [
    ("(setsid sleep 60 &) ; exit 0", 1),
    ("for i in 1 2 3 4 5; do sleep 6$i & done", 5),
    ("sleep 60 >/dev/null 2>&1 </dev/null & exit 0", 1),
    ("true & wait; exit 0", 0),
])
def test_case_Q8_workers_of_other_kinds(user, text, left):
    for shell in ("bash", "dash", "ash"):
        workers_go_on(make_session(user, shell), text, left)


def workers_go_on(s, text, left):
    id = started(s, text)
    a = s.box.wait_process(id)
    assert (a["verdict"], a["status"]) == ("exited", 0)
    assert a.get("stray_count", 0) == left and len(a.get("strays", [])) == left
    row = [r for r in s.box.ps(s.name) if r["id"] == id][0]
    assert (row["state"], row["status"], row["strays"]) == ("exited", 0, left)
    if left:
        assert s.box.call("kill", id=id)["killed"] == left
    assert [r for r in s.box.ps(s.name) if r["id"] == id][0]["strays"] == 0


@pytest.mark.parametrize("how", ["command", "closed at once", "follower", "killed client"])
def test_case_Q10_a_process_is_nobodys_connection(user, how):
    # given a process whose starter's connection is gone in some way, then it is found, followed
    # and goes on
    text = "echo up; while read -r x; do echo $x; done"
    if how == "closed at once":
        with user.connect() as w:
            w.request("start", [("id", "q10"), ("stdin", "1")], text)
        id = "q10"
        wait_until(lambda: [r for r in user.ps() if r["id"] == id], 5, "it is listed")
    else:
        id, _ = user.start(text, stdin=True)
    if how == "follower":
        with Trace(user, id, follow=1) as t:
            t.read(until=lambda t: t.bytes)
    if how == "killed client":
        p = user.ctl_spawn("logs", "-f", id)
        assert p.stdout.readline() == b"up\n"
        p.kill()
        p.communicate()
    wait_until(lambda: user.status()["connections"] <= 1, 5, "all connections are gone")
    row = [r for r in user.ps() if r["id"] == id][0]
    assert row["state"] == "running" and user.host_pid(row["pid"])
    with Trace(user, id, follow=1) as t:
        t.read(until=lambda t: t.bytes == b"up\n")
        user.ctl_ok("send", id, "--eof", input=b"later\n")
        assert t.read().bytes == b"up\nlater\n" and t.end == 9
    assert user.wait_process(id).status == 0
