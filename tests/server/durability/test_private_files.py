"""What the server makes is for its own user; what somebody else made stays as it is."""

from __future__ import annotations

import os
import stat

import pytest

from tests.server.features.topic_calls import make_topic

pytestmark = pytest.mark.timeout(90)


def modes(directory):
    """Return the modes of all that lies in a directory, by kind."""
    found: dict[str, set[str]] = {"directories": set(), "files": set()}
    for path in [directory, *directory.rglob("*")]:
        kind = "directories" if path.is_dir() else "files"
        found[kind].add(oct(stat.S_IMODE(path.stat().st_mode)))
    return found


def test_data_directory_when_made_by_the_server_then_is_private(start_server):
    before = os.umask(0o022)
    try:
        server = start_server()
    finally:
        os.umask(before)
    topic = make_topic(server.login())
    topic.send("a")
    topic.store(0)

    assert modes(server.data) == {"directories": {"0o700"}, "files": {"0o600"}}
    assert "other users" not in server.output()


def test_data_directory_when_it_is_open_to_others_then_that_is_said_and_left(start_server):
    server = start_server()
    server.stop()
    server.data.chmod(0o755)
    server.start()

    assert stat.S_IMODE(server.data.stat().st_mode) == 0o755
    assert "(mode 755); run `chmod -R go= " in server.output()
