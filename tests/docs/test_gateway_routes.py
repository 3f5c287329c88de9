"""docs/gateway.md tells of every route that there is, and of no other."""

import re

import pytest

from rig.box import ROOT

GUIDE = (ROOT / "docs/gateway.md").read_text()
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


def path_form(path):
    """One form for a path, whatever its parts are called: …/file/PATH and /v1/sandbox/:id/file/*."""
    path = path.split("?")[0].replace("/v1/sandbox/ID", "/v1/sandbox/:id").replace("…", "/v1/sandbox/:id")
    return re.sub(r"/(:\w+|\*|[A-Z]+)(?=/|$)", "/_", path)


def routes_of_the_program():
    found = set()
    for source in (ROOT / "gateway").glob("*.c"):
        for method, path in re.findall(r'"(\*|[A-Z]+)",\s*(?:\.pattern = )?"(/[^"]*)"', source.read_text()):
            found.add((method, path_form(path)))
    assert len(found) > 40, found
    return found


def routes_of_the_guide():
    """`METHOD PATH` wherever it stands between backticks; "any method, `PATH`" is `*`."""
    found = set()
    for methods, path in re.findall(rf"`((?:{'|'.join(METHODS)})) ([/…][^\s`]*)`", GUIDE):
        found.add((methods, path_form(path)))
    for path in re.findall(r"any method, `([/…][^\s`]*)`", GUIDE):
        found.add(("*", path_form(path)))
    return found


def test_every_route_is_in_the_guide_and_no_other():
    # what the page consists of is its own matter
    there = {r for r in routes_of_the_program() if not r[1].startswith("/page/")}
    told = routes_of_the_guide()
    assert not there - told, "not in docs/gateway.md"
    assert not told - there, "no such route"


@pytest.mark.parametrize("guide", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_every_section_stands_apart(guide):
    # given a text that many hands join; then each heading has an empty line on both sides, and stands once
    lines = re.sub(r"^```.*?^```", "", guide.read_text(), flags=re.M | re.S).splitlines()
    headings = [i for i, l in enumerate(lines) if re.match(r"#+ ", l)]
    assert all(lines[i + 1] == "" and (i == 0 or lines[i - 1] == "") for i in headings)
    assert len({lines[i] for i in headings}) == len(headings)


def test_the_addresses_of_the_page_are_relative():
    """It works behind a proxy with a path."""
    for file in (ROOT / "gateway/page").glob("*.*"):
        text = file.read_text()
        assert not re.findall(r"""(?:href|src|action)=["']?/|["'`]/(?:v1|page|health)|url\(["']?/""", text), file.name
    assert 'new URL(".", location.href)' in (ROOT / "gateway/page/page.js").read_text()
