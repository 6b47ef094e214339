"""The ``iggy-server`` command: start a server, or check, repair or print what belongs to one.

Imports are made where a command needs them, so that ``--help`` is quick.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from iggy_ref_server.cli import (
    CheckCommand,
    DefaultsCommand,
    RepairCommand,
    ServeCommand,
    parse_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


EXIT_FAILED = 1
EXIT_MISUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0, 1 for a failure, 2 for wrong arguments.

    Args:
        arguments: the command line without the program's name; ``sys.argv`` by default.
    """
    command = parse_arguments(arguments)
    if isinstance(command, ServeCommand):
        # Nothing that is imported is garbage: looking for some costs a tenth of a start.
        gc.disable()
        from iggy_ref_server.process.start import start

        gc.enable()
        return start(command.flags)
    if isinstance(command, DefaultsCommand):
        from iggy_ref_server.config.defaults import DEFAULT_TOML

        print(DEFAULT_TOML, end="")
        return 0
    assert isinstance(command, CheckCommand | RepairCommand)
    from iggy_ref_server.fsck import check, repair

    examine = check if isinstance(command, CheckCommand) else repair
    return examine(command.directory, print)


if __name__ == "__main__":
    sys.exit(main())
