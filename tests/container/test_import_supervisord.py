"""sandbox-init --import-supervisord: what it makes of files of supervisord. Where Debian's package is
installed, supervisord's own reading of each file is the measure."""

import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rig.box import PATH, Box, base, build_dir
from rig.wait import is_long, repeats, wait_until

HERE = Path(__file__).parent / "supervisord"
FILES = sorted(HERE.glob("*.conf"))
ENV = {"PATH": PATH, "HOME": "/home/me", "CONCURRENCY": "4", "MORE": "-x  -y", "PORT": "80 80"}
SUPERVISOR = importlib.util.find_spec("supervisor") is not None
needs_supervisor = pytest.mark.skipif(not SUPERVISOR, reason="no supervisor here")


def run(*args, env=ENV, cwd=None):
    return subprocess.run([build_dir() / "sandbox-init", *args], capture_output=True, text=True,
                          timeout=20, check=False, env=env, cwd=cwd, errors="surrogateescape")


def imported(path, **kw):
    r = run("--import-supervisord", path, **kw)
    assert r.returncode == 0, r.stderr
    return r.stdout, r.stderr


def made(tmp_path, text, **kw):
    path = tmp_path / "s.conf"
    path.write_text(text)
    return imported(path, **kw)


def check(tmp_path, ini):
    path = tmp_path / "sandbox.ini"
    path.write_text(ini)
    r = run("--check", "-c", path)
    assert (r.returncode, r.stdout) == (0, "configuration is valid\n"), r.stderr


def services(ini):
    """{name: {key: value}}: a reader of sandbox.ini of the test's own."""
    found, keys, key = {}, {}, None
    for line in ini.splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("    "):
            keys[key] += "\n" + line[4:]
            continue
        key = None
        if m := re.fullmatch(r"\[(?:service:)?(.*)\]", line):
            keys = found.setdefault(m.group(1), {})
        elif line:
            key, _, value = line.partition(" =")
            assert key not in keys
            keys[key] = value[1:]
    found.pop("init", None)
    return found


# ---- every option --------------------------------------------------------------------------------


def test_every_option_is_translated_or_told_of(tmp_path):
    # given a file with every option, then each stands in a comment with its line, or in effect
    path = HERE / "every-option.conf"
    ini, err = imported(path)
    check(tmp_path, ini)
    told = {int(n) for n in re.findall(rf"^# {re.escape(str(path))}:(\d+): ", ini, re.M)}
    in_effect = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r"(\w[\w.]*) *=|\[(.*)\]", line)
        if m and m.group(2):
            section = m.group(2)
        elif m and section in ("supervisord", "program:all") and number not in told:
            in_effect.add(m.group(1))
        elif m and section not in ("supervisord", "program:all", "include"):
            head = path.read_text().splitlines().index(f"[{section}]") + 1
            assert head in told, section
    assert in_effect == {
        "loglevel", "minfds", "umask", "user", "directory", "environment", "command",
        "process_name", "numprocs", "numprocs_start", "priority", "autostart", "startsecs",
        "startretries", "autorestart", "exitcodes", "stopsignal", "stopwaitsecs", "redirect_stderr",
        "stdout_logfile", "stdout_logfile_maxbytes", "stdout_logfile_backups", "stderr_logfile"}
    assert services(ini) == {"all": {
        "command": "/bin/cat -A all", "instances": "2", "cwd": "/var/tmp", "umask": "022",
        "user": "daemon", "limit.nofile": "2048", "env.KEY": "value", "env.OTHER": "b c",
        "env.A": "1", "env.B": "2", "autostart": "no", "restart": "on-failure",
        "success_codes": "0, 2", "restart_max": "2", "restart_backoff": "2s",
        "restart_window": "18s", "stop_signal": "QUIT", "stop_grace": "11s", "priority": "1",
        "log": "file:/var/log/all.log", "log_max_size": "1M", "log_keep": "3"}}
    assert "log_level = debug\n" in ini
    # and what has no equivalent is in the summary, with its line
    missing = re.findall(r":(\d+): (\S+)", err.partition("\n")[2])
    assert {what for _, what in missing} == {
        "[inet_http_server]:", "strip_ansi", "[rpcinterface:mine]:", "[ctlplugin:mine]:",
        "stdout_capture_maxbytes", "stdout_events_enabled", "stdout_syslog",
        "stderr_capture_maxbytes", "stderr_events_enabled", "stderr_syslog",
        "[fcgi-program:fcgi]:", "[eventlistener:listener]:"}
    lines = path.read_text().splitlines()
    for number, what in missing:
        assert lines[int(number) - 1].startswith(what.rstrip(":"))
    assert f"1 service; {len(missing)} settings have no equivalent:" in err


@needs_supervisor
def test_the_sample_of_supervisor_has_no_option_that_is_not_known(tmp_path):
    import supervisor

    sample = Path(supervisor.__file__).parent / "skel" / "sample.conf"
    keys = lambda text: set(re.findall(r"^;?(\[?\w+)\s*[=:]", text, re.M))
    assert keys(sample.read_text()) - {"files"} <= keys(
        (HERE / "every-option.conf").read_text()) | {"events", "serverurl", "[include"}
    # all of it, commented in
    text = re.sub(r"^;(\[|\w+=)", r"\1", sample.read_text(), flags=re.M)
    text = re.sub(r"^serverurl=http.*\n", "", text, flags=re.M)
    ini, _ = made(tmp_path, text)
    check(tmp_path, ini)
    assert "supervisord 4.2 does not know" not in ini
    assert list(services(ini)) == ["theprogramname"]


# ---- as supervisord reads it ---------------------------------------------------------------------


DUMP = """
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "env": {k: v for k, v in os.environ.items()
                                                 if k not in ("PWD", "SHLVL", "LC_CTYPE", "_", "OLDPWD")}}))
"""
ASK = """
import json, sys
from supervisor.options import ServerOptions
import supervisor.options as o
o.name_to_uid = lambda name: name
o.existing_directory = o.existing_dirpath = lambda v: v
options = ServerOptions()
options.configfile = sys.argv[1]
options.here = __import__("os").path.dirname(sys.argv[1])
options.read_config(sys.argv[1])
section = options.configroot.supervisord
print(json.dumps([dict(vars(p), options=None, environment=dict(section.environment, **p.environment),
                       group=g.name, group_priority=g.priority, autorestart=p.autorestart.__name__
                       if hasattr(p.autorestart, "__name__") else str(p.autorestart))
                  for g in section.process_group_configs for p in g.process_configs
                  if type(p).__name__ == "ProcessConfig"], default=str))
"""


def asked(path, env=ENV):
    r = subprocess.run(["/usr/bin/python3", "-c", ASK, path], capture_output=True, text=True,
                       env=env, check=False)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def executed(keys, tmp_path):
    """The argv and environment that a service's program gets, its path replaced by a printer."""
    printer = tmp_path / "printer"
    if not printer.exists():
        printer.write_text(f"#!/usr/bin/python3\nimport sys\nsys.argv.insert(1, 'X'){DUMP}")
        printer.chmod(0o755)
    env = dict(ENV, **{k[4:]: v for k, v in keys.items() if k.startswith("env.")})
    if "script" in keys:
        script, n = re.subn(r"(?<=exec )('[^']*'|\S+)", lambda m: f"{printer} {m.group(1)}",
                            keys["script"], count=1)
        assert n == 1
        argv = ["/bin/sh", "-c", script]
    else:
        argv = [printer, *shlex.split(keys["command"])]
    r = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
    got = json.loads(r.stdout)
    return got["argv"][1:], got["env"]


@needs_supervisor
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_as_supervisord_reads_it(path, tmp_path):
    # given a file, when supervisord itself reads it, then services have the same argv,
    # environment, folder, user and policies
    ini, _ = imported(path)
    check(tmp_path, ini)
    ours = services(ini)
    copy = tmp_path / "copy.conf"  # without plug-ins that are nowhere to be found
    copy.write_text(re.sub(r"(?m)^\[(rpcinterface|ctlplugin):mine\]\n.*\n", "", path.read_text()))
    theirs = asked(copy)
    instances = [(name, keys) for name, keys in ours.items()
                 for _ in range(int(keys.get("instances", 1)))]
    assert len(instances) == len(theirs)
    by_group = {}
    for p in theirs:
        by_group.setdefault(re.sub(r"[_-]\d+$", "", p["name"]), []).append(p)
    for name, keys in ours.items():
        name = {"main1": "main"}.get(name, name)
        p = next((p for p in theirs if p["name"] == name), None) or next(
            p for p in theirs if re.sub(r"[_-]\d+$", "", p["name"]).replace("+", "-") == name)
        argv, env = executed(keys, tmp_path)
        assert argv == shlex.split(p["command"]), name
        assert env == dict(ENV, **p["environment"]), name
        assert keys.get("cwd") == (p["directory"] or None if path.stem != "every-option"
                                   else "/var/tmp")
        assert keys.get("user") == p["uid"], name
        assert keys.get("autostart", "yes") == ("yes" if p["autostart"] else "no")
        assert keys.get("restart", "on-failure") == {
            "RestartWhenExitUnexpected": "on-failure", "RestartUnconditionally": "always",
            "False": "never"}[p["autorestart"]]
        assert int(keys.get("restart_max", max(p["startretries"], 1))) == max(p["startretries"], 1)
        assert keys.get("stop_signal", "TERM").replace("SIG", "") in str(
            __import__("signal").Signals(int(p["stopsignal"])).name)
        assert keys["stop_grace"] == f"{p['stopwaitsecs']}s"
        assert keys.get("umask") in (None, f"{p['umask'] or 0:03o}")
    # and they start in the same order
    order = sorted(theirs, key=lambda p: (p["group_priority"], p["priority"]))
    key = lambda n: next((k for k in ours if ours[k] and (k == n or {"main1": "main"}.get(k) == n or
                          k == re.sub(r"[_-]\d+$", "", n).replace("+", "-"))), None)
    numbers = [int(ours[key(p["name"])].get("priority", 0)) for p in order]
    assert numbers == sorted(numbers), [(p["name"], n) for p, n in zip(order, numbers)]


# ---- one thing at a time -------------------------------------------------------------------------

HEAD = "[supervisord]\n[program:a]\ncommand=/bin/x\n"

RETRIES = {"restart_max": "3", "restart_backoff": "3s", "restart_window": "10s"}
ONE = [
    ("stdout_logfile=/dev/stdout\nstdout_logfile_maxbytes=0\nredirect_stderr=true", {}),
    ("stdout_logfile=NONE\nstderr_logfile=none", {"log": "none"}),
    ("stdout_logfile=/dev/null\nredirect_stderr=true", {"log": "none"}),
    ("stderr_logfile=/e\nstderr_logfile_maxbytes=5KB\nstderr_logfile_backups=0",
     {"log": "file:/e", "log_max_size": "5120", "log_keep": "0"}),
    ("stdout_logfile=/o\nstdout_logfile_maxbytes=0",
     {"log": "file:/o", "log_max_size": "64G", "log_keep": "10"}),
    ("stdout_logfile=/o\nstdout_logfile_maxbytes=10\nstdout_logfile_backups=5000",
     {"log": "file:/o", "log_max_size": "4096", "log_keep": "1000"}),
    ("stdout_logfile=/%(program_name)s%%", {"log": "file:/a%", "log_max_size": "50M",
                                            "log_keep": "10"}),
    ("autorestart=TRUE", {"restart": "always"}), ("autorestart=0", {"restart": "never"}),
    ("startretries=0", {"restart_max": "1", "restart_backoff": "1s", "restart_window": "3s"}),
    ("startsecs=60", {"restart_window": "187s"}),
    ("startretries=10\nstartsecs=5", {"restart_max": "10", "restart_backoff": "10s",
                                      "restart_window": "126s"}),
    ("umask=0077", {"umask": "077"}), ("stopsignal=15", {"stop_signal": "15"}),
    ("stopwaitsecs=0", {"stop_grace": "0s"}),
    ("priority=-3", {"priority": "-3"}),
    ("process_name=b", {}),
    ("environment=A=1, B = \"x=y,z\" ,C='it\"s',", {"env.A": "1", "env.B": "x=y,z",
                                                   "env.C": 'it"s'}),
    ("numprocs=2\nprocess_name=%(process_num)s", {"instances": "2"}),
    ("directory=%(here)s/x", {"cwd": "@HERE@/x"}),
    ("directory=rel", {"cwd": "@HERE@/rel"}),
    ("DIRECTORY : /x", {"cwd": "/x"}),
]


@pytest.mark.parametrize("text, want", ONE, ids=[t.split("\n")[0] for t, _ in ONE])
def test_one_setting(text, want, tmp_path):
    ini, _ = made(tmp_path, HEAD + text + "\n", cwd=tmp_path)
    check(tmp_path, ini)
    want = {"command": "/bin/x", "stop_grace": "10s", **RETRIES,
            **{k: v.replace("@HERE@", str(tmp_path)) for k, v in want.items()}}
    if want.get("restart") == "never":
        want = {k: v for k, v in want.items() if k not in RETRIES}
    assert services(ini) == {"a": want}


MISSING = ["stdout_logfile=syslog", "stdout_syslog=true", "stderr_logfile=/e\nstdout_logfile=/o",
           "exitcodes=1,2", "stopwaitsecs=7200", "user=%(ENV_NOT_SET)s",
           "stdout_events_enabled=1", "stderr_logfile=/e\nstdout_logfile=/dev/stdout"]


@pytest.mark.parametrize("text", MISSING)
def test_what_has_no_equivalent_is_told_with_its_line(text, tmp_path):
    ini, err = made(tmp_path, HEAD + text + "\n")
    check(tmp_path, ini)
    assert f"{tmp_path}/s.conf:4: {text.split(chr(10))[0].replace('=', ' = ', 1)}: " in err
    assert "1 service; 1 setting has no equivalent:" in err
    assert f"# {tmp_path}/s.conf:4: " in ini


@pytest.mark.parametrize("line, words", [
    ("autostrat=false", "supervisord 4.2 does not know it either; was 'autostart' meant?"),
    ("colour=red", "supervisord 4.2 does not know it either\n")])
def test_a_mistyped_key_is_in_the_summary(line, words, tmp_path):
    _, err = made(tmp_path, HEAD + line + "\n")
    assert "1 setting has no equivalent:" in err and f"s.conf:4: {line.replace('=', ' = ')}: {words}" in err, err


def test_a_stream_that_goes_to_inits_own_anyway_is_not_told(tmp_path):
    ini, err = made(tmp_path, HEAD + "stderr_logfile=/dev/stderr\n")
    assert "0 settings have no equivalent" in err and "stderr_logfile" not in ini


def test_a_name_that_no_service_can_have_is_told(tmp_path):
    ini, err = made(tmp_path, "[supervisord]\n[program:main]\ncommand=/bin/x\n")
    check(tmp_path, ini)
    assert "[program:main]: no service can have that name: it is 'main1' here" in err


def test_a_variable_that_is_looked_up_now(tmp_path):
    text = HEAD + "user=%(ENV_WHO)s\ndirectory=%(ENV_HOME)s\n"
    ini, _ = made(tmp_path, text, env=dict(ENV, WHO="daemon"))
    assert services(ini)["a"]["user"] == "daemon" and services(ini)["a"]["cwd"] == "/home/me"


def test_includes(tmp_path):
    # given an [include] with patterns, then files are read in order, below the folder of the main
    # one, %(here)s is the folder of each, and a message names the included file
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b.conf").write_text("[program:b]\ncommand=%(here)s/b\n")
    (tmp_path / "conf.d" / "a.conf").write_text("[program:a]\ncommand=%(here)s/a\nuser=%(ENV_NO)s\n")
    (tmp_path / "one.ini").write_text("[program:one]\ncommand=one\n[include]\nfiles=more\n")
    text = "[supervisord]\n[include]\nfiles = one.ini\n  conf.d/*.conf %(here)s/none*\n"
    ini, err = made(tmp_path, text)
    check(tmp_path, ini)
    assert list(services(ini)) == ["one", "a", "b"]
    assert services(ini)["a"]["command"] == f"{tmp_path}/conf.d/a"
    assert f"{tmp_path}/conf.d/a.conf:3: user" in err
    assert "s.conf:3: files" in ini and f"no file fits '{tmp_path}/none*'" in ini


BAD = [
    ("", ": there is no [supervisord] section"), ("x\n", ":1: text before the first [section]"),
    ("[supervisord]\nx\n", ":2: neither"), ("[program:a]\ncommand=x\n", "(give that one)"),
    ("[supervisord]\n[program:a]\n", ":2: [program:a] has no command"),
    (HEAD.replace("/bin/x", ""), ":3: command: it is empty"),
    (HEAD.replace("/bin/x", "'a"), ":3: command: a quote (') is not closed"),
    (HEAD.replace("/bin/x", "a\\"), ":3: command: a backslash"),
    (HEAD.replace("/bin/x", "50% x"), ":3: command: '% x' is neither"),
    (HEAD.replace("/bin/x", "%(nope)s"), ":3: command: %(nope) has no meaning"),
    (HEAD.replace("/bin/x", "%(program_name)d"), ":3: command: %(program_name)"),
    (HEAD.replace("/bin/x", "%(ENV_a b)s"), ":3: command: 'a b' is not a variable's name"),
    (HEAD + "priority=x\n", ":4: priority: 'x' is not a whole number"),
    (HEAD + "priority=1000000\n", ":4: priority: "),
    (HEAD + "autostart=maybe\n", ":4: autostart: 'maybe' is neither"),
    (HEAD + "autorestart=maybe\n", ":4: autorestart: 'maybe'"),
    (HEAD + "startretries=-1\n", ":4: startretries: '-1'"),
    (HEAD + "exitcodes=256\n", ":4: exitcodes: '256'"),
    (HEAD + "stopsignal=SIGNOPE\n", ":4: stopsignal: 'SIGNOPE'"),
    (HEAD + "umask=9\n", ":4: umask: '9'"),
    (HEAD + "environment=A\n", ":4: environment: 'A' is not KEY="),
    (HEAD + "environment=A=\"1\n", ":4: environment: a quote"),
    (HEAD + "environment=A-B=1\n", ":4: environment: 'A-B'"),
    (HEAD + "numprocs=2\n", ":2: numprocs = 2 needs"),
    (HEAD + "numprocs=100000\n", ":4: numprocs: "),
    (HEAD + "stdout_logfile=/o\nstdout_logfile_maxbytes=5XB\n", ":5: stdout_logfile_maxbytes: '5XB'"),
    ("[supervisord]\nloglevel=loud\n", ":2: loglevel: 'loud'"),
    ("[supervisord]\nminfds=x\n", ":2: minfds: 'x'"),
    ("[supervisord]\nenvironment=x\n", ":2: environment: 'x'"),
    ("[supervisord]\n[include]\nfiles=%(x)s\n", ":3: files: "),
    ("[supervisord]\n[include]\nfiles=bad.ini\n", "bad.ini:2: neither"),
]


FAILED = "[this is no configuration: --import-supervisord has failed]\n"


def is_no_configuration(text, folder):
    """What a failed import wrote into a file must not pass for one without services."""
    (folder / "made.ini").write_text(text)
    r = run("--check", "-c", folder / "made.ini")
    assert r.returncode == 1 and "--import-supervisord has failed" in r.stderr, r


@pytest.mark.parametrize("text, complaint", BAD, ids=[c for _, c in BAD])
def test_bad_files(text, complaint, tmp_path):
    (tmp_path / "bad.ini").write_text("[x]\ny\n")
    path = tmp_path / "s.conf"
    path.write_text(text)
    r = run("--import-supervisord", path)
    assert r.returncode == 1 and complaint in r.stderr, r
    is_no_configuration(r.stdout, tmp_path)
    assert r.stderr.count("\n") == 1 and str(tmp_path) in r.stderr


@pytest.mark.parametrize("path", ["/no/such", "/etc", ""])
def test_unreadable(path, tmp_path):
    r = run("--import-supervisord", path)
    assert r.returncode == 1 and r.stderr.startswith("sandbox-init: ")
    is_no_configuration(r.stdout, tmp_path)


def test_usage_of_the_option():
    assert run("--import-supervisord").returncode == 2
    assert run(f"--import-supervisord={HERE}/web.conf").returncode == 0


def test_any_change_of_a_file_ends_well(tmp_path):
    # given random changes of the files, then each is refused with a message, or its translation is
    # valid, or said to need an edit; never a crash
    source = random.Random(7)
    path = tmp_path / "s.conf"
    for i in range(repeats(2000)):
        data = bytearray(source.choice(FILES).read_bytes())
        for _ in range(source.randint(1, 6)):
            at, how = source.randrange(len(data)), source.randrange(4)
            if how == 0:
                data[at] = source.choice(b"%()[]=:;#'\"\\\n \t\0\xff0aA,-")
            elif how == 1:
                del data[at : at + source.randint(1, 30)]
            elif how == 2:
                data[at:at] = data[source.randrange(len(data)) :][: source.randint(1, 40)]
            else:
                data[at:at] = source.choice([b"%(ENV_HOME)s", b"%(process_num)09d", b"\n\n  x\n",
                                             b"%", b"\\\n", b"[program:x]\ncommand=y\n"])
        path.write_bytes(data)
        r = run("--import-supervisord", path)
        assert r.returncode in (0, 1), (i, r)
        assert r.stderr.startswith("sandbox-init: "), (i, r)
        assert r.returncode == 0 or "needs an edit: result:" in r.stderr or r.stdout == FAILED, (i, r)
    assert is_long() or i < 2000


# ---- run -----------------------------------------------------------------------------------------

TELL = """#!/usr/bin/python3
import json, os, signal, sys
name = sys.argv[1]
told = {"argv": sys.argv[1:], "cwd": os.getcwd(), "uid": os.getuid(), "groups": os.getgroups(),
        "env": {k: v for k, v in os.environ.items() if k.startswith(("T_", "HOME", "USER"))},
        "umask": os.umask(0)}
if name == "other": # a service has the home and name of its user
    for key in ("HOME", "USER", "T_HOME"):
        told["env"].pop(key, None)
with open(f"%s/{name}.new", "w") as f:
    json.dump(told, f)
print("out of", name, flush=True)
print("err of", name, file=sys.stderr, flush=True)
def end(sig, _):
    open(f"%s/{name}.ended", "w").write(str(int(sig)))
    os._exit(0)
for sig in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(sig, end)
os.rename(f"%s/{name}.new", f"%s/{name}")
while True:
    signal.pause()
"""
RUN = """[supervisord]
nodaemon=true
umask=027
directory=/var
logfile=@/main.log
pidfile=@/pid
childlogdir=@
environment=T_ALL="for all",T_HOME="%(ENV_HOME)s/x"
[program:plain]
command=@/tell %(program_name)s 'two words' "a ""b\\"c" --home=%(ENV_HOME)s
environment=T_OWN="%(program_name)s, %(ENV_T_OUTER)s",T_ALL=own
stdout_logfile=@/plain.log
redirect_stderr=true
[program:many]
command=@/tell many%(process_num)d %(numprocs)s
process_name=%(program_name)s_%(process_num)02d
numprocs=2
numprocs_start=7
directory=/usr
umask=077
stopsignal=USR1
[program:other]
command=@/tell other
user=daemon
directory=/tmp
[program:off]
command=@/tell off
autostart=false
"""
NAMES = ("plain", "many7", "many8", "other")


def told_by(folder, start, stop):
    """What each program says of itself, which signal ended it, and the log of one."""
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "tell").write_text(TELL.replace("%s", str(folder)))
    (folder / "tell").chmod(0o755)
    (folder / "s.conf").write_text(RUN.replace("@", str(folder)))
    log = folder / "plain.log"
    start(folder)
    try:
        wait_until(lambda: all((folder / n).exists() for n in NAMES), 30, "all run")
        wait_until(lambda: log.exists() and log.read_text().count("\n") == 2, 10, "the log")
    finally:
        stop()
    told = {n: json.loads((folder / n).read_text().replace(str(folder), "@")) for n in NAMES}
    ended = {n: (folder / f"{n}.ended").read_text() for n in NAMES}
    return told, ended, sorted(log.read_text().splitlines()), (folder / "off").exists()


@needs_supervisor
def test_it_runs_as_under_supervisord(request):
    # given a file, when supervisord runs it and sandbox-init runs its translation, then each program
    # has the same arguments, folder, user, environment, umask and limit, and ends by the same signal
    env = {"PATH": PATH, "HOME": "/home/me", "T_OUTER": "from outside"}
    running = []

    def supervisord(folder):
        p = subprocess.Popen(["/usr/bin/supervisord", "-c", folder / "s.conf"], env=env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             start_new_session=True, cwd="/usr")
        running.append(lambda: (p.terminate(), p.wait(30)))

    def sandbox_init(folder):
        ini, _ = imported(folder / "s.conf", env=env)
        box = Box("ns-root", ini=ini.replace("[init]\n", "[init]\nruntime_dir = @RUN@\n"), env=env,
                  before=["env", "-C", "/usr"])
        running.append(lambda: (box.stop(), box.close()))

    top = base() / "import"
    top.mkdir()
    request.addfinalizer(lambda: shutil.rmtree(top))
    stop = lambda: running.pop()()
    theirs = told_by(top / "theirs", supervisord, stop)
    ours = told_by(top / "ours", sandbox_init, stop)
    for one, other in zip(ours, theirs):
        assert one == other, "\n" + "\n".join(f"{n}: {one[n]}\n{other[n]}" for n in one if one[n] != other[n])


@needs_supervisor
@pytest.mark.long
def test_it_gives_up_as_supervisord_does():
    # given a program that ends at once and two tries more, when both run it, then it is started
    # three times by either, and given up
    top = base() / "retries"
    top.mkdir()
    text = (f"[supervisord]\nnodaemon=true\nlogfile={top}/main.log\npidfile={top}/pid\n"
            f"[unix_http_server]\nfile={top}/sock\n[rpcinterface:supervisor]\n"
            "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
            f"[supervisorctl]\nserverurl=unix://{top}/sock\n"
            "[program:a]\ncommand=sh -c 'echo x >>$0; exit 1' %(here)s/starts\nstartretries=2\n")
    (top / "s.conf").write_text(text)
    starts = lambda: (top / "starts").read_text().count("x")
    p = subprocess.Popen(["/usr/bin/supervisord", "-c", top / "s.conf"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: "FATAL state" in (top / "main.log").read_text()
                   if (top / "main.log").exists() else False, 30, "supervisord gives up")
        assert starts() >= 3  # on a busy machine it takes an end for one that came after startsecs
    finally:
        p.terminate()
        p.wait(30)
    (top / "starts").unlink()
    ini, _ = imported(top / "s.conf")
    with Box("ns-root", ini=ini.replace("[init]\n", "[init]\nruntime_dir = @RUN@\n")) as box:
        wait_until(lambda: "state=fatal" in box.log(), 30, box.log)
        assert starts() == 3, f"{ini}\n{box.log()}"
    shutil.rmtree(top)
