"""What the tests of verbs share: sandboxctl as a user calls it, and what it is expected to say."""

import itertools
import json
import os
import re
import subprocess

from .wait import wait_until

_numbers = itertools.count(1)

EXEC_KEYS = {"id", "verdict", "status", "duration_s", "stdout_bytes", "stderr_bytes"}
SESSION_KEYS = {"name", "state", "shell", "cwd", "pid", "queue", "strays", "uptime_s"}
HELD_KEYS = {"running", "running_s"}  # and these while something runs
PS_KEYS = {"id", "session", "pid", "kind", "state", "text", "uptime_s", "strays"}


def fresh_name():
    return f"v{next(_numbers)}"


def make(box, *options):
    """A session with a folder of its own."""
    name = fresh_name()
    work = box.work / name
    work.mkdir()
    os.chown(work, box.uid, box.uid)
    box.ctl_ok("session", "create", name, "--cwd", work, *options)
    return name


def data(box, *args, status=0, **kw):
    """What a verb prints with --json; the verb ends with `status`."""
    r = box.ctl(*args[:1], "--json", *args[1:], **kw) if args[0] != "session" else box.ctl(
        *args[:2], "--json", *args[2:], **kw)
    assert r.status == status, (args, r)
    return json.loads(r.out)


def refused(r, *words, status=1):
    """The verb printed nothing but one line on stderr that has all the words."""
    assert r.status == status and r.out == b"", r
    lines = r.err.decode().splitlines()
    assert len(lines) == 1 and lines[0].startswith("sandboxctl"), r
    for w in words:
        assert str(w) in lines[0], (w, lines[0])
    return lines[0]


def show(box, session):
    return data(box, "session", "show", session)


def nap(box):
    """`sleep` with a number that nothing else in the box has."""
    return f"sleep {700 + next(_numbers)}.{os.getpid()}"


def is_running(box, session):
    wait_until(lambda: show(box, session)["state"] == "busy", 5, f"{session} is busy")


def start(box, *args, **kw):
    """(id, pid) as start prints them."""
    r = box.ctl_ok("start", *args, **kw)
    m = re.fullmatch(rb"(\S+) (\d+)\n", r.out)
    assert m and r.err == b"", r
    return m.group(1).decode(), int(m.group(2))


def end(p, deadline=15):
    """(status, stdout, stderr) of a Popen."""
    try:
        out, err = p.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        p.kill()
        raise
    return p.returncode, out, err


# A text that does not end at SIGTERM, and says when that is so.
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"
