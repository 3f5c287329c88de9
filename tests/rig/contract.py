"""Answers of a gateway against its own description, gateway/openapi.json.

rig/http.py asks about every answer that a test receives: its status must be one that the document
lists for the route (or for all of them, `x-everywhere`), with the content type, the headers and a
body of the schema that stand there; events of a stream are looked at in the same way (`x-events`).
"""

import base64
import functools
import json
import re

from jsonschema import Draft202012Validator, RefResolver

from .box import ROOT

DOCUMENT = ROOT / "gateway/openapi.json"
ITEMS_MAX = 100  # of a list: the others are alike
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


def document():
    return _contract().document


def check(r, method=None, target=None):
    """An answer, whole. Without a method (bytes that no client of ours made up): it may be any
    answer, but an error has its form."""
    _contract().check(r, method, target)


def check_event(event, method, target):
    """One event of an answer with status 200."""
    _contract().check_event(event, method, target)


@functools.lru_cache(1)
def _contract():
    return Contract(json.loads(DOCUMENT.read_text()))


class Contract:
    def __init__(self, document):
        self.document = document
        self.resolver = RefResolver("", document)
        self.validators = {}
        paths = sorted(document["paths"], key=lambda p: (p.count("{"), -len(p)))
        self.paths = [(re.compile(self._pattern(p), re.S), document["paths"][p]) for p in paths]

    @staticmethod
    def _pattern(path):
        """`path` takes the rest, slashes and all, or nothing; other parameters one segment."""
        parts = [re.escape(s) if not s.startswith("{") else "[^/]+" for s in path.split("/")]
        if path.endswith("/{path}"):
            return "/".join(parts[:-1]) + "(?:/.*)?$"
        return "/".join(parts) + "$"

    def follow(self, value):
        while "$ref" in value:
            value = self.resolver.resolve(value["$ref"])[1]
        return value

    def operation(self, method, target):
        path = target.partition("?")[0]
        method = "get" if method == "HEAD" else method.lower()
        for pattern, item in self.paths:
            known = method if method in METHODS else "get" if item.get("x-any-method") else None
            if known in item and pattern.match(path):
                return item[known]
        return None

    def wrong(self, schema, value):
        """What is wrong with the value, or None."""
        if id(schema) not in self.validators:
            self.validators[id(schema)] = Draft202012Validator(schema, resolver=self.resolver)
        for e in self.validators[id(schema)].iter_errors(value):
            return f"{'/'.join(map(str, e.absolute_path)) or 'it'}: {e.message[:300]}"
        return None

    # -- answers --

    def check(self, r, method, target):
        if method is None:
            if r.status >= 400 and (r.header("content-type") or "") == "application/json" and r.body:
                found = self.wrong(self.document["components"]["schemas"]["Error"], r.json)
                assert not found, f"{r.status}: {found}: {r.body[:300]!r}"
            return
        op = self.operation(method, target)
        own = op["responses"] if op else {}
        status = str(r.status)
        listed = [own[k] for k in (status, "default") if k in own][:1]
        listed += self.document["x-everywhere"].get(status, [])
        why = [self._mismatch(self.follow(one), r, method, target) for one in listed]
        assert any(w is None for w in why), \
            f"{method} {target[:200]}: {status} is not what gateway/openapi.json says: " \
            f"{'; '.join(why) or 'this status is not listed'}; {r.headers} {r.body[:300]!r}"

    def _mismatch(self, response, r, method, target):
        for name, header in response.get("headers", {}).items():
            value = r.header(name)
            if value is None and header.get("required"):
                return f"no header {name}"
            if value is not None and self.wrong(header["schema"], value):
                return f"{name}: {self.wrong(header['schema'], value)}"
        content = response.get("content")
        if content is None:
            return f"a body: {r.body[:100]!r}" if r.body else None
        kind = (r.header("content-type") or "").split(";")[0].strip().lower()
        if "*/*" in content:
            return None
        if kind not in content:
            return f"content type {kind!r}, not {list(content)}"
        if not r.has_body or not r.is_whole:
            return None
        return self._wrong_body(content[kind].get("schema", {}), kind, r, method, target)

    def _wrong_body(self, schema, kind, r, method, target):
        if kind == "application/json":
            return self.wrong(schema, shortened(json.loads(r.body)))
        if kind == "text/event-stream":
            return None  # rig/http.py shows each event
        return self.wrong(schema, r.body.decode()) if schema else None

    # -- events --

    def check_event(self, event, method, target):
        op = self.operation(method, target)
        responses = op["responses"] if op else {}
        content = self.follow(responses.get("200") or responses["default"])["content"]
        if "*/*" in content:
            return
        events = content["text/event-stream"]["x-events"]
        schema = events.get(event.name, events.get("*"))
        assert schema is not None, f"{method} {target}: no event {event.name} in gateway/openapi.json"
        if schema.get("contentEncoding") == "base64":
            base64.b64decode(event.data, validate=True)
            return
        found = self.wrong(schema, event.json)
        assert not found, f"{method} {target}: event {event.name}: {found}; {event.data[:300]}"


def shortened(value):
    """The value with only the first items of its long lists."""
    if isinstance(value, dict):
        return {k: shortened(v) for k, v in value.items()}
    return [shortened(v) for v in value[:ITEMS_MAX]] if isinstance(value, list) else value
