"""Every row of the contract's tables, asked with curl: request -> status, headers, body.

A row is: what it shows, METHOD PATH, what is sent, what comes back. A path without a first slash
is what follows /v1/sandbox/ID. Before each row the workspace holds

    a.txt "hello\\n"    sub/b.txt "b"    sp ace%25.txt    run (mode 755, not a program)
"""

import base64
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field

import pytest

from rig.http import TOKEN, GatewayBox, Sse, collect, new_id

LIMIT = 33554432
IS = re.compile


# ---- the words of the table ----


@dataclass
class Row:
    what: str
    request: str  # "METHOD PATH"
    status: int
    body: object = None  # a matcher
    send: object = None  # bytes, or what is sent as JSON
    headers: tuple = ()
    auth: str = f"Bearer {TOKEN}"
    answer: dict = field(default_factory=dict)  # headers that must be there
    then: object = None  # called with the box


def row(what, request, status, body=None, **kw):
    return Row(what, request, status, body, **kw)


def fits(expected, got):
    """Patterns match whole texts, `...` anything, functions decide; the rest must be equal, and a
    dict has exactly these keys."""
    if expected is ...:
        return True
    if isinstance(expected, re.Pattern):
        return isinstance(got, str) and expected.fullmatch(got) is not None
    if isinstance(expected, dict):
        return isinstance(got, dict) and expected.keys() == got.keys() and all(
            fits(v, got[k]) for k, v in expected.items())
    if callable(expected):
        return expected(got)
    return expected == got


class as_json:
    def __init__(self, value):
        self.value = value

    def check(self, headers, body):
        assert headers["content-type"].split(";")[0] == "application/json", headers
        assert fits(self.value, json.loads(body)), (self.value, body)


def error(text, code="invalid_request"):
    return as_json({"error": text, "code": code})


class raw:
    def __init__(self, content, kind="application/octet-stream"):
        self.content, self.kind = content, kind

    def check(self, headers, body):
        assert headers["content-type"] == self.kind, headers
        assert body == self.content, body[:300]


class nothing:
    def check(self, headers, body):
        assert body == b""


class events:
    """An exec's stream; of `exit` and `error` the contract's fields count, more may come."""

    def __init__(self, out=b"", err=b"", exit=None, error=None):
        self.out, self.err, self.exit, self.error = out, err, exit, error

    def check(self, headers, body):
        assert headers["content-type"].split(";")[0] == "text/event-stream"
        assert headers["cache-control"] == "no-cache" and headers["transfer-encoding"] == "chunked"
        lines = [l for l in body.decode().split("\n\n") if l and not l.startswith(":")]
        r = collect([Sse._event(l.split("\n")) for l in lines])
        error = r.error and {k: r.error[k] for k in ("error", "code")}
        assert (r.out, r.status, error) == (self.out, self.exit, self.error), r
        if isinstance(self.err, re.Pattern):
            assert self.err.fullmatch(r.err), r.err
        else:
            assert r.err == self.err, r.err


class tar:
    """An archive of the workspace: its members, and that a strict client takes it."""

    def __init__(self, has=(), lacks=()):
        self.has, self.lacks = has, lacks

    def check(self, headers, body):
        assert headers["content-type"] == "application/octet-stream"
        with tarfile.open(fileobj=io.BytesIO(body)) as t:
            members = t.getmembers()
        names = [m.name for m in members]
        assert all(n == "." or n.startswith("./") for n in names), names
        assert all(m.isfile() or m.isdir() or m.issym() for m in members)
        assert not [n for n in self.has if f"./{n}" not in names], names
        assert not [n for n in self.lacks if f"./{n}" in names], names


UNAUTHORIZED = error("Unauthorized", "unauthorized")
NOT_FOUND = raw(b"404 Not Found", "text/plain; charset=UTF-8")
BAD_ID = error("Invalid sandbox ID format")
BAD_SESSION = error("Invalid session ID format")
OUTSIDE = error("path must resolve to a location within /workspace")
CWD_OUTSIDE = error("cwd must resolve to a location within /workspace")
OK = as_json({"ok": True})
RUNNING = as_json({"running": True})


class Zeros:
    def __init__(self, n):
        self.n = n

    def write(self, path):
        with open(path, "wb") as f:
            f.truncate(self.n)


def argv(*words, **more):
    return {"argv": list(words), **more}


def sh(text, **more):
    return argv("/bin/bash", "-c", text, **more)


def tar_of(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            t.addfile(member, io.BytesIO(content))
    return out.getvalue()


def file_is(name, content):
    def then(box):
        assert (box.workspace / name).read_bytes() == content
    return then


def mode_is(name, mode):
    def then(box):
        assert (box.workspace / name).stat().st_mode & 0o7777 == mode
    return then


def not_there(name):
    def then(box):
        assert not os.path.lexists(box.workspace / name)
    return then


# ---- section 0: common rules ----

COMMON = [
    row("the scheme is taken in any case", "GET running", 200, RUNNING, auth=f"bearer {TOKEN}"),
    row("the scheme in capitals", "GET running", 200, RUNNING, auth=f"BEARER {TOKEN}"),
    row("no token", "GET running", 401, UNAUTHORIZED, auth=None),
    row("a wrong token", "GET running", 401, UNAUTHORIZED, auth="Bearer wrong"),
    row("a token that begins well", "GET running", 401, UNAUTHORIZED, auth=f"Bearer {TOKEN[:-1]}"),
    row("a token and more", "GET running", 401, UNAUTHORIZED, auth=f"Bearer {TOKEN}x"),
    row("an empty token", "GET running", 401, UNAUTHORIZED, auth="Bearer "),
    row("another scheme", "GET running", 401, UNAUTHORIZED,
        auth="Basic " + base64.b64encode(f"x:{TOKEN}".encode()).decode()),
    row("the token without a scheme", "GET running", 401, UNAUTHORIZED, auth=TOKEN),
    row("create needs the token", "POST /v1/sandbox", 401, UNAUTHORIZED, auth=None),
    row("pool: the exact scheme", "GET /v1/pool/stats", 401, UNAUTHORIZED, auth=f"bearer {TOKEN}"),
    row("openapi: the exact scheme", "GET /v1/openapi.json", 401, UNAUTHORIZED, auth=f"bearer {TOKEN}"),
    row("openapi: no token", "GET /v1/openapi.json", 401, UNAUTHORIZED, auth=None),
    row("openapi.json with ?token=", f"GET /v1/openapi.json?token={TOKEN.replace('+', '%2B')}", 200,
        as_json(...), auth=None),
    row("openapi.html with ?token=", f"GET /v1/openapi.html?token={TOKEN.replace('+', '%2B')}", 200, auth=None),
    row("openapi with ?token=", f"GET /v1/openapi?token={TOKEN.replace('+', '%2B')}", 200, auth=None),
    row("openapi with a wrong ?token=", "GET /v1/openapi.json?token=x", 401, UNAUTHORIZED, auth=None),
    row("?token= nowhere else: sandbox", f"GET running?token={TOKEN.replace('+', '%2B')}", 401, UNAUTHORIZED,
        auth=None),
    row("?token= nowhere else: pool", f"GET /v1/pool/stats?token={TOKEN.replace('+', '%2B')}", 401,
        UNAUTHORIZED, auth=None),
    row("GET of the list of sandboxes", "GET /v1/sandbox", 404, NOT_FOUND),
    row("POST with a slash behind", "POST /v1/sandbox/", 404, NOT_FOUND),
    row("GET of a sandbox", "GET /v1/sandbox/{id}", 404, NOT_FOUND),
    row("a wrong method", "POST running", 404, NOT_FOUND),
    row("a wrong method for exec", "PUT exec", 404, NOT_FOUND),
    row("OPTIONS", "OPTIONS exec", 404, NOT_FOUND),
    row("an unknown route of a sandbox", "GET no-such-route", 404, NOT_FOUND),
    row("an unknown route", "GET /v1/no-such-route", 404, NOT_FOUND),
    row("an unknown version", "POST /v2/sandbox", 404, ...),
    row("the prefix is exact", "POST /V1/sandbox", 404, ...),
    row("id: capitals", "GET /v1/sandbox/ABC/running", 400, BAD_ID),
    row("id: digits out of base32", "GET /v1/sandbox/a1/running", 400, BAD_ID),
    row("id: a percent-escape", "GET /v1/sandbox/%61bc/running", 400, BAD_ID),
    row("id: 129 characters", f"GET /v1/sandbox/{'a' * 129}/running", 400, BAD_ID),
    row("id: 128 characters", f"GET /v1/sandbox/{'a' * 128}/running", 200, RUNNING),
    row("id: one character", "GET /v1/sandbox/7/running", 200, RUNNING),
    row("id: checked before the token", "GET /v1/sandbox/NO/running", 400, BAD_ID, auth=None),
    row("id: checked on each route", "DELETE /v1/sandbox/NO", 400, BAD_ID),
    row("a valid id that was never created", "GET /v1/sandbox/{fresh}/running", 200, RUNNING),
]

# ---- health, create, delete, running ----

LIFE = [
    row("health", "GET /health", 200, OK, auth=None),
    row("health with a wrong token", "GET /health", 200, OK, auth="Bearer wrong"),
    row("create", "POST /v1/sandbox", 200, as_json({"id": IS("[a-z2-7]{26}")}), send={}),
    row("create without a body", "POST /v1/sandbox", 200, as_json({"id": IS("[a-z2-7]{26}")})),
    row("create with options", "POST /v1/sandbox", 200, as_json({"id": IS("[a-z2-7]{26}")}),
        send={"exposedPorts": [80], "timeoutMs": 5, "mounts": []}),
    row("create with what is not JSON", "POST /v1/sandbox", 200, as_json({"id": IS("[a-z2-7]{26}")}),
        send=b"{not json"),
    row("running", "GET running", 200, RUNNING),
    row("delete", "DELETE /v1/sandbox/{id}", 204, nothing(), then=not_there("a.txt")),
    row("delete of one never used", "DELETE /v1/sandbox/{fresh}", 204, nothing()),
    row("a deleted id is fresh", "POST exec", 200, events(b"/workspace\n", exit=0), send=argv("pwd")),
]

# ---- exec ----

ZERO = events(b"x\n", exit=0)
EXEC = [
    row("status, stdout, stderr", "POST exec", 200, events(b"out\n", b"err\n", 3),
        send=sh("echo out; echo err >&2; exit 3")),
    row("a body that is not JSON", "POST exec", 400, error("Invalid JSON body"), send=b"argv=ls"),
    row("an empty body", "POST exec", 400, error("Invalid JSON body")),
    row("no argv", "POST exec", 400, error("argv must be a non-empty array"), send={"cwd": "/workspace"}),
    row("argv is a text", "POST exec", 400, error("argv must be a non-empty array"), send={"argv": "ls"}),
    row("argv is empty", "POST exec", 400, error("argv must be a non-empty array"), send={"argv": []}),
    row("the body is an array", "POST exec", 400, error("argv must be a non-empty array"), send=[]),
    row("any content type", "POST exec", 200, ZERO, send=argv("echo", "x"),
        headers=("Content-Type: text/plain",)),
    row("no content type", "POST exec", 200, ZERO, send=argv("echo", "x"), headers=("Content-Type:",)),
    row("unknown keys", "POST exec", 200, ZERO, send=argv("echo", "x", whatever={"a": [1]})),
    row("items of argv that are numbers", "POST exec", 200, events(b"1\n", exit=0), send=argv("echo", 1)),
    row("argv arrives as it is", "POST exec", 200, events(b"a b|$HOME|'\"|*|-n||\xc3\xa9\n|", exit=0),
        send=argv("printf", "%s|", "a b", "$HOME", "'\"", "*", "-n", "", "é\n")),
    row("a missing program", "POST exec", 200, events(err=IS(rb"(?s).*no-such-cmd.*not found.*"), exit=127),
        send=argv("no-such-cmd", "x")),
    row("a missing program by its path", "POST exec", 200,
        events(err=IS(rb"(?s).*/no/such/cmd.*No such file or directory.*"), exit=127),
        send=argv("/no/such/cmd")),
    row("what is no program", "POST exec", 200, events(err=IS(rb"(?s).*a\.txt.*ermission denied.*"), exit=126),
        send=argv("/workspace/a.txt")),
    row("a folder as a program", "POST exec", 200, events(err=IS(rb"(?s).+"), exit=126),
        send=argv("/workspace/sub")),
    row("exit 300 is 44", "POST exec", 200, events(exit=44), send=sh("exit 300")),
    row("death by a signal", "POST exec", 200, events(exit=137), send=sh("kill -9 $$")),
    row("death by TERM", "POST exec", 200, events(exit=143), send=sh("kill $$")),
    row("stdin is empty", "POST exec", 200, events(exit=0), send=argv("cat")),
    row("bytes that are not UTF-8", "POST exec", 200, events(b"\xff\xfe\0\r\n", exit=0),
        send=sh(r"printf '\377\376\000\r\n'")),
    row("no newline at the end", "POST exec", 200, events(b"x", exit=0), send=argv("printf", "x")),
    row("the workspace is the cwd", "POST exec", 200, events(b"/workspace\n", exit=0), send=argv("pwd")),
    row("cwd", "POST exec", 200, events(b"/workspace/sub\n", exit=0), send=argv("pwd", cwd="/workspace/sub")),
    row("cwd: relative", "POST exec", 200, events(b"/workspace/sub\n", exit=0), send=argv("pwd", cwd="sub")),
    row("cwd: with dots", "POST exec", 200, events(b"/workspace/sub\n", exit=0),
        send=argv("pwd", cwd="./sub/../no/../sub/.")),
    row("cwd: the workspace itself", "POST exec", 200, events(b"/workspace\n", exit=0),
        send=argv("pwd", cwd="/workspace/")),
    row("cwd: outside", "POST exec", 403, CWD_OUTSIDE, send=argv("pwd", cwd="/etc")),
    row("cwd: outside by dots", "POST exec", 403, CWD_OUTSIDE, send=argv("pwd", cwd="../etc")),
    row("cwd: a longer name", "POST exec", 403, CWD_OUTSIDE, send=argv("pwd", cwd="/workspacefoo")),
    row("cwd: missing", "POST exec", 200,
        events(error={"error": "Command execution failed", "code": "exec_error"}),
        send=argv("pwd", cwd="/workspace/no")),
    row("timeout_ms", "POST exec", 200, events(b"before\n", b"Command timed out after 3000ms\n", 124),
        send=sh("echo before; sleep 30; echo after", timeout_ms=3000)),
    row("timeout_ms: enough", "POST exec", 200, ZERO, send=argv("echo", "x", timeout_ms=30000)),
    row("timeout_ms: zero", "POST exec", 200, events(err=b"Command timed out after 0ms\n", exit=124),
        send=argv("sleep", "9", timeout_ms=0)),
    row("timeout_ms: negative", "POST exec", 200, events(err=b"Command timed out after -5ms\n", exit=124),
        send=argv("sleep", "9", timeout_ms=-5)),
    row("timeout_ms: a text", "POST exec", 200, ZERO, send=argv("echo", "x", timeout_ms="1")),
    row("timeout_ms: null", "POST exec", 200, ZERO, send=argv("echo", "x", timeout_ms=None)),
    row("what keeps stdout open keeps the call open", "POST exec", 200, events(b"now\nlate\n", exit=0),
        send=sh("(sleep 0.3; echo late) & echo now")),
    row("what does not keep it open lives on", "POST exec", 200, events(b"now\n", exit=0),
        send=sh("(sleep 3; : ) >/dev/null 2>&1 & echo now")),
    row("builtins: cd", "POST exec", 200, events(exit=0), send=argv("cd", "/tmp")),
    row("builtins: exit", "POST exec", 200, events(exit=5), send=argv("exit", "5")),
    row("Session-Id: made at its first use", "POST exec", 200, ZERO, send=argv("echo", "x"),
        headers=("Session-Id: fresh-{fresh}",)),
    row("Session-Id: empty is none", "POST exec", 200, ZERO, send=argv("echo", "x"), headers=("Session-Id;",)),
    row("Session-Id: a slash", "POST exec", 400, BAD_SESSION, send=argv("true"), headers=("Session-Id: a/b",)),
    row("Session-Id: two dots", "POST exec", 400, BAD_SESSION, send=argv("true"), headers=("Session-Id: a..b",)),
    row("Session-Id: 129 characters", "POST exec", 400, BAD_SESSION, send=argv("true"),
        headers=(f"Session-Id: {'s' * 129}",)),
    row("Session-Id: timeout", "POST exec", 200,  # the shell has a word of its own for it
        events(err=IS(rb"(.*Terminated.*\n)?Command timed out after 300ms\n"), exit=124),
        send=argv("sleep", "30", timeout_ms=300), headers=("Session-Id: t",)),
    row("Session-Id: cwd is that call's own", "POST exec", 200, events(b"/workspace/sub\n", exit=0),
        send=argv("pwd", cwd="sub"), headers=("Session-Id: c",)),
]

# ---- files ----

FILES = [
    row("get", "GET file/workspace/a.txt", 200, raw(b"hello\n")),
    row("get with two slashes", "GET file//workspace/a.txt", 200, raw(b"hello\n")),
    row("get with dots inside", "GET file/workspace/./no/../sub/../a.txt", 200, raw(b"hello\n")),
    row("get: no path", "GET file", 400, error("file path must not be empty")),
    row("get: an empty path", "GET file/", 400, error("file path must not be empty")),
    row("put: no path", "PUT file/", 400, error("file path must not be empty"), send=b"x"),
    row("get: outside", "GET file/etc/passwd", 403, OUTSIDE),
    row("get: outside by dots", "GET file/workspace/../etc/passwd", 403, OUTSIDE),
    row("get: outside by escaped dots", "GET file/workspace/%2e%2e/etc/passwd", 403, OUTSIDE),
    row("get: outside by ..%2f", "GET file/workspace/..%2f..%2fetc%2fpasswd", 403, OUTSIDE),
    row("get: a longer name", "GET file/workspacefoo/a", 403, OUTSIDE),
    row("put: outside", "PUT file/tmp/x", 403, OUTSIDE, send=b"x"),
    row("get: missing", "GET file/workspace/x", 404,
        error("File not found: /workspace/x", "workspace_read_not_found")),
    row("get: below a missing folder", "GET file/workspace/no/x", 404,
        error("File not found: /workspace/no/x", "workspace_read_not_found")),
    row("get: a folder", "GET file/workspace/sub", 404, as_json({"error": ..., "code": ...})),
    row("get: a percent-escape", "GET file/workspace/sp%20ace%2525.txt", 200, raw(b"odd")),
    row("get: a bad escape", "GET file/workspace/%zz", 400, as_json({"error": ..., "code": "invalid_request"})),
    row("get: half an escape", "GET file/workspace/a%2", 400, as_json({"error": ..., "code": "invalid_request"})),
    row("get: NUL", "GET file/workspace/a%00.txt", 400, as_json({"error": ..., "code": "invalid_request"})),
    row("head", "HEAD file/workspace/a.txt", 200, nothing(),
        answer={"content-type": "application/octet-stream"}),
    row("head: missing", "HEAD file/workspace/x", 404, nothing()),
    row("put", "PUT file/workspace/new", 200, OK, send=b"\xff\0new", then=file_is("new", b"\xff\0new")),
    row("put: nothing", "PUT file/workspace/new", 200, OK, send=b"", then=file_is("new", b"")),
    row("put: over what is there", "PUT file/workspace/a.txt", 200, OK, send=b"b", then=file_is("a.txt", b"b")),
    row("put: folders are made", "PUT file/workspace/x/y/z", 200, OK, send=b"z", then=file_is("x/y/z", b"z")),
    row("put: the mode stays", "PUT file/workspace/run", 200, OK, send=b"x", then=mode_is("run", 0o755)),
    row("put: reserved characters", "PUT file/workspace/a%23b%3F%26%2B%3A%3D%40%24%2C%3B%25", 200, OK, send=b"r",
        then=file_is("a#b?&+:=@$,;%", b"r")),
    row("put: UTF-8", "PUT file/workspace/%C3%A9.txt", 200, OK, send=b"e", then=file_is("é.txt", b"e")),
    row("put: + is no space", "PUT file/workspace/a+b", 200, OK, send=b"p", then=file_is("a+b", b"p")),
    row("put: a folder", "PUT file/workspace/sub", 502,
        error(IS("write failed: .*[Ii]s a directory.*|write failed: .*EISDIR.*"), "workspace_archive_write_error"),
        send=b"x"),
    row("put: the limit", "PUT file/workspace/big", 200, OK, send=Zeros(LIMIT),
        then=lambda box: os.unlink(box.workspace / "big")),
    row("put: a byte more", "PUT file/workspace/big", 413,
        error(f"payload too large: {LIMIT + 1} bytes exceeds the {LIMIT}-byte limit", "payload_too_large"),
        send=Zeros(LIMIT + 1), then=not_there("big")),
]

# ---- persist and hydrate ----

ARCHIVES = [
    row("persist", "POST persist", 200, tar(["a.txt", "sub", "sub/b.txt", "sp ace%25.txt"])),
    row("persist: excludes", "POST persist?excludes=./sub,,a.txt", 200,
        tar(["run"], ["sub", "sub/b.txt", "a.txt"])),
    row("persist: an encoded comma list", "POST persist?excludes=sub%2Ca.txt", 200, tar(["run"], ["sub", "a.txt"])),
    row("persist: a pattern", "POST persist?excludes=*.txt", 200,
        tar(["run", "sub"], ["a.txt", "sub/b.txt", "sp ace%25.txt"])),
    row("persist: excludes with dots", "POST persist?excludes=a,b/../c", 400,
        error('exclude paths must not contain ".."')),
    row("persist: root is ignored", "POST persist?root=/etc", 200, tar(["a.txt"])),
    row("hydrate", "POST hydrate", 200, OK, send=tar_of(n=b"new", **{"a.txt": b"over"}),
        then=lambda box: (file_is("n", b"new")(box), file_is("a.txt", b"over")(box), file_is("run", b"r")(box))),
    row("hydrate: empty", "POST hydrate", 400, error("Empty tar payload")),
    row("hydrate: NULs", "POST hydrate", 200, OK, send=bytes(1024)),
    row("hydrate: not a tar", "POST hydrate", 502,
        error(IS("(?s)tar extract failed \\(exit 2\\): tar: This does not look like a tar archive.*"),
              "workspace_archive_write_error"), send=b"certainly no archive\n" * 60),
    row("hydrate: too large", "POST hydrate", 400,
        error(f"tar payload too large: {LIMIT + 1} bytes exceeds the {LIMIT}-byte limit"), send=Zeros(LIMIT + 1)),
]

# ---- terminals, sessions ----

UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
SESSIONS = [
    row("pty: no upgrade", "GET pty?cols=80&rows=24", 400, error("WebSocket upgrade required")),
    row("pty: cols", "GET pty?cols=wide", 400, error("cols and rows must be valid numbers"), headers=UPGRADE),
    row("pty: rows", "GET pty?cols=80&rows=2x", 400, error("cols and rows must be valid numbers"),
        headers=UPGRADE),
    row("pty: session", "GET pty?session=a..b", 400, BAD_SESSION, headers=UPGRADE),
    row("pty: Session-Id", "GET pty?session=good", 400, BAD_SESSION, headers=(*UPGRADE, "Session-Id: a b")),
    row("pty: no token", "GET pty", 401, UNAUTHORIZED, headers=UPGRADE, auth=None),
    row("session", "POST session", 200, as_json({"id": IS(r"session-\d+")}), send={}),
    row("session: no body", "POST session", 200, as_json({"id": IS(r"session-\d+")})),
    row("session: not JSON", "POST session", 200, as_json({"id": IS(r"session-\d+")}), send=b"{"),
    row("session: with a name", "POST session", 200, as_json({"id": "s-{fresh}"}), send={"id": "s-{fresh}"}),
    row("session: cwd and env", "POST session", 200, as_json({"id": "e-{fresh}"}),
        send={"id": "e-{fresh}", "cwd": "/workspace/sub", "env": {"K": "v"}}),
    row("session: the same again", "POST session", 502,
        error("session create failed: Session 'twice' already exists", "session_error"), send={"id": "twice"}),
    row("session: a name that could never be used", "POST session", 400, BAD_SESSION, send={"id": "bad id/.."}),
    row("session: delete", "DELETE session/twice", 200, as_json(
        {"success": True, "sessionId": "twice", "timestamp": IS(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")})),
    row("session: delete of none", "DELETE session/none", 502,
        error("session delete failed: Session 'none' not found", "session_error")),
]

# ---- tunnel, mount, openapi, pool ----

FULL = {"bucket": "b", "mountPath": "/workspace/m", "options": {"endpoint": "http://127.0.0.1:1"}}
BAD = as_json({"error": ..., "code": "invalid_request"})


def mount(**changed):
    return {k: v for k, v in {**FULL, **changed}.items() if v is not ...}


def options(**more):
    return mount(options={"endpoint": "http://127.0.0.1:1", **more})


def names(word):
    return lambda text: word in text


OTHERS = [
    *(row(f"tunnel: port {p}", f"POST tunnel/{p}", 400, error("Invalid port"))
      for p in ("80", "1023", "3000", "65536", "x", "8080x", "-1", "8080.5")),
    row("tunnel: not JSON", "POST tunnel/8080", 400, error("Invalid JSON body"), send=b"{"),
    row("tunnel: a name that is no text", "POST tunnel/8080", 400,
        error("name must be a string when provided"), send={"name": 1}),
    row("tunnel: a name that is no label", "POST tunnel/8080", 400,
        error(IS(r"Tunnel name 'a_b' is not a valid DNS label\..*")), send={"name": "a_b"}),
    row("tunnel: a long name", "POST tunnel/8080", 400, error(IS(".*must be 1-63 characters long.*")),
        send={"name": "a" * 64}),
    row("tunnel: no cloudflared", "POST tunnel/8080", 502,
        error(IS("tunnel failed: .*cloudflared.*"), "tunnel_error"), send={"name": "ab"}),
    row("tunnel: delete of none", "DELETE tunnel/8080", 204, nothing()),
    row("mount: not JSON", "POST mount", 400, error("Invalid JSON body"), send=b"x"),
    *(row(f"mount: {what}", "POST mount", 400, BAD, send=send) for what, send in (
        ("bucket is a number", mount(bucket=1)), ("bucket is empty", mount(bucket="")),
        ("no mountPath", mount(mountPath=...)), ("mountPath is empty", mount(mountPath="")),
        ("mountPath is relative", mount(mountPath="m")), ("options is a text", mount(options="x")),
        ("endpoint is a number", mount(options={"endpoint": 1})),
        ("binding is empty", mount(binding="", options={})),
        ("binding beside endpoint", mount(binding="B")), ("readOnly is a text", options(readOnly="yes")),
        ("prefix is a number", options(prefix=1)), ("s3fsOptions is a text", options(s3fsOptions="x")),
        ("credentials lack a key", options(credentials={"accessKeyId": "a"})),
        ("endpoint without bucket", mount(bucket=...)), ("neither endpoint nor binding", mount(options={})))),
    row("mount: it fails", "POST mount", 502, error(IS("mount failed: .+"), "mount_error"), send=FULL),
    row("unmount: no mountPath", "POST unmount", 400, BAD, send={}),
    row("unmount: relative", "POST unmount", 400, BAD, send={"mountPath": "mnt"}),
    row("unmount: the root", "POST unmount", 400,
        error("mountPath must not resolve to / (filesystem root)"), send={"mountPath": "/a/.."}),
    row("unmount: none there", "POST unmount", 502,
        error("unmount failed: No active mount found at path: /mnt/x", "unmount_error"),
        send={"mountPath": "/mnt/./x"}),
    row("openapi.json", "GET /v1/openapi.json", 200, as_json(lambda d: d["openapi"] == "3.1.0")),
    row("pool: stats", "GET /v1/pool/stats", 200, as_json(
        {"warm": ..., "assigned": ..., "total": ..., "maxInstances": ...,
         "config": {"warmTarget": ..., "refreshInterval": ..., "maxInstances": ..., "scaleBatchSize": ...}})),
    row("pool: prime", "POST /v1/pool/prime", 200, OK),
    row("pool: shutdown", "POST /v1/pool/shutdown-prewarmed", 200, OK),
    row("pool: no token", "GET /v1/pool/stats", 401, UNAUTHORIZED, auth=None),
]


# ---- how a row is asked ----


def curl(box, folder, r, fresh):
    """(status, headers, body) as the program curl sees them."""
    method, path = r.request.split(" ", 1)
    path = path.format(id=box.http.sandbox, fresh=fresh)
    if not path.startswith("/"):
        path = f"{box.http.root}/{path}"
    command = ["curl", "-sSg", "-m", "60", "--path-as-is", "--unix-socket", box.http_socket, "-D", folder / "head",
               "-o", folder / "body", f"http://box{path}"]
    command += ["-I"] if method == "HEAD" else ["-X", method]
    for h in (*((f"Authorization: {r.auth}",) if r.auth is not None else ()), *r.headers):
        command += ["-H", h.format(fresh=fresh) if "{" in h else h]
    (folder / "body").write_bytes(b"")
    if r.send is not None:
        if isinstance(r.send, Zeros):
            r.send.write(folder / "sent")
            command += ["-T", folder / "sent"]  # it makes a copy of what is no upload
        else:
            (folder / "sent").write_bytes(r.send if isinstance(r.send, bytes) else
                                          json.dumps(r.send).replace("{fresh}", fresh).encode())
            command += ["--data-binary", f"@{folder / 'sent'}"]
    p = subprocess.run(command, capture_output=True, text=True)
    # 55, 56: the server closed while the body was being sent; its answer is there.
    assert p.returncode in (0, 55, 56), (p.returncode, p.stderr)
    heads = (folder / "head").read_text("latin-1").replace("\r\n", "\n").strip().split("\n\n")
    lines = heads[-1].split("\n")
    headers = {k.lower(): v.strip() for k, _, v in (l.partition(":") for l in lines[1:])}
    body = b"" if method == "HEAD" else (folder / "body").read_bytes()
    return int(lines[0].split()[1]), headers, body


def fill(box):
    """The workspace as the rows expect it."""
    for entry in box.workspace.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (box.workspace / "sub").mkdir()
    for name, content in (("a.txt", "hello\n"), ("sub/b.txt", "b"), ("sp ace%25.txt", "odd"), ("run", "r")):
        (box.workspace / name).write_text(content)
    (box.workspace / "run").chmod(0o755)
    for p in box.workspace.rglob("*"):
        os.chown(p, box.uid, box.uid)


ROWS = [(section, r) for section, rows in (
    ("common", COMMON), ("life", LIFE), ("exec", EXEC), ("files", FILES), ("archives", ARCHIVES),
    ("sessions", SESSIONS), ("others", OTHERS)) for r in rows]


@pytest.mark.parametrize("r", [pytest.param(r, id=f"{section}-{r.what}") for section, r in ROWS])
def test_row(gw, tmp_path, r):
    fill(gw)
    if "twice" in str(r.request) + str(r.send):
        try:
            gw.http.request("POST", "session", {"id": "twice"})
        except Exception as e:
            pytest.fail(f"session 'twice': {e}")
    fresh = new_id()
    status, headers, body = curl(gw, tmp_path, r, fresh)
    assert status == r.status, (status, headers, body[:500])
    expected = as_json(resolve(r.body.value, fresh)) if isinstance(r.body, as_json) else r.body
    if expected not in (None, ...):
        expected.check(headers, body)
    for k, v in r.answer.items():
        assert headers[k] == v
    if r.then:
        r.then(gw)


def resolve(value, fresh):
    if isinstance(value, dict):
        return {k: resolve(v, fresh) for k, v in value.items()}
    return value.replace("{fresh}", fresh) if isinstance(value, str) else value


# ---- what is no row ----


def test_no_token_configured_is_no_auth():
    # given a gateway with auth = none; then every route is open, and a token does no harm
    with GatewayBox("ns-root", token=None) as box:
        for headers in ([], [("Authorization", "Bearer whatever")]):
            assert box.http.json("GET", "running", headers=headers) == (200, {"running": True})
            assert box.http.json("GET", "/v1/pool/stats", headers=headers)[0] == 200


def test_only_one_sandbox_id():
    # given sandbox_id; then another id of the right form is not found, and create gives this one
    with GatewayBox("ns-root", gateway={"sandbox_id": "onlythis2"}) as box:
        assert box.http.request("GET", "/v1/sandbox/onlythis2/running").status == 200
        assert box.http.request("GET", "/v1/sandbox/another2/running").status == 404
        assert box.http.ok("POST", "/v1/sandbox") == {"id": "onlythis2"}


def test_timeout_ends_what_does_not_listen_to_term(gw):
    # given a command that ignores TERM; when its time is over; then 124, and nothing of it lives
    r = gw.http.exec("trap '' TERM; echo up; sleep 4711.5; sleep 4711.5", timeout_ms=3000, deadline=30)
    assert r.triple == (124, b"up\n", b"Command timed out after 3000ms\n")
    assert not gw.find("sleep 4711.5")


def test_output_is_streamed(gw):
    # given a command that waits for a file; then what it wrote before is here before it goes on
    go = gw.workspace / "go"
    with gw.http.exec_stream("echo first; while [ ! -e go ]; do sleep 0.02; done; echo second") as events:
        seen = events.until("stdout")
        assert seen[-1].bytes == b"first\n"
        go.write_text("")
        r = collect(events)
    assert (r.out, r.status) == (b"second\n", 0)


def test_characters_are_not_split_over_events(gw):
    # given output that tears each character in two writes; then each event is whole UTF-8
    r = gw.http.exec("for i in 1 2 3 4; do for b in '\\360' '\\237' '\\230' '\\200'; do "
                          "printf \"$b\"; sleep 0.02; done; done; printf '\\360\\237'")
    assert r.out == "😀😀😀😀".encode() + b"\xf0\x9f"
    for e in [e for e in r.events if e.name == "stdout"][:-1]:
        e.bytes.decode()
    # the torn end of the whole is its own bytes still
    assert b"".join(e.bytes for e in r.events if e.name == "stdout") == r.out


def test_openapi_is_what_the_reference_checks(gw):
    # given the document; then it says what the reference's integration script looks for
    d = gw.http.ok("GET", "/v1/openapi.json")
    assert d["openapi"] == "3.1.0"
    for p in ("exec", "pty", "file/{path}", "running", "persist", "hydrate"):
        assert f"/v1/sandbox/{{id}}/{p}" in d["paths"], p
    assert "/health" in d["paths"]
    pty = d["paths"]["/v1/sandbox/{id}/pty"]["get"]
    assert pty["operationId"] == "ptyTerminal"
    assert {"id", "cols", "rows", "shell", "session"} <= {p["name"] for p in pty["parameters"]}
    assert {"101", "400", "502"} <= set(pty["responses"])
    for path in ("/v1/openapi.html", "/v1/openapi"):
        assert gw.http.request("GET", path).text.lstrip().lower().startswith("<!doctype html")
