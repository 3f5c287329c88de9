"""The real npm client and npm's `ws` against the gateway: one test here for each of theirs."""

import re

import pytest

from rig.box import ROOT
from rig.node import Drivers, names


def frames():
    refused = re.findall(r"^  \['([^']+)', '", (ROOT / "tests/conformance/frames.mjs").read_text(), re.M)
    return [*names("conformance", "frames.mjs"), *(f"frames: the upgrade is refused for {what}" for what in refused)]


@pytest.fixture(scope="module")
def drivers():
    d = Drivers("conformance", ["client.mjs", "frames.mjs"])
    yield d
    d.close()


@pytest.mark.parametrize("name", names("conformance", "client.mjs"))
def test_client(gw, drivers, name):
    drivers.check(gw, name)


@pytest.mark.parametrize("name", frames())
def test_ws(gw, drivers, name):
    drivers.check(gw, name)
