"""The verbs kill and kill-all."""

import signal

from rig.verbs import STUBBORN, data, end, is_running, make, nap, refused, show, start
from rig.wait import wait_until


# ---- kill ------------------------------------------------------------------------------------


def test_kill_ends_the_tree(box):
    n = make(box)
    naps = [nap(box) for _ in range(3)]
    id, _ = start(box, "-s", n, f"{naps[0]} & ( setsid sh -c '{naps[1]}; :' & ) ; {naps[2]}; echo no")
    for each in naps:
        wait_until(lambda: box.find(each), 5, each)
    d = data(box, "kill", id)
    assert d["id"] == id and d["killed"] >= 4 and d["state"] == "exited" and "survivors" not in d
    assert not [p for each in naps for p in box.find(each)]
    assert box.ctl("wait", id).triple == (137, b"", b"sandboxctl: killed by a client\n") and box.ctl("logs", id).out == b""
    assert data(box, "wait", id, status=137)["verdict"] == "killed_by_client"
    refused(box.ctl("kill", id), f"process '{id}'", "already exited")
    refused(box.ctl("kill", "--signal", "HUP", id), f"process '{id}'", "already exited")
    refused(box.ctl("kill", "nope"), "process 'nope'", "not found")
    box.ctl_ok("session", "delete", n)


def test_kill_signal_goes_to_the_whole_tree(box):
    n = make(box)
    id, _ = start(box, "-s", n, "trap 'echo parent' USR1; sh -c 'trap \"echo child\" USR1; echo up;"
                                " while :; do sleep 0.05 & wait; done' &\n"
                                "while :; do sleep 0.05 & wait; done")
    wait_until(lambda: b"up" in box.ctl("logs", id).out, 5, "both traps")
    for spelled in ("USR1", "SIGUSR1", str(int(signal.SIGUSR1))):
        assert box.ctl("kill", "--signal", spelled, id).triple == (0, b"", b"")
    wait_until(lambda: {b"parent", b"child"} <= set(box.ctl("logs", id).out.split()), 5, "both")
    assert [r for r in data(box, "ps") if r["id"] == id][0]["state"] == "running"
    d = data(box, "kill", "--signal", "WINCH", id)
    assert d["id"] == id and d["signalled"] >= 2
    for bad in ("NOPE", "99", "-1", "0", ""):
        r = box.ctl("kill", "--signal", bad, id)
        assert r.status == 2 and b"not a signal" in r.err, bad
    assert box.ctl("kill", "--signal", "KILL", id).status == 0
    assert box.ctl("wait", id).status == 137
    box.ctl_ok("session", "delete", n)


def test_kill_grace(one, name):
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    r = one.ctl("kill", "--grace", "700ms", id)
    assert r.triple == (0, b"", b"") and 0.6 < r.seconds < 15
    assert one.ctl("wait", id).status == 137
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    r = one.ctl("kill", "--grace", "0", id)
    assert r.status == 0 and r.seconds < 12
    r = one.ctl("kill", "--grace", "5", id)
    assert r.status == 2 and b"duration" in r.err


def test_second_kill_hurries(one, name):
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    first = one.ctl_spawn("kill", "--grace", "60s", id)
    wait_until(lambda: [r for r in data(one, "ps") if r["id"] == id][0]["state"] == "stopping", 5)
    r = one.ctl("kill", "--grace", "100ms", id)
    assert r.status == 0 and r.seconds < 25
    assert end(first)[0] == 0
    id, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", id).out, 5, "the trap")
    first = one.ctl_spawn("kill", "--grace", "60s", id)
    wait_until(lambda: [r for r in data(one, "ps") if r["id"] == id][0]["state"] == "stopping", 5)
    assert one.ctl("kill", "--signal", "KILL", id).status == 0
    assert end(first)[0] == 0


def test_kill_running(box):
    n = make(box)
    mark = nap(box)
    box.exec("X=1", n)
    client = box.ctl_spawn("exec", "-s", n, f"{mark}; echo no")
    wait_until(lambda: box.find(mark), 5, "it runs")
    assert box.ctl("kill", "--running", n).triple == (0, b"", b"")
    assert end(client)[:2] == (137, b"") and not box.find(mark)
    assert box.exec("echo $X", n).out == b"1\n"
    refused(box.ctl("kill", "--running", n), f"session '{n}'", "no command runs")
    # by its id as well; and nothing of it is left when the verb returns
    client = box.ctl_spawn("exec", "-s", n, f"{mark}; echo no")
    wait_until(lambda: box.find(mark), 5, "it runs")
    id = show(box, n)["running"]
    d = data(box, "kill", id)
    assert d["id"] == id and d["killed"] == 1 and d["state"] == "exited" and not box.find(mark)
    assert end(client)[0] == 137
    box.ctl_ok("session", "delete", n)


def test_kill_of_a_command_that_waits(one, name):
    client = one.ctl_spawn("exec", "-s", name, nap(one))
    is_running(one, name)
    waiter = one.ctl_spawn("exec", "-s", name, "echo never")
    wait_until(lambda: show(one, name)["queue"] == 1, 5, "it waits")
    id = show(one, name)["waiting"][0]["id"]
    assert one.ctl("kill", id).triple == (0, b"", b"")
    assert end(waiter)[:2] == (137, b"") and show(one, name)["queue"] == 0
    one.ctl_ok("kill", "--running", name)
    end(client)


def test_kill_running_grace(one, name):
    client = one.ctl_spawn("exec", "-s", name, f"sh -c \"{STUBBORN}\"")
    assert client.stdout.readline() == b"up\n"
    r = one.ctl("kill", "--running", name, "--grace", "0", deadline=10)
    assert r.status == 0 and r.seconds < 12 and end(client)[0] == 137


def test_kill_running_signal(one, name):
    # given a command with a child that has a trap, when a signal is sent, then it is that signal
    # and no more
    client = one.ctl_spawn("exec", "-s", name, "sh -c 'trap \"echo usr1; exit 5\" USR1; echo up;"
                                               " while :; do sleep 0.05 & wait; done'")
    assert client.stdout.readline() == b"up\n"
    assert one.ctl("kill", "--signal", "USR1", "--running", name).triple == (0, b"", b"")
    assert end(client)[:2] == (5, b"usr1\n")
    client = one.ctl_spawn("exec", "-s", name, nap(one))
    is_running(one, name)
    id = show(one, name)["running"]
    wait_until(lambda: one.find(show(one, name)["running_text"]), 5)
    one.ctl_ok("kill", "--signal", "HUP", id)
    assert end(client)[0] == 129


def test_kill_usage(one, name):
    for args in ([], ["x", "--running", name], ["x", "y"]):
        assert one.ctl("kill", *args).status == 2


# ---- kill-all --------------------------------------------------------------------------------


def test_kill_all(one, name):
    other = make(one)
    naps = [nap(one) for _ in range(3)]
    mine = [start(one, "-s", name, each)[0] for each in naps[:2]]
    theirs, _ = start(one, "-s", other, naps[2])
    one.exec("X=1", name)
    wait_until(lambda: all(one.find(each) for each in naps), 5, "they run")
    d = data(one, "kill-all", "-s", name)
    assert d["processes"] == 2 and d["killed"] >= 2 and "survivors" not in d
    # all of it is gone when the verb returns
    assert not [p for each in naps[:2] for p in one.find(each)] and one.find(naps[2])
    assert [one.ctl("wait", id).status for id in mine] == [137, 137]
    assert one.exec("echo $X", name).out == b"1\n", "the session stays"
    assert data(one, "kill-all", "-s", name) == {"killed": 0, "processes": 0}
    stubborn, _ = start(one, "-s", name, STUBBORN)
    wait_until(lambda: one.ctl("logs", stubborn).out, 5, "the trap")
    r = one.ctl("kill-all", "--grace", "0")
    assert r.triple == (0, b"", b"") and r.seconds < 12
    rows = {r["id"]: r["state"] for r in data(one, "ps")}
    assert rows[theirs] == rows[stubborn] == "exited" and not one.find(naps[2])
    one.ctl_ok("session", "delete", other)
