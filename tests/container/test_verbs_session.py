"""The verbs session create, list, show, delete, reset and env."""

import json
import os
import re

import pytest

from rig.box import Box, shell_path
from rig.verbs import (
    HELD_KEYS, SESSION_KEYS, data, end, fresh_name, is_running, make, nap, refused, show, start)
from rig.wait import wait_until


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
    r = box.exec("pwd; printf '%s|%s|%s\\n' \"$A\" \"$B\" \"${B-unset}\"", n, timeout=0)
    assert r.triple == (0, f"{work}\n3=4||\n".encode(), b"")
    assert box.exec("sh -c 'echo $A'", n, timeout=0).out == b"3=4\n", "it is exported"
    r = box.exec("sleep 60", n)
    assert r.status == 124 and r.seconds < 25
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
    (["--shell", "/proc/self/root/"], 1, ["/proc/self/root/", "Permission denied"]),
    (["--shell", "/proc/none/"], 1, ["/proc/none/", "No such file or directory"]),
    (["--shell", "bash"], 1, ["bash", "absolute"]),
    (["--shell", "/bin/false"], 1, ["/bin/false", "ended before it was ready", "status 1"]),
    (["--shell", "/bin/true"], 1, ["/bin/true", "ended before it was ready", "status 0"]),
    (["--user", "nobody-at-all"], 1, ["nobody-at-all", "/etc/passwd"]),
])
def test_create_refused(one, options, status, words):
    n = fresh_name()
    line = refused(one.ctl("session", "create", n, *options), *words, status=status)
    assert "wait status" not in line
    # nothing of it stays: the name is free, and its folder is gone
    assert n not in [row["name"] for row in data(one, "session", "list")]
    one.ctl_ok("session", "create", n)
    one.ctl_ok("session", "delete", n)


def test_create_with_a_program_that_never_becomes_a_shell(one):
    # given a program that just reads, when it is to be the shell, then the client hears of it
    n = fresh_name()
    refused(one.ctl("session", "create", n, "--shell", "/bin/cat"), "/bin/cat",
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
    assert head.split() == ["NAME", "STATE", "PID", "RUNNING", "FOR", "WAITING", "STRAYS",
                            "UPTIME", "SHELL", "DIRECTORY"]
    mine = [r.split() for r in rows if r.split()[0] == name]
    assert len(mine) == 1 and mine[0][1] == "idle" and mine[0][-1] == str(one.work / name)
    rows = data(one, "session", "list")
    assert all(set(r) - HELD_KEYS == SESSION_KEYS for r in rows)
    assert [r["pid"] for r in rows if r["name"] == name] == [show(one, name)["pid"]]


def test_show_follows_the_shell(one, name):
    one.exec("cd /usr", name)
    s = show(one, name)
    assert s["cwd"] == "/usr" and s["state"] == "idle" and SESSION_KEYS <= set(s)
    assert not HELD_KEYS & set(s) and s["waiting"] == []
    assert "cwd: /usr\n" in one.ctl_ok("session", "show", name).out.decode()
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
    assert [w["text"] for w in s["waiting"]] == ["echo 0", "echo 1", "echo 2"]
    row = [r for r in data(one, "ps", "-s", name) if r["id"] == s["running"]]
    assert row and row[0]["kind"] == "command" and row[0]["text"] == text
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


@pytest.mark.parametrize("text", [
    "{n}; echo no", "exec {n}", "trap '' TERM 40; {n}; {n}", "sh -c '{n}; :'"])
@pytest.mark.parametrize("how, why", [
    ("delete", "session '{s}' was deleted"), ("reset", "session '{s}' was reset"),
    ("shutdown", "init is stopping")])
def test_the_answer_does_not_tell_of_a_state_that_the_session_has_not(how, why, text):
    # given a command in a session, when the session ends (is reset), then its answer says that, and
    # nothing of a new shell (of a folder that was kept)
    # (where all end at SIGTERM there is time for that: else one might end so, and the other by SIGKILL)
    grace = "100ms" if "trap" in text else "60s"
    with Box(ini={"sessions": {"kill_grace": "100ms"}, "init": {"stop_grace": grace}}) as box:
        s, t, n = make(box), make(box), nap(box)
        plain = box.ctl_spawn("exec", "-s", s, text.format(n=n))
        as_json = box.ctl_spawn("exec", "--json", "-s", t, text.format(n=n))
        wait_until(lambda: len([p for p in box.find(n) if p.comm == "sleep"]) == 2, 5, "both run")
        for each in (s, t):
            box.ctl_ok(*("session", how, each) if how != "shutdown" else ["shutdown"])
            if how == "shutdown":
                break
        status, out, err = end(plain)
        anew = ["sandboxctl: the session begins anew; its variables, functions and current folder "
                "are lost"] if how == "reset" else []
        assert status >= 128 and out == b""
        assert err.decode().splitlines() == [*anew, f"sandboxctl: {why.format(s=s)}"]
        a = json.loads(end(as_json)[1])
        assert a["message"] == why.format(s=t) and a["status"] == status, a
        assert a.get("state") == ("reset" if how == "reset" else None), a
        for key in ("shell_restarted", "state_lost"):
            assert a.get(key, False) == (how == "reset"), a


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
    d = data(box, "session", "reset", n)
    assert set(d) == {"name", "killed", "ended"} and d["killed"] == len(d["ended"])
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


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_env_that_is_larger_than_a_packet(one, name, size):
    # given a variable that fits into no packet, between small ones, then it comes back byte for
    # byte, and what shows the rest of the session says that it has no room for it
    big = "a\u00e9\n=" * (size // 5)
    one.call("session.env", name=name, env=["A=1", f"BIG={big}", "Z=2"])
    out = one.ctl_ok("session", "env", name).out.decode()
    assert f"\nBIG={big}\n" in out and "A=1\n" in out and "Z=2\n" in out
    d = data(one, "session", "env", name)
    assert f"BIG={big}" in d["env"] and {"A=1", "Z=2"} <= set(d["env"]) and d["name"] == name
    d = data(one, "session", "show", name)
    assert d["env_left_out"] == 1 and {"A=1", "Z=2"} <= set(d["env"]) and "truncated" not in d
    assert not [v for v in d["env"] if v.startswith("BIG=")]
    # the same over the wire: the bytes are counted
    a = one.call("session.env", name=name)
    assert a["bytes"] == len(a.out) and a.out.endswith(b"\0")
    one.ctl_ok("session", "env", name, "-BIG")
    assert "env_left_out" not in data(one, "session", "show", name)


def test_env_of_thousands_of_variables(one, name):
    many = [f"V{i}={i:0100d}" for i in range(3000)]
    one.call("session.env", name=name, env=many)
    assert set(many) <= set(one.ctl_ok("session", "env", name).lines)
    d = data(one, "session", "show", name)
    assert d["env_left_out"] + len(d["env"]) >= 3000 and len(d["env"]) > 100


def test_env_of_nobody(one):
    refused(one.ctl("session", "env", "nobody"), "nobody", "not found")


def test_env_with_patience(one, name):
    # given a session that is busy, then a change waits as long as it is told to, and is not made
    client = one.ctl_spawn("exec", "-s", name, f"{nap(one)}")
    is_running(one, name)
    refused(one.ctl("session", "env", "--no-wait", name, "A=1"), name, "busy", status=125)
    refused(one.ctl("session", "env", "--wait-for", "150ms", name, "A=1"), name, "busy", status=125)
    assert one.ctl("session", "env", "--no-wait", "--wait-for", "1s", name, "A=1").status == 2
    assert one.ctl("session", "env", "--no-wait", name).status == 0, "to look needs no turn"
    env = one.ctl_spawn("session", "env", name, "--wait-for", "60s", "B=2")
    wait_until(lambda: show(one, name)["queue"] == 1, 10, "it waits")
    one.ctl_ok("kill", "--running", name)
    assert end(client)[0] == 137 and end(env) == (0, b"", b"")
    assert one.exec("echo ${A-unset} $B", name).out == b"unset 2\n"
    assert one.ctl("session", "env", "--no-wait", name, "A=3").status == 0
    assert not [v for v in show(one, name)["env"] if v == "A=1"]
