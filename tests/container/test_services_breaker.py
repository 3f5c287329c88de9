"""Faults of services that came from combinations: each was seen once, and stays mended."""

import os
import signal
import time

import pytest

from rig.box import Box
from rig.services import Services, ini_text, order, show
from rig.wait import wait_until


@pytest.mark.parametrize("how", ["restarted", "goes on", "added"])
def test_a_reload_starts_what_is_newly_required(how):
    # given one that only starts when another requires it, and a reload that makes another require
    # it, then it starts: the other would wait for it for ever
    on_demand = {"command": "sleep 102", "autostart": "no"}
    first = {"service:a": {"command": "sleep 101"}, "service:b": on_demand}
    second = {"service:a": {"command": "sleep 101", "requires": "b"}, "service:b": on_demand}
    if how == "restarted":
        second["service:a"]["command"] = "sleep 103"
    if how == "added":
        del first["service:b"]
    with Box("ns-root", ini=first) as box, Services(box) as s:
        s.wait("a", "running")
        at = s.mark()
        box.write_ini(second)
        box.call("reload")
        s.wait("b", "running", after=at)
        if how == "restarted":
            s.wait("a", "running", after=at)
        wait_until(lambda: show(box, "a").get("detail", "") == "", 5)
        order(box, "stop", "b")
        box.write_ini({**second, "service:a": {**second["service:a"], "restart_delay": "9s"}})
        box.call("reload")
        assert show(box, "b")["state"] == "stopped", "required before and stopped by order: it stays so"
        assert box.stop() == 0


def test_what_requires_one_that_is_stopped_in_its_delay_stops_as_well():
    # given a service that runs on while what it requires waits for its next start, when that is
    # stopped by an order, then it stops as if that had been running
    ini = {"service:b": {"command": "sleep 102", "restart_delay": "60s"},
           "service:a": {"command": "sleep 101", "requires": "b"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("a", "running")
        box.signal(signal.SIGKILL, box.find("sleep 102")[0].pid)
        s.wait("b", "delayed")
        assert show(box, "a")["state"] == "running"
        at = s.mark()
        order(box, "stop", "b")
        s.wait("a", "waiting", after=at)
        assert box.find("sleep 10") == []
        order(box, "start", "b")
        s.wait("a", "running", after=at)
        assert box.stop() == 0


def test_a_user_table_that_is_no_file_or_never_ends_holds_nobody_up():
    # given an /etc/passwd that would block or never end, then a service with a user fails with
    # words, and init answers
    with Box("runc-root", ini={}) as box, Services(box) as s:
        table = box.dir / "rootfs/etc/passwd"
        for i, make in enumerate((os.mkfifo, lambda p: p.symlink_to("/dev/zero"),
                                  lambda p: (p.touch(), os.truncate(p, 1 << 36)))):
            table.unlink()
            make(table)
            box.write_ini({f"service:s{i}": {"command": "sleep 9", "user": "agent", "restart": "never"}})
            box.call("reload")
            assert "not in /etc/passwd" in s.wait(f"s{i}", "fatal")["message"]
        assert box.stop() == 0


def test_a_reload_that_drops_a_hook_while_it_fails():
    # given hooks that cannot be run, and reloads that take them away and bring them back, then init
    # lives: what a hook was is known to the one that failed, not to the file of today
    keys = {"command": "/no/such", "restart_delay": "0", "restart_backoff": "1ms", "restart_max": "0"}
    hooks = {"pre_start": "/no/such/hook", "post_stop": "/no/such/hook"}
    names = [f"service:s{i}" for i in range(12)]
    with Box("ns-root", ini={"init": {"log_level": "error"}}) as box:
        for i in range(40):
            box.write_ini({"init": {"log_level": "error"},
                           **{n: {**keys, **(hooks if i % 2 else {})} for n in names}})
            box.call("reload")
        assert box.stop() == 0


def test_a_reload_that_changes_nothing_during_a_check():
    # given a check that goes on while the same file is read again, then its words are still those
    # of the check
    slow = "command:sh -c 'touch @WORK@/on; until [ -e @WORK@/go ]; do sleep 0.02; done; exit 3'"
    ini = ini_text({"service:w": {"command": "sleep 100", "health": slow, "health_interval": "5s",
                                  "health_retries": "9"},
                    "service:pad": {"command": "sleep 101", "env.PAD": "x" * 9000}})
    with Box("ns-root", ini=ini) as box:
        wait_until((box.work / "on").exists, 10)
        for _ in range(5):
            box.call("reload")
        (box.work / "go").touch()
        wait_until(lambda: "exited with 3" in show(box, "w").get("detail", ""), 5)
        assert "command 'sh' exited with 3" in show(box, "w")["detail"]
        assert box.stop() == 0


def test_a_start_right_behind_a_stop_is_a_new_run():
    # given a stop and a start that init reads in one turn, then the run that was there has ended
    with Box("ns-root", ini={"service:w": {"command": "sleep 100"}}) as box, Services(box) as s:
        s.wait("w", "running")
        pid, at = show(box, "w")["pid"], s.mark()
        box.signal(signal.SIGSTOP)
        clients = []
        for verb in ("service.list", "service.stop", "service.start"):
            clients.append(box.connect())
            clients[-1].request(verb, [("name", "w"), ("no_wait", "1")] if clients[1:] else [])
        box.signal(signal.SIGCONT)
        for c in clients:
            c.finish()
            c.close()
        s.wait("w", "stopping", after=at)
        s.wait("w", "running", after=at)
        assert show(box, "w")["pid"] != pid
        assert box.stop() == 0


DEEP = """
import os, socket, time
for i in range(200):
    if os.fork():
        time.sleep(1000)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"])
open("up", "w").close()
while True:
    try:
        s.send(b"STATUS=x")
    except OSError:
        time.sleep(0.001)
"""


def test_a_flood_from_deep_in_a_tree_leaves_init_idle():
    # given a flood of messages from a process whose place takes long to find, then init spends a
    # small part of its time on them
    ini = ini_text({"service:w": {"command": "/usr/bin/python3 deep.py", "cwd": "@WORK@",
                                  "restart": "never", "type": "notify", "ready_timeout": "0",
                                  "autostart": "no"}})
    with Box("ns-root", ini=ini) as box:
        (box.work / "deep.py").write_text(DEEP)
        order(box, "start", "w", no_wait=1)
        wait_until((box.work / "up").exists, 20)
        cpu, begun = box.cpu_seconds(), time.monotonic()
        time.sleep(1.5)
        share = (box.cpu_seconds() - cpu) / (time.monotonic() - begun)
        assert share < 0.3, share
        assert box.stop() == 0


def test_a_runtime_folder_that_is_gone_keeps_no_service_from_its_start():
    # given services that tell when they are ready, and somebody who removes init's runtime folder,
    # then they are started again all the same
    ini = {"service:n": {"command": "sh -c 'echo >&3; exec sleep 101'", "ready": "fd:3",
                         "restart_delay": "50ms"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("n", "running")
        at = s.mark()
        box.run.rename(box.dir / "gone")
        box.signal(signal.SIGKILL, box.find("sleep 101")[0].pid)
        s.wait("n", "running", after=at)
        (box.dir / "gone").rename(box.run)
        at = s.mark()
        (box.run / "notify.n").mkdir()
        box.signal(signal.SIGKILL, box.find("sleep 101")[0].pid)
        s.wait("n", "running", after=at)
        assert box.stop() == 0
