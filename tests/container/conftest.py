"""Fixtures of the tests of verbs."""

import pytest

from rig.verbs import make


@pytest.fixture
def one(pool):
    b = pool.get("ns-root")
    yield b
    assert b.is_alive, f"init ended with {b.wait(1)}; log: {b.log()[-2000:]}"


@pytest.fixture
def name(one):
    n = make(one)
    yield n
    one.call("session.delete", name=n, check=False)
