"""The near end of a box's terminal: type, and read until something has appeared."""

import os
import select
import time

from .wait import PATIENCE, Late


class Terminal:
    def __init__(self, box):
        self.fd = box.tty
        self.seen = b""
        self.ended = False

    def type(self, text):
        os.write(self.fd, text.encode())

    def pump(self, timeout=0.05):
        """Read what is there; False at the end of the terminal."""
        ready, _, _ = select.select([self.fd], [], [], timeout)
        if ready:
            try:
                piece = os.read(self.fd, 65536)
            except OSError:  # EIO: nobody holds the other end any more
                piece = b""
            self.ended = self.ended or not piece
            self.seen += piece
        return not self.ended

    def until(self, text, deadline=10.0):
        """Read until text (bytes) has appeared; what came up to there leaves the buffer."""
        end = time.monotonic() + max(deadline, PATIENCE)
        while text not in self.seen:
            if not self.pump() or time.monotonic() > end:
                raise Late(f"{text!r} on the terminal within {deadline} s; seen {self.seen!r}")
        at = self.seen.index(text) + len(text)
        head, self.seen = self.seen[:at], self.seen[at:]
        return head

    def wait(self, box, deadline=10.0):
        """Read on until init has ended; returns (exit code, all that was left)."""
        end = time.monotonic() + max(deadline, PATIENCE)
        while box.proc.poll() is None and time.monotonic() < end:
            self.pump(0.02)
        code = box.wait(0.5)
        while self.pump(0.02) and time.monotonic() < end and select.select([self.fd], [], [], 0)[0]:
            pass
        return code, self.seen
