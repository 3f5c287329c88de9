"""Servers inside a sandbox, for the proxy to talk to: one function plays one connection.

    def hello(c):
        c.request()                               # its head and body, as they came
        c.send(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi")

    with Inner(hello) as server:                  # server.port
        r = gw.http.request("GET", f"port/{server.port}/")
        assert server.got().path == "/"

It runs in threads of the test, so it fits boxes that have the host's network.
"""

import queue
import socket
import threading
import time
from dataclasses import dataclass, field

from .http import Connection, Cut


@dataclass
class Request:
    line: str
    headers: list = field(default_factory=list)  # (name as sent, value)
    body: bytes = b""
    raw_head: bytes = b""

    @property
    def method(self):
        return self.line.split(" ")[0]

    @property
    def path(self):
        return self.line.split(" ")[1]

    def all(self, name):
        return [v for k, v in self.headers if k.lower() == name.lower()]

    def header(self, name):
        found = self.all(name)
        assert len(found) <= 1, (name, found)
        return found[0] if found else None


class InnerConnection(Connection):
    """The server's end: what Connection reads of answers it reads of requests."""

    def __init__(self, sock, server, deadline=20.0):
        self.sock, self.server, self.deadline = sock, server, deadline
        sock.settimeout(deadline)
        self._got, self.requests = b"", 0

    def request(self):
        """The next request, whole."""
        r = self.head()
        r.body = b"".join(self.body(r))
        return r

    def head(self):
        """Only its head; told to the test at once."""
        end = time.monotonic() + self.deadline
        r = Request(self._line(end).decode("latin-1"))
        while line := self._line(end):
            name, _, value = line.partition(b":")
            r.headers.append((name.decode("latin-1"), value.strip().decode("latin-1")))
        self.requests += 1
        self.server.requests.put(r)
        return r

    def body(self, r):
        lengths, codings = r.all("content-length"), r.all("transfer-encoding")
        assert len(lengths) + len(codings) <= 1, r.headers
        if codings:
            assert codings == ["chunked"]
            while True:
                end = time.monotonic() + self.deadline
                n = int(self._line(end), 16)
                piece = self._exactly(n, end)
                assert self._line(end) == b""
                if n == 0:
                    return
                yield piece
        left = int(lengths[0]) if lengths else 0
        while left:
            if not self._got and not self._fill(time.monotonic() + self.deadline):
                raise AssertionError(f"the request ended {left} bytes early")
            piece, self._got = self._got[:left], self._got[left:]
            left -= len(piece)
            yield piece

    def read(self):
        """Some bytes that have come, b"" at the end."""
        if not self._got:
            self._fill(time.monotonic() + self.deadline)
        got, self._got = self._got, b""
        return got


class Inner:
    def __init__(self, play, family=socket.AF_INET):
        self.play, self.requests, self.errors = play, queue.Queue(), queue.Queue()
        self.connections = 0
        self.sock = socket.socket(family)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        self.sock.listen(64)
        self.port = self.sock.getsockname()[1]
        self.threads = []

    def __enter__(self):
        self._run(self._accept)
        return self

    def __exit__(self, kind, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for t in self.threads:
            t.join(20)
            assert not t.is_alive(), "a server inside still waits"
        if kind is None and not self.errors.empty():
            raise self.errors.get()

    def _run(self, f, *args):
        t = threading.Thread(target=f, args=args, daemon=True)
        self.threads.append(t)
        t.start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            self.connections += 1
            self._run(self._serve, sock)

    def _serve(self, sock):
        c = InnerConnection(sock, self)
        with sock:
            try:
                self.play(c)
            except BaseException as e:  # the test shows it when it leaves
                if c.requests > 0 or c._got or not isinstance(e, Cut):  # else somebody only looked
                    self.errors.put(e)

    def got(self, deadline=20):
        """The next request that has come."""
        return self.requests.get(timeout=deadline)


def answer(head, body=b""):
    """A server that answers each connection's one request with this and closes."""

    def play(c):
        c.request()
        c.send(head.replace(b"\n", b"\r\n") + b"\r\n" + body)

    return play


def ok(body=b"ok"):
    return answer(b"HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: %d\n" % len(body), body)
