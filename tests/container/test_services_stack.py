"""A real stack from one ini: redis, a Node server (with the npm package ws, which the conformance tests
pin) in front of it and nginx in front of that, in runc containers as root and as uid 1000 without capabilities (evidence 2 of services). The ini is the one of
docs/services.md."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rig.box import ROOT, Box, base, build_dir
from rig.services import Services, show
from rig.wait import is_long, wait_until

GUIDE = (ROOT / "docs/services.md").read_text()
INI = re.search(r"^```ini\n(.*?)^```$", GUIDE, re.M | re.S).group(1)

APP = """
'use strict';
const http = require('http'), net = require('net'), { WebSocketServer } = require('ws');
let db = null, waiting = [], rest = '';
function connect() {
  const s = net.connect(6379, '127.0.0.1', () => { db = s; });
  s.on('error', () => {});
  s.on('data', d => {
    rest += d;
    for (let i; (i = rest.indexOf('\\r\\n')) >= 0; rest = rest.slice(i + 2))
      waiting.shift()(null, rest.slice(1, i));
  });
  s.on('close', () => {
    db = null; rest = '';
    waiting.splice(0).forEach(w => w(new Error('redis has gone')));
    setTimeout(connect, 20);
  });
}
connect();
const server = http.createServer((q, a) => {
  const answer = (code, text) => { a.writeHead(code); a.end(text + '\\n'); };
  if (!db) return answer(503, 'no redis');
  if (q.url === '/ready') return answer(200, 'ready');
  waiting.push((e, n) => e ? answer(503, e.message) : answer(200, n));
  db.write('INCR count\\r\\n');
});
new WebSocketServer({ server }).on('connection', w => w.on('message', m => w.send('heard ' + m)));
server.listen(process.env.PORT, '127.0.0.1', () => console.log('listening'));
"""

NGINX = """
user agent agent;
worker_processes 2;
pid /srv/shop/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
    access_log /dev/stdout;
    client_body_temp_path /srv/shop/t1; proxy_temp_path /srv/shop/t2; fastcgi_temp_path /srv/shop/t3;
    uwsgi_temp_path /srv/shop/t4; scgi_temp_path /srv/shop/t5;
    upstream app { server 127.0.0.1:8080 max_fails=0; keepalive 8; }
    server {
        listen 127.0.0.1:8000;
        location / {
            proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
        }
        location /version { return 200 "@VERSION@\\n"; }
    }
}
"""

# At least so many answers to /count, four at once, and on until stdin ends; each is asked for again
# until it comes. A line when a tenth is there, and what the others were at the end.
LOAD = """
import http.client, json, sys, threading, time
total, lock, begun, codes = int(sys.argv[1]), threading.Lock(), 0, {}
is_over = False
def one():
    try:
        c = http.client.HTTPConnection("127.0.0.1", 8000, timeout=30)
        c.request("GET", "/count")
        r = c.getresponse(); r.read(); c.close()
        return str(r.status)
    except Exception as e:
        return type(e).__name__
def work():
    global begun
    while True:
        with lock:
            if begun >= total and is_over: return
            begun += 1
            if begun == total // 10: print("begun", flush=True)
        code = None
        while code != "200":
            if code: time.sleep(0.02)
            code = one()
            with lock: codes[code] = codes.get(code, 0) + 1
ts = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in ts]
sys.stdin.read(); is_over = True
[t.join() for t in ts]
print(json.dumps(codes))
"""
# A WebSocket client of the Node server.
HEAR = """
const w = new (require('ws'))('ws://127.0.0.1:8080/');
w.on('open', () => w.send('hello')).on('message', m => { console.log(String(m)); w.close(); });
"""
TOTAL = 1000 if is_long() else 300

missing = [p for p in ("nginx", "redis-server", "node") if not shutil.which(p)]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


def put(shop, version):
    (shop / "nginx.conf").write_text(NGINX.replace("@VERSION@", version))


def hurried(text):
    """The file with times for a test."""
    faster = "restart = always\nrestart_delay = 100ms\n"
    text = re.sub(r"^(health = .*)$", r"\1\nhealth_interval = 2s", text, flags=re.M)
    text = re.sub(r"^\[service:\w+\]\n", lambda m: m.group() + faster, text, flags=re.M)
    return "[init]\nruntime_dir = @RUN@\nstop_grace = 5s\n" + text


@pytest.fixture(params=["runc-root", "runc-user"])
def stack(request):
    shop = base() / f"shop-{request.node.name}"
    uid = 1000 if request.param == "runc-user" else 0
    for d in (shop, shop / "data", shop / "log"):
        d.mkdir()
        os.chown(d, uid, uid)
    (shop / "app.js").write_text(APP)
    subprocess.run([ROOT / "tests/npm.sh", "conformance"], check=True, capture_output=True)
    shutil.copytree(ROOT / "build/conformance/node_modules/ws", shop / "node_modules/ws")
    put(shop, "one")
    mount = {"destination": "/srv/shop", "type": "bind", "source": str(shop),
             "options": ["rbind", "rw"]}
    with Box(request.param, ini=hurried(INI), mounts=[mount], deadline=60) as box:
        box.shop = shop
        with Services(box) as services:
            box.services = services
            yield box
    shutil.rmtree(shop)


def inside(box, *argv, **kw):
    """A program in the network of the box."""
    return subprocess.run(["nsenter", "-n", "-t", str(box.init_pid), *map(str, argv)],
                          capture_output=True, text=True, timeout=60, **kw)


def load_begin(box, total):
    return subprocess.Popen(["nsenter", "-n", "-t", str(box.init_pid), "/usr/bin/python3", "-BS",
                             "-c", LOAD, str(total)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def load_end(p):
    out = p.communicate(timeout=120)[0]
    return json.loads(out.splitlines()[-1])


def pids(box):
    return {n: int(show(box, n)["pid"]) for n in ("redis", "app", "web")}


def get(box, path):
    r = inside(box, "/usr/bin/python3", "-BS", "-c",
               f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000{path}')"
               ".read().decode(), end='')")
    return r.stdout.strip() or r.stderr


def test_evidence_2_a_real_stack(stack):
    services = stack.services
    # given all three up in order
    for name in ("redis", "app", "web"):
        services.wait(name, "running", deadline=40)
    order = [services.first("redis", "running"), services.first("app", "starting"),
             services.first("app", "running"), services.first("web", "starting")]
    assert order == sorted(order)
    for name in ("redis", "app"):
        services.wait(name, "healthy", deadline=20)
    expected = int(get(stack, "/count"))
    r = inside(stack, "node", "-e", HEAR, cwd=stack.shop)
    assert r.stdout == "heard hello\n", r

    # when each is killed in turn under a load of requests
    for victim in ("web", "app", "redis"):
        before = pids(stack)
        at = services.mark()
        pid = stack.host_pid(before[victim])
        load = load_begin(stack, TOTAL)
        assert load.stdout.readline().strip() == "begun"
        killed = time.monotonic()
        stack.signal(9, pid)
        delayed = services.wait(victim, "delayed", after=at)
        again = services.wait(victim, "starting", after=at)
        up = services.wait(victim, "running", after=at, deadline=30)
        result = load_end(load)
        # then it is back after its delay, the others are untouched, and requests are answered
        after = pids(stack)
        assert after[victim] != before[victim]
        assert {**after, victim: 0} == {**before, victim: 0}
        assert result.pop("200") >= TOTAL and result, "it was killed under load"
        assert set(result) <= {"502", "503", "504", "ConnectionRefusedError",
                               "ConnectionResetError", "RemoteDisconnected", "IncompleteRead",
                               "BadStatusLine"}, result
        print(f"{stack.kind} {victim}: down {up['seen'] - killed:.2f} s, "
              f"restarted after {again['seen'] - delayed['seen']:.2f} s, {result}")
        assert again["seen"] - delayed["seen"] < 0.1 + (1.0 if is_long() else 8.0)
        assert get(stack, "/count").isdigit()

    # when nginx's configuration changes and it is told
    put(stack.shop, "two")
    before = pids(stack)
    r = stack.ctl("service", "reload", "web")
    assert r.status == 0, r
    wait_until(lambda: get(stack, "/version") == "two", 20, "the new configuration")
    assert pids(stack) == before
    # and when the ini has another health interval: nothing is restarted
    text = (stack.dir / "sandbox.ini").read_text().replace("health_interval = 2s",
                                                           "health_interval = 3s")
    stack.write_ini(text)
    assert stack.ctl("reload").status == 0
    assert pids(stack) == before

    # then its data counts every answer: each 200 was one increment
    count = int(get(stack, "/count"))
    assert count > expected + 3 * TOTAL

    # and all that the three have said is where it was wanted
    assert re.search(r"^\d{4}-\d\d-\d\dT\S+ listening$", (stack.shop / "log/app.log").read_text(), re.M)
    assert (stack.shop / "log/redis.log").read_text().count("Ready to accept connections") == 2
    told = re.findall(r'^web: .*"GET /count HTTP/1.1" 200 ', stack.log(), re.M)
    assert abs(len(told) - count) <= 32  # what was under way when one of them was killed

    # when it is stopped: within a second, in reverse order, with redis's data saved
    begun = time.monotonic()
    assert stack.stop() == 0
    took = time.monotonic() - begun
    trace = services.read_all()
    ends = [services.first(n, "stopped") for n in ("web", "app", "redis")]
    assert None not in ends and ends == sorted(ends), trace
    print(f"{stack.kind} stop: {took:.2f} s")
    assert took < 1.0 if is_long() else took < 30.0
    r = subprocess.run(["redis-check-rdb", str(stack.shop / "data/dump.rdb")], capture_output=True,
                       text=True, check=False)
    assert "RDB looks OK" in r.stdout and stack.survivors() == []
    assert saved_count(stack) == count


def saved_count(box):
    """What redis finds in the data that it left."""
    with subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(box.dir / "r.sock"),
                           "--dir", str(box.shop / "data"), "--appendonly",
                           "no"], stdout=subprocess.DEVNULL) as p:
        def ask():
            r = subprocess.run(["redis-cli", "-s", str(box.dir / "r.sock"), "get", "count"],
                               capture_output=True, text=True, check=False)
            return r.stdout.strip() if r.stdout.strip().isdigit() else None
        try:
            return int(wait_until(ask, 20, "redis answers"))
        finally:
            p.kill()


# ---- docs/services.md ----


def test_the_guides_files_are_right(tmp_path):
    blocks = re.findall(r"^```ini\n(.*?)^```$", GUIDE, re.M | re.S)
    assert len(blocks) == 3
    for block in blocks:
        path = tmp_path / "sandbox.ini"
        path.write_text(block)
        r = subprocess.run([build_dir() / "sandbox-init", "--check", "-c", path],
                           capture_output=True, text=True, check=False)
        assert r.returncode == 0, r.stderr


def without_numbers(text):
    return re.sub(r"[ -]+", " ", re.sub(r"\d+(\.\d+)?", "N", text))


@pytest.mark.parametrize("stack", ["runc-user"], indirect=True)
def test_the_guide(stack):
    # given the guide's file as it is, but for times: two looks at health, a restart that is seen to wait
    stack.write_ini(re.sub("restart_delay = 100ms\n", "restart_delay = 9s\n", (stack.dir / "sandbox.ini").read_text()))
    assert stack.ctl("reload").status == 0
    stack.services.wait("web", "running", deadline=40)
    for name in ("redis", "app"):
        stack.services.wait(name, "healthy", deadline=20)
    env = {"PATH": f"{Path(stack.ctl_path).parent}:/usr/bin:/bin",
           "SANDBOX_SOCKET": str(stack.socket)}

    def run(command):
        return subprocess.run(["bash", "-c", command], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30,
                              check=False, text=True).stdout

    # then its commands print what it shows; a list, once it has come to that
    for block in re.findall(r"^```console\n(.*?)^```$", GUIDE, re.M | re.S):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            if not expected or " list" not in command:
                assert without_numbers(run(command)) == without_numbers(expected), command
                continue
            wait_until(lambda: without_numbers(run(command)) == without_numbers(expected), 20,
                       lambda: f"{command}: {run(command)}", every=0.05)
