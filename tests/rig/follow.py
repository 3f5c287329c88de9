"""Reading a log over the wire with the offset of every byte, to hold several readers against each
other: a gap, a duplicate or a loss that was not told shows."""

import threading

from .wire import ERROR, NOTE, RESULT, STDERR, STDOUT, WireError, parse_record


class Trace:
    """What one reader of a log has seen: bytes with their stream from `start` on, what was told as
    lost, and where the answer said that it ended (None: there was no end)."""

    def __init__(self, box, id, timeout=30.0, **args):
        self.wire = box.connect(timeout)
        self.wire.request("logs", [("id", id), *((k, str(v)) for k, v in args.items())])
        self.start = self.at = self.end = None
        self.pieces, self.lost = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wire.close()

    def step(self):
        """One packet. False behind the last one."""
        got = self.wire.receive()
        if got is None:
            return False
        channel, payload = got
        if channel in (STDOUT, STDERR):
            self.pieces.append((self.at, channel, payload))
            self.at += len(payload)
        elif channel == NOTE:
            self._note(parse_record(payload))
        elif channel == RESULT:
            self.end = parse_record(payload)["to"]
            return False
        elif channel == ERROR:
            raise WireError(parse_record(payload))
        return True

    def _note(self, note):
        if "from" in note:
            self.start = self.at = note["from"]
        else:
            assert note["lost_from"] == self.at < note["lost_to"], (note, self.at)
            self.lost.append((note["lost_from"], note["lost_to"]))
            self.at = note["lost_to"]

    def read(self, until=None):
        """To the end, or until until(self) is true."""
        while not (until and until(self)) and self.step():
            pass
        return self

    def read_apart(self):
        """To the end, in a thread of its own; join it."""
        t = threading.Thread(target=self.read, daemon=True)
        t.start()
        return t

    @property
    def bytes(self):
        return b"".join(b for _, _, b in self.pieces)

    @property
    def tagged(self):
        """(stream, bytes) with neighbours of one stream joined: independent of packets."""
        runs = []
        for _, channel, payload in self.pieces:
            if runs and runs[-1][0] == channel:
                runs[-1][1].append(payload)
            else:
                runs.append((channel, [payload]))
        return [(channel, b"".join(parts)) for channel, parts in runs]

    def of(self, channel):
        return b"".join(b for _, c, b in self.pieces if c == channel)

    def check_against(self, whole):
        """Every byte is that of the whole at its offset (whole: the log's bytes in its order)."""
        for at, _, payload in self.pieces:
            assert whole[at : at + len(payload)] == payload, f"other bytes at {at}"
        seen = sum(len(b) for _, _, b in self.pieces) + sum(b - a for a, b in self.lost)
        assert seen == self.at - self.start, "no gap, no duplicate"
