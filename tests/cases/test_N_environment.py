"""N. Environment names and values."""

import pytest

VALUES = ["a\n touch {pwn}\n#", "'; touch {pwn}; '", '"; touch {pwn}; "', "$(touch {pwn})",
          "`touch {pwn}`", "a'b", "''", "\\", "\\'", "x\\\ny", "\n", " ", "", "a\tb", "\r",
          "\u00e9\U0001f600", "!", "*", "~", "%s", "a=b", "=", "\x01\x7f", "' '\"'\"'", "$'x'",
          "${x}", "}", "#", ";", "&& touch {pwn}", "\\\\'", "'\\''"]


def test_case_N1_values_are_data(s):
    # given a value that would be commands if it were ever pasted into shell text, when a call has
    # it, then it arrives byte for byte and nothing has run, now or later
    pwn = s.path("pwn")
    for value in VALUES:
        value = value.replace("{pwn}", str(pwn))
        r = s.exec('printf %s "$X"', env={"X": value})
        assert r.triple == (0, value.encode(), b""), value
    assert s.exec("true").status == 0
    id, _ = s.start('printf %s "$X"', env={"X": f"a\n touch {pwn}\n#"})
    s.box.wait_process(id)
    assert s.box.logs(id).out == f"a\n touch {pwn}\n#".encode()
    assert not pwn.exists()


def test_case_N1_values_of_the_session(s):
    pwn = s.path("pwn")
    for value in VALUES:
        value = value.replace("{pwn}", str(pwn))
        s.box.ctl_ok("session", "env", s.name, f"X={value}")
        assert s.exec('printf %s "$X"').triple == (0, value.encode(), b""), value
        assert s.exec("env | grep -c ^X=").out == b"1\n"
    s.box.ctl_ok("session", "env", s.name, "-X")
    assert s.exec("echo ${X-unset}").out == b"unset\n"
    assert not pwn.exists()


def test_case_N1_values_set_by_the_text_survive_start(s):
    pwn = s.path("pwn")
    s.exec(f"export X='a\n touch {pwn}\n#'; Y='b'\\''; touch {pwn}'; export Y")
    id, _ = s.start('printf "%s|%s" "$X" "$Y"')
    s.box.wait_process(id)
    assert s.box.logs(id).out == f"a\n touch {pwn}\n#|b'; touch {pwn}".encode()
    assert not pwn.exists()


@pytest.mark.parametrize("name", ["A;touch {p2};B", "A B", "1X", "", "A-B", "A\nB", "$(touch {p2})",
                                  "A[0]", "\u00e9", "A.B", "-x", "`touch {p2}`"])
def test_case_N2_bad_names(s, name):
    p2 = s.path("p2")
    name = name.replace("{p2}", str(p2))
    r = s.exec("echo ran", env={name: "1"})
    if r.status == 0:  # as data, where it is legal for execve
        assert r.out == b"ran\n"
    else:
        assert r.status in (125, 2, 64) and r.out == b"", r
        assert name.encode() in r.err or not name or "\n" in name, r.err
    r = s.box.ctl("session", "env", s.name, f"{name}=1")
    assert r.status != 0 or name.startswith("-")
    assert not p2.exists()
    assert s.exec("echo next").triple == (0, b"next\n", b"")
    assert not p2.exists()


@pytest.mark.parametrize("env", [{"PATH": "/nowhere"}, {"IFS": "aeiou/0123456789"},
                                 {"BASH_ENV": "{f}", "ENV": "{f}"},
                                 {"LD_PRELOAD": "/nowhere.so"}, {"HOME": "/nowhere"},
                                 {"PS4": "$(touch {p3})"}, {"PROMPT_COMMAND": "touch {p3}"},
                                 {"SHELLOPTS": "xtrace"}, {"TMPDIR": "/nowhere"},
                                 {"CDPATH": "/tmp:/"}, {"GLOBIGNORE": "*"}, {"POSIXLY_CORRECT": "1"}],
                         ids=lambda e: next(iter(e)))
def test_case_N2_names_that_shells_and_loaders_know(s, env):
    # given such a variable, when a call or a session has it, then our own machinery works on
    p3, f = s.path("p3"), s.path("f")
    f.write_text(f"touch {p3}\n")
    env = {k: v.replace("{f}", str(f)).replace("{p3}", str(p3)) for k, v in env.items()}
    s.exec("echo x", env=env, deadline=10)
    r = s.exec("echo next; (exit 3)", deadline=10)
    assert r.triple == (3, b"next\n", b"")
    for k, v in env.items():
        s.box.ctl("session", "env", s.name, f"{k}={v}")
    r = s.exec("echo inside; (exit 4)", deadline=10)
    assert (r.status, r.out) == (4, b"inside\n"), r
    id, _ = s.start("echo bg")
    assert s.box.wait_process(id)["status"] == 0


def test_case_N4_the_call_s_own_environment(s):
    assert s.exec("echo $Z", env={"Z": "1"}).out == b"1\n"
    assert s.exec("echo [$Z]").out == b"[]\n"
    id, _ = s.start("env", env={"Z": "2"})
    s.box.wait_process(id)
    assert b"\nZ=2\n" in b"\n" + s.box.logs(id).out
    # an argv, and a fresh shell
    assert b"Z=3" in s.exec(["env"], env={"Z": "3"}).out.split(b"\n")
    assert s.box.exec("echo $Z", env={"Z": "4"}).out == b"4\n"


def test_case_N4_the_old_value_comes_back(s):
    # exported, not exported, and unset before
    s.exec("export A=old; B=plain; unset C")
    r = s.exec("echo $A $B $C; sh -c 'echo $A $B $C'", env={"A": "1", "B": "2", "C": "3"})
    assert r.out == b"1 2 3\n1 2 3\n"
    r = s.exec("echo $A $B ${C-unset}; sh -c 'echo $A ${B-unset} ${C-unset}'")
    assert r.out == b"old plain unset\nold unset unset\n"


def test_case_N4_many_and_large(s):
    r = s.exec("echo $V1 $V200", env={f"V{i}": i for i in range(1, 201)})
    assert r.out == b"1 200\n"
    big = "x" * 100_000
    a = s.run('printf %s "$BIG"', env={"BIG": big})
    assert a.out == big.encode()
    assert s.exec("echo ${V1-unset} ${BIG-unset}").out == b"unset unset\n"


def test_case_N4_session_environment_at_creation(s):
    from rig.places import make_session

    t = make_session(s.box, s.shell, env=["K=a b", "L=c'd"])
    assert t.exec("echo $K $L; sh -c 'echo $K'").out == b"a b c'd\na b\n"
    s.box.call("session.delete", name=t.name)
