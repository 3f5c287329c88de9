"""Init's side of the gateway: its start, its restart, what it hands over, its user, its end. A stand-in
(tests/helpers/fake_gateway.py) is run in its place, so that it can be made to fail and to lie."""

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from rig.box import ROOT, Box, build_dir, programs, status_fields
from rig.wait import wait_until
from rig.wire import WireError

TOKEN = "s3cret-of-the-gateway"
NOBODY = 61000


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """A folder with the programs under test and the stand-in beside them."""
    folder = tmp_path_factory.mktemp("bin")
    folder.parent.chmod(0o755)
    for p in (folder, *folder.parents):
        if p != Path("/tmp") and p.is_relative_to("/tmp"):
            p.chmod(0o755)
    shutil.copytree(programs(), folder, dirs_exist_ok=True, symlinks=True)
    for name in ("sandbox-gateway", "static/sandbox-gateway"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(ROOT / "tests/helpers/fake_gateway.py", folder / "sandbox-gateway")
    (folder / "sandbox-gateway").chmod(0o755)
    return folder


class Gateway(Box):
    """A box with a gateway that listens on box.address, and a token unless token=None."""

    def __init__(self, kind="ns-root", *, gateway=None, token=TOKEN, ini=None, **kw):
        self.keys, self.token, self.more = gateway or {}, token, ini or {}
        super().__init__(kind, ini={}, **kw)

    def sections(self, **keys):
        return {**self.more, "gateway": {"listen": f"unix:{self.address}", **(
            {"token_file": str(self.token_file)} if self.token else {}), **self.keys, **keys}}

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


@pytest.fixture(scope="module")
def shared(fake):
    with Gateway(bin=fake, ini={"sessions": {"user": "1000"}}) as box:
        box.about()
        yield box
        assert box.is_alive
        assert box.stop() == 0
        assert box.survivors() == []


# ---- the start ----


def test_it_gets_its_options_two_descriptors_and_nothing_else(shared):
    a = shared.about()
    assert a["argv"] == ["--control-fd=3", "--token-fd=4", f"--listen=unix:{shared.address}",
                         "--workspace=/workspace", "--on-delete=reset", "--max-body=33554432",
                         "--max-connections=1024", "--idle-timeout=75000"]
    assert a["token"] == TOKEN + "\n"
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
    assert a["fds"][0] == 3 and "PATH" in a["environ"]


def test_helpers_are_bounded(shared):
    # given six at once, then four are started and two are refused, and later there is room again
    wait_until(lambda: not [r for r in shared.ps() if r["id"] == "file-helper"], 15, "no helper")
    assert shared.say("helpers", "6") == 4
    wait_until(lambda: not [r for r in shared.ps() if r["id"] == "file-helper"], 15, "all have ended")
    assert json.loads(shared.say("helper"))["uid"] == [1000] * 3


@pytest.mark.parametrize("what", ["pipe", "stream", "listening", "file", "none", "two", "many", "word",
                                  "long", "kept"])
def test_nonsense_harms_nobody(shared, what):
    g, before = shared.await_gateway(), shared.fds()
    for _ in range(40):
        assert shared.say("send", what) == "sent"
    assert shared.say("call", "exec", "text=exit 4").startswith("r")
    assert shared.gateway["gateway_pid"] == g["gateway_pid"]
    if what != "kept":
        wait_until(lambda: shared.fds() <= before + 2, 10, lambda: f"{shared.fds()}")


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
