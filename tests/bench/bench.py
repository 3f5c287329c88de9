"""make bench: what sandbox-init costs, as ratios within one run.

    bench.py [exec] [stream] [memory] [start] [orphans] [teardown] [sessions]
             [services] [gateway]                            all of them without an argument

BENCH_ORPHANS=N in the environment makes another number of orphans than 20000 (a machine may have a
guard against so many processes at once), BENCH_SESSIONS=N another one of sessions than 1000.

Each line: name, value, aim, and `ok` or `MISSED`; lines that begin with a blank are the figures
behind it. The sides of a ratio run in turn, medians are compared. Always exits 0: the figures of a
busy machine are for reading, not for failing.
"""

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rig import wire
from rig.box import PATH, ROOT, Box, build_dir
from rig.wait import wait_until

BIN = build_dir() / "tests" / "bench"
GIB = 1 << 30
ORPHANS = int(os.environ.get("BENCH_ORPHANS", "20000"))
SESSIONS = int(os.environ.get("BENCH_SESSIONS", "1000"))
ROUNDS = 5

_missed, _lines = [], 0


def line(name, value, unit, aim, is_met):
    """One figure that has an aim; aim as text."""
    global _lines
    _lines += 1
    if not is_met:
        _missed.append(name)
    print(f"{name:<44} {value:>9.2f} {unit:<4} aim {aim:<9} {'ok' if is_met else 'MISSED'}", flush=True)


def at_most(name, value, aim, unit=""):
    line(name, value, unit, f"<= {aim:g}", value <= aim)


def at_least(name, value, aim, unit=""):
    line(name, value, unit, f">= {aim:g}", value >= aim)


def note(text):
    print(f"    {text}", flush=True)


def figures(text):
    """KEY=NUMBER lines -> dict."""
    return {k: float(v) for k, _, v in (l.partition("=") for l in text.splitlines()) if v}


def run(argv, **kw):
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **kw)
    if r.returncode != 0:
        raise RuntimeError(f"{shlex.join(map(str, argv))}: {r.returncode}: {r.stderr[-500:]}")
    return r.stdout


def peak_kib(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(l.split()[1] for l in text.splitlines() if l.startswith("VmHWM:")))


# ---- exec ----


def bench_exec():
    """A command through init against a program that drives the same shell with nothing between."""
    for shell in ("/bin/bash",):
        with Box("ns-root", ini={"sessions": {"shell": shell}}) as box:
            s = box.session("b")
            for text, name, aim in (("true", "exec true p50 / floor", 2), ("/bin/true", None, None)):
                r = box.inside(BIN / "bench_exec", box.socket, s, box.dir / "floor", text, "4",
                               deadline=60)
                if r.status != 0:
                    raise RuntimeError(r.err.decode())
                f = figures(r.out.decode())
                ratio = f["init_p50_us"] / f["floor_p50_us"]
                if aim:
                    at_most(name, ratio, aim)
                note(f"exec {text}: {f['init_p50_us']:.0f} us (p99 {f['init_p99_us']:.0f}), "
                     f"floor {f['floor_p50_us']:.0f} us, ratio {ratio:.2f}, n {f['init_count']:.0f}; "
                     f"status verb {f['status_p50_us']:.0f} us")


# ---- stream ----


def bench_stream():
    """A gibibyte through exec against the same through a pipe to cat."""
    text = f"head -c {GIB} /dev/zero"
    with Box("ns-root") as box:
        s = box.session("b")
        through = f"{shlex.quote(box.ctl_path)} exec -s {s} {shlex.quote(text)}"
        ways = {
            "pipe": f"{text} | cat >/dev/null",
            "exec": f"{through} >/dev/null",
            "exec | cat": f"{through} | cat >/dev/null",
        }
        env = {"PATH": PATH, "SANDBOX_SOCKET": str(box.socket)}
        seconds = {k: [] for k in ways}
        for _ in range(ROUNDS):
            for name, command in ways.items():
                at = time.monotonic()
                run(["sh", "-c", command], env=env)
                seconds[name].append(time.monotonic() - at)
        t = {k: statistics.median(v) for k, v in seconds.items()}
        at_least("1 GiB through exec >/dev/null / pipe to cat", t["pipe"] / t["exec"], 0.5)
        at_least("1 GiB through exec | cat / pipe to cat", t["pipe"] / t["exec | cat"], 0.5)
        at_most("peak memory of init meanwhile", peak_kib(box.init_pid) / 1024, 8, "MiB")
        note(", ".join(f"{k} {GIB / v / 1e9:.2f} GB/s" for k, v in t.items()))


# ---- memory, wake-ups, size ----


def switches(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return sum(int(l.split()[1]) for l in text.splitlines() if "ctxt_switches" in l)


def bench_memory():
    """Idle with one bash session: memory, wake-ups; and the size of the file."""
    with Box("ns-root", static=True) as st, Box("ns-root", static=False) as dyn:
        for box in (st, dyn):
            assert box.exec("true", box.session("b")).status == 0
        time.sleep(3)  # whatever is on its way comes to rest
        before = [switches(b.init_pid) for b in (st, dyn)]
        time.sleep(10)
        wakes = sum(switches(b.init_pid) for b in (st, dyn)) - sum(before)
        at_most("idle PSS, one bash session, static", st.memory()[0] / 1048576, 1.2, "MiB")
        at_most("idle PSS, one bash session, dynamic", dyn.memory()[0] / 1048576, 0.5, "MiB")
        for name, box in (("static", st), ("dynamic", dyn)):
            text = Path(f"/proc/{box.init_pid}/smaps_rollup").read_text()
            get = {l.split(":")[0]: int(l.split()[1]) for l in text.splitlines()[1:]}
            note(f"{name}: PSS {get['Pss']} KiB, anonymous {get['Pss_Anon']}, "
                 f"file {get['Pss_File']}, RSS {get['Rss']}")
        at_most("idle wake-ups of both in 10 s", wakes, 0)
    at_most("size of the static file", (build_dir() / "static/sandbox-init").stat().st_size / 1e6, 1.5,
            "MB")


# ---- many sessions ----


def private_kib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(l.split()[1]) for l in text.splitlines() if l.startswith("Private_"))


def bench_sessions():
    """Idle sessions, each of which has run a command: what one costs in init's own memory."""
    ini = {"init": {"log_level": "warn"},
           "sessions": {"shell": "/bin/dash", "max_sessions": str(SESSIONS + 1)}}
    with Box("ns-root", ini=ini, deadline=60) as box:
        assert box.exec("true", box.session("warm")).status == 0
        time.sleep(1)
        fds, kib, pss = box.fds(), private_kib(box.init_pid), box.memory()[0]
        for i in range(SESSIONS):
            box.call("session.create", name=f"s{i}", deadline=60)
            assert box.call_exec("echo hello", f"s{i}", deadline=60).status == 0
        time.sleep(3)
        each = (private_kib(box.init_pid) - kib) / SESSIONS
        at_most(f"memory of init a session, {SESSIONS} idle", each, 16, "KiB")
        before, cpu = switches(box.init_pid), box.cpu_seconds()
        time.sleep(10)
        at_most("wake-ups of init in 10 s", switches(box.init_pid) - before, 0)
        note(f"PSS a session {(box.memory()[0] - pss) / 1024 / SESSIONS:.2f} KiB, descriptors a session "
             f"{(box.fds() - fds) / SESSIONS:.2f}, CPU time meanwhile {box.cpu_seconds() - cpu:.2f} s")


# ---- start ----


def bench_start():
    """The life of a container that does nothing, against tini's."""
    folder = Path(tempfile.mkdtemp(prefix="bench.", dir="/tmp"))
    ini = folder / "sandbox.ini"
    (folder / "run").mkdir()
    ini.write_text(f"[init]\nruntime_dir = {folder}/run\n")
    b = build_dir()
    programs = {
        "tini": ["tini", "--"],
        "tini-static": ["tini-static", "--"],
        "dynamic": [b / "sandbox-init", "--"],
        "static": [b / "static/sandbox-init", "--"],
        "dynamic with a file": [b / "sandbox-init", "-c", ini, "--"],
        "true alone": [],
    }
    argv = []
    for p in programs.values():
        argv += [*p, "true", ",,"]
    try:
        out = run([BIN / "bench_start", "400", *argv[:-1]], env={"PATH": PATH})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    us = dict(zip(programs, map(float, out.split())))
    at_most("sandbox-init -- true / tini, dynamic", us["dynamic"] / us["tini"], 1.3)
    at_most("sandbox-init -- true / tini, static", us["static"] / us["tini-static"], 1.3)
    note(", ".join(f"{k} {v:.0f} us" for k, v in us.items()))


# ---- orphans ----

ORPHAN_WAYS = ("zombies", "living", "stream")


def orphans_under(name, way):
    """One run: the figures of bench_orphans as the main command of that init."""
    command = [BIN / "bench_orphans", way, ORPHANS]
    folder = Path(tempfile.mkdtemp(prefix="bench.", dir="/tmp"))
    before = {
        "sandbox-init": [build_dir() / "sandbox-init", "--"],
        "tini": ["tini", "--"],
        "dumb-init": ["dumb-init", "--"],
    }
    namespace = ["unshare", "-fp", "--mount-proc", "--kill-child", "--"]
    try:
        if name != "s6-svscan":
            return figures(run([*namespace, *before[name], *command],
                               env={"PATH": PATH, "SANDBOX_INIT_RUNTIME_DIR": str(folder)}))
        # It has no main command: a service that runs once; then the scanner is told to stop.
        service = folder / "scan" / "bench"
        service.mkdir(parents=True)
        (service / "run").write_text(
            f"#!/bin/sh\n{shlex.join(map(str, command))} >{folder}/new\n"
            f"mv {folder}/new {folder}/out\nexec sleep 100\n")
        (service / "run").chmod(0o755)
        p = subprocess.Popen([*namespace, "s6-svscan", str(folder / "scan")], env={"PATH": PATH},
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until((folder / "out").exists, 100, "the orphans' figures", every=0.02)
            return figures((folder / "out").read_text())
        finally:
            p.kill()
            p.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def orphans_probed(way):
    """The same under sandbox-init while a client asks for its status: the slowest answer in ms. The
    client has real-time priority, or its own wait for a CPU among thousands would be measured."""
    # The sleep keeps init alive until the prober has stopped.
    script = f'{BIN}/bench_orphans {way} {ORPHANS}; exec sleep 100'
    with Box("ns-root", main=["sh", "-c", script]) as box:
        first = ["chrt", "-f", "1"] if os.geteuid() == 0 else []
        probe = subprocess.Popen([*first, BIN / "bench_probe", box.socket, "3"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: "cpu_us" in box.log(), 60, "the orphans' figures", every=0.005)
        out, err = probe.communicate()
        if probe.returncode != 0:
            raise RuntimeError(err)
        return figures(out)


def bench_orphans():
    names = ("sandbox-init", "tini", "dumb-init", "s6-svscan")
    got = {}
    for way in ORPHAN_WAYS:
        for _ in range(ROUNDS):
            for name in names:
                for k, v in orphans_under(name, way).items():
                    got.setdefault((way, name, k), []).append(v)
    m = {k: statistics.median(v) for k, v in got.items()}
    for way in ORPHAN_WAYS:
        for key, title in (("ms", "time to the last"), ("cpu_us", "CPU per orphan")):
            best = min(m[way, n, key] for n in names[1:])
            at_most(f"{ORPHANS} orphans, {way}: {title}", m[way, names[0], key] / best, 1.2)
            unit = "ms" if key == "ms" else "us"
            note(", ".join(f"{n} {m[way, n, key]:.2f}" for n in names) + f" {unit}")
    for way in ORPHAN_WAYS:
        slowest = [orphans_probed(way) for _ in range(ROUNDS)]
        at_most(f"slowest answer meanwhile, {way}", statistics.median(f["max_ms"] for f in slowest),
                100, "ms")
        note("; ".join(f"max {f['max_ms']:.1f}, p50 {f['p50_ms']:.2f} ms of {f['count']:.0f}"
                       for f in slowest))


# ---- teardown ----


def bench_teardown():
    """The end of a tree of 1000 against SIGKILL and wait for pids that are known."""
    command = ["unshare", "-fp", "--mount-proc", "--kill-child", "--", "sh", "-c", '"$@"; exit $?', "sh",
               BIN / "bench_teardown", "1000", "15"]
    for program, aim in ((None, 3), ("sleep", None)):
        out = run([*command, *([program] if program else [])], env={"PATH": PATH})
        f = figures(out.replace(" ", "\n"))
        if aim:
            at_most("kill of a tree of 1000 / known pids", f["ratio"], aim)
        note(f"tree of {program or 'its own program'}: teardown {f['teardown_ms']:.1f} ms, known pids "
             f"{f['known_pids_ms']:.1f} ms, ratio {f['ratio']:.2f}; CPU time of the killer "
             f"{f['teardown_cpu_ms']:.1f} and {f['known_cpu_ms']:.1f} ms")


def bench_services():
    """supervisord, s6 and this program, side by side."""
    import bench_services as side_by_side

    side_by_side.bench_services(at_most, note)


# ---- the gateway ----


def bench_gateway():
    """The way over HTTP against the control socket, the floor, and pipes."""
    from rig.http import TOKEN, GatewayBox

    with GatewayBox("ns-root", gateway={"max_body": "1G"}) as box:
        assert box.http.exec(["true"], session="b").status == 0
        r = box.inside(BIN / "bench_exec", box.socket, "b", box.dir / "floor", "true", "6", box.http_socket,
                       TOKEN, deadline=60)
        if r.status != 0:
            raise RuntimeError(r.err.decode())
        f = figures(r.out.decode())
        at_most("exec true over HTTP p50 / control socket", f["http_p50_us"] / f["argv_p50_us"], 2.5)
        note(f"exec true: HTTP {f['http_p50_us']:.0f} us (p99 {f['http_p99_us']:.0f}), control socket "
             f"{f['argv_p50_us']:.0f} us (a text {f['init_p50_us']:.0f}), floor {f['floor_p50_us']:.0f} us; HTTP / floor "
             f"{f['http_p50_us'] / f['floor_p50_us']:.2f}, n {f['http_count']:.0f}")
        _bench_bodies(box, TOKEN)


def _bench_bodies(box, token):
    """A gibibyte each way against the same through a pipe, in turn; the memory that it takes."""
    file, pipe_file, out = box.workspace / "big", box.workspace / "pipe", GIB // 4
    client = [BIN / "bench_http", box.http_socket, token]
    ways = {
        "PUT": [*client, "put", "file/workspace/big", GIB],
        "pipe to a file": ["sh", "-c", f"head -c {GIB} /dev/zero | cat >{pipe_file}"],
        "GET": [*client, "get", "file/workspace/big"],
        "pipe of a file": ["sh", "-c", f"cat {file} | cat >/dev/null"],
        "events": [*client, "exec", out],
        "pipe of output": ["sh", "-c", f"head -c {out} /dev/zero | cat >/dev/null"],
    }
    seconds = {k: [] for k in ways}
    for _ in range(3):
        for name, command in ways.items():
            for old in [file] * (name == "PUT") + [pipe_file]:
                old.unlink(missing_ok=True)
            at = time.monotonic()
            run(command)
            seconds[name].append(time.monotonic() - at)
    assert file.stat().st_size == GIB
    t = {k: statistics.median(v) for k, v in seconds.items()}
    rate = {k: (out if k in ("events", "pipe of output") else GIB) / v / 1e6 for k, v in t.items()}
    at_least("1 GiB PUT / pipe to a file", rate["PUT"] / rate["pipe to a file"], 0.3)
    at_least("1 GiB GET / pipe of a file", rate["GET"] / rate["pipe of a file"], 0.3)
    share = rate["events"] / rate["pipe of output"]
    line("output as events, payload", rate["events"], "MB/s", ">= 100", rate["events"] >= 100 or share >= 0.15)
    at_most("peak memory of the gateway meanwhile", peak_kib(box.gateway_pid) / 1024, 24, "MiB")
    note(", ".join(f"{k} {v:.0f} MB/s" for k, v in rate.items()) + f"; events / pipe {share:.2f}; "
         f"peak of the file helper {peak_kib(box.file_helper_pid) / 1024:.1f} MiB, "
         f"of init {peak_kib(box.init_pid) / 1024:.1f} MiB")


PARTS = {"exec": bench_exec, "stream": bench_stream, "memory": bench_memory, "start": bench_start,
         "orphans": bench_orphans, "teardown": bench_teardown, "sessions": bench_sessions,
         "services": bench_services, "gateway": bench_gateway}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    for name in wanted:
        if name not in PARTS:
            print(f"bench: no part '{name}' (there are: {' '.join(PARTS)})", file=sys.stderr)
            continue
        at = time.monotonic()
        try:
            PARTS[name]()
        except Exception as e:  # a part that cannot run must not hide the others
            _missed.append(name)
            print(f"{name:<44} could not be measured: {e}", flush=True)
        note(f"({name}: {time.monotonic() - at:.0f} s)")
    print(f"{_lines} figures, {len(_missed)} missed" + "".join(f"\n    missed: {n}" for n in _missed))


if __name__ == "__main__":
    main()
