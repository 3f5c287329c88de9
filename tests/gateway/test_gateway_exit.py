"""The gateway's own end with every kind of connection open: it goes at once and gives back all that it has
(which only the build with ASan can tell: tests/run.py --asan runs this file)."""

import contextlib
import os
import signal

import pytest

from rig.http import Connection, GatewayBox, sanitizer_report
from rig.wait import repeats, wait_until
from rig.websocket import WebSocket

SERVER = r'''
import socket, threading
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
def serve(c):
    head = b""
    while b"\r\n\r\n" not in head:
        head += c.recv(65536)
    if b"Upgrade: websocket" in head or b"upgrade: websocket" in head:
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    while c.recv(65536):
        pass
while True:
    threading.Thread(target=serve, args=s.accept()[:1], daemon=True).start()
'''


def open_all(gw, stack):
    """A connection of each kind that lasts."""
    enter = stack.enter_context
    events = enter(gw.http.exec_stream(["python3", "-u", "-c", SERVER]))
    port = int(next(e for e in events if e.name == "stdout").bytes)
    enter(WebSocket(gw.http, "pty?shell=sh")).until_ready()
    enter(WebSocket(gw.http, "pty?shell=sh&session=shared")).until_ready()
    enter(gw.http.exec_stream(["sleep", "306"])).until("start")
    enter(gw.http.stream("GET", "/v1/events")).until("gateway")
    enter(gw.http.stream("GET", "watch/workspace")).until("ready")
    for path, upgrade in (("relayed", True), ("waits", False)):
        c = enter(Connection(gw.http.address))
        more = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")] if upgrade else []
        c.request("GET", f"{gw.http.root}/port/{port}/{path}", [*gw.http.auth(), *more])
        if upgrade:
            assert c.begin().status == 101
    c = enter(Connection(gw.http.address))  # a file in transfer
    c.send(f"PUT {gw.http.root}/file/workspace/half HTTP/1.1\r\nHost: box\r\nContent-Length: 9999\r\n".encode())
    c.send("".join(f"{k}: {v}\r\n" for k, v in gw.http.auth()).encode() + b"\r\nhalf")
    # one whose client has left: the run goes on
    with gw.http.exec_stream(["sleep", "307"]) as events:
        events.until("start")


@pytest.mark.parametrize("kind", ["ns-root"])
def test_the_end_with_each_kind_of_connection_open(kind):
    with GatewayBox(kind) as gw:
        for _ in range(repeats(20)):
            # given one connection of each kind, and a terminal that is just being opened
            with contextlib.ExitStack() as stack:
                open_all(gw, stack)
                last = stack.enter_context(Connection(gw.http.address))
                last.request("GET", f"{gw.http.root}/pty?shell=sh", [
                    *gw.http.auth(), ("Upgrade", "websocket"), ("Connection", "Upgrade"),
                    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13")])
                # when the gateway ends, then all that it had is given back
                pid = gw.gateway_pid
                os.kill(pid, signal.SIGTERM)
                wait_until(lambda: gw.gateway_pid not in (None, pid), 30, "another gateway")
            assert not sanitizer_report(gw.log())
            gw.await_gateway()
        assert gw.stop(deadline=20) == 0
        assert not sanitizer_report(gw.log())
