"""The verb exec, in a session and without one."""

import contextlib
import os
import re
import signal
import threading
import time

import pytest

from rig import wire
from rig.verbs import EXEC_KEYS, data, end, make, nap, refused
from rig.box import Box
from rig.wait import wait_until


# ---- exec in a session -----------------------------------------------------------------------


def test_exec_sources(box):
    # TEXT, -- ARGV, -f FILE, -f -, -
    n = make(box)
    text = "X=$((X + 1)); echo \"$X 'q' \\\"\"; (exit 7)"
    file = box.work / "text"
    file.write_text(text)
    for i, r in enumerate([
        box.ctl("exec", "-s", n, text),
        box.ctl("exec", "-s", n, "-f", file),
        box.ctl("exec", "-s", n, f"--file={file}"),
        box.ctl("exec", "-s", n, "-f", "-", input=text),
        box.ctl("exec", "-s", n, "-", input=text),
        box.ctl("exec", f"-s{n}", text),
        box.ctl("exec", text, "--session", n),
    ]):
        assert r.triple == (7, f"{i + 1} 'q' \"\n".encode(), b"")
    r = box.ctl("exec", "-s", n, "--", "printf", "%s|", "$X", "a b", "", "*", "-n", "'", "é\n")
    assert r.triple == (0, "$X|a b||*|-n|'|é\n|".encode(), b"")
    assert box.ctl("exec", "-s", n, "--", "sh", "-c", "exit 3").status == 3
    r = box.ctl("exec", "-s", n, "--", "/nonexistent/p", "x")
    assert r.status == 127 and b"/nonexistent/p" in r.err
    # builtins and functions are programs here
    assert box.ctl("exec", "-s", n, "--", "cd", "/usr").status == 0
    assert box.exec("pwd", n).out == b"/usr\n"
    box.ctl_ok("session", "delete", n)


def test_exec_empty_text_and_file(one, name):
    (one.work / "empty").write_text("")
    for args in (["", ], ["-f", one.work / "empty"], ["-f", "/dev/null"]):
        assert one.ctl("exec", "-s", name, *args).triple == (0, b"", b"")
    assert one.ctl("exec", "-s", name, "-", input=b"").triple == (0, b"", b"")


@pytest.mark.parametrize("options, word", [
    (["-f", "/nonexistent/t"], "/nonexistent/t: No such file or directory"),
    (["-f", "/"], "/: Is a directory"), (["-f", "/etc/passwd", "true"], "more than one"),
    (["true", "--", "true"], "more than one"), (["a", "b"], "quote it"), ([], "no command"),
    (["--env", "x", "true"], "NAME=VALUE"), (["--timeout", "1", "true"], "duration"),
    (["--stdin", "-"], "stdin can't be both"), (["-x", "true"], "-x"),
])
def test_exec_usage_is_125(one, name, options, word):
    r = one.ctl("exec", "-s", name, *options)
    assert r.status == 125 and word in r.err.decode() and r.out == b"", r


def test_exec_cwd_and_env_are_the_calls_own(box):
    n = make(box)
    sub = box.work / n / "sub"
    sub.mkdir()
    os.chown(sub, box.uid, box.uid)
    box.exec("V=session; export W=session", n)
    seen = "printf '%s ' \"$(pwd)\" $V $W ${N-unset}; sh -c 'echo ${V-unset} $W ${N-unset}'"
    r = box.ctl("exec", "-s", n, "--cwd", "/usr", "--env", "V=call", "-e", "W=call", "--env=N=x y",
                seen)
    assert r.out == b"/usr call call x y call call x y\n"
    r = box.ctl("exec", "-s", n, "--cwd", "sub", seen)
    assert r.out == f"{sub} session session unset unset session unset\n".encode(), "relative"
    assert box.ctl("exec", "-s", n, "--cwd", "sub/../sub/.", "--", "pwd").status == 0
    # none of it stays
    assert box.exec(seen, n).out == (
        f"{box.work / n} session session unset unset session unset\n".encode())
    for cwd, why in (("/nonexistent/d", "No such file or directory"), ("nope", "No such file"),
                     ("/etc/passwd", "Not a directory"), ("", "empty")):
        refused(box.ctl("exec", "-s", n, "--cwd", cwd, "echo never"), "cwd", cwd, why, status=125)
    d = data(box, "exec", "-s", n, "--cwd", "/nonexistent/d", "echo never", status=125)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "cwd", 2)
    if box.kind == "ns-user":
        refused(box.ctl("exec", "-s", n, "--cwd", "/root", "pwd"), "/root", "Permission denied",
                status=125)
    assert box.exec("pwd", n).out == f"{box.work / n}\n".encode()
    box.ctl_ok("session", "delete", n)


def test_exec_timeout(box):
    n = make(box)
    mark = nap(box)
    box.exec("X=kept", n)
    r = box.ctl("exec", "-s", n, "--timeout", "1s", f"echo before; {mark}; echo after")
    assert (r.status, r.out) == (124, b"before\n") and r.seconds < 20 and not box.find(mark)
    d = data(box, "exec", "-s", n, "-t", "200ms", f"{mark}", status=124)
    assert d["verdict"] == "timeout" and d["status"] == 124
    assert box.exec("echo $X", n).out == b"kept\n"
    box.ctl_ok("session", "delete", n)


def test_exec_stdin(box):
    # without --stdin the command is at end of file; with it every byte comes, both ways at once
    n = make(box)
    assert box.ctl("exec", "-s", n, "cat; echo end", input=b"not seen").out == b"end\n"
    body = os.urandom(3 << 20) + bytes(range(256))
    assert box.exec("cat", n, stdin=body).triple == (0, body, b"")
    assert box.ctl("exec", "-s", n, "--stdin", "--", "cat", input=body).triple == (0, body, b"")
    r = box.exec("tee /dev/fd/2", n, stdin=body[:300_000])
    assert r.triple == (0, body[:300_000], body[:300_000])
    # a command that does not read all of it ends all the same
    r = box.exec("head -c 5; echo; echo done", n, stdin=body, deadline=15)
    assert r.triple == (0, body[:5] + b"\ndone\n", b"")
    assert box.exec("read x; echo \"$x\"; cat", n, stdin=b"a\nb\nc").out == b"a\nb\nc"
    assert box.exec("cat", n, stdin=b"").triple == (0, b"", b"")
    box.ctl_ok("session", "delete", n)


def test_an_end_of_file_comes_though_init_starts_others():
    # given a client that sends its bytes and the end of file at once, when init starts programs
    # meanwhile (between fork and exec each has a copy of the FIFO's other end), then the shell that
    # opens its stdin later gets both
    with Box("ns-root") as box:
        box.session("s")
        is_over = threading.Event()

        def start_others():
            while not is_over.is_set():
                box.exec(["true"])

        others = [threading.Thread(target=start_others) for _ in range(4)]
        for t in others:
            t.start()
        try:
            for _ in range(100):
                assert box.ctl("exec", "-s", "s", "--stdin", "cat", input=b"in\n").out == b"in\n"
        finally:
            is_over.set()
            for t in others:
                t.join()


@pytest.mark.parametrize("what", ["another end", "bytes", "leaving"])
def test_nothing_follows_an_end_of_file(one, name, what):
    # given a command whose shell has not opened its stdin yet, when the end of file comes and something
    # behind it, then the command sees what came before it and the end
    for i in range(20):
        with one.connect(10) as w:
            w.request("exec", [("session", name), ("id", f"{name}-{i}"), ("stdin", 1), ("detach", 1)], f"cat > {name}-{i}")
            w.send(b"i", b"in\n")
            w.send(b"i", b"")
            with contextlib.suppress(BrokenPipeError):  # it is over already
                if what == "another end":
                    w.send(b"i", b"")
                elif what == "bytes":
                    w.send(b"i", b"more\n")
            assert b"started" in w.receive()[1]
            if what != "leaving":
                assert w.finish().status == 0
        assert one.call("exec", id=f"{name}-{i}", **{"from": 0}, deadline=10).status == 0
        assert one.exec(f"cat {name}-{i}", name).out == b"in\n"


@pytest.mark.parametrize("lock", ["LOCK_EX", "LOCK_SH"])
def test_an_end_of_file_comes_to_who_has_locked_its_stdin(one, name, lock):
    with one.connect(10) as w:
        w.request("exec", [("session", name), ("stdin", 1)],
                  f"python3 -c 'import fcntl; fcntl.flock(0, fcntl.{lock}); print(\"locked\", flush=True); print(input())'"
                  "; cat")
        w.finish(until=lambda a: a.out)
        w.send(b"i", b"in\nrest\n")
        w.send(b"i", b"")
        a = w.finish()
        assert (a.status, a.out[-3:]) == (0, b"in\n"), a


def test_exec_json(one, name):
    d = data(one, "exec", "-s", name, "printf 'é\\n'; echo err >&2; (exit 3)", status=3)
    assert EXEC_KEYS <= set(d)
    assert (d["stdout"], d["stderr"], d["status"], d["verdict"]) == ("é\n", "err\n", 3, "exited")
    assert (d["stdout_bytes"], d["stderr_bytes"]) == (3, 4)
    d = data(one, "exec", "-s", name, "printf '\\377\\000'")
    assert d["stdout_base64"] == "/wA=" and "stdout" not in d
    d = data(one, "exec", "-s", name, f"{nap(one)} &")
    assert len(d["strays"]) == 1 and re.fullmatch(r"\d+ \w+ age=\d+\.\d", d["strays"][0])
    d = data(one, "exec", "-s", "nowhere", "true", status=125)
    assert d["error"]["code"] == "not_found"


@pytest.mark.parametrize("sig, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exec_interrupted(one, name, sig, status):
    # Ctrl-C ends the command, not the session; what it says on the way is shown
    mark = nap(one)
    client = one.ctl_spawn("exec", "-s", name,
                           f"X=1; sh -c 'trap \"echo bye; exit\" TERM; {mark} & wait'; echo no")
    wait_until(lambda: [p for p in one.find(mark) if p.comm == "sleep"], 5, "it runs, and its trap is set")
    client.send_signal(sig)
    got, out, _ = end(client)
    assert (got, out) == (status, b"bye\n")
    assert not one.find(mark)
    assert one.exec("echo $X", name).out == b"1\n"


def test_exec_says_what_became_of_the_shell(one, name):
    one.exec("X=1", name)
    d = data(one, "exec", "-s", name, "exit 9", status=9)
    assert d["shell_restarted"] is True and "state_lost" not in d
    assert one.exec("echo $X", name).out == b"1\n"
    d = data(one, "exec", "-s", name, "kill -9 $$", status=137)
    assert d["shell_restarted"] is True and d["state_lost"] is True and d["signal"] == "SIGKILL"


# ---- exec without a session ------------------------------------------------------------------


def test_stateless_exec(box):
    assert box.ctl("exec", "X=1; echo ${X}; (exit 4)").triple == (4, b"1\n", b"")
    assert box.ctl("exec", "echo ${X-fresh} ${SANDBOX_SESSION-none}").out == b"fresh none\n"
    r = box.ctl("exec", "--cwd", "/usr", "--env", "A=x y", "--", "sh", "-c", "pwd; echo \"$A\"")
    assert r.triple == (0, b"/usr\nx y\n", b"")
    assert box.ctl("exec", "--cwd", "/usr", "-e", "A=z", "pwd; echo $A").out == b"/usr\nz\n"
    # relative: to where init was started
    (box.work / "rel").mkdir(exist_ok=True)
    assert box.ctl("exec", "pwd").out == f"{box.work}\n".encode()
    assert box.ctl("exec", "--cwd", "rel", "pwd").out == f"{box.work / 'rel'}\n".encode()
    assert box.ctl("exec", "--cwd", "rel", "--", "pwd").out == f"{box.work / 'rel'}\n".encode()
    mark = nap(box)
    r = box.ctl("exec", "--timeout", "2s", f"echo a; {mark}; echo b")
    assert (r.status, r.out) == (124, b"a\n") and not box.find(mark)
    body = os.urandom(1 << 20)
    assert box.exec("cat", stdin=body).triple == (0, body, b"")
    assert box.exec(["cat"], stdin=body).triple == (0, body, b"")
    assert box.ctl("exec", "cat; echo end", input=b"x").out == b"end\n"
    assert box.ctl("exec", "-f", "-", input=b"echo from-stdin").out == b"from-stdin\n"
    for args in (["true"], ["--", "true"]):
        refused(box.ctl("exec", "--cwd", "/nonexistent/d", *args), "/nonexistent/d",
                "No such file or directory", status=125)
    refused(box.ctl("exec", "--cwd", "", "true"), "cwd", status=125)
    refused(box.ctl("exec", "--", "nonexistent-program"), "nonexistent-program",
            "No such file or directory", status=127)
    refused(box.ctl("exec", "--", "/etc/passwd"), "/etc/passwd", "Permission denied", status=126)
    assert [r for r in data(box, "ps") if r["kind"] == "exec" and r["state"] != "exited"] == []


ORDERS = {
    "stdout, then stderr": ("echo 1; echo 2 >&2", ["stdout", "stderr"]),
    "stderr, then stdout": ("echo 1 >&2; echo 2", ["stderr", "stdout"]),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "goes on"])
def test_the_stream_that_was_written_first_is_read_first(one, order, ends):
    # given a command that writes to both streams while init is busy elsewhere, and is perhaps over then
    text, streams = ORDERS[order]
    mark = nap(one)
    w = one.connect()
    w.request("exec", [], f"mkfifo o-go; cat o-go; rm o-go; {text}; touch o-done; {'exit 3' if ends else mark}")
    # (the words are those of its shell as well, which has made no FIFO yet)
    wait_until(lambda: [p for p in one.find("cat o-go") if p.comm == "cat"], 5, "it runs")
    one.signal(signal.SIGSTOP)
    (one.work / "o-go").write_text("")
    wait_until((one.work / "o-done").exists, 5, "it has written")
    # when init comes to it
    one.signal(signal.SIGCONT)
    # then the client has the bytes in the order of their writing
    channels = {wire.STDOUT: "stdout", wire.STDERR: "stderr"}
    got = []
    while len(got) < 2:
        channel, payload = w.receive()
        if channel in channels:
            got.append((channels[channel], payload))
    assert got == list(zip(streams, (b"1\n", b"2\n")))
    w.close()
    (one.work / "o-done").unlink()


def test_stateless_exec_is_seen_and_killed(one):
    mark = nap(one)
    client = one.ctl_spawn("exec", f"echo x; {mark}")
    wait_until(lambda: [p for p in one.find(mark) if p.comm == "sleep"], 5, "it runs, behind its echo")
    row = wait_until(lambda: [r for r in data(one, "ps") if mark in r["text"]], 5, "it is listed")[0]
    assert row["kind"] == "exec" and row["state"] == "running" and row["session"] == ""
    assert one.ctl("kill", row["id"]).triple == (0, b"", b"")
    assert end(client)[:2] == (137, b"x\n") and not one.find(mark)


def test_stateless_exec_json(one):
    d = data(one, "exec", "echo a; echo b >&2; exit 2", status=2)
    assert EXEC_KEYS <= set(d) and (d["stdout"], d["stderr"]) == ("a\n", "b\n")
    d = data(one, "exec", "--", "nonexistent-program", status=127)
    assert (d["verdict"], d["step"], d["errno"]) == ("spawn_failed", "exec", 2)


def test_a_client_of_an_init_that_stood_still():
    # given a client whose output waits for it to read; when all stands still for longer than a client may, as `docker
    # pause` does; then it is not taken for one that does not read, and its command goes on
    with Box(ini={"init": {"client_stall": "1s"}}) as box, box.connect(20) as w:
        w.request("exec", [("output_limit", "0")], "head -c 20000000 /dev/zero")
        assert b"started" in w.receive()[1]
        time.sleep(0.3)  # a moment for init to be blocked in; it may not last as long as client_stall
        os.kill(box.init_pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(box.init_pid, signal.SIGCONT)
        a = w.finish()
        assert (a.status, len(a.out)) == (0, 20_000_000)
