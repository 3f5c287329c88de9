"""What a user can do to a session from inside it. It may ruin that session, and then the answers say
so; nobody else notices, and delete leaves nothing. (test_bad_input.py has the common kinds on every
box; here are the nastier ones, with what each must still give.)"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rig.box import Box, Session
from rig.places import make_session
from rig.wait import is_long, wait_until

BASH, POSIX, ALL = ("bash",), ("dash", "ash"), ("bash", "dash", "ash")
# Without an answer nothing is touched: "$d/*" would be all there is.
FOLDER = "d=$(readlink /proc/$$/fd/1); d=${d%/out}; case $d in */run/s*) ;; *) exit 99 ;; esac; "
OWN_NAMES = ("__sb_arm __sb_end __sb_settle __sb_dump __sb_exit __sb_p __sb_n __sb_i __sb_on_exit __sb_flags "
             "__sb_debugs __sb_signals __sb_signal __sb_status __sb_unset_name __sb_1")

# Each leaves the session well: the next text runs, with the state of before.
HARMLESS = [
    (ALL, "printf() { echo no; }; echo() { return 3; }"),
    (ALL, "command() { return 0; }"),
    (ALL, "[() { return 1; }; true() { return 1; }; test() { return 1; }; :"),
    (ALL, "read() { :; }; kill() { :; }; ulimit() { :; }; alias kill=:; :"),
    (BASH, "builtin() { :; }"),
    (BASH, "unset() { :; }; declare() { :; }; set() { :; }; shopt() { :; }; trap() { :; }; exit() { :; }"),
    (BASH, "return() { :; }; eval() { :; }; local() { :; }; .() { :; }; source() { :; }"),
    (ALL, "alias printf=false command=false trap=false return=false set=false unset=false; :"),
    (BASH, "shopt -s expand_aliases; alias builtin=false case=false printf=false trap=false __sb_end=false; :"),
    (POSIX, "alias __sb_end=false __sb_arm=: if=false while=false .=false exec=false; :"),
    (ALL, "trap 'exit 9' USR1; trap '' TERM INT HUP; trap ':' CHLD; :"),
    (ALL, "trap '' 40; :"),
    (ALL, "trap 'exit 3' 40; trap - 40; :"),
    (BASH, "trap 'exit 9' DEBUG; trap 'exit 9' ERR; trap 'exit 9' RETURN; :"),
    (BASH, "set -T -E; shopt -s extdebug; trap 'true' DEBUG; :"),
    (ALL, "for n in " + OWN_NAMES + "; do eval \"$n=x\"; done; :"),
    (ALL, "BASH_ENV=/dev/stdin; ENV=/dev/stdin; PROMPT_COMMAND='exit 3'; PS0='$(exit 3)'; "
          "export BASH_ENV ENV PROMPT_COMMAND PS0"),
    (ALL, "IFS=0123456789-/ms; :"), (ALL, "IFS=; :"), (ALL, "unset IFS"),
    (ALL, "unset PATH HOME PWD OLDPWD SHELL USER TERM LANG; :"), (ALL, "PATH=/nonexistent; :"),
    (ALL, "PATH=.:$PATH; CDPATH=/:/tmp; :"),
    (ALL, "set -f -C -u -v -x; :"), (BASH, "set -o posix; :"), (BASH, "POSIXLY_CORRECT=1; :"),
    (BASH, "set -k -B +h -p 2>/dev/null; :"), (BASH, "shopt -s nullglob failglob dotglob nocasematch; :"),
    (BASH, "shopt -s compat31 xpg_echo execfail checkhash lastpipe 2>/dev/null; :"),
    (ALL, "LC_ALL=tr_TR.UTF-8; LC_NUMERIC=de_DE; LANG=xx; :"),
    (ALL, "umask 777"), (ALL, "ulimit -S -c 0; ulimit -S -n 40; :"),
    (ALL, "i=3; while [ $i -lt 10 ]; do eval \"exec $i>&-\"; i=$((i + 1)); done; :"),
    (ALL, "exec 3>/dev/full 4<&0 5>&1 6>&2; :"),
    (ALL, "i=0; while [ $i -lt 10000 ]; do eval v$i=$i; i=$((i + 1)); done; :"),
    (ALL, "set -- $(seq 5000); :"),
    (ALL, "big=$(head -c 3000000 /dev/zero | tr '\\0' x); :"),
    (ALL, "cd /proc/$$/fd"), (ALL, "exec >/dev/full 2>&1; :"),
    (ALL, "break 99; continue 99; return 3; :"),
    (ALL, FOLDER + "chmod 0 $d/status $d/state; chmod 777 $d/text; :"),
    (ALL, FOLDER + "echo '999999 0 x' >$d/status; echo garbage >$d/status; printf '\\0\\377\\n' >$d/status; :"),
    (ALL, FOLDER + "printf '%70000s\\n' x >$d/status; :"),
    (ALL, FOLDER + "echo 'exit 5' >$d/state; echo 'exit 5' >$d/back; :"),
]

# Each may cost the shell: then the next answers say so.
RUINOUS = [
    (ALL, "set -n"), (BASH, "set -t"), (BASH, "enable -n builtin printf trap set; :"),
    (BASH, "enable -n builtin command .; :"),
    (BASH, "unset() { :; }; builtin() { :; }; command() { :; }"),
    (ALL, "__sb_end() { :; }"), (ALL, "__sb_end() { exit 3; }; __sb_arm() { exit 4; }"),
    (ALL, "__sb_dump() { :; }; __sb_exit() { :; }; exit 3"),
    (BASH, "readonly -f __sb_end __sb_arm __sb_dump; readonly " + OWN_NAMES),
    (POSIX, "readonly " + OWN_NAMES),
    (BASH, "readonly SHELLOPTS PWD OLDPWD IFS PATH BASH_ARGV0 DIRSTACK; declare -r FUNCNAME; :"),
    (ALL, "unset -f __sb_arm __sb_end __sb_dump __sb_exit"),
    (ALL, "exec 9>&- 10>&- 11>&- 2>/dev/null; :"),
    (BASH, "for ((i = 0; i < 301; i++)); do eval \"exec $i>&-\"; done"),
    (BASH, "for ((i = 3; i < 301; i++)); do eval \"exec $i</dev/zero\"; done"),
    (ALL, "for f in /proc/$$/fd/*; do echo 'exit 7' >$f; done 2>/dev/null; :"),
    (ALL, "ulimit -n 3"), (ALL, "ulimit -f 0"), (ALL, "ulimit -v 3000 2>/dev/null; :"),
    (ALL, "ulimit -f 0; exit 0"), (ALL, "ulimit -n 3; exit 0"), (ALL, "ulimit -u 1; exit 0"),
    (ALL, "exec /bin/true"), (ALL, "exec /nonexistent/x"), (ALL, "kill -9 $$"), (ALL, "kill -ABRT $$"),
    (ALL, "f() { f; }; f 2>/dev/null"),
    (ALL, "trap 'exit 3' EXIT; exit 4"), (ALL, "trap 'kill -9 $$' EXIT; exit 4"),
    (ALL, "trap '' 40; exit 4"),
    (ALL, FOLDER + "rm -rf $d/* 2>/dev/null; :"), (ALL, FOLDER + "rm -rf $d 2>/dev/null; exit 3"),
    (ALL, FOLDER + "rm $d/state; mkdir -p $d/state/a/b/c 2>/dev/null; exit 3"),
    (ALL, FOLDER + "rm $d/state $d/text; ln -s /etc/passwd $d/text; ln -s /etc/passwd $d/state; exit 3"),
    (ALL, FOLDER + "rm $d/status; ln -s /dev/zero $d/status 2>/dev/null; :"),
    (ALL, FOLDER + "rm $d/out $d/err; mkfifo $d/out; :"),
    (ALL, FOLDER + "echo 'if' >$d/driver; exit 3"),
    (ALL, FOLDER + "echo '# end' >$d/state; kill -9 $$"),
    (ALL, FOLDER + "printf 'exit 3\\n# end\\n' >$d/state; kill -9 $$"),
    (ALL, FOLDER + "printf 'kill -9 $$\\n# end\\n' >$d/state; kill -9 $$"),
    (ALL, FOLDER + "printf 'if\\n# end\\n' >$d/state; kill -9 $$"),
    (ALL, FOLDER + "head -c 3000000 /dev/zero >$d/state; printf '\\n# end\\n' >>$d/state; kill -9 $$"),
]

VERDICTS = ("exited", "signaled", "timeout", "shell_ended", "spawn_failed")


def cases(table):
    """Of dash and ash each text sees one, all of them with SANDBOX_TEST_LONG."""
    return [pytest.param(shell, text, id=f"{shell}-{i}") for i, (shells, text) in enumerate(table)
            for shell in shells if is_long() or shell != POSIX[i % 2]]


@pytest.fixture(scope="module")
def cell():
    """One box with a session that nothing may disturb."""
    with Box("ns-root", ini={"sessions": {"kill_grace": "300ms", "max_sessions": "500"}}) as b:
        b.session("neighbour")
        b.exec("n=0; cd /dev", "neighbour")
        yield b
        assert b.stop() == 0


@pytest.fixture
def hostile(cell, request):
    s = make_session(cell, request.getfixturevalue("shell"))
    count = int(cell.exec("echo $n", "neighbour").out)
    pid = cell.call("session.show", name="neighbour")["pid"]
    yield s
    assert cell.is_alive, cell.log()[-2000:]
    try:
        # the neighbour: same shell, same state, and soon (what the attack leaves running takes the CPU)
        r = cell.exec("n=$((n + 1)); echo $n; pwd", "neighbour", deadline=20)
        assert r.triple == (0, f"{count + 1}\n/dev\n".encode(), b"") and r.seconds < 10, r
        assert cell.call("session.show", name="neighbour")["pid"] == pid
    finally:
        # delete works and leaves nothing, neither a process nor a file
        cell.call("session.delete", name=s.name, deadline=10)
        wait_until(lambda: not of(cell, s), 5, lambda: f"nothing of it lives on: {of(cell, s)}")
    assert sorted(os.listdir(cell.run)) == ["control.sock", "s1"]


def of(b, s):
    mark = f"SANDBOX_SESSION={s.name}\0".encode()
    found = []
    for p in b.processes():
        try:
            with open(f"/proc/{p.pid}/environ", "rb") as f:
                found += [p.command] if mark in f.read() + b"\0" else []
        except OSError:
            pass
    return found


def attack(s, text):
    r = s.run(text, timeout=4, deadline=15)
    assert r["verdict"] in VERDICTS and r.seconds < 12, r
    return r


@pytest.mark.parametrize("shell, text", cases(HARMLESS))
def test_hostile_but_harmless(hostile, shell, text):
    # given a text that tries to break its session, then the next ones run in it all the same, with
    # the real status, and what was before is still there
    s = hostile
    s.exec("kept='a b'")
    attack(s, text)
    for n in (7, 0):
        r = s.run(f"/bin/sh -c 'exit {n}'", timeout=4, deadline=15)
        assert (r["verdict"], r.status) == ("exited", n) and not r.get("shell_restarted"), r
    r = s.run('/bin/echo "$kept"', timeout=4)
    assert r.out == b"a b\n" and not r.get("shell_restarted"), r
    # it is killed like any other, and what it had is kept, restored, or told as lost
    r = s.run("while : ; do : ; done", timeout=0.2, deadline=15)
    assert r["verdict"] == "timeout" and r.seconds < 12, r
    out = s.run('/bin/echo "$kept"', timeout=4, deadline=15)
    told = r.get("state_lost") or out.get("state_lost")
    assert out.out == b"a b\n" or told, (r, out)


@pytest.mark.parametrize("shell, text", cases(RUINOUS))
def test_hostile_and_ruinous(hostile, shell, text):
    # given a text that breaks its session, then each answer comes, and none is made up: a text that
    # ran printed, one that did not run says why, and what was lost is told
    s = hostile
    s.exec("kept='a b'; cd /dev")
    told = attack(s, text)
    answers = [told]
    for n in (7, 5):
        r = s.run(f"/bin/echo ran; /bin/sh -c 'exit {n}'", timeout=4, deadline=20)
        answers.append(r)
        ran = r.out == b"ran\n" and r.status == n
        assert ran or "ulimit" in text or r["verdict"] in ("signaled", "shell_ended", "timeout") or (
            r.get("shell_restarted")) or r["verdict"] == "spawn_failed" and r["message"], r
    r = s.run("/bin/echo \"$kept\"", timeout=4, deadline=20)
    answers.append(r)
    if r.out != b"a b\n":
        # (a state that it forged itself is what it gets)
        assert any(a.get("state_lost") for a in answers) or "ulimit" in text or r.status != 0 or (
            ">$d/state" in text), answers
    # a reset gives a good session in any case
    s.box.call("session.reset", name=s.name, deadline=15)
    r = s.run("echo fresh ${kept-none}; ulimit -f", timeout=4, deadline=15)
    assert r.out == b"fresh none\nunlimited\n" and not r.get("shell_restarted"), r


@pytest.mark.parametrize("shell", ALL)
def test_hostile_kills_what_it_can(hostile, shell):
    # given a text that kills its parent, init, and everybody it may, then init and others live
    s = hostile
    attack(s, "kill -9 $PPID; kill -STOP 1; kill -KILL 1; :")
    assert s.exec("echo on").out == b"on\n"


@pytest.mark.parametrize("shell", ALL)
def test_hostile_stops_itself(hostile, shell):
    s = hostile
    s.exec("kept=1")
    r = s.run("kill -STOP $$; echo on", timeout=0.3, deadline=15)
    assert r["verdict"] == "timeout" and r.seconds < 12
    # stopped while idle, by its own child: the next command is killed like any other
    s.run("(sleep 0.1; kill -STOP $$) >/dev/null 2>&1 &", timeout=4)
    wait_until(lambda: stopped(s), 5, "it is stopped")
    r = s.run("echo on", timeout=0.3, deadline=15)
    # (half a second later one that does not reap by itself has been asked to: the next test)
    assert r["verdict"] == "timeout" or shell in POSIX and r["verdict"] == "exited", r
    assert r.seconds < 12
    assert s.exec("echo next", deadline=10).out == b"next\n"


@pytest.mark.parametrize("shell", POSIX)
def test_hostile_stops_itself_when_it_is_to_reap(hostile, shell):
    # given a shell that is stopped while idle, and then asked by init itself to reap its children,
    # then who comes next does not wait for long
    s = hostile
    s.run("(sleep 0.3; kill -STOP $$) >/dev/null 2>&1 &", timeout=4)
    wait_until(lambda: stopped(s), what="it is stopped")
    wait_until(lambda: s.show()["state"] != "idle" or not stopped(s), what="it was asked")
    r = s.run("echo on", timeout=2, deadline=15)
    assert r["verdict"] in ("exited", "timeout"), r
    assert s.exec("echo next", deadline=15).out == b"next\n"


def stopped(s):
    with open(f"/proc/{s.shell_pid}/stat") as f:
        return f.read().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("shell", ALL)
def test_hostile_state_without_room(shell):
    # given a state that cannot be written, then it is told as lost
    with Box("ns-root") as b:
        s = make_session(b, shell)
        s.exec("kept=1")
        r = s.run("ulimit -f 4; big=$(head -c 100000 /dev/zero | tr '\\0' x); exit 3", deadline=15)
        assert r.get("shell_restarted") is True and r.get("state_lost") is True, r
        assert s.exec("echo ${kept-lost}").out == b"lost\n"
        assert b.call("session.delete", name=s.name)["name"] == s.name


@pytest.mark.parametrize("shell", ALL)
def test_hostile_state_with_a_hole(hostile, shell):
    # given a shell that is still at its state when the next text empties the file (it reads `exit`
    # from its own script), then what it wrote behind the hole is no state: it is told as lost
    s = hostile
    s.exec("kept=1")
    r = s.run(FOLDER + "printf '\\0\\0\\0\nkept=2\n# end\n' >$d/state; kill -9 $$")
    assert (r["verdict"], r.get("shell_restarted"), r.get("state_lost")) == ("signaled", True, True), r
    assert s.exec("echo ${kept-lost}").out == b"lost\n"


@pytest.mark.parametrize("shell", ALL)
@pytest.mark.parametrize("env", [None, {"A": "1"}], ids=("plain", "env"))
def test_hostile_end_before_the_text(hostile, shell, env):
    # given a shell that ends after a text was ordered and before it began, then the answer has not
    # the shell's end for the text's
    s = hostile
    pid = s.shell_pid
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as ex:
        call = ex.submit(s.run, "echo ran", env=env)
        wait_until(lambda: s.show()["state"] == "busy", 10, "it is ordered")
        os.kill(pid, signal.SIGKILL)
        r = call.result()
    assert (r["verdict"], r.status, r["step"], r.out) == ("spawn_failed", 125, "shell", b""), r
    assert "before the text began: SIGKILL" in r["message"] and r.get("signal") is None, r
    assert r["shell_restarted"] is True and r["state_lost"] is True, r
    # one that had begun, and writes nothing, is ended by it
    r = s.run("kill -9 $$")
    assert (r["verdict"], r["signal"]) == ("signaled", "SIGKILL"), r


@pytest.mark.parametrize("shell", ALL)
def test_hostile_over_and_over(cell, shell):
    # given a session that ends its shell with every text, when others work, then they do not wait
    s = make_session(cell, shell)
    slowest = 0
    for i in range(20):
        assert s.run(["exit 1", "kill -9 $$", "exec true", "kill -TERM $$"][i % 4], deadline=15)
        begun = time.monotonic()
        assert cell.exec("echo $n", "neighbour").status == 0
        slowest = max(slowest, time.monotonic() - begun)
    assert slowest < 8
    cell.call("session.delete", name=s.name)


def test_hostile_as_another_user():
    # given sessions of a user that is not init's, then its files are its own only, and it cannot
    # touch another's
    with Box("ns-root") as b:
        b.session("victim", user="nobody")
        b.session("root")
        s = Session(b, "victim", "bash")
        r = s.run(FOLDER + "rm -rf ${d%/*}/* 2>/dev/null; echo x 2>/dev/null >${d%/*}/new; ls ${d%/*} 2>&1",
                  timeout=4)
        assert b"new" not in r.out
        assert b.exec("echo on", "root").out == b"on\n"
        assert s.exec("echo on", deadline=15).out == b"on\n"
        s.run("for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done 2>/dev/null", timeout=4)
        assert b.exec("echo on", "root").out == b"on\n" and b.is_alive
        assert s.exec("echo on", deadline=15).out == b"on\n"
