"""Every verb and option of sandboxctl against the real program: what it prints, what it ends with,
and what is so in the box afterwards."""

import itertools
import json
import os
import re
import signal
import subprocess

import pytest

from rig.box import Box, shell_path
from rig.wait import wait_until

_numbers = itertools.count(1)

EXEC_KEYS = {"id", "verdict", "status", "duration_s", "stdout_bytes", "stderr_bytes"}
SESSION_KEYS = {"name", "state", "shell", "cwd", "pid", "queue", "strays", "uptime_s"}
PS_KEYS = {"id", "session", "pid", "kind", "state", "text", "uptime_s", "strays"}


def fresh_name():
    return f"v{next(_numbers)}"


@pytest.fixture
def one(pool):
    b = pool.get("ns-root")
    yield b
    assert b.is_alive, f"init ended with {b.wait(1)}; log: {b.log()[-2000:]}"


def make(box, *options):
    """A session with a folder of its own."""
    name = fresh_name()
    work = box.work / name
    work.mkdir()
    os.chown(work, box.uid, box.uid)
    box.ctl_ok("session", "create", name, "--cwd", work, *options)
    return name


@pytest.fixture
def name(one):
    n = make(one)
    yield n
    one.call("session.delete", name=n, check=False)


def data(box, *args, status=0, **kw):
    """What a verb prints with --json; the verb ends with `status`."""
    r = box.ctl(*args[:1], "--json", *args[1:], **kw) if args[0] != "session" else box.ctl(
        *args[:2], "--json", *args[2:], **kw)
    assert r.status == status, (args, r)
    return json.loads(r.out)


def refused(r, *words, status=1):
    """The verb printed nothing but one line on stderr that has all the words."""
    assert r.status == status and r.out == b"", r
    lines = r.err.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("sandboxctl"), r
    for w in words:
        assert str(w) in lines[0], (w, lines[0])
    return lines[0]


def show(box, session):
    return data(box, "session", "show", session)


def nap(box):
    """`sleep` with a number that nothing else in the box has."""
    return f"sleep {700 + next(_numbers)}.{os.getpid()}"


def is_running(box, session):
    wait_until(lambda: show(box, session)["state"] == "busy", 5, f"{session} is busy")


def start(box, *args, **kw):
    """(id, pid) as start prints them."""
    r = box.ctl_ok("start", *args, **kw)
    m = re.fullmatch(rb"(\S+) (\d+)\n", r.out)
    assert m and r.err == b"", r
    return m.group(1).decode(), int(m.group(2))


def end(p, deadline=15):
    """(status, stdout, stderr) of a Popen."""
    try:
        out, err = p.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        p.kill()
        raise
    return p.returncode, out, err


# ---- session create --------------------------------------------------------------------------


def test_create_prints_the_name(one):
    n = fresh_name()
    assert one.ctl("session", "create", n).triple == (0, f"{n}\n".encode(), b"")
    r = one.ctl("session", "create")
    generated = r.out.decode().strip()
    assert r.status == 0 and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", generated)
    listed = [row["name"] for row in data(one, "session", "list")]
    assert n in listed and generated in listed
    for each in (n, generated):
        assert one.ctl("session", "delete", each).triple == (0, b"", b"")
    assert n not in [row["name"] for row in data(one, "session", "list")]


def test_create_json(one):
    n = fresh_name()
    assert data(one, "session", "create", n) == {"name": n}
    one.ctl_ok("session", "delete", n)


def test_create_options(box):
    # given a session with every option, when commands run, then each holds
    n = fresh_name()
    work = box.work / f"{n} with blanks"
    work.mkdir()
    os.chown(work, box.uid, box.uid)
    box.ctl_ok("session", "create", n, "--cwd", work, "--env", "A=1 2", "-e", "B=", "--env", "A=3=4",
               "--timeout", "300ms", "--shell", shell_path("dash"))
    r = box.exec("pwd; printf '%s|%s|%s\\n' \"$A\" \"$B\" \"${B-unset}\"", n)
    assert r.triple == (0, f"{work}\n3=4||\n".encode(), b"")
    assert box.exec("sh -c 'echo $A'", n).out == b"3=4\n", "it is exported"
    r = box.exec("sleep 60", n, deadline=10)
    assert r.status == 124 and r.seconds < 5
    assert box.exec("sleep 0.5; echo longer", n, timeout=9).out == b"longer\n", "a call's own wins"
    assert box.exec("sleep 0.5; echo longer", n, timeout=0).out == b"longer\n", "0 is no limit"
    s = show(box, n)
    assert s["shell"] == shell_path("dash") and s["cwd"] == str(work)
    assert s["command_timeout_s"] == 0.3 and s["is_configured"] is False
    box.ctl_ok("session", "delete", n)


@pytest.mark.parametrize("options, status, words", [
    (["--cwd", "/nonexistent/d"], 1, ["/nonexistent/d", "No such file or directory"]),
    (["--cwd", "/etc/passwd"], 1, ["/etc/passwd", "Not a directory"]),
    (["--cwd", "relative"], 1, ["relative", "absolute"]),
    (["--cwd", ""], 1, ["cwd"]),
    (["--shell", "/nonexistent/sh"], 1, ["/nonexistent/sh", "No such file or directory"]),
    (["--shell", "/etc/passwd"], 1, ["/etc/passwd", "Permission denied"]),
    (["--shell", "bash"], 1, ["bash", "absolute"]),
    (["--shell", "/bin/false"], 1, ["/bin/false", "ended before it was ready", "status 1"]),
    (["--shell", "/bin/true"], 1, ["/bin/true", "ended before it was ready", "status 0"]),
    (["--user", "nobody-at-all"], 1, ["nobody-at-all", "/etc/passwd"]),
])
def test_create_refused(one, options, status, words):
    n = fresh_name()
    line = refused(one.ctl("session", "create", n, *options, deadline=10), *words, status=status)
    assert "wait status" not in line
    # nothing of it stays: the name is free, and its folder is gone
    assert n not in [row["name"] for row in data(one, "session", "list")]
    one.ctl_ok("session", "create", n)
    one.ctl_ok("session", "delete", n)


def test_create_with_a_program_that_never_becomes_a_shell(one):
    # given a program that just reads, when it is to be the shell, then the client hears of it
    n = fresh_name()
    refused(one.ctl("session", "create", n, "--shell", "/bin/cat", deadline=20), "/bin/cat",
            "ready")
    assert n not in [row["name"] for row in data(one, "session", "list")]


@pytest.mark.parametrize("options, word", [
    (["--env", "1A=x"], "1A=x"), (["--env", "A"], "'A'"), (["--env", "=x"], "=x"),
    (["--timeout", "5"], "5"), (["--timeout", "soon"], "soon"), (["--timeout", "-1s"], "-1s"),
    (["--colour", "x"], "--colour"), (["--cwd"], "needs a value"),
])
def test_create_usage(one, options, word):
    r = one.ctl("session", "create", fresh_name(), *options)
    assert r.status == 2 and word in r.err.decode() and "--help" in r.err.decode()


@pytest.mark.parametrize("bad", ["", ".x", "_x", "a/b", "a b", "a" * 65, "ä", "a\n", "..", "a;b"])
def test_create_bad_name(one, bad):
    refused(one.ctl("session", "create", bad), "name", "A-Z a-z 0-9")


def test_create_longest_name(one):
    n = "L" * 64
    assert one.ctl("session", "create", n).out == n.encode() + b"\n"
    assert one.exec("echo $SANDBOX_SESSION", n).out == n.encode() + b"\n"
    refused(one.ctl("session", "create", n), n, "already exists")
    one.ctl_ok("session", "delete", n)


# ---- session list, show ----------------------------------------------------------------------


def test_list(one, name):
    head, *rows = one.ctl_ok("session", "list").lines
    assert head.split() == ["NAME", "STATE", "PID", "WAITING", "STRAYS", "UPTIME", "SHELL",
                            "DIRECTORY"]
    mine = [r.split() for r in rows if r.split()[0] == name]
    assert len(mine) == 1 and mine[0][1] == "idle" and mine[0][-1] == str(one.work / name)
    rows = data(one, "session", "list")
    assert all(set(r) == SESSION_KEYS for r in rows)
    assert [r["pid"] for r in rows if r["name"] == name] == [show(one, name)["pid"]]


def test_show_follows_the_shell(one, name):
    one.exec("cd /usr", name)
    s = show(one, name)
    assert s["cwd"] == "/usr" and s["state"] == "idle" and SESSION_KEYS <= set(s)
    assert "running" not in s and "waiters" not in s
    assert f"cwd: /usr\n" in one.ctl_ok("session", "show", name).out.decode()
    assert f"SANDBOX_SESSION={name}" in s["env"], "the environment of a fresh shell"


def test_show_running_and_waiters_in_order(one, name):
    # given a command that runs and three that wait
    text = f"{nap(one)} # the text"
    clients = [one.ctl_spawn("exec", "-s", name, text)]
    is_running(one, name)
    for i in range(3):
        clients.append(one.ctl_spawn("exec", "-s", name, f"echo {i}"))
        wait_until(lambda: show(one, name)["queue"] == i + 1, 5, "it waits")
    # then show tells all of it
    s = show(one, name)
    assert s["state"] == "busy" and s["running_text"] == text and 0 < s["running_s"] < 60
    assert len(s["waiters"]) == 3
    assert [int(w[1:]) for w in s["waiters"]] == sorted(int(w[1:]) for w in s["waiters"])
    row = [r for r in data(one, "ps", "-s", name) if r["id"] == s["running"]]
    assert row and row[0]["kind"] == "command" and row[0]["text"] == text
    lines = one.ctl_ok("session", "show", name).out.decode()
    assert "waiters:\n" + "".join(f"  {w}\n" for w in s["waiters"]) in lines
    # when the command is killed, then the others run
    one.ctl_ok("kill", "--running", name)
    assert end(clients[0])[0] == 137
    assert [end(c)[:2] for c in clients[1:]] == [(0, f"{i}\n".encode()) for i in range(3)]


@pytest.mark.parametrize("verb", ["show", "delete", "reset"])
def test_unknown_session(one, verb):
    refused(one.ctl("session", verb, "nowhere"), "session 'nowhere'", "not found")
    r = one.ctl("session", verb)
    assert r.status == 2 and b"too few arguments" in r.err
    r = one.ctl("session", verb, "--json", "nowhere")
    assert r.status == 1 and json.loads(r.out)["error"]["code"] == "not_found"


@pytest.mark.parametrize("args, status", [
    (["exec", "-s", "nowhere", "true"], 125), (["start", "-s", "nowhere", "true"], 1),
    (["ps", "-s", "nowhere"], 1), (["ps", "--tree", "-s", "nowhere"], 1),
    (["kill-all", "-s", "nowhere"], 1), (["kill", "--running", "nowhere"], 1),
    (["session", "env", "nowhere", "A=1"], 1),
])
def test_unknown_session_elsewhere(one, args, status):
    refused(one.ctl(*args), "session 'nowhere'", "not found", status=status)


# ---- session delete --------------------------------------------------------------------------


def test_delete_leaves_nothing(box):
    # given a session with a running command, a child left behind, a daemon and a process
    n = make(box)
    naps = [nap(box) for _ in range(4)]
    box.exec(f"{naps[0]} & ( setsid {naps[1]} & )", n)
    id, _ = start(box, "-s", n, naps[2])
    waiter = box.ctl_spawn("wait", id)
    client = box.ctl_spawn("exec", "-s", n, f"{naps[3]}; echo not reached")
    for each in naps:
        wait_until(lambda: box.find(each), 5, each)
    # when it is deleted, then all of it is gone when the verb returns
    d = data(box, "session", "delete", n)
    assert d["name"] == n and d["killed"] >= 5 and "survivors" not in d
    assert [p.command for each in naps for p in box.find(each)] == []
    status, out, err = end(client)
    assert (status, out) == (137, b"") and f"session '{n}' was deleted" in err.decode()
    for status, out, err in (end(waiter), box.ctl("wait", id).triple):
        assert (status, out) == (137, b"") and f"session '{n}' was deleted" in err.decode()
    refused(box.ctl("session", "show", n), "not found")
    assert list(box.run.glob(f"**/*{n}*")) == []


def test_delete_refuses_the_waiters(one):
    # given a command that runs and two that wait
    n = make(one)
    clients = [one.ctl_spawn("exec", "-s", n, nap(one))]
    is_running(one, n)
    for _ in range(2):
        clients.append(one.ctl_spawn("exec", "-s", n, "echo never"))
    starter = one.ctl_spawn("start", "-s", n, "echo never")
    wait_until(lambda: show(one, n)["queue"] == 3, 5, "they wait")
    # when the session is deleted, then they hear why and end with 125: they never ran
    one.ctl_ok("session", "delete", n)
    assert end(clients[0])[0] == 137
    for c in clients[1:]:
        status, out, err = end(c)
        assert (status, out) == (125, b"") and f"session '{n}' was deleted" in err.decode()
    status, out, err = end(starter)
    assert (status, out) == (1, b"") and f"session '{n}' was deleted" in err.decode()


def test_delete_while_being_deleted(one):
    # given a session whose command ignores TERM, when it is deleted twice, then both end well
    n = make(one)
    client = one.ctl_spawn("exec", "-s", n, f"trap '' TERM; sh -c \"trap '' TERM; {nap(one)}\"")
    is_running(one, n)
    wait_until(lambda: len(one.find("trap '' TERM")) >= 1, 5, "the trap")
    first = one.ctl_spawn("session", "delete", n)
    wait_until(lambda: one.ctl("session", "show", n).status == 1, 5, "it is being deleted")
    r = one.ctl("session", "create", n)
    if r.status == 0:  # the first was over already
        one.ctl_ok("session", "delete", n)
    else:
        refused(r, n, "being deleted")
    assert end(first)[0] == 0 and end(client)[0] == 137


# ---- session reset ---------------------------------------------------------------------------


def test_reset(box):
    # given a session with state, a child, a process and its own settings
    n = fresh_name()
    box.ctl_ok("session", "create", n, "--env", "KEEP=yes", "--cwd", box.work)
    naps = [nap(box), nap(box)]
    box.exec(f"cd /; X=1; f() {{ :; }}; umask 077; set -u; KEEP=no; {naps[0]} &", n)
    start(box, "-s", n, naps[1])
    for each in naps:
        wait_until(lambda: box.find(each), 5, each)
    pid = show(box, n)["pid"]
    # when it is reset, then its shell is as new, its settings hold, and nothing old lives
    assert box.ctl("session", "reset", n).triple == (0, b"", b"")
    assert [p.command for each in naps for p in box.find(each)] == []
    r = box.exec("pwd; echo ${X-unset} $KEEP; umask; type f >/dev/null 2>&1 || echo no f", n)
    assert r.triple == (0, f"{box.work}\nunset yes\n0022\nno f\n".encode(), b"")
    assert show(box, n)["pid"] != pid
    assert set(data(box, "session", "reset", n)) == {"name", "killed"}
    box.ctl_ok("session", "delete", n)


def test_reset_while_commands_run_and_wait(one, name):
    # given a command that runs and one that waits, when the session is reset, then the first is
    # over with a word on why, and the other runs in the fresh shell
    client = one.ctl_spawn("exec", "-s", name, f"X=1; {nap(one)}; echo no")
    is_running(one, name)
    waiter = one.ctl_spawn("exec", "-s", name, "echo ${X-fresh}")
    wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
    one.ctl_ok("session", "reset", name)
    status, out, err = end(client)
    assert (status, out) == (137, b"") and f"session '{name}' was reset" in err.decode()
    assert end(waiter) == (0, b"fresh\n", b"")


def test_reset_that_finds_no_fresh_shell(one):
    # given a session whose first folder is gone, when it is reset, then that is told, and what was
    # in it is gone all the same; when the folder is back, then so is the session
    n = make(one)
    mark = nap(one)
    one.exec(f"cd /; {mark} &", n)
    (one.work / n).rmdir()
    refused(one.ctl("session", "reset", n), one.work / n, "No such file or directory")
    assert not one.find(mark) and show(one, n)["state"] == "failed"
    refused(one.ctl("exec", "-s", n, "true"), one.work / n, "No such file", status=125)
    (one.work / n).mkdir()
    assert one.ctl("session", "reset", n).triple == (0, b"", b"")
    assert one.exec("pwd", n).out == f"{one.work / n}\n".encode()
    one.ctl_ok("session", "delete", n)


@pytest.mark.parametrize("shell", ["dash", "ash"])
def test_start_in_other_shells(one, shell):
    # (functions and arrays are bash's)
    n = make(one, "--shell", shell_path(shell))
    one.exec("cd /usr; export E='ex ported'; P='plain'; umask 027", n)
    id, _ = start(one, "-s", n, "pwd; umask; echo \"$P\"; sh -c 'echo \"$E\" ${P-unset}'")
    assert one.ctl("wait", id).status == 0
    assert one.ctl("logs", id).triple == (0, b"/usr\n0027\nplain\nex ported unset\n", b"")
    one.ctl_ok("session", "delete", n)


def test_configured_session_is_reset_not_deleted():
    with Box(ini={"session:dev": {"env.A": "1"}}) as box:
        wait_until(lambda: show(box, "dev")["state"] == "idle", 5, "it is there")
        assert show(box, "dev")["is_configured"] is True
        refused(box.ctl("session", "delete", "dev"), "session 'dev'", "configuration", "reset")
        refused(box.ctl("session", "create", "dev"), "session 'dev'", "already exists")
        box.exec("A=2; B=3", "dev")
        box.ctl_ok("session", "reset", "dev")
        assert box.exec("echo $A${B-}", "dev").out == b"1\n"


# ---- session env -----------------------------------------------------------------------------


def test_env_of_a_live_session(one, name):
    assert one.ctl("session", "env", name, "A=1", "B=two words", "C='$x`\"\nnl").triple == (
        0, b"", b"")
    assert one.exec("printf '%s|%s|%s' \"$A\" \"$B\" \"$C\"; sh -c 'printf \"|%s\" \"$A\"'",
                    name).out == b"1|two words|'$x`\"\nnl|1"
    one.ctl_ok("session", "env", name, "-A", "B=2")
    assert one.exec("echo ${A-unset} $B", name).out == b"unset 2\n"
    # what was set is what a fresh shell begins with, too
    one.ctl_ok("session", "reset", name)
    assert one.exec("echo ${A-unset} $B", name).out == b"unset 2\n"
    lines = one.ctl_ok("session", "env", name).lines
    assert "B=2" in lines and not [l for l in lines if l.startswith("A=")]
    d = data(one, "session", "env", name)
    assert d["name"] == name and "B=2" in d["env"]
    # a process of the session has it
    id, _ = start(one, "-s", name, "echo $B")
    assert one.ctl("wait", id).status == 0 and one.ctl("logs", id).out == b"2\n"


def test_env_for_all_sessions_to_come():
    with Box() as box:
        old, new = make(box), None
        assert box.ctl("session", "env", "ALL=1", "-HOME").triple == (0, b"", b"")
        new = make(box)
        seen = "echo ${ALL-unset} ${HOME+home}"
        assert box.exec(seen, old).out == b"unset home\n", "live sessions keep theirs"
        assert box.exec(seen, new).out == b"1\n" and box.exec(seen).out == b"1\n"
        box.ctl_ok("session", "env", "-ALL")
        assert box.exec(seen, make(box)).out == b"unset\n"
        assert box.exec(seen, new).out == b"1\n"


@pytest.mark.parametrize("args, word", [
    ([], "too few"), (["{n}", "1A=x"], "1A"), (["{n}", "-1A"], "1A"), (["{n}", "A"], "'A'"),
    (["{n}", "A=1", "other"], "'other'"), (["{n}", "--A"], "--A"),
])
def test_env_usage(one, name, args, word):
    r = one.ctl("session", "env", *(a.format(n=name) for a in args))
    assert r.status == 2 and word in r.err.decode()


def test_env_of_a_readonly_variable(one, name):
    # given a variable that the session made readonly, when it is to be set, then that is said,
    # and the session goes on
    one.exec("readonly R=1", name)
    r = one.ctl("session", "env", name, "R=2")
    assert r.status == 1 and b"R" in r.err and r.out == b"", r
    assert one.exec("echo $R", name).out == b"1\n"
    assert "R=2" not in show(one, name)["env"], "what was refused is not remembered either"


def test_env_waits_for_its_turn(one, name):
    client = one.ctl_spawn("exec", "-s", name, f"{nap(one)}")
    is_running(one, name)
    env = one.ctl_spawn("session", "env", name, "LATE=1")
    wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
    one.ctl_ok("kill", "--running", name)
    assert end(client)[0] == 137 and end(env) == (0, b"", b"")
    assert one.exec("echo $LATE", name).out == b"1\n"


# ---- exec in a session -----------------------------------------------------------------------


def test_exec_sources(box):
    # TEXT, -- ARGV, -f FILE, -f -, -
    n = make(box)
    text = "X=$((X + 1)); echo \"$X 'q' \\\"\"; (exit 7)"
    file = box.work / "text"
    file.write_text(text)
    for i, r in enumerate([
        box.ctl("exec", "-s", n, text),
        box.ctl("exec", "-s", n, "-f", file),
        box.ctl("exec", "-s", n, f"--file={file}"),
        box.ctl("exec", "-s", n, "-f", "-", input=text),
        box.ctl("exec", "-s", n, "-", input=text),
        box.ctl("exec", f"-s{n}", text),
        box.ctl("exec", text, "--session", n),
    ]):
        assert r.triple == (7, f"{i + 1} 'q' \"\n".encode(), b"")
    r = box.ctl("exec", "-s", n, "--", "printf", "%s|", "$X", "a b", "", "*", "-n", "'", "é\n")
    assert r.triple == (0, "$X|a b||*|-n|'|é\n|".encode(), b"")
    assert box.ctl("exec", "-s", n, "--", "sh", "-c", "exit 3").status == 3
    r = box.ctl("exec", "-s", n, "--", "/nonexistent/p", "x")
    assert r.status == 127 and b"/nonexistent/p" in r.err
    # builtins and functions are programs here
    assert box.ctl("exec", "-s", n, "--", "cd", "/usr").status == 0
    assert box.exec("pwd", n).out == b"/usr\n"
    box.ctl_ok("session", "delete", n)


def test_exec_empty_text_and_file(one, name):
    (one.work / "empty").write_text("")
    for args in (["", ], ["-f", one.work / "empty"], ["-f", "/dev/null"]):
        assert one.ctl("exec", "-s", name, *args).triple == (0, b"", b"")
    assert one.ctl("exec", "-s", name, "-", input=b"").triple == (0, b"", b"")


@pytest.mark.parametrize("options, word", [
    (["-f", "/nonexistent/t"], "/nonexistent/t: No such file or directory"),
    (["-f", "/"], "/: Is a directory"), (["-f", "/etc/passwd", "true"], "more than one"),
    (["true", "--", "true"], "more than one"), (["a", "b"], "quote it"), ([], "no command"),
    (["--env", "x", "true"], "NAME=VALUE"), (["--timeout", "1", "true"], "duration"),
    (["--stdin", "-"], "stdin can't be both"), (["-x", "true"], "-x"),
])
def test_exec_usage_is_125(one, name, options, word):
    r = one.ctl("exec", "-s", name, *options)
    assert r.status == 125 and word in r.err.decode() and r.out == b"", r


def test_exec_cwd_and_env_are_the_calls_own(box):
    n = make(box)
    sub = box.work / n / "sub"
    sub.mkdir()
    os.chown(sub, box.uid, box.uid)
    box.exec("V=session; export W=session", n)
    seen = "printf '%s ' \"$(pwd)\" $V $W ${N-unset}; sh -c 'echo ${V-unset} $W ${N-unset}'"
    r = box.ctl("exec", "-s", n, "--cwd", "/usr", "--env", "V=call", "-e", "W=call", "--env=N=x y",
                seen)
    assert r.out == b"/usr call call x y call call x y\n"
    r = box.ctl("exec", "-s", n, "--cwd", "sub", seen)
    assert r.out == f"{sub} session session unset unset session unset\n".encode(), "relative"
    assert box.ctl("exec", "-s", n, "--cwd", "sub/../sub/.", "--", "pwd").status == 0
    # none of it stays
    assert box.exec(seen, n).out == (
        f"{box.work / n} session session unset unset session unset\n".encode())
    for cwd, why in (("/nonexistent/d", "No such file or directory"), ("nope", "No such file"),
                     ("/etc/passwd", "Not a directory"), ("", "empty")):
        refused(box.ctl("exec", "-s", n, "--cwd", cwd, "echo never"), "cwd", cwd, why, status=125)
    d = data(box, "exec", "-s", n, "--cwd", "/nonexistent/d", "echo never", status=125)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "cwd", 2)
    if box.kind == "ns-user":
        refused(box.ctl("exec", "-s", n, "--cwd", "/root", "pwd"), "/root", "Permission denied",
                status=125)
    assert box.exec("pwd", n).out == f"{box.work / n}\n".encode()
    box.ctl_ok("session", "delete", n)


def test_exec_timeout(box):
    n = make(box)
    mark = nap(box)
    box.exec("X=kept", n)
    r = box.ctl("exec", "-s", n, "--timeout", "200ms", f"echo before; {mark}; echo after")
    assert (r.status, r.out) == (124, b"before\n") and r.seconds < 5 and not box.find(mark)
    d = data(box, "exec", "-s", n, "-t", "200ms", f"{mark}", status=124)
    assert d["verdict"] == "timeout" and d["status"] == 124
    assert box.exec("echo $X", n).out == b"kept\n"
    box.ctl_ok("session", "delete", n)


def test_exec_stdin(box):
    # without --stdin the command is at end of file; with it every byte comes, both ways at once
    n = make(box)
    assert box.ctl("exec", "-s", n, "cat; echo end", input=b"not seen").out == b"end\n"
    body = os.urandom(3 << 20) + bytes(range(256))
    assert box.exec("cat", n, stdin=body).triple == (0, body, b"")
    assert box.ctl("exec", "-s", n, "--stdin", "--", "cat", input=body).triple == (0, body, b"")
    r = box.exec("tee /dev/fd/2", n, stdin=body[:300_000])
    assert r.triple == (0, body[:300_000], body[:300_000])
    # a command that does not read all of it ends all the same
    r = box.exec("head -c 5; echo; echo done", n, stdin=body, deadline=15)
    assert r.triple == (0, body[:5] + b"\ndone\n", b"")
    assert box.exec("read x; echo \"$x\"; cat", n, stdin=b"a\nb\nc").out == b"a\nb\nc"
    assert box.exec("cat", n, stdin=b"").triple == (0, b"", b"")
    box.ctl_ok("session", "delete", n)


def test_exec_json(one, name):
    d = data(one, "exec", "-s", name, "printf 'é\\n'; echo err >&2; (exit 3)", status=3)
    assert EXEC_KEYS <= set(d)
    assert (d["stdout"], d["stderr"], d["status"], d["verdict"]) == ("é\n", "err\n", 3, "exited")
    assert (d["stdout_bytes"], d["stderr_bytes"]) == (3, 4)
    d = data(one, "exec", "-s", name, "printf '\\377\\000'")
    assert d["stdout_base64"] == "/wA=" and "stdout" not in d
    d = data(one, "exec", "-s", name, f"{nap(one)} &")
    assert len(d["strays"]) == 1 and re.fullmatch(r"\d+ \w+", d["strays"][0])
    d = data(one, "exec", "-s", "nowhere", "true", status=125)
    assert d["error"]["code"] == "not_found"


@pytest.mark.parametrize("sig, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exec_interrupted(one, name, sig, status):
    # Ctrl-C ends the command, not the session; what it says on the way is shown
    mark = nap(one)
    client = one.ctl_spawn("exec", "-s", name,
                           f"X=1; sh -c 'trap \"echo bye; exit\" TERM; {mark} & wait'; echo no")
    wait_until(lambda: one.find(mark), 5, "it runs")
    client.send_signal(sig)
    got, out, _ = end(client)
    assert (got, out) == (status, b"bye\n")
    assert not one.find(mark)
    assert one.exec("echo $X", name).out == b"1\n"


def test_exec_says_what_became_of_the_shell(one, name):
    one.exec("X=1", name)
    d = data(one, "exec", "-s", name, "exit 9", status=9)
    assert d["shell_restarted"] is True and "state_lost" not in d
    assert one.exec("echo $X", name).out == b"1\n"
    d = data(one, "exec", "-s", name, "kill -9 $$", status=137)
    assert d["shell_restarted"] is True and d["state_lost"] is True and d["signal"] == "SIGKILL"


# ---- exec without a session ------------------------------------------------------------------


def test_stateless_exec(box):
    assert box.ctl("exec", "X=1; echo ${X}; (exit 4)").triple == (4, b"1\n", b"")
    assert box.ctl("exec", "echo ${X-fresh} ${SANDBOX_SESSION-none}").out == b"fresh none\n"
    r = box.ctl("exec", "--cwd", "/usr", "--env", "A=x y", "--", "sh", "-c", "pwd; echo \"$A\"")
    assert r.triple == (0, b"/usr\nx y\n", b"")
    assert box.ctl("exec", "--cwd", "/usr", "-e", "A=z", "pwd; echo $A").out == b"/usr\nz\n"
    # relative: to where init was started
    (box.work / "rel").mkdir(exist_ok=True)
    assert box.ctl("exec", "pwd").out == f"{box.work}\n".encode()
    assert box.ctl("exec", "--cwd", "rel", "pwd").out == f"{box.work / 'rel'}\n".encode()
    assert box.ctl("exec", "--cwd", "rel", "--", "pwd").out == f"{box.work / 'rel'}\n".encode()
    mark = nap(box)
    r = box.ctl("exec", "--timeout", "200ms", f"echo a; {mark}; echo b")
    assert (r.status, r.out) == (124, b"a\n") and not box.find(mark)
    body = os.urandom(1 << 20)
    assert box.exec("cat", stdin=body).triple == (0, body, b"")
    assert box.exec(["cat"], stdin=body).triple == (0, body, b"")
    assert box.ctl("exec", "cat; echo end", input=b"x").out == b"end\n"
    assert box.ctl("exec", "-f", "-", input=b"echo from-stdin").out == b"from-stdin\n"
    for args in (["true"], ["--", "true"]):
        refused(box.ctl("exec", "--cwd", "/nonexistent/d", *args), "/nonexistent/d",
                "No such file or directory", status=125)
    refused(box.ctl("exec", "--cwd", "", "true"), "cwd", status=125)
    refused(box.ctl("exec", "--", "nonexistent-program"), "nonexistent-program",
            "No such file or directory", status=127)
    refused(box.ctl("exec", "--", "/etc/passwd"), "/etc/passwd", "Permission denied", status=126)
    assert [r for r in data(box, "ps") if r["kind"] == "exec"] == [], "none stays listed"


def test_stateless_exec_is_seen_and_killed(one):
    mark = nap(one)
    client = one.ctl_spawn("exec", f"echo x; {mark}")
    wait_until(lambda: one.find(mark), 5, "it runs")
    row = wait_until(lambda: [r for r in data(one, "ps") if mark in r["text"]], 5, "it is listed")[0]
    assert row["kind"] == "exec" and row["state"] == "running" and row["session"] == ""
    assert one.ctl("kill", row["id"]).triple == (0, b"", b"")
    assert end(client)[:2] == (137, b"x\n") and not one.find(mark)


def test_stateless_exec_json(one):
    d = data(one, "exec", "echo a; echo b >&2; exit 2", status=2)
    assert EXEC_KEYS <= set(d) and (d["stdout"], d["stderr"]) == ("a\n", "b\n")
    d = data(one, "exec", "--", "nonexistent-program", status=127)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "exec", 2)


# ---- start -----------------------------------------------------------------------------------


def test_start_has_the_state_of_its_session(box):
    n = make(box)
    box.exec("cd /usr; export E=exported; P='plain value'; f() { echo \"f $1 $P\"; }\n"
             "a=(one 'two three'); declare -A m=([k]='v w'); alias ll='echo aliased'; umask 027", n)
    id, pid = start(box, "-s", n, "pwd; echo $E; echo $P; f x; echo \"${a[1]} ${m[k]}\"; umask\n"
                                  "sh -c 'echo ${E-unset} ${P-unset}'; echo e >&2; P=changed; cd /")
    assert pid > 0
    assert box.ctl("wait", id).triple == (0, b"", b"")
    assert box.ctl("logs", id).triple == (
        0, b"/usr\nexported\nplain value\nf x plain value\ntwo three v w\n0027\nexported unset\n",
        b"e\n")
    assert box.exec("echo $PWD $P", n).out == b"/usr plain value\n", "its own changes are its own"
    # a call's cwd and variables are that process's; a relative one is the session's
    id, _ = start(box, "-s", n, "--cwd", "bin", "--env", "E=call", "-e", "P=p2", "pwd; echo $E; f y")
    box.ctl_ok("wait", id)
    assert box.ctl("logs", id).out == b"/usr/bin\ncall\nf y p2\n"
    # an argv
    id, _ = start(box, "-s", n, "--", "printf", "%s|", "$E", "a b")
    box.ctl_ok("wait", id)
    assert box.ctl("logs", id).out == b"$E|a b|"
    box.ctl_ok("session", "delete", n)


def test_start_without_session(box):
    id, _ = start(box, "--cwd", "/usr", "--env", "A=1", "pwd; echo $A; exit 5")
    assert box.ctl("wait", id).status == 5
    assert box.ctl("logs", id).out == b"/usr\n1\n"
    id, _ = start(box, "--", "sh", "-c", "exit 6")
    assert box.ctl("wait", id).status == 6
    text = box.work / f"text{fresh_name()}"
    text.write_text("echo file\n")
    for args, kw in ((["-f", text], {}), (["-"], {"input": "echo file"})):
        id, _ = start(box, *args, **kw)
        assert box.ctl("wait", id).status == 0 and box.ctl("logs", id).out == b"file\n"


def test_start_releases_the_lock(one, name):
    id, pid = start(one, "-s", name, nap(one))
    assert one.exec("echo free", name).out == b"free\n"
    assert show(one, name)["state"] == "idle"
    row = [r for r in data(one, "ps", "-s", name) if r["id"] == id][0]
    assert PS_KEYS <= set(row) and row["pid"] == pid and row["state"] == "running"
    one.ctl_ok("kill", id)


def test_start_id(one, name):
    mine = fresh_name()
    assert start(one, "--id", mine, "-s", name, nap(one))[0] == mine
    refused(one.ctl("start", "--id", mine, "true"), f"'{mine}'", "already exists")
    one.ctl_ok("kill", mine)
    refused(one.ctl("start", "--id", mine, "true"), f"'{mine}'", "already exists")
    for bad in ("", "a b", ".x", "x" * 65, "a/b"):
        refused(one.ctl("start", "--id", bad, "true"), "process id", "A-Z a-z 0-9")
    assert set(data(one, "start", "true")) == {"id", "pid"}


@pytest.mark.parametrize("where", ["session", "stateless"])
def test_start_refused(one, name, where):
    at = ["-s", name] if where == "session" else []
    for args, words in (
        (["--", "nonexistent-program"], ["nonexistent-program", "No such file or directory"]),
        (["--", "/etc/passwd"], ["/etc/passwd", "Permission denied"]),
        (["--cwd", "/nonexistent/d", "true"], ["/nonexistent/d", "No such file or directory"]),
        (["--cwd", "", "true"], ["cwd"]),
    ):
        r = one.ctl("start", *at, *args)
        if where == "session" and r.status == 0:
            # the session's shell looks for the program: its status and words tell
            id = r.out.split()[0].decode()
            status = one.ctl("wait", id).status
            assert status == (126 if "/etc/passwd" in args else 127 if args[0] == "--" else 125)
            assert all(w in (one.ctl("logs", id).err + one.ctl("wait", id).err).decode()
                       or w == "No such file or directory" and status == 127 for w in words)
        else:
            refused(r, *words)
    r = one.ctl("start", *at)
    assert r.status == 2 and b"no command" in r.err


# ---- send ------------------------------------------------------------------------------------


def test_send(box):
    n = make(box)
    for at in (["-s", n], []):
        id, _ = start(box, *at, "--stdin", "while read -r x; do echo \"<$x>\"; done; echo end")
        assert box.ctl("send", id, input=b"one\ntwo\n").triple == (0, b"", b"")
        wait_until(lambda: box.ctl("logs", id).out == b"<one>\n<two>\n", 5, "both lines")
        assert data(box, "send", id, input=b"three\n") == {"bytes": 6}
        assert box.ctl("send", id, "--eof", input=b"four").triple == (0, b"", b"")
        assert box.ctl("wait", id).status == 0
        assert box.ctl("logs", id).out == b"<one>\n<two>\n<three>\nend\n"
        refused(box.ctl("send", id, input=b"late"), id, "already exited")
    body = os.urandom(2 << 20)
    id, _ = start(box, "-s", n, "--stdin", "sha256sum")
    box.ctl_ok("send", "--eof", id, input=body)
    box.ctl_ok("wait", id)
    import hashlib
    assert box.ctl("logs", id).out.split()[0].decode() == hashlib.sha256(body).hexdigest()
    id, _ = start(box, "-s", n, "cat; echo end")
    assert box.ctl("wait", id).status == 0, "without --stdin it is at end of file"
    box.ctl_ok("session", "delete", n)


def test_send_refused(one, name):
    id, _ = start(one, "-s", name, nap(one))
    refused(one.ctl("send", id, input=b"x"), id, "--stdin")
    one.ctl_ok("kill", id)
    refused(one.ctl("send", "nope", input=b"x"), "process 'nope'", "not found")
    id, _ = start(one, "--stdin", nap(one))
    one.ctl_ok("send", id, "--eof")
    refused(one.ctl("send", id, input=b"x"), id, "closed")
    one.ctl_ok("kill", id)


# ---- ps --------------------------------------------------------------------------------------


def test_ps(one, name):
    other = make(one)
    mine, _ = start(one, "-s", name, f"{nap(one)} # a\tb")
    theirs, _ = start(one, "-s", other, nap(one))
    ended, _ = start(one, "-s", name, "exit 3")
    one.ctl("wait", ended)
    head, *lines = one.ctl_ok("ps", "-s", name).lines
    assert head.split() == ["ID", "SESSION", "PID", "KIND", "STATE", "STATUS", "STRAYS", "UPTIME",
                            "COMMAND"]
    assert {l.split()[0] for l in lines} == {mine, ended}
    rows = {r["id"]: r for r in data(one, "ps")}
    assert rows[mine]["state"] == "running" and rows[theirs]["session"] == other
    assert (rows[ended]["state"], rows[ended]["status"], rows[ended]["verdict"]) == (
        "exited", 3, "exited")
    assert rows[ended]["pid"] in (0, None) and rows[mine]["text"].endswith("# a\tb")
    one.ctl_ok("session", "delete", other)


def test_ps_tree(one, name):
    # given trees of a session's shell and of a process
    naps = [nap(one) for _ in range(3)]
    one.exec(f"( sh -c '{naps[0]}; :' & )", name)
    id, pid = start(one, "-s", name, f"sh -c 'sh -c \"{naps[1]}; :\"; :'; :")
    # (a text of its own: a shell that runs its last command execs it)
    client = one.ctl_spawn("exec", "-s", name, f"{naps[2]}; :")
    for each in naps:
        wait_until(lambda: one.find(each), 5, each)
    rows = data(one, "ps", "--tree", "-s", name)
    assert all(set(r) == {"id", "session", "pid", "ppid", "depth", "name", "state", "text"} and
               r["session"] == name for r in rows)
    # then every descendant is there once, below its parent, one deeper
    by_pid = {r["pid"]: r for r in rows}
    assert len(by_pid) == len(rows)
    roots = [r for r in rows if r["depth"] == 0]
    assert {r["pid"] for r in roots} == {pid, show(one, name)["pid"]}
    for r in rows:
        if r["depth"]:
            assert by_pid[r["ppid"]]["depth"] == r["depth"] - 1
            assert rows.index(by_pid[r["ppid"]]) < rows.index(r)
    for each in naps:
        assert len([r for r in rows if r["text"] == each]) == 1, (each, rows)
    chain = [r for r in rows if r["text"] == naps[1]][0]
    assert chain["depth"] >= 2 and chain["id"] == id
    text = one.ctl_ok("ps", "--tree", "-s", name).lines
    assert text[0].split() == ["SESSION", "ID", "PID", "PPID", "STATE", "NAME"]
    assert any("    sleep" in l for l in text), text
    one.ctl_ok("kill", "--running", name)
    end(client)


def test_ps_tree_shows_what_outlived_its_process(one, name):
    mark = nap(one)
    id, _ = start(one, "-s", name, f"setsid {mark} & sleep 0.1")
    assert one.ctl("wait", id).status == 0
    row = [r for r in data(one, "ps", "-s", name) if r["id"] == id][0]
    assert row["state"] == "exited" and row["strays"] == 1
    rows = [r for r in data(one, "ps", "--tree", "-s", name) if r["text"] == mark]
    assert [(r["id"], r["depth"]) for r in rows] == [(id, 0)], "once, under its process"
    assert one.ctl("kill", id).status == 0 and not one.find(mark)


def test_ps_of_many_long_texts():
    # given more rows than a connection queues, then a client that reads slowly gets them all
    with Box() as box:
        text = "sleep 100 #".ljust(16000, "x")
        for _ in range(150):
            box.start(text)
        with box.connect() as w:
            w.request("ps")
            wait_until(lambda: box.ctl("status").status == 0, 5)
            rows = w.finish().rows
        assert len(rows) == 150 and all(r["text"] == text for r in rows)


# ---- logs ------------------------------------------------------------------------------------


def test_logs_offsets(box):
    id, _ = start(box, "echo one; sleep 0.1; echo two >&2; sleep 0.1; printf three")
    box.ctl("wait", id)
    assert box.ctl("logs", id).triple == (0, b"one\nthree", b"two\n")
    assert box.ctl("logs", "--from", "0", id).triple == (0, b"one\nthree", b"two\n")
    assert box.ctl("logs", "--from", "2", id).triple == (0, b"e\nthree", b"two\n")
    assert box.ctl("logs", "--from", "5", id).triple == (0, b"three", b"wo\n")
    assert box.ctl("logs", "--from", "12", id).triple == (0, b"e", b"")
    assert box.ctl("logs", "--from", "13", id).triple == (0, b"", b"")
    refused(box.ctl("logs", "--from", "14", id), "offset 14", "13")
    assert box.ctl("logs", "--tail", "1", id).triple == (0, b"three", b"")
    assert box.ctl("logs", "-n", "2", id).triple == (0, b"three", b"two\n")
    assert box.ctl("logs", "--tail", "0", id).triple == (0, b"", b"")
    assert box.ctl("logs", "--tail", "99", id).triple == (0, b"one\nthree", b"two\n")
    assert box.ctl("logs", "--stdout", id).triple == (0, b"one\nthree", b"")
    assert box.ctl("logs", "--stderr", id).triple == (0, b"", b"two\n")
    assert box.ctl("logs", "--stdout", "--stderr", id).triple == (0, b"one\nthree", b"two\n")
    assert box.ctl("logs", "--stdout", "--tail", "2", id).out == b"one\nthree"
    assert box.ctl("logs", "--labelled", id).triple == (
        0, b"stdout: one\nstderr: two\nstdout: three\n", b"")
    assert box.ctl("logs", "-l", "--stderr", id).out == b"stderr: two\n"
    d = data(box, "logs", id)
    assert d == {"from": 0, "to": 13, "stdout": "one\nthree", "stderr": "two\n"}
    assert data(box, "logs", "--from", "5", id) == {
        "from": 5, "to": 13, "stdout": "three", "stderr": "wo\n"}


def test_logs_usage(one):
    for args, word in ((["--from", "x", "i"], "--from"), (["--tail", "-1", "i"], "-1"),
                       (["--from", "1", "--tail", "1", "i"], "exclude"), ([], "too few")):
        r = one.ctl("logs", *args)
        assert r.status == 2 and word in r.err.decode(), r
    refused(one.ctl("logs", "nope"), "process 'nope'", "not found")


def test_logs_follow(box):
    # given several followers, of which one joins late, then each sees everything once, as it
    # comes, and ends when the process does
    n = make(box)
    id, _ = start(box, "-s", n, "--stdin", "echo begin; while read -r x; do echo $x; done; exit 3")
    early = [box.ctl_spawn("logs", "-f", id, bufsize=0) for _ in range(3)]
    assert early[0].stdout.readline() == b"begin\n"
    lines = b"".join(b"%d\n" % i for i in range(500))
    box.ctl_ok("send", id, input=lines)
    late = [box.ctl_spawn("logs", "-f", "--from", "6", id, bufsize=0),
            box.ctl_spawn("logs", "-f", id)]
    assert late[0].stdout.readline() == b"0\n"
    box.ctl_ok("send", id, "--eof", input=b"last\n")
    assert end(early[0]) == (0, lines + b"last\n", b"")
    for p in early[1:]:
        assert end(p) == (0, b"begin\n" + lines + b"last\n", b"")
    assert end(late[0]) == (0, lines[2:] + b"last\n", b"")
    assert end(late[1]) == (0, b"begin\n" + lines + b"last\n", b"")
    assert box.ctl("logs", "-f", id).out == b"begin\n" + lines + b"last\n", "after the end, too"
    box.ctl_ok("session", "delete", n)


def test_logs_follow_json(one):
    id, _ = start(one, "echo a; sleep 0.1; echo b >&2")
    r = one.ctl("logs", "-f", "--json", id)
    objects = [json.loads(l) for l in r.lines]
    assert r.status == 0 and objects[0] == {"from": 0} and objects[-1] == {"to": 4}
    streams = [(o["stream"], o["data"]) for o in objects[1:-1]]
    assert streams == [("stdout", "a\n"), ("stderr", "b\n")]


def test_logs_labelled_follow(one):
    id, _ = start(one, "printf par; sleep 0.1; printf 'tial\\n\\nx'; sleep 0.1; echo e >&2")
    r = one.ctl("logs", "-f", "--labelled", id)
    assert sorted(r.lines) == ["stderr: e", "stdout: ", "stdout: partial", "stdout: x"], r


def test_logs_of_a_running_command(one, name):
    client = one.ctl_spawn("exec", "-s", name, f"echo here; {nap(one)}")
    assert client.stdout.readline() == b"here\n"
    assert one.ctl("logs", show(one, name)["running"]).out == b"here\n"
    one.ctl_ok("kill", "--running", name)
    end(client)


def test_logs_that_were_cut_say_so():
    with Box(ini={"sessions": {"output_keep": "4K"}}) as box:
        id, _ = start(box, "seq 1 5000")
        box.ctl_ok("wait", id)
        r = box.ctl("logs", id)
        whole = "".join(f"{i}\n" for i in range(1, 5001)).encode()
        m = re.search(rb"lost bytes (\d+)\.\.(\d+)", r.err)
        assert r.status == 0 and m, r.err
        lost = range(int(m.group(1)), int(m.group(2)))
        assert r.out == whole[:lost.start] + whole[lost.stop:]
        assert 1024 <= len(r.out) <= 4096
        assert data(box, "logs", id)["lost"] == [f"{lost.start}..{lost.stop}"]


# ---- wait ------------------------------------------------------------------------------------


def test_wait(box):
    n = make(box)
    id, _ = start(box, "-s", n, "--stdin", "cat; exit 42")
    waiters = [box.ctl_spawn("wait", id) for _ in range(3)]
    box.ctl_ok("send", "--eof", id)
    assert [end(w) for w in waiters] == [(42, b"", b"")] * 3
    assert box.ctl("wait", id).triple == (42, b"", b""), "after the end, too"
    d = data(box, "wait", id, status=42)
    assert EXEC_KEYS <= set(d) and (d["id"], d["verdict"], d["status"]) == (id, "exited", 42)
    id, _ = start(box, "-s", n, "kill -SEGV $$")
    d = data(box, "wait", id, status=139)
    assert (d["verdict"], d["signal"]) == ("signaled", "SIGSEGV")
    refused(box.ctl("wait", "nope"), "process 'nope'", "not found", status=125)
    box.ctl_ok("session", "delete", n)


# ---- kill ------------------------------------------------------------------------------------


def test_kill_ends_the_tree(box):
    n = make(box)
    naps = [nap(box) for _ in range(3)]
    id, _ = start(box, "-s", n, f"{naps[0]} & ( setsid sh -c '{naps[1]}; :' & ) ; {naps[2]}; echo no")
    for each in naps:
        wait_until(lambda: box.find(each), 5, each)
    d = data(box, "kill", id)
    assert d["id"] == id and d["killed"] >= 4 and d["state"] == "exited" and "survivors" not in d
    assert not [p for each in naps for p in box.find(each)]
    assert box.ctl("wait", id).triple == (137, b"", b"") and box.ctl("logs", id).out == b""
    assert data(box, "wait", id, status=137)["verdict"] == "killed_by_client"
    refused(box.ctl("kill", id), f"process '{id}'", "already exited")
    refused(box.ctl("kill", "--signal", "HUP", id), f"process '{id}'", "already exited")
    refused(box.ctl("kill", "nope"), "process 'nope'", "not found")
    box.ctl_ok("session", "delete", n)


def test_kill_signal_goes_to_the_whole_tree(box):
    n = make(box)
    id, _ = start(box, "-s", n, "trap 'echo parent' USR1; sh -c 'trap \"echo child\" USR1; echo up;"
                                " while :; do sleep 0.05 & wait; done' &\n"
                                "while :; do sleep 0.05 & wait; done")
    wait_until(lambda: b"up" in box.ctl("logs", id).out, 5, "both traps")
    for spelled in ("USR1", "SIGUSR1", str(int(signal.SIGUSR1))):
        assert box.ctl("kill", "--signal", spelled, id).triple == (0, b"", b"")
    wait_until(lambda: {b"parent", b"child"} <= set(box.ctl("logs", id).out.split()), 5, "both")
    assert [r for r in data(box, "ps") if r["id"] == id][0]["state"] == "running"
    d = data(box, "kill", "--signal", "WINCH", id)
    assert d["id"] == id and d["signalled"] >= 2
    for bad in ("NOPE", "99", "-1", "0", ""):
        r = box.ctl("kill", "--signal", bad, id)
        assert r.status == 2 and b"not a signal" in r.err, bad
    assert box.ctl("kill", "--signal", "KILL", id).status == 0
    assert box.ctl("wait", id).status == 137
    box.ctl_ok("session", "delete", n)


STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def test_kill_grace(one, name):
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    r = one.ctl("kill", "--grace", "700ms", id)
    assert r.triple == (0, b"", b"") and 0.6 < r.seconds < 5
    assert one.ctl("wait", id).status == 137
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    r = one.ctl("kill", "--grace", "0", id)
    assert r.status == 0 and r.seconds < 3
    r = one.ctl("kill", "--grace", "5", id)
    assert r.status == 2 and b"duration" in r.err


def test_second_kill_hurries(one, name):
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    first = one.ctl_spawn("kill", "--grace", "60s", id)
    wait_until(lambda: [r for r in data(one, "ps") if r["id"] == id][0]["state"] == "stopping", 5)
    r = one.ctl("kill", "--grace", "100ms", id, deadline=10)
    assert r.status == 0 and r.seconds < 5
    assert end(first, 5)[0] == 0
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    first = one.ctl_spawn("kill", "--grace", "60s", id)
    wait_until(lambda: [r for r in data(one, "ps") if r["id"] == id][0]["state"] == "stopping", 5)
    assert one.ctl("kill", "--signal", "KILL", id, deadline=10).status == 0
    assert end(first, 5)[0] == 0


def test_kill_running(box):
    n = make(box)
    mark = nap(box)
    box.exec("X=1", n)
    client = box.ctl_spawn("exec", "-s", n, f"{mark}; echo no")
    wait_until(lambda: box.find(mark), 5, "it runs")
    assert box.ctl("kill", "--running", n).triple == (0, b"", b"")
    assert end(client)[:2] == (137, b"") and not box.find(mark)
    assert box.exec("echo $X", n).out == b"1\n"
    refused(box.ctl("kill", "--running", n), f"session '{n}'", "no command runs")
    # by its id as well; and nothing of it is left when the verb returns
    client = box.ctl_spawn("exec", "-s", n, f"{mark}; echo no")
    wait_until(lambda: box.find(mark), 5, "it runs")
    id = show(box, n)["running"]
    d = data(box, "kill", id)
    assert d["id"] == id and d["killed"] == 1 and d["state"] == "exited" and not box.find(mark)
    assert end(client)[0] == 137
    box.ctl_ok("session", "delete", n)


def test_kill_of_a_command_that_waits(one, name):
    client = one.ctl_spawn("exec", "-s", name, nap(one))
    is_running(one, name)
    waiter = one.ctl_spawn("exec", "-s", name, "echo never")
    wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
    id = show(one, name)["waiters"][0]
    assert one.ctl("kill", id).triple == (0, b"", b"")
    assert end(waiter)[:2] == (137, b"") and show(one, name)["queue"] == 0
    one.ctl_ok("kill", "--running", name)
    end(client)


def test_kill_running_grace(one, name):
    client = one.ctl_spawn("exec", "-s", name, f"sh -c \"{STUBBORN}\"")
    assert client.stdout.readline() == b"up\n"
    r = one.ctl("kill", "--running", name, "--grace", "0", deadline=10)
    assert r.status == 0 and r.seconds < 3 and end(client)[0] == 137


def test_kill_running_signal(one, name):
    # given a command with a child that has a trap, when a signal is sent, then it is that signal
    # and no more
    client = one.ctl_spawn("exec", "-s", name, "sh -c 'trap \"echo usr1; exit 5\" USR1; echo up;"
                                               " while :; do sleep 0.05 & wait; done'")
    assert client.stdout.readline() == b"up\n"
    assert one.ctl("kill", "--signal", "USR1", "--running", name).triple == (0, b"", b"")
    assert end(client)[:2] == (5, b"usr1\n")
    client = one.ctl_spawn("exec", "-s", name, nap(one))
    is_running(one, name)
    id = show(one, name)["running"]
    wait_until(lambda: one.find(show(one, name)["running_text"]), 5)
    one.ctl_ok("kill", "--signal", "HUP", id)
    assert end(client)[0] == 129


def test_kill_usage(one, name):
    for args in ([], ["x", "--running", name], ["x", "y"]):
        assert one.ctl("kill", *args).status == 2


# ---- kill-all --------------------------------------------------------------------------------


def test_kill_all(one, name):
    other = make(one)
    naps = [nap(one) for _ in range(3)]
    mine = [start(one, "-s", name, each)[0] for each in naps[:2]]
    theirs, _ = start(one, "-s", other, naps[2])
    one.exec("X=1", name)
    d = data(one, "kill-all", "-s", name)
    assert d["processes"] == 2 and d["killed"] >= 2 and "survivors" not in d
    # all of it is gone when the verb returns
    assert not [p for each in naps[:2] for p in one.find(each)] and one.find(naps[2])
    assert [one.ctl("wait", id).status for id in mine] == [137, 137]
    assert one.exec("echo $X", name).out == b"1\n", "the session stays"
    assert data(one, "kill-all", "-s", name) == {"killed": 0, "processes": 0}
    stubborn, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", stubborn).out, 5, "the trap")
    r = one.ctl("kill-all", "--grace", "0")
    assert r.triple == (0, b"", b"") and r.seconds < 5
    rows = {r["id"]: r["state"] for r in data(one, "ps")}
    assert rows[theirs] == rows[stubborn] == "exited" and not one.find(naps[2])
    one.ctl_ok("session", "delete", other)


# ---- status, reload, shutdown ----------------------------------------------------------------


def test_status(box):
    d = data(box, "status")
    n = make(box)
    client = box.ctl_spawn("exec", "-s", n, nap(box))
    is_running(box, n)
    id, _ = start(box, nap(box))
    e = data(box, "status")
    assert e["version"] and e["state"] == "running" and e["is_pid1"] is True and e["pid"] == 1
    assert e["uptime_s"] >= d["uptime_s"] > 0
    assert e["sessions"] == d["sessions"] + 1
    assert e["processes"] == d["processes"] + 1 and e["commands"] == d["commands"] + 1
    assert e["connections"] >= 2 and e["orphans_reaped"] >= 0 and e["zombies"] >= 0
    assert e["runtime_dir"] == str(box.run) and e["socket"] == str(box.socket)
    assert e["config"] == str(box.dir / "sandbox.ini")
    lines = box.ctl_ok("status").lines
    assert f"runtime_dir: {box.run}" in lines and "is_pid1: true" in lines
    box.ctl_ok("kill", id)
    box.ctl_ok("session", "delete", n)
    assert end(client)[0] == 137


def test_status_of_a_box_with_a_main_command():
    with Box("plain", main=["sleep", "500"]) as box:
        d = data(box, "status")
        assert d["main"] == "sleep" and d["main_pid"] > 1 and d["is_pid1"] is False


def test_reload_json_and_nothing_to_do(one):
    d = data(one, "reload")
    assert set(d) == {"config"}
    r = one.ctl("reload")
    assert r.status == 0 and r.err == b""


def test_shutdown(kind):
    # when it returns, init has ended, and all that there was
    with Box(kind) as box:
        n = make(box)
        client = box.ctl_spawn("exec", "-s", n, f"echo up; {nap(box)}")
        assert client.stdout.readline() == b"up\n"
        start(box, nap(box))
        assert box.ctl("shutdown").triple == (0, b"", b"")
        assert box.wait(5) == 0 and not box.survivors()
        assert end(client)[0] in (137, 143)
        r = box.ctl("status")
        assert r.status == 3 and b"-S SOCKET" in r.err


def test_shutdown_grace():
    with Box(ini={"init": {"stop_grace": "60s"}}) as box:
        id, _ = start(box, STUBBORN)
        wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
        first = box.ctl_spawn("shutdown", "--json")
        wait_until(lambda: data(box, "status")["state"] == "stopping", 5, "it stops")
        refused(box.ctl("session", "create", "x"), "stopping")
        refused(box.ctl("exec", "true"), "stopping", status=125)
        refused(box.ctl("start", "true"), "stopping")
        refused(box.ctl("reload"), "stopping")
        r = box.ctl("shutdown", "--grace", "5")
        assert r.status == 2
        r = box.ctl("shutdown", "--grace", "300ms", deadline=10)
        assert r.status == 0 and r.seconds < 5, "the second one hurries"
        status, out, _ = end(first)
        assert status == 0 and json.loads(out)["grace_ms"] == 60000
        assert box.wait(5) == 0
