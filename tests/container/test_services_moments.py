"""Orders, reloads and ends that come to a service at an unlucky moment: each fault was seen once."""

import signal
import struct
import subprocess
import threading
import time

import pytest

from rig.box import Box
from rig.services import Services, ini_text, order, show
from rig.stuck import LOOKUP, StuckFolder
from rig.wait import wait_until


def polite(word):
    """Notes in the file `stops` that it was asked to end, and does."""
    return (f"sh -c 'trap \"echo {word} >>stops; exit 0\" TERM; touch up.{word}; "
            "while :; do sleep 0.02; done'")


def state(box, name):
    return show(box, name)["state"]


# ---- the first start ----

@pytest.mark.parametrize("when", ["waiting", "delayed"])
def test_a_stop_before_the_first_start_does_not_keep_main_waiting(when):
    # given a service that main waits for, and an order to stop it before it has begun, or between
    # two tries, then main begins when the others are ready
    ini = {"service:db": {"command": "sleep 101", "ready": "file:@WORK@/ok"},
           "service:web": {"command": "sleep 102", "requires": "db"}}
    if when == "delayed":
        ini["service:web"] = {"command": "false", "restart_delay": "60s", "ready": "file:@WORK@/no"}
    with Box("ns-root", ini=ini_text(ini), main=["sleep", "103"]) as box, Services(box) as s:
        s.wait("web", when)
        order(box, "stop", "web")
        assert box.call("status")["main_state"] == "waiting"
        (box.work / "ok").touch()
        wait_until(lambda: box.call("status")["main_state"] == "running", 5)
        assert box.stop() == 143


def test_a_set_up_step_that_was_stopped_is_none_of_the_first_start():
    # given a oneshot that is stopped while it waits, then the container's first start is over
    ini = ini_text({"service:db": {"command": "sleep 101", "ready": "file:@WORK@/ok"},
                    "service:step": {"command": "false", "type": "oneshot", "requires": "db"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("step", "waiting")
        order(box, "stop", "step")
        (box.work / "ok").touch()
        s.wait("db", "running")
        assert box.stop() == 0


def test_a_set_up_step_that_cannot_begin_is_none_that_runs():
    # given a oneshot whose need has failed for good, then a stop is one of a container that is up
    ini = {"service:db": {"command": "false", "restart": "never", "ready": "file:/no"},
           "service:step": {"command": "true", "type": "oneshot", "requires": "db"}}
    with Box("ns-root", ini=ini) as box:
        wait_until(lambda: "requires db" in show(box, "step")["detail"], 5)
        assert box.stop() == 0


def test_a_main_command_that_waits_for_a_long_set_up_is_not_idle():
    ini = ini_text({"init": {"idle_timeout": "500ms"},
                    "service:step": {"type": "oneshot", "command": "sleep 1.5"}})
    with Box("ns-root", ini=ini, main=["sh", "-c", "sleep 0.7; exit 7"], ready=False) as box:
        assert box.wait() == 7


# ---- a start while it ends ----

@pytest.mark.parametrize("restart, code", [("never", 1), ("on-failure", 0), ("on-failure", 1)])
def test_a_start_while_a_run_that_ended_by_itself_is_cleared_away(restart, code):
    # given a service that has ended and whose post_stop runs, then an order to start it starts it
    # when that is over
    ini = ini_text({"service:w": {
        "cwd": "@WORK@", "restart": restart, "restart_delay": "60s",
        "command": f"sh -c '[ -e again ] && exec sleep 101; touch again; exit {code}'",
        "post_stop": "sh -c 'until [ -e go ]; do sleep 0.02; done'"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("w", "stopping")
        with box.connect() as client:
            client.request("service.start", [("name", "w")])
            box.call("status")  # behind the order
            (box.work / "go").touch()
            a = client.finish()
        assert a["failed"] == 0, a.rows
        assert state(box, "w") == "running"
        assert box.stop() == 0


def test_a_start_of_one_whose_need_is_being_cleared_away():
    # the same for what the one that is started requires
    ini = ini_text({"service:db": {
        "cwd": "@WORK@", "restart": "never",
        "command": "sh -c '[ -e again ] && exec sleep 101; touch again; exit 1'",
        "post_stop": "sh -c 'until [ -e go ]; do sleep 0.02; done'"},
        "service:web": {"command": "sleep 102", "requires": "db", "autostart": "no"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("db", "stopping")
        with box.connect() as client:
            client.request("service.start", [("name", "web")])
            s.wait("web", "waiting")
            (box.work / "go").touch()
            a = client.finish()
        assert a["failed"] == 0, a.rows
        assert state(box, "web") == "running"
        assert box.stop() == 0


# ---- the stop of the container ----

MAIN_THAT_LASTS = ["sh", "-c", "trap 'touch told' TERM; touch up.main; until [ -e over ]; do sleep 0.02; "
                   "done; exit 5"]


@pytest.mark.parametrize("how", ["delay", "order"])
def test_nothing_behind_main_starts_once_main_is_told_to_end(how):
    # given a service that comes after main and does not run at the moment of the stop, then neither
    # its delay nor an order starts it any more
    keys = {"command": "sleep 101", "after": "main", "restart_delay": "1s"}
    if how == "order":
        keys["autostart"] = "no"
    with Box("ns-root", ini=ini_text({"init": {"stop_grace": "60s"}, "service:w": keys}),
             main=MAIN_THAT_LASTS) as box, Services(box) as s:
        wait_until((box.work / "up.main").exists, 5)
        if how == "delay":
            s.wait("w", "running")
            order(box, "signal", "w", signal="KILL")
            s.wait("w", "delayed")
        at = s.mark()
        box.signal(signal.SIGTERM)
        wait_until((box.work / "told").exists, 5)
        if how == "order":
            rows = order(box, "start", "w").rows
            assert rows[0]["error"] == "service 'w': init is stopping"
        else:
            time.sleep(1.5)
        assert "starting" not in s.of("w", after=at)
        (box.work / "over").touch()
        assert box.wait() == 5


def test_a_check_is_not_ended_by_the_stop_before_its_service():
    # given a health check that runs at the moment of the stop, while main lasts and the services run
    # on for it, then that check is left alone: its end would be a failure of the service
    ini = ini_text({"init": {"stop_grace": "60s"}, "service:db": {
        "command": "sleep 101", "cwd": "@WORK@", "health_retries": "1", "health_interval": "20s",
        "health": "command:sh -c 'touch on; until [ -e go ]; do sleep 0.02; done'"}})
    with Box("ns-root", ini=ini, main=MAIN_THAT_LASTS) as box, Services(box) as s:
        wait_until((box.work / "on").exists, 30)
        at = s.mark()
        box.signal(signal.SIGTERM)
        wait_until((box.work / "told").exists, 5)
        (box.work / "go").touch()
        time.sleep(0.5)
        assert s.of("db", after=at) in ([], ["healthy"])
        (box.work / "over").touch()
        assert box.wait() == 5


def test_a_stop_command_that_hangs_when_the_container_stops_leaves_time_for_the_signal():
    # given a stop by an order whose stop_command hangs, and a stop of the container meanwhile, then
    # the service still gets its signal before SIGKILL
    ini = ini_text({"init": {"stop_grace": "4s"}, "service:db": {
        "command": polite("db"), "cwd": "@WORK@", "stop_grace": "10m",
        "stop_command": "sh -c 'touch asked; exec sleep 1000'"}})
    with Box("ns-root", ini=ini) as box:
        wait_until((box.work / "up.db").exists, 5)
        order(box, "stop", "db", no_wait=1)
        wait_until((box.work / "asked").exists, 5)
        assert box.stop() == 0
        assert (box.work / "stops").exists(), "it was killed and not asked"


# ---- a reload while it starts ----

class LateFolder(StuckFolder):
    """stuck/late is a folder that is there once go is set."""

    def __init__(self, box):
        self.go = threading.Event()
        super().__init__(box)
        self.late = self.path / "late"

    @staticmethod
    def _attr(node):
        whole = bytearray(StuckFolder._attr(node))
        if node == 3:
            struct.pack_into("=I", whole, 60, 0o40755)
        return bytes(whole)

    def _answer(self, op, node, body):
        if op == LOOKUP and body.rstrip(b"\0") == b"late":
            self.go.wait(60)
            return struct.pack("=QQQQII", 3, 0, 3600, 3600, 0, 0) + self._attr(3)
        return super()._answer(op, node, body)


def test_a_reload_gives_a_check_to_one_whose_program_is_not_reached_yet():
    # given a service that hangs before its program begins, and a reload that says how it is found
    # out that it is ready, then that is looked at when it runs
    with Box("ns-root", ini={}) as box, LateFolder(box) as stuck, Services(box) as s:
        keys = {"command": "sleep 101", "cwd": str(stuck.late)}
        box.write_ini({"service:w": keys})
        box.call("reload")
        s.wait("w", "starting")
        box.write_ini({"service:w": {**keys, "ready": f"file:{box.work}/ok"}})
        box.call("reload")
        stuck.go.set()
        wait_until(lambda: box.find("sleep 101"), 5)
        wait_until(lambda: "not ready" in show(box, "w")["detail"], 5, lambda: show(box, "w"))
        (box.work / "ok").touch()
        s.wait("w", "running")
        box.call("shutdown", grace_ms=100)
        box.wait()


def test_an_order_to_reload_does_not_end_a_program_that_is_not_reached_yet():
    # given a service that hangs before its program begins, then an order to reload it sends nothing:
    # the signal would end it, and the program will read what is there when it begins
    keys = {"command": "sleep 101", "restart": "never", "reload_signal": "HUP"}
    with Box("ns-root", ini={}) as box, LateFolder(box) as stuck, Services(box) as s:
        box.write_ini({"service:w": {**keys, "cwd": str(stuck.late)}})
        box.call("reload")
        s.wait("w", "starting")
        with box.connect() as client:
            client.request("service.reload", [("name", "w")])
            box.call("status")  # behind it
            stuck.go.set()
            assert client.finish()["failed"] == 0
        wait_until(lambda: box.find("sleep 101") or state(box, "w") == "exited", 5)
        assert state(box, "w") == "running"
        box.call("shutdown", grace_ms=100)
        box.wait()


@pytest.mark.parametrize("first, second, survives", [("1s", "10m", True), ("0", "1s", False)])
def test_a_reload_changes_the_time_for_a_start_under_way(first, second, survives):
    def ini(time_):
        return ini_text({"service:w": {"command": "sleep 101", "ready": "file:@WORK@/ok",
                                       "restart": "never", "ready_timeout": time_}})
    with Box("ns-root", ini=ini(first)) as box, Services(box) as s:
        s.wait("w", "starting")
        at = s.mark()
        box.write_ini(ini(second))
        assert box.call("reload")["changed"] == ["[service:w] changed"]
        if survives:
            time.sleep(2)
            assert s.of("w", after=at) == []
            (box.work / "ok").touch()
            s.wait("w", "running")
        else:
            assert "not ready within 1s" in s.wait("w", "fatal")["message"]
        assert box.stop() == 0


def test_a_reload_that_writes_the_default_limits_a_oneshot():
    # given a oneshot, which has a time only if one is written, then writing the default is a change
    keys = {"type": "oneshot", "command": "sleep 101"}
    with Box("ns-root", ini={"service:w": keys}) as box, Services(box) as s:
        s.wait("w", "starting")
        for time_ in ("1m", None):
            box.write_ini({"service:w": {**keys, "ready_timeout": time_}})
            assert box.call("reload").get("changed") == ["[service:w] changed"]
            assert "changed" not in box.call("reload").fields
        box.call("shutdown", grace_ms=100)
        box.wait()


def test_a_reload_changes_the_time_for_a_pre_start_under_way():
    def ini(time_):
        return ini_text({"service:w": {
            "command": "sleep 101", "cwd": "@WORK@", "restart": "never", "ready_timeout": time_,
            "pre_start": "sh -c 'until [ -e go ]; do sleep 0.02; done'"}})
    with Box("ns-root", ini=ini("1s")) as box, Services(box) as s:
        s.wait("w", "preparing")
        box.write_ini(ini("10m"))
        box.call("reload")
        time.sleep(1.5)
        assert state(box, "w") == "preparing"
        (box.work / "go").touch()
        s.wait("w", "running")
        assert box.stop() == 0


def test_a_reload_while_it_stops_is_what_is_shown_when_it_has():
    # given a service that is being stopped when its program becomes another one, then what is shown
    # of it between two runs is what the next one will be
    keys = {"command": "sleep 101", "cwd": "@WORK@", "stop_grace": "60s",
            "post_stop": "sh -c 'until [ -e go ]; do sleep 0.02; done'"}
    with Box("ns-root", ini=ini_text({"service:w": keys})) as box, Services(box) as s:
        s.wait("w", "running")
        order(box, "stop", "w", no_wait=1)
        wait_until(lambda: "post_stop" in show(box, "w")["detail"], 5)
        box.write_ini({"service:w": {"command": "sleep 102"}})
        box.call("reload")
        (box.work / "go").touch()
        s.wait("w", "stopped")
        assert show(box, "w")["command"] == "sleep 102"
        assert box.stop() == 0


def test_a_reload_that_takes_a_failing_check_away_takes_its_words_away():
    keys = {"command": "sleep 101", "health": "command:false", "health_interval": "100ms",
            "health_retries": "1000"}
    with Box("ns-root", ini={"service:w": keys}) as box, Services(box) as s:
        s.wait("w", "unhealthy")
        assert "unhealthy" in show(box, "w")["detail"]
        box.write_ini({"service:w": {"command": "sleep 101"}})
        box.call("reload")
        row = show(box, "w")
        assert row["state"] == "running" and "unhealthy" not in row["detail"], row
        assert box.stop() == 0


# ---- in time, and seen late ----

GO = "until [ -e go ]; do sleep 0.02; done"


@pytest.mark.parametrize("keys, seen", [
    ({"ready": "fd:3", "command": f"sh -c '{GO}; echo >&3; touch done; exec sleep 101'"}, "running"),
    ({"ready": f"command:sh -c '{GO}; touch done'", "command": "sleep 101"}, "running"),
    ({"pre_start": f"sh -c '{GO}; touch done'", "command": "sleep 101"}, "running"),
    ({"type": "oneshot", "command": f"sh -c '{GO}; touch done'"}, "exited")],
    ids=["descriptor", "check", "pre_start", "oneshot"])
def test_a_start_in_time_while_init_is_held_up(keys, seen):
    # given a start that is over in time while init does not run (it is throttled, or stopped), then
    # it is over in time, though init hears of both at once
    ini = ini_text({"service:w": {"cwd": "@WORK@", "ready_timeout": "1s", "restart": "never", **keys}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("w", "preparing" if "pre_start" in keys else "starting")
        box.signal(signal.SIGSTOP)
        (box.work / "go").touch()
        wait_until((box.work / "done").exists, 5)
        time.sleep(1.1)
        box.signal(signal.SIGCONT)
        wait_until(lambda: state(box, "w") in (seen, "fatal"), 5)
        assert state(box, "w") == seen
        assert box.stop() == 0


def test_a_health_check_in_time_while_init_is_held_up():
    ini = ini_text({"service:w": {
        "cwd": "@WORK@", "command": "sleep 101", "health_interval": "1s", "health_retries": "1",
        "health": f"command:sh -c 'touch on; {GO}; touch done'"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        wait_until((box.work / "on").exists, 5)
        box.signal(signal.SIGSTOP)
        (box.work / "go").touch()
        wait_until((box.work / "done").exists, 5)
        time.sleep(1.1)
        box.signal(signal.SIGCONT)
        s.wait("w", "healthy")
        assert s.of("w").count("unhealthy") == 0
        assert box.stop() == 0

# ---- oneshots ----

@pytest.mark.parametrize("what", ["stop", "restart", "start"])
def test_an_order_to_a_oneshot_that_is_done_leaves_those_that_require_it_alone(what):
    ini = {"service:step": {"command": "true", "type": "oneshot"},
           "service:web": {"command": "sleep 101", "requires": "step"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("web", "running")
        at = s.mark()
        order(box, what, "step")
        time.sleep(0.3)
        assert s.of("web", after=at) == [], s.trace[at:]
        assert box.stop() == 0



# ---- logs ----

def test_a_log_that_cannot_be_put_aside_does_not_push_the_older_ones_out():
    # given a log file that nobody can rename (it is a mount of its own, as containers have them) and
    # that is too long, then it grows on, and the older files stay what they are
    ini = ini_text({"service:w": {
        "cwd": "@WORK@", "log": "file:@WORK@/w.log", "log_max_size": "4K", "log_keep": "3",
        "command": "sh -c 'until [ -e go ]; do sleep 0.02; done; i=0; while [ $i -lt 300 ]; do "
                   "echo \"line $i of some that are long enough to fill a file of 4 KiB soon\"; i=$((i+1)); "
                   "sleep 0.005; done; exec sleep 101'"}})
    with Box("ns-root", ini=ini) as box:
        log = box.work / "w.log"
        log.touch()
        for i in (1, 2, 3):
            (box.work / f"w.log.{i}").write_text(f"old {i}\n")
        subprocess.run(["nsenter", "-t", str(box.init_pid), "-m", "mount", "--bind", log, log], check=True)
        (box.work / "go").touch()
        wait_until(lambda: "line 299 " in log.read_text(), 15)
        assert [(box.work / f"w.log.{i}").read_text() for i in (1, 2)] == ["old 1\n", "old 2\n"]
        assert box.stop() == 0


def test_a_log_that_no_service_has_any_more_is_given_up():
    # given a log in a folder that is not there, and a reload that puts it elsewhere, then the old one
    # is tried for a while and no more: neither does the status complain of it nor is anything started
    # for it
    def ini(log):
        return ini_text({"service:w": {"command": "sh -c 'echo hello; exec sleep 101'", "log": f"file:{log}"}})
    with Box("ns-root", ini=ini("@WORK@/missing/w.log")) as box:
        wait_until(lambda: "missing" in box.call("status").get("log_trouble", ""), 5)
        box.write_ini(ini("@WORK@/w.log"))
        box.call("reload")
        wait_until(lambda: "log_trouble" not in box.call("status").fields, 20, every=0.2)
        assert "event=log_file_given_up" in box.log() and "lost_bytes=6" in box.log()
        assert box.stop() == 0

# ---- sessions of the file ----

def test_a_reload_that_declares_a_session_that_is_being_deleted():
    # given a session that takes long to delete, and a file that declares one of its name meanwhile,
    # then there is one in the end
    with Box("ns-root", ini={"sessions": {"kill_grace": "60s"}}) as box:
        box.ctl_ok("session", "create", "s")
        box.start("trap '' TERM; touch on; until [ -e go ]; do sleep 0.02; done", "s")
        wait_until((box.work / "on").exists, 5)
        client = box.ctl_spawn("session", "delete", "s")
        wait_until(lambda: box.ctl("exec", "-s", "s", "true").status != 0, 5)
        box.write_ini({"sessions": {"kill_grace": "60s"}, "session:s": {"env.X": "of the file"}})
        box.call("reload")
        (box.work / "go").touch()
        client.communicate(timeout=20)
        wait_until(lambda: box.ctl("session", "show", "s").status == 0, 5, lambda: box.log()[-800:])
        assert box.exec("echo $X", "s").out == b"of the file\n"
        assert box.stop() == 0


def test_a_session_is_deleted_while_its_failed_setup_is_cleared_away():
    # given a reset session whose setup fails and leaves something that takes long to end, then a
    # delete meanwhile is carried out
    ini = ini_text({"sessions": {"kill_grace": "60s", "cwd": "@WORK@", "setup":
                    "[ ! -e bad ] || { ( trap '' TERM; touch on; until [ -e go ]; do sleep 0.02; done ) & "
                    "until [ -e on ]; do sleep 0.02; done; false; }"}})
    with Box("ns-root", ini=ini) as box:
        box.ctl_ok("session", "create", "s")
        (box.work / "bad").touch()
        with box.connect() as reset, box.connect() as delete:
            reset.request("session.reset", [("name", "s")])
            wait_until(lambda: (box.work / "on").exists() and
                       box.call("session.list").rows[0]["state"] == "ending", 5)
            delete.request("session.delete", [("name", "s")])
            box.call("status")  # behind it
            (box.work / "go").touch()
            a = delete.finish()
            assert not a.is_error, a.fields
        assert box.call("session.list").rows == []
        assert box.stop() == 0
