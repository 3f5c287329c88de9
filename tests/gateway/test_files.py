"""Files over HTTP: the rows of the contract for GET and PUT, HEAD and Range, and every odd name."""

import os
import re
import stat
import threading
import time

import pytest

from rig.files import error_of, leftovers
from rig.http import Cut
from rig.wait import repeats, wait_until

MIB = 1 << 20


# ---- what goes in comes out ----


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 3 * MIB + 1])
def test_put_and_get(gw, size):
    data = os.urandom(size)
    r = gw.http.put("d/e/f.bin", data)
    assert (r.status, r.json) == (200, {"ok": True})
    got = gw.http.get("d/e/f.bin")
    assert (got.status, got.body) == (200, data)
    assert got.header("content-type") == "application/octet-stream" and got.length == size
    assert (gw.workspace / "d/e/f.bin").read_bytes() == data
    info = (gw.workspace / "d/e/f.bin").stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (gw.uid, 0o644)
    assert not leftovers(gw.workspace)


def test_put_in_chunks(gw):
    pieces = [os.urandom(n) for n in (1, 70000, 5, 300000)]
    assert gw.http.put("chunked", iter(pieces)).json == {"ok": True}
    assert gw.http.get("chunked").body == b"".join(pieces)


def test_the_whole_limit_goes_in(gw):
    data = os.urandom(32 * MIB)
    assert gw.http.put("whole", data).json == {"ok": True}
    assert (gw.workspace / "whole").read_bytes() == data


def test_any_content_type_and_text_bytes_pass(gw):
    data = "na\u00efve\n".encode("latin-1") + bytes(range(256))
    r = gw.http.put("latin.txt", data, headers=[("Content-Type", "text/plain; charset=utf-8")])
    assert r.json == {"ok": True}
    assert gw.http.get("latin.txt").body == data


NAMES = [b"sp ace%25.txt", b"a#b?c&d", b"%", b"%2f", b"new\nline", b"tab\t", b"-rf", b"--help", b"caf\xc3\xa9",
         b"bad\xff\xfeutf", b"a;b,c:d@e$f+g=h", b"\\back\\slash", b".hidden", b"...", b"'\"`$(x)", b"n" * 255,
         "日本語".encode(), b"a+b c"]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n[:12]))
def test_case_P2_odd_names(gw, name):
    data = b"of " + name
    assert gw.http.put(b"/workspace/odd/" + name, data).json == {"ok": True}
    assert gw.http.get(b"/workspace/odd/" + name).body == data
    # then it has exactly that name
    assert (os.path.join(os.fsencode(gw.workspace), b"odd", name)) in [
        os.path.join(os.fsencode(gw.workspace), b"odd", n) for n in os.listdir(os.fsencode(gw.workspace / "odd"))]


def test_case_P1_large_upload_without_a_shell(gw):
    data = os.urandom(10 * MIB)
    assert gw.http.put("p1", data).json == {"ok": True}
    assert gw.http.get("p1").body == data


def test_case_P5_bytes_are_no_text(gw):
    # given bytes that are no text; then they are the file, whatever the client calls them; what is said to
    # be base64 and isn't is refused, and nothing is changed
    for kind in ("text/plain", "application/octet-stream; charset=base64"):
        assert gw.http.put("p5", b"\0\xff\n", headers=[("Content-Type", kind)]).json == {"ok": True}
        assert gw.http.ok("GET", "stat/workspace/p5")["size"] == 3 and gw.http.get("p5").body == b"\0\xff\n"
    assert gw.http.put("p5-text", b"AP8K").json == {"ok": True}
    assert gw.http.get("p5-text").body == b"AP8K"
    body = {"from": "/workspace/p5-text", "to_base64": "L3dvcmtz*"}
    assert error_of(gw.http.request("POST", "rename", body))[0] == 400
    assert gw.http.get("p5-text").body == b"AP8K"


def test_case_P7_content_is_literal(gw):
    assert gw.http.put("/workspace/.h/x", b'say "hi" $USER `id`').json == {"ok": True}
    assert [e["name"] for e in gw.http.ok("GET", "list/workspace/.h")["entries"]] == ["x"]
    assert gw.http.get("/workspace/.h/x").body == b'say "hi" $USER `id`'


# ---- paths ----


@pytest.mark.parametrize("route", ["file", "file/"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_empty_path(gw, route, method):
    r = gw.http.request(method, route, b"x" if method == "PUT" else None)
    assert error_of(r) == (400, "file path must not be empty", "invalid_request")


OUTSIDE = ["file/etc/passwd", "file/workspacefoo/x", "file/workspace/../etc/passwd", "file/workspace/..%2f..%2fetc/passwd",
           "file/workspace%2f..%2fetc%2fpasswd", "file/workspace/a/%2e%2e/%2e%2e/etc/passwd", "file//etc/passwd",
           "file/..", "file/workspace/.."]


@pytest.mark.parametrize("target", OUTSIDE)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_outside(gw, target, method):
    r = gw.http.request(method, target, b"x" if method == "PUT" else None)
    assert r.status == 403
    if method != "HEAD":
        assert error_of(r) == (403, "path must resolve to a location within /workspace", "invalid_request")


@pytest.mark.parametrize("path", ["%", "%zz", "%4", "a%00b"])
def test_bad_escapes(gw, path):
    assert gw.http.request("GET", f"file/workspace/{path}").status == 400


def test_spellings_of_one_path(gw):
    gw.http.put("sub/one", b"1")
    for target in ("file/workspace/sub/one", "file//workspace/sub/one", "file/workspace//sub/./one",
                   "file/workspace/sub/x/../one", "file/%77orkspace%2Fsub%2fone"):
        assert gw.http.request("GET", target).body == b"1", target


def test_session_id_is_checked(gw):
    gw.http.put("f", b"1")
    r = gw.http.get("f", headers=[("Session-Id", "a/b")])
    assert error_of(r) == (400, "Invalid session ID format", "invalid_request")
    assert gw.http.get("f", headers=[("Session-Id", "a.b")]).body == b"1"


# ---- GET that fails ----


def test_missing(gw):
    assert error_of(gw.http.get("no/such")) == (
        404, "File not found: /workspace/no/such", "workspace_read_not_found")
    gw.http.put("file", b"")
    assert gw.http.get("file/below").status == 404
    r = gw.http.request("HEAD", gw.http.file("no/such"))
    assert (r.status, r.body) == (404, b"")


def test_what_is_no_file(gw):
    os.makedirs(gw.workspace / "folder", exist_ok=True)
    os.mkfifo(gw.workspace / "fifo")
    status, text, code = error_of(gw.http.get("folder"))
    assert (status, code) == (404, "workspace_read_not_found") and "directory" in text
    assert gw.http.get("/workspace").status == 404
    begun = time.monotonic()
    assert gw.http.get("fifo").status == 404
    assert time.monotonic() - begun < 10
    r = gw.http.put("folder", b"x")
    assert error_of(r) == (502, "write failed: EISDIR: illegal operation on a directory, open '/workspace/folder'",
                           "workspace_archive_write_error")
    assert gw.http.put("/workspace", b"x").status == 502
    assert gw.http.put("fifo", b"x").status == 502


def test_what_the_user_may_not_read(gateway_boxes):
    box = gateway_boxes.get("runc-user")
    secret = box.workspace / "secret"
    secret.write_bytes(b"root's")
    secret.chmod(0o600)
    os.chown(secret, 0, 0)
    # given a file of root in the workspace, then its content comes out by no verb
    assert error_of(box.http.get("secret")) == (
        502, "read failed: open /workspace/secret: Permission denied", "exec_transport_error")
    r = box.http.put("secret", b"mine")
    assert (r.status, r.json["code"]) == (502, "workspace_archive_write_error")
    assert secret.read_bytes() == b"root's"
    # ... nor does a folder that forbids it
    locked = box.workspace / "locked"
    locked.mkdir(mode=0o700)
    (locked / "in").write_bytes(b"x")
    assert box.http.get("locked/in").status == 502
    assert box.http.put("locked/new", b"x").status == 502
    r = box.http.request("POST", "persist")
    assert r.status == 502 and r.json["error"].startswith("tar failed (exit 2): tar: ./")
    secret.unlink()
    (locked / "in").unlink()
    locked.rmdir()


# ---- links ----


def test_links_inside(gw_ns):
    os.makedirs(gw_ns.workspace / "real/deep", exist_ok=True)
    (gw_ns.workspace / "real/deep/f").write_bytes(b"deep")
    for name, to in (("rel", "real/deep"), ("abs", "/workspace/real/deep"), ("up", "real/../real/deep/../deep"),
                     ("chain", "abs")):
        os.symlink(to, gw_ns.workspace / name)
        assert gw_ns.http.get(f"{name}/f").body == b"deep", name
        assert gw_ns.http.put(f"{name}/put-{name}", b"2").json == {"ok": True}
        assert (gw_ns.workspace / f"real/deep/put-{name}").read_bytes() == b"2"
    os.symlink("/workspace/real/deep/f", gw_ns.workspace / "file-abs")
    assert gw_ns.http.get("file-abs").body == b"deep"
    # a link stays a link, and its target gets the content
    assert gw_ns.http.put("file-abs", b"new").json == {"ok": True}
    assert (gw_ns.workspace / "file-abs").is_symlink()
    assert (gw_ns.workspace / "real/deep/f").read_bytes() == b"new"
    # a dangling one is written through, as by a shell
    os.symlink("real/made", gw_ns.workspace / "dangling")
    assert gw_ns.http.get("dangling").status == 404
    assert gw_ns.http.put("dangling", b"3").json == {"ok": True}
    assert (gw_ns.workspace / "real/made").read_bytes() == b"3"


@pytest.mark.parametrize("to", ["/etc", "..", "../..", "/", "/workspace/../etc", "/proc/self/root/etc", "a/../../etc", "/workspacefoo"])
def test_links_that_leave(gw, to):
    link = gw.workspace / "leaves"
    if link.is_symlink():
        link.unlink()
    os.symlink(to, link)
    os.makedirs(gw.workspace / "a", exist_ok=True)
    denied = (403, "path must resolve to a location within /workspace", "invalid_request")
    assert error_of(gw.http.get("leaves/hostname")) == denied
    assert error_of(gw.http.put("leaves/evil", b"x")) == denied
    assert error_of(gw.http.request("POST", "mkdir/workspace/leaves/evil")) == denied
    assert error_of(gw.http.request("DELETE", gw.http.file("leaves/hostname"))) == denied
    assert error_of(gw.http.request("GET", "list/workspace/leaves")) == denied
    assert error_of(gw.http.request("POST", "rename", {"from": "leaves/hostname", "to": "x"})) == denied
    assert error_of(gw.http.request("POST", "rename", {"from": "a", "to": "leaves/x"})) == denied
    assert not os.path.exists("/etc/evil") and (gw.workspace / "a").is_dir()
    # the link itself can be looked at and deleted
    assert gw.http.ok("GET", "stat/workspace/leaves")["target"] == to
    assert gw.http.ok("DELETE", gw.http.file("leaves")) == {"ok": True}


def test_loops_of_links(gw):
    os.symlink("loop", gw.workspace / "loop")
    assert gw.http.get("loop").status == 502
    assert gw.http.put("loop/x", b"").status == 502
    (gw.workspace / "loop").unlink()


# ---- PUT keeps what was there ----


def test_mode_and_inode_of_the_old_file(gw):
    path = gw.workspace / "script"
    gw.http.put("script", b"#!/bin/sh\n")
    path.chmod(0o751)
    before = path.stat()
    assert gw.http.put("script", b"#!/bin/sh\nexit\n").json == {"ok": True}
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o751
    assert after.st_ino != before.st_ino  # by rename: a reader sees the old content or the new
    assert path.read_bytes() == b"#!/bin/sh\nexit\n"


def test_readers_see_the_old_content_or_the_new(gw):
    # given a file that is put again and again; then whoever reads it, over HTTP or inside, sees one content
    contents = [bytes([c]) * 300_000 for c in b"ab"]
    gw.http.put("whole", contents[0])
    done, seen = threading.Event(), set()

    def read():
        while not done.is_set():
            seen.add((gw.workspace / "whole").read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for i in range(repeats(400)):
            assert gw.http.put("whole", contents[i % 2]).json == {"ok": True}
            seen.add(gw.http.get("whole").body)
    finally:
        done.set()
        reader.join()
    assert seen == set(contents)


def test_hard_links_stay_one_file(gw):
    gw.http.put("h1", b"old, and longer")
    os.link(gw.workspace / "h1", gw.workspace / "h2")
    assert gw.http.put("h2", b"new").json == {"ok": True}
    assert (gw.workspace / "h1").read_bytes() == b"new"
    assert (gw.workspace / "h1").stat().st_nlink == 2
    (gw.workspace / "h2").unlink()
    assert not leftovers(gw.workspace)


def test_in_a_folder_that_may_not_be_written(gateway_boxes):
    box = gateway_boxes.get("runc-user")
    folder = box.workspace / "rofolder"
    folder.mkdir()
    (folder / "f").write_bytes(b"a long old text")
    os.chown(folder / "f", box.uid, box.uid)
    folder.chmod(0o755)  # root's
    assert box.http.put("rofolder/f", b"new").json == {"ok": True}
    assert (folder / "f").read_bytes() == b"new"
    assert box.http.put("rofolder/g", b"new").status == 502
    # and a file that may not be written to is not replaced either
    box.http.put("readonly", b"old")
    (box.workspace / "readonly").chmod(0o444)
    assert error_of(box.http.put("readonly", b"new")) == (
        502, "write failed: open /workspace/readonly: Permission denied", "workspace_archive_write_error")
    assert box.http.get("readonly").body == b"old"


# ---- bodies that are too large, or end early ----


def test_too_large_as_announced(gw):
    gw.http.put("big", b"old")
    with gw.http.open() as c:
        c.send(b"PUT %s/file/workspace/big HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\n"
               b"Content-Length: 33554433\r\n\r\n" % (gw.http.root.encode(), gw.token.encode()))
        r = c.response("PUT")
    assert error_of(r) == (413, "payload too large: 33554433 bytes exceeds the 33554432-byte limit", "payload_too_large")
    assert gw.http.get("big").body == b"old"


def test_too_large_in_chunks(gw):
    gw.http.put("big", b"old")
    r = gw.http.put("new/big", (bytes(MIB) for _ in range(33)))
    status, text, code = error_of(r)
    assert (status, code) == (413, "payload_too_large")
    assert re.fullmatch(r"payload too large: \d+ bytes exceeds the 33554432-byte limit", text)
    # nothing is left of it, not even the folder that it would have been in
    wait_until(lambda: not (gw.workspace / "new").exists(), 10, "the folder is gone")
    assert not leftovers(gw.workspace)


@pytest.mark.parametrize("path", ["gone", "made/for/gone"])
def test_client_gone_in_the_middle(gw, path):
    if path == "gone":
        gw.http.put(path, b"old")
    before = set(os.listdir(gw.workspace))
    with gw.http.open() as c:
        c.send(b"PUT %s/file/workspace/%s HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\n"
               b"Content-Length: 1000000\r\n\r\n" % (gw.http.root.encode(), path.encode(), gw.token.encode()))
        c.send(bytes(400000))
        wait_until(lambda: path == "gone" or (gw.workspace / "made/for").exists(), 10, "it has begun")
    wait_until(lambda: set(os.listdir(gw.workspace)) == before, 10, "nothing is left of it")
    if path == "gone":
        assert gw.http.get(path).body == b"old"
    assert not leftovers(gw.workspace)


def test_expect_continue(gw):
    with gw.http.open() as c:
        c.send(b"PUT %s/file/workspace/expected HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\n"
               b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n" % (gw.http.root.encode(), gw.token.encode()))
        time.sleep(0)
        c.send(b"abc")
        r = c.response("PUT")
    assert (r.status, r.json) == (200, {"ok": True})
    assert gw.http.get("expected").body == b"abc"


# ---- HEAD, ranges, conditions ----


def test_head(gw):
    gw.http.put("h", b"x" * 1000)
    r = gw.http.request("HEAD", gw.http.file("h"))
    assert (r.status, r.body, r.length) == (200, b"", 1000)


RANGES = [("bytes=0-0", 206, b"0", "bytes 0-0/10"), ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
          ("bytes=7-", 206, b"789", "bytes 7-9/10"), ("bytes=-4", 206, b"6789", "bytes 6-9/10"),
          ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=5-99", 206, b"56789", "bytes 5-9/10"),
          ("bytes=10-", 416, None, "bytes */10"), ("bytes=-0", 416, None, "bytes */10"),
          ("bytes=5-3", 200, b"0123456789", None), ("bytes=a-b", 200, b"0123456789", None),
          ("bytes=0-1,4-5", 200, b"0123456789", None), ("lines=1-2", 200, b"0123456789", None),
          ("bytes=99999999999999999999-", 200, b"0123456789", None)]


@pytest.mark.parametrize("value,status,body,told", RANGES)
def test_ranges(gw, value, status, body, told):
    gw.http.put("digits", b"0123456789")
    r = gw.http.get("digits", headers=[("Range", value)])
    assert (r.status, r.header("content-range")) == (status, told)
    if body is not None:
        assert r.body == body


def test_conditions(gw):
    gw.http.put("c", b"0123456789")
    first = gw.http.get("c")
    tag, modified = first.header("etag"), first.header("last-modified")
    assert tag and modified and first.header("accept-ranges") == "bytes"
    get = lambda *h: gw.http.get("c", headers=h)
    assert get(("If-None-Match", tag)).status == 304
    assert get(("If-None-Match", f'"no", W/{tag}')).status == 304
    assert get(("If-None-Match", '"no"')).status == 200
    assert get(("If-Modified-Since", modified)).status == 304
    assert get(("Range", "bytes=1-2"), ("If-Range", tag)).body == b"12"
    assert get(("Range", "bytes=1-2"), ("If-Range", '"old"')).body == b"0123456789"
    gw.http.put("c", b"9876543210")
    assert get(("If-None-Match", tag)).status == 200
    assert get(("Range", "bytes=1-2"), ("If-Range", tag)).status == 200


def test_ranges_of_an_empty_file(gw):
    gw.http.put("empty", b"")
    assert gw.http.get("empty", headers=[("Range", "bytes=0-")]).status == 416
    assert gw.http.get("empty").body == b""


def test_a_part_is_not_put(gw):
    gw.http.put("part", b"0123456789")
    r = gw.http.put("part", b"xx", headers=[("Content-Range", "bytes 2-3/10")])
    assert r.status == 400 and gw.http.get("part").body == b"0123456789"


# ---- files that change, helpers that die ----


def test_a_file_that_becomes_shorter_is_cut_off(gw):
    gw.http.put("shrinks", bytes(30 * MIB))
    with gw.http.open() as c:
        c.request("GET", f"{gw.http.root}/{gw.http.file('shrinks')}", gw.http.auth())
        r = c.begin()
        assert r.length == 30 * MIB
        os.truncate(gw.workspace / "shrinks", 1000)
        with pytest.raises(Cut):
            b"".join(c.pieces(r))


def test_the_helper_killed(gw):
    gw.http.put("f", b"1")
    pid = wait_until(lambda: gw.file_helper_pid, 10, "the helper runs")
    os.kill(pid, 9)
    wait_until(lambda: gw.file_helper_pid != pid, 10, "it is gone")
    for _ in range(3):
        # when it is killed between requests, no request fails
        assert gw.http.get("f").body == b"1"


def test_a_worker_killed_in_the_middle(gw):
    gw.http.put("f", b"old")
    workers = lambda: [p.pid for p in gw.find("--file-helper") if p.pid != helper]
    helper = gw.file_helper_pid
    wait_until(lambda: not workers(), 10, "that of the first PUT has ended")
    with gw.http.open() as c:
        c.send(b"PUT %s/file/workspace/f HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\n"
               b"Content-Length: 1000000\r\n\r\n" % (gw.http.root.encode(), gw.token.encode()))
        c.send(bytes(300000))
        os.kill(wait_until(workers, 10, "a worker")[0], 9)
        r = c.response("PUT")
    assert error_of(r) == (502, "write failed: the file helper has ended", "workspace_archive_write_error")
    assert gw.http.get("f").body == b"old" and not leftovers(gw.workspace)
    assert gw.file_helper_pid == helper  # which is another process


def test_the_helper_killed_under_load(gw):
    gw.http.put("f", b"1" * 1000)
    bad = []
    for i in range(60):
        r = gw.http.get("f")
        if r.status == 200:
            assert r.body == b"1" * 1000
        else:
            bad.append(error_of(r))
        if i % 6 == 0 and gw.file_helper_pid:
            os.kill(gw.file_helper_pid, 9)
    # those that it had not begun fail as the contract has it, all others work
    assert all(b[0] == 502 and b[2] == "exec_transport_error" for b in bad), bad
    assert gw.http.get("f").status == 200
