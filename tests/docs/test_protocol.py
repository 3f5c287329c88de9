"""docs/control-protocol.md lists the verbs, arguments and events that there are, and what answers hold."""

import json
import re

import pytest

from rig.box import ROOT, Box
from rig.manual import section, table
from rig.wait import wait_until

PAGE = (ROOT / "docs/control-protocol.md").read_text()


def without_parentheses(text):
    while (less := re.sub(r"\([^()]*\)", "", text)) != text:
        text = less
    return text


def words(text):
    """Names between backticks, without what marks them (`env*`, `stdin=1?`, `ended[]`)."""
    return {m.group(1) for span in re.findall(r"`([^`]*)`", text) for word in span.split()
            if (m := re.match(r"([a-z][a-z_0-9]*)(?=[\[?*+=,:]|$)", word))}


def verbs():
    """{verb: (arguments, answer)}"""
    found = {}
    for title in ("Sessions", "Commands and processes", "Terminals", "Services", "Init"):
        for first, *more in table(section(PAGE, title)):
            for verb in re.findall(r"`([a-z.-]+)`", first) if len(more) == 2 else ():
                found[verb] = more
    return found


def events():
    """{kind: ({what}, {field})}"""
    found, kind = {}, None
    for first, what, fields in table(section(PAGE, "Events")):
        kind = first.strip("`") or kind
        whats, told = found.setdefault(kind, (set(), set()))
        whats |= words(without_parentheses(what))
        if of := re.search("as of a (\\w+)", fields):
            told |= found[of.group(1)][1]
        told |= words(without_parentheses(fields))
    return found


# ---- what the sources say ----


def test_verbs_and_their_arguments():
    table = re.search(r"verbs\[\] = \{(.*?)^\};", (ROOT / "init/verbs.c").read_text(), re.M | re.S).group(1)
    there = {name: set("".join(re.findall(r'"([^"]*)"', keys)).split()) - {"text"}
             for name, keys in re.findall(r'\{"([a-z.-]+)",((?:\s*"[^"]*")+)', table)}
    assert len(there) > 30
    told = {}
    for verb, (arguments, _) in verbs().items():
        told[verb] = words(without_parentheses(arguments))
        if of := re.search("as of `(\\w+)`", arguments):
            told[verb] |= told[of.group(1)] - {of.group(1), "id"}
            told[verb] -= {of.group(1)}
    assert told == there


# What an event's kind is where the source says it with a variable.
KINDS_OF = {"sessions/session.c": {"command", "process", "terminal"},
            "sessions/process.c": {"command", "process", "terminal"},
            "sessions/outcome.c": {"command", "process", "terminal"}}


def test_events_and_their_fields():
    whats, fields, all_ = {}, {}, ""
    for source in (p for d in ("init", "services", "sessions") for p in sorted((ROOT / d).glob("*.c"))):
        name, text = str(source.relative_to(ROOT)), source.read_text()
        if name == "sessions/events.c":
            continue
        all_ += text
        for m in re.finditer(r"(?<![A-Z_])(?:EVENT|event_emit)\((.*?)\);", text, re.S):
            kind, what = [a.strip() for a in m.group(1).split(",")[:2]]
            kinds = {kind[6:].lower()} if kind.startswith("EVENT_") else KINDS_OF[name]
            keys = set(re.findall(r'F_\w+\("(\w+)"', m.group(1)))
            if "event_emit" in m.group(0):  # its fields stand before it
                keys = set(re.findall(r'F_\w+\("(\w+)"',
                                      text[:m.start()].rpartition("log_field fields[] = {")[2].partition("};")[0]))
            for k in kinds:
                whats.setdefault(k, set()).update(re.findall(r'"(\w+)"', what))
                fields.setdefault(k, set()).update(keys)
    told = events()
    assert set(told) - {"lost"} == set(whats)
    for kind, (told_whats, told_fields) in told.items():
        if kind == "lost":
            continue
        if kind in KINDS_OF["sessions/outcome.c"]:
            whats[kind] &= told_whats | {"ended"}  # "opened" is one kind's, "started" another's
        assert whats[kind] <= told_whats, kind
        assert all(f'"{what}"' in all_ for what in told_whats), kind
        # one text is "state" in the log and `what` in the event
        assert fields[kind] - {"state" if kind == "service" else ""} == told_fields, kind


# Where the words of a kind stand, and the sentence that lists them.
WORDS = [
    ("base/error.c", "ERR", r"`code` \((`invalid`[^:]*):"),
    ("sessions/session.c", "SESSION", r"`state` is (`starting`, `idle`.*?)\. A"),
    ("services/service.c", "SERVICE", r"`state` is (`stopped`, .*?)\. A name"),
    ("init/gateway.c", "GATEWAY", r"gateway\?` \((.*?)\) `gateway_pid"),
    ("sessions/outcome.c", "VERDICT", r"how it ended: (`exited`; .*?) \| \| `status`"),
]


@pytest.mark.parametrize("file,prefix,sentence", WORDS, ids=lambda w: w if w.isupper() else "")
def test_words(file, prefix, sentence):
    there = set(re.findall(rf'\[{prefix}_\w+\] = "(\w+)"', (ROOT / file).read_text())) - {"none"}
    said = without_parentheses(re.search(sentence, " ".join(PAGE.split())).group(1))
    assert len(there) >= 5 and set(re.findall(r"`(\w+)`", said)) == there
    if prefix == "VERDICT":
        told, = re.findall(r"^\| `verdict` \| ([^;]*);", (ROOT / "docs/sandboxctl.1.md").read_text(), re.M)
        assert set(re.findall(r"`(\w+)`", told)) == there


# ---- what answers hold ----


RESULT = {"id", "verdict", "status", "exited", "drained", "quiescent", "duration_s", "stdout_bytes",
          "stderr_bytes"}


def told_of(verb):
    """What an answer of this verb may hold."""
    answer = verbs()[verb][1]
    told = words(answer) | {w for of in re.findall(r"as of `([a-z.-]+)`", answer) if of != verb
                            for w in told_of(of)}
    for of, list_ in (("session.show", "session.list"), ("service.show", "service.list")):
        if verb == of:
            told |= told_of(list_)
    if verb in ("service.show",):
        told |= told_of("tree")
    if verb == "service.signal":
        told |= told_of("service.stop")
    if verb in ("exec", "wait"):
        rest = section(PAGE, "Commands and processes").split("The result of a command or process:")[1]
        told |= {w for key, _ in table(rest) for w in words(key)} | words(rest.split("### Head and tail")[1])
    return told


def must_of(verb):
    """What a result of this verb always has."""
    m = re.search(r"result[^:;`]*: ([^;]*)", without_parentheses(verbs()[verb][1]))
    return {w for span in re.findall(r"`([^`]*)`", m.group(1) if m else "") for w in span.split()
            if re.fullmatch("[a-z_0-9]+", w) and w not in verbs()}


CALLS = [
    ("status", {}), ("session.list", {}), ("session.show", {"name": "s"}), ("ps", {}), ("tree", {}),
    ("logs", {"id": "p"}), ("events", {}), ("reload", {}), ("service.list", {}), ("service.show", {"name": "web"}),
    ("service.restart", {"name": "web"}), ("service.signal", {"name": "web", "signal": "CONT"}),
    ("service.logs", {"name": "web"}), ("session.env", {"name": "s"}), ("session.save", {"name": "s"}),
    ("session.fork", {"name": "s", "new": "t"}), ("session.reset", {"name": "t"}),
    ("session.delete", {"name": "t"}), ("exec", {"session": "s", "text": "echo x; sleep 603 & kill -9 $$"}),
    ("exec", {"arg": ["/no/such"]}), ("exec", {"text": "seq 1 1000", "output_limit": "100"}),
    ("start", {"arg": ["sleep", "604"], "id": "q"}), ("kill", {"id": "q"}), ("wait", {"id": "q"}),
    ("terminal.open", {"detached": "1", "id": "t1"}), ("terminal.resize", {"id": "t1", "rows": "9"}),
    ("kill-all", {}), ("purge", {}),
]


def plain(record):
    return {k.removesuffix("[]") for k in record}


def test_answers():
    with Box("ns-root", ini={"service:web": {"command": "sleep 600"}}) as box:
        box.session("s")
        box.start("echo a; exec sleep 601", "s", id="p")
        box.exec("sleep 602 &", "s")
        for verb, arguments in CALLS:
            a = box.call(verb, **arguments)
            told, came = told_of(verb), [a.fields, *(a.rows if verb != "events" else ())]
            unknown = {k for record in came for k in plain(record)} - told
            assert not unknown, f"{verb}: not in docs/control-protocol.md"
            missing = must_of(verb) - plain(a.fields)
            assert not missing, f"{verb}: told without a ?, and not there"
            if verb in ("exec", "wait"):
                assert RESULT <= plain(a.fields)
        told = events()
        rows = [json.loads(l) for l in box.ctl_ok("events").out.splitlines()]
        assert {e["kind"] for e in rows} >= {"init", "session", "process", "terminal", "service", "stray"}
        for e in rows:
            whats, fields = told[e["kind"]]
            assert e["what"] in whats and set(e) <= fields | {"number", "time", "kind", "what", "cut"}, e
        assert [e["number"] for e in rows] == list(range(1, len(rows) + 1))


# ---- figures ----


def test_output_of_a_service_that_is_kept():
    """64 KiB, the beginning and the newest, what is lost is told; and the last ten lines in `service show`."""
    with Box("ns-root", ini={"service:web": {"script": "seq 1 100000; exec sleep 600", "log": "none"}}) as b:
        wait_until(lambda: b.ctl("service", "logs", "--tail", "1", "web").out == b"100000\n", 20,
                   lambda: b.ctl("service", "logs", "--tail", "1", "web"))
        whole = "".join(f"{i}\n" for i in range(1, 100001)).encode()
        r = b.ctl("service", "logs", "web")
        first, last = map(int, re.search(rb"lost bytes (\d+)\.\.(\d+)\n", r.err).groups())
        assert r.out == whole[:first] + whole[last:] and 4096 <= first and 16384 <= len(r.out) <= 65536
        shown = b.call("service.show", name="web").fields["output"]
        assert shown == [str(i) for i in range(99991, 100001)]
