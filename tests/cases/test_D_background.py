"""D. A foreground call waits for nobody who merely holds its output."""

import pytest

from rig.wait import repeats, wait_until


def test_case_D1_a_background_child_delays_nothing(s):
    nap = s.sleep_mark()
    r = s.run(f"sleep {nap} & echo hi", deadline=10)
    assert (r.status, r.out) == (0, b"hi\n") and r.seconds < 8
    # the child lives on and is listed as the session's
    wait_until(lambda: s.box.find(f"sleep {nap}"), 5, "it has become sleep")
    assert len(r["strays"]) == 1, r.fields
    assert s.show()["strays"] == 1
    # and goes on when further commands have run
    s.exec("true")
    assert s.box.find(f"sleep {nap}")


@pytest.mark.parametrize("text", [
    "sleep {n} </dev/null >/dev/null &",  # stderr is held
    "sleep {n} </dev/null 2>/dev/null &",  # stdout is held
    "sleep {n} & disown 2>/dev/null; :",
    "(sleep {n} &)",
    "nohup sleep {n} 2>/dev/null &",
    "{{ sleep {n}; echo late; }} &",
    "sleep {n} | cat &",
    "f() {{ sleep {n}; }}; f &",
    "exec 3>&1; sleep {n} >/dev/null 2>&1 & ",
])
def test_case_D2_quiet_holders(s, text):
    nap = s.sleep_mark()
    if s.box.kind == "busybox":  # its nohup is not in Debian's static build
        text = text.replace("nohup", "setsid")
    r = s.exec(text.format(n=nap), deadline=10)
    assert r.status == 0 and r.seconds < 8, r
    wait_until(lambda: s.box.find(f"sleep {nap}"), 5, "the child is there")
    assert s.exec("echo next").triple == (0, b"next\n", b"")


def test_case_D2_setsid(s):
    nap = s.sleep_mark()
    r = s.exec(f"setsid sleep {nap} & echo a", deadline=10)
    assert r.triple == (0, b"a\n", b"") and r.seconds < 8
    wait_until(lambda: s.box.find(f"sleep {nap}"), 5, "the child is there")


def test_case_D4_daemons(s):
    nap = s.sleep_mark()
    r = s.exec(f"( setsid sleep {nap} & ) ; echo y", deadline=10)
    assert r.triple == (0, b"y\n", b"") and r.seconds < 8
    r = s.exec(f"{s.helper} daemon [ exec sleep {nap} ]; echo z", deadline=10)
    assert r.triple == (0, b"z\n", b"") and r.seconds < 8
    wait_until(lambda: len(s.box.find(f"sleep {nap}")) == 2, 5, "both daemons")


def test_case_D4_nothing_is_kept_per_call(box):
    # given 1000 calls that each leave a daemon behind which holds the output, when the daemons
    # have ended, then init holds no more descriptors than before
    name = box.session()
    box.exec("true", name)
    before = box.fds()
    n = repeats(1000)
    for _ in range(n):
        r = box.exec("( setsid sleep 0.3 & ) ; echo y", name, deadline=10)
        assert r.triple == (0, b"y\n", b"")
    wait_until(lambda: box.fds() <= before, 10, lambda: f"{before} descriptors; now {box.fds()}")
    wait_until(lambda: not box.zombies(), 10, lambda: f"no zombies; {box.zombies()}")
    box.call("session.delete", name=name)


def test_case_D5_all_that_the_foreground_wrote_is_there(s):
    for _ in range(repeats(200)):
        r = s.exec("(sleep 0.05; echo late) & echo early", deadline=30)
        assert r.out in (b"early\n", b"early\nlate\n") and r.status == 0
        # `late` is not in the next call
        r = s.exec("sleep 0.07; echo next", deadline=30)
        assert r.triple == (0, b"next\n", b"")
    for _ in range(repeats(200)):
        r = s.exec("head -c 300000 /dev/zero | tr '\\0' x", deadline=30)
        assert r.status == 0 and r.out == b"x" * 300_000


@pytest.mark.parametrize("text, out, err", [
    ("printf x; printf y >&2", b"x", b"y"),
    ("sh -c 'printf x; printf y >&2' & wait", b"x", b"y"),
    ("head -c 70000 /dev/zero | tr '\\0' z >&2; printf x", b"x", b"z" * 70_000),
    ("(printf 1; : >in; exec sleep 5) & printf 2; until [ -e in ]; do sleep 0.02; done; rm in",
     None, b""),
])
def test_case_D5_writes_just_before_the_end(s, text, out, err):
    for _ in range(repeats(30)):
        r = s.exec(text, deadline=30)
        assert r.status == 0 and r.err == err
        assert sorted(r.out) == sorted(b"12") if out is None else r.out == out


def test_case_D5_a_writer_that_outlives_its_call_is_neither_killed_nor_blocked(s):
    # given a background child that goes on writing more than a pipe holds after the answer, when
    # it ends, then it has written all of it (no SIGPIPE, no block) and nobody else saw a byte
    done = s.path("done")
    r = s.exec("(until [ -e go ]; do sleep 0.02; done; head -c 1000000 /dev/zero; "
               f"echo $? > {done}) & echo now", deadline=30)
    assert r.triple == (0, b"now\n", b"")
    assert s.exec(": >go; sleep 0.2; echo next").triple == (0, b"next\n", b"")
    wait_until(lambda: done.exists() and done.read_text() == "0\n", 30, "the child wrote all")
