"""SECURITY of sandbox-init.8.md: what init needs to give sessions another user, and what that user gets."""

import os
import re
import stat

from rig.box import ROOT, Box, status_fields
from rig.manual import section
from rig.wait import wait_until

SECURITY = section((ROOT / "docs/sandbox-init.8.md").read_text(), "SECURITY")
NEEDED = sorted({c.lower().removeprefix("cap_") for c in re.findall(r"CAP_\w+", SECURITY)})


def test_the_capabilities_that_are_named_are_enough():
    # given a root that has these and no others, and sessions of another user
    bounds = ",".join(["-all", *(f"+{c}" for c in NEEDED)])
    assert len(NEEDED) == 5, NEEDED
    ini = {"sessions": {"user": "1000", "kill_grace": "300ms"},
           "service:web": {"command": "sleep 603", "user": "1000", "pre_start": "true", "health": "command:true"}}
    with Box(ini=ini,
             before=["setpriv", "--inh-caps=-all", f"--bounding-set={bounds}", "--"]) as box:
        assert bin(int(status_fields(box.init_pid)["CapEff"], 16)).count("1") == len(NEEDED)
        # when a session, a command, a process, a terminal and an exec without a session run
        box.session("s")
        id, pid = box.start("trap '' TERM; echo $X; while :; do sleep 1; done", "s", env={"X": "x"})
        terminal = box.call("terminal.open", session="s", detached="1")
        for session in ("s", None):
            r = box.exec("id -u; id -G; grep -c '^Cap[^B].*0000000000000000$' /proc/self/status; cd /tmp; (trap '' TERM; sleep 600) &",
                         session, cwd="/")
            # then they are that user's, without a capability (but what could be had from a file)
            assert r.lines == ["1000", "1000", "4"], r
        assert status_fields(box.host_pid(pid))["CapPrm"] == "0" * 16
        assert status_fields(box.host_pid(terminal["pid"]))["CapPrm"] == "0" * 16
        wait_until(lambda: box.logs(id).out == b"x\n", 10, "what the process has written")
        # and their files in the runtime folder are as well, for nobody else to read
        files = [p for p in (box.run / "s").rglob("*") if not p.is_dir()] if (box.run / "s").is_dir() else [
            p for p in box.run.rglob("*") if not p.is_dir() and p.parent != box.run]
        own = [p for p in files if p.stat().st_uid == 1000]
        assert own and all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in files), [
            (p, oct(p.stat().st_mode)) for p in files]
        # and stdin, a state that is saved and one that is copied go their ways
        assert box.exec("cat", "s", stdin=b"in").out == b"in"
        saved = box.ctl_ok("session", "save", "s", "-").out
        assert box.ctl("session", "create", "u", "--from", "-", input=saved).status == 0
        box.call("session.fork", name="s", new="v")
        assert box.exec("pwd; exit 3", "v").triple == (3, f"{box.work}\n".encode(), b"")
        # and the folder of a shell that dies is known
        box.exec("cd /usr", "s")
        assert box.exec("kill -9 $$", "s").status == 137
        assert box.exec("pwd", "s").out == b"/usr\n" and box.call("session.show", name="s")["cwd"] == "/usr"
        # and where a stray listens
        box.work.chmod(0o777)
        listen = ("import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
                  "print(s.getsockname()[1], flush=True); time.sleep(604)")
        r = box.exec(f"python3 -c \"{listen}\" >{box.work}/port & until [ -s {box.work}/port ]; do sleep 0.05; done",
                     "s", json=True)
        assert r["strays"][0].endswith(f" listen=tcp:127.0.0.1:{(box.work / 'port').read_text().strip()}"), r
        hidden = box.exec("exec sleep 600 & python3 -c 'import ctypes, time; ctypes.CDLL(None).prctl(4, 0); "
                          f"open(\"{box.work}/ready\", \"w\"); time.sleep(605)' & "
                          f"until [ -e {box.work}/ready ]; do sleep 0.05; done", "s", json=True)
        assert any(s.endswith(" listen=?") for s in hidden["strays"]), hidden["strays"]
        # when they are killed, reset and deleted; then nothing is left
        assert box.exec("sleep 601", "s", timeout=0.2).status == 124
        assert box.call("kill", id=id).fields["state"] == "exited"
        box.exec("setsid sleep 602 & kill -9 $$", "s")
        box.call("session.reset", name="s")
        assert box.exec("echo ok", "s").out == b"ok\n"
        box.call("purge")
        assert [p.command for p in box.find("sleep 60")] == ["sleep 603"]
        assert status_fields(box.find("sleep 603")[0].pid)["Uid"].split() == ["1000"] * 4
        assert box.stop() == 0 and box.survivors() == []


def test_other_users_are_seen_without_the_right_to_trace():
    # given a root without CAP_SYS_PTRACE, as engines make it, and sessions of another user
    with Box(ini={"sessions": {"user": "1000"}}, before=["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", "--"]) as box:
        box.session("s")
        # when a shell is lost, then the folder is known, while it lives and after
        box.exec("cd /usr", "s")
        assert box.call("session.show", name="s")["cwd"] == "/usr"
        box.exec("kill -9 $$", "s")
        assert box.exec("pwd", "s").out == b"/usr\n"
        # and a shell that takes no orders, or has closed where they come from, is found out
        r = box.exec("set -n", "s", timeout=30, json=True)
        assert r["verdict"] == "shell_ended" and r.seconds < 20, r
        box.exec("exec 255<&-", "s", timeout=30)
        assert box.exec("echo well", "s", timeout=30).out == b"well\n"
        # and where strays listen, with a session and without
        serve = ("import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
                 "print(s.getsockname()[1], flush=True); time.sleep(600)")
        for session in ("s", None):
            told = box.work / f"port-{session}"
            told.touch()
            os.chown(told, 1000, 1000)
            box.exec(f'python3 -c "{serve}" >{told} &', session)
            port = wait_until(lambda: told.read_text().strip(), 10, "it listens")
            assert f"tcp:127.0.0.1:{port}" in [r.get("listen") for r in box.ps()], box.ps()


def test_what_cannot_be_given_to_another_user_is_said_with_session_and_user():
    with Box(before=["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]) as box:
        for user, told in (("nobody", "nobody"), ("1234", "1234")):
            r = box.ctl("session", "create", "b", "--user", user)
            line = r.err.decode()
            assert r.status != 0 and "session 'b'" in line and f"user {told} " in line and "CAP_CHOWN" in line, r
