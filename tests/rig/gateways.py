"""Fixtures of the gateway's and the conformance tests: a box with a gateway, one per file and kind.

    def test_x(gw): …       in a plain namespace and in a runc container; the id of each such test has ns-root
                            in it, or runc-user: so the ASan run of `make test` finds the first
    def test_y(gw_ns): …    in the namespace alone: its servers are the test's own, on the network of both, or
                            root prepares what the sessions' user gets

gw.http is a client (rig/http.py). A file that wants other keys defines, for itself:

    GATEWAY = {"max_body": "1M"}        keys of [gateway]
    INI = {"sessions": {…}}             other sections
"""

import pytest

from .box import build_dir
from .http import GATEWAY_KINDS, GatewayBox, sanitizer_report
from .places import SHARED_INI


# Nothing to test before it is built.
ignored = [] if (build_dir() / "sandbox-gateway").exists() else ["test_*.py"]


class Boxes:
    def __init__(self, module):
        self.module, self.boxes = module, {}

    def get(self, kind):
        box = self.boxes.get(kind)
        if box is None or not box.is_alive:
            if box is not None:
                box.close()
            self.boxes[kind] = box = GatewayBox(
                kind, gateway=getattr(self.module, "GATEWAY", None), port=kind.startswith("ns") or 3000,
                ini={**SHARED_INI, **getattr(self.module, "INI", {})})
        return box

    def close(self):
        """Stop each box in order; what a sanitizer found at the end counts, too."""
        reports = []
        for box in self.boxes.values():
            if box.is_alive:
                box.stop(deadline=20)
            reports.append(sanitizer_report(box.log()))
            box.close()
        assert not any(reports), "\n".join(reports)


@pytest.fixture(scope="module")
def gateway_boxes(request):
    boxes = Boxes(request.module)
    yield boxes
    boxes.close()


def began(pid):
    """What tells a process from a later one with its number; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


def unharmed(box):
    """Yields the box; afterwards init and the very same gateway must live."""
    if not getattr(box, "gateway_was", None) or box.gateway_was[1] != began(box.gateway_was[0]):
        pid = box.gateway_pid
        box.gateway_was = (pid, began(pid))
    pid, since = box.gateway_was
    yield box
    assert box.is_alive, f"init ended with {box.wait(1)} during the test; log: {box.log()[-2000:]}"
    assert began(pid) == since is not None, f"the gateway ended during the test; log: {box.log()[-4000:]}"
    report = sanitizer_report(box.log())
    assert not report, report


@pytest.fixture(params=GATEWAY_KINDS)
def gw(request, gateway_boxes):
    yield from unharmed(gateway_boxes.get(request.param))


@pytest.fixture(params=["ns-root"])
def gw_ns(request, gateway_boxes):
    yield from unharmed(gateway_boxes.get(request.param))
