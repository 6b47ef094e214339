"""From the configuration to the settings of each component.

A component has its own settings and does not read the configuration.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iggy_protocol import Limits, PayloadCipher
from iggy_ref_server.clients import UnauthenticatedLimits
from iggy_ref_server.data_plane.sockets import SocketLimits
from iggy_ref_server.metadata.plan_context import MetadataSettings
from iggy_ref_server.partitions import (
    AckLevel,
    DeduplicationSettings,
    IndexCache,
    PartitionSettings,
)

if TYPE_CHECKING:
    from iggy_ref_server.config import ServerConfig
    from iggy_ref_server.config.schema import QuicLimits, WebSocketLimits

__all__ = [
    "cipher_of",
    "metadata_settings",
    "partition_settings",
    "quic_limits",
    "socket_limits",
    "unauthenticated_limits",
    "websocket_limits",
    "websocket_receive_bytes",
]

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
    )


def partition_settings(config: ServerConfig) -> PartitionSettings:
    """Return the settings of all partitions."""
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


def socket_limits(config: ServerConfig, budget_bytes: int = UNBOUNDED_BYTES) -> SocketLimits:
    """Return the limits of each connection; no send may take more than half of the budget."""
    limits = config.limits
    return SocketLimits(
        connection=Limits(
            send_bytes_max=max(1, min(limits.max_send_bytes, budget_bytes // 2)),
            pipelined_max=limits.max_pipelined_requests,
        ),
        outbox_bytes_max=limits.max_reply_backlog_bytes,
        stalled_s=limits.stall_timeout_us / 1e6,
        idle_s=limits.idle_timeout_us / 1e6,
    )


def unauthenticated_limits(config: ServerConfig) -> UnauthenticatedLimits:
    """Return the limits of clients that have not logged in."""
    limits = config.limits
    return UnauthenticatedLimits(
        total_max=limits.max_unauthenticated_connections,
        per_address_max=limits.max_unauthenticated_connections_per_address,
        login_s=limits.login_timeout_us / 1e6,
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
    config: ServerConfig, limits: WebSocketLimits | QuicLimits, budget_bytes: int
) -> SocketLimits:
    every = socket_limits(config, budget_bytes)
    waits_s = [wait_s for wait_s in (limits.idle_timeout_us / 1e6, every.idle_s) if wait_s]
    return replace(
        every,
        outbox_bytes_max=min(limits.max_reply_backlog_bytes, every.outbox_bytes_max),
        idle_s=min(waits_s, default=0.0),
    )
