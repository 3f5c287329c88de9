"""Keys of [gateway] that no other file sets, from the ini to the answer."""

import pytest

from rig.box import status_fields
from rig.files import error_of
from rig.http import GatewayBox
from rig.places import SHARED_INI

ORIGIN = "https://page.example"
GATEWAY = {"workspace": "/workspace/in ner", "max_body": "2K", "cors_origin": ORIGIN}


def test_workspace(gw):
    # given another folder as the workspace; then it is made, commands begin there, and files are held to it
    http = gw.http
    assert http.request("PUT", http.root + "/file/workspace/in%20ner/a", b"x").status == 200
    assert (gw.workspace / "in ner/a").read_bytes() == b"x"
    assert http.exec(["pwd"]).out == b"/workspace/in ner\n"
    assert http.exec(["pwd"], session="s").out == b"/workspace/in ner\n"
    status, text, _ = error_of(http.request("GET", http.root + "/file/workspace/a"))
    assert (status, text) == (403, "path must resolve to a location within /workspace/in ner")
    for route in ("exec", "process"):
        status, text, _ = error_of(http.request("POST", route, {"argv": ["pwd"], "cwd": "/workspace"}))
        assert (status, text) == (403, "cwd must resolve to a location within /workspace/in ner")


def test_max_body(gw):
    # given a limit; then a byte more is too much, by each route
    put = f"{gw.http.root}/file/workspace/in%20ner/b"
    assert gw.http.request("PUT", put, b"x" * 2048).status == 200
    for body in (b"x" * 2049, iter([b"x" * 2000, b"x" * 49])):
        status, text, code = error_of(gw.http.request("PUT", put, body))
        assert (status, code) == (413, "payload_too_large") and "2048-byte limit" in text
    assert error_of(gw.http.request("POST", "exec", {"argv": ["true", "x" * 2048]}))[0] == 413
    status, text, _ = error_of(gw.http.request("POST", "hydrate", b"x" * 2049))
    assert (status, text) == (400, "tar payload too large: 2049 bytes exceeds the 2048-byte limit")


@pytest.mark.parametrize("target,status", [("/health", 200), ("running", 200), ("no-such-route", 404),
                                           ("/v1/sandbox/NO/running", 400)])
def test_cors_origin(gw, target, status):
    # given the origin of a page; then every answer says that it may read it, and it may ask without a token
    r = gw.http.request("GET", target)
    assert r.status == status and r.header("access-control-allow-origin") == ORIGIN
    r = gw.http.request("OPTIONS", target, auth=False, headers=[
        ("Origin", ORIGIN), ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "authorization")])
    assert r.status == 204 and r.header("access-control-allow-origin") == ORIGIN
    assert r.header("access-control-allow-headers") == "authorization"


def test_cors_origin_saves_nobody_the_token(gw):
    r = gw.http.request("GET", "running", auth=False, headers=[("Origin", ORIGIN)])
    assert r.status == 401 and r.header("access-control-allow-origin") == ORIGIN


def test_user():
    # given a user for the gateway; then it is that one, with no rights, and serves as ever
    with GatewayBox("ns-root", gateway={"user": "61005:61006"}, ini=SHARED_INI) as box:
        fields = status_fields(box.gateway_pid)
        assert (fields["Uid"].split(), fields["Gid"].split()) == (["61005"] * 4, ["61006"] * 4)
        assert [int(fields[c], 16) for c in ("CapPrm", "CapEff", "CapAmb")] == [0] * 3
        assert box.http.exec(["id", "-u"]).out == b"0\n"
        assert box.http.put("f", b"x").json == {"ok": True}
