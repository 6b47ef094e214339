"""From the configuration to the settings of each component.

A component has its own settings and does not read the configuration.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iggy_protocol import Limits, PayloadCipher
from iggy_ref_server.clients import UnauthenticatedLimits
from iggy_ref_server.metadata.state import MetadataSettings
from iggy_ref_server.net.socket_connection import SocketLimits
from iggy_ref_server.partitions.settings import (
    AckLevel,
    DeduplicationSettings,
    IndexCache,
    PartitionSettings,
)

if TYPE_CHECKING:
    from iggy_ref_server.config.schema import QuicLimitsConfig, ServerConfig, WebSocketLimitsConfig
    from iggy_ref_server.metadata.state import TopicRecord


# The memory budget of a shard's buffers, from the memory of the machine or the container.


# A quarter of the memory; the rest is for the page cache, indexes and other programs.
MEMORY_DIVISOR: Final = 4
# Used where the memory size is unknown; and the smallest budget of a shard.
MEMORY_UNKNOWN_BYTES: Final = 1 << 30
BUDGET_BYTES_MIN: Final = 64 << 20
# cgroup v1 says "no limit" with a number near 2^63.
CGROUP_NO_LIMIT_BYTES: Final = 1 << 60
CGROUP: Final = "sys/fs/cgroup"


def buffer_budget_bytes(configured_bytes: int, shards_count: int, root: Path = Path("/")) -> int:
    """Return the budget of one shard.

    Args:
        configured_bytes: the configured budget of all shards; 0 derives it from the memory.
        shards_count: how many shards share it.
        root: the root of the file system, for tests.
    """
    if configured_bytes:
        return max(1, configured_bytes // shards_count)
    return max(BUDGET_BYTES_MIN, available_memory_bytes(root) // MEMORY_DIVISOR // shards_count)


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory the server may use: the smallest limit of cgroups and machine."""
    own = ""
    with contextlib.suppress(OSError, IndexError):
        own = (root / "proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2].strip("/")
    bounds = [_read_total_memory(root / "proc/meminfo")]
    # A group is bound by all those that it is in, such as the slice of a service.
    for group in (Path(own), *Path(own).parents):
        bounds.append(_read_number(root / CGROUP / group / "memory.max"))
        bounds.append(_read_number(root / CGROUP / "memory" / group / "memory.limit_in_bytes"))
    return min(
        (bound for bound in bounds if 0 < bound < CGROUP_NO_LIMIT_BYTES),
        default=MEMORY_UNKNOWN_BYTES,
    )


def _read_number(path: Path) -> int:
    """Read a number; 0 where the file holds none, such as ``max``."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _read_total_memory(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0


# The receive size of a WebSocket: large batches come in few pieces, and each piece still fits into
# the CPU cache while it is unmasked.
READ_BUFFER_BYTES = 256 << 10
UNBOUNDED_BYTES = 1 << 63


def cipher_of(config: ServerConfig) -> PayloadCipher | None:
    """Return the cipher for data at rest, if encryption is enabled."""
    encryption = config.system.encryption
    return PayloadCipher.from_base64(encryption.key) if encryption.enabled else None


def metadata_settings(config: ServerConfig) -> MetadataSettings:
    """Return the settings that become part of the metadata."""
    return MetadataSettings(
        message_expiry_us=config.system.topic.message_expiry_us,
        max_topic_size_bytes=config.system.topic.max_size_bytes,
        segment_size_bytes=config.system.segment.size_bytes,
        tokens_per_user_max=config.personal_access_token.max_tokens_per_user,
        is_persisted=AckLevel(config.system.partition.ack) is AckLevel.FSYNC,
        messages_required_to_save=config.system.partition.messages_required_to_save,
        bytes_required_to_save=config.system.partition.size_of_messages_required_to_save_bytes,
        is_encrypted=config.system.encryption.enabled,
    )


def partition_settings(config: ServerConfig) -> PartitionSettings:
    """Return the settings of the partitions of a topic without options."""
    system, duplicates = config.system, config.system.message_deduplication
    return PartitionSettings(
        segment_size_bytes=system.segment.size_bytes,
        ack=AckLevel(system.partition.ack),
        messages_required_to_save=system.partition.messages_required_to_save,
        bytes_required_to_save=system.partition.size_of_messages_required_to_save_bytes,
        index_cache=IndexCache(system.segment.cache_indexes),
        validate_checksums=system.partition.validate_checksum,
        deduplication=DeduplicationSettings(
            entries_max=duplicates.max_entries, expiry_us=duplicates.expiry_us
        )
        if duplicates.enabled
        else None,
        encryptor=cipher_of(config),
    )


def topic_partition_settings(settings: PartitionSettings, topic: TopicRecord) -> PartitionSettings:
    """Return the settings of the partitions of a topic: its options, and those of all others.

    Args:
        settings: those of a partition whose topic has no options.
        topic: the topic.
    """
    options = topic.options
    if not options:
        return settings

    def number(key: str, default: int) -> int:
        return int(options[key].value) if key in options else default

    def ack(key: str) -> AckLevel:
        # On a single node a message is replicated when the server says so of all topics.
        is_persisted = key in options and options[key].value == "persisted"
        return AckLevel.FSYNC if is_persisted else settings.ack

    segment_size_bytes = number("segment_size", settings.segment_size_bytes)
    return replace(
        settings,
        segment_size_bytes=segment_size_bytes,
        ack=ack("durability"),
        offset_ack=ack("consumer_offset_durability"),
        messages_required_to_save=number(
            "messages_required_to_save", settings.messages_required_to_save
        ),
        bytes_required_to_save=number(
            "size_of_messages_required_to_save", settings.bytes_required_to_save
        ),
        preallocated_bytes=segment_size_bytes * number("preallocate_segments", 0),
    )


def socket_limits(config: ServerConfig, budget_bytes: int = UNBOUNDED_BYTES) -> SocketLimits:
    """Return the limits of each connection; no send may take more than half of the budget."""
    limits = config.limits
    return SocketLimits(
        connection=Limits(
            send_bytes_max=max(1, min(limits.max_send_bytes, budget_bytes // 2)),
            pipelined_max=limits.max_pipelined_requests,
        ),
        output_bytes_max=limits.max_reply_backlog_bytes,
        stall_timeout_s=limits.stall_timeout_us / 1e6,
        idle_timeout_s=limits.idle_timeout_us / 1e6,
    )


def unauthenticated_limits(config: ServerConfig) -> UnauthenticatedLimits:
    """Return the limits of clients that have not logged in."""
    limits = config.limits
    return UnauthenticatedLimits(
        total_max=limits.max_unauthenticated_connections,
        per_address_max=limits.max_unauthenticated_connections_per_address,
        login_timeout_s=limits.login_timeout_us / 1e6,
    )


def websocket_limits(config: ServerConfig, budget_bytes: int = UNBOUNDED_BYTES) -> SocketLimits:
    """Return the limits of each WebSocket connection: the lower of two where there are two."""
    return _narrowed(config, config.limits.websocket, budget_bytes)


def websocket_receive_bytes(config: ServerConfig) -> int:
    """Return how much to receive at once from a WebSocket connection."""
    return config.websocket.read_buffer_size_bytes or READ_BUFFER_BYTES


def quic_limits(config: ServerConfig, budget_bytes: int = UNBOUNDED_BYTES) -> SocketLimits:
    """Return the limits of each QUIC connection: the lower of two where there are two."""
    return _narrowed(config, config.limits.quic, budget_bytes)


def _narrowed(
    config: ServerConfig, limits: WebSocketLimitsConfig | QuicLimitsConfig, budget_bytes: int
) -> SocketLimits:
    every = socket_limits(config, budget_bytes)
    waits_s = [wait_s for wait_s in (limits.idle_timeout_us / 1e6, every.idle_timeout_s) if wait_s]
    return replace(
        every,
        output_bytes_max=min(limits.max_reply_backlog_bytes, every.output_bytes_max),
        idle_timeout_s=min(waits_s, default=0.0),
    )
