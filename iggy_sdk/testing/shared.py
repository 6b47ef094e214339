"""One server for many tests: emptied between them, and replaced when that fails."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iggy_sdk.testing.cleaning import CleaningFailedError
from iggy_sdk.testing.process import ServerFailedError
from iggy_sdk.testing.server import RunningServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = ["SharedServer", "standing_address"]


def standing_address() -> tuple[str, int] | None:
    """Return the address of the external server in ``IGGY_TEST_SERVER``, if it is set."""
    told = os.environ.get("IGGY_TEST_SERVER", "")
    host, _, port = told.rpartition(":")
    if not told:
        return None
    if not host or not port.isdigit():
        raise ValueError(f"IGGY_TEST_SERVER is host:port of a server, not {told!r}")
    return host.strip("[]"), int(port)


class SharedServer:
    """Provides the same server to one test after another.

    Args:
        settings: of the server, ``IGGY_*`` names.
    """

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._server: RunningServer | None = None

    def __enter__(self) -> SharedServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._discard()

    def fresh(self) -> RunningServer:
        """Return a running, empty server without faults or connections."""
        if self._server is not None:
            try:
                self._server.reset()
            except (CleaningFailedError, ServerFailedError, OSError):
                # A test may leave a server with another password, or one that does not start.
                self._discard()
        if self._server is None:
            server = RunningServer(settings=self._settings, address=standing_address())
            self._server = server.__enter__()
        return self._server

    def _discard(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
