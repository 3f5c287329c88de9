"""M. Session state: cwd, subshells, parallel calls."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from rig.box import Box
from rig.wait import repeats, wait_until


def together(*calls):
    with ThreadPoolExecutor(len(calls)) as ex:
        return [f.result() for f in [ex.submit(c) for c in calls]]


def test_case_M1_the_folder_is_gone(s):
    # given a session whose cwd was removed, when commands run, then they run
    d = s.path("d")
    assert s.exec(f"mkdir {d} && cd {d}").status == 0
    assert s.box.exec(f"rmdir {d}").status == 0
    r = s.exec("echo a", deadline=10)
    assert r.triple == (0, b"a\n", b"")
    # a process falls back to a folder that exists and says so
    id, _ = s.start("/bin/pwd; echo started") if s.box.kind != "busybox" else s.start("echo started")
    assert s.box.wait_process(id)["status"] == 0
    assert b"started" in s.box.logs(id).out
    assert s.exec("cd / && pwd").triple == (0, b"/\n", b"")


def test_case_M1_removed_by_the_command_itself(s):
    d = s.path("e")
    r = s.exec(f"mkdir {d}; cd {d}; rmdir {d}; echo a", deadline=10)
    assert (r.status, r.out) == (0, b"a\n")
    assert s.exec("echo b").triple == (0, b"b\n", b"")
    # per-call cwd works from there
    assert s.exec("pwd", cwd="/").out == b"/\n"
    assert s.exec(f"mkdir {d}; cd {d} && pwd").out == bytes(d) + b"\n"


def test_case_M1_no_permission_any_more(s):
    d = s.path("f")
    s.exec(f"mkdir {d} && cd {d}")
    os.chmod(d, 0)
    r = s.exec("echo a", deadline=10)
    assert r.triple == (0, b"a\n", b"")
    os.chmod(d, 0o755)
    assert s.exec("cd .. && echo b").out == b"b\n"


def test_case_M2_the_default_folder_becomes_a_link(kind):
    with Box(kind) as box:
        ws, w2 = box.work / "workspace", box.work / "w2"
        ws.mkdir()
        os.chown(ws, box.uid, box.uid)
        box.session("s", cwd=str(ws))
        r = box.exec(f"mv {ws} {w2}; ln -s {w2} {ws}", "s")
        assert r.status == 0
        r = box.exec("pwd; ls", "s")
        assert r.status == 0
        id, _ = box.start("pwd", "s")
        assert box.wait_process(id)["status"] == 0
        # a folder that is not there: one clear message with name and reason
        r = box.ctl("session", "create", "t", "--cwd", box.work / "absent")
        assert r.status != 0 and str(box.work / "absent").encode() in r.err
        assert b"No such file or directory" in r.err
        # a file, and a folder without permission
        (box.work / "file").write_text("")
        r = box.ctl("session", "create", "t", "--cwd", box.work / "file")
        assert r.status != 0 and b"Not a directory" in r.err
        # after the failures the name is free
        assert box.ctl("session", "create", "t").status == 0


def test_case_M4_two_calls_race(s):
    # given two calls with cd at the same time, when both run, then never mixed
    for _ in range(repeats(100)):
        a, b = together(lambda: s.exec("cd /tmp; sleep 0.02; pwd"),
                        lambda: s.exec("cd /dev; sleep 0.02; pwd"))
        assert (a.out, b.out) == (b"/tmp\n", b"/dev\n")


def test_case_M4_the_queue_is_first_in_first_out(s):
    # given one that holds the lock, when five more come one after another, then they run in the
    # order in which they came
    holder = s.box.ctl_spawn("exec", "-s", s.name, "echo in; until [ -e go ]; do sleep 0.02; done")
    assert holder.stdout.readline() == b"in\n"
    with ThreadPoolExecutor(5) as ex:
        futures = []
        for i in range(5):
            futures.append(ex.submit(s.exec, f"echo {i} >> order; sleep 0.02"))
            wait_until(lambda: s.show()["queue"] == i + 1, 20, "the waiter is queued")
        s.path("go").touch()
        assert [f.result().status for f in futures] == [0] * 5
    holder.communicate()
    assert s.path("order").read_text().split() == list("01234")


def test_case_M4_other_sessions_are_not_delayed(s):
    other = s.box.session()
    holder = s.box.ctl_spawn("exec", "-s", s.name, "echo in; sleep 60")
    assert holder.stdout.readline() == b"in\n"
    r = s.box.exec("echo free", other, deadline=30)
    assert r.out == b"free\n" and r.seconds < 20
    r = s.box.exec("echo stateless", deadline=30)
    assert r.out == b"stateless\n" and r.seconds < 20
    holder.kill()
    holder.communicate()
    s.box.call("session.delete", name=other)


def test_case_M5_loop_variables_do_not_mix(s):
    a, b = together(lambda: s.exec("for f in 1 2 3; do sleep .01; echo A$f; done"),
                    lambda: s.exec("for f in 7 8 9; do sleep .01; echo B$f; done"))
    assert (a.out, b.out) == (b"A1\nA2\nA3\n", b"B7\nB8\nB9\n")


def test_case_M5_counters(s):
    s.exec("n=0")
    rs = together(*[lambda: s.exec("m=$n; sleep 0.01; n=$((m + 1)); echo $n")] * 8)
    assert sorted(int(r.out) for r in rs) == list(range(1, 9))


def test_case_M5_many_sessions_at_once(box):
    names = [box.session() for _ in range(6)]
    rs = together(*[lambda n=n: box.exec(f"v={n}; sleep 0.05; echo $v", n) for n in names])
    assert [r.out.decode().strip() for r in rs] == names
    for n in names:
        assert box.exec("echo $v", n).out == n.encode() + b"\n"
        box.call("session.delete", name=n)


def test_case_M7_a_pwd_that_init_inherited():
    # given an init that a shell of another folder started, when a call has a cwd, then the session
    # goes back to where it was: $PWD is its own
    with Box("ns-root", env={"PWD": "/usr", "OLDPWD": "/var", "SHLVL": "7"}) as box:
        box.session("s")
        here = box.exec("cd /tmp; pwd; echo $PWD", "s").out
        assert here == b"/tmp\n/tmp\n"
        assert box.exec("pwd", "s", cwd="/etc").out == b"/etc\n"
        assert box.exec("pwd; echo $PWD", "s").out == here
        fresh = box.session("t")
        assert box.exec('[ "$PWD" = "$(/bin/pwd)" ]; echo $?', "t").out == b"0\n", fresh


def test_case_M7_the_call_s_own_cwd(s):
    a, b = together(lambda: s.exec("pwd", cwd="/tmp"), lambda: s.exec("pwd", cwd="/dev"))
    assert (a.out, b.out) == (b"/tmp\n", b"/dev\n")
    # the session's own is as before
    assert s.exec("pwd").out == bytes(s.work) + b"\n"


def test_case_M7_a_cd_inside_the_text_stays(s):
    assert s.exec("cd /dev").status == 0
    assert s.exec("pwd").out == b"/dev\n"
    assert s.exec("cd /; pwd", cwd="/tmp").out == b"/\n"
    assert s.exec("pwd").out == b"/dev\n", "with a cwd of its own the call leaves none behind"
    assert s.exec("(cd /proc); pwd").out == b"/dev\n"


@pytest.mark.parametrize("text, check, out", [
    ("v='a b'", 'echo "$v"', b"a b\n"), ("export E=1", "sh -c 'echo $E'", b"1\n"),
    ("f() { echo f-$1; }", "f 2", b"f-2\n"), ("unset PATH", "echo ${PATH-gone}", b"gone\n"),
    ("set -- x y", "echo $#-$2", b"2-y\n"), ("umask 027", "umask", None),
    ("alias ll='echo aliased'; :", "alias ll", None), ("set -f", "echo *", b"*\n"),
    ("cd /; cd /dev", "cd -", b"/\n"), ("readonly R=5", "echo $R", b"5\n"),
    ("trap 'echo bye' USR1", "kill -USR1 $$; :", b"bye\n"), ("x=1; (x=2)", "echo $x", b"1\n"),
    ("exec 4>four; echo a >&4", "echo b >&4; cat four", b"a\nb\n"), ("IFS=:", "v=a:b; echo $v", b"a b\n"),
])
def test_case_M7_state_lives_on(s, text, check, out):
    assert s.exec(text).status == 0
    r = s.exec(check)
    assert r.status == 0 and r.err == b""
    if out is not None:
        assert r.out == out
    if text == "umask 027":
        assert int(r.out, 8) == 0o027


@pytest.mark.parametrize("text, check, out", [
    ("declare -A m=([a]=1 [b]=2)", "echo ${m[a]}${m[b]}", b"12\n"),
    ("a=(1 'x y' 3)", 'echo "${#a[@]} ${a[1]}"', b"3 x y\n"),
    ("shopt -s extglob", "case ab in @(ab|cd)) echo m;; esac", b"m\n"),
    ("declare -i n=3", "n+=4; echo $n", b"7\n"), ("pushd / >/dev/null", "dirs | wc -w", b"2\n"),
    ("set -o pipefail", "false | true; echo $?", b"1\n"), ("local x=1 2>/dev/null; :", ":", b""),
])
def test_case_M7_state_of_bash_lives_on(pool, kind, text, check, out):
    from rig.places import make_session

    b = pool.get(kind)
    s = make_session(b, "bash")
    assert s.exec(text).status == 0
    r = s.exec(check)
    assert (r.status, r.out) == (0, out)
    b.call("session.delete", name=s.name)
