"""J. Bytes of output: final newlines, chunks, encodings."""

import subprocess
import time

import pytest

from rig.wait import repeats


def test_case_J1_no_newline_is_added_or_removed(s):
    assert s.exec("printf yes").triple == (0, b"yes", b"")
    assert s.exec("printf 'a\\nb' ; printf c >&2").triple == (0, b"a\nb", b"c")


@pytest.mark.parametrize("text, out, err", [
    ("printf '\\n'", b"\n", b""), ("printf '\\n\\n\\n'", b"\n\n\n", b""), ("printf ''", b"", b""),
    ("printf ' '", b" ", b""), ("printf '\\r\\n'", b"\r\n", b""), ("printf '\\r'", b"\r", b""),
    ("printf x >&2", b"", b"x"), ("printf 'a'; echo; printf 'b'", b"a\nb", b""),
])
def test_case_J1_more_ends(s, text, out, err):
    assert s.exec(text).triple == (0, out, err)


def test_case_J2_long_lines_are_not_cut(s):
    id, _ = s.start("head -c 9000 /dev/zero | tr '\\0' x; echo")
    s.box.wait_process(id)
    assert s.box.logs(id).out == b"x" * 9000 + b"\n"
    r = s.box.ctl("logs", id)
    assert (r.out, r.err) == (b"x" * 9000 + b"\n", b"")


def test_case_J2_two_streams_alternating(s):
    text = "for i in 1 2 3 4 5 6 7 8 9; do printf %s o$i; printf %s e$i >&2; done"
    for _ in range(repeats(50)):
        r = s.exec(text)
        assert r.triple == (0, b"o1o2o3o4o5o6o7o8o9", b"e1e2e3e4e5e6e7e8e9")
    id, _ = s.start(text)
    s.box.wait_process(id)
    a = s.box.logs(id)
    assert (a.out, a.err) == (b"o1o2o3o4o5o6o7o8o9", b"e1e2e3e4e5e6e7e8e9")


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 65535, 65536, 65537, 131072, 1_000_001])
def test_case_J2_sizes_around_buffers(s, size):
    r = s.run(f"head -c {size} /dev/zero | tr '\\0' y; head -c {size} /dev/zero >&2", deadline=20)
    assert r.out == b"y" * size and r.err == bytes(size)
    assert (r["stdout_bytes"], r["stderr_bytes"]) == (size, size)


def test_case_J4_every_byte_passes(s):
    r = s.run("printf 'ok\\377\\376\\200\\000end'")
    assert (r.status, r.out) == (0, b"ok\xff\xfe\x80\x00end")
    assert s.exec("printf 'ok\\377\\376\\200\\000end'").out == b"ok\xff\xfe\x80\x00end"
    all_bytes = bytes(range(256)) * 3
    s.path("all").write_bytes(all_bytes)
    r = s.exec("cat all; cat all >&2")
    assert (r.out, r.err) == (all_bytes, all_bytes)
    id, _ = s.start("cat all; cat all >&2")
    s.box.wait_process(id)
    a = s.box.logs(id)
    assert (a.out, a.err) == (all_bytes, all_bytes)


@pytest.mark.parametrize("raw", [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\0\0\0",
                                 b"\x1b[31mred\x1b[0m", b"\xef\xbb\xbfbom"])
def test_case_J4_broken_and_odd_sequences(s, raw):
    esc = "".join("\\%03o" % c for c in raw)
    assert s.exec(f"printf '{esc}'").out == raw
    # in the text itself, too (but for NUL, which no shell text can hold)
    if b"\0" not in raw:
        assert s.exec(b"printf %s '" + raw + b"'").out == raw


def test_case_J4_json_says_them_without_an_error(s):
    import json

    r = s.box.ctl("--json", "exec", "-s", s.name, "printf 'ok\\377\\000end'; exit 3")
    assert r.status == 3
    json.loads(r.out.splitlines()[-1])


def test_case_J5_a_slow_reader_gets_all(s):
    want = "".join(f"{i}\n" for i in range(1, 100_001)).encode()
    assert len(want) == 588_895
    for _ in range(repeats(100)):
        p = s.box.ctl_spawn("exec", "-s", s.name, "seq 1 100000")
        got = b""
        while True:  # read in small sips, now and then with a breath
            piece = p.stdout.read1(7000)
            if not piece:
                break
            if len(got) // 100_000 != (len(got) + len(piece)) // 100_000:
                time.sleep(0.02)
            got += piece
        assert p.wait(10) == 0
        p.stdout.close()
        p.stderr.close()
        assert got == want


def test_case_J5_a_reader_that_leaves_early(s):
    # given a pipe like `sandboxctl exec … | head -1`, when head ends, then the session is free soon
    r = subprocess.run(
        ["sh", "-c", '"$0" -S "$1" exec -s "$2" "yes" | head -1', s.box.ctl_path, s.box.socket,
         s.name], capture_output=True, timeout=20)
    assert r.stdout == b"y\n"
    assert s.exec("echo ok", deadline=10).triple == (0, b"ok\n", b"")
