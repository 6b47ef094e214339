"""Writes ``docs/commands.md`` from the server's command table.

Run ``python -m tools.command_table`` from the root of the repository after a row has changed; a
test compares the page with the rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_protocol import COMMANDS, Dialect
from iggy_ref_server.dispatch.table import COMMAND_TABLE, CommandRow, Execution, Login, Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
PAGE = ROOT / "docs" / "commands.md"

HEAD = """# The commands of the server

Generated from `iggy_ref_server/dispatch/table.py` by `python -m tools.command_table`. The bytes of
requests and replies are in [the page of the protocol](../protocol/README.md).

- **Work** says which shard does the work. A command for *shard 0* is forwarded there, because
  shard 0 alone writes metadata and knows the members of groups. For the *owner of the partition*
  the shard of the connection calls the shard that owns the partition, unless that is itself.
- **Runs** says whether a request on a connection needs a task of its own. One that runs *inline*
  does not.
- **Login** says whether the client must have logged in before.
- **Releases** says which clients have the command, by the release of Apache Iggy.
- **Permission** is explained [below](#permissions).
"""

PERMISSIONS = """## Permissions

A user may run a command with any one of the flags of its row, on the server, on the stream or on
the topic of the command.
"""
EXECUTIONS = {
    Execution.INLINE: "inline",
    Execution.INLINE_FIRST: "inline, or in a task to wait",
    Execution.TASK: "in a task",
    Execution.STAGED: "staged with other sends",
    Execution.DETACHED: "in a task, answered out of order",
}
PLACEMENTS = {
    Placement.ANY_SHARD: "any shard",
    Placement.PARTITION_OWNER: "owner of the partition",
    Placement.METADATA_SHARD: "shard 0",
}
LOGINS = {
    Login.NEEDED: "yes",
    Login.NEEDED_BEFORE_0_9: "yes; from 0.9 on no",
    Login.NOT_NEEDED: "no",
    Login.LOGS_IN: "no, it is one",
}


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Write a table of Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def releases(row: CommandRow) -> str:
    """Say which releases have a command and are served it."""
    served = [
        dialect
        for dialect in Dialect
        if COMMANDS[row.code].request[dialect] is not None and dialect not in row.unavailable_in
    ]
    if len(served) == len(Dialect):
        return "all"
    # What a preview has, its release has as well, unless this says otherwise.
    first, last = served[0].release, served[-1].release
    if first.startswith(last):
        return last
    return first if first == last else f"{first} to {last}"


def command_cells(row: CommandRow) -> tuple[str, ...]:
    """Return the cells of a command."""
    route = row.route
    own = ", none for the own account" if row.allows_own_account else ""
    return (
        str(int(row.code)),
        f"`{row.code.name}`",
        PLACEMENTS[row.placement],
        EXECUTIONS[row.execution],
        LOGINS[row.login],
        releases(row),
        row.requirement.name + own,
        "" if route is None else f"`{route.method} {route.path}`",
    )


def flags(names: frozenset[str]) -> str:
    """List flags in a cell."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def rendered() -> str:
    """Write the page."""
    head = ("Code", "Command", "Work", "Runs", "Login", "Releases", "Permission", "HTTP")
    commands = [command_cells(row) for row in COMMAND_TABLE.values()]
    requirements = {row.requirement.name: row.requirement for row in COMMAND_TABLE.values()}
    granted = [
        (needed.name, flags(needed.server), flags(needed.stream), flags(needed.topic))
        for needed in requirements.values()
    ]
    permissions = table(("Permission", "On the server", "On the stream", "On the topic"), granted)
    return "\n".join((HEAD, table(head, commands), PERMISSIONS, permissions))


if __name__ == "__main__":
    PAGE.write_text(rendered())
    sys.stdout.write(f"{PAGE.name} is up to date\n")
