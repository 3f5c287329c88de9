"""The interrupt matrix: kinds of hang × shells × (timeout, kill).

Each text hangs somewhere and has `: >after…` behind every place where it may hang: no such file may
be there afterwards. What the answer says of the session's state (kept, restored, lost) must be so,
the next command is right, what is older lives on and nothing of the text does."""

import os
import random
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig import wire
from rig.box import KINDS, Box
from rig.places import make_session
from rig.wait import is_long, repeats, wait_until

BASH, POSIX = ("bash",), ("dash", "ash")
ALL = BASH + POSIX


@dataclass
class Hang:
    name: str
    text: str
    shells: tuple = ALL
    state: str = "kept"  # or a dict by shell; what is not in it is kept


def hang(name, text, shells=ALL, state="kept"):
    return Hang(name, text, shells, state)


# `fifo` is there and has neither reader nor writer; `nap` is a sleep of its own.
HANGS = [
    # the shell itself is busy
    hang("spinning", "while :; do :; done"),
    hang("arithmetic", "i=0; while [ $i -ge 0 ]; do i=$((i+1)); done"),
    hang("arithmetic-for", "for ((;;)); do :; done", BASH),
    hang("until", "until false; do :; done"),
    hang("functions", "a() { b; : >after1; }; b() { while :; do :; done; : >after2; }; a"),
    hang("recursion", "r() { nap 0.01; r; : >after1; }; r"),
    hang("condition", "if while :; do :; done; then : >after1; else : >after2; fi"),
    hang("condition-of-while", "while while :; do :; done; do : >after1; done"),
    hang("case-of-loops", "for i in 1 2 3; do case $i in *) while :; do :; done;; esac; "
                          ": >after$i; done"),
    hang("eval", "eval 'eval \"while :; do :; done; : >after1\"; : >after2'"),
    # what an error unwinds to in dash and ash is of the text's own making
    hang("command-eval", "command eval 'nap 99; : >after1'; : >after2"),
    hang("command-eval-spins", "command eval \"command eval 'while :; do :; done; : >after1'; "
                               ": >after2\"; : >after3"),
    hang("command-eval-loop", "while command eval 'nap 99; : >after1'; do : >after2; done"),
    hang("command-dot", "echo 'nap 99; : >after1' >file; f() { IFS=0123; set -f; command . ./file; "
                        ": >after2; }; f; : >after3"),
    hang("extglob", "shopt -s extglob; v=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
                    "[[ $v == +(+(a))b ]]", BASH, "restored"),
    hang("sourced", "echo 'while :; do :; done; : >after1' >lib; . ./lib"),
    hang("sourced-in-function", "echo 'f() { while :; do :; done; : >after1; }; f; : >after2' >lib; "
                                "g() { . ./lib; : >after3; }; g"),
    hang("brace-group", "{ while :; do :; done; : >after1; } >group 2>&1"),
    # it waits for a child
    hang("and-or", "nap 99 && : >after1 || : >after2"),
    hang("not", "! nap 99 && : >after1"),
    hang("loop-of-children", "while :; do nap 0.01; done"),
    hang("pipeline", "nap 99 | cat | { cat; : >after1; }"),
    hang("pipeline-of-loops", "while :; do :; done | while read x; do :; done; : >after1"),
    hang("endless-pipeline", "yes | cat >/dev/null"),
    hang("substitution", "x=$(nap 99; : >after1); : >after2"),
    hang("substitution-spins", "x=$(while :; do :; done); : >after1"),
    hang("substitution-in-function", "f() { echo \"$(nap 99)\"; : >after1; }; f"),
    hang("backquotes", "case `nap 99` in *) : >after1;; esac"),
    hang("process-substitution", "while read x; do :; done < <(nap 99; : >after1); : >after2", BASH),
    hang("coproc", "coproc { nap 99; : >after1; }; read x <&\"${COPROC[0]}\"; : >after2", BASH),
    hang("subshell", "(while :; do nap 0.01; done; : >after1)"),
    hang("nested-subshells", "( ( ( nap 99; : >after1 ); : >after2 ); : >after3 )"),
    hang("other-shell", "sh -c 'nap 99; : >after1'"),
    hang("ignores-TERM", "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done; : >after1'"),
    hang("heredoc", "nap 99 <<END\n$(echo some)\nEND"),
    hang("heredoc-that-hangs", "cat <<END\n$(nap 99)\nEND"),
    hang("time", "time nap 99", BASH),
    # it waits for nothing that could be killed
    hang("wait", "nap 99 & wait"),
    hang("wait-pid", "nap 99 & wait $!"),
    hang("wait-n", "nap 99 & wait -n", BASH),
    hang("read", "exec 3<>fifo; read x <&3"),
    hang("read-t", "exec 3<>fifo; read -t 99 x <&3", ("bash", "ash")),
    hang("read-loop", "exec 3<>fifo; while read x <&3; do :; done"),
    hang("read-in-function", "f() { read x <fifo2; : >after1; }; exec 3<>fifo2; f"),
    hang("mapfile", "exec 3<>fifo; mapfile x <&3", BASH),
    hang("select", "exec 3<>fifo; select x in 1 2; do : >after1; done <&3", BASH),
    hang("fifo-for-reading", ": <fifo"),
    hang("fifo-for-writing", ": >fifo"),
    hang("fifo-by-exec", "exec 3<fifo"),
    hang("fifo-by-program", "cat <fifo"),
    hang("fifo-in-function", "f() { read x <fifo; : >after1; }; f"),
    hang("full-pipe", "exec 3<>fifo; printf '%70000d' 1 >&3", state={"dash": "lost"}),
    hang("full-pipe-by-program", "exec 3<>fifo; head -c 99999 /dev/zero >&3"),
    hang("stopped", "kill -STOP $$"),
    # options and traps
    hang("set-e", "set -e; nap 99", state="restored"),
    hang("set-e-spins", "set -e; while :; do :; done", state="restored"),
    hang("set-x", "set -x; while :; do :; done"),
    hang("set-x-nap", "set -x; nap 99"),
    hang("set-u", "set -u; nap 99"),
    hang("pipefail", "set -o pipefail; nap 99 | cat", BASH),
    hang("extdebug", "shopt -s extdebug; nap 99", BASH),
    hang("monitor", "set -m; nap 99 2>/dev/null"),
    hang("trap-DEBUG", "trap ': $((n++))' DEBUG; while :; do :; done", BASH),
    hang("trap-DEBUG-returns", "trap 'false' DEBUG; nap 99", BASH),
    hang("trap-ERR", "trap ': >after1' ERR; nap 99", BASH),
    hang("trap-ERR-traced", "set -E; trap ': >after1' ERR; f() { nap 99; }; f", BASH),
    hang("trap-RETURN", "set -T; trap ': >after1' RETURN; f() { while :; do :; done; }; f", BASH),
    hang("trap-EXIT", "trap ': >after1' EXIT; while :; do :; done"),
    hang("trap-TERM", "trap ': >after1' TERM INT HUP; nap 99"),
    # dash and ash: their $? after a trap of the user is stale once a trap was left by an error
    hang("trap-CHLD", "trap ': $((n+=1))' CHLD; nap 99", BASH),
    hang("in-a-trap", "trap 'nap 99; : >after1' USR1; kill -USR1 $$; : >after2"),
    # what breaks the driver
    hang("overridden-builtins", "builtin() { :; }; return() { :; }; shopt() { :; }; set() { :; }; "
                                "printf() { :; }; trap() { :; }; command() { :; }; "
                                "while :; do :; done", BASH),
    hang("overridden-functions", "printf() { :; }; kill() { :; }; command() { :; }; test() { :; }; "
                                 "while :; do :; done"),
    hang("aliases", "alias trap=: return=: builtin=: command=: unset=: exec=:; nap 99"),
    hang("disabled-builtins", "enable -n printf trap return; nap 99", BASH),
    hang("trap-taken", "trap '' 40; nap 99", state={"dash": "lost", "ash": "lost", "bash": "restored"}),
    hang("trap-reset", "trap - 40; while :; do :; done", state={"dash": "lost", "ash": "lost", "bash": "restored"}),
    hang("exec", "exec sleep 99", state="lost"),
]

# What each text begins with: a program `nap` that is a sleep, and the sign that it runs.
HEAD = ": >begun; "
TAIL = "\n: >after-line\necho after >>after-echo\n"

CASES = [(h, shell) for h in HANGS for shell in h.shells]


def expected_state(h, shell):
    return h.state if isinstance(h.state, str) else h.state.get(shell, "kept")


@pytest.fixture(params=KINDS if is_long() else ("ns-root",))
def place(request, pool):
    return pool.get(request.param)


class Victim:
    """A session with some state, a child of an earlier command, and a text that will hang."""

    def __init__(self, box, shell):
        self.box, self.shell = box, shell
        self.s = make_session(box, shell)
        self.older = self.s.sleep_mark()
        folder = self.s.work
        nap = folder / "nap"
        nap.write_text('#!/bin/sh\nexec sleep "$@"\n')
        nap.chmod(0o755)
        r = self.s.run(f"PATH={folder}:$PATH; mkdir sub; cd sub; mkfifo fifo fifo2; kept='so it is'; "
                       f"fun() {{ echo fun; }}; sleep {self.older} & \n :")
        assert r.status == 0, r.err
        wait_until(lambda: box.find(f"sleep {self.older}"), 20, "the older child is a sleep")
        self.pid = self.s.show()["pid"]

    def hang(self, text, how, timeout):
        """Run the text until it is killed or timed out; the answer."""
        text = HEAD + text + TAIL
        if how == "timeout":
            return self.s.run(text, timeout=timeout, deadline=15)
        with self.box.connect(15) as w:
            w.request("exec", [("session", self.s.name)], text)
            wait_until(lambda: (self.s.work / "sub/begun").exists(), 5, "the text runs")
            self.box.call("kill", running=self.s.name)
            return w.finish()

    def check(self, a, states):
        left = sorted(p.name for p in (self.s.work / "sub").glob("after*"))
        assert not left, f"statements ran behind the hang: {left}"
        state = a.fields.get("state")
        assert state in states, a.fields
        assert a.fields.get("shell_restarted", False) == (state != "kept"), a.fields
        assert a.fields.get("state_lost", False) == (state == "lost"), a.fields
        r = self.s.run("echo \"$kept\"; pwd; fun", deadline=10)
        words = r.out.decode().split("\n")
        want = {"kept": "so it is", "restored": "so it is", "lost": ""}[state]
        assert words[0] == want and words[1] == f"{self.s.work}/sub", (r.out, r.err)
        has_fun = state == "kept" or (state == "restored" and self.shell == "bash")
        assert (words[2] == "fun") == has_fun, (r.out, r.err)
        assert (self.s.show()["pid"] == self.pid) == (state == "kept")
        assert self.s.run("/bin/sh -c 'exit 7'").status == 7
        assert self.box.find(f"sleep {self.older}"), "a child of an earlier command lives on"
        assert not self.survivors()

    def survivors(self):
        """Everything with the session's mark in its environment but its shell and the older child."""
        mark = f"SANDBOX_SESSION={self.s.name}".encode()
        mine = {self.s.shell_pid}
        found = []
        for p in self.box.processes():
            try:
                environ = Path(f"/proc/{p.pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in environ and p.pid not in mine and f"sleep {self.older}" not in p.command:
                found.append(p.command)
        return found


@pytest.mark.parametrize("how", ["timeout", "kill"])
@pytest.mark.parametrize("h, shell", CASES, ids=[f"{h.name}-{shell}" for h, shell in CASES])
def test_interrupt_matrix(place, h, shell, how):
    # a kill may come before the text has done what costs it its shell
    states = {expected_state(h, shell), "kept"} if how == "kill" else {expected_state(h, shell)}
    for timeout in (0.2, 2):
        v = Victim(place, shell)
        a = v.hang(h.text, how, timeout)
        # a machine that lets a spinning shell wait for the whole grace of 500 ms is asked once more, and
        # so is one on which the time was over before the text had done what costs it its shell
        state = a.fields.get("state")
        if state in states or state != "kept" and a.fields["duration_s"] < 0.5 or timeout == 2:
            break
        place.call("session.delete", name=v.s.name)
    assert (a.fields["verdict"], a.fields["status"]) == (
        ("timeout", 124) if how == "timeout" else ("killed_by_client", 137)), a.fields
    v.check(a, states)
    place.call("session.delete", name=v.s.name, deadline=10)


# ---- the race at the end of a text ------------------------------------------------------------


def run_with_kill(v, text, after):
    """Run a text and kill it `after` seconds later; the answer, and how long it took."""
    with v.box.connect(15) as w:
        w.request("exec", [("session", v.s.name)], text)
        end = time.monotonic() + after
        while time.monotonic() < end:
            pass
        try:
            w.send(wire.SIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return w.finish()


@pytest.mark.parametrize("shell", ALL)
def test_interrupt_at_the_end_of_a_text(place, shell):
    # given a text of some milliseconds, when it is killed within 1 ms of its end, or of its
    # beginning, then the same shell runs the next command rightly, every time
    v = Victim(place, shell)
    text = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); done; kept='so it is'"
    usual = sorted(v.s.run(text).seconds for _ in range(9))[4]
    rng = random.Random(4)
    verdicts = {}
    for i in range(repeats(1000)):
        after = max(0, usual + rng.uniform(-0.001, 0.001) if i % 4 else rng.uniform(0, 0.001))
        a = run_with_kill(v, text, after)
        verdict = a.fields["verdict"]
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        if i % 4:  # the machine is busier by now, or less
            usual += 0.0003 if verdict == "killed_by_client" else -0.0003
        assert verdict in ("exited", "killed_by_client"), a.fields
        assert a.fields["status"] == (0 if verdict == "exited" else 137), a.fields
        assert a.fields.get("state", "kept") == "kept", (i, a.fields)
        r = v.s.run(f"echo {i} \"$kept\"; fun; /bin/sh -c 'exit 7'")
        assert (r.status, r.out) == (7, b"%d so it is\nfun\n" % i), (i, a.fields, r)
        assert "state" not in r.fields
    print(verdicts)
    assert v.s.show()["pid"] == v.pid and v.s.show()["restarts"] == 0
    assert min(verdicts.get(k, 0) for k in ("exited", "killed_by_client")) > 0, verdicts
    place.call("session.delete", name=v.s.name, deadline=10)


@pytest.mark.parametrize("shell, text, word", [
    ("bash", "sleep 60", None),
    ("dash", "sleep 60", None),
    ("bash", "trap '' 40; sleep 60", b"restored"),
    ("bash", "set -e; sleep 60", b"restored"),
    ("dash", "trap '' 40; sleep 60", b"lost"),
    ("ash", "exec sleep 60", b"lost"),
])
def test_interrupt_sandboxctl_tells_of_another_shell(place, shell, text, word):
    s = make_session(place, shell)
    r = s.box.ctl("exec", "-s", s.name, "-t", "1s", text)
    told = [line for line in r.err.splitlines() if line.startswith(b"sandboxctl: ")]
    assert r.status == 124 and told.pop(0) == b"sandboxctl: timed out: its time is over", r
    assert len(told) == (word is not None), r
    assert word is None or (b"new shell" in told[0] and word in told[0]), r
    # what ends its own shell is told in the answer only
    assert s.box.ctl("exec", "-s", s.name, "exit 3").triple == (3, b"", b"")
    place.call("session.delete", name=s.name, deadline=10)


CPU = next((p for p in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None)


@pytest.fixture
def scarce_cpu():
    """A cgroup that gets a CPU for a thousandth of the time, with others in it."""
    if not CPU or not os.access(CPU, os.W_OK):
        pytest.skip("no cgroups that can be written")
    folder = CPU / f"sbx-scarce-{os.getpid()}"
    folder.mkdir()
    if (folder / "cpu.cfs_quota_us").exists():
        (folder / "cpu.cfs_period_us").write_text("1000000")
        (folder / "cpu.cfs_quota_us").write_text("1000")
    else:
        (CPU / "cgroup.subtree_control").write_text("+cpu")
        (folder / "cpu.max").write_text("1000 1000000")
    others = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8)]
    for p in others:
        (folder / "cgroup.procs").write_text(str(p.pid))
    yield folder
    for p in others:
        p.kill()
    for pid in (folder / "cgroup.procs").read_text().split():
        (CPU / "cgroup.procs").write_text(pid)
    for p in others:
        p.wait()
    folder.rmdir()


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_shell_that_gets_no_cpu_is_waited_for(scarce_cpu, shell):
    with Box("ns-root") as b:
        # given a command
        s = make_session(b, shell)
        s.exec("v=kept")
        pid = b.host_pid(next(r["pid"] for r in b.call("session.list").rows if r["name"] == s.name))
        w = b.connect()
        w.request("exec", [("session", s.name), ("timeout_ms", "1000")], "sleep 300")
        wait_until(lambda: [p for p in b.find("sleep 300") if p.comm == "sleep"], 10, "it sleeps")
        # when its time is over and its shell hardly gets a CPU for three seconds, as on a busy machine
        (scarce_cpu / "cgroup.procs").write_text(str(pid))
        time.sleep(3 + 1)
        (CPU / "cgroup.procs").write_text(str(pid))
        # then that shell has come back in the end, or does so now, and goes on
        a = w.finish()
        assert (a["verdict"], a.get("shell_restarted")) == ("timeout", None), a.fields
        assert s.exec("echo $v").out == b"kept\n"
        w.close()
