"""B. Stdin: hijacked, inherited or never at its end."""

import pytest

from rig.wait import wait_until


def test_case_B1_stdin_is_at_its_end(s):
    # given commands that read stdin, when they run, then they see its end at once and eat nothing
    r = s.exec("cat", deadline=10)
    assert r.triple == (0, b"", b"") and r.seconds < 8
    assert s.exec("read x; echo [$x]").out == b"[]\n"
    assert s.exec("head -c1; echo ok").out == b"ok\n"
    assert s.exec("echo later").out == b"later\n"


@pytest.mark.parametrize("text, out", [
    ("sh", b""), ("cat - -", b""), ("while read l; do echo got; done; echo end", b"end\n"),
    ("cat <&0 | wc -c | tr -d ' '", b"0\n"), ("(cat)", b""), ("x=$(cat); echo [$x]", b"[]\n"),
    ("cat & wait", b""), ("sort", b""), ("tail -n 1", b""),
])
def test_case_B1_more_readers(s, text, out):
    r = s.exec(text, deadline=10)
    assert (r.status, r.out) == (0, out), (text, r)
    assert s.exec("echo later").out == b"later\n"


def test_case_B1_an_argv_reads_nothing_either(s):
    assert s.exec(["cat"], deadline=10).triple == (0, b"", b"")


def test_case_B2_wc_is_not_ended_by_the_timeout(s):
    r = s.exec("wc -c", timeout=20, deadline=30)
    assert (r.status, r.out.strip()) == (0, b"0") and r.seconds < 15


def test_case_B4_the_end_cannot_be_guessed_from_stdout(s):
    # given output that looks like any end mark that one may think of, when the command goes on,
    # then the call lasts as long as the command and tells its status
    marks = [b"0", b"exit 0", b"__DONE__0", b"\x00\x010\n", b"r\x00status:=0\x00", b"1 0", b"c1 0",
             b"\x1b]133;D;0\x07"]
    for m in marks:
        esc = "".join("\\%03o" % c for c in m)
        r = s.run(f"printf '{esc}\\n'; sleep 0.15; printf '{esc}\\n' >&2; false", deadline=10)
        assert (r.status, r.out, r.err) == (1, m + b"\n", m + b"\n")
        assert 0.15 <= r.seconds < 8
    r = s.run("cat; sleep 0.3", deadline=10)
    assert r.status == 0 and 0.3 <= r.seconds < 8


def test_case_B4_text_on_every_open_descriptor_is_no_end(s):
    # given a text that writes to each descriptor it finds open, when it runs, then its own status
    # comes back (the control descriptors are closed for the text, or out of its reach)
    r = s.exec("for f in /proc/self/fd/*; do n=${f##*/}; [ $n -gt 2 ] && [ $n -lt 10 ] && "
               "eval \"echo '1 0' >&$n\" 2>/dev/null; done; sleep 0.1; (exit 3)", deadline=10)
    assert r.status == 3 and r.seconds >= 0.1
    assert s.exec("echo later").triple == (0, b"later\n", b"")


def test_case_B5_stdin_when_asked_for(s):
    # given a process with stdin, when bytes are sent, then it reads them
    id, _ = s.start("read a; echo got:$a", stdin=True)
    assert s.box.ctl("send", id, input="7\n").status == 0
    assert s.box.wait_process(id)["status"] == 0
    assert s.box.logs(id).out == b"got:7\n"
    # given none was asked for, then it is at its end
    id, _ = s.start("read a; echo rc=$?")
    s.box.wait_process(id)
    assert s.box.logs(id).out == b"rc=1\n"


def test_case_B5_eof_is_sent_on_request(s):
    id, _ = s.start("wc -c", stdin=True)
    assert s.box.ctl("send", id, input="12345").status == 0
    assert s.box.ctl("send", id, "--eof").status == 0
    assert s.box.wait_process(id, deadline=10)["status"] == 0
    assert s.box.logs(id).out.strip() == b"5"


def test_case_B5_sending_after_the_end_is_a_clean_error(s):
    id, _ = s.start("exit 3", stdin=True)
    assert s.box.wait_process(id)["status"] == 3
    for _ in range(3):
        r = s.box.ctl("send", id, input="x" * 100)
        assert r.status != 0 and id.encode() in r.err, r
    # a process that closed its stdin but lives
    id, _ = s.start("exec <&-; echo closed; sleep 30", stdin=True)
    wait_until(lambda: s.box.logs(id).out, 5, "the process has closed its stdin")
    r = s.box.ctl("send", id, input="x" * 100, deadline=10)
    assert r.status != 0 and r.err, r
    assert s.box.is_alive
    assert s.box.ctl("kill", id).status == 0
    # a process without stdin, and one that does not exist
    id, _ = s.start("sleep 30")
    assert s.box.ctl("send", id, input="x").status != 0
    assert s.box.ctl("kill", id).status == 0
    assert s.box.ctl("send", "no-such-id", input="x").status != 0


def test_case_B5_exec_with_stdin(s):
    r = s.exec("cat; echo end", stdin=b"a\0b\xff", deadline=10)
    assert r.triple == (0, b"a\0b\xffend\n", b"")
    # input that the command never reads harms nobody
    r = s.exec("echo done", stdin=b"x" * 300_000, deadline=10)
    assert r.triple == (0, b"done\n", b"")
    r = s.exec("wc -c | tr -d ' '", stdin=b"x" * 1_000_000, deadline=20)
    assert r.triple == (0, b"1000000\n", b"")
    # and an empty one is its end
    assert s.exec("cat", stdin=b"", deadline=10).triple == (0, b"", b"")
