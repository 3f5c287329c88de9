"""C. The persistent shell dies: exit, set -e, exec, signals. The session does not."""

import pytest

from rig.box import Box, shell_path
from rig.places import make_session
from rig.wait import wait_until
from rig.wire import WireError

SHELLS = ("bash", "dash", "ash")


@pytest.fixture(params=SHELLS)
def t(request, pool):
    """A session in one box, for each shell."""
    s = make_session(pool.get("ns-root"), request.param)
    yield s
    s.box.call("session.delete", name=s.name)


def ended(r, status, **fields):
    """The answer to a text that ended its shell: its own status, quickly, and the mark."""
    assert r.status == status, r
    assert r.get("shell_restarted") is True and r.seconds < 10, r
    assert r.get("state_lost", False) is fields.pop("lost", False), r
    for k, v in fields.items():
        assert r.get(k) == v, (k, r)


def alive(s, **variables):
    """The next command runs, where the last one left off."""
    for name, value in variables.items():
        assert s.exec(f'echo "${name}"').triple == (0, f"{value}\n".encode(), b"")
    assert s.exec("echo alive").triple == (0, b"alive\n", b"")


def test_case_C1_exit(s):
    # given a session whose text said exit, then no zombie entry is left: it goes on
    s.exec("v=1; cd /dev")
    ended(s.run("exit 0"), 0, verdict="exited")
    assert s.exec("echo hi $v; pwd").triple == (0, b"hi 1\n/dev\n", b"")
    with pytest.raises(WireError) as e:
        s.box.session(s.name)
    assert "already exists" in str(e.value)
    # delete of it works, and then the name is free
    ended(s.run("exit 7"), 7)
    s.box.call("session.delete", name=s.name)
    s.box.session(s.name, shell=shell_path(s.shell), cwd=str(s.work))
    assert s.exec("echo ${v-fresh}").out == b"fresh\n"


@pytest.mark.parametrize("text, status", [
    ("exit", 0), ("exit 255", 255), ("(exit 3); exit", 3), ("f() { exit 4; }; f; echo no", 4),
    ("if :; then exit 5; fi", 5), ("command eval 'exit 6'; echo no", 6),
    ("for i in 1 2; do exit $i; done", 1), ("false || exit 9 | cat || exit 2; exit 8", 8),
    ("true; { exit 11; } 2>/dev/null", 11), ("echo x >out; . ./out 2>/dev/null; exit 12", 12),
])
def test_case_C1_every_way_out(t, text, status):
    t.exec("v=kept")
    ended(t.run(text), status, verdict="exited")
    alive(t, v="kept")


def test_case_C1_193_times(t):
    for i in range(20):
        ended(t.run(f"n=$((n + 1)); exit {i}"), i)
    alive(t, n=20)


def test_case_C2_errexit_outlives_its_text(s):
    s.exec("set -e; v=1")
    r = s.run("false")
    assert r.status == 1 and r.seconds < 10 and r["verdict"] == "exited"
    assert r.get("shell_restarted") is True and not r.get("state_lost")
    assert s.exec("echo alive $v").triple == (0, b"alive 1\n", b"")
    assert b"e" in s.exec("echo $-").out, "options persist as in any shell"
    assert s.exec("set +e; false; echo on").out == b"on\n"


@pytest.mark.parametrize("text, status, out", [
    ("set -e; echo a; false; echo b", 1, b"a\n"), ("set -e; (exit 7); echo b", 7, b""),
    ("set -e; f() { false; echo in; }; f; echo b", 1, b""),
    ("set -e; x=$(exit 5); echo b", 5, b""), ("set -e; if false; then :; fi; echo b", 0, b"b\n"),
    ("set -e; false || echo b", 0, b"b\n"), ("set -e; sh -c 'exit 9'; echo b", 9, b""),
])
def test_case_C2_within_one_text(t, text, status, out):
    r = t.run(text)
    assert (r.status, r.out) == (status, out)
    assert bool(r.get("shell_restarted")) is (status != 0) and not r.get("state_lost")
    assert t.exec("set +e; echo alive").out == b"alive\n"


@pytest.mark.parametrize("text", [
    "set -u; echo $nope; echo b", ": ${nope?gone}; echo b", "set -u; f() { echo ${nope}; }; f; echo b",
    "readonly nope=1; nope=2; echo b", ": ${nope:?}",
])
def test_case_C2_errors_of_expansion(t, text):
    t.exec("v=1")
    r = t.run(text)
    assert r.status in (0, 1, 2) and r.seconds < 10 and not r.get("state_lost")
    assert r.err and (r.out == b"" or t.shell == "bash")
    alive(t, v=1)


@pytest.mark.parametrize("text, out", [
    ("(: ${nope?}); echo $?", None), ("(set -u; echo $nope) 2>/dev/null || echo no", b"no\n"),
    ("x=$(readonly r=1; r=2; echo in); echo out", b"out\n"), ("(. /nonexistent/f) ; echo on", b"on\n"),
    ("(f() { : ${nope?}; }; f) | cat; echo on", b"on\n"), ("(eval 'if') 2>/dev/null; echo on", b"on\n"),
    ("(: ${nope?}) & wait; echo on", b"on\n"),
])
def test_case_C2_an_error_in_a_subshell_ends_that_alone(t, text, out):
    # given an error that ends a subshell, then its parent goes on, and no child stands beside it
    r = t.run(text, timeout=20)
    assert r.status == 0 and r["verdict"] == "exited" and not r.get("shell_restarted"), r
    assert out is None or r.out.endswith(out)
    assert not r.get("strays") and t.exec("echo alive").out == b"alive\n"


def test_case_C4_a_pipe_s_sigpipe_is_no_end(s):
    # given SIGPIPE in a pipeline, then nothing ends; sent to the shell itself, it does
    s.exec("v=1")
    r = s.run("yes | head -1; echo x")
    assert (r.status, r.out) == (0, b"y\nx\n") and not r.get("shell_restarted")
    ended(s.run("yes | head -1; kill -PIPE $$; echo x"), 141, verdict="signaled", signal="SIGPIPE")
    ended(s.run("kill -HUP $$"), 129, verdict="signaled", signal="SIGHUP")
    assert s.exec("echo still $v").triple == (0, b"still 1\n", b"")


@pytest.mark.parametrize("name, number", [
    ("HUP", 1), ("TERM", 15), ("PIPE", 13), ("INT", 2), ("ALRM", 14), ("USR1", 10),
    ("USR2", 12), ("XCPU", 24)])
def test_case_C4_signals_that_end_the_shell(t, name, number):
    t.exec("cd /dev; v='a b'; export E=1")
    r = t.run(f"echo in; kill -{name} $$; echo no")
    assert r.out == b"in\n"
    lost = name == "XCPU" and t.shell != "bash"
    ended(r, 128 + number, verdict="signaled", signal=f"SIG{name}", lost=lost)
    assert t.exec("pwd").out == b"/dev\n", "the cwd is kept in any case"
    alive(t, v="" if lost else "a b", E="" if lost else 1)


def test_case_C4_a_child_kills_the_shell(t):
    t.exec("v=1")
    ended(t.run("sh -c 'kill -TERM $PPID'; sleep 20; echo no"), 143, signal="SIGTERM")
    alive(t, v=1)


@pytest.mark.parametrize("text", [
    "trap 'echo mine' TERM; kill -TERM $$; echo on", "trap '' HUP; kill -HUP $$; echo on",
    "trap 'echo mine' USR1; kill -USR1 $$; echo on",
])
def test_case_C4_the_user_s_own_traps_win(t, text):
    r = t.run(text)
    assert r.status == 0 and r.out.endswith(b"on\n") and not r.get("shell_restarted")
    assert r.out.startswith(b"mine") is ("mine" in text)
    # and they do after a restart
    ended(t.run("exit 1"), 1)
    r = t.run(text.partition(";")[2])
    assert r.status == 0 and r.out.endswith(b"on\n") and not r.get("shell_restarted")
    assert r.out.startswith(b"mine") is ("mine" in text)


@pytest.mark.parametrize("text, status, verdict", [
    ("kill -KILL $$; echo no", 137, "signaled"), ("exec true", 0, "exited"),
    ("exec sh -c 'exit 5'", 5, "exited"), ("exec sh -c 'kill -TERM $$'", 143, "signaled"),
    ("sh -c 'kill -9 $PPID'; sleep 20", 137, "signaled"),
])
def test_case_C4_what_cannot_be_saved_is_said(t, text, status, verdict):
    t.exec("v=1; cd /dev")
    ended(t.run(text), status, verdict=verdict, lost=True)
    assert t.exec("pwd; echo ${v-lost}").triple == (0, b"/dev\nlost\n", b"")


def test_case_C5_exit_before_the_end_of_a_list(s):
    ended(s.run("exit 42 || true", timeout=30), 42)
    ended(s.run("exit 43 && echo x; echo y", timeout=30), 43)
    ended(s.run("( exit 1 ) || exit 44; echo z", timeout=30), 44)
    alive(s)


def test_case_C5_a_shell_that_only_reads(t):
    # given `set -n`, when the shell carries out nothing any more, then that is the shell's end
    t.exec("v=1; cd /dev")
    r = t.run("set -n", deadline=10)
    assert r["verdict"] == "shell_ended" and r.seconds < 10, r
    assert r.get("shell_restarted") is True and r.get("state_lost") is True
    assert t.exec("pwd").out == b"/dev\n"
    alive(t)


def test_case_C5_output_before_the_end_is_there(t):
    r = t.run("head -c 300000 /dev/zero | tr '\\0' x; echo e >&2; exit 3")
    assert (r.status, len(r.out), r.err) == (3, 300000, b"e\n")
    r = t.run("sleep 30 & echo a; exit 4")
    ended(r, 4)
    assert r.out == b"a\n"


# ---- EXIT traps of the user ------------------------------------------------------------------


def test_case_C1_an_exit_trap_of_an_earlier_text(t):
    # given an EXIT trap, when a later text ends the shell, then the trap runs, once, with the
    # status, and the state is there afterwards all the same
    t.exec(f"v=1; trap 'echo bye $? $v >>{t.path('bye')}; cd /; v=3' EXIT; cd /dev")
    r = t.run("v=2; echo x; exit 3")
    ended(r, 3)
    assert r.out == b"x\n" and t.path("bye").read_text() == "bye 3 2\n"
    assert t.exec("echo $v; pwd").triple == (0, b"2\n/dev\n", b"")
    ended(t.run("exit 4"), 4)
    assert t.path("bye").read_text() == "bye 3 2\n", "it has run"


def test_case_C1_an_exit_trap_changes_and_goes(t):
    t.exec("trap 'echo one >>out' EXIT")
    t.exec("trap 'echo \"it'\"'\"'s\ntwo\" >>out' EXIT")
    assert t.exec("echo unharmed").triple == (0, b"unharmed\n", b"")
    ended(t.run("exit 0"), 0)
    assert t.path("out").read_text() == "it's\ntwo\n"
    t.exec("trap 'echo three >>out' EXIT")
    t.exec("trap - EXIT")
    ended(t.run("exit 5"), 5)
    assert t.path("out").read_text() == "it's\ntwo\n"


def test_case_C1_an_exit_trap_that_exits(t):
    t.exec("v=1; trap 'exit 9' EXIT")
    ended(t.run("exit 2"), 9)
    alive(t, v=1)


def test_case_C1_an_exit_trap_of_the_same_text(t):
    # its trap stands in the place of the one that saves: the answer says what that costs
    r = t.run("trap 'echo mine' EXIT; cd /dev; exit 3")
    ended(r, 3, lost=True)
    assert r.out == (b"mine\n" if t.shell == "bash" else r.out)
    alive(t)


def test_case_C1_a_start_does_not_run_the_session_s_exit_trap(t):
    t.exec("trap 'echo end >>out' EXIT; v=1")
    id, _ = t.start("echo $v")
    assert t.box.wait_process(id)["status"] == 0
    assert t.box.logs(id).out == b"1\n"
    assert not t.path("out").exists()
    ended(t.run("exit 0"), 0)
    assert t.path("out").read_text() == "end\n", "the session still has it"
# ---- C7 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setup, status, word", [
    ("exit 3", 3, "exit 3"), ("v=1\n  false", 1, "false"), ("kill -KILL $$", 137, "kill -KILL"),
    ("set -e\n  cd /nonexistent 2>/dev/null\n  echo no", None, "cd /nonexistent"),
])
def test_case_C7_a_set_up_that_fails(setup, status, word):
    # given a configured session whose set-up fails, then it has failed at once, and says which
    # command it was and with what status
    with Box("ns-root", ini={"sessions": {"kill_grace": "300ms"},
                             "session:work": {"setup": setup}}) as box:
        wait_until(lambda: box.call("session.show", name="work")["state"] == "failed", 5, "it failed")
        show = box.call("session.show", name="work").fields
        assert word in show["why"] and "setup" in show["why"]
        if status is not None:
            assert f"status {status}" in show["why"]
        r = box.exec("true", "work")
        assert r.status == 125 and word.encode() in r.err
        assert box.is_alive


def test_case_C7_a_set_up_that_works():
    with Box("ns-root", ini={"session:work": {"setup": "cd /dev\n  v='a b'\n  f() { echo f; }"}}) as box:
        assert box.exec("pwd; echo $v; f", "work").triple == (0, b"/dev\na b\nf\n", b"")
        box.exec("v=changed; cd /", "work")
        box.call("session.reset", name="work")
        assert box.exec("pwd; echo $v", "work").triple == (0, b"/dev\na b\n", b"")


def test_case_C7_a_created_session(pool):
    b = pool.get("ns-root")
    with pytest.raises(WireError) as e:
        b.session("c7", setup="sleep 30 & exit 3")
    assert "exit 3" in str(e.value) and "status 3" in str(e.value)
    assert "c7" not in [r["name"] for r in b.call("session.list").rows]
    b.session("c7", setup="x=1")
    assert b.exec("echo $x", "c7").out == b"1\n"
    b.call("session.delete", name="c7")
