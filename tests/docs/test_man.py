"""The man pages say what the program says: verbs, options, keys, signals; and what the tables of
sandbox-init.8.md claim of sessions holds in every shell."""

import json
import re
import shutil
import subprocess

import pytest

from rig.box import ROOT, Box, build_dir, shell_path
from rig.manual import keys_of_schema, section, table
from rig.wait import wait_until

DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")])
CTL = (ROOT / "docs/sandboxctl.1.md").read_text()
INIT = (ROOT / "docs/sandbox-init.8.md").read_text()
INI = (ROOT / "docs/sandbox.ini.5.md").read_text()
GATEWAY = (ROOT / "docs/gateway.md").read_text()


def run(*args):
    r = subprocess.run([build_dir() / args[0], *args[1:]], capture_output=True, check=False)
    return r.returncode, r.stdout.decode()


# ---- sandboxctl.1 ----------------------------------------------------------------------------


def verbs():
    text = run("sandboxctl", "--help")[1]
    return re.findall(r"^  ((?:session |service |terminal )?[a-z-]+)  +[A-Z]", text.partition("verbs:")[2], re.M)


def options_in(help_):
    """What a help text lists: {--long: -l or None}."""
    return {long: short or None for short, long in re.findall(
        r"^ +(?:(-\w), )?(?:--[a-z-]+\S*, )*?(--[a-z-]+)(?=[= \n,])", help_, re.M)}


def options_of(*verb):
    status, text = run("sandboxctl", *verb, "--help")
    assert status == 0 and text.startswith(f"usage: sandboxctl {' '.join(verb)}"), text
    return options_in(text.partition("options:")[2])


def test_every_verb_has_help_and_is_documented():
    assert len(verbs()) >= 33
    for verb in verbs():
        assert set(options_of(*verb.split())) >= {"--socket", "--json", "--help"}
        assert run("sandboxctl", "help", *verb.split())[0] == 0
        assert re.search(rf"^    {verb}\b", CTL, re.M), verb


def keys_in(text):
    return set(re.findall(r"`(\w+)`", text)) | set(re.findall(r'"(\w+)":', text))


def test_man_names_every_key_that_exec_and_logs_print():
    with Box() as box:
        box.session("s")
        answers = [box.ctl("exec", "--json", *args) for args in (
            ("-s", "s", "echo a; printf '\\377'; sleep 600 & exit 3"),
            ("-s", "s", "--soft-timeout", "50ms", "--id", "soft", "echo a; sleep 601"),
            ("--timeout", "50ms", "sleep 602"),
            ("--output-limit", "10", "seq 1 1000; seq 1 1000 >&2"),
            ("--", "/no/such"),
        )]
        box.ctl_ok("kill", "soft")
        answers += [box.ctl("logs", "--json", "soft"), box.ctl("logs", "-f", "--json", "soft")]
    printed = {key for r in answers for line in r.out.splitlines() for key in json.loads(line)}
    assert printed >= {"verdict", "clock", "offset", "from", "to", "data", "stdout_base64"}
    told = keys_in(section(CTL, "ANSWERS"))
    assert {re.sub("^stderr_(kept|head)", r"stdout_\1", key) for key in printed} - told == set()
    assert "`running`" in section(CTL, "ANSWERS")


def options_told(cell):
    """{--long: -l or None} of a cell such as "`-e`, `--env K=V`"."""
    return {long: short or None for short, long in re.findall(r"(?:`(-\w)(?: [^`]*)?`, )?`(--[a-z-]+)", cell)}


def test_what_a_relative_cwd_is_relative_to(pool):
    b = pool.get("ns-root")
    (b.work / "relative-cwd").mkdir(exist_ok=True)
    b.session("cwd")
    b.exec("cd /usr", "cwd")
    assert b.exec("pwd", "cwd", cwd="bin").out == b"/usr/bin\n"
    assert b.exec("pwd", cwd="relative-cwd").out.decode() == f"{b.work}/relative-cwd\n"
    b.ctl_ok("start", "-s", "cwd", "--cwd", "bin", "--id", "cwd-s", "pwd")
    b.ctl_ok("start", "--cwd", "relative-cwd", "--id", "cwd-0", "pwd")
    assert b.ctl("wait", "cwd-s").status == b.ctl("wait", "cwd-0").status == 0
    assert b.ctl("logs", "cwd-s").out == b"/usr/bin\n"
    assert b.ctl("logs", "cwd-0").out.decode() == f"{b.work}/relative-cwd\n"
    r = b.ctl("session", "create", "cwd-r", "--cwd", "relative-cwd")
    assert r.status == 1 and b"cwd relative-cwd: want an absolute path" in r.err


def test_late_output_goes_nowhere(pool):
    b = pool.get("ns-root")
    b.session("late")
    go, wrote = b.work / "late.go", b.work / "late.wrote"
    r = b.ctl("exec", "-s", "late", "--id", "late-c",
              f"(until [ -e {go} ]; do sleep .02; done; echo late; echo late >&2; echo $? >{wrote}) & echo soon")
    assert r.out == b"soon\n"
    go.touch()
    wait_until(lambda: wrote.exists() and wrote.read_text(), 10, "the child has written")
    assert wrote.read_text() == "0\n", "and is not hurt by it"
    assert b.ctl("logs", "late-c").triple == (0, b"soon\n", b"")
    assert b.exec("echo next", "late").triple == (0, b"next\n", b"")


def test_options_table():
    """Both ways: what each verb's help lists is in the table, with its letter, and the reverse."""
    told = {}
    for names, of, _ in table(section(CTL, "OPTIONS")):
        for option, letter in options_told(names).items():
            for verb in of.split(","):
                told.setdefault((option, letter), set()).add(verb.strip())
    there = {}
    everywhere = {("--socket", "-S"), ("--json", None), ("--help", "-h")}
    for verb in verbs():
        for option in options_of(*verb.split()).items():
            there.setdefault(option, set()).add("all" if option in everywhere else verb)
    assert told == there


def test_options_of_sandboxctl_itself():
    status, text = run("sandboxctl", "--help")
    there = options_in(text.partition("options of every verb:")[2].partition("exit codes:")[0])
    assert status == 0 and there == {"--socket": "-S", "--json": None, "--help": "-h", "--version": "-V"}
    assert "`sandboxctl --version`, or `-V`, prints the version." in section(CTL, "OPTIONS")
    assert section(CTL, "SYNOPSIS").strip() in text.partition("\n")[0]


# ---- sandbox.ini.5 ---------------------------------------------------------------------------


def keys_of_example():
    """{section: {key: default or None}}; one without a default is described with "Not set"."""
    found, section_, comment = {}, None, ""
    for line in (ROOT / "sandbox.ini.example").read_text().splitlines():
        if m := re.match(r"#?\[(\w+)", line):
            section_ = m.group(1)
        elif (m := re.match(r"#([a-z_]+(?:\.[A-Za-z]+)?) = (.*)", line)) and section_ != "session":
            key = re.sub(r"\..*", ".NAME", m.group(1))
            found.setdefault(section_, {}).setdefault(key, None if "Not set" in comment else m.group(2))
        comment = (comment + line) if line.startswith("# ") else ""
    return found


def keys_of_manual():
    found = {"init": {}, "sessions": {}, "service": {}, "include": {}, "gateway": {}}
    for title in ("KEYS OF [init]", "KEYS OF [sessions] AND [session:NAME]",
                  "KEYS OF [sessions] ONLY", "KEYS OF [service:NAME]", "KEYS OF [include]",
                  "KEYS OF [gateway]"):
        for key, default, _ in table(section(INI, title)):
            where = found[re.search(r"\[(\w+)", title).group(1)]
            where[key.strip("`")] = default.strip("`") or None
    return found


def test_what_takes_effect_at_the_next_start():
    """The manual marks those keys of services that the schema does."""
    text = (ROOT / "config/service_schema.c").read_text()
    marked = {key for key, _, why in table(section(INI, "KEYS OF [service:NAME]"))
              if why.endswith("*start*")}
    assert marked == {f"`{k}`" for k in re.findall(r'^    \{"([\w.]+)",\s+START,', text, re.M)} | {
        "`env_file`"}


def test_every_key():
    assert keys_of_manual() == keys_of_example() == keys_of_schema()
    assert len(keys_of_manual()["init"]) == 17


def test_keys_of_one_session():
    """A [session:NAME] takes the keys of the second table and refuses those of the third."""
    for title, status in (("KEYS OF [sessions] AND [session:NAME]", 0), ("KEYS OF [sessions] ONLY", 1)):
        for key, default, _ in table(section(INI, title)):
            value = {"`shell`": "/bin/sh", "`cwd`": "/", "`user`": "0", "`env.NAME`": "x",
                     "`setup`": ":"}.get(
                key, default.strip("`"))
            r = subprocess.run(["bash", "-c", '"$0" --check -c <(:) 2>/dev/null; f=$(mktemp); '
                                'printf "[session:a]\\n%s = %s\\n" "$1" "$2" >"$f"; '
                                '"$0" --check -c "$f"; s=$?; rm "$f"; exit $s',
                                build_dir() / "sandbox-init", key.strip("`"), value],
                               capture_output=True, check=False)
            assert r.returncode == status, (key, r.stderr)


def test_changed_session_takes_effect_at_reset():
    ini = {"sessions": {"env.A": "1"}, "session:dev": {"env.B": "1"}}
    with Box("ns-root", ini=ini) as b:
        assert b.exec("echo $A$B", "dev").out == b"11\n"
        ini["session:dev"]["env.B"] = "2"
        b.write_ini(ini)
        b.ctl_ok("reload")
        b.ctl_ok("session", "reset", "dev")
        assert b.exec("echo $A$B", "dev").out == b"12\n"


# ---- sandbox-init.8 --------------------------------------------------------------------------


def test_signal_table_is_the_code_s():
    comment = re.search(r"the same table\):\n(.*?) \*/", (ROOT / "init/signals.c").read_text(), re.S)
    rows = [re.match(r" \*   (.+?)  +(.*)", l).groups() for l in comment.group(1).splitlines()]
    assert [tuple(r) for r in table(section(INIT, "SIGNALS"))] == rows


def test_options_of_init():
    told = {}
    for cell, _ in table(section(INIT, "OPTIONS")):
        if cell.startswith("`--"):
            cell = ", ".join(reversed(cell.split(", ")))  # the long form stands first
        told.update({o: l and l[:2] for o, l in options_told(cell).items()})
    status, text = run("sandbox-init", "--help")
    assert status == 0 and told == options_in(text.partition("\n\n")[2])
    usage = [l.removeprefix("usage:").strip() for l in text.partition("\n\n")[0].splitlines()]
    assert usage == [l.strip() for l in section(INIT, "SYNOPSIS").strip().splitlines()]
    for option, letter in told.items():
        if option not in ("--help", "--version"):
            continue
        assert run("sandbox-init", option) == run("sandbox-init", letter)


# ---- gateway.md ------------------------------------------------------------------------------

# What tests shorten its times by.
FOR_TESTS = {"--head-timeout", "--stall-timeout"}


def test_options_of_the_gateway():
    told = {o for cell, _ in table(section(GATEWAY, "The program")) for o in options_told(cell)}
    status, text = run("sandbox-gateway", "--help")
    there = set(re.findall(r"(?<![\w-])--[a-z-]+", text.partition("\n\n")[2]))
    assert status == 0 and told == there
    known = re.findall(r'^    \{"([a-z-]+)",', (ROOT / "gateway/options.c").read_text(), re.M)
    assert {f"--{o}" for o in known} - FOR_TESTS == there
    usage = [l.removeprefix("usage:").strip() for l in text.partition("\n\n")[0].splitlines()]
    assert usage == [l.strip() for l in re.findall(r"^    (sandbox-gateway .*)$", section(GATEWAY, "The program"), re.M)]


SET = ("cd /tmp; V=1; export E=2; readonly R=3; set -f; umask 027; ulimit -S -n 77; "
       "f() { echo f; }; alias ll=x; "
       "set -- a b; trap 'echo caught' USR1; exec 7</dev/null")
LOOK = {
    "working directory, `OLDPWD`, the stack of `pushd`": ("pwd", "/tmp"),
    "variables with their attributes, arrays; exported, readonly": (
        "echo $V$(env | grep ^E=)$R", "1E=23"),
    "shell options (`set`, `shopt`), umask, limits (`ulimit`, soft and hard)": (
        "case $- in *f*) umask; ulimit -n ;; esac", "0027\n77"),
    "aliases (dash, ash: of one line)": ("alias ll >/dev/null && echo ll", "ll"),
    "functions": ("f", "f"),
    "positional parameters": ('echo "$*"', "a b"),
    "traps of signals, ignored signals": ("kill -USR1 $$; sleep 0.05", "caught"),
    "open descriptors beyond 2, coprocesses": ("[ -e /proc/$$/fd/7 ] && echo open", "open"),
}


@pytest.mark.parametrize("name", ["bash", "dash", "ash"])
def test_table_of_sessions(name):
    rows = {r[0]: r[1:] for r in table(section(INIT, "SESSIONS"))}
    with Box("ns-root") as b:
        b.session("s", shell=shell_path(name))

        def look(what):
            text, want = LOOK[what]
            return "kept" if b.exec(text, "s").out.decode().strip() == want else "lost"

        b.exec(SET, "s")
        for what in LOOK:
            assert look(what) == rows[what][0] == "kept", what
        r = b.exec("exit 3", "s", json=True)
        assert r.status == 3 and r["shell_restarted"] is True
        for what in LOOK:
            assert look(what) == rows[what][1 if name == "bash" else 2], what


def test_traps_last_for_their_text():
    with Box("ns-root") as b:
        b.session("s")
        for kind in ("DEBUG", "ERR", "RETURN"):
            assert b.exec(f"trap 'echo d' {kind}; false; f() {{ :; }}; f; declare -ft f; f", "s").out
            assert b.exec("true; false; f; echo x", "s").out == b"x\n", kind
        b.exec("exec >/dev/null", "s")
        assert b.exec("echo y", "s").out == b"y\n"


@pytest.mark.parametrize("text", ["kill -9 $$", "exec true"])
def test_state_lost_is_told(text):
    with Box("ns-root") as b:
        b.session("s")
        for older in ("true", "exit 0", "(exit 2)"):  # a state left by them is not taken for this
            b.exec("V=1", "s")
            b.exec(older, "s")
            b.exec("V=2", "s")
            r = b.exec(text, "s", json=True)
            assert r["shell_restarted"] is True and r.get("state_lost") is True, older
            assert b.exec("echo $V", "s").out == b"\n"


def test_driver_owns_what_is_told():
    for script in (ROOT / "sessions").glob("driver.*.sh"):
        for name in re.findall(r"^(\w+)\(\)", script.read_text(), re.M):
            assert name.startswith("__sb_"), name
        assert re.search(r"trap .* 40$", script.read_text(), re.M)


# ---- all of them -----------------------------------------------------------------------------


def test_links():
    for path in DOCS:
        for link in re.findall(r"\]\(([^)#]+)", path.read_text()):
            assert link.startswith("http") or (path.parent / link).exists(), (path.name, link)
        for name in re.findall(r"(?<![\w/])((?:init|services|sessions|config|control|ctl|base|gateway|import|logger|tests|deploy)/"
                               r"\w[\w./]*\.\w+)", path.read_text()):
            assert (ROOT / name).exists(), (path.name, name)


def test_architecture_names_what_is_there():
    text = (ROOT / "docs/architecture.md").read_text()
    modules = ("init", "services", "sessions", "config", "control", "ctl", "base", "gateway", "import", "logger")
    code = "".join(p.read_text() for d in modules for p in (ROOT / d).glob("*.[ch]"))
    for name in re.findall(r"`(\w+)\(\)`", text):
        assert re.search(rf"\b{name}\(", code), name
    files = {p.name for d in (*modules, "tests", "tests/gateway", "tests/rig", "gateway/page") for p in (ROOT / d).glob("*.*")}
    for name in re.findall(r"(?<![\w/.])(\w[\w.]*\.(?:c|h|S|sh|py|js))\b", text):
        assert name in files | {"xterm.js"}, name


def install(to, *variables):
    """What `make install` has put there. The programs are made already: nothing is built here."""
    r = subprocess.run(["make", "install", "-o", "all", f"DESTDIR={to}", "PREFIX=/usr",
                        f"B={build_dir()}", *variables], cwd=ROOT, capture_output=True, check=False)
    assert r.returncode == 0, r.stderr
    return {str(p.relative_to(to)) for p in to.rglob("*") if p.is_file()}, r.stdout.decode()


def test_install(tmp_path):
    have, said = install(tmp_path, "LOWDOWN=/no/lowdown")
    assert "no man pages: there is no lowdown(1)" in said and "usr/share/man" not in " ".join(have)
    doc = "usr/share/doc/sandbox-init/"
    assert have >= {"usr/bin/sandbox-init", "usr/bin/sandboxctl", doc + "README.md",
                    doc + "sandbox-init.8.md", doc + "sandboxctl.1.md", doc + "sandbox.ini.5.md",
                    doc + "architecture.md", doc + "sandbox.ini.example",
                    "usr/share/bash-completion/completions/sandboxctl"}


@pytest.mark.skipif(not shutil.which("lowdown") or not shutil.which("man"), reason="no lowdown(1) or man(1)")
@pytest.mark.parametrize("name,section_", [("sandboxctl", "1"), ("sandbox-init", "8"), ("sandbox.ini", "5")])
def test_installed_man_pages(tmp_path, name, section_):
    """man finds each by its name, and it says all that the source says."""
    have, _ = install(tmp_path)
    assert f"usr/share/man/man{section_}/{name}.{section_}" in have
    r = subprocess.run(["man", "-M", tmp_path / "usr/share/man", "-P", "cat", section_, name], capture_output=True,
                       env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "120"}, check=False)
    page = re.sub(r".\x08", "", r.stdout.decode())
    assert r.returncode == 0 and page.startswith(f"{name}({section_})"), r
    source = (ROOT / f"docs/{name}.{section_}.md").read_text()
    for title in re.findall(r"^## (.*)$", source, re.M):
        assert re.search(rf"^{re.escape(title)}$", page, re.M), title
    for key in re.findall(r"^\| `(-{0,2}[a-z_-]+)", source, re.M):
        assert key in page, key
    assert "| ---" not in page


@pytest.mark.parametrize("words,has,lacks", [
    (["session", "show", ""], {"dev"}, set()),
    (["session", "create", ""], set(), {"dev"}),
    (["kill", ""], {"ticker"}, {"dev"}),
    (["exec", "-s", ""], {"dev"}, set()),
    (["exec", "--timeout", ""], set(), {"dev", "ticker"}),
    (["help", ""], {"exec", "session", "shutdown"}, set()),
    (["exec", "--"], {"--cwd", "--stdin", "--json"}, {"--grace"}),
    (["session", ""], {"create", "env"}, {"exec"}),
])
def test_completion(pool, words, has, lacks):
    b = pool.get("ns-root")
    b.ctl("session", "create", "dev")
    b.ctl("start", "-s", "dev", "--id", "ticker", "sleep 600")
    r = subprocess.run(
        ["bash", "-c", '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandboxctl; '
         'printf "%s\\n" "${COMPREPLY[@]}"', ROOT / "ctl/completion.bash", b.ctl_path, *words],
        env={"PATH": "/usr/bin:/bin", "SANDBOX_SOCKET": str(b.socket)}, capture_output=True,
        check=False)
    got = set(r.stdout.decode().split())
    assert got >= has and not got & lacks, (words, got, r.stderr)
