#!/usr/bin/python3
"""Runs every test: unit programs, fuzz targets, then pytest in parallel; sums up.

    tests/run.py [--unit] [--fuzz] [--box] [--asan] [pytest arguments …]

Without a choice all parts run. Prints the slowest ten; the last line is
`N passed, N failed, N skipped`; exits 1 if anything failed or nothing ran. SANDBOX_TEST_LONG=1 has
the full repeat counts.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("SANDBOX_BUILD", ROOT / "build")).resolve()
IS_LONG = os.environ.get("SANDBOX_TEST_LONG", "") not in ("", "0")
FUZZ_SECONDS = 30
UNIT_DEADLINE = 300
JOBS = 2
# Most of what boxes do is waiting: for a grace, a delay, a timeout. So more tests than cores.
BOX_JOBS = 4
# Tests marked `storm` need every core for seconds: behind the others, so that what those time is theirs.
STORM_JOBS = 2
# Unit programs fork trees, some without end: in a PID namespace of their own nothing of that
# outlives them. (sh is its PID 1, so that the program has the signal rules of any process.)
CONFINED = ["unshare", "-fp", "--mount-proc", "--kill-child", "sh", "-c", '"$0"; exit "$?"']
if os.geteuid() != 0:
    CONFINED[1:1] = ["--user", "--map-root-user"]


class Sum:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.times = []  # (seconds, name)
        self.failures = []

    def add(self, name, verdict, seconds=0.0):
        setattr(self, verdict, getattr(self, verdict) + 1)
        self.times.append((seconds, name))
        if verdict == "failed":
            self.failures.append(name)


def say(text):
    print(text, flush=True)


def run_program(command, deadline, env=None, cwd=ROOT):
    """(exit status, output, seconds); a program that is late is killed with its group."""
    begun = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd,
                         env={**os.environ, **(env or {})}, start_new_session=True)
    try:
        out, _ = p.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, _ = p.communicate()
        out += f"\nnot done within {deadline} s\n".encode()
    return p.returncode, out.decode("utf-8", "replace"), time.monotonic() - begun


def run_unit(total, folder, label):
    programs = sorted(p for p in folder.glob("test_*") if os.access(p, os.X_OK) and p.is_file())

    def one(p):
        return p, *run_program([*CONFINED, str(p)], UNIT_DEADLINE)

    with ThreadPoolExecutor(JOBS) as ex:
        for p, status, out, seconds in ex.map(one, programs):
            oks = re.findall(r"^ok (\S+)", out, re.M)
            bad = re.findall(r"^not ok (\S+)", out, re.M)
            for name in oks:
                total.add(f"{label}/{p.name}::{name}", "passed", seconds / max(1, len(oks) + len(bad)))
            for name in bad:
                total.add(f"{label}/{p.name}::{name.rstrip(':')}", "failed")
            if (status != 0 and not bad) or not (oks or bad):
                total.add(f"{label}/{p.name} (exit status {status})", "failed")
            if status != 0 or bad:
                say(f"--- {label}/{p.name}: exit status {status}\n{out[-6000:]}")
    say(f"{label}: {len(programs)} programs")


def run_fuzz(total, folder):
    targets = sorted(p for p in folder.glob("fuzz_*") if os.access(p, os.X_OK) and p.is_file())

    def one(p):
        name = p.name.removeprefix("fuzz_")
        corpus, seeds = folder / f"found-{name}", ROOT / "tests/fuzz" / f"corpus-{name}"
        shutil.rmtree(corpus, ignore_errors=True)
        corpus.mkdir(parents=True)
        command = [str(p), f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=1024",
                   "-print_final_stats=1", f"-artifact_prefix={folder}/crash-{name}-", str(corpus)]
        if seeds.is_dir():
            command.append(str(seeds))
        return p, *run_program(command, FUZZ_SECONDS + 60)

    with ThreadPoolExecutor(max(1, len(targets))) as ex:  # their time is what counts, not their speed
        for p, status, out, seconds in ex.map(one, targets):
            total.add(f"fuzz/{p.name}", "passed" if status == 0 else "failed", seconds)
            runs = re.search(r"number_of_executed_units:\s*(\d+)", out)
            say(f"fuzz/{p.name}: {runs.group(1) if runs else '?'} runs in {seconds:.0f} s"
                + ("" if status == 0 else f", exit status {status}\n{out[-6000:]}"))


def run_pytest(total, label, arguments, env=None, jobs=BOX_JOBS):
    report = BUILD / "tests" / f"{label}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = ["/usr/bin/python3", "-B", "-m", "pytest", "-c", str(ROOT / "tests/pytest.ini"),
               "--rootdir", str(ROOT / "tests"), "-q", "-n", str(jobs), f"--junitxml={report}",
               "-o", "junit_logging=system-out", *arguments]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}).returncode
    try:
        cases = list(ET.parse(report).iter("testcase"))
    except (OSError, ET.ParseError):
        total.add(f"{label}: pytest (exit status {status})", "failed")
        return
    for c in cases:
        name = f"{label}/{c.get('classname')}::{c.get('name')}"
        kinds = {e.tag for e in c}
        verdict = ("failed" if kinds & {"failure", "error"} else
                   "skipped" if "skipped" in kinds else "passed")
        total.add(name, verdict, float(c.get("time") or 0))
    if status not in (0, 1, 5):
        total.add(f"{label}: pytest (exit status {status})", "failed")


def main():
    # One who was started in the background by a shell ignores it, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    args = sys.argv[1:]
    chosen = {a for a in args if a in ("--unit", "--fuzz", "--box", "--asan")}
    rest = [a for a in args if a not in chosen]
    want = lambda part: not chosen or part in chosen
    os.umask(0o022)
    total, begun = Sum(), time.monotonic()
    if want("--unit"):
        run_unit(total, BUILD / "tests" / "unit", "unit")
    if want("--asan"):
        run_unit(total, BUILD / "asan" / "tests" / "unit", "asan-unit")
    if want("--fuzz"):
        run_fuzz(total, BUILD / "tests" / "fuzz")
    if want("--box"):
        paths = [] if any(not a.startswith("-") for a in rest) else [
            "tests/cases", "tests/container", "tests/gateway", "tests/conformance", "tests/page", "tests/docs"]
        run_pytest(total, "box", ["-m", "not storm", *paths, *rest])
        run_pytest(total, "storm", ["-m", "storm", *paths, *rest], jobs=STORM_JOBS)
    if want("--asan") and (BUILD / "asan" / "sandbox-init").exists():
        gateway = ["tests/gateway"] if IS_LONG else ["tests/gateway/test_bad_http.py",
                                                         "tests/gateway/test_gateway_exit.py"]
        run_pytest(total, "asan-box", ["tests/cases", "tests/container/test_bad_input.py", *gateway,
                                        "tests/conformance", "-k", "ns-root", *rest],
                   {"SANDBOX_BUILD": str(BUILD / "asan")})

    slow = sorted(total.times, reverse=True)[:10]
    say("\nslowest ten:")
    for seconds, name in slow:
        say(f"  {seconds:7.2f} s  {name}")
    if total.failures:
        say("\nfailed:")
        for name in total.failures[:200]:
            say(f"  {name}")
    say(f"\n{'full' if IS_LONG else 'a tenth of the'} repeat counts, "
        f"{time.monotonic() - begun:.0f} s")
    say(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
