"""The services that the issue calls bad input: whatever one does, its state says what happened in
words, and the others go on. (A `ready` that never comes: test_services_ready.py; a stop that never
ends: test_services_stop.py; endless lines, deleted logs, full disks: test_services_logs.py; one that
forks away: test_services_supervision.py; files with a fault: tests/unit/test_config_complaint.c.)"""

import os
import re
import signal
import time

import pytest

from rig.box import Box
from rig.http import free_port
from rig.services import Services, ini_text, order, show
from rig.wait import wait_until
from rig.wire import WireError

# Listens on the port that is its argument.
LISTEN = ("/usr/bin/python3 -ISc 'import socket, sys, time; s = socket.socket(); "
          "s.bind((\"127.0.0.1\", int(sys.argv[1]))); s.listen(); time.sleep(999)'")

# name: (its keys, its state, what is said of it)
BAD = {
    "missing": ({"command": "/no/such"}, "fatal", r"exec /no/such: No such file or directory"),
    "not-in-path": ({"command": "nosuchprogram"}, "fatal", r"exec nosuchprogram: .*No such file"),
    "no-program": ({"command": "/usr"}, "fatal", r"exec /usr: Permission denied"),
    "user": ({"command": "true", "user": "nobodyatall"}, "fatal", r"nobodyatall"),
    "group": ({"command": "true", "group": "nogroupatall"}, "fatal", r"nogroupatall"),
    "groups": ({"command": "true", "groups": "0 nogroupatall"}, "fatal", r"nogroupatall"),
    "folder": ({"command": "true", "cwd": "/no/folder"}, "fatal",
               r"cwd /no/folder: No such file or directory"),
    "127": ({"command": "sh -c 'exit 127'"}, "exited", r"exited with 127"),
    "unreadable": ({"command": "sh -c 'cat /no/file'"}, "exited", r"exited with 1"),
    "taken": ({"command": f"{LISTEN} @PORT@", "requires": "holder", "ready": "file:@WORK@/never"},
              "exited", r"exited with 1"),
    "stops-itself": ({"command": "sh -c 'kill -STOP $$; sleep 100'"}, "running",
                     r"stopped by a signal: .* signal CONT stops-itself"),
    "never-up": ({"command": "sh -c 'kill -STOP $$; sleep 100'", "ready": "file:@WORK@/never"},
                 "starting", r"stopped by a signal"),
    "closes": ({"command": "sh -c 'exec <&- >&- 2>&-; exec sleep 100'"}, "running", r"^$"),
    "closes-inits": ({"command": "sh -c 'for i in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $i>&-\"; done; "
                                 "exit 4'"}, "exited", r"exited with 4"),
}
# What it has written itself tells more.
OUTPUT = {"taken": "Address already in use", "unreadable": "/no/file: No such file"}


def test_bad_services(kind):
    port = free_port()
    services = {f"service:{name}": {"restart": "never", **keys} for name, (keys, _, _) in BAD.items()}
    services["service:holder"] = {"command": f"{LISTEN} @PORT@", "ready": f"tcp:{port}"}
    services["service:other"] = {"command": "sleep 100"}
    services["init"] = {"stop_grace": "60s"}
    with Box(kind, ini=ini_text(services).replace("@PORT@", str(port))) as box, Services(box) as s:
        for name, (_, state, words) in BAD.items():
            told = lambda: show(box, name)
            wait_until(lambda: told()["state"] == state and re.search(words, told()["detail"]), 20,
                       lambda: (name, told()))
            if name in OUTPUT:
                wait_until(lambda: OUTPUT[name] in "\n".join(told()["output"]), 5, lambda: told())
        for name in ("holder", "other"):
            assert show(box, name)["state"] == "running" and s.of(name).count("starting") == 1
        # when it is let go on, then that is told no more
        box.ctl_ok("service", "signal", "CONT", "stops-itself")
        wait_until(lambda: show(box, "stops-itself")["detail"] == "", 5)
        begun = time.monotonic()
        order(box, "restart", "stops-itself")
        assert box.stop(deadline=40) == 0 and time.monotonic() - begun < 30, "stopped ones end at a TERM too"
        assert box.survivors() == []


@pytest.mark.parametrize("how", ["deleted", "another file", "bad file"])
def test_init_52_the_control_socket_is_deleted(how):
    # given a box whose socket somebody removes, then SIGHUP brings it back, also where the
    # configuration has a fault meanwhile, and services are not touched
    with Box("ns-user" if how == "deleted" else "ns-root", ini={"service:w": {"command": "sleep 100"}}) as box:
        pid = wait_until(lambda: (f := show(box, "w"))["state"] == "running" and f["pid"], 5)
        box.socket.unlink()
        if how == "another file":
            box.socket.write_text("not a socket")
            box.signal(signal.SIGHUP)
            wait_until(lambda: "is not a socket is there" in box.log(), 5, "it is told")
            assert box.socket.read_text() == "not a socket", "nothing of others is removed"
            box.socket.unlink()
        elif how == "bad file":
            box.write_ini("[init]\nnonsense\n")
        assert box.ctl("status").status != 0
        box.signal(signal.SIGHUP)
        wait_until(lambda: box.ctl("status").status == 0, 5, lambda: box.log())
        assert show(box, "w")["pid"] == pid and show(box, "w")["state"] == "running"
        assert oct(os.stat(box.socket).st_mode)[-3:] == "600"
        if how == "bad file":
            with pytest.raises(WireError, match="sandbox.ini:2: "):
                box.call("reload")
        assert box.stop() == 0
        assert not box.socket.exists()


def test_what_the_main_command_does_is_in_the_status():
    # given a main command that waits for a service, then the status says so, and then that it runs;
    # it is no service: nobody starts or stops it
    ini = ini_text({"service:w": {"command": "sleep 100", "ready": "file:@WORK@/ok"}})
    with Box("ns-root", ini=ini, main=["sleep", "500"]) as box:
        told = box.status()
        assert told["main_state"] == "waiting" and "main_pid" not in told
        (box.work / "ok").touch()
        told = wait_until(lambda: (t := box.status())["main_state"] == "running" and t, 5)
        assert box.host_pid(told["main_pid"]) == box.find("sleep 500")[0].pid
        assert [r["name"] for r in box.call("service.list").rows] == ["w"]
        assert box.ctl("service", "show", "main").status == 4
        assert box.stop() == 143
