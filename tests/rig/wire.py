"""An independent client of the control protocol (docs/control-protocol.md, control/wire.h).

It shares no code with the program, so a mistake in the program's own client library cannot hide
one in the server.
"""

import json
import socket
import time
from dataclasses import dataclass, field

PACKET_MAX = 65536
PAYLOAD_MAX = PACKET_MAX - 1
ARGS, TEXT, STDIN, SIGNAL = b"a", b"t", b"i", b"k"
STDOUT, STDERR, NOTE, ROW, RESULT, ERROR = b"o", b"e", b"n", b"l", b"r", b"x"


class WireError(Exception):
    """Init answered with an error record."""

    def __init__(self, fields):
        self.fields = fields
        self.code = fields.get("code")
        self.message = fields.get("message", "")
        super().__init__(f"{self.code}: {self.message}")


def text_of(b):
    return b.decode("utf-8", "surrogateescape")


def bytes_of(s):
    return s if isinstance(s, bytes) else str(s).encode("utf-8", "surrogateescape")


def parse_record(payload):
    """KEY=VALUE (string), KEY:=VALUE (JSON literal); a key that ends in [] is a list element."""
    fields = {}
    if payload and not payload.endswith(b"\0"):
        raise AssertionError(f"a record must end in NUL: {payload[-40:]!r}")
    for item in payload.split(b"\0")[:-1]:
        key, eq, value = item.partition(b"=")
        assert eq and key, f"malformed field in a record: {item!r}"
        if key.endswith(b":"):
            key, value = key[:-1], json.loads(value)
        else:
            value = text_of(value)
        key = text_of(key)
        if key.endswith("[]"):
            fields.setdefault(key[:-2], []).append(value)
        else:
            assert key not in fields, f"key twice in a record: {key}"
            fields[key] = value
    return fields


@dataclass
class Answer:
    fields: dict = field(default_factory=dict)
    rows: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    out: bytes = b""
    err: bytes = b""
    seconds: float = 0.0
    is_error: bool = False
    is_complete: bool = False

    def __getitem__(self, key):
        return self.fields[key]

    def get(self, key, default=None):
        return self.fields.get(key, default)

    @property
    def status(self):
        return self.fields.get("status")


class Wire:
    """One connection: one operation."""

    def __init__(self, path, timeout=30.0):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        try:
            self.sock.connect(str(path))
        except BaseException:
            self.sock.close()
            raise
        self.begun = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def fileno(self):
        return self.sock.fileno()

    def raw(self, packet):
        self.sock.send(packet)

    def send(self, channel, payload=b""):
        self.sock.send(channel + bytes_of(payload))

    def request(self, verb, args=(), text=None):
        """args: (key, value) pairs; a value of None is left out."""
        head = bytes_of(verb) + b"\0"
        packed = b"".join(
            bytes_of(k) + b"=" + bytes_of(v) + b"\0" for k, v in args if v is not None
        )
        late_args, late_text = b"", b""
        text = bytes_of(text) if text is not None else None
        if text is not None:
            if b"\0" not in text and len(head) + len(packed) + len(text) + 32 < PACKET_MAX:
                packed += b"text=" + text + b"\0"
            else:
                late_text = text
        if len(head) + len(packed) + 64 >= PACKET_MAX:
            late_args, packed = packed, b""
        if late_args:
            packed += b"args_size=%d\0" % len(late_args)
        if late_text:
            packed += b"text_size=%d\0" % len(late_text)
        packets = [head + packed]
        for channel, bulk in ((ARGS, late_args), (TEXT, late_text)):
            packets += [channel + bulk[at : at + PAYLOAD_MAX]
                        for at in range(0, len(bulk), PAYLOAD_MAX)]
        try:
            for p in packets:
                self.raw(p)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused at once, or on the way: the reason waits to be read
        return self

    def receive(self):
        """(channel, payload), or None at the end of the connection."""
        try:
            packet = self.sock.recv(PACKET_MAX + 1)
        except ConnectionResetError:  # told once, before what was sent ahead of the close: unix(7)
            packet = self.sock.recv(PACKET_MAX + 1)
        if not packet:
            return None
        assert len(packet) <= PACKET_MAX, f"packet of {len(packet)} bytes"
        return packet[:1], packet[1:]

    def finish(self, answer=None, until=None):
        """Read to the result; until(answer) may stop earlier."""
        a = answer or Answer()
        out, err = [a.out], [a.err]
        while True:
            if until is not None:
                a.out, a.err = b"".join(out), b"".join(err)
                if until(a):
                    return a
            got = self.receive()
            if got is None:
                break
            channel, payload = got
            assert not a.is_complete, f"a packet after the result: {got!r}"
            if channel == STDOUT:
                out.append(payload)
            elif channel == STDERR:
                err.append(payload)
            elif channel == NOTE:
                a.notes.append(parse_record(payload))
            elif channel == ROW:
                a.rows.append(parse_record(payload))
            elif channel in (RESULT, ERROR):
                a.fields = parse_record(payload)
                a.is_error = channel == ERROR
                a.is_complete = True
            else:
                raise AssertionError(f"unknown channel {channel!r}")
        a.out, a.err = b"".join(out), b"".join(err)
        a.seconds = time.monotonic() - self.begun
        return a


def call(path, verb, args=(), text=None, timeout=30.0, check=True):
    """One whole operation. WireError if init answers with an error (unless check is False)."""
    with Wire(path, timeout) as w:
        a = w.request(verb, args, text).finish()
    assert a.is_complete, f"{verb}: the connection ended without a result or an error"
    if a.is_error and check:
        raise WireError(a.fields)
    return a
