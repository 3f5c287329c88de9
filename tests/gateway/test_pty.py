"""GET /v1/sandbox/:id/pty: terminals over WebSocket. Refusals, a client's own terminal, the shared
one of a session, replay, window, signals, bytes; cases S, V and P in the form of this route."""

import os
import socket
import time
from contextlib import suppress
from urllib.parse import unquote

import pytest

from rig.http import GatewayBox
from rig.wait import wait_until
from rig.websocket import OP_BINARY, OP_TEXT, Refused, WebSocket, handshake

INI = {"sessions": {"max_terminals": "200", "kill_grace": "500ms"}}
REPLAY = 256 * 1024


def emptied(box):
    yield box
    box.call("kill-all", grace_ms="0")
    wait_until(lambda: not live(box), 20, "no terminal lives")


@pytest.fixture
def gw(gw):
    yield from emptied(gw)


@pytest.fixture
def gw(gw):
    yield from emptied(gw)


def live(box):
    return [r for r in box.call("ps", kind="terminal").rows if r["state"] != "exited"]


def pty(box, query="", **kw):
    ws = WebSocket(box.http, f"pty?{query}", **kw)
    try:
        return ws.until_ready()
    except BaseException:
        ws.drop()
        raise


def plain(box, query="shell=sh", **kw):
    """A terminal that echoes nothing, with a shell without a prompt: what is shown is output."""
    ws = pty(box, query, **kw)
    ws.type("stty -echo; PS1=; PS2=; echo be''gun")
    ws.until("begun\r\n")
    return ws


def result_of(ws, command):
    """What a command prints, in a plain terminal."""
    ws.type(f"{command}; echo '<'end'>'")
    return ws.until(b"<end>\r\n").removesuffix(b"<end>\r\n")


_names = iter(f"pty-{i}" for i in range(10**6))


@pytest.fixture
def session():
    return next(_names)


# ---- refusals ----


@pytest.mark.parametrize("query", [
    "cols=abc", "rows=abc", "cols=", "rows=1.5", "cols=-80", "rows=0", "cols=80x", "cols=%",
    "cols=99999999999999999999", "cols=80&rows=%00", "cols=0x50",
])
def test_sizes_that_are_none(gw, query):
    with pytest.raises(Refused) as e:
        WebSocket(gw.http, f"pty?{query}")
    assert e.value.status == 400 and e.value.response.json == {
        "error": "cols and rows must be valid numbers", "code": "invalid_request"}


@pytest.mark.parametrize("id", ["a/b", "..", "a..b", "a%20b", "x" * 129, "%C3%A4", "a%00b", "%", "a;b"])
def test_session_ids_that_are_none(gw, id):
    with pytest.raises(Refused) as e:
        WebSocket(gw.http, f"pty?session={id}")
    assert e.value.status == 400 and e.value.response.json == {
        "error": "Invalid session ID format", "code": "invalid_request"}
    if "%" not in id:
        with pytest.raises(Refused) as e:
            WebSocket(gw.http, "pty?session=good", {"Session-Id": id})
        assert e.value.response.json["error"] == "Invalid session ID format"


def test_who_may(gw):
    # given no token, a wrong one, or one in a wrong place, then it is refused before the upgrade
    for target, headers in (("pty", {}), ("pty", {"Authorization": "Bearer x"}),
                            ("pty?authorization=Bearer+x", {}), (f"pty?token={gw.token}", {})):
        with pytest.raises(Refused) as e:
            WebSocket(gw.http, target, headers, auth=False)
        assert e.value.status == 401 and e.value.response.json == {
            "error": "Unauthorized", "code": "unauthorized"}
    # the form of the id comes first
    with pytest.raises(Refused) as e:
        WebSocket(gw.http, "/v1/sandbox/UPPER/pty", auth=False)
    assert e.value.response.json["error"] == "Invalid sandbox ID format"
    # a browser has no headers: the query will do
    token = gw.token.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    with WebSocket(gw.http, f"pty?cols=90&authorization=Bearer+{token}", auth=False) as ws:
        ws.until_ready()
    for scheme in ("bearer", "BEARER"):
        with WebSocket(gw.http, "pty", {"Authorization": f"{scheme} {gw.token}"}, auth=False) as ws:
            ws.until_ready()


def test_other_methods(gw):
    assert gw.http.request("POST", "pty", b"").status == 404
    r = gw.http.request("GET", "pty")
    assert (r.status, r.json) == (400, {"error": "WebSocket upgrade required", "code": "invalid_request"})
    # a bad size does not matter then: it is no terminal anyway
    assert gw.http.request("GET", "pty?cols=x").json["error"] == "WebSocket upgrade required"


def test_a_page_of_another_origin(gw):
    # given a gateway without a token; then a page from elsewhere gets no terminal, its own does
    with GatewayBox("ns-root", token=None) as box:
        for origin in ("https://evil.example", "null", "http://box.evil.example", "http://box:81"):
            with pytest.raises(Refused) as e:
                WebSocket(box.http, "pty", {"Origin": origin, "Host": "box:80"})
            assert e.value.status == 403
        for headers in ({"Origin": "http://box:80", "Host": "box:80"}, {"Host": "box:80"}):
            with WebSocket(box.http, "pty", headers) as ws:
                ws.until_ready()
    # who shows a token is trusted
    with WebSocket(gw.http, "pty", {"Origin": "https://elsewhere.example"}) as ws:
        ws.until_ready()


def test_no_terminal_is_left_to_be_had(gw):
    # given init's limit, then it is a status that says so
    with GatewayBox("ns-root", ini={"sessions": {"max_terminals": "1"}}) as box, pty(box):
        with pytest.raises(Refused) as e:
            WebSocket(box.http, "pty")
        assert (e.value.status, e.value.response.json) == (503, {
            "error": "1 terminals live, max_terminals is 1",
            "code": "capacity_exceeded"})


# ---- a client's own terminal ----


def test_the_shell(gw):
    with pty(gw, "cols=101&rows=33") as ws:
        # it is bash, interactive, no login shell, and the screen is cleared before the first prompt
        assert ws.replay == b""
        ws.type("echo \"-$-- $TERM $PWD $(tty) $(stty size)\"; shopt login_shell; echo $PROMPT_COMMAND.")
        seen = ws.until(b"\r\n.\r\n")
        assert b"i" in seen.split(b"-")[1] or b"himBH" in seen, seen
        assert b"xterm-256color /workspace /dev/pts/" in seen and b" 33 101\r\n" in seen
        assert b"login_shell    \toff" in seen
        assert b"cannot set terminal process group" not in seen and b"no job control" not in seen
        ws.type("exit 7")
        assert ws.ended() == {"type": "exit", "code": 7}


def test_standard_size(gw):
    with plain(gw) as ws:
        assert result_of(ws, "stty size") == b"24 80\r\n"


@pytest.mark.parametrize("text, end", [
    ("exit 0", {"code": 0}), ("exit 300", {"code": 44}),
    ("kill -9 $$", {"code": 137, "signal": "SIGKILL"}),
    ("exec sh -c 'kill -TERM $$; sleep 5'", {"code": 143, "signal": "SIGTERM"}),
])
def test_how_it_ended(gw, text, end):
    with plain(gw) as ws:
        ws.type(text)
        assert ws.ended() == {"type": "exit", **end}


def test_what_the_sdk_sends(gw):
    # given clients that wait for `ready`, discard what came before, and send one line
    command = "cd '/workspace' || exit $?; echo \"$PWD\" o''ut; read x; echo \"got $x\""
    with pty(gw, "cols=80&rows=24") as ws:
        ws.binary(b"/bin/sh -c '" + command.replace("'", "'\\''").encode() + b"'\n")
        ws.until(b"/workspace out\r\n")
        ws.binary(b"typed\n")
        ws.until(b"got typed\r\n")


def test_a_shell_of_its_own(gw):
    with pty(gw, "shell=/bin/sh") as ws:
        ws.type("echo \"<$0>\"")
        ws.until(b"</bin/sh>")
    with pty(gw, "shell=head") as ws:
        assert ws.type("line").until(b"line\r\nline\r\n")


@pytest.mark.parametrize("shell, why", [
    ("/no/such/shell", "No such file or directory"), ("no-such-shell", "No such file or directory"),
    ("/etc/passwd", "Permission denied"), ("/", "Permission denied")])
def test_a_shell_that_cannot_be_started(gw, shell, why):
    with WebSocket(gw.http, f"pty?shell={shell}") as ws:
        assert ws.closed()[0] == 1011
        assert [m["type"] for m in ws.told] == ["error"] and not ws.shown
        assert shell in ws.told[0]["message"] and why in ws.told[0]["message"]


REFUSED = [("no-such-shell", "No such file or directory"), ("/no/such/shell", "No such file or directory"),
           ("/etc/passwd", "Permission denied"), ("/", "Permission denied"),
           ("it's%20$(no%20shell)", "No such file or directory"), ("-v", "No such file or directory")]


@pytest.mark.parametrize("kind", ["bash", "dash"])
@pytest.mark.parametrize("shell, why", REFUSED)
def test_a_shell_that_cannot_be_started_in_a_session(gw, kind, shell, why):
    # given a session, whose shell is to start it, and does not; then nothing but an error comes, also
    # where that shell ends at the first failure, and the session is as it was
    session = f"refused-{kind}"
    gw.call("session.create", name=session, shell=f"/bin/{kind}")
    gw.call("exec", session=session, text="x=1; set -eu")
    pid = gw.call("session.show", name=session)["pid"]
    with WebSocket(gw.http, f"pty?session={session}&shell={shell}") as ws:
        assert ws.closed()[0] == 1011
        assert [m["type"] for m in ws.told] == ["error"] and not ws.shown
        assert unquote(shell) in ws.told[0]["message"] and why in ws.told[0]["message"]
    assert gw.exec("echo $x", session).out == b"1\n"
    assert gw.call("session.show", name=session)["pid"] == pid
    # and one that can be may end with that status
    with WebSocket(gw.http, f"pty?session={session}&shell=sh") as ws:
        ws.until_ready()
        ws.type("exit 127")
        assert ws.ended() == {"type": "exit", "code": 127}
    gw.call("session.delete", name=session)


def test_a_shell_that_only_its_start_refuses_in_a_session(gw):
    # given a file that looks like a program and is none, then its error comes behind what it said
    script = gw.exec("d=$(mktemp -d); printf '#!/no/such/interpreter\n' >$d/sh; chmod +x $d/sh; echo $d/sh")
    shell = script.out.decode().strip()
    with WebSocket(gw.http, f"pty?session=refused&shell={shell}") as ws:
        assert ws.closed()[0] == 1011
        assert ws.told[-1]["type"] == "error" and shell.encode() in ws.shown
    with WebSocket(gw.http, "pty?session=refused&shell=sh") as ws:
        ws.until_ready()
        ws.type("exit 127")
        assert ws.ended() == {"type": "exit", "code": 127}


def test_each_client_has_its_own(gw):
    with plain(gw) as a, plain(gw) as b:
        assert result_of(a, "x=1; tty") != result_of(b, "tty")
        assert result_of(b, "echo \"<$x>\"") == b"<>\r\n"


def test_it_hangs_up_with_its_client(gw):
    # given a tree with a daemon and one that ignores signals
    with plain(gw) as ws:
        ws.type("sleep 4242 & (trap '' HUP TERM; sleep 4242; :) & setsid sleep 4242 &")
        wait_until(lambda: len([p for p in gw.find("sleep 4242") if p.comm == "sleep"]) == 3, 10, "3")
    # when the client leaves without a word, then nothing of it is left
    wait_until(lambda: not gw.find("sleep 4242"), 20, "the tree is gone")
    wait_until(lambda: not live(gw), 20, "the terminal is gone")
    wait_until(lambda: not [r for r in gw.call("ps", kind="terminal").rows if not r["session"]], 10, "it is forgotten")


# ---- the terminal of a session ----


def test_case_S4_a_session_has_one_terminal(gw, session):
    box = gw
    with plain(box, f"session={session}") as a:
        assert result_of(a, "x=1; echo $PWD") == b"/workspace\r\n"
        with pty(box, "session=other", headers={"Session-Id": session}) as b:  # the header wins
            b.type("echo b''oth $x")
            a.until(b"both 1\r\n"), b.until(b"both 1\r\n")
            # what either types, both see; and they may come in any number
            with pty(box, f"session={session}") as c:
                assert b"both 1\r\n" in c.replay
                c.type("echo al''l; x=2")
                for ws in (a, b, c):
                    ws.until(b"all\r\n")
    # it lives on without them
    wait_until(lambda: [r["viewers"] for r in live(box) if r["session"] == session] == [0], 10,
               "it lives, and nobody looks")
    with pty(box, f"session={session}") as d, pty(box, f"session={session}") as e:
        d.type("echo \"<$x>\"")
        d.until(b"<2>\r\n"), e.until(b"<2>\r\n")
        # and its end is told to all
        d.type("exit 5")
        assert d.ended() == e.ended() == {"type": "exit", "code": 5}
    # the next one gets another
    with plain(box, f"session={session}") as f:
        assert f.replay == b"" and result_of(f, "echo \"<$x>\"") == b"<>\r\n"


def test_cwd_and_env_are_the_sessions(gw, session):
    gw.call("session.create", name=session, cwd="/tmp", env="GIVEN=by http")
    gw.call("exec", session=session, text="cd /; export CHANGED='it is'; f() { echo from f; }")
    with plain(gw, f"session={session}&shell=bash") as ws:
        assert result_of(ws, "echo $PWD $GIVEN $CHANGED").endswith(b"\n/ by http it is\r\n")
    with pty(gw, f"session={session}") as ws:
        ws.type("exit")
        ws.ended()
    with plain(gw, f"session={session}") as ws:  # the session's shell has its functions, too
        assert result_of(ws, "f").endswith(b"from f\r\n")


def test_the_session_is_deleted(gw, session):
    with plain(gw, f"session={session}") as ws:
        gw.call("session.delete", name=session)
        end = ws.ended()
        assert end["code"] == 137 and set(end) <= {"type", "code", "signal"}


def test_sessions_with_long_and_odd_names(gw):
    for id in ("x" * 128, "-rf", "_a.b-c"):
        with plain(gw, f"session={id}") as a, pty(gw, f"session={id}") as b:
            a.type("echo to''gether")
            b.until(b"together\r\n")


def test_a_busy_session_is_waited_for(gw, session):
    gw.call("session.create", name=session)
    with gw.connect() as busy:
        busy.request("exec", [("session", session)], "read x </dev/tty || sleep 4243").finish(
            until=lambda a: a.notes)
        with gw.http.open() as c:
            c.request("GET", f"{gw.http.root}/pty?session={session}", {**handshake(), **dict(gw.http.auth())})
            wait_until(lambda: gw.call("session.show", name=session).rows, 10, "it waits")
            busy.send(b"k"), busy.finish()
            assert c.response().status == 101


# ---- replay ----


def test_case_S4_replay_is_one_frame_and_then_ready(gw, session):
    # given more output than is kept
    with plain(gw, f"session={session}") as ws:
        ws.type("yes 0123456789abcdef | head -c 600000; printf 'MA%s\\n' RK")
        ws.until(b"MARK\r\n")
    # when somebody comes, then the first frame is the last 256 KiB of it, the second one `ready`
    with WebSocket(gw.http, f"pty?session={session}") as ws:
        replay, ready = ws.receive(), ws.receive()
        assert (replay.op, ready.op, ready.json) == (OP_BINARY, OP_TEXT, {"type": "ready"})
        assert REPLAY - 4096 < len(replay.data) <= REPLAY and replay.data.endswith(b"MARK\r\n")
        assert replay.data.startswith(b"0123456789abcdef\r\n")  # cut at the beginning of a line
        ws.type("echo li''ve")
        assert ws.until(b"live\r\n").count(b"MARK") == 0
    # what is shown before and after is one sequence, though it is written meanwhile
    with pty(gw, f"session={session}") as a:
        a.type("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo do''ne")
        a.until(b"line 5000\r\n")
        with pty(gw, f"session={session}") as b:
            if b"done\r\n" not in b.replay:  # it may be over already
                b.until(b"done\r\n")
            seen = [int(n) for n in (b.replay + b.shown).split() if n.isdigit()]
    with pty(gw, f"session={session}") as c:
        seen = [int(w) for w in c.replay.split(b"done")[0].split()[1:] if w.isdigit()]
        assert seen[-1] == 19999 and seen[-10000:] == list(range(10000, 20000))


# ---- the window ----


def test_resize(gw):
    with plain(gw) as ws:
        ws.type("sh -c 'trap \"stty size\" WINCH; echo arm''ed; while :; do sleep 0.1; done'")
        ws.until(b"armed\r\n")
        ws.text({"type": "resize", "cols": 132, "rows": 43})
        ws.until(b"43 132\r\n")
        ws.text({"type": "resize", "cols": 50.9, "rows": 1e9})  # whatever that is, it is positive
        ws.until(b"10000 50\r\n")


@pytest.mark.parametrize("text, message", [
    ('{"type":"resize","cols":0,"rows":24}', "Invalid dimensions: cols and rows must be positive"),
    ('{"type":"resize","cols":80,"rows":-1}', "Invalid dimensions: cols and rows must be positive"),
    ('{"type":"resize","cols":80}', "Invalid dimensions: cols and rows must be positive"),
    ('{"type":"resize","cols":"80","rows":"24"}', "Invalid dimensions: cols and rows must be positive"),
    ('{"type":"resize"', "Invalid control message"), ("", "Invalid control message"),
    ("hello", "Invalid control message"), ('{"type":"resize"} x', "Invalid control message"),
    ("[" * 100000, "Invalid control message"),
    ('{"type":"dance"}', None), ('{"type":5}', None), ("{}", None), ("[]", None), ("null", None),
    ('"resize"', None), ("17", None), ('{"type":"resize\\u0000","cols":1,"rows":1}', None),
], ids=range(17))
def test_control_messages(gw, text, message):
    with plain(gw) as ws:
        ws.text(text)
        if message:
            assert ws.until_told("error") == {"type": "error", "message": message}
        assert result_of(ws, "stty size") == b"24 80\r\n"  # it goes on, and nothing has changed
        assert [m["type"] for m in ws.told] == ["ready"] + ["error"] * bool(message)


def test_the_window_is_that_of_the_one_in_front(gw, session):
    with plain(gw, f"session={session}&cols=90&rows=30") as a, \
            pty(gw, f"session={session}&cols=70&rows=20") as b:
        assert result_of(a, "stty size") == b"30 90\r\n"  # it types
        b.type("stty size")
        b.until(b"20 70\r\n")
        a.text({"type": "resize", "cols": 91, "rows": 31})
        wait_until(lambda: b"31 91" in result_of(a, "stty size"), 10, "a is in front")


# ---- signals and job control (cases V) ----


def test_case_V1_job_control(gw):
    with pty(gw) as ws:
        ws.type("PS1=; bind 'set enable-bracketed-paste off'; stty -echo; echo be''gun")
        ws.until(b"begun\r\n")
        # ^C ends what is in front, not the shell
        ws.type("echo on''e; sleep 4244; echo status $?")
        ws.until(b"one\r\n")
        wait_until(lambda: gw.find("sleep 4244"), 10, "it sleeps")
        ws.binary(b"\x03")
        wait_until(lambda: not gw.find("sleep 4244"), 10, "it was interrupted")
        ws.type("echo status $?")
        ws.until(b"status 130\r\n")
        # ^Z stops it, fg goes on, jobs lists
        ws.type("sleep 4245")
        wait_until(lambda: gw.find("sleep 4245"), 10, "it sleeps")
        ws.binary(b"\x1a")
        ws.until(b"Stopped")
        ws.type("jobs; bg; jobs")
        ws.until(b"Stopped"), ws.until(b"Running")
        ws.type("kill %1; wait; jobs; echo no m''ore")
        ws.until(b"no more\r\n")
        # ^D is the end; the line discipline eats one that comes before readline's prompt
        ws.type("PS1='here: '")
        ws.until(b"here: ")
        ws.binary(b"\x04")
        assert ws.ended()["code"] == 0


def test_case_V2_and_V4_a_child_may_read(gw):
    # given tostop and a child in a group of its own, then it is in the foreground
    with plain(gw) as ws:
        ws.type("stty tostop; sh -c 'read x; echo \"got $x\"'")
        ws.type("line")
        ws.until(b"got line\r\n")
    with plain(gw, "shell=bash") as ws:
        ws.type("python3 -c 'import os; os.tcgetpgrp(0)' 2>/dev/null; bash -ic 'read x; echo \"inner $x\"'")
        ws.type("deep")
        ws.until(b"inner deep\r\n")


# ---- cases S ----


def test_case_S1_the_tail_always_comes(gw):
    for i in range(20):
        with WebSocket(gw.http, "pty?shell=sh") as ws:
            ws.type(f"stty -echo; seq 1 {i * 200}; printf ta''il; exit 3")
            assert ws.ended()["code"] == 3
            assert ws.shown.endswith(b"tail"), ws.shown[-100:]


def test_case_S2_the_size_is_there_from_the_beginning(gw):
    with pty(gw, "cols=120&rows=40&shell=sh") as ws:
        ws.type("stty size; exit")
        ws.ended()
        assert b"40 120\r\n" in ws.shown


def test_case_S7_typing_at_one_that_is_gone(gw, session):
    with plain(gw, f"session={session}") as a, pty(gw, f"session={session}") as b:
        a.type("exit 4")
        for _ in range(3):
            try:
                b.type("x"), b.text({"type": "resize", "cols": 3, "rows": 3})
            except OSError:
                pass
        assert a.ended()["code"] == 4
        try:
            assert b.ended()["code"] == 4
        except ConnectionResetError:
            pass


def test_case_S8_a_child_that_holds_it_open(gw):
    with plain(gw) as ws:
        begun = time.monotonic()
        ws.type("trap '' HUP; sleep 4246 & exit 3")
        assert ws.ended()["code"] == 3 and time.monotonic() - begun < 10
    for p in gw.find("sleep 4246"):
        with suppress(ProcessLookupError):  # it is hung up meanwhile
            os.kill(p.pid, 9)


# ---- cases P: bytes and names ----


def raw(box, query, command, **kw):
    """A terminal that passes bytes as they are."""
    ws = plain(box, query, **kw)
    ws.type(f"stty raw; echo r''aw; {command}")
    ws.until(b"raw\n")
    return ws


@pytest.mark.parametrize("query", ["shell=sh", "session=bytes"])
def test_case_P1_and_P5_a_megabyte_of_any_bytes_and_back(gw, query):
    data = os.urandom(1_000_000)
    with raw(gw, query, f"head -c {len(data)}; stty sane; exit 9") as ws:
        ws.frame(OP_BINARY, data)
        assert ws.ended()["code"] == 9
        assert ws.shown[: len(data)] == data


def test_case_P2_a_name_that_looks_like_an_option(gw):
    with WebSocket(gw.http, "pty?shell=-rf") as ws:
        assert ws.closed()[0] == 1011 and "-rf" in ws.told[0]["message"]


def test_case_P7_quotes_are_literal(gw):
    text = b"say \"hi\" $USER `id` 'x' \\ \xe4\xf6 \xf0\x9f\x98\x80\n"
    with raw(gw, "shell=sh", f"head -c {len(text)}; echo; exit") as ws:
        ws.binary(text)
        ws.ended()
        assert ws.shown.startswith(text)


# ---- many, and slow ones ----


def test_many_at_once(gw):
    # given as many as one client of the SDK may open, each with a shell of its own
    sockets = []
    try:
        for i in range(64):
            sockets.append(WebSocket(gw.http, "pty?shell=sh"))
        for i, ws in enumerate(sockets):
            ws.until_ready().type(f"echo i{i}''i")
        for i, ws in enumerate(sockets):
            ws.until(f"i{i}i\r\n".encode())
        assert len(live(gw)) == 64
    finally:
        for ws in sockets:
            ws.drop()
    wait_until(lambda: not live(gw), 30, "all have hung up")


def test_a_viewer_that_does_not_read_delays_nobody(gw, session):
    # given one of two viewers that reads nothing; when much is shown, then the other gets all
    total = 4_000_000
    with plain(gw, f"session={session}") as fast, \
            WebSocket(gw.http, f"pty?session={session}", receive_buffer=4096) as slow:
        wait_until(lambda: live(gw)[0]["viewers"] == 2, 10, "both look")
        fast.type(f"stty raw; yes 0123456789 | head -c {total}; printf 'AL%s' L")
        assert fast.until(b"ALL", deadline=60).count(b"0123456789") >= total // 11
        # and when it reads again it is told what it lost, and shown what came last
        slow.until_ready()
        slow.until(b" bytes are left out: read too slowly]")
        slow.until(b"ALL")


def test_a_client_that_does_not_read_stops_its_shell(gw):
    # given a client of its own terminal that reads nothing, then the shell waits, and nothing is lost
    total = 8_000_000
    with raw(gw, "shell=sh", f"yes 0123456789 | head -c {total}; printf 'AL%s' L",
             receive_buffer=4096) as ws:
        wait_until(lambda: gw.find("yes 0123456789"), 10, "it writes")
        assert gw.http.request("GET", "/health").status == 200
        assert len(ws.until(b"ALL", deadline=60)) == total + 3


@pytest.mark.long
def test_a_viewer_that_never_reads_is_dropped_alone(gw, session):
    with plain(gw, f"session={session}") as fast, \
            WebSocket(gw.http, f"pty?session={session}", receive_buffer=4096):
        wait_until(lambda: live(gw)[0]["viewers"] == 2, 10, "both look")
        fast.type("while :; do yes 0123456789 | head -c 1000000; sleep 0.1; done")
        begun = time.monotonic()

        def is_alone():
            fast.until(b"0123456789\r\n"), fast.receive(10)
            fast.shown.clear()
            return live(gw)[0]["viewers"] == 1

        wait_until(is_alone, 90, "the other is dropped")
        assert 25 < time.monotonic() - begun
        fast.binary(b"\x03")
        fast.type("echo st''ill")
        fast.until(b"still\r\n")


def test_a_paused_client_that_leaves(gw):
    # given a shell that takes no input, and a client that has typed much and leaves
    with plain(gw) as ws:
        ws.type("stty raw; echo r''aw; sleep 4247")
        ws.until(b"raw\n")
        ws.sock.settimeout(2)
        try:
            for _ in range(20):
                ws.frame(OP_BINARY, b"x" * 100_000)
        except (socket.timeout, BlockingIOError):
            pass
    wait_until(lambda: not gw.find("sleep 4247"), 20, "it is gone")
