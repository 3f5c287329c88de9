"""The figures of the documents are those of the program: limits and times as they are defined, defaults as
they are set, ranges as they are checked. What happens at them is shown by the tests of each part."""

import os
import re
import subprocess

import pytest

from rig.box import ROOT, build_dir
from rig.manual import keys_of_schema, section, table

INI = (ROOT / "docs/sandbox.ini.5.md").read_text()
WORDS = {"a": 1, "two": 2, "four": 4, "twice": 2}


def plain(name):
    """A document without its line breaks."""
    return " ".join((ROOT / name).read_text().split())


def constant(file, name):
    """What a macro says, or the initialiser `.name = `."""
    text = (ROOT / file).read_text()
    found = re.search(rf"^#define\s+{name}\s+(.*?)\s*(?:/\*.*)?$|\.{name} = ([^,]*)", text, re.M)
    value = next(g for g in found.groups() if g).strip('"')
    value = re.sub(r"\((?:size_t|uint\d+_t|int\d+_t)\)", "", value)
    value = re.sub(r"\bUINT64_C\b", "", value)
    value = re.sub(r"(?<=\d)(?:u|ull|ULL)\b|(?<=\d)\.(?!\d)", "", value)
    value = re.sub(r"\b[A-Z]\w*", lambda m: str(constant(file, m.group(0))), value)
    return eval(value, {"__builtins__": {}})


KIB, MIB = 1024, 1024 * 1024
# Document, the sentence with the figures in it, and for each where it is defined: file, name, and how many of
# its unit make one of the document's.
FIGURES = [
    ("docs/gateway.md", r"request line \| (\d+) KiB", ("gateway/http_internal.h", "HTTP_URL_MAX", KIB)),
    ("docs/gateway.md", r"headers \| (\d+) KiB, (\d+) of them", ("gateway/http_internal.h", "HTTP_HEAD_MAX", KIB),
     ("gateway/http_internal.h", "HTTP_HEADERS_MAX", 1)),
    ("docs/gateway.md", r"from their first byte on \| (\d+) s", ("gateway/http_conn.c", "HEAD_S", 1)),
    ("docs/gateway.md", r"a body without a byte \| (\d+) s", ("gateway/http_conn.c", "STALL_S", 1)),
    ("docs/gateway.md", r"reads nothing of its answer \| (\d+) s", ("gateway/http_conn.c", "STALL_S", 1)),
    ("docs/gateway.md", r"beyond (\d+) of these at a time", ("gateway/http_listen.c", "REFUSING_MAX", 1)),
    ("docs/gateway.md", r"silent stream has a comment every (\d+) s", ("gateway/sse.h", "SSE_KEEP_ALIVE_S", 1)),
    ("docs/gateway.md", r"A comment every (\d+) s shows", ("gateway/sse.h", "SSE_KEEP_ALIVE_S", 1)),
    ("docs/gateway.md", r"At most (\d+) at a time; then 503", ("gateway/route_watch.c", "WATCHES_MAX", 1)),
    ("docs/gateway.md", r"a tree of more than (\d+) folders", ("gateway/helper_tree.h", "TREE_DEPTH", 1)),
    ("docs/gateway.md", r"the upgrade waits, (\d+) s at most", ("gateway/route_terminal.c", "PATIENCE_MS", 1000)),
    ("docs/gateway.md", r"the last (\d+) KiB\)", ("sessions/replay.h", "REPLAY_MAX", KIB)),
    ("docs/gateway.md", r"has read nothing for (\d+) s, or answers no ping for (\d+) s",
     ("gateway/websocket.c", "STALL_S", 1), ("gateway/websocket.c", "SILENCE_NS", 10**9)),
    ("docs/gateway.md", r"A message may have (\d+) MiB", ("gateway/route_terminal.c", "MESSAGE_MAX", MIB)),
    ("docs/gateway.md", r"`cols` \((\d+)\), `rows` \((\d+)\)", ("gateway/route_terminal.c", "COLS", 1),
     ("gateway/route_terminal.c", "ROWS", 1)),
    ("docs/gateway.md", r"`\?timeout_ms=` \((\d+)\)", ("gateway/port_wait.c", "WAIT_DEFAULT_MS", 1)),
    ("docs/gateway.md", r"no address within (\d+) s", ("gateway/tunnel.c", "TUNNEL_READY_S", 1)),
    ("docs/gateway.md", r"again after (\d+) ms, later and later up to (\d+) s",
     ("init/gateway.c", "RESTART_MIN_MS", 1), ("init/gateway.c", "RESTART_MAX_MS", 1000)),
    ("docs/gateway.md", r"has (\w+) seconds for the others", ("gateway/main.c", "STOP_S", 1)),
    ("docs/gateway.md", r"more than (\d+) MiB of arguments", ("control/wire.h", "WIRE_ARGS_MAX", MIB)),
    ("docs/gateway.md", r"without blanks, (\d+) at most", ("gateway/gateway.h", "GATEWAY_TOKEN_MAX", 1)),
    ("docs/gateway.md", r"ids of sandboxes \| 1 to (\d+)", ("gateway/path.c", "ID_MAX", 1)),
    ("docs/gateway.md", r"its user \| (\d+)", ("init/gateway_plan.c", "NOBODYS", 1)),
    ("docs/sandbox-init.8.md", r"after (\d+) ms, and later and later, up to (\d+) s",
     ("init/gateway.c", "RESTART_MIN_MS", 1), ("init/gateway.c", "RESTART_MAX_MS", 1000)),
    ("docs/sandbox-init.8.md", r"a user of its own \((\d+),", ("init/gateway_plan.c", "NOBODYS", 1)),
    ("docs/sandbox-init.8.md", r"(\w+) seconds after the SIGKILL", ("sessions/teardown.c", "VERIFY_LIMIT_NS", 10**9)),
    ("docs/sandbox-init.8.md", r"the last to go and has (\w+) second", ("init/stop.c", "LOGS_MS", 1000)),
    ("docs/sandbox-init.8.md", r"a header of (\d+) bytes", ("base/frame.h", "FRAME_HEADER", 1)),
    ("docs/sandbox-init.8.md", r"u32 length, 1 to (\d+)", ("base/frame.h", "FRAME_PAYLOAD_MAX", 1)),
    ("docs/sandbox-init.8.md", r"other arguments of a request \| (\d+) MiB", ("control/wire.h", "WIRE_ARGS_MAX", MIB)),
    ("docs/sandbox-init.8.md", r"isn't complete \| dropped after (\d+) s", ("init/main.c", "request_timeout_ms", 1000)),
    ("docs/sandbox-init.8.md", r"doesn't come back within (\w+) second", ("sessions/command.c", "RETURN_S", 1)),
    ("docs/sandbox.ini.5.md", r"a file of more than (\d+)M, a line of more than (\d+)K, a value that with its indented "
     r"lines has more than (\d+)M, and a section with more than (\d+) variables",
     ("config/config_internal.h", "CONFIG_FILE_MAX", MIB), ("config/config_internal.h", "CONFIG_LINE_MAX", KIB),
     ("config/config_internal.h", "CONFIG_VALUE_MAX", MIB), ("config/config_internal.h", "CONFIG_ENV_COUNT_MAX", 1)),
    ("docs/sandbox.ini.5.md", r"longer than (\d+)K is cut", ("services/service_log.h", "SERVICE_LINE_MAX", KIB)),
    ("docs/sandbox.ini.5.md", r"longer than (\d+) seconds", ("sessions/log_sink.h", "SINK_PATIENCE_MS", 1000)),
    ("docs/sandbox.ini.5.md", r"bounded time \((\d+) s for `ready`; `health_interval`, at most (\d+) s",
     ("services/service_ready.c", "CHECK_MAX_MS", 1000), ("services/service_health.c", "CHECK_MAX_MS", 1000)),
    ("docs/sandbox.ini.5.md", r"bounded bytes \((\d+) KiB", ("services/check_http.h", "HTTP_HEAD_MAX", KIB)),
    ("docs/sandbox.ini.5.md", r"its descriptor N, (\d+) to (\d+)", ("config/check_value.c", "FD_FIRST", 1),
     ("config/check_value.c", "FD_LAST", 1)),
    ("docs/sandbox.ini.5.md", r"Limits: (\d+) services, instances counted; (\d+)M of values; (\d+) names",
     ("config/service_config.h", "SERVICES_MAX", 1), ("config/config_internal.h", "CONFIG_SERVICES_ALL_MAX", MIB),
     ("config/config_internal.h", "CONFIG_ORDER_MAX", 1)),
    ("docs/sandbox.ini.5.md", r"include files, (\d+) deep, (\d+) in all, together at most (\d+)M; with those of "
     r"`env_file`, each as often as it is named, (\d+) and (\d+)M",
     ("config/config_internal.h", "CONFIG_DEPTH_MAX", 1), ("config/config_internal.h", "CONFIG_FILES_MAX", 1),
     ("config/config_internal.h", "CONFIG_FILES_ALL_MAX", MIB), ("config/config_internal.h", "CONFIG_READS_MAX", 1),
     ("config/config_internal.h", "CONFIG_READ_MAX", MIB)),
    ("docs/sandbox.ini.5.md", r"between them, (\d+) at most", ("config/gateway.c", "LISTEN_MAX", 1)),
    ("docs/sandbox.ini.5.md", r"`control.sock` in the runtime folder; at most (\d+) bytes",
     ("config/schema.c", "SOCKET_BYTES", 1)),
    ("docs/sandboxctl.1.md", r"there is a limit of (\d+)M", ("ctl/verb_exec.c", "JSON_LIMIT", MIB)),
    ("docs/sandboxctl.1.md", r"a stream had more than (\d+)M", ("ctl/verb_logs.c", "CAPTURE_MAX", MIB)),
    ("docs/sandboxctl.1.md", r"from the last (\d+) KiB", ("sessions/replay.h", "REPLAY_MAX", KIB)),
    ("docs/sandboxctl.1.md", r"at most (\d+) KiB, its beginning", ("services/service_log.h", "SERVICE_OUTPUT_KEEP", KIB)),
    ("docs/sandbox.ini.5.md", r"are kept in memory, (\d+) KiB at most",
     ("services/service_log.h", "SERVICE_OUTPUT_KEEP", KIB)),
    ("docs/sandboxctl.1.md", r"Texts are cut to (\d+) bytes", ("sessions/events.h", "EVENT_TEXT_MAX", 1)),
    ("docs/sandboxctl.1.md", r"doesn't come back within (\w+) second", ("sessions/command.c", "RETURN_S", 1)),
    ("docs/sandboxctl.1.md", r"caller's window, or (\d+) by (\d+)", ("sessions/pty.h", "PTY_ROWS", 1),
     ("sessions/pty.h", "PTY_COLS", 1)),
    ("docs/services.md", r"at first after (\d+) ms", ("services/service_ready.c", "FIRST_PAUSE_MS", 1)),
    ("docs/services.md", r"is ended whole after (\d+) s", ("services/service_ready.c", "CHECK_MAX_MS", 1000)),
    ("docs/services.md", r"does not answer has failed after (\d+) s", ("services/service_ready.c", "CHECK_MAX_MS", 1000)),
    ("docs/control-protocol.md", r"the last output \((\d+) KiB", ("sessions/replay.h", "REPLAY_MAX", KIB)),
    ("docs/control-protocol.md", r"until the next has run for (\d+) s", ("init/gateway.c", "SETTLED_S", 1)),
    ("docs/control-protocol.md", r"at (\d+) processes or (\d+) ms", ("init/verb_init.c", "WALK_MAX", 1),
     ("init/verb_init.c", "WALK_NS", 10**6)),
    ("docs/control-protocol.md", r"texts are cut to (\d+) bytes", ("sessions/events.h", "EVENT_TEXT_MAX", 1)),
    ("docs/control-protocol.md", r"the first (\d+) of one answer, and the end of (\d+) at a time",
     ("sessions/stray.h", "STRAYS_TOLD", 1), ("sessions/stray_watch.h", "STRAYS_WATCHED", 1)),
    ("docs/control-protocol.md", r"`PID NAME` of the first (\d+)", ("sessions/teardown.h", "MEMBER_NAMES", 1)),
    ("docs/control-protocol.md", r"The first (\d+) are described; a count goes up to (\d+)",
     ("sessions/stray.h", "STRAYS_TOLD", 1), ("sessions/stray.h", "STRAYS_MAX", 1)),
    ("docs/control-protocol.md", r"at most (\w+) texts of the longest", ("sessions/sessions.h", "SESSIONS_WAITING_TEXTS", 1)),
    ("docs/control-protocol.md", r"the last (\d+) lines", ("init/verb_service.c", "LAST_LINES", 1)),
    ("docs/control-protocol.md", r"told from (\d+) ms on", ("sessions/command.c", "USAGE_MIN_MS", 1)),
    ("docs/control-protocol.md", r"at most (\d+) in one request", ("config/service_config.h", "SERVICES_MAX", 1)),
    ("docs/architecture.md", r"killed if it takes longer than (\d+) s", ("init/gateway.c", "START_S", 1)),
    ("docs/architecture.md", r"for each operation, at most (\d+)", ("gateway/helper_worker.c", "WORKERS_MAX", 1)),
]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f[0].rpartition('/')[2]}: {f[2][1]}")
def test_figure(figure):
    document, sentence, *places = figure
    found = re.search(sentence, plain(document))
    assert found, f"{document} no longer says {sentence!r}"
    for told, (file, name, unit) in zip(found.groups(), places, strict=True):
        number = int(told) if told.isdigit() else WORDS[told]
        assert number * unit == constant(file, name), (found.group(0), file, name)


# ---- keys ----


def number(text):
    """16M, 30s, 1 minute, 256 -> a number, durations in ms."""
    m = re.fullmatch(r"(\d+) ?(ms|s|m|minutes?|h|K|M|G|KiB|MiB)?", text)
    unit = {None: 1, "ms": 1, "s": 1000, "m": 60000, "minute": 60000, "minutes": 60000, "h": 3600000,
            "K": KIB, "KiB": KIB, "M": MIB, "MiB": MIB, "G": 1024 * MIB}[m.group(2)]
    return int(m.group(1)) * unit


def test_defaults_that_are_told_in_passing():
    """"`stop_grace` (8s)", "`queue_limit`, 64": wherever a default stands beside its key."""
    schema = keys_of_schema()
    at_home = {"max_connections": "init", "stop_grace": "init", "idle_timeout": "gateway"}
    found = 0
    for path in (ROOT / "README.md", ROOT / "deploy/README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for key, gateways, told in re.findall(
                r"`(\w+)`( of `\[gateway\]`)?(?: \(|, | )(\d+ ?(?:ms|s|m|h|K|M|G|minutes?)?)(?=[ ,;:)|])",
                " ".join(path.read_text().split())):
            section_ = "gateway" if gateways else at_home.get(key)
            defaults = [s[key] for n, s in schema.items() if key in s and section_ in (None, n)]
            if not defaults or not defaults[0]:
                continue
            found += 1
            assert number(told) == number(defaults[0]), (path.name, key, told)
    assert found >= 12, found


TITLES = {"KEYS OF [init]": "init", "KEYS OF [sessions] AND [session:NAME]": "sessions",
          "KEYS OF [sessions] ONLY": "sessions", "KEYS OF [service:NAME]": "service:a",
          "KEYS OF [gateway]": "gateway"}
RANGE = r"(?:^|[,:;] )(-?\d+(?:ms|s|h|K|M|G)?) to (-?\d+(?:ms|s|h|K|M|G)?)(?=[,;.]|$)"


def ranges():
    for title, where in TITLES.items():
        for key, _, told in table(section(INI, title)):
            if m := re.search(RANGE, told):
                yield where, key.strip("`"), *m.groups()


def beyond(text, step):
    value, unit = re.fullmatch(r"(-?\d+)(\D*)", text).groups()
    if unit in ("s", "h"):
        return f"{int(value) * {'s': 1000, 'h': 3600000}[unit] + step}ms"
    if unit in ("K", "M", "G"):
        return str(int(value) * {"K": KIB, "M": MIB, "G": 1024 * MIB}[unit] + step)
    return f"{int(value) + step}{unit}"


def test_ranges_are_those_that_are_checked(tmp_path):
    """The first and the last value of each range are taken, those beyond are not."""
    wrong, found = [], list(ranges())
    assert len(found) >= 30, found
    path = tmp_path / "sandbox.ini"
    for where, key, first, last in found:
        for value, is_good in ((first, True), (last, True), (beyond(first, -1), False), (beyond(last, 1), False)):
            more = {"service:a": "command = true\nrestart_delay = 0\n" if key == "restart_backoff" else "command = true\n", "gateway": "listen = unix:/run/a\n"}.get(where, "")
            path.write_text(f"[{where}]\n{more}{key} = {value}\n")
            r = subprocess.run([build_dir() / "sandbox-init", "--check", "-c", path], capture_output=True,
                               check=False)
            if (r.returncode == 0) != is_good:
                wrong.append((where, key, value, r.stderr.decode()))
    assert wrong == []


def test_ranges_of_the_example_are_those_of_the_manual():
    told = {(where.partition(":")[0], key): f"{first} to {last}" for where, key, first, last in ranges()}
    comment, where, before, found = "", None, "", 0
    for line in (ROOT / "sandbox.ini.example").read_text().splitlines():
        if m := re.match(r"#?\[(\w+)", line):
            where = m.group(1)
        if (m := re.match(r"#([a-z_]+) = ", line)) and (where, m.group(1)) in told:
            its = re.findall(r"\(([^ ()]+ to [^ ();]+)\)", " ".join(comment.split()))
            is_second = before.startswith("#") and not before.startswith("# ")  # of two keys below one comment
            assert not its or is_second or told[where, m.group(1)] in its, (where, m.group(1), its)
            found += bool(its)
        before = line
        if not line:
            comment = ""
        elif line.startswith("# "):
            comment += line[1:]
    assert found >= 28, found


# ---- the rest ----


def test_what_clients_the_tests_drive():
    package = (ROOT / "tests/conformance/package.json").read_text()
    version, = re.findall(r"the tests drive version ([\d.]+)", plain("docs/gateway.md"))
    assert set(re.findall(r'"@openai/[a-z-]+": "([\d.]+)"', package)) == {version}


def test_an_idle_connection_costs_what_is_told():
    told, = re.findall(r"prints what an idle one costs \(below (\d+) KiB\)", plain("docs/architecture.md"))
    assert f"assert per < {int(told) * KIB}\n" in (ROOT / "tests/gateway/test_http_limits.py").read_text()


def test_the_programs_of_an_image_are_static():
    """No interpreter and no library: the README copies nothing else."""
    folder = build_dir() / "static"
    if not folder.is_dir():
        pytest.skip("this build has no static programs")
    for name in ("sandbox-init", "sandboxctl", "sandbox-gateway"):
        r = subprocess.run(["readelf", "-lW", folder / name], capture_output=True, check=True)
        assert not re.search(rb"INTERP|DYNAMIC", r.stdout), name


def test_the_last_line_of_the_tests(tmp_path):
    """`make test` ends with tests/run.py; here it finds nothing to run, which is a failure."""
    r = subprocess.run([ROOT / "tests/run.py", "--unit"], env=os.environ | {"SANDBOX_BUILD": str(tmp_path)},
                       capture_output=True, check=False)
    assert r.returncode == 1 and r.stdout.decode().splitlines()[-1] == "0 passed, 0 failed, 0 skipped"


def test_init_has_one_thread_one_fork_and_one_wait():
    """docs/architecture.md; the cgroup's try at the start is the exception that it names."""
    modules = ("base", "config", "control", "import", "init", "logger", "services", "sessions")
    code = {f"{d}/{p.name}": re.sub(r"/\*.*?\*/", "", p.read_text(), flags=re.S)
            for d in modules for p in (ROOT / d).glob("*.c")}
    def users(pattern):
        return {name for name, text in code.items() if re.search(pattern, text)}

    assert users(r"\bpthread_|\bthrd_") == set()
    assert users(r"\bv?fork\(|\bSYS_clone|\bposix_spawn|\bsystem\(|\bpopen\(") == {"sessions/spawn.c", "sessions/cgroup.c"}
    assert users(r"\bwait(?:pid|id|3|4)?\(") == {"sessions/child.c", "sessions/cgroup.c"}
    for name in ("sessions/child.c", "sessions/cgroup.c"):
        for call in re.findall(r"\bwait(?:pid|id|4)\([^;{]*", code[name]):
            assert "WNOHANG" in call, (name, call)
