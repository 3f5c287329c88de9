"""X. Restart policy and service state."""

import time

import pytest

from rig.box import Box
from rig.places import spread
from rig.services import Services, ini_text, show
from rig.wait import wait_until


def starts(box, name="starts"):
    path = box.work / name
    return [float(t) for t in path.read_text().split()] if path.exists() else []


STAMP = "date +%s.%N >>starts; "


@pytest.mark.parametrize("where, program", spread(
    "false", "sh -c 'exit 3'", "sh -c 'kill -9 $$'", "/no/such"))
def test_case_X1_a_dependency_that_cannot_be_started_is_no_storm(where, program):
    # given a that fails for ever, quickly, and b that requires it, then a is tried with growing
    # gaps, then is fatal; b was started once at most, and init sleeps
    ini = {"service:a": {"command": program, "restart": "always", "restart_delay": "50ms",
                         "restart_backoff": "200ms", "restart_max": "4"},
           "service:b": {"command": "sleep 100", "requires": "a"}}
    status = {"false": "1", "sh -c 'exit 3'": "3", "sh -c 'kill -9 $$'": "KILL",
              "/no/such": "No such file"}[program]
    with Box(where, ini=ini) as box, Services(box) as services:
        fatal = services.wait("a", "fatal")
        assert status in fatal["message"], fatal
        assert services.of("a").count("starting") == 5
        delays = [e["time"] for e in services.trace if e.get("service") == "a"]
        assert len(delays) > 5
        if program == "/no/such":
            wait_until(lambda: "requires a: fatal" in box.log(), 5, "b says what it lacks")
            assert services.state("b") == "waiting" and "starting" not in services.of("b")
        else:  # a was ready for a moment each time
            assert services.of("b").count("starting") <= 1
        before = box.cpu_seconds()
        time.sleep(0.5)
        assert box.cpu_seconds() - before < 0.05
        assert box.stop() == 0


@pytest.mark.parametrize("where, delay", spread(0.3, 0.7, 0.4, 0.5))
def test_case_X2_the_delay_is_kept(where, delay):
    ini = {"service:t": {"command": f"sh -c '{STAMP} exit 1'", "restart": "always",
                         "restart_delay": f"{delay:.1f}s", "restart_backoff": f"{delay:.1f}s",
                         "restart_max": "0", "cwd": "@WORK@"}}
    with Box(where, ini=ini_text(ini)) as box:
        wait_until(lambda: len(starts(box)) >= 4, 10, "4 starts")
        assert box.stop() == 0
        seen = starts(box)
        gaps = [b - a for a, b in zip(seen, seen[1:])]
        assert min(gaps) >= delay, gaps
        assert len(starts(box)) == len(seen), "none after the stop"


@pytest.mark.parametrize("where, how", spread("code", "signal", "missing", "restart=never"))
def test_case_X4_on_fatal_stop_ends_init_with_the_code(where, how):
    command, restart, code = {
        "code": ("sh -c 'exit 5'", "always", 5), "signal": ("sh -c 'kill -9 $$'", "always", 137),
        "missing": ("/no/such/program", "always", 127),
        "restart=never": ("sh -c 'sleep 0.1; exit 6'", "never", 6)}[how]
    ini = {"service:w": {"command": command, "restart": restart, "on_fatal": "stop",
                         "restart_delay": "10ms", "restart_max": "3"},
           "service:other": {"command": "sleep 100"}}
    with Box(where, ini=ini, main=["sleep", "100"], ready=False) as box:
        assert box.wait() == code
        assert "service 'w'" in box.log()
        assert box.survivors() == []


ENDS = {"settled": ("sleep 1.1; exit 1", "exited with 1"), "at-once": ("exit 1", "exited with 1"),
        "good": ("exit 0", "exited with 0"), "signal": ("kill -SEGV $$", "killed by SIGSEGV"),
        "not-found": ("exit 127", "exited with 127")}


def test_case_X4_case_X5_the_state_says_how_it_ended_and_the_container_lives(kind):
    # given services that end in several ways, and one that is given up, none of which anybody needs,
    # then each says how it ended, was started once, and the container lives on
    ini = {f"service:{name}": {"command": f"sh -c '{run}'", "restart": "never"}
           for name, (run, _) in ENDS.items()}
    ini["service:w"] = {"command": "false", "restart_delay": "10ms", "restart_max": "2"}
    ini["service:other"] = {"command": "sleep 100"}
    with Box(kind, ini=ini) as box, Services(box) as services:
        for name, (_, words) in ENDS.items():
            assert services.wait(name, "exited")["message"] == words
            assert services.of(name).count("starting") == 1
            assert words in show(box, name)["detail"] and show(box, name)["state"] == "exited"
        services.wait("w", "fatal")
        assert services.of("w").count("starting") == 3
        assert box.is_alive and show(box, "other")["state"] == "running"
        assert box.stop() == 0
