"""Where a test on behaviour runs: kinds of box, and shells of a session in them.

Boxes are shared: one of each kind per test process, started when first asked for, replaced when a
test has broken it. A test that changes init itself (stop, configuration, limits) makes its own Box.
"""

import itertools
import os

from .box import KINDS, Box, Session, shell_path

PLACES = [(kind, shell) for kind in KINDS for shell in ("bash", "dash", "ash")]
PLACES.append(("busybox", "ash"))


def spread(*inputs):
    """(kind, input) pairs: each input in one kind of box, the kinds in turn. For tests whose inputs
    are many and each need a box of their own."""
    return list(zip(itertools.cycle(KINDS), inputs))


# kill_grace is short, so that tests on stubborn programs are quick.
SHARED_INI = {
    "init": {"stop_grace": "2s"},
    "sessions": {"kill_grace": "500ms", "max_sessions": "500"},
}


class Pool:
    def __init__(self):
        self.boxes = {}
        self.failures = {}
        self.names = itertools.count(1)

    def get(self, kind):
        box = self.boxes.get(kind)
        if box is not None and box.is_alive:
            return box
        if box is not None:
            box.close()
            del self.boxes[kind]
        if self.failures.get(kind, 0) >= 3:
            raise AssertionError(f"a {kind} box has failed to start three times")
        try:
            self.boxes[kind] = Box(kind, ini=SHARED_INI, deadline=10)
        except BaseException:
            self.failures[kind] = self.failures.get(kind, 0) + 1
            raise
        return self.boxes[kind]

    def close(self):
        for box in self.boxes.values():
            box.close()
        self.boxes.clear()

    def session(self, kind, shell):
        return make_session(self.get(kind), shell, f"p{next(self.names)}")


def make_session(box, shell="bash", name=None, **args):
    """A session with a folder of its own as cwd; the shell is one of bash, dash, ash."""
    name = name or f"m{next(_names)}"
    s = Session(box, name, shell)
    s.work.mkdir()
    os.chown(s.work, box.uid, box.uid)
    box.session(name, shell=shell_path(shell), cwd=str(s.work), **args)
    return s


_names = itertools.count(1)
