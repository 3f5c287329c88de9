"""A box for cases that one kind of it can settle."""

import pytest


@pytest.fixture
def one(pool):
    b = pool.get("ns-root")
    yield b
    assert b.is_alive, f"init ended with {b.wait(1)}; log: {b.log()[-2000:]}"
