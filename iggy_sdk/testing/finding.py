"""Finding a server to start: a command of this machine, never an import.

Any executable named ``iggy-server`` will do, that of Apache Iggy as well.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys

__all__ = ["ServerNotFoundError", "server_command"]

EXECUTABLE = "iggy-server"
MODULE = "iggy_ref_server"

ADVICE = (
    "Install the reference server with: pip install 'iggy-python[server]'; or put an iggy-server "
    "executable on the PATH; or pass command= to RunningServer."
)


class ServerNotFoundError(RuntimeError):
    """There is no server to start; the message says what to install."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} {ADVICE}")


def server_command() -> tuple[str, ...]:
    """Return the command line that starts a server.

    Raises:
        ServerNotFoundError: there is none.
    """
    executable = shutil.which(EXECUTABLE)
    if executable is not None:
        return (executable,)
    if importlib.util.find_spec(MODULE) is not None:
        return (sys.executable, "-m", MODULE)
    raise ServerNotFoundError("There is no Iggy server on this machine.")
