"""GET /v1/events: what happens in the sandbox, as server-sent events."""

import pytest

from rig.wait import wait_until


def events(gw, query="", headers=()):
    return gw.http.stream("GET", f"/v1/events{query}", headers=headers)


def last_number(gw):
    with events(gw, "?follow=0") as stream:
        return int(list(stream)[-1].id)


def begin(gw, text="exit 3", **more):
    id = gw.http.ok("POST", "process", {"command": text, **more})["id"]
    return id, gw.http.ok("GET", f"process/{id}/wait")


def test_events_live(gw):
    # given one who listens; when a process runs; then he hears of it: named by kind, numbered, in order
    with events(gw, f"?since={last_number(gw)}") as stream:
        id, outcome = begin(gw)
        found = stream.until("process") + stream.until("process")
    data = [e.json for e in found if e.json.get("id") == id]
    assert [(e["kind"], e["what"]) for e in data] == [("process", "started"), ("process", "ended")]
    assert data[1]["status"] == 3 and data[1]["verdict"] == outcome["verdict"] == "exited"
    for e in found:
        assert e.id == str(e.json["number"]) and e.name == e.json["kind"]
    assert [int(e.id) for e in found] == list(range(int(found[0].id), int(found[0].id) + len(found)))


def test_events_from_the_beginning(gw):
    # given no number; then all that are kept come first
    with events(gw, "?follow=0") as stream:
        found = list(stream)
    assert (found[0].name, found[0].json["what"], found[0].id) == ("init", "started", "1")


def test_events_resume(gw):
    # given the number of the last event that a client has; then what follows it comes, and no more
    begin(gw)
    with events(gw, "?follow=0") as stream:
        whole = [e.id for e in stream]
    for last in (whole[0], whole[-3], whole[-1]):
        with events(gw, "?follow=0", {"Last-Event-ID": last}) as stream:
            assert [e.id for e in stream] == whole[whole.index(last) + 1:]
    with events(gw, "?follow=0&tail=2") as stream:
        assert [e.id for e in stream] == whole[-2:]


def test_events_chosen(gw):
    # given kinds and a session; then only those come
    s = "chosen"
    gw.http.ok("POST", "process", {"command": ":", "session": s})
    with events(gw, f"?follow=0&session={s}") as stream:
        found = list(stream)
    assert {"session", "process"} <= {e.name for e in found} and all(e.json["session"] == s for e in found)
    with events(gw, f"?follow=0&session={s}&kind=session") as stream:
        assert {e.name for e in stream} == {"session"}
    with events(gw, "?follow=0&kind=process,init") as stream:
        assert {e.name for e in stream} == {"process", "init"}


def test_events_of_another_life(gw):
    # given a number that this init has not come to; then the client has known another one: it gets
    # all there is
    with events(gw, "?follow=0", {"Last-Event-ID": "999999999"}) as stream:
        assert next(iter(stream)).id == "1"


@pytest.mark.parametrize("query, words", [
    ("?kind=nonesuch", "nonesuch"), ("?since=x", "since"), ("?since=-1", "since"), ("?tail=x", "tail"),
    ("?kind=%zz", "decoded"), ("?session=" + "x" * 100, "too long"),
])
def test_events_refused(gw, query, words):
    status, r = gw.http.json("GET", f"/v1/events{query}")
    assert status == 400 and r["code"] == "invalid_request" and words in r["error"], r


def test_events_need_the_token(gw):
    for headers in ({}, {"Authorization": "Bearer x"}):
        r = gw.http.request("GET", "/v1/events", headers=headers, auth=False)
        assert (r.status, r.json["code"]) == (401, "unauthorized")


def test_events_answer_at_once(gw):
    # given nothing that happens; then a client knows soon that it is heard
    with gw.http.open() as c:
        c.request("GET", f"/v1/events?since={last_number(gw)}", gw.http.auth())
        assert c.begin(deadline=10).status == 200


def test_events_client_that_does_not_read(gw):
    # given one who listens and does not read; then nobody is held up, and he hears of all in the end
    with gw.http.open() as c:
        c.request("GET", "/v1/events?kind=process", gw.http.auth())
        for _ in range(20):
            begin(gw, ":")
        id, _ = begin(gw, ":")
        got = b""
        r = c.begin()
        for piece in c.pieces(r):
            got += piece
            if f'"id":"{id}","verdict"'.encode() in got:
                break
    assert got.count(b"event: process") >= 42


def test_one_leaves(gw):
    # given two who listen; when one leaves; then init knows, and the other goes on
    def connections():
        return int(gw.call("status")["connections"])

    wait_until(lambda: connections() <= 1, 20, "those of before have left")
    before = connections()
    stays, leaves = events(gw), events(gw)
    stays.next(), leaves.next()
    wait_until(lambda: connections() == before + 2, 10, "two who listen")
    leaves.close()
    wait_until(lambda: connections() == before + 1, 10, "one who listens")
    id, _ = begin(gw)
    while not (e := stays.next()).json.get("id") == id:
        pass
    stays.close()


def test_head_of_what_has_no_end(gw):
    # given a question for the head alone of a stream that goes on; then the next one of that connection is answered
    id = gw.http.ok("POST", "process", {"argv": ["sleep", "100"]})["id"]
    running = gw.http.exec_stream("sleep 100")
    exec_id = running.next().json["exec_id"]
    before = int(gw.call("status")["connections"])
    for target in ("/v1/events", f"{gw.http.root}/process/{id}/logs?follow=1", f"{gw.http.root}/exec/{exec_id}",
                   f"{gw.http.root}/watch/workspace"):
        with gw.http.open() as c:
            c.request("HEAD", target, gw.http.auth())
            r = c.response("HEAD")
            assert (r.status, r.header("content-type")) == (200, "text/event-stream"), target
            c.request("GET", "/health")
            assert c.response(deadline=10).json == {"ok": True}, target
            wait_until(lambda: int(gw.call("status")["connections"]) <= before, 10, "init is asked no more")
    running.close()
