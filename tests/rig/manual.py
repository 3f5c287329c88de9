"""The documents as tests read them, and the tables of keys in the sources that they are compared with."""

import re

from .box import ROOT


def section(text, title):
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)


def table(text):
    """Rows of the tables in text, without heads."""
    rows = [[c.strip() for c in l.strip("|").split("|")] for l in text.splitlines()
            if l.startswith("|")]
    return [r for i, r in enumerate(rows)
            if set(r[0]) != {"-"} and not (i + 1 < len(rows) and set(rows[i + 1][0]) == {"-"})]


def keys_of_schema():
    found = {"init": {}, "sessions": {}, "service": {}, "include": {}, "gateway": {}}
    places = {"SECTION_INIT": "init", "SECTION_INCLUDE": "include", "SECTION_GATEWAY": "gateway",
              "LIVE": "service", "START": "service", "LOAD": "service"}
    text = "".join((ROOT / f"config/{n}.c").read_text() for n in ("schema", "service_schema"))
    rows = re.findall(r'^    \{"([\w.]+)",\s+(\w+),.*?(NULL|"[^"]*"),\s+\w+\},$', text, re.M)
    for key, where, default in rows:
        found[places.get(where, "sessions")][key] = None if default == "NULL" else default.strip('"')
    return found
