"""Connections that are no HTTP any more, and answers that have no end: what they count, and the end
of the container with them."""

import re
import time

import pytest

from rig.http import Connection, GatewayBox
from rig.wait import wait_until
from rig.websocket import WebSocket

GATEWAY = {"max_connections": "4"}


class Watcher(Connection):
    """One connection that asks for the numbers, and is one of them."""

    def __init__(self, client):
        super().__init__(client.address)
        self.headers = client.auth()

    def connections(self):
        self.request("GET", "/metrics", self.headers)
        return int(re.search(r"^sandbox_gateway_connections (\d+)$", self.response().text, re.M)[1])


def test_terminals_count_as_connections(gw):
    # given three terminals beside another connection, four in all
    with Watcher(gw.http) as watcher:
        wait_until(lambda: watcher.connections() == 1, 20, "the others have left")
        open_ones = [WebSocket(gw.http, "pty?shell=sh") for _ in range(3)]
        for ws in open_ones:
            ws.until_ready()
        # then the next one is refused
        assert watcher.connections() == 4
        with Connection(gw.http.address) as c:
            assert c.response().status == 503
        # when they leave, politely or not, then others may come
        open_ones[0].close()
        for ws in open_ones:
            ws.drop()
        wait_until(lambda: watcher.connections() == 1, 20, "the terminals count no more")


SERVER = r'''
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    while b"\r\n\r\n" not in c.recv(65536):
        pass
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    while c.recv(65536):
        pass
    c.close()
'''


def test_a_tunnel_through_the_proxy_counts(gw):
    with gw.http.exec_stream(["python3", "-u", "-c", SERVER]) as events:
        port = int(next(e for e in events if e.name == "stdout").bytes)
        with Watcher(gw.http) as watcher, Connection(gw.http.address) as c:
            c.request("GET", f"{gw.http.root}/port/{port}/x", [
                *gw.http.auth(), ("Upgrade", "websocket"), ("Connection", "Upgrade"),
                ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13")])
            assert c.begin().status == 101
            assert watcher.connections() == 3
            c.close()
            wait_until(lambda: watcher.connections() == 2, 20, "the tunnel counts no more")
    gw.call("kill-all", grace_ms="0")


@pytest.mark.parametrize("kind", ["events", "watch", "exec", "logs"])
def test_the_end_of_the_container_waits_for_no_follower(kind):
    # given a client that only follows
    with GatewayBox("ns-root", ini={"init": {"stop_grace": "30s"}}) as box:
        if kind == "exec":
            stream = box.http.exec_stream(["sleep", "300"])
        elif kind == "logs":
            box.http.ok("POST", "process", {"argv": ["sleep", "300"], "id": "web"})
            stream = box.http.stream("GET", "process/web/logs?follow=1")
        else:
            stream = box.http.stream("GET", "/v1/events" if kind == "events" else "watch/workspace")
        with stream as events:
            events.until({"events": "gateway", "watch": "ready"}.get(kind, "start"))
            # when the container ends, then it does not wait for him, and his answer ends well
            begun = time.monotonic()
            assert box.stop() == 0
            print(kind, time.monotonic() - begun)
            rest = list(events)
        assert time.monotonic() - begun < 15, "stop_grace is 30 s"
        assert kind in ("events", "watch") or rest[-1].name == "exit", rest
