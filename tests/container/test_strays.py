"""Strays: what outlives its command or process is listed with pid, name, age and ports, and can be
ended alone."""

import json
import re
import socket

import pytest

from rig.verbs import data, make, nap, refused, show
from rig.wait import wait_until

LINE = r"(\d+) (\S+) age=(\d+\.\d)(?: listen=(\S+))?"

# A server in python: listens on what its arguments say, tells its pid and sleeps.
SERVER = """
import socket, sys, time
held = []
for kind, family, address in (a.split("/") for a in sys.argv[1:]):
    s = socket.socket(getattr(socket, family), getattr(socket, kind))
    s.bind((address, 0))
    if kind == "SOCK_STREAM":
        s.listen()
    held.append(s)
    print(s.getsockname()[1], flush=True)
sys.stdout.close()
time.sleep(600)
"""


def strays(box, name):
    return [re.fullmatch(LINE, s).groups() for s in show(box, name).get("stray_list", [])]


def all_strays(box, name):
    """Below the session's shell, as the host sees it."""
    found, shell = [], {box.host_pid(show(box, name)["pid"])}
    everybody = box.processes()
    while more := [p for p in everybody if p.ppid in shell and p not in found]:
        found += more
        shell |= {p.pid for p in more}
    return found


def test_a_stray_is_listed_by_the_answer_that_left_it_and_by_no_later_one(one, name):
    first, second = nap(one), nap(one)
    a = data(one, "exec", "-s", name, f"{first} & echo $!")
    pid = a["stdout"].strip()
    assert [s.split()[0] for s in a["strays"]] == [pid] and a["stray_count"] == 1
    b = data(one, "exec", "-s", name, f"{second} & echo $!")
    assert [s.split()[0] for s in b["strays"]] == [b["stdout"].strip()], b
    assert "strays" not in data(one, "exec", "-s", name, "true")
    listed = strays(one, name)
    assert {p for p, *_ in listed} == {pid, b["stdout"].strip()}
    assert show(one, name)["strays"] == 2
    shown = lambda: one.ctl_ok("session", "show", name).out.decode()
    # a child of the shell's is called bash until it has become its program
    wait_until(lambda: re.search(rf"stray_list:\n  {pid} sleep age=", shown()), 10, shown)


@pytest.mark.parametrize("text", [
    "(setsid sh -c '{n}; :' &)",  # a daemon with a child
    "{h} daemon [ child [ exec {n} ] forever ]",
    "nohup sh -c '{n}; :' >/dev/null 2>&1 &",
])
def test_the_whole_tree_is_listed(one, name, text):
    n = nap(one)
    one.exec(text.format(n=n, h=one.helper), name)
    wait_until(lambda: len(strays(one, name)) == 2 and "sleep" in {s[1] for s in strays(one, name)}, 10,
               lambda: f"two, one of them the sleep: {strays(one, name)}")
    assert one.find(n)


def test_the_tree_of_a_running_command_is_no_stray(one, name):
    old, new = nap(one), nap(one)
    pid = one.exec(f"{old} & echo $!", name).out.decode().strip()
    client = one.ctl_spawn("exec", "-s", name, f"sh -c '{new}; :'")
    wait_until(lambda: any(p.comm == "sleep" for p in one.find(new)), 10, "it runs, below its shell")
    assert [s[0] for s in strays(one, name)] == [pid]
    inner = next(p.inner for p in one.find(new) if p.comm == "sleep")
    line = refused(one.ctl("kill", "--stray", inner), inner, "no stray", "which runs")
    assert "command" in line
    one.ctl_ok("kill", "--running", name)
    client.wait(10)
    assert one.find(old) and not one.find(new)


@pytest.mark.parametrize("listen, want", [
    (["SOCK_STREAM/AF_INET/127.0.0.1"], ["tcp:127.0.0.1:{}"]),
    (["SOCK_STREAM/AF_INET/0.0.0.0", "SOCK_DGRAM/AF_INET/127.0.0.1"],
     ["tcp:0.0.0.0:{}", "udp:127.0.0.1:{}"]),
    (["SOCK_STREAM/AF_INET6/::", "SOCK_DGRAM/AF_INET6/::1"], ["tcp:[::]:{}", "udp:[::1]:{}"]),
    (["SOCK_STREAM/AF_INET/127.0.0.1"] * 9, None),
])
def test_listening_ports(one, name, listen, want):
    if any("INET6" in l for l in listen):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("no IPv6 here")
    script = one.work / f"{name}.py"
    script.write_text(SERVER)
    out = one.work / f"{name}.ports"
    out.touch()
    one.exec(f"python3 {script} {' '.join(listen)} >{out} &", name)
    ports = wait_until(lambda: len(out.read_text().split()) == len(listen) and
                       out.read_text().split(), 10, "it listens")
    (_, comm, _, told), = strays(one, name)
    assert comm == "python3"
    if want:
        assert sorted(told.split(",")) == sorted(w.format(p) for w, p in zip(want, ports))
    else:
        assert told.endswith(",…") and set(told.split(",")[:-1]) <= {
            f"tcp:127.0.0.1:{p}" for p in ports}
    row, = [r for r in data(one, "ps", "-s", name) if r["kind"] == "stray"]
    assert row["listen"] == told and row["session"] == name and row["id"] == ""
    assert b"LISTEN" in one.ctl_ok("ps").out and told.encode() in one.ctl_ok("ps").out


def test_the_ports_of_a_child_in_another_network_namespace_are_its_own(one, name):
    script = one.work / f"{name}.py"
    script.write_text(SERVER)
    out = one.work / f"{name}.ports"
    out.touch()
    r = one.exec(f"unshare -n true && (unshare -n python3 {script} SOCK_STREAM/AF_INET/0.0.0.0 "
                 f">{out} &)", name)
    if r.status:
        pytest.skip("no network namespace can be made here")
    port = wait_until(lambda: out.read_text().split(), 10, "it listens")[0]
    (_, _, _, told), = strays(one, name)
    assert told == f"tcp:0.0.0.0:{port}"


# ---- ended alone ----


@pytest.mark.parametrize("text, count", [
    ("sh -c '{n}; :' &", 2),
    ("(setsid sh -c \"trap '' TERM; {n} & wait\" &)", 2),
    ("{h} daemon [ ignore TERM child [ child [ exec {n} ] forever ] forever ]", 3),
    ("{h} child [ exec {n} ] tree 3 3 forever &", 1 + 1 + 3 + 9 + 27),
])
def test_kill_of_one_stray_ends_it_with_all_below_and_nobody_else(one, name, text, count):
    n, other = nap(one), nap(one)
    one.exec(f"{other} &", name)
    one.exec(text.format(n=n, h=one.helper), name)
    mine = lambda: [p for p in all_strays(one, name) if other not in p.command]
    wait_until(lambda: len(mine()) == count and [p for p in mine() if p.comm == "sleep"], 5,
               lambda: f"{count}: {[p.command for p in mine()]}")
    tree = mine()
    hosts = {p.pid for p in tree}
    top = next(p.inner for p in tree if p.ppid not in hosts)
    d = data(one, "kill", "--grace", "100ms", "--stray", top)
    assert d["killed"] == len(tree) and d["state"] == "exited" and d["id"] == str(top)
    assert not one.find(n) and one.find(other)
    assert show(one, name)["strays"] == 1
    assert one.exec("echo alive", name).out == b"alive\n"


def test_kill_of_a_stray_by_signal(one, name):
    out = one.work / f"{name}.out"
    one.exec(f"sh -c 'trap \"echo usr1; exit\" USR1; echo up; while :; do sleep 0.05; done' >{out} &",
             name)
    wait_until(lambda: out.exists() and "up" in out.read_text(), 5, "it listens")
    pid = strays(one, name)[0][0]
    d = data(one, "kill", "--signal", "USR1", "--stray", pid)
    assert d["signalled"] >= 1
    wait_until(lambda: "usr1" in out.read_text(), 5, "it got the signal")
    wait_until(lambda: not strays(one, name), 5, "it has ended")
    refused(one.ctl("kill", "--stray", pid), pid, "no such process")


def test_what_is_no_stray_is_refused(one, name):
    n = nap(one)
    one.ctl_ok("start", "-s", name, "--id", f"{name}p", f"sh -c '{n}; :'")
    row = next(r for r in data(one, "ps") if r["id"] == f"{name}p")
    refused(one.ctl("kill", "--stray", row["pid"]), f"process '{name}p'", "which runs")
    wait_until(lambda: [p for p in one.find(n) if p.comm == "sleep"], 5, "it runs")
    deep = next(p.inner for p in one.find(n) if p.comm == "sleep")
    refused(one.ctl("kill", "--stray", deep), f"process '{name}p'", "which runs")
    refused(one.ctl("kill", "--stray", show(one, name)["pid"]), f"session '{name}'", "its shell")
    refused(one.ctl("kill", "--stray", 1), "1 is no stray: it is init")
    refused(one.ctl("kill", "--signal", "USR1", "--stray", 1), "1 is no stray: it is init")
    for pid in (0, 99999999, 4194304):
        refused(one.ctl("kill", "--stray", pid), pid, "no such process")
    for bad in ("x", "-1", "1.5", ""):
        r = one.ctl("kill", "--stray", bad)
        assert r.status in (1, 2) and r.out == b"", r
    r = one.ctl("kill", "--stray", deep, f"{name}p")
    assert r.status == 2 and b"--stray PID" in r.err
    assert one.find(n) and one.is_alive
    one.ctl_ok("kill", f"{name}p")


def test_a_stray_of_the_main_command_is_not_ours(pool):
    from rig.box import Box

    with Box(main=["sh", "-c", "(setsid sleep 613.5 &); exec sleep 614.5"]) as box:
        wait_until(lambda: box.find("sleep 613.5"), 5, "it runs")
        make(box)
        inner = wait_until(lambda: [p for p in box.find("sleep 613.5") if p.comm == "sleep"], 5,
                           "it has become sleep")[0].inner
        refused(box.ctl("kill", "--stray", inner), "no session")
        assert box.find("sleep 613.5")


def test_a_second_kill_of_a_stray_hurries_the_first(one, name):
    out = one.work / f"{name}.out"
    one.exec(f"sh -c 'trap \"echo term\" TERM; echo up; while :; do sleep 0.05; done' >{out} &", name)
    wait_until(lambda: out.exists() and "up" in out.read_text(), 5, "it does not end at TERM")
    pid = strays(one, name)[0][0]
    slow = one.ctl_spawn("kill", "--grace", "60s", "--stray", pid)
    wait_until(lambda: "term" in out.read_text(), 5, "init carries out the first one")
    assert slow.poll() is None
    assert one.ctl_ok("kill", "--grace", "0", "--stray", pid).seconds < 25
    assert slow.wait(15) == 0 and not strays(one, name)


def test_a_client_that_leaves_does_not_stop_the_kill(one, name):
    out = one.work / f"{name}.out"
    one.exec(f"sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.05; done' >{out} &", name)
    wait_until(lambda: out.exists() and "up" in out.read_text(), 5, "it ignores TERM")
    pid = strays(one, name)[0][0]
    with one.connect() as w:
        w.request("kill", [("stray", pid), ("grace_ms", "200")], None)
    wait_until(lambda: not strays(one, name), 5, "it is gone")


# ---- of an exec without a session ----

ALONE = [
    (("{n} & echo $!",), 1),
    (("--", "sh", "-c", "{n} & echo $!"), 1),
    (("setsid sh -c '{n}; :' & echo $!",), 2),
    (("--id", "{id}", "env -i {n} >/dev/null 2>&1 & echo $!"), 1),
    (("--id", "{id}", "--", "sh", "-c", "setsid sh -c '{n}; :' >/dev/null & echo $!"), 2),
]


def exec_alone(box, args):
    """What an exec without a session left: its answer, and the PID of the first stray."""
    n, name = nap(box), f"x{nap(box).split()[1]}"
    a = data(box, "exec", *[x.format(n=n, id=name) for x in args])
    wait_until(lambda: [p for p in box.find(n) if p.comm == "sleep"], 5, "it runs")
    return n, a, int(a["stdout"])


def rows_of(box, a):
    return [r for r in data(box, "ps") if r.get("of") == a["id"]]


@pytest.mark.parametrize("args, count", ALONE)
def test_what_an_exec_without_a_session_leaves_is_listed_and_ended_alone(one, args, count):
    at = data(one, "ps")
    (n, a, pid), (m, b, other) = exec_alone(one, args), exec_alone(one, args)
    wait_until(lambda: len(rows_of(one, a)) == count, 5, lambda: data(one, "ps"))
    for r in rows_of(one, a):
        assert (r["kind"], r["session"], r["id"], r["state"]) == ("stray", "", "", "running")
    assert pid in [r["pid"] for r in rows_of(one, a)]
    tree = [r for r in data(one, "ps", "--tree") if r["id"] == a["id"]]
    assert len(tree) == count and tree[0]["pid"] == pid and tree[0]["session"] == ""
    d = data(one, "kill", "--stray", pid)
    assert d["killed"] == count and d["state"] == "exited"
    assert not one.find(n) and one.find(m)
    assert rows_of(one, a) == [] and len(rows_of(one, b)) == count
    told = [e for l in one.ctl_ok("events", "--kind", "stray").lines
            if (e := json.loads(l))["id"] == a["id"]]
    assert [e["what"] for e in told if e["pid"] == pid] == ["left", "ended"]
    # the id of the exec ends what it left as well, and is free again (unless the exec itself is kept)
    d = data(one, "kill", b["id"])
    assert d["killed"] == count and d["id"] == b["id"] and not one.find(m)
    refused(one.ctl("kill", b["id"]), b["id"])
    kept = {a["id"], b["id"]} if "--id" in args else set()
    assert {r["id"] for r in data(one, "ps")} - {r["id"] for r in at} == kept


def test_kill_all_ends_what_an_exec_without_a_session_left(pool):
    from rig.box import Box

    with Box() as box:
        left = [exec_alone(box, args) for args, _ in ALONE]
        running = box.ctl_spawn("exec", "sleep 611.5")
        wait_until(lambda: box.find("sleep 611.5"), 5, "it runs")
        d = data(box, "kill-all")
        assert d["processes"] == len(left) and d["killed"] == sum(count for _, count in ALONE)
        assert not [n for n, _, _ in left if box.find(n)]
        assert box.find("sleep 611.5") and running.poll() is None  # of an exec that runs, as ever
        assert [r["kind"] for r in data(box, "ps") if r["kind"] not in ("exec", "stray")] == []
        assert not [r for r in data(box, "ps") if r["kind"] == "stray"]


def test_a_stray_holds_the_id_of_its_exec(pool):
    from rig.box import Box

    # given that no exec is kept, when what one left still lives, then its id is not given again
    with Box(ini={"sessions": {"command_keep": 0}}) as box:
        box.ctl_ok("exec", "--id", "mine", "sleep 612.5 >/dev/null 2>&1 &")
        for verb in ("exec", "start"):
            r = box.ctl(verb, "--id", "mine", "echo second")
            assert r.status != 0 and b"'mine'" in r.err and b"strays" in r.err, r
        for verb in ("logs", "wait"):
            r = box.ctl(verb, "mine")
            assert r.status != 0 and b"not found" in r.err, r
        box.ctl_ok("kill", "mine")
        assert box.ctl_ok("exec", "--id", "mine", "echo second").out == b"second\n"


def test_records_of_execs_that_left_strays_are_bounded(pool):
    from rig.box import Box

    # given few records, when many execs leave something short, then what was started stays listed,
    # and so does a stray that lives
    with Box(ini={"sessions": {"process_keep": 4}}) as box:
        box.ctl_ok("start", "--id", "old", "true")
        n, a, pid = exec_alone(box, ALONE[0][0])
        for _ in range(12):
            short = box.ctl_ok("exec", "sleep 0.05 >/dev/null 2>&1 & echo $!")
            wait_until(lambda: not box.find("sleep 0.05"), 5, "it has ended")
            assert short.status == 0
        assert [r["pid"] for r in rows_of(box, a)] == [pid]
        assert "old" in [r["id"] for r in data(box, "ps")]
        # and when many live, the newest have a record
        many = [exec_alone(box, ALONE[0][0]) for _ in range(8)]
        listed = [r for r in data(box, "ps") if r["kind"] == "stray"]
        assert len(listed) == 4 and many[-1][2] in [r["pid"] for r in listed]


# ---- when a shell dies, and while it is idle ----


@pytest.fixture
def plain(pool):
    """A box without cgroups of its own."""
    b = pool.get("ns-user")
    yield b
    assert b.is_alive


@pytest.mark.parametrize("text", [
    "setsid {n} & sleep 0.1; kill -9 $$",  # known by its environment
    "env -i {n} & sleep 0.1; kill -9 $$",  # by its session id
    "(env -i sh -c '{n}; :' &); sleep 0.1; kill -9 $$",
    "{h} daemon [ child [ exec {n} ] forever ]; kill -9 $$",
])
def test_orphans_of_a_shell_belong_to_its_session(plain, text):
    n, other = nap(plain), nap(plain)
    s, t = plain.session(), plain.session()
    plain.exec(f"{other} & sleep 0.1; kill -9 $$", t)
    for _ in range(3):  # more than one shell that was
        plain.exec(text.format(n=n, h=plain.helper), s)
    wait_until(lambda: len([p for p in plain.find(n) if p.comm == "sleep"]) == 3, 5, "they live")
    assert int(plain.call("session.show", name=s)["strays"]) >= 3
    plain.call("session.delete", name=s)
    assert not plain.find(n) and plain.find(other)
    plain.call("session.delete", name=t)


@pytest.mark.parametrize("shell", ["bash", "dash", "ash"])
def test_zombies_below_an_idle_shell_are_reaped(pool, shell):
    from rig.box import shell_path

    box = pool.get("ns-user")
    s = box.session(shell=shell_path(shell))
    pid = box.host_pid(box.call("session.show", name=s)["pid"])
    for _ in range(3):
        # daemons that end when the shell is idle again: it has adopted them, and waits for nobody
        box.exec("for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sleep 0.2 &); done; sleep 0.1 &", s)
        wait_until(lambda: not [p for p in box.processes(zombies=True) if p.ppid == pid], 5,
                   lambda: f"nobody is left below {shell}: {box.zombies()}")
    assert box.exec("echo ok", s).out == b"ok\n"
    box.call("session.delete", name=s)


def test_a_daemon_that_the_shell_adopts_meanwhile_is_not_the_command_s(one, name):
    # given a stray that leads a session of its own, when one of its children comes to the shell
    # while a command runs, then a kill of the command does not take it
    go, n = one.work / f"{name}.go", nap(one)
    one.exec(f"(setsid sh -c 'while [ ! -e {go} ]; do sleep 0.02; done; ({n} &); exec sleep 600.5' "
             "&)", name)
    client = one.ctl_spawn("exec", "-s", name, f"touch {go}; sleep 599.5")
    wait_until(lambda: [p for p in one.find(n) if p.comm == "sleep"] and one.find("sleep 599.5"), 5, "both run")
    one.ctl_ok("kill", "--running", name)
    client.wait(10)
    assert one.find(n) and one.find("sleep 600.5") and not one.find("sleep 599.5")


def test_events_tell_of_strays(one, name):
    n = nap(one)
    one.exec(f"{n} &", name)
    wait_until(lambda: one.find(n), 5, "it runs")
    pid = strays(one, name)[0][0]
    one.ctl_ok("kill", "--stray", pid)
    mine = [l for l in one.ctl_ok("events").out.decode().splitlines()
            if f'"pid":{pid}' in l and "stray" in l]
    assert len(mine) == 2 and "left" in mine[0] and name in mine[0] and "ended" in mine[1], mine
