"""H. Exit statuses: lost or made up."""

import pytest

from rig.wait import wait_until
from rig.wire import RESULT, STDOUT, Answer


def test_case_H1_no_end_before_the_wait_status(s):
    # given a streamed command that goes on only when what it wrote was seen, when one reads along,
    # then a result comes only after the last byte and carries the status
    with s.box.connect() as w:
        w.request("exec", [("session", s.name)],
                  "for i in 1 2 3 4 5 6 7 8; do printf %s $i; until [ -e seen$i ]; do sleep 0.02; done; "
                  "done; exit 7")
        pieces = []
        while True:
            channel, payload = w.receive()
            if channel == RESULT:
                break
            if channel == STDOUT:
                pieces.append(payload)
                s.path(f"seen{payload.decode()}").touch()
    assert pieces == [b"%d" % i for i in range(1, 9)], "the output streams"


def test_case_H1_a_cut_connection_frees_the_session(s):
    # given a streamed command whose client leaves in the middle, when the next call comes, then it
    # runs soon, and the first one was never told as a success
    with s.box.connect() as w:
        w.request("exec", [("session", s.name)], "echo begun; sleep 30; echo no >> made")
        w.finish(until=lambda a: a.out)
    assert s.exec("echo ok", deadline=10).triple == (0, b"ok\n", b"")
    assert not s.path("made").exists()


def test_case_H1_a_killed_client_does_not_exit_with_0(s):
    p = s.box.ctl_spawn("exec", "-s", s.name, "echo begun; sleep 30")
    assert p.stdout.readline() == b"begun\n"
    p.terminate()
    assert p.wait(10) not in (0, None)
    p.stdout.close()
    p.stderr.close()
    assert s.exec("echo ok", deadline=10).triple == (0, b"ok\n", b"")


def test_case_H1_init_gone_is_not_a_success(kind):
    from rig.box import Box

    with Box(kind) as box:
        p = box.ctl_spawn("exec", "echo begun; sleep 30")
        assert p.stdout.readline() == b"begun\n"
        box.signal(9)
        out, err = p.communicate(timeout=10)
        assert p.returncode == 125 and err, (p.returncode, err)


@pytest.mark.parametrize("signal, number", [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("HUP", 1),
                                            ("ABRT", 6), ("USR1", 10)])
def test_case_H2_death_by_a_signal(s, signal, number):
    r = s.run(f"sh -c 'kill -{signal} $$'", deadline=10)
    assert r.status == 128 + number
    id, _ = s.start(f"kill -{signal} $$")
    a = s.box.wait_process(id)
    assert a["status"] == 128 + number
    assert a["signal"] == f"SIG{signal}" and a["verdict"] == "signaled"
    # sandboxctl tells the same
    assert s.box.ctl("wait", id).status == 128 + number


def test_case_H2_argv_that_dies_by_a_signal(s):
    r = s.run([s.helper, "die", "SEGV"], deadline=10)
    assert r.status == 139


@pytest.mark.parametrize("text, status", [
    ("false\n", 1), ("false\n# end\n\n", 1), ("false;", 1), ("! true # c", 1), ("false\n\n\n", 1),
    ("(exit 255)", 255), ("(exit 256)", 0), ("true\n: $(exit 3)", 0), ("x=$(exit 3)", 3),
    ("false | true", 0), ("true | (exit 4)", 4), ("true && false", 1), ("false || (exit 5)", 5),
    ("if false; then :; fi", 0), ("(exit 2) & wait $!", 2), ("false\r\n", None),
])
def test_case_H4_the_text_s_own_status(s, text, status):
    r = s.exec(text, deadline=10)
    assert r.status == (127 if status is None else status), r


def test_case_H5_a_failure_keeps_both_streams(s):
    r = s.run("echo o; echo e >&2; (exit 3)")
    assert (r.status, r.out, r.err) == (3, b"o\n", b"e\n")
    assert r["verdict"] == "exited"
    assert (r["stdout_bytes"], r["stderr_bytes"]) == (2, 2)
    r = s.exec("echo o; echo e >&2; (exit 3)")
    assert r.triple == (3, b"o\n", b"e\n")
    id, _ = s.start("echo o; echo e >&2; exit 3")
    assert s.box.wait_process(id)["status"] == 3
    a = s.box.logs(id)
    assert (a.out, a.err) == (b"o\n", b"e\n")


def test_case_H5_never_run_is_125_with_the_reason(s):
    # given a call that cannot be carried out, then 125 and a reason that names the thing
    missing = s.path("missing")
    r = s.exec("echo x", cwd=missing)
    assert r.status == 125 and r.out == b"" and str(missing).encode() in r.err, r
    assert b"No such file" in r.err
    r = s.box.exec("echo x", "no-such-session")
    assert r.status == 125 and b"no-such-session" in r.err
    r = s.exec("echo x", env={"A B": "1"})
    assert r.status == 125 and b"A B" in r.err
    # and the session is as before
    assert s.exec("pwd").out == bytes(s.work) + b"\n"


@pytest.mark.parametrize("code", [0, 1, 2, 7, 124, 125, 126, 127, 128, 130, 137, 255])
def test_case_H5_every_code_passes(s, code):
    assert s.exec(f"(exit {code})").status == code
    assert s.exec([s.helper, "exit", code]).status == code
    id, _ = s.start(f"exit {code}")
    wait_until(lambda: s.box.ctl("wait", id).status == code, 5, "the code of the process")
    assert isinstance(s.box.wait_process(id), Answer)
