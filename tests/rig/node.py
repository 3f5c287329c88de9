"""Tests that are written in JavaScript, one of pytest's for each of theirs.

    tests/NAME/package.json, package-lock.json   what they need (tests/npm.sh)
    tests/NAME/*.mjs                             import { test, place } from './registry.mjs'
"""

import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

from .box import ROOT
from .http import TOKEN
from .wait import Late


def names(folder, program):
    """Names of the tests of a program: test('…', at the beginning of a line."""
    found = re.findall(r"^test\('((?:[^'\\]|\\.)*)'", (ROOT / "tests" / folder / program).read_text(), re.M)
    assert found, program
    return found


class Driver:
    """The Node program: a name in, an answer out."""

    def __init__(self, box, name, programs):
        node = subprocess.run([ROOT / "tests/npm.sh", name], check=True, capture_output=True,
                              text=True).stdout.strip()
        # Node finds packages from where a program lies. A copy of one's own: two workers come at once.
        self.folder = ROOT / "build" / name / f"run-{os.getpid()}-{box.kind}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        rig = Path(__file__).with_name("node")
        for p in [*(ROOT / "tests" / name / p for p in programs), *rig.glob("*.mjs")]:
            shutil.copy2(p, self.folder)
        # A container has a network of its own; the files are the machine's in any case.
        enter = ["nsenter", "-t", str(box.init_pid), "-n", "--"] if box.is_runc else []
        self.errors = open(self.folder / "stderr", "w+b")
        self.program = subprocess.Popen(
            [*enter, node, self.folder / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, cwd=self.folder,
            env={"PATH": os.environ["PATH"], "KIND": box.kind, "API_KEY": TOKEN, "PROGRAMS": " ".join(programs),
                 "HOME": str(self.folder), "WORKER_URL": f"http://127.0.0.1:{box.port}"})

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
        """At the end of its stdin it ends, and a browser with it."""
        self.program.stdin.close()
        try:
            self.program.wait(10)
        except subprocess.TimeoutExpired:
            self.program.kill()
            self.program.wait()
        self.program.stdout.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Drivers:
    """One a box, for the tests of a module."""

    def __init__(self, name, programs):
        self.name, self.programs, self.made = name, programs, {}

    def check(self, box, test):
        if box not in self.made:
            self.made[box] = Driver(box, self.name, self.programs)
        answer = self.made[box].run(test)
        assert answer["name"] == test and answer["ok"], answer.get("error")

    def close(self):
        for d in self.made.values():
            d.close()
