"""Services and the stop of the container: order, grace, and a stop at every moment."""

import signal
import time

import pytest

from rig.box import Box
from rig.places import KINDS, spread
from rig.services import Services, ini_text
from rig.wait import is_long, repeats, wait_until


def polite(word, seconds="0.05"):
    """A program that ends some seconds after TERM and notes that in the file `stops`."""
    return (f"sh -c 'trap \"sleep {seconds}; echo {word} >>stops; exit 0\" TERM; touch up.{word}; "
            "while :; do sleep 0.02; done'")


def up(box, *words):
    wait_until(lambda: all((box.work / f"up.{w}").exists() for w in words), 10, f"{words} are up")


def test_reverse_order(kind):
    # given a chain, what only comes before it, and main, then each is started and stopped in order
    ini = ini_text({"service:db": {"command": polite("db"), "cwd": "@WORK@"},
                    "service:web": {"command": polite("web"), "cwd": "@WORK@", "requires": "db"},
                    "service:first": {"command": polite("first"), "cwd": "@WORK@", "before": "db"}})
    main = ["sh", "-c", "trap 'echo main >>stops; exit 4' TERM; touch up.main; "
            "while :; do sleep 0.02; done"]
    with Box(kind, ini=ini, main=main) as box, Services(box) as s:
        up(box, "db", "web", "first", "main")
        assert box.stop() == 4
        assert (box.work / "stops").read_text().split() == ["main", "web", "db", "first"]
        s.read_all()
        assert s.in_order("running") == ["first", "db", "web"]
        assert s.in_order("stopped") == ["web", "db", "first"]
        assert box.survivors() == []


def test_one_that_never_ends_leaves_time_to_those_behind_it():
    # given web that ignores TERM and has a longer grace than there is, then db, which it requires,
    # is still told and has time to end well
    ini = ini_text({"init": {"stop_grace": "8s"},
                    "service:db": {"command": polite("db"), "cwd": "@WORK@"},
                    "service:web": {"command": "sh -c 'trap \"\" TERM; touch up.web; "
                                    "while :; do sleep 0.1; done'", "cwd": "@WORK@",
                                    "requires": "db", "stop_grace": "1m"}})
    with Box("ns-root", ini=ini) as box:
        up(box, "db", "web")
        begun = time.monotonic()
        assert box.stop(deadline=60) == 0
        assert 5.6 < time.monotonic() - begun < 40
        assert (box.work / "stops").read_text() == "db\n"
        assert box.survivors() == []


def test_a_stubborn_main_leaves_time_to_the_services():
    ini = ini_text({"init": {"stop_grace": "8s"},
                    "service:db": {"command": polite("db"), "cwd": "@WORK@"}})
    with Box("ns-root", ini=ini, main=["sh", "-c", "trap '' TERM; touch up.main; "
                                       "while :; do sleep 0.1; done"]) as box:
        up(box, "db", "main")
        assert box.stop(deadline=60) == 137
        assert (box.work / "stops").read_text() == "db\n"
        assert box.survivors() == []


def test_the_end_of_main_stops_the_services(kind):
    ini = ini_text({"service:db": {"command": polite("db"), "cwd": "@WORK@"}})
    main = ["sh", "-c", "while [ ! -e up.db ]; do sleep 0.02; done; exit 9"]
    with Box(kind, ini=ini, main=main, ready=False) as box:
        assert box.wait() == 9
        assert (box.work / "stops").read_text() == "db\n"
        assert box.survivors() == []


def test_what_forked_away_and_shed_its_mark_ends_as_well():
    # given a daemon of a service that nothing tells of any more, then it ends with the container
    m = Box("ns-root", main=["true"], ready=False)
    helper = m.helper
    m.close()
    ini = ini_text({"service:d": {"command": f"env -i {helper} daemon [ setsid forever ] forever"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("d", "running")
        wait_until(lambda: len(box.find("forever")) >= 2, 5, "the daemon")
        assert box.stop() == 0
        assert box.survivors() == []


FIVE = {f"service:s{i}": {"command": "sleep 100", **({"requires": f"s{i - 1}"} if i % 2 else {})}
        for i in range(5)}


@pytest.mark.parametrize("where, main", spread(["sleep", "100"], None, None, ["sleep", "100"]))
def test_case_U4_stop_at_every_moment_of_the_start(where, main):
    from container.test_stop_early import await_first_instruction
    count = repeats(50)
    for i in range(count):
        ini = ini_text({"init": {"stop_grace": "20s"}, **FIVE})
        with Box(where, ini=ini, main=main, ready=False) as box:
            await_first_instruction(box)
            time.sleep(0.05 * i / count)
            begun = time.monotonic()
            code = box.stop(deadline=30)
            assert code == (143 if main else 0), (i, code, box.log()[-1000:])
            assert time.monotonic() - begun < 18
            assert box.survivors() == []


@pytest.mark.parametrize("where, case", spread(*(
    (sig, code, main) for sig, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGQUIT, 131))
    for main in (None, ["touch", "never"]))))
def test_case_U5_a_signal_while_a_set_up_step_runs(where, case):
    sig, code, main = case
    ini = ini_text({"init": {"stop_grace": "60s"}, "service:setup": {"type": "oneshot", "command": "sleep 200"},
                    "service:web": {"command": "sleep 100", "requires": "setup"}})
    with Box(where, ini=ini, main=main) as box, Services(box) as s:
        wait_until(lambda: box.find("sleep 200"), 5, "the step runs")
        begun = time.monotonic()
        assert box.stop(sig, deadline=40) == code
        assert time.monotonic() - begun < 30
        assert not (box.work / "never").exists()
        assert "starting" not in s.of("web")
        assert box.survivors() == []


@pytest.mark.parametrize("where,step,code", [
    *((kind, "false", 1) for kind in KINDS), ("runc-root", "sh -c 'sleep 0.1; exit 42'", 42),
    ("ns-user", "/no/such", 127), ("runc-user", "sh -c 'kill -KILL $$'", 137)])
def test_case_I2_a_failing_set_up_step_ends_init_with_its_code(where, step, code):
    ini = ini_text({"service:prepare": {"type": "oneshot", "command": step}})
    with Box(where, ini=ini, main=["touch", "never"], ready=False) as box:
        assert box.wait() == code
        assert "service 'prepare': " in box.log()
        assert not (box.work / "never").exists()


def test_case_I2_a_step_that_a_service_requires():
    ini = ini_text({"service:prepare": {"type": "oneshot", "command": "sh -c 'exit 3'"},
                    "service:web": {"command": "touch never", "requires": "prepare"}})
    with Box("ns-root", ini=ini, ready=False) as box:
        assert box.wait() == 3
        assert not (box.work / "never").exists()


def test_case_I2_a_step_that_nobody_needs_ends_nothing():
    ini = ini_text({"service:prepare": {"type": "oneshot", "command": "false"},
                    "service:web": {"command": "sleep 100", "after": "prepare"}})
    with Box("ns-root", ini=ini) as box, Services(box) as s:
        s.wait("prepare", "fatal")
        s.wait("web", "running")
        assert box.stop() == 0


STUBBORN = "sh -c 'trap \"\" TERM; touch up.w; while :; do sleep 0.1; done'"


@pytest.mark.parametrize("where, how", spread(
    "ignores", "stop_command hangs", "post_stop hangs", "child"))
def test_init_34_case_W1_one_that_does_not_end_is_killed_after_its_grace(where, how):
    keys = {"command": STUBBORN, "cwd": "@WORK@", "stop_grace": "600ms"}
    if how == "stop_command hangs":
        keys["stop_command"] = "sleep 100"
    elif how == "post_stop hangs":
        keys.update(command="sh -c 'touch up.w; sleep 100'", post_stop="sleep 100")
    elif how == "child":
        keys["command"] = ("sh -c '(trap \"\" TERM; touch up.w; while :; do sleep 0.1; done) & "
                           "wait'")
    with Box(where, ini=ini_text({"init": {"stop_grace": "8s"}, "service:w": keys})) as box:
        up(box, "w")
        begun = time.monotonic()
        assert box.stop() == 0
        assert 0.5 < time.monotonic() - begun < 10
        assert box.survivors() == []


@pytest.mark.parametrize("where, count", spread(3, 3, 20, 3))
def test_case_W2_the_stop_takes_no_longer_than_the_services(where, count):
    ini = ini_text({"init": {"stop_grace": "60s"},
                    **{f"service:s{i}": {"command": polite(f"s{i}"), "cwd": "@WORK@"}
                       for i in range(count)}})
    with Box(where, ini=ini) as box:
        up(box, *(f"s{i}" for i in range(count)))
        begun = time.monotonic()
        assert box.stop(deadline=40) == 0
        took = time.monotonic() - begun
        print(f"{where}, {count} services: {took:.2f} s")
        assert took < ((1 if count == 3 else 3) if is_long() else 30)
        assert len((box.work / "stops").read_text().split()) == count


@pytest.mark.parametrize("where, ready", spread(
    "tcp:1", "file:/no/such", "command:false", "fd:5", "notify"))
def test_case_W5_one_that_never_becomes_ready_does_not_hold_up_the_stop(where, ready):
    keys = {"type": "notify"} if ready == "notify" else {"ready": ready}
    ini = ini_text({"init": {"stop_grace": "60s"},
                    "service:w": {"command": "sleep 100", **keys},
                    "service:x": {"command": "sleep 101", "requires": "w"}})
    with Box(where, ini=ini) as box, Services(box) as s:
        s.wait("w", "starting")
        wait_until(lambda: box.find("sleep 100"), 5, "it runs")
        begun = time.monotonic()
        assert box.stop(deadline=40) == 0
        assert time.monotonic() - begun < 30
        assert s.of("x") in ([], ["waiting"], ["waiting", "stopped"])


@pytest.mark.parametrize("where", ["ns-root", "runc-user"])
def test_before_and_after_the_main_command(where):
    # given a step before main that takes a while, one that is free, one after main, and one that
    # requires that, then main begins when the first are ready, and the others behind it. The stop is
    # the reverse: main is told when those behind it are gone; its code counts
    ini = ini_text({"init": {"stop_grace": "40s"},  # a quarter of it for those behind main
                    "service:step": {"command": "sh -c 'sleep 0.3; touch step; exec sleep 100'", "cwd": "@WORK@",
                                     "ready": "file:@WORK@/step", "before": "main"},
                    "service:free": {"command": polite("free"), "cwd": "@WORK@"},
                    "service:behind": {"command": polite("behind"), "cwd": "@WORK@", "after": "main"},
                    "service:last": {"command": polite("last"), "cwd": "@WORK@", "requires": "behind"}})
    main = ["sh", "-c", "trap 'echo main >>stops; exit 6' TERM; ls step up.behind up.last; touch up.main; "
            "while :; do sleep 0.02; done"]
    with Box(where, ini=ini, main=main) as box, Services(box) as s:
        up(box, "free", "main", "behind", "last")
        s.wait("last", "running")  # and so all that was before it has been read
        order = [e.get("service", e["kind"]) + " " + e["what"] for e in s.trace]
        assert order.index("step running") < order.index("main started") < order.index("behind starting")
        assert order.index("free running") < order.index("main started")
        assert order.index("behind running") < order.index("last starting")
        assert box.stop(deadline=40) == 6
        stops = (box.work / "stops").read_text().split()
        assert sorted(stops) == ["behind", "free", "last", "main"]
        assert stops == ["last", "behind", "main", "free"]


def test_what_comes_after_main_takes_a_quarter_of_the_time():
    # given one behind main that does not end, then main is told nevertheless, and has time to end
    ini = ini_text({"init": {"stop_grace": "4s"},
                    "service:stubborn": {"command": "sh -c 'trap \"\" TERM; touch up.stubborn; "
                                         "while :; do sleep 0.1; done'", "cwd": "@WORK@", "after": "main"},
                    "service:db": {"command": polite("db"), "cwd": "@WORK@"}})
    main = ["sh", "-c", "trap 'echo main >>stops; exit 6' TERM; touch up.main; while :; do sleep 0.02; done"]
    with Box("ns-root", ini=ini, main=main) as box:
        up(box, "main", "stubborn", "db")
        begun = time.monotonic()
        assert box.stop() == 6
        assert 1 < time.monotonic() - begun < 12
        assert (box.work / "stops").read_text().split() == ["main", "db"]
        assert box.survivors() == []


def test_main_that_ends_by_itself_while_those_behind_it_stop():
    # (the one behind it lasts until main is about to end, and a moment longer)
    slow = polite("slow", "0.01; until [ -e over ]; do sleep 0.02; done; sleep 0.5")
    ini = ini_text({"init": {"stop_grace": "60s"},
                    "service:slow": {"command": slow, "cwd": "@WORK@", "after": "main"}})
    main = ["sh", "-c", "trap 'echo told >>stops' TERM; touch up.main; until [ -e go ]; do sleep 0.02; done; "
            "touch over; exit 9"]
    with Box("ns-root", ini=ini, main=main) as box, Services(box) as s:
        up(box, "main", "slow")
        box.signal(signal.SIGTERM)
        s.wait("slow", "stopping")
        (box.work / "go").touch()
        assert box.wait() == 9
        assert (box.work / "stops").read_text() == "slow\n"


def test_no_order_starts_what_comes_after_a_main_that_ends():
    slow = polite("slow", "0.01; until [ -e go ]; do sleep 0.02; done")
    ini = ini_text({"init": {"stop_grace": "60s"},
                    "service:slow": {"command": slow, "cwd": "@WORK@", "after": "main"},
                    "service:off": {"command": "sleep 100", "autostart": "no", "after": "slow"}})
    with Box("ns-root", ini=ini, main=["sleep", "101"]) as box, Services(box) as s:
        up(box, "slow")
        box.signal(signal.SIGTERM)
        s.wait("slow", "stopping")
        r = box.ctl("service", "start", "off")
        assert r.status == 1 and b"init is stopping" in r.err, r
        (box.work / "go").touch()
        assert box.wait() == 143
