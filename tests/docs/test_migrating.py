"""docs/migrating.md names only what there is: keys, options, verbs; its example is valid."""

import re
import subprocess

import pytest

from rig.box import ROOT, build_dir

GUIDE = (ROOT / "docs/migrating.md").read_text()
MANUAL = (ROOT / "docs/sandbox.ini.5.md").read_text()


def rows():
    """(theirs, ours, note) of each table, without heads."""
    lines = GUIDE.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("|") and not line.startswith("| ---") and not (
                i + 1 < len(lines) and lines[i + 1].startswith("| ---")):
            yield [c.strip() for c in line.strip("|").split("|")]


def keys_of(title):
    text = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## )", MANUAL, re.M | re.S).group(1)
    return set(re.findall(r"^\| `([\w.]+)` \|", text, re.M))


SERVICE = keys_of("KEYS OF [service:NAME]")
INIT = keys_of("KEYS OF [init]")
INCLUDE = keys_of("KEYS OF [include]")


def is_key(word):
    return (word in SERVICE | INIT | INCLUDE or word == "env.NAME" or
            (word.startswith("limit.") and "limit.NAME" in SERVICE))


def test_every_key_is_one_of_ours():
    seen = set()
    for theirs, ours, _ in rows():
        assert theirs
        for word in re.findall(r"`([^`]+)`", ours):
            seen.add(word)
            if word.startswith("-"):
                assert re.search(rf"^\| `{re.escape(word)}[ `]",
                                 (ROOT / "docs/sandbox-init.8.md").read_text(), re.M), word
            elif word.startswith("sandboxctl "):
                assert re.search(rf"^    {re.escape(word[11:])}\b",
                                 (ROOT / "docs/sandboxctl.1.md").read_text(), re.M), word
            else:
                assert is_key(word), word
    # and the other way round: of the keys of a service, each has somebody who comes for it
    named = {w for row in rows() for w in re.findall(r"`([\w.]+)`", " ".join(row[1:]))}
    assert SERVICE - named - {"env.NAME", "limit.NAME"} == set()
    assert len(seen) > 40


def test_keys_of_init_are_said_to_be():
    for theirs, ours, note in rows():
        for word in re.findall(r"`([\w.]+)`", ours):
            if word in INIT - SERVICE:
                assert "`[init]`" in note, (theirs, ours)


@pytest.mark.parametrize("supervisor", ["supervisord"])
def test_every_option_of_a_program_is_there(supervisor):
    text = (ROOT / "import/keys.c").read_text()
    options = re.search(r"program_keys\[\] = \{(.*?)\};", text, re.S).group(1)
    told = " ".join(r[0] for r in rows())
    for option in re.findall(r'\{"(\w+)"', options):
        if option.startswith("stderr_"):
            option = option.replace("stderr_", "stdout_")
        if option not in ("numprocs_start", "serverurl"):
            assert f"`{option}`" in told, option


def test_the_example_is_valid(tmp_path):
    text = re.search(r"^## An example\n(.*)", GUIDE, re.M | re.S).group(1)
    path = tmp_path / "sandbox.ini"
    path.write_text(re.sub(r"(?m)^    ", "", text))
    r = subprocess.run([build_dir() / "sandbox-init", "--check", "-c", path], capture_output=True,
                       text=True, check=False)
    assert r.returncode == 0, r.stderr
