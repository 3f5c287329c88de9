"""Tunnels and mounts, with programs that stand in for cloudflared and s3fs, which do what those do only
now and then. The real s3fs is in test_s3fs.py; the 400 rows of the contract are in test_contract.py and
tests/unit/test_mount_request.c."""

import json
import os
import re
import signal
import threading

import pytest

from rig.box import base
from rig.http import GATEWAY_KINDS, GatewayBox, sanitizer_report
from rig.wait import wait_until

FAKES = base() / "fakes"
INI = {"sessions": {"env.PATH": f"{FAKES}/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}

# What each was called with goes to FAKES/NAME.calls, one JSON line a call; FAKES/NAME.mode says what
# it does.
CLOUDFLARED = """\
case $(cat MODE) in
fail) echo 'failed to request quick Tunnel: Post "https://api.trycloudflare.com/tunnel": no such host' >&2
      exit 1;;
silent) exec sleep 1000;;
esac
echo 'INF Thank you for trying Cloudflare Tunnel. https://developers.cloudflare.com/cloudflare-one/' >&2
echo 'INF Requesting new quick Tunnel on https://trycloudflare.com and https://api.trycloudflare.com' >&2
echo 'INF +-----------------------------------------------+' >&2
echo 'INF |  https://calm-words-'$$'.trycloudflare.com  |' >&2
exec sleep 1000
"""
S3FS = """\
case $(cat MODE) in
fail) echo 's3fs: unable to access MOUNTPOINT' >&2; exit 1;;
esac
mount --bind FAKES/bucket "$2" || exit
end() { umount "$2"; exit 0; }
case $(cat MODE) in
stubborn) trap '' TERM;;
*) trap 'end "$@"' TERM;;
esac
while :; do sleep 0.05; done
"""


@pytest.fixture(scope="module", autouse=True)
def fakes():
    (FAKES / "bin").mkdir(parents=True)
    (FAKES / "bucket").mkdir()
    (FAKES / "bucket" / "file").write_text("content")
    for name, text in (("cloudflared", CLOUDFLARED), ("s3fs", S3FS)):
        path = FAKES / "bin" / name
        record = (f"python3 -c 'import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))' "
                  f"\"$@\" >> {FAKES}/{name}.calls\n")
        path.write_text("#!/bin/sh\n" + record + text.replace("MODE", f"{FAKES}/{name}.mode", 2)
                        .replace("FAKES", str(FAKES)))
        path.chmod(0o755)
        set_mode(name, "normal")


def set_mode(name, mode):
    (FAKES / f"{name}.mode").write_text(mode)
    (FAKES / f"{name}.calls").write_text("")


def calls(name):
    """(argv, environment) of each call since the last set_mode()."""
    return [json.loads(line) for line in (FAKES / f"{name}.calls").read_text().splitlines()]


def failed(r, code, *words):
    status, body = r
    assert (status, body["code"]) == (502, code) and set(body) == {"error", "code"}, r
    for w in words:
        assert w in body["error"], r
    return body["error"]


# ---- tunnels ----


def test_tunnel(gw_ns):
    # given cloudflared in the image; when a tunnel is asked for; then its public address is told, the
    # same one each time, and it runs as a process of init's until it is deleted
    set_mode("cloudflared", "normal")
    r = gw_ns.http.ok("POST", "tunnel/8080")
    assert set(r) == {"id", "port", "url", "hostname", "createdAt"} and r["port"] == 8080
    assert re.fullmatch(r"calm-words-\d+\.trycloudflare\.com", r["hostname"])
    assert r["url"] == "https://" + r["hostname"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", r["createdAt"])
    assert [a for a, _ in calls("cloudflared")] == [
        ["tunnel", "--url", "http://127.0.0.1:8080", "--no-autoupdate"]]
    again = gw_ns.http.ok("POST", "tunnel/8080", {"name": "mine"})
    assert (again["id"], again["url"], again["name"]) == (r["id"], r["url"], "mine")
    assert gw_ns.http.ok("GET", f"process/{r['id']}")["state"] == "running"
    other = gw_ns.http.ok("POST", "tunnel/8081")
    assert other["url"] != r["url"]
    for _ in range(2):  # that there is none is no error
        assert gw_ns.http.json("DELETE", "tunnel/8080") == (204, None)
    assert gw_ns.http.ok("GET", f"process/{r['id']}")["state"] == "exited"
    assert gw_ns.http.ok("GET", f"process/{other['id']}")["state"] == "running"
    # a new one is another one
    new = gw_ns.http.ok("POST", "tunnel/8080")
    assert new["url"] != r["url"] and new["id"] != r["id"]
    for port in (8080, 8081):
        assert gw_ns.http.json("DELETE", f"tunnel/{port}") == (204, None)
    assert not [p for p in gw_ns.processes() if p.comm == "cloudflared"]


def test_tunnels_at_once(gw_ns):
    # given several who ask at the same time; then they get one tunnel
    set_mode("cloudflared", "normal")
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(gw_ns.http.ok("POST", "tunnel/8090")["url"]))
               for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(answers) == 6 and len(set(answers)) == 1 and len(calls("cloudflared")) == 1
    gw_ns.http.json("DELETE", "tunnel/8090")


def test_tunnel_that_fails(gw_ns):
    set_mode("cloudflared", "fail")
    text = failed(gw_ns.http.json("POST", "tunnel/8080"), "tunnel_error", "no such host")
    assert text.startswith("tunnel failed: ")
    assert gw_ns.http.json("DELETE", "tunnel/8080") == (204, None)


def test_tunnel_client_leaves(gw_ns):
    # given a client that leaves before there is an address; then the tunnel comes about, once
    set_mode("cloudflared", "normal")
    with gw_ns.http.open() as c:
        c.request("POST", f"{gw_ns.http.root}/tunnel/8070", gw_ns.http.auth())
        wait_until(lambda: calls("cloudflared"), 10, "it runs")
    gw_ns.http.ok("POST", "tunnel/8070")
    assert len(calls("cloudflared")) == 1
    gw_ns.http.json("DELETE", "tunnel/8070")


@pytest.mark.long
def test_tunnel_without_an_address(gw_ns):
    set_mode("cloudflared", "silent")
    failed(gw_ns.http.json("POST", "tunnel/8060", deadline=60), "tunnel_error", "in time")
    assert not [p for p in gw_ns.processes() if "sleep 1000" in p.command]


@pytest.mark.parametrize("kind", GATEWAY_KINDS)
def test_programs_that_are_missing(kind):
    # given an image without them; then the answer names what is missing
    with GatewayBox(kind, ini={"sessions": {"env.PATH": "/nowhere"}}) as box:
        failed(box.http.json("POST", "tunnel/8080"), "tunnel_error", "tunnel failed: ", "cloudflared", "PATH")
        failed(box.http.json("POST", "mount", mount("/tmp/m")), "mount_error", "mount failed: ", "s3fs", "PATH")
        failed(box.http.json("POST", "unmount", {"mountPath": "/tmp/m"}), "unmount_error",
               "unmount failed: No active mount found at path: /tmp/m")


# ---- mounts ----


def mount(path, **options):
    return {"bucket": "bucket", "mountPath": str(path),
            "options": {"endpoint": "https://s3.example", **options}}


def is_mounted(gw, path):
    """In the box's namespace, where init is."""
    with open(f"/proc/{gw.init_pid}/mountinfo") as f:
        return any(line.split()[4] == str(path) for line in f)


def test_mount(gw_ns):
    # given s3fs in the image; when a bucket is mounted; then it is there when the answer comes, and
    # its credentials are in no argv
    set_mode("s3fs", "normal")
    path = gw_ns.work / "a dir" / "m"
    body = mount(f"{path.parent}/../a dir/./m/", readOnly=True, prefix="sub", s3fsOptions=["dbglevel=err"],
                 provider="r2", credentials={"accessKeyId": "KEYID", "secretAccessKey": "SECRET"})
    assert gw_ns.http.ok("POST", "mount", body) == {"ok": True}
    assert is_mounted(gw_ns, str(path).replace(" ", "\\040"))
    assert gw_ns.exec(f"cat '{path}/file'").out == b"content"
    (argv, env), = calls("s3fs")
    assert argv[:3] == ["bucket:/sub", str(path), "-f"]
    assert argv[3::2] == ["-o"] * 4 and argv[4::2] == [
        "url=https://s3.example", "use_path_request_style", "ro", "dbglevel=err"]
    assert (env["AWSACCESSKEYID"], env["AWSSECRETACCESSKEY"]) == ("KEYID", "SECRET")
    for p in gw_ns.processes():
        assert "SECRET" not in p.command
    assert "SECRET" not in gw_ns.log()
    # a second one there is refused, under any spelling
    failed(gw_ns.http.json("POST", "mount", mount(str(path) + "/")), "mount_error", "already in use")
    # when it is unmounted, then it is gone, the folder too, and another one is possible
    assert gw_ns.http.ok("POST", "unmount", {"mountPath": f"{path}/../m"}) == {"ok": True}
    assert not is_mounted(gw_ns, str(path).replace(" ", "\\040")) and not path.exists()
    assert not [p for p in gw_ns.processes() if "s3fs" in p.command]
    failed(gw_ns.http.json("POST", "unmount", {"mountPath": str(path)}), "unmount_error",
           f"unmount failed: No active mount found at path: {path}")
    assert gw_ns.http.ok("POST", "mount", mount(path, prefix="/p")) == {"ok": True}
    argv, env = calls("s3fs")[-1]
    assert argv[0] == "bucket:/p" and argv[-1] == "public_bucket=1" and "AWSACCESSKEYID" not in env
    assert gw_ns.http.ok("POST", "unmount", {"mountPath": str(path)}) == {"ok": True}


def test_mount_that_fails(gw_ns):
    set_mode("s3fs", "fail")
    failed(gw_ns.http.json("POST", "mount", mount(gw_ns.work / "f")), "mount_error",
           "mount failed: s3fs: unable to access")
    os.symlink("/nonexistent/x", gw_ns.work / "link")
    failed(gw_ns.http.json("POST", "mount", mount(gw_ns.work / "link")), "mount_error", "mount failed: ", "link")


def test_mounts_that_cannot_be(gw):
    set_mode("s3fs", "normal")
    failed(gw.http.json("POST", "mount", {"mountPath": "/m", "binding": "B", "options": {}}), "mount_error",
           "R2 bindings")
    failed(gw.http.json("POST", "mount", mount("/x/..")), "mount_error", "root")
    failed(gw.http.json("POST", "mount", mount("/proc")), "mount_error", "already in use")
    failed(gw.http.json("POST", "unmount", {"mountPath": "/proc"}), "unmount_error", "No active mount")
    assert calls("s3fs") == []


def test_s3fs_that_was_killed(gw_ns):
    # given s3fs that was killed; when the mount is deleted, or the sandbox; then what it left is
    # unmounted, and the bucket is as it was
    set_mode("s3fs", "normal")
    for path in ("/workspace/killed", str(gw_ns.work / "killed")):
        for how in ("unmount", "delete"):
            assert gw_ns.http.ok("POST", "mount", mount(path)) == {"ok": True}
            id, = [p["id"] for p in gw_ns.http.ok("GET", "process")["processes"]
                   if p["id"].startswith("mount-") and p["state"] == "running"]
            gw_ns.http.ok("POST", f"process/{id}/kill", {"signal": "KILL"})
            assert is_mounted(gw_ns, path)
            failed(gw_ns.http.json("POST", "mount", mount(path)), "mount_error", "already in use")
            if how == "unmount":
                assert gw_ns.http.ok("POST", "unmount", {"mountPath": path}) == {"ok": True}
            else:
                assert gw_ns.http.json("DELETE", gw_ns.http.root) == (204, None)
            assert not is_mounted(gw_ns, path) and not (gw_ns.workspace / "killed").exists()
            assert (FAKES / "bucket" / "file").read_text() == "content"


@pytest.mark.parametrize("kind", ["ns-root"])
def test_the_gateway_ends_while_a_deletion_unmounts(kind):
    # given a deletion that waits for the unmounting of what a killed s3fs left, and whose client has
    # left; when the gateway ends; then it does so by itself
    set_mode("s3fs", "normal")
    fake, began, path = FAKES / "bin" / "fusermount", FAKES / "began", "/workspace/killed"
    fake.write_text(f"#!/bin/sh\n: >{began}\nexec sleep 1000\n")
    fake.chmod(0o755)
    try:
        with GatewayBox(kind, ini=INI) as gw:
            assert gw.http.ok("POST", "mount", mount(path)) == {"ok": True}
            id, = [p["id"] for p in gw.http.ok("GET", "process")["processes"]
                   if p["id"].startswith("mount-") and p["state"] == "running"]
            gw.http.ok("POST", f"process/{id}/kill", {"signal": "KILL"})
            with gw.http.open() as c:
                c.request("DELETE", gw.http.root, gw.http.auth())
                wait_until(began.exists, 20, "it unmounts")
            pid = gw.gateway_pid
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: gw.gateway_pid not in (None, pid), 30, "another gateway")
            assert "killed by SIG" not in gw.log() and not sanitizer_report(gw.log())
    finally:
        fake.unlink()


@pytest.mark.long
def test_unmount_of_one_that_does_not_end(gw_ns):
    # given s3fs that does not end at SIGTERM; then it is killed, and what it leaves is unmounted
    set_mode("s3fs", "stubborn")
    path = gw_ns.work / "stubborn"
    assert gw_ns.http.ok("POST", "mount", mount(path)) == {"ok": True}
    assert gw_ns.http.ok("POST", "unmount", {"mountPath": str(path)}, deadline=60) == {"ok": True}
    assert not is_mounted(gw_ns, path) and not path.exists()


def test_they_end_with_the_sandbox(gw_ns):
    # given a tunnel, and a bucket mounted in the workspace; when the sandbox is deleted; then both are
    # ended, the workspace is empty, and nothing in the bucket has gone with it
    for name in ("cloudflared", "s3fs"):
        set_mode(name, "normal")
    gw_ns.http.ok("POST", "tunnel/8080")
    assert gw_ns.http.ok("POST", "mount", mount("/workspace/data")) == {"ok": True}
    assert is_mounted(gw_ns, "/workspace/data") and os.path.isdir(gw_ns.workspace / "data")
    assert gw_ns.http.json("DELETE", gw_ns.http.root) == (204, None)
    assert not [p for p in gw_ns.processes() if p.comm in ("cloudflared", "s3fs", "sleep")]
    assert not is_mounted(gw_ns, "/workspace/data") and os.listdir(gw_ns.workspace) == []
    assert (FAKES / "bucket" / "file").read_text() == "content"
    assert gw_ns.http.ok("POST", "mount", mount("/workspace/data")) == {"ok": True}
    assert gw_ns.http.ok("POST", "unmount", {"mountPath": "/workspace/data"}) == {"ok": True}
    gw_ns.http.ok("POST", "tunnel/8080")
    gw_ns.http.json("DELETE", "tunnel/8080")
