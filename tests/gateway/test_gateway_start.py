"""Init's side of the gateway: its start, its restart, what it hands over, its user, its end. A stand-in
(tests/helpers/fake_gateway.py) is run in its place, so that it can be made to fail and to lie."""

import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from rig.box import ROOT, Box, base, build_dir, programs, status_fields
from rig.wait import wait_until
from rig.wire import WireError

VALGRIND = ["valgrind", "--quiet", "--vgdb=no", "--leak-check=full", "--show-leak-kinds=all",
            "--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=99",
            "--trace-children=no", "--child-silent-after-fork=yes"]
TOKEN = "s3cret-of-the-gateway"
NOBODY = 61000


@pytest.fixture(scope="module")
def fake():
    """A folder with the programs under test and the stand-in beside them."""
    folder = base() / "with-fake-gateway"
    shutil.copytree(programs(), folder, symlinks=True)
    for name in ("sandbox-gateway", "static/sandbox-gateway"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(ROOT / "tests/helpers/fake_gateway.py", folder / "sandbox-gateway")
    (folder / "sandbox-gateway").chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class Gateway(Box):
    """A box with a gateway that listens on box.address, and a token unless token=None."""

    def __init__(self, kind="ns-root", *, gateway=None, token=TOKEN, ini=None, **kw):
        self.keys, self.token, self.more = gateway or {}, token, ini or {}
        super().__init__(kind, ini={}, **kw)

    def sections(self, **keys):
        own = {"listen": f"unix:{self.address}"}
        if self.token:
            own["token_file"] = str(self.token_file)
        own.update(self.keys, **keys)
        return {**self.more, "gateway": {
            k: v and v.replace("@WORK@", str(self.work)) for k, v in own.items()}}

    def _init_argv(self, ini, flags, main):
        self.http_dir = self.dir / "http"
        self.http_dir.mkdir()
        self.http_dir.chmod(0o1777)
        self.address = self.http_dir / "sock"
        self.token_file = self.dir / "token"
        if self.token:
            self.token_file.write_text(self.token + "\n")
            os.chown(self.token_file, self.uid, self.uid)
            self.token_file.chmod(0o600)
        return super()._init_argv(self.sections(), flags, main)

    def say(self, *words, address=None, deadline=15):
        """One line to the gateway, its answer."""
        address = address or self.address

        def connected():
            s = socket.socket(socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX)
            s.settimeout(deadline)
            try:
                s.connect(address if isinstance(address, tuple) else str(address))
                return s
            except (FileNotFoundError, ConnectionRefusedError):
                s.close()

        with wait_until(connected, deadline, lambda: f"the gateway; log: {self.log()[-3000:]}") as s:
            s.sendall("\t".join(words).encode() + b"\n")
            line = s.makefile().readline()
        return json.loads(line) if line else None

    def about(self, **kw):
        return json.loads(self.say("about", **kw))

    @property
    def gateway(self):
        return {k: v for k, v in self.status().items() if k.startswith("gateway")}

    def await_gateway(self, state="running", deadline=15, **more):
        def found():
            g = self.gateway
            return g if g.get("gateway") == state and all(
                g.get(f"gateway_{k}") == v for k, v in more.items()) else None

        return wait_until(found, deadline, lambda: f"gateway {state}: {self.gateway}; {self.log()[-2000:]}")

    @property
    def host_gateway_pid(self):
        return self.host_pid(self.gateway["gateway_pid"])


@pytest.fixture(scope="module", params=["ns-root"])
def shared(request, fake):
    with Gateway(request.param, bin=fake, ini={"sessions": {"user": "1000"}}) as box:
        box.about()
        yield box
        assert box.is_alive
        assert box.stop() == 0
        assert box.survivors() == []


# ---- the start ----


def test_it_gets_its_options_two_descriptors_and_nothing_else(shared):
    a = shared.about()
    assert a["argv"] == ["--control-fd=3", "--token-fd=4", f"--token-file={shared.token_file}",
                         f"--listen=unix:{shared.address}",
                         "--workspace=/workspace", "--on-delete=reset", "--max-body=33554432",
                         "--max-connections=1024", "--idle-timeout=75000"]
    assert a["token"] == TOKEN + "\n" and a["fds"] == [3, 4]
    assert list(a["environ"]) in (["PATH"], ["PATH", "LC_CTYPE"])  # Python adds the other
    assert a["cwd"] == "/"


def test_it_has_a_user_of_its_own_and_no_privileges(shared):
    a = shared.about()
    assert a["uid"] == [NOBODY] * 3 and a["gid"] == [NOBODY] * 3 and a["groups"] == [NOBODY]
    assert a["caps"] == ["0" * 16] * 4 and a["no_new_privs"] == "1"


@pytest.mark.parametrize("kind", ["ns-user", "runc-root", "runc-user"])
def test_it_starts_where_it_may(kind, fake):
    with Gateway(kind, bin=fake) as box:
        g = box.await_gateway()
        fields = status_fields(box.host_gateway_pid)
        own = NOBODY if kind == "runc-root" else 1000
        assert fields["Uid"].split() == [str(own)] * 4
        assert fields["NoNewPrivs"] == "1" and int(fields["CapPrm"], 16) == 0
        assert g["gateway_listen"] == [f"unix:{box.address}"]
        assert "exited 0" in box.ctl_ok("exec", "echo exited $?").out.decode()
        assert box.stop() == 0


def test_root_that_cannot_switch_users_runs_it_as_itself_without_capabilities(fake):
    with Gateway(bin=fake, before=["setpriv", "--bounding-set=-setuid,-setgid", "--"]) as box:
        a = box.about()
        assert a["uid"] == [0] * 3 and a["caps"] == ["0" * 16] * 4 and a["no_new_privs"] == "1"
        assert box.stop() == 0


def test_status_and_ps_show_it(shared):
    g = shared.await_gateway()
    assert g["gateway_listen"] == [f"unix:{shared.address}"]
    row, = [r for r in shared.ps() if r["kind"] == "gateway" and r["id"] == "gateway"]
    assert row["pid"] == g["gateway_pid"] and row["state"] == "running"
    assert row["listen"] == f"unix:{shared.address}"
    out = shared.ctl_ok("status").out.decode()
    assert "gateway" in out and str(g["gateway_pid"]) in out
    assert str(g["gateway_pid"]) in shared.ctl_ok("ps").out.decode()


# ---- what it hands over ----


def test_a_handed_descriptor_is_a_connection(shared):
    answer = shared.say("call", "exec", "text=exit 3")
    assert answer[0] == "r" and "status:=3" in answer, answer


def test_the_helper_runs_as_the_sessions_user(shared):
    a = json.loads(shared.say("helper"))
    assert a["argv"] == ["--file-helper", "--workspace=/workspace"]
    assert a["uid"] == [1000] * 3 and a["caps"] == ["0" * 16] * 4
    assert a["fds"] == [3] and "PATH" in a["environ"]


def test_helpers_are_bounded(shared):
    # given six at once, then four are started and two are refused, and later there is room again
    wait_until(lambda: not [r for r in shared.ps() if r["id"] == "file-helper"], 15, "no helper")
    assert shared.say("helpers", "6") == 4
    wait_until(lambda: not [r for r in shared.ps() if r["id"] == "file-helper"], 15, "all have ended")
    assert json.loads(shared.say("helper"))["uid"] == [1000] * 3


@pytest.mark.parametrize("what", ["pipe", "stream", "listening", "file", "none", "two", "many", "word", "words", "said",
                                  "long", "kept", "linger"])
def test_nonsense_harms_nobody(shared, what):
    g, before = shared.await_gateway(), shared.fds()
    for _ in range(2 if what == "linger" else 40):
        assert shared.say("send", what) == "sent"
    assert shared.say("call", "exec", "text=exit 4").startswith("r")
    assert shared.gateway["gateway_pid"] == g["gateway_pid"]
    if what not in ("kept", "linger"):
        wait_until(lambda: shared.fds() <= before + 2, 10, lambda: f"{shared.fds()}")


def test_nonsense_is_said_once_of_each_gateway(fake):
    with Gateway(bin=fake) as box:
        for what in ("pipe", "stream", "pipe"):
            assert box.say("send", what) == "sent"
        assert box.say("call", "exec", "text=exit 4").startswith("r")
        assert box.log().count("it handed over what is no SOCK_SEQPACKET Unix socket") == 1
        assert box.stop() == 0


def test_an_empty_packet_is_the_end_of_it(fake):
    with Gateway(bin=fake) as box:
        box.about()
        pid = box.await_gateway()["gateway_pid"]
        box.say("send", "empty")
        wait_until(lambda: box.gateway.get("gateway_pid") not in (None, pid), 15, "another gateway")
        assert box.say("call", "exec", "text=exit 4").startswith("r")


# ---- its end and its restart ----


def test_kill_9_in_mid_request(shared):
    # given a command, a process and a request under way, when the gateway is killed, then it is back,
    # and the others have not noticed
    shared.session("s")
    shared.exec("x=kept", "s")
    process, pid = shared.start("exec sleep 301")
    with shared.connect() as w:
        w.request("exec", [("session", "s")], "echo begun; sleep 2; echo $x")
        restarts = shared.gateway["gateway_restarts"]
        os.kill(shared.host_gateway_pid, signal.SIGKILL)
        at = shared.await_gateway(restarts=restarts + 1)
        assert at["gateway_trouble"] == "killed by SIGKILL"
        assert shared.say("call", "exec", "text=exit 5").startswith("r")
        a = w.finish()
    assert (a.status, a.out) == (0, b"begun\nkept\n")
    assert [r["state"] for r in shared.ps() if r["id"] == process] == ["running"]
    assert shared.host_pid(pid)
    shared.call("kill", id=process)
    shared.call("session.delete", name="s")


def hexed(text):
    return (text if isinstance(text, bytes) else text.encode()).hex()


def test_its_words_are_told(fake):
    # given a gateway that says what is wrong, in any bytes; then status, log and events tell it, once, until it says
    # that all is well; what it says before it ends is why it ended
    with Gateway(bin=fake) as box:
        for said, told in (("no room", "no room"), (b"a\nb\x1b[31m\0c\x7f", "a?b?[31m?c?"), (b"\xff caf\xc3\xa9", "? caf??"),
                           ("café", "café"), ("x" * 500, "x" * 319)):
            for _ in range(3):
                box.say("say", hexed("t") + hexed(said))
            box.await_gateway(trouble=told)
        assert box.log().count("event=gateway_trouble") == 5
        for _ in range(3):
            box.say("say", hexed("t"))
        wait_until(lambda: "gateway_trouble" not in box.gateway, 15, lambda: f"{box.gateway}")
        assert box.log().count("it works again") == 1
        box.say("say", hexed("tstill"))
        box.say("say", hexed("t" + "x" * 513))  # too long: no words
        box.await_gateway(trouble="still")
        assert box.exec("echo unharmed").out == b"unharmed\n"
        for i in range(2):
            assert box.say("last", hexed("ethe disk is full")) is None
            box.await_gateway(trouble="the disk is full", restarts=i + 1)
        assert box.log().count("the disk is full") == 1
        events = [json.loads(l) for l in box.ctl_ok("events", "--kind", "gateway").out.splitlines()]
        assert [e["what"] for e in events if e.get("why") in ("still", "the disk is full")] == ["trouble", "ended"]
        assert box.say("exit", "3") is None
        box.await_gateway(trouble="exited with status 3")
        assert box.stop() == 0


def test_it_is_back_within_a_second(fake):
    with Gateway(bin=fake) as box:
        box.about()
        os.kill(box.host_gateway_pid, signal.SIGKILL)
        box.await_gateway(restarts=1)
        events = [json.loads(l) for l in box.ctl_ok("events", "--kind", "gateway").out.splitlines()]
        began = [e for e in events if e["what"] == "started"]
        ended, = [e for e in events if e["what"] == "ended"]
        assert len(began) == 2 and ended["why"] == "killed by SIGKILL"
        assert ended["restart_ms"] == 100


def test_what_cannot_start_is_said_once_and_tried_again(fake):
    # given a gateway that ends at once with the same status, then the delays grow, the log says it
    # once, and the container is unharmed; when the status changes, it is said again; when it works
    # again, so it does, within the longest delay
    (fake / "gateway-fails").write_text("7")
    try:
        with Gateway(bin=fake, main=["sleep", "600"]) as box:
            wait_until(lambda: box.gateway.get("gateway_restarts", 0) >= 4, 20, lambda: f"{box.gateway}")
            assert box.gateway["gateway_trouble"] == "exited with status 7"
            assert box.log().count("exited with status 7") == 1
            assert box.exec("echo unharmed").out == b"unharmed\n"
            (fake / "gateway-fails").write_text("8")
            wait_until(lambda: box.log().count("exited with status 8") == 1, 15, lambda: box.log())
            events = [json.loads(l) for l in box.ctl_ok("events", "--kind", "gateway").out.splitlines()]
            assert [e["restart_ms"] for e in events if e["what"] == "ended"][0] == 100
            assert [e["restart_ms"] for e in events if e["what"] == "ended"][-1] >= 800, "no hot loop"
            (fake / "gateway-fails").unlink()
            assert box.about()["token"] == TOKEN + "\n"
            box.signal(signal.SIGTERM)
            assert box.wait() == 143
            assert box.survivors() == []
    finally:
        (fake / "gateway-fails").unlink(missing_ok=True)


def test_a_port_that_is_taken(fake):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Gateway(bin=fake, gateway={"listen": f"127.0.0.1:{port}"}) as box:
            box.await_gateway("waiting")
            wait_until(lambda: "Address already in use" in box.log(), 15, lambda: box.log())
            assert box.exec("echo unharmed").out == b"unharmed\n"
            taken.close()
            assert box.about(address=("127.0.0.1", port))["uid"] == [NOBODY] * 3
            assert box.stop() == 0


def test_several_addresses(fake):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with Gateway(bin=fake, gateway={"listen": f"unix:@WORK@/a, localhost:{port}"}) as box:
        box.work.chmod(0o777)
        assert box.about(address=("127.0.0.1", port))["token"] == TOKEN + "\n"
        assert box.about(address=box.work / "a")["token"] == TOKEN + "\n"
        assert box.gateway["gateway_listen"] == [f"unix:{box.work}/a", f"127.0.0.1:{port}"]
        # and ps tells them as it does of strays
        assert f"unix:{box.work}/a,tcp:127.0.0.1:{port}" in [r.get("listen") for r in box.ps()]


def test_a_missing_program(fake):
    # given no sandbox-gateway beside init, then the one in PATH is run, and without one it is said
    # what to do
    path, other = base() / "path", base() / "without-gateway"
    try:
        path.mkdir()
        shutil.copytree(fake, other, symlinks=True)
        (other / "sandbox-gateway").rename(path / "sandbox-gateway")
        with Gateway(bin=other, env={"PATH": f"/usr/bin:/bin:{path}"}) as box:
            assert box.about()["environ"]["PATH"] == f"/usr/bin:/bin:{path}"
            assert box.stop() == 0
        with Gateway(bin=other) as box:
            trouble = box.await_gateway("waiting")["gateway_trouble"]
            assert trouble.startswith("exec: No such file or directory (sandbox-gateway must be beside")
            assert box.exec("echo unharmed").out == b"unharmed\n"
            assert box.stop() == 0
    finally:
        for folder in (path, other):
            shutil.rmtree(folder, ignore_errors=True)


# ---- the token ----


def test_a_token_file_that_comes_late(fake):
    with Gateway(bin=fake, gateway={"token_file": "@WORK@/token"}) as box:
        assert box.await_gateway("waiting")["gateway_trouble"] == (
            f"token_file {box.work}/token: No such file or directory")
        (box.work / "token").write_text("late\n")
        assert box.about()["token"] == "late\n"


def test_a_token_file_that_hangs(fake):
    # given a file whose open does not come back, then init goes on, commands with stdin too, and the
    # gateway starts when the file does open
    with Gateway(bin=fake, ready=False, gateway={"token_file": "@WORK@/fifo"}) as box:
        os.mkfifo(box.work / "fifo", 0o600)
        box._await_ready()
        box.await_gateway("starting")
        wait_until(lambda: len(os.listdir(f"/proc/{box.host_gateway_pid}/fd")) <= 8, 10, "nothing of init's is held")
        r = box.exec("cat; echo $?", stdin=b"in\n")
        assert r.triple == (0, b"in\n0\n", b"")
        with open(box.work / "fifo", "w") as f:
            f.write("slow\n")
        assert box.about()["token"] == "slow\n"
        assert box.stop() == 0


READ_IT = r"""
import ctypes, os, sys
pid, found = int(sys.argv[1]), []
for name in ("environ", "cmdline", "mem", "auxv", "maps", "stack"):
    try:
        with open(f"/proc/{pid}/{name}", "rb", 0) as f:
            data = f.read(65536)
            print(name, "token" if sys.argv[2].encode() in data else "opened")
    except OSError as e:
        print(name, os.strerror(e.errno))
for fd in range(16):  # root may list them
    for how in (os.readlink, lambda path: os.open(path, os.O_RDONLY)):
        try:
            print("fd", how(f"/proc/{pid}/fd/{fd}"))
            sys.exit()
        except OSError as e:
            last = os.strerror(e.errno) if e.errno != 2 else last
print("fd", last)
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
print("ptrace", libc.ptrace(16, pid, None, None), os.strerror(ctypes.get_errno()))
pidfd = libc.syscall(434, pid, 0)
print("pidfd_getfd", libc.syscall(438, pidfd, 3, 0), os.strerror(ctypes.get_errno()))
"""


@pytest.mark.parametrize("kind,user,same", [("ns-root", "1000", False), ("runc-root", None, False),
                                            ("runc-root", "1000", False), ("ns-user", None, True)])
def test_a_session_cannot_read_the_token_from_the_gateway(kind, user, same, fake):
    """Neither as another user nor as the same one, nor as a root without capabilities to trace."""
    with Gateway(kind, bin=fake, ini={"sessions": {"user": user}}) as box:
        box.about()
        pid = box.gateway["gateway_pid"]
        r = box.exec(["python3", "-c", READ_IT, str(pid), TOKEN])
        got = dict(line.split(" ", 1) for line in r.lines)
        assert "token" not in r.out.decode().replace("token_file", "").replace("--token-fd", ""), got
        denied = ("Permission denied", "Operation not permitted")
        for name in ("environ", "mem", "auxv", "maps", "fd"):
            assert got[name] in denied, got
        assert got["cmdline"] == "opened"
        assert got["ptrace"] == "-1 Operation not permitted", got
        assert got["pidfd_getfd"] == "-1 Operation not permitted", got
        if same:  # then it can be killed, and is back
            assert box.exec(f"kill -9 {pid}").status == 0
            box.await_gateway(restarts=1)
        elif user:
            assert box.exec(f"kill -9 {pid}").status != 0
        assert box.stop() == 0


# ---- reload ----


def test_reload_starts_it_anew_when_its_section_differs(fake):
    with Gateway(bin=fake, gateway={"max_body": "1M"}) as box:
        box.session("s")
        box.exec("x=kept", "s")
        assert "--max-body=1048576" in box.about()["argv"]
        pid = box.gateway["gateway_pid"]
        # given no difference, then it goes on
        assert box.call("reload").get("changed", []) == []
        assert box.gateway["gateway_pid"] == pid
        box.write_ini(box.sections(max_body="2M", idle_timeout="5s"))
        assert sorted(box.call("reload")["changed"]) == [
            "[gateway] idle_timeout: the gateway restarts", "[gateway] max_body: the gateway restarts"]
        wait_until(lambda: box.gateway.get("gateway_pid") not in (None, pid), 15, "a new one")
        assert "--max-body=2097152" in box.about()["argv"]
        assert box.exec("echo $x", "s").out == b"kept\n"
        # given a faulty file, then nothing changes
        pid = box.await_gateway()["gateway_pid"]
        box.write_ini(box.sections(token_file=None, listen=":1"))
        with pytest.raises(WireError, match="who reaches :1 could run anything here"):
            box.call("reload")
        assert box.gateway["gateway_pid"] == pid
        # given no section, then it ends; and with one again it starts
        box.write_ini({})
        assert "[gateway] listen: the gateway ends" in box.call("reload")["changed"]
        wait_until(lambda: box.gateway == {}, 15, lambda: f"{box.gateway}")
        box.write_ini(box.sections())
        assert "[gateway] listen: the gateway starts" in box.call("reload")["changed"]
        assert "--max-body=1048576" in box.about()["argv"]
        assert box.stop() == 0


def test_reload_of_the_sessions_user_ends_the_helpers(fake):
    with Gateway(bin=fake, ini={"sessions": {"user": "1000"}}) as box:
        pid = box.about()["pid"]
        assert json.loads(box.say("hold"))["uid"] == [1000] * 3
        assert [r["kind"] for r in box.ps() if r["id"] == "file-helper"] == ["gateway"]
        box.write_ini({**box.sections(), "sessions": {"user": "1001"}})
        box.call("reload")
        wait_until(lambda: not [r for r in box.ps() if r["id"] == "file-helper"], 15, "it has ended")
        assert json.loads(box.say("helper"))["uid"] == [1001] * 3
        assert box.about()["pid"] == pid


# ---- the configuration ----


@pytest.mark.parametrize("keys,error", [
    ("listen = :3000", ":2: listen: who reaches :3000 could run anything here; set token_file"),
    ("auth = none", ":1: [gateway] has no address; give it one, such as listen = 127.0.0.1:3000"),
    ("listen = :3000\ntoken = x", ":3: unknown key 'token' in [gateway]; there are: listen, token_file, auth"),
    ("listen = :3000\nauth = none\nsandbox_id = A1", ":4: sandbox_id: 'A1' is not a sandbox's id"),
])
def test_check_and_start_refuse(keys, error, tmp_path):
    file = tmp_path / "sandbox.ini"
    file.write_text(f"[gateway]\n{keys}\n")
    for flags in (["--check"], ["--", "true"]):
        r = subprocess.run([build_dir() / "sandbox-init", "-c", file, *flags], capture_output=True)
        assert r.returncode == 1 and f"{file}{error}" in r.stderr.decode(), r
        assert r.stderr.count(b"\n") == 1


def test_the_environment_alone_starts_it(fake):
    with Box(bin=fake, env={"SANDBOX_GATEWAY_LISTEN": f"unix:{base()}/none/sock"}) as box:
        assert box.status()["gateway_listen"] == [f"unix:{base()}/none/sock"]
        assert box.exec("env | grep GATEWAY").out == b""


# ---- the stop ----


@pytest.mark.parametrize("main,code", [(None, 0), (["sh", "-c", "trap 'exit 9' TERM; sleep 600 & wait"], 9)])
def test_the_stop_is_clean(main, code, fake):
    with Gateway(bin=fake, main=main, ini={"service:w": {"command": "sleep 600"}}) as box:
        box.about()
        json.loads(box.say("helper"))
        box.start("sleep 600")
        assert box.stop() == code
        assert box.survivors() == []
        assert "gateway_ended" in box.log() and "restart_ms" not in box.log().split("event=stop ")[1]


def test_the_end_of_the_main_command_is_the_end_of_it(fake):
    with Gateway(bin=fake, main=["sh", "-c", "sleep 1; exit 5"], ready=False) as box:
        assert box.wait() == 5
        assert box.survivors() == []


# ---- under valgrind ----


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind here")
@pytest.mark.skipif("asan" in str(build_dir()), reason="the sanitizers do not run under valgrind")
def test_init_with_a_gateway_under_valgrind(fake):
    with Gateway(bin=fake, before=VALGRIND, ini={"init": {"stop_grace": "10s"}}, deadline=60) as box:
        assert box.say("call", "exec", "text=exit 3", deadline=60).startswith("r")
        assert json.loads(box.say("helper", deadline=60))["uid"] == [0] * 3
        for what in ("pipe", "none", "two", "many", "word", "kept"):
            box.say("send", what)
        os.kill(box.host_gateway_pid, signal.SIGKILL)
        box.await_gateway(restarts=1, deadline=60)
        box.ps()
        assert box.stop(deadline=60) == 0, box.log()[-4000:]
        assert "==1==" not in box.log(), box.log()[-4000:]


def test_help_and_version():
    def run(*args):
        r = subprocess.run([programs() / "sandbox-gateway", *args], capture_output=True, text=True, timeout=10)
        return r.returncode, r.stdout, r.stderr
    init = subprocess.run([programs() / "sandbox-init", "--version"], capture_output=True, text=True, timeout=10)
    assert run("--version") == (0, init.stdout.replace("sandbox-init", "sandbox-gateway"), "")
    code, out, err = run("--help")
    assert (code, err) == (0, "") and out.startswith("usage: sandbox-gateway ") and "--listen=" in out


def test_check_names_a_token_file_that_is_not_there(tmp_path):
    # given a token file that is missing; then --check tells it in the words of the start, but the file is valid
    ini, token = tmp_path / "sandbox.ini", tmp_path / "token"
    ini.write_text(f"[gateway]\nlisten = 127.0.0.1:3000\ntoken_file = {token}\n")
    for words in (f"sandbox-init: warning: token_file {token}: No such file or directory\n", ""):
        r = subprocess.run([programs() / "sandbox-init", "--check", "-c", ini], capture_output=True, text=True, timeout=10)
        assert (r.returncode, r.stdout, r.stderr) == (0, "configuration is valid\n", words)
        token.write_text("x\n")
