"""Ids that a caller chose: a call under one runs at most once, and can be joined again."""

import json

import pytest

from rig.box import Box
from rig.verbs import data, end, fresh_name, is_running, make, nap, refused, start
from rig.wait import wait_until


def test_ids_the_same_call_runs_once(s):
    # given a command with an id that is over
    s.run("N=0")
    id = fresh_name()
    text = "N=$((N + 1)); echo out$N; echo err$N >&2; (exit 7)"
    first = s.box.ctl("exec", "-s", s.name, "--id", id, text)
    assert first.triple == (7, b"out1\n", b"err1\n")
    # when the same call comes again, then it gets that run's output and answer
    for _ in range(3):
        assert s.box.ctl("exec", "-s", s.name, "--id", id, text).triple == first.triple
    assert s.exec("echo $N").out == b"1\n"
    # and without the id it is another one
    assert s.exec(text).out == b"out2\n"


def test_ids_another_call_is_refused(one, name):
    id = fresh_name()
    base = ["exec", "-s", name, "--id", id, "--cwd", "/", "--env", "A=1"]
    one.ctl_ok(*base, "echo a")
    other = make(one)
    for args in ([*base, "echo b"], [*base, "--", "echo", "a"], [*base, "--env", "B=1", "echo a"],
                 ["exec", "-s", name, "--id", id, "echo a"], [*base, "--stdin", "echo a"],
                 ["exec", "-s", other, "--id", id, "--cwd", "/", "--env", "A=1", "echo a"],
                 ["exec", "--id", id, "--cwd", "/", "--env", "A=1", "echo a"],
                 [*base, "echo a "], [*base, ""]):
        refused(one.ctl(*args), f"'{id}'", "another call", status=125)
    # what does not make another call of it: limits, and how its client looks on
    assert one.ctl(*base, "--timeout", "9s", "--output-limit", "1M", "echo a").triple == (
        0, b"a\n", b"")
    assert one.ctl(*base, "--detach", "echo a").triple == (0, b"a\n", b"")
    assert json.loads(one.ctl("--json", *base, "echo a").out)["stdout"] == "a\n"


@pytest.mark.parametrize("a, b", [
    (["--", "a", "bc"], ["--", "ab", "c"]), (["--", "a", ""], ["--", "a"]),
    (["--env", "A=1", "--env", "B=2", "true"], ["--env", "A=1B=2", "true"]),
    (["x" * 70000], ["x" * 70001]), (["y" * 70000 + "1"], ["y" * 70000 + "2"]),
])
def test_ids_tell_close_calls_apart(one, a, b):
    id = fresh_name()
    one.ctl("exec", "--id", id, *a)
    refused(one.ctl("exec", "--id", id, *b), f"'{id}'", status=125)
    assert one.ctl("exec", "--id", id, *a).status != 125


@pytest.mark.parametrize("id", ["", "-x", ".x", "a b", "a/b", "é", "x" * 65, "a\nb", "_a"])
def test_ids_bad_names(one, name, id):
    assert one.ctl("exec", "-s", name, f"--id={id}", "true").status == 125
    refused(one.ctl("exec", "-s", name, f"--id={id}", "true"), "A-Z", status=125)
    one.ctl_ok("exec", "-s", name, f"--id={fresh_name()}", "true")


def test_ids_are_shared_with_processes(one, name):
    a, b = fresh_name(), fresh_name()
    one.ctl_ok("exec", "-s", name, "--id", a, "echo a")
    refused(one.ctl("start", "--id", a, "echo a"), f"'{a}'")
    start(one, "--id", b, "echo b")
    refused(one.ctl("exec", "--id", b, "echo b"), f"'{b}'", status=125)
    # one that init makes up is never one that is taken
    n = int(one.call("exec", text="true")["id"][1:])
    mine = [f"{letter}{n + k}" for k in range(2, 6) for letter in "cp"]
    for id in mine:
        one.ctl_ok("exec", "--id", id, "--", "echo", id)
    for _ in range(6):
        assert one.call("exec", text="true")["id"] not in mine
        assert one.call("exec", text="true", session=name)["id"] not in mine


def test_ids_two_clients_at_once_get_all(s):
    id = fresh_name()
    text = "echo begin; until [ -e go ]; do sleep 0.02; done; seq 1 30000; echo end >&2; (exit 3)"
    clients = [s.box.ctl_spawn("exec", "-s", s.name, "--id", id, text) for _ in range(3)]
    is_running(s.box, s.name)
    clients.append(s.box.ctl_spawn("exec", "-s", s.name, "--id", id, text))
    for c in clients:
        assert c.stdout.read(6) == b"begin\n", "it has joined"
    s.path("go").touch()
    want = "".join(f"{i}\n" for i in range(1, 30001)).encode()
    for c in clients:
        assert end(c) == (3, want, b"end\n")


def test_ids_one_client_leaves_another_stays(one, name):
    id, mark = fresh_name(), nap(one)
    args = ["exec", "-s", name, "--id", id, f"echo up; {mark}; echo down"]
    first, second = one.ctl_spawn(*args), one.ctl_spawn(*args)
    assert first.stdout.read(3) == second.stdout.read(3) == b"up\n"
    wait_until(lambda: one.find(mark), 5, "it sleeps")
    first.kill()
    end(first)
    assert one.exec("echo other").out == b"other\n"
    assert len(one.find(mark)) == 1, "the second holds it"
    second.kill()
    end(second)
    wait_until(lambda: not one.find(mark), 5, "the last one is gone: killed")
    r = one.ctl(*args)
    assert (r.status, r.out) == (137, b"up\n"), "that is its answer from now on"


def test_ids_detach_goes_on_without_a_client(s):
    id = fresh_name()
    args = ["exec", "-s", s.name, "--id", id, "--detach",
            "echo up; until [ -e go ]; do sleep 0.02; done; cd /; echo down; (exit 5)"]
    first = s.box.ctl_spawn(*args)
    assert first.stdout.read(3) == b"up\n"
    first.kill()
    end(first)
    row = [r for r in s.box.ps() if r["id"] == id]
    assert [r["state"] for r in row] == ["running"]
    # when a client comes again, then it gets the whole, and the answer
    again = s.box.ctl_spawn(*args)
    assert again.stdout.read(3) == b"up\n"
    s.path("go").touch()
    assert end(again) == (5, b"down\n", b"")
    assert s.exec("pwd").out == b"/\n"
    # and so do wait and logs
    assert s.box.ctl("wait", id).status == 5
    assert s.box.ctl("logs", id).triple == (0, b"up\ndown\n", b"")
    assert [(r["state"], r["status"]) for r in s.box.ps() if r["id"] == id] == [("exited", 5)]


def test_ids_detach_without_an_id_of_ones_own(one, name):
    mark = nap(one)
    with one.connect() as w:
        w.request("exec", [("session", name), ("detach", "1")], f"echo up; {mark}")
        id = wait_until(lambda: one.call("session.show", name=name).fields.get("running"), 5)
    assert one.find(mark) or wait_until(lambda: one.find(mark), 5)
    one.ctl_ok("kill", id)
    d = data(one, "wait", id, status=137)
    assert (d["id"], d["verdict"]) == (id, "killed_by_client")
    refused(one.ctl("kill", id), id, "already exited")


def test_ids_from_an_offset(one, name):
    id = fresh_name()
    args = ["exec", "-s", name, "--id", id]
    text = "printf 0123456789; sleep 0.1; printf abcdef >&2"
    refused(one.ctl(*args, "--from", "0", text), id, "no command", status=125)
    one.ctl_ok(*args, text)
    for at, out, err in ((0, b"0123456789", b"abcdef"), (4, b"456789", b"abcdef"),
                         (10, b"", b"abcdef"), (13, b"", b"def"), (16, b"", b"")):
        assert one.ctl(*args, "--from", at, text).triple == (0, out, err)
    refused(one.ctl(*args, "--from", 17, text), "17", "16", status=125)
    assert one.ctl(*args, "--from", "x", text).status == 125
    assert one.ctl(*args, "--from", "0", text + " ").status == 125


def test_ids_of_one_that_waits_for_the_session(one, name):
    mark = nap(one)
    holder = one.ctl_spawn("exec", "-s", name, mark)
    is_running(one, name)
    id = fresh_name()
    args = ["exec", "-s", name, "--id", id, "X=$((X + 1)); echo $X"]
    clients = [one.ctl_spawn(*args) for _ in range(3)]
    wait_until(lambda: [w["id"] for w in one.call("session.show", name=name).rows] == [id], 5)
    clients[0].kill()
    end(clients[0])
    one.ctl_ok("kill", "--running", name)
    assert end(holder)[0] == 137
    for c in clients[1:]:
        assert end(c) == (0, b"1\n", b"")


def test_ids_stateless(one):
    id = fresh_name()
    marker = one.work / id
    args = ["exec", "--id", id, "--", "sh", "-c", f"echo x >>{marker}; cat {marker}; exit 4"]
    for _ in range(3):
        assert one.ctl(*args).triple == (4, b"x\n", b"")
    # a program that isn't there was not run once either
    id = fresh_name()
    for _ in range(2):
        r = one.ctl("exec", "--id", id, "--", "/nonexistent/p")
        assert r.status == 127 and b"/nonexistent/p" in r.err


def test_ids_stdin_is_the_first_clients(one, name):
    id = fresh_name()
    args = ["exec", "-s", name, "--id", id, "--stdin", "echo up; cat; echo end"]
    first = one.ctl_spawn(*args, stdin=-1)
    assert first.stdout.read(3) == b"up\n"
    second = one.ctl_spawn(*args, stdin=-1)
    assert second.stdout.read(3) == b"up\n"
    second.stdin.write(b"dropped\n")
    second.stdin.close()
    second.stdin = None
    first.stdin.write(b"taken\n")
    first.stdin.flush()
    assert second.stdout.read(6) == b"taken\n"
    # when the first leaves, then stdin is at its end
    first.kill()
    end(first)
    assert end(second) == (0, b"end\n", b"")


def test_ids_stdin_of_a_detached_waiter_ends_too(one, name):
    mark = nap(one)
    holder = one.ctl_spawn("exec", "-s", name, mark)
    is_running(one, name)
    id = fresh_name()
    args = ["exec", "-s", name, "--id", id, "--stdin", "--detach", "cat; echo end"]
    first = one.ctl_spawn(*args, stdin=-1)
    wait_until(lambda: [w["id"] for w in one.call("session.show", name=name).rows] == [id], 5)
    first.kill()
    end(first)
    one.ctl_ok("kill", "--running", name)
    end(holder)
    d = data(one, "wait", id)
    assert (d["verdict"], one.ctl("logs", id).out) == ("exited", b"end\n")


def test_ids_outlive_their_session(one):
    n, id = make(one), fresh_name()
    args = ["exec", "-s", n, "--id", id, "echo a"]
    one.ctl_ok(*args)
    one.ctl_ok("session", "delete", n)
    assert one.ctl(*args).triple == (0, b"a\n", b"")
    # one that the delete ends says so, each time
    n, id = make(one), fresh_name()
    args = ["exec", "-s", n, "--id", id, f"echo up; {nap(one)}"]
    p = one.ctl_spawn(*args)
    assert p.stdout.read(3) == b"up\n"
    one.ctl_ok("session", "delete", n)
    status, _, err = end(p)
    assert status == 137 and b"was deleted" in err
    r = one.ctl(*args)
    assert r.status == 137 and r.out == b"up\n" and b"was deleted" in r.err


def test_ids_are_forgotten_oldest_first():
    with Box(ini={"sessions": {"command_keep": "3", "output_keep": "4K"}}) as box:
        box.ctl_ok("session", "create", "s")
        for i in range(5):
            assert box.ctl("exec", "-s", "s", "--id", f"k{i}", f"X=$((X + 1)); echo {i} $X").out == (
                f"{i} {i + 1}\n".encode())
        assert [r["id"] for r in box.ps()] == ["k2", "k3", "k4"]
        refused(box.ctl("logs", "k1"), "k1", "not found")
        # a forgotten id is free: the call runs again
        assert box.ctl("exec", "-s", "s", "--id", "k0", "X=$((X + 1)); echo 0 $X").out == b"0 6\n"
        assert [r["id"] for r in box.ps()] == ["k3", "k4", "k0"]
        # many of them: neither memory nor descriptors grow
        text = "seq 1 3000; X=$((X + 1))"
        for i in range(20):
            box.ctl_ok("exec", "-s", "s", "--id", f"w{i}", text)
        fds, memory = box.fds(), box.memory()[1]
        for i in range(150):
            box.call("exec", session="s", id=f"m{i}", text=text)
        assert box.fds() <= fds + 3 and box.memory()[1] - memory < 400_000
        # none is kept with 0: at most once only while it lives
        box.write_ini({"sessions": {"command_keep": "0"}})
        box.ctl_ok("reload")
        box.ctl_ok("exec", "--id", "z", "true")
        assert box.ps() == []


def test_ids_long_output_is_lost_in_the_middle_and_said():
    with Box(ini={"sessions": {"output_keep": "64K"}}) as box:
        box.ctl_ok("session", "create", "s")
        args = ["exec", "-s", "s", "--id", "big", "seq 1 1000000"]
        whole = "".join(f"{i}\n" for i in range(1, 1000001)).encode()
        assert box.ctl(*args).triple == (0, whole, b"")
        r = box.ctl(*args)
        assert r.status == 0 and b"lost bytes " in r.err
        first, last = (int(x) for x in r.err.split()[-1].split(b".."))
        assert r.out == whole[:first] + whole[last:]
        d = json.loads(box.ctl("--json", *args).out)
        assert d["truncated"] and d["lost_bytes"] == last - first
        assert d["stdout_bytes"] == len(whole)


def test_start_is_at_most_once(s):
    id = fresh_name()
    text = "echo x >>started; until [ -e go ]; do sleep 0.02; done; exit 6"
    args = ["start", "-s", s.name, "--id", id, text]
    # given the same call from several clients at once, when they are answered, then one has begun
    clients = [s.box.ctl_spawn(*args) for _ in range(4)]
    answers = {end(c) for c in clients}
    assert len(answers) == 1 and answers.pop()[0] == 0
    _, pid = start(s.box, "-s", s.name, "--id", id, text)
    row = [r for r in s.box.ps(s.name) if r["id"] == id]
    assert [r["pid"] for r in row] == [pid]
    refused(s.box.ctl("start", "-s", s.name, "--id", id, "true"), f"'{id}'", "another call")
    s.path("go").touch()
    assert s.box.ctl("wait", id).status == 6
    # and after its end, too
    assert start(s.box, "-s", s.name, "--id", id, text) == (id, pid)
    assert s.path("started").read_text() == "x\n"


def test_start_at_most_once_when_it_failed(one, name):
    id = fresh_name()
    for _ in range(2):
        refused(one.ctl("start", "-s", name, "--id", id, "--cwd", "/nonexistent/d", "true"),
                "/nonexistent/d", "No such file")
    id = fresh_name()
    for _ in range(2):
        refused(one.ctl("start", "--id", id, "--", "/nonexistent/p"), "/nonexistent/p")
