"""What tests of files over HTTP share."""

import ctypes
import os
import shutil
import threading


def error_of(r):
    """(status, text, code) of an answer that is an error, and nothing but one."""
    assert r.header("content-type") == "application/json", r.headers
    body = r.json
    assert set(body) == {"error", "code"}, body
    return r.status, body["error"], body["code"]


def leftovers(folder):
    """Temporary files anywhere below a folder."""
    return [os.path.join(d, n) for d, _, names in os.walk(folder) for n in names if n.startswith(".sandbox")]


def up(path):
    """A relative path that leads to an absolute one from anywhere in a workspace."""
    return "../" * 12 + str(path).lstrip("/")


# ---- races ----


LIBC = ctypes.CDLL(None, use_errno=True)


def exchange(a, b):
    """renameat2(2) with RENAME_EXCHANGE: both names are always there."""
    assert LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2) == 0, os.strerror(ctypes.get_errno())


class Swapper:
    """Swaps a folder of the workspace against a symlink to a folder outside, as fast as it can."""

    def __init__(self, workspace, link):
        self.inner, self.link = workspace / "race", workspace / "race-link"
        os.makedirs(self.inner)
        os.symlink(link, self.link)
        self.stop, self.turns = False, 0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.stop:
            exchange(self.inner, self.link)
            self.turns += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        for path in (self.inner, self.link):
            os.unlink(path) if path.is_symlink() else shutil.rmtree(path)


def snapshot(folder):
    found = {}
    for d, dirs, names in os.walk(folder):
        for n in dirs + names:
            p = os.path.join(d, n)
            s = os.lstat(p)
            found[p] = (s.st_ino, s.st_mode, s.st_mtime_ns, s.st_ctime_ns, s.st_size)
    return found
