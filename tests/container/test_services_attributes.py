"""What a service is run with: user, groups, environment, limits, folder, descriptors."""

import os

import pytest

from rig.box import Box, status_fields
from rig.services import Services, ini_text, show
from rig.wait import wait_until

TELL = ("sh -c 'exec >told.$0 2>&1; id -u; id -g; id -G; pwd; umask; ulimit -n; ulimit -c; nice; "
        "cat /proc/self/oom_score_adj; ls /proc/self/fd | tr \"\\n\" \" \"; echo; "
        "echo HOME=$HOME USER=$USER A=$A I=$SERVICE_INSTANCE S=$SANDBOX_SERVICE L=$LEAK; "
        "readlink /proc/self/fd/0; touch done.$0; exec sleep 100' %s")


def told(box, name):
    wait_until((box.work / f"done.{name}").exists, 10, lambda: f"{name}; log: {box.log()[-800:]}")
    return (box.work / f"told.{name}").read_text().splitlines()


def box_of(where, services, **kw):
    return Box(where, ini=ini_text(services), **kw)


@pytest.mark.parametrize("where", ["ns-root", "runc-root"])
def test_everything_that_root_can_set(where):
    # given a service with every attribute, and one with none, then the first has all, and the
    # second what init was started with
    full = {"command": TELL % "full", "user": "1000", "group": "1001", "groups": "5 7",
            "cwd": "@WORK@/mine", "env.A": "b c", "env.HOME": "/h", "umask": "027", "nice": "7",
            "limit.nofile": "77", "limit.core": "0", "oom_score_adj": "300"}
    plain = {"command": TELL % "plain", "cwd": "@WORK@"}
    with box_of(where, {"service:plain": plain,
                        "service:full": {**full, "autostart": "no"}},
                env={"SANDBOX_X": "leak", "LEAK": "no"}) as box:
        (box.work / "mine").mkdir()
        os.chown(box.work / "mine", 1000, 1000)
        box.call("service.start", name="full")
        wait_until((box.work / "mine" / "done.full").exists, 10, lambda: box.log()[-900:])
        lines = (box.work / "mine" / "told.full").read_text().splitlines()
        assert lines[:2] == ["1000", "1001"]
        assert sorted(map(int, lines[2].split())) == [5, 7, 1001]
        assert lines[3] == str(box.work / "mine")
        assert lines[4].lstrip("0") == "27"
        assert lines[5:9] == ["77", "0", "7", "300"]
        assert lines[9].split()[:3] == ["0", "1", "2"] and len(lines[9].split()) == 4
        assert lines[10].startswith("HOME=/h ") and "A=b c" in lines[10] and "S=full" in lines[10]
        assert lines[11] == "/dev/null"
        lines = told(box, "plain")
        assert lines[:2] == ["0", "0"]
        assert lines[4].lstrip("0") == "22"
        assert f"HOME={box.work}" in lines[10] and "S=plain" in lines[10] and "L=no" in lines[10]
        assert box.stop() == 0


def test_as_another_user_init_can_set_what_needs_no_right():
    keys = {"command": TELL % "u", "cwd": "@WORK@", "umask": "077", "nice": "3",
            "limit.nofile": "50:60", "oom_score_adj": "500"}
    with box_of("ns-user", {"service:u": keys}) as box:
        lines = told(box, "u")
        assert lines[0] == "1000" and lines[5] == "50" and lines[7:9] == ["3", "500"]
        assert box.stop() == 0


@pytest.mark.parametrize("keys,words", [
    ({"user": "0"}, "user 0: set"), ({"nice": "-20"}, "nice -20: "),
    ({"oom_score_adj": "-900"}, "oom_score_adj -900: "), ({"groups": "5"}, "setgroups: ")])
def test_what_an_unprivileged_init_may_not_do_is_told(keys, words):
    with Box("ns-user", ini={"service:u": {"command": "sleep 100", "restart": "never", **keys}}) \
            as box, Services(box) as s:
        e = s.wait("u", "fatal")
        assert words in e["message"] and "ermi" in e["message"], e  # not permitted, denied
        assert box.stop() == 0


def test_instances_know_their_number():
    keys = {"script": TELL.replace("$0", "$SERVICE_INSTANCE")[7:-4], "cwd": "@WORK@",
            "instances": "3"}
    with box_of("ns-root", {"service:w": keys}) as box:
        for i in (1, 2, 3):
            assert f"I={i} S=w@{i}" in told(box, i)[10]
        assert show(box, "w@2")["state"] == "running"
        assert box.stop() == 0


@pytest.mark.parametrize("fd", [3, 5, 16, 17, 255])
def test_the_notification_descriptor(fd):
    # given a descriptor to be ready by, of any number, then the program has it, and nothing else
    ini = ini_text({"service:w": {
        "ready": f"fd:{fd}", "cwd": "@WORK@",
        "command": f"bash -c 'ls /proc/self/fd >fds; echo >&{fd}; exec sleep 100 {fd}>&-'"},
        "service:x": {"command": "sleep 101", "requires": "w"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("x", "running")
        fds = [int(n) for n in (box.work / "fds").read_text().split()]
        assert sorted(fds)[:3] == [0, 1, 2] and fd in fds and len(fds) <= 5
        assert box.stop() == 0


def test_stdin_is_inherited_where_asked():
    r, w = os.pipe()
    os.write(w, b"hello\n")
    ini = ini_text({"service:w": {"command": "sh -c 'read x; echo $x >got; sleep 100'",
                                  "cwd": "@WORK@", "stdin": "inherit"}})
    with Box("ns-root", ini=ini, stdin=r) as box:
        os.close(r)
        wait_until(lambda: (box.work / "got").exists() and
                   (box.work / "got").read_text() == "hello\n", 5)
        assert box.stop() == 0
    os.close(w)


def test_a_script_runs_by_sh():
    ini = "[init]\nruntime_dir = @RUN@\n[service:w]\ncwd = @WORK@\nscript =\n" \
          "  x='a  b'\n  # not a comment of the ini\n  if true; then\n    echo \"$x\" $0 >got\n  fi\n" \
          "  exec sleep 100\n"
    with Box("ns-root", ini=ini) as box:
        got = box.work / "got"
        wait_until(lambda: got.exists() and got.read_text() == "a  b w\n", 5)
        assert box.stop() == 0


@pytest.mark.parametrize("where", ["ns-root", "runc-root"])
def test_another_user_can_open_its_stdout(where):
    # given a service and an exec that run as another user, then /dev/stdout and /dev/stderr are theirs
    text = "echo out >/dev/stdout; echo err >/dev/stderr"
    ini = {"sessions": {"user": "1000"},
           "service:w": {"command": f"sh -c '{text}; exec sleep 100'", "user": "1000", "log": "none"}}
    with Box(where, ini=ini) as box:
        wait_until(lambda: b"err" in box.ctl_ok("service", "logs", "w").err, 5, "it was captured")
        assert box.ctl_ok("service", "logs", "w").out == b"out\n"
        assert box.exec(text).triple == (0, b"out\n", b"err\n")
        assert box.stop() == 0


# name: (soft, hard, its row in /proc/PID/limits)
LIMITS = {
    "as": ("1G", "2G", "address space"), "core": ("0", "1M", "core file size"),
    "cpu": ("100", "200", "cpu time"), "data": ("512M", "1G", "data size"),
    "fsize": ("10M", "20M", "file size"), "locks": ("7", "8", "file locks"),
    "memlock": ("64K", "128K", "locked memory"), "msgqueue": ("1000", "2000", "msgqueue size"),
    "nice": ("5", "6", "nice priority"), "nofile": ("100", "200", "open files"),
    "nproc": ("5000", "6000", "processes"), "rss": ("1G", "unlimited", "resident set"),
    "rtprio": ("1", "2", "realtime priority"), "rttime": ("1000000", "2000000", "realtime timeout"),
    "sigpending": ("50", "60", "pending signals"), "stack": ("4M", "8M", "stack size")}


if not int(status_fields("self")["CapEff"], 16) >> 24 & 1:  # CAP_SYS_RESOURCE: they are 0 without it
    LIMITS |= {"nice": ("0", "0", "nice priority"), "rtprio": ("0", "0", "realtime priority")}


def number(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return str(int(text[:-1]) * units[text[-1]]) if text[-1] in units else text


def limits_of(path):
    rows = {}
    for line in path.read_text().splitlines()[1:]:
        rows[line[:26].strip().removeprefix("Max ")] = tuple(line[26:68].split())
    return rows


def test_every_limit():
    # given a service with all limits, soft and hard, one with a single number, and one with none,
    # then each has what it should, and the last what init was started with
    tell = "sh -c 'cat /proc/self/limits >$0.new; mv $0.new $0; exec sleep 100' "
    keys = {f"limit.{name}": f"{soft}:{hard}" for name, (soft, hard, _) in LIMITS.items()}
    ini = ini_text({"service:all": {"command": tell + "all", "cwd": "@WORK@", **keys},
                    "service:one": {"command": tell + "one", "cwd": "@WORK@", "limit.nofile": "64"},
                    "service:none": {"command": tell + "none", "cwd": "@WORK@"}})
    with Box("ns-root", ini=ini, before=["prlimit", "--nofile=300:3000"]) as box:
        wait_until(lambda: all((box.work / n).exists() for n in ("all", "one", "none")), 10,
                   lambda: box.log()[-900:])
        rows = limits_of(box.work / "all")
        assert {row: rows[row] for _, _, row in LIMITS.values()} == {
            row: (number(soft), number(hard)) for soft, hard, row in LIMITS.values()}
        assert limits_of(box.work / "one")["open files"] == ("64", "64")
        assert limits_of(box.work / "none")["open files"] == ("300", "3000")
        assert box.stop() == 0


def test_priority_orders_what_nothing_else_does():
    # given services that are all free to start, then the smaller priority comes first, and a
    # dependency stands above it
    wanted = {"e": 9, "b": -5, "d": 3, "a": -100000, "c": 0}
    ini = {f"service:{n}": {"command": "sleep 100", "priority": p} for n, p in wanted.items()}
    ini["service:f"] = {"command": "sleep 100", "priority": "-99999", "requires": "e"}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("f", "running")
        assert s.in_order("starting") == ["a", "b", "c", "d", "e", "f"]
        assert box.stop() == 0


def test_success_codes():
    # given exit codes that are no failure, then on-failure leaves it be with one of them, and any
    # other is a failure; always starts it again, and gives up one that ends too often all the same
    keys = {"restart_delay": "10ms", "restart_max": "2", "success_codes": "3, 143"}
    ini = {"service:good": {"command": "sh -c 'exit 3'", **keys},
           "service:signal": {"command": "sh -c 'kill -TERM $$'", **keys},
           "service:bad": {"command": "sh -c 'exit 4'", **keys},
           "service:always": {"command": "sh -c 'exit 3'", **keys, "restart": "always"}}
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("bad", "fatal")
        assert s.of("bad").count("starting") == 3
        for name in ("good", "signal"):
            s.wait(name, "exited")
        assert show(box, "good")["state"] == "exited" and s.of("good").count("starting") == 1
        assert show(box, "signal")["state"] == "exited" and s.of("signal").count("starting") == 1
        s.wait("always", "fatal")
        assert s.of("always").count("starting") == 3
        assert box.stop() == 0


def test_env_file():
    # given files of variables, one of which need not be there, then a service has them all, the later
    # file above the former, and env.NAME above both
    write = ("printf 'A=1\\nB=two words \\nexport C=\"x\\\\ny\"\\n#D=4\\n' >one.env; printf 'A=2\\n' >two.env; "
             'exec "$@"')
    ini = ini_text({"service:w": {
        "env_file": "@WORK@/one.env -@WORK@/nowhere.env @WORK@/two.env", "env.E": "5", "cwd": "@WORK@",
        "command": "sh -c 'env >got.new; mv got.new got; exec sleep 100'"}})
    with Box("ns-user", ini=ini, before=["sh", "-c", write, "sh"]) as box:
        wait_until((box.work / "got").exists, 5)
        text = (box.work / "got").read_text()
        assert all(f"\n{line}\n" in f"\n{text}" for line in ("A=2", "B=two words", "C=x\ny", "E=5")), text
        assert "\nD=" not in text
        assert box.stop() == 0
