"""The HTTP server of the gateway by itself, without an init behind it: clients that are slow or many.

The times are lowered with options that only tests use, so that a client is "slow" within a second.
"""

import os
import re
import resource
import signal
import socket
import subprocess
import time
from contextlib import suppress

import pytest

from rig.box import ROOT, build_dir
from rig.http import Client, Connection, free_port
from rig.manual import section, table
from rig.wait import Late, wait_until

GUIDE = (ROOT / "docs/gateway.md").read_text()
IDLE = 2000
POOL = b"GET /v1/pool/stats HTTP/1.1\r\nHost: box\r\nAuthorization: Bearer k3y\r\n\r\n"


class Gateway:
    def __init__(self, folder, *options):
        (folder / "token").write_text("k3y\n")
        token = os.open(folder / "token", os.O_RDONLY)
        self.address = ("127.0.0.1", free_port())
        self.log = open(folder / "log", "w+")
        self.process = subprocess.Popen(
            [str(build_dir() / "sandbox-gateway"), f"--listen=127.0.0.1:{self.address[1]}",
             f"--token-fd={token}", *options], pass_fds=[token], stderr=self.log)
        os.close(token)
        self.http = Client(self.address, token="k3y")
        wait_until(self.is_there, 20, lambda: (folder / "log").read_text())

    def is_there(self):
        try:
            return self.http.request("GET", "/health").status == 503
        except OSError:
            return False

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(10)
        self.log.close()
        assert status == 0

    def rss(self):
        return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) * 1024


@pytest.fixture
def start(tmp_path):
    running = []

    def make(*options):
        running.append(Gateway(tmp_path, *options))
        return running[-1]

    yield make
    for g in running:
        g.close()


def closes_with(c, status):
    assert c.response(deadline=20).status == status
    assert c.is_closed()


def test_slow_loris(start):
    # given clients that send a byte of their headers now and then, and one that keeps its body back
    g = start("--head-timeout=500", "--stall-timeout=700")
    drops = [Connection(g.address) for _ in range(20)]
    withheld = Connection(g.address)
    withheld.send(b"POST /v1/pool/prime HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer k3y\r\nContent-Length: 99999\r\n\r\n")
    assert withheld.response().status == 200  # that route wants no body
    begun = time.monotonic()
    while time.monotonic() - begun < 0.4:
        for c in drops:
            with suppress(BrokenPipeError, ConnectionResetError):  # its time may be over already
                c.send(b"G" if time.monotonic() - begun < 0.1 else b"E")
        time.sleep(0.05)
    # then others are served at once, and each of them gets its answer and the end
    assert g.http.request("GET", "/health").status == 503
    for c in drops:
        closes_with(c, 408)
        c.close()
    assert withheld.is_closed(20)
    withheld.close()


def test_thousands_of_idle_connections(start):
    # given thousands that have asked once and say nothing more
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(IDLE, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    g = start(f"--max-connections={count + 10}")
    idle, before = [], g.rss()
    try:
        for _ in range(count):
            idle.append(socket.create_connection(g.address))
        for s in idle:
            s.sendall(POOL)
        for s in idle:
            assert s.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
        # then each costs little, and the next one is served
        per = (g.rss() - before) / count
        print(f"{per:.0f} bytes a connection")
        if "asan" not in str(build_dir()):
            assert per < 2048
        assert g.http.request("GET", "/v1/pool/stats").status == 200
        # and those beyond the limit are told so
        more = [Connection(g.address) for _ in range(40)]
        try:
            closes_with(more[-1], 503)
        except Late:
            raise Late(f"no 503; {g.http.ok('GET', '/metrics')}")
        for c in more:
            c.close()
    finally:
        for s in idle:
            s.close()
    wait_until(lambda: b"\nsandbox_gateway_connections 1\n" in g.http.ok("GET", "/metrics"), 20)


def test_health_says_what_is_wrong(start):
    # given a gateway that has no way to an init; then its health says so, without a token
    r = start().http.request("GET", "/health", auth=False)
    assert (r.status, r.json) == (503, {"ok": False, "errors": ["no connection to sandbox-init"]})


def test_addresses_of_each_family(start, tmp_path):
    # given an address of v6 and a Unix socket beside the one of v4; then it serves on each
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as s:
            port = s.getsockname()[1]
    except OSError:
        pytest.skip("no IPv6 here")
    g = start(f"--listen=[::1]:{port}", f"--listen=unix:{tmp_path}/sock")
    assert Client(tmp_path / "sock", token="k3y").request("GET", "/v1/pool/stats").status == 200
    with socket.create_connection(("::1", port)) as s:
        s.sendall(POOL)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    assert g.http.request("GET", "/v1/pool/stats").status == 200


def test_metrics_are_well_formed_and_count(start):
    # given some requests of each kind
    g = start()
    assert g.http.request("GET", "/metrics", auth=False).status == 401
    g.http.ok("POST", "/v1/pool/prime", b"x" * 1000)
    r = g.http.request("GET", "/metrics")
    assert r.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    # then each sample stands behind its HELP and TYPE, and they are counted
    samples, types = {}, {}
    for line in r.text.splitlines():
        if line.startswith("# "):
            kind, name, rest = line[2:].split(" ", 2)
            assert kind in ("HELP", "TYPE") and rest
            types[name] = kind
        else:
            name, labels, value = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"]*"\})? (\d+)', line).groups()
            assert types[name] == "TYPE"
            samples[name + (labels or "")] = int(value)
    assert r.text.endswith("\n")
    assert samples['sandbox_gateway_answers_total{class="4xx"}'] == 1
    assert samples['sandbox_gateway_answers_total{class="2xx"}'] == 1
    assert samples["sandbox_gateway_received_bytes_total"] > 1000
    wait_until(lambda: b"\nsandbox_gateway_connections 1\n" in g.http.ok("GET", "/metrics"), 20)  # the others have ended
    # and docs/gateway.md tells of each, and of no other
    told = {"sandbox_gateway" + n.removeprefix("sandbox_gateway") for cell, _ in
            table(section(GUIDE, "/health, /metrics, /v1/pool")) for n in re.findall(r"`([a-z_]+)", cell)}
    assert told == set(types)


def test_every_answer_names_the_origin(start):
    # given cors_origin; then what is refused before it is looked at says whose pages may read it, too
    g = start("--cors-origin=https://app.example", "--max-connections=5")
    host = b"Host: box\r\nConnection: close\r\n"
    asked = {b"GET /health HTTP/1.1\r\n" + host + b"\r\n": 503, b"GET /no HTTP/1.1\r\n" + host + b"\r\n": 404,
             b"GET /v1/events HTTP/1.1\r\n" + host + b"\r\n": 401, b"GET\r\n\r\n": 400,
             b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + host + b"\r\n": 414,
             b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n": 431}
    many = [socket.create_connection(g.address) for _ in range(5)]

    def answer(text):
        with socket.create_connection(g.address, timeout=10) as s:
            s.sendall(text)
            return b"".join(iter(lambda: s.recv(65536), b""))

    first, is_full = next(iter(asked)), lambda text: b'"capacity_exceeded"' in text
    got = [(503, wait_until(lambda: next(filter(is_full, [answer(first)]), None), 20, "one too many"))]
    for s in many:
        s.close()
    wait_until(lambda: not is_full(answer(first)), 20, "there is room")
    got += [(status, answer(text)) for text, status in asked.items()]
    for status, text in got:
        assert text.startswith(b"HTTP/1.1 %d " % status), (status, text[:200])
        assert b"\r\nAccess-Control-Allow-Origin: https://app.example\r\n" in text, text[:300]


def test_the_token_is_read_and_cannot_be_seen(start):
    # given a gateway with a token; then it is in no argument, no environment and no open file
    g = start()
    pid = g.process.pid
    assert b"k3y" not in open(f"/proc/{pid}/cmdline", "rb").read()
    assert not any(os.readlink(f"/proc/{pid}/fd/{n}").endswith("/token") for n in os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\n", b"a b\n", b"x" * 4097, b"nul\0\n"],
                         ids=["empty", "blank", "two lines", "a space", "too long", "NUL"])
def test_a_bad_token_is_no_start(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with open(tmp_path / "token", "rb") as f:
        p = subprocess.run([str(build_dir() / "sandbox-gateway"), "--listen=127.0.0.1:0",
                            f"--token-fd={f.fileno()}"], pass_fds=[f.fileno()], capture_output=True, timeout=20)
    assert p.returncode == 1 and p.stderr.startswith(b"sandbox-gateway: token: "), p.stderr


def test_sigterm_lets_answers_out(start):
    # given an idle client and one in the middle of its request
    g = start()
    idle, late = Connection(g.address), Connection(g.address)
    late.send(POOL[:20])
    g.http.ok("GET", "/v1/pool/stats")
    g.process.send_signal(signal.SIGTERM)
    # then it ends within the time for what is quick, with status 0
    assert g.process.wait(10) == 0
    for c in (idle, late):
        assert c.is_closed()
        c.close()
