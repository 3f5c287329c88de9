"""What the Python SDK of OpenAI Agents does on the wire (bridge-api.md, section 4): its requests, its
idea of an event stream, its limits; by raw HTTP."""

import base64
import http.client
import io
import json
import os
import socket
import tarfile
import time

import pytest

from rig.websocket import WebSocket
from rig.wait import wait_until


def sdk_events(response):
    """The SDK's decoder: lines that are neither event: nor data: are skipped, an empty line ends an
    event; it ends at the first exit or error."""
    name, data = None, []
    for line in response:
        line = line.decode().rstrip("\r\n")
        if line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].strip())
        elif not line and name:
            yield name, "\n".join(data)
            if name in ("exit", "error"):
                return
            name, data = None, []


class Sdk:
    """Its requests through Python's own http.client: no session header, exactly 200."""

    def __init__(self, box):
        self.http = box.http
        self.id = self.ask("POST", "/v1/sandbox", timeout=120)["id"]

    def open(self, method, path, body=None, timeout=120, **headers):
        c = http.client.HTTPConnection("box", timeout=timeout)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.settimeout(timeout)
        c.sock.connect(str(self.http.address))
        c.request(method, path, body, {"Authorization": f"Bearer {self.http.token}", **headers})
        r = c.getresponse()
        r.owner = c  # not closed before the answer is read
        return r

    def ask(self, method, path, body=None, **kw):
        r = self.open(method, path, body, **kw)
        content = r.read()
        assert r.status == 200, (r.status, content)
        return json.loads(content)

    def exec(self, *argv, timeout=30.0):
        r = self.open("POST", f"/v1/sandbox/{self.id}/exec",
                      json.dumps({"argv": argv, "timeout_ms": int(timeout * 1000)}), timeout + 5,
                      **{"Content-Type": "application/json"})
        assert r.status == 200
        out, err, code = b"", b"", None
        for name, data in sdk_events(r):
            if name == "stdout":
                out += base64.b64decode(data)
            elif name == "stderr":
                err += base64.b64decode(data)
            elif name == "exit":
                code = json.loads(data)["exit_code"]
            elif name == "error":
                raise AssertionError(data)
        assert code is not None, "a stream without exit is a transport error"
        return code, out, err


@pytest.fixture
def sdk(gw):
    s = Sdk(gw)
    yield s
    r = s.open("DELETE", f"/v1/sandbox/{s.id}")
    assert 200 <= r.status < 300 and r.read() == b""


def test_create_without_a_body(gw):
    assert Sdk(gw).id


def test_its_first_commands(sdk):
    assert sdk.exec("mkdir", "-p", "--", "/workspace") == (0, b"", b"")
    assert sdk.exec("env", "K=V", "W=a b", "sh", "-c", 'printf %s "$K|$W"; exit 4') == (4, b"V|a b", b"")
    assert sdk.exec("test", "-d", "/workspace/none")[0] == 1


def test_keep_alives_and_offsets_are_skipped(sdk):
    code, out, err = sdk.exec("sh", "-c", "echo one; sleep 0.2; echo two; echo three >&2")
    assert (code, out, err) == (0, b"one\ntwo\n", b"three\n")


def test_timeout_within_its_patience(sdk):
    # it gives up five seconds after its timeout: the answer must be there, though TERM is ignored
    at = time.monotonic()
    code, out, _ = sdk.exec("sh", "-c", "trap '' TERM; echo up; sleep 60 & wait; sleep 60", timeout=3.0)
    assert (code, out) == (124, b"up\n")
    assert time.monotonic() - at < 25


def test_read_and_write(sdk):
    path = f"/v1/sandbox/{sdk.id}/file/workspace/dir/f%20%C3%A9.bin"
    content = os.urandom(500_000)
    assert sdk.ask("PUT", path, content, **{"Content-Type": "application/octet-stream"}) == {"ok": True}
    r = sdk.open("GET", path)
    assert r.status == 200 and r.read() == content
    missing = sdk.open("GET", path + "x")
    assert missing.status == 404 and json.load(missing)["code"] == "workspace_read_not_found"


def test_running_and_delete(sdk):
    assert sdk.ask("GET", f"/v1/sandbox/{sdk.id}/running") == {"running": True}
    assert sdk.open("DELETE", f"/v1/sandbox/{sdk.id}").status in (200, 202, 204, 404)


def test_persist_begins_early(sdk, gw):
    # given a workspace whose archive takes long; then its first bytes come at once, not at the end
    big = gw.workspace / "big"
    with open(big, "wb") as f:
        f.truncate(3 << 30)
    try:
        r = sdk.open("POST", f"/v1/sandbox/{sdk.id}/persist")
        at = time.monotonic()
        assert r.status == 200 and len(r.read(1024)) == 1024
        assert time.monotonic() - at < 10
        r.owner.close()
    finally:
        big.unlink()


def test_persist_and_hydrate(sdk, gw):
    (gw.workspace / "f").write_text("content")
    os.chown(gw.workspace / "f", gw.uid, gw.uid)
    archive = sdk.open("POST", f"/v1/sandbox/{sdk.id}/persist").read()
    with tarfile.open(fileobj=io.BytesIO(archive)) as t:
        assert t.extractfile("./f").read() == b"content"
    sdk.exec("rm", "/workspace/f")
    assert sdk.ask("POST", f"/v1/sandbox/{sdk.id}/hydrate", archive) == {"ok": True}
    assert sdk.exec("cat", "/workspace/f")[1] == b"content"


def test_a_terminal_discards_what_comes_before_ready(sdk, gw):
    with WebSocket(gw.http, f"/v1/sandbox/{sdk.id}/pty?cols=80&rows=24") as ws:
        ws.until_ready(30)
        ws.binary(b"echo $((20 + 22))\n")
        ws.until(b"42")


def test_sixty_four_terminals(sdk, gw):
    # given as many terminals as it keeps open; then each has a shell of its own, and closing its
    # socket is the end of it
    count = 64
    sockets = [WebSocket(gw.http, f"/v1/sandbox/{sdk.id}/pty?cols=80&rows=24&shell=/bin/sh")
               for _ in range(count)]
    try:
        for i, ws in enumerate(sockets):
            ws.until_ready(30)
            ws.binary(f"exec sleep 64{i:02}.5\n".encode())
        sleeping = lambda: [p for p in gw.processes() if p.command.startswith("sleep 64")]
        wait_until(lambda: len(sleeping()) == count, 20, lambda: f"all sleep: {len(sleeping())}", every=0.05)
        sockets[0].close()
        sockets[1].drop()
        wait_until(lambda: len(sleeping()) == count - 2, 20, lambda: f"two less: {len(sleeping())}", every=0.05)
    finally:
        for ws in sockets:
            ws.drop()
    wait_until(lambda: not sleeping(), 20, lambda: f"none is left: {sleeping()}", every=0.05)
