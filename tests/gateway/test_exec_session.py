"""Exec with a Session-Id: the state persists, one at a time, times and kills leave the session whole."""

import json
import os
import signal
import threading

import pytest

from rig.box import read_stat
from rig.http import collect
from rig.wait import repeats, wait_until


INI = {"init": {"stop_grace": "2s", "text_limit": "1M"}}


@pytest.fixture
def s(gw):
    """run(argv, …) in a session of its own; a text is one for the session's shell."""
    name = f"s{next(numbers)}"

    def run(what, **kw):
        return gw.http.exec(["eval", what] if isinstance(what, str) else what, session=name, **kw)

    run.name, run.gw = name, gw
    return run


numbers = iter(range(1, 10_000))


def show(s):
    return s.gw.http.ok("GET", f"session/{s.name}")


def busy(s, waiting=0):
    """Wait until something runs in the session, and so many wait for it."""
    return wait_until(lambda: (v := show(s))["state"] == "busy" and v["queue"] == waiting and v, 15, "it is busy")


def test_state_persists(gw):
    # given a session that nobody made; then folder, variables and functions live on from call to call
    def run(*argv):
        return gw.http.exec(argv, session="keeps")

    assert run("cd", "/tmp").triple == (0, b"", b"")
    assert run("export", "A=it's b").triple == (0, b"", b"")
    assert run("eval", "f() { echo \"f:$1\"; }; B=2").status == 0
    assert run("f", "x y").out == b"f:x y\n"
    r = run("eval", 'echo "$PWD $A $B"; sh -c \'echo "$A $B"\'')
    assert r.triple == (0, b"/tmp it's b 2\nit's b \n", b"")
    assert r.start["pid"] > 1 and r["verdict"] == "exited" and r["exec_id"] == r.start["exec_id"]


@pytest.mark.parametrize("are_new", [False, True], ids=["known", "new"])
@pytest.mark.parametrize("busy_one", ["gateway", "init"])
def test_first_come_first_served_though_all_are_heard_at_once(s, busy_one, are_new):
    # given clients with a connection each, and one of the programs busy elsewhere for a moment; in
    # this moment others end, whose descriptors are used again
    s(f"mkdir first-come-{s.name}; cd first-come-{s.name}")
    clients = [s.gw.http.open() for _ in range(20)]
    others = [s.gw.http.open() for _ in range(4)]
    for c in others if are_new else clients + others:
        c.request("GET", "/health")
        assert c.response().status == 200
    processes = [s.gw.start("exec sleep 1000")[1] for _ in range(4)]
    pids = [s.gw.host_pid(p) for p in processes]
    pid = {"gateway": s.gw.gateway_pid, "init": s.gw.init_pid}[busy_one]
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: read_stat(pid).state == "T", 10, "it is stopped")
    # when each asks for a command, one after the other
    for i, c in enumerate(clients):
        c.request("POST", f"{s.gw.http.root}/exec", [*s.gw.http.auth(), ("Session-Id", s.name)],
                  json.dumps({"argv": ["eval", f"echo {i} >> order"]}).encode())
        if busy_one == "init":
            wait_until(lambda: not c.unread, 10, "the gateway has taken it")
    for c in others:
        c.close()
    for p in pids:
        os.kill(p, signal.SIGKILL)
    os.kill(pid, signal.SIGCONT)
    # then the commands run in this order
    for c in clients:
        assert c.response().status == 200
        c.close()
    assert s("cat order").out.split() == [b"%d" % i for i in range(len(clients))]


def test_words_are_quoted(s):
    # given words with every kind of byte; then the shell gives them on unchanged
    words = ["a b", "", "'", '"', "$HOME", "`id`", "*", "~", "\\", "\n", "\t", "é", "😀", "-n", "--", ";", "&", "!", "#x"]
    r = s(["printf", "[%s]", *words])
    assert r.out == "".join(f"[{w}]" for w in words).encode()


def test_output_is_exact(s):
    # given output without a newline, and bytes that are not UTF-8; then nothing is added
    assert s(["printf", "yes"]).out == b"yes"
    assert s(r"printf '\377\000\303'; printf 'e\342' >&2").triple == (0, b"\xff\0\xc3", b"e\xe2")


def test_cwd_is_of_that_call_only(s):
    (s.gw.workspace / "only").mkdir(exist_ok=True)
    assert s(["cd", "/tmp"]).status == 0
    assert s(["pwd"], cwd="only").out == b"/workspace/only\n"
    assert s(["pwd"]).out == b"/tmp\n"
    r = s(["pwd"], cwd="none")
    assert (r.error["error"], r.error["code"], r.out) == ("Command execution failed", "exec_error", b"")
    assert r.error["detail"] == "cwd /workspace/none: No such file or directory"
    assert s(["pwd"]).out == b"/tmp\n"


def test_two_calls_queue(s):
    # given a call that runs and two that come after it; then they run in their order, one at a time
    gw = s.gw
    first = gw.http.exec_stream(["eval", "echo 1 >>order; until [ -e go3 ]; do sleep 0.02; done"], session=s.name)
    busy(s)
    second = gw.http.exec_stream(["eval", "echo 2 >>order"], session=s.name)
    busy(s, 1)
    third = gw.http.exec_stream(["eval", "cat order"], session=s.name)
    v = busy(s, 2)
    assert v["running_text"].startswith("eval") and v["running"] == first.next().json["exec_id"]
    assert [w["kind"] for w in v["waiting"]] == ["command"] * 2 and "cat order" in v["waiting"][1]["text"]
    (gw.workspace / "go3").touch()
    with first, second, third:
        assert [collect(e).triple for e in (first, second, third)] == [(0, b"", b""), (0, b"", b""),
                                                                       (0, b"1\n2\n", b"")]


def test_case_M4_parallel_calls_do_not_mix(s):
    # given two calls at once that change folder; then each sees its own, whoever is first
    got = []

    def one(folder):
        got.append((folder, s(f"cd {folder}; sleep 0.02; pwd").out))

    for _ in range(repeats(20)):
        both = [threading.Thread(target=one, args=(f,)) for f in ("/tmp", "/usr")]
        [t.start() for t in both]
        [t.join() for t in both]
    assert all(out == f"{folder}\n".encode() for folder, out in got) and len(got) >= 4


def test_first_use_at_once(gw):
    # given ten calls at once in a session that there is not; then it is made once, and all are served
    streams = [gw.http.exec_stream(["eval", "n=$((${n:-0} + 1)); echo $$ $n"], session="ten") for _ in range(10)]
    told = []
    for e in streams:
        with e:
            told.append(collect(e).out.split())
    assert len({pid for pid, _ in told}) == 1 and sorted(int(n) for _, n in told) == list(range(1, 11))


def test_case_E1_timeout_keeps_the_session(s):
    # given state, then a call that takes too long; then 124, and the same shell with its state
    assert s("A=kept; cd /tmp; echo $$").status == 0
    pid = s("echo $$").out
    for ms in (300, 3000, 15000):  # on a busy machine it may not have begun when its time is over
        r = s("echo first; sleep 65.5; echo never", timeout_ms=ms)
        if r.out:
            break
    assert (r.status, r.out, r["verdict"]) == (124, b"first\n", "timeout")
    assert r.err.endswith(b"Command timed out after %dms\n" % ms) and r["state"] == "kept"
    assert s('echo "$A $PWD $$"').triple == (0, b"kept /tmp " + pid, b"")
    assert not [p for p in s.gw.processes() if "sleep 65.5" in p.command and p.state != "Z"]


def test_case_E7_no_word_of_the_kill_later(s):
    s("sleep 9", timeout_ms=200)
    assert s("echo a; echo b >&2").triple == (0, b"a\n", b"b\n")


def test_kill_keeps_the_session(s):
    # given a call that runs and one that waits; when both are killed by their ids; then the shell lives
    gw = s.gw
    s("A=1")
    with gw.http.exec_stream(["sleep", "66.5"], session=s.name) as first:
        first_id = first.next().json["exec_id"]
        second = gw.http.exec_stream(["touch", "never"], session=s.name)
        second_id = busy(s, 1)["waiting"][0]["exec_id"]
        assert gw.http.ok("POST", f"exec/{second_id}/kill")["state"] == "exited"
        with second:
            r = collect(second)
        assert r.status == 137 and r["verdict"] == "killed_by_client"
        assert gw.http.ok("POST", f"exec/{first_id}/kill")["state"] == "exited"
        r = collect(first)
        assert (r.status, r["verdict"], r["state"]) == (137, "killed_by_client", "kept")
    assert s("echo $A").out == b"1\n" and not (gw.workspace / "never").exists()


def test_case_D1_background_children(s):
    # given a child that holds stdout; then the answer comes at the command's end, and the child lives
    r = s("sleep 67.5 & echo hi")
    assert r.triple == (0, b"hi\n", b"") and r.seconds < 10 and not r["quiescent"]
    assert r["stray_count"] == 1
    wait_until(lambda: [p for p in s.gw.processes() if p.command == "sleep 67.5"], 15, "it lives")
    s.gw.http.ok("DELETE", f"session/{s.name}")
    assert not [p for p in s.gw.processes() if "sleep 67.5" in p.command and p.state != "Z"]


def test_case_C1_exit_ends_the_shell_and_not_the_session(s):
    # given a text that exits; then its status comes, and the next call has the state
    assert s("A=1; cd /tmp").status == 0
    r = s(["exit", "5"])
    assert (r.status, r["shell_restarted"]) == (5, True)
    assert s("echo $A $PWD").out == b"1 /tmp\n"


def test_case_H4_status(s):
    assert [s(t).status for t in ("false\n", "false\n# end\n\n", "false;", "! true # c", "exit 300")] == [1, 1, 1, 1, 44]


def test_case_A1_heredocs(s):
    r = s("cat > a1 <<'Z'\n one\nZ\nwc -l < a1")
    assert r.triple == (0, b"1\n", b"") and (s.gw.workspace / "a1").read_bytes() == b" one\n"
    assert s("for in do ((").status == 2 and s("echo next").out == b"next\n"


def test_case_O1_long_texts(s):
    # given a text far longer than an argument may be; then it runs
    r = s(f"echo {'x' * 200_000} | wc -c")
    assert r.triple == (0, b"200001\n", b"")


def test_case_O4_texts_of_megabytes(s):
    # given a text of 1 MB; then it runs; of more than text_limit: 413, and the session is unharmed
    assert s("wc -c <<'Z'\n" + "x" * 1_000_000 + "\nZ").out == b"1000001\n"
    status, body = s.gw.http.json("POST", "exec", {"argv": ["eval", "#" * 1_100_000]}, [("Session-Id", s.name)])
    assert (status, body["code"]) == (413, "payload_too_large") and "1048576" in body["error"]
    assert s("echo on").out == b"on\n"


def test_a_missing_program(s):
    r = s(["no-such-cmd"])
    assert r.status == 127 and r.out == b"" and b"no-such-cmd: command not found" in r.err


@pytest.mark.parametrize("name", ["-dash", ".dot", "_", "x" * 128, "a.b-c_D9"], ids=["dash", "dot", "_", "long", "all"])
def test_every_id_that_the_contract_allows(gw, name):
    # given ids that init has no such names for; then they are sessions like any other
    assert gw.http.exec(["cd", "/tmp"], session=name).status == 0
    assert gw.http.exec(["pwd"], session=name).out == b"/tmp\n"
    assert gw.http.ok("DELETE", f"session/{name}")["sessionId"] == name
    assert gw.http.exec(["pwd"], session=name).out == b"/workspace\n"


def test_it_goes_on_without_its_client(s):
    # given a call that waits behind another one, whose clients both leave; then both run
    gw = s.gw
    with gw.http.exec_stream(["eval", "until [ -e go4 ]; do sleep 0.02; done"], session=s.name):
        busy(s)
        with gw.http.exec_stream(["touch", "behind"], session=s.name):
            busy(s, 1)
    (gw.workspace / "go4").touch()
    wait_until(lambda: (gw.workspace / "behind").exists(), 15, "the second has run")
