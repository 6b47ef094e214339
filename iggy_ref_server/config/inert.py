"""Keys of Apache Iggy 0.8 that this server does not support.

Some keys are read by Apache Iggy and never used, others belong to parts that this server does not
have. At its default such a key is harmless. Another value is an error where the administrator would
expect an effect on stored data or operation, and a warning otherwise.
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

_NO_CONVERTER: Final = "files of Apache Iggy are opened as they are, so there is nothing to convert"
_NO_RETRY: Final = "a failed write of metadata is reported at once and not retried"
_NO_COMPRESSION: Final = "the server stores messages as clients send them; compress in the client"
_NO_POOL: Final = "buffers are managed by Python's allocator"
_NO_BUFFER: Final = "replies are not buffered again; limits.websocket limits those that wait"

REFUSED: Final = {
    "system.backup.path": _NO_CONVERTER,
    "system.backup.compatibility.path": _NO_CONVERTER,
    "system.state.max_file_operation_retries": _NO_RETRY,
    "system.state.retry_delay": _NO_RETRY,
    "system.compression.allow_override": _NO_COMPRESSION,
    "system.compression.default_algorithm": _NO_COMPRESSION,
    "system.segment.archive_expired": "there is no archive; expired segments are deleted",
    "system.recovery.recreate_missing_state": (
        "a damaged partition is quarantined; repair it with iggy-server repair"
    ),
    "telemetry.enabled": "this server exports no telemetry",
}
"""Keys that must have their default, each with the reason."""

WARNED: Final = {
    "system.memory_pool.enabled": _NO_POOL,
    "system.memory_pool.size": _NO_POOL,
    "system.memory_pool.bucket_capacity": _NO_POOL,
    "websocket.write_buffer_size": _NO_BUFFER,
    "websocket.max_write_buffer_size": _NO_BUFFER,
    "quic.datagram_send_buffer_size": "requests and replies use streams, not datagrams",
    "http.web_ui": "this server has no web interface",
}
"""Keys that have an effect in Apache Iggy and none here, each with the reason."""


def flatten(section: Section, prefix: str = "") -> Iterator[tuple[str, Leaf | None, object]]:
    """Yield every key with its value; an array of sections is one value without a codec."""
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
    """Yield the keys of a table that differ from their default: path, and default in TOML."""
    default_values = {path: value for path, _, value in flatten(defaults)}
    for path, leaf, value in flatten(config):
        if path in table and leaf is not None and value != default_values[path]:
            default = default_values[path]
            yield path, "omitted" if default is None else json.dumps(leaf.kind.write(default))


def inert_problems(config: ServerConfig, defaults: ServerConfig) -> Iterator[tuple[str, str]]:
    """Yield path and message of unsupported keys with a value other than the default."""
    for path, default in _changed(REFUSED, config, defaults):
        yield path, f"must be {default} on this server: {REFUSED[path]}"


def inert_warnings(config: ServerConfig, defaults: ServerConfig) -> Iterator[str]:
    """Yield a warning for each key that has no effect."""
    for path, _ in _changed(WARNED, config, defaults):
        yield f"{path} has no effect on this server: {WARNED[path]}"
