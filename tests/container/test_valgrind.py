"""A listed subset of what init does, under valgrind's memcheck: no error, and on an orderly stop
nothing that was allocated is lost or still held. A reload is not among them: its child runs
/proc/self/exe, which is valgrind's there; the parsing behind it is run by its unit test."""

import shutil
import signal
import subprocess

import pytest

from rig import wire
from rig.box import Box, build_dir
from rig.places import make_session
from rig.wait import wait_until

pytestmark = pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind here")

VALGRIND = ["valgrind", "--quiet", "--vgdb=no", "--leak-check=full", "--show-leak-kinds=all",
            "--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=99",
            "--trace-children=no", "--child-silent-after-fork=yes"]
INI = {"init": {"stop_grace": "10s"}, "sessions": {"kill_grace": "500ms"},
       "session:boot": {"shell": "/bin/bash"}}


def commands(box):
    for shell in ("bash", "dash", "ash"):
        s = make_session(box, shell)
        assert s.exec("x=1; echo hi; echo e >&2").triple == (0, b"hi\n", b"e\n")
        assert s.run("echo $x$E", cwd="/", env={"E": "2"}).out == b"12\n"
        assert s.run("cat", stdin="some\nlines\n").out == b"some\nlines\n"
        assert s.run("exit 3").status == 3
        assert s.run("sleep 50", timeout=0.3).status == 124
        assert s.run("head -c 3000000 /dev/zero | tr '\\0' x").out == b"x" * 3_000_000
        s.run("sleep 50 & echo left")
        assert box.call("session.env", name=s.name, env="A=b").is_complete
        box.call("session.reset", name=s.name)
        assert box.call("session.delete", name=s.name)["name"] == s.name
    assert box.call_exec("exit 4").status == 4
    assert box.call_exec(["/bin/echo", "hi"]).out == b"hi\n"
    assert box.call_exec("sleep 50", timeout=0.2).status == 124


def processes(box):
    s = make_session(box)
    id, _ = box.start("echo a; read x; echo $x", s.name, stdin=True)
    with box.connect() as w:
        w.request("send", [("id", id)])
        w.send(wire.STDIN, b"in\n")
        w.send(wire.STDIN, b"")
        w.sock.shutdown(1)
        w.finish()
    assert box.wait_process(id)["status"] == 0
    assert box.logs(id).out == b"a\nin\n"
    assert box.logs(id, tail="1").out == b"in\n"
    id, _ = box.start("sleep 50 & sleep 51")
    box.ps(), box.call("tree"), box.call("session.list"), box.call("session.show", name=s.name)
    box.call("kill", id=id)
    box.start("sleep 52", s.name)
    box.call("kill-all")


def clients_that_leave(box):
    s = make_session(box)
    for args, text in (([("session", s.name)], "sleep 60"), ([], "sleep 61 & sleep 62"),
                       ([("session", s.name)], "yes")):
        for verb in ("exec", "exec", "start"):
            w = box.connect()
            w.request(verb, args, text)
            w.close()
    for packet in (b"", b"x", b"exec\0", b"nope\0", b"exec\0text_size=9\0", b"exec\0text=x"):
        w = box.connect()
        w.raw(packet)
        w.close()
    box.call("kill-all", grace_ms="0")
    wait_until(lambda: box.status()["commands"] == 0, 20, "all commands are over")


def stop_in_the_middle(box):
    s = make_session(box)
    held = []
    for verb, args, text in (("exec", [("session", s.name)], "sleep 60"),
                             ("exec", [("session", s.name)], "sleep 61"),
                             ("start", [("session", s.name)], "sleep 62"), ("exec", [], "yes"),
                             ("start", [("id", "flood")], "yes")):
        w = box.connect()
        w.request(verb, args, text)
        held.append(w)
    wait_until(lambda: any(p["id"] == "flood" for p in box.ps()), 10, "it runs")
    for verb, args in (("logs", [("id", "flood"), ("follow", "1")]), ("wait", [("id", "flood")]),
                       ("session.create", [("name", "last")]), ("session.delete", [("name", s.name)])):
        w = box.connect()
        w.request(verb, args)
        held.append(w)
    box.held = held


@pytest.mark.parametrize("part", [commands, processes, clients_that_leave, stop_in_the_middle])
def test_valgrind_finds_nothing(part):
    with Box("ns-root", ini=INI, before=VALGRIND, deadline=60) as box:
        part(box)
        box.signal(signal.SIGTERM)
        code = box.wait(60)
        log = box.log()
        assert code == 0, log[-6000:]
        assert "==1==" not in log, log[-6000:]


@pytest.mark.skipif("asan" in str(build_dir()), reason="the sanitizers do not run under valgrind")
def test_valgrind_finds_nothing_in_the_parsing_of_files():
    p = subprocess.run([*VALGRIND, build_dir() / "tests/unit/test_config_file"], capture_output=True, text=True)
    assert p.returncode == 0 and "==" not in p.stderr, p.stderr[-6000:]
