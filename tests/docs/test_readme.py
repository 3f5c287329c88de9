"""README.md, its transcript and its commands: what it shows is run here, or compared with what it
names. ```console blocks are sessions (`$ ` a command, then its output), ```sh blocks commands of the
reader's machine, ```dockerfile a file of deploy/."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from rig.box import ROOT, USER, Box, build_dir
from rig.http import GatewayBox, free_port
from rig.wait import wait_until

README = (ROOT / "README.md").read_text()


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def steps(block):
    """A console block as (command, expected output)."""
    found = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append([line[2:].rstrip("\n"), ""])
        else:
            found[-1][1] += line
    return found


def without_numbers(text):
    """PIDs, times and the widths of columns differ from run to run."""
    return re.sub(r" +", " ", re.sub(r"\b\d+(\.\d+s)?\b", "N", text))


def has_pids(command):
    return re.match(r"sandboxctl (start|ps|session list)\b", command) is not None


@pytest.fixture(scope="module", params=["ns-root", "ns-user", "runc-root", "runc-user"])
def docs_box(request):
    with Box(request.param, ini=(ROOT / "sandbox.ini.example").read_text().replace(
            "[init]\n", "[init]\nruntime_dir = @RUN@\n")) as b:
        yield b


def shell(b, command, more=None):
    """The reader's terminal: stdout and stderr as they are seen."""
    env = {"PATH": f"{Path(b.ctl_path).parent}:/usr/bin:/bin", "SANDBOX_SOCKET": str(b.socket),
           **(more or {})}
    r = subprocess.run(["bash", "-c", command], env=env, stdin=subprocess.DEVNULL, timeout=30,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return r.stdout.decode()


def shell_until(b, command, expected):
    """The tree of a process is there a moment after `start` has answered."""
    end = time.monotonic() + 15
    while True:
        got = shell(b, command)
        is_same = (without_numbers(got) == without_numbers(expected) if has_pids(command)
                   else got == expected)
        if is_same or time.monotonic() > end:
            return got, is_same
        time.sleep(0.05)


def check_transcript(b):
    """b: a box, or anything with the path of sandboxctl and a socket."""
    found = [s for block in blocks("console") for s in steps(block)]
    assert len(found) > 10
    for command, expected in found:
        if command.startswith("sandboxctl ps"):
            got, is_same = shell_until(b, command, expected)
        else:
            got = shell(b, command)
            is_same = (without_numbers(got) == without_numbers(expected) if has_pids(command)
                       else got == expected)
        assert is_same, f"$ {command}\n{got}instead of\n{expected}"


def test_transcript(docs_box):
    check_transcript(docs_box)


def fits(got, expected):
    """Numbers and the last newline aside; "…" in what is expected stands for anything."""
    parts = [re.escape(without_numbers(p)) for p in expected.rstrip("\n").split("…")]
    return re.fullmatch(".*".join(parts), without_numbers(got).rstrip("\n")) is not None


@pytest.mark.skipif(not (build_dir() / "sandbox-gateway").exists(), reason="no gateway is built")
@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_http_transcript(kind):
    """```shell blocks: curl against a gateway with the keys that the README shows."""
    found = [s for block in blocks("shell") for s in steps(block)]
    assert len(found) > 5
    with GatewayBox(kind) as b:
        for command, expected in found:
            got = shell(b, command.replace("curl", f"curl --unix-socket {b.http_socket}"),
                        {"A": "http://127.0.0.1:3000", "AUTH": f"Authorization: Bearer {b.token}"})
            assert fits(got, expected), f"$ {command}\n{got}instead of\n{expected}"


@pytest.mark.skipif(not (build_dir() / "sandbox-gateway").exists(), reason="no gateway is built")
def test_lines_of_the_guide(tmp_path):
    """The curl lines of docs/gateway.md, one after the other, in a folder with what they send."""
    guide = (ROOT / "docs/gateway.md").read_text()
    lines = [l for block in blocks("sh", guide) for l in block.splitlines()]
    assert len(lines) >= 7 and all(l.startswith("curl ") for l in lines)
    (tmp_path / "notes.md").write_text("a note\n")
    with GatewayBox("ns-root") as b:
        env = {"A": "http://127.0.0.1:3000", "AUTH": f"Authorization: Bearer {b.token}", "PATH": "/usr/bin:/bin"}
        for line in lines:
            r = subprocess.run(["bash", "-c", line.replace("curl", f"curl -sSf --unix-socket {b.http_socket}", 1)],
                               cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False)
            assert r.returncode == 0, (line, r)
        assert (tmp_path / "workspace.tar").stat().st_size > 0
        assert (b.workspace / "docs/notes.md").read_text() == "a note\n"
    keys, = blocks("ini", guide)
    (tmp_path / "sandbox.ini").write_text(keys)
    r = subprocess.run([build_dir() / "sandbox-init", "--check", "-c", tmp_path / "sandbox.ini"], capture_output=True,
                       check=False)
    assert r.returncode == 0, r


def sh_lines():
    return [l for block in blocks("sh") for l in block.splitlines() if l.strip()]


def test_commands_are_known_ones():
    for line in sh_lines():
        assert re.match(r"make( |$)|docker (build|run|exec|stop) ", line), line


def test_configurations_are_valid(tmp_path):
    assert blocks("ini")
    for text in blocks("ini"):
        file = tmp_path / "sandbox.ini"
        file.write_text(text)
        r = subprocess.run([build_dir() / "sandbox-init", "--check", "-c", file], capture_output=True)
        assert r.returncode == 0, r


def test_make_targets_exist():
    for line in sh_lines():
        if line.startswith("make"):
            r = subprocess.run(["bash", "-c", line.replace("make", "make -n", 1)], cwd=ROOT,
                               capture_output=True, check=False)
            assert r.returncode == 0, r.stderr


def test_what_is_installed_is_told():
    install = (ROOT / "tests/install-deps.sh").read_text()
    packages = re.search("packages='([^']*)'", install).group(1).split()
    told = re.search(r"lacks \((.*?); as root", " ".join(README.split())).group(1)
    names = [w for w in re.split(", | and ", told) if w != "a compiler"]
    library = lambda name: re.sub("^node-|^lib|-dev$", "", name)
    assert {library(p) for p in packages if p != "build-essential"} == {library(n) for n in names}


# ---- images ----------------------------------------------------------------------------------


def containerfile(name):
    return [l for l in (ROOT / "deploy" / name).read_text().splitlines() if not l.startswith("#")]


def test_readme_shows_the_containerfile():
    assert blocks("dockerfile") == ["\n".join(containerfile("Containerfile.debian")) + "\n"]


@pytest.mark.parametrize("name", ["Containerfile.debian", "Containerfile.alpine-static"])
def test_containerfile(name):
    lines = containerfile(name)
    for line in lines:
        assert line.split()[0] in ("FROM", "COPY", "ENTRYPOINT"), line
        if line.startswith("COPY"):
            for source in line.split()[1:-1]:
                path = build_dir() / source[6:] if source.startswith("build/") else ROOT / source
                assert path.exists(), source
    entry = json.loads(lines[-1].removeprefix("ENTRYPOINT "))
    assert entry[1:3] == ["-c", "/etc/sandbox.ini"] and entry[3:] == ["--"]
    for source, is_program in (("build/static/sandbox-init", True), ("sandbox.ini.example", False)):
        assert any(l.startswith("COPY") and source in l for l in lines), (source, is_program)


@pytest.mark.parametrize("kind", ["runc-root", "busybox"])
def test_image(kind):
    """What the image starts, under a real OCI runtime: the static program, the file, and `--` with
    nothing behind it. `docker exec` lines of the README run in it; `docker stop` is a TERM."""
    execs = [l.removeprefix("docker exec box ") for l in sh_lines() if l.startswith("docker exec")]
    assert execs
    with Box(kind, static=True, flags=["--"]) as b:
        for command in execs:
            out = shell(b, command)
            assert "sandboxctl:" not in out, out
        assert out == "/tmp\n"
        assert b.stop() == 0


def test_image_with_main_command():
    with Box("runc-root", static=True, main=["sh", "-c", "exit 5"], ready=False) as b:
        assert b.wait() == 5


def test_pod():
    yaml = pytest.importorskip("yaml")
    pod = yaml.safe_load((ROOT / "deploy/pod.yaml").read_text())
    container = pod["spec"]["containers"][0]
    env = {e["name"]: e["value"] for e in container["env"]}
    r = subprocess.run([build_dir() / "sandbox-init", "--check"], env=env, capture_output=True,
                       check=False)
    assert r.returncode == 0, r.stderr
    assert pod["spec"]["terminationGracePeriodSeconds"] > 8


# ---- make run --------------------------------------------------------------------------------


@pytest.fixture(params=["root", "user"])
def checkout(request, tmp_path_factory):
    """scripts/run in a folder of its own, and a function that makes a command run as that user."""
    folder = Path(tmp_path_factory.mktemp("run", numbered=True))
    for parent in (folder, *folder.parents):
        if parent.stat().st_mode & 0o001 == 0 and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "sandbox.ini.example", folder)
    (folder / "build").mkdir()
    for name in ("sandbox-init", "sandboxctl", "sandbox-gateway"):
        shutil.copy2(build_dir() / name, folder / "build")
    drop = []
    if request.param == "user":
        drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        if subprocess.run([*drop, "unshare", "-Ur", "true"], capture_output=True,
                          check=False).returncode != 0:
            pytest.skip("user namespaces are not allowed here")
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
    return folder, drop, env


def runs_of(folder):
    out = subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout.decode()
    return [l for l in out.splitlines() if str(folder) in l]


@pytest.mark.parametrize("text,status,out", [
    ("echo hi; exit 3", 3, b"hi\n"),
    ("true", 0, b""),
    ("kill -9 $$", 137, b""),
    ("sleep 300 & echo left", 0, b"left\n"),
    ("printf 'no newline'", 0, b"no newline"),
    ("-x", 127, b""),
])
def test_run_text(checkout, text, status, out):
    folder, drop, env = checkout
    r = subprocess.run([*drop, folder / "scripts/run", text], env=env, capture_output=True,
                       timeout=30, check=False)
    assert (r.returncode, r.stdout) == (status, out), r.stderr
    assert runs_of(folder) == []


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_run_help(option):
    r = subprocess.run([ROOT / "scripts/run", option], env={"PATH": "/usr/bin:/bin", "SANDBOX_BUILD": "/none"},
                       capture_output=True, timeout=30, check=False)
    assert r.returncode == 0 and r.stderr == b"" and r.stdout.startswith(b"usage: scripts/run [TEXT]\n")
    assert set(re.findall(r"^  ([A-Z_]+) ", r.stdout.decode(), re.M)) == {"PORT", "WORKSPACE", "SANDBOX_BUILD"}


def test_run_hides_make(checkout):
    folder, drop, env = checkout
    env = env | {"MAKELEVEL": "1", "MAKEFLAGS": " -- CMD=x", "MAKE_TERMOUT": "x", "RUN_TEXT": "x"}
    r = subprocess.run([*drop, folder / "scripts/run", "env"], env=env, capture_output=True,
                       timeout=30, check=False)
    assert r.returncode == 0 and b"MAKE" not in r.stdout and b"RUN_TEXT" not in r.stdout


def test_run_tells_what_is_missing(checkout):
    folder, drop, env = checkout
    (folder / "build/sandboxctl").unlink()
    r = subprocess.run([*drop, folder / "scripts/run", "true"], env=env, capture_output=True,
                       timeout=30, check=False)
    assert r.returncode == 125
    assert b"sandboxctl is not built; 'make' builds it" in r.stderr


def read_until(fd, pattern, deadline=15):
    seen, end = b"", time.monotonic() + deadline
    while not re.search(pattern, seen):
        assert time.monotonic() < end, seen
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    return seen.decode(errors="replace")


def test_run_tells_that_the_port_is_taken(checkout):
    folder, drop, env = checkout
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        r = subprocess.run([*drop, folder / "scripts/run"], env=env | {"PORT": str(port)},
                           capture_output=True, timeout=30, check=False)
    assert (r.returncode, r.stdout) == (125, b""), r.stderr
    assert r.stderr.decode() == (
        f"run: port {port} of 127.0.0.1 is taken; another one: PORT={port + 1} make run\n")
    r = subprocess.run([*drop, folder / "scripts/run"], env=env | {"PORT": "x"}, capture_output=True,
                       timeout=30, check=False)
    assert r.returncode == 125 and b"PORT=x is not a port" in r.stderr


def ask_gateway(address, token):
    """The status of a request with a token."""
    request = urllib.request.Request(f"{address}v1/sandbox", data=b"", method="POST",
                                     headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as r:
            return r.status
    except urllib.error.HTTPError as e:
        return e.code


def test_run_on_a_terminal(checkout):
    """The lines that it prints work, and Ctrl-C stops all in order."""
    folder, drop, env = checkout
    env = env | {"PORT": str(free_port())}
    if not drop:  # a folder to keep
        (folder / "keep").mkdir()
        env["WORKSPACE"] = str(folder / "keep")
    pid, tty = pty.fork()
    if pid == 0:
        argv = [*drop, str(folder / "scripts/run")]
        os.execvpe(argv[0], argv, env)
    try:
        seen = read_until(tty, rb"Ctrl-C stops everything")
        address, token = re.search(r"^    (http://127.0.0.1:\d+/)#token=([0-9a-f]{32})\r?$", seen, re.M).groups()
        assert ask_gateway(address, "wrong") == 401
        assert ask_gateway(address, token) != 401
        keys, = re.findall(r"^    (A=.*?)\r?$", seen, re.M)
        assert keys == f"A={address[:-1]} AUTH='Authorization: Bearer {token}'"
        curl, = re.findall(r"^    (curl .*?)\r?$", seen, re.M)
        # and the README's own lines do, too
        if Path("/workspace").is_dir():
            write = next(c for c, _ in (s for block in blocks("shell") for s in steps(block)) if "-T -" in c)
            for line, want in (curl, "event: exit"), (write, '{"ok":true}'):
                r = subprocess.run(["bash", "-c", f"{keys}\n{line}"], capture_output=True, timeout=30,
                                   check=False)
                assert want in r.stdout.decode(), (line, r)
        lines = re.findall(r"^    (sandboxctl .*?)\r?$", seen, re.M)
        assert len(lines) == 3, seen
        place, = re.findall(r"^    (export .*?)\r?$", seen, re.M)
        control, programs = re.fullmatch(r"export SANDBOX_SOCKET=(\S+) PATH=(\S+):\$PATH", place).groups()
        assert Path(programs) == folder / "build"
        if not drop:  # the socket belongs to root
            check_transcript(SimpleNamespace(ctl_path=f"{programs}/sandboxctl", socket=control))
        # what they make is not in the way of the README's session
        session = lines[0].split()[-1]
        assert f"session create {session}\n" not in README
        wants = [rf"^{session}\n$", r"^hello from \d+\n$", r"(?m)^cwd: /tmp$"]
        for line, want in zip(lines, wants, strict=True):
            r = subprocess.run([*drop, "bash", "-c", f"{place}\n{line}"], env=env, capture_output=True, timeout=30,
                               check=False)
            assert r.returncode == 0 and re.search(want, r.stdout.decode()), (line, r)
        os.write(tty, b"\x03")
        seen = read_until(tty, rb"event=stopped")
        assert "event=stop why=SIGINT" in seen or "event=stop why=SIGTERM" in seen, seen
        end = time.monotonic() + 30
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
            time.sleep(0.02)
        assert done[0] == pid and os.waitstatus_to_exitcode(done[1]) == 0, done
        pid = 0
        assert runs_of(folder) == []
        if not drop and Path("/workspace").is_dir():
            assert (folder / "keep/notes.txt").read_text() == "some text\n"
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        os.close(tty)


# ---- what dies when --------------------------------------------------------------------------

COMMAND, LEFT, PROCESS = "700.1", "700.2", "700.3"


def leave(_, clients):
    """The client of a running command is killed."""
    for p in clients:
        p.kill()
        p.wait()


@pytest.mark.parametrize("event,dies", [
    (None, set()),
    (lambda b, c: b.ctl_ok("kill", "--running", "s"), {COMMAND}),
    (leave, {COMMAND}),
    (lambda b, c: b.ctl_ok("kill", "web"), {PROCESS}),
    (lambda b, c: b.ctl_ok("kill-all"), {PROCESS}),
    (lambda b, c: b.ctl_ok("session", "reset", "s"), {COMMAND, LEFT, PROCESS}),
    (lambda b, c: b.ctl_ok("session", "delete", "s"), {COMMAND, LEFT, PROCESS}),
], ids=["nothing", "kill", "leave", "kill-process", "kill-all", "reset", "delete"])
def test_what_dies_when(event, dies):
    """A stray that an older command left, a process, and a running command."""
    with Box("ns-root") as b:
        def living():
            return {x for x in (COMMAND, LEFT, PROCESS) if b.find(f"sleep {x}")}

        b.session("s")
        b.exec(f"sleep {LEFT} &", "s")
        b.start(f"sleep {PROCESS}", "s", id="web")
        client = b.ctl_spawn("exec", "-s", "s", f"sleep {COMMAND}")
        wait_until(lambda: len(living()) == 3, 10, lambda: f"all three live: {living()}")
        if event:
            event(b, [client])
        want = {COMMAND, LEFT, PROCESS} - dies
        wait_until(lambda: living() == want, 10, lambda: f"{want} live: {living()}")
        client.kill()
        client.communicate()
        assert b.stop() == 0 and b.survivors() == []


# ---- inside a container ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def inside():
    with Box("runc-root") as b:
        yield b


def test_a_killed_engine_leaves_the_client_alive(inside):
    """`docker exec` killed from outside, as README.md and sandboxctl(1) tell: with `--timeout` the command ends."""
    b = inside
    for more, dies in ([], False), (["--timeout", "3s"], True):
        text = f"sleep 70{len(more)}"
        command = lambda: next((r for r in b.ps() if r.get("text") == text and r["state"] == "running"), None)
        engine = b.inside_spawn(b.ctl_path, "-S", b.socket, "exec", *more, text)
        # By init's word: the command line of the client itself holds the text before init has heard of it.
        runs = wait_until(command, 10, "the command runs")
        engine.kill()
        engine.communicate()
        if dies:
            wait_until(lambda: not b.find(text), 20, "its time is over")
        else:
            assert command() and b.find(f"{b.ctl_path} -S"), "the command runs on and so does its client"
            b.ctl_ok("kill", runs["id"])


def test_a_shutdown_from_inside_ends_with_the_container(inside):
    r = inside.inside(inside.ctl_path, "-S", inside.socket, "shutdown")
    assert r.status in (0, 137), r
    assert inside.wait() == 0
