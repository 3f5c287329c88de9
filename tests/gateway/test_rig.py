"""The rig of the gateway's tests itself, and the thinnest path through the gateway."""

from rig.http import TOKEN


def test_health(gw):
    # given a gateway; when its health is asked for without a token; then it is well
    r = gw.http.request("GET", "/health", auth=False)
    assert (r.status, r.json) == (200, {"ok": True})
    assert r.header("content-type") == "application/json"


def test_keep_alive(gw):
    # given one connection; when it asks several times; then each answer comes on it
    with gw.http.open() as c:
        for _ in range(3):
            c.request("GET", "/health")
            assert c.response().json == {"ok": True}


def test_tcp(gw_ns):
    # given a gateway that listens on a TCP port, too; then it answers there
    from rig.http import Client

    assert Client(("127.0.0.1", gw_ns.port)).ok("GET", "/health") == {"ok": True}


def test_token_is_not_in_sight(gw):
    # given a gateway with a token; then no process shows it in its argv or environment
    for p in gw.processes():
        for what in ("cmdline", "environ"):
            with open(f"/proc/{p.pid}/{what}", "rb") as f:
                assert TOKEN.encode() not in f.read(), p.command
    assert TOKEN not in gw.log()
