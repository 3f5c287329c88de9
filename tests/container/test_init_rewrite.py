"""Signals rewritten on their way to the main command (test 12 of init-tests), and which signals
stop a container."""

import signal
import subprocess

import pytest

from rig.box import Box, programs, read_stat
from rig.wait import wait_until

GRACE = {"stop_grace": "300ms"}
CATCH = ["catch", "all", "catch", "34,37,64", "say", "up", "forever"]


def main_of(*actions):
    return [str(programs() / "misbehave"), *actions]


def got(box):
    """What main got; not the URG of runc's own runtime, which it passes on."""
    return [l[4:] for l in box.log().splitlines() if l.startswith("got ") and l != "got URG"]


def up(box):
    wait_until(lambda: "up\n" in box.log(), 5, "the main command is up")


# what is configured, and what is sent -> what the main command gets (None: nothing)
SPECS = [
    ("INT:QUIT, QUIT:INT", {"INT": "QUIT", "QUIT": "INT"}),  # swapped pairs
    ("HUP:SYS, SYS:HUP", {"HUP": "SYS", "SYS": "HUP"}),  # lowest and highest of the old ones
    ("1:64, 64:1", {"HUP": "RT", 64: "HUP"}),  # and of all
    ("HUP:0, USR1 : 0", {"HUP": None, "USR1": None, "USR2": "USR2"}),  # dropped
    ("usr1:sigusr2", {"USR1": "USR2", "USR2": "USR2"}),
    ("USR1:USR2,USR2:INT", {"USR1": "USR2", "USR2": "INT"}),  # not a chain
    ("RTMIN+3:USR1", {37: "USR1", "USR2": "USR2"}),
    ("10:12", {"USR1": "USR2", "INT": "INT"}),
]


def number(sig):
    return sig if isinstance(sig, int) else getattr(signal, f"SIG{sig}")


@pytest.mark.parametrize("how", ["ini", "option"])
def test_init_12_rewriting(how):
    # given rewriting by the file or by options, when signals are sent one by one, then the main
    # command gets what they are rewritten to, each once and in order
    for spec, sent in SPECS:
        ini = {"init": dict(GRACE, rewrite=spec if how == "ini" else None)}
        pairs = spec.replace(" ", "").split(",")
        flags = [] if how == "ini" else [a for p in pairs for a in ("-r", p)]
        with Box("ns-root", ini=ini, flags=flags, main=main_of(*CATCH)) as box:
            up(box)
            want = []
            for sig, name in sent.items():
                box.signal(number(sig))
                want += [name] if name else []
                wait_until(lambda: len(got(box)) >= len(want), 5, lambda: f"{spec}: {got(box)}")
            assert got(box) == want, spec
            assert box.is_alive


@pytest.mark.parametrize("spec, want", [("TERM:QUIT", "QUIT"), ("TERM:INT, INT:TERM", "INT"),
                                        ("TERM:RTMIN+3", "RT")])
def test_init_12_a_term_that_begins_a_stop(kind, spec, want):
    # given a rewritten TERM, when init gets TERM, then the stop begins and main gets the other one
    main = main_of("catch", "all", "catch", "37", "say", "up", "until",
                   "37" if want == "RT" else want, "exit", "4")
    with Box(kind, ini={"init": {"rewrite": spec}}, main=main) as box:
        up(box)
        box.session("s")
        id, _ = box.start([box.helper, "catch", "TERM", "say", "up", "until", "TERM", "touch",
                           "told", "exit", "0"], "s", cwd=str(box.work))
        wait_until(lambda: box.logs(id).out, 5, "up")
        assert box.stop() == 4
        assert got(box) == [want]
        assert (box.work / "told").exists(), "a process gets TERM itself"


def test_init_12_sandboxctl_shutdown_is_rewritten_too():
    with Box("ns-root", ini={"init": {"rewrite": "TERM:USR1"}},
             main=main_of("catch", "USR1", "say", "up", "until", "USR1", "exit", "6")) as box:
        up(box)
        box.ctl_ok("shutdown")
        assert box.wait() == 6


def test_init_12_a_dropped_term_leaves_main_its_grace():
    with Box("ns-root", ini={"init": dict(GRACE, rewrite="TERM:0")}, main=main_of(*CATCH)) as box:
        up(box)
        assert box.stop() == 137
        assert got(box) == []


def test_init_12_term_to_kill():
    with Box("ns-root", ini={"init": {"rewrite": "TERM:KILL"}}, main=main_of(*CATCH)) as box:
        up(box)
        assert box.stop() == 137


def test_init_12_options_stand_above_the_file_and_a_reload_changes_it():
    ini = {"init": {"rewrite": "USR1:INT, USR2:INT"}}
    with Box("ns-root", ini=ini, flags=["--rewrite=USR1:QUIT"], main=main_of(*CATCH)) as box:
        up(box)
        for n, sig in enumerate((signal.SIGUSR1, signal.SIGUSR2), 1):
            box.signal(sig)
            wait_until(lambda: len(got(box)) == n, 5, "it arrives")
        ini["init"]["rewrite"] = "USR2:HUP"
        box.write_ini(ini)
        assert "[init] rewrite" in box.ctl_ok("reload").out.decode()
        for n, sig in enumerate((signal.SIGUSR1, signal.SIGUSR2), 3):
            box.signal(sig)
            wait_until(lambda: len(got(box)) == n, 5, "it arrives")
        assert got(box) == ["QUIT", "INT", "QUIT", "HUP"]


BAD = ["x", "15", "15:x", "1:32", "1:33", "32:1", "1:65", "0:1", "15:", ":15", "15:15:15", "15:-1",
       "KILL:TERM", "STOP:TERM", "CHLD:TERM", "TERM:INT,TERM:QUIT", "TERM:INT,", ",TERM:INT",
       "TERM=INT", "TERM:INT QUIT:HUP", "TERM:INT;QUIT:HUP"]


def test_init_12_bad_specifications():
    init = programs() / "sandbox-init"
    for spec in ["", *BAD]:
        r = subprocess.run([init, "-r", spec, "--", "true"], capture_output=True, text=True,
                           timeout=20, check=False)
        assert r.returncode == 2 and "usage: sandbox-init" in r.stderr, (spec, r)
        assert not spec or r.stderr.splitlines()[0].count(f"'{spec}'") <= 1, r
    r = subprocess.run([init, "-r", "TERM:INT", "-r", "TERM:QUIT", "--", "true"], timeout=20,
                       capture_output=True, text=True, check=False)
    assert r.returncode == 2 and "TERM" in r.stderr


def test_init_12_bad_specifications_in_the_file(tmp_path):
    for spec in ["", *BAD]:
        path = tmp_path / "x.ini"
        path.write_text(f"[init]\nlog_level = info\nrewrite = {spec}\n")
        r = subprocess.run([programs() / "sandbox-init", "--check", "-c", path], timeout=20,
                           capture_output=True, text=True, check=False)
        assert r.returncode == 1 and f"{path}:3: rewrite: " in r.stderr, (spec, r)


# ---- any STOPSIGNAL ---------------------------------------------------------------------------


@pytest.mark.parametrize("sig, ini", [
    ("TERM", {}), ("INT", {}), ("QUIT", {}), ("PWR", {}), (37, {}),  # 37: RTMIN+3, systemd's
    ("WINCH", {"rewrite": "WINCH:TERM"}), ("USR1", {"rewrite": "USR1:QUIT"}),
    ("TERM", {"rewrite": "TERM:0"}), ("INT", {"rewrite": "INT:USR1"}),
])
def test_stopsignal_without_a_main_command(sig, ini):
    with Box("ns-root", ini={"init": ini}) as box:
        box.signal(number(sig))
        assert box.wait(15) == 0


@pytest.mark.parametrize("sig, code", [("TERM", 143), ("INT", 130), ("QUIT", 131), ("HUP", 129),
                                       ("USR1", 138), ("PWR", 158), (37, 165), ("KILL", 137)])
def test_stopsignal_with_a_main_command(kind, sig, code):
    # given a main command with default dispositions, when the engine sends a stop signal, then main
    # gets it and the container's code tells which
    with Box(kind, main=["sleep", "100"]) as box:
        wait_until(lambda: box.find("sleep 100"), 5, "the main command")
        if sig == "KILL":
            box.signal(signal.SIGKILL, box.find("sleep 100")[0].pid)
        else:
            box.signal(number(sig))
        assert box.wait(15) == code


def test_a_suspended_main_command_is_not_told_when_tstp_is_dropped():
    with Box("ns-root", ini={"init": {"rewrite": "TSTP:0"}}, main=main_of("say", "up", "forever")) as box:
        up(box)
        p = box.find("say up")[0].pid
        box.signal(signal.SIGTSTP)
        box.signal(signal.SIGUSR2)  # after it: the end of main proves that both were handled
        assert box.wait(15) == 140 and read_stat(p) is None
