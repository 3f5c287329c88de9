"""The verbs start, send, ps, logs and wait."""

import hashlib
import json
import os
import re

import pytest

from rig.box import Box, shell_path
from rig.verbs import EXEC_KEYS, PS_KEYS, data, end, fresh_name, make, nap, refused, show, start
from rig.wait import wait_until


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


@pytest.mark.parametrize("shell", ["dash", "ash"])
def test_start_in_other_shells(one, shell):
    # (functions and arrays are bash's)
    n = make(one, "--shell", shell_path(shell))
    one.exec("cd /usr; export E='ex ported'; P='plain'; umask 027", n)
    id, _ = start(one, "-s", n, "pwd; umask; echo \"$P\"; sh -c 'echo \"$E\" ${P-unset}'")
    assert one.ctl("wait", id).status == 0
    assert one.ctl("logs", id).triple == (0, b"/usr\n0027\nplain\nex ported unset\n", b"")
    one.ctl_ok("session", "delete", n)


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
    assert {l.split()[0]: l.split()[2] == "-" for l in lines} == {mine: False, ended: True}
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
    for each in naps:  # not the shell that is to begin it
        wait_until(lambda: [p for p in one.find(each) if p.comm == "sleep"], 5, each)
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
    wait_until(lambda: [p for p in one.find(mark) if p.comm == "sleep"], 5, "it runs")
    row = [r for r in data(one, "ps", "-s", name) if r["id"] == id][0]
    assert row["state"] == "exited" and row["strays"] == 1
    rows = [r for r in data(one, "ps", "--tree", "-s", name) if r["text"] == mark]
    assert [(r["id"], r["depth"]) for r in rows] == [(id, 0)], "once, under its process"
    assert one.ctl("kill", id).status == 0 and not one.find(mark)


def test_ps_shows_the_main_command():
    # given a main command with a child
    with Box("ns-root", main=["sh", "-c", "sleep 1000; :"]) as box:
        main = box.status()["main_pid"]
        wait_until(lambda: [p for p in box.find("sleep 1000") if p.comm == "sleep"], 10, "it runs")
        # then it is a row, and with its child a tree; a session's rows are its own
        row, = [r for r in box.ps() if r["kind"] == "main"]
        assert (row["id"], row["pid"], row["state"], row["text"]) == ("main", main, "running", "sh -c sleep 1000; :")
        wait_until(lambda: [(r["name"], int(r["depth"])) for r in box.call("tree").rows if r["id"] == "main"]
                   == [("sh", 0), ("sleep", 1)], 10, "its child is there")
        box.session("s")
        assert not [r for r in box.ps("s") if r["kind"] == "main"]
        # and what a client may do with its processes is refused with the way to do it
        for verb in (["kill"], ["logs"], ["wait"]):
            r = box.ctl(*verb, "main")
            assert r.status != 0 and b"main command" in r.err and b"sandboxctl shutdown" in r.err, r


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
    # given three writes, each of which init has read before the next one
    id, _ = start(box, "--stdin", "echo one; read x; echo two >&2; read x; printf three")
    wait_until(lambda: box.logs(id).out == b"one\n", 5, "one")
    box.ctl_ok("send", id, input=b"\n")
    wait_until(lambda: box.logs(id).err == b"two\n", 5, "two")
    box.ctl_ok("send", id, "--eof", input=b"\n")
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
