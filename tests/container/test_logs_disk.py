"""Logs on disk: log_dir and the log writer."""

import os
import re
import subprocess

import pytest

from rig.box import Box
from rig.follow import Trace
from rig.quiet import wait_quiet
from rig.verbs import data
from rig.wait import wait_until


def disk_box(kind="ns-user", sessions=None, before=(), **init):
    init = {"log_dir": "@LOGS@", **init}
    text = "[init]\nruntime_dir = @RUN@\n" + "".join(
        f"{k} = {v}\n" for k, v in init.items() if v is not None)
    text += "[sessions]\n" + "".join(f"{k} = {v}\n" for k, v in (sessions or {}).items())
    return Box(kind, ini=text.replace("@LOGS@", "@WORK@/logs"), before=before)


def logs(box):
    return box.work / "logs"


def exit_of(box, id, deadline=10):
    path = logs(box) / f"{id}.exit"
    return wait_until(lambda: path.exists() and path.read_text(), deadline, f"{path}; {box.log()[-900:]}")


def files_of(box, id):
    """ID.log and the older ones, oldest first."""
    found = [p for p in os.listdir(logs(box)) if re.fullmatch(re.escape(id) + r"\.log(\.\d+)?", p)]
    number = lambda name: int((name.rpartition(".log")[2] or ".0")[1:])
    return [logs(box) / p for p in sorted(found, key=number, reverse=True)]


def bytes_of(box, id):
    """Size of all files of a log, while the writer may put one aside."""
    total = 0
    for path in files_of(box, id):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            pass
    return total


def decoded(box, path):
    return data(box, "logs", "--file", path)


def whole(box, id):
    """What all files of a log hold together: (stdout, stderr, lost); they must join."""
    out, err, lost, at = "", "", [], None
    for path in files_of(box, id):
        d = decoded(box, path)
        if at is not None:
            assert d["from"] == at or [at, d["from"]] in d.get("lost", []), (path, at, d["from"])
        out, err, at = out + d["stdout"], err + d["stderr"], d["to"]
        lost += [tuple(map(int, x.split(".."))) for x in d.get("lost", [])]
    return out, err, lost


def writer(box):
    return wait_until(lambda: [p for p in box.processes() if p.comm == "log-writer"], 5, "it runs")[0]


@pytest.mark.parametrize("text, status, out, err", [
    ("echo hi", "0 exited", "hi\n", ""),
    ("echo out; echo err >&2; exit 3", "3 exited", "out\n", "err\n"),
    ("printf 'no newline'; kill -SEGV $$", "139 signaled", "no newline", ""),
    (":", "0 exited", "", ""),
    ("head -c 300000 /dev/zero | tr '\\000' y", "0 exited", "y" * 300_000, ""),
])
def test_a_process_has_its_log_pid_and_exit(text, status, out, err):
    with disk_box() as box:
        id, pid = box.start(text)
        assert exit_of(box, id) == status + "\n", "exit stands when the log is complete"
        assert (logs(box) / f"{id}.pid").read_text() == f"{pid}\n"
        assert whole(box, id) == (out, err, [])
        assert box.ctl("logs", "--file", logs(box) / f"{id}.log").triple == (
            0, out.encode(), err.encode())
        for name in os.listdir(logs(box)):
            assert (logs(box) / name).stat().st_mode & 0o777 == 0o600 and name[0] != "."
        assert logs(box).stat().st_mode & 0o777 == 0o700


def test_the_writer_is_one_child_without_privileges(kind):
    with disk_box(kind) as box:
        ids = [box.start("echo hi")[0] for _ in range(5)]
        assert [exit_of(box, id) for id in ids] == ["0 exited\n"] * 5
        w = writer(box)
        status = open(f"/proc/{w.pid}/status").read()
        assert "CapEff:\t0000000000000000" in status and "CapPrm:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status and w.ppid == box.init_pid
        # exec and commands of sessions are their clients' and leave nothing there
        box.exec("echo command")
        assert sorted(os.listdir(logs(box))) == sorted(
            f"{i}.{x}" for i in ids for x in ("log", "pid", "exit"))
        assert "log_trouble" not in box.status()


def test_init_45_rotation_by_size_loses_and_doubles_nothing():
    # given a log of which many files are written, then together they hold each line once
    with disk_box(log_file_size="64K", log_files="30") as box:
        id, _ = box.start("seq 1 100000")
        exit_of(box, id)
        out, err, lost = whole(box, id)
        assert out == "".join(f"{i}\n" for i in range(1, 100001)) and not lost
        files = files_of(box, id)
        assert len(files) >= 8 and all(f.stat().st_size <= 64 * 1024 for f in files[:-1])


@pytest.mark.parametrize("text", [
    "head -c 300000 /dev/urandom; printf '\\000\\001\\001\\001\\000'",
    "head -c 5000 /dev/zero; printf '\\377\\376 no newline' >&2; kill -KILL $$",
    "head -c 200000 /dev/zero | tr '\\000' x; echo; echo short",
])
def test_init_44_any_byte_and_any_length_of_line(text):
    # what the files hold is what the process wrote
    with disk_box(log_file_size="16K", log_files="100") as box:
        id, _ = box.start(text)
        exit_of(box, id)
        wrote = box.logs(id)
        read = [box.ctl("logs", "--file", p) for p in files_of(box, id)]
        assert b"".join(r.out for r in read) == wrote.out
        assert b"".join(r.err for r in read) == wrote.err


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_so_many_older_files_are_kept(keep):
    with disk_box(log_file_size="4K", log_files=keep) as box:
        id, _ = box.start("for i in $(seq 40); do seq -f %09.0f 500; sleep 0.001; done")
        exit_of(box, id)
        assert len(files_of(box, id)) == keep + 1
        out, _, lost = whole(box, id)
        assert out.endswith("000000500\n") and not lost


def test_a_file_that_was_begun_too_long_ago_is_put_aside():
    with disk_box(log_file_age="1s") as box:
        id, _ = box.start("echo a; sleep 0.1; echo b; sleep 2; echo c; sleep 2; echo d; exit 0")
        exit_of(box, id)
        assert [decoded(box, p)["stdout"] for p in files_of(box, id)] == ["a\nb\n", "c\n", "d\n"]


COUNTER = "i=0; while [ $i -lt {n} ]; do i=$((i + 1)); echo $i; done"


def count_to(n):
    return "".join(f"{i}\n" for i in range(1, n + 1))


def test_a_writer_that_is_killed_again_and_again_loses_and_doubles_nothing():
    # given a writer with a lot to write, when it is killed in the middle, sometimes with packets
    # that it never took, then it is started again and the files hold each line once
    text = "for i in 1 2 3 4 5; do read -r x; seq ${i}000000 ${i}500000; done"
    with disk_box(log_file_size="1M", log_files="40", sessions={"output_keep": "64M"}) as box:
        id, _ = box.start(text, stdin=True)
        size = lambda: bytes_of(box, id)
        wait_until(size, 10, "the log is begun")
        for i in range(5):
            w, before = writer(box), size()
            box.ctl_ok("send", id, input=b"\n")
            wait_until(lambda: size() > before + 100_000, 20, "it gets on", every=0)
            if i % 2:
                os.kill(w.pid, 19)
            os.kill(w.pid, 9)
            wait_until(lambda: [p for p in box.processes() if p.comm == "log-writer"
                                and p.pid != w.pid], 20, "another one")
        exit_of(box, id, 60)
        out, err, lost = whole(box, id)
        lines = (range(i * 1_000_000, i * 1_000_000 + 500_001) for i in range(1, 6))
        assert out == "".join(f"{n}\n" for r in lines for n in r) and not err and not lost
        assert box.log().count("log_writer_ended") == 5


def test_a_writer_that_was_killed_right_after_it_made_a_file():
    # given an empty file where the log goes on, as such a writer leaves it, then the next one
    # goes on in it: it takes no older file's place
    with disk_box(log_files="2") as box:
        id, _ = box.start("echo one; read -r x; echo two", stdin=True)
        log = logs(box) / f"{id}.log"
        wait_until(lambda: log.exists() and "one" in decoded(box, log)["stdout"], 10, "one")
        w = writer(box)
        os.kill(w.pid, 19)
        log.rename(logs(box) / f"{id}.log.1")
        log.touch(0o600)
        os.chown(log, box.uid, box.uid)
        os.kill(w.pid, 9)
        box.ctl_ok("send", id, "--eof", input=b"\n")
        assert exit_of(box, id) == "0 exited\n"
        assert [p.name for p in files_of(box, id)] == [f"{id}.log.1", f"{id}.log"]
        assert whole(box, id) == ("one\ntwo\n", "", [])


def test_init_46_no_writer_holds_up_no_process():
    # given a writer that is stopped, when processes write more than their logs keep, then they end
    # as ever, others answer, and what the files lack is told in them
    with disk_box(sessions={"output_keep": "64K"}) as box:
        w = writer(box)
        os.kill(w.pid, 19)
        ids = [box.start("seq 1 300000; echo end >&2")[0] for _ in range(3)]
        for id in ids:
            assert box.wait_process(id).status == 0
        assert box.exec("echo quick").seconds < 15
        assert not (logs(box) / f"{ids[0]}.exit").exists(), "its log is not complete"
        os.kill(w.pid, 18)
        expected = count_to(300000) + "end\n"
        for id in ids:
            exit_of(box, id)
            d = decoded(box, files_of(box, id)[-1])
            lost = [tuple(map(int, x.split(".."))) for x in d["lost"]]
            size = sum(b - a for a, b in lost)
            assert d["to"] == len(expected) == len(d["stdout"]) + len(d["stderr"]) + size
            assert d["stderr"] in ("end\n", "")  # it may stand before the stdout that was last
            assert d["stdout"].endswith("300000\n")
        assert box.status()["log_lost_bytes"] > 0


def test_what_is_forgotten_before_it_is_written():
    # given a writer that is stopped and processes whose records go at their end, then their logs
    # are written later, with what the socket did not hold told as lost
    with disk_box(sessions={"process_keep": "0", "output_keep": "16K"}) as box:
        w = writer(box)
        ids = [box.start("seq 1 5")[0] for _ in range(3)]
        for id in ids:
            exit_of(box, id)
        os.kill(w.pid, 19)
        ids = [box.start("seq 1 60000; echo end")[0] for _ in range(8)]
        wait_until(lambda: not box.ps(), 10, "all have ended and are forgotten")
        before = box.fds()
        os.kill(w.pid, 18)
        size = len(count_to(60000) + "end\n")
        for id in ids:
            assert exit_of(box, id) == "0 exited\n"
            d = decoded(box, logs(box) / f"{id}.log")
            lost = [tuple(map(int, x.split(".."))) for x in d["lost"]]
            assert d["to"] == size == len(d["stdout"]) + sum(b - a for a, b in lost)
        assert box.fds() <= before


def test_a_writer_that_is_killed_meanwhile_costs_nothing_of_what_is_forgotten():
    with disk_box(sessions={"process_keep": "0"}) as box:
        w = writer(box)
        os.kill(w.pid, 19)
        ids = [box.start("echo short")[0] for _ in range(3)]
        wait_until(lambda: not box.ps(), 10, "all have ended and are forgotten")
        os.kill(w.pid, 9)
        for id in ids:
            assert exit_of(box, id) == "0 exited\n"
            d = decoded(box, logs(box) / f"{id}.log")
            assert (d["to"], d["stdout"], "lost" in d) == (6, "short\n", False)


def test_a_second_life_of_the_container():
    # given the folder of an init that has ended, when another begins with it, then the same ids
    # have new logs and the old ones are put aside
    with disk_box() as first:
        assert first.start("echo first")[0] == "p1"
        exit_of(first, "p1")
        assert first.stop() == 0
        with disk_box(log_dir=str(logs(first))) as second:
            id, _ = second.start("read -r x; echo second; exit 1", id="p1", stdin=True)
            wait_until(lambda: not (logs(first) / "p1.exit").exists(), 5, "the old end is gone")
            second.ctl_ok("send", id, "--eof", input=b"\n")
            assert exit_of(first, "p1") == "1 exited\n"
            assert [decoded(second, p)["stdout"] for p in files_of(first, "p1")] == [
                "first\n", "second\n"]


def test_the_files_of_so_many_ended_processes_stay():
    with disk_box(log_keep="3", log_file_size="4K") as first:
        (logs(first) / "strange.exit").mkdir(parents=True)
        (logs(first) / "notes.txt").write_text("mine")
        live, _ = first.start("echo live; exec sleep 99")
        ids = []
        for i in range(7):
            ids.append(first.start("seq 1 3000")[0])
            exit_of(first, ids[-1])
            wait_until(lambda: i < 3 or not (logs(first) / f"{ids[-4]}.log").exists(), 5,
                       "the fourth last is gone")

        def left(box):
            return sorted({p.name.split(".")[0] for p in logs(box).iterdir()} - {"notes", "strange"})

        wait_until(lambda: left(first) == sorted([live, *ids[-3:]]), 5, lambda: left(first))
        assert first.stop() == 0
        # the next init finds what is there
        with disk_box(log_dir=str(logs(first)), log_keep="2") as second:
            id, _ = second.start("echo hi", id="new")
            exit_of(first, id)
            wait_until(lambda: left(first) == sorted([live, "new"]), 5, lambda: left(first))
            assert (logs(first) / "notes.txt").exists() and (logs(first) / "strange.exit").exists()


@pytest.mark.parametrize("what", ["file", "all files", "folder", "folder made anew", "moved away"])
def test_what_was_deleted_is_made_anew(what):
    import shutil

    with disk_box() as box:
        id, _ = box.start("echo one; read -r x; echo two; read -r x; echo three", stdin=True)
        log = logs(box) / f"{id}.log"
        wait_until(lambda: log.exists() and "one" in decoded(box, log)["stdout"], 5, "one")
        if what == "file":
            log.unlink()
        elif what == "all files":
            for p in logs(box).iterdir():
                p.unlink()
        elif what == "moved away":
            logs(box).rename(box.work / "elsewhere")
        else:
            shutil.rmtree(logs(box))
            if what.endswith("anew"):
                logs(box).mkdir(0o700)
                os.chown(logs(box), box.uid, box.uid)
        box.ctl_ok("send", id, input=b"\n")
        wait_until(lambda: log.exists() and "two" in decoded(box, log)["stdout"], 5, "two")
        box.ctl_ok("send", id, "--eof", input=b"\n")
        assert exit_of(box, id) == "0 exited\n"
        d = decoded(box, log)
        assert (d["from"], d["to"], d["stdout"]) == (4, 14, "two\nthree\n")


MOUNTED = ["sh", "-c", 'mkdir logs && mount -t tmpfs -o mode=700,size={size} tmpfs logs && exec "$@"', "sh"]


def on_tmpfs(size, **kw):
    return disk_box("ns-root", before=[a.format(size=size) for a in MOUNTED], **kw)


def inside(box, *words):
    r = box.inside("sh", "-c", f'cd {box.work} && exec "$@"', "sh", *words)
    assert r.status == 0, r
    return r.out.decode()


def inside_json(box, path):
    import json

    return json.loads(inside(box, box.ctl_path, "logs", "--json", "--file", path))


def trouble_of(box):
    return box.status().get("log_trouble", "")


def test_a_full_disk():
    # given a disk that is full, then processes go on, init says so once, and when there is room
    # again the file tells what is lost and goes on
    with on_tmpfs("1m", sessions={"output_keep": "32K"}) as box:
        id, _ = box.start("read -r x; seq 1 50000; read -r x; echo last", stdin=True)
        wait_until(lambda: f"{id}.pid" in inside(box, "ls", "logs"), 10, "its log is begun")
        inside(box, "sh", "-c", "cat /dev/zero > logs/ballast 2>/dev/null; :")
        box.ctl_ok("send", id, input=b"\n")
        wait_until(lambda: "No space left" in trouble_of(box), 10, "it is told")
        assert f"{id}.log: write: No space left on device" in trouble_of(box)
        assert box.exec("echo quick").out == b"quick\n"
        wait_until(lambda: box.logs(id).out.endswith(b"50000\n"), 10, "the process goes on")
        inside(box, "rm", "logs/ballast")
        wait_until(lambda: not trouble_of(box), 10, "it works again")
        box.ctl_ok("send", id, "--eof", input=b"\n")
        box.wait_process(id)
        wait_until(lambda: f"{id}.exit" in inside(box, "ls", "logs"), 10, "complete")
        d = inside_json(box, f"logs/{id}.log")
        expected = count_to(50000) + "last\n"
        assert d["to"] == len(expected) and d["stdout"].endswith("50000\nlast\n") and d["lost"]
        lost = [tuple(map(int, x.split(".."))) for x in d["lost"]]
        assert sum(b - a for a, b in lost) + len(d["stdout"]) == len(expected)
        kept, at = [], 0
        for a, b in [*lost, (len(expected), None)]:
            kept.append(expected[at:a])
            at = b
        assert d["stdout"] == "".join(kept)
        assert box.log().count("log_trouble") == 1 and box.log().count("log_recovered") == 1


def test_a_disk_without_room_for_a_name():
    with on_tmpfs("1m,nr_inodes=3") as box:
        inside(box, "touch", "logs/a", "logs/b")
        id, _ = box.start("echo hi")
        wait_until(lambda: "create: No space left" in trouble_of(box), 10, "it is told")
        assert box.wait_process(id).status == 0
        inside(box, "rm", "logs/a")
        wait_until(lambda: f"{id}.log" in inside(box, "ls", "logs"), 10, "the log is there")
        inside(box, "rm", "logs/b")
        wait_until(lambda: "p1.pid" in inside(box, "ls", "logs"), 10, "the pid, too")
        inside(box, "sh", "-c", "mount -o remount,nr_inodes=9 logs")
        wait_until(lambda: f"{id}.exit" in inside(box, "ls", "logs"), 10, "and the end")
        assert inside_json(box, f"logs/{id}.log")["stdout"] == "hi\n"


def test_a_read_only_disk():
    with on_tmpfs("1m") as box:
        inside(box, "mount", "-o", "remount,ro", "logs")
        id, _ = box.start("echo hi; exit 7")
        assert box.wait_process(id).status == 7
        wait_until(lambda: "Read-only file system" in trouble_of(box), 10, "it is told")
        inside(box, "mount", "-o", "remount,rw", "logs")
        wait_until(lambda: f"{id}.exit" in inside(box, "ls", "logs"), 10, "all is written")
        assert inside_json(box, f"logs/{id}.log") == {
            "from": 0, "to": 3, "stdout": "hi\n", "stderr": ""}
        assert inside(box, "cat", f"logs/{id}.exit") == "7 exited\n"
        assert box.log().count("log_trouble") == 1


@pytest.mark.parametrize("planted", ["symlink", "dangling symlink", "hard link", "fifo", "folder",
                                     "file of an earlier life"])
def test_nothing_in_the_folder_is_followed(planted):
    with disk_box() as box:
        prey = box.work / "prey"
        prey.write_text("prey")
        os.chown(prey, box.uid, box.uid)
        log = logs(box) / "mine.log"
        if planted == "symlink":
            log.symlink_to(prey)
        elif planted == "dangling symlink":
            log.symlink_to(box.work / "nowhere")
        elif planted == "hard link":
            log.hardlink_to(prey)
        elif planted == "fifo":
            os.mkfifo(log)
        elif planted == "folder":
            log.mkdir()
        else:
            log.write_bytes(b"\1\1\1\0\1\0\0\0" + b"\0" * 8 + b"x")
            (logs(box) / "mine.exit").write_text("9 exited\n")
        for name in ("mine.pid", "mine.exit"):
            if planted == "symlink":
                (logs(box) / name).symlink_to(prey)
        id, pid = box.start("echo hi", id="mine")
        box.wait_process(id)
        wait_until(lambda: (logs(box) / "mine.exit").exists()
                   and not (logs(box) / "mine.exit").is_symlink()
                   and (logs(box) / "mine.exit").read_text() == "0 exited\n", 5, "its own end")
        assert decoded(box, log)["stdout"] == "hi\n" and not log.is_symlink()
        assert prey.read_text() == "prey" and not (box.work / "nowhere").exists()
        assert (logs(box) / "mine.log.1").is_symlink() == ("symlink" in planted)


def test_a_name_that_can_not_be_had_costs_that_log_only():
    # given a folder that stands where an old log is to go, then that log is given up and said so,
    # and others are written
    with disk_box(log_file_size="4K", log_files="1") as box:
        (logs(box) / "bad.log.1" / "x").mkdir(parents=True)
        (logs(box) / "bad.exit" / "x").mkdir(parents=True)
        box.start("seq 1 5000", id="bad")
        wait_until(lambda: "bad.log: rename: " in trouble_of(box), 10, "it is told")
        id, _ = box.start("echo good")
        assert exit_of(box, id) == "0 exited\n" and whole(box, id) == ("good\n", "", [])


def test_a_new_process_of_an_old_name():
    with disk_box(sessions={"process_keep": "0"}) as box:
        for text in ("echo first", "echo second; exit 2"):
            box.start(text, id="same")
            wait_until(lambda: not box.ps(), 5, "it is forgotten")
        wait_until(lambda: (logs(box) / "same.exit").exists()
                   and (logs(box) / "same.exit").read_text() == "2 exited\n", 5, "its end")
        assert [decoded(box, p)["stdout"] for p in files_of(box, "same")] == ["first\n", "second\n"]


def test_two_of_one_name_of_which_neither_is_written():
    # given a writer that is stopped, when a process ends, is forgotten and another has its name,
    # then each has its own log afterwards
    with disk_box(sessions={"process_keep": "0", "output_keep": "64K"}) as box:
        w = writer(box)
        os.kill(w.pid, 19)
        for i, text in enumerate(("seq 1 60000; exit 1", "echo b; exit 2", "echo c; exit 3")):
            box.start(text, id="same")
            wait_until(lambda: not box.ps(), 5, "it is forgotten")
        os.kill(w.pid, 18)
        wait_until(lambda: (logs(box) / "same.exit").exists()
                   and (logs(box) / "same.exit").read_text() == "3 exited\n", 5, "the last one's end")
        read = [decoded(box, p) for p in files_of(box, "same")]
        assert [d["stdout"] for d in read[1:]] == ["b\n", "c\n"] or [
            d["stdout"] + "".join(d["lost"]) for d in read[1:]] == ["0..2", "0..2"]
        assert read[0]["to"] == len(count_to(60000))


def test_late_words_of_what_a_process_left_behind():
    with disk_box() as box:
        id, _ = box.start(f"(until [ -e {box.work}/go ]; do sleep 0.05; done; echo late) & echo early")
        assert exit_of(box, id) == "0 exited\n"
        log = logs(box) / f"{id}.log"
        assert decoded(box, log)["stdout"] == "early\n"
        (box.work / "go").touch()
        wait_until(lambda: decoded(box, log)["stdout"] == "early\nlate\n", 5, "late")


def test_many_processes_at_once():
    with disk_box(sessions={"max_processes": "400"}) as box:
        ids = [box.start(f"echo {i}; read -r x; echo end", stdin=True)[0] for i in range(200)]
        for id in ids[::20]:
            wait_until(lambda: box.logs(id).out, 10, "it has begun")
        for id in ids:
            box.ctl_ok("send", id, "--eof", input=b"\n") if id in ids[:5] else box.call(
                "kill", id=id, grace_ms="0")
        for i, id in enumerate(ids):
            assert exit_of(box, id) == ("0 exited\n" if i < 5 else "137 killed_by_client\n")
            if i % 20 == 0:
                assert whole(box, id)[0] == f"{i}\n" + ("end\n" if i < 5 else "")
        wait_until(lambda: len(os.listdir(f"/proc/{writer(box).pid}/fd")) < 10, 5, "files are closed")


@pytest.mark.parametrize("how", ["TERM", "shutdown", "main"])
def test_init_47_at_the_stop_the_last_words_are_in_the_log(how):
    main = ["sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 5"] if how == "main" else None
    text = "trap 'echo bye; seq 1 20000; exit 4' TERM; echo up; while :; do sleep 0.02; done"
    ini = "[init]\nruntime_dir = @RUN@\nlog_dir = @WORK@/logs\n"
    with Box("ns-user", ini=ini, main=main) as box:
        ids = [box.start(text)[0] for _ in range(4)]
        for id in ids:
            wait_until(lambda: box.logs(id).out == b"up\n", 5, "it is up")
        saved = box.work / "logs"
        if how == "TERM":
            assert box.stop() == 0
        elif how == "shutdown":
            box.ctl_ok("shutdown")
            assert box.wait() == 0
        else:
            (box.work / "go").write_text("x\n")
            assert box.wait() == 5
        for id in ids:
            assert (saved / f"{id}.exit").read_text().startswith("4 "), (saved / f"{id}.exit").read_text()
            assert whole(box, id)[0] == "up\nbye\n" + count_to(20000)
        assert not box.survivors()


def test_a_stop_waits_for_a_full_disk_a_moment_only():
    import time

    with on_tmpfs("16k") as box:
        inside(box, "sh", "-c", "cat /dev/zero > logs/ballast 2>/dev/null; :")
        box.start("echo hi")
        wait_until(lambda: trouble_of(box), 10, "it is told")
        begun = time.monotonic()
        assert box.stop() == 0 and 0.5 < time.monotonic() - begun < 10
        assert "log_incomplete" in box.log()


def test_a_folder_that_can_not_be_had_is_told_and_nothing_else_suffers():
    with disk_box(log_dir="/proc/nowhere/logs") as box:
        id, _ = box.start("echo hi")
        assert box.wait_process(id).status == 0 and box.logs(id).out == b"hi\n"
        wait_until(lambda: "/proc/nowhere/logs" in trouble_of(box), 5, "status tells")
        assert box.stop() == 0


def test_root_leaves_the_writing_to_the_owner_of_the_folder():
    before = ["sh", "-c", 'mkdir logs && chown 1000:1000 logs && exec "$@"', "sh"]
    with disk_box("ns-root", before=before) as box:
        id, _ = box.start("echo hi")
        exit_of(box, id)
        assert (logs(box) / f"{id}.log").stat().st_uid == 1000
        assert os.stat(f"/proc/{writer(box).pid}").st_uid in (0, 1000)
        assert "Uid:\t1000\t1000\t1000\t1000" in open(f"/proc/{writer(box).pid}/status").read()


def test_the_keys_need_a_restart():
    with disk_box() as box:
        text = (box.dir / "sandbox.ini").read_text()
        box.write_ini(text + "[session:x]\n")
        box.write_ini(text.replace("[sessions]", "log_files = 9\n[sessions]"))
        assert box.call("reload")["restart_needed"] == ["[init] log_files (a restart of init)"]


def test_nobody_wakes_while_nothing_is_written():
    with disk_box() as box:
        id, _ = box.start("echo hi; exec sleep 99")
        wait_until(lambda: (logs(box) / f"{id}.log").exists(), 5)
        wait_quiet(box.init_pid, writer(box).pid)


# ---- reading a file --------------------------------------------------------------------------


def frame(stream, payload, note=False):
    mark = bytes([3 if note else 1 + stream]) * 3
    return mark + b"\0" + len(payload).to_bytes(4, "little") + (7).to_bytes(8, "little") + payload


A = frame(0, b"offset 0 run 7\n", note=True) + frame(0, b"one\n") + frame(1, b"two\n")
DAMAGED = {
    "whole": (A, b"one\n", b"two\n", 0),
    "empty": (b"", b"", b"", 0),
    "torn at its end": (A + frame(0, b"three\n")[:-3], b"one\n", b"two\n", 19),
    "torn in a header": (A + b"\1\1\1\0\5", b"one\n", b"two\n", 5),
    "torn in the middle": (A + frame(0, b"xxxxxxxxxxxx")[:-4] + A[31:], b"one\none\n",
                           b"two\ntwo\n", 24),
    "rubbish in front": (b"rubbish\1\1\1\0" + A, b"one\n", b"two\n", 11),
    "zeros between": (A + b"\0" * 4096 + A[31:], b"one\none\n", b"two\ntwo\n", 4096),
    "no log at all": (b"\1\2\3\1\1\1" * 1000, b"", b"", 6000),
    "too long a frame": (A + b"\1\1\1\0\0\0\1\0" + b"\0" * 8 + A[31:], b"one\none\n", b"two\ntwo\n", 16),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_read_as_far_as_it_goes(pool, what):
    box = pool.get("ns-user")
    content, out, err, skipped = DAMAGED[what]
    path = box.dir / "damaged.log"
    path.write_bytes(content)
    r = box.ctl("logs", "--file", path)
    assert r.status == 0 and r.out == out
    said = f"sandboxctl logs: {path}: {skipped} bytes are no frame and were skipped\n".encode()
    assert r.err == err + (said if skipped else b"")
    assert box.ctl("logs", "--file", "-", input=content).out == out


def test_options_of_reading_a_file(pool):
    box = pool.get("ns-user")
    path = box.dir / "some.log"
    path.write_bytes(A + frame(0, b"lost 8..20\n", note=True) + frame(0, b"end\n"))
    ctl = lambda *a: box.ctl("logs", *a, "--file", path)
    assert ctl().triple == (0, b"one\nend\n", b"two\nsandboxctl logs: lost bytes 8..20\n")
    assert ctl("--stdout", "--from", "2").out == b"e\nend\n"
    assert ctl("--stderr").err.startswith(b"two\n") and ctl("--stderr").out == b""
    assert ctl("--labelled").out == b"stdout: one\nstderr: two\nstdout: end\n"
    assert data(box, "logs", "--file", path, "--from", "4") == {
        "from": 4, "to": 24, "stdout": "end\n", "stderr": "two\n", "lost": ["8..20"]}
    for args, word in (((), "ID is missing"), (("p1", "--file", "x"), "exclude"),
                       (("--file", path, "-f"), "--follow"), (("--file", path, "-n", "3"), "--tail")):
        r = box.ctl("logs", *args)
        assert r.status == 2 and word in r.err.decode(), r
    r = box.ctl("logs", "--file", "/nonexistent.log")
    assert r.triple == (1, b"", b"sandboxctl logs: /nonexistent.log: No such file or directory\n")
