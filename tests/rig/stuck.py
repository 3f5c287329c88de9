"""A folder in a box in which processes get stuck in state D, where not even SIGKILL ends them.

    with StuckFolder(box) as stuck:
        box.exec(f"cat {stuck.file}", "s")   # stays until stuck.release()

It is a FUSE file system (fuse(4)) whose server, a thread of the test, takes each request for its
file's bytes and never answers: the kernel waits for an answer to what was taken without minding
signals. It is mounted in the box's mount namespace only, so that nobody else can step into it.
`stuck.nothing` is a name that is looked up for ever. `stuck.once` is not there for the first process
that asks for it; any other asks for ever.
"""

import ctypes
import errno
import os
import struct
import threading

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV = 2, 4
GETATTR, LOOKUP, OPEN, OPENDIR, INIT, ACCESS, RELEASE = 3, 1, 14, 27, 26, 34, 18
SIZE = 1 << 20


class StuckFolder:
    def __init__(self, box):
        self.path = box.work / "stuck"
        self.path.mkdir()
        self.path.chmod(0o755)
        self.file, self.nothing = self.path / "file", self.path / "nothing"
        self.once, self._first = self.path / "once", None
        self.taken = 0  # requests that are never answered: their callers are stuck
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._mount(box.init_pid)
        self._wake_read, self._wake_write = os.pipe()
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def _mount(self, pid):
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        ns = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        child = os.fork()
        if child == 0:
            # Only this: a forked child of a process with threads may do little.
            ok = (libc.setns(ns, CLONE_NEWNS) == 0 and
                  libc.mount(b"stuck", os.fsencode(self.path), b"fuse", MS_NOSUID | MS_NODEV,
                             options) == 0)
            os._exit(0 if ok else ctypes.get_errno() or 1)
        os.close(ns)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            os.close(self.fd)
            raise OSError(status, f"mount of {self.path}: {os.strerror(status)}")

    def _serve(self):
        import select

        while True:
            ready, _, _ = select.select([self.fd, self._wake_read], [], [])
            if self._wake_read in ready:
                return
            try:
                request = os.read(self.fd, 1 << 17)
                _, op, unique, node, _, _, pid = struct.unpack_from("=IIQQIII", request)
                answer = self._answer(op, node, request[40:])
                if answer is None and self._is_refused(op, request[40:], pid):
                    os.write(self.fd, struct.pack("=IiQ", 16, -errno.ENOENT, unique))
                elif answer is None:
                    self.taken += 1
                else:
                    os.write(self.fd, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
            except OSError:
                return

    @staticmethod
    def _attr(node):
        mode = 0o40755 if node == 1 else 0o100644
        return struct.pack("=QQQQQQIIIIIIIIII", node, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, mode, 1,
                           0, 0, 0, 4096, 0)

    def _answer(self, op, node, body):
        if op == INIT:
            return struct.pack("=IIIIHHIIHHI28x", 7, 31, 65536, 0, 16, 12, 4096, 1, 0, 0, 0)
        if op == GETATTR:
            return struct.pack("=QII", 3600, 0, 0) + self._attr(node)
        if op == LOOKUP and body.rstrip(b"\0") == b"file":
            return struct.pack("=QQQQII", 2, 0, 3600, 3600, 0, 0) + self._attr(2)
        if op in (OPEN, OPENDIR):
            return struct.pack("=QII", 1, 0, 0)
        if op in (ACCESS, RELEASE):
            return b""
        return None  # READ, LOOKUP of any other name, …: never

    def _is_refused(self, op, body, pid):
        if op != LOOKUP or body.rstrip(b"\0") != b"once":
            return False
        self._first = self._first or pid
        return pid == self._first

    def release(self):
        """Let go of all that are stuck: their calls fail, and they die of what they were sent."""
        if self.fd < 0:
            return
        os.write(self._wake_write, b"x")
        self._server.join(5)
        for fd in (self.fd, self._wake_read, self._wake_write):
            os.close(fd)
        self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
