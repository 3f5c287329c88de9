"""What the services of a box do, from the events of init: a trace in order, and waiting for a state.

    with Box(ini=..., ...) as box, Services(box) as services:
        services.wait("web", "running")
"""

import json
import threading
import time

from .wait import PATIENCE, Late
from .wire import WireError


def ini_text(sections):
    """A file for Box(ini=…) in which @RUN@ and @WORK@ count."""
    whole = {"init": {"runtime_dir": "@RUN@", **sections.get("init", {})},
             **{k: v for k, v in sections.items() if k != "init"}}
    return "".join(f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items())
                   for name, keys in whole.items())


class Services:
    def __init__(self, box):
        self.box = box
        self._trace = []  # {"service": …, "what": state, "pid": …, …} in order
        self._news = threading.Condition()
        self._number = 0  # of the last event that was read
        self._client = box.ctl_spawn("events", "-f", "--from", "1")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._client.kill()
        self._client.communicate()

    def _read(self):
        for line in self._client.stdout:
            e = json.loads(line)
            with self._news:
                if e["kind"] in ("service", "main", "stop"):
                    self._trace.append({**e, "seen": time.monotonic()})
                self._number = e["number"]
                self._news.notify_all()

    @property
    def trace(self):
        """All that has happened until now, though the reader may be late."""
        try:
            last = int(self.box.call("events", tail=0, deadline=PATIENCE)["next"]) - 1
        except (OSError, AssertionError, WireError):  # it has ended, or is about to
            return self._trace
        with self._news:
            self._news.wait_for(lambda: self._number >= last, PATIENCE)
        return self._trace

    def mark(self):
        """A place in the trace, for wait(after=)."""
        return len(self.trace)

    def wait(self, name, state, after=0, deadline=20.0):
        """The first event of that service with that state behind a place in the trace."""
        end = time.monotonic() + deadline
        with self._news:
            while True:
                for e in self._trace[after:]:
                    if e.get("service") == name and e["what"] == state:
                        return e
                left = end - time.monotonic()
                if left <= 0:
                    raise Late(f"{name} is not {state} within {deadline} s; it was "
                               f"{[e['what'] for e in self._trace[after:] if e.get('service') == name]}; log: {self.box.log()[-1500:]}")
                self._news.wait(left)

    def of(self, name, after=0):
        """The states of one service, in order."""
        return [e["what"] for e in self.trace[after:] if e.get("service") == name]

    def in_order(self, state):
        """Names of the services in the order in which they came into a state."""
        return [e["service"] for e in self.trace if e["what"] == state and "service" in e]

    def state(self, name):
        states = self.of(name)
        return states[-1] if states else None

    def first(self, name, state, after=0):
        """Place of the first such event, or None."""
        for i, e in enumerate(self.trace):
            if i >= after and e.get("service") == name and e["what"] == state:
                return i
        return None

    def last(self, name):
        """The newest event of one service."""
        return next((e for e in reversed(self.trace) if e.get("service") == name), None)

    def read_all(self, deadline=20.0):
        """To the end of init; the trace is complete then."""
        self._reader.join(deadline)
        assert not self._reader.is_alive(), "the events end with init"
        return self._trace


def show(box, name):
    """What `service.show` says of a service."""
    return box.call("service.show", name=name).fields


def order(box, what, name, **args):
    """service.start, stop, restart or reload; waits until it is carried out."""
    return box.call(f"service.{what}", name=name, **args)
