"""Fixtures of the cases."""

import os

import pytest


@pytest.fixture
def one_box(pool):
    """A shared box with a session "s" in its work folder, for what one place is enough."""
    box = pool.get("ns-root")
    box.call("session.delete", name="s", check=False)
    box.session("s", cwd=os.fspath(box.work))
    yield box
    assert box.is_alive, f"init ended with {box.wait(15)}; log: {box.log()[-2000:]}"
    box.call("session.delete", name="s", check=False)


@pytest.fixture(params=["bash", "dash", "ash"])
def any_shell(request, pool):
    """A session of each shell, in one kind of box."""
    s = pool.session("ns-root", request.param)
    yield s
    assert s.box.is_alive, f"init ended with {s.box.wait(15)}; log: {s.box.log()[-2000:]}"
    s.box.call("session.delete", name=s.name, check=False)
