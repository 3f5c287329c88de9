"""S. Terminals: the end of output, window size, re-attach, writing to one that has ended, and
children that keep it open."""

import json
import time

import pytest

from rig import wire
from rig.tterm import Client
from rig.wait import repeats, wait_until

PLACES = ["ns-root", "ns-user", "runc-root", "runc-user", "busybox", "plain-user"]


@pytest.fixture(params=PLACES)
def b(request, pool):
    box = pool.get(request.param)
    yield box
    assert box.is_alive, box.log()[-2000:]
    for t in box.call("ps", kind="terminal").rows:
        box.call("kill", id=t["id"], kind="terminal", grace_ms="0", check=False)


@pytest.fixture
def one(pool):
    box = pool.get("ns-root")
    yield box
    assert box.is_alive, box.log()[-2000:]
    for t in box.call("ps", kind="terminal").rows:
        box.call("kill", id=t["id"], kind="terminal", grace_ms="0", check=False)


def opened(box, *argv, **args):
    """The whole of a terminal over the wire: an Answer."""
    pairs = [("arg", a) for a in argv] + list(args.items())
    return wire.call(box.socket, "terminal.open", pairs)


def lines(n):
    return b"".join(b"%d\r\n" % i for i in range(1, n + 1))


# ---- S1: nothing of the last output is lost ------------------------------------------------------


def test_case_S1_the_tail_always_comes(one):
    for _ in range(repeats(500)):
        a = opened(one, "printf", "tail")
        assert (a.out, a.status) == (b"tail", 0)


def test_case_S1_all_lines(b):
    for _ in range(3):
        a = opened(b, "seq", "1", "20000")
        assert (a.out == lines(20000), a.status) == (True, 0)
    with Client(b, "terminal", "--", "seq", "1", "20000") as c:
        code, seen = c.end(20)
        assert (code, seen == lines(20000)) == (0, True), seen[-200:]


@pytest.mark.parametrize("text, tail, status", [
    ("head -c 300000 /dev/zero | tr '\\0' x; printf end; exit 3", b"xend", 3),
    ("seq 1 5000; kill -9 $$", b"\n5000\r\n", 137),
    ("seq 1 3000; (sleep 30; echo late) & printf end", b"\n3000\r\nend", 0),
    ("stty raw; printf 'a\\nb\\377\\000c'; exec true", b"a\nb\xff\x00c", 0),
    ("exec >/dev/null 2>&1 </dev/null; sleep 0.1; echo back >/dev/tty; exit 6", b"back\r\n", 6),
], ids=["flood", "killed", "held", "raw-bytes", "closed-and-reopened"])
def test_case_S1_like(b, text, tail, status):
    a = opened(b, "sh", "-c", text)
    assert a.out.endswith(tail) and a.status == status, (a.out[-100:], a.fields)


# ---- S2: the window has a size from the beginning ------------------------------------------------


def test_case_S2_size_is_set_before_exec(b):
    a = opened(b, "stty", "size", rows="40", cols="120")
    assert (a.out, a.status) == (b"40 120\r\n", 0)
    assert opened(b, "stty", "size").out == b"24 80\r\n"
    with Client(b, "terminal", "--", "stty", "size", rows=33, cols=101) as c:
        assert c.end() == (0, b"33 101\r\n")


@pytest.mark.parametrize("args, size", [
    ({"rows": "0", "cols": "0"}, b"24 80"), ({"rows": "5"}, b"5 80"), ({"cols": "7"}, b"24 7"),
    ({"rows": "10000", "cols": "10000"}, b"10000 10000"),
])
def test_case_S2_like(one, args, size):
    assert opened(one, "stty", "size", **args).out == size + b"\r\n"


def test_case_S2_a_window_that_cannot_be(one):
    for bad in ({"rows": "10001"}, {"cols": "-1"}, {"rows": "x"}, {"cols": "99999999999999999999"}):
        with pytest.raises(wire.WireError, match="rows|cols"):
            opened(one, "true", **bad)
    # a client whose own terminal has no size, or that has no terminal
    with Client(one, "terminal", "--", "stty", "size", rows=0, cols=0) as c:
        assert c.end() == (0, b"24 80\r\n")
    r = one.ctl("terminal", "--", "stty", "size")
    assert r.triple == (0, b"24 80\r\n", b"")


# ---- S4: the terminal outlives its client --------------------------------------------------------


def test_case_S4_drop_and_come_back(b):
    with Client(b, "terminal", "--id", "back", "--", "sh") as c:
        c.type("x=1; echo be''fore\n")
        c.until(b"before\r\n")
        c.kill()
    with Client(b, "terminal", "attach", "back") as c:
        c.until(b"before\r\n")  # the replay
        c.type("echo \"x is $x\"; exit 9\n")
        c.until(b"x is 1\r\n")
        assert c.end()[0] == 9


def test_case_S4_the_replay_is_bounded_and_cut_safely(one):
    # given more output than is replayed, of characters and escape sequences of many bytes
    text = ("i=0; while [ $i -lt 9000 ]; do printf '\\033[38;5;%dm\\303\\244\\342\\202\\254\\360\\237\\230\\200"
            "\\033]0;title %d\\007%s' $((i % 256)) $i \"$(( i % 7 ))\"; i=$((i+1)); done; echo END")
    a = opened(one, "bash", "-c", text, id="cut")
    assert len(a.out) > 300000
    back = one.call("terminal.attach", id="cut")
    assert 200000 < len(back.out) <= 262144 and a.out.endswith(back.out)
    # then it begins with a whole character outside of any sequence
    back.out.decode("utf-8")
    before = a.out[: -len(back.out)]
    before.decode("utf-8")
    assert before.count(b"\x1b]") == before.count(b"\x07"), before[-60:]
    last = before.rpartition(b"\x1b[")[2]
    assert b"m" in last, before[-60:]


@pytest.mark.parametrize("unit, whole", [
    ("\\033P1$r0m payload \\033\\\\", rb"(\x1bP[^\x1b]*\x1b\\)*"),
    ("\\342\\202\\254", rb"(\xe2\x82\xac)*"),
    ("\\033[1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16H", rb"(\x1b\[[0-9;]*H)*"),
    ("\\033(B\\033#8\\0337", rb"(\x1b\(B\x1b#8\x1b7)*|\x1b#8.*|\x1b7.*"),
], ids=["dcs", "euro", "csi", "charset"])
def test_case_S4_like(one, unit, whole):
    import re
    a = opened(one, "bash", "-c",
               f"u=$(printf '{unit}%.0s' $(seq 100)); stty raw; for i in $(seq 600); do printf %s \"$u\"; done")
    id = a.fields["id"]
    back = one.call("terminal.attach", id=id)
    assert a.out.endswith(back.out) and len(back.out) <= 262144
    assert re.fullmatch(whole, back.out, re.S), (a.out[:80], back.out[:80])
    assert len(back.out) > min(len(a.out), 262144) - 4096


# ---- S7: to write to one that has ended ----------------------------------------------------------


def test_case_S7_write_resize_close(b):
    a = opened(b, "sh", "-c", "exit 4")
    id = a.fields["id"]
    assert a.status == 4
    r = b.ctl("send", id, input=b"x")
    assert r.status == 1 and f"terminal '{id}': has exited (4)".encode() in r.err, r
    for _ in range(2):
        assert b.call("terminal.resize", id=id, rows="9", cols="9").fields["state"] == "exited"
        assert b.ctl("terminal", "kill", id).triple == (0, b"", b"")
    # its status is still to be had
    assert b.ctl("terminal", "attach", id).status == 4
    assert b.ctl("wait", id).status == 4


@pytest.mark.parametrize("text, status", [("exit 0", 0), ("kill -TERM $$", 143), ("exit 255", 255)])
def test_case_S7_like(one, text, status):
    id = opened(one, "sh", "-c", text).fields["id"]
    with pytest.raises(wire.WireError) as e:
        one.call("send", id=id)
    assert e.value.code == "state" and e.value.message.endswith(f"has exited ({status})")
    # input on a connection that looks at it is dropped: the outcome is the answer
    with one.connect() as w:
        w.request("terminal.attach", [("id", id)])
        try:
            w.send(wire.STDIN, b"x")
            w.send(b"w", b"7 7")
        except OSError:
            pass
        assert w.finish().status == status


def test_case_S7_unknown_ones(one):
    p, _ = one.start("sleep 30")
    for verb in ("attach", "kill"):
        for id in ("nosuch", p, "", "x" * 300):
            r = one.ctl("terminal", verb, id)
            assert r.status in (1, 125) and (b"not found" in r.err or b"missing" in r.err), r
    one.call("kill", id=p, grace_ms="0")


# ---- S8: children that keep the terminal open ----------------------------------------------------


def test_case_S8_the_status_comes_at_once(b):
    begun = time.monotonic()
    a = opened(b, "sh", "-c", "trap '' HUP; sleep 20 & exit 3")
    assert a.status == 3 and time.monotonic() - begun < 10
    id = a.fields["id"]

    def strays():
        return [r for r in b.call("ps", kind="terminal").rows if r["id"] == id][0]["strays"]

    # what is left is the terminal's: its kill ends it
    wait_until(lambda: strays() == 1, 5, "the child is listed")
    b.call("kill", id=id, grace_ms="200")
    assert strays() == 0
    a = opened(b, "sh", "-c", "trap '' HUP; sleep 20 & until read c </proc/$!/comm; "
                               "[ \"$c\" = sleep ]; do sleep 0.02; done; exit 3")
    assert a.status == 3 and [s.split()[1] for s in a.fields["strays"]] == ["sleep"]
    b.call("kill", id=a.fields["id"], grace_ms="200")


@pytest.mark.parametrize("text", [
    "setsid sleep 20 & exit 3",
    "(trap '' HUP TERM; while :; do sleep 0.2; done) & exit 3",
    "(trap '' HUP; while :; do echo flood; done) & sleep 0.1; exit 3",
    "nohup sleep 20 >/dev/tty 2>&1 & exit 3",
], ids=["setsid", "loop", "flood", "nohup"])
def test_case_S8_like(one, text):
    begun = time.monotonic()
    a = opened(one, "bash", "-c", text)
    assert a.status == 3 and time.monotonic() - begun < 10, a.fields
    one.call("kill", id=a.fields["id"], grace_ms="100")


def test_case_S8_typed(one):
    with Client(one, "terminal", "--", "bash", "--norc") as c:
        c.type("trap '' HUP; sleep 20 & echo pid=$!; exit 3\n")
        begun = time.monotonic()
        code, seen = c.end()
        assert code == 3 and time.monotonic() - begun < 10, seen


def test_case_S8_who_holds_it_is_hung_up(one):
    # a foreground child that waits for the terminal hears of its end
    mark, ready = one.work / "hung", one.work / "hears"
    a = opened(one, "bash", "-c",
               f"(trap 'echo HUP >{mark}; exit' HUP; : >{ready}; "
               "while :; do read -t 0.1 x <&-; sleep 0.05; done) & "
               f"echo up; until [ -e {ready} ]; do sleep 0.02; done; exit 3")
    assert a.status == 3
    wait_until(mark.exists, 5, "the child hears the hang-up")
    assert json.loads(one.ctl_ok("terminal", "list", "--json").out)[-1]["strays"] in (0, 1)
