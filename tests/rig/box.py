"""Boots sandbox-init in a box of some kind and gives a handle on it.

    with Box("runc-user", ini={"sessions": {"shell": "/bin/dash"}}, main=["sleep", "9"]) as box:
        box.ctl("session", "create", "s")
        r = box.exec("echo $PWD; false", session="s")

Kinds of box:

    ns-root    PID 1 of a new PID namespace (unshare), uid 0, the host's file system
    ns-user    the same as uid 1000 without capabilities, no_new_privs set
    runc-root  ENTRYPOINT of a container that runc started: own mounts, no network, docker's
               default capabilities
    runc-user  the same as uid 1000 without capabilities, root file system read-only
    busybox    runc-user, and the root file system holds static busybox and nothing else
    empty      runc-user, and the root file system holds no program at all
    plain      not PID 1: a plain child
    plain-user the same as uid 1000 without capabilities

Every box has a folder of its own under /tmp that has the same path inside and outside: box.run
(runtime folder with the control socket), box.work (writable for the box's user, the cwd). So
sandboxctl works from outside, and tests look at files directly. Whatever happens, leaving the
`with` block ends the box: PID 1 is killed, and with it its namespace.
"""

import atexit
import ctypes
import itertools
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import wire
from .wait import PATIENCE, Late, wait_until

ROOT = Path(__file__).resolve().parents[2]
USER = 1000
SHELLS = {"bash": "/bin/bash", "dash": "/bin/dash", "ash": None}  # ash: see programs()
KINDS = ("ns-root", "ns-user", "runc-root", "runc-user")
MARK = "BOXMARK"  # in the environment of everything that a box starts
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

DOCKER_CAPS = [
    "CAP_" + c
    for c in (
        "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP "
        "NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE"
    ).split()
]


def build_dir():
    return Path(os.environ.get("SANDBOX_BUILD", ROOT / "build")).resolve()


# One folder per test process for all its boxes; short, since a socket path has at most 107 bytes.
_base = None
_programs = None
_numbers = itertools.count(1)
_lock = threading.Lock()
_live = {}


def base():
    global _base
    with _lock:
        if _base is None:
            _base = Path(tempfile.mkdtemp(prefix="sbx.", dir="/tmp"))
            _base.chmod(0o755)
            atexit.register(_end_all, _base)
    return _base


def _end_all(path):
    for box in list(_live.values()):
        box.close()
    shutil.rmtree(path, ignore_errors=True)


def programs():
    """Copies of the programs under test and of the helpers, where every user can reach them."""
    global _programs
    folder = base() / "bin"
    with _lock:
        if _programs is not None:
            return _programs
        build = build_dir()
        folder.mkdir()
        (folder / "static").mkdir()
        for name in ("sandbox-init", "sandboxctl", "sandbox-gateway"):
            for copy in (name, f"static/{name}"):
                if (build / copy).exists():
                    shutil.copy2(build / copy, folder / copy)
        helper = build / "tests" / "misbehave"
        if not helper.exists():  # pytest run by hand, without make
            helper = folder / "misbehave"
            subprocess.run(
                ["gcc", "-std=c17", "-D_GNU_SOURCE", "-O1", "-static", "-pthread", "-o", helper,
                 ROOT / "tests/helpers/misbehave.c"], check=True)
        else:
            shutil.copy2(helper, folder / "misbehave")
        shutil.copy2(shutil.which("busybox"), folder / "busybox")
        os.symlink("busybox", folder / "ash")
        _programs = folder
    return folder


def shell_path(name):
    """bash, dash, ash -> the path that is the same in every kind of box."""
    return str(programs() / "ash") if name == "ash" else SHELLS[name]


@dataclass
class Result:
    """What a client of sandboxctl (or of the wire) got."""

    status: int
    out: bytes
    err: bytes
    seconds: float = 0.0
    fields: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)

    def __getitem__(self, key):
        return self.fields[key]

    def get(self, key, default=None):
        return self.fields.get(key, default)

    @property
    def triple(self):
        return (self.status, self.out, self.err)

    @property
    def lines(self):
        # (not str.splitlines(): that cuts at U+0085 and U+2028 as well, which a text may hold)
        return self.out.decode().removesuffix("\n").split("\n") if self.out else []


@dataclass
class Proc:
    pid: int  # as the host sees it
    ppid: int
    pgrp: int
    sid: int
    state: str
    comm: str
    inner: int  # as the box sees it

    @property
    def command(self):
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(
                "utf-8", "replace").strip()
        except OSError:
            return ""


def read_stat(pid):
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = line.rpartition(")")
    f = tail.split()
    return Proc(int(pid), int(f[1]), int(f[2]), int(f[3]), f[0], head.partition("(")[2], int(pid))


def status_fields(pid):
    """/proc/PID/status as a dict."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return dict((k, v.strip()) for k, _, v in (l.partition(":") for l in text.splitlines()))


def mark_of(pid):
    try:
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(MARK.encode() + b"="):
                return item.decode(errors="replace")[len(MARK) + 1 :]
    except OSError:
        pass
    return None


def exit_code(returncode):
    """As a shell would tell it."""
    return 128 - returncode if returncode < 0 else returncode


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _set_controlling_tty():
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# A box of these kinds has the host's file system and may be root in it: what no test has to write
# is read-only there, whatever the program under test is made to do.
GUARD = ('for d in /etc /usr /var /root /home /opt /boot /work; do [ ! -d $d ] || '
         '{ mount --bind $d $d && mount -o remount,bind,ro $d; } || exit 125; done; exec "$@"')


class Box:
    def __init__(self, kind="ns-root", *, ini=None, main=None, flags=(), env=None, before=(),
                 program=None, static=None, stdin=subprocess.DEVNULL, terminal=False, ready=True,
                 stdout=None, read_only=None, mounts=(), rlimits=None, deadline=15.0, check=False,
                 writable=True, host_tmp=False, uid=USER, bin=None):
        """
        ini        {"init": {"stop_grace": "3s"}, …} (the rig adds runtime_dir; None as value drops
                   a key), or the file's whole text (@RUN@ and @WORK@ are replaced), or False: no -c
        main       argv after --
        flags      more options of sandbox-init
        before     argv of a program that does something and then execs its own last arguments
        program    another program in the place of sandbox-init (an argv)
        terminal   True: on a pseudo-terminal of its own; box.tty is the master
        ready      True: wait until the control socket answers
        read_only  runc kinds: the root file system
        mounts     more of them, as runc's configuration has them; ns kinds: bind mounts only, on
                   folders that the host has
        uid        of the user kinds
        bin        another folder with the programs under test
        writable   False: nothing writable in the box at all (then there is no box.run inside)
        """
        self.kind = kind
        self.is_runc = kind.startswith("runc") or kind in ("busybox", "empty")
        self.is_user = kind.endswith("user") or kind in ("busybox", "empty")
        self.is_plain = kind.startswith("plain")
        self.uid = uid if self.is_user else 0
        number = next(_numbers)
        self.mark = f"{base().name}-{number}"
        self.dir = base() / f"b{number}"
        self.run, self.work = self.dir / "run", self.dir / "work"
        self.deadline = deadline
        self.bin = Path(bin) if bin else programs()
        self.helper = str(self.bin / "misbehave")
        self.static = kind in ("busybox", "empty") if static is None else static
        where = self.bin / "static" if self.static else self.bin
        self.init_path, self.ctl_path = str(where / "sandbox-init"), str(where / "sandboxctl")
        self.read_only = self.is_user if read_only is None else read_only
        self.writable = writable
        self.mounts = list(mounts)
        self.rlimits = rlimits or []
        self.host_tmp = host_tmp
        self.proc = None
        self.init_pid = None
        self.pid_ns = None
        self.tty = None
        self.code = None
        self._log = None
        for d, mode in ((self.dir, 0o755), (self.run, 0o711), (self.work, 0o755)):
            d.mkdir()
            d.chmod(mode)
        for d in (self.run, self.work):
            os.chown(d, self.uid, self.uid)
        self.env = {"PATH": PATH, "HOME": str(self.work), MARK: self.mark, **(env or {})}
        self.env = {k: v for k, v in self.env.items() if v is not None}
        self.socket = self.run / "control.sock"
        argv = list(before)
        argv += list(program) if program else self._init_argv(ini, flags, main)
        try:
            self._spawn(argv, stdin, stdout, terminal)
            if ready and not program:
                self._await_ready()
        except BaseException:
            self.close()
            raise

    # -- starting ---------------------------------------------------------------------------

    def _init_argv(self, ini, flags, main):
        if not Path(self.init_path).exists():
            raise FileNotFoundError(f"{build_dir()}/sandbox-init is not built")
        argv = [self.init_path]
        if ini is not False:
            path = self.dir / "sandbox.ini"
            path.write_bytes(self.ini_text(ini))
            argv += ["-c", str(path)]
        argv += list(flags)
        return argv + (["--", *map(str, main)] if main is not None else [])

    def ini_text(self, ini):
        if isinstance(ini, (str, bytes)):
            text = ini if isinstance(ini, bytes) else ini.encode()
            return text.replace(b"@RUN@", bytes(self.run)).replace(b"@WORK@", bytes(self.work))
        sections = {k: dict(v) for k, v in (ini or {}).items()}
        head = {"runtime_dir": str(self.run)}
        head.update(sections.pop("init", {}))
        lines = []
        for name, keys in {"init": head, **sections}.items():
            lines.append(f"[{name}]")
            lines += [f"{k} = {v}" for k, v in keys.items() if v is not None]
        return ("\n".join(lines) + "\n").encode()

    def write_ini(self, ini):
        """Replace the box's file (for reload)."""
        path = self.dir / "sandbox.ini"
        path.with_suffix(".new").write_bytes(self.ini_text(ini))
        os.rename(path.with_suffix(".new"), path)

    def _spawn(self, argv, stdin, stdout, terminal):
        argv = [str(a) for a in argv]
        if self.is_runc:
            command = self._bundle(argv, terminal)
        else:
            drop = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups",
                    "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
            command = (drop if self.is_user else []) + argv
            if not self.is_plain:
                # With a terminal PID 1 leads its session, as under `docker run -t`.
                lead = ["setsid", "-c"] if terminal else []
                binds = "".join(
                    f"mount --bind {shlex.quote(str(m['source']))} "
                    f"{shlex.quote(str(m['destination']))} || exit 125; " for m in self.mounts)
                command = ["unshare", "-fp", "--mount-proc", "--", *lead, "sh", "-c", binds + GUARD,
                           "sh", *command]
        self._log = open(self.dir / "log", "w+b")
        kw = dict(cwd=self.work, env=self.env if not self.is_runc else None)
        slave = None
        if terminal:
            self.tty, slave = pty.openpty()
            import fcntl
            import struct
            import termios

            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            if self.is_user:
                os.fchown(slave, self.uid, self.uid)
            kw.update(stdin=slave, stdout=slave, stderr=slave)
            if self.is_runc or self.is_plain:
                kw["preexec_fn"] = _set_controlling_tty
            else:
                kw["start_new_session"] = True
        else:
            kw.update(stdin=stdin, stdout=stdout or self._log, stderr=self._log,
                      start_new_session=True)
        self.begun = time.monotonic()
        self.proc = subprocess.Popen(command, **kw)
        _live[self.mark] = self
        if slave is not None:
            os.close(slave)
        self._find_init()

    def _find_init(self):
        if self.is_plain:
            self.init_pid = self.proc.pid
            return

        def find():
            if self.proc.poll() is not None:
                return -1
            if self.is_runc:
                try:
                    return int((self.dir / "pid").read_text())
                except (OSError, ValueError):
                    return None
            try:
                kids = Path(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").read_text()
            except OSError:
                return None
            return int(kids.split()[0]) if kids.split() else None

        pid = wait_until(find, self.deadline, "PID 1 of the box", every=0.001)
        if pid > 0:
            self.init_pid = pid
            try:
                self.pid_ns = os.stat(f"/proc/{pid}/ns/pid").st_ino
            except OSError:
                pass

    def _await_ready(self):
        def answers():
            if self.proc.poll() is not None:
                raise AssertionError(
                    f"sandbox-init ended with {exit_code(self.proc.returncode)} before it was "
                    f"ready: {self.log()[-2000:]}")
            try:
                return wire.call(self.socket, "status", timeout=PATIENCE)
            except (FileNotFoundError, ConnectionRefusedError):
                return None

        wait_until(answers, self.deadline,
                   lambda: f"{self.socket} answers; log: {self.log()[-2000:]}")

    def _bundle(self, argv, terminal):
        rootfs = self.dir / "rootfs"
        full = self.kind.startswith("runc")
        for d in ("proc", "dev", "tmp", "etc", "run", "var/tmp"):
            (rootfs / d).mkdir(parents=True, exist_ok=True)
        for d in ("tmp", "var/tmp"):  # a tmpfs gets the mode of the folder under it from runc
            (rootfs / d).chmod(0o1777)
        (rootfs / "etc/passwd").write_text(
            "root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000::/tmp:/bin/sh\n")
        (rootfs / "etc/group").write_text("root:x:0:\nagent:x:1000:\nextra:x:1001:agent\n")

        def bind(source, target, *options):
            return {"destination": str(target), "type": "bind", "source": str(source),
                    "options": ["rbind", *options]}

        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "mode=755", "size=64k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
        ]
        if self.writable:
            mounts += [
                {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                 "options": ["nosuid", "nodev", "mode=1777", "size=64m"]},
                {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
                 "options": ["nosuid", "nodev", "mode=1777"]},
                bind(self.dir, self.dir, "rw"),
            ]
        else:
            (rootfs / str(self.dir).lstrip("/")).mkdir(parents=True)
            mounts += [bind(self.dir, self.dir, "ro")]
        mounts.append(bind(self.bin, self.bin, "ro"))
        if full:
            for link in ("bin", "sbin", "lib", "lib64"):
                if os.path.islink(f"/{link}"):
                    os.symlink(os.readlink(f"/{link}"), rootfs / link)
                elif os.path.isdir(f"/{link}"):
                    mounts.append(bind(f"/{link}", f"/{link}", "ro"))
            mounts.append(bind("/usr", "/usr", "ro"))
            mounts.append(bind("/etc/alternatives", "/etc/alternatives", "ro"))
        elif self.kind == "busybox":
            (rootfs / "bin").mkdir()
            shutil.copy2(self.bin / "busybox", rootfs / "bin/busybox")
            listing = subprocess.run([self.bin / "busybox", "--list"], capture_output=True,
                                     text=True, check=True)
            for applet in listing.stdout.split():
                if applet != "busybox":
                    os.symlink("busybox", rootfs / "bin" / applet)
        mounts += self.mounts
        if not self.read_only:
            os.chown(rootfs, self.uid, self.uid)
        caps = [] if self.is_user else DOCKER_CAPS
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "terminal": bool(terminal),
                "user": {"uid": self.uid, "gid": self.uid},
                "args": argv,
                "env": [f"{k}={v}" for k, v in self.env.items()],
                "cwd": str(self.work),
                "capabilities": {k: caps for k in ("bounding", "effective", "permitted")},
                "noNewPrivileges": self.is_user,
                "rlimits": self.rlimits,
            },
            "root": {"path": str(rootfs), "readonly": self.read_only},
            "hostname": "box",
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")],
                "cgroupsPath": f"/{self.mark}",
            },
        }
        (self.dir / "config.json").write_text(json.dumps(config))
        return ["runc", "--root", str(base() / "runc"), "run", "--pid-file",
                str(self.dir / "pid"), "--bundle", str(self.dir), self.mark]

    # -- ending -----------------------------------------------------------------------------

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """End the box whatever its state; nothing of it stays."""
        if self.proc is None:
            return
        try:
            if self.proc.poll() is None:
                if self.init_pid:
                    _kill(self.init_pid)
                try:
                    self.proc.wait(30)
                except subprocess.TimeoutExpired:
                    self.proc.kill()
                    self.proc.wait(30)
            if self.is_plain:  # no namespace ends with it
                wait_until(self._kill_survivors, 10, lambda: f"they die: {self.survivors()}")
            if self.is_runc:
                subprocess.run(["runc", "--root", str(base() / "runc"), "delete", "-f", self.mark],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        finally:
            _live.pop(self.mark, None)
            if self.tty is not None:
                os.close(self.tty)
                self.tty = None
            if self._log:
                self._log.close()
            self.proc = None
            shutil.rmtree(self.dir, ignore_errors=True)

    def _kill_survivors(self):
        """True once there are none: one that was killed is there until it has run once more."""
        found = self.survivors()
        for p in found:
            _kill(p.pid)
        return not found

    def wait(self, deadline=None):
        """The exit code of init, as the runtime that started it tells it."""
        if self.code is None:
            try:
                self.code = exit_code(self.proc.wait(deadline or self.deadline))
            except subprocess.TimeoutExpired:
                raise Late(f"init ends within {deadline or self.deadline} s; "
                           f"processes: {[p.command for p in self.processes()]}; "
                           f"log: {self.log()[-2000:]}") from None
        return self.code

    def stop(self, sig=signal.SIGTERM, deadline=None):
        """Ask init to stop and wait for it; returns its exit code."""
        self.signal(sig)
        return self.wait(deadline)

    def signal(self, sig, pid=None):
        os.kill(pid or self.init_pid, sig)

    @property
    def is_alive(self):
        return self.proc is not None and self.proc.poll() is None

    def log(self):
        """What init and its main command wrote on their stdout and stderr."""
        if self._log is None or self._log.closed:
            return ""
        return (self.dir / "log").read_bytes().decode("utf-8", "replace")

    # -- looking from outside ---------------------------------------------------------------

    def processes(self, zombies=False):
        """Every process in the box, init excepted, as the host sees it."""
        found, nameless = [], []
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == self.init_pid:
                continue
            try:
                if self.pid_ns is not None:
                    if os.stat(f"/proc/{name}/ns/pid").st_ino != self.pid_ns:
                        continue
                elif mark_of(name) != self.mark:
                    if zombies:  # a zombie has lost its environment
                        nameless.append(read_stat(name))
                    continue
            except OSError:
                continue
            p = read_stat(name)
            if p is None or p.state == "X" or (p.state == "Z" and not zombies):
                continue
            p.inner = int(status_fields(name).get("NSpid", name).split()[-1])
            found.append(p)
        parents = {self.init_pid, *(p.pid for p in found)}
        return found + [p for p in nameless if p and p.state == "Z" and p.ppid in parents]

    def survivors(self):
        """Live processes with the box's mark anywhere on the host: none after a stop."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != self.init_pid and mark_of(name) == self.mark:
                p = read_stat(name)
                if p is not None and p.state not in "ZX" and p.pid != (
                        self.proc.pid if self.proc else 0):
                    found.append(p)
        return found

    def find(self, text):
        """Processes of the box whose command line holds text."""
        return [p for p in self.processes() if text in p.command]

    def host_pid(self, inner):
        """The host's number for a pid inside the box."""
        for p in self.processes(zombies=True):
            if p.inner == int(inner):
                return p.pid
        return None

    def zombies(self):
        """Zombies in the box (of any parent)."""
        return [p for p in self.processes(zombies=True) if p.state == "Z"]

    def fds(self):
        """Open descriptors of init."""
        return len(os.listdir(f"/proc/{self.init_pid}/fd"))

    def fd_links(self):
        """What they lead to; not those that are closed meanwhile."""
        found = []
        for name in os.listdir(f"/proc/{self.init_pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{self.init_pid}/fd/{name}"))
            except FileNotFoundError:
                pass
        return found

    def memory(self):
        """Bytes of init: (PSS, RSS)."""
        text = Path(f"/proc/{self.init_pid}/smaps_rollup").read_text()
        get = lambda k: next(int(l.split()[1]) for l in text.splitlines() if l.startswith(k + ":"))
        return get("Pss") * 1024, get("Rss") * 1024

    def cpu_seconds(self):
        f = Path(f"/proc/{self.init_pid}/stat").read_text().rpartition(")")[2].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")

    # -- sandboxctl -------------------------------------------------------------------------

    def _ctl_command(self, args):
        env = {"PATH": PATH, "SANDBOX_SOCKET": str(self.socket), "HOME": "/"}
        return [self.ctl_path, *(wire.text_of(a) if isinstance(a, bytes) else str(a) for a in args)], env

    def ctl(self, *args, input=None, deadline=30.0):
        """Run sandboxctl on the host against this box; returns a Result."""
        command, env = self._ctl_command(args)
        begun = time.monotonic()
        kw = {"input": wire.bytes_of(input)} if input is not None else {"stdin": subprocess.DEVNULL}
        try:
            r = subprocess.run([os.fsencode(a) for a in command], env=env, capture_output=True,
                               timeout=deadline, **kw)
        except subprocess.TimeoutExpired as e:
            raise Late(f"sandboxctl {args!r} within {deadline} s; "
                       f"out {(e.stdout or b'')[-500:]!r} err {(e.stderr or b'')[-500:]!r}") from None
        return Result(exit_code(r.returncode), r.stdout, r.stderr, time.monotonic() - begun)

    def ctl_ok(self, *args, **kw):
        r = self.ctl(*args, **kw)
        assert r.status == 0, f"sandboxctl {args!r}: {r.status} {r.out!r} {r.err!r}"
        return r

    def ctl_spawn(self, *args, **kw):
        """sandboxctl as a Popen, for a client that is to be watched or killed."""
        command, env = self._ctl_command(args)
        kw = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        return subprocess.Popen([os.fsencode(a) for a in command], env=env, **kw)

    @staticmethod
    def _call_options(session, cwd, env, timeout):
        args = []
        if session is not None:
            args += ["-s", session]
        if cwd is not None:
            args += ["--cwd", cwd]
        for k, v in (env or {}).items():
            args += ["--env", wire.bytes_of(k) + b"=" + wire.bytes_of(v)]
        if timeout is not None:
            args += ["--timeout", duration(timeout)]
        return args

    def exec(self, text, session=None, *, timeout=None, cwd=None, env=None, stdin=None, json=False,
             deadline=30.0):
        """One text (or an argv, if a list) through `sandboxctl exec`. json=True: over the wire
        instead, with the answer's fields."""
        if json:
            return self.call_exec(text, session, timeout=timeout, cwd=cwd, env=env, stdin=stdin,
                                  deadline=deadline)
        args = ["exec", *self._call_options(session, cwd, env, timeout)]
        if stdin is not None:
            args.append("--stdin")
        if isinstance(text, (list, tuple)):
            return self.ctl(*args, "--", *text, input=stdin, deadline=deadline)
        body = wire.bytes_of(text)
        if stdin is None and (len(body) > 100_000 or body.startswith(b"-") or b"\0" in body):
            return self.ctl(*args, "-f", "-", input=body, deadline=deadline)
        return self.ctl(*args, body, input=stdin, deadline=deadline)

    # -- the wire ---------------------------------------------------------------------------

    def connect(self, timeout=30.0):
        return wire.Wire(self.socket, timeout)

    def call(self, verb, *, deadline=30.0, check=True, text=None, **args):
        """One operation over the wire: call("session.show", name="s"). Lists repeat a key."""
        pairs = []
        for k, v in args.items():
            pairs += [(k, x) for x in v] if isinstance(v, (list, tuple)) else [(k, v)]
        return wire.call(self.socket, verb, pairs, text, deadline, check)

    @staticmethod
    def exec_args(text, session, timeout, cwd, env, stdin):
        args = [("session", session), ("cwd", cwd)]
        args += [("env", wire.bytes_of(k) + b"=" + wire.bytes_of(v)) for k, v in (env or {}).items()]
        args += [("timeout_ms", None if timeout is None else str(int(timeout * 1000)))]
        args += [("stdin", "1" if stdin is not None else None)]
        if isinstance(text, (list, tuple)):
            args += [("arg", a) for a in text]
            text = None
        return args, text

    def call_exec(self, text, session=None, *, timeout=None, cwd=None, env=None, stdin=None,
                  deadline=30.0):
        args, text = self.exec_args(text, session, timeout, cwd, env, stdin)
        with self.connect(deadline) as w:
            w.request("exec", args, text)
            if stdin is not None:
                body = wire.bytes_of(stdin)
                try:
                    for at in range(0, len(body), wire.PAYLOAD_MAX):
                        w.send(wire.STDIN, body[at : at + wire.PAYLOAD_MAX])
                    w.send(wire.STDIN, b"")
                except BrokenPipeError:
                    pass  # it is over already: the answer waits to be read
            a = w.finish()
        assert a.is_complete, "exec: the connection ended without a result or an error"
        if a.is_error:
            raise wire.WireError(a.fields)
        return Result(a.status, a.out, a.err, a.seconds, a.fields, a.notes)

    def start(self, text, session=None, *, id=None, cwd=None, env=None, stdin=False):
        """Start a process; returns (id, pid inside the box)."""
        args, text = self.exec_args(text, session, None, cwd, env, True if stdin else None)
        a = wire.call(self.socket, "start", [*args, ("id", id)], text)
        return a["id"], int(a["pid"])

    def wait_process(self, id, deadline=30.0):
        return self.call("wait", id=id, deadline=deadline)

    def logs(self, id, **args):
        return self.call("logs", id=id, **args)

    def ps(self, session=None):
        return self.call("ps", session=session).rows

    def status(self):
        return self.call("status").fields

    def session(self, name=None, **args):
        a = self.call("session.create", name=name, **args)
        return a["name"]

    # -- inside -----------------------------------------------------------------------------

    def _inside_command(self, argv):
        env = {**self.env, "SANDBOX_SOCKET": str(self.socket)}
        if self.is_runc:
            command = ["runc", "--root", str(base() / "runc"), "exec", "--user", f"{self.uid}:{self.uid}",
                       "--cwd", str(self.work), *itertools.chain(
                           *(("--env", f"{k}={v}") for k, v in self.env.items())),
                       self.mark, *map(str, argv)]
        else:
            command = ["nsenter", "-t", str(self.init_pid), "-p", "-m", "--", "setpriv",
                       f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--",
                       *map(str, argv)]
        return command, env

    def inside(self, *argv, input=None, deadline=30.0):
        """Run a program inside the box, beside init: not a child of it (runc exec, nsenter)."""
        command, env = self._inside_command(argv)
        r = subprocess.run(command, env=env, capture_output=True, timeout=deadline,
                           input=wire.bytes_of(input or b""))
        return Result(exit_code(r.returncode), r.stdout, r.stderr)

    def inside_spawn(self, *argv):
        """The same, not waited for: runc's (nsenter's) process as a Popen."""
        command, env = self._inside_command(argv)
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)


def duration(seconds):
    """Seconds as sandboxctl reads them."""
    return f"{round(seconds * 1000)}ms" if not isinstance(seconds, str) else seconds


class Session:
    """One session of a box; what most tests talk to."""

    def __init__(self, box, name, shell):
        self.box, self.name, self.shell = box, name, shell
        self.work = box.work / name
        self.helper = box.helper

    def exec(self, text, **kw):
        return self.box.exec(text, self.name, **kw)

    def run(self, text, **kw):
        """As exec, over the wire: the answer's fields are there."""
        return self.box.call_exec(text, self.name, **kw)

    def start(self, text, **kw):
        return self.box.start(text, self.name, **kw)

    def show(self):
        return self.box.call("session.show", name=self.name).fields

    @property
    def shell_pid(self):
        """The host's number of the session's shell."""
        return self.box.host_pid(self.show()["pid"])

    def path(self, name):
        return self.work / name

    def sleep_mark(self):
        """A duration that no other sleep has: `sleep <mark>` is found by box.find()."""
        return f"{600 + next(_marks)}.{os.getpid()}"


_marks = itertools.count(1)


def become_subreaper():
    """This process adopts orphans (for the tests that need to see where they go)."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def sweep(run_mark_prefix="sbx."):
    """Host pids of processes that boxes of this test process left behind."""
    mine = base().name
    return [int(n) for n in os.listdir("/proc") if n.isdigit() and (mark_of(n) or "").startswith(mine)]


__all__ = ["Box", "Session", "Result", "Proc", "KINDS", "SHELLS", "ROOT", "build_dir", "programs",
           "shell_path", "read_stat", "status_fields", "exit_code", "duration", "sweep"]
