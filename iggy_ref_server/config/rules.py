"""Rules of a configuration beyond the syntax of each value.

Every rule yields ``(path, message)`` pairs. All rules run, so that an administrator sees every
problem at once. A message says what is wrong and what to write. The rules read no files, so they
give the same result on every machine.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.syntax import (
    SERVER_DEFAULT,
    format_size,
    parse_address,
    parse_log_filter,
)
from iggy_ref_server.config.tree import ScalarField, SettingTree, find_setting, section_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_ref_server.config.value_codecs import Section


Violations: TypeAlias = Iterator[tuple[str, str]]
Rule: TypeAlias = Callable[[ServerConfig], Violations]

SECOND_US: Final = 1_000_000
SEGMENT_BYTES_MAX: Final = 2**30
SEGMENT_BYTES_STEP: Final = 512
ENCRYPTION_KEY_SIZE: Final = 32
POOL_BYTES_MIN: Final = 512 * 2**20
POOL_BYTES_STEP: Final = 4096
POOL_BUCKETS_MIN: Final = 128
# The name of a congestion control has at most 15 characters in Linux.
CONGESTION_CONTROL: Final = re.compile(r"[a-z0-9_-]{0,15}")
JWT_ALGORITHMS: Final = ("HS256", "HS384", "HS512", "RS256", "RS384", "RS512")
HTTP_METHODS: Final = frozenset(
    "CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE".split()  # noqa: SIM905  reads better
)


def rule_violations(config: ServerConfig) -> Violations:
    """Yield path and message of every violated rule."""
    for rule in RULES:
        yield from rule(config)


def _segments(config: ServerConfig) -> Violations:
    size_bytes = config.system.segment.size_bytes
    if not 0 < size_bytes <= SEGMENT_BYTES_MAX:
        yield "system.segment.size", f"must be above 0 and at most {format_size(SEGMENT_BYTES_MAX)}"
    elif size_bytes % SEGMENT_BYTES_STEP:
        nearest = max(SEGMENT_BYTES_STEP, size_bytes - size_bytes % SEGMENT_BYTES_STEP)
        message = f"must be a multiple of {SEGMENT_BYTES_STEP} bytes; write {nearest}"
        yield "system.segment.size", message


def _topics(config: ServerConfig) -> Violations:
    topic, segment = config.system.topic, config.system.segment
    if topic.max_size_bytes == SERVER_DEFAULT:
        yield (
            "system.topic.max_size",
            'cannot be the server\'s default; write "unlimited" or a size',
        )
    elif topic.max_size_bytes < segment.size_bytes:
        least = format_size(segment.size_bytes)
        yield (
            "system.topic.max_size",
            f"must be at least one segment, system.segment.size = {least}",
        )
    if topic.message_expiry_us == SERVER_DEFAULT:
        message = 'cannot be the server\'s default; write "none" or a duration'
        yield "system.topic.message_expiry", message
    if config.http.jwt.access_token_expiry_us == SERVER_DEFAULT:
        yield "http.jwt.access_token_expiry", 'has no default; write "none" or a duration'


def _memory_pool(config: ServerConfig) -> Violations:
    pool = config.system.memory_pool
    if not pool.enabled:
        return
    if pool.size_bytes < POOL_BYTES_MIN or pool.size_bytes % POOL_BYTES_STEP:
        least = format_size(POOL_BYTES_MIN)
        yield (
            "system.memory_pool.size",
            f"must be at least {least} and a multiple of {POOL_BYTES_STEP}",
        )
    if pool.bucket_capacity < POOL_BUCKETS_MIN or pool.bucket_capacity.bit_count() != 1:
        message = f"must be a power of two and at least {POOL_BUCKETS_MIN}"
        yield "system.memory_pool.bucket_capacity", message


def _intervals(config: ServerConfig) -> Violations:
    cleaner, messages = config.personal_access_token.cleaner, config.data_maintenance.messages
    groups, saver = config.consumer_group, config.message_saver
    needed = (
        ("consumer_group.rebalancing_timeout", True, groups.rebalancing_timeout_us),
        ("consumer_group.rebalancing_check_interval", True, groups.rebalancing_check_interval_us),
        ("data_maintenance.messages.interval", messages.cleaner_enabled, messages.interval_us),
        ("message_saver.interval", saver.enabled, saver.interval_us),
        ("personal_access_token.cleaner.interval", cleaner.enabled, cleaner.interval_us),
        ("heartbeat.interval", config.heartbeat.enabled, config.heartbeat.interval_us),
    )
    for path, is_needed, interval_us in needed:
        if is_needed and interval_us == 0:
            yield path, 'must not be zero; write a duration such as "5 s", or disable the task'


def _logging(config: ServerConfig) -> Violations:
    logging = config.system.logging
    try:
        parse_log_filter(logging.level)
    except ValueError as error:
        yield "system.logging.level", f"= {error}"
    if logging.retention_us < SECOND_US:
        yield "system.logging.retention", "must be at least one second"
    if logging.rotation_check_interval_us < SECOND_US:
        yield "system.logging.rotation_check_interval", "must be at least one second"
    if 0 < logging.max_total_size_bytes < logging.max_file_size_bytes:
        message = "must be at least system.logging.max_file_size, or 0 for no limit"
        yield "system.logging.max_total_size", message


def _paths(config: ServerConfig) -> Violations:
    """Keep directories inside the data directory and apart: a start clears one of them."""
    system = config.system
    if not system.path:
        yield "system.path", "must not be empty: it names the data directory"
    directories = {
        "system.stream.path": system.stream.path,
        "system.topic.path": system.topic.path,
        "system.partition.path": system.partition.path,
        "system.runtime.path": system.runtime.path,
    }
    for path, directory in directories.items():
        parts = PurePosixPath(directory).parts
        if not parts or directory.startswith("/") or ".." in parts:
            yield path, "must name a directory inside the data directory, such as a single word"
    taken = {
        "state": "the metadata",
        _first_part(system.stream.path): "system.stream.path",
        _first_part(system.logging.path): "system.logging.path",
    }
    if _first_part(system.runtime.path) in taken:
        other = taken[_first_part(system.runtime.path)]
        yield (
            "system.runtime.path",
            f"is cleared at every start, so it cannot be the directory of {other}",
        )
    if _first_part(system.stream.path) == "state":
        yield "system.stream.path", 'cannot be "state", the directory of the metadata'


def _first_part(directory: str) -> str:
    parts = PurePosixPath(directory).parts
    return parts[0] if parts else ""


def _encryption(config: ServerConfig) -> Violations:
    encryption = config.system.encryption
    try:
        key_size = len(base64.b64decode(encryption.key, validate=True))
    except (binascii.Error, ValueError):
        key_size = 0
    if encryption.enabled and key_size != ENCRYPTION_KEY_SIZE:
        message = "must be 32 bytes in base64 with encryption: head -c 32 /dev/urandom | base64"
        yield "system.encryption.key", message


def _listeners(config: ServerConfig) -> Violations:
    addresses = {
        "tcp": config.tcp.address,
        "http": config.http.address,
        "quic": config.quic.address,
        "websocket": config.websocket.address,
    }
    for name, text in addresses.items():
        try:
            address = parse_address(text)
        except ValueError as error:
            yield f"{name}.address", f"= {error}"
            continue
        if name == "tcp" and config.tcp.ipv6 and address.version == 4:
            message = f"requires IPv6, but tcp.address = {text} is IPv4; change one of them"
            yield "tcp.ipv6", message
    if not CONGESTION_CONTROL.fullmatch(config.tcp.congestion_control):
        yield (
            "tcp.congestion_control",
            'must be a name such as "cubic", or "" for the system\'s default',
        )


def _http(config: ServerConfig) -> Violations:
    if config.http.jwt.algorithm not in JWT_ALGORITHMS:
        yield "http.jwt.algorithm", f"must be one of {', '.join(JWT_ALGORITHMS)}"
    unknown = {method.upper() for method in config.http.cors.allowed_methods} - HTTP_METHODS
    if unknown:
        yield "http.cors.allowed_methods", f"has unknown methods: {', '.join(sorted(unknown))}"
    if not config.http.metrics.endpoint.startswith("/"):
        yield "http.metrics.endpoint", 'must start with "/"'
    cors, limits = config.http.cors, config.limits.http
    if cors.allow_credentials and "*" in cors.allowed_origins:
        yield "http.cors.allow_credentials", 'cannot be used with allowed_origins = ["*"]'
    for key in ("handshake_timeout", "idle_timeout"):
        if getattr(limits, f"{key}_us") == 0:
            yield f"limits.http.{key}", 'must not be zero; write a duration such as "10 s"'
    if not 1024 <= limits.max_head_bytes < 2**24:
        yield "limits.http.max_head_bytes", "must be from 1 KiB to 16 MiB"


def _cluster(config: ServerConfig) -> Violations:
    if not config.cluster.enabled:
        return
    if not config.cluster.name.strip():
        yield "cluster.name", "must not be empty when the cluster is enabled"
    current, others = config.cluster.node.current, config.cluster.node.others
    nodes = {"cluster.node.current": (current.name, current.ip)}
    for index, other in enumerate(others):
        nodes[f"cluster.node.others[{index}]"] = (other.name, other.ip)
    names = Counter(name for name, _ in nodes.values())
    for path, (name, ip) in nodes.items():
        if not name.strip():
            yield f"{path}.name", "must not be empty"
        elif names[name] > 1:
            yield f"{path}.name", f"is used by more than one node: {name!r}"
        if not ip.strip():
            yield f"{path}.ip", "must not be empty"
    yield from _cluster_ports(config)


def _cluster_ports(config: ServerConfig) -> Violations:
    seen: set[tuple[str, str, int]] = set()
    for index, node in enumerate(config.cluster.node.others):
        for listener in ("tcp", "quic", "http", "websocket"):
            port: int | None = getattr(node.ports, listener)
            path = f"cluster.node.others[{index}].ports.{listener}"
            if port == 0:
                yield path, "must not be 0; omit it to use the port of this node"
            elif port is not None and (node.ip, listener, port) in seen:
                yield path, f"is used twice: another node has {node.ip} with port {port}"
            elif port is not None:
                seen.add((node.ip, listener, port))


def _websocket(config: ServerConfig) -> Violations:
    for key in ("read_buffer_size", "max_message_size", "max_frame_size"):
        if getattr(config.websocket, f"{key}_bytes") == 0:
            yield f"websocket.{key}", "must be above 0; omit it for the default"
    if config.limits.websocket.handshake_timeout_us == 0:
        yield (
            "limits.websocket.handshake_timeout",
            'must not be zero; write a duration such as "10 s"',
        )
    if not 0 < config.limits.websocket.max_reply_backlog_bytes < 2**32:
        yield "limits.websocket.max_reply_backlog_bytes", "must be above 0 and below 4 GiB"


def _quic(config: ServerConfig) -> Violations:
    quic, limits = config.quic, config.limits.quic
    if not 1200 <= quic.initial_mtu_bytes <= 65_527:
        yield (
            "quic.initial_mtu",
            "must be from 1200 B, the minimum of QUIC, to 65527 B, the maximum of UDP",
        )
    for key in ("send_window", "receive_window"):
        if not 1 << 12 <= getattr(quic, f"{key}_bytes") < 2**32:
            yield f"quic.{key}", "must be from 4 KiB to 4 GiB"
    if not 0 < quic.max_concurrent_bidi_streams < 2**60:
        yield "quic.max_concurrent_bidi_streams", "must be above 0 and below 2^60"
    if limits.handshake_timeout_us == 0:
        yield "limits.quic.handshake_timeout", 'must not be zero; write a duration such as "10 s"'
    for key in ("max_request_backlog_bytes", "max_reply_backlog_bytes"):
        if not 0 < getattr(limits, key) < 2**32:
            yield f"limits.quic.{key}", "must be above 0 and below 4 GiB"


def _limits(config: ServerConfig) -> Violations:
    limits = config.limits
    for key in ("max_send_bytes", "max_poll_bytes", "max_reply_backlog_bytes"):
        if not 0 < getattr(limits, key) < 2**32:
            yield f"limits.{key}", "must be above 0 and below 4 GiB, the limit of the wire protocol"
    if limits.max_unauthenticated_connections > limits.max_connections:
        yield "limits.max_unauthenticated_connections", "must be at most limits.max_connections"


RULES: Final[tuple[Rule, ...]] = (
    _segments,
    _topics,
    _memory_pool,
    _intervals,
    _logging,
    _paths,
    _encryption,
    _listeners,
    _http,
    _websocket,
    _quic,
    _cluster,
    _limits,
)


# The rule for ``ack`` and ``enforce_fsync``.
#
# ``system.partition.ack`` is a key of this server, ``system.partition.enforce_fsync`` is the key of
# Apache Iggy 0.8 and means ``fsync``. A configuration that sets both in one source, or ``ack`` in
# the higher one, must not contradict itself.


ACK = "system.partition.ack"
ENFORCE_FSYNC = "system.partition.enforce_fsync"


def ack_conflict(config: ServerConfig, tree: SettingTree) -> Iterator[tuple[str, str]]:
    """Yield path and message where the two keys contradict each other."""
    partition = config.system.partition
    ack, enforce_fsync = find_setting(tree, ACK), find_setting(tree, ENFORCE_FSYNC)
    if not partition.enforce_fsync or partition.ack == "fsync" or not (ack and enforce_fsync):
        return
    if ack.layer >= enforce_fsync.layer:
        conflict = f'= "{partition.ack}" contradicts {ENFORCE_FSYNC} = true'
        yield ACK, f'{conflict}; write ack = "fsync", or set enforce_fsync to false'


def with_effective_ack(config: ServerConfig) -> ServerConfig:
    """Set ``ack`` to ``fsync`` where ``enforce_fsync`` is true."""
    partition = config.system.partition
    if not partition.enforce_fsync:
        return config
    return replace(config, system=replace(config.system, partition=replace(partition, ack="fsync")))


# Keys of Apache Iggy 0.8 that this server does not support.
#
# Some keys are read by Apache Iggy and never used, others belong to parts that this server does not
# have. At its default such a key is harmless. Another value is an error where the administrator
# would expect an effect on stored data or operation, and a warning otherwise.


_NO_CONVERTER: Final = "files of Apache Iggy are opened as they are, so there is nothing to convert"
_NO_RETRY: Final = "a failed write of metadata is reported at once and not retried"
_NO_COMPRESSION: Final = "the server stores messages as clients send them; compress in the client"
_NO_POOL: Final = "buffers are managed by Python's allocator"
_NO_BUFFER: Final = "replies are not buffered again; limits.websocket limits those that wait"

UNSUPPORTED_KEYS: Final = {
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

IGNORED_KEYS: Final = {
    "system.memory_pool.enabled": _NO_POOL,
    "system.memory_pool.size": _NO_POOL,
    "system.memory_pool.bucket_capacity": _NO_POOL,
    "websocket.write_buffer_size": _NO_BUFFER,
    "websocket.max_write_buffer_size": _NO_BUFFER,
    "quic.datagram_send_buffer_size": "requests and replies use streams, not datagrams",
    "http.web_ui": "this server has no web interface",
}
"""Keys that have an effect in Apache Iggy and none here, each with the reason."""


def flatten_section(
    section: Section, prefix: str = ""
) -> Iterator[tuple[str, ScalarField | None, object]]:
    """Yield every key with its value; an array of sections is one value without a codec."""
    for key, field in section_fields(type(section)).items():
        value = getattr(section, field.attribute)
        if isinstance(field.content, ScalarField):
            yield f"{prefix}{key}", field.content, value
        elif field.is_array:
            yield f"{prefix}{key}", None, value
        else:
            yield from flatten_section(value, f"{prefix}{key}.")


def _changed_keys(
    table: Mapping[str, str], config: ServerConfig, defaults: ServerConfig
) -> Iterator[tuple[str, str]]:
    """Yield the keys of a table that differ from their default: path, and default in TOML."""
    default_values = {path: value for path, _, value in flatten_section(defaults)}
    for path, scalar, value in flatten_section(config):
        if path in table and scalar is not None and value != default_values[path]:
            default = default_values[path]
            yield path, "omitted" if default is None else json.dumps(scalar.codec.write(default))


def unsupported_key_problems(
    config: ServerConfig, defaults: ServerConfig
) -> Iterator[tuple[str, str]]:
    """Yield path and message of unsupported keys with a value other than the default."""
    for path, default in _changed_keys(UNSUPPORTED_KEYS, config, defaults):
        yield path, f"must be {default} on this server: {UNSUPPORTED_KEYS[path]}"


def ignored_key_warnings(config: ServerConfig, defaults: ServerConfig) -> Iterator[str]:
    """Yield a warning for each key that has no effect."""
    for path, _ in _changed_keys(IGNORED_KEYS, config, defaults):
        yield f"{path} has no effect on this server: {IGNORED_KEYS[path]}"


# Deprecated keys: ignored with a warning, where unknown keys are errors.
#
# Apache Iggy ignores unknown keys, so old files still have sections without a meaning. These names
# are known, so they cannot be typing errors.


DEPRECATED_KEYS: Final = frozenset(
    {
        "http.jwt.enabled",
        "http.jwt.refresh_token_expiry",
        "system.consumer_groups",
        "system.database",
        "system.message_bus",
        "system.partitions",
        "system.personal_access_tokens",
        "system.segments",
        "system.streams",
        "system.topics",
        "system.users",
    }
)
"""Paths of sections and keys."""


def drop_deprecated_keys(tree: SettingTree, warnings: list[str], prefix: str = "") -> SettingTree:
    """Return the settings of a file without deprecated keys.

    Args:
        warnings: receives a line for each dropped key.
        prefix: the path of the tree in the file.
    """
    kept: SettingTree = {}
    for key, node in tree.items():
        path = f"{prefix}{key}"
        if path in DEPRECATED_KEYS:
            warnings.append(f"{path} is deprecated and has no effect; remove it")
        elif isinstance(node, dict):
            kept[key] = drop_deprecated_keys(node, warnings, f"{path}.")
        else:
            kept[key] = node
    return kept
