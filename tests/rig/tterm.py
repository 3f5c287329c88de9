"""A client of `sandboxctl terminal` on a pseudo-terminal: type, and read until something appears."""

import fcntl
import os
import pty
import signal
import struct
import termios
import time

from .box import exit_code
from .tty import Terminal
from .wait import wait_until


class Client(Terminal):
    """sandboxctl with these arguments, its stdin, stdout and stderr on a terminal of its own."""

    def __init__(self, box, *args, rows=24, cols=80, env=None):
        self.ended = False
        self.seen = b""
        self.code = None
        environ = {**box.env, "TERM": "xterm", "SANDBOX_SOCKET": str(box.socket), **(env or {})}
        environ.pop("BOXMARK", None)
        argv = [str(a) for a in (box.ctl_path, *args)]
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.cooked = termios.tcgetattr(slave)
        self.slave = slave
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have nohup
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(slave, fd)
                os.chdir(box.work)
                if box.uid:
                    os.setgroups([])
                    os.setgid(box.uid)
                    os.setuid(box.uid)
                os.execve(argv[0], argv, environ)
            finally:
                os._exit(99)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def resize(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def kill(self, sig=signal.SIGKILL):
        os.kill(self.pid, sig)

    @property
    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    @property
    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.cooked

    @property
    def is_read(self):
        """Nothing that was typed waits for the client."""
        waiting = bytearray(4)
        fcntl.ioctl(self.slave, termios.FIONREAD, waiting)
        return not any(waiting)

    def poll(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = exit_code(os.waitstatus_to_exitcode(status))
        return self.code

    def end(self, deadline=10.0):
        """(exit code, all that was not read yet) of a client that ends by itself."""

        def is_over():
            self.pump(0.005)
            return self.poll() is not None

        wait_until(is_over, deadline, lambda: f"the client ends; seen {self.seen[-500:]!r}")
        end = time.monotonic() + 1
        os.set_blocking(self.fd, False)
        while time.monotonic() < end:
            try:
                self.seen += os.read(self.fd, 65536)
            except (BlockingIOError, OSError):
                break
        return self.code, self.seen

    def close(self):
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        os.close(self.slave)
