"""Test your application against a real server, without Docker.

With pytest, ask for the fixture ``iggy_server``; elsewhere use ``RunningServer`` as a context
manager. A proxy between client and server knows the frames, so that a test can drop connections,
delay commands, and refuse or swallow replies: see ``RunningServer.faults``.

The server is started as a command of this machine (``iggy-server``); it is never imported. Names
are loaded when they are first used, because pytest imports this package in every project where the
SDK is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_sdk.testing.faults import Fault, Faults
    from iggy_sdk.testing.process import ServerFailedError, ServerNotFoundError
    from iggy_sdk.testing.server import CleaningFailedError, NotOursError, RunningServer

__all__ = [
    "CleaningFailedError",
    "Fault",
    "Faults",
    "NotOursError",
    "RunningServer",
    "ServerFailedError",
    "ServerNotFoundError",
]

_HOMES = {
    "CleaningFailedError": "iggy_sdk.testing.server",
    "Fault": "iggy_sdk.testing.faults",
    "Faults": "iggy_sdk.testing.faults",
    "NotOursError": "iggy_sdk.testing.server",
    "RunningServer": "iggy_sdk.testing.server",
    "ServerFailedError": "iggy_sdk.testing.process",
    "ServerNotFoundError": "iggy_sdk.testing.process",
}


# Type checkers must not see this: to them a module with it has every name, misspelt ones included.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name from the module that defines it."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(home), name)
