"""Exit status of the container (tests 1, 2, 4, 5 of init-tests)."""

import pytest

from rig.box import Box, programs
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
