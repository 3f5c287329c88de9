"""persist and hydrate: the workspace as a tar, as strict clients take it, and what hostile tars may not do."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import threading

import pytest

from rig.files import error_of, up
from rig.wait import wait_until

MIB = 1 << 20


@pytest.fixture
def box(gw):
    clear(gw)
    yield gw
    clear(gw)


def clear(box):
    for name in os.listdir(box.workspace):
        path = box.workspace / name
        path.unlink() if path.is_symlink() or not path.is_dir() else shutil.rmtree(path)


def persist(box, query=""):
    r = box.http.request("POST", "persist" + query)
    assert r.status == 200, (r.status, r.body[:500])
    assert r.header("content-type") == "application/octet-stream"
    return r.body


def members(data):
    """The tar's members by name; asserts what a strict client asserts (bridge-api.md, persist)."""
    types, at, longs = [], 0, {}
    while data[at:at + 512].strip(b"\0"):
        head = data[at:at + 512]
        assert head[257:263] == b"ustar\0" and head[263:265] == b"00"
        total = sum(head[:148]) + 8 * 32 + sum(head[156:])
        assert int(head[148:154], 8) == total
        kind, size = chr(head[156]), int(head[124:135], 8)
        assert kind in "052x", f"a member of type {kind}"
        if kind == "x":
            content = data[at + 512:at + 512 + size]
            while content:
                n = int(content.split(b" ", 1)[0])
                record, content = content[:n], content[n:]
                assert record.endswith(b"\n")
                key = record.split(b" ", 1)[1].split(b"=")[0]
                assert key in (b"path", b"linkpath"), key
        types.append(kind)
        at += 512 + (size + 511) // 512 * 512
    assert len(data) >= at + 1024 and not data[at:].strip(b"\0")
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        found = t.getmembers()
    names = [m.name for m in found if not m.isdir()]
    assert len(names) == len(set(names))
    assert all(m.name == "." or m.name.startswith("./") for m in found)
    return {m.name.removeprefix("./"): m for m in found}


def extract(data, name):
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        return t.extractfile(name).read()


def make_tar(*entries, form=tarfile.GNU_FORMAT):
    """entries: (name, bytes) or (name, dict of TarInfo fields) or both."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as t:
        for name, *rest in entries:
            info, data = tarfile.TarInfo(name), b""
            info.mode = 0o644
            for x in rest:
                if isinstance(x, bytes):
                    data, info.size = x, len(x)
                else:
                    for k, v in x.items():
                        setattr(info, k, v)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def hydrate(box, data, **kw):
    return box.http.request("POST", "hydrate", data, **kw)


LINK = dict(type=tarfile.SYMTYPE)
HARD = dict(type=tarfile.LNKTYPE)
FOLDER = dict(type=tarfile.DIRTYPE, mode=0o755)


# ---- persist ----


def test_persist(box):
    w = box.workspace
    box.http.put("a/b.txt", b"content")
    (w / "a/b.txt").chmod(0o640)
    os.symlink("b.txt", w / "a/link")
    os.makedirs(w / "vacant")
    os.mkfifo(w / "fifo")
    os.link(w / "a/b.txt", w / "hard")
    deep = "d" * 120 + "/" + "e" * 120 + "/" + "f" * 120
    box.http.put(deep, b"deep")
    box.http.put("x" * 150, b"long")
    os.symlink("t" * 300, w / "longlink")
    box.http.put("caf\u00e9", b"")
    data = persist(box)
    got = members(data)
    assert set(got) == {".", "a", "a/b.txt", "a/link", "vacant", "hard", "d" * 120, "d" * 120 + "/" + "e" * 120, deep,
                        "x" * 150, "longlink", "caf\u00e9"}
    assert got["a/b.txt"].mode == 0o640 and got["a/b.txt"].mtime == int((w / "a/b.txt").stat().st_mtime)
    assert got["a/link"].linkname == "b.txt" and got["longlink"].linkname == "t" * 300
    assert got["hard"].isreg() and extract(data, "./hard") == b"content"
    assert extract(data, "./" + deep) == b"deep"
    # and GNU tar takes it
    r = subprocess.run(["tar", "tf", "-"], input=data, capture_output=True)
    assert (r.returncode, r.stderr) == (0, b"")


def test_round_trip(box):
    w = box.workspace
    for i in range(40):
        box.http.put(f"r/{i % 7}/{'n' * i}-{i}", os.urandom(i * 1000))
    box.http.put(b"/workspace/r/odd \n\xff'\"", b"odd")
    (w / "r/3").chmod(0o500)
    os.symlink("/workspace/r/0", w / "r/l")
    first = persist(box)

    def state():
        return {os.path.relpath(os.path.join(d, n), w).encode("utf-8", "surrogateescape"): (
            os.lstat(os.path.join(d, n)).st_mode, int(os.lstat(os.path.join(d, n)).st_mtime)
            if not os.path.islink(os.path.join(d, n)) else os.readlink(os.path.join(d, n)),
            open(os.path.join(d, n), "rb").read() if os.path.isfile(os.path.join(d, n)) else None)
            for d, dirs, names in os.walk(w) for n in dirs + names}

    before = state()
    (w / "r/3").chmod(0o755)
    clear(box)
    assert hydrate(box, first).json == {"ok": True}
    assert state() == before
    (w / "r/3").chmod(0o755)


def test_an_empty_workspace(box):
    assert list(members(persist(box))) == ["."]


PATTERNS = ["a", "a/b", "*.pyc", "a/*", "*", "node_modules", "./a", "a/", "?", "[ab]", "b", "*b*", "a/b/c.pyc", ".hid",
            "a,b", "*.log,node_modules", ",,", "./", "x y", "\\a"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_excludes_as_gnu_tar(box, pattern):
    for path in ("a/b/c.pyc", "a/b/d", "b/x.pyc", "node_modules/m/i.js", "sub/node_modules/j.js", ".hid/e", "x y", "t.log",
                 "sub/t.log/u", "ab"):
        box.http.put(path, b"")
    options = []
    for part in pattern.split(","):
        part = part.removeprefix("./")
        options += ["--exclude", f"./{part}"] if part else []
    want = subprocess.run(["tar", "cf", "-", *options, "-C", box.workspace, "."], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(want)) as t:
        want = {n.removeprefix("./") for n in t.getnames()}
    from urllib.parse import quote
    assert set(members(persist(box, f"?excludes={quote(pattern)}&root=/etc"))) == want


@pytest.mark.parametrize("excludes", ["..", "a,..%2fb", "x..y", "%2e%2e"])
def test_excludes_that_climb(box, excludes):
    assert error_of(box.http.request("POST", f"persist?excludes={excludes}")) == (
        400, 'exclude paths must not contain ".."', "invalid_request")


def test_persist_is_streamed(box):
    # given more than anybody would keep in memory, then the answer begins before it is all made
    box.http.put("first", b"1")
    with open(box.workspace / "sparse", "wb") as f:
        f.truncate(20 << 30)
    with box.http.open() as c:
        c.request("POST", f"{box.http.root}/persist", box.http.auth())
        r = c.begin("POST")
        assert r.status == 200 and r.is_chunked
        got = 0
        for piece in c.pieces(r):
            got += len(piece)
            if got > 64 * MIB:
                break
    # and a client that leaves ends it
    workers = lambda: [p for p in box.find("--file-helper") if p.pid != box.file_helper_pid]
    wait_until(lambda: not workers(), 10, "the worker ends")
    rss = next(l for l in open(f"/proc/{box.gateway_pid}/status") if l.startswith("VmRSS"))
    assert int(rss.split()[1]) < 64 * 1024 or "asan" in os.environ.get("SANDBOX_BUILD", ""), rss


def test_a_client_that_does_not_read_stops_the_worker(box):
    with open(box.workspace / "sparse", "wb") as f:
        f.truncate(1 << 30)
    with box.http.open() as c:
        c.request("POST", f"{box.http.root}/persist", box.http.auth())
        c.begin("POST")
        # others are served meanwhile
        assert box.http.put("other", b"x").json == {"ok": True}
        assert box.http.get("other").body == b"x"
        used = lambda: next(int(l.split()[1]) for l in open(f"/proc/{box.gateway_pid}/status") if l.startswith("VmRSS"))
        assert used() < 64 * 1024 or "asan" in os.environ.get("SANDBOX_BUILD", "")


def test_files_that_change_while_they_are_read(box):
    for i in range(20):
        box.http.put(f"f{i}", bytes(200000))
    stop = False

    def change():
        n = 0
        while not stop:
            n += 1
            try:
                os.truncate(box.workspace / f"f{n % 20}", (n * 7919) % 400000)
                if n % 3 == 0:
                    (box.workspace / f"g{n % 5}").touch()
                if n % 4 == 0:
                    os.unlink(box.workspace / f"g{n % 5}")
            except OSError:
                pass

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(10):
            members(persist(box))  # always a whole archive
    finally:
        stop = True
        thread.join()


# ---- hydrate ----


def test_hydrate_over_what_is_there(box):
    box.http.put("keep", b"kept")
    box.http.put("old", b"old and long")
    data = make_tar(("./", FOLDER), ("./old", b"new", dict(mode=0o600, mtime=1000000000)), ("./d/", FOLDER),
                    ("./d/e/f", b"deep", dict(mode=0o4755)), ("./l", dict(linkname="d/e", **LINK)),
                    ("./h", dict(linkname="./d/e/f", **HARD)))
    assert hydrate(box, data).json == {"ok": True}
    w = box.workspace
    assert (w / "keep").read_bytes() == b"kept" and (w / "old").read_bytes() == b"new"
    assert stat.S_IMODE((w / "old").stat().st_mode) == 0o600 and (w / "old").stat().st_mtime == 1000000000
    assert stat.S_IMODE((w / "d/e/f").stat().st_mode) == 0o755  # no setuid
    assert stat.S_IMODE((w / "d/e").stat().st_mode) == 0o755  # which the archive does not have
    assert os.readlink(w / "l") == "d/e" and (w / "h").stat().st_nlink == 2


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_forms_of_tar(box, form):
    entries = [(f"./n{i}/{'x' * 90}", b"%d" % i) for i in range(3)]
    if form != tarfile.USTAR_FORMAT:
        entries += [("./" + "p" * 180 + "/" + "q" * 180, b"long"), ("./ll", dict(linkname="y" * 200, **LINK)),
                    ("./caf\u00e9\u65e5", b"utf8"), ("./raw\udcff", b"raw")]
    assert hydrate(box, make_tar(*entries, form=form)).json == {"ok": True}
    for name, content in entries:
        path = os.fsencode(box.workspace) + b"/" + name.encode("utf-8", "surrogateescape")
        if isinstance(content, bytes):
            assert open(path, "rb").read() == content, name
        else:
            assert os.readlink(path) == b"y" * 200


def test_a_sparse_file_of_gnu_tar(box, tmp_path):
    with open(tmp_path / "s", "wb") as f:
        f.truncate(10 * MIB)
        f.seek(5 * MIB)
        f.write(b"middle")
    data = subprocess.run(["tar", "cSf", "-", "-C", tmp_path, "./s"], capture_output=True, check=True).stdout
    assert len(data) < MIB
    assert hydrate(box, data).json == {"ok": True}
    assert (box.workspace / "s").read_bytes() == (tmp_path / "s").read_bytes()


def test_what_is_no_tar(box):
    for data in (b"hello", b"\x1f", b"\x1f\x8b" + os.urandom(2000), os.urandom(5000), b"x" * 512):
        status, text, code = error_of(hydrate(box, data))
        assert (status, code) == (502, "workspace_archive_write_error")
        assert text.startswith("tar extract failed (exit 2): tar: This does not look like a tar archive\n"), text
    assert hydrate(box, bytes(1024)).json == {"ok": True}


@pytest.mark.parametrize("name,data", [
    ("gzip", gzip.compress(bytes(2000))), ("xz", lzma.compress(bytes(2000))), ("bzip2", bz2.compress(bytes(2000))),
    ("zstd", bytes.fromhex("28b52ffd") + bytes(600)), ("lz4", bytes.fromhex("04224d18") + bytes(600)),
    ("zip", b"PK\3\4" + bytes(600)),
], ids=["gzip", "xz", "bzip2", "zstd", "lz4", "zip"])
def test_what_is_compressed(box, name, data):
    # given a tar that is compressed; then the answer says so, also where its bytes come one by one
    for body in (data, iter(data[i:i + 1] for i in range(len(data)))):
        assert error_of(hydrate(box, body)) == (
            502, "tar extract failed (exit 2): tar: This does not look like a tar archive\n"
            f"tar: It is compressed ({name}): send a plain tar\n"
            "tar: Exiting with failure status due to previous errors\n", "workspace_archive_write_error")


def test_empty(box):
    for kw in ({"data": b""}, {"data": iter([])}):
        assert error_of(hydrate(box, **kw)) == (400, "Empty tar payload", "invalid_request")
    assert error_of(box.http.request("POST", "hydrate")) == (400, "Empty tar payload", "invalid_request")


def test_too_large(box):
    with box.http.open() as c:
        c.send(b"POST %s/hydrate HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\nContent-Length: 33554433\r\n\r\n"
               % (box.http.root.encode(), box.token.encode()))
        r = c.response("POST")
    assert error_of(r) == (400, "tar payload too large: 33554433 bytes exceeds the 33554432-byte limit",
                           "invalid_request")
    head = make_tar(("./big", b"x" * 100))[:1024]
    status, text, code = error_of(hydrate(box, iter([head] + [bytes(MIB)] * 33)))
    assert (status, code) == (400, "invalid_request") and text.startswith("tar payload too large: ")


def test_a_large_tar_and_what_follows_its_end(box):
    data = make_tar(("./big", os.urandom(20 * MIB))) + b"trailing" * 100000
    assert hydrate(box, data).json == {"ok": True}
    assert (box.workspace / "big").stat().st_size == 20 * MIB


def test_a_tar_that_is_cut_off(box):
    data = make_tar(("./a", b"a" * 1000), ("./b", b"b" * 100000))
    status, text, code = error_of(hydrate(box, data[:5000]))
    assert (status, code) == (502, "workspace_archive_write_error") and "tar extract failed (exit 2)" in text


# ---- hostile tars ----


@pytest.fixture
def outside(box):
    folder = box.dir / "outside-tar"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "victim").write_bytes(b"victim")
    yield folder


def test_names_that_climb(box, outside):
    for name in (f"./{up(outside)}/evil", f"{up(outside)}/evil", "a/../../evil", ".."):
        status, text, _ = error_of(hydrate(box, make_tar((name, b"evil"), ("./good", b"good"))))
        assert status == 502 and "Member name contains '..'" in text
        assert (box.workspace / "good").read_bytes() == b"good"  # the others went in
    # an absolute name lies in the workspace
    assert hydrate(box, make_tar((f"{outside}/evil", b"evil"))).json == {"ok": True}
    assert sorted(os.listdir(outside)) == ["victim"]
    assert (box.workspace / str(outside).lstrip("/") / "evil").read_bytes() == b"evil"


@pytest.mark.parametrize("how", ["absolute", "relative", "twice"])
def test_members_below_a_link_of_the_archive(box, outside, how):
    target = str(outside) if how == "absolute" else up(outside)
    entries = [("./l", dict(linkname=target, **LINK))]
    name = "./l"
    if how == "twice":
        entries.append(("./m", dict(linkname="l", **LINK)))
        name = "./m"
    entries += [(f"{name}/evil", b"evil"), (f"{name}/victim", b"evil"), (f"{name}/d/", FOLDER),
                (f"{name}/evil-link", dict(linkname="x", **LINK)), (f"{name}/victim2", dict(linkname="./good", **HARD))]
    status, text, _ = error_of(hydrate(box, make_tar(*entries)))
    assert status == 502 and "leads out of the workspace" in text
    assert sorted(os.listdir(outside)) == ["victim"] and (outside / "victim").read_bytes() == b"victim"


def test_members_over_a_link(box, outside):
    # a file over a link replaces the link, and does not go through it
    data = make_tar(("./l", dict(linkname=up(outside / "victim"), **LINK)), ("./l", b"mine"),
                    ("./d", dict(linkname=up(outside), **LINK)), ("./d/", dict(type=tarfile.DIRTYPE, mode=0o700)))
    assert hydrate(box, data).json == {"ok": True}
    assert (outside / "victim").read_bytes() == b"victim" and stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert not (box.workspace / "l").is_symlink() and (box.workspace / "l").read_bytes() == b"mine"
    assert (box.workspace / "d").is_dir() and not (box.workspace / "d").is_symlink()


def test_hard_links_to_the_outside(box, outside):
    for target in (up(outside / "victim"), str(outside / "victim"), "l/victim", "/etc/passwd"):
        data = make_tar(("./l", dict(linkname=up(outside), **LINK)), ("./h", dict(linkname=target, **HARD)))
        assert hydrate(box, data).status == 502
        assert not (box.workspace / "h").exists() and (outside / "victim").stat().st_nlink == 1


def test_devices_and_fifos_are_refused(box):
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        data = make_tar(("./dev", dict(type=kind, devmajor=1, devminor=3)), ("./good", b"g"))
        status, text, _ = error_of(hydrate(box, data))
        assert status == 502 and "tar: ./dev: Cannot mknod" in text
        assert not os.path.lexists(box.workspace / "dev") and (box.workspace / "good").exists()


def test_a_folder_in_the_way(box):
    box.http.put("d/x", b"")
    status, text, _ = error_of(hydrate(box, make_tar(("./d", b"file"))))
    assert status == 502 and "tar: ./d: Cannot open: File exists" in text
    assert hydrate(box, make_tar((".", b"file"))).status == 502


def test_garbled_tars(box):
    import random
    base = bytearray(make_tar(*[(f"./f{i}", b"x" * 700) for i in range(6)],
                              ("./" + "p" * 150, b"y"), ("./l", dict(linkname="z" * 150, **LINK)), form=tarfile.PAX_FORMAT))
    chance = random.Random(7)
    for _ in range(60):
        data = bytearray(base)
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        assert hydrate(box, bytes(data)).status in (200, 502)
    assert box.http.get("nothing").status == 404


def test_client_gone_while_hydrating(box):
    with box.http.open() as c:
        c.send(b"POST %s/hydrate HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer %s\r\nContent-Length: 3000000\r\n\r\n"
               % (box.http.root.encode(), box.token.encode()))
        c.send(make_tar(("./one", b"1" * 5000), ("./two", b"2" * 2000000))[:100000])
        wait_until(lambda: (box.workspace / "two").exists(), 10, "it has begun")
    workers = lambda: [p for p in box.find("--file-helper") if p.pid != box.file_helper_pid]
    wait_until(lambda: not workers(), 10, "the worker ends")
    assert (box.workspace / "one").read_bytes() == b"1" * 5000


def test_as_another_user(gateway_boxes):
    box = gateway_boxes.get("runc-user")
    data = make_tar(("./u/f", b"x", dict(uid=0, gid=0, uname="root", mode=0o6755)), ("./u/", dict(mode=0o2775, **{
        "type": tarfile.DIRTYPE})))
    assert hydrate(box, data).json == {"ok": True}
    info = (box.workspace / "u/f").stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (box.uid, box.uid, 0o755)
    assert "u/f" in members(persist(box))


def test_a_tree_that_is_too_deep(gw):
    # given a tree of more folders in each other than persist takes; then it says so, and how to go on; what it
    # takes, hydrate takes back
    box = gw
    deep = lambda n: "/".join(["deepest"] + ["d"] * n)
    def make(n):
        box.http.exec(["mkdir", "-p", deep(n)])
    try:
        make(398)
        r = box.http.request("POST", "persist")
        assert r.status == 200 and "./" + deep(398) in [m.rstrip("/") for m in tarfile.open(fileobj=io.BytesIO(r.body)).getnames()]
        box.http.exec(["rm", "-rf", "deepest"])
        assert hydrate(box, r.body).status == 200
        assert (box.workspace / deep(398)).is_dir()
        make(420)
        status, text, code = error_of(box.http.request("POST", "persist"))
        assert (status, code) == (502, "workspace_archive_read_error")
        assert "deepest/d/d" in text and "deeper than 400 folders" in text and "?excludes=" in text
        assert box.http.request("POST", "persist?excludes=deepest").status == 200
    finally:
        box.http.exec(["rm", "-rf", "deepest"])
