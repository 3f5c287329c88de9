"""Mounts with the real s3fs (Debian's package) and a small S3 server."""

import os

import pytest

from rig.s3 import S3
from rig.wait import wait_until


@pytest.fixture
def bucket():
    with S3("box", "KEYID") as s3:
        s3.objects["file"] = (b"content\n", {})
        s3.objects["sub/inner"] = (b"inner\n", {})
        yield s3


def mount(gw, s3, path, **options):
    return gw.http.json("POST", "mount", {"bucket": s3.bucket, "mountPath": str(path), "options": {
        "endpoint": s3.url, "provider": "r2", "credentials": {"accessKeyId": "KEYID", "secretAccessKey": "SECRET"},
        **options}})


def unmount(gw, path):
    return gw.http.json("POST", "unmount", {"mountPath": str(path)})


def test_a_bucket_is_a_folder(gw_ns, bucket):
    # given a bucket; when it is mounted; then commands read and write it, and it is gone when it is unmounted
    path = gw_ns.work / "bucket"
    assert mount(gw_ns, bucket, path) == (200, {"ok": True})
    assert gw_ns.exec(f"cat {path}/file {path}/sub/inner").triple == (0, b"content\ninner\n", b"")
    assert gw_ns.exec(f"echo new >{path}/made; sync; ls {path}").out == b"file\nmade\nsub\n"
    wait_until(lambda: bucket.objects.get("made", (b"",))[0] == b"new\n", 15, lambda: bucket.objects)
    assert bucket.signers == {"KEYID"}
    assert not [p for p in gw_ns.processes() if "SECRET" in p.command] and "SECRET" not in gw_ns.log()
    assert unmount(gw_ns, path) == (200, {"ok": True})
    assert not os.path.ismount(path) and not [p for p in gw_ns.processes() if p.comm == "s3fs"]


def test_a_part_of_it_for_reading(gw_ns, bucket):
    path = gw_ns.work / "part"
    assert mount(gw_ns, bucket, path, prefix="sub/", readOnly=True) == (200, {"ok": True})
    assert gw_ns.exec(f"ls {path}; cat {path}/inner").out == b"inner\ninner\n"
    r = gw_ns.exec(f"echo x >{path}/no")
    assert r.status != 0 and b"Read-only file system" in r.err
    assert unmount(gw_ns, path) == (200, {"ok": True})


def test_what_s3fs_says_is_told(gw_ns, bucket):
    # given a key that opens nothing (s3fs mounts first and asks then); then the error is s3fs's own, and
    # nothing is left
    path = gw_ns.work / "none"
    status, body = mount(gw_ns, bucket, path, credentials={"accessKeyId": "OTHER", "secretAccessKey": "SECRET"})
    assert (status, body["code"]) == (502, "mount_error"), body
    assert body["error"].startswith("mount failed: ") and "invalid credentials" in body["error"], body
    assert not os.path.ismount(path) and not [p for p in gw_ns.processes() if p.comm == "s3fs"]


def test_it_ends_with_the_sandbox(gw_ns, bucket):
    path = gw_ns.work / "last"
    assert mount(gw_ns, bucket, path) == (200, {"ok": True})
    assert gw_ns.exec(f"test -e {path}/file").status == 0
    assert gw_ns.http.request("DELETE", gw_ns.http.root).status == 204
    assert not [p for p in gw_ns.processes() if p.comm == "s3fs"]
    assert "file" in bucket.objects and "sub/inner" in bucket.objects  # what is in the bucket stays
