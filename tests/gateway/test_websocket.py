"""WebSocket as RFC 6455 has it, at the terminal's route: what must be refused and with which code,
what must be put together, and clients that leave in the middle."""

import os
import signal
import socket
import struct
import time

import pytest

from rig.wait import wait_until
from rig.websocket import (OP_BINARY, OP_CLOSE, OP_CONTINUATION, OP_PING, OP_PONG, OP_TEXT, Closed,
                           WebSocket, frame_bytes, handshake)

INI = {"sessions": {"max_terminals": "200"}}
MESSAGE_MAX = 1024 * 1024


@pytest.fixture
def ws(gw):
    """A terminal that shows raw what is typed."""
    with WebSocket(gw.http, "pty?shell=/bin/cat") as ws:
        ws.until_ready()
        yield ws


def terminals(box):
    return box.call("ps", kind="terminal").rows


def goes_on(ws, text=b"still here"):
    """The connection does what it should (cat answers, the terminal echoes)."""
    ws.frame(OP_BINARY, text + b"\n")
    ws.until(text + b"\r\n" + text + b"\r\n")


# ---- the handshake ----


@pytest.mark.parametrize("headers, status, text", [
    ({"Upgrade": None}, 400, "WebSocket upgrade required"),
    ({"Upgrade": "h2c"}, 400, "WebSocket upgrade required"),
    ({"Connection": None}, 400, "WebSocket upgrade required"),
    ({"Connection": "keep-alive"}, 400, "WebSocket upgrade required"),
    ({"Sec-WebSocket-Version": None}, 426, "version 13"),
    ({"Sec-WebSocket-Version": "8"}, 426, "version 13"),
    ({"Sec-WebSocket-Key": None}, 400, "Sec-WebSocket-Key"),
    ({"Sec-WebSocket-Key": "short"}, 400, "Sec-WebSocket-Key"),
    ({"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZR=="}, 400, "Sec-WebSocket-Key"),
    ({"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==x"}, 400, "Sec-WebSocket-Key"),
], ids=["no-upgrade", "h2c", "no-connection", "keep-alive", "no-version", "version-8", "no-key",
        "short-key", "bits-in-key", "long-key"])
def test_handshakes_that_are_none(gw, headers, status, text):
    before = {t["id"] for t in terminals(gw)}
    with gw.http.open() as c:
        pairs = {**handshake(), **dict(gw.http.auth()), **headers}
        c.request("GET", f"{gw.http.root}/pty", {k: v for k, v in pairs.items() if v is not None})
        r = c.response()
    assert r.status == status and text in r.json["error"] and r.json["code"] == "invalid_request"
    if status == 426:
        assert r.header("sec-websocket-version") == "13"
    assert {t["id"] for t in terminals(gw)} <= before


def test_names_of_the_handshake_in_other_forms(gw):
    # given a browser's list in Connection, and other letters
    with WebSocket(gw.http, "pty", {"Upgrade": "WebSocket", "Connection": "keep-alive, upgrade"}) as ws:
        ws.until_ready()


def test_what_comes_with_the_handshake_is_not_lost(gw):
    # given frames in the same packet as the request, the last one only by half
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    typed = frame_bytes(OP_BINARY, b"early\n") + frame_bytes(OP_PING, b"p") + frame_bytes(OP_BINARY, b"late\n")
    with gw.http.open() as c:
        head = "\r\n".join(f"{k}: {v}" for k, v in {**handshake(key), **dict(gw.http.auth())}.items())
        c.send(f"GET {gw.http.root}/pty?shell=cat HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + typed[:-3])
        assert c.response().header("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        ws = WebSocket.__new__(WebSocket)
        ws.connection, ws.sock, ws.deadline, ws.shown, ws.told = c, c.sock, 20, bytearray(), []
        ws.until(b"early\r\nearly\r\n")
        c.send(typed[-3:])
        ws.until(b"late\r\n")


# ---- frames ----


def test_a_message_in_any_pieces(ws):
    # one frame byte by byte
    for byte in frame_bytes(OP_BINARY, b"one\n"):
        ws.raw(bytes([byte]))
    ws.until(b"one\r\none\r\n")
    # one message in many frames, empty ones too, with a ping between
    ws.frame(OP_BINARY, b"t", final=False)
    ws.frame(OP_CONTINUATION, b"", final=False)
    ws.frame(OP_PING, b"now")
    ws.frame(OP_CONTINUATION, b"wo", final=False)
    ws.frame(OP_CONTINUATION, b"\n")
    assert ws.receive_any().data == b"now"
    ws.until(b"two\r\ntwo\r\n")
    # many messages in one packet
    ws.raw(b"".join(frame_bytes(OP_BINARY, b"%d\n" % i) for i in range(50)))
    ws.until(b"49\r\n"), ws.until(b"49\r\n")  # the echo, and cat
    # an empty message is nothing, least of all the end of the input
    ws.frame(OP_BINARY, b"")
    ws.frame(OP_TEXT, b"", final=False)
    ws.frame(OP_CONTINUATION, b"{}")
    goes_on(ws)


def test_a_text_may_be_cut_inside_a_character(ws):
    ws.frame(OP_TEXT, b'{"type":"\xf0\x9f', final=False)
    ws.frame(OP_CONTINUATION, b'\x98\x80"}')
    goes_on(ws)


@pytest.mark.parametrize("payload", [b"", b"p", b"\xff\x00" * 62 + b"!"], ids=len)
def test_ping(ws, payload):
    ws.frame(OP_PING, payload)
    f = ws.receive_any()
    assert (f.op, f.data) == (OP_PONG, payload)
    ws.frame(OP_PONG, b"nobody asked")
    goes_on(ws)


BROKEN = {
    "unmasked": (frame_bytes(OP_BINARY, b"x", mask=b""), 1002),
    "reserved-1": (frame_bytes(OP_BINARY, b"x", reserved=4), 1002),
    "reserved-2": (frame_bytes(OP_TEXT, b"x", reserved=2), 1002),
    "reserved-3": (frame_bytes(OP_PING, b"x", reserved=1), 1002),
    "opcode-3": (frame_bytes(3, b"x"), 1002),
    "opcode-7": (frame_bytes(7, b"x"), 1002),
    "opcode-11": (frame_bytes(11, b"x"), 1002),
    "opcode-15": (frame_bytes(15, b""), 1002),
    "ping-fragmented": (frame_bytes(OP_PING, b"x", final=False), 1002),
    "close-fragmented": (frame_bytes(OP_CLOSE, b"\x03\xe8", final=False), 1002),
    "ping-126": (frame_bytes(OP_PING, b"x" * 126), 1002),
    "close-126": (frame_bytes(OP_CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "continuation-first": (frame_bytes(OP_CONTINUATION, b"x"), 1002),
    "new-inside": (frame_bytes(OP_BINARY, b"x", final=False) + frame_bytes(OP_BINARY, b"y"), 1002),
    "length-2-for-125": (frame_bytes(OP_BINARY, b"x" * 125, length_bytes=2), 1002),
    "length-8-for-65535": (frame_bytes(OP_BINARY, b"x" * 65535, length_bytes=8), 1002),
    "length-negative": (frame_bytes(OP_BINARY, b"", length=(1 << 63) + 1), 1002),
    "too-big": (frame_bytes(OP_BINARY, b"", length=MESSAGE_MAX + 1), 1009),
    "far-too-big": (frame_bytes(OP_BINARY, b"", length=(1 << 63) - 1), 1009),
    "too-big-in-sum": (frame_bytes(OP_BINARY, b"x" * 70000, final=False) +
                       frame_bytes(OP_CONTINUATION, b"", length=MESSAGE_MAX - 69999), 1009),
    "text-latin-1": (frame_bytes(OP_TEXT, b"\xe4"), 1007),
    "text-surrogate": (frame_bytes(OP_TEXT, b"\xed\xa0\x80"), 1007),
    "text-cut": (frame_bytes(OP_TEXT, b"\xf0\x9f", final=False) + frame_bytes(OP_CONTINUATION, b"\x98"), 1007),
    "close-1-byte": (frame_bytes(OP_CLOSE, b"\x03"), 1002),
    "close-1005": (frame_bytes(OP_CLOSE, struct.pack("!H", 1005)), 1002),
    "close-999": (frame_bytes(OP_CLOSE, struct.pack("!H", 999)), 1002),
    "close-not-utf8": (frame_bytes(OP_CLOSE, struct.pack("!H", 1000) + b"\xff"), 1007),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_told_and_closed(gw, ws, name):
    # given a frame that must not be, and one behind it that must not be obeyed
    data, code = BROKEN[name]
    ws.raw(data + frame_bytes(OP_BINARY, b"not to be typed\n"))
    assert ws.closed()[0] == code
    assert b"not to be typed" not in ws.shown
    # then the terminal has hung up
    wait_until(lambda: not terminals(gw), 20, "no terminal is left")


def test_close_handshake(gw):
    for code, answer in ((1000, 1000), (1001, 1001), (4999, 4999), (None, 1005)):
        with WebSocket(gw.http, "pty") as ws:
            ws.close(code, b"" if code is None else "leaving: ä".encode())
            with pytest.raises(Closed) as e:
                while True:
                    ws.receive()
            assert e.value.code == answer
            assert ws.connection.is_closed()
    wait_until(lambda: not terminals(gw), 20, "no terminal is left")


def test_a_ping_flood_from_one_who_does_not_read(gw, ws):
    # given many pings whose answers nobody reads; then others are served meanwhile, and this one
    # goes on when it reads
    flood = frame_bytes(OP_PING, b"x" * 125, mask=b"abcd") * 500
    ws.sock.settimeout(0.5)
    sent = 0
    try:
        while sent < 30_000_000:
            sent += ws.sock.send(flood)
    except (socket.timeout, BlockingIOError):
        pass
    with WebSocket(gw.http, "pty?shell=cat") as other:
        other.until_ready()
        goes_on(other)
    ws.sock.settimeout(20)
    ws.sock.shutdown(socket.SHUT_WR)  # wherever the last one was cut
    try:
        while ws.receive_any().op == OP_PONG:
            pass
    except Closed:
        pass
    wait_until(lambda: not terminals(gw), 20, "no terminal is left")


@pytest.mark.parametrize("part", [0, 1, 3, 6, 7, 50], ids=lambda n: f"after-{n}")
def test_a_client_that_is_gone_in_the_middle(gw, part):
    ws = WebSocket(gw.http, "pty?shell=cat")
    ws.until_ready()
    ws.raw(frame_bytes(OP_BINARY, b"x" * 1000)[:part])
    ws.drop()
    wait_until(lambda: not terminals(gw), 20, "no terminal is left")


def test_a_client_that_resets(gw):
    ws = WebSocket(gw.http, "pty?shell=yes")
    ws.until_ready()
    ws.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ws.drop()
    wait_until(lambda: not terminals(gw), 20, "no terminal is left")


@pytest.mark.long
def test_silence(gw):
    # given a client that answers no ping; then it is asked, and dropped
    with WebSocket(gw.http, "pty?shell=cat", deadline=100) as ws, \
            WebSocket(gw.http, "pty?shell=cat", deadline=100) as lively:
        ws.until_ready()
        lively.until_ready()
        pings = []
        try:
            while True:
                f = ws.receive_any()
                pings.append(f.op)
                assert lively.receive_any().op == OP_PING
                lively.frame(OP_PONG, b"")
        except Closed as e:
            assert e.code is None and pings == [OP_PING]
        goes_on(lively)


@pytest.mark.long
def test_a_sandbox_that_stood_still(gw_ns):
    # given a sandbox that was stopped for longer than a client may be silent, as `docker pause` does; then the client,
    # who was asked nothing meanwhile, has its terminal
    with WebSocket(gw_ns.http, "pty?shell=cat", deadline=100) as ws:
        ws.until_ready()
        os.kill(gw_ns.gateway_pid, signal.SIGSTOP)
        time.sleep(65)
        os.kill(gw_ns.gateway_pid, signal.SIGCONT)
        goes_on(ws)
