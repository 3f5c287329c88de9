"""Where the output of services goes: init's own stdout and stderr, plain files, or nowhere."""

import fcntl
import os
import re
import signal
import time

import pytest

from rig.box import Box, build_dir
from rig.places import KINDS, spread
from rig.services import Services, ini_text, order, show
from rig.wait import repeats, wait_until


def services_box(services, kind="ns-root", **kw):
    """Services by name; @WORK@ counts in their keys."""
    sections = {f"service:{name}": {"restart": "never", **keys} for name, keys in services.items()}
    return Box(kind, ini=ini_text(sections), **kw)


def sh(text, **keys):
    return {"command": f"sh -c '{text}'", **keys}


def logged(box):
    """What came out of init, without its own lines."""
    raw = (box.dir / "log").read_bytes()
    # runc reads stdout and stderr by pipes of their own, and puts what it got of one into lines of the other
    begin = rb"" if box.is_runc else rb"^"
    own = re.compile(begin + rb"\d{4}-\d\d-\d\dT[\d:.]+Z (error|warn|info|debug) event=.*\n", re.M)
    return own.sub(b"", raw)


def text_of(path):
    try:
        return open(path).read()
    except (FileNotFoundError, IsADirectoryError):  # not yet, or just put aside
        return ""


def in_files(path, oldest=0):
    """The text of PATH.oldest up to PATH; while lines are written one may be missing."""
    return "".join(text_of(f"{path}.{i}") for i in range(oldest, 0, -1)) + text_of(path)


def count(name, first, last):
    return "".join(f"{name} {i}\n" for i in range(first, last + 1))


def counts(text, name):
    return [int(l.split()[1]) for l in text.splitlines() if l.startswith(name + " ")]


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_init_44_inherited_lines(kind):
    # given services that write what they like, and end in the middle of a line, then each line comes
    # out of init whole and byte for byte, with what was asked for before it
    long = 150_000
    with services_box({
        "plain": sh("echo one; echo two >&2; printf half"),
        "bytes": {"script": r"printf 'b\000\377\r\n\n'; printf 'last\001'"},
        "killed": {"script": "printf 'cut short'; kill -KILL $$"},
        "prefix": sh("echo a; printf b", log_prefix="yes"),
        "stamp": sh("echo now", log_prefix="yes", log_timestamp="iso"),
        "silent": sh("echo kept", log="none"),
        "long": {"script": f"head -c {long} /dev/zero | tr '\\000' x; echo", "autostart": "no"},
    }, kind) as box:
        has_ended = lambda n: show(box, n)["state"] == "exited"
        wait_until(lambda: all(map(has_ended, ("plain", "bytes", "killed", "prefix", "stamp", "silent"))), 10)
        box.ctl_ok("service", "start", "long")
        wait_until(lambda: has_ended("long"), 10)
        wait_until(lambda: sum(map(len, re.findall(rb"^x+$", logged(box), re.M))) == long, 10)
        out = logged(box)
        for line in (b"one\n", b"two\n", b"half\n", b"b\0\xff\r\n\n", b"last\1\n", b"cut short\n",
                     b"prefix: a\n", b"prefix: b\n"):
            assert line in out, (line, out)
        assert re.search(rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z stamp: now$", out, re.M), out
        pieces = [len(p) for p in re.findall(rb"^x+$", out, re.M)]
        assert pieces == [63 * 1024, 63 * 1024, long - 126 * 1024], "cut where the limit is"
        assert b"kept" not in out and show(box, "silent")["output"] == ["kept"]


def test_the_last_lines_of_a_crash_loop_are_shown():
    with services_box({"w": sh("echo begun $$; echo why it failed >&2; printf oh; printf hm >&2; exit 1",
                               restart="always", restart_delay="10ms", restart_max="3")}) as box:
        wait_until(lambda: show(box, "w")["state"] == "fatal", 10)
        lines = show(box, "w")["output"]
        assert sorted(re.sub(r"\d+", "N", l) for l in lines[-4:]) == [
            "begun N", "hm", "oh", "why it failed"], lines
        assert len(lines) == 10 and len(set(l for l in lines if "begun" in l)) >= 2, "over the restarts"


@pytest.mark.parametrize("kind", ["ns-root", "ns-user"])  # that one can't open root's pipe anew
def test_init_46_a_reader_that_is_stopped(kind):
    # given a pipe that nobody reads any more, when services go on writing into init's stdout and
    # stderr, then init and they go on, the lines are counted, and told when somebody reads again
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_NONBLOCK)
    total = 300_000
    with services_box({"w": sh(f"seq -f %09.0f 1 {total}; touch done; exec sleep 999", cwd="@WORK@"),
                       "quiet": sh("exec sleep 999")}, kind, stdout=write) as box:
        os.close(write)
        got = b""
        wait_until(lambda: (box.work / "done").exists(), 30, "it was held up for a moment only")
        assert box.exec("echo quick").out == b"quick\n"
        shown = wait_until(lambda: (f := show(box, "w")).get("log_dropped") and f, 10)
        assert shown["log_trouble"] == "stdout: nobody reads it" and shown["state"] == "running"
        dropped = int(shown["log_dropped"])
        assert order(box, "restart", "quiet").fields is not None

        def take():
            nonlocal got
            try:
                while piece := os.read(read, 1 << 16):
                    got += piece
            except BlockingIOError:
                pass
            return b"lines dropped" in got

        wait_until(take, 10, "it is told")
        assert f"[sandbox-init: {dropped} lines dropped: stdout: nobody reads it]\n".encode() in got
        lines = [int(l) for l in got.splitlines() if l.isdigit()]
        assert lines == list(range(1, len(lines) + 1)) and len(lines) + dropped == total
        order(box, "restart", "w")
        wait_until(lambda: take() and got.count(b"\n000000001\n") == 1, 10, "and it goes on")
        begun = time.monotonic()
        assert box.stop() == 0 and time.monotonic() - begun < 10
    os.close(read)


def test_lines_on_a_terminal():
    with services_box({"w": {"script": "echo on; printf 'a\\nterminal'; seq 1 3; exit 1"}}, terminal=True) as box:
        got = b""

        def lines():  # those of init stand between them
            nonlocal got
            got += os.read(box.tty, 4096)
            own = [l for l in got.split(b"\n")[:-1] if b" event=" not in l]
            return len(own) >= 5 and own

        assert wait_until(lines, 10) == [b"on\r", b"a\r", b"terminal1\r", b"2\r", b"3\r"]
        assert show(box, "w")["output"] == ["on", "a", "terminal1", "2", "3"]


@pytest.mark.parametrize("kind, where", spread("closed pipe", "/dev/full", "/dev/full"))
def test_case_Y5_stdout_and_stderr_that_take_nothing(kind, where):
    read, write = os.pipe()
    os.close(read)
    if where == "/dev/full":
        os.close(write)
        write = os.open("/dev/full", os.O_WRONLY)
    before = ["sh", "-c", 'exec 2>&1; exec "$@"', "sh"]
    with services_box({"w": sh("seq 1 200000; exec sleep 999"), "v": sh("while :; do echo x; sleep 0.02; done")},
                      kind, stdout=write, before=before) as box:
        os.close(write)
        wait_until(lambda: int(show(box, "w").get("log_dropped", 0)) > 1000, 15)
        assert box.exec("echo quick").out == b"quick\n"
        assert show(box, "w")["state"] == show(box, "v")["state"] == "running"
        # runc stands between, with a pipe of its own, as engines do
        word = "No space left" if where == "/dev/full" and not box.is_runc else "Broken pipe"
        assert word in show(box, "w")["log_trouble"]
        assert box.stop() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_init_45_case_Y7_two_services_in_one_file(kind):
    # given two instances that write into one file of 50 KB with 3 older ones, then what is kept holds
    # each line once and whole, up to the last, in order
    total = repeats(100_000)
    text = f"i=0; while [ $i -lt {total // 100} ]; do i=$((i + 1)); seq -f \"i$SERVICE_INSTANCE %07.0f\" "
    text += "$((i * 100 - 99)) $((i * 100)); done"
    with services_box({"w": {"script": text, "instances": "2", "log": "file:@WORK@/w.log",
                             "log_max_size": "50K", "log_keep": "3"}}, kind) as box:
        path = box.work / "w.log"
        wait_until(lambda: all(show(box, f"w@{i}")["state"] == "exited" for i in (1, 2)), 60)
        ends = [f"i{i} {total:07}\n" for i in (1, 2)]
        wait_until(lambda: all(e in in_files(path, 3) for e in ends), 10, "all is written")
        kept = in_files(path, 3)
        assert re.fullmatch(r"(i[12] \d{7}\n)+", kept), "no line is cut"
        for i in ("i1", "i2"):
            seen = counts(kept, i)
            assert seen == list(range(seen[0], total + 1))
        sizes = [os.stat(f"{path}.{i}").st_size for i in (1, 2, 3)]
        assert all(50 * 1024 - 11 < s <= 50 * 1024 for s in sizes) and not os.path.exists(f"{path}.4")
        assert "log_dropped" not in show(box, "w@1")


def test_init_45_rotation_loses_and_doubles_nothing():
    # init-tests 45, with every line kept
    with services_box({n: {"script": f"seq -f '{n} %.0f' 1 20000; echo '{n} err' >&2; sleep 999",
                           "log": "file:@WORK@/all.log", "log_max_size": "20K", "log_keep": "1000"}
                       for n in ("a", "b", "c")}) as box:
        path = box.work / "all.log"
        text = lambda: in_files(path, 1000)
        wait_until(lambda: text().count("20000\n") == text().count("err\n") == 3, 20)
        lines = [l for l in text().splitlines() if not l.endswith("err")]
        assert sorted(lines) == sorted(f"{n} {i}" for n in "abc" for i in range(1, 20001))
        assert box.stop() == 0


CHATTY = "i=0; while :; do i=$((i + 1)); echo \"w $i\"; sleep 0.002; done"


@pytest.mark.parametrize("kind", KINDS)
def test_case_Y1_a_log_that_is_removed(kind):
    # given a chatty service, when its log is removed, moved away or emptied, then a new one is made,
    # and nobody is held up
    with services_box({"w": {"script": CHATTY, "log": "file:@WORK@/w.log", "log_max_size": "4K"},
                       "tick": sh("i=0; while :; do echo x >tick; sleep 0.01; done", cwd="@WORK@")}, kind) as box:
        path = box.work / "w.log"
        for what in ("remove", "move", "empty", "remove all", "folder in its place"):
            last = wait_until(lambda: counts(text_of(path), "w"), 10, f"before {what}")[-1]
            if what == "remove":
                path.unlink()
            elif what == "move":
                path.rename(box.work / "moved")
            elif what == "empty":
                os.truncate(path, 0)
            elif what == "remove all":
                for p in box.work.glob("w.log*"):
                    p.unlink()
            else:
                path.unlink()
                try:
                    path.mkdir()
                except FileExistsError:  # it was quicker
                    continue
                wait_until(lambda: "is no plain file" in show(box, "w").get("log_trouble", ""), 10)
                path.rmdir()
            wait_until(lambda: (c := counts(in_files(path, 4), "w")) and c[-1] > last + 50, 10, what)
        wait_until(lambda: not show(box, "w").get("log_trouble"), 10, "all is well again")
        order(box, "stop", "w")
        assert box.stop() == 0
        seen = counts(in_files(path, 4), "w")
        assert seen == list(range(seen[0], seen[-1] + 1)), "nothing is lost but what was removed"


def links(pid):
    """What the descriptors of a process lead to, without numbers."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{pid}/fd/{name}")))
        except OSError:
            pass
    return sorted(found)


@pytest.mark.parametrize("kind", ["ns-root", "runc-user"])
def test_case_Y2_descriptors_stay_the_same(kind):
    # given many rotations, restarts and reloads, then init, the log writer and a service have no more
    # descriptors than before, and the service has three
    n = repeats(100)
    flood = {"script": "ls /proc/self/fd >fds; seq 1 20000; sleep 999", "cwd": "@WORK@",
             "log": "file:@WORK@/w.log", "log_max_size": "4K", "log_keep": "2", "stop_signal": "KILL"}
    rotations = {"script": f"i=0; while [ $i -lt {repeats(1000)} ]; do i=$((i + 1)); seq 1 1000; done; echo end; sleep 999",
                 "log": "file:@WORK@/r.log", "log_max_size": "4K"}
    with services_box({"w": flood, "r": rotations}, kind) as box:
        writer = lambda: [p for p in box.processes() if p.comm == "log-writer"]
        wait_until(lambda: "20000\n" in text_of(box.work / "w.log"), 10)
        wait_until(lambda: "end\n" in text_of(box.work / "r.log"), 60)
        assert len(writer()) == 1
        fds = lambda: ([x for x in links(box.init_pid) if "memfd:" not in x], links(writer()[0].pid))
        before = fds()
        for i in range(n):
            order(box, "restart", "w")
            if i % 3 == 0:
                box.call("reload")
        wait_until(lambda: fds() == before, 10, lambda: (fds(), before))
        assert len(links(box.init_pid)) - len(before[0]) <= 6, "three for the output of each service"
        wait_until(lambda: text_of(box.work / "fds").split() == ["0", "1", "2", "3"], 5, "3: that folder")
        assert len(writer()) == 1 and box.stop() == 0


def mounted(size):
    return ["sh", "-c", f'mkdir full && mount -t tmpfs -o mode=777,size={size} tmpfs full && exec "$@"', "sh"]


def inside(box, text):
    r = box.inside("sh", "-c", f"cd {box.work} && {text}")
    assert r.status == 0, r
    return r.out.decode()


SMALL_DISK = {"destination": "/small", "type": "tmpfs", "source": "tmpfs", "options": ["size=1m", "mode=777"]}


# A small disk: root mounts it for itself, runc for the container.
@pytest.mark.parametrize("kind", ["ns-root", "runc-root", "runc-user"])
def test_case_Y4_a_full_disk(kind):
    # given a log on a disk that is full, then commands, other services and the one that writes go on,
    # and the file says how many lines it lacks once there is space again
    is_runc = kind.startswith("runc")
    disk = "/small" if is_runc else "@WORK@/full"
    with services_box({"w": {"script": "read -r x <go; seq -f 'w %.0f' 1 150000; echo >done; read -r x <go; "
                                       "echo 'w 150001'; sleep 999", "cwd": "@WORK@",
                             "log": f"file:{disk}/w.log"},
                       "other": {"script": CHATTY, "log": "file:@WORK@/other.log"}},
                      kind, mounts=[SMALL_DISK] if is_runc else (),
                      before=["sh", "-c", 'mkfifo go && exec "$@"', "sh", *([] if is_runc else mounted("1m"))]
                      ) as box:
        disk = disk.replace("@WORK@", str(box.work))
        go = os.open(box.work / "go", os.O_RDWR)
        inside(box, f"cat /dev/zero >{disk}/ballast 2>/dev/null; :")
        os.write(go, b"\n")
        wait_until(lambda: int(show(box, "w").get("log_dropped", 0)) > 0, 20, lambda: show(box, "w"))
        assert f"{disk}/w.log: write: No space left on device" in show(box, "w")["log_trouble"]
        assert box.exec("df . >/dev/null; echo rc=$?").out == b"rc=0\n"
        wait_until(lambda: (box.work / "done").exists(), 20, "the service goes on")
        last = counts(text_of(box.work / "other.log"), "w")[-1]
        wait_until(lambda: counts(text_of(box.work / "other.log"), "w")[-1] > last, 10, "the other too")
        dropped = int(show(box, "w")["log_dropped"])
        inside(box, f"rm {disk}/ballast")
        wait_until(lambda: "lines dropped" in inside(box, f"cat {disk}/w.log"), 15, "it is told")
        os.write(go, b"\n")
        wait_until(lambda: "w 150001\n" in inside(box, f"cat {disk}/w.log"), 10, "and goes on")
        text = inside(box, f"cat {disk}/w.log")
        assert f"[sandbox-init: {dropped} lines dropped: log {disk}/w.log: write: " in text
        kept = counts(text, "w")
        assert kept[:-1] == list(range(1, len(kept))) and len(kept) - 1 + dropped == 150000
        os.close(go)
        assert box.stop() == 0


def test_a_writer_that_is_killed_again_and_again():
    # given a log writer that is killed in the middle of its work, then no line is lost or doubled
    with services_box({n: {"script": "read -r x <go; " + f"seq -f '{n} %.0f' 1 40000; sleep 999",
                           "cwd": "@WORK@", "log": "file:@WORK@/all.log", "log_max_size": "40K",
                           "log_keep": "1000"} for n in ("a", "b")}
                      | {"c": {"script": CHATTY, "log": "file:@WORK@/all.log", "log_max_size": "40K",
                               "log_keep": "1000"}},
                      before=["sh", "-c", 'mkfifo go && exec "$@"', "sh"]) as box:
        path = box.work / "all.log"
        go = os.open(box.work / "go", os.O_RDWR)
        writer = lambda: next((p.pid for p in box.processes() if p.comm == "log-writer"), None)
        for i in range(4):
            pid = wait_until(writer, 20, "a writer")
            if i in (1, 2):
                os.write(go, b"\n")
            if i == 3:
                os.kill(pid, signal.SIGSTOP)
            lines = len(in_files(path, 1000))
            wait_until(lambda: i == 3 or len(in_files(path, 1000)) > lines, 10)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: writer() not in (pid, None), 20, "another one")
        wait_until(lambda: in_files(path, 1000).count(" 40000\n") == 2, 20)
        os.close(go)
        assert box.stop() == 0
        text = in_files(path, 1000)
        for n in ("a", "b"):
            assert counts(text, n) == list(range(1, 40001))
        seen = counts(text, "w")
        assert seen == list(range(1, len(seen) + 1)) and len(seen) > 50


@pytest.mark.parametrize("path, word", [
    ("/proc/nowhere/w.log", "its folder does not exist"),
    ("/dev/null", "is no plain file"),
    ("@WORK@/link", "is a symbolic link"),
])
def test_a_file_that_can_not_be_had(path, word):
    with services_box({"w": {"script": CHATTY, "log": f"file:{path}"}},
                      before=["sh", "-c", 'echo >prey; ln -s prey link; exec "$@"', "sh"]) as box:
        wait_until(lambda: word in show(box, "w").get("log_trouble", ""), 10, lambda: show(box, "w"))
        wait_until(lambda: show(box, "w")["output"], 10, "what it writes is seen nevertheless")
        assert show(box, "w")["state"] == "running"
        assert box.log().count("event=log_file ") == 1, "it is told once"
        assert (box.work / "prey").read_text() == "\n" and box.stop() == 0


def test_the_writer_of_a_folder_is_its_owner():
    # given folders of several owners, one of which a pre_start makes, then each has a log writer that
    # is its owner and has no capability
    with services_box({
        "mine": sh("echo mine", log="file:@WORK@/mine.log"),
        "his": sh("echo his", log="file:@WORK@/his/x.log"),
        "late": sh("echo late", log="file:@WORK@/late/x.log", cwd="@WORK@",
                   pre_start="sh -c 'mkdir late && chown 1001:1001 late'"),
    }, before=["sh", "-c", 'mkdir his && chown 1000:1000 his && exec "$@"', "sh"]) as box:
        for name, uid in (("mine.log", 0), ("his/x.log", 1000), ("late/x.log", 1001)):
            path = box.work / name
            wait_until(lambda: text_of(path), 10, name)
            assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (uid, 0o640)
        writers = [p.pid for p in box.processes() if p.comm == "log-writer"]
        status = [open(f"/proc/{pid}/status").read() for pid in writers]
        assert sorted(int(re.search(r"Uid:\t(\d+)", s)[1]) for s in status) == [0, 1000, 1001]
        assert all("CapEff:\t0000000000000000" in s and "NoNewPrivs:\t1" in s for s in status)
        assert box.stop() == 0


@pytest.mark.parametrize("how", ["TERM", "shutdown", "main"])
def test_init_47_the_last_words_at_a_stop(how):
    # given services that have a lot to say when they are told to stop, then all of it is where it was
    # to go when init has ended
    text = "trap \"seq -f '{n} %.0f' 1 20000; exit\" TERM; echo '{n} up'; while :; do sleep 0.02; done"
    main = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 5"] if how == "main" else None
    with services_box({"a": {"script": text.format(n="a"), "log": "file:@WORK@/x.log"},
                       "b": {"script": text.format(n="b"), "log": "file:@WORK@/x.log"},
                       "c": {"script": text.format(n="c")}}, main=main) as box:
        wait_until(lambda: text_of(box.work / "x.log").count("up\n") == 2 and b"c up\n" in logged(box), 10)
        if how == "TERM":
            assert box.stop() == 0
        elif how == "shutdown":
            box.ctl_ok("shutdown")
            assert box.wait() == 0
        else:
            (box.work / "go").write_text("x\n")
            assert box.wait() == 5
        text, out = text_of(box.work / "x.log"), logged(box).decode()
        numbers = [str(i) for i in range(1, 20001)]
        for name, where in (("a", text), ("b", text), ("c", out)):
            assert [l[2:] for l in where.splitlines() if l.startswith(name + " ")] == ["up", *numbers]


def test_a_reload_changes_where_it_goes():
    # given a service that runs, when its log settings change, then it goes on and the next lines go
    # where the file says
    keys = {"script": CHATTY, "log": "file:@WORK@/one.log"}
    with services_box({"w": keys}) as box:
        wait_until(lambda: counts(text_of(box.work / "one.log"), "w"), 10)
        pid = show(box, "w")["pid"]
        box.write_ini(ini_text({"service:w": {"restart": "never", **keys, "log": "file:@WORK@/two.log",
                                              "log_timestamp": "iso"}}))
        box.call("reload")
        wait_until(lambda: re.match(r"\d{4}-.*Z w \d+\n", text_of(box.work / "two.log")), 10)
        box.write_ini(ini_text({"service:w": {"restart": "never", **keys, "log": "inherit",
                                              "log_prefix": "yes"}}))
        box.call("reload")
        wait_until(lambda: b"w: w " in logged(box), 10)
        assert show(box, "w")["pid"] == pid and box.stop() == 0
        one, two = (text_of(box.work / f"{n}.log") for n in ("one", "two"))
        seen = counts(one, "w") + [int(l.split()[2]) for l in two.splitlines()] + [
            int(l.split()[2]) for l in logged(box).decode().splitlines() if l.startswith("w: w ")]
        assert seen == list(range(1, len(seen) + 1)), "no line is lost or doubled"


@pytest.mark.parametrize("state", ["running", "stopped", "exited"])
def test_a_reload_that_changes_the_program_and_its_log(state):
    # given a service that a reload gives another program and another file, then what the new one
    # writes is in the new file, whatever the service was doing
    with services_box({"w": sh("echo old; " + ("exit 3" if state == "exited" else "exec sleep 999"),
                               log="file:@WORK@/one.log")}) as box:
        wait_until(lambda: text_of(box.work / "one.log") == "old\n", 10)
        if state == "stopped":
            order(box, "stop", "w")
        wait_until(lambda: show(box, "w")["state"] == state, 10)
        box.write_ini(ini_text({"service:w": {"restart": "never",
                                              **sh("echo new; exec sleep 999", log="file:@WORK@/two.log")}}))
        box.call("reload")
        if state == "stopped":
            order(box, "start", "w")
        wait_until(lambda: text_of(box.work / "two.log") == "new\n", 10, lambda: text_of(box.work / "one.log"))
        assert text_of(box.work / "one.log") == "old\n" and box.stop() == 0


def test_what_a_service_does_to_its_own_output():
    # given services that close their descriptors, write without an end, or leave a child behind that
    # writes on, then init has bounded memory and the others go on
    size = "1G" if repeats(10) == 10 else "100M"
    with services_box({
        "closes": sh("echo before; exec >&- 2>&-; exec sleep 999"),
        "endless": {"script": f"head -c {size} /dev/zero; echo >done; sleep 999", "cwd": "@WORK@",
                    "log": "none"},
        "endless-file": {"script": "head -c 20M /dev/zero | tr '\\000' z; echo >done2; sleep 999",
                         "cwd": "@WORK@", "log": "file:@WORK@/z.log", "log_max_size": "64K"},
    }) as box:
        wait_until(lambda: (box.work / "done").exists() and (box.work / "done2").exists(), 60)
        assert show(box, "closes")["state"] == "running" and b"before\n" in logged(box)
        assert box.memory()[1] < 40 << 20 or build_dir().name == "asan"
        wait_until(lambda: (box.work / "z.log.4").exists(), 10)
        assert {len(l) for l in in_files(box.work / "z.log", 4).splitlines()[:-1]} == {63 * 1024}
        assert box.exec("echo quick").out == b"quick\n" and box.stop() == 0
