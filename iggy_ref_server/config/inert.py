"""Keys that change nothing here: what the server says to someone who sets them.

Some keys of the original are read by it and never used, and some belong to machinery that this
server does not have. At its default such a key is harmless. At another value somebody expects
something, and an honest server refuses, or at least says so.

Owns the two tables. A path without a row works.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from iggy_ref_server.config.keys import Leaf, branches_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from iggy_ref_server.config.schema import ServerConfig
    from iggy_ref_server.config.section import Section

__all__ = ["REFUSED", "WARNED", "flatten", "inert_problems", "inert_warnings"]

_NO_CONVERTER: Final = (
    "files of the original are opened as they are, so there is nothing to convert"
)
_NO_RETRY: Final = "a failed write of metadata is reported at once and never tried again"
_NO_COMPRESSION: Final = "the server stores what clients send; let clients compress"
_NO_POOL: Final = "buffers are the business of Python's allocator"
_NO_BUFFER: Final = "answers are written as they are; limits.websocket bounds those that wait"

REFUSED: Final = {
    "system.backup.path": _NO_CONVERTER,
    "system.backup.compatibility.path": _NO_CONVERTER,
    "system.state.max_file_operation_retries": _NO_RETRY,
    "system.state.retry_delay": _NO_RETRY,
    "system.compression.allow_override": _NO_COMPRESSION,
    "system.compression.default_algorithm": _NO_COMPRESSION,
    "system.segment.archive_expired": "there is no archive; what has expired is deleted",
    "system.recovery.recreate_missing_state": (
        "a damaged partition is set aside; mend it with iggy-server repair"
    ),
    "telemetry.enabled": "this server exports no telemetry",
}
"""Keys that must keep their default, each with the reason."""

WARNED: Final = {
    "system.memory_pool.enabled": _NO_POOL,
    "system.memory_pool.size": _NO_POOL,
    "system.memory_pool.bucket_capacity": _NO_POOL,
    "websocket.write_buffer_size": _NO_BUFFER,
    "websocket.max_write_buffer_size": _NO_BUFFER,
    "quic.datagram_send_buffer_size": "requests and replies travel in streams alone",
    "http.web_ui": "the web interface belongs to the original server",
}
"""Keys that have a meaning in the original and none here, each with the reason."""


def flatten(section: Section, prefix: str = "") -> Iterator[tuple[str, Leaf | None, object]]:
    """Walk every key with its value; an array of sections is one value without a leaf."""
    for key, branch in branches_of(type(section)).items():
        value = getattr(section, branch.attribute)
        if isinstance(branch.below, Leaf):
            yield f"{prefix}{key}", branch.below, value
        elif branch.is_array:
            yield f"{prefix}{key}", None, value
        else:
            yield from flatten(value, f"{prefix}{key}.")


def _changed(
    table: Mapping[str, str], config: ServerConfig, defaults: ServerConfig
) -> Iterator[tuple[str, str]]:
    """Find the keys of a table that have not their default: path, and default in TOML."""
    default_values = {path: value for path, _, value in flatten(defaults)}
    for path, leaf, value in flatten(config):
        if path in table and leaf is not None and value != default_values[path]:
            default = default_values[path]
            yield path, "left out" if default is None else json.dumps(leaf.kind.write(default))


def inert_problems(config: ServerConfig, defaults: ServerConfig) -> Iterator[tuple[str, str]]:
    """Refuse keys that were changed in vain: path and message."""
    for path, default in _changed(REFUSED, config, defaults):
        yield path, f"can only be {default} here: {REFUSED[path]}"


def inert_warnings(config: ServerConfig, defaults: ServerConfig) -> Iterator[str]:
    """Say which keys have no effect."""
    for path, _ in _changed(WARNED, config, defaults):
        yield f"{path} has no effect here: {WARNED[path]}"
