"""What an answer says: verdict, status, signal, times, bytes, the three meanings of done."""

import errno
import json

import pytest

from rig.box import Box
from rig.verbs import data, end, fresh_name, is_running, make, nap, start
from rig.wait import wait_until

VERDICTS = {"exited", "signaled", "timeout", "killed_by_client", "oom", "output_limit",
            "spawn_failed", "shell_ended"}


def answer(box, session, *args, status=0):
    """The JSON object of an exec."""
    at = ["-s", session] if session else []
    r = box.ctl("--json", "exec", *at, *args)
    assert r.status == status, r
    d = json.loads(r.out)
    assert d["verdict"] in VERDICTS and d["status"] == status
    assert d["duration_s"] >= 0 and type(d["truncated"]) is bool
    return d


def done(d):
    return d["exited"], d["drained"], d["quiescent"]


# ---- how it ended -----------------------------------------------------------------------------


@pytest.mark.parametrize("text, status, verdict, signal", [
    ("true", 0, "exited", None), ("(exit 1)", 1, "exited", None), ("(exit 255)", 255, "exited", None),
    ("no-such-program-here", 127, "exited", None), ("sh -c 'kill -9 $$'", 137, "exited", "SIGKILL"),
    ("sh -c 'kill -USR1 $$'", 128 + 10, "exited", "SIGUSR1"),
])
def test_answers_of_a_session(s, text, status, verdict, signal):
    d = answer(s.box, s.name, text, status=status)
    assert (d["verdict"], d.get("signal")) == (verdict, signal)
    assert done(d) == (True, True, True) and "step" not in d
    assert "shell_restarted" not in d and "state_lost" not in d


@pytest.mark.parametrize("args, status, verdict, signal", [
    (["--", "true"], 0, "exited", None), (["--", "sh", "-c", "exit 9"], 9, "exited", None),
    (["kill -TERM $$"], 143, "signaled", "SIGTERM"), (["kill -9 $$"], 137, "signaled", "SIGKILL"),
    (["kill -SEGV $$"], 139, "signaled", "SIGSEGV"), (["exit 137"], 137, "exited", None),
])
def test_answers_without_a_session(one, args, status, verdict, signal):
    d = answer(one, None, *args, status=status)
    assert (d["verdict"], d.get("signal")) == (verdict, signal)
    assert done(d) == (True, True, True) and d["peak_kib"] > 100


def test_answers_of_a_timeout_without_a_session():
    # (a grace that is long enough for TERM on any machine)
    with Box(ini={"sessions": {"kill_grace": "30s"}}) as box:
        d = answer(box, None, "--timeout", "100ms", "sleep 60", status=124)
        assert (d["verdict"], d.get("signal")) == ("timeout", "SIGTERM")
        assert done(d) == (True, True, True) and d["peak_kib"] > 100


def test_answers_of_what_was_ended(s):
    d = answer(s.box, s.name, "--timeout", "100ms", "sleep 60", status=124)
    assert (d["verdict"], d["state"]) == ("timeout", "kept") and 0.09 < d["duration_s"] < 15
    p = s.box.ctl_spawn("--json", "exec", "-s", s.name, f"sleep {s.sleep_mark()}")
    is_running(s.box, s.name)
    s.box.ctl_ok("kill", "--running", s.name)
    status, out, _ = end(p)
    assert status == 137 and json.loads(out)["verdict"] == "killed_by_client"
    d = answer(s.box, s.name, "exit 3", status=3)
    assert d["shell_restarted"] and "state_lost" not in d and d["verdict"] == "exited"
    d = answer(s.box, s.name, "kill -9 $$", status=137)
    assert d["shell_restarted"] and d["state_lost"]
    assert (d["verdict"], d["signal"]) == ("signaled", "SIGKILL")
    d = answer(s.box, s.name, "echo next")
    assert done(d) == (True, True, True) and d["stdout"] == "next\n"


# ---- what never ran ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def programs(pool):
    """Files that cannot be executed, each in its own way."""
    folder = pool.get("ns-root").work / "programs"
    folder.mkdir(exist_ok=True)
    for name, content, mode in (("denied", "#!/bin/sh\n", 0o644), ("garbage", "\0\1\2\3", 0o755),
                                ("orphan", "#!/no/such/interpreter\n", 0o755)):
        (folder / name).write_text(content)
        (folder / name).chmod(mode)
    return folder


@pytest.mark.parametrize("name, status, number", [
    ("missing", 127, errno.ENOENT), ("denied", 126, errno.EACCES),
    ("garbage", 126, errno.ENOEXEC), ("orphan", 127, errno.ENOENT), (".", 126, errno.EACCES),
    ("denied/x", 127, errno.ENOTDIR),
])
def test_answers_spawn_failed_says_step_and_errno(one, programs, name, status, number):
    path = f"{programs}/{name}"
    d = answer(one, None, "--", path, status=status)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "exec", number)
    assert path in d["message"] and done(d) == (False, True, True)
    # and of a process
    r = one.ctl("--json", "start", "--", path)
    e = json.loads(r.out)["error"]
    assert r.status == 1 and e["errno"] == number and path in e["message"]


@pytest.mark.parametrize("session", [True, False])
@pytest.mark.parametrize("cwd, number", [
    ("/no/such/folder", errno.ENOENT), ("/etc/passwd", errno.ENOTDIR),
    ("/" + "x" * 300, errno.ENAMETOOLONG)])
def test_answers_spawn_failed_at_the_folder(one, name, session, cwd, number):
    d = answer(one, name if session else None, "--cwd", cwd, "echo never", status=125)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "cwd", number)
    assert d["stdout"] == "" and cwd[:30] in d["message"] and not d["exited"]
    at = ["-s", name] if session else []
    r = one.ctl("--json", "start", *at, "--cwd", cwd, "echo never")
    assert json.loads(r.out)["error"]["errno"] == number


def test_answers_spawn_failed_at_the_process_limit():
    # given an init whose user may have no more processes
    with Box("ns-user", before=["prlimit", "--nproc=1"]) as box:
        for args in (["--", "true"], ["true"], ["--id", "x", "true"]):
            d = answer(box, None, *args, status=125)
            assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "start", errno.EAGAIN)
            assert "fork: Resource temporarily unavailable" in d["message"]
            assert done(d) == (False, True, True)
        for verb, args in (("start", ["true"]), ("session", ["create", "s"])):
            r = box.ctl("--json", verb, *args)
            assert json.loads(r.out)["error"]["errno"] == errno.EAGAIN
        # the one with an id has had its answer
        assert data(box, "wait", "x", status=125)["errno"] == errno.EAGAIN
        assert [r["id"] for r in box.ps()] == ["x"]


def test_answers_spawn_failed_while_it_waited(one):
    n = make(one)
    holder = one.ctl_spawn("exec", "-s", n, nap(one))
    is_running(one, n)
    p = one.ctl_spawn("--json", "exec", "-s", n, "echo never")
    wait_until(lambda: one.call("session.show", name=n).fields["queue"] == 1, 5)
    one.ctl_ok("session", "delete", n)
    end(holder)
    status, out, _ = end(p)
    d = json.loads(out)
    assert (status, d["verdict"], d["step"]) == (125, "spawn_failed", "session")
    assert done(d) == (False, True, True)


# ---- the three meanings of done ---------------------------------------------------------------

# The child is what it is to be, and holds what it is to hold.
SEEN = 'until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.01; done'


def test_answers_drained_and_quiescent(s):
    # a child that holds the output
    mark = s.sleep_mark()
    d = answer(s.box, s.name, f"sleep {mark} & {SEEN}; echo up")
    assert done(d) == (True, False, False) and d["stdout"] == "up\n"
    assert [x for x in d["strays"] if "sleep" in x]
    s.exec("kill $!; wait $!")
    # one that does not
    d = answer(s.box, s.name, f"sleep {mark} >/dev/null 2>&1 </dev/null & {SEEN}; echo up")
    assert done(d) == (True, True, False)
    s.exec("kill $!; wait $!")
    assert done(answer(s.box, s.name, "echo all is over")) == (True, True, True)


def test_answers_drained_and_quiescent_of_processes(one):
    for text, want in (("true", (True, True, True)),
                       (f"{nap(one)} >/dev/null 2>&1 & {SEEN}; exit 4", (True, True, False)),
                       (f"{nap(one)} & {SEEN}; exit 5", (True, False, False))):
        id, _ = start(one, text)
        r = one.ctl("--json", "wait", id)
        d = json.loads(r.out)
        assert done(d) == want and d["verdict"] == "exited"
        row = [r for r in data(one, "ps") if r["id"] == id][0]
        assert done(row) == want and row["status"] == d["status"]
        if not want[2]:
            one.ctl_ok("kill", id)


# ---- what it took -----------------------------------------------------------------------------

SPIN = "i=0; while [ $i -lt {n} ]; do i=$((i + 1)); done"


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_answers_cpu_time_is_the_commands_own(pool, shell):
    s = pool.session("ns-root", shell)
    busy = SPIN.format(n=100000 if shell == "bash" else 300000)
    own = answer(s.box, s.name, busy)
    total = own["user_s"] + own["system_s"]
    assert 0.05 < total <= own["duration_s"] + 0.03, own

    def next_has_none():
        """Of a text behind those: a machine that takes a CPU away for a moment is asked again."""
        child = answer(s.box, s.name, f"({busy}); ({busy})")
        assert child["user_s"] + child["system_s"] > 0.05, child
        # when the next does nothing, then nothing of that is told as its own
        idle = answer(s.box, s.name, "sleep 0.05")
        for _ in range(3):
            s.exec("true")
        return idle["user_s"] + idle["system_s"] <= 0.03 and answer(s.box, s.name, "sleep 0.03")["user_s"] <= 0.02

    def next_shell_has_none():
        # a shell that ends tells too
        d = answer(s.box, s.name, f"{busy}; exit 3", status=3)
        assert d["user_s"] + d["system_s"] > 0.05 and "peak_kib" not in d
        d = answer(s.box, s.name, "exit 4", status=4)
        return d["user_s"] + d["system_s"] <= 0.05

    assert any(next_has_none() for _ in range(3)), "a text that takes no CPU time is told so"
    assert any(next_shell_has_none() for _ in range(3)), "a shell that ends at once is told so"
    s.box.call("session.delete", name=s.name)


def test_answers_usage_of_a_process(one):
    id, _ = start(one, f"({SPIN.format(n=300000)}); head -c 30000000 /dev/zero | tail -c 30000000 | wc -c")
    d = data(one, "wait", id)
    assert d["user_s"] + d["system_s"] > 0.05 and d["peak_kib"] > 20000
    assert d["stdout_bytes"] == 9 and d["stderr_bytes"] == 0


def test_answers_are_the_same_for_all_who_ask(one, name):
    id = fresh_name()
    args = ["exec", "-s", name, "--id", id, "echo a; echo bb >&2; sleep 0.02; (exit 6)"]
    first = answer(one, None, *args[1:], status=6)
    again = answer(one, None, *args[1:], status=6)
    assert first == again
    waited = data(one, "wait", id, status=6)
    assert waited == {k: v for k, v in first.items()
                      if k not in ("stdout", "stderr", "stdout_kept", "stderr_kept", "truncated")}


def test_answers_output_that_is_no_text(one, name):
    d = answer(one, name, r"printf '\377\000'; printf 'ok \303\251' >&2")
    assert d["stdout_base64"] == "/wA=" and d["stderr"] == "ok é" and "stdout" not in d
