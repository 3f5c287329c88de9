"""The configuration: every key has its effect, complaints say where, a reload is a diff."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from rig.box import PATH, ROOT, Box, programs
from rig.wait import wait_until

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"


def sections(**kw):
    return {k.replace("__", ":"): v for k, v in kw.items()}


def data(box, *args):
    return json.loads(box.ctl_ok(*args, "--json").out)


def show(box, name):
    return data(box, "session", "show", name)


def is_idle(box, name):
    wait_until(lambda: show(box, name)["state"] == "idle", 5, f"{name} is idle")


def refused(r, *words, status=1):
    assert r.status == status and r.out == b"", r
    for w in words:
        assert str(w) in r.err.decode(), (w, r)


def end(p, deadline=15):
    out, err = p.communicate(timeout=deadline)
    return p.returncode, out, err


def init(*args, env=None):
    """sandbox-init outside of any box, for what ends by itself."""
    return subprocess.run([programs() / "sandbox-init", *map(str, args)], capture_output=True,
                          text=True, timeout=10, env={"PATH": PATH, **(env or {})}, cwd="/")


# ---- --check ---------------------------------------------------------------------------------


def test_check_of_good_files(tmp_path):
    file = tmp_path / "sandbox.ini"
    for text in ("", "[init]\n", "# only a comment\n", "[session:dev]\ncwd = /\n[sessions]\n"
                 "env.A = 1 # not a comment; 100%\n", "\ufeff[init]\r\nstop_grace = 3s\r\n"):
        file.write_text(text)
        r = init("--check", "-c", file)
        assert (r.returncode, r.stdout, r.stderr) == (0, "configuration is valid\n", ""), text
    assert init("--check").returncode == 0, "no file at all"
    assert init("--check", "-c", ROOT / "sandbox.ini.example").returncode == 0


@pytest.mark.parametrize("text, line, words", [
    ("[init]\nstop_grase = 3s\n", 2, ["stop_grase", "did you mean 'stop_grace'"]),
    ("[init]\n\n# c\nstop_grace = soon\n", 4, ["stop_grace", "soon"]),
    ("[init]\nstop_grace = 3s\nstop_grace = 4s\n", 3, ["stop_grace", "line 2"]),
    ("[inti]\n", 1, ["inti", "did you mean"]),
    ("stop_grace = 3s\n", 1, ["section"]),
    ("[init]\ngarbage\n", 2, ["key = value"]),
    ("[session:a/b]\n", 1, ["a/b"]),
    ("[session:a]\n[session:a]\n", 2, ["session:a"]),
    ("[init]\nstop_grace = 2h\n", 2, ["stop_grace", "1h"]),
    ("[init]\ntext_limit = 1\n", 2, ["text_limit", "1K"]),
    ("[init]\nlog_format = xml\n", 2, ["log_format", "json"]),
    ("[sessions]\ncwd = relative\n", 2, ["cwd", "relative"]),
    ("[sessions]\nenv.1A = x\n", 2, ["1A"]),
    ("[session:a]\nmax_sessions = 3\n", 2, ["max_sessions", "[sessions]"]),
    ("[init]\nshell = /bin/sh\n", 2, ["shell", "[sessions]"]),
    # init-test 38
    ("[service:a]\ncommand = x\nrequires = b\n[service:b]\ncommand = x\nafter = c\n[service:c]\ncommand = x\n"
     "requires = a\n", 9, ["a cycle: a -> b -> c -> a"]),
    ("[service:a]\ncommand = x\nrequires = b\n[service:bb]\ncommand = x\n", 3, ["no [service:b]"]),
    ("[service:a]\ncommand = x\nstop_signal = TRM\n", 3, ["not a signal", "did you mean 'TERM'"]),
    ("[service:a]\ncommand = x\nreload_signal = SIGUP\n", 3, ["did you mean 'HUP'"]),
])
def test_check_says_where(tmp_path, text, line, words):
    file = tmp_path / "sandbox.ini"
    file.write_text(text)
    for args in (["--check", "-c", file], ["-c", file, "--", "true"]):
        r = init(*args)
        assert r.returncode == 1 and r.stdout == ""
        lines = r.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith(f"sandbox-init: {file}:{line}: "), lines
        for w in words:
            assert w in lines[0], (w, lines[0])


COMMENT = ("and what follows are arguments; a comment stands on a line of its own, and a text for a shell under "
           "'script'")
SIGN = "is an argument, since no shell reads it; a text for a shell stands under 'script'"
NAME = "is an argument, since no shell expands it; a text for a shell stands under 'script'"


@pytest.mark.parametrize("command, word, why", [
    ("sleep 1 ; a comment", ";", COMMENT),
    ("sleep 1 # a comment", "#", COMMENT),
    ("find / -exec ls {} ;", None, None),
    ("sleep 1 #1 ;x", None, None),
    ("sh -c 'sleep 1 ; sleep 2 # x'", None, None),
    *((f"sleep 1 {sign} more", sign, SIGN) for sign in ("&&", "||", "|", ">", ">>", "<", "2>&1")),
    ("sleep 1 &", "&", SIGN),
    ("echo $HOME", "$HOME", NAME),
    ("echo ${HOME}", "${HOME}", NAME),
    ("echo $ 5$ $5.00 a|b a>b", None, None),
    ("sh -c 'sleep 1 && echo $HOME > /tmp/x'", None, None),
])
def test_check_warns_of_what_only_a_shell_would_understand(tmp_path, command, word, why):
    file = tmp_path / "sandbox.ini"
    file.write_text(f"[service:other]\ncommand = true\n[service:web]\ninstances = 2\ncommand = {command}\n")
    r = init("--check", "-c", file)
    assert (r.returncode, r.stdout) == (0, "configuration is valid\n")
    assert r.stderr == (f"sandbox-init: warning: {file}:3: [service:web]: command: '{word}' {why}\n" if word else "")


def test_check_of_no_such_file(tmp_path):
    for path, why in ((tmp_path / "none.ini", "No such file"), (tmp_path, "not a regular file")):
        r = init("--check", "-c", path)
        assert r.returncode == 1 and str(path) in r.stderr and why in r.stderr


@pytest.mark.parametrize("name, value, words", [
    ("SANDBOX_INIT_STOP_GRACE", "soon", ["soon"]),
    ("SANDBOX_INIT_STOP_GRASE", "3s", ["SANDBOX_INIT_STOP_GRACE"]),
    ("SANDBOX_SESSIONS_CWD", "relative", ["relative"]),
    ("SANDBOX_INIT_CWD", "/", ["SANDBOX_SESSIONS_CWD"]),
])
def test_check_of_overrides(name, value, words):
    r = init("--check", env={name: value})
    assert r.returncode == 1 and name in r.stderr and "environment" in r.stderr
    for w in words:
        assert w in r.stderr
    assert init("--check", env={"SANDBOX_OTHER": "x", "SANDBOX_SOCKET": "/x"}).returncode == 0


# ---- no file, and overrides from the environment ---------------------------------------------


def test_no_file_at_all(tmp_path):
    # (/run is its own: others look there, too)
    with Box(ini=False, env={"TMPDIR": "/nonexistent"}, ready=False,
             mounts=[{"source": tmp_path, "destination": "/run"}]) as box:
        # given nothing, then the first writable folder holds the socket, and all works
        m = wait_until(lambda: re.search(r"event=ready.* socket=(\S+)", box.log()), 10,
                       lambda: f"ready is told with the socket; {box.log()}")
        box.socket = tmp_path / os.path.relpath(m.group(1), "/run")
        assert os.path.basename(box.socket) == "control.sock"
        d = data(box, "status")
        assert d["config"] == "" and d["socket"] == m.group(1)
        name = box.ctl_ok("session", "create").out.decode().strip()
        assert box.exec("echo $0 $PWD", name).out.split()[1].decode() == str(box.work)
        assert box.stop() == 0
        assert not os.path.exists(box.socket)


def test_overrides():
    env = {"SANDBOX_INIT_STOP_GRACE": "300ms", "SANDBOX_SESSIONS_CWD": "/usr",
           "SANDBOX_SESSIONS_COMMAND_TIMEOUT": "400ms", "SANDBOX_INIT_LOG_FORMAT": "json"}
    with Box(ini={"init": {"stop_grace": "60s"}, "sessions": {"cwd": "/etc"}}, env=env) as box:
        box.session("s")
        assert box.exec("pwd", "s").out == b"/usr\n"
        assert box.exec("sleep 60", "s").status == 124
        id = box.ctl_ok("start", STUBBORN).out.split()[0].decode()
        wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
        begun = time.monotonic()
        assert box.stop() == 0 and time.monotonic() - begun < 15
        for line in box.log().splitlines():
            json.loads(line)


# ---- [init] ----------------------------------------------------------------------------------


def test_init_keys_runtime_dir_and_control_socket():
    with Box(ini="[init]\nruntime_dir = @WORK@/rt\ncontrol_socket = @RUN@/other.sock\n",
             ready=False) as box:
        box.socket = box.run / "other.sock"
        wait_until(lambda: box.socket.exists() and box.ctl("status").status == 0, 10, "it answers")
        d = data(box, "status")
        assert (d["runtime_dir"], d["socket"]) == (str(box.work / "rt"), str(box.socket))
        box.session("s")
        assert box.exec("echo ok", "s").out == b"ok\n"
        assert (box.work / "rt").stat().st_mode & 0o777 == 0o711
        assert not (box.work / "rt" / "control.sock").exists()
        assert f"socket={box.socket}" in box.log()
        assert box.stop() == 0 and not box.socket.exists()


def test_init_key_runtime_dir_that_cannot_be():
    with Box(ini="[init]\nruntime_dir = /proc/nope\n", ready=False) as box:
        assert box.wait() == 1 and "/proc/nope" in box.log()


def test_init_key_stop_grace():
    with Box(ini={"init": {"stop_grace": "400ms"}}) as box:
        id = box.ctl_ok("start", STUBBORN).out.split()[0].decode()
        wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
        begun = time.monotonic()
        assert box.stop() == 0
        assert 0.35 < time.monotonic() - begun < 7


def test_init_keys_log_level_and_format():
    with Box(ini={"init": {"log_level": "error"}}) as box:
        box.session("s")
        box.exec("exit 3", "s")
        assert box.stop() == 0 and box.log() == ""
    with Box(ini={"init": {"log_level": "debug", "log_format": "json"}}) as box:
        box.session("s")
        box.exec("exit 3", "s")
        box.exec("kill -9 $$", "s")
        box.exec(["nonexistent-\x1b[31m\"program\n"])
        box.ctl("session", "delete", "s")
        assert box.stop() == 0
        events = [json.loads(l) for l in box.log().splitlines()]
        assert {"ready", "command_end", "session_deleted", "stopped"} <= {e["event"] for e in events}
        assert {e["level"] for e in events} >= {"info", "debug"}
        assert all(e["time"] for e in events)


def busy_command(box):
    p = box.ctl_spawn("exec", "-s", "dev", "sleep 2.6")
    return lambda: p.wait(10)


def busy_process(box):
    box.ctl_ok("start", "sleep 2.6")
    return lambda: None


def busy_client(box):
    # connected, but it asks for nothing (longer than this it would be dropped)
    w = box.connect()
    return lambda: (time.sleep(2.6), w.close())


def busy_callers(box):
    # clients that come and go more often than the timeout
    def go():
        until = time.monotonic() + 2.6
        while time.monotonic() < until:
            box.ctl_ok("status")
            time.sleep(0.15)
    return go


@pytest.mark.parametrize("busy", [busy_command, busy_process, busy_client, busy_callers])
def test_init_key_idle_timeout(busy):
    # given a container that stops when it is idle, when there is something to do for longer than
    # that, then it lives so long, and stops only a whole timeout after
    with Box(ini=sections(init={"idle_timeout": "2s"}, session__dev={})) as box:
        finish = busy(box)
        begun = time.monotonic()
        finish()
        assert box.wait(10) == 0
        seconds = time.monotonic() - begun
        assert 2.6 + 1.5 < seconds, seconds  # (the last caller may have gone a bit before)
        assert "why=idle" in box.log()


def test_init_key_idle_timeout_without_anything():
    with Box(ini=sections(init={"idle_timeout": "500ms"}, session__dev={}), ready=False) as box:
        assert box.wait(10) == 0


def test_init_key_idle_timeout_does_not_count_services():
    with Box(ini={"init": {"idle_timeout": "500ms"}, "service:w": {"command": "sleep 100"}},
             ready=False) as box:
        assert box.wait() == 0 and "why=idle" in box.log()


def test_init_key_idle_timeout_is_not_for_a_main_command():
    with Box(ini={"init": {"idle_timeout": "200ms"}}, main=["sh", "-c", "sleep 1; exit 3"],
             ready=False) as box:
        assert box.wait(10) == 3


def test_init_key_idle_action():
    with Box(ini={"init": {"idle_timeout": "200ms", "idle_action": "log"}}) as box:
        wait_until(lambda: "event=idle" in box.log(), 5, "it is told")
        assert box.is_alive and box.ctl_ok("status")


def test_init_key_text_limit():
    with Box(ini={"init": {"text_limit": "2K"}}) as box:
        box.session("s")
        fits = "echo ok #".ljust(2048, "x")
        assert box.ctl("exec", "-s", "s", "-", input=fits).out == b"ok\n"
        r = box.ctl("exec", "-s", "s", "-", input=fits + "x")
        refused(r, "2049", "2048", status=125)
        refused(box.ctl("exec", "-", input="x" * 1_000_000), "1000000", "2048", status=125)
        refused(box.ctl("start", fits + "x"), "2048")
        assert box.exec("echo ok", "s").out == b"ok\n"


def test_init_key_max_connections():
    with Box(ini={"init": {"max_connections": "4"}}) as box:
        held = []
        for _ in range(4):
            held.append(box.connect())
        wait_until(lambda: len(held) == 4, 1)
        r = box.ctl("status")
        assert r.status == 1 and b"max_connections" in r.err and b"4" in r.err, r
        held.pop().close()
        wait_until(lambda: box.ctl("status").status == 0, 5, "there is room again")
        for w in held:
            w.close()


def test_init_key_client_stall():
    # given a client that reads nothing, when its command floods, then it is dropped as if gone
    with Box(ini={"init": {"client_stall": "300ms"}}) as box:
        box.session("s")
        with box.connect() as w:
            w.request("exec", [("session", "s")], "yes")
            wait_until(lambda: show(box, "s")["state"] == "idle" and w.begun, 10,
                       "the command of a dead client ends")
            assert not box.find("yes")


# ---- [sessions] ------------------------------------------------------------------------------


def test_sessions_keys_shell_cwd_env():
    with Box(ini=sections(
            sessions={"shell": "/bin/dash", "cwd": "/usr", "env.A": "of all", "env.B": "x # y; z%",
                      "env.EMPTY": ""},
            session__dev={"env.A": "of dev", "env.C": "1", "shell": "/bin/bash", "cwd": "/etc"},
            session__plain={})) as box:
        seen = "echo $PWD $A $B ${C-none} ${EMPTY-unset} ${BASH_VERSION+bash}"
        is_idle(box, "dev"), is_idle(box, "plain")
        assert box.exec(seen, "dev").out == b"/etc of dev x # y; z% 1 bash\n"
        assert box.exec(seen, "plain").out == b"/usr of all x # y; z% none\n"
        box.ctl_ok("session", "create", "other", "--env", "A=mine")
        assert box.exec(seen, "other").out == b"/usr mine x # y; z% none\n"
        assert box.exec(seen).out == b"/usr of all x # y; z% none\n", "stateless"
        assert box.exec(["sh", "-c", seen]).out == b"/usr of all x # y; z% none\n"


IDS = "id -u; id -g; id -G; echo $HOME $USER; touch {f} && stat -c %u:%g {f}"


@pytest.mark.parametrize("user, uid, gid, home, name", [
    ("agent", 1000, 1000, "/tmp", "agent"),
    ("1234:0", 1234, 0, "/", ""),
    ("agent:extra", 1000, 1001, "/tmp", "agent"),
    ("1000", 1000, 1000, "/tmp", "agent"),
])
def test_sessions_key_user(user, uid, gid, home, name):
    # given a user for all sessions, then commands, processes and stateless texts are that user's
    with Box("runc-root", ini=sections(sessions={"user": user},
                                       session__root={"user": "root"})) as box:
        box.work.chmod(0o777)
        box.session("s")

        def expect(out, file):
            lines = out.decode().split("\n")
            groups = {str(gid), "1001"} if name else {str(gid)}
            assert lines[:2] == [str(uid), str(gid)] and set(lines[2].split()) == groups
            assert lines[3].split() == [w for w in (home, name) if w]
            assert lines[4] == f"{uid}:{gid}", lines
            os.unlink(file)

        file = box.work / "f"
        text = IDS.format(f=file)
        expect(box.exec(text, "s").out, file)
        expect(box.exec(text).out, file)
        expect(box.exec(["sh", "-c", text]).out, file)
        for at in (["-s", "s"], []):
            id = box.ctl_ok("start", *at, text).out.split()[0].decode()
            box.ctl_ok("wait", id)
            expect(box.ctl("logs", id).out, file)
        assert show(box, "s")["user"] == (name or str(uid))
        is_idle(box, "root")
        assert box.exec("id -u; echo $HOME", "root").out == f"0\n{box.work}\n".encode()
        box.ctl_ok("session", "create", "r", "--user", "root")
        assert box.exec("id -u", "r").out == b"0\n"


def test_sessions_key_user_when_not_root():
    with Box("runc-user", ini=sections(session__a={"user": "root"}, session__b={"user": "1000"})) as box:
        is_idle(box, "b")
        s = show(box, "a")
        assert s["state"] == "failed" and "root" in s["why"] and "1000" in s["why"]


def test_sessions_keys_command_timeout_and_kill_grace():
    with Box(ini=sections(sessions={"command_timeout": "1s", "kill_grace": "200ms"},
                          session__slow={"command_timeout": "0", "kill_grace": "1200ms"})) as box:
        box.session("s")
        is_idle(box, "slow")
        child = f"sh -c \"{STUBBORN}\""
        r = box.exec(child, "s")
        assert r.status == 124 and 1.15 < r.seconds < 15, r
        r = box.exec("sleep 60")
        assert r.status == 124 and r.seconds < 15
        assert box.exec("sleep 1.3; echo no limit", "slow").out == b"no limit\n"
        r = box.exec(child, "slow", timeout=0.8)
        assert r.status == 124 and 1.9 < r.seconds < 15, r
        # processes have the grace of their session
        def ended_in_time(session, least, most, *verb):
            id = box.ctl_ok("start", "-s", session, STUBBORN).out.split()[0].decode()
            wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
            r = box.ctl(*verb, id if verb == ("kill",) else session)
            assert r.status == 0 and least < r.seconds, (session, r)
            return r.seconds < most

        for session, least, most in (("slow", 1.1, 6), ("s", 0.1, 1.1)):
            for verb in (["kill"], ["kill-all", "-s"]):  # a busy machine is asked again
                assert any(ended_in_time(session, least, most, *verb) for _ in range(3)), (session, verb)


def test_sessions_keys_max_sessions_and_queue_limit():
    with Box(ini=sections(sessions={"max_sessions": "2", "queue_limit": "1"}, session__a={})) as box:
        is_idle(box, "a")
        box.ctl_ok("session", "create", "b")
        refused(box.ctl("session", "create", "c"), "max_sessions is 2")
        box.ctl_ok("session", "delete", "b")
        box.ctl_ok("session", "create", "c")
        running = box.ctl_spawn("exec", "-s", "c", "sleep 60")
        wait_until(lambda: show(box, "c")["state"] == "busy", 5)
        waiting = box.ctl_spawn("exec", "-s", "c", "echo next")
        wait_until(lambda: show(box, "c")["queue"] == 1, 5)
        refused(box.ctl("exec", "-s", "c", "true"), "session 'c'", "queue_limit is 1", status=125)
        refused(box.ctl("start", "-s", "c", "true"), "session 'c'", "queue_limit is 1")
        box.ctl_ok("kill", "--running", "c")
        assert end(running)[0] == 137 and end(waiting)[:2] == (0, b"next\n")


def test_sessions_key_queue_limit_0():
    with Box(ini={"sessions": {"queue_limit": "0"}}) as box:
        box.session("s")
        assert box.exec("echo ok", "s").out == b"ok\n", "nobody has to wait"
        running = box.ctl_spawn("exec", "-s", "s", "sleep 60")
        wait_until(lambda: show(box, "s")["state"] == "busy", 5)
        refused(box.ctl("exec", "-s", "s", "true"), "queue_limit is 0", status=125)
        box.ctl_ok("kill", "--running", "s")
        end(running)
        id = box.ctl_ok("start", "-s", "s", "echo p").out.split()[0].decode()
        assert box.ctl("wait", id).status == 0


def test_sessions_key_output_keep():
    with Box(ini=sections(sessions={"output_keep": "8K"}, session__big={"output_keep": "1M"})) as box:
        is_idle(box, "big")
        box.session("s")
        sizes = {}
        for session in ("s", "big", None):
            at = ["-s", session] if session else []
            id = box.ctl_ok("start", *at, "seq 1 20000").out.split()[0].decode()
            box.ctl_ok("wait", id)
            r = box.ctl("logs", id)
            sizes[session] = len(r.out)
            assert (b"lost" in r.err) == (session != "big"), r.err
        assert sizes["s"] <= 8192 and sizes[None] <= 8192 and sizes["big"] == 108894
        assert len(box.exec("seq 1 20000", "s").out) == 108894, "who is there gets all of it"


def test_sessions_keys_max_processes_and_process_keep():
    with Box(ini={"sessions": {"max_processes": "2", "process_keep": "1"}}) as box:
        a = box.ctl_ok("start", "--id", "a", "sleep 60")
        box.ctl_ok("start", "--id", "b", "sleep 60")
        assert a.out.startswith(b"a ")
        refused(box.ctl("start", "true"), "max_processes is 2")
        refused(box.ctl("exec", "true"), "max_processes is 2", status=125)
        box.ctl_ok("kill", "a")
        box.ctl_ok("start", "--id", "c", "exit 3")
        assert box.ctl("wait", "c").status == 3
        wait_until(lambda: {r["id"] for r in data(box, "ps")} == {"b", "c"}, 5, "a is forgotten")
        refused(box.ctl("logs", "a"), "process 'a'", "not found")
        box.ctl_ok("start", "--id", "a", "true")


# ---- configured sessions ---------------------------------------------------------------------


def test_configured_sessions_that_cannot_start():
    with Box(ini=sections(
            session__nocwd={"cwd": "/nonexistent/d"}, session__noshell={"shell": "/nonexistent/sh"},
            session__nouser={"user": "nobody-at-all"}, session__noprogram={"shell": "/bin/false"},
            session__good={})) as box:
        is_idle(box, "good")
        assert box.exec("echo ok", "good").out == b"ok\n"
        for name, words in (("nocwd", ["/nonexistent/d", "No such file or directory"]),
                            ("noshell", ["/nonexistent/sh", "No such file or directory"]),
                            ("nouser", ["nobody-at-all", "/etc/passwd"]),
                            ("noprogram", ["/bin/false", "ended before it was ready"])):
            s = wait_until(lambda: (lambda d: d["state"] == "failed" and d)(show(box, name)), 5, name)
            assert all(w in s["why"] for w in words), (name, s["why"])
            assert s["is_configured"] is True and s["pid"] == 0
            refused(box.ctl("exec", "-s", name, "true"), *words, status=125)
            refused(box.ctl("start", "-s", name, "true"), *words)
            refused(box.ctl("session", "delete", name), "configuration")
            assert f"session={name}" in box.log()
        states = {r["name"]: r["state"] for r in data(box, "session", "list")}
        assert states == {"good": "idle", "nocwd": "failed", "noshell": "failed",
                          "nouser": "failed", "noprogram": "failed"}
        # when the cause is gone, then the next request finds it working
        with Box(ini=sections(session__later={"cwd": f"{box.work}/later"})) as other:
            refused(other.ctl("exec", "-s", "later", "pwd"), "No such file", status=125)
            (box.work / "later").mkdir()
            assert other.exec("pwd", "later").out == f"{box.work}/later\n".encode()


# ---- reload ----------------------------------------------------------------------------------


def by_signal(box):
    seen = len(box.log())
    box.signal(signal.SIGHUP)
    return lambda word: wait_until(lambda: word in box.log()[seen:], 5,
                                   lambda: f"{word!r} in {box.log()[seen:]!r}")


def test_reload_is_a_diff():
    ini = sections(init={"stop_grace": "9s"}, sessions={"env.A": "old", "env.GONE": "1"},
                   session__stays={"env.S": "1"}, session__goes={}, session__changes={"cwd": "/usr"})
    with Box(ini=ini) as box:
        for name in ("stays", "goes", "changes"):
            is_idle(box, name)
            box.exec("STATE=kept", name)
        ini["init"] = {"stop_grace": "8s", "log_level": "debug", "control_socket": "/tmp/x.sock"}
        ini["sessions"] = {"env.A": "new", "env.B": "added", "kill_grace": "3s"}
        del ini["session:goes"]
        ini["session:changes"] = {"cwd": "/etc", "env.C": "1", "command_timeout": "300ms"}
        ini["session:comes"] = {}
        box.write_ini(ini)
        d = data(box, "reload")
        # then what differs is told, with what it needs
        assert set(d) == {"changed", "restart_needed", "config"}
        for key in ("[init] stop_grace", "[init] log_level", "[sessions] env.A", "[sessions] env.B",
                    "[sessions] env.GONE", "[sessions] kill_grace"):
            assert key in d["changed"], (key, d)
        assert any(c.startswith("[session:goes] removed") for c in d["changed"])
        assert any(c.startswith("[session:comes] added") for c in d["changed"])
        assert any("control_socket" in c and "restart" in c for c in d["restart_needed"])
        assert any(c.startswith("[session:changes]") and "reset" in c for c in d["restart_needed"])
        # live sessions keep their state and environment
        seen = "echo ${STATE-fresh} ${A-unset} ${B-unset} ${GONE-unset}"
        for name in ("stays", "goes", "changes"):
            assert box.exec(seen, name).out == b"kept old unset 1\n"
        # new ones have the new one
        is_idle(box, "comes")
        assert box.exec(seen, "comes").out == b"fresh new added unset\n"
        assert box.exec(seen).out == b"fresh new added unset\n"
        # a removed one can be deleted, an added one can't
        box.ctl_ok("session", "delete", "goes")
        refused(box.ctl("session", "delete", "comes"), "configuration")
        # a reset gives a changed one its new settings
        box.ctl_ok("session", "reset", "changes")
        assert box.exec("pwd; echo $C $A ${GONE-unset}", "changes").out == b"/etc\n1 new unset\n"
        assert box.exec("sleep 60", "changes").status == 124
        # a second reload finds nothing but what still needs its restart
        box.write_ini(ini)
        d = data(box, "reload")
        assert "changed" not in d, d


def test_reload_by_signal():
    with Box(ini={}) as box:
        box.write_ini(sections(init={"log_format": "json"}, session__new={"cwd": "/usr"}))
        said = by_signal(box)
        said("[session:new] added")
        is_idle(box, "new")
        assert box.exec("pwd", "new").out == b"/usr\n"


def test_reload_of_a_broken_file_changes_nothing():
    with Box(ini=sections(sessions={"cwd": "/usr"}, session__dev={})) as box:
        is_idle(box, "dev")
        path = box.dir / "sandbox.ini"
        before = data(box, "session", "list")
        for text, line in (("[init]\nstop_grase = 1s\n", 2), ("[sessions]\ncwd = /etc\n\nx\n", 4)):
            box.write_ini(text)
            r = box.ctl("reload")
            refused(r, f"{path}:{line}: ")
            assert len(r.err.splitlines()) == 1
            said = by_signal(box)
            said(f"{path}:{line}: ")
        path.unlink()
        refused(box.ctl("reload"), str(path), "No such file")
        assert box.ctl_ok("status")
        assert box.exec("pwd").out == b"/usr\n"
        after = data(box, "session", "list")
        assert [(r["name"], r["pid"]) for r in after] == [(r["name"], r["pid"]) for r in before]


@pytest.mark.parametrize("option, file", [
    (["-c", "my.ini"], "my.ini"),
    (["--config=./my.ini"], "my.ini"),
    (["-c", "sub dir/my.ini"], "sub dir/my.ini"),
    (["--config", "../sandbox.ini"], "../sandbox.ini"),
    (["-c", "link.ini"], "link.ini"),
])
def test_reload_of_a_file_that_was_named_by_a_relative_path(option, file):
    # given an init whose -c is relative to the folder it was started in
    prepare = ('mkdir "sub dir"; cp ../sandbox.ini my.ini; cp my.ini "sub dir"; '
               'ln -s my.ini link.ini; exec "$@"')
    with Box(before=["sh", "-c", prepare, "sh"], flags=option) as box:
        path = box.work / file
        # then it tells the absolute path, as it was given otherwise, and a reload reads that file
        assert os.path.normpath(data(box, "status")["config"]) == os.path.normpath(path)
        path.write_bytes(box.ini_text({"session:new": {}}))
        d = data(box, "reload")
        assert d["changed"] == ["[session:new] added"], d
        assert os.path.normpath(d["config"]) == os.path.normpath(path)


def test_a_reload_by_signal_is_logged_though_nothing_has_changed():
    with Box(ini={}) as box:
        box.signal(signal.SIGHUP)
        wait_until(lambda: "event=reload_done" in box.log(), 10, box.log)


def test_reload_takes_effect_at_once():
    with Box(ini={}) as box:
        box.session("s")
        box.write_ini({"init": {"text_limit": "1K", "max_connections": "3"},
                       "sessions": {"max_sessions": "1", "max_processes": "1"}})
        box.ctl_ok("reload")
        refused(box.ctl("exec", "-", input="x" * 1025), "1024", status=125)
        refused(box.ctl("session", "create"), "max_sessions is 1")
        box.ctl_ok("start", "sleep 60")
        refused(box.ctl("start", "true"), "max_processes is 1")
        box.write_ini({"init": {"text_limit": "64M"}})
        box.ctl_ok("reload")
        big = "#".ljust(20 << 20, "x")
        assert box.ctl("exec", "-", input=big).triple == (0, b"", b"")
        box.write_ini({"init": {"idle_timeout": "300ms"}})
        box.ctl_ok("reload")
        box.ctl_ok("kill-all")
        assert box.wait(10) == 0


def test_reload_keeps_what_was_set_by_hand():
    # given variables for all sessions that a client has set, when a reload changes others, then
    # they stay; and a key that goes gives way to what init itself was started with
    with Box(ini={"sessions": {"env.A": "file", "env.LANG": "C.UTF-8"}}, env={"LANG": "C"}) as box:
        box.ctl_ok("session", "env", "A=hand", "B=hand")
        box.write_ini({"sessions": {"env.A": "file", "env.C": "file"}})
        box.ctl_ok("reload")
        assert box.exec("echo $A $B $C $LANG").out == b"hand hand file C\n"


def test_reload_while_stopping():
    with Box(ini={}) as box:
        id = box.ctl_ok("start", STUBBORN).out.split()[0].decode()
        wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
        box.signal(signal.SIGTERM)
        wait_until(lambda: data(box, "status")["state"] == "stopping", 5, "it stops")
        refused(box.ctl("reload"), "stopping")
        said = by_signal(box)
        said("stopping")
        box.ctl_ok("shutdown", "--grace", "0")
        assert box.wait(15) == 0


def test_reload_with_overrides():
    # what the environment says stands above the file after a reload as well
    with Box(ini={}, env={"SANDBOX_SESSIONS_CWD": "/usr"}) as box:
        box.write_ini({"sessions": {"cwd": "/etc"}})
        assert "changed" not in data(box, "reload")
        assert box.exec("pwd").out == b"/usr\n"
