"""K. Volume: huge, endless, capped output."""

import json
import re

import pytest

from rig.box import Box
from rig.verbs import fresh_name
from rig.wait import is_long, wait_until

MIB = 1 << 20
RSS_BOUND = 6 * MIB  # more than init had before, whatever a command writes


def capped(s, limit, text, *options, status=0, deadline=60):
    """(fields, stdout, stderr, notices) of an exec with a limit: as --json and as text."""
    args = ["exec", "-s", s.name, "--output-limit", limit, *options, text]
    r = s.box.ctl("--json", *args, deadline=deadline)
    assert r.status == status, r
    d = json.loads(r.out)
    return d, d.get("stdout", ""), d.get("stderr", "")


def notices(err):
    """Of sandboxctl's stderr: {stream: (seen, kept, from, to)}, and what else is there."""
    pattern = rb"sandboxctl exec: (stdout|stderr): (\d+) bytes seen, (\d+) kept: left out (\d+)\.\.(\d+)\n"
    told = {m[1].decode(): tuple(map(int, m.groups()[1:])) for m in re.finditer(pattern, err)}
    return told, re.sub(pattern, b"", err)


class Watch:
    """The most memory that init had while a client ran."""

    def __init__(self, box):
        self.box, self.before, self.most = box, box.memory()[1], 0

    def over(self, p, deadline=30):
        def look():
            self.most = max(self.most, self.box.memory()[1])
            return p.poll() is not None

        wait_until(look, deadline, "the client ends", every=0.02)
        assert 0 < self.most < self.before + RSS_BOUND, (self.before, self.most)
        return p.returncode


# ---- K1 ---------------------------------------------------------------------------------------

SECONDS = 5 if is_long() else 0.6


@pytest.mark.parametrize("options, text", [
    (["--output-limit", "1M"], f"timeout {SECONDS} yes"),
    (["--output-limit", "64K", "--timeout", f"{max(2000, int(SECONDS * 600))}ms"], "cat /dev/zero"),
    ([], f"timeout {SECONDS / 3} yes"),
    (["--output-limit", "1000"], f"timeout {SECONDS} sh -c 'yes & yes >&2'"),
    (["--output-limit", "256K", "--id"], f"timeout {SECONDS} yes"),
])
def test_case_K1_memory_of_init_is_bounded(pool, options, text):
    with Box(ini={"sessions": {"kill_grace": "300ms"}}) as box:
        box.session("s")
        text = f"yes | head -c 2000000; {text}"  # so much at least, also on a busy machine
        if options[-1:] == ["--id"]:
            options = [*options, fresh_name()]
        with open(box.work / "answer", "w+b") as answer:
            p = box.ctl_spawn("--json", "exec", "-s", "s", *options, text, stdout=answer)
            assert Watch(box).over(p) == 124
            p.stderr.close()
            answer.seek(0)
            d = json.load(answer)
        assert d["verdict"] == ("timeout" if "--timeout" in options else "exited")
        seen = d["stdout_bytes"] + d["stderr_bytes"]
        assert seen > 1_000_000
        limit = 64 * MIB  # of --json, where nobody says another
        if options:
            limit = {"1M": MIB, "64K": 65536, "1000": 1000, "256K": 262144}[options[1]]
            assert d["truncated"]
        assert d["stdout_kept"] <= limit and d["stderr_kept"] <= limit
        assert box.exec("echo next", "s").out == b"next\n"


def test_case_K1_of_a_client_that_streams(pool):
    # given no limit at all, when gigabytes pass, then none of them stays in init
    with Box() as box:
        box.session("s")
        for text in (f"timeout {SECONDS} yes", f"timeout {SECONDS} cat /dev/zero >&2"):
            p = box.ctl_spawn("exec", "-s", "s", text, stdout=-3, stderr=-3)
            assert Watch(box).over(p) == 124


def test_case_K1_a_client_that_reads_nothing_slows_nothing(one_box):
    # given a limit, when the client never reads, then the command runs to its end all the same
    box = one_box
    with box.connect() as w:
        w.request("exec", [("session", "s"), ("output_limit", "100000")],
                  "head -c 30000000 /dev/zero; echo done >/dev/null; touch over")
        wait_until(lambda: box.exec("ls over", "s").status == 0, 20)
        a = w.finish()
    assert a.fields["stdout_bytes"] == 30_000_000 and a.out == bytes(100_000)
    assert a.fields["stdout_kept"] == 100_000 and a.fields["truncated"]


def test_case_K1_the_limit_kills_only_if_asked_to(s):
    text = f"cd /; while :; do echo {'x' * 99}; done"
    d, out, _ = capped(s, "10K", text, "--output-limit-action", "kill", status=137)
    assert (d["verdict"], d["status"], d["truncated"]) == ("output_limit", 137, True)
    assert out.startswith("xxx") and d["stdout_bytes"] > 10240
    assert s.exec("echo next").out == b"next\n"
    # what stays within it is not killed, and the words are checked
    d, out, _ = capped(s, "10K", "seq 1 100; sleep 0.1", "--output-limit-action", "kill")
    assert (d["verdict"], d["truncated"]) == ("exited", False)
    d, _, err = capped(s, "10K", f"seq 1 9999 >&2; sleep {s.sleep_mark()}", "--output-limit-action", "kill",
                       status=137)
    assert d["verdict"] == "output_limit" and err.startswith("1\n2\n")
    r = s.box.ctl("exec", "-s", s.name, "--output-limit-action", "stop", "true")
    assert r.status == 125 and b"keep or kill" in r.err
    for bad in ("x", "10MB", "-1", "2G"):
        assert s.box.ctl("exec", "-s", s.name, f"--output-limit={bad}", "true").status == 125


# ---- K2 ---------------------------------------------------------------------------------------


def test_case_K2_true_numbers_and_stderr_is_kept(s):
    overflow(s, "1M", MIB)


@pytest.mark.parametrize("limit, size", [("64K", 65536), ("4999999", 4999999), ("33", 33)])
def test_case_K2_more_limits(any_shell, limit, size):
    overflow(any_shell, limit, size)


def overflow(s, limit, size):
    text = "head -c 5000000 /dev/zero | tr '\\0' y; echo END >&2"
    r = s.box.ctl("exec", "-s", s.name, "--output-limit", limit, text)
    told, rest = notices(r.err)
    half = size // 2
    assert told == {"stdout": (5_000_000, size, half, 5_000_000 - (size - half))}
    assert (r.status, rest, r.out) == (0, b"END\n", b"y" * size)
    d, out, err = capped(s, limit, text)
    assert (d["stdout_bytes"], d["stdout_kept"], d["stdout_head"]) == (5_000_000, size, half)
    assert (d["truncated"], d["stderr_kept"], err, len(out)) == (True, 4, "END\n", size)
    assert "stderr_head" not in d


def test_case_K2_the_other_way_round_and_both(s):
    d, out, err = capped(s, "20K", "echo BEGIN; seq 1 100000 >&2; echo END")
    assert out == "BEGIN\nEND\n" and err.startswith("1\n2\n") and err.endswith("99999\n100000\n")
    assert (d["stdout_kept"], d["stderr_kept"], d["stderr_head"]) == (10, 20480, 10240)
    d, out, err = capped(s, "20K", "seq 1 100000; seq 1 90000 >&2; (exit 9)", status=9)
    assert out.endswith("\n100000\n") and err.endswith("\n90000\n")
    r = s.box.ctl("exec", "-s", s.name, "--output-limit", "20K", "seq 1 100000; seq 1 90000 >&2")
    told, rest = notices(r.err)
    assert [v[:2] for v in (told["stdout"], told["stderr"])] == [(588895, 20480), (528894, 20480)]
    assert len(r.out) == 20480
    assert 0 <= len(rest) - 20480 <= len(told), "each note may need a newline before it"


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 100, 65535, 65536, 131072])
def test_case_K2_sizes_around_the_limit(one_box, limit):
    pattern = b"".join(b"%07d|" % i for i in range(0, 2 * limit + 200, 8))
    for size in sorted({max(0, limit - 1), limit, limit + 1, limit + limit // 2, limit + 99}):
        (one_box.work / "in").write_bytes(pattern[:size])
        r = one_box.ctl("exec", "-s", "s", "--output-limit", limit, f"cat {one_box.work}/in")
        told, rest = notices(r.err)
        head = limit // 2
        want = pattern[:size]
        if size > limit:
            want = want[:head] + want[size - (limit - head):]
            assert told == {"stdout": (size, limit, head, size - (limit - head))}
        else:
            assert told == {}
        assert (r.out, rest) == (want, b""), size


@pytest.mark.parametrize("char", ["é", "€", "😀"])
def test_case_K2_a_cut_is_never_inside_a_character(one_box, char):
    n = len(char.encode())
    (one_box.work / "in").write_text(char * 5000)
    for limit in range(1000, 1000 + 2 * n):
        r = one_box.ctl("--json", "exec", "-s", "s", "--output-limit", limit,
                        f"cat {one_box.work}/in")
        d = json.loads(r.out)
        assert set(d["stdout"]) == {char}, (limit, d["stdout"][:9])
        assert limit - 2 * n < d["stdout_kept"] <= limit and d["stdout_kept"] % n == 0
        assert d["stdout_bytes"] == 5000 * n


def test_case_K2_bytes_that_are_no_text_are_counted_right(one_box):
    raw = bytes(range(128, 256)) * 100
    (one_box.work / "in").write_bytes(raw)
    r = one_box.ctl("exec", "-s", "s", "--output-limit", "4000", f"cat {one_box.work}/in")
    told, _ = notices(r.err)
    seen, kept, first, last = told["stdout"]
    assert seen == len(raw) and r.out == raw[:first] + raw[last:] and len(r.out) == kept > 3990


# ---- K4 ---------------------------------------------------------------------------------------


def test_case_K4_runs_to_its_end(s):
    text = "for i in $(seq 200000); do echo line $i; done; echo rc_ok"
    count = 200000 if is_long() else 40000
    text = text.replace("200000", str(count))
    whole = "".join(f"line {i}\n" for i in range(1, count + 1)).encode() + b"rc_ok\n"
    r = s.box.ctl("exec", "-s", s.name, text)
    assert r.triple == (0, whole, b""), "without a limit: all of it"
    r = s.box.ctl("exec", "-s", s.name, "--output-limit", "32K", text)
    assert r.status == 0 and r.out == whole[:16384] + whole[-16384:]
    assert notices(r.err) == (
        {"stdout": (len(whole), 32768, 16384, len(whole) - 16384)}, b"")


@pytest.mark.parametrize("text, status", [
    ("seq 1 50000; exit 3", 3), ("seq 1 50000 >&2; (exit 4)", 4),
    ("( (seq 1 50000; : >over) & ) ; until [ -e over ]; do sleep 0.02; done; echo rc_ok", 0),
])
def test_case_K4_more_ends(any_shell, text, status):
    s = any_shell
    d, out, err = capped(s, "1K", text, status=status)
    assert d["truncated"] and d["verdict"] == "exited"
    assert (out or err).startswith("1\n2\n") and (out + err).endswith(("50000\n", "rc_ok\n"))


def test_case_K4_the_configuration_sets_a_limit():
    with Box(ini={"sessions": {"output_limit": "2K"},
                  "session:wide": {"output_limit": "0"}}) as box:
        box.session("s")
        text = "seq 1 10000"
        whole = "".join(f"{i}\n" for i in range(1, 10001)).encode()
        for at in (["-s", "s"], []):
            r = box.ctl("exec", *at, text)
            assert len(r.out) == 2048 and notices(r.err)[0]["stdout"][:2] == (len(whole), 2048)
            # the call's own stands above it
            assert box.ctl("exec", *at, "--output-limit", "0", text).triple == (0, whole, b"")
            assert len(box.ctl("exec", *at, "--output-limit", "100", text).out) == 100
        wait_until(lambda: box.ctl("exec", "-s", "wide", "true").status == 0, 5)
        assert box.exec(text, "wide").out == whole
        # a joined one, too, and the log knows more than the answer
        box.ctl("exec", "-s", "s", "--id", "j", text)
        assert box.ctl("exec", "-s", "s", "--id", "j", "--output-limit", "0", text).out == whole
        assert box.ctl("logs", "j").out == whole
