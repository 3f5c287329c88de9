"""The real npm client and npm's `ws` against the gateway: one test here for each of theirs."""

import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rig.box import ROOT
from rig.http import TOKEN
from rig.wait import Late

HERE = ROOT / "tests/conformance"
INSTALLED = ROOT / "build/conformance"
PROGRAMS = ("registry.mjs", "driver.mjs", "client.mjs", "frames.mjs")


def names(program):
    """Names of the tests of a program: test('…', and those that a table makes."""
    text = (HERE / program).read_text()
    found = re.findall(r"^test\('((?:[^'\\]|\\.)*)'", text, re.M)
    if program == "frames.mjs":
        found += [f"frames: the upgrade is refused for {what}"
                  for what in re.findall(r"^  \['([^']+)', '", text, re.M)]
    assert found, program
    return found


class Driver:
    """The Node program: a name in, an answer out."""

    def __init__(self, box):
        node = subprocess.run([HERE / "install.sh"], check=True, capture_output=True, text=True).stdout.strip()
        # Node finds packages from where a program lies. A copy of one's own: two workers come at once.
        self.folder = INSTALLED / f"run-{os.getpid()}-{box.kind}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for p in PROGRAMS:
            shutil.copy2(HERE / p, self.folder / p)
        # A container has a network of its own; the files are the machine's in any case.
        enter = ["nsenter", "-t", str(box.init_pid), "-n", "--"] if box.is_runc else []
        self.errors = open(self.folder / "stderr", "w+b")
        self.program = subprocess.Popen(
            [*enter, node, self.folder / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, cwd=self.folder,
            env={"PATH": os.environ["PATH"], "KIND": box.kind, "API_KEY": TOKEN,
                 "WORKER_URL": f"http://127.0.0.1:{box.port}"})

    def run(self, name, deadline=90):
        self.program.stdin.write(name.encode() + b"\n")
        self.program.stdin.flush()
        line, end = b"", time.monotonic() + deadline
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.program.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise Late(f"{name} within {deadline} s; {self.said()}")
            more = os.read(self.program.stdout.fileno(), 65536)
            assert more, f"the Node program ended: {self.said()}"
            line += more
        return json.loads(line)

    def said(self):
        return Path(self.errors.name).read_text(errors="replace")[-3000:]

    def close(self):
        self.program.kill()
        self.program.wait()
        self.program.stdin.close()
        self.program.stdout.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def drivers():
    made = {}
    yield made
    for d in made.values():
        d.close()


def passes(gw, drivers, name):
    if gw not in drivers:
        drivers[gw] = Driver(gw)
    answer = drivers[gw].run(name)
    assert answer["name"] == name and answer["ok"], answer.get("error")


@pytest.mark.parametrize("name", names("client.mjs"))
def test_client(gw_each, drivers, name):
    passes(gw_each, drivers, name)


@pytest.mark.parametrize("name", names("frames.mjs"))
def test_ws(gw_each, drivers, name):
    passes(gw_each, drivers, name)
