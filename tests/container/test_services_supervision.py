"""Services that end, fail, fork away, are ordered about; tests 29 to 43 of init-tests.md."""

import os
import signal
import subprocess
import time

import pytest

from rig.box import Box, base, build_dir, programs
from rig.places import spread
from rig.services import Services, ini_text, order, show
from rig.wait import is_long, repeats, wait_until
from rig.wire import WireError

SLEEP = {"command": "sleep 100"}


def pid_of(box, name):
    return show(box, name).get("pid")


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_init_29_kill_9_again_and_again(kind):
    # given a service that is killed as soon as it is there, then in the end there is one of it, and its
    # pid is the one that is told
    ini = {"service:w": {"command": "sleep 4321", "restart": "always", "restart_delay": "0",
                         "restart_backoff": "0", "restart_max": "0"}}
    with Box(kind, ini=ini) as box:
        last = None
        for _ in range(repeats(1000) if is_long() else 20):
            found = wait_until(lambda: [p for p in box.find("sleep 4321") if p.pid != last], 5,
                               "it was started again")
            assert len(found) == 1
            last = found[0].pid
            os.kill(last, signal.SIGKILL)
        wait_until(lambda: [p.pid for p in box.find("sleep 4321")] == [
            box.host_pid(pid_of(box, "w") or 0)], 5, "one, and the right one")
        assert box.stop() == 0


def test_init_30_crash_loop_the_hook_knows_how_it_ended(kind):
    # given a crash loop, then post_stop runs once for each end, with code, signal and what follows
    ini = ini_text({"service:w": {
        "command": "sh -c 'exit 7'", "cwd": "@WORK@", "restart_delay": "10ms",
        "restart_max": "2", "restart_window": "30s",
        "post_stop": "sh -c 'echo $SERVICE_STATUS ${SERVICE_SIGNAL:-none} $SERVICE_NEXT >>hook'"},
        "service:k": {"command": "sh -c 'kill -ABRT $$'", "cwd": "@WORK@", "restart": "never",
                      "post_stop": "sh -c 'echo $SERVICE_STATUS $SERVICE_SIGNAL $SERVICE_NEXT >>k'"}})
    with Box(kind, ini=ini) as box, Services(box) as s:
        s.wait("w", "fatal")
        s.wait("k", "exited")
        assert (box.work / "hook").read_text().splitlines() == [
            "7 none delayed", "7 none delayed", "7 none fatal"]
        assert (box.work / "k").read_text() == "134 SIGABRT exited\n"
        assert show(box, "w")["state"] == "fatal"
        assert "exited with 7" in show(box, "w")["detail"]
        assert box.stop() == 0


@pytest.mark.parametrize("where", ["ns-root", "runc-user"])
def test_init_31_case_X2_a_stop_during_the_delay_ends_it(where):
    # given a service in its delay, then a stop is carried out at once, and nothing starts later
    ini = ini_text({"service:w": {"command": "sh -c 'echo x >>starts; exit 1'", "cwd": "@WORK@",
                                  "restart_delay": "2s", "restart_max": "0"},
                    "service:long": {"command": "false", "restart_delay": "10m", "restart_max": "0"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        for name in ("long", "w"):
            s.wait(name, "delayed")
            order(box, "stop", name)  # that of the first would wait ten minutes
            assert show(box, name)["state"] == "stopped" and not pid_of(box, name)
        starts = (box.work / "starts").read_text()
        time.sleep(2.1)
        assert (box.work / "starts").read_text() == starts
        # a start order in the delay does not wait for it
        at = s.mark()
        order(box, "start", "long", no_wait=1)
        s.wait("long", "delayed", after=at)
        at = s.mark()
        order(box, "start", "long", no_wait=1)
        s.wait("long", "starting", after=at)
        assert box.stop() == 0


SLOW = "sh -c 'trap \"sleep 0.3; exit 0\" TERM; echo $$ >>starts; while :; do sleep 0.02; done'"


@pytest.mark.parametrize("where, case", spread(
    ("stop start", "running"), ("restart stop", "stopped"), ("stop start stop", "stopped"),
    ("restart restart", "running"), ("stop restart", "running"), ("start stop start", "running")))
def test_init_32_the_last_order_wins(where, case):
    # given orders that come while the one before is carried out, then the last one counts
    orders, final = case
    ini = ini_text({"service:w": {"command": SLOW, "cwd": "@WORK@"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        wait_until((box.work / "starts").exists, 5)
        for o in orders.split():
            order(box, o, "w", no_wait=1)
        wait_until(lambda: show(box, "w")["state"] == final and (
            final == "stopped" or len((box.work / "starts").read_text().split()) > 1 or
            orders == "start stop start"), 5, final)
        time.sleep(0.1)
        assert show(box, "w")["state"] == final
        # (a shell that has forked and not executed yet bears the same words)
        wait_until(lambda: len(box.find("trap")) == (final == "running"), 5, lambda: box.find("trap"))
        assert box.stop() == 0


@pytest.mark.parametrize("where, what", spread("start", "restart", "reload"))
def test_init_32_an_order_to_one_that_waits(where, what):
    # given a service that waits for another, then an order to start it anew starts it once
    ini = ini_text({"service:db": {"command": "sleep 100", "ready": "file:@WORK@/ok"},
                    "service:web": {"command": "sleep 101", "requires": "db"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        s.wait("db", "starting")
        assert show(box, "web")["state"] == "waiting"
        order(box, what, "web", no_wait=1)
        (box.work / "ok").touch()
        s.wait("web", "running")
        order(box, "stop", "db")
        assert s.of("web").count("starting") == 1
        assert box.stop() == 0


@pytest.mark.parametrize("where, what", spread("restart", "reload", "restart", "reload"))
def test_init_32_a_service_restarts_itself(where, what):
    # given a service whose own script orders its restart, then that is carried out though the one
    # who asked dies in it
    box_ctl = programs() / "sandboxctl"
    ini = ini_text({"service:w": {
        "cwd": "@WORK@", "env.SANDBOX_SOCKET": "@RUN@/control.sock",
        "command": f"sh -c 'echo x >>starts; [ -e again ] && sleep 100; touch again; "
                   f"{box_ctl} service {what} w; echo back >>starts; sleep 9'"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        wait_until(lambda: (box.work / "starts").exists() and
                   (box.work / "starts").read_text().count("x") == 2, 5, "it was started again")
        wait_until(lambda: show(box, "w")["state"] == "running", 5)
        assert "back" not in (box.work / "starts").read_text()
        wait_until(lambda: [p.command for p in box.processes() if p.comm == "sleep"] == ["sleep 100"],
                   5, lambda: [p.command for p in box.processes()])
        assert box.stop() == 0


@pytest.mark.parametrize("where, case", spread(
    ("false", "pre_start: exited with 1", 1), ("/no/such", "pre_start: exec /no/such: No such", 127),
    ("sleep 100", "pre_start: not over within", 124), ("sh -c 'kill -9 $$'", "killed by SIGKILL", 137)))
def test_init_33_a_failing_pre_start_keeps_it_from_starting(where, case):
    pre, words, status = case
    ini = ini_text({"service:w": {"command": "touch never", "cwd": "@WORK@", "pre_start": pre,
                                  "ready_timeout": "400ms" if pre == "sleep 100" else "60s", "restart": "never"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        e = s.wait("w", "fatal")
        assert words in e["message"] and e["status"] == status
        assert words in show(box, "w")["detail"]
        assert not (box.work / "never").exists()
        assert box.processes() == []
        assert box.stop() == 0


def test_hooks_run_in_order():
    ini = ini_text({"service:w": {
        "command": "sh -c 'trap \"echo term >>trace; exit\" TERM; echo run >>trace; "
                   "while :; do sleep 0.02; done'", "cwd": "@WORK@",
        "pre_start": "sh -c 'echo pre >>trace'", "post_stop": "sh -c 'echo post >>trace'",
        "stop_command": "sh -c 'kill -0 $SERVICE_PID && echo stop >>trace'"}})
    with Box("ns-root", ini=ini) as box:
        trace = box.work / "trace"
        wait_until(lambda: trace.exists() and "run" in trace.read_text(), 5)
        order(box, "restart", "w")
        wait_until(lambda: trace.read_text().count("run") == 2, 5)
        order(box, "stop", "w")
        assert trace.read_text().split() == "pre run stop term post".split() + \
            "pre run stop term post".split()
        assert box.stop() == 0


STEPS = {
    "exec": ({"command": "/no/such"}, "exec /no/such: No such file or directory", 127),
    "interpreter": ({"command": "@WORK@/script"},
                    "/script: its interpreter (of the line #!) or loader is not there", 127),
    "noexec": ({"command": "/etc/passwd"}, "exec /etc/passwd: Permission denied", 126),
    "cwd": ({"cwd": "/nope"}, "cwd /nope: No such file or directory", 125),
    "cwd-file": ({"cwd": "/etc/passwd"}, "cwd /etc/passwd: Not a directory", 125),
    "user": ({"user": "nobodyatall"}, "nobodyatall", 125),
    "group": ({"group": "nogroupatall"}, "nogroupatall", 125),
    "limit": ({"limit.nofile": "999999999"}, "limit.nofile: Operation not permitted", 125),
}


@pytest.mark.parametrize("how", ["health", "ready"])
def test_stop_command_of_one_that_a_check_ends(how):
    # given a service that its health check or its ready_timeout ends, then its stop_command is run
    keys = {"health": "command:false", "health_interval": "300ms", "health_retries": "1"} if how == "health" else {
        "ready": "file:/no/such", "ready_timeout": "300ms"}
    ini = ini_text({"service:w": {"command": "sleep 100", "cwd": "@WORK@", "restart": "never", **keys,
                                  "stop_command": "sh -c 'kill -0 $SERVICE_PID && echo stop >>trace'"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("w", "exited" if how == "health" else "fatal")
        assert (box.work / "trace").read_text() == "stop\n"


@pytest.mark.parametrize("where, which", spread(*STEPS))
def test_init_35_each_step_that_fails_is_told(where, which):
    # given a service that cannot be started, then the state says at which step and why, nothing
    # leaks, and the others go on
    keys, words, status = STEPS[which]
    ini = {"service:w": {"command": "sleep 100", "restart_delay": "10ms", "restart_max": "4",
                         "restart_backoff": "10ms", **keys}, "service:other": SLEEP}
    ini["service:w"]["autostart"] = "no"
    with Box(where, ini=ini_text(ini)) as box, Services(box) as s:
        (box.work / "script").write_text("#!/no/such/interpreter\n")
        (box.work / "script").chmod(0o755)
        box.call("service.start", name="w", no_wait=1)
        s.wait("w", "starting" if status != 125 or "cwd" in keys or "limit" in which else "delayed")
        before = box.fds()
        e = s.wait("w", "fatal", deadline=20)
        assert words in e["message"], e
        assert e["status"] == status
        assert box.fds() <= before + 1
        assert show(box, "other")["state"] == "running"
        assert box.stop() == 0


def test_init_37_dependents(kind):
    # given a chain, then a stop of the first stops what needs it, before it; and a start brings it
    # all back; one that was stopped by hand stays so
    ini = {"service:db": SLEEP, "service:web": {"command": "sleep 101", "requires": "db"},
           "service:job": {"command": "sleep 102", "requires": "web"},
           "service:free": {"command": "sleep 103", "after": "db"}}
    with Box(kind, ini=ini) as box, Services(box) as s:
        for name in ("job", "free"):
            s.wait(name, "running")
        free = pid_of(box, "free")
        at = s.mark()
        order(box, "stop", "db")
        s.wait("web", "waiting", after=at)
        assert [e["service"] for e in s.trace[at:] if e["what"] == "waiting"][:2] == ["job", "web"]
        assert show(box, "db")["state"] == "stopped"
        assert show(box, "web")["state"] == "waiting" and "db" in show(box, "web")["detail"]
        before = box.cpu_seconds()
        time.sleep(0.4)
        assert box.cpu_seconds() - before < 0.04, "no spinning"
        assert len(box.find("sleep 101")) == 0
        order(box, "stop", "job")
        at = s.mark()
        order(box, "start", "db")
        s.wait("web", "running", after=at)
        assert show(box, "job")["state"] == "stopped"
        at = s.mark()
        order(box, "restart", "db")
        s.wait("web", "running", after=at)
        assert s.first("web", "waiting", at) < s.first("db", "waiting", at)
        assert s.first("db", "running", at) < s.first("web", "running", at)
        assert pid_of(box, "free") == free, "after alone: untouched"
        assert box.stop() == 0


def test_init_37_a_start_order_brings_up_what_it_requires(kind):
    ini = {"service:db": {**SLEEP, "autostart": "no"},
           "service:web": {"command": "sleep 101", "requires": "db", "autostart": "no"}}
    with Box(kind, ini=ini) as box:
        assert show(box, "db")["state"] == "stopped"
        order(box, "start", "web")
        assert show(box, "db")["state"] == show(box, "web")["state"] == "running"
        assert box.stop() == 0


def test_a_crash_leaves_dependents_alone():
    ini = {"service:db": {"command": "sleep 100", "restart_delay": "10ms"},
           "service:web": {"command": "sleep 101", "requires": "db"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("web", "running")
        web, at = pid_of(box, "web"), s.mark()
        box.signal(signal.SIGKILL, box.find("sleep 100")[0].pid)
        s.wait("db", "running", after=at)
        assert pid_of(box, "web") == web
        assert show(box, "db")["restarts"] == 1
        assert box.stop() == 0


def test_a_failing_start_is_told_to_who_waits():
    ini = {"service:w": {"command": "/no/such", "autostart": "no", "restart": "never"},
           "service:x": {"command": "sleep 1", "requires": "w", "autostart": "no"}}
    with Box("ns-root", ini=ini) as box:
        for name in ("w", "x"):
            r = box.ctl("service", "start", name)
            assert r.status != 0 and b"w" in r.err and b"No such file" in r.err, r
        assert box.stop() == 0


def test_init_41_a_oneshot_that_fails_is_not_retried(kind):
    ini = {"service:w": {"type": "oneshot", "command": "sh -c 'echo x >>/tmp/never; exit 3'",
                         "command": "false"}}
    with Box(kind, ini=ini) as box, Services(box) as s:
        s.wait("w", "fatal")
        time.sleep(0.3)
        assert s.of("w").count("starting") == 1
        assert box.stop() == 0


def test_init_42_a_oneshot_may_call_sandboxctl(kind):
    # given a set-up step that is a client of init itself, then nothing is stuck
    box_ctl = programs() / "sandboxctl"
    ini = ini_text({"service:setup": {
        "type": "oneshot", "cwd": "@WORK@", "env.SANDBOX_SOCKET": "@RUN@/control.sock",
        "command": f"sh -c '{box_ctl} service list >list && {box_ctl} exec true'"},
        "service:web": {**SLEEP, "requires": "setup"}})
    with Box(kind, ini=ini, main=["sh", "-c", "touch began; sleep 100"]) as box:
        wait_until((box.work / "began").exists, 10, "main began")
        assert "setup" in (box.work / "list").read_text()
        assert show(box, "setup")["state"] == "exited"
        assert box.stop() == 143


JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
/* The wall clock jumps ten years back or forth with each look at it. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    static int turn;
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int rc = real(id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec += ++turn % 2 ? 315360000 : -315360000;
    return rc;
}
time_t time(time_t *to)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to)
        *to = t.tv_sec;
    return t.tv_sec;
}
"""


@pytest.mark.skipif("asan" in str(build_dir()), reason="ASan wants to be loaded first")
def test_init_43_the_clock_jumps_during_a_delay(tmp_path_factory):
    # given a wall clock that jumps by years all the time, then delays, graces and ready_timeout are
    # as long as ever
    lib = base() / "jump.so"
    source = base() / "jump.c"
    source.write_text(JUMPING_CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", lib, source], check=True)
    ini = {"service:w": {"command": "sh -c 'exit 1'", "restart_delay": "300ms", "restart_max": "3",
                         "restart_backoff": "300ms", "autostart": "no"},
           "service:n": {"type": "notify", "command": "sleep 100", "ready_timeout": "500ms",
                         "restart": "never"}}
    with Box("ns-root", ini=ini, env={"LD_PRELOAD": str(lib)}) as box, Services(box) as s:
        begun = time.monotonic()
        order(box, "start", "w", no_wait=1)
        s.wait("w", "fatal")
        s.wait("n", "fatal")
        assert len({e["time"][:4] for e in s.trace}) > 1, "the clock does jump"
        at = [e["seen"] for e in s.trace if e.get("service") == "w" and e["what"] == "starting"]
        gaps = [b - a for a, b in zip(at, at[1:])]  # (events may be read late: the least is counted from the order)
        assert len(gaps) == 3 and at[-1] - begun > 0.5 and max(gaps) < 15, gaps
        assert box.stop() == 0


# ---- the whole tree ----

@pytest.mark.parametrize("where, how", spread(
    "child", "daemon", "daemon-setsid", "env", "env", "daemon-setsid", "child", "daemon"))
def test_case_W7_the_next_start_waits_for_the_whole_old_tree(where, how):
    # given a wrapper whose real child needs a while to die and holds the lock of a file, then the
    # next one finds it free
    m = str(programs() / "misbehave")
    tail = "catch TERM touch up until TERM sleep 0.6 append gone x"
    inner = {"child": f"child [ {tail} ]", "daemon": f"daemon [ {tail} ]",
             "daemon-setsid": f"daemon [ setsid {tail} ]",
             "env": f"child [ {tail} ]"}[how]
    script = (f"sh -c 'echo starts $(ls gone 2>/dev/null) >>trace; rm -f gone; "
              f"exec {'env -u SANDBOX_SERVICE ' if how == 'env' else ''}{m} {inner} forever'")
    ini = ini_text({"service:w": {"command": script, "cwd": "@WORK@"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        wait_until((box.work / "up").exists, 5, "the child is there")
        begun = time.monotonic()
        order(box, "restart", "w")
        assert time.monotonic() - begun >= 0.5
        trace = box.work / "trace"
        wait_until(lambda: trace.read_text().count("starts") == 2, 5, "it was started again")
        assert trace.read_text().split() == ["starts", "starts", "gone"]
        assert box.stop() == 0
        assert box.survivors() == []


@pytest.mark.parametrize("where, user", [
    ("ns-root", None), ("ns-user", None), ("runc-root", None), ("runc-user", None),
    ("ns-root", "1000"), ("runc-root", "1000")])  # only root can become another user
def test_one_that_forks_away(where, user):
    # given a service whose process ends and leaves a daemon, then that is ended before the next
    # start, also where it is another user's
    m = str(programs() / "misbehave")
    keys = {"command": f"{m} daemon [ setsid forever ] exit 0", "restart": "always",
            "restart_delay": "100ms", "restart_max": "3", "restart_backoff": "100ms"}
    if user:
        keys["user"] = user
    with Box(where, ini={"service:w": keys}) as box, Services(box) as s:
        said = s.wait("w", "fatal")["message"]
        assert said.startswith("exited with 0 and left processes behind: it has to stay in the")
        assert s.of("w").count("starting") == 4
        assert box.find("forever") == []
        assert box.stop() == 0
        assert box.survivors() == []


# ---- readiness and health ----

@pytest.mark.parametrize("ready,words", [
    ("tcp:9", "refused"), ("unix:/no/such", "/no/such"), ("file:/no/such", "/no/such"),
    ("command:sh -c 'exit 4'", "4"), ("command:sleep 100", ""), ("http://127.0.0.1:9/", "refused")])
def test_a_ready_that_never_comes(ready, words):
    # given a check that never holds, then the start has failed after ready_timeout, with the reason,
    # and nothing of it is left
    ini = {"service:w": {"command": "sleep 100", "ready": ready, "ready_timeout": "2s",
                         "restart": "never"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        e = s.wait("w", "fatal")
        assert e["message"].startswith("not ready within 2s") and words in e["message"], e
        assert "running" not in s.of("w")
        wait_until(lambda: box.processes() == [], 3)
        assert box.stop() == 0


def test_ready_by_file_then_dependents():
    ini = ini_text({"service:w": {"command": "sh -c 'sleep 0.3; touch ok; exec sleep 100'",
                                  "cwd": "@WORK@", "ready": "file:@WORK@/ok"},
                    "service:x": {"command": "sh -c 'ls ok >seen; exec sleep 101'",
                                  "cwd": "@WORK@", "requires": "w"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("x", "running")
        wait_until(lambda: (box.work / "seen").exists() and (box.work / "seen").read_text() == "ok\n",
                   5)
        assert box.stop() == 0


def test_an_unhealthy_service_is_restarted():
    ini = ini_text({"service:w": {"command": "sh -c 'touch ok; exec sleep 100'", "cwd": "@WORK@",
                                  "health": "command:test -e ok", "health_interval": "500ms",
                                  "health_retries": "2", "restart_delay": "50ms"},
                    "service:x": {"command": "sleep 101", "requires": "w"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("x", "running")
        wait_until(lambda: show(box, "w").get("healthy") is True, 5)
        other, at = pid_of(box, "x"), s.mark()
        (box.work / "ok").unlink()
        e = s.wait("w", "delayed", after=at)
        assert "unhealthy (2 of 2): " in e["message"], e
        s.wait("w", "running", after=at)
        wait_until(lambda: show(box, "w").get("healthy") is True, 5)
        assert pid_of(box, "x") == other
        assert box.stop() == 0


# ---- want of means ----

def test_init_35_descriptors_run_out():
    # given an init that may have few descriptors, then what cannot be started says so and is tried
    # again, nothing leaks, and the others go on
    ini = {f"service:s{i:02}": {"command": f"sleep 10{i:02}", "restart_delay": "100ms",
                                "restart_max": "0", "restart_backoff": "200ms"} for i in range(12)}
    with Box("ns-root", ini=ini, before=["prlimit", "--nofile=56:56"]) as box, Services(box) as s:
        def states():
            return {f"s{i:02}": show(box, f"s{i:02}") for i in range(12)}
        def running():
            return [n for n, v in states().items() if v["state"] == "running"]
        wait_until(lambda: any("too few descriptors" in v["detail"] for v in states().values()) and
                   6 <= len(running()) < 12, 20, states)
        running = running()
        for n in running[:-2]:
            order(box, "stop", n)
        rest = [n for n in states() if n not in running[:-2]]
        wait_until(lambda: all(states()[n]["state"] == "running" for n in rest), 10)
        assert box.stop() == 0
        assert box.survivors() == []


def test_init_35_processes_run_out():
    # given a user who may have few processes, then what cannot be forked says so and is tried again
    ini = {f"service:s{i}": {"command": f"sleep 10{i}", "restart_delay": "100ms",
                             "restart_max": "0", "restart_backoff": "200ms"} for i in range(8)}
    with Box("ns-user", ini=ini, uid=64321, before=["prlimit", "--nproc=6:6"]) as box:
        def states():
            return {f"s{i}": show(box, f"s{i}") for i in range(8)}

        def running():
            return [n for n, v in states().items() if v["state"] == "running"]
        wait_until(lambda: any("fork: Resource temporarily" in v["detail"]
                               for v in states().values()) and len(running()) >= 3, 5, states)
        before = running()
        for n in before:
            order(box, "stop", n)
        wait_until(lambda: len(set(running()) - set(before)) >= 3, 10, states)
        assert box.stop() == 0
        assert box.survivors() == []


def test_a_shorter_grace_over_the_socket():
    ini = {"init": {"stop_grace": "30s"},
           "service:w": {"command": "sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'"},
           "service:x": {"command": "sleep 101", "requires": "w"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("x", "running")
        begun = time.monotonic()
        assert box.ctl("shutdown", "--grace", "400ms").status == 0
        assert box.wait() == 0
        assert time.monotonic() - begun < 15
        assert box.survivors() == []
