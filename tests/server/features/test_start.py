"""How a server starts and stops: it loads what it needs, and keeps nobody waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.features.test_process import shard_pids

# Libraries that only makers of certificates, and clients of one transport, need.
CERTIFICATE_LIBRARY = "cryptography/hazmat/bindings"
WEBSOCKET_LIBRARY = "websockets/speedups"


def loaded_files(pid):
    """List what is mapped into a process."""
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("library", [CERTIFICATE_LIBRARY, WEBSOCKET_LIBRARY])
def test_server_when_started_again_then_it_loads_no_unused_library(start_server, library):
    server = start_server(settings={"IGGY_QUIC_ENABLED": "true"})
    certificate = next(server.data.glob("certificates/*cert.pem")).read_bytes()
    server.stop()
    server.start()

    for pid in (server.pid, *shard_pids(server)):
        assert library not in loaded_files(pid)
    assert next(server.data.glob("certificates/*cert.pem")).read_bytes() == certificate
