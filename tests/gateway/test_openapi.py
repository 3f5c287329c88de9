"""gateway/openapi.json says what the routes are; rig/http.py holds each answer of all tests against
it (rig/contract.py)."""

import json
import re

import pytest
from jsonschema import Draft202012Validator

from rig import contract
from rig.box import ROOT
from rig.http import TOKEN, Event, Response

METHOD = set(contract.METHODS)


def routes_of_source():
    """(method, pattern) of each line of the tables of routes."""
    found = []
    for f in sorted((ROOT / "gateway").glob("*.c")):
        for table in re.findall(r"const struct route routes_\w+\[\] = \{(.*?)\n?\};", f.read_text(), re.S):
            found += re.findall(r'\{\s*(?:\.method = )?"([A-Z*]+)",\s*(?:\.pattern = )?"(/[^"]*)"', table)
    assert len(found) > 45, found
    return found


def test_document_has_the_routes_of_the_program_and_no_other():
    # given the tables of routes
    # when their patterns are written as the document writes paths
    # then both have the same
    wanted = set()
    for method, pattern in routes_of_source():
        path = re.sub(r":(\w+)", r"{\1}", pattern).replace("*", "{path}")
        wanted |= {(m, path) for m in (METHOD if method == "*" else {method.lower()})}
    told = {(m, path) for path, item in contract.document()["paths"].items() for m in item if m in METHOD}
    assert told == wanted


def test_document_is_sound():
    # given the document: references lead somewhere, ids are there once, the parameters of a path
    # are described, schemas are schemas
    d = contract.document()
    assert d["openapi"] == "3.1.0" and d["info"]["title"] and d["info"]["version"]
    components = d["components"]
    refs = set(re.findall(r'"\$ref": "#/components/(\w+)/(\w+)"', contract.DOCUMENT.read_text()))
    assert all(name in components[kind] for kind, name in refs)
    unused = {(k, n) for k in ("schemas", "parameters", "responses") for n in components[k]} - refs
    assert not unused
    ids = []
    for path, item in d["paths"].items():
        for op in (o for m, o in item.items() if m in METHOD):
            ids.append(op["operationId"])
            given = [follow(d, p) for p in op.get("parameters", []) + item.get("parameters", [])]
            assert {p["name"] for p in given if p["in"] == "path"} == set(re.findall(r"\{(\w+)\}", path)), path
            assert op["summary"] and op["tags"][0] in {t["name"] for t in d["tags"]}, path
            assert op["responses"] and all(follow(d, r)["description"] for r in op["responses"].values()), path
    assert len(ids) == len(set(ids))
    for schema in components["schemas"].values():
        Draft202012Validator.check_schema(schema)


def follow(d, value):
    while "$ref" in value:
        _, _, kind, name = value["$ref"].split("/")
        value = d["components"][kind][name]
    return value


def test_document_is_served_as_it_is(gw):
    r = gw.http.request("GET", "/v1/openapi.json")
    assert r.header("content-type") == "application/json"
    assert r.body == contract.DOCUMENT.read_bytes()


@pytest.mark.parametrize("path", ["/v1/openapi.html", "/v1/openapi"])
def test_page_lists_each_operation_and_loads_nothing(gw, path):
    # given the page for people, opened with the token in its address
    r = gw.http.request("GET", f"{path}?token={TOKEN.replace('+', '%2B')}", auth=False)
    # then each operation stands in it, nothing comes from elsewhere, no script runs, and its
    # address is told to nobody
    for route, item in contract.document()["paths"].items():
        for method in METHOD & set(item):
            assert f"<b>{method.upper()}</b> {route}</code>" in r.text, (method, route)
    assert "<script" not in r.text and "src=" not in r.text and "@import" not in r.text
    assert all(at.startswith(("#", "data:")) for at in re.findall(r'href="([^"]*)"', r.text))
    anchors = set(re.findall(r'href="#([^"]+)"', r.text))
    assert anchors and anchors <= set(re.findall(r'id="([^"]+)"', r.text))
    assert r.header("content-security-policy").startswith("default-src 'none'")
    assert r.header("referrer-policy") == "no-referrer"


# ---- the check itself ----


def answer(status, body, kind="application/json", **headers):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    pairs = [("content-type", kind)] if kind else []
    return Response(status, headers=[*pairs, *headers.items()], body=body, is_whole=True)


ROOM = "/v1/sandbox/a"
FITS = [
    ("POST", "/v1/sandbox", answer(200, {"id": "a"})),
    ("GET", f"{ROOM}/list/workspace/a/b?limit=1", answer(200, {"ok": True, "path": "/workspace", "entries": []})),
    ("GET", f"{ROOM}/running", answer(401, {"error": "Unauthorized", "code": "unauthorized"})),
    ("GET", "/nowhere", answer(404, b"404 Not Found", "text/plain; charset=UTF-8")),
    ("PATCH", f"{ROOM}/port/8080/any/thing", answer(418, b"x", "image/png")),
]
MISFITS = [
    ("one field more", "POST", "/v1/sandbox", answer(200, {"id": "a", "more": 1})),
    ("another type", "GET", f"{ROOM}/running", answer(200, {"running": 1})),
    ("a status that is not listed", "GET", f"{ROOM}/running", answer(409, {"error": "x", "code": "state"})),
    ("another content type", "POST", "/v1/sandbox", answer(200, {"id": "a"}, "text/plain")),
    ("a field of an error more", "GET", f"{ROOM}/exec", answer(502, {"error": "x", "code": "system", "why": 1})),
    ("a code that nobody knows", "GET", f"{ROOM}/exec", answer(502, {"error": "x", "code": "oops"})),
    ("a body with 204", "DELETE", ROOM, answer(204, b"x", None)),
    ("a header is missing", "GET", f"{ROOM}/file/workspace/x", answer(200, b"", "application/octet-stream")),
    ("no such route", "POST", f"{ROOM}/running", answer(200, {"running": True})),
]


@pytest.mark.parametrize("method, target, r", FITS, ids=[f"{m} {t}" for m, t, _ in FITS])
def test_check_takes(method, target, r):
    contract.check(r, method, target)


@pytest.mark.parametrize("method, target, r", [m[1:] for m in MISFITS], ids=[m[0] for m in MISFITS])
def test_check_refuses(method, target, r):
    with pytest.raises(AssertionError):
        contract.check(r, method, target)


def test_check_refuses_events():
    contract.check_event(Event("stdout", "YQ=="), "POST", f"{ROOM}/exec")
    for event in (Event("exit", '{"exit_code":0}'), Event("exit", '{"exit_code":300,"verdict":"exited"}'),
                  Event("progress", "{}"), Event("error", '{"error":"x"}')):
        with pytest.raises(AssertionError):
            contract.check_event(event, "POST", f"{ROOM}/exec")
