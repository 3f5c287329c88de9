"""AA. Restricted containers: read-only, not root, limits."""

import os

import pytest

from rig.box import Box, programs
from rig.places import make_session
from rig.wait import repeats, wait_until

RUNC = ("runc-root", "runc-user")


@pytest.mark.parametrize("runc", RUNC)
def test_case_AA1_read_only_root_with_a_shm(runc):
    # given nothing writable but /dev/shm and /tmp, and no runtime_dir, then init finds a place
    with Box(runc, ini={"init": {"runtime_dir": None}}, read_only=True, ready=False,
             main=["sleep", "100"]) as box:
        said = wait_until(lambda: [l for l in box.log().splitlines() if "/dev/shm" in l or "/tmp" in l],
                          10, lambda: f"the runtime folder is said: {box.log()}")
        assert said
        r = wait_until(lambda: (x := box.inside(box.ctl_path, "exec", "echo hi")).status == 0 and x,
                       5, "exec works with the default socket")
        assert r.out == b"hi\n"
        r = box.inside(box.ctl_path, "session", "create", "s")
        assert (r.status, r.out) == (0, b"s\n")
        assert box.inside(box.ctl_path, "exec", "-s", "s", "echo ho").out == b"ho\n"
        assert box.stop() == 143


@pytest.mark.parametrize("runc", RUNC)
def test_case_AA1_nothing_writable_at_all(runc):
    # given no writable path, then the main command runs and its code comes back; what is off is
    # said once
    with Box(runc, ini={"init": {"runtime_dir": None}}, read_only=True, writable=False, ready=False,
             main=["sh", "-c", "exit 7"]) as box:
        assert box.wait() == 7
        assert len([l for l in box.log().splitlines() if "writable" in l or "Read-only" in l
                    or "read-only" in l]) >= 1, box.log()


@pytest.mark.parametrize("runc", RUNC)
def test_case_AA1_nothing_writable_and_no_main_command(runc):
    with Box(runc, ini={"init": {"runtime_dir": None}}, read_only=True, writable=False,
             ready=False) as box:
        wait_until(lambda: box.log(), 10, "it says what is off")
        assert box.is_alive
        assert box.stop() == 0


@pytest.mark.parametrize("runc", RUNC)
def test_case_AA1_the_whole_session_works_on_a_read_only_root(runc):
    with Box(runc, read_only=True) as box:
        s = make_session(box, "bash")
        assert s.exec("touch /x 2>/dev/null || echo ro").out == b"ro\n"
        assert s.exec("cd /tmp; v=1").status == 0
        assert s.exec("pwd; echo $v").out == b"/tmp\n1\n"


def test_case_AA2_not_root_and_run_owned_by_root():
    # given uid 1000 without capabilities and a /run that it cannot write, then it falls back to a
    # folder of its own that others cannot list, and says so once
    with Box("runc-user", ini={"init": {"runtime_dir": None}}, ready=False) as box:
        wait_until(lambda: box.inside(box.ctl_path, "status").status == 0, 10,
                   lambda: f"it serves: {box.log()}")
        r = box.inside("sh", "-c", "for d in /run/sandbox /dev/shm/* /tmp/*; do "
                                   "[ -S $d/control.sock ] && stat -c '%n %a %u' $d; done")
        name, mode, uid = r.out.decode().split()
        assert uid == "1000" and int(mode, 8) & 0o066 == 0, r
        assert len([l for l in box.log().splitlines() if name in l]) == 1, box.log()


def test_case_AA2_a_folder_prepared_by_a_stranger_is_not_used():
    # given a folder or a link with our name that belongs to somebody else, then it is not trusted
    with Box("runc-root", ini={"init": {"runtime_dir": None}}, ready=False,
             mounts=[], read_only=True) as box:
        wait_until(lambda: box.inside(box.ctl_path, "status").status == 0, 10,
                   lambda: f"it serves: {box.log()}")
        r = box.inside("sh", "-c", "for d in /run/sandbox /dev/shm/* /tmp/*; do "
                                   "[ -S $d/control.sock ] && stat -c '%n %a %u' $d; done")
        assert r.out.split()[2] == b"0" and int(r.out.split()[1], 8) & 0o066 == 0


@pytest.mark.parametrize("missing", ["/nowhere/run", "/proc/run", "/etc/passwd"])
def test_case_AA2_a_runtime_folder_that_cannot_be(kind, missing):
    # given a runtime_dir that cannot be used, then path and reason are told
    with Box(kind, ini={"init": {"runtime_dir": missing}}, ready=False, main=["true"]) as box:
        box.wait()
        assert missing in box.log()
        assert any(w in box.log() for w in ("No such file", "Not a directory", "Read-only",
                                            "Permission denied", "not permitted")), box.log()


@pytest.mark.parametrize("launcher", ["tini", "dumb-init"])
def test_case_AA4_below_another_init(kind, launcher):
    # given an engine's own init as PID 1, when sandbox-init runs below it, then it works
    before = {"tini": ["/usr/bin/tini", "--"], "dumb-init": ["/usr/bin/dumb-init", "--"]}[launcher]
    with Box(kind, before=before) as box:
        assert box.status()["is_pid1"] in (False, "false")
        assert box.exec("echo hi").out == b"hi\n"
        s = make_session(box, "bash")
        assert s.exec("(setsid sleep 0.05 &); echo $?").out == b"0\n"
        wait_until(lambda: not box.zombies(), 5, lambda: f"no zombies: {box.zombies()}")
        assert box.stop() == 0


def test_case_AA5_heredocs_with_a_read_only_tmp():
    # given nowhere to put a temporary file but init's own folder, then small heredocs work; a
    # large one works or ends quickly with the shell's own complaint
    with Box("runc-user", mounts=[{"destination": "/tmp/ro", "type": "tmpfs", "source": "tmpfs",
                                   "options": ["ro"]}], env={"TMPDIR": "/tmp/ro"}) as box:
        for shell in ("bash", "dash", "ash"):
            s = make_session(box, shell)
            r = s.exec("cat <<E\n1\n2\n3\nE", deadline=10)
            assert r.triple == (0, b"1\n2\n3\n", b"")
            big = "x" * 69 + "\n"
            r = s.exec("wc -c <<E\n" + big * 1000 + "E", deadline=10)
            assert r.out.strip() == b"70000" or (r.status != 0 and r.err), r
            assert s.exec("echo ok").triple == (0, b"ok\n", b"")
            if shell == "bash":
                assert s.exec("cat <<< here", deadline=10).out == b"here\n"
            assert s.exec("echo $TMPDIR").out == b"/tmp/ro\n", "the user's TMPDIR stays"


def test_case_AA5_large_heredocs_where_there_is_room(s):
    big = "y" * 69 + "\n"
    r = s.exec("wc -c <<E\n" + big * 1000 + "E", deadline=20)
    assert r.out.strip() == b"70000" and r.status == 0
    r = s.exec("cat <<'E'\n" + big * 3000 + "E", deadline=20)
    assert r.out == big.encode() * 3000


@pytest.mark.parametrize("limit", [50])
def test_case_AA8_zombies_do_not_use_up_the_process_limit(kind, limit):
    # given a limit of 50 processes for the session's uid, when 500 calls each leave an orphan
    # behind, then all succeed
    if not kind.endswith("user"):
        kind = "ns-user"
    with Box(kind, before=["prlimit", f"--nproc={limit}", "--"], uid=lonely_uid()) as box:
        s = make_session(box, "bash")
        n = repeats(500)
        for i in range(n):
            r = s.exec("(true &)", deadline=30)
            assert r.triple == (0, b"", b""), (i, r)
        for shell in ("dash", "ash"):
            t = make_session(box, shell)
            for i in range(n):
                r = t.exec("(true &)", deadline=30)
                assert r.triple == (0, b"", b""), (shell, i, r)


# The limit counts every process that the uid has on the machine: one that no other box has.
def lonely_uid():
    return 100000 + os.getpid()


def test_case_AA8_at_the_limit_the_answer_is_clear(kind):
    # given no process left to have, when a text forks, then it fails with the shell's complaint,
    # and init goes on and can still kill
    if not kind.endswith("user"):
        kind = "ns-user"
    with Box(kind, before=["prlimit", "--nproc=30", "--"], uid=lonely_uid()) as box:
        s = make_session(box, "bash")
        m = str(programs() / "misbehave")
        filler, _ = box.start(f"i=0; while [ $i -lt 60 ]; do {m} forever & i=$((i+1)); done; wait",
                              s.name)
        wait_until(lambda: len(box.processes()) > 15, 30, "the limit is near")
        r = s.exec("/bin/true", timeout=3, deadline=30)
        assert box.is_alive
        assert box.ctl("kill", "--grace", "200ms", filler, deadline=30).status == 0
        r = wait_until(lambda: (x := s.exec("/bin/true; echo ok", timeout=10)).out == b"ok\n" and x,
                       30, "works again")
        assert r.status == 0
