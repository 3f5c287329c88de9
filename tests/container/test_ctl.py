"""sandboxctl against a toy init: what it sends, prints and returns, byte for byte.

The toy speaks the protocol from docs/control-protocol.md; each test gives it the function that
serves one connection, so odd answers can be had that a real init gives rarely.
"""

import array
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import tempfile
import termios
import threading
import time
from pathlib import Path

import pytest

from rig.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
CTL = str(Path(os.environ.get("SANDBOX_BUILD", ROOT / "build")).resolve() / "sandboxctl")


def unread(pipe):
    """Bytes in a pipe that nobody has read."""
    n = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, n)
    return n[0]


def record(**fields):
    out = b""
    for key, value in fields.items():
        for v in value if isinstance(value, list) else [value]:
            name = key.encode() + (b"[]" if isinstance(value, list) else b"")
            if isinstance(v, str):
                out += name + b"=" + v.encode() + b"\0"
            else:
                out += name + b":=" + json.dumps(v).encode() + b"\0"
    return out


class Connection:
    def __init__(self, sock):
        self.sock = sock
        first = sock.recv(65536)
        if not first:
            raise ConnectionError("a look at whether somebody listens")
        self.verb, self.args, self.text = self.parse(first)

    def parse(self, first):
        assert first.endswith(b"\0")
        verb, *items = first[:-1].split(b"\0")
        args, text, sizes = [], None, {}
        for item in items:
            key, _, value = item.partition(b"=")
            if key in (b"args_size", b"text_size"):
                sizes[key] = int(value)
            elif key == b"text":
                text = value
            else:
                args.append((key.decode(), value))
        if b"args_size" in sizes:
            late = self.late(b"a", sizes[b"args_size"])
            for item in late[:-1].split(b"\0"):
                key, _, value = item.partition(b"=")
                args.append((key.decode(), value))
        if b"text_size" in sizes:
            text = self.late(b"t", sizes[b"text_size"])
        return verb.decode(), args, text

    def late(self, channel, size):
        got = b""
        while len(got) < size:
            packet = self.sock.recv(65536)
            assert packet[:1] == channel
            got += packet[1:]
        return got

    def send(self, channel, payload=b""):
        self.sock.send(channel + payload)

    def result(self, **fields):
        self.send(b"r", record(**fields))

    def error(self, code, message):
        self.send(b"x", record(code=code, errno=0, message=message))


class Toy:
    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="ctl.")
        self.path = os.path.join(self.dir.name, "s")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.bind(self.path)
        self.sock.listen(16)
        self.serve = None
        self.seen = []
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self.one, args=(sock,), daemon=True).start()

    def one(self, sock):
        with sock:
            try:
                c = Connection(sock)
                self.seen.append(c)
                self.serve(c)
            except OSError:
                pass

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.dir.cleanup()

    def popen(self, *args, **kwargs):
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([CTL, "-S", self.path, *args], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **kwargs)

    def run(self, *args, serve=None, stdin=b""):
        self.serve = serve or self.serve
        return subprocess.run([CTL, "-S", self.path, *args], input=stdin, capture_output=True,
                              timeout=30, check=False)


@pytest.fixture
def toy():
    t = Toy()
    yield t
    t.close()


def ended(c, status=0, **more):
    c.result(id="c1", verdict="exited", status=status, **more)


# ---- exec ---------------------------------------------------------------------------------


def test_exec_keeps_streams_apart_and_passes_the_status_on(toy):
    def serve(c):
        c.send(b"n", record(id="c1", pid=7))
        c.send(b"o", b"out\xff\x00")
        c.send(b"e", b"err")
        ended(c, 3)

    r = toy.run("exec", "-s", "dev", "--cwd=/srv", "--env", "A=b=c", "-e", "B=", "--timeout",
                "1.5s", "a 'text'\r\n  $x", serve=serve)
    assert (r.stdout, r.stderr, r.returncode) == (b"out\xff\x00", b"err", 3)
    c = toy.seen[0]
    assert c.verb == "exec" and c.text == b"a 'text'\r\n  $x"
    assert c.args == [("session", b"dev"), ("cwd", b"/srv"), ("env", b"A=b=c"), ("env", b"B="),
                      ("timeout_ms", b"1500")]


def test_options_stand_anywhere(toy):
    r = toy.run("exec", "text", "-sdev", "--cwd", "/x", serve=ended)
    assert r.returncode == 0
    assert toy.seen[0].args == [("session", b"dev"), ("cwd", b"/x")]


def test_exec_argv_is_passed_word_by_word(toy):
    r = toy.run("exec", "-s", "dev", "--", "printf", "%s|", "a b", "", "--json", "-x", serve=ended)
    assert r.returncode == 0
    args = [v for k, v in toy.seen[0].args if k == "arg"]
    assert args == [b"printf", b"%s|", b"a b", b"", b"--json", b"-x"]
    assert toy.seen[0].text is None


@pytest.mark.parametrize("text", [b"", b"x\n", b"nul\0inside", b"\xff\xfe", b"y" * 3_000_000],
                         ids=["empty", "line", "nul", "bytes", "3MB"])
def test_text_from_stdin_and_file_is_exact(toy, text, tmp_path):
    toy.run("exec", "-", serve=ended, stdin=text)
    (tmp_path / "f").write_bytes(text)
    toy.run("exec", "-f", str(tmp_path / "f"))
    assert [c.text for c in toy.seen] == [text, text]


def test_many_arguments_go_in_packets_of_their_own(toy):
    words = [str(i) * 20 for i in range(5000)]
    assert toy.run("exec", "--", *words, serve=ended).returncode == 0
    assert [v.decode() for k, v in toy.seen[0].args if k == "arg"] == words


def test_exec_that_never_ran_is_125_with_the_reason(toy):
    r = toy.run("exec", "x", serve=lambda c: c.error("not_found", "no session 'dev'"))
    assert (r.returncode, r.stderr) == (125, b"sandboxctl: no session 'dev'\n")
    r = toy.run("exec", "x", serve=lambda c: c.result(verdict="spawn_failed", status=127,
                                                      message="exec /bin/nope: No such file"))
    # (a missing program is 127, as in a shell)
    assert (r.returncode, r.stderr) == (127, b"sandboxctl: exec /bin/nope: No such file\n")
    r = toy.run("exec", "x", serve=lambda c: c.result(verdict="spawn_failed", status=125,
                                                      message="cwd /x: No such file"))
    assert (r.returncode, r.stderr) == (125, b"sandboxctl: cwd /x: No such file\n")
    r = subprocess.run([CTL, "-S", "/nonexistent/s", "exec", "x"], capture_output=True, check=False)
    assert r.returncode == 125 and b"is it running?" in r.stderr
    r = toy.run("exec", "x", serve=lambda c: c.send(b"n", record(id="c")))
    assert r.returncode == 125 and b"before the result" in r.stderr


@pytest.mark.parametrize("fields,words", [
    ({"verdict": "timeout", "status": 124, "clock": "total"}, "timed out: its time is over"),
    ({"verdict": "timeout", "status": 124, "clock": "output"}, "timed out: its time without output is over"),
    ({"verdict": "timeout", "status": 124, "clock": "cpu"}, "timed out: its CPU time is over"),
    ({"verdict": "killed_by_client", "status": 137}, "killed by a client"),
    ({"verdict": "output_limit", "status": 137}, "killed: it wrote more than its output limit"),
    ({"verdict": "killed_by_client", "status": 137, "message": "session 'dev' was deleted"},
     "session 'dev' was deleted"),
    ({"verdict": "exited", "status": 124}, None),
    ({"verdict": "signaled", "status": 137, "signal": "SIGKILL"}, None),
])
def test_who_ended_it_is_told_on_one_line(toy, fields, words):
    told = f"sandboxctl: {words}\n".encode() if words else b""
    for line in ["exec", "x"], ["wait", "p1"]:
        r = toy.run(*line, serve=lambda c: c.result(id="c1", **fields))
        assert (r.returncode, r.stdout, r.stderr) == (fields["status"], b"", told)
        r = toy.run("--json", *line)
        assert json.loads(r.stdout)["verdict"] == fields["verdict"]
        assert r.stderr == (told if "message" in fields else b"")


NOTE = b"sandboxctl exec: stdout: 4 bytes seen, 2 kept: left out 1..3\n"


@pytest.mark.parametrize("out,apart,together", [
    ([b"o", b"he"], NOTE, b"he\n" + NOTE),
    ([b"o", b"h\n"], NOTE, b"h\n" + NOTE),
    ([b"e", b"he"], b"he\n" + NOTE, b"he\n" + NOTE),
    ([b"e", b"h\n", b"o", b"e"], b"h\n" + NOTE, b"h\ne\n" + NOTE),
    ([b"e", b"h", b"o", b"e\n"], b"h\n" + NOTE, b"he\n" + NOTE),
])
def test_a_note_begins_on_a_new_line(toy, out, apart, together):
    def serve(c):
        for channel, payload in zip(out[::2], out[1::2]):
            c.send(channel, payload)
        c.send(b"n", record(stream="stdout", bytes="4", **{"from": "1"}, to="3"))
        c.send(b"o", b"!")
        c.result(verdict="timeout", status=124, clock="total")

    why = b"sandboxctl: timed out: its time is over\n"
    assert toy.run("exec", "x", serve=serve).stderr == apart + why
    # on a terminal, or with 2>&1: both in one place
    r = subprocess.run([CTL, "-S", toy.path, "exec", "x"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, timeout=30, check=False)
    assert r.stdout == together + b"!\n" + why


def test_exec_json_holds_the_output(toy):
    def serve(c):
        c.send(b"o", "grün\n\0".encode())
        c.send(b"e", b"\xff\x00a")
        ended(c, 5, duration_s=1.5, strays=["12 sleep", "13 cat"], signal="SIGTERM")

    r = toy.run("exec", "--json", "x", serve=serve)
    assert r.returncode == 5
    assert json.loads(r.stdout) == {
        "id": "c1", "verdict": "exited", "status": 5, "duration_s": 1.5, "signal": "SIGTERM",
        "strays": ["12 sleep", "13 cat"], "stdout": "grün\n\0", "stderr_base64": "/wBh"}
    r = toy.run("exec", "--json", "x", serve=lambda c: c.error("busy", "no"))
    assert json.loads(r.stdout) == {"error": {"code": "busy", "errno": 0, "message": "no"}}


def test_stdin_and_output_both_large_do_not_block_each_other(toy):
    def cat(c):
        while True:
            packet = c.sock.recv(65536)
            assert packet[:1] == b"i"
            if len(packet) == 1:
                break
            for _ in range(3):
                c.send(b"o", packet[1:])
        ended(c)

    data = os.urandom(6_000_000)
    r = toy.run("exec", "--stdin", "cat", serve=cat, stdin=data)
    assert r.returncode == 0 and len(r.stdout) == 3 * len(data)


def test_stdin_waits_while_init_takes_none(toy):
    def serve(c):
        for _ in range(200):
            c.send(b"o", b"x" * 60000)
        ended(c)

    r = toy.run("exec", "--stdin", "x", serve=serve, stdin=b"y" * 10_000_000)
    assert r.returncode == 0 and len(r.stdout) == 200 * 60000


def test_stdin_is_not_touched_without_being_asked(toy):
    r, w = os.pipe()
    os.write(w, b"line\n")
    toy.serve = ended
    assert toy.popen("exec", "x", stdin=r).wait(10) == 0
    assert os.read(r, 10) == b"line\n"


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_kills_the_command_and_takes_the_rest(toy, number, code):
    started, got = threading.Event(), []

    def serve(c):
        c.send(b"o", b"begun\n")
        started.set()
        got.append(c.sock.recv(100))
        c.send(b"o", b"last words\n")
        c.result(verdict="killed_by_client", status=137)

    toy.serve = serve
    p = toy.popen("exec", "sleep 99")
    started.wait(10)
    p.send_signal(number)
    out, _ = p.communicate(timeout=10)
    assert (p.returncode, out, got) == (code, b"begun\nlast words\n", [b"k"])


def test_second_ctrl_c_leaves_at_once(toy):
    started, killed = threading.Event(), threading.Event()

    def serve(c):
        started.set()
        c.sock.recv(100)
        killed.set()
        time.sleep(5)

    toy.serve = serve
    p = toy.popen("exec", "x")
    assert started.wait(10)
    p.send_signal(signal.SIGINT)
    assert killed.wait(10)
    p.send_signal(signal.SIGINT)
    assert p.wait(15) == 130


def test_ctrl_c_works_while_stdout_is_not_read(toy):
    killed = threading.Event()

    def serve(c):
        def flood():
            try:
                while not killed.is_set():
                    c.send(b"o", b"x" * 60000)
            except OSError:
                pass

        t = threading.Thread(target=flood, daemon=True)
        t.start()
        if c.sock.recv(100) == b"k":
            killed.set()
        t.join()
        c.result(verdict="killed_by_client", status=137)

    toy.serve = serve
    p = toy.popen("exec", "yes")
    wait_until(lambda: unread(p.stdout) >= 60000, 10, "its stdout is full")
    p.send_signal(signal.SIGINT)
    assert killed.wait(15)
    p.communicate(timeout=10)
    assert p.returncode == 130


@pytest.mark.parametrize("restore", [True, False])
def test_a_reader_that_leaves_ends_it_quietly(toy, restore):
    left = threading.Event()

    def serve(c):
        try:
            while True:
                c.send(b"o", b"y\n" * 1000)
        finally:
            left.set()

    toy.serve = serve
    p = toy.popen("exec", "yes", restore_signals=restore)
    p.stdout.read(10)
    p.stdout.close()
    assert p.wait(10) in (-signal.SIGPIPE, 141)
    assert p.stderr.read() == b""
    assert left.wait(15)


def test_closed_standard_descriptors_do_no_harm(toy):
    def serve(c):
        c.send(b"o", b"not for the socket")
        ended(c, 4)

    toy.serve = serve
    r = subprocess.run(["sh", "-c", f"{CTL} -S {toy.path} exec x >&- 2>&- <&-"], timeout=10,
                       check=False)
    assert r.returncode == 4


def test_full_disk_is_told(toy):
    def serve(c):
        c.send(b"o", b"x" * 10)
        ended(c)

    toy.serve = serve
    with open("/dev/full", "wb") as full:
        r = subprocess.run([CTL, "-S", toy.path, "exec", "x"], stdout=full, stderr=subprocess.PIPE,
                           check=False)
        assert r.returncode == 1 and b"No space left" in r.stderr
        toy.serve = lambda c: c.result(version="1")
        r = subprocess.run([CTL, "-S", toy.path, "status"], stdout=full, stderr=subprocess.PIPE,
                           check=False)
        assert r.returncode == 1 and b"No space left" in r.stderr


def test_ctrl_c_on_a_terminal(toy):
    killed = threading.Event()

    def serve(c):
        c.send(b"o", b"ready\n")
        if c.sock.recv(10) == b"k":
            killed.set()
        c.result(verdict="killed_by_client", status=137)

    toy.serve = serve
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(CTL, [CTL, "-S", toy.path, "exec", "sleep 9"])
    assert b"ready" in os.read(fd, 100)
    os.write(fd, b"\x03")
    assert killed.wait(15)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    os.close(fd)


# ---- the others ---------------------------------------------------------------------------


def test_wait_and_start(toy):
    assert toy.run("wait", "p1", serve=lambda c: ended(c, 124)).returncode == 124
    r = toy.run("wait", "p1", serve=lambda c: c.error("not_found", "no process 'p1'"))
    assert (r.returncode, r.stderr) == (125, b"sandboxctl: no process 'p1'\n")
    assert toy.run("wait", "-t", "20s", "p1", serve=lambda c: ended(c, 7)).returncode == 7
    r = toy.run("wait", "--timeout", "5", "p1")
    assert r.returncode == 2 and b"500ms" in r.stderr
    r = toy.run("start", "--id", "web", "--stdin", "x", serve=lambda c: c.result(id="web", pid=42))
    assert (r.stdout, r.returncode) == (b"web 42\n", 0)
    assert toy.seen[-1].args == [("id", b"web"), ("stdin", b"1")]


@pytest.mark.parametrize("json_", [False, True])
def test_wait_leaves_after_its_timeout(toy, json_):
    left = threading.Event()

    def serve(c):
        assert c.args == [("id", b"p1")]
        if c.sock.recv(10) == b"":
            left.set()

    r = toy.run("wait", "--timeout", "100ms", "p1", *["--json"][:json_], serve=serve)
    assert (r.returncode, r.stderr) == (123, b"sandboxctl: p1 still runs\n")
    assert (json.loads(r.stdout) == {"id": "p1", "verdict": "running"}) if json_ else r.stdout == b""
    assert left.wait(10)


def test_logs_label_whole_lines(toy):
    def serve(c):
        for channel, payload in [(b"o", b"a" * 9000), (b"e", b"one\ntw"), (b"o", b"b\n\nlast"),
                                 (b"e", b"o\n"), (b"o", b" line")]:
            c.send(channel, payload)
        c.send(b"n", record(lost_from=10, lost_to=20))
        c.result(to=100)

    r = toy.run("logs", "--labelled", "p1", serve=serve)
    assert r.stdout == (b"stderr: one\nstdout: " + b"a" * 9000 + b"b\nstdout: \nstderr: two\n"
                        b"stdout: last line\n")
    assert r.stderr == b"sandboxctl logs: lost bytes 10..20\n"
    r = toy.run("logs", "p1")
    assert r.stdout == b"a" * 9000 + b"b\n\nlast line"
    r = toy.run("logs", "-f", "--tail", "5", "--stderr", "p1")
    assert toy.seen[-1].args == [("id", b"p1"), ("follow", b"1"), ("stream", b"stderr"),
                                 ("tail", b"5")]
    r = toy.run("logs", "--json", "p1")
    got = json.loads(r.stdout)
    assert got["stderr"] == "one\ntwo\n" and got["lost"] == ["10..20"] and got["to"] == 100
    r = toy.run("logs", "--json", "-f", "p1")
    chunks = [json.loads(line) for line in r.stdout.splitlines()]
    assert "".join(c.get("data", "") for c in chunks if c.get("stream") == "stderr") == "one\ntwo\n"


def test_send_forwards_stdin_and_half_closes(toy):
    got = []

    def serve(c):
        while True:
            packet = c.sock.recv(65536)
            if not packet:
                break
            got.append(packet)
        c.result(bytes=sum(len(p) - 1 for p in got))

    r = toy.run("--json", "send", "p1", "--eof", serve=serve, stdin=b"z" * 100_000)
    assert json.loads(r.stdout) == {"bytes": 100_000} and got[-1] == b"i"
    got.clear()
    assert toy.run("send", "p1", stdin=b"7\n").returncode == 0
    assert got == [b"i7\n"]


def test_lists_are_tables_or_json(toy):
    def serve(c):
        c.send(b"l", record(name="dev", state="idle", pid=7, queue=0, uptime_s=75.2, cwd="/a b",
                            shell="/bin/bash"))
        c.send(b"l", record(name="évil", state="busy", pid=123456, queue=2, uptime_s=1.5,
                            cwd="/x\x1b[31m\n", shell="/bin/sh"))
        c.result()

    r = toy.run("session", "list", serve=serve)
    lines = r.stdout.decode().splitlines()
    assert len(lines) == 3 and lines[0].split()[:3] == ["NAME", "STATE", "PID"]
    assert "1m15s" in lines[1] and "\x1b" not in lines[2] and "\\x1b[31m\\n" in lines[2]
    assert lines[1].index("idle") == lines[2].index("busy")
    rows = json.loads(toy.run("session", "list", "--json").stdout)
    assert rows[1]["cwd"] == "/x\x1b[31m\n" and rows[0]["pid"] == 7
    assert json.loads(toy.run("ps", "--json", serve=lambda c: c.result()).stdout) == []


def test_session_verbs(toy):
    r = toy.run("session", "create", "dev", "--timeout", "5s", "--shell", "/bin/dash",
                serve=lambda c: c.result(name="dev"))
    assert (r.stdout, r.returncode) == (b"dev\n", 0)
    assert toy.seen[-1].args == [("name", b"dev"), ("shell", b"/bin/dash"), ("timeout_ms", b"5000")]
    toy.run("session", "env", "dev", "A=1", "-B", "C=-x=")
    assert toy.seen[-1].args == [("name", b"dev"), ("env", b"A=1"), ("unset", b"B"),
                                 ("env", b"C=-x=")]
    toy.run("session", "env", "A=1")
    assert toy.seen[-1].args == [("env", b"A=1")]
    r = toy.run("session", "delete", "dev", serve=lambda c: c.result(survivors=["9 stuck"]))
    assert r.returncode == 1 and b"9 stuck" in r.stderr


def test_session_delete_of_several(toy):
    def serve(c):
        name = c.args[0][1].decode()
        if name == "b":
            c.error("not_found", "session 'b': not found")
        else:
            c.result(name=name, killed=1)

    r = toy.run("session", "delete", "a", "b", "c", serve=serve)
    assert (r.returncode, r.stdout, r.stderr) == (1, b"", b"sandboxctl: session 'b': not found\n")
    assert [c.args for c in toy.seen] == [[("name", n)] for n in (b"a", b"b", b"c")]
    assert toy.run("session", "delete", "a", "c").returncode == 0
    r = toy.run("session", "delete", "--json", "a", "b", "c")
    a, b, c = json.loads(r.stdout)
    assert r.returncode == 1 and a["name"] == "a" and b["error"]["code"] == "not_found" and c["name"] == "c"
    assert json.loads(toy.run("session", "delete", "--json", "a").stdout)["name"] == "a"
    r = subprocess.run([CTL, "-S", "/nonexistent/s", "session", "delete", "a", "b"], capture_output=True, check=False)
    assert r.returncode == 3 and r.stderr.count(b"\n") == 1


def test_kill(toy):
    toy.serve = lambda c: c.result(id="p", killed=2)
    assert toy.run("kill", "--signal", "int", "p").returncode == 0
    assert toy.seen[-1].args == [("id", b"p"), ("signal", b"SIGINT")]
    assert toy.run("kill", "--running", "dev", "--grace", "200ms").returncode == 0
    assert toy.seen[-1].args == [("running", b"dev"), ("grace_ms", b"200")]
    assert toy.run("kill").returncode == 2
    assert toy.run("kill", "--running", "dev", "p").returncode == 2
    assert toy.run("kill-all", "-s", "dev").returncode == 0
    assert toy.seen[-1].args == [("session", b"dev")]


def test_shutdown_waits_until_nobody_listens(toy):
    answered = threading.Event()

    def serve(c):
        c.result()
        answered.set()

    begun = time.monotonic()
    toy.serve = serve
    p = toy.popen("shutdown")
    assert answered.wait(10)
    time.sleep(0.2)  # it looks again and again, and finds somebody
    assert p.poll() is None
    toy.sock.shutdown(socket.SHUT_RDWR)
    toy.sock.close()
    assert p.wait(15) == 0 and time.monotonic() - begun < 15
    toy.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    toy.sock.bind(toy.path + "2")
    toy.sock.listen(1)


@pytest.mark.parametrize("line,words", [
    (["exce", "x"], ["exce", "did you mean 'exec'"]),
    (["session", "lst"], ["did you mean 'session list'"]),
    (["session", "rm", "x"], ["did you mean 'session delete'"]),
    (["service", "kill", "x"], ["did you mean 'service signal'"]),
    (["list"], ["did you mean 'ps'"]),
    (["run", "x"], ["did you mean 'exec'"]),
    (["kill", "-9", "x"], ["-9", "here it is --signal KILL"]),
    (["kill", "-s", "KILL", "x"], ["-s", "here it is --signal SIG"]),
    (["exec", "-d", "x"], ["-d", "here it is --detach"]),
    (["exec", "-it", "x"], ["-i", "--stdin", "terminal"]),
    (["session"], ["second word"]),
    (["exec", "--tiemout", "3s", "x"], ["did you mean '--timeout'"]),
    (["exec", "a", "b"], ["quote it", "--"]),
    (["exec"], ["no command"]),
    (["exec", "--"], ["nothing follows"]),
    (["exec", "--timeout", "5", "x"], ["500ms"]),
    (["exec", "--timeout"], ["needs a value"]),
    (["exec", "--stdin=1", "x"], ["takes no value"]),
    (["exec", "--env", "1A=x", "x"], ["NAME=VALUE"]),
    (["exec", "-f", "/nonexistent", "x"], ["more than one"]),
    (["exec", "-f", "/nonexistent"], ["/nonexistent", "No such file"]),
    (["wait"], ["too few"]),
    (["status", "x"], ["unexpected argument 'x'"]),
    (["kill", "--signal", "NOPE", "x"], ["not a signal"]),
    (["logs", "--tail", "x", "id"], ["not a number"]),
    ([], []),
])
def test_usage_errors_are_2(toy, line, words):
    # (of exec 125: what it ends with is the command's status, and 2 could be one)
    r = toy.run(*line, serve=ended)
    assert r.returncode == (125 if line[:1] == ["exec"] else 2) and not toy.seen
    for word in words:
        assert word in r.stderr.decode()


def test_help_and_version(toy):
    for line in (["--help"], ["exec", "--help"], ["help", "session", "create"], ["-h"]):
        r = toy.run(*line)
        assert r.returncode == 0 and r.stdout.startswith(b"usage: sandboxctl") and not r.stderr
    assert toy.run("--version").stdout.startswith(b"sandboxctl ")
    for family, other in (("session", "service"), ("service", "session")):
        told = toy.run(family, "--help").stdout.decode()
        assert f"\n  {family} list" in told and f"\n  {other} " not in told and "\n  exec " not in told
    assert toy.run("-V").stdout == toy.run("--version").stdout


def test_unreachable_is_3():
    env = dict(os.environ, SANDBOX_SOCKET="/nonexistent/s")
    r = subprocess.run([CTL, "status"], env=env, capture_output=True, check=False)
    assert r.returncode == 3 and b"/nonexistent/s" in r.stderr and b"-S SOCKET" in r.stderr


def test_socket_is_found_in_tmpdir(toy, tmp_path):
    if any(Path(p).exists() for p in ("/run/sandbox/control.sock",
                                      f"/dev/shm/sandbox-{os.getuid()}/control.sock")):
        pytest.skip("another init runs here")
    toy.serve = lambda c: c.result(version="9")
    place = tmp_path / f"sandbox-{os.getuid()}"
    place.mkdir()
    env = dict(os.environ, TMPDIR=str(tmp_path))
    env.pop("SANDBOX_SOCKET", None)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.bind(str(place / "control.sock"))
    sock.listen(1)
    toy.sock, old = sock, toy.sock
    threading.Thread(target=toy.loop, daemon=True).start()
    r = subprocess.run([CTL, "status"], env=env, capture_output=True, check=False)
    old.close()
    assert (r.returncode, r.stdout) == (0, b"version: 9\n")


def complete(toy, line):
    words = line.split(" ")
    script = (f"source {ROOT}/ctl/completion.bash; COMP_WORDS=({' '.join(words[:-1])} "
              f"'{words[-1]}'); COMP_CWORD={len(words) - 1}; _sandboxctl; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    env = dict(os.environ, SANDBOX_SOCKET=toy.path)
    env["PATH"] = f"{os.path.dirname(CTL)}:{env['PATH']}"
    out = subprocess.run(["bash", "-c", script], env=env, capture_output=True, check=False)
    return out.stdout.decode().split()


def test_completion(toy):
    def serve(c):
        if c.verb == "session.list":
            c.send(b"l", record(name="dev"))
            c.send(b"l", record(name="data"))
        elif c.verb == "service.list":
            c.send(b"l", record(name="nginx"))
            c.send(b"l", record(name="redis"))
        else:
            c.send(b"l", record(id="web"))
        c.result()

    toy.serve = serve
    assert complete(toy, "sandboxctl ex") == ["exec"]
    assert complete(toy, "sandboxctl service st") == ["status", "start", "stop"]
    assert complete(toy, "sandboxctl service start nginx r") == ["redis"]
    assert complete(toy, "sandboxctl service logs -f ") == ["nginx", "redis"]
    assert complete(toy, "sandboxctl service signal HU") == ["HUP"]
    assert complete(toy, "sandboxctl service list --w") == ["--watch"]
    assert complete(toy, "sandboxctl session ") == ["create", "list", "show", "delete", "reset",
                                                    "fork", "save", "env"]
    assert complete(toy, "sandboxctl session show d") == ["dev", "data"]
    assert complete(toy, "sandboxctl exec -s de") == ["dev"]
    assert complete(toy, "sandboxctl logs w") == ["web"]
    assert complete(toy, "sandboxctl exec --ti") == ["--timeout"]
    assert complete(toy, "sandboxctl wait --ti") == ["--timeout"]
    assert complete(toy, "sandboxctl --v") == ["--version"]
    assert complete(toy, "sandboxctl session delete dev da") == ["data"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "webfile").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line, words", [
    ("logs -f ", ["web", "worker"]),
    ("logs -f w", ["web", "worker"]),
    ("logs -n 3 -f wo", ["worker"]),
    ("logs --follow w", ["web", "worker"]),
    ("logs --file w", ["webfile"]),
    ("events -f --k", ["--kind"]),
    ("events -f w", []),
    ("exec -f w", ["webfile"]),
    ("start -s web -f w", ["webfile"]),
    ("session create --from w", ["webfile"]),
    ("exec --from w", []),
    ("exec --wait-for w", []),
    ("exec --output-limit w", []),
    ("exec --output-limit-action ", ["keep", "kill"]),
    ("exec --output-limit-action ki", ["kill"]),
    ("kill --stray ", ["123", "1456", "78"]),
    ("kill --stray 1", ["123", "1456"]),
    ("kill --grace 1s --stray 7", ["78"]),
    ("events --kind s", ["session", "stray", "stop", "service"]),
    ("events -f -k o", ["oom"]),
])
def test_completion_of_what_an_option_takes(toy, folder, line, words):
    def serve(c):
        if "stray" in line:
            assert (c.verb, c.args) == ("ps", [("kind", b"stray")])
            for pid in (123, 1456, 78):
                c.send(b"l", record(id="", pid=pid))
        else:
            for id in ("web", "worker"):
                c.send(b"l", record(id=id))
        c.result()

    toy.serve = serve
    assert complete(toy, f"sandboxctl {line}") == words


def test_completion_knows_the_kinds_of_events(toy, one):
    why = one.ctl("events", "--kind", "nothing").err.decode()
    kinds = re.search(r"want one of (.*)", why).group(1).split(", ")
    assert sorted(complete(toy, "sandboxctl events --kind ")) == sorted(kinds)
