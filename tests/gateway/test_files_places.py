"""Files over HTTP where the place is another one: kernels and filters that refuse what we would use, a workspace that
is missing, a gateway that dies, files of a gigabyte."""

import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
import time

import pytest

from rig.box import programs
from rig.files import Swapper, error_of, leftovers, snapshot, up
from rig.http import GatewayBox
from rig.wait import wait_until

MIB = 1 << 20


def refusing(what, error):
    """The box's first program: what the kernel offers is refused from there on."""
    return [str(programs() / "misbehave"), "refuse", what, str(error), "exec"]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_where_openat2_is_refused(error):
    with GatewayBox("ns-root", before=refusing("openat2", error)) as box:
        http, w = box.http, box.workspace
        outside = box.dir / "outside"
        (outside / "sub").mkdir(parents=True)
        (outside / "secret").write_bytes(b"SECRET" * 100)
        before = snapshot(outside)
        (w / "real/deep").mkdir(parents=True)
        # given that it is, then links inside lead where they should
        for name, to in (("rel", "real/deep"), ("abs", "/workspace/real/deep"), ("up", "real/../real/deep")):
            os.symlink(to, w / name)
            assert http.put(f"{name}/f-{name}", b"1").json == {"ok": True}
            assert (w / f"real/deep/f-{name}").read_bytes() == b"1"
        assert http.get("a/b/c").status == 404
        assert http.put("a/b/c", b"x").json == {"ok": True}
        assert http.get("a/b/c/d").status == 404
        assert http.get("a/b/c").body == b"x"
        # ... and none leads out
        for to in ("/etc", "..", "../../etc", "real/../../etc", str(outside)):
            os.symlink(to, w / "leaves")
            for method, target in (("GET", "file/workspace/leaves/hostname"), ("PUT", "file/workspace/leaves/evil"),
                                   ("GET", "list/workspace/leaves"), ("POST", "mkdir/workspace/leaves/evil")):
                assert http.request(method, target, b"x" if method == "PUT" else None).status == 403
            (w / "leaves").unlink()
        # ... not even one that is swapped in
        with Swapper(w, up(outside)) as swapper:
            seen, begun = set(), time.monotonic()
            while len(seen & {200, 403}) < 2 or swapper.turns < 100 or time.monotonic() < begun + 0.5:
                assert time.monotonic() < begun + 30, (seen, swapper.turns)
                for method, target in (("GET", "file/workspace/race/secret"), ("PUT", "file/workspace/race/evil"),
                                       ("PUT", "file/workspace/race/n/evil"), ("GET", "list/workspace/race"),
                                       ("DELETE", "file/workspace/race/secret")):
                    r = http.request(method, target, b"evil" if method == "PUT" else None)
                    assert b"SECRET" not in r.body and b'"size":600' not in r.body
                    seen.add(r.status)
        assert snapshot(outside) == before


def begin_put(box, c):
    """Begin to replace d/f; returns when it can be seen."""
    c.send(b"PUT %s/file/workspace/d/f HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n"
           % (box.http.root.encode(), box.token.encode()))
    c.send(bytes(300000))
    wait_until(lambda: leftovers(box.workspace), 10, "it has begun")


def test_where_there_are_no_files_without_a_name():
    with GatewayBox("ns-root", before=refusing("tmpfile", errno.EOPNOTSUPP)) as box:
        http, w = box.http, box.workspace
        # given that O_TMPFILE is refused, then a temporary file beside the target does
        assert http.put("d/f", b"1").json == {"ok": True}
        (w / "d/f").chmod(0o600)
        assert http.put("d/f", b"2").json == {"ok": True}
        assert (w / "d/f").read_bytes() == b"2" and stat.S_IMODE((w / "d/f").stat().st_mode) == 0o600
        with http.open() as c:
            begin_put(box, c)
        wait_until(lambda: not leftovers(w), 10, "nothing is left")
        # also when it is the gateway that dies
        with http.open() as c:
            begin_put(box, c)
            os.kill(box.gateway_pid, 9)
            wait_until(lambda: not leftovers(w), 10, "nothing is left")
        assert (w / "d/f").read_bytes() == b"2"
        box.await_gateway()
        assert http.get("d/f").body == b"2"
        # a temporary file is in no list, no archive and no watch, but is there
        with http.stream("GET", "watch/workspace/d") as events:
            events.next()
            with http.open() as c:
                begin_put(box, c)
                [temporary] = leftovers(w)
                assert [e["name"] for e in http.ok("GET", "list/workspace/d")["entries"]] == ["f"]
                with tarfile.open(fileobj=io.BytesIO(http.request("POST", "persist").body)) as tar:
                    assert sorted(tar.getnames()) == [".", "./d", "./d/f"]
                # given that its worker is killed; then it is left over until the folder is listed or put to next
                worker = int(os.path.basename(temporary).split("-")[2])
                for p in box.processes():
                    if "--file-helper" in p.command and p.inner == worker:
                        os.kill(p.pid, 9)
                assert c.response("PUT").status == 502
            assert leftovers(w) == [temporary]
            (w / "d/.sandbox-put-mine").write_bytes(b"")  # of another form: somebody's own
            assert http.put("d/f", b"3").json == {"ok": True}
            assert leftovers(w) == [str(w / "d/.sandbox-put-mine")]
            (w / "d/end").write_bytes(b"")
            seen = []
            while not seen or seen[-1].get("path", "")[-5:] != "d/end":
                seen.append(events.next().json)
            names = {v for e in seen for v in e.values() if isinstance(v, str) and ".sandbox-put-" in v}
            assert all(n.endswith("-mine") for n in names), names
        for name, mode in (("0", 0o1644), ("2", 0o644)):
            (w / f"d/.sandbox-put-12-ab-{name}").write_bytes(b"")
            (w / f"d/.sandbox-put-12-ab-{name}").chmod(mode)
            os.chown(w / f"d/.sandbox-put-12-ab-{name}", box.uid, box.uid)
        folder = w / "d/.sandbox-put-12-ab-1"
        folder.mkdir()
        # what a put has not made is somebody's own, whatever it is called: it is told, kept and can be put
        own = [folder.name, ".sandbox-put-12-ab-2", ".sandbox-put-mine"]
        assert http.put("d/" + own[1], b"own").json == {"ok": True}
        assert [e["name"] for e in http.ok("GET", "list/workspace/d")["entries"]] == [*own, "end", "f"]
        assert sorted(leftovers(w)) == [str(w / "d" / n) for n in own[1:]]
        with tarfile.open(fileobj=io.BytesIO(http.request("POST", "persist").body)) as tar:
            assert {f"./d/{n}" for n in own} < set(tar.getnames())
        assert http.get("d/" + own[1]).body == b"own" and http.put("d/new", b"1").json == {"ok": True}
        assert {stat.S_IMODE((w / "d" / n).stat().st_mode) for n in (own[1], "new")} == {0o644}


def test_a_put_that_is_killed_before_its_rename_leaves_nothing():
    # given a worker that is killed when its file has a name, but is not in its place yet; then what it leaves is told
    # from somebody's own file: it is in no list, and gone with it
    with GatewayBox("ns-root", before=refusing("renameat", 0)) as box:
        assert box.http.put("d/f", b"old").json == {"ok": True}
        assert error_of(box.http.put("d/f", b"new"))[0] == 502
        assert len(leftovers(box.workspace)) == 1
        assert [e["name"] for e in box.http.ok("GET", "list/workspace/d")["entries"]] == ["f"]
        assert leftovers(box.workspace) == [] and box.http.get("d/f").body == b"old"


def test_a_missing_workspace_is_made():
    with GatewayBox("ns-user", ini={}, gateway={"workspace": "/dev/shm/sbx-made/ws"}) as box:
        shutil.rmtree("/dev/shm/sbx-made", ignore_errors=True)
        target = "file/dev/shm/sbx-made/ws"
        try:
            r = box.http.request("GET", f"{target}/f")
            assert r.status == 404 and os.path.isdir("/dev/shm/sbx-made/ws")
            shutil.rmtree("/dev/shm/sbx-made")
            assert box.http.request("PUT", f"{target}/d/f", b"1").json == {"ok": True}
            assert box.http.request("GET", f"{target}/d/f").body == b"1"
            assert error_of(box.http.get("/workspace/f")) == (
                403, "path must resolve to a location within /dev/shm/sbx-made/ws", "invalid_request")
            # an archive makes it, too
            shutil.rmtree("/dev/shm/sbx-made")
            assert box.http.request("POST", "hydrate", bytes(1024)).json == {"ok": True}
            assert os.listdir("/dev/shm/sbx-made/ws") == []
            # where it cannot be made, that is said
            shutil.rmtree("/dev/shm/sbx-made")
            os.mkdir("/dev/shm/sbx-made", 0o755)  # root's
            status, text, code = error_of(box.http.request("PUT", f"{target}/f", b"1"))
            assert (status, code) == (502, "workspace_archive_write_error")
            assert text == "write failed: workspace /dev/shm/sbx-made/ws: No such file or directory"
        finally:
            shutil.rmtree("/dev/shm/sbx-made", ignore_errors=True)


def test_what_is_mounted_in_the_workspace(tmp_path):
    folder, single = tmp_path / "folder", tmp_path / "single"
    folder.mkdir()
    (folder / "kept").write_bytes(b"kept")
    single.write_bytes(b"a long old text")
    for p in (tmp_path, folder, folder / "kept", single):
        os.chown(p, 1000, 1000)
    binary = "/sys/kernel/btf/vmlinux"  # on a file system that is not local: the helper reads
    bind = lambda source, name, *more: {"destination": f"/workspace/{name}", "type": "bind", "source": str(source),
                                        "options": ["rbind", *more]}
    mounts = [bind(folder, "folder"), bind(single, "single")]
    if os.path.exists(binary):
        mounts.append(bind(binary, "binary", "ro"))
    with GatewayBox("runc-user", mounts=mounts) as box:
        http = box.http
        # a mounted file gets its content in place: a rename would break the mount
        assert http.put("single", b"new").json == {"ok": True}
        assert single.read_bytes() == b"new" and not leftovers(box.workspace)
        assert http.put("folder/new", b"1").json == {"ok": True} and (folder / "new").read_bytes() == b"1"
        assert http.request("DELETE", http.file("single")).status == 409
        assert http.request("DELETE", http.file("folder") + "?recursive=1").status == 409
        assert (folder / "kept").read_bytes() == b"kept"
        assert error_of(http.request("POST", "rename", {"from": "folder/kept", "to": "kept"}))[0] == 409
        if os.path.exists(binary):
            with open(binary, "rb") as f:
                want = f.read()
            got = http.get("binary")
            assert got.status == 200 and got.body == want
            got = http.get("binary", headers=[("Range", "bytes=100000-299999")])
            assert (got.status, got.body) == (206, want[100000:300000])
            assert http.request("HEAD", http.file("binary")).length == len(want)
        # and deleting the sandbox empties the workspace, whatever its folders forbid, but no mount
        http.put("shut/in/f", b"")
        for d in ("shut/in", "shut"):
            (box.workspace / d).chmod(0)
        os.symlink("/tmp", box.workspace / "link")
        assert http.request("DELETE", http.root).status == 204
        left = wait_until(lambda: sorted(os.listdir(box.workspace))[:4] == ["binary", "folder", "single"][
            0 if os.path.exists(binary) else 1:], 10, lambda: os.listdir(box.workspace))
        assert left and (folder / "kept").read_bytes() == b"kept"


@pytest.mark.long
def test_a_gigabyte_both_ways():
    size = 1 << 30
    with GatewayBox("ns-root", gateway={"max_body": "1G"}) as box:
        block, memory = os.urandom(MIB), []

        def look():
            pids = [box.gateway_pid] + [p.pid for p in box.find("--file-helper")]
            memory.append(max(int(next(l for l in open(f"/proc/{p}/status") if l.startswith("VmRSS")).split()[1])
                              for p in pids))

        def pieces():
            for i in range(size // MIB):
                if i % 100 == 0:
                    look()
                yield block

        assert box.http.put("big", pieces(), deadline=300).json == {"ok": True}
        assert (box.workspace / "big").stat().st_size == size
        got, want = hashlib.sha256(), hashlib.sha256()
        with box.http.open(300) as c:
            c.request("GET", f"{box.http.root}/{box.http.file('big')}", box.http.auth())
            r = c.begin()
            for i, piece in enumerate(c.pieces(r)):
                got.update(piece)
                if i % 1000 == 0:
                    look()
        for _ in range(size // MIB):
            want.update(block)
        assert got.digest() == want.digest()
        print("memory KiB:", memory)
        assert max(memory) < 32 * 1024
