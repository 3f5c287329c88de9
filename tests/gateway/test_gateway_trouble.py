"""What keeps a gateway from its work is told: in the log, in its format, once for each reason, in the status and in
the events; and over HTTP with the folder and the reason."""

import json
import os
import socket

import pytest

from rig.box import base
from rig.http import GatewayBox, sanitizer_report
from rig.wait import wait_until


def told(box, reason):
    """The trouble of the status, once it stands there."""
    return wait_until(lambda: reason in box.status().get("gateway_trouble", "") and box.status()["gateway_trouble"],
                      20, lambda: f"{reason}: {box.status()}; {box.log()[-3000:]}")


def start_is_told(box, reason, restarts=3):
    """Tried again and again, the reason is in the status, and once in the log and in the events."""
    trouble = told(box, reason)
    wait_until(lambda: box.status()["gateway_restarts"] >= restarts, 20, lambda: f"{box.status()}")
    assert box.status()["gateway_trouble"] == trouble
    assert box.status()["gateway_listen"], "it is said where it should listen"
    lines = [json.loads(line) for line in box.log().splitlines()]  # each line is JSON
    assert all(line["time"] and line["event"] for line in lines)
    assert [line["event"] for line in lines if reason in json.dumps(line)] == ["gateway_ended"], box.log()
    events = [json.loads(e) for e in box.ctl_ok("events", "--kind", "gateway").out.splitlines()]
    assert {e["why"] for e in events if e["what"] == "ended"} == {trouble}
    return trouble


JSON_LOG = {"init": {"log_format": "json"}}


@pytest.mark.parametrize("content,why", [
    ("", "the file is empty"),
    ("a b", "it must be one line of printable characters"),
    ("one\ntwo", "it must be one line of printable characters"),
    ("x" * 4097, "longer than 4096 bytes"),
], ids=["empty", "a blank", "two lines", "long"])
def test_a_token_file_with_bad_content(content, why):
    # given a token file that holds no token; then file and reason are told; and it is taken when it is mended
    with GatewayBox(token=content, answers=False, ini=JSON_LOG) as box:
        assert start_is_told(box, why) == f"token_file {box.token_file}: {why}"
        box.token_file.write_text("good\n")
        box.await_gateway(20)
        assert box.exec("echo unharmed").out == b"unharmed\n"
        assert not sanitizer_report(box.log())


def test_an_address_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with GatewayBox(gateway={"listen": f"127.0.0.1:{port}"}, answers=False, ini=JSON_LOG) as box:
            assert start_is_told(box, "in use") == f"listen 127.0.0.1:{port}: bind: Address already in use"


def test_an_address_that_cannot_be():
    # given a socket's folder that is missing, then one in which the gateway may not make a file
    for folder, why in (("/nonesuch", "No such file or directory"), ("/root", "Permission denied")):
        with GatewayBox(gateway={"listen": f"unix:{folder}/sock"}, answers=False, ini=JSON_LOG) as box:
            assert start_is_told(box, why) == f"listen unix:{folder}/sock: {why}"


def test_the_gateways_own_lines_are_in_the_logs_format():
    with GatewayBox(ini=JSON_LOG) as box:
        wait_until(lambda: "gateway_listening" in box.log(), 15, lambda: box.log())
        assert all(json.loads(line)["event"] for line in box.log().splitlines())
    with GatewayBox(ini={"init": {"log_level": "error"}}) as box:
        assert box.log() == ""


# ---- a workspace that is not there ----


def error(r):
    assert "json" in r.header("content-type", ""), (r.status, r.headers, r.body)
    return r.status, r.json["code"], r.json["error"]


@pytest.fixture(scope="module", params=["missing", "no folder", "closed"])
def bare(request):
    workspace, why = {"missing": ("/nonesuch/ws", "No such file or directory"),
                      "no folder": ("/etc/passwd", "Not a directory"),
                      "closed": (None, "Permission denied")}[request.param]
    with GatewayBox("ns-user", gateway={"workspace": workspace or "/root"}, ini=JSON_LOG, answers=False) as box:
        box.await_gateway()
        yield box, workspace or "/root", why
        assert not sanitizer_report(box.log())


def test_a_workspace_that_is_not_there(bare):
    box, workspace, why = bare
    text = f"workspace {workspace}: {why}"
    http = box.http
    if why != "Permission denied":  # a gateway of another user might be the only one who may not
        assert told(box, why) == text
    # exec: a stream with the contract's code, and the cause
    r = http.exec("pwd")
    assert (r.error["code"], r.error["detail"]) == ("exec_error", f"cwd {workspace}: {why}")
    assert told(box, why) == text
    # files: the contract's codes
    file = f"file{workspace}/x"
    assert error(http.request("GET", file)) == (502, "exec_transport_error", f"read failed: {text}")
    assert error(http.request("PUT", file, b"x")) == (502, "workspace_archive_write_error", f"write failed: {text}")
    assert error(http.request("POST", "persist")) == (502, "workspace_archive_read_error", f"persist failed: {text}")
    assert error(http.request("POST", "hydrate", bytes(1024))) == (
        502, "workspace_archive_write_error", f"hydrate failed: {text}")
    # sessions: the contract's code
    for r in (http.request("POST", "session", {"id": "s"}),
              http.request("POST", "exec", {"argv": ["pwd"]}, {"Session-Id": "s"})):
        status, code, said = error(r)
        assert (status, code) == (502, "session_error") and f"{workspace}: {why}" in said, said
    # all others: one code
    body = {"from": f"{workspace}/a", "to": f"{workspace}/b"}
    for method, target, sent in (
            ("GET", f"list{workspace}", None), ("GET", f"stat{workspace}/x", None), ("GET", f"watch{workspace}", None),
            ("POST", f"mkdir{workspace}/x", None), ("DELETE", file, None), ("POST", "rename", body)):
        assert error(http.request(method, target, sent)) == (502, "workspace_unavailable", text), target
    for sent in ({"command": "pwd"}, {"argv": ["pwd"]}, {"command": "pwd", "session": "new"}):
        status, code, said = error(http.request("POST", "process", sent))
        assert (status, code) == (502, "workspace_unavailable") and f"{workspace}: {why}" in said, said
    # and the gateway itself is well
    assert http.request("GET", "/health", auth=False).json == {"ok": True}
    assert box.status()["gateway_trouble"] == text
    assert [json.loads(l)["event"] for l in box.log().splitlines() if "workspace " in l and why in l] == ["gateway_trouble"], box.log()
    events = [json.loads(e) for e in box.ctl_ok("events", "--kind", "gateway").out.splitlines()]
    assert [e["why"] for e in events if e["what"] == "trouble"] == [text]


def test_a_workspace_that_comes_late():
    # given a workspace that is made later; then the trouble goes with its first use
    late = base() / "late" / "workspace"
    late.parent.mkdir()
    with GatewayBox("ns-user", gateway={"workspace": str(late)}, ini=JSON_LOG) as box:
        told(box, "No such file")
        os.mkdir(late)
        os.chown(late, box.uid, box.uid)
        assert box.http.exec("pwd").out.decode() == f"{late}\n"
        wait_until(lambda: "gateway_trouble" not in box.status(), 15, lambda: f"{box.status()}")
        assert box.log().count("gateway_trouble") == 1 and "it works again" in box.log()
