"""Out of memory is a verdict where the kernel tells, by the counter of the container's cgroup."""

import json
import os
from pathlib import Path

import pytest

from rig.box import Box
from rig.wait import wait_until

MEMORY = Path("/sys/fs/cgroup/memory")  # version 1
LIMIT = 48 << 20

pytestmark = pytest.mark.skipif(not os.access(MEMORY / "memory.limit_in_bytes", os.R_OK),
                                reason="no memory cgroup of version 1")

HOG = "head -c 300m /dev/zero | tail"  # tail keeps what has no newline


class Runc(Box):
    """As docker does it: a memory limit, and the container's own cgroups, read-only."""

    def _bundle(self, argv, terminal):
        (self.dir / "rootfs" / "sys/fs/cgroup").mkdir(parents=True)
        command = super()._bundle(argv, terminal)
        path = self.dir / "config.json"
        config = json.loads(path.read_text())
        config["linux"]["resources"] = {"memory": {"limit": LIMIT}}
        config["mounts"].append({"destination": "/sys/fs/cgroup", "type": "cgroup",
                                 "source": "cgroup", "options": ["ro"]})
        path.write_text(json.dumps(config))
        return command


@pytest.fixture(scope="module", params=["ns-root", "runc-root", "runc-user"])
def box(request):
    if request.param != "ns-root":
        with Runc(request.param) as b:
            yield b
        return
    folder = MEMORY / f"sandbox-test-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(LIMIT))
        with Box("ns-root", before=["sh", "-c", f'echo 0 >{folder}/cgroup.procs && exec "$@"',
                                    "sh"]) as b:
            yield b
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), 10, "it is empty")
        folder.rmdir()


@pytest.mark.parametrize("text", [HOG, f"x=1; {HOG}; (exit $?)", f"f() {{ {HOG}; }}; f",
                                  "python3 -c 'x = bytearray(300 << 20)'"])
def test_of_a_command(box, text):
    s = box.session()
    box.exec("X=kept", s)
    first = r = box.exec(text, s, json=True)
    assert (r["verdict"], int(r["status"]), r.get("signal")) == ("oom", 137, "SIGKILL"), r.fields
    assert int(r["oom_kills"]) >= 1 and "memory" in r["message"]
    # the next one has a verdict of its own, and state is kept; whom the kernel chooses is its own
    # affair: where that was the shell, the state is told as lost
    r = box.exec("echo $X", s, json=True)
    assert r["verdict"] == "exited" and "oom_kills" not in r.fields
    assert r.out == (b"\n" if first.get("state_lost") else b"kept\n"), (first, r)
    box.call("session.delete", name=s)


@pytest.mark.parametrize("text, verdict", [
    ("exec python3 -c 'x = bytearray(300 << 20)'", "oom"),
    (HOG, "oom"),
    (f"{HOG}; exit 3", "exited"),  # it did not end it, but is told
])
def test_of_a_process(box, text, verdict):
    p, _ = box.start(text)
    w = box.wait_process(p)
    assert (w["verdict"], int(w["status"])) == (verdict, 137 if verdict == "oom" else 3), w.fields
    assert int(w["oom_kills"]) >= 1
    assert next(r for r in box.ps() if r["id"] == p)["verdict"] == verdict


def test_what_is_killed_otherwise_is_no_oom(box):
    s = box.session()
    for text in ("sh -c 'kill -9 $$'", "(exit 137)", "kill -9 $$"):
        r = box.exec(text, s, json=True)
        assert r["verdict"] != "oom" and "oom_kills" not in r.fields, r.fields
    p, _ = box.start("kill -9 $$")
    assert box.wait_process(p)["verdict"] == "signaled"
    box.call("session.delete", name=s)


def test_it_is_logged(box):
    s = box.session()
    box.exec(HOG, s)
    assert "event=oom" in box.log()
    box.call("session.delete", name=s)
