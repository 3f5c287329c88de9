"""A. Feeding command text to the shell: heredocs, quotes, newlines, CR."""

import pytest


def same(s, text, status, out, err=b""):
    r = s.exec(text, deadline=10)
    assert r.triple == (status, out, err), text


def test_case_A1_heredoc_terminator(s):
    # given a heredoc with an indented body, when it runs, then the file holds it byte for byte
    file = s.path("a")
    same(s, f"cat > {file} <<'Z'\n one\nZ\nwc -l < {file}", 0, b"1\n")
    assert file.read_bytes() == b" one\n"
    # and the next command of the session comes at once
    r = s.exec("echo next")
    assert r.triple == (0, b"next\n", b"") and r.seconds < 8


@pytest.mark.parametrize("text, out", [
    ("cat <<Z\n\tx\n  Z\nZ", b"\tx\n  Z\n"),  # looks like the terminator but is indented
    ("cat <<'Z'\n$a `b` \\n\nZ\n\n\n", b"$a `b` \\n\n"),
    ("if true; then\ncat <<Z\nin\nZ\nfi", b"in\n"),
    ("f() { cat <<Z; }\nbody $1\nZ\nf 1; f 2", b"body 1\nbody 2\n"),
    ("cat <<Z", b""),  # never terminated
], ids=["indented", "quoted", "in-if", "in-function", "unterminated"])
def test_case_A1_more_heredocs(s, text, out):
    r = s.exec(text, deadline=10)
    assert (r.status, r.out) == (0, out)
    assert s.exec("echo next").out == b"next\n"


def test_case_A1_a_heredoc_whose_terminator_is_followed_by_text(s):
    # given a terminator that bash does not accept, when the text runs, then it ends with the
    # shell's own complaint and the session goes on
    r = s.exec("{ cat <<Z; }\nx\nZ; }\n", deadline=10)
    assert b"Z; }" in r.out + r.err or r.status == 2
    assert s.exec("echo next").triple == (0, b"next\n", b"")


def test_case_A3_no_marks_of_ours_in_files(s):
    # given a heredoc that goes to a file, when it has run, then nothing of ours is in the file
    file = s.path("h")
    same(s, f"cat > {file} <<E\nbody\nE", 0, b"")
    assert file.read_bytes() == b"body\n"
    # nor a heredoc without a final newline
    same(s, f"cat > {file} <<E\nlast\nE\ncat {file}", 0, b"last\n")


def test_case_A3_no_marks_of_ours_in_history_or_underscore(s):
    # $_ after a text is the text's own last word (bash), or at least nothing of ours
    s.exec("echo a lastword")
    r = s.exec('echo "[$_]"')
    assert b"fifo" not in r.out and b"sandbox" not in r.out and b"eval" not in r.out, r.out
    if s.shell == "bash":
        r = s.exec("set -o history; history")
        assert b"fifo" not in r.out and b"command ." not in r.out
        s.exec("set +o history")


def test_case_A3_no_marks_of_ours_in_xtrace(s):
    # given set -x, when commands run, then the trace holds the user's commands only
    s.exec("set -x")
    r = s.exec("echo traced", deadline=10)
    assert (r.status, r.out) == (0, b"traced\n")
    # the file that holds the text is invisible: the trace shows the statement, once
    assert [l for l in r.err.splitlines() if b"traced" not in l] == [], r.err
    r = s.exec("set +x")
    assert [l for l in r.err.splitlines() if b"set +x" not in l] == [], r.err
    assert s.exec("echo quiet").triple == (0, b"quiet\n", b"")


def test_case_A3_no_marks_of_ours_in_a_debug_trap(s):
    if s.shell != "bash":
        return
    r = s.exec("trap 'echo \"<$BASH_COMMAND>\"' DEBUG; true a; true b", deadline=10)
    assert r.out == b"<true a>\n<true b>\n"
    # DEBUG traps last for their text
    assert s.exec("true c").triple == (0, b"", b"")


def test_case_A3_set_x_shows_the_text_only(s):
    # given a session that traces, when a call brings a folder and a variable of its own, then its
    # stderr has the text's lines and nothing of ours
    plain = s.exec("set -x; :").err
    r = s.exec("echo hi", cwd="/tmp", env={"E": "1"})
    assert (r.status, r.out) == (0, b"hi\n")
    assert r.err.count(b"echo hi") == 1 and len(r.err.splitlines()) == 1, (plain, r.err)
    assert s.exec("set +x; echo off").out == b"off\n"


def test_case_A3_a_readonly_variable_of_a_call(s):
    s.exec("readonly E=old")
    r = s.run("echo ran", env={"E": "new"})
    if s.shell == "bash":
        assert (r.status, r.out) == (125, b"") and r["message"] == "env E: readonly in the session"
    else:  # (dash and ash say it themselves)
        assert (r.status, r.out) == (2, b"") and b"read" in r.err, r
    assert s.exec("echo $E").triple == (0, b"old\n", b"")
    # a text that fails by itself is not taken for one that did not run
    assert s.exec("false", env={"F": "1"}).status == 1
    assert s.exec("exec 2>&-; false", env={"F": "1"}).status == 1


def test_case_A4_two_heredocs_on_one_line(s):
    if s.shell == "bash" or s.box.kind != "busybox":
        same(s, "echo t && tr a-z A-Z <<'Q-1' && cat <<-X | rev\nab\nQ-1\n\tcd\n\tX", 0,
             b"t\nAB\ndc\n")
    same(s, "cat <<A - <<B\na\nA\nb\nB\n", 0, b"b\n")
    same(s, "cat <<'E O F' && cat <<\"x\"\n$1\nE O F\n$2\nx", 0, b"$1\n$2\n")


def test_case_A6_bad_syntax(s):
    # given a text with bad syntax, when it runs, then 2 and the shell's message come back
    r = s.exec("for in do ((", deadline=10)
    assert r.status == 2
    assert r.err
    # and $? of the next text is the status of the previous one, as in an interactive shell
    assert s.exec("echo $?").triple == (0, b"2\n", b"")


@pytest.mark.parametrize("text", ["echo 'x", "if true", "}", "case x in", "echo $(", 'echo "',
                                  "a=(", "&& x", ";;"])
def test_case_A6_more_bad_syntax(s, text):
    s.exec("keep=1")
    r = s.exec(text, deadline=10)
    if s.shell == "bash" or text != "a=(":
        # bash says 1 for an array that does not end, also as `bash -c`
        assert r.status == (1 if text == "a=(" else 2) and r.err, (text, r)
    assert s.exec("echo ok $keep").triple == (0, b"ok 1\n", b"")


def test_case_A6_what_stands_before_the_bad_line_has_run(s):
    r = s.exec("echo before\nfi\necho after", deadline=10)
    assert (r.status, r.out) == (2, b"before\n")


def test_case_A6_status_of_the_previous_text(s):
    s.exec("(exit 77)")
    assert s.exec('echo "$?"').out == b"77\n"
    assert s.exec('echo "$?"').out == b"0\n"


def test_case_A8_many_lines_everywhere(s):
    same(s, "echo a\necho b", 0, b"a\nb\n")
    id, _ = s.start("printf '%s\\n' x\nsleep 0.1")
    assert s.box.wait_process(id)["status"] == 0
    assert s.box.logs(id).out == b"x\n"
    # newlines in a value and in a folder's name
    r = s.exec('printf %s "$V"', env={"V": "1\n2\n\n"})
    assert r.triple == (0, b"1\n2\n\n", b"")
    folder = s.path("new\nline")
    folder.mkdir()
    assert s.exec("pwd", cwd=folder).triple == (0, bytes(folder) + b"\n", b"")
    # an argv with a newline
    assert s.exec(["printf", "%s", "p\nq"]).triple == (0, b"p\nq", b"")


@pytest.mark.parametrize("text, out", [
    ("", b""), ("\n\n\n", b""), ("# only a comment", b""), ("   ", b""), ("\t\n#x", b""),
    ("echo a \\\n b", b"a b\n"), ("echo 'a\r'", b"a\r\n"), ("echo a;", b"a\n"),
    ("echo a #x", b"a\n"), ("echo 'it'\\''s'", b"it's\n"), ("echo \"$(printf %s '\"')\"", b'"\n'),
    ("-n() { :; }; echo -n x", b"x"), ("echo \\", b"\\\n"), ("-x 2>/dev/null; echo $?", b"127\n"),
    ("echo x & wait", b"x\n"), ("{ echo a; }", b"a\n"), ("! false", b""), (": ${x:=}}", b""),
], ids=range(18))
def test_case_A8_texts_of_all_shapes(s, text, out):
    if text.startswith("-n()") and s.shell != "bash":
        text = "echo x | tr -d '\\n'"
    r = s.exec(text, deadline=10)
    assert (r.status, r.out) == (0, out), (text, r)
    assert s.exec("echo next").out == b"next\n"


def test_case_A8_carriage_returns_pass_unchanged(s):
    # settled choice 4: no CRLF edits; the shell sees the CR as part of the word
    r = s.exec("printf %s a\r\nprintf %s b\r\n")
    assert (r.status, r.out) == (0, b"a\rb\r")


@pytest.mark.parametrize("text", ["break", "continue", "while :; do break 5; done", "return 3",
                                  "f() { return 4; }; f", "shift 1000", "unset -f command",
                                  "command() { echo mine; }", "eval() { echo mine; }",
                                  "alias echo='echo aliased'", "unset PATH", "IFS=/", "cd /",
                                  "set -- a b c", "PS1=x PS4=y", "umask 777", "readonly r=1",
                                  "trap '' INT", "exec 5>&1", "exec >/dev/null", "set -f"])
def test_case_A4_texts_that_could_break_a_driver(s, text):
    # given a text that changes what a driver might lean on, when it has run, then the session
    # still runs commands and tells their output and status
    s.exec(text, deadline=10)
    r = s.exec("printf '%s\\n' here; (exit 9)", deadline=10)
    assert (r.status, r.out) == (9, b"here\n"), (text, r)


@pytest.mark.parametrize("status, text", [(3, "return 3"), (4, "f() { return 4; }; f"),
                                          (0, "while :; do break 5; done"), (5, "(exit 5)"),
                                          (6, "sh -c 'exit 6'"), (127, "no-such-program-x"),
                                          (126, "/")])
def test_case_A6_statuses(s, status, text):
    r = s.exec(text, deadline=10)
    assert r.status == status, (text, r)
