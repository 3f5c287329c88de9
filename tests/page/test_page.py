"""The page for people in a real browser, Debian's chromium: one test here for each of page.mjs."""

import pytest

from rig.node import Drivers, names

INI = {"service:web-cache": {"command": "sleep 1000"}}


@pytest.fixture(scope="module")
def drivers():
    d = Drivers("page", ["page.mjs"])
    yield d
    d.close()


@pytest.mark.parametrize("name", names("page", "page.mjs"))
def test_page(gw_ns, drivers, name):
    drivers.check(gw_ns, name)
