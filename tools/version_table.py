"""Writes the table of commands by version into ``docs/versions.md``.

Run ``python -m tools.version_table`` from the root of the repository after a command has changed; a
test compares the page with the registry of commands and with the command table of the server.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from iggy_protocol import COMMANDS, CommandCode, CommandSpec, Dialect
from iggy_protocol.vsr.admission import CLASSIC_LOGINS
from iggy_protocol.vsr.operations import NON_REPLICATED, operation_of
from iggy_ref_server.dispatch.table import COMMAND_TABLE
from tools.command_table import table

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
PAGE = ROOT / "docs" / "versions.md"
START, END = "<!-- commands by version -->", "<!-- end -->"

RELEASES: Final = {
    "0.8": (Dialect.CLASSIC,),
    "0.9": (Dialect.V0_11,),
    "0.10": (Dialect.V0_12_0, Dialect.V0_12_2),
}
REFUSED: Final = "status 5"
MISSING: Final = "status 3"
EVICTED: Final = "eviction 15"

# What differs, and what to use where a version lacks the command.
NOTES: Final = {
    CommandCode.GET_STATS: "0.10 is also told of open files",
    CommandCode.GET_CLUSTER_METADATA: "one node unless `[cluster]` names others",
    CommandCode.DESCRIBE_OPTIONS: "the options that this server knows",
    CommandCode.ATTACH_CONSUMER_SESSION: "only for clusters of 0.9; nobody asks a single node",
    CommandCode.BIND_SESSION: "sessions are in memory: after a restart a client logs in anew",
    CommandCode.GET_METADATA_CHANGES: "the latest changes, in memory: after a restart a reader is"
    " told to begin anew",
    CommandCode.GET_USER: "with options from 0.9 on",
    CommandCode.GET_USERS: "with options from 0.9 on",
    CommandCode.CREATE_USER: "with options from 0.9 on",
    CommandCode.UPDATE_USER: "0.10: one operation for all updates; what is not named stays",
    CommandCode.LOGIN_USER: "from 0.9 on a Register",
    CommandCode.LOGOUT_USER: "0.10: ends the session on all its connections",
    CommandCode.REGISTER: "with a password or a token; says which version a client speaks",
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: "from 0.9 on a Register",
    CommandCode.POLL_MESSAGES: "from 0.9 on messages come in batches, written from what is stored",
    CommandCode.SEND_MESSAGES: "from 0.9 on with checksums; the reply tells partition and offset",
    CommandCode.FLUSH_UNSAVED_BUFFER: "from 0.9 on set the option `durability` of a topic",
    CommandCode.GET_POLL_ROUTE: "only for clusters of 0.9; nobody asks a single node",
    CommandCode.POLL_ON_PRIMARY: "only for clusters of 0.9; nobody asks a single node",
    CommandCode.GET_PARTITION_ROUTE: "always this node",
    CommandCode.POLL_DEFERRED: "waits until messages come; 0.8 and 0.9 get an empty reply at once",
    CommandCode.WAIT_FOR_MESSAGES: "previews of 0.10 only",
    CommandCode.CANCEL_DEFERRED: "never answered",
    CommandCode.FETCH_MESSAGES: "not in the previews of 0.10",
    CommandCode.GET_CONSUMER_OFFSET: "one stored offset for clients of all versions",
    CommandCode.STORE_CONSUMER_OFFSET: "stored as the server is configured, whatever it says",
    CommandCode.DELETE_CONSUMER_OFFSET: "the same",
    CommandCode.GET_OFFSET_ROUTE: "only for clusters of 0.9; nobody asks a single node",
    CommandCode.GET_STREAM: "with options from 0.9 on",
    CommandCode.GET_STREAMS: "with options from 0.9 on",
    CommandCode.CREATE_STREAM: "the option `encryption_key` is refused: encryption is the server's",
    CommandCode.UPDATE_STREAM: "0.10: one operation for all updates; what is not named stays",
    CommandCode.PURGE_STREAM: "0.10 has no purge; others may purge what its clients read",
    CommandCode.GET_TOPIC: "0.10 reads expiry, compression and size from the options",
    CommandCode.GET_TOPICS: "the same",
    CommandCode.CREATE_TOPIC: "0.8: settings; from 0.9 on options, where these are three of many",
    CommandCode.UPDATE_TOPIC: "0.8 sets all settings; from 0.9 on what is not named stays",
    CommandCode.PURGE_TOPIC: "0.10 has no purge; others may purge what its clients read",
    CommandCode.DELETE_SEGMENTS: "the files are gone with the reply",
    CommandCode.CREATE_PARTITIONS: "refused if the topic's `partition_resize_policy` is `fixed`",
    CommandCode.DELETE_PARTITIONS: "refused if the topic's `partition_resize_policy` is `fixed`",
    CommandCode.JOIN_CONSUMER_GROUP: "a member is a connection, with 0.10 a session",
    CommandCode.SYNC_CONSUMER_GROUP: "from 0.9 on members ask what they own",
}


def cell(spec: CommandSpec, dialects: tuple[Dialect, ...]) -> str:
    """Say how a command travels in a release, or how it is refused."""
    known = [dialect for dialect in dialects if spec.request[dialect] is not None]
    if not known:
        return EVICTED if spec.code in CLASSIC_LOGINS else MISSING
    row = COMMAND_TABLE.get(spec.code)
    if row is None or known[0] in row.unavailable_in:
        return REFUSED
    operation = operation_of(spec.code, known[0])
    return "yes" if operation == NON_REPLICATED else f"operation {operation}"


def rendered() -> str:
    """Write the table."""
    rows = [
        (
            str(int(spec.code)),
            f"`{spec.code.name}`",
            *(cell(spec, dialects) for dialects in RELEASES.values()),
            NOTES.get(spec.code, ""),
        )
        for _, spec in sorted(COMMANDS.items())
    ]
    return table(("Code", "Command", *RELEASES, "Notes"), rows)


def fill(page: str) -> str:
    """Put the table into the page."""
    body = f"{START}\n\n{rendered()}\n{END}"
    return re.sub(f"{START}.*?{END}", lambda _: body, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text()))
    sys.stdout.write(f"{PAGE.name} is up to date\n")
