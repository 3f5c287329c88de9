"""The real gateway as init runs it: whose it is, what it and the sessions survive, how it ends."""

import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

from rig.box import status_fields
from rig.http import TOKEN, Cut, GatewayBox, HttpError
from rig.wait import wait_until

INI = {"sessions": {"user": "1000"}}


def await_output(events):
    assert any(e.name == "stdout" for e in events)


def test_it_is_nobody_and_cannot_be_looked_into(gw_ns):
    fields = status_fields(gw_ns.gateway_pid)
    assert fields["Uid"].split() == ["61000"] * 4 and fields["Groups"] == "61000"
    assert [int(fields[c], 16) for c in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0] * 4
    assert fields["NoNewPrivs"] == "1"
    assert os.stat(f"/proc/{gw_ns.gateway_pid}/environ").st_uid == 0, "PR_SET_DUMPABLE: not its user's"
    inner = gw_ns.status()["gateway_pid"]
    r = gw_ns.http.exec(["sh", "-c", f"cd /proc/{inner}; cat environ; cat mem; ls fd; cat maps; kill -9 {inner}"])
    assert r.status != 0 and TOKEN.encode() not in r.out + r.err
    assert r.err.count(b"ermi") >= 5, r.err
    r = gw_ns.http.exec(["sh", "-c", f"tr '\\0' '\\n' </proc/{inner}/cmdline; cat {gw_ns.token_file}"])
    assert b"--token-fd=4" in r.out and TOKEN.encode() not in r.out + r.err


def test_the_file_helper_is_the_sessions_user(gw):
    gw.workspace.chmod(0o777)
    assert gw.http.request("PUT", f"{gw.http.root}/file/workspace/mine", b"x").status == 200
    assert os.stat(gw.workspace / "mine").st_uid == 1000
    fields = status_fields(gw.file_helper_pid)
    assert fields["Uid"].split() == ["1000"] * 4 and int(fields["CapEff"], 16) == 0
    # what only root may read is not read for it
    (gw.workspace / "roots").write_text("secret")
    (gw.workspace / "roots").chmod(0o600)
    r = gw.http.request("GET", f"{gw.http.root}/file/workspace/roots")
    assert r.status != 200 and b"secret" not in r.body
    # one that is killed comes back
    before = gw.file_helper_pid
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: gw.http.request("GET", f"{gw.http.root}/file/workspace/mine").status == 200, 15,
               "files again")
    assert gw.file_helper_pid != before


def test_kill_9_in_mid_request():
    # given a running exec of a client, a session and a process, when the gateway is killed, then the
    # client's answer is cut, all others go on, and requests are served again
    with GatewayBox(ini=INI) as box:
        box.session("s")
        box.exec("x=kept", "s")
        _, process = box.start("exec sleep 303")
        with box.http.exec_stream(["sh", "-c", "echo begun; sleep 304"], session="t") as events:
            events = iter(events)
            await_output(events)
            pid = box.gateway_pid
            os.kill(pid, signal.SIGKILL)
            with pytest.raises((Cut, ConnectionError)):
                list(events)
        wait_until(lambda: box.gateway_pid not in (None, pid), 15, "another gateway")
        box.await_gateway()
        assert box.http.exec(["echo", "again"]).out == b"again\n"
        assert box.exec("echo $x", "s").out == b"kept\n"
        assert box.host_pid(process) and len(box.find("sleep 304")) >= 1
        assert box.status()["gateway_restarts"] == 1
        assert box.stop() == 0 and box.survivors() == []


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with GatewayBox(ini=INI, port=port, answers=False) as box:
            wait_until(lambda: box.status()["gateway"] == "waiting", 15, "it does not start")
            assert "Address already in use" in box.log() and str(port) in box.log()
            assert box.exec("echo unharmed").out == b"unharmed\n"
            taken.close()
            box.await_gateway()
            assert box.http.exec(["echo", "hi"]).out == b"hi\n"
            assert box.stop() == 0


@pytest.mark.parametrize("main,code", [(None, 0), (["sh", "-c", "trap 'exit 7' TERM; sleep 600 & wait"], 7)])
def test_the_stop_does_not_wait_for_clients(main, code):
    # given a client that holds an exec and one that is idle, when the container stops, then the one
    # hears the end of its command, nobody is waited for, and the code is the container's own
    with GatewayBox(ini={**INI, "init": {"stop_grace": "30s"}}, main=main) as box:
        with box.http.exec_stream(["sh", "-c", "echo begun; exec sleep 305"]) as events, \
                box.http.open() as idle:
            idle.request("GET", "/health")  # the gateway has it, it is not one that still waits to be taken
            assert idle.response().status == 200
            events = iter(events)
            await_output(events)
            begun = time.monotonic()
            box.signal(signal.SIGTERM)
            last = list(events)[-1]
            assert last.name == "exit" and last.json["exit_code"] == 143, last
            assert box.wait(40) == code
            assert time.monotonic() - begun < 20, "stop_grace is 30 s"
            assert idle.sock.recv(1) == b""
        assert box.survivors() == []


def test_a_token_that_is_no_line():
    with GatewayBox(ini=INI, token="two\nlines", answers=False) as box:
        wait_until(lambda: box.status()["gateway"] == "waiting", 15, "it does not start")
        assert "token: it must be one line of printable characters" in box.log()
        assert "two" not in box.log()
        assert box.stop() == 0


@pytest.mark.parametrize("user", [None, "1000"])
def test_a_workspace_that_is_missing(user):
    # given an image without the workspace, and sessions that may not make it; then the first command runs in it
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    workspace = base / "not" / "there"
    try:
        with GatewayBox(gateway={"workspace": str(workspace)},
                        ini={"sessions": {"user": user}} if user else {}) as box:
            assert box.http.exec(["pwd"]).out.decode() == f"{workspace}\n"
            assert box.http.exec(["touch", "x"]).status == 0 and box.http.exec("pwd", session="s").status == 0
            assert os.stat(workspace / "x").st_uid == os.stat(workspace).st_uid == int(user or 0)
            assert box.http.put(f"{workspace}/y", b"1").status == 200
            # when another gateway starts, then it lies as it is
            workspace.chmod(0o700)
            os.kill(box.gateway_pid, signal.SIGKILL)
            wait_until(lambda: box.status()["gateway"] == "running" and box.status()["gateway_restarts"] == 1,
                       15, "another gateway")
            assert workspace.stat().st_mode & 0o777 == 0o700 and (workspace / "y").read_bytes() == b"1"
    finally:
        shutil.rmtree(base)


def test_a_workspace_that_a_symlink_hides():
    # given a symlink on the way; then root makes nothing where it leads
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    (base / "elsewhere").mkdir()
    (base / "link").symlink_to("elsewhere")
    try:
        with GatewayBox(gateway={"workspace": str(base / "link" / "w")}, ini=INI) as box:
            r = box.http.exec(["pwd"])
            assert r.error["code"] == "exec_error", (r.triple, r.error)
        assert list((base / "elsewhere").iterdir()) == []
    finally:
        shutil.rmtree(base)


def test_a_workspace_that_cannot_be():
    # then whatever is tried says so, an exec too
    with GatewayBox(gateway={"workspace": "/proc/work"}) as box:
        with box.http.exec_stream(["true"]) as events:
            last = list(events)[-1]
        assert last.name == "error" and last.json["code"] == "exec_error"
        assert "Command execution failed: " in last.json["error"]
        assert "/proc/work: No such file or directory" in last.json["error"]
