"""Fixtures of the tests of verbs."""

import pytest

from rig.verbs import make


@pytest.fixture
def name(one):
    n = make(one)
    yield n
    one.call("session.delete", name=n, check=False)
