"""Exit status of the container (tests 1 to 5 of init-tests)."""

import subprocess

import pytest

from rig.box import PATH, Box, base, programs
from rig.wait import is_long, repeats


def test_init_01_every_code(kind):
    codes = range(256) if is_long() else (*range(0, 8), *range(120, 132), *range(250, 256))
    if not kind.startswith("ns") and not is_long():
        codes = (0, 1, 2, 126, 127, 128, 129, 137, 143, 255)
    print(f"{len(codes)} of 256 codes")
    m = str(programs() / "misbehave")
    for code in codes:
        with Box(kind, main=[m, "exit", code], ready=False) as box:
            assert box.wait() == code


@pytest.mark.parametrize("name, number", [("TERM", 15), ("HUP", 1), ("QUIT", 3), ("KILL", 9),
                                          ("SEGV", 11), ("PIPE", 13), ("ABRT", 6), ("34", 34),
                                          ("64", 64)])
def test_init_02_death_by_signal(kind, name, number):
    m = str(programs() / "misbehave")
    with Box(kind, main=[m, "die", name], ready=False) as box:
        assert box.wait() == 128 + number


@pytest.mark.parametrize("program, code, reason", [
    ("no-such-program-x", 127, ""), ("/no/such/path", 127, "No such file"),
    ("/etc", 126, ""), ("/etc/passwd", 126, "Permission denied"), ("./none", 127, "No such file"),
    ("", 127, ""),
])
def test_init_04_missing_and_not_executable(kind, program, code, reason):
    with Box(kind, main=[program], ready=False) as box:
        assert box.wait() == code
        assert program in box.log() and reason in box.log()


def test_init_04_a_script_whose_interpreter_is_missing(kind):
    with Box(kind, main=["sleep", "100"]) as box:
        script = box.work / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o755)
        r = box.exec([str(script)])
        assert r.status in (126, 127) and r.err


def test_init_05_an_orphan_s_code_never_wins(kind):
    m = str(programs() / "misbehave")
    for delay in ("0", "0.001", "0.003", "0.02"):
        for _ in range(repeats(20)):
            with Box(kind, main=[m, "daemon", "[", "exit", "9", "]", "daemon", "[", "sleep", delay,
                                 "exit", "8", "]", "sleep", delay, "exit", "5"],
                     ready=False) as box:
                assert box.wait() == 5


# Not the usual place: others look there for a socket.
OWN_PLACE = {"PATH": PATH, "SANDBOX_INIT_RUNTIME_DIR": str(base() / "ends")}


def ends(options, code):
    """The status of a plain init whose main command ends with code."""
    init = [str(programs() / "sandbox-init"), *map(str, options), "--", str(programs() / "misbehave"), "exit",
            str(code)]
    r = subprocess.run(init, capture_output=True, timeout=20, check=False, env=OWN_PLACE)
    return r.returncode


def test_init_03_a_mapped_code_and_all_others():
    # given a map for c, then c becomes 0 (tini's form) or what it says, every other code stays
    codes = range(256) if is_long() else (0, 1, 2, 3, 42, 126, 127, 128, 130, 143, 254, 255)
    print(f"{len(codes)} of 256 codes")
    for c in codes:
        other = (c + 1) % 256
        assert ends(["-e", c], c) == 0, c
        assert ends(["-e", f"{c}={other}"], c) == other, c
        assert ends(["-e", f"{c}=7"], other) == other, c


@pytest.mark.parametrize("options, code, want", [
    (["-e", "143=0", "-e", "130"], 143, 0), (["-e", "143=0", "-e", "130"], 130, 0),
    (["-e143"], 143, 0), (["--exit-code", "5=6", "--exit-code=6=5"], 5, 6),
    (["--exit-code", "5=6", "--exit-code=6=5"], 6, 5), (["-e", "5=6", "-e", "5=7"], 5, 7),
    (["-e", "0=3"], 0, 3), (["-e", "007=8"], 7, 8),
])
def test_init_03_forms_of_the_map(options, code, want):
    assert ends(options, code) == want


@pytest.mark.parametrize("value", ["", "=", "1=", "=1", "256", "0=256", "-1", "1=-1", "x", "1=x",
                                   "1=2=3", " 1", "1 ", "1,2", "+1", "0x1",
                                   "99999999999999999999"])
def test_init_03_bad_maps(value):
    for options in (["-e", value], [f"--exit-code={value}"], ["-e", "1", "-e", value]):
        r = subprocess.run([programs() / "sandbox-init", *options, "--", "true"],
                           capture_output=True, text=True, timeout=20, check=False)
        assert r.returncode == 2 and r.stdout == "", options
        assert f"'{value}'" in r.stderr and "usage: sandbox-init" in r.stderr, r.stderr


def test_init_03_nothing_behind_the_option():
    r = subprocess.run([programs() / "sandbox-init", "-e"], capture_output=True, text=True,
                       timeout=20, check=False)
    assert r.returncode == 2 and "usage: sandbox-init" in r.stderr


@pytest.mark.parametrize("options, main, want", [
    (["-e", "143"], ["sleep", "100"], 0),  # main dies by the stop's TERM
    (["-e", "143=3"], ["sleep", "100"], 3),
    (["-e", "127=0"], ["sleep", "100"], 143),
])
def test_init_03_the_map_of_a_stop(kind, options, main, want):
    with Box(kind, flags=options, main=main) as box:
        assert box.stop() == want


def test_init_03_a_program_that_is_missing():
    assert subprocess.run([programs() / "sandbox-init", "-e", "127=9", "--", "/no/such"],
                          capture_output=True, timeout=20, check=False, env=OWN_PLACE).returncode == 9


def test_init_03_no_main_command_nothing_to_map():
    with Box("ns-root", flags=["-e", "0=7"]) as box:
        assert box.stop() == 0
