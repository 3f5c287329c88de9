import os
import shutil
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from rig import box as rig_box  # noqa: E402
from rig.places import KINDS, PLACES, Pool  # noqa: E402
from rig.wait import is_long, wait_until  # noqa: E402

# A background job of a script has these ignored, and all that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(config, items):
    """Tests marked `long` belong to make test-long alone."""
    left_out = [] if is_long() else [i for i in items if i.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [i for i in items if i not in left_out]


@pytest.fixture(scope="session")
def pool():
    p = Pool()
    yield p
    p.close()


@pytest.fixture(params=KINDS)
def kind(request):
    """The four kinds of box."""
    return request.param


@pytest.fixture
def box(pool, kind):
    """A shared box of each kind."""
    b = pool.get(kind)
    yield b
    assert b.is_alive, f"init ended with {b.wait(1)} during the test; log: {b.log()[-2000:]}"


@pytest.fixture
def one(pool):
    """A shared box, for what one kind of it can settle."""
    b = pool.get("ns-root")
    yield b
    assert b.is_alive, f"init ended with {b.wait(1)}; log: {b.log()[-2000:]}"


@pytest.fixture(params=PLACES, ids=lambda p: "-".join(p))
def s(request, pool):
    """A session of its own in a shared box: every kind of box with every shell. At its end the
    session is deleted, and nothing that the test started in it may live on."""
    kind, shell = request.param
    session = pool.session(kind, shell)
    b = session.box
    yield session
    assert b.is_alive, f"init ended with {b.wait(1)} during the test; log: {b.log()[-2000:]}"
    try:
        b.call("session.delete", name=session.name, check=False)
        wait_until(lambda: not _of_session(b, session), 5,
                   lambda: f"nothing lives on; alive: {_of_session(b, session)}")
    except BaseException:
        b.close()  # the next test gets a fresh box
        raise
    finally:
        shutil.rmtree(session.work, ignore_errors=True)


def _of_session(b, session):
    """Live processes with a foot in the session's folder (every session has its own as cwd)."""
    found = []
    for p in b.processes():
        try:
            cwd = os.readlink(f"/proc/{p.pid}/cwd")
        except OSError:
            continue
        if (cwd + "/").startswith(f"{session.work}/"):
            found.append(f"{p.pid} {p.command}")
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if rig_box._base is not None:
        for b in list(rig_box._live.values()):
            b.close()
