"""The verbs status, reload and shutdown."""

import json

from rig.box import Box
from rig.verbs import STUBBORN, data, end, is_running, make, nap, refused, start
from rig.wait import wait_until


def test_status(box):
    d = data(box, "status")
    n = make(box)
    client = box.ctl_spawn("exec", "-s", n, nap(box))
    is_running(box, n)
    id, _ = start(box, nap(box))
    e = data(box, "status")
    assert e["version"] and e["state"] == "running" and e["is_pid1"] is True and e["pid"] == 1
    assert e["uptime_s"] >= d["uptime_s"] > 0
    assert e["sessions"] == d["sessions"] + 1
    assert e["processes"] == d["processes"] + 1 and e["commands"] == d["commands"] + 1
    assert e["connections"] >= 2 and e["orphans_reaped"] >= 0 and e["zombies"] >= 0
    assert e["runtime_dir"] == str(box.run) and e["socket"] == str(box.socket)
    assert e["config"] == str(box.dir / "sandbox.ini")
    lines = box.ctl_ok("status").lines
    assert f"runtime_dir: {box.run}" in lines and "is_pid1: true" in lines
    box.ctl_ok("kill", id)
    box.ctl_ok("session", "delete", n)
    assert end(client)[0] == 137


def test_status_of_a_box_with_a_main_command():
    with Box("plain", main=["sleep", "500"]) as box:
        d = data(box, "status")
        assert d["main"] == "sleep" and d["main_pid"] > 1 and d["is_pid1"] is False


def test_reload_json_and_nothing_to_do(one):
    d = data(one, "reload")
    assert set(d) == {"config"}
    r = one.ctl("reload")
    assert r.status == 0 and r.err == b""


def test_shutdown(kind):
    # when it returns, init has ended, and all that there was
    with Box(kind) as box:
        n = make(box)
        client = box.ctl_spawn("exec", "-s", n, f"echo up; {nap(box)}")
        assert client.stdout.readline() == b"up\n"
        start(box, nap(box))
        assert box.ctl("shutdown").triple == (0, b"", b"")
        assert box.wait(15) == 0 and not box.survivors()
        assert end(client)[0] in (137, 143)
        r = box.ctl("status")
        assert r.status == 3 and b"-S SOCKET" in r.err


def test_shutdown_grace():
    with Box(ini={"init": {"stop_grace": "60s"}}) as box:
        id, _ = start(box, STUBBORN)
        wait_until(lambda: box.ctl("logs", id).out, 5, "the trap")
        first = box.ctl_spawn("shutdown", "--json")
        wait_until(lambda: data(box, "status")["state"] == "stopping", 5, "it stops")
        refused(box.ctl("session", "create", "x"), "stopping")
        refused(box.ctl("exec", "true"), "stopping", status=125)
        refused(box.ctl("start", "true"), "stopping")
        refused(box.ctl("reload"), "stopping")
        r = box.ctl("shutdown", "--grace", "5")
        assert r.status == 2
        r = box.ctl("shutdown", "--grace", "300ms")
        assert r.status == 0 and r.seconds < 25, "the second one hurries"
        status, out, _ = end(first)
        assert status == 0 and json.loads(out)["grace_ms"] == 60000
        assert box.wait(15) == 0
