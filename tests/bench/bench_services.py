"""The same container under supervisord, s6 and sandbox-init: a set-up, a web server, a database that
others need, a worker, one that logs to a file, and an application that starts when the web server
answers. Each is PID 1 of a namespace; what is measured is the supervisor's part of it.

    memory    PSS of the supervisor's own processes, all services up and idle
    start     from the start of the namespace to the last service's first instruction
    restart   from the start of the supervisor's own client to the new program's first instruction
    stop      from SIGTERM (s6: what docker is told to send) to the end of PID 1

Where a supervisor has no word for an order, the services' scripts wait, as they do in images.
"""

import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from rig.box import PATH, build_dir
from rig.wait import wait_until

SERVICES = ("db", "worker", "chatter", "app")  # those that tell when they run
HELPER = build_dir() / "tests" / "bench" / "bench_services"
ROUNDS = 9


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


class Scenario:
    """One container under one supervisor."""

    signal = signal.SIGTERM

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="bench.", dir="/tmp"))
        self.port = free_port()
        self.web = f"busybox httpd -f -p 127.0.0.1:{self.port} -h {self.dir}"
        self.setup = f"mkdir -p {self.dir}/data && touch {self.dir}/data/ready"
        self.probe = f"{HELPER} probe {self.port}"
        argv = self.configure()
        self.begun = time.monotonic_ns()
        self.proc = subprocess.Popen(
            ["unshare", "-fp", "--mount-proc", "--kill-child", "--", *map(str, argv)],
            env={"PATH": PATH}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.dir)

    def mark(self, name, what=""):
        """When a service began (or ended: what is ".end"), in ns; None: it has not."""
        try:
            return int((self.dir / f"{name}{what}").read_text())
        except FileNotFoundError:
            return None

    def mark_command(self, name):
        return f"{HELPER} mark {self.dir / name}" + (" chat" if name == "chatter" else "")

    def start_ms(self):
        wait_until(lambda: all(map(self.mark, SERVICES)), 30, "all services are up", every=0.002)
        return (max(map(self.mark, SERVICES)) - self.begun) / 1e6

    def own(self):
        """Host PIDs of the supervisor's own processes."""
        kids = Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text().split()
        found, look = [], [int(kids[0])]
        while look:
            pid = look.pop()
            try:
                look += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                name = os.readlink(f"/proc/{pid}/exe")
            except (OSError, ValueError):
                continue
            if any(part in name for part in self.programs):
                found.append(pid)
        return found

    def memory_kib(self):
        total = 0
        for pid in self.own():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(l.split()[1]) for l in text.splitlines() if l.startswith("Pss:"))
        return total

    def restart_ms(self):
        before = self.mark("worker")
        at = time.monotonic_ns()
        client = subprocess.Popen(list(map(str, self.restart_argv())), env={"PATH": PATH},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.mark("worker") != before, 30, "it has been restarted", every=0.002)
        ms = (self.mark("worker") - at) / 1e6
        client.wait(30)
        return ms

    def stop_ms(self):
        pid = self.own()[0]
        assert pid == int(Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text())
        at = time.monotonic_ns()
        os.kill(pid, self.signal)
        self.proc.wait(30)
        ms = (time.monotonic_ns() - at) / 1e6
        if not all(self.mark(name, ".end") for name in SERVICES):
            raise RuntimeError(f"{type(self).__name__}: a service was not asked to end")
        return ms

    def close(self):
        if self.proc.poll() is None:
            self.proc.kill()
        self.proc.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class SandboxInit(Scenario):
    programs = ("sandbox-init",)

    def configure(self):
        (self.dir / "run").mkdir()
        text = f"""[init]
runtime_dir = {self.dir}/run
[service:setup]
type = oneshot
script = {self.setup}
[service:db]
command = {self.mark_command("db")}
requires = setup
[service:web]
command = {self.web}
requires = setup
ready = tcp:{self.port}
[service:worker]
command = {self.mark_command("worker")}
requires = db
[service:chatter]
command = {self.mark_command("chatter")}
log = file:{self.dir}/chatter.log
[service:app]
command = {self.mark_command("app")}
requires = db, web
"""
        (self.dir / "sandbox.ini").write_text(text)
        return [build_dir() / "sandbox-init", "-c", self.dir / "sandbox.ini"]

    def restart_argv(self):
        return [build_dir() / "sandboxctl", "--socket", self.dir / "run/control.sock", "service",
                "restart", "worker"]


class Supervisord(Scenario):
    programs = ("python",)

    def configure(self):
        wait = f"until [ -e {self.dir}/data/ready ]; do sleep 0.02; done"
        commands = {
            "setup": self.setup, "db": f"{wait}; exec {self.mark_command('db')}",
            "web": f"{wait}; exec {self.web}",
            "worker": f"until [ -e {self.dir}/db ]; do sleep 0.02; done; "
                      f"exec {self.mark_command('worker')}",
            "chatter": f"exec {self.mark_command('chatter')}",
            "app": f"{wait}; until {self.probe}; do sleep 0.02; done; "
                   f"exec {self.mark_command('app')}"}
        text = f"""[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={self.dir}/pid
[unix_http_server]
file={self.dir}/sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{self.dir}/sock
"""
        for number, (name, command) in enumerate(commands.items()):
            script(self.dir / f"{name}.sh", command)
            log = self.dir / "chatter.log" if name == "chatter" else "NONE"
            text += f"""[program:{name}]
command={self.dir}/{name}.sh
priority={number}
startsecs=0
autorestart={'false' if name == 'setup' else 'true'}
redirect_stderr=true
stdout_logfile={log}
"""
        (self.dir / "s.conf").write_text(text)
        return ["/usr/bin/supervisord", "-c", self.dir / "s.conf"]

    def restart_argv(self):
        return ["/usr/bin/supervisorctl", "-c", self.dir / "s.conf", "restart", "worker"]


class S6(Scenario):
    programs = ("s6-",)

    def configure(self):
        scan = self.dir / "scan"
        runs = {
            "db": f"exec {self.mark_command('db')}",
            "web": f"exec s6-notifyoncheck -s 10 -w 20 {self.web}",
            "worker": f"until s6-svwait -u ../db; do :; done; exec {self.mark_command('worker')}",
            "chatter": f"exec {self.mark_command('chatter')}",
            "app": "until s6-svwait -u ../db && s6-svwait -U ../web; do :; done; "
                   f"exec {self.mark_command('app')}"}
        for name, text in runs.items():
            (scan / name).mkdir(parents=True)
            script(scan / name / "run", text)
        (scan / "web" / "notification-fd").write_text("3\n")
        (scan / "web" / "data").mkdir()
        script(scan / "web" / "data" / "check", f"exec {self.probe}")
        (scan / "chatter" / "log").mkdir()
        script(scan / "chatter" / "log" / "run", f"exec s6-log n4 s10000000 {self.dir}/chatter.log")
        script(self.dir / "init", f"{self.setup}; exec s6-svscan {scan}")
        return [self.dir / "init"]

    def restart_argv(self):
        return ["s6-svc", "-r", self.dir / "scan" / "worker"]


KINDS = {"sandbox-init": SandboxInit, "supervisord": Supervisord, "s6": S6}


def once(kind):
    """{row: value} of one life of the container."""
    box = KINDS[kind]()
    try:
        got = {"start": box.start_ms()}
        time.sleep(1.5)  # supervisors that look again at what they have started come to rest
        got["memory"] = box.memory_kib()
        got["restart"] = box.restart_ms()
        wait_until(lambda: box.mark("worker"), 5, "the new one runs")
        got["stop"] = box.stop_ms()
        return got
    finally:
        box.close()


def bench_services(at_most, note):
    """One row each: sandbox-init against the best of the others."""
    missing = [p for p in ("supervisord", "s6-svscan") if not shutil.which(p)]
    if missing:
        raise RuntimeError(f"not installed: {', '.join(missing)}")
    got = {}
    for _ in range(ROUNDS):
        for kind in KINDS:
            for row, value in once(kind).items():
                got.setdefault((row, kind), []).append(value)
    m = {k: statistics.median(v) for k, v in got.items()}
    for row, unit, title in (("start", "ms", "start"), ("restart", "ms", "restart"),
                             ("stop", "ms", "stop"), ("memory", "KiB", "memory")):
        best = min(m[row, kind] for kind in KINDS if kind != "sandbox-init")
        at_most(f"services: {title} / best of the other two", m[row, "sandbox-init"] / best, 1.1)
        note(", ".join(f"{kind} {m[row, kind]:.1f}" for kind in KINDS) + f" {unit}")
    at_most("services: memory / supervisord's", m["memory", "sandbox-init"] / m["memory", "supervisord"],
            0.1)
