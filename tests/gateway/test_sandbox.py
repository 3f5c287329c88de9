"""The sandbox: its ids, whether it runs, its end; with on_delete = reset and = exit."""

import io
import os
import re
import signal
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rig.http import GATEWAY_KINDS, GatewayBox, collect
from rig.places import SHARED_INI
from rig.wait import wait_until

INI = {"session:kept": {"cwd": "/tmp"},
       "service:lives": {"command": "sleep 70.5"}}


def alive(gw, text):
    return [p for p in gw.processes() if text in p.command and p.state != "Z"]


def test_create(gw):
    # given any body or none; then each id is new and of the right form
    ids = [gw.http.ok("POST", "/v1/sandbox", b)["id"] for b in (None, {}, b"no json", {"timeoutMs": 1})]
    assert len(set(ids)) == 4 and all(re.fullmatch("[a-z2-7]{26}", i) for i in ids)
    # the last character has 3 bits of the last byte, and no others
    assert all(i[-1] in "aeimquy4" for i in ids)


def test_running(gw):
    assert gw.http.ok("GET", "running") == {"running": True}


def test_delete_leaves_nothing(gw):
    """given sessions, commands, processes, programs, files; when the sandbox is deleted; then nothing
    of it is left, and the id is fresh"""
    gw, h = gw, gw.http
    h.exec(["eval", "A=1; sleep 71.5 & (setsid sleep 71.5 &)"], session="one")
    h.exec("setsid sleep 71.5 >/dev/null 2>&1 & :")
    with h.exec_stream(["sleep", "71.5"], session="one") as a, h.exec_stream(["sleep", "71.5"]) as b:
        a.next()
        b.next()
        with h.exec_stream(["touch", "/tmp/never"], session="one") as c:
            wait_until(lambda: h.ok("GET", "session/one")["queue"] == 1, 15, "one waits")
            old = h.exec("echo x", headers=[("Idempotency-Key", "same")])
            h.exec("mkdir -p d/e .h; echo x >d/e/f; ln -s /etc l; mkfifo p; echo >-rf")
            assert h.json("DELETE", h.root) == (204, None)
            assert (collect(a).status, collect(b).status) == (137, 137)
            assert collect(c).error["code"] == "exec_error"
    assert not alive(gw, "sleep 71.5") and list(gw.workspace.iterdir()) == []
    assert "one" not in [s["id"] for s in h.ok("GET", "session")["sessions"]]
    assert h.ok("GET", "exec") == {"execs": []}
    new = h.exec("echo x", headers=[("Idempotency-Key", "same")])
    assert "joined" not in new.start and new.start["pid"] != old.start["pid"]
    assert h.exec(["eval", "echo ${A-fresh} $PWD"], session="one").out == b"fresh /workspace\n"


def test_what_the_ini_declares_stays(gw):
    # given a session and a service of the ini; when the sandbox is deleted; then the service runs on,
    # and the session is a fresh one
    h = gw.http
    service = wait_until(lambda: alive(gw, "sleep 70.5"), 15, "the service runs")[0].pid
    h.exec(["eval", "A=1; cd /; sleep 72.5 &"], session="kept")
    assert h.json("DELETE", h.root) == (204, None)
    assert [p.pid for p in alive(gw, "sleep 70.5")] == [service] and not alive(gw, "sleep 72.5")
    assert h.exec(["eval", "echo ${A-fresh} $PWD"], session="kept").out == b"fresh /tmp\n"


def test_delete_again_and_of_any_id(gw):
    for client in (gw.http, gw.http, gw.client()):
        assert client.json("DELETE", client.root) == (204, None)


def test_delete_of_stubborn_ones(gw):
    # given a tree that ignores TERM; then it is gone when the answer comes
    h = gw.http
    with h.exec_stream("trap '' TERM; (trap '' TERM; sleep 73.5) & sleep 73.5") as a:
        a.next()
        wait_until(lambda: len(alive(gw, "sleep 73.5")) >= 2, 15, "both run")
        assert h.json("DELETE", h.root) == (204, None)
        assert collect(a).status == 137
    assert not alive(gw, "sleep 73.5")


def test_delete_where_something_cannot_be_removed():
    """given files of another user in the workspace; when the sandbox is deleted; then that is 204, what can be
    removed is gone, nothing runs, and the answer, the log and the numbers tell what stays"""
    with GatewayBox("ns-user", ini={}) as box:
        h, w = box.http, box.workspace
        (w / "kept/by").mkdir(parents=True)
        for name in ("x", 'y"\n'):
            (w / "kept/by" / name).write_text("root's")
        assert h.put("goes/f", b"1").status == 200
        h.exec(["eval", "A=1; sleep 74.5 &"], session="one")
        for n in (1, 2):
            r = h.request("DELETE", h.root)
            assert (r.status, r.body) == (204, b"")
            text = r.header("warning")
            assert text.startswith('299 sandbox-gateway "3 entries stay, the first: delete /workspace/kept/by/')
            assert text.endswith(': Permission denied"')
            assert f"sandbox_gateway_deletes_incomplete_total {n}\n" in h.request("GET", "/metrics").text
        assert [p.name for p in w.iterdir()] == ["kept"] and not alive(box, "sleep 74.5")
        assert "event=workspace_not_empty" in box.log() and "kept/by" in box.log()
        assert h.exec(["eval", "echo ${A-fresh}"], session="one").out == b"fresh\n"
        assert h.put("new", b"1").status == 200


def test_delete_goes_on_when_its_helper_is_killed(gw):
    # given a workspace that takes a while to empty; when who empties it is killed, twice; then another one goes on,
    # and the answer is as ever
    h, d = gw.http, gw.workspace / "d"
    kills = 0
    for _ in range(5):
        assert h.exec("mkdir d; cd d; seq 40000 | xargs touch").status == 0
        with ThreadPoolExecutor(1) as pool:
            r = pool.submit(h.request, "DELETE", h.root)
            for left in (39000, 20000):
                wait_until(lambda: r.done() or not d.exists() or len(os.listdir(d)) < left, 30, "it is at it")
                for p in gw.find("--file-helper"):
                    with suppress(ProcessLookupError):  # it has just ended by itself
                        os.kill(p.pid, signal.SIGKILL)
                kills += not r.done()
            r = r.result(60)
        assert (r.status, r.header("warning")) == (204, None) and list(gw.workspace.iterdir()) == []
        if kills >= 2:
            break
    assert kills, "it was never met at it"


def test_delete_goes_on_when_its_helper_is_stopped(gw):
    # given a file helper that the sandbox's own user has stopped, and a worker of it that was stopped at a PUT; when
    # the sandbox is deleted; then both go on, and the workspace is emptied
    h = gw.http
    assert h.put("d/f", b"1").status == 200
    wait_until(lambda: len(gw.find("--file-helper")) == 1, 15, "the worker of that has ended")
    with h.open() as c:
        c.request("PUT", h.root + "/file/workspace/d/g", [*h.auth(), ("Content-Length", "2")], b"1")
        wait_until(lambda: len(gw.find("--file-helper")) == 2, 15, "its worker is there")
        helpers = [p.inner for p in gw.find("--file-helper")]
        assert h.exec(f"kill -STOP {' '.join(map(str, helpers))}").status == 0
        r = h.request("DELETE", h.root, deadline=60)
        assert (r.status, r.header("warning")) == (204, None) and list(gw.workspace.iterdir()) == []
        assert c.response("PUT").status == 409
    assert h.put("new", b"1").status == 200
    wait_until(lambda: [p.inner for p in gw.find("--file-helper")] == [min(helpers)], 15, "the helper alone")


@pytest.mark.parametrize("method, target, code", [("PUT", "file/workspace/d/f", "write"),
                                                  ("POST", "hydrate", "hydrate")])
def test_delete_calls_off_what_is_being_written(gw, method, target, code):
    # given a PUT or a hydrate of which half has come; when the sandbox is deleted; then it fails, and nothing of it
    # is in the fresh workspace
    h, tar = gw.http, io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as t:
        for i in range(20):
            m = tarfile.TarInfo(f"d/f{i}")
            m.size = 100000
            t.addfile(m, io.BytesIO(bytes(m.size)))
    half = tar.getvalue()[:1000000]
    with h.open() as c:
        c.send(f"{method} {h.root}/{target} HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {h.token}\r\n"
               f"Content-Length: 2000000\r\n\r\n".encode() + half)
        wait_until(lambda: (gw.workspace / "d").exists(), 15, "it has begun")
        assert h.request("DELETE", h.root).status == 204
        r = c.response(method)
        assert (r.status, r.json) == (409, {"error": f"{code} failed: the sandbox has been deleted meanwhile",
                                            "code": "workspace_archive_write_error"})
    assert list(gw.workspace.iterdir()) == []
    assert h.put("d/f", b"1").status == 200


@pytest.mark.parametrize("kind", GATEWAY_KINDS)
def test_on_delete_exit(kind):
    # given on_delete = exit; when the sandbox is deleted; then the container ends in order, with 0
    with GatewayBox(kind, gateway={"on_delete": "exit"}, ini=SHARED_INI) as box:
        (box.workspace / "stays").touch()
        box.http.exec(["eval", "trap 'touch ended' TERM; :"], session="s")
        assert box.http.json("DELETE", box.http.root) == (204, None)
        assert box.wait(20) == 0
        assert (box.workspace / "stays").exists()


def test_the_one_id():
    with GatewayBox("ns-root", gateway={"sandbox_id": "onlyone"}) as box:
        assert box.http.ok("POST", "/v1/sandbox") == {"id": "onlyone"}
        assert box.http.ok("GET", "/v1/sandbox/onlyone/running") == {"running": True}
        assert box.http.request("GET", "/v1/sandbox/other/running").status == 404
