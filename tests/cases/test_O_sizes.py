"""O. Long command lines."""

import time

import pytest

from rig.box import Box
from rig.verbs import fresh_name
from rig.wait import wait_until


def test_case_O1_a_long_text_is_no_argument(s):
    assert s.exec("echo " + 200_000 * "x" + " | wc -c").out.strip() == b"200001"


@pytest.mark.parametrize("size", [131_071, 131_072, 140_000, 1_000_000])
def test_case_O1_sizes_around_the_argument_limit(any_shell, size):
    s = any_shell
    # an argument of a program is capped at 128 KiB by Linux, a text is not
    assert s.exec("X=" + "y" * size + "; echo ${#X}").out == f"{size}\n".encode()
    r = s.exec("/bin/true " + "z" * size)
    if size < 131_072:
        assert r.status == 0
    else:
        assert r.status == 126 and b"too long" in r.err
    assert s.exec("echo next").out == b"next\n"


def test_case_O1_stateless_and_started(one_box):
    text = "echo " + 300_000 * "x" + " | wc -c"
    assert one_box.exec(text).out.strip() == b"300001"
    id, _ = one_box.start(text)
    one_box.wait_process(id)
    assert one_box.logs(id).out.strip() == b"300001"
    # an argv that the kernel does not take: said by step and errno, and init lives
    a = one_box.call("exec", arg=["/bin/true", "x" * 140_000])
    assert (a["verdict"], a["step"], a["errno"], a["status"]) == ("spawn_failed", "exec", 7, 126)
    assert "Argument list too long" in a["message"]


def test_case_O1_many_arguments(one_box):
    n = 5000
    args = [f"a{i}" for i in range(n)]
    assert one_box.exec(["sh", "-c", 'echo $# "${5000}"', "sh", *args]).out == b"5000 a4999\n"
    r = one_box.exec(["eval", "echo $#"], session="s")
    assert r.status == 0
    assert one_box.exec(["printf", "%s\n", *args], session="s").out == (
        "\n".join(args) + "\n").encode()


def big_environment(names, bytes_each):
    """Text that exports so many variables."""
    return "".join(f"export V{i}={'v' * bytes_each}\n" for i in range(names))


def test_case_O2_too_much_environment(s):
    too_much(s, 3000, 700)


@pytest.mark.parametrize("names, bytes_each", [(30, 100_000), (17, 131_000), (900, 2400)])
def test_case_O2_more_shapes_of_it(any_shell, names, bytes_each):
    too_much(any_shell, names, bytes_each)


def too_much(s, names, bytes_each):
    # given more environment than execve(2) takes (2 MB and more; a quarter of the stack limit)
    assert s.exec(f"ulimit -S -s 8192; {big_environment(names, bytes_each)}").status == 0
    # then a builtin works, and a program fails alone
    assert s.exec("echo ok").triple == (0, b"ok\n", b"")
    r = s.exec("/bin/true")
    assert r.status == 126 and b"too long" in r.err
    assert s.exec("echo ok").triple == (0, b"ok\n", b"")
    # a process can be started as long as its text needs no program, and says why where it does
    id, _ = s.start("echo from a process; /bin/true")
    assert s.box.wait_process(id)["status"] == 126
    assert s.box.logs(id).out == b"from a process\n"
    # and `unset` repairs it
    assert s.exec(f"i=0; while [ $i -lt {names} ]; do unset V$i; i=$((i + 1)); done").status == 0
    assert s.exec("/bin/true && echo again").triple == (0, b"again\n", b"")


@pytest.mark.parametrize("where", ["call", "session"])
def test_case_O2_from_the_request(one_box, where):
    env = {f"V{i}": "v" * 1200 for i in range(2500)}  # 3 MB
    name = fresh_name()
    if where == "session":
        one_box.call("session.create", name=name, env=[f"{k}={v}" for k, v in env.items()])
        env = {}
    else:
        one_box.session(name)
    assert one_box.exec("echo ok", name, json=True, env=env).out == b"ok\n"
    r = one_box.exec("/bin/true", name, json=True, env=env)
    assert r.status == 126 and b"too long" in r.err
    assert one_box.exec("echo ok ${V0-unset}", name).out.startswith(b"ok ")
    one_box.call("session.delete", name=name)


def test_case_O2_stateless(one_box):
    env = [f"V{i}={'v' * 1200}" for i in range(2500)]
    a = one_box.call("exec", arg=["/bin/true"], env=env)
    assert (a["verdict"], a["step"], a["errno"], a["status"]) == ("spawn_failed", "exec", 7, 126)
    assert one_box.exec("echo ok").out == b"ok\n"


def test_case_O4_five_megabytes(s):
    body = "".join(f"line {i} of the document\n" for i in range(5_000_000 // 24))
    begun = time.monotonic()
    r = s.exec(f"cat <<'EOF' | wc -c\n{body}EOF", deadline=60)
    assert r.out.strip() == str(len(body)).encode()
    print(f"{len(body)} bytes in {time.monotonic() - begun:.2f} s")


@pytest.mark.parametrize("size", [65_534, 65_535, 65_536, 65_537, 4_194_304])
def test_case_O4_sizes_around_frames(any_shell, size):
    s = any_shell
    text = "X='" + "\n" * (size - 20) + "'; echo ${#X}"
    assert s.exec(text).out == f"{size - 20}\n".encode()


def test_case_O4_too_large_is_said(one_box):
    with Box(ini={"init": {"text_limit": "1M"}}) as box:
        box.session("s")
        for at in (["-s", "s"], []):
            r = box.ctl("exec", *at, "-f", "-", input=b": " + b"x" * (1 << 20))
            assert r.status == 125 and b"1048578" in r.err and b"1048576" in r.err, r.err
            r = box.ctl("exec", *at, "-f", "-", input=b": " + b"x" * ((1 << 20) - 2))
            assert r.triple == (0, b"", b"")
        r = box.ctl("start", "-f", "-", input=b": " + b"x" * (2 << 20))
        assert r.status == 1 and b"1048576" in r.err


def test_case_O4_other_sessions_stay_responsive(one_box):
    # given a large text on its way into a session whose shell is slow to read it
    name = fresh_name()
    one_box.session(name)
    (one_box.work / "text").write_bytes(b"cat <<'EOF' | { sleep 0.5; wc -c; }\n" +
                                        b"0123456789abcdef\n" * 600_000 + b"EOF\n")
    p = one_box.ctl_spawn("exec", "-s", name, "-f", one_box.work / "text")
    wait_until(lambda: one_box.call("session.show", name=name).fields["state"] == "busy"
               or p.poll() is not None, 10)
    slowest = 0
    while p.poll() is None:
        begun = time.monotonic()
        assert one_box.exec("echo ok", "s").out == b"ok\n"
        slowest = max(slowest, time.monotonic() - begun)
    assert p.stdout.read().strip() == str(17 * 600_000).encode()
    p.stdout.close()
    p.stderr.close()
    assert slowest < 15
    one_box.call("session.delete", name=name)
