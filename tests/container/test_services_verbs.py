"""The verbs of services: list, show, start, stop, restart, reload, signal, logs; what they say of
bad input, to clients that leave and to many at once."""

import fcntl
import itertools
import json
import os
import pty
import random
import re
import select
import signal
import struct
import termios

import pytest

from rig.box import Box, programs
from rig.tty import Terminal
from rig.verbs import end, fresh_name, refused
from rig.wait import wait_until
from rig.wire import ERROR, parse_record

# A program that is not ready until its test says so: `go` in the box's folder.
INI = """
[init]
runtime_dir = @RUN@
stop_grace = 2s
max_connections = 200

[sessions]
kill_grace = 500ms

[service:web]
command = sleep 1000.25
requires = db

[service:db]
script =
    echo "db runs as $$"
    trap 'echo reloaded; trap : TERM' HUP
    trap 'echo "db ends"; exit 0' TERM
    while :; do sleep 1000 & wait $!; done
reload_signal = HUP

[service:chatty]
script =
    n=$(cat n 2>/dev/null || echo 0)
    echo $((n + 1)) >n
    echo "run $((n + 1))"
    echo "warning $((n + 1))" >&2
    exec sleep 1000
cwd = @WORK@

[service:slow]
command = sleep 1000
ready = file:@WORK@/go
autostart = no

[service:stubborn]
script =
    trap '' TERM
    touch up
    while :; do sleep 0.1; done
cwd = @WORK@
stop_grace = 1500ms
autostart = no

[service:tree]
script =
    sleep 1001 &
    sleep 1002 &
    wait

[service:pool]
command = sleep 1000
instances = 3

[service:once]
type = oneshot
command = true

[service:crash]
script =
    seq 1 20
    echo "last words" >&2
    exit 3
restart = never
autostart = no

[service:loop]
script =
    echo "going down"
    exit 4
restart = always
restart_delay = 10ms
restart_max = 3
autostart = no

[service:missing]
command = /no/such/program --now
autostart = no

[service:ill]
command = sleep 1000
health = file:@WORK@/well
health_interval = 500ms
health_retries = 1000
autostart = no

[service:self]
script =
    echo "$$" >>self
    [ -e again ] || { touch again; "$CTL" -S @RUN@/control.sock service restart self; echo never; }
    exec sleep 1000
cwd = @WORK@
env.CTL = %s
autostart = no
"""
NAMES = ["web", "db", "chatty", "slow", "stubborn", "tree", "pool@1", "pool@2", "pool@3", "once",
         "crash", "loop", "missing", "ill", "self"]
STARTED = {"web", "db", "chatty", "tree", "pool@1", "pool@2", "pool@3", "once"}
ROW_KEYS = {"name", "state", "restarts", "ready", "detail"}


def make_box(kind, **kw):
    b = Box(kind, ini=INI % (programs() / ("static/" if kind == "busybox" else "") / "sandboxctl"),
            **kw)
    wait_until(lambda: {n for n, s in states(b).items() if s["ready"]} >= STARTED, 20,
               lambda: f"all have started: {states(b)}")
    return b


@pytest.fixture(scope="module")
def kept():
    boxes = {}
    yield boxes
    for b in boxes.values():
        b.close()


@pytest.fixture
def box(kept):
    """One box for all, and all of it as it was at the start."""
    b = kept.get("ns-root")
    if b is None or not b.is_alive:
        b = kept["ns-root"] = make_box("ns-root")
    for name in ("go", "well", "again", "self"):
        (b.work / name).unlink(missing_ok=True)
    settle(b)
    yield b
    assert b.is_alive, b.log()[-2000:]
    b.ctl_ok("service", "stop", *(set(NAMES) - STARTED))
    b.ctl_ok("service", "start", *STARTED)


def states(b):
    return {row["name"]: row for row in b.call("service.list").rows}


def settle(b):
    """Those that are ready when they have been executed have come to where they stay."""
    def is_settled():
        rows = b.call("tree").rows
        names = lambda id: [r["name"] for r in rows if r["id"] == id]
        return (names("chatty") == ["sleep"] and set(names("db")[1:]) == {"sleep"} and
                names("tree")[1:] == ["sleep"] * 2)

    wait_until(is_settled, 10, lambda: b.call("tree").rows)


def service(b, *args, **kw):
    return b.ctl("service", *args, **kw)


def ok(b, *args):
    r = service(b, *args)
    assert r.status == 0 and r.err == b"", (args, r)
    return r


def start_stubborn(b):
    """Its trap is set when this returns."""
    (b.work / "up").unlink(missing_ok=True)
    ok(b, "start", "stubborn")
    wait_until((b.work / "up").exists, 10)
    return pid_of(b, "stubborn")


def show(b, name, status=0):
    r = service(b, "show", "--json", name)
    assert r.status == status and r.err == b"", r
    return json.loads(r.out)


def pid_of(b, name):
    return states(b)[name].get("pid")


def is_gone(b, pid):
    return b.host_pid(pid) is None


# ---- list ------------------------------------------------------------------------------------


def test_list(box):
    rows = json.loads(ok(box, "list", "--json").out)
    assert [r["name"] for r in rows] == NAMES
    for r in rows:
        live = {"pid", "uptime_s"} if r["name"] in STARTED - {"once"} else set()
        assert set(r) == ROW_KEYS | live, r
        assert r["ready"] is (r["name"] in STARTED)
    by_name = {r["name"]: r for r in rows}
    assert by_name["web"]["state"] == "running" and by_name["web"]["uptime_s"] >= 0
    assert by_name["once"]["state"] == "exited" and by_name["slow"]["state"] == "stopped"
    # and as a table
    head, *lines = ok(box, "list").lines
    assert head.split() == ["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "READY", "HEALTHY",
                            "DETAIL"]
    assert [line.split()[0] for line in lines] == NAMES
    web = lines[0].split()
    assert web[:3] == ["web", "running", str(by_name["web"]["pid"])]
    assert web[4:7] == ["0", "true", "-"]
    assert lines[3].split()[:4] == ["slow", "stopped", "-", "-"]


@pytest.mark.parametrize("words, names", [
    (["web"], ["web"]), (["pool"], ["pool@1", "pool@2", "pool@3"]), (["db", "web", "db"], ["web", "db"]),
    (["pool@2", "pool"], ["pool@1", "pool@2", "pool@3"]), ([], NAMES)])
def test_list_of_some(box, words, names):
    assert [r["name"] for r in json.loads(ok(box, "list", "--json", *words).out)] == names


@pytest.mark.parametrize("verb, of_service", [
    ("logs", "logs"), ("kill", "stop"), ("wait", "show"), ("send", "show")])
def test_a_service_taken_for_a_process(box, verb, of_service):
    r = box.ctl(verb, "web")
    assert r.status == (125 if verb == "wait" else 1)
    assert r.err.decode() == (f"sandboxctl: process 'web': not found; it is a service (see: sandboxctl service "
                              f"{of_service} web)\n")


def test_list_where_there_are_none():
    with Box() as b:
        assert json.loads(ok(b, "list", "--json").out) == []
        assert len(ok(b, "list").lines) == 1
        assert b.status()["services"] == 0


# ---- show and its exit codes -----------------------------------------------------------------


def test_show(box):
    d = show(box, "db")
    assert d["name"] == "db" and d["state"] == "running" and d["ready"] is True
    lines = (box.dir / "sandbox.ini").read_text().splitlines()
    assert d["source"] == f"{box.dir}/sandbox.ini:{lines.index('[service:db]') + 1}"
    assert d["type"] == "simple" and d["script"].startswith('echo "db runs')
    assert d["output"][-1] == f"db runs as {d['pid']}"
    assert [p["pid"] for p in d["tree"]][0] == d["pid"] and d["tree"][1]["ppid"] == d["pid"]
    assert "last_status" not in d
    web = show(box, "web")
    assert web["requires"] == ["db"] and web["command"] == "sleep 1000.25" and "output" not in web
    text = ok(box, "show", "db").out.decode()
    for line in ("name: db", "state: running", f"pid: {d['pid']}", f"source: {d['source']}"):
        assert line in text.splitlines(), text
    assert re.search(r"^PID +PPID +STATE +PROCESS$", text, re.M)


def test_show_says_how_it_ended(box):
    assert service(box, "start", "crash").status in (0, 1), "it runs before it fails"
    wait_until(lambda: states(box)["crash"]["state"] == "exited", 10)
    d = show(box, "crash", status=3)
    assert "exited with 3" in d["detail"] and d["ready"] is False
    assert (d["last_verdict"], d["last_status"]) == ("exited", 3)
    assert d["last_duration_s"] >= 0 and 0 <= d["last_ended_s"] < 60
    assert sorted(d["output"], key=str)[-1] == "last words" and len(d["output"]) == 10
    assert d["tree"] == [] and "pid" not in d


def test_show_has_the_last_lines_of_a_crash_loop(box):
    r = service(box, "start", "loop")
    assert r.status in (0, 1)
    wait_until(lambda: states(box)["loop"]["state"] == "fatal", 20)
    d = show(box, "loop", status=3)
    assert d["output"].count("going down") >= 3 and d["last_status"] == 4 and d["restarts"] >= 2


def test_show_of_what_cannot_be_started(box):
    r = service(box, "start", "missing")
    assert r.status == 1 and b"missing" in r.err and b"No such file" in r.err
    d = show(box, "missing", status=3)
    assert "No such file" in d["detail"] and d["command"] == "/no/such/program --now"


@pytest.mark.parametrize("words, status", [
    (["web"], 0), (["once"], 0), (["slow"], 3), (["nope"], 4), (["web", "pool"], 0),
    (["web", "slow"], 3), (["slow", "nope", "web"], 4), (["pool@9"], 4), (["pool"], 0)])
@pytest.mark.parametrize("verb", ["show", "status"])
def test_exit_codes_of_show(box, words, status, verb):
    r = service(box, verb, *words)
    assert r.status == status
    shown = re.findall(rb"^name: (.*)", r.out, re.M)
    assert len(shown) == sum(3 if w == "pool" else 1 for w in words if w not in ("nope", "pool@9"))
    assert (b"not found" in r.err) == (status == 4)


def test_exit_codes_while_it_starts_and_ends(box):
    ok(box, "start", "--no-wait", "slow")
    wait_until(lambda: states(box)["slow"]["state"] == "starting", 5)
    assert service(box, "show", "slow").status == 0
    start_stubborn(box)
    p = box.ctl_spawn("service", "stop", "stubborn")
    wait_until(lambda: states(box)["stubborn"]["state"] == "stopping", 5)
    assert service(box, "show", "stubborn").status == 3
    assert end(p)[0] == 0


def test_exit_codes_without_init(box):
    gone = ["-S", str(box.run / "none.sock")]
    for verb, status in (("show", 4), ("status", 4), ("list", 3), ("start", 3), ("stop", 3),
                         ("logs", 3)):
        r = box.ctl("service", verb, *gone, "web", "slow") if verb != "logs" else box.ctl(
            "service", verb, *gone, "web")
        assert r.status == status and r.out == b"" and len(r.err.splitlines()) == 1, (verb, r)


def test_show_json_of_several(box):
    r = service(box, "show", "--json", "pool")
    assert [d["name"] for d in json.loads(r.out)] == ["pool@1", "pool@2", "pool@3"]
    r = service(box, "show", "--json", "web", "nope", "slow")
    assert r.status == 4 and [d["name"] for d in json.loads(r.out)] == ["web", "slow"]
    r = service(box, "show", "--json", "nope")
    assert r.status == 4 and json.loads(r.out)["error"]["code"] == "not_found"


# ---- orders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_stop_start_restart(kind, kept):
    b = kept.get(kind) or kept.setdefault(kind, make_box(kind))
    old = pid_of(b, "db")
    assert ok(b, "stop", "db").out == b""
    assert is_gone(b, old) and states(b)["db"]["state"] == "stopped"
    assert states(b)["web"].get("pid") is None, "who requires it has stopped before it"
    ok(b, "stop", "db")
    ok(b, "start", "web")
    s = states(b)
    assert s["web"]["ready"] and s["db"]["ready"] and s["db"]["pid"] != old
    ok(b, "start", "web")
    assert states(b)["web"]["pid"] == s["web"]["pid"], "it runs already"
    ok(b, "restart", "tree")
    t = states(b)
    assert t["tree"]["ready"] and t["tree"]["pid"] != s["tree"]["pid"]
    assert is_gone(b, s["tree"]["pid"]) and t["web"]["pid"] == s["web"]["pid"]
    assert t["tree"]["restarts"] == 0, "that was no restart by its policy"


def test_start_waits_until_it_is_ready(box):
    p = box.ctl_spawn("service", "start", "--json", "slow")
    wait_until(lambda: states(box)["slow"]["state"] == "starting", 5)
    assert p.poll() is None and not states(box)["slow"]["ready"]
    (box.work / "go").touch()
    status, out, err = end(p)
    assert (status, err) == (0, b"")
    [row] = json.loads(out)
    assert set(row) == {"name", "state", "pid", "detail"} and row["state"] == "running"


def test_start_without_waiting(box):
    [row] = json.loads(ok(box, "start", "--no-wait", "--json", "slow").out)
    assert row["name"] == "slow" and "error" not in row
    wait_until(lambda: states(box)["slow"]["state"] == "starting", 5)
    ok(box, "stop", "slow")


def test_start_with_a_timeout(box):
    r = service(box, "start", "--timeout", "300ms", "slow")
    line = refused(r, "slow", "300ms", "not ready")
    assert line.startswith("sandboxctl service start: service 'slow'")
    assert states(box)["slow"]["state"] == "starting", "the order stands"
    r = service(box, "start", "--timeout", "200ms", "--json", "slow", "web")
    rows = {row["name"]: row for row in json.loads(r.out)}
    assert r.status == 1 and rows["slow"]["code"] == "busy" and "error" not in rows["web"]
    (box.work / "go").touch()
    wait_until(lambda: states(box)["slow"]["ready"], 10)


def test_stop_waits_until_all_of_it_is_gone(box):
    pid = start_stubborn(box)
    tree = [p["pid"] for p in show(box, "tree")["tree"]]
    assert len(tree) == 3
    r = service(box, "stop", "--timeout", "100ms", "stubborn")
    refused(r, "stubborn", "not stopped within 100ms")
    ok(box, "stop", "stubborn", "tree")
    assert all(is_gone(box, p) for p in [pid, *tree])


def test_a_stop_ends_the_wait_of_a_start(box):
    p = box.ctl_spawn("service", "start", "slow")
    wait_until(lambda: states(box)["slow"]["state"] == "starting", 5)
    ok(box, "stop", "slow")
    status, out, err = end(p)
    assert status == 1 and b"service 'slow'" in err and b"stop" in err


def test_reload_signals_or_restarts(box):
    before = states(box)
    ok(box, "reload", "db", "chatty")
    wait_until(lambda: show(box, "db")["output"][-1] == "reloaded", 5)
    after = states(box)
    assert after["db"]["pid"] == before["db"]["pid"]
    assert after["chatty"]["pid"] != before["chatty"]["pid"] and after["chatty"]["ready"]


def test_signal(box):
    ok(box, "signal", "HUP", "db")
    wait_until(lambda: show(box, "db")["output"][-1] == "reloaded", 5)
    start_stubborn(box)
    pids = [p["pid"] for p in show(box, "tree")["tree"]]
    [row] = json.loads(ok(box, "signal", "--json", "--tree", "WINCH", "tree").out)
    assert row["signalled"] == 3
    [row] = json.loads(ok(box, "signal", "--json", "sigterm", "stubborn").out)
    assert row["signalled"] == 1 and states(box)["stubborn"]["state"] == "running"
    # a KILL is the end that its policy answers
    ok(box, "signal", "9", "tree")
    wait_until(lambda: states(box)["tree"]["restarts"] == 1 and states(box)["tree"]["ready"], 10)
    assert all(is_gone(box, p) for p in pids)
    refused(service(box, "signal", "HUP", "slow"), "slow")
    r = service(box, "signal", "HUP", "db", "slow")
    assert r.status == 1 and b"slow" in r.err


def test_a_group(box):
    before = states(box)
    rows = json.loads(ok(box, "restart", "--json", "pool").out)
    assert sorted(r["name"] for r in rows) == ["pool@1", "pool@2", "pool@3"]
    after = states(box)
    assert all(after[f"pool@{i}"]["pid"] != before[f"pool@{i}"]["pid"] for i in (1, 2, 3))
    ok(box, "stop", "pool@2")
    assert [states(box)[f"pool@{i}"]["state"] for i in (1, 2, 3)] == ["running", "stopped", "running"]
    refused(service(box, "logs", "pool"), "3 services", "pool@1")


# ---- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "reload", "list", "logs", "signal"])
@pytest.mark.parametrize("name, words", [
    ("wbe", ["wbe", "'web'"]), ("chaty", ["'chatty'"]), ("pool@4", ["pool@4", "pool@"]), ("@", []),
    ("web@1", ["web"]), ("x" * 3000, ["xxx"]), ("no\nnewline\x1b[31m", []), ("é" * 200, [])],
    ids=["near", "nearer", "instance", "at", "no-instance", "long", "escape", "umlauts"])
def test_unknown_names(box, verb, name, words):
    before = states(box)
    args = ["HUP"] if verb == "signal" else []
    line = refused(service(box, verb, *args, name), "not found", *words)
    assert "\x1b" not in line and len(line) < 1000
    if verb not in ("logs", "list"):  # none gets the order, not even the known one
        refused(service(box, verb, *args, "web", name), "not found", *words)
    after = states(box)
    assert {n: s.get("pid") for n, s in before.items()} == {n: s.get("pid") for n, s in after.items()}


@pytest.mark.parametrize("args", [
    [], ["start"], ["stop"], ["show"], ["signal", "HUP"], ["signal", "NOSUCH", "web"], ["logs"],
    ["logs", "web", "db"], ["start", "--timeout", "soon", "web"], ["start", "--timeout"],
    ["start", "--no-wait", "--timeout", "1s", "web"], ["start", "--watch", "web"], ["nonsense"], ["enable", "web"],
    ["list", "--follow"], ["logs", "--from", "1", "--tail", "2", "web"], ["logs", "-n", "x", "web"]])
def test_usage(box, args):
    r = service(box, *args)
    assert r.status == 2 and r.out == b"" and b"Try 'sandboxctl" in r.err, r


@pytest.mark.parametrize("verb, args, code, words", [
    ("service.start", [], "invalid", "name"), ("service.start", [("name", "")], "invalid", "name"),
    ("service.start", [("name", "web"), ("name", "")], "invalid", "empty"),
    ("service.start", [("name", "web"), ("timeout_ms", "soon")], "invalid", "timeout_ms"),
    ("service.start", [("name", "web"), ("timeout_ms", str(10**15))], "invalid", "365 days"),
    ("service.start", [("name", "web"), ("nowait", "1")], "invalid", "nowait"),
    ("service.start", [("name", "n" * 100)] * 2000, "limit", "1000"),
    ("service.start", [("name", "n" * 3_000_000)], "not_found", "not found"),
    ("service.signal", [("name", "web")], "invalid", "signal"),
    ("service.signal", [("name", "web"), ("signal", "NOSUCH")], "invalid", "NOSUCH"),
    ("service.signal", [("name", "web"), ("signal", "0")], "invalid", "signal"),
    ("service.logs", [("name", "web"), ("from", "99999999")], "invalid", "behind the end"),
    ("service.logs", [("name", "web"), ("stream", "x")], "invalid", "stream"),
    ("service.show", [], "invalid", "name"), ("service.enable", [("name", "web")], "not_found", ""),
], ids=itertools.count())
def test_bad_requests(box, verb, args, code, words):
    with box.connect() as w:
        a = w.request(verb, args).finish()
    assert a.is_error and a["code"] == code and words in a["message"], a


@pytest.mark.parametrize("packet", [
    b"service.start\0name=web\0\0", b"service.start\0name=we\0b\0", b"service.start\0name\0",
    b"service.start\0name=web", b"service.start\0=web\0", b"service.start\0name:=1\0"],
    ids=itertools.count())
def test_malformed_packets(box, packet):
    with box.connect() as w:
        w.raw(packet)
        channel, payload = w.receive()
        assert channel == ERROR and parse_record(payload)["code"] in ("protocol", "invalid", "not_found")
    assert states(box)["web"]["ready"]


def test_many_names(box):
    a = box.call("service.start", name=["web"] * 1000)
    assert len(a.rows) == 1 and (a["services"], a["failed"]) == (1, 0)


# ---- clients that leave, and many at once (init-test 48) -------------------------------------


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_client_that_leaves_while_it_waits(box, how):
    # given clients that wait for a start that does not come
    connections = box.status()["connections"]
    if how == "killed":
        waiting = [box.ctl_spawn("service", "start", "slow", "web") for _ in range(5)]
    else:
        waiting = [box.connect() for _ in range(5)]
        for w in waiting:
            w.request("service.start", [("name", "slow"), ("timeout_ms", "60000")])
    wait_until(lambda: box.status()["connections"] == connections + 5, 10)
    wait_until(lambda: states(box)["slow"]["state"] == "starting", 10)
    # when they leave, then nothing of them stays but their order
    for w in waiting:
        w.kill() if how == "killed" else w.close()
        if how == "killed":
            w.communicate()
    wait_until(lambda: box.status()["connections"] == connections, 10)
    assert states(box)["slow"]["state"] == "starting"
    (box.work / "go").touch()
    wait_until(lambda: states(box)["slow"]["ready"], 10)
    # and one that leaves while it waits for a stop takes nothing back either
    pid = start_stubborn(box)
    w = box.connect()
    w.request("service.stop", [("name", "stubborn")])
    wait_until(lambda: states(box)["stubborn"]["state"] == "stopping", 5)
    w.close()
    wait_until(lambda: states(box)["stubborn"]["state"] == "stopped", 10)
    assert is_gone(box, pid)


def test_a_service_restarts_itself(box):
    ok(box, "start", "self")
    file = box.work / "self"
    pids = wait_until(lambda: file.exists() and len(p := file.read_text().split()) == 2 and p, 10)
    wait_until(lambda: states(box)["self"].get("pid") == int(pids[1]), 10)
    assert is_gone(box, int(pids[0])) and states(box)["self"]["state"] == "running"
    assert "output" not in show(box, "self"), "its client went with it"
    assert len((box.work / "self").read_text().split()) == 2


def test_fifty_orders_at_once(box):
    rnd = random.Random(7)
    start_stubborn(box)
    clients = []
    for _ in range(50):
        verb = rnd.choice(["start", "stop", "restart", "reload"])
        names = rnd.sample(["web", "db", "tree", "chatty", "pool", "stubborn"], rnd.randint(1, 3))
        clients.append(box.ctl_spawn("service", verb, *names))
    # every one is answered: it came true, or it was overruled
    for p in clients:
        status, _, err = end(p, 60)
        assert status in (0, 1) and (status == 0) == (err == b""), err
        for line in err.decode().splitlines():
            assert line.startswith("sandboxctl service ") and "service '" in line, line
    # and the last order holds
    names = ["web", "db", "tree", "chatty", "pool", "stubborn"]
    ok(box, "start", *names)
    for text, count in (("sleep 1000.25", 1), ("sleep 1001", 1), ("sleep 1002", 1)):
        wait_until(lambda: len([p for p in box.find(text) if p.comm == "sleep"]) == count, what=text)
    ok(box, "stop", *names)
    assert not [p for p in box.processes() if p.comm == "sleep"]


def test_a_stop_of_the_container_answers_who_waits():
    with make_box("ns-root") as b:
        p = b.ctl_spawn("service", "start", "slow")
        wait_until(lambda: states(b)["slow"]["state"] == "starting", 10)
        f = b.ctl_spawn("service", "logs", "-f", "chatty")
        assert f.stdout.readline() == b"run 1\n"
        b.signal(signal.SIGTERM)
        status, _, err = end(p)
        assert status == 1 and b"stop" in err, err
        assert end(f)[0] == 0 and f.stdout.closed
        b.wait(20)


# ---- logs ------------------------------------------------------------------------------------


def test_logs(box):
    out, err = (service(box, "logs", f"--{s}", "chatty").lines for s in ("stdout", "stderr"))
    assert out and all(re.fullmatch(r"run \d+", line) for line in out) and err == []
    r = service(box, "logs", "chatty")
    assert r.status == 0 and r.out.decode().splitlines() == out
    # (a run that another test has stopped may have come no further than its first line)
    warnings = [line.split()[0] for line in r.err.decode().splitlines()]
    assert set(warnings) == {"warning"} and len(warnings) <= len(out)
    last = out[-1].split()[1]
    assert service(box, "logs", "-l", "--tail", "1", "--stdout", "chatty").out == b"stdout: run %s\n" % last.encode()
    d = json.loads(service(box, "logs", "--json", "chatty").out)
    assert d["from"] == 0 and d["stdout"].splitlines() == out
    r = service(box, "logs", "--from", d["to"], "chatty")
    assert (r.status, r.out, r.err) == (0, b"", b"")


def runs(box):
    """How often chatty has run. (The file is empty for a moment in between.)"""
    return int(wait_until((box.work / "n").read_text, 10))


def test_logs_follow_over_restarts(box):
    n = runs(box)
    followers = [box.ctl_spawn("service", "logs", "-f", "--stdout", "--tail", "1", "chatty")
                 for _ in range(3)]
    for f in followers:
        assert f.stdout.readline() == b"run %d\n" % n
    hows = [[["restart", "chatty"]], [["signal", "KILL", "chatty"]],
            [["stop", "chatty"], ["start", "chatty"]]]
    for i, orders in enumerate(hows):
        for order in orders:
            ok(box, *order)
        for f in followers:
            assert f.stdout.readline() == b"run %d\n" % (n + i + 1)
            assert f.poll() is None
    for f in followers:
        f.kill()
        f.communicate()


def test_logs_end_with_the_service(box):
    # given a follower of a service that a reload removes
    text = (box.dir / "sandbox.ini").read_bytes()
    extra = b"\n[service:extra]\nscript =\n    echo hello\n    exec sleep 1000\n"
    try:
        box.write_ini(text + extra)
        box.ctl_ok("reload")
        wait_until(lambda: states(box)["extra"]["ready"], 10)
        f = box.ctl_spawn("service", "logs", "-f", "extra")
        assert f.stdout.readline() == b"hello\n"
        p = box.ctl_spawn("service", "start", "slow")
    finally:
        box.write_ini(text)
        box.ctl_ok("reload")
    assert end(f) == (0, b"", b"")
    assert p.poll() is None, "the others are not concerned"
    p.kill()
    p.communicate()


# ---- watch -----------------------------------------------------------------------------------


class Watch:
    """`service list --watch`, not on a terminal: lists, one behind the other."""

    def __init__(self, box, *args):
        self.p = box.ctl_spawn("service", "list", "--watch", *args)
        self.text = b""

    def until(self, pattern, deadline=10):
        def seen():
            while select.select([self.p.stdout], [], [], 0)[0]:
                got = os.read(self.p.stdout.fileno(), 65536)
                if not got:
                    break
                self.text += got
            return re.search(pattern, self.text)
        m = wait_until(seen, deadline, lambda: f"{pattern} in {self.text}")
        self.text = self.text[m.end():]
        return m

    def interrupt(self):
        self.p.send_signal(signal.SIGINT)
        return end(self.p)


def test_watch(box):
    w = Watch(box, "slow", "web")
    w.until(rb"NAME .*\nweb +running .*\nslow +stopped .*\n")
    ok(box, "start", "--no-wait", "slow")
    w.until(rb"\nslow +starting .*\n")
    (box.work / "go").touch()
    w.until(rb"\nslow +running +\d+ .* true .*\n")
    ok(box, "stop", "slow")
    w.until(rb"\nslow +stopped +- .*\n")
    # what concerns none of its services prints nothing
    ok(box, "restart", "chatty")
    assert select.select([w.p.stdout], [], [], 0.3)[0] == []
    assert w.interrupt()[0] == 0


def test_watch_sees_health(box):
    w = Watch(box, "--json", "ill")
    ok(box, "start", "ill")
    w.until(rb'"state":"running".*"healthy":false.*"unhealthy .*No such file')
    (box.work / "well").touch()
    w.until(rb'"healthy":true')
    [row] = json.loads(ok(box, "list", "--json", "ill").out)
    assert row["healthy"] is True and show(box, "ill")["health_check"] == f"file:{box.work}/well"
    head, line = ok(box, "list", "ill").lines
    assert line.split()[5:7] == ["true", "true"]
    assert w.interrupt()[0] == 0


def test_watch_json(box):
    w = Watch(box, "--json", "slow")
    first = w.until(rb"\[.*\]\n").group()
    assert json.loads(first)[0]["state"] == "stopped"
    ok(box, "start", "--no-wait", "slow")
    w.until(rb'"state":"starting"')
    assert w.interrupt()[0] == 0


@pytest.fixture
def window(box):
    """`service list --watch` on a terminal of eight lines: (its near end, the process)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 8, 120, 0, 0))
    p = box.ctl_spawn("service", "list", "--watch", stdin=slave, stdout=slave, stderr=slave,
                      start_new_session=True)
    os.close(slave)
    t = Terminal.__new__(Terminal)
    t.fd, t.seen, t.ended = master, b"", False
    yield t, p
    p.kill()
    p.wait()
    os.close(master)


def test_watch_on_a_terminal(box, window):
    t, p = window
    t.until(b"\x1b[H\x1b[2JNAME")
    assert t.until(b"(10 more)\r\n").count(b"\r\n") == 7, "what the window has lines for"
    ok(box, "stop", "web")
    t.until(b"\x1b[H\x1b[2JNAME")
    t.until(b"web       stopped")
    for _ in range(2):  # by itself, for the uptimes
        t.until(b"\x1b[H\x1b[2JNAME")
    p.send_signal(signal.SIGINT)
    assert p.wait(10) == 0


def test_watch_ends_with_its_reader_and_with_the_container():
    with make_box("ns-root") as b:
        w, v = Watch(b), Watch(b)
        for x in (w, v):
            x.until(rb"NAME")
        w.p.stdout.close()
        assert wait_until(lambda: w.p.poll() is not None, 10) and w.p.returncode == 141
        w.p.stderr.close()
        b.signal(signal.SIGTERM)
        b.wait(20)
        assert end(v.p)[0] in (0, 1, 3)


# ---- the others know them too ----------------------------------------------------------------


def test_status_ps_tree(box):
    d = json.loads(box.ctl_ok("status", "--json").out)
    assert (d["services"], d["services_ready"], d["services_fatal"]) == (len(NAMES), len(STARTED), 0)
    s = states(box)
    rows = [r for r in box.ps() if r["kind"] == "service"]
    assert {r["id"]: r["pid"] for r in rows} == {n: s[n]["pid"] for n in STARTED - {"once"}}
    assert {r["state"] for r in rows} == {"running"} and all(r["session"] == "" for r in rows)
    assert rows[0]["text"] == "sleep 1000.25"
    n = fresh_name()
    box.session(n)
    assert not [r for r in box.ps(n) if r["kind"] == "service"]
    assert len(box.call("ps", kind="service").rows) == len(rows)
    lines = box.ctl_ok("ps").lines
    assert any(line.split()[:4] == ["web", "-", str(s["web"]["pid"]), "service"] for line in lines)
    tree = box.call("tree").rows
    assert [r["depth"] for r in tree if r["id"] == "tree"] == [0, 1, 1]
    assert not [r for r in box.call("tree", session=n).rows if r["id"] == "tree"]
    box.call("session.delete", name=n)


@pytest.mark.parametrize("verb", ["logs", "wait", "kill", "send"])
def test_a_service_is_no_process(box, verb):
    status = 125 if verb == "wait" else 1
    refused(box.ctl(verb, "web"), "process 'web'", "sandboxctl service", status=status)
    assert "service" not in refused(box.ctl(verb, "wbe"), "process 'wbe'", status=status)


def test_events(box):
    at = box.call("events", tail=0)["next"]
    ok(box, "restart", "web")
    found = [json.loads(line) for line in box.ctl_ok("events", "--from", at, "-k", "service").lines]
    assert {e["kind"] for e in found} == {"service"} and {e["service"] for e in found} == {"web"}
    whats = [e["what"] for e in found]
    assert whats[0] == "stopping" and whats[-1] == "running" and "stopped" in whats + ["stopped"]
    assert found[-1]["pid"] == pid_of(box, "web")


def test_completion(box):
    def ask(*words):
        return set(box.ctl("--complete", *words).lines)
    assert ask("services") == set(NAMES)
    assert {"service start", "service list", "service logs"} <= ask("verbs")
    assert {"--no-wait", "--timeout"} <= ask("options", "service", "start")
