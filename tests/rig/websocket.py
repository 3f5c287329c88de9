"""An independent WebSocket client (RFC 6455), strict and raw: any frame can be sent, and what a
server must not send is an AssertionError.

    with WebSocket(box.http, "pty?cols=100&rows=30") as ws:      # the terminal of a sandbox
        ws.until_ready()
        ws.binary(b"echo out\\n")
        ws.until(b"out\\r\\n")
        ws.text({"type": "resize", "cols": 80, "rows": 24})
        ws.frame(OP_PING, b"x")                                   # any frame; see frame_bytes()
        assert ws.closed() == (1000, "")

A refused upgrade is a Refused with the response.
"""

import base64
import hashlib
import json
import os
import socket
import struct
import time
from dataclasses import dataclass

from .http import Cut
from .wait import Late

OP_CONTINUATION, OP_TEXT, OP_BINARY, OP_CLOSE, OP_PING, OP_PONG = 0, 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Refused(Exception):
    def __init__(self, response):
        self.response, self.status = response, response.status
        super().__init__(f"{response.status} {response.body[:300]!r}")


class Closed(Exception):
    """A close frame came (code None: the connection ended without one)."""

    def __init__(self, code, reason=""):
        self.code, self.reason = code, reason
        super().__init__(f"closed with {code} {reason!r}")


@dataclass
class Frame:
    op: int
    data: bytes
    final: bool = True

    @property
    def json(self):
        assert self.op == OP_TEXT, self
        return json.loads(self.data)


def frame_bytes(op, data=b"", *, final=True, mask=None, reserved=0, length_bytes=None, length=None):
    """A client's frame. mask: 4 bytes, b"" for an unmasked one, None for a random one.
    length_bytes: 0, 2 or 8 instead of the least; length: announced instead of the real one."""
    n = len(data) if length is None else length
    if length_bytes is None:
        length_bytes = 8 if n > 65535 else 2 if n > 125 else 0
    mask = os.urandom(4) if mask is None else mask
    second = {0: n & 127, 2: 126, 8: 127}[length_bytes] | (0x80 if mask else 0)
    head = bytes([(0x80 if final else 0) | reserved << 4 | op, second])
    head += n.to_bytes(length_bytes, "big") if length_bytes else b""
    return head + mask + (masked(data, mask) if mask else data)


def masked(data, mask):
    n = len(data)
    if not n:
        return b""
    long = (mask * (n // 4 + 1))[:n]
    return (int.from_bytes(data, "big") ^ int.from_bytes(long, "big")).to_bytes(n, "big")


def handshake(key=None, **other):
    """The headers of an upgrade; a value of None leaves one out, `_` stands for `-`."""
    pairs = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": key or base64.b64encode(os.urandom(16)).decode()}
    pairs.update({k.replace("_", "-"): v for k, v in other.items()})
    return {k: v for k, v in pairs.items() if v is not None}


class WebSocket:
    def __init__(self, client, target, headers=(), *, auth=True, deadline=15.0, receive_buffer=None):
        """client: of rig/http.py. target: as of Client.request(). receive_buffer: bytes that the
        kernel keeps for a client that does not read."""
        if not target.startswith("/"):
            target = f"{client.root}/{target}"
        self.deadline = deadline
        self.connection = client.open(deadline)
        self.sock = self.connection.sock
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.replay = b""         # what came before `ready`
        self.shown = bytearray()  # what came after it and until() has not taken
        self.told = []     # text frames, decoded
        try:
            key = base64.b64encode(os.urandom(16)).decode()
            pairs = dict(headers)
            pairs = {**handshake(key), **(dict(client.auth()) if auth else {}), **pairs}
            self.connection.request("GET", target, pairs)
            r = self.connection.response()
            if r.status != 101:
                raise Refused(r)
            accept = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
            assert r.header("sec-websocket-accept") == accept, r.headers
            assert r.header("upgrade").lower() == "websocket", r.headers
            assert "upgrade" in r.header("connection").lower(), r.headers
            assert r.header("sec-websocket-extensions") is None, r.headers
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()

    def drop(self):
        """Leave without a word."""
        self.connection.close()

    # -- sending --

    def raw(self, data):
        self.connection.send(data)

    def frame(self, op, data=b"", **how):
        self.raw(frame_bytes(op, data, **how))

    def binary(self, data):
        self.frame(OP_BINARY, data if isinstance(data, bytes) else data.encode())

    def text(self, message):
        """A text frame: a str as it is, anything else as JSON."""
        text = message if isinstance(message, str) else json.dumps(message)
        self.frame(OP_TEXT, text.encode())

    def close(self, code=1000, reason=b""):
        self.frame(OP_CLOSE, b"" if code is None else struct.pack("!H", code) + reason)

    # -- receiving --

    def receive(self, deadline=None):
        """The next frame that is no control frame (pings are answered); Closed at the end."""
        while True:
            f = self.receive_any(deadline)
            if f.op == OP_PING:
                self.frame(OP_PONG, f.data)
            elif f.op == OP_CLOSE:
                raise Closed(*close_of(f))
            elif f.op != OP_PONG:
                return f

    def receive_any(self, deadline=None):
        end = time.monotonic() + (deadline or self.deadline)
        try:
            first, second = self.connection._exactly(2, end)
        except Cut:
            raise Closed(None) from None
        assert not first & 0x70 and first & 0x80, f"first byte of a frame: {first:#x}"
        assert not second & 0x80, "a server does not mask"
        n = second & 127
        if n >= 126:
            size = 2 if n == 126 else 8
            n = int.from_bytes(self.connection._exactly(size, end), "big")
            assert n > (125 if size == 2 else 65535), f"a length of {n} in {size} bytes"
        f = Frame(first & 15, self.connection._exactly(n, end))
        assert f.op in (OP_TEXT, OP_BINARY, OP_CLOSE, OP_PING, OP_PONG), f
        assert f.op < 8 or n <= 125, f
        if f.op == OP_TEXT:
            f.data.decode()
        return f

    def closed(self, deadline=None):
        """Wait for the close frame, answer it, wait for the end: (code, reason); text frames on the
        way are kept in told, binary ones in shown."""
        try:
            while True:
                self._keep(self.receive(deadline))
        except Closed as e:
            if e.code is not None:
                try:
                    self.close(e.code if e.code != 1005 else None)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                assert self.connection.is_closed(deadline or self.deadline), "it closes"
            return e.code, e.reason

    # -- a terminal --

    def _keep(self, f):
        if f.op == OP_TEXT:
            self.told.append(f.json)
        else:
            self.shown += f.data

    def until_ready(self, deadline=None):
        """Everything up to `ready`; what was shown before it is the replay."""
        while {"type": "ready"} not in self.told:
            self._keep(self.receive(deadline))
        self.replay, self.shown = bytes(self.shown), bytearray()
        return self

    def until(self, what, deadline=None):
        """Wait until bytes are shown; returns what was up to and with them."""
        what = what if isinstance(what, bytes) else what.encode()
        end = time.monotonic() + (deadline or self.deadline)
        looked = 0  # no need to look there again
        while (at := self.shown.find(what, looked)) < 0:
            looked = max(0, len(self.shown) - len(what) + 1)
            left = end - time.monotonic()
            if left <= 0:
                raise Late(f"{what!r} is not shown: {bytes(self.shown[-500:])!r}")
            self._keep(self.receive(left))
        seen = bytes(self.shown[:at + len(what)])
        del self.shown[:at + len(what)]
        return seen

    def until_told(self, kind, deadline=None):
        """Wait for a text frame of that type."""
        while not any(m["type"] == kind for m in self.told):
            self._keep(self.receive(deadline))
        return next(m for m in self.told if m["type"] == kind)

    def type(self, text):
        """Type a line."""
        self.binary(text if text.endswith("\n") else text + "\n")
        return self

    def ended(self, deadline=None):
        """The end of the terminal: its `exit` frame; the close must be 1000."""
        assert self.closed(deadline) == (1000, ""), self.told
        ends = [m for m in self.told if m["type"] == "exit"]
        assert len(ends) == 1 and self.told[-1] == ends[0], self.told
        return ends[0]


def close_of(f):
    if len(f.data) == 0:
        return 1005, ""
    assert len(f.data) >= 2, f
    return struct.unpack("!H", f.data[:2])[0], f.data[2:].decode()
