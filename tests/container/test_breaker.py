"""Faults that came from combinations: each was seen once, and stays mended."""

import pytest

from rig.box import Box
from rig.wire import WireError

FOLDER = "d=$(readlink /proc/$$/fd/1); d=${d%/out}; "


@pytest.fixture(scope="module")
def box():
    with Box("ns-root") as b:
        yield b


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/dash"])
@pytest.mark.parametrize("ends", ["exit 3", "return 3", "kill -9 $$"])
def test_fork_of_a_bad_state_from_a_folder_that_is_gone_makes_no_session(box, shell, ends):
    """given: a session in a removed folder, whose user made its state one that cannot be run
    when: it is forked
    then: that is an error, and no session is there, neither half made nor starting for ever"""
    box.session("s", shell=shell)
    try:
        r = box.exec(f"mkdir gone; cd gone; rmdir ../gone; {FOLDER}"
                     f"__sb_dump() {{ printf '{ends}\\n# end\\n' >$d/state; }}", "s")
        assert r.status == 0, r
        with pytest.raises(WireError, match="state of 's'"):
            box.call("session.fork", name="s", new="f", deadline=10)
        assert [x["name"] for x in box.call("session.list").rows] == ["s"]
    finally:
        box.call("session.delete", name="f", check=False)
        box.call("session.delete", name="s", check=False)
