"""L. Locale, prompt and terminal leftovers."""

import pytest

from rig.box import Box


def test_case_L1_non_ascii_text(s):
    # given no LANG at all, when the text holds UTF-8, then its bytes arrive unchanged
    r = s.exec("echo A\u4f60B | od -An -tx1")
    assert r.out.split() == [b"41", b"e4", b"bd", b"a0", b"42", b"0a"]
    # (busybox's ls shows ? for what its locale does not know; the shell's own glob does not)
    assert s.exec("touch \u4e2d; echo *").out == "\u4e2d\n".encode()
    assert (s.path("\u4e2d")).exists()


@pytest.mark.parametrize("raw", ["\u00e9", "\U0001f600", "a\u0301", "\u202eabc", "\u00a0x",
                                 "\u2028"])
def test_case_L1_more_text(s, raw):
    want = raw.encode()
    assert s.exec(f"printf %s '{raw}'").out == want
    assert s.exec('printf %s "$V"', env={"V": raw}).out == want
    assert s.exec(["printf", "%s", raw]).out == want
    id, _ = s.start(f"printf %s '{raw}'")
    s.box.wait_process(id)
    assert s.box.logs(id).out == want


@pytest.mark.parametrize("lang", ["de_DE.UTF-8", "C", "xx_XX.nonsense"])
def test_case_L2_lc_all_is_never_set(kind, lang):
    with Box(kind, ini={"sessions": {"env.LANG": lang}}) as box:
        box.session("s")
        want = b"unset " + lang.encode() + b"\n"
        assert box.exec("echo ${LC_ALL-unset} $LANG", "s").out == want
        assert box.exec("echo ${LC_ALL-unset} $LANG").out == want


def test_case_L2_no_locale_is_made_up(s):
    r = s.exec("echo ${LC_ALL-unset} ${LANG-unset} ${LANGUAGE-unset} ${LC_CTYPE-none}")
    assert r.out in (b"unset unset unset none\n", b"unset unset unset C.UTF-8\n")


def test_case_L2_no_prompt_and_no_terminal_settings(s):
    # (dash sets PS1 by itself, also where it is not interactive)
    r = s.exec("case $- in *i*) echo interactive;; esac; echo ${COLUMNS-unset}")
    assert r.out == b"unset\n" and r.err == b""
    if s.shell == "bash":
        assert s.exec("echo ${PS1-unset}").out == b"unset\n"


def test_case_L4_noise_of_a_background_child(s):
    r = s.exec("(sleep 0.2; echo noise) & true", timeout=10, deadline=10)
    assert r.status == 0 and r.seconds < 8
    r = s.exec("sleep 0.3; echo mine", deadline=10)
    assert r.triple == (0, b"mine\n", b"")


@pytest.mark.parametrize("noise", ["echo noise >&2", "printf '$ '", "printf '\\033]0;t\\007'"])
def test_case_L4_more_noise(s, noise):
    r = s.exec(f"(sleep 0.1; {noise}) & true", timeout=10, deadline=10)
    assert r.status == 0 and r.seconds < 8
    assert s.exec("sleep 0.15; echo mine", deadline=10).triple == (0, b"mine\n", b"")
