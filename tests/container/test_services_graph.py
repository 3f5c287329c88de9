"""200 services in a graph 10 deep: every constraint of the order is checked from a trace that the
services themselves write, at the start, at a reload of one and at the stop."""

import random
import signal

import pytest

from rig.box import Box, programs
from rig.places import spread
from rig.wait import repeats, wait_until

LAYERS, WIDTH = 10, 20
HEAD = """[init]
runtime_dir = @RUN@
stop_grace = 60s
"""


class Graph:
    """requires[a], follows[a]: who is ready before a begins. A oneshot has no end of its own."""

    def __init__(self, seed):
        rnd = random.Random(seed)
        layers = [[f"s{d}-{i:02}" for i in range(WIDTH)] for d in range(LAYERS)]
        self.names = [n for layer in layers for n in layer]
        self.requires = {n: set() for n in self.names}
        self.after = {n: set() for n in self.names}
        self.before = {n: set() for n in self.names}
        for d in range(1, LAYERS):
            for n in layers[d]:
                self.requires[n] |= set(rnd.sample(layers[d - 1], rnd.randint(1, 3)))
                if rnd.random() < 0.3:
                    self.after[n].add(rnd.choice(layers[rnd.randrange(d)]))
                if rnd.random() < 0.2:
                    self.requires[n].add(rnd.choice(layers[rnd.randrange(d)]))
        for d in range(LAYERS - 1):
            for n in layers[d]:
                if rnd.random() < 0.2:
                    self.before[n].add(rnd.choice(layers[rnd.randrange(d + 1, LAYERS)]))
        self.oneshots = {n for n in self.names if rnd.random() < 0.1}
        self.middle = next(n for n in layers[LAYERS // 2] if n not in self.oneshots)
        self.layers = layers
        self.rnd = rnd

    def edges(self):
        """(earlier, later)"""
        for n in self.names:
            for m in self.requires[n] | self.after[n]:
                yield m, n
            for m in self.before[n]:
                yield n, m

    def needing(self, name):
        """All that require a service, directly or not. A oneshot has nothing to restart."""
        found, todo = set(), [name]
        while todo:
            of = todo.pop()
            new = {n for n in self.names if of in self.requires[n]} - found - self.oneshots
            found |= new
            todo += new
        return found

    def ini(self, changed=()):
        lines = [HEAD]
        names = self.names[:]
        random.Random(3).shuffle(names)  # the order of the file says nothing
        for n in names:
            ms = 5 + sum(map(ord, n)) % 20
            lines.append(f"[service:{n}]")
            if n in self.oneshots:
                lines += [f"command = @HELPER@ stamp trace 'begin {n}' sleep 0.0{ms:02} "
                          f"stamp trace 'ready {n}'", "type = oneshot"]
            else:
                lines += [f"command = @HELPER@ serve trace {n} 3 {ms}", "ready = fd:3"]
            lines += ["cwd = @WORK@", f"priority = {sum(map(ord, n)) % 5}"]
            lines += [f"{key} = {' '.join(sorted(of[n]))}"
                      for key, of in (("requires", self.requires), ("after", self.after),
                                      ("before", self.before)) if of[n]]
            if n in changed:
                lines.append("env.CHANGED = yes")
        return "\n".join(lines).replace("@HELPER@", str(programs() / "misbehave")) + "\n"


class Trace:
    """What was stamped: {(what, name): [nanoseconds]}."""

    def __init__(self, box, begin=0):
        data = (box.work / "trace").read_bytes()
        self.end = len(data)
        self.at = {}
        for line in data[begin:].decode().splitlines():
            ns, what, name = line.split()
            self.at.setdefault((what, name), []).append(int(ns))

    def names(self, what):
        return sorted(n for w, n in self.at if w == what for _ in self.at[w, n])

    def one(self, what, name):
        [ns] = self.at[what, name]
        return ns


def states(box):
    return {row["name"]: row for row in box.call("service.list").rows}


def all_ready(box, graph):
    return wait_until(lambda: all((s := states(box))[n]["ready"] for n in graph.names) and s, 60,
                      lambda: {n: s.get("detail") for n, s in states(box).items() if not s["ready"]},
                      every=0.05)


def check_start(trace, edges):
    for earlier, later in edges:
        assert trace.one("ready", earlier) < trace.one("begin", later), (earlier, later)


def check_stop(trace, edges, oneshots):
    for earlier, later in edges:
        if not {earlier, later} & oneshots:
            assert trace.one("gone", later) < trace.one("term", earlier), (earlier, later)


@pytest.mark.parametrize("where, seed", spread(*range(repeats(10))))
def test_200_services_in_a_graph_10_deep(where, seed):
    graph = Graph(seed)
    edges = list(graph.edges())
    assert len(graph.names) == 200 and len(edges) > 400
    with Box(where, ini=graph.ini(), deadline=60) as box:
        # when the container starts, then each begins once, behind all that it comes after
        s = all_ready(box, graph)
        start = Trace(box)
        assert start.names("begin") == start.names("ready") == sorted(graph.names)
        assert all(s[n]["restarts"] == 0 for n in graph.names)
        check_start(start, edges)
        # and those that wait for nothing of each other start at the same time
        for layer in graph.layers:
            last = max(start.one("begin", n) for n in layer)
            assert any(start.one("ready", n) > start.one("begin", m) for n in layer for m in layer
                       if n != m), (layer, last)
        # when one of the middle is changed, then it is restarted with what requires it
        box.write_ini(graph.ini(changed=[graph.middle]))
        r = box.ctl_ok("reload", "--json")
        assert graph.middle.encode() in r.out
        wait_until(lambda: Trace(box, start.end).at.get(("ready", graph.middle)), 30)
        t = all_ready(box, graph)
        again = Trace(box, start.end)
        needing = graph.needing(graph.middle)
        moved = {n for n in graph.names if s[n].get("pid") != t[n].get("pid")}
        assert moved == set(again.names("begin")) and graph.middle in moved
        assert moved == needing | {graph.middle}
        assert again.names("gone") == again.names("ready") == sorted(moved)
        among = [(a, b) for a, b in edges if {a, b} <= moved and a in graph.requires[b]]
        check_stop(again, among, graph.oneshots)
        check_start(again, among)
        # when the container stops, then each ends once, before all that it comes after
        box.signal(signal.SIGTERM)
        assert box.wait(60) == 0
        stop = Trace(box, again.end)
        live = sorted(set(graph.names) - graph.oneshots)
        assert stop.names("term") == stop.names("gone") == live
        assert not stop.names("begin")
        check_stop(stop, edges, graph.oneshots)
        assert not box.survivors()
