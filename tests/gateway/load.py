"""Clients of a gateway that do a bit of everything: run as a program of its own by test_load.py, so
that the one who measures is not one of them.

    load.py SOCKET TOKEN CLIENTS SECONDS

Each client has a connection, a session and a file of its own. All together they ask for about a
hundred things a second: more would measure how long the queue for two CPUs is. Prints a JSON object: how often each
thing was done, and the first errors.
"""

import json
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rig.http import Client, Sse, collect  # noqa: E402
from rig.websocket import WebSocket  # noqa: E402


class Worker(threading.Thread):
    def __init__(self, address, token, number, clients, start, seconds):
        super().__init__(daemon=True)
        self.client = Client(address, token, sandbox="loadloadloadloadloadload22", deadline=60)
        self.number, self.start_together, self.seconds = number, start, seconds
        self.pause = clients / 50  # seconds at most
        self.random = random.Random(number)
        self.done, self.errors = Counter(), []
        self.content = os.urandom(self.random.choice([10, 5_000, 200_000]))

    def run(self):
        try:
            self.connection = self.client.open()
            self.exec(["export", f"MINE={self.number}"], self.session)
            self.start_together.wait(60)
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                what = self.random.choices([self.in_session, self.alone, self.file, self.terminal], [6, 3, 4, 1])[0]
                what()
                self.done[what.__name__] += 1
                time.sleep(self.random.uniform(0, self.pause))
            self.ask("DELETE", f"session/{self.session}")
            self.connection.close()
        except Exception:
            self.errors.append(f"client {self.number}: {traceback.format_exc()}")

    @property
    def session(self):
        return f"load-{self.number}"

    def ask(self, method, path, body=None, headers=()):
        """On the client's own connection."""
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        self.connection.request(method, f"{self.client.root}/{path}", [*self.client.auth(), *headers], body)
        r = self.connection.response()
        assert r.status < 300, (method, path, r.status, r.body[:300])
        return r

    def exec(self, argv, session=None):
        headers = [("Session-Id", session)] if session else []
        r = self.ask("POST", "exec", {"argv": argv, "timeout_ms": 50_000}, headers)
        return collect([Sse._event(e.split("\n")) for e in r.body.decode().split("\n\n")
                        if e and not e.startswith(":")])

    def in_session(self):
        r = self.exec(["printenv", "MINE"], self.session)
        assert r.triple == (0, f"{self.number}\n".encode(), b""), r

    def alone(self):
        n = self.random.choice([1, 1000, 100_000])
        r = self.exec(["/bin/sh", "-c", f"head -c {n} /dev/zero; echo err >&2; exit 3"])
        assert r.triple == (3, bytes(n), b"err\n"), (r.status, len(r.out), r.err)

    def file(self):
        path = f"file/workspace/load/{self.number}"
        self.ask("PUT", path, self.content)
        assert self.ask("GET", path).body == self.content

    def terminal(self):
        with WebSocket(self.client, "pty?shell=/bin/sh", deadline=60) as ws:
            ws.until_ready()
            ws.binary(f"echo $((1000 + {self.number})).\n".encode())
            ws.until(f"{1000 + self.number}.")
            ws.binary(b"exit 5\n")
            assert ws.ended()["code"] == 5


def main():
    address, token, clients, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    together = threading.Barrier(clients)
    workers = [Worker(address, token, i, clients, together, seconds) for i in range(clients)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(seconds + 120)
    done, errors = Counter(), []
    for w in workers:
        done.update(w.done)
        errors += w.errors + ([f"client {w.number} hangs"] if w.is_alive() else [])
    print(json.dumps({"done": done, "errors": len(errors), "first": errors[:5]}))


if __name__ == "__main__":
    main()
