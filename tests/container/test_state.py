"""What a session's state is: every kind of it, over every way that a shell is replaced or copied.

The table of what a shell cannot carry (LOST) is the one of sandboxctl(1), "State of a session".
"""

import errno
import json
import os
import subprocess

import pytest

from rig.box import Box, Session, programs, shell_path
from rig.places import make_session
from rig.verbs import fresh_name, make, refused
from rig.wait import repeats, wait_until

BASH, POSIX, ALL = ("bash",), ("dash", "ash"), ("bash", "dash", "ash")

# (name, shells, a text that sets it, a text that shows it, what that prints)
KINDS = [
    ("variable", ALL, "v='a b'", 'echo "$v"', "a b"),
    ("empty-variable", ALL, "n=", "echo ${n-unset}.", "."),
    ("exported-variable", ALL, "export E=1", "sh -c 'echo $E'", "1"),
    ("not-exported", ALL, "NE=1", "sh -c 'echo ${NE-unset}'", "unset"),
    ("unset-of-an-inherited-one", ALL, "unset HOME", "echo ${HOME-gone}", "gone"),
    ("newlines-and-quotes", ALL, "q=\"it's\n\\\"a\\\"\n\"", 'printf %s "$q" | tr "\\n" ,', "it's,\"a\","),
    ("odd-bytes", ALL, "b=$(printf '\\303\\033\\377')", "printf %s \"$b\" | od -An -tx1 | tr -d ' '",
     "c31bff"),
    ("large-variable", ALL, "big=$(head -c 100000 /dev/zero | tr '\\0' x)", "echo ${#big}", "100000"),
    ("readonly", ALL, "readonly R=5", "echo $R; (R=6) 2>/dev/null || echo no", "5\nno"),
    ("PATH", ALL, "PATH=$PATH:/x", "echo ${PATH##*:}", "/x"),
    ("IFS", ALL, "IFS=:", "w=a:b; echo $w", "a b"),
    ("PS4", ALL, "PS4='> '", 'echo "$PS4."', "> ."),
    ("OPTIND", ALL, "OPTIND=3", "echo $OPTIND", "3"),
    ("cwd", ALL, "cd /", "pwd", "/"),
    ("OLDPWD", ALL, "cd /dev; cd /", "echo $OLDPWD", "/dev"),
    ("parameters", ALL, "set -- 'a b' '' \"c'd\"", 'echo "$#-$1-$2-$3"', "3-a b--c'd"),
    ("umask", ALL, "umask 027", "umask | tail -c 4", "027"),
    ("soft-limit", ALL, "ulimit -S -n 77", "ulimit -S -n", "77"),
    ("hard-limit", ALL, "ulimit -H -n 999", "ulimit -H -n", "999"),
    ("core-limit", ALL, "ulimit -c 0", "ulimit -H -c", "0"),
    ("noglob", ALL, "set -f", "echo /de*", "/de*"),
    ("noclobber", ALL, "set -C", "case $- in *C*) echo C;; esac", "C"),
    ("nounset", ALL, "set -u", "case $- in *u*) echo u;; esac", "u"),
    ("allexport", ALL, "set -a", "case $- in *a*) echo a;; esac", "a"),
    ("alias", ALL, "alias ll='echo it'\"'\"'s'", "alias ll", None),
    ("trap", ALL, "trap 'echo usr' USR1", "kill -USR1 $$; :", "usr"),
    ("ignored-signal", ALL, "trap '' USR2", "kill -USR2 $$; echo on", "on"),
    ("function", ALL, "f() { echo f-$1; }", "f 2", "f-2"),
    ("descriptor", ALL, "exec 4>/dev/null", "echo x >&4 && echo on", "on"),
    ("last-status", ALL, "(exit 7)", "echo $?", "7"),
    ("background-pid", ALL, "sleep 0 & wait", "echo ${!:+known}", "known"),
    ("array", BASH, "a=(1 'x y' $'z\\n'); a[7]=7", 'echo "${#a[@]} ${a[1]}" ${!a[@]}', "4 x y 0 1 2 7"),
    ("associative-array", BASH, "declare -A m=([k 1]='v 1' [\"]\"]=2)", 'echo "${m[k 1]}${m["]"]}"', "v 12"),
    ("integer", BASH, "declare -i i=3", "i+=4; echo $i", "7"),
    ("lower-case", BASH, "declare -l low", "low=ABC; echo $low", "abc"),
    ("upper-case", BASH, "declare -u up", "up=abc; echo $up", "ABC"),
    ("nameref", BASH, "target=t; declare -n ref=target", "echo $ref", "t"),
    ("readonly-array", BASH, "declare -ra ra=(1 2)", "echo ${#ra[@]}", "2"),
    ("exported-integer", BASH, "declare -ix xi=5", "bash -c 'echo $xi'", "5"),
    ("extglob", BASH, "shopt -s extglob", "case ab in @(ab|cd)) echo m;; esac", "m"),
    ("nullglob", BASH, "shopt -s nullglob", "shopt -q nullglob && echo on", "on"),
    ("globstar", BASH, "shopt -s globstar", "shopt -q globstar && echo on", "on"),
    ("pipefail", BASH, "set -o pipefail", "false | true || echo failed", "failed"),
    ("errtrace", BASH, "set -E", "case $- in *E*) echo E;; esac", "E"),
    ("directory-stack", BASH, "pushd /dev >/dev/null; pushd / >/dev/null", "dirs -l -p | tr '\\n' ,",
     "/,/dev,/,"),
    ("exported-function", BASH, "xf() { echo xf; }; export -f xf", "bash -c xf", "xf"),
    ("function-with-heredoc", BASH, "h() { cat <<X\nin $1\nX\n}", "h here", "in here"),
    ("function-with-odd-name", BASH, "a-b.c() { echo odd; }", "a-b.c", "odd"),
    ("hashed-program", BASH, "hash -p /bin/true nosuch", "nosuch && echo on", "on"),
    ("expanded-alias", BASH, "shopt -s expand_aliases; alias hi='echo hello'", "hi", "hello"),
    ("disabled-builtin", BASH, "enable -n test", "type -t test", "file"),
    ("debug-trap", BASH, "trap 'echo dbg' DEBUG", "trap -p DEBUG | head -c 4", "trap"),
    ("err-trap", BASH, "trap 'echo err' ERR", "trap -p ERR | head -c 4", "trap"),
]
TEXT_ONLY = {"debug-trap", "err-trap"}  # they last for their text only
# What a new shell cannot be given.
LOST = {
    "bash": {"descriptor", "last-status", "background-pid", "disabled-builtin", "hashed-program"},
    "dash": {"descriptor", "last-status", "background-pid", "function"},
    "ash": {"descriptor", "last-status", "background-pid", "function"},
}


def kinds_of(shell):
    return [k for k in KINDS if shell in k[1]]


def fill(s):
    """Every kind, each by a command of its own; the ones that would hide others come last."""
    for name, _, text, _, _ in sorted(kinds_of(s.shell), key=lambda k: k[0] == "last-status"):
        r = s.run(text)
        assert r.status == (7 if name == "last-status" else 0), (name, r)
        assert not r.get("shell_restarted"), (name, r)


def missing(s, show):
    """Names of the kinds that are not there. show(text) gives what it prints."""
    lost = set()
    # $? is asked for first
    for name, _, _, text, want in sorted(kinds_of(s.shell), key=lambda k: k[0] != "last-status"):
        out = show(text)
        good = b"it" in out if want is None else out.decode("utf-8", "replace").strip() == want
        if not good:
            lost.add(name)
            print(name, out)
    return lost


def expected(shell):
    return LOST[shell] | (TEXT_ONLY if shell == "bash" else set())


@pytest.fixture(params=ALL)
def full(request, pool):
    """A session that has every kind of state."""
    s = make_session(pool.get("ns-root"), request.param)
    fill(s)
    yield s
    s.box.call("session.delete", name=s.name)


def test_the_list_is_long_enough():
    for shell in ALL:
        assert len(kinds_of(shell)) >= 30


def test_state_is_there_in_the_next_command(full):
    lost = missing(full, lambda text: full.exec(text).out)
    assert lost == (TEXT_ONLY if full.shell == "bash" else set())


def test_state_is_there_after_an_interrupt(full):
    r = full.run("sleep 300; v=changed", timeout=0.1)
    assert r["verdict"] == "timeout" and not r.get("shell_restarted"), r
    lost = missing(full, lambda text: full.exec(text).out)
    assert lost - {"last-status"} == (TEXT_ONLY if full.shell == "bash" else set())


@pytest.mark.parametrize("text, status", [("exit 0", 0), ("kill -TERM $$", 143), ("set -e; false", 1)])
def test_state_is_there_after_a_restart(full, text, status):
    r = full.run(text)
    assert (r.status, r.get("shell_restarted"), r.get("state_lost")) == (status, True, None), r
    lost = missing(full, lambda text: full.exec("set +e; " + text if status == 1 else text).out)
    assert lost - {"last-status"} == expected(full.shell) - {"last-status"}


def test_state_is_there_in_a_start(full):
    def show(text):
        id, _ = full.start(text)
        full.box.wait_process(id)
        return full.box.logs(id).out

    assert missing(full, show) == expected(full.shell)
    assert full.exec("echo $v").out == b"a b\n", "and nothing of it has changed here"
    assert missing(full, lambda text: full.exec(text).out) - {"last-status"} == (
        TEXT_ONLY if full.shell == "bash" else set())


def test_state_is_there_in_a_fork(full):
    b, n = full.box, fresh_name()
    assert b.ctl_ok("session", "fork", full.name, n).out == f"{n}\n".encode()
    fork = Session(b, n, full.shell)
    assert missing(fork, lambda text: fork.exec(text).out) == expected(full.shell)
    # and from here on each has its own
    fork.exec("v=other; cd /dev")
    assert full.exec("echo $v; pwd").out == b"a b\n/\n"
    b.call("session.delete", name=n)


def test_state_is_there_in_another_container(full, pool):
    # given a saved session, when its container is gone, then another one goes on with it
    b, n = full.box, fresh_name()
    file = b.work / f"{n}.state"
    assert b.ctl_ok("session", "save", full.name, file).triple == (0, b"", b"")
    assert file.stat().st_mode & 0o777 == 0o600 and not list(b.work.glob("*.part"))
    assert file.read_bytes().startswith(b"# sandbox-init state 1 " + full.shell.encode() + b"\n")
    other = pool.get("ns-user")
    other.ctl_ok("session", "create", n, "--shell", shell_path(full.shell), "--from", file)
    loaded = Session(other, n, full.shell)
    lost = missing(loaded, lambda text: loaded.exec(text).out)
    assert lost == expected(full.shell)
    other.call("session.delete", name=n)
    file.unlink()


# ---- fork, save, create --from ---------------------------------------------------------------


@pytest.fixture(params=ALL)
def t(request, pool):
    s = make_session(pool.get("ns-root"), request.param)
    yield s
    s.box.call("session.delete", name=s.name)


def sessions(box):
    return {r["name"] for r in box.call("session.list").rows}


def saved(s):
    """What `session save` writes to stdout."""
    r = s.box.ctl_ok("session", "save", s.name, "-")
    assert r.err == b""
    return r.out


def test_fork_takes_the_settings_along(one):
    n, m = fresh_name(), fresh_name()
    one.ctl_ok("session", "create", n, "--cwd", "/dev", "--env", "A=1", "--timeout", "300ms",
               "--shell", shell_path("dash"))
    one.exec("A=2; cd /; x=1", n, timeout=0)
    assert one.ctl_ok("session", "fork", n, m).out == m.encode() + b"\n"
    show = one.call("session.show", name=m).fields
    assert show["shell"] == shell_path("dash") and show["command_timeout_s"] == 0.3
    assert one.exec("echo $A $x; pwd; echo $SANDBOX_SESSION; sh -c 'echo $SANDBOX_SESSION'", m, timeout=0).out == (
        f"2 1\n/\n{m}\n{m}\n".encode())
    # a reset gives what the source began with
    one.ctl_ok("session", "reset", m)
    assert one.exec("echo $A ${x-no}; pwd; echo $SANDBOX_SESSION", m, timeout=0).out == f"1 no\n/dev\n{m}\n".encode()
    for each in (n, m):
        one.ctl_ok("session", "delete", each)


def test_fork_without_a_name_and_json(one, name):
    r = one.ctl_ok("session", "fork", name)
    made = r.out.decode().strip()
    assert made in sessions(one) and made != name
    assert one.ctl("session", "fork", "--json", name, "forked").out == b'{"name":"forked"}\n'
    for each in (made, "forked"):
        one.ctl_ok("session", "delete", each)


@pytest.mark.parametrize("args, words", [
    (["nosuch", "x1"], ["nosuch", "not found"]), (["@", "@"], ["already exists"]),
    (["@", "bad/name"], ["bad/name", "want 1 to 64"]), (["@", ""], ["want 1 to 64"]),
])
def test_fork_refused(one, name, args, words):
    before = sessions(one)
    refused(one.ctl("session", "fork", *[name if a == "@" else a for a in args]), *words)
    assert sessions(one) == before and one.exec("echo ok", name).out == b"ok\n"


def test_fork_and_save_wait_for_the_lock(t):
    # given a command that runs, when fork and save come, then each has the state that it left
    b = t.box
    os.mkfifo(t.path("go"))
    os.chown(t.path("go"), b.uid, b.uid)
    holder = b.ctl_spawn("exec", "-s", t.name, "echo in; read x <go; v=later; exit 0")
    wait_until(lambda: t.show()["state"] == "busy", 5, "it runs")
    fork = b.ctl_spawn("session", "fork", t.name, t.name + "f")
    wait_until(lambda: len(t.show().get("waiters", [])) == 1, 5, "fork waits")
    save = b.ctl_spawn("session", "save", t.name, "-")
    wait_until(lambda: len(t.show().get("waiters", [])) == 2, 5, "save waits")
    gone = b.ctl_spawn("session", "save", t.name, "-")
    wait_until(lambda: len(t.show().get("waiters", [])) == 3, 5, "another waits")
    gone.kill()
    gone.communicate()
    wait_until(lambda: len(t.show().get("waiters", [])) == 2, 5, "who leaves waits no longer")
    t.path("go").write_text("x\n")
    assert fork.communicate(timeout=30)[0] == t.name.encode() + b"f\n"
    out, err = save.communicate(timeout=30)
    assert save.returncode == 0 and b"later" in out and out.endswith(b"# end\n"), err
    holder.communicate(timeout=30)
    assert b.exec("echo $v", t.name + "f").out == b"later\n"
    b.call("session.delete", name=t.name + "f")


def test_fork_of_a_session_that_is_deleted_meanwhile(t):
    b = t.box
    holder = b.ctl_spawn("exec", "-s", t.name, "sleep 300")
    wait_until(lambda: t.show()["state"] == "busy", 5, "it runs")
    fork = b.ctl_spawn("session", "fork", t.name, t.name + "g")
    wait_until(lambda: len(t.show().get("waiters", [])) == 1, 5, "fork waits")
    b.call("session.delete", name=t.name)
    _, err = fork.communicate(timeout=30)
    assert fork.returncode == 1 and b"was deleted" in err
    holder.communicate(timeout=30)
    assert t.name + "g" not in sessions(b)
    b.session(t.name, shell=shell_path(t.shell))


def test_save_and_from_round_trip(t):
    # given a state that was saved and loaded, when it is saved again, then what the user can set is
    # the same
    t.exec("v='a b'; cd /dev; set -- 1 2; umask 077")
    b, n = t.box, fresh_name()
    first = saved(t)
    r = b.ctl("session", "create", n, "--shell", shell_path(t.shell), "--from", "-", input=first)
    assert r.triple == (0, f"{n}\n".encode(), b"")
    second = saved(Session(b, n, t.shell))
    of_user = (b"v=", b"declare -- v=", b"PWD=", b"declare -x PWD=", b"umask", b"\\umask", b"shopt ",
               b"builtin set ", b"\\set ", b"set ", b"! __sb_limit", b"builtin pushd")
    strip = lambda text: [l for l in text.split(b"\n") if l.startswith(of_user)]
    assert len(strip(first)) > 20
    assert strip(first) == strip(second)
    b.call("session.delete", name=n)


def test_from_with_wishes_of_its_own(t):
    t.exec("v=1; export A=old; cd /")
    b, n = t.box, fresh_name()
    b.ctl_ok("session", "create", n, "--shell", shell_path(t.shell), "--from", "-", "--cwd", "/dev",
             "--env", "A=it's", "--setup", "v=$((v + 1))", input=saved(t))
    assert b.exec("echo $v $A; pwd; sh -c 'echo $A'", n).out == b"2 it's\n/dev\nit's\n"
    b.call("session.delete", name=n)


def test_from_where_its_folder_is_not(t):
    d = t.path("gone")
    t.exec(f"mkdir {d}; cd {d}; v=1")
    state = saved(t)
    t.exec(f"cd /; rmdir {d}")
    b, n = t.box, fresh_name()
    b.ctl_ok("session", "create", n, "--shell", shell_path(t.shell), "--from", "-", input=state)
    r = b.exec('echo $v; [ "$PWD" = "$(/bin/pwd)" ] && echo agree', n)
    assert r.triple == (0, b"1\nagree\n", b"")
    b.call("session.delete", name=n)


def broken(state):
    head, _, rest = state.partition(b"\n")
    return [
        (b"", ["not a saved session"]), (b"echo hi\n", ["not a saved session"]),
        (rest, ["not a saved session"]), (state[:-2], ["cut off", "# end"]),
        (state[: len(state) // 2], ["cut off"]), (head + b"\n", ["cut off"]), (head, ["first line"]),
        (b"# sandbox-init state 1 \n" + rest, ["names no shell"]),
        (b"# sandbox-init state 1 " + b"x" * 5000 + b"\n" + rest, ["names no shell"]),
        (b"# sandbox-init state 1 zsh\n" + rest, ["zsh", "--shell"]),
        (head + b"\nx\0y\n" + rest, ["NUL byte at offset"]),
        (head + b"\nif true\n" + rest, ["to the end"]), (head + b"\nreturn 3\n" + rest, ["to the end"]),
        (head + b"\nexit 3\n" + rest, ["status 3"]), (head + b"\nkill -9 $$\n" + rest, ["SIGKILL"]),
        (head + b"\nx=$((\n" + rest, ["to the end"]),
    ]


def test_from_a_broken_file(t):
    # given a file that is none, or half of one, then the error names it, and there is no session
    b, state = t.box, saved(t)
    file = b.work / fresh_name()
    before = sessions(b)
    for content, words in broken(state):
        file.write_bytes(content)
        print(content[:60])
        r = b.ctl("session", "create", "half", "--shell", shell_path(t.shell), "--from", file)
        refused(r, file, *words)
        assert sessions(b) == before, content[:60]
    file.unlink()
    assert b"No such file" in b.ctl("session", "create", "half", "--from", file).err
    assert t.exec("echo ok").out == b"ok\n"


def test_from_another_shell(pool):
    b = pool.get("ns-root")
    s = make_session(b, "dash")
    state = saved(s)
    for other in ("bash", "ash"):
        refused(b.ctl("session", "create", "half", "--shell", shell_path(other), "--from", "-",
                      input=state), "dash", other, "--shell")
    assert "half" not in sessions(b)
    b.call("session.delete", name=s.name)


def test_save_of_a_large_state(pool):
    # given states on both sides of the limit, then one is saved and loaded, the other refused
    with Box("ns-root", ini={"init": {"text_limit": "2M"}}) as b:
        s = make_session(b, "bash")
        s.exec("x=$(head -c 1500000 /dev/zero | tr '\\0' x)")
        state = saved(s)
        assert len(state) > 1500000
        b.ctl_ok("session", "create", "loaded", "--from", "-", input=state)
        assert b.exec("echo ${#x}", "loaded").out == b"1500000\n"
        s.exec("y=$x")
        refused(b.ctl("session", "save", s.name, "-"), s.name, "text_limit is 2097152")
        refused(b.ctl("session", "fork", s.name, "big"), s.name, "text_limit is 2097152")
        assert sessions(b) == {s.name, "loaded"}
        assert s.exec("echo ${#y}").out == b"1500000\n", "it is unharmed"
        r = s.run("exit 4")
        assert r.status == 4 and not r.get("state_lost")
        assert s.exec("echo ${#y}").out == b"1500000\n"


def test_save_to_a_client_that_does_not_read(pool):
    # given clients that read nothing, or leave, then init and the session go on
    with Box("ns-root", ini={"init": {"client_stall": "3s"}}) as b:
        s = make_session(b, "bash")
        s.exec("x=$(head -c 8000000 /dev/zero | tr '\\0' x)")
        w = [b.connect() for _ in range(3)]
        for each in w:
            each.request("session.save", [("name", s.name)])
        assert s.exec("echo on").out == b"on\n"
        w[0].close()
        wait_until(lambda: b.status()["connections"] <= 1, 10, "stalled clients are dropped")
        for each in w[1:]:
            each.close()
        assert len(saved(s)) > 8000000


@pytest.mark.parametrize("target, word", [
    ("/nonexistent/d/f", "No such file"), ("/dev/full", "No space left"), ("/", ""), ("", "")])
def test_save_where_it_cannot_be_written(one, name, target, word):
    r = one.ctl("session", "save", name, target)
    assert r.status == 1 and r.out == b"" and word.encode() in r.err and target.encode() in r.err
    assert one.exec("echo on", name).out == b"on\n"


def test_save_keeps_the_old_file_when_it_fails(one, name):
    file = one.work / fresh_name()
    file.write_text("old")
    refused(one.ctl("session", "save", "nosuch", file), "nosuch", "not found")
    assert file.read_text() == "old" and not list(one.work.glob("*.part"))
    one.ctl_ok("session", "save", name, file)
    assert file.read_bytes().endswith(b"# end\n")
    r = one.ctl_ok("session", "save", "--json", name, file)
    assert b'"shell":"bash"' in r.out
    file.unlink()


def test_fork_as_another_user():
    with Box("ns-root") as b:
        s = make_session(b, "bash", user="nobody")
        os.chown(s.work, 65534, 65534)
        s.exec("v=1")
        b.ctl_ok("session", "fork", s.name, "f")
        assert b.exec("id -u; echo $v; pwd", "f").out == f"65534\n1\n{s.work}\n".encode()


def test_a_bash_that_is_called_otherwise():
    # given links to bash, of which one is called sh, from a folder whose file system is not that of
    # /usr, then processes have the session's state, and a new shell has it
    with Box("ns-root", ini={}) as box:
        (box.work / "shells").mkdir()
        for name, target in (("sh", "/bin/bash"), ("shells/sh", "../sh"), ("other", "shells/sh")):
            (box.work / name).symlink_to(target)
            s = box.session(shell=box.work / name)
            assert box.exec("V=1; f() { echo $V.$1; }", s).status == 0
            id, _ = box.start("f a", s)
            assert box.wait_process(id)["status"] == 0 and box.logs(id).out == b"1.a\n"
            assert box.exec("exit 3", s).status == 3
            assert box.exec("f b", s).triple == (0, b"1.b\n", b"")


def keeps_functions(box, session):
    """What only bash's driver can."""
    box.exec("V=1; f() { echo $V.$1; }; exit 0", session)
    return box.exec("f b", session).triple == (0, b"1.b\n", b"")


@pytest.mark.parametrize("before", [(), ("openat2", errno.ENOSYS), ("openat2", errno.EPERM)])
def test_a_shell_on_another_mount_is_known_whatever_it_is_called(before):
    # given links called sh that lie on another mount, to shells there and elsewhere; then each is known
    # for what it is, also to states that it can begin with, and after a restart and a reset
    before = before and [str(programs() / "misbehave"), "refuse", before[0], str(before[1]), "exec"]
    with Box("ns-root", ini={}, before=before) as box:
        there = box.work / "there"
        there.mkdir()
        for mount in (["-t", "tmpfs", "there", there], ["--bind", "/usr", "/usr"]):
            subprocess.run(["nsenter", f"--target={box.init_pid}", "--mount", "mount", *mount], check=True)
        assert keeps_functions(box, box.session(shell="/bin/bash"))
        assert not keeps_functions(box, box.session(shell="/bin/dash"))
        box.exec(f"cd {there} && cp /bin/bash bash5 && ln -s bash5 sh && ln -s /bin/dash other")
        bash = box.session(shell=there / "sh")
        assert box.exec("echo $0 ${BASH_VERSION+bash}", bash).out == b"bash bash\n"
        assert not keeps_functions(box, box.session(shell=there / "other"))
        for name in ("sh", "other"):
            s = box.session(shell=there / name)
            box.exec("x=1; exit 0", s)
            assert box.exec("echo $x", s).out == b"1\n"
            box.ctl_ok("session", "reset", s)
            assert box.exec("echo [$x]", s).out == b"[]\n"
        box.exec("y=2", bash)
        state = box.ctl_ok("session", "save", bash, "-").out
        for shell in ("/bin/bash", there / "sh"):
            box.ctl_ok("session", "create", "loaded", "--shell", shell, "--from", "-", input=state)
            assert box.exec("echo $y", "loaded").out == b"2\n"
            box.ctl_ok("session", "delete", "loaded")
        box.ctl_ok("session", "fork", bash, "forked")
        assert keeps_functions(box, "forked")
        refused(box.ctl("session", "create", "half", "--shell", there / "other", "--from", "-", input=state),
                "saved by bash", "dash", "--shell")
        assert "half" not in sessions(box)


def test_state_is_kept_by_a_text_of_a_whole_second(pool):
    # given sessions whose texts end in the very moment in which init looks, once a second, whether
    # a silent shell still carries out its orders, then none of them is taken for deaf
    box = pool.get("ns-root")
    sessions = [make_session(box, shell) for shell in ALL * 4]
    for s in sessions:
        assert s.exec("V=1").status == 0
    for i in range(repeats(40)):
        wires = [box.connect() for _ in sessions]
        for k, (w, s) in enumerate(zip(wires, sessions)):
            w.request("exec", [("session", s.name)], f"sleep {0.99 + 0.001 * (k + i % 4 / 4):.5f}")
        for w in wires:
            assert w.finish().status == 0
            w.close()
    for s in sessions:
        assert s.exec("echo $V").out == b"1\n"
        assert box.call("session.show", name=s.name)["restarts"] == 0
        box.call("session.delete", name=s.name)


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
@pytest.mark.parametrize("text, defines", [
    ("f(){ :; }", True),
    ("f ( ) { :; }", True),
    ("echo 'f() { :; }' >lib; . ./lib", True),
    ("eval 'f() ''{ :; }'", True),
    ("x=$(echo 1; (exit 0)); y=$((1 + 2)); find . -name nothing", False),
])
def test_functions_that_a_new_shell_does_not_get_are_told(one, shell, text, defines):
    # given a text that defines a function, or none; when a text ends the shell; then it is told what is lost,
    # once, and nothing where there was nothing to lose
    is_lost = shell != "bash" and defines
    name = make(one, "--shell", shell_path(shell))
    one.ctl_ok("exec", "-s", name, f"{text}; v=1")
    r = one.ctl("exec", "--json", "-s", name, "exit 3")
    d = json.loads(r.out)
    assert (d["status"], d["state"], d.get("functions_lost", False)) == (3, "restored", is_lost), d
    assert "state_lost" not in d
    assert one.ctl_ok("exec", "-s", name, "echo $v").out == b"1\n"
    assert "functions_lost" not in json.loads(one.ctl("exec", "--json", "-s", name, "exit 3").out)
    # and a person reads it
    one.ctl_ok("exec", "-s", name, text)
    r = one.ctl("exec", "-s", name, "exit 3")
    assert (r.status, r.err) == (3, b"sandboxctl: the session has a new shell; its state was restored, but no "
                                    b"functions (only bash can pass them on)\n" if is_lost else b""), r
    one.call("session.delete", name=name)
