"""An independent HTTP/1.1 client, and boxes with a gateway in them.

    with GatewayBox("ns-root") as box:
        r = box.http.exec(["sh", "-c", "echo out; exit 3"])        # r.triple == (3, b"out\\n", b"")
        status, data = box.http.json("GET", f"{box.http.root}/running")
        with box.http.open() as c:                                 # any bytes
            c.send(b"GET /health HTTP/1.1\\r\\nHost: b\\r\\n\\r\\n")
            assert c.response().status == 200

It shares no code with the program and is strict: what HTTP does not allow in an answer is an
AssertionError here, and so is what gateway/openapi.json does not (contract.py). Every read has a
deadline.

In all kinds of box the gateway listens on a Unix socket in the box's folder (box.http is a Client
of it), and with port=True on a free TCP port of 127.0.0.1, too (box.port): the host's in ns kinds,
the container's own in runc kinds. The workspace is /workspace inside and box.workspace outside.
"""

import array
import base64
import fcntl
import json
import os
import secrets
import shlex
import shutil
import socket
import stat
import termios
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from . import contract
from .box import Box
from .wait import PATIENCE, Late, wait_until

TOKEN = "t0ken-of.the_box~+/="
WORKSPACE = "/workspace"
GATEWAY_KINDS = ("ns-root", "runc-user")


# ---- one connection ----


@dataclass
class Response:
    status: int
    reason: str = ""
    headers: list = field(default_factory=list)  # (name in lower case, value), in order
    body: bytes = b""
    interim: list = field(default_factory=list)  # statuses of 1xx answers before it
    seconds: float = 0.0
    has_body: bool = True
    length: int = None  # of the body, as Content-Length tells it
    is_chunked: bool = False
    is_whole: bool = False  # body is all of it
    asked: tuple = (None, None)  # method and target of its request, if request() made it

    def header(self, name, default=None):
        found = [v for k, v in self.headers if k == name.lower()]
        return ", ".join(found) if found else default

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def text(self):
        return self.body.decode()

    @property
    def closes(self):
        """The server says that this is the last answer of the connection."""
        return (self.header("connection") or "").lower() == "close"


class Cut(AssertionError):
    """The connection ended in the middle of an answer (or before one)."""


class Connection:
    asked = None  # requests of request() that wait for their answer; None: nothing is looked up

    def __init__(self, address, deadline=30.0):
        """address: the path of a Unix socket, or (host, port)."""
        self.asked = deque()
        self.has_sent_raw = False
        family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        self.sock.settimeout(deadline)
        self.deadline = deadline
        self._got = b""
        try:
            self._connect(address if isinstance(address, tuple) else str(address))
        except BaseException:
            self.sock.close()
            raise

    def _connect(self, address):
        """A Unix socket whose queue is full is no error but a wait, as on TCP."""

        def is_connected():
            try:
                self.sock.connect(address)
                return True
            except BlockingIOError:
                return False

        wait_until(is_connected, self.deadline, f"a place in the queue of {address}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def fileno(self):
        return self.sock.fileno()

    @property
    def unread(self):
        """Bytes that the other end of a Unix socket has not taken (unix(7): SIOCOUTQ)."""
        n = array.array("i", [0])
        fcntl.ioctl(self, termios.TIOCOUTQ, n)
        return n[0]

    # -- sending --

    def send(self, data):
        """Any bytes: from now on nobody knows which request an answer belongs to."""
        self.has_sent_raw = True
        self.sock.sendall(data)

    def request(self, method, target, headers=(), body=None, host="box"):
        """Send one request. headers: pairs or a dict; body: bytes (with Content-Length), an iterable
        of bytes (chunked), or None."""
        pairs = list(headers.items() if isinstance(headers, dict) else headers)
        names = {k.lower() for k, _ in pairs}
        head = [f"{method} {target} HTTP/1.1"]
        if "host" not in names:
            head.append(f"Host: {host}")
        if body is not None and not names & {"content-length", "transfer-encoding"}:
            head.append(f"Content-Length: {len(body)}" if isinstance(body, (bytes, bytearray, memoryview))
                        else "Transfer-Encoding: chunked")
        head += [f"{k}: {v}" for k, v in pairs]
        start = ("\r\n".join(head) + "\r\n\r\n").encode("utf-8", "surrogateescape")
        self.asked.append((method, target))
        if body is None:
            self.sock.sendall(start)
        elif isinstance(body, (bytes, bytearray, memoryview)):
            self.sock.sendall(start + body if len(body) < 65536 else start)
            if len(body) >= 65536:
                self.sock.sendall(body)
        else:
            self.sock.sendall(start)
            for piece in body:
                if piece:
                    self.sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.sock.sendall(b"0\r\n\r\n")

    # -- receiving --

    def _fill(self, end):
        """More bytes, or False at the end of the connection."""
        left = end - time.monotonic()
        if left <= 0:
            raise Late(f"no answer within its deadline; so far {self._got[-300:]!r}")
        self.sock.settimeout(left)
        try:
            more = self.sock.recv(1 << 18)
        except socket.timeout:
            raise Late(f"no answer within its deadline; so far {self._got[-300:]!r}") from None
        except (ConnectionResetError, BrokenPipeError):
            more = b""
        self._got += more
        return bool(more)

    def _line(self, end):
        while b"\n" not in self._got:
            if not self._fill(end):
                raise Cut(f"the connection ended in a line: {self._got[-300:]!r}")
        line, _, self._got = self._got.partition(b"\n")
        assert line.endswith(b"\r"), f"a line of the answer ends without CR: {line!r}"
        return line[:-1]

    def _exactly(self, n, end):
        parts, left = [], n
        while left:
            if not self._got and not self._fill(end):
                raise Cut(f"the connection ended {left} bytes before the end of {n}")
            piece, self._got = self._got[:left], self._got[left:]
            parts.append(piece)
            left -= len(piece)
        return b"".join(parts)

    def begin(self, method="GET", deadline=None):
        """The head of the next answer; its body is read with pieces() or response()."""
        r = self._head(method, deadline)
        contract.check(r, *r.asked)
        return r

    def _head(self, method, deadline):
        end = time.monotonic() + (deadline or self.deadline)
        interim = []
        while True:
            line = self._line(end)
            version, _, rest = line.partition(b" ")
            code, _, reason = rest.partition(b" ")
            assert version == b"HTTP/1.1" and len(code) == 3 and code.isdigit(), f"not a status: {line!r}"
            r = Response(int(code), reason.decode("latin-1"), interim=interim)
            while line := self._line(end):
                name, colon, value = line.partition(b":")
                assert colon and name and not name.endswith((b" ", b"\t")), f"not a header: {line!r}"
                assert not line.startswith((b" ", b"\t")), f"a folded header: {line!r}"
                r.headers.append((name.decode("ascii").lower(), value.strip().decode("latin-1")))
            if r.status >= 200 or r.status == 101:
                break
            interim.append(r.status)
        lengths = [v for k, v in r.headers if k == "content-length"]
        codings = [v for k, v in r.headers if k == "transfer-encoding"]
        assert len(lengths) + len(codings) <= 1, f"two ways to find the end: {r.headers}"
        r.has_body = method != "HEAD" and r.status not in (101, 204, 304)
        r.length = int(lengths[0]) if lengths else None
        r.is_chunked = bool(codings)
        assert not codings or codings == ["chunked"], codings
        if r.status == 204:
            assert not lengths and not codings, f"204 has no body: {r.headers}"
        if self.asked and not self.has_sent_raw:
            r.asked = self.asked.popleft()
        return r

    def pieces(self, r, deadline=None):
        """The body of an answer whose head begin() gave, piece by piece as it comes. The deadline is
        that of each piece."""
        wait = deadline or self.deadline
        if not r.has_body:
            return
        if r.is_chunked:
            while True:
                end = time.monotonic() + wait
                size, _, extension = self._line(end).partition(b";")
                assert size and all(c in b"0123456789abcdefABCDEF" for c in size), f"chunk size {size!r}"
                n = int(size, 16)
                if n == 0:
                    assert self._line(end) == b"", "no trailers"
                    return
                yield self._exactly(n, end)
                assert self._exactly(2, end) == b"\r\n"
        elif r.length is not None:
            left = r.length
            while left:
                end = time.monotonic() + wait
                if not self._got and not self._fill(end):
                    raise Cut(f"the connection ended {left} bytes before the end of {r.length}")
                piece, self._got = self._got[:left], self._got[left:]
                left -= len(piece)
                yield piece
        else:
            assert r.closes, f"no length, no chunks, no close: {r.headers}"
            while self._got or self._fill(time.monotonic() + wait):
                piece, self._got = self._got, b""
                yield piece

    def response(self, method="GET", deadline=None):
        """The next answer, whole. method: of its request (an answer to HEAD has no body)."""
        begun = time.monotonic()
        r = self._head(method, deadline)
        r.body = b"".join(self.pieces(r, deadline))
        r.seconds = time.monotonic() - begun
        r.is_whole = True
        contract.check(r, *r.asked)
        return r

    def rest(self, deadline=None):
        """All bytes up to the end of the connection."""
        end = time.monotonic() + (deadline or self.deadline)
        while self._fill(end):
            pass
        got, self._got = self._got, b""
        return got

    def is_closed(self, deadline=20.0):
        """The server closes the connection, within the deadline and without a further byte."""
        try:
            return self.rest(deadline) == b""
        except Late:
            return False


# ---- server-sent events ----


@dataclass
class Event:
    name: str
    data: str
    id: str = None

    @property
    def json(self):
        return json.loads(self.data)

    @property
    def bytes(self):
        """The payload of stdout and stderr: standard base64 on one line."""
        assert "\n" not in self.data, f"base64 in several lines: {self.data!r}"
        return base64.b64decode(self.data, validate=True)


class Sse:
    """The events of an answer as they come. `with` closes the connection."""

    def __init__(self, connection, response, deadline=30.0):
        self.connection, self.response, self.deadline = connection, response, deadline
        self.comments = []  # (when, text)
        self._events = self._read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __iter__(self):
        return self._events

    def close(self):
        self.connection.close()

    def next(self):
        """The next event, or None at the end."""
        return next(self._events, None)

    def until(self, name):
        """Events up to and with the next one of that name."""
        found = []
        for e in self._events:
            found.append(e)
            if e.name == name:
                return found
        raise AssertionError(f"the stream ended without {name}: {[e.name for e in found]}")

    def _read(self):
        left, current = b"", []
        for piece in self.connection.pieces(self.response, self.deadline):
            left += piece
            *lines, left = left.split(b"\n")
            for line in lines:
                line = line.removesuffix(b"\r").decode()
                if line.startswith(":"):
                    self.comments.append((time.monotonic(), line[1:].strip()))
                elif line:
                    current.append(line)
                elif current:
                    event, current = self._event(current), []
                    if self.response.asked[0]:
                        contract.check_event(event, *self.response.asked)
                    yield event
        assert not left and not current, f"the stream ends within an event: {current} {left!r}"

    @staticmethod
    def _event(lines):
        fields = {}
        for line in lines:
            key, colon, value = line.partition(":")
            assert colon and key in ("event", "data", "id", "retry"), f"a line of an event: {line!r}"
            value = value.removeprefix(" ")
            assert key == "data" or key not in fields, f"{key} twice: {lines}"
            fields[key] = f"{fields['data']}\n{value}" if key == "data" and "data" in fields else value
        return Event(fields.get("event", "message"), fields.get("data", ""), fields.get("id"))


@dataclass
class Exec:
    """What an exec over HTTP told."""

    status: int = None  # exit_code; None if it ended with `error`
    out: bytes = b""
    err: bytes = b""
    events: list = field(default_factory=list)
    start: dict = field(default_factory=dict)  # of the event `start`
    fields: dict = field(default_factory=dict)  # of the event `exit`
    error: dict = None  # of the event `error`
    seconds: float = 0.0

    @property
    def triple(self):
        return (self.status, self.out, self.err)

    def __getitem__(self, key):
        return self.fields[key]

    def add(self, e):
        self.events.append(e)
        if e.name in ("stdout", "stderr"):
            payload = e.bytes
            assert payload, "an event without output"
            if e.name == "stdout":
                self.out += payload
            else:
                self.err += payload
        elif e.name == "exit":
            self.fields = e.json
            self.status = self.fields["exit_code"]
            assert isinstance(self.status, int) and 0 <= self.status <= 255, self.fields
        elif e.name == "error":
            self.error = e.json
            assert {"error", "code"} <= set(self.error) <= {"error", "code", "exec_id", "detail"}, self.error
        elif e.name == "start":
            self.start = e.json


def is_event_stream(r):
    assert r.status == 200, (r.status, r.body)
    assert r.header("content-type").split(";")[0] == "text/event-stream", r.headers
    assert r.header("cache-control") == "no-cache" and r.is_chunked, r.headers


# ---- a client of one gateway ----


def new_id():
    """A sandbox's id of the right form."""
    return base64.b32encode(secrets.token_bytes(16)).decode().rstrip("=").lower()


class HttpError(Exception):
    """An answer that is not the one that was asked for."""

    def __init__(self, r):
        self.status, self.response = r.status, r
        try:
            self.code, self.message = r.json["code"], r.json["error"]
        except Exception:
            self.code, self.message = None, r.body[:200]
        super().__init__(f"{r.status} {self.code}: {self.message}")


class Client:
    def __init__(self, address, token=TOKEN, sandbox=None, deadline=30.0):
        self.address, self.token, self.deadline = address, token, deadline
        self.sandbox = sandbox or new_id()

    @property
    def root(self):
        """The path of the sandbox: /v1/sandbox/ID."""
        return f"/v1/sandbox/{self.sandbox}"

    def open(self, deadline=None):
        return Connection(self.address, deadline or self.deadline)

    def auth(self):
        return [("Authorization", f"Bearer {self.token}")] if self.token else []

    def request(self, method, target, body=None, headers=(), *, auth=True, deadline=None):
        """One request on a connection of its own. A body that is neither bytes nor an iterable is
        sent as JSON. Target: whole, or what follows /v1/sandbox/ID if it has no first slash."""
        c, method = self._send(method, target, body, headers, auth, deadline)
        with c:
            return c.response(method)

    def _send(self, method, target, body, headers, auth, deadline):
        if not target.startswith("/"):
            target = f"{self.root}/{target}"
        if isinstance(body, (dict, list, str, int)):
            body = json.dumps(body).encode()
        pairs = list(headers.items() if isinstance(headers, dict) else headers)
        if auth and "authorization" not in {k.lower() for k, _ in pairs}:
            pairs += self.auth()
        c = self.open(deadline)
        try:
            c.request(method, target, pairs, body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was refused on the way: the reason waits to be read
        except BaseException:
            c.close()
            raise
        return c, method

    def json(self, method, target, body=None, headers=(), **kw):
        """(status, decoded body); the answer must be JSON, or 204 (None)."""
        r = self.request(method, target, body, headers, **kw)
        if r.status == 204:
            return 204, None
        assert r.header("content-type", "").split(";")[0] == "application/json", (r.status, r.headers, r.body)
        return r.status, r.json

    def ok(self, method, target, body=None, headers=(), **kw):
        """The decoded body of an answer that must be 2xx; HttpError otherwise."""
        r = self.request(method, target, body, headers, **kw)
        if not 200 <= r.status < 300:
            raise HttpError(r)
        return r.json if r.body and "json" in r.header("content-type", "") else r.body or None

    def stream(self, method, target, body=None, headers=(), *, auth=True, deadline=None):
        """An answer that is an event stream: an Sse. HttpError if it is another one."""
        c, method = self._send(method, target, body, headers, auth, deadline)
        try:
            r = c.begin(method)
            if r.status != 200:
                r.body = b"".join(c.pieces(r))
                raise HttpError(r)
            is_event_stream(r)
            return Sse(c, r, deadline or self.deadline)
        except BaseException:
            c.close()
            raise

    def exec_stream(self, argv, *, session=None, timeout_ms=None, cwd=None, headers=(), deadline=None,
                    **more):
        """POST exec; the events as they come. A text stands for /bin/sh -c TEXT."""
        argv = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
        body = {"argv": argv, **more}
        if timeout_ms is not None:
            body["timeout_ms"] = timeout_ms
        if cwd is not None:
            body["cwd"] = str(cwd)
        pairs = list(headers.items() if isinstance(headers, dict) else headers)
        if session is not None:
            pairs.append(("Session-Id", session))
        return self.stream("POST", "exec", body, pairs, deadline=deadline)

    def exec(self, argv, **kw):
        """POST exec to its end: an Exec. Exactly one terminal event comes, as the last one."""
        begun = time.monotonic()
        with self.exec_stream(argv, **kw) as events:
            r = collect(events)
        r.seconds = time.monotonic() - begun
        return r

    # -- files --

    def file(self, path):
        """The route of a file: PATH absolute (or below /workspace), str or bytes."""
        path = path if isinstance(path, bytes) else str(path).encode("utf-8", "surrogateescape")
        if not path.startswith(b"/"):
            path = WORKSPACE.encode() + b"/" + path
        return "file" + quote(path, safe="/")

    def put(self, path, data, **kw):
        return self.request("PUT", self.file(path), data, **kw)

    def get(self, path, **kw):
        return self.request("GET", self.file(path), **kw)


def collect(events, into=None):
    """Read an exec's events to the end."""
    r = into or Exec()
    ends = 0
    for e in events:
        assert not ends, f"{e.name} after the terminal event"
        r.add(e)
        ends += e.name in ("exit", "error")
    assert ends == 1, f"the stream ended without exit or error: {[e.name for e in r.events]}"
    return r


# ---- boxes ----


class GatewayBox(Box):
    def __init__(self, kind="ns-root", *, gateway=None, token=TOKEN, ini=None, port=False, mounts=(),
                 answers=True, options=(), **kw):
        """
        gateway  keys of [gateway] over those of the rig (None as value drops a key)
        options  more options of sandbox-gateway than init gives it
        token    what is in the token file; None: auth = none
        port     listen on a TCP port, too: True, or its number
        answers  True: wait until the gateway answers
        """
        self._gateway = gateway or {}
        self._answers = answers
        self._options = list(options)
        self.token = token
        self.port = None
        if port:
            self.port = free_port() if port is True else port
        self._more_mounts = list(mounts)
        super().__init__(kind, ini=ini or {}, **kw)

    def _init_argv(self, ini, flags, main):
        # The gateway runs as a user of its own: its socket needs a folder where that one may write.
        self.http_socket = self.dir / "http" / "sock"
        self.http_socket.parent.mkdir()
        self.http_socket.parent.chmod(0o1777)
        self.workspace = self.dir / "workspace"
        self.workspace.mkdir()
        os.chown(self.workspace, self.uid, self.uid)
        if not self.is_runc:
            self._mount_point = mount_point()
        self.mounts += [{"destination": WORKSPACE, "type": "bind", "source": str(self.workspace),
                         "options": ["rbind", "rw"]}, *self._more_mounts]
        listen = [f"unix:{self.http_socket}"] + ([f"127.0.0.1:{self.port}"] if self.port else [])
        keys = {"listen": " ".join(listen)}
        if self.token is None:
            keys["auth"] = "none"
        else:
            self.token_file = self.dir / "token"
            self.token_file.write_text(self.token + "\n")
            self.token_file.chmod(0o600)
            os.chown(self.token_file, self.uid, self.uid)
            keys["token_file"] = str(self.token_file)
        if isinstance(ini, dict):
            ini = {**ini, "gateway": {**keys, **self._gateway}}
        self.http = Client(self.http_socket, self.token)
        if self._options:
            self._wrap_gateway()
        return super()._init_argv(ini, flags, main)

    _mount_point = None

    def close(self):
        super().close()
        if self._mount_point is not None:
            leave_mount_point(self._mount_point)
            self._mount_point = None

    def _wrap_gateway(self):
        """init starts the sandbox-gateway that lies beside itself: here, a script."""
        folder = self.dir / "bin"
        folder.mkdir()
        real = Path(self.init_path).with_name("sandbox-gateway")
        self.init_path = shutil.copy2(self.init_path, folder / "sandbox-init")
        script = folder / "sandbox-gateway"
        script.write_text(f'#!/bin/sh\ncase $1 in --file-helper) exec {real} "$@" ;; esac\n'
                          f'exec {real} "$@" {shlex.join(self._options)}\n')
        script.chmod(0o755)

    def _await_ready(self):
        super()._await_ready()
        if self._answers:
            self.await_gateway()

    def await_gateway(self, deadline=None):
        """Wait until /health answers."""
        def answers():
            if not self.is_alive:
                raise AssertionError(f"sandbox-init ended; log: {self.log()[-2000:]}")
            try:
                return self.http.request("GET", "/health", auth=False, deadline=PATIENCE).status == 200
            except (FileNotFoundError, ConnectionRefusedError, Cut):
                return False

        wait_until(answers, deadline or self.deadline,
                   lambda: f"{self.http_socket} answers; log: {self.log()[-2000:]}", every=0.01)

    def client(self, **kw):
        """Another client, with a sandbox's id of its own."""
        return Client(self.http_socket, self.token, **kw)

    @property
    def gateway_pid(self):
        """The host's pid of the gateway, or None."""
        return self._pid_of_gateway(False)

    @property
    def file_helper_pid(self):
        return self._pid_of_gateway(True)

    def _pid_of_gateway(self, is_helper):
        for p in self.processes():
            if "sandbox-gateway" in p.command and ("--file-helper" in p.command) == is_helper:
                return p.pid
        return None


# A namespace's /workspace needs a folder of the host's to be mounted on. Boxes of all runs on the machine hold a
# shared lock on it; the last one takes it away, if it was a box that made it, which its mode tells. (To remove it
# earlier would take the mounts away from the others.)
MOUNT_POINT_MODE = 0o1751


def mount_point():
    """The locked folder, made if it is missing: its descriptor."""
    while True:
        try:
            os.mkdir(WORKSPACE, 0o700)
            os.chmod(WORKSPACE, MOUNT_POINT_MODE)
        except FileExistsError:
            pass
        try:
            fd = os.open(WORKSPACE, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(fd, fcntl.LOCK_SH)
        if os.fstat(fd).st_nlink > 0 and os.path.exists(WORKSPACE):
            return fd
        os.close(fd)


def leave_mount_point(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_IMODE(os.fstat(fd).st_mode) == MOUNT_POINT_MODE:
            os.rmdir(WORKSPACE)
    except OSError:
        pass  # somebody is on it, or has put something there
    finally:
        os.close(fd)


def free_port():
    """A port of 127.0.0.1 for somebody who listens a moment later. It lies below those that the kernel deals out
    (ip_local_port_range): one of them would have gone to any other connection meanwhile."""
    while True:
        port = 10000 + secrets.randbelow(20000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


# What ASan and UBSan say, in the log of a box.
SANITIZER_WORDS = ("AddressSanitizer", "LeakSanitizer: detected", "runtime error:")


def sanitizer_report(log):
    """The part of a log that begins with a sanitizer's find, or ''."""
    at = [log.find(w) for w in SANITIZER_WORDS if w in log]
    return log[max(0, min(at) - 100):][:4000] if at else ""
