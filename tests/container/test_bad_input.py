"""Bad input, line by line: whatever a client sends or a text does, the one who can still hear gets
a clear error, and init, the other clients and the other sessions never notice (init-test 48; for
services the second half of test_services_verbs.py)."""

import os
import select
import socket
import subprocess
import time
from pathlib import Path

import pytest

from rig import wire
from rig.box import Box, shell_path
from rig.places import SHARED_INI, make_session
from rig.wait import repeats, wait_until


def ini(**sections):
    whole = {k: dict(v) for k, v in SHARED_INI.items()}
    for name, keys in sections.items():
        whole.setdefault(name, {}).update(keys)
    return whole


def raw_answer(w):
    """(channel, fields) of the last packet of a connection that was used by hand."""
    last = None
    while (got := w.receive()) is not None:
        last = got
    assert last is not None, "the connection ended without a word"
    return last[0], wire.parse_record(last[1])


def refused(box, packets, code, *words):
    """Send packets; the answer must be an error of this code whose message holds the words."""
    with box.connect(10) as w:
        for p in packets:
            try:
                w.raw(p)
            except (BrokenPipeError, ConnectionResetError):
                break  # it was refused on the way; the reason is waiting
        channel, fields = raw_answer(w)
    assert channel == wire.ERROR, fields
    assert fields["code"] == code, fields
    for word in words:
        assert word in fields["message"], fields


class Neighbour:
    """A session beside the one that is mistreated: it must not notice."""

    def __init__(self, box, shell="bash"):
        self.s = make_session(box, shell)
        self.s.exec("mine=1")
        self.restarts = self.s.show()["restarts"]

    def is_well(self):
        r = self.s.exec("echo $mine", deadline=15)
        assert r.triple == (0, b"1\n", b""), r
        assert r.seconds < 8, r
        assert self.s.show()["restarts"] == self.restarts
        self.s.box.call("session.delete", name=self.s.name)


@pytest.fixture
def neighbour(box):
    n = Neighbour(box)
    yield n
    n.is_well()


# ---- the packets of a request -------------------------------------------------------------


@pytest.mark.parametrize("packets, code, words", [
    ([b"\0"], "protocol", ["verb"]),
    ([b"no-nul-at-all"], "protocol", ["verb"]),
    ([b"two words\0"], "protocol", ["verb"]),
    ([b"\x1b[2J\0"], "protocol", ["verb"]),
    ([b"v" * 65 + b"\0"], "protocol", ["verb"]),
    ([b"frobnicate\0"], "not_found", ["unknown verb", "frobnicate"]),
    ([b"Status\0"], "not_found", ["Status"]),
    ([b"exec\0text"], "protocol", ["malformed", "exec"]),
    ([b"exec\0text=x"], "protocol", ["malformed"]),
    ([b"exec\0=x\0"], "protocol", ["malformed"]),
    ([b"exec\0text=a\0text=b\0"], "protocol", ["twice"]),
    ([b"exec\0text=a\0text_size=3\0"], "protocol", ["both"]),
    ([b"exec\0text_size=-1\0"], "protocol", ["text_size"]),
    ([b"exec\0text_size=99999999999999999999\0"], "protocol", ["text_size"]),
    ([b"exec\0text_size=1e3\0"], "protocol", ["text_size"]),
    ([b"exec\0text_size=17000000\0"], "too_large", ["17000000", "16777216"]),
    ([b"exec\0args_size=5000000\0"], "too_large", ["arguments", "5000000"]),
    ([b"exec\0text_size=3\0", b"tfour"], "protocol", ["4 bytes", "3 were to come"]),
    ([b"exec\0text_size=3\0", b"axx"], "protocol", ["channel 't'"]),
    ([b"exec\0args_size=8\0", b"text=x\0\0"], "protocol", ["channel 'a'"]),
    ([b"exec\0args_size=5\0", b"atext="], "protocol", ["exec"]),
    ([b"exec\0args_size=7\0", b"atext=x\0"], "protocol", ["text=", "outside the first packet"]),
    ([b"x" * 65537], "protocol", ["65537", "65536"]),
    ([b"exec\0"], "invalid", ["exec", "neither a text nor an argv"]),
    ([b"exec\0text=x\0arg=y\0"], "invalid", ["both"]),
    ([b"exec\0text=x\0colour=red\0"], "invalid", ["unknown argument", "colour"]),
    ([b"exec\0text=x\0timeout_ms=soon\0"], "invalid", ["timeout_ms", "soon"]),
    ([b"exec\0text=x\0timeout_ms=-5\0"], "invalid", ["timeout_ms", "-5"]),
    ([b"exec\0text=x\0timeout_ms=\0"], "invalid", ["timeout_ms"]),
    ([b"exec\0text=x\0timeout_ms=99999999999999\0"], "invalid", ["365 days"]),
    ([b"exec\0text=x\0env=novalue\0"], "invalid", ["novalue"]),
    ([b"exec\0text=x\0env=1A=x\0"], "invalid", ["1A"]),
    ([b"exec\0text=x\0env=A-B=x\0"], "invalid", ["A-B"]),
    ([b"exec\0text=x\0env==x\0"], "invalid", ["env"]),
    ([b"exec\0text=x\0session=nobody\0"], "not_found", ["session 'nobody'", "not found"]),
    ([b"exec\0text=x\0session=\0"], "not_found", ["session ''"]),
    ([b"session.create\0name=.hidden\0"], "invalid", [".hidden", "1 to 64"]),
    ([b"session.create\0name=\0"], "invalid", ["name"]),
    ([b"session.create\0name=a/b\0"], "invalid", ["a/b"]),
    ([b"session.create\0name=" + b"n" * 65 + b"\0"], "invalid", ["n" * 64]),
    ([b"session.create\0name=\xc3\xa4\0"], "invalid", ["name"]),
    ([b"session.create\0shell=bash\0"], "invalid", ["bash", "absolute"]),
    ([b"session.create\0cwd=tmp\0"], "invalid", ["tmp", "absolute"]),
    ([b"session.create\0timeout_ms=x\0"], "invalid", ["timeout_ms"]),
    ([b"session.create\0user=nosuchuser\0"], "invalid", ["nosuchuser", "/etc/passwd"]),
    ([b"session.delete\0"], "invalid", ["session.delete", "name", "missing"]),
    ([b"session.show\0name=nobody\0"], "not_found", ["nobody"]),
    ([b"session.reset\0name=nobody\0"], "not_found", ["nobody"]),
    ([b"session.env\0name=nobody\0env=A=b\0"], "not_found", ["nobody"]),
    ([b"session.env\0env=9=b\0"], "invalid", ["9"]),
    ([b"session.env\0unset=a b\0"], "invalid", ["a b"]),
    ([b"start\0"], "invalid", ["start", "neither a text nor an argv"]),
    ([b"start\0text=true\0id=../x\0"], "invalid", ["../x", "1 to 64"]),
    ([b"ps\0session=nobody\0"], "not_found", ["nobody"]),
    ([b"tree\0session=nobody\0"], "not_found", ["nobody"]),
    ([b"logs\0"], "invalid", ["logs", "id", "missing"]),
    ([b"logs\0id=nobody\0"], "not_found", ["nobody"]),
    ([b"wait\0id=nobody\0"], "not_found", ["nobody"]),
    ([b"wait\0id=" + b"n" * 5000 + b"\0"], "not_found", ["nnn"]),
    ([b"kill\0"], "invalid", ["kill", "id", "missing"]),
    ([b"kill\0id=nobody\0"], "not_found", ["nobody"]),
    ([b"kill\0id=x\0signal=SIGNOPE\0"], "invalid", ["SIGNOPE"]),
    ([b"kill\0id=x\0signal=0\0"], "invalid", ["signal"]),
    ([b"kill\0id=x\0signal=-9\0"], "invalid", ["-9"]),
    ([b"kill\0id=x\0grace_ms=never\0"], "invalid", ["grace_ms", "never"]),
    ([b"kill\0running=nobody\0"], "not_found", ["nobody"]),
    ([b"kill-all\0session=nobody\0"], "not_found", ["nobody"]),
    ([b"send\0"], "invalid", ["send", "id", "missing"]),
    ([b"send\0id=nobody\0"], "not_found", ["nobody"]),
    ([b"shutdown\0grace_ms=x\0"], "invalid", ["grace_ms"]),
    ([b"shutdown\0now=1\0"], "invalid", ["now"]),
])
def test_bad_request(box, packets, code, words):
    refused(box, packets, code, *words)
    assert box.status()["state"] == "running"


def test_bad_empty_packet(box):
    with box.connect() as w:
        w.raw(b"")
        assert raw_answer(w)[1]["code"] == "protocol"


def test_bad_nul_in_a_text(box):
    name = box.session()
    for verb in ("exec", "start"):
        for session in (None, name):
            with pytest.raises(wire.WireError, match="NUL byte at offset 5"):
                box.call(verb, text=b"echo \0x", session=session)
    box.call("session.delete", name=name)


def test_bad_text_over_the_limit(kind):
    with Box(kind, ini=ini(init={"text_limit": "64K"})) as box:
        n = Neighbour(box)
        assert box.call_exec("#" * 65500 + "\ntrue").status == 0
        refused(box, [b"exec\0text_size=65537\0", b"t" + b"#" * 65000], "too_large", "65537", "65536")
        r = box.ctl("exec", "-f", "-", input=b"#" * 10_000_000)
        assert r.status == 125 and b"65536" in r.err
        n.is_well()


def test_bad_peer_without_permission(kind):
    # given a client of another uid who gets at the socket, then it is told why it may not
    with Box(kind) as box:
        os.chmod(box.run, 0o755)
        os.chmod(box.socket, 0o666)
        box.dir.chmod(0o755)
        script = ("import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
                  f"s.connect({str(box.socket)!r}); print(s.recv(65536)); print(s.recv(65536))")
        r = subprocess.run(["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "/usr/bin/python3",
                            "-c", script], capture_output=True, timeout=10)
        assert b"code=denied" in r.stdout and b"uid 4321" in r.stdout, r
        assert box.status()["connections"] == 1


# ---- clients that are slow, silent or gone ------------------------------------------------


def test_bad_silent_client_and_half_a_request(box, neighbour):
    # given clients that say nothing or stop in the middle, then others are served at once
    silent = [box.connect() for _ in range(5)]
    half = [box.connect() for _ in range(5)]
    for w in half:
        w.raw(b"exec\0text_size=10\0")
        w.raw(b"techo")
    begun = time.monotonic()
    assert box.exec("echo hi").out == b"hi\n"
    assert time.monotonic() - begun < 8
    for w in half[:3]:
        w.sock.shutdown(socket.SHUT_WR)  # it will send no more, but still listens
        channel, fields = raw_answer(w)
        assert channel == wire.ERROR and "6 bytes missing" in fields["message"]
    for w in silent + half:
        w.close()
    wait_until(lambda: box.status()["connections"] == 1, 5, "they are forgotten")


def test_bad_request_that_is_never_complete(kind):
    # a request has 10 s; then its client hears so
    with Box(kind) as box, box.connect(20) as w:
        w.raw(b"exec\0text_size=10\0")
        channel, fields = raw_answer(w)
        assert channel == wire.ERROR and "10000 ms" in fields["message"]


def test_bad_client_that_never_reads(kind):
    # given a client that reads nothing while its command floods, then memory stays small, others
    # are served, and it is dropped as if gone
    with Box(kind, ini=ini(init={"client_stall": "1500ms"})) as box:
        n = Neighbour(box)
        s = make_session(box)
        rss = box.memory()[1]
        w = box.connect()
        w.request("exec", [("session", s.name)], "yes; :")
        with box.connect() as follower:
            id, _ = box.start("yes")
            follower.request("logs", [("id", id), ("follow", "1")])
            for _ in range(20):
                begun = time.monotonic()
                assert box.exec("echo hi").out == b"hi\n"
                assert time.monotonic() - begun < 8
            assert box.memory()[1] - rss < 16 << 20
            wait_until(lambda: s.show()["state"] == "idle", 10, "the lock is free")
        assert not box.find("yes; :")
        assert s.exec("echo next").triple == (0, b"next\n", b"")
        assert box.ctl("kill", id).status == 0
        w.close()
        n.is_well()


def disappear(box, s, phase):
    """A client that leaves in a phase of its operation."""
    nap = s.sleep_mark()
    first = None
    if phase in ("waiting", "start waiting"):
        first = box.connect()
        first.request("exec", [("session", s.name)],
                      "until [ -e go ]; do sleep 0.02; done; rm -f go")
        wait_until(lambda: s.show().get("running"), 5, "the first runs")
    w = box.connect()
    if phase in ("start waiting", "start dumping"):
        w.request("start", [("session", s.name)], f"sleep {nap}")
    elif phase == "creating":
        w.request("session.create", [("name", f"{s.name}x")])
    elif phase == "stateless":
        w.request("exec", [], f"sleep {nap} & sleep {nap}")
    elif phase == "sending":
        w.request("exec", [("session", s.name), ("stdin", "1")], f"sleep {nap}")
        w.send(wire.STDIN, b"x" * 60000)
        w.send(wire.STDIN, b"x" * 60000)
    elif phase == "killing":
        w.request("exec", [("session", s.name)], f"trap '' TERM; {s.helper} ignore TERM forever")
        wait_until(lambda: box.find("ignore TERM forever"), 5, "it runs")
        w.send(wire.SIGNAL)
        # (or has been: its grace is short)
        wait_until(lambda: [r["state"] for r in box.ps(s.name)] in (["stopping"], []), 5, "it is killed")
    else:
        w.request("exec", [("session", s.name)], f"sleep {nap}; echo after > {s.path('after')}")
    if phase in ("running", "stateless", "sending"):
        wait_until(lambda: box.find(f"sleep {nap}"), 5, "it runs")
    if first:
        wait_until(lambda: s.show()["queue"] == 1, 5, "it waits")
    w.close()
    if first:
        wait_until(lambda: s.show()["queue"] == 0, 5, "it has left the queue")
        s.path("go").touch()
        first.finish()
        first.close()
    return nap


@pytest.mark.parametrize("phase", ["at once", "waiting", "running", "killing", "sending", "stateless",
                                   "creating", "start waiting", "start dumping"])
def test_bad_client_that_disappears(box, neighbour, phase):
    s = make_session(box)
    s.exec("for i in {1..3000}; do declare v$i=$i; done")  # so that the dump takes a while
    for _ in range(5):
        nap = disappear(box, s, phase)
        if phase == "start dumping":  # a started process goes on without its client
            wait_until(lambda: box.find(f"sleep {nap}"), 5, "it was started")
            box.call("kill-all", session=s.name)
        wait_until(lambda: not box.find(f"sleep {nap}") and not box.find("ignore TERM forever"), 5,
                   lambda: f"nothing goes on: {[p.command for p in box.processes()]}")
        assert s.exec("echo next", deadline=10).triple == (0, b"next\n", b"")
        assert not s.path("after").exists()
        if phase == "creating":
            wait_until(lambda: box.call("session.delete", name=f"{s.name}x", check=False).get("name"),
                       5, "what was created can be deleted")
    status = box.status()
    assert status["connections"] == 1 and status["commands"] == 0, status
    box.call("session.delete", name=s.name)


def test_bad_two_hundred_clients_at_once(kind):
    with Box(kind) as box:
        names = [box.session() for _ in range(4)]
        clients = []
        for i in range(200):
            w = box.connect()
            w.request("exec", [("session", names[i % 4])], f"echo {i}")
            clients.append(w)
        for i, w in enumerate(clients):
            a = w.finish()
            assert (a.status, a.out) == (0, b"%d\n" % i), a
            w.close()
        assert box.status()["connections"] == 1


def test_bad_more_clients_than_there_may_be(kind):
    with Box(kind, ini=ini(init={"max_connections": "20"})) as box:
        silent = [box.connect() for _ in range(20)]
        with box.connect() as w:
            assert raw_answer(w)[1]["code"] == "limit"
        silent.pop().close()
        wait_until(lambda: box.call("status", check=False).get("state") == "running", 5,
                   "one place is free again")


def test_bad_queue_of_a_session_is_full(box):
    s = make_session(box)
    clients = [box.connect() for _ in range(66)]
    for w in clients[:-1]:
        w.request("exec", [("session", s.name)], "sleep 30")
    wait_until(lambda: s.show()["queue"] == 64, 5, "one runs, 64 wait")
    clients[-1].request("exec", [("session", s.name)], "sleep 30")
    a = clients[-1].finish()
    assert a.is_error and a["code"] == "limit" and "queue_limit is 64" in a["message"], a
    assert box.call("session.delete", name=s.name)["name"] == s.name
    for w in clients[1:-1]:
        a = w.finish()
        assert a.is_complete, "who waits for a deleted session hears of it"
        w.close()


# ---- what is missing or refused ------------------------------------------------------------


@pytest.mark.parametrize("args, words", [
    ({"shell": "/no/such/shell"}, ["/no/such/shell", "No such file or directory"]),
    ({"shell": "/etc/passwd"}, ["/etc/passwd", "Permission denied"]),
    ({"shell": "/etc"}, ["/etc", "Permission denied"]),
    ({"shell": "/bin/true"}, ["/bin/true", "ended before it was ready"]),
    ({"cwd": "/no/such/folder"}, ["/no/such/folder", "No such file or directory"]),
    ({"cwd": "/etc/passwd"}, ["/etc/passwd", "Not a directory"]),
])
def test_bad_missing_things_of_a_session(box, args, words):
    with pytest.raises(wire.WireError) as e:
        box.session("missing", **args)
    for w in words:
        assert w in e.value.message
    assert "missing" not in [r["name"] for r in box.call("session.list").rows]
    assert box.session("missing") == "missing"  # the name is free
    box.call("session.delete", name="missing")


def test_bad_cwd_of_a_call(s):
    for cwd, word in (("/no/such/folder", "No such file or directory"),
                      ("/etc/passwd", "Not a directory"), ("no\nwhere", "No such file")):
        r = s.run("echo ran", cwd=cwd)
        assert (r.status, r["verdict"], r.out) == (125, "spawn_failed", b"")
        assert word in r["message"] and r["errno"] > 0, r.fields
    assert s.exec("echo next").triple == (0, b"next\n", b"")


def test_bad_program_that_never_answers_as_a_shell(box, neighbour):
    # given a program that reads its script and does nothing with it, then create fails in bounded
    # time and nothing of it stays
    w = box.connect(60)
    w.request("session.create", [("name", "mute"), ("shell", "/bin/cat")])
    assert box.exec("echo hi").out == b"hi\n"
    a = w.finish()
    assert a.is_error and "/bin/cat" in a["message"], a
    assert "mute" not in [r["name"] for r in box.call("session.list").rows]
    assert not box.find("cat /proc/self/fd/3")


def test_bad_delete_while_it_starts(box):
    for i in range(10):
        w = box.connect()
        w.request("session.create", [("name", "early")])
        d = box.call("session.delete", name="early", check=False)
        a = w.finish()
        w.close()
        if d.is_error:  # it came first
            box.call("session.delete", name="early")
        else:
            assert a.get("name") == "early" or "deleted" in a["message"], a


# ---- nothing left: descriptors, space, processes -------------------------------------------


@pytest.mark.parametrize("limit", [64, 128, 300])
def test_bad_few_descriptors(kind, limit):
    # given few descriptors, when one session leaves children behind that hold its output, then
    # others still work, everything can be deleted, and all comes back
    if kind.startswith("runc"):
        how = {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": limit, "hard": limit}]}
    else:
        how = {"before": ["prlimit", f"--nofile={limit}:{limit}", "--"]}
    with Box(kind, **how) as box:
        n, s = Neighbour(box), make_session(box)
        before = box.fds()
        for _ in range(limit):
            s.exec("sleep 300 &", deadline=10)
        assert n.s.exec("echo $mine", deadline=15).triple == (0, b"1\n", b"")
        silent = []
        for _ in range(limit):
            try:
                silent.append(box.connect(2))
            except OSError:
                break
        time.sleep(0.2)
        assert box.is_alive
        for w in silent:
            w.close()
        wait_until(lambda: box.call("status", check=False).get("connections") == 1, 5, "they left")
        gone = box.call("session.delete", name=s.name)
        assert "survivors" not in gone.fields, gone.fields
        assert not box.find("sleep 300")
        wait_until(lambda: box.fds() <= before, 5, lambda: f"{before} descriptors, now {box.fds()}")
        n.is_well()
        for _ in range(limit):
            try:
                box.session()
            except wire.WireError as e:
                assert e.code in ("limit", "system"), e
                break
        assert box.exec("echo hi", deadline=10).status in (0, 125)
        assert box.stop() == 0


@pytest.mark.parametrize("runc", ["runc-root", "runc-user"])
def test_bad_full_runtime_folder(runc):
    # given a runtime folder of 1 MB, when it is full, then the answer names file and reason, init
    # and what needs no space go on, and all works again once there is room
    tmpfs = {"destination": "/small", "type": "tmpfs", "source": "tmpfs",
             "options": ["size=1m", "mode=1777"]}
    with Box(runc, ini=ini(init={"runtime_dir": "/small/run"}), mounts=[tmpfs],
             ready=False) as box:
        box.socket = f"/proc/{box.init_pid}/root/small/run/control.sock"
        box._await_ready()
        s = make_session(box)
        s.exec("head -c 2M /dev/zero > /small/filler")
        r = s.run("echo " + "x" * 50000)
        assert (r.status, r["verdict"]) == (125, "spawn_failed"), r.fields
        assert "/small/run/" in r["message"] and "No space left" in r["message"], r.fields
        assert box.call_exec(["/bin/echo", "hi"]).out == b"hi\n"
        with pytest.raises(wire.WireError, match="No space left"):
            box.session()
        with pytest.raises(wire.WireError, match="could not write its state"):
            box.start("sleep 1", s.name)
        box.call_exec(["/bin/rm", "/small/filler"])
        assert s.exec("echo ok").triple == (0, b"ok\n", b"")
        id, _ = box.start("echo started", s.name)
        assert box.wait_process(id)["status"] == 0
        assert box.stop() == 0


# What a call needs of the runtime folder, and how each is refused when it has no room for that.
# state: the session's afterwards.
NO_ROOM = [
    ("a longer text", lambda b, s: s.run("echo " + "x" * 9000), "kept"),
    ("a call with a folder", lambda b, s: s.run("pwd", cwd="/tmp"), "kept"),
    ("a call with a variable", lambda b, s: s.run("echo $A", env={"A": "b" * 5000}), "kept"),
    ("a start", lambda b, s: b.start("sleep 1", s.name), "kept"),
    ("a fork", lambda b, s: b.call("session.fork", name=s.name), "kept"),
    ("a save", lambda b, s: b.call("session.save", name=s.name), "kept"),
    ("a terminal", lambda b, s: b.call("terminal.open", session=s.name), "kept"),
    ("a create", lambda b, s: b.session(), "kept"),
    ("a text without a session", lambda b, s: b.call_exec("echo hi"), "kept"),
    ("a new shell", lambda b, s: (s.run("exit 3"), s.run("echo hi"))[1], "lost"),
    ("a reset", lambda b, s: b.call("session.reset", name=s.name), "lost"),
    ("a killed shell", lambda b, s: (s.run("kill -9 $$"), s.run("echo hi"))[1], "lost"),
]


def refusal(act):
    """Why something was refused; "" if it was not."""
    try:
        return act().get("message", "")
    except wire.WireError as e:
        return e.message


@pytest.mark.parametrize("runc, scarce, shell", [
    ("runc-root", "size=1m", "bash"), ("runc-user", "size=1m", "dash"),
    ("runc-user", "nr_inodes=40", "bash")])
def test_bad_runtime_folder_that_somebody_else_fills(runc, scarce, shell):
    # given a runtime folder whose file system a stranger fills, bytes or files, then whatever needs
    # some says so in words, at once, and what needs none works; with room again all works, without
    # a restart
    tmpfs = {"destination": "/small", "type": "tmpfs", "source": "tmpfs",
             "options": [scarce, "mode=1777"]}
    fill = {"size=1m": "head -c 2000000 /dev/zero >/small/fill 2>/dev/null; :",
            "nr_inodes=40": "i=0; while : >/small/fill$i; do i=$((i+1)); done"}[scarce]
    text = "[init]\nruntime_dir = /small/run\ncontrol_socket = @RUN@/control.sock\n"
    with Box(runc, ini=text, mounts=[tmpfs]) as box:
        s = make_session(box, shell)
        long, _ = box.start(["/bin/sleep", "300"])
        for what, act, state in NO_ROOM:
            assert s.exec("x=1; cd /tmp; echo ok").triple == (0, b"ok\n", b""), what
            box.inside("sh", "-c", f"({fill}) 2>/dev/null")
            words = refusal(lambda: act(box, s))
            # a reset finds room in what it has, at times; so does most where files are short
            spared = not words and (scarce != "size=1m" or what == "a reset")
            assert spared or "No space left" in words and "/small/run/" in words, (what, words)
            if state == "kept":
                assert s.exec("echo $x$PWD").triple == (0, b"1/tmp\n", b""), what
                r = s.run("sleep 300", timeout=0.1)
                assert (r["verdict"], r["status"]) == ("timeout", 124), r.fields
            assert box.call_exec(["/bin/echo", "hi"]).out == b"hi\n"
            assert [p for p in box.ps() if p["id"] == long and p["state"] == "running"]
            box.inside("sh", "-c", "rm -f /small/fill*")
            if state == "lost":
                assert s.exec("echo ${x-none}").out in (b"none\n", b"1\n"), what
        id, _ = box.start("echo started", s.name)
        assert box.wait_process(id)["status"] == 0
        assert box.call("session.delete", name=box.call("session.fork", name=s.name)["name"])
        box.call("session.delete", name=s.name)
        assert box.exec("echo hi", box.session()).out == b"hi\n"
        assert box.stop() == 0


@pytest.mark.storm
def test_bad_process_limit(kind):
    # given no process left to have, then what cannot be started says fork and why, and what is
    # there can be ended
    if not kind.endswith("user"):
        kind = "ns-user"
    taken = sum(1 for n in os.listdir("/proc") if n.isdigit() and owner(n) == 1000)
    with Box(kind, before=["prlimit", f"--nproc={taken + 40}", "--"]) as box:
        s = make_session(box)
        box.exec("i=0; while [ $i -lt 200 ]; do sleep 300 & i=$((i+1)); done", s.name, timeout=8,
                 deadline=20)
        filler = [box.connect() for _ in range(3)]
        with pytest.raises(wire.WireError) as e:
            for _ in range(60):
                box.start("sleep 301")
        assert "fork" in e.value.message and "unavailable" in e.value.message, e.value
        for w in filler:
            w.close()
        assert "survivors" not in box.call("session.delete", name=s.name).fields
        box.call("kill-all", grace_ms="100")
        wait_until(lambda: not box.processes(), 5, lambda: f"all gone: {box.processes()}")
        # the limit counts all processes of the user on the machine
        wait_until(lambda: box.exec("echo hi").out == b"hi\n", 10, "it works again")
        assert box.stop() == 0


def owner(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


# ---- the runtime folder mistreated -----------------------------------------------------------


def test_bad_runtime_folder_deleted(kind):
    with Box(kind) as box:
        s = make_session(box)
        subprocess.run(f"rm -rf {box.run}/s*", shell=True, check=True)
        r = s.run("echo hi", deadline=10)
        assert r["verdict"] == "spawn_failed" and str(box.run) in r["message"], r.fields
        assert "No such file" in r["message"]
        other = make_session(box)
        assert other.exec("echo hi").out == b"hi\n"
        box.call("session.delete", name=s.name)
        subprocess.run(["rm", "-rf", str(box.run)], check=True)
        assert box.is_alive
        assert box.stop() == 0


REPLACED = {
    "deleted": "rm -rf {f}",
    "folder": "rm -rf {f}; mkdir {f}",
    "full folder": "rm -rf {f}; mkdir -p {f}/a/b; : >{f}/a/b/c; chmod 0 {f}/a",
    "link": "rm -rf {f}; ln -s {decoy} {f}",
    "link to nowhere": "rm -rf {f}; ln -s /no/such/file {f}",
    "fifo": "rm -rf {f}; mkfifo {f}",
    "renamed, a fifo in its place": "mv {f} {f}.old; mkfifo {f}",
    "renamed, a link in its place": "mv {f} {f}.old; ln -s {decoy} {f}",
    "file": "rm -rf {f}; echo 'echo planted' > {f}",
}


@pytest.mark.parametrize("how", REPLACED)
@pytest.mark.parametrize("name", ["out", "err", "status", "text", "state", "call", "go", "in", "driver"])
def test_bad_files_replaced(pool, name, how):
    # given a text that puts something else in the place of one of its session's own files, then the
    # session works on or again after at most one lost shell, others don't notice
    box = pool.get("ns-root")
    n, s = Neighbour(box), make_session(box)
    folder = box.run / next(d for d in os.listdir(box.run) if d.startswith("s") and
                            os.path.exists(box.run / d / "status") and
                            is_folder_of(s, box.run / d))
    # A shell writes its status through a link that its own text has put there: never to a file of
    # the machine, since in an ns-root box that is the real one.
    decoy = s.work / "decoy"
    decoy.write_text("a file of the session's user\n")
    r = s.run(REPLACED[how].format(f=folder / name, decoy=decoy), timeout=5, deadline=15)
    assert r.status in (0, 124, 137), r
    answers = []
    for _ in range(3):
        answers.append(s.run("echo hi", timeout=5, cwd="/tmp", env={"A": "b"}, deadline=15))
    assert answers[-1].triple == (0, b"hi\n", b""), answers
    assert s.run("cat", stdin="in\n", timeout=5, deadline=15).out == b"in\n"
    id, _ = s.start("echo started")
    assert box.wait_process(id)["status"] == 0
    assert s.run("exit 3", timeout=5, deadline=15).status == 3
    assert s.exec("echo on").triple == (0, b"on\n", b"")
    box.call("session.delete", name=s.name)
    assert not folder.exists()
    n.is_well()


def is_folder_of(s, folder):
    """The session whose shell reads from this folder: a token of its own shows which."""
    s.exec(f"token={s.name}")
    s.exec(f": {s.name}-token")
    return f"{s.name}-token" in (folder / "text").read_text()


# ---- texts that work against their own shell -------------------------------------------------

SABOTAGE = [
    "exec 255>&- 2>/dev/null; exec 10>&- 11>&-",
    "exec 255</dev/null 10</dev/null",
    "exec <&- >&- 2>&-",
    "set -n",
    "kill -9 $$",
    "kill -HUP $$",
    "kill -PIPE $$",
    "trap '' 40",
    "trap - 40",
    "trap '' EXIT; exit 3",
    "trap 'sleep 100' EXIT; exit 3",
    "trap 'kill -9 $$' EXIT; exit 3",
    "command() { :; }",
    "printf() { echo no; }",
    "trap() { :; }",
    "exit() { :; }",
    "builtin() { :; }",
    "unalias() { :; }; alias command=: printf=: trap=: exit=:",
    "shopt -s expand_aliases 2>/dev/null; alias command=: printf=: builtin=:; true",
    "__sb_end() { :; }",
    "__sb_arm() { :; }",
    "__sb_end() { exit 5; }",
    "unset -f __sb_end __sb_arm __sb_dump",
    "enable -n printf trap command 2>/dev/null; true",
    "readonly PWD OLDPWD IFS PATH",
    "readonly __sb_unset_name=1",
    "set -eu",
    "set -e",
    "set -C",
    "set -f",
    "set -x",
    "set -v",
    "set -o posix 2>/dev/null || true",
    "IFS=0123456789/",
    "PATH=",
    "unset PATH HOME PWD OLDPWD",
    "umask 777",
    "ulimit -f 0 2>/dev/null; true",
    "ulimit -n 12",
    "ulimit -v 100000 2>/dev/null; true",
    "PS4='$(exit 3)'; set -x",
    "shopt -s extdebug 2>/dev/null; trap 'false' DEBUG 2>/dev/null; true",
    "trap 'exit 9' DEBUG 2>/dev/null; true",
    "trap 'exit 9' ERR 2>/dev/null; false",
    "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); eval v$i=$i; done",
    "f() { f; }; f 2>/dev/null",
    "exec /bin/true",
    "exec /no/such/program",
    "exec >/dev/full",
    "cd /proc/$$/fd; true",
    "while :; do break 99; done; continue 5; return 4",
    "LC_ALL=tr_TR.UTF-8; LANG=xx; true",
    "stty raw 2>/dev/null; kill -STOP $$ & sleep 0.2",
]


@pytest.fixture(params=[("ns-root", "bash"), ("ns-root", "dash"), ("ns-root", "ash"),
                        ("runc-user", "bash"), ("runc-user", "dash"), ("busybox", "ash")],
                ids="-".join)
def victim(request, pool):
    kind, shell = request.param
    box = pool.get(kind)
    n = Neighbour(box, shell if kind == "busybox" else "bash")
    s = make_session(box, shell)
    yield s
    assert box.is_alive, box.log()[-2000:]
    n.is_well()
    box.call("session.delete", name=s.name, deadline=10)
    wait_until(lambda: not [p for p in box.processes() if cwd_of(p.pid).startswith(str(s.work))], 5,
               "nothing of it lives on")


def cwd_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


@pytest.mark.parametrize("text", SABOTAGE)
def test_bad_text(victim, text):
    # given a text that breaks its own shell, then its call ends, and no later call is answered
    # with a status that nothing had: each runs its text or says why not
    s = victim
    r = s.run(text, timeout=4, deadline=15)
    assert r["verdict"] in ("exited", "signaled", "timeout", "shell_ended"), r.fields
    for _ in range(2):
        r = s.run("echo hi; /bin/sh -c 'exit 7'", timeout=4, deadline=15)
        ran = b"hi\n" in r.out if r.status in (0, 7) else "ulimit" in text
        assert ran or r["verdict"] in ("signaled", "shell_ended", "timeout", "spawn_failed") \
            or r.get("shell_restarted"), (r.fields, r.out, r.err)
    r = s.run("while [ 1 = 1 ]; do [ 1 = 1 ]; done; echo no", timeout=0.3, deadline=15)
    assert r["status"] != 0 and r.out == b"", r
    assert r.seconds < 8


OWN_FOLDER = "d=$(readlink /proc/$$/fd/1); d=${d%/out}; case $d in */run/s*) ;; *) exit 99 ;; esac"


@pytest.mark.parametrize("flags", ["0 x", "125 !", "0", "999 e", "-1 e", "x y z"])
def test_bad_forged_status(victim, flags):
    # given a text that writes what the driver would into the status FIFO, then the worst is that it
    # ends its own command early
    s = victim
    s.run(f"{OWN_FOLDER}; i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo \"$i {flags}\"; done "
          "> $d/status; echo hi", timeout=3, deadline=15)
    wait_until(lambda: s.run("echo next", timeout=3, deadline=15).out == b"next\n", 15, "it goes on")
    assert s.box.is_alive


@pytest.mark.storm
def test_bad_flood_into_the_status_fifo(victim):
    s = victim
    s.run(f"{OWN_FOLDER}; (yes 1234567890123456789012345678901234567890 > $d/status &) "
          ">/dev/null 2>&1; true", timeout=3, deadline=15)
    begun = time.monotonic()
    assert s.box.exec(["/bin/echo", "hi"], deadline=10).out == b"hi\n"
    assert time.monotonic() - begun < 8


def test_bad_stopped_shell(victim):
    # given a shell that stops itself, then kill and timeout still work
    s = victim
    r = s.run("kill -STOP $$; echo on", timeout=0.5, deadline=15)
    assert r["verdict"] == "timeout" and r.seconds < 10
    assert s.exec("echo next", deadline=10).triple == (0, b"next\n", b"")


def test_bad_ctrl_c_with_a_full_stdin(box, neighbour):
    # given a command that reads none of a long stdin, then Ctrl-C of its client still kills it
    s = make_session(box)
    with open("/dev/zero", "rb") as zero:
        for args in (["-s", s.name], []):
            p = box.ctl_spawn("exec", *args, "--stdin", "sleep 300", stdin=zero)
            wait_until(lambda: box.find("sleep 300"), 5, "it runs")
            taken = lambda: Path(f"/proc/{p.pid}/io").read_text().split()[1]
            wait_until(lambda: (n := taken()) and not time.sleep(0.03) and taken() == n, 5,
                       "it can send no more")
            p.send_signal(2)
            assert p.wait(15) == 130
            wait_until(lambda: not box.find("sleep 300"), 5, "it was killed")
    box.call("session.delete", name=s.name)


# ---- ends that meet ---------------------------------------------------------------------------


def test_bad_kill_while_the_state_is_written(box, neighbour):
    # given a start that waits for its session's dump, when it is killed, then it never runs, the
    # lock is passed on once, and the numbers stay right
    s = make_session(box)
    before = box.status()["processes"]  # of tests before
    s.exec("for i in {1..5000}; do declare v$i=$i; done")
    for n in range(10):
        w = box.connect()
        w.request("start", [("session", s.name), ("id", f"{s.name}q{n}")], "sleep 300")
        time.sleep(0.003 * n)
        killed = box.call("kill", id=f"{s.name}q{n}", check=False)
        assert s.run("exit 3", deadline=20).status == 3
        assert w.finish().is_complete
        w.close()
        if killed.is_error:  # it overtook the start, whose text comes in a packet of its own
            box.call("kill", id=f"{s.name}q{n}", check=False)
    assert not box.find("sleep 300")
    status = box.status()
    assert status["processes"] == before and status["commands"] == 0, status
    assert s.exec("echo $v5000").out == b"5000\n"
    box.call("session.delete", name=s.name)


@pytest.mark.storm
def test_bad_client_gone_and_session_deleted_together(box, neighbour):
    for i in range(15):
        s = make_session(box)
        w = box.connect()
        w.request("exec", [("session", s.name)],
                  f"trap '' TERM; for i in 1 2 3 4 5; do {s.helper} ignore TERM forever & done; wait")
        wait_until(lambda: len(box.find("ignore TERM forever")) == 5, 5, "they run")
        d = box.connect()
        d.request("session.delete", [("name", s.name)])
        time.sleep(0.04 * i)
        w.close()
        assert d.finish()["name"] == s.name
        d.close()
        assert not box.find("ignore TERM forever")


def test_bad_kill_all_while_little_is_kept(kind):
    with Box(kind, ini=ini(sessions={"process_keep": "50"})) as box:
        s = make_session(box)
        w, w2 = box.connect(), box.connect()
        w.request("exec", [("session", s.name)], "sleep 300")
        wait_until(lambda: s.show().get("running"), 5, "it runs")
        w2.request("start", [("session", s.name), ("id", "waits")], "sleep 301")
        for id in [box.start("true")[0] for _ in range(20)]:
            box.wait_process(id)
        box.write_ini(ini(sessions={"process_keep": "0"}))
        box.call("reload")
        assert box.call("kill-all")["processes"] == 1
        assert box.ps() == [] or [p["kind"] for p in box.ps()] == ["command"]
        assert box.stop() == 0


def test_bad_stop_with_clients_that_do_not_read(kind):
    with Box(kind) as box:
        id, _ = box.start("yes")
        s = make_session(box)
        clients = [box.connect() for _ in range(3)]
        clients[0].request("logs", [("id", id), ("follow", "1")])
        clients[1].request("exec", [("session", s.name)], "yes; :")
        clients[2].request("exec", [], "yes")
        for w in clients:
            assert select.select([w], [], [], 10)[0], "there is something that it does not read"
        assert box.stop() == 0
        for w in clients:
            w.close()


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_bad_kill_right_at_the_fork(pool, shell):
    # given a shell that is interrupted when it is about to fork, then that child dies as well
    box = pool.get("ns-root")
    s = make_session(box, shell)
    for i in range(repeats(3000)):
        w = box.connect()
        w.request("exec", [("session", s.name)], "sleep 300; sleep 301; echo no")
        time.sleep(0.00002 * (i % 60))
        w.close()
    assert s.exec("echo next").triple == (0, b"next\n", b"")
    left = box.find("sleep 30")
    assert not left, left
    box.call("session.delete", name=s.name)
