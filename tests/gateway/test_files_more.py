"""Files over HTTP beyond the contract: stat, list, mkdir, rename, delete, watch; and races."""

import base64
import os
import threading
import time
from urllib.parse import quote

import pytest

from rig.files import Swapper, snapshot, up
from rig.http import HttpError
from rig.wait import is_long, wait_until


def route(verb, path):
    path = path if isinstance(path, bytes) else path.encode("utf-8", "surrogateescape")
    return f"{verb}{quote(b'/workspace/' + path if not path.startswith(b'/') else path, safe='/')}"


def failed(r):
    body = r.json
    assert set(body) == {"error", "code"}, body
    return r.status, body["code"]


# ---- stat ----


def test_stat(gw):
    box = gw
    box.http.put("s/file", b"12345")
    got = box.http.ok("GET", route("stat", "s/file"))
    info = (box.workspace / "s/file").stat()
    assert got == {"ok": True, "path": "/workspace/s/file", "name": "file", "type": "file", "size": 5, "mode": "0644",
                   "mtime": pytest.approx(info.st_mtime, abs=0.002), "uid": box.uid, "gid": box.uid, "links": 1}
    assert box.http.ok("GET", route("stat", "s"))["type"] == "directory"
    os.symlink("file", box.workspace / "s/link")
    link = box.http.ok("GET", route("stat", "s/link"))
    assert (link["type"], link["target"]) == ("symlink", "file")
    assert box.http.ok("GET", route("stat", "s/link") + "?follow=1")["size"] == 5
    assert box.http.ok("GET", "stat/workspace")["type"] == "directory"
    assert failed(box.http.request("GET", route("stat", "s/none"))) == (404, "workspace_read_not_found")
    assert failed(box.http.request("GET", "stat/etc/passwd")) == (403, "invalid_request")


# ---- list ----


def test_case_P4_list(gw):
    box = gw
    folder = box.workspace / "l"
    os.makedirs(folder)
    (folder / "a\nb").write_bytes(b"")
    os.symlink("/nonexistent", folder / "s")
    os.mkfifo(folder / "p")
    got = box.http.ok("GET", route("list", "l"))
    assert [(e["name"], e["type"]) for e in got["entries"]] == [("a\nb", "file"), ("p", "fifo"), ("s", "symlink")]
    assert got["path"] == "/workspace/l" and got["entries"][2]["target"] == "/nonexistent" and "next" not in got
    # what is no folder is an error, and not empty
    os.symlink("nothing", folder / "t")
    assert failed(box.http.request("GET", route("list", "l/s"))) == (403, "invalid_request")
    for name in ("l/t", "l/p", "l/a\nb"):
        assert failed(box.http.request("GET", route("list", name))) == (400, "invalid_request"), name
    assert failed(box.http.request("GET", route("list", "l/none"))) == (404, "workspace_read_not_found")
    assert box.http.ok("GET", "list/workspace")["path"] == "/workspace"
    os.makedirs(box.workspace / "vacant")
    assert box.http.ok("GET", route("list", "vacant"))["entries"] == []


def test_names_that_are_not_utf8_are_told_without_loss(gw):
    raw = b"bad\xff\xfe"
    gw.http.put(b"/workspace/raw/" + raw, b"x")
    [e] = gw.http.ok("GET", route("list", "raw"))["entries"]
    assert e["name"] == "bad\ufffd\ufffd" and base64.b64decode(e["name_base64"]) == raw
    # and come back that way
    code = base64.b64encode(b"/workspace/raw/" + raw).decode()
    assert gw.http.ok("POST", "rename", {"from_base64": code, "to": "/workspace/raw/good"}) == {"ok": True}
    assert gw.http.ok("POST", "rename", {"from": "raw/good", "to_base64": code}) == {"ok": True}
    assert os.listdir(os.fsencode(gw.workspace / "raw")) == [raw]


def test_pages_of_a_large_folder(gw):
    folder = gw.workspace / "many"
    os.makedirs(folder)
    names = [f"n{i:05}" for i in range(2100)]
    for n in names:
        (folder / n).touch()
    assert [e["name"] for e in gw.http.ok("GET", route("list", "many"))["entries"]] == names
    got, after = [], ""
    while after is not None:
        page = gw.http.ok("GET", route("list", "many") + f"?limit=999&after={after}")
        assert len(page["entries"]) <= 999
        got += [e["name"] for e in page["entries"]]
        after = page.get("next")
    assert got == names
    for bad in ("0", "-1", "x", "", "1000000"):
        assert gw.http.request("GET", route("list", "many") + f"?limit={bad}").status == 400


# ---- mkdir, rename, delete ----


def test_mkdir(gw):
    box = gw
    assert box.http.ok("POST", route("mkdir", "m/k/d")) == {"ok": True, "created": True}
    assert box.http.ok("POST", route("mkdir", "m/k/d")) == {"ok": True, "created": False}
    assert (box.workspace / "m/k/d").is_dir()
    box.http.put("m/f", b"")
    assert failed(box.http.request("POST", route("mkdir", "m/f"))) == (409, "invalid_request")
    assert failed(box.http.request("POST", route("mkdir", "m/f/x"))) == (400, "invalid_request")
    assert box.http.ok("POST", "mkdir/workspace") == {"ok": True, "created": False}
    assert failed(box.http.request("POST", "mkdir/etc/x")) == (403, "invalid_request")


def test_rename(gw):
    box = gw
    move = lambda a, b, **kw: box.http.request("POST", "rename", {"from": a, "to": b, **kw})
    box.http.put("r/a", b"a")
    assert move("/workspace/r/a", "/workspace/r/new/b").json == {"ok": True}
    assert box.http.get("r/new/b").body == b"a" and box.http.get("r/a").status == 404
    box.http.put("r/c", b"c")
    assert failed(move("r/c", "r/new/b", replace=False)) == (409, "invalid_request")
    assert move("r/c", "r/new/b").json == {"ok": True}
    assert box.http.get("r/new/b").body == b"c"
    assert failed(move("r/none", "r/x/y")) == (404, "workspace_read_not_found")
    assert not (box.workspace / "r/x").exists()
    assert failed(move("r", "r/new/r")) == (400, "invalid_request")
    assert failed(move("/workspace", "r/w")) == (400, "invalid_request")
    assert failed(move("r", "/workspace")) == (400, "invalid_request")
    assert failed(move("r", "/etc/x")) == (403, "invalid_request")
    assert failed(move("../etc/passwd", "x")) == (403, "invalid_request")
    # a link is renamed itself
    os.symlink("/etc/passwd", box.workspace / "r/l")
    assert move("r/l", "r/l2").json == {"ok": True}
    assert os.readlink(box.workspace / "r/l2") == "/etc/passwd"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"nul", b"{}", b'{"from":1,"to":"x"}', b'{"from":"a"}',
                                  b'{"from":"a","to":""}', b'{"from":"a\\u0000b","to":"x"}',
                                  b'{"from":"a","from":"b","to":"c"}', b'{"from_base64":"!","to":"x"}',
                                  b'{"from_base64":"AAAA","to":"x"}', b"[" * 30000, b'{"from":"\xff","to":"x"}'])
def test_rename_with_a_bad_body(gw, body):
    assert failed(gw.http.request("POST", "rename", body)) == (400, "invalid_request")


def test_delete(gw):
    box = gw
    drop = lambda p, q="": box.http.request("DELETE", box.http.file(p) + q)
    box.http.put("del/f", b"")
    os.symlink("/etc", box.workspace / "del/l")
    os.mkfifo(box.workspace / "del/p")
    assert failed(drop("del")) == (409, "invalid_request")
    for name in "flp":
        assert drop(f"del/{name}").json == {"ok": True}
    assert failed(drop("del/f")) == (404, "workspace_read_not_found")
    assert drop("del").json == {"ok": True}
    assert os.path.isdir("/etc")
    assert failed(drop("/workspace", "?recursive=1")) == (400, "invalid_request")


def test_delete_a_tree(gw):
    box = gw
    top = box.workspace / "tree"
    outside = box.dir / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "keep").write_bytes(b"")
    for i in range(30):
        os.makedirs(top / f"d{i}/e/f")
        (top / f"d{i}/e/f/x").write_bytes(b"")
        os.symlink(outside, top / f"d{i}/link")
    for d, _, _ in os.walk(top):
        os.chown(d, box.uid, box.uid)
    r = box.http.request("DELETE", box.http.file("tree") + "?recursive=1")
    assert r.json == {"ok": True} and not top.exists()
    assert (outside / "keep").exists()


def test_delete_a_very_deep_tree(gw_ns):
    # given a folder 450 deep, whose path is longer than any path may be
    fd, name = os.open(gw_ns.workspace, os.O_RDONLY | os.O_DIRECTORY), "d" * 20
    for _ in range(450):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    r = gw_ns.http.request("DELETE", gw_ns.http.file(name) + "?recursive=1", deadline=60)
    assert r.json == {"ok": True} and not (gw_ns.workspace / name).exists()


# ---- watch ----


def watch(box, path):
    # shorter than the time between two signs of life, which would make a wait endless
    return box.http.stream("GET", route("watch", path), deadline=12)


def told(events, *names):
    """The next events, up to the one whose data has the last of names."""
    got = []
    while True:
        e = events.next()
        assert e is not None, got
        got.append((e.name, e.json))
        if e.json.get("path", e.json.get("to", "")).endswith(names[-1]) and e.name == names[0]:
            return got


def test_watch(gw):
    box = gw
    os.makedirs(box.workspace / "w/sub/sub2")
    for d in ("w", "w/sub", "w/sub/sub2"):
        os.chown(box.workspace / d, box.uid, box.uid)
    with watch(box, "w") as events:
        assert (events.next().name, ) == ("ready", )
        # create and modify, also in a folder far below
        box.http.put("w/sub/sub2/f", b"1")
        got = told(events, "create", "/f")
        assert ("create", {"path": "/workspace/w/sub/sub2/f", "directory": False}) in got
        (box.workspace / "w/sub/sub2/f").write_bytes(b"22")
        told(events, "modify", "/sub2/f")
        # what is made in a new folder at once is not missed
        box.http.put("w/new/er/g", b"")
        got = told(events, "create", "/er/g")
        assert ("create", {"path": "/workspace/w/new", "directory": True}) in got
        # a move has both names; what happens in a moved folder has the new path
        os.rename(box.workspace / "w/new", box.workspace / "w/moved")
        assert told(events, "move", "/moved")[-1] == ("move", {
            "from": "/workspace/w/new", "to": "/workspace/w/moved", "directory": True})
        (box.workspace / "w/moved/er/h").write_bytes(b"")
        told(events, "create", "/w/moved/er/h")
        # out of the tree is a delete, into it a create
        os.rename(box.workspace / "w/moved", box.workspace / "out")
        told(events, "delete", "/w/moved")
        os.rename(box.workspace / "out", box.workspace / "w/back")
        got = told(events, "create", "/back/er/h")
        os.unlink(box.workspace / "w/back/er/h")
        told(events, "delete", "/back/er/h")


def test_watch_tells_nothing_of_files_without_a_name(gw):
    # given a watched folder; when a file in it is replaced, and a program has one there that never gets a name; then
    # what is told are names that somebody can find
    os.makedirs(gw.workspace / "wn")
    os.chown(gw.workspace / "wn", gw.uid, gw.uid)
    gw.http.put("wn/f", b"1")
    with watch(gw, "wn") as events:
        events.next()
        gw.http.put("wn/f", b"2")
        fd = os.open(gw.workspace / "wn", os.O_TMPFILE | os.O_RDWR)
        os.write(fd, b"1")
        os.fchmod(fd, 0o600)
        os.close(fd)
        (gw.workspace / "wn/#1").write_bytes(b"")
        os.chmod(gw.workspace / "wn/#1", 0o640)
        got = told(events, "attributes", "/#1")
    assert {e["path"] for _, e in got} == {"/workspace/wn/f", "/workspace/wn/#1"}, got


def test_watch_of_a_folder_that_has_moved_out(gw):
    # given a folder that moves out of the tree; when something is made in it at once; then nothing is told of that
    for d in ("wm/d", "other"):
        os.makedirs(gw.workspace / d)
        os.chown(gw.workspace / d, gw.uid, gw.uid)
    os.chown(gw.workspace / "wm", gw.uid, gw.uid)
    with watch(gw, "wm") as events:
        events.next()
        os.rename(gw.workspace / "wm/d", gw.workspace / "other/d")
        (gw.workspace / "other/d/f").touch()
        (gw.workspace / "wm/end").touch()
        got = told(events, "create", "/wm/end")
    assert [(kind, e["path"]) for kind, e in got] == [("delete", "/workspace/wm/d"), ("create", "/workspace/wm/end")]


def test_watch_the_folder_gone(gw):
    os.makedirs(gw.workspace / "wg")
    with watch(gw, "wg") as events:
        events.next()
        os.rmdir(gw.workspace / "wg")
        names = [e.name for e in events]
    assert names == ["error"]


def test_watch_says_when_it_lost_something(gw):
    limit = int(open("/proc/sys/fs/inotify/max_queued_events").read())
    os.makedirs(gw.workspace / "wo")
    with watch(gw, "wo") as events:
        events.next()
        # given a client that does not read while more happens than the kernel keeps
        a, b = gw.workspace / "wo/a", gw.workspace / "wo/b"
        for _ in range(limit // 3 + 8000):
            os.close(os.open(a, os.O_CREAT | os.O_WRONLY))
            os.unlink(a)
        names = set()
        while "overflow" not in names:
            names.add(events.next().name)
        # then it goes on
        b.touch()
        told(events, "create", "/b")


def test_watches_are_few_and_end_with_their_client(gw):
    os.makedirs(gw.workspace / "wf", exist_ok=True)
    workers = lambda: len([p for p in gw.find("--file-helper") if p.pid != gw.file_helper_pid])
    wait_until(lambda: workers() <= 0, 10, "those of before have ended")
    streams = [watch(gw, "wf") for _ in range(16)]
    for s in streams:
        s.next()
    with pytest.raises(HttpError) as refused:
        watch(gw, "wf").close()
    assert (refused.value.status, refused.value.code) == (503, "capacity_exceeded")
    for s in streams:
        s.close()
    wait_until(lambda: workers() <= 0, 10, "the workers end")
    with watch(gw, "wf") as events:
        assert events.next().name == "ready"


def test_watch_what_is_no_folder(gw):
    gw.http.put("wnf", b"")
    assert failed(gw.http.request("GET", route("watch", "wnf"))) == (400, "invalid_request")
    assert failed(gw.http.request("GET", route("watch", "none"))) == (404, "workspace_read_not_found")
    assert failed(gw.http.request("GET", "watch/etc")) == (403, "invalid_request")
    assert gw.http.request("HEAD", "watch/workspace").status == 200


# ---- races ----


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_race_of_a_swapped_symlink(gw, kind):
    box = gw
    outside = box.dir / f"race-outside-{kind}"
    os.makedirs(outside / "sub")
    for name in ("secret", "sub/secret"):
        (outside / name).write_bytes(b"SECRET" * 100)
    link = str(outside) if kind == "absolute" else up(outside)
    before = snapshot(outside)
    seconds, rounds, seen = 60 if is_long() else 1, 0, set()
    with Swapper(box.workspace, link) as swapper:
        begun, enough = time.monotonic(), lambda: rounds > 3 and {200, 403} <= seen and swapper.turns > 100
        while time.monotonic() < begun + seconds or (not enough() and time.monotonic() < begun + seconds + 20):
            for method, target, body in (
                    ("GET", "file/workspace/race/secret", None),
                    ("PUT", "file/workspace/race/evil", b"evil"),
                    ("PUT", "file/workspace/race/new/evil", b"evil"),
                    ("PUT", "file/workspace/race/secret", b"inner"),
                    ("GET", "list/workspace/race", None),
                    ("GET", "stat/workspace/race/secret", None),
                    ("GET", "stat/workspace/race/sub/secret", None),
                    ("POST", "mkdir/workspace/race/evil-folder", None),
                    ("POST", "rename", {"from": "race/sub", "to": "race-stolen"}),
                    ("POST", "rename", {"from": "race-stolen", "to": "race/sub"}),
                    ("POST", "rename", {"from": "race/sub/secret", "to": "stolen-file"}),
                    ("DELETE", "file/workspace/race/sub/secret", None),
                    ("DELETE", "file/workspace/race/new?recursive=1", None),
                    ("DELETE", "file/workspace/race/sub?recursive=1", None),
                    ("POST", "mkdir/workspace/race/sub", None)):
                r = box.http.request(method, target, body)
                assert b"SECRET" not in r.body, (method, target)
                seen.add(r.status)
                if target.startswith("stat/") and r.status == 200:
                    assert r.json["size"] != 600, (method, target)
                if target.startswith("list/") and r.status == 200:
                    assert all(e["size"] != 600 for e in r.json["entries"])
            rounds += 1
    # given that both were met, a folder and a link
    assert enough(), (swapper.turns, rounds, seen)
    # then nothing outside was read or changed
    assert snapshot(outside) == before
    assert not (box.workspace / "stolen-file").exists()


def test_race_while_a_tree_is_deleted(gw_ns):
    box = gw_ns
    outside = box.dir / "race-delete-outside"
    os.makedirs(outside / "sub")
    (outside / "f").write_bytes(b"x")
    (outside / "sub/f").write_bytes(b"x")
    before = snapshot(outside)
    stop = False

    def fill():
        n = 0
        while not stop:
            n += 1
            try:
                os.makedirs(box.workspace / "td/a/sub", exist_ok=True)
                os.rename(box.workspace / "td/a", box.workspace / f"td/b{n}")
                os.symlink(up(outside), box.workspace / "td/a")
                os.unlink(box.workspace / "td/a")
            except OSError:
                pass

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        end = time.monotonic() + (30 if is_long() else 1)
        while time.monotonic() < end:
            assert box.http.request("DELETE", box.http.file("td") + "?recursive=1").status in (200, 404, 409)
    finally:
        stop = True
        thread.join()
    assert snapshot(outside) == before
