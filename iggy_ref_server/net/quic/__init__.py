"""The QUIC transport: one UDP socket on shard 0, one request per stream."""

from __future__ import annotations
