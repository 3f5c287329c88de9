"""Terminals: attach and detach, viewers, window, recording, end (init-tests 53 to 55)."""

import json
import os
import random
import re
import signal
import time

import pytest

from rig import wire
from rig.box import Box, read_stat
from rig.places import make_session
from rig.tterm import Client
from rig.verbs import nap, refused
from rig.wait import is_long, wait_until

SHELL = ["--", "sh"]  # a shell without a fancy prompt


@pytest.fixture(autouse=True)
def no_terminal_stays(one):
    yield
    one.call("kill-all", grace_ms="0")


def listed(box, id):
    rows = [r for r in box.call("ps", kind="terminal").rows if r["id"] == id]
    return rows[0] if rows else None


def detached(box, id, *args):
    """A terminal that nobody looks at yet; its PID in the box."""
    r = box.ctl_ok("terminal", "--detached", "--id", id, *args)
    m = re.fullmatch(rb"(\S+) (\d+)\n", r.out)
    assert m and m.group(1) == id.encode(), r
    return int(m.group(2))


def viewers(box, id, n):
    wait_until(lambda: listed(box, id)["viewers"] == n, 5, f"{id} has {n} viewers")


def size_is(box, id, rows, cols):
    wait_until(lambda: (listed(box, id)["rows"], listed(box, id)["cols"]) == (rows, cols), 5,
               lambda: f"{id} is {rows}x{cols}: {listed(box, id)}")


_ids = iter(range(10**6))


@pytest.fixture
def id():
    return f"term-{next(_ids)}-{os.getpid()}"


# ---- init-tests 53: detached, attached, detached, ended ------------------------------------------


def test_53_detach_reattach_end(box, id):
    pid = detached(box, id, "--", "sh", "-c", "echo begun; exec sh")
    host = box.host_pid(pid)
    with Client(box, "terminal", "attach", id) as c:
        c.until(b"begun\r\n")
        c.type("echo o''ne\n")
        c.until(b"one\r\n")
        wait_until(lambda: c.is_raw, 5, "the client's terminal is raw")
        c.type("\x1dd")
        code, seen = c.end()
        assert code == 0 and f"detached from terminal {id}".encode() in seen, seen
        assert c.is_as_before
    assert listed(box, id)["state"] == "running" and listed(box, id)["viewers"] == 0
    with Client(box, "terminal", "attach", id) as c:
        c.until(b"one\r\n")
        c.type("exit 7\n")
        assert c.end()[0] == 7 and c.is_as_before
    row = listed(box, id)
    assert (row["state"], row["status"], row["strays"]) == ("exited", 7, 0)
    assert not os.path.exists(f"/proc/{host}")


def test_53_ended_before_anybody_looked(one, id):
    detached(one, id, "--", "sh", "-c", "echo all; exit 3")
    wait_until(lambda: listed(one, id)["state"] == "exited", 5, "it ends")
    for _ in range(2):
        assert one.ctl("terminal", "attach", id).triple == (3, b"all\r\n", b"")
    assert one.ctl("logs", id).out == b"all\r\n"


# ---- init-tests 54: clients that go, two clients, whose window ----------------------------------


def test_54_the_client_is_killed(box, id):
    with Client(box, "terminal", "--id", id, *SHELL) as c:
        c.type("a=5; echo re''ady\n")
        c.until(b"ready\r\n")
        c.kill(signal.SIGKILL)
        c.end()
    viewers(box, id, 0)
    with Client(box, "terminal", "attach", id) as c:
        c.type("echo a=$a\n")
        c.until(b"a=5\r\n")


def test_54_window_follows_the_one_in_front(one, id):
    with Client(one, "terminal", "--id", id, *SHELL, rows=30, cols=90) as a:
        a.type("echo u''p; trap 'stty size' WINCH\n")
        a.until(b"up\r\n")
        size_is(one, id, 30, 90)
        with Client(one, "terminal", "attach", id, rows=50, cols=100) as b:
            size_is(one, id, 50, 100)  # attached last
            a.type("stty size\n")
            a.until(b"30 90\r\n")  # typed last
            b.until(b"30 90\r\n")  # and both see it
            b.resize(20, 60)
            size_is(one, id, 20, 60)  # resized last
            a.resize(31, 91)
            size_is(one, id, 31, 91)
            b.type("\n")
            size_is(one, id, 20, 60)
            b.type("\x1dd")
            assert b.end()[0] == 0
        size_is(one, id, 31, 91)  # who is left


def test_54_resize_reaches_the_program(box, id):
    with Client(box, "terminal", "--id", id, "--", "bash", "--norc", "-c",
                "trap 'echo winch' WINCH; echo up; while :; do s=$(stty size); "
                "[ \"$s\" = \"$o\" ] || echo \"$s.\"; o=$s; done", rows=30) as c:
        c.until(b"up\r\n")
        c.until(b"30 80.\r\n")
        c.resize(41, 121)
        seen = c.until(b"41 121.\r\n")
        for rows, cols in ((10, 20), (500, 500)):
            c.resize(rows, cols)
            seen += c.until(b"%d %d.\r\n" % (rows, cols))
        box.call("terminal.resize", id=id, rows="6", cols="7")
        seen += c.until(b"6 7.\r\n")
        assert b"winch" in seen
        box.call("kill", id=id)
        assert c.end()[0] == 137


def test_viewers_see_the_same_and_read_only_ones_only_look(one, id):
    with Client(one, "terminal", "--id", id, *SHELL, rows=30, cols=90) as a:
        a.type("echo u''p\n")
        a.until(b"up\r\n")
        with Client(one, "terminal", "attach", "--read-only", id, rows=9, cols=9) as r, \
                Client(one, "terminal", "attach", id, rows=40, cols=80) as b:
            viewers(one, id, 3)
            r.until(b"up\r\n")
            r.resize(11, 12)
            r.type("echo ne''ver\n")
            b.type("echo fr''om b\n")
            for c in (a, b, r):
                c.until(b"from b\r\n")
            size_is(one, id, 40, 80)
            b.type("exit 8\n")
            assert [c.end()[0] for c in (a, b, r)] == [8, 8, 8]
    assert b"never" not in one.call("logs", id=id).out


def test_a_viewer_that_does_not_read(id):
    # given one viewer that only looks and reads nothing, then the others see all and at once
    with Box("ns-root", ini={"sessions": {"output_keep": "4K"}}) as box, box.connect() as stuck:
        detached(box, id, *SHELL)
        stuck.request("terminal.attach", [("id", id), ("read_only", "1")])
        viewers(box, id, 1)
        with box.connect() as w:
            w.request("terminal.attach", [("id", id)])
            w.send(wire.STDIN, b"stty -echo -opost; echo be''gin; seq 1 400000; exit 3\n")
            a = w.finish()
            body = b"".join(b"%d\n" % i for i in range(1, 400001))
            assert a.status == 3 and a.out.endswith(b"begin\n" + body)
            assert [n["event"] for n in a.notes] == ["attached", "live"]
        # and it is told what it has lost
        a = stuck.finish()
        lost = sum(n["lost_to"] - n["lost_from"] for n in a.notes if "lost_from" in n)
        assert a.status == 3 and a.out.endswith(b"\n400000\n") and lost > 100000


# ---- init-tests 55: what a shell leaves ----------------------------------------------------------


def test_55_background_jobs_are_reaped(box, id):
    nap = f"600.{os.getpid()}"
    with Client(box, "terminal", "--id", id, "--", "bash", "--norc") as c:
        c.type(f"trap '' HUP; for i in 1 2 3; do sleep {nap} & disown; done; exit 0\n")
        assert c.end()[0] == 0
    wait_until(lambda: len(box.find(f"sleep {nap}")) == 3, 5, "three of them live")
    assert listed(box, id)["strays"] == 3
    for p in box.find(f"sleep {nap}"):
        os.kill(p.pid, signal.SIGTERM)
    wait_until(lambda: not box.find(f"sleep {nap}"), 5, "they are gone")
    wait_until(lambda: box.status()["zombies"] == 0, 5, "and reaped")
    assert listed(box, id)["strays"] == 0


def ticks(pid):
    f = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return int(f[11]) + int(f[12])


@pytest.mark.parametrize("text", [
    "exec <&- >&- 2>&-; sleep 1",
    "(trap '' HUP; exec sleep 30) & exec <&- >&- 2>&-; sleep 1",
    "vhangup() { :; }; (sleep 30 </dev/tty >/dev/tty 2>&1 &) ; sleep 1",
], ids=["closed", "held-by-a-child", "reopened"])
def test_55_a_hang_up_does_not_spin_the_loop(one, id, text):
    detached(one, id, "--", "sh", "-c", text)
    before, begun = ticks(one.init_pid), time.monotonic()
    wait_until(lambda: listed(one, id)["state"] == "exited", 10, "it ends", every=0.1)
    wait_until(lambda: time.monotonic() - begun > 1.3, 5, "and after it", every=0.1)
    used = (ticks(one.init_pid) - before) / os.sysconf("SC_CLK_TCK")
    assert used < 0.3, f"{used} s of CPU in {time.monotonic() - begun} s"


# ---- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_a_session_s_state(box, id, shell):
    s = make_session(box, shell)
    s.exec("x='a b'; export Y=2; mkdir d; cd d; umask 027; set -e; set -u; "
           "alias q='echo Q'; f() { echo F $x; }")
    with Client(box, "terminal", "-s", s.name, "--id", id, "--env", "Z=3") as c:
        c.type("echo [$x] $Y $Z $TERM $SANDBOX_SESSION; pwd; umask; false; echo st''ill\n")
        c.until(f"[a b] 2 3 xterm {s.name}\r\n".encode())
        c.until(f"{s.work}/d\r\n".encode())
        c.until(b"0027\r\n")
        c.until(b"still\r\n")
        if shell == "bash":
            c.type("f; q\n")
            c.until(b"F a b\r\n")
            c.until(b"Q\r\n")
        # the session's lock is free meanwhile, and what is done here is done here only
        c.type("x=other; cd /; echo no''w\n")
        c.until(b"now\r\n")
        assert s.exec("echo $x; pwd").out == f"a b\n{s.work}/d\n".encode()
        # job control
        sleep = nap(box)
        c.type(f"{sleep}\n")
        wait_until(lambda: [p for p in box.find(sleep) if p.comm == "sleep"], 5, "a job")
        c.type("\x1a")
        c.until(b"topped")
        c.type("kill -9 %1; echo ctty $(tty)\n")
        c.until(b"ctty /dev/pts/")
        c.type("exit 6\nexit 6\n")  # the first may only say that a job was stopped
        assert c.end()[0] == 6
    box.call("session.delete", name=s.name)


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_a_program_that_is_not_there_in_a_session(box, id, shell):
    # given a session whose shell is to begin the program of a terminal, and cannot; then there is no
    # terminal, the reason names the program, and the session is as it was, also one with errexit
    s = make_session(box, shell)
    s.exec("cd " + str(s.work) + "; mkdir bin; printf '#!/bin/sh\\necho ran $*\\n' >bin/prog; echo >bin/text; "
           "PATH=$PWD/bin:$PATH; f() { :; }; set -eu")
    pid = box.call("session.show", name=s.name)["pid"]
    for name, why, status in (("no-such", b"No such file or directory", 127), ("./no such", b"No such", 127),
                              (f"{s.work}/bin/text", b"Permission denied", 126), ("/", b"Permission denied", 126),
                              ("-p", b"No such file or directory", 127), ("a'b$(x)", b"No such file", 127)):
        r = box.ctl("terminal", "-s", s.name, "--", name)
        assert r.status == status and not r.out, (name, r)
        assert name.encode() in r.err and why in r.err, (name, r)
    s.exec("chmod +x bin/prog")
    for name in ("prog", "./bin/prog", f"{s.work}/bin/prog"):  # in the PATH and folder of the session
        assert box.ctl("terminal", "-s", s.name, "--", name, "-v").triple == (0, b"ran -v\r\n", b"")
    # where the call has a folder or a PATH of its own, these count
    for args in (("--cwd", "bin", "--", "./prog"), ("--env", f"PATH={s.work}/bin:/bin:/usr/bin", "--", "prog")):
        assert box.ctl("terminal", "-s", s.name, *args).triple == (0, b"ran\r\n", b"")
    assert box.call("session.show", name=s.name)["pid"] == pid and s.exec("echo $-").status == 0
    box.call("session.delete", name=s.name)


def test_argv_in_a_session(box, id):
    s = make_session(box)
    s.exec("cd /usr; greet=hello; say() { echo $greet $*; }")
    r = box.ctl("terminal", "-s", s.name, "--", "say", "a  b", "'c'")
    assert r.triple in ((0, b"hello a b 'c'\r\n", b""), (127, b"", r.err)) and (r.status == 0 or b"say: " in r.err)
    r = box.ctl("terminal", "-s", s.name, "--", "sh", "-c", "pwd; test -t 0 && test -t 2; exit $?")
    assert r.triple == (0, b"/usr\r\n", b"")
    box.call("session.delete", name=s.name)


def test_the_lock_is_waited_for_and_a_client_that_leaves_is_forgotten(one, id):
    s = make_session(one)
    one.start("true", s.name)
    with one.connect() as w:
        w.request("exec", [("session", s.name), ("stdin", "1")], "read x; echo got")
        w.finish(until=lambda a: a.notes)
        with Client(one, "terminal", "-s", s.name, "--id", id) as c:
            wait_until(lambda: one.call("session.show", name=s.name).get("waiters") == [id], 5, "it waits")
            assert listed(one, id)["state"] == "waiting"
            c.type("echo ea''rly\n")
            wait_until(lambda: c.is_raw, 5, "raw")
            c.type("\x1dd")
            code, seen = c.end()
            assert code == 0 and b"does not begin" in seen, seen
        wait_until(lambda: listed(one, id) is None, 5, "forgotten")
        with Client(one, "terminal", "-s", s.name, "--id", id + "-2") as c:
            wait_until(lambda: one.call("session.show", name=s.name).get("waiters"), 5, "it waits")
            c.until(f"waiting for session '{s.name}', which is busy\r\n".encode())
            c.type("echo ty''ped early\n")
            w.send(wire.STDIN, b"\n")
            c.until(b"typed early\r\n")
            c.type("exit\n")
            assert c.end()[0] == 0
    one.call("session.delete", name=s.name)


def test_delete_reset_and_kill_end_it():
    nap = f"601.{os.getpid()}"
    with Box(ini={"sessions": {"kill_grace": "20s"}}) as box:
        for verb in ("session.delete", "session.reset", "kill", "kill-all"):
            s = make_session(box)
            with Client(box, "terminal", "-s", s.name, "--id", verb) as c:
                c.type(f"(setsid sleep {nap} &); sleep {nap} & echo u''p\n")
                c.until(b"up\r\n")
                wait_until(lambda: len(box.find(f"sleep {nap}")) == 2, 5, "both live")
                begun = time.monotonic()
                box.call(verb, **({"id": verb} if verb == "kill" else {"session": s.name}
                                  if verb == "kill-all" else {"name": s.name}))
                # a shell that is typed at ignores TERM: it hears a hang-up, so no grace runs out
                assert time.monotonic() - begun < 18, verb
                assert c.end()[0] == 137
            assert not box.find(f"sleep {nap}")
            assert listed(box, verb)["verdict"] == "killed_by_client"
            box.call("session.delete", name=s.name, check=False)


def test_stop_ends_it_without_delay(kind):
    with Box(kind, ini={"init": {"stop_grace": "20s"}}) as box:
        with Client(box, "terminal", "--", "bash", "--norc") as c:
            c.type("echo u''p\n")
            c.until(b"up\r\n")
            begun = time.monotonic()
            assert box.stop(deadline=30) == 0
            assert time.monotonic() - begun < 18
            code, _ = c.end()
            assert code in (125, 129) and c.is_as_before


def test_init_is_killed(id):
    with Box("ns-root") as box:
        with Client(box, "terminal", *SHELL) as c:
            c.type("echo u''p\n")
            c.until(b"up\r\n")
            box.signal(signal.SIGKILL)
            code, seen = c.end()
            assert code == 125 and b"closed the connection" in seen and c.is_as_before


def test_a_user_of_its_own(one, id):
    s = make_session(one, user="1000")
    os.chown(s.work, 1000, 1000)
    with Client(one, "terminal", "-s", s.name, "--id", id) as c:
        c.type("id -u; echo via tty >$(tty); echo via ctty >/dev/tty; stat -c '%U %u' $(tty)\n")
        for text in (b"1000\r\n", b"via tty\r\n", b"via ctty\r\n", b" 1000\r\n"):
            c.until(text)
        c.type("exit\n")
        assert c.end()[0] == 0
    one.call("session.delete", name=s.name)


# ---- the client ----------------------------------------------------------------------------------


@pytest.mark.parametrize("keys, typed", [
    ("ctrl-p,ctrl-q", "\x10\x11"), ("^a d", "\x01d"), ("C-]", "\x1d"), ("q q q", "qqq"), ("~ .", "~."),
])
def test_detach_keys(one, id, keys, typed):
    with Client(one, "terminal", "--id", id, "--detach-keys", keys, "--", "sh", "-c",
                "stty raw -echo; echo up; exec cat -v") as c:
        c.until(b"up")
        # a part of the sequence goes through when it is not completed
        if len(typed) > 1:
            c.type(typed[0] + "x" + typed[:-1] + "y")
            c.until(b"y")
        for ch in typed:
            c.type(ch)
        assert c.end()[0] == 0
    viewers(one, id, 0)


def test_detach_keys_are_heard_though_nothing_reads(one, id):
    # given a program that reads nothing and far more typed than a terminal holds
    with Client(one, "terminal", "--id", id, "--", "sh", "-c", "stty raw -echo; echo up; sleep 60") as c:
        c.until(b"up")
        for _ in range(40):
            c.type("x" * 1000)
        wait_until(lambda: c.is_read, 5, "the client has read that")
        c.type("\x1dd")
        code, seen = c.end()
        assert code == 0 and b"detached" in seen
    assert listed(one, id)["state"] == "running"


def test_detach_keys_at_the_edges(one, id):
    for bad in ("ctrl-", "abc", "C-]d", "x " * 17):
        r = one.ctl("terminal", "--detach-keys", bad)
        assert r.status == 125 and b"--detach-keys" in r.err, r
    with Client(one, "terminal", "--id", id, "--detach-keys", "none", "--", "sh", "-c",
                "stty raw -echo; echo up; exec head -c 5") as c:
        c.until(b"up")
        c.type("ab\x1dd\x1d")
        code, seen = c.end()
        assert code == 0 and seen.endswith(b"ab\x1dd\x1d")
    # aab in a a a b: the sequence is found wherever it begins
    with Client(one, "terminal", "--id", id + "2", "--detach-keys", "a a b", "--", "sh", "-c",
                "stty raw -echo; echo up; exec cat") as c:
        c.until(b"up")
        c.type("aaab")
        code, seen = c.end()
        assert code == 0 and b"detached" in seen
    wait_until(lambda: one.call("logs", id=id + "2").out.endswith(b"a"), 5, "the first one got there")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_the_client_s_terminal_is_restored(one, id, sig):
    with Client(one, "terminal", "--id", id, *SHELL) as c:
        c.type("echo u''p\n")
        c.until(b"up\r\n")
        assert c.is_raw
        c.kill(sig)
        assert c.end()[0] == 128 + sig and c.is_as_before
    assert listed(one, id)["state"] == "running"


def test_the_client_is_stopped_and_goes_on(one, id):
    with Client(one, "terminal", "--id", id, *SHELL) as c:
        c.type("echo u''p\n")
        c.until(b"up\r\n")
        c.kill(signal.SIGTSTP)
        wait_until(lambda: read_stat(c.pid).state == "T", 5, "it has stopped")
        assert c.is_as_before, "it is given back"
        c.resize(44, 55)
        c.kill(signal.SIGCONT)
        wait_until(lambda: c.is_raw, 5, "raw again")
        size_is(one, id, 44, 55)
        c.type("echo ag''ain; exit\n")
        c.until(b"again\r\n")
        assert c.end()[0] == 0


def test_stdin_is_no_terminal(box, id):
    r = box.ctl("terminal", "--", "sh", input=b"echo hello; read x; echo got $x; exit 5\nline\n")
    assert r.status == 5 and b"hello\r\n" in r.out and b"got line\r\n" in r.out and r.err == b"", r
    # its end is an end of file, again and again
    r = box.ctl("terminal", "--", "sh", "-c", "cat; cat; echo two; cat; exit 2", input=b"abc\n")
    assert r.triple == (2, b"abc\r\nabc\r\ntwo\r\n", b""), r
    r = box.ctl("terminal", input=b"")
    assert r.status in (0, 127), r
    r = box.ctl("terminal", "--", "cat", input=b"no newline")
    assert r.triple == (0, b"no newlineno newline", b""), r


def test_large_input_waits_for_a_slow_reader(one, id):
    # given far more than a terminal holds, when its program begins late, then nothing is lost
    body = b"".join(b"%06d\n" % i for i in range(60000))
    r = one.ctl("terminal", "--", "sh", "-c", "stty -echo; sleep 0.5; sha256sum; exit 4", input=body,
                deadline=60)
    import hashlib
    assert r.status == 4 and hashlib.sha256(body).hexdigest().encode() in r.out, r


def test_bad_usage(one):
    for args in (["terminal", "lst"], ["terminal", "--"], ["terminal", "attach"], ["terminal", "-s"],
                 ["terminal", "--rows", "0"], ["terminal", "--cols", "x"], ["terminal", "attach", "a", "b"],
                 ["terminal", "list", "x"], ["terminal", "--read-only"]):
        r = one.ctl(*args)
        assert r.status in (2, 125) and r.out == b"" and b"sandboxctl terminal" in r.err, (args, r)
    refused(one.ctl("terminal", "-s", "nosuch"), "nosuch", "not found", status=125)
    refused(one.ctl("terminal", "--cwd", "/nosuch"), "/nosuch", "No such file", status=125)
    refused(one.ctl("terminal", "--record", "/nosuch/x"), "/nosuch/x", "No such file", status=125)
    one.ctl_ok("terminal", "-d", "--id", "twice", "--", "sleep", "9")
    refused(one.ctl("terminal", "--id", "twice"), "twice", "exists", status=125)
    r = one.ctl("terminal", "--", "/nosuch/program")
    assert r.status == 127 and b"/nosuch/program" in r.err
    r = one.ctl("terminal", "-d", "--", "/etc/passwd")
    assert r.status == 1 and b"Permission denied" in r.err, r


# ---- the recording -------------------------------------------------------------------------------


def cast_of(path):
    head, *events = [json.loads(l) for l in open(path, "rb").read().decode("utf-8").split("\n") if l]
    times = [e[0] for e in events]
    assert head["version"] == 2 and times == sorted(times)
    return head, events


def test_record(one, id, tmp_path):
    path = tmp_path / "r.cast"
    with Client(one, "terminal", "--id", id, "--record", path, "--", "bash", "--norc", "-c",
                "printf 'a\\377\\303'; sleep 0.2; printf '\\244\\033[1m\"\\\\\\t\\001\\342\\202'; trap 'echo r' WINCH; "
                "echo; echo up; while :; do sleep 0.02; done", rows=30, cols=70) as c:
        c.until(b"up\r\n")
        c.resize(31, 71)
        c.until(b"r\r\n")

        def is_over():
            # bash goes on where the program that it waits for has ended by itself in that moment
            c.type("\x03")
            c.pump()
            return c.poll() is not None

        wait_until(is_over, 10, "it is interrupted", every=0.1)
        assert c.end()[0] == 130
    head, events = cast_of(path)
    assert (head["width"], head["height"]) == (70, 30) and abs(head["timestamp"] - time.time()) < 60
    assert head["env"] == {"TERM": "xterm"}
    shown = "".join(e[2] for e in events if e[1] == "o")
    assert shown.startswith('a\ufffd\u00e4\x1b[1m"\\\t\x01\ufffd'), shown
    assert [e[2] for e in events if e[1] == "r"] == ["71x31"]
    assert {e[1] for e in events} == {"o", "r"}
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_record_of_a_replay_and_of_random_bytes(one, id, tmp_path):
    detached(one, id, "--", "sh", "-c", "stty raw; head -c 30000 /dev/urandom; echo END", )
    wait_until(lambda: listed(one, id)["state"] == "exited", 5, "it ends")
    path = tmp_path / "r.cast"
    r = one.ctl("terminal", "attach", id, "--record", path, "--rows", "12", "--cols", "34")
    head, events = cast_of(path)
    assert (head["width"], head["height"]) == (34, 12)
    # a browser's decoder and ours differ in how many marks an invalid sequence gets, not in the rest
    known = re.sub("\ufffd+", "\ufffd", "".join(e[2] for e in events))
    assert known == re.sub("\ufffd+", "\ufffd", r.out.decode("utf-8", "replace"))


def test_record_of_one_that_only_looks(one, id, tmp_path):
    path = tmp_path / "r.cast"
    detached(one, id, *SHELL)
    with Client(one, "terminal", "attach", id, rows=20, cols=50) as c, \
            Client(one, "terminal", "attach", "-r", id, "--record", path, rows=7, cols=7) as r:
        size_is(one, id, 20, 50)
        viewers(one, id, 2)
        c.resize(21, 51)
        size_is(one, id, 21, 51)
        c.type("echo do''ne\n")
        r.until(b"done\r\n")
        one.ctl_ok("terminal", "kill", id)
        for x in (c, r):
            code, seen = x.end()
            assert code == 137 and f"terminal {id} was killed".encode() in seen
    head, events = cast_of(path)
    assert (head["width"], head["height"]) in ((80, 24), (50, 20))  # whoever came first
    assert [e[2] for e in events if e[1] == "r"][-1] == "51x21"


def test_record_on_a_full_disk(one, id):
    r = one.ctl("terminal", "--record", "/dev/full", "--", "sh", "-c", "echo shown; exit 6")
    assert (r.status, r.out) == (6, b"shown\r\n") and b"/dev/full: No space left" in r.err


# ---- limits and places ---------------------------------------------------------------------------


def test_max_terminals():
    with Box("ns-root", ini={"sessions": {"max_terminals": "2"}}) as box:
        for i in range(2):
            detached(box, f"t{i}", "--", "sleep", "60")
        refused(box.ctl("terminal"), "max_terminals is 2", status=125)
        assert box.status()["terminals"] == 2
        box.ctl_ok("terminal", "kill", "t0")
        detached(box, "t3", "--", "sleep", "60")


def test_a_terminal_is_activity():
    with Box("ns-root", ini={"init": {"idle_timeout": "2s"}}) as box:
        begun = time.monotonic()
        pid = detached(box, "busy", "--", "sleep", "3")
        assert pid
        assert box.wait(30) == 0
        assert time.monotonic() - begun > 4.5


NO_PTMX = "mount -t tmpfs none /dev/pts && mount --bind /dev/null /dev/ptmx && exec \"$@\""


def test_no_pty_to_be_had():
    with Box("ns-root", before=["sh", "-c", NO_PTMX, "sh"]) as box:
        r = box.ctl("terminal")
        assert r.status == 125 and b"/dev/ptmx" in r.err and b"devpts" in r.err, r
        r = box.ctl("terminal", "-d")
        assert r.status == 1 and b"/dev/ptmx" in r.err, r
        s = make_session(box)
        r = box.ctl("terminal", "-s", s.name)
        assert r.status == 125 and b"/dev/ptmx" in r.err, r
        assert s.exec("echo fine").out == b"fine\n"


def test_a_devpts_of_its_own():
    # no /dev/ptmx, but the instance's own
    text = ("mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts /dev/pts && "
            "mount --bind /dev/null /dev/ptmx && exec \"$@\"")
    with Box("ns-root", before=["sh", "-c", text, "sh"]) as box:
        r = box.ctl("terminal", "--", "sh", "-c", "tty; stty size")
        assert r.triple == (0, b"/dev/pts/0\r\n24 80\r\n", b"")


def test_many_terminals_leave_nothing(one):
    def ends():
        return [l for l in one.fd_links() if "ptmx" in l or "/pts" in l]

    wait_until(lambda: not ends(), 10, lambda: [r for r in one.ps() if r["state"] != "exited"])  # earlier tests' ones
    for i in range(30):
        detached(one, f"many-{i}-{os.getpid()}", *SHELL)
    assert len(ends()) == 90  # the master twice, and the slave
    one.call("kill-all", grace_ms="2000")
    wait_until(lambda: not ends(), 5, ends)
    assert all(r["tty"] == "" for r in one.call("ps", kind="terminal").rows)


def test_completion_and_list(one, id):
    detached(one, id, *SHELL)
    rows = json.loads(one.ctl_ok("terminal", "list", "--json").out)
    row = [r for r in rows if r["id"] == id][0]
    assert row["kind"] == "terminal" and row["tty"].startswith("/dev/pts/") and row["text"] == "sh"
    table = one.ctl_ok("terminal", "list").out.decode().splitlines()
    assert table[0].split()[:4] == ["ID", "SESSION", "PID", "STATE"]
    assert any(l.split()[0] == id for l in table[1:])
    assert id in [r["id"] for r in one.ps()]


# ---- anything at any time ------------------------------------------------------------------------

TYPED = [b"iecho hi\n", b"i", b"w", b"w9 9", b"wx", b"w 1", b"w99999999999 1", b"w" + b"1" * 60000, b"w1 1\0",
         b"iseq 1 30000\n", b"i\xff\x00\x1b", b"k", b"i\x03", b"i\x1a", b"iexit\n"]
PROGRAMS = [["sh", "-c", "seq 1 100000"], ["sleep", "5"], ["nosuch"], ["cat"],
            ["sh", "-c", "trap '' HUP TERM; sleep 3 & exit 3"],
            ["sh", "-c", "exec <&- >&- 2>&-; sleep 1"]]


class Chaos:
    """Viewers that come, type, read and go in any order."""

    def __init__(self, box, rng):
        self.box, self.rng = box, rng
        self.conns, self.ids = [], []
        self.sessions = [make_session(box, sh).name for sh in ("bash", "dash", "ash")]

    def ask(self, verb, *args):
        try:
            w = self.box.connect()
        except BlockingIOError:  # the socket's backlog is full: that many come at once
            return
        w.request(verb, [a for a in args if a])
        w.sock.setblocking(False)
        self.conns.append(w)

    def maybe(self, key, value="1"):
        return (key, value) if self.rng.random() < 0.5 else None

    def open(self):
        self.ids.append(f"c{len(self.ids)}")
        argv = self.rng.choice([[], *PROGRAMS])
        self.ask("terminal.open", ("id", self.ids[-1]), self.maybe("rows", str(self.rng.randint(0, 60))),
                 self.maybe("session", self.rng.choice(self.sessions)), self.maybe("detached"),
                 *(("arg", a) for a in argv))

    def attach(self):
        self.ask("terminal.attach", ("id", self.rng.choice(self.ids)), self.maybe("read_only"),
                 self.maybe("rows", "33"), self.maybe("cols", "44"))

    def end(self):
        verb, key, names = self.rng.choice([("kill", "id", self.ids), ("session.reset", "name", self.sessions),
                                            ("terminal.resize", "id", self.ids), ("kill-all", None, None)])
        self.ask(verb, (key, self.rng.choice(names)) if key else None)

    def use(self):
        if not self.conns:
            return
        w = self.rng.choice(self.conns)
        try:
            if self.rng.random() < 0.5:
                w.raw(self.rng.choice(TYPED))
            else:
                while w.sock.recv(70000):
                    pass
        except OSError:
            pass

    def leave(self):
        if self.conns:
            self.conns.pop(self.rng.randrange(len(self.conns))).close()


def test_anything_at_any_time():
    seed, seconds = int.from_bytes(os.urandom(4)), 30 if is_long() else 2
    print("seed:", seed)
    ini = {"sessions": {"kill_grace": "100ms", "process_keep": "3", "output_keep": "4K"}}
    with Box("ns-root", ini=ini) as box:
        c = Chaos(box, random.Random(seed))
        c.open()
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            c.rng.choice([c.open, c.attach, c.attach, c.use, c.use, c.use, c.end, c.leave])()
            while len(c.conns) > 60:
                c.leave()
            assert box.is_alive, box.log()[-3000:]
        for w in c.conns:
            w.close()

        def answers():
            try:
                return box.call("kill-all", grace_ms="0")
            except BlockingIOError:
                return None

        wait_until(answers, 10, "init answers")
        assert box.status()["terminals"] == 0
        wait_until(lambda: not [l for l in box.fd_links() if l.startswith("/dev/pt")], 10, box.fd_links)
        used = box.cpu_seconds()
        time.sleep(0.3)
        assert box.cpu_seconds() - used < 0.1
        assert box.stop() == 0
