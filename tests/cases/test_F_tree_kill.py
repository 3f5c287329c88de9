"""F. A kill takes the whole tree, and answers when it is gone."""

import pytest

from rig.box import Box
from rig.verbs import data
from rig.wait import wait_until


def row_of(box, id):
    return next(r for r in box.ps() if r["id"] == id)


def runs(box, nap, count=1):
    wait_until(lambda: len([p for p in box.find(nap) if p.comm == "sleep"]) >= count, 10,
               lambda: f"{count} × {nap}: {[p.command for p in box.processes()]}")


def killed(box, id, *naps, **args):
    a = box.call("kill", id=id, deadline=15, **args)
    assert not [p.command for n in naps for p in box.find(n)], "gone when the answer comes"
    return a


def test_case_F1_not_the_wrapper_alone(s):
    first, second = s.sleep_mark(), s.sleep_mark()
    id, _ = s.start(f"sh -c 'sleep {first} & sleep {second}; :'")
    runs(s.box, first), runs(s.box, second)
    a = killed(s.box, id, first, second)
    row = row_of(s.box, id)
    assert row["state"] == "exited" and row["verdict"] == "killed_by_client"
    # the number says how the process ended: it has a shell at its root, which takes TERM
    assert int(a["killed"]) >= 3 and int(row["status"]) in (137, 143)


@pytest.mark.parametrize("text", [
    "sleep {a} | sleep {b}",
    "( sleep {a}; echo late >{f} ) & ( sleep {b}; echo late >{f} ); echo late >{f}",
    "f() {{ sleep {a} & sleep {b}; echo late >{f}; }}; f; echo late >{f}",
    "sh -c 'trap \"\" HUP INT; sleep {a} & exec sleep {b}'; echo late >{f}",
    "x=$(sleep {a}) & sleep {b}; echo late >{f}",
])
def test_case_F1_other_wrappers(one, text):
    a, b, late = (f"{n}.25" for n in (651, 652)), None, one.work / "late"
    a, b = a
    late.unlink(missing_ok=True)
    id, _ = one.start(text.format(a=a, b=b, f=late))
    runs(one, a), runs(one, b)
    killed(one, id, a, b)
    assert not late.exists(), "nothing that follows the killed child ran"


def test_case_F2_four_levels(box):
    nap = f"70{box.uid}.5"
    id, _ = box.start(f'sh -c "sh -c \\"sh -c \\\\\\"sleep {nap}; :\\\\\\"; :\\"; :"; :')
    runs(box, nap)
    a = killed(box, id, nap)
    assert int(a["killed"]) == 5 and not a.get("survivors")


@pytest.mark.parametrize("depth, text", [
    (42, "sh -c \"{h} {deep} exec sleep {n} {close}\"; :"),
    (6, "env -i {h} {deep} exec sleep {n} {close} & wait"),
    (4, "{h} {deep} ignore TERM,INT,HUP child [ exec sleep {n} ] forever {close} & wait"),
])
def test_case_F2_deeper_ones(one, depth, text):
    nap = f"70{depth}.75"
    deep, close = "child [ " * depth, "] wait " * depth
    id, _ = one.start(text.format(h=one.helper, deep=deep, n=nap, close=close))
    runs(one, nap)
    a = killed(one, id, nap, grace_ms=200)
    assert int(a["killed"]) >= depth and not one.find(one.helper)


def test_case_F4_setsid(s):
    first, second = s.sleep_mark(), s.sleep_mark()
    id, _ = s.start(f"setsid sleep {first} & sleep {second}")
    runs(s.box, first), runs(s.box, second)
    killed(s.box, id, first, second)


@pytest.mark.parametrize("text", [
    "(setsid sh -c 'sleep {a}; :' &); sleep {b}",
    "{h} setpgid child [ setpgid exec sleep {a} ] exec sleep {b}",
    "{h} daemon [ setsid exec sleep {a} ] setsid; sleep {b}",
    "set -m; sleep {a} & sleep {b}; :",
])
def test_case_F4_other_groups_and_sessions(one, text):
    a, b = "661.5", "662.5"
    id, _ = one.start(text.format(a=a, b=b, h=one.helper))
    runs(one, a), runs(one, b)
    killed(one, id, a, b)


def test_case_F7_leftovers_belong_to_their_process(s):
    p, _ = s.start("sh -c 'while :; do sleep 0.05; done' >/dev/null & exit 0")
    w = s.box.wait_process(p)
    assert (w["verdict"], int(w["status"])) == ("exited", 0) and int(w["stray_count"]) >= 1
    row = row_of(s.box, p)
    assert row["state"] == "exited" and int(row["strays"]) >= 1
    left = [r for r in s.box.ps() if r["kind"] == "stray" and r["of"] == p]
    assert left and all(r["session"] == s.name for r in left)
    # they are no strays of the session, and live on when it is used
    assert s.show()["strays"] == 0 and s.exec("echo ok").out == b"ok\n"
    assert row_of(s.box, p)["strays"] != "0"
    a = s.box.call("kill", id=p)
    assert int(a["killed"]) >= 1 and not s.box.find("sleep 0.05")
    assert int(row_of(s.box, p)["strays"]) == 0
    assert row_of(s.box, p)["verdict"] == "exited", "it ended by itself: that stays so"
    again = s.box.call("kill", id=p, check=False)
    assert again.is_error and "already exited" in again["message"]


@pytest.mark.parametrize("text", [
    "(setsid sleep {n} &) ; exit 3",
    "{h} daemon [ child [ exec sleep {n} ] forever ]",
    "sleep {n} & kill -9 $$",
    "env -i sleep {n} & exit 0",  # its environment does not tell: its session id does
])
def test_case_F7_other_ends(one, text):
    nap = f"67{len(text)}.5"
    p, _ = one.start(text.format(n=nap, h=one.helper))
    one.wait_process(p)
    runs(one, nap)
    wait_until(lambda: int(row_of(one, p)["strays"]) >= 1, 5, "they are counted")
    killed(one, p, nap)


def test_case_F7_one_leftover_alone(one):
    p, _ = one.start("sleep 681.5 & sleep 682.5 & exit 0")
    one.wait_process(p)
    runs(one, "681.5"), runs(one, "682.5")
    inner = one.find("681.5")[0].inner
    one.call("kill", stray=inner)
    assert not one.find("681.5") and one.find("682.5")
    killed(one, p, "682.5")


@pytest.mark.parametrize("policy", ["kill", "keep"])
def test_case_F7_the_policy_is_a_setting(policy):
    with Box(ini={"init": {"stop_grace": "1s"},
                  "sessions": {"leftovers": policy, "kill_grace": "200ms"}}) as box:
        p, _ = box.start("sh -c 'trap \"\" TERM; echo up; while :; do sleep 0.05; done' & "
                         "sleep 691.5 & echo on; exit 5")
        w = box.wait_process(p)
        assert (w["verdict"], int(w["status"])) == ("exited", 5)
        assert (int(w.fields.get("stray_count", 0)) >= 2) == (policy == "keep"), w.fields
        if policy == "keep":
            runs(box, "691.5")
        assert not box.processes() or policy == "keep"
        assert b"on\n" in box.logs(p).out
        # a container stop takes all of them
        assert box.stop() == 0 and not box.survivors()


def test_case_F8_stopping_until_verified(box):
    p, _ = box.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    wait_until(lambda: b"up" in box.logs(p).out, 5, "it ignores TERM")
    client = box.ctl_spawn("kill", "--grace", "3s", p)
    wait_until(lambda: row_of(box, p)["state"] == "stopping", 5, "it is stopping")
    assert client.poll() is None
    assert client.wait(20) == 0
    row = row_of(box, p)
    assert (row["state"], row["verdict"], int(row["status"])) == ("exited", "killed_by_client", 137)


def test_case_F8_a_second_kill_escalates(one):
    p, _ = one.start("trap '' TERM; echo up; while :; do sleep 0.05; done")
    wait_until(lambda: b"up" in one.logs(p).out, 5, "it ignores TERM")
    first = one.ctl_spawn("kill", "--grace", "60s", p)
    wait_until(lambda: row_of(one, p)["state"] == "stopping", 5, "it is stopping")
    assert one.ctl("kill", "--signal", "KILL", p).seconds < 15
    assert first.wait(15) == 0 and row_of(one, p)["state"] == "exited"


@pytest.mark.parametrize("text, status", [
    ("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done", 137),
    ("trap 'sleep 0.3; exit 0' TERM; echo up; while :; do sleep 0.05; done", 137),
    ("{h} ignore TERM say up child [ ignore TERM forever ] forever", 137),
])
def test_case_F8_the_verdict_is_the_kill(one, text, status):
    p, _ = one.start(text.format(h=one.helper))
    wait_until(lambda: b"up" in one.logs(p).out, 5, "it is up")
    d = data(one, "kill", "--grace", "500ms", p)
    assert d["state"] == "exited" and "survivors" not in d
    row = row_of(one, p)
    assert (row["verdict"], int(row["status"])) == ("killed_by_client", status)


FORKING_THREAD = """
import threading, subprocess, time
def work():
    subprocess.Popen(["sleep", "{n}"])
    time.sleep(99)
threading.Thread(target=work).start()
"""


def test_case_F10_a_thread_forks(box):
    nap = f"95{box.uid}.5"
    p, _ = box.start(["python3", "-c", FORKING_THREAD.format(n=nap)])
    runs(box, nap)
    killed(box, p, nap)


@pytest.mark.parametrize("text", [
    "{h} thread [ child [ exec sleep {n} ] sleep 99 ] forever",
    "{h} thread [ thread [ daemon [ exec sleep {n} ] sleep 99 ] sleep 99 ] sleep 99",
    "{h} thread [ child [ thread [ child [ exec sleep {n} ] wait ] sleep 99 ] sleep 99 ] sleep 99",
])
def test_case_F10_other_threads(one, text):
    nap = f"96{len(text)}.5"
    p, _ = one.start(text.format(h=one.helper, n=nap))
    runs(one, nap)
    killed(one, p, nap)
    assert not one.find(one.helper)
