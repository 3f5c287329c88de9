"""Z. Config file (ini) surprises, seen from outside: what a service gets of what the file says, and
what is said of a file with a fault. (Each rule by itself: tests/unit/test_config*.c.)"""

import subprocess

import pytest

from rig.box import KINDS, PATH, ROOT, Box, programs
from rig.wait import wait_until

# Writes its arguments and $V to a file of its name, one a line.
TELL = "printf \"%s\\n\" \"$@\" \"V=$V\" >@WORK@/$NAME.new; mv @WORK@/$NAME.new @WORK@/$NAME"


def service(name, args, v=None, section=""):
    """A oneshot that tells what it got."""
    lines = [f"[service:{name}]", "type = oneshot", f"command = sh -c '{TELL}' {name} {args}",
             f"env.NAME = {name}", section]
    return "\n".join(lines + ([f"env.V = {v}"] if v is not None else [])) + "\n"


# name: (the words behind the program, the value of env.V, what the service sees)
CASES = {
    "z1-percent": ("%s %% date +%s:%S 100%", "a%b%2F", ["%s", "%%", "date", "+%s:%S", "100%", "V=a%b%2F"]),
    "z1-braces": ("%(x)s ${HOME} $$ {{a}}", "%(ENV_X)s ${y}", ["%(x)s", "${HOME}", "$$", "{{a}}",
                                                               "V=%(ENV_X)s ${y}"]),
    "z2-semicolon": ("'while : ; do echo x; done' a ;b", "x ;y # z",
                     ["while : ; do echo x; done", "a", ";b", "V=x ;y # z"]),
    "z2-hash": ("#fff 'a # b' c#d", "#fff", ["#fff", "a # b", "c#d", "V=#fff"]),
    "z4-path": ("P=/a/b_c.d /usr/bin:/bin /", "/a/b_c.d", ["P=/a/b_c.d", "/usr/bin:/bin", "/",
                                                          "V=/a/b_c.d"]),
    "z4-equals": ("a=b=c = ==", "=x=y", ["a=b=c", "=", "==", "V==x=y"]),
    "z5-main": ("%%1 $x \\\\", "%%x ;y \"q\" $z", ["%%1", "$x", "\\", "V=%%x ;y \"q\" $z"]),
    "z8-long": ("x" * 30000, "y" * 30000, ["x" * 30000, "V=" + "y" * 30000]),
    "z8-lines": ("a\n  b\n\tc \\\n  d", "1\n  2\n\n  3", ["a", "b", "c", "d", "V=1", "2", "", "3"]),
}


@pytest.fixture(scope="module", params=KINDS)
def told(request):
    """{name: lines} of what each service of one file has seen."""
    text = "[init]\nruntime_dir = @RUN@\n" + "".join(service(n, a, v) for n, (a, v, _) in CASES.items())
    text = "\ufeff" + text + "[include]\nfiles = @WORK@/conf.d/*.ini"
    args, v, _ = CASES["z5-main"]
    included = service("z5-included", args, v).replace("\n", "\r\n").encode()
    # the included file is made by what runs before init
    write = "mkdir conf.d; printf %s \"$1\" | sed \"s|@WORK@|$PWD|g\" >conf.d/a.ini; shift; exec \"$@\""
    with Box(request.param, ini=text, before=["sh", "-c", write, "sh", included.decode()]) as box:
        names = [*CASES, "z5-included"]
        wait_until(lambda: all((box.work / n).exists() for n in names), 20,
                   lambda: f"{[n for n in names if not (box.work / n).exists()]}: {box.log()[-3000:]}")
        yield {n: (box.work / n).read_text().splitlines() for n in names}


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("z1")])
def test_case_Z1_percent_reaches_a_service_as_it_is(told, name):
    assert told[name] == CASES[name][2]


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("z2")])
def test_case_Z2_comment_signs_in_the_words_of_a_service(told, name):
    assert told[name] == CASES[name][2]


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("z4")])
def test_case_Z4_values_are_whole(told, name):
    assert told[name] == CASES[name][2]


def test_case_Z5_one_value_in_main_and_included_file(told):
    assert told["z5-main"] == told["z5-included"] == CASES["z5-main"][2]


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("z8")])
def test_case_Z8_bom_cr_and_long_lines(told, name):
    assert told[name] == CASES[name][2]


# ---- files with a fault ----------------------------------------------------------------------


def init(*args):
    return subprocess.run([programs() / "sandbox-init", *map(str, args)], capture_output=True,
                          timeout=20, env={"PATH": PATH}, cwd="/", check=False)


@pytest.mark.parametrize("text, included, complaint", [
    ("[service:a]\ncommand = x\n[include]\nfiles = conf.d/*\n", "[service:a]\ncommand = y\n",
     "@/conf.d/b.ini:1: duplicate section [service:a]; first given at @/main.ini:1"),
    ("[include]\nfiles = conf.d/b.ini\n[init]\n", "\n[service:a]\ncommand=x\n[init]\n",
     "@/conf.d/b.ini:4: duplicate section [init]; first given at @/main.ini:3"),
    ("[service:a]\ncommand = x\n\n[service:a]\ncommand = y\n", None,
     "@/main.ini:4: duplicate section [service:a]; first given at line 1"),
    ("[service:a]\ncommand = x\ncommand = y\n", None,
     "@/main.ini:3: duplicate key 'command' in [service:a]; first given at line 2"),
    ("[include]\nfiles = conf.d/b.ini\n[service:a]\ncommand = x\nafter = b\n",
     "[service:b]\ncommand = x\nrequires = a\n", "@/conf.d/b.ini:3: requires: a cycle: a -> b -> a"),
])
def test_case_Z7_both_places_are_named(tmp_path, text, included, complaint):
    (tmp_path / "conf.d").mkdir()
    main = tmp_path / "main.ini"
    main.write_text(text)
    if included:
        (tmp_path / "conf.d/b.ini").write_text(included)
    r = init("--check", "-c", main)
    assert (r.returncode, r.stdout) == (1, b"")
    assert r.stderr.decode() == f"sandbox-init: {complaint}\n".replace("@", str(tmp_path))


@pytest.mark.parametrize("tail, complaint", [
    (b"command = \0\n", b"3: the line holds a NUL byte"),
    (b"env.A = " + b"x" * (1 << 20), b"3: the line is longer than 64K"),
    (b"\xef\xbb\xbfrestart = always", b"3: bad key '\xef\xbb\xbfrestart'"),
    (b"requires = b", b"3: requires: there is no [service:b]"),
])
@pytest.mark.parametrize("is_included", [False, True])
def test_case_Z8_nothing_of_a_bad_file_is_started(tmp_path, tail, complaint, is_included):
    """Not even what stands before the fault, nor the main command."""
    trace, main, bad = tmp_path / "trace", tmp_path / "main.ini", tmp_path / "bad.ini"
    bad.write_bytes(f"[service:a]\ncommand = touch {trace}\n".encode() + tail)
    main.write_text("[include]\nfiles = bad.ini\n")
    for args in (["--check"], []):
        r = init("-c", main if is_included else bad, *args, *([] if args else ["--", "touch", trace]))
        assert r.returncode == 1 and r.stdout == b"", r
        assert r.stderr.startswith(f"sandbox-init: {bad}:".encode() + complaint), r.stderr
        assert r.stderr.count(b"\n") == 1 and not trace.exists()


def test_case_Z7_a_reload_of_a_bad_included_file_changes_nothing():
    # given a service that runs, and a file that it is not in
    text = ("[init]\nruntime_dir = @RUN@\n[include]\nfiles = work/*.ini\n[service:a]\n"
            "command = sh -c 'echo $$ >>@WORK@/starts; exec sleep 600'\n")
    with Box(ini=text) as box:
        starts, extra = box.work / "starts", box.work / "b.ini"
        wait_until(lambda: starts.exists() and starts.read_text(), 10, "the service")
        for bad, complaint in (
                ("[service:b]\ncommand = touch @/b\n[service:a]\ncommand = x\n",
                 "b.ini:3: duplicate section [service:a]; first given at"),
                ("[service:b]\ncommand = touch @/b\nrequires = c\n", "b.ini:3: requires: there is no"),
                ("[service:b]\ncommand = 'touch @/b\n", "b.ini:2: command: a single quote (') is not"),
                ("[include]\nfiles = ../sandbox.ini\n", "a file includes itself")):
            extra.write_text(bad.replace("@", str(box.work)))
            r = box.ctl("reload")
            # then the complaint names both, nothing is started and nothing restarted
            assert r.status == 1 and complaint in r.err.decode(), r
        # and the next good file is taken
        extra.write_text(f"[service:b]\ncommand = touch {box.work}/b\n")
        box.ctl_ok("reload")
        wait_until((box.work / "b").exists, 10, "the new one")
        assert len(starts.read_text().splitlines()) == 1


def test_case_Z8_the_example_is_valid_with_all_its_keys(tmp_path):
    file = tmp_path / "all.ini"
    lines = (ROOT / "sandbox.ini.example").read_text().splitlines()
    text = "\n".join(l[1:] if l[:1] == "#" and l[1:2] not in ("", " ") else l for l in lines)
    token = "/run/secrets/sandbox-token"
    assert token in text
    (tmp_path / "token").write_text("t0ken\n")
    file.write_text(text.replace(token, str(tmp_path / "token")))
    r = init("--check", "-c", file)
    assert (r.returncode, r.stdout, r.stderr) == (0, b"configuration is valid\n", b"")
