"""Readiness and health of services: init-test 36, and the bad input that the issue names.

Each kind of box has one init with all the services. Most are puppets (tests/helpers/puppet.py),
which do what the test tells them; their states come from the events of init.
"""

import os
import shutil
import socket
import time

import pytest

from rig.box import ROOT, Box
from rig.http import free_port
from rig.services import Services, ini_text, show
from rig.wait import wait_until

PUPPETS = {
    "tcp": "ready = tcp:{p1}",
    "behind": "requires = tcp",
    "unix": "ready = unix:@WORK@/unix.sock",
    "http": "ready = http://localhost:{p2}/ready?x=1\nready_timeout = 0",
    "file": "ready = file:@WORK@/file.flag",
    "program": "ready = command:test -e '@WORK@/program flag'",
    "speaker": "type = notify",
    "child": "type = notify",
    "orphan": "type = notify",
    "garbage": "type = notify",
    "alone": "type = notify",
    "flood": "type = notify",
    "descriptor": "ready = fd:3",
    "high": "ready = fd:200\ntype = notify",
    "reloads": "type = notify",
    "again": "type = notify\nrestart = always\nrestart_delay = 10ms\nrestart_max = 0",
    "closes": "ready = fd:3",
    "dies": "ready = fd:3",
    "dies_too": "ready = tcp:{p3}",
    "healthy": "ready = tcp:{p4}\nhealth = http://127.0.0.1:{p4}/\nhealth_interval = 500ms\n"
               "restart = on-failure\nrestart_delay = 10ms\nrestart_max = 0",
    "stops": "ready = tcp:{p6}\nhealth = http://127.0.0.1:{p6}/\nhealth_interval = 500ms\n"
             "health_retries = 2\nrestart = on-failure\nrestart_delay = 10ms",
    "recovers": "health = file:@WORK@/recovers.flag\nhealth_interval = 100ms\n"
                "health_retries = 1000",
}
# Those that are never ready, or never well: what their end says.
LOST = {
    "late": ("ready = file:/nowhere/flag\nready_timeout = 4s",
             "not ready within 4s: /nowhere/flag: No such file or directory"),
    "mute": ("type = notify\nready_timeout = 1500ms",
             "not ready within 1500ms: it sent no READY=1"),
    "mute_too": ("ready = fd:3\nready_timeout = 1500ms",
                 "not ready within 1500ms: it wrote no newline to its descriptor 3"),
    "refuses": ("ready = tcp:{p5}\nready_timeout = 4s",
                "not ready within 4s: connect to 127.0.0.1:{p5}: Connection refused"),
    "slow_check": ("ready = command:sh -c 'sleep 987 & sleep 987'\nready_timeout = 1500ms",
                   "not ready within 1500ms: the first check is not over"),
    "bad_check": ("ready = command:/nowhere/check\nready_timeout = 4s",
                  "command '/nowhere/check': exec: No such file or directory"),
    "no_check": ("ready = command:sh -c 'echo not yet >&2; exit 4'\nready_timeout = 4s",
                 "command 'sh' exited with 4: not yet"),
    "stuck_check": ("health = command:sleep 986\nhealth_interval = 100ms\nhealth_retries = 2",
                    "unhealthy (2 of 2): command 'sleep' was killed after 100ms"),
}
SCRIPTS = {
    "plain": "command = sleep 999",
    "s6": "ready = fd:5\nscript =\n  echo >&5\n  exec 5>&-\n  exec sleep 999",
    "closed_fd": "ready = fd:5\nrestart = never\nscript =\n  printf garbage >&5\n  exec 5>&-\n"
                 "  exec sleep 999",
    "closes_all": "type = notify\nready = fd:5\nready_timeout = 4s\nrestart = never\nscript =\n"
                  "  exec 5>&-\n  exec sleep 999",
    "quick_death": "type = notify\nready = fd:3\nrestart = never\nscript = exit 7",
    "quick_death_too": "ready = fd:3\nrestart = never\nscript = exec 3>&-; exit 8",
    "notifies": "type = notify\nrestart = never\nscript =\n"
                "  systemd-notify --status='on my way' --ready\n  exec sleep 999",
}
if not shutil.which("systemd-notify"):
    del SCRIPTS["notifies"]


def free_ports(n):
    """A box without a network of its own shares the host's."""
    ports = set()
    while len(ports) < n:
        ports.add(free_port())
    return sorted(ports)


class Stage:
    """A box with all of them, and the puppets' strings."""

    def __init__(self, kind):
        self.ports = {f"p{i}": p for i, p in enumerate(free_ports(7))}
        self.box = Box(kind, ini=self.ini(), deadline=60)
        self.services = Services(self.box)
        shutil.copy(ROOT / "tests/helpers/puppet.py", self.box.work / "puppet.py")
        (self.box.work / "go").touch()

    def ini(self):
        text = ["[init]\nruntime_dir = @RUN@\nstop_grace = 2s"]
        for name, keys in PUPPETS.items():
            # The rig puts the puppet there once the box has its folder.
            text.append(f"[service:{name}]\n{'' if 'restart =' in keys else 'restart = never'}\n"
                        f"{'' if 'ready_timeout =' in keys else 'ready_timeout = 1h'}\n"
                        "log = none\nscript =\n  until [ -e @WORK@/go ]; do sleep 0.05; done\n"
                        f"  exec /usr/bin/python3 -BS @WORK@/puppet.py @WORK@/{name}.fifo\n{keys}")
        for name, (keys, _) in LOST.items():
            text.append(f"[service:{name}]\nrestart = never\ncommand = sleep 999\n{keys}")
        text += [f"[service:{name}]\n{keys}" for name, keys in SCRIPTS.items()]
        return "\n".join(text).format(**self.ports) + "\n"

    def tell(self, name, line):
        """Tell a puppet, which may not have begun."""
        path = self.box.work / f"{name}.fifo"
        wait_until(path.exists, 20, f"{path} is there")
        with open(path, "wb", buffering=0) as f:
            f.write(line.encode() + b"\n")

    def wait(self, name, state, **kw):
        kw.setdefault("deadline", 30)
        return self.services.wait(name, state, **kw)

    def end(self, name):
        """What is said of its end, of one that is not to be started again."""
        ends = [e for e in ("fatal", "exited") if e in self.states(name)]
        return self.wait(name, ends[0])["message"] if ends else None

    def await_end(self, name):
        return wait_until(lambda: self.end(name), 30, lambda: f"{name}: {self.states(name)}")

    def states(self, name):
        return self.services.of(name)

    def is_starting(self, name):
        self.wait(name, "starting")
        return self.services.state(name) == "starting"


@pytest.fixture(scope="module", params=["ns-root", "runc-user"])
def stage(request):
    s = Stage(request.param)
    with s.box, s.services:
        yield s
        assert s.box.is_alive, s.box.log()[-2000:]


def settle(stage, name, times=3):
    """That something does not happen: others have had as many turns meanwhile."""
    for _ in range(times):
        stage.box.call("status")
    assert stage.is_starting(name), stage.states(name)


# ---- becoming ready ----


def test_a_port_and_who_waits_for_it(stage):
    assert stage.is_starting("tcp") and stage.services.state("behind") == "waiting"
    at = stage.services.mark()
    stage.tell("tcp", "listen {p1}".format(**stage.ports))
    stage.wait("behind", "running", after=at)
    assert stage.services.first("tcp", "running") < stage.services.first("behind", "starting")


@pytest.mark.parametrize("name, line", [
    ("unix", "listen {work}/unix.sock"),
    ("http", "http {p2} 204"),
    ("speaker", "say STATUS=nearly\\nX=1\\nREADY=1"),
    ("child", "child READY=1"),
    ("orphan", "orphan READY=1"),
    ("descriptor", "write 3 \\n"),
    ("high", "write 200 a\\nb"),
    ("high", "say READY=1"),
])
def test_ready_when_it_says_so(stage, name, line):
    if name == "high" and stage.services.state(name) == "running":
        return  # either way counts, once
    assert stage.is_starting(name), stage.states(name)
    stage.tell(name, line.format(work=stage.box.work, **stage.ports))
    stage.wait(name, "running")


def test_ready_when_a_file_or_a_program_says_so(stage):
    for name, flag in (("file", "file.flag"), ("program", "program flag")):
        assert stage.is_starting(name)
        (stage.box.work / flag).touch()
        stage.wait(name, "running")


def test_http_wants_success(stage):
    # given an http check that has failed a while with 503, in the puppet that is unhealthy later
    stage.tell("dies_too", "http {p3} 503".format(**stage.ports))
    stage.wait("dies_too", "running")  # a tcp check does not care
    assert stage.states("dies_too").count("running") == 1


@pytest.mark.parametrize("name", [n for n in ("plain", "s6", "notifies") if n in SCRIPTS])
def test_ready_by_scripts(stage, name):
    stage.wait(name, "running")
    assert "delayed" not in stage.states(name)


# ---- what does not make it ready ----


@pytest.mark.parametrize("line", [
    "say READY=10", "say READY=1\\0", "say nothing", "say \\n\\n", "say READY =1",
    "say STOPPING=1", "say RELOADING=1", "say STATUS=READY=1", "child MAINPID=1"])
def test_garbage_does_not(stage, line):
    stage.tell("garbage", line)
    settle(stage, "garbage")


def test_init_36_garbage_then_ready(stage):
    stage.tell("garbage", "say READY=2")
    settle(stage, "garbage")
    stage.tell("garbage", "say READY=1")
    stage.wait("garbage", "running")


def test_no_stranger_speaks_for_it(stage):
    # given a service that says nothing, and its socket's address
    stage.wait("alone", "starting")
    address = str(stage.box.run / "notify.alone")
    wait_until(lambda: os.path.exists(address), 10, address)
    # when a session's command, an exec and a process of another service use it
    text = ("import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
            f"s.sendto(b'READY=1', '{address}'); import time; time.sleep(0.3)")
    r = stage.box.exec(f'/usr/bin/python3 -S -c "{text}"')
    assert r.status == 0, r
    # then it still starts; its own word counts
    settle(stage, "alone")
    stage.tell("alone", "say READY=1")
    stage.wait("alone", "running")


# ---- ends before and without readiness ----


@pytest.mark.parametrize("name", LOST)
def test_lost(stage, name):
    words = LOST[name][1].format(**stage.ports)
    said = stage.await_end(name)
    assert words in said
    assert stage.states(name).count("starting") == 1


def test_init_36_death_before_readiness(stage):
    stage.tell("dies", "exit 9")
    assert stage.await_end("dies") == "exited with 9"
    for name, code in (("quick_death", 7), ("quick_death_too", 8)):
        assert stage.await_end(name) == f"exited with {code}"
    assert "running" not in stage.states("dies") + stage.states("quick_death")


def test_init_36_closed_descriptor(stage):
    said = stage.await_end("closed_fd")
    assert said == "closed descriptor 5 without saying that it is ready"
    stage.tell("closes", "close 3")
    said = stage.await_end("closes")
    assert said == "closed descriptor 3 without saying that it is ready"
    said = stage.await_end("closes_all")
    assert said == ("not ready within 4s: it sent no READY=1 and wrote no newline to its "
                    "descriptor, which it closed")


# ---- ready again ----


def test_init_36_ready_again_after_restart(stage):
    stage.wait("again", "starting")
    for turn in range(3):
        at = stage.services.mark()
        assert stage.is_starting("again")
        stage.tell("again", "say READY=1")
        ready = stage.wait("again", "running", after=at)
        stage.tell("again", f"exit {turn}")
        begun = stage.wait("again", "starting", after=at + 1)
        assert begun["pid"] != ready["pid"]
    assert stage.services.state("again") == "starting"


def test_init_36_ready_again_after_reload(stage):
    stage.tell("reloads", "say READY=1")
    pid = stage.wait("reloads", "running")["pid"]
    for _ in range(2):
        at = stage.services.mark()
        stage.tell("reloads", "say RELOADING=1\\nMONOTONIC_USEC=1")
        stage.wait("reloads", "reloading", after=at)
        stage.tell("reloads", "say READY=1")
        stage.wait("reloads", "ready", after=at)
    assert stage.services.last("reloads")["what"] == "ready"
    assert [e["pid"] for e in stage.services.trace
            if e.get("service") == "reloads" and e["what"] == "running"] == [pid]


# ---- health ----


def test_health_fails_and_it_is_restarted(stage):
    port = "{p4}".format(**stage.ports)
    stage.tell("healthy", f"http {port} 200")
    first = stage.wait("healthy", "running")
    stage.wait("healthy", "healthy")
    at = stage.services.mark()
    others = {e["service"]: e.get("pid") for e in stage.services.trace if e.get("service")}
    # when it answers with an error
    stage.tell("healthy", f"http {port} 500")
    said = stage.wait("healthy", "unhealthy", after=at)
    assert said["message"].startswith("unhealthy (1 of 3): 127.0.0.1:") and "500" in said["message"]
    # then it is restarted after three failures, and nothing else is
    end = stage.wait("healthy", "delayed", after=at)
    assert end["message"].startswith("unhealthy (3 of 3): "), end
    again = stage.wait("healthy", "starting", after=at)
    assert again["pid"] != first["pid"] and others
    stage.tell("healthy", f"http {port} 302")
    stage.wait("healthy", "running", after=at)
    stage.wait("healthy", "healthy", after=at)
    assert stage.states("healthy")[-1] == "healthy"


def test_one_that_stops_itself_is_restarted(stage):
    # given a healthy service that stops itself with SIGSTOP
    stage.tell("stops", "http {p6} 200".format(**stage.ports))
    pid = stage.wait("stops", "healthy")["pid"]
    at = stage.services.mark()
    stage.tell("stops", "stop")
    # then its check has no answer, and the whole of it is ended and begun anew
    end = stage.wait("stops", "delayed", after=at)
    assert "did not answer within 500ms" in end["message"], end
    assert stage.wait("stops", "starting", after=at)["pid"] != pid
    assert stage.box.host_pid(pid) is None


def test_health_that_comes_back(stage):
    flag = stage.box.work / "recovers.flag"
    for _ in range(2):
        at = stage.services.mark()
        if flag.exists():
            flag.unlink()
            stage.wait("recovers", "unhealthy", after=at)
            at = stage.services.mark()
        flag.touch()
        stage.wait("recovers", "healthy", after=at)
    assert stage.states("recovers").count("starting") == 1
    assert "delayed" not in stage.states("recovers")


# ---- floods ----


def test_a_flood_of_datagrams_holds_nobody_up(stage):
    stage.tell("flood", "say READY=1")
    stage.wait("flood", "running")
    before, begun = stage.box.cpu_seconds(), time.monotonic()
    stage.tell("flood", "flood 100000")
    slowest = 0
    for _ in range(10):
        at = time.monotonic()
        stage.box.call("status")
        slowest = max(slowest, time.monotonic() - at)
        time.sleep(0.02)
    took = time.monotonic() - begun
    assert slowest < 8, slowest
    assert stage.box.cpu_seconds() - before < 0.5 * took + 0.3
    # it is busy with that, and can be ended; the last word is not lost
    pid = stage.services.last("flood")["pid"]
    os.kill(stage.box.host_pid(pid), 9)
    stage.await_end("flood")


# ---- nothing is left ----


def test_nothing_of_the_checks_is_left(stage):
    for name in LOST:
        stage.await_end(name)
    wait_until(lambda: not stage.box.find("sleep 987") and not stage.box.find("sleep 986"), 20,
               lambda: [p.command for p in stage.box.processes()])
    assert not os.path.exists(stage.box.run / "notify.mute")


def test_a_check_that_init_cannot_begin_is_no_failure():
    # given an init with few descriptors and a service that is well
    ini = ("[init]\nruntime_dir = @RUN@\n[service:s]\ncommand = sleep 999\n"
           "health = command:true\nhealth_interval = 1500ms\nhealth_retries = 3\n")
    with Box("ns-root", ini=ini, before=["prlimit", "--nofile=48:48"]) as box:
        with Services(box) as services:
            pid = services.wait("s", "running")["pid"]
            services.wait("s", "healthy")
            # when clients take so many that no program can be started any more
            clients = []
            while "event=service_check" not in box.log():
                c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                c.connect(str(box.socket))
                clients.append(c)
                assert len(clients) < 700, box.log()[-2000:]
                time.sleep(0.02)
            # then it is said, and the service is left alone
            seen = box.log().count("event=service_check")
            wait_until(lambda: box.log().count("event=service_check") > seen + 2, 20, box.log)
            for c in clients:
                c.close()
            assert services.of("s") == ["waiting", "starting", "running", "healthy"]
            assert box.host_pid(pid) is not None


NOTIFIES = "systemd-notify --ready; exec sleep 999"
needs_notify = pytest.mark.skipif(not shutil.which("systemd-notify"), reason="no systemd-notify")


@needs_notify
def test_ready_as_another_user():
    # given one that is started as another user, and one that becomes another user by itself
    ini = ("[init]\nruntime_dir = @RUN@\nstop_grace = 1s\n"
           f"[service:set]\ntype = notify\nuser = 1000:1000\nscript = {NOTIFIES}\n"
           "[service:drops]\ntype = notify\nready = fd:9\nscript =\n"
           "  exec setpriv --reuid=1001 --regid=1001 --clear-groups sh -c "
           f"'{NOTIFIES}'\n")
    with Box("ns-root", ini=ini) as box, Services(box) as services:
        for name in ("set", "drops"):
            services.wait(name, "running", deadline=30)
        wait_until(lambda: box.find("sleep 999"), 5)


@needs_notify
def test_ready_without_any_folder():
    # given a box in which nothing is writable, then the socket is an abstract one
    ini = ("[init]\n[service:s]\ntype = notify\nlog_prefix = yes\n"
           f"script = echo \"at $NOTIFY_SOCKET\"; {NOTIFIES}\n")
    with Box("runc-user", ini=ini, writable=False, ready=False) as box:
        wait_until(lambda: "service=s state=running" in box.log(), 30, box.log)
        wait_until(lambda: "s: at @" in box.log(), 10, box.log)
        assert box.stop() == 0


def test_a_oneshot_has_a_time_if_it_is_written():
    # given set-up steps that hang, one with a time, then that one has failed, and says so
    ini = {"service:a": {"command": "sleep 301", "type": "oneshot", "ready_timeout": "200ms"},
           "service:b": {"command": "sleep 302", "type": "oneshot"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        assert s.wait("a", "fatal")["message"] == "not done within 200ms"
        wait_until(lambda: box.find("sleep 302"), 10, "the other one runs")
        assert not box.find("sleep 301")
        assert box.call("service.show", name="a", check=False)["last_message"] == "not done within 200ms"
        assert box.stop() == 143  # a set-up step was under way


def test_why_it_was_restarted_stays_to_be_seen():
    # given a service that was restarted since it was not healthy, and runs again, then show says why
    ini = ini_text({"service:w": {
        "command": "sleep 303", "cwd": "@WORK@", "health": "command:sh -c 'test -e well'",
        "health_interval": "500ms", "health_retries": "1", "restart": "always", "restart_delay": "100ms"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("w", "delayed")
        (box.work / "well").touch()
        wait_until(lambda: show(box, "w").get("healthy"), 10, lambda: show(box, "w"))
        assert box.call("service.show", name="w")["last_message"].startswith("unhealthy (1 of 1)")
        assert box.stop() == 0
