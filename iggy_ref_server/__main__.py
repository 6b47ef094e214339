"""The ``iggy-server`` command: today its version, its help, and an honest refusal to start.

It owns the command line and nothing else. It must start fast, so it imports no library before it
knows that one is needed.
"""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_SERVER_YET = "This release contains the wire protocol only; the server does not exist yet."
EXIT_UNAVAILABLE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer ``--version`` and ``--help``; otherwise say that there is no server to start.

    Args:
        arguments: the command line without the program's name; the process's own by default.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="iggy-server", description="A server for Apache Iggy clients.", epilog=NO_SERVER_YET
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('iggy-python')}")
    parser.parse_args(arguments)
    print(NO_SERVER_YET, file=sys.stderr)
    return EXIT_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
