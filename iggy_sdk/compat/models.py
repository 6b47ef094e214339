"""What servers tell about, under the official names, and the official variants of headers.

Records are those of ``iggy_protocol``: times are ``created_at_us`` and sizes ``size_bytes`` there,
where the official client says ``created_at`` and ``size``.
"""

from __future__ import annotations

import iggy_protocol
from iggy_protocol import (
    CacheMetrics,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerGroupMember,
    GlobalPermissions,
    Partition,
    Permissions,
    Stats,
    Stream,
    StreamDetails,
    StreamPermissions,
    Topic,
    TopicDetails,
    TopicPermissions,
    UserStatus,
)
from iggy_protocol import User as UserInfo
from iggy_protocol import UserDetails as UserInfoDetails

__all__ = [
    "CacheMetrics",
    "ConsumerGroup",
    "ConsumerGroupDetails",
    "ConsumerGroupMember",
    "GlobalPermissions",
    "HeaderKey",
    "HeaderValue",
    "Partition",
    "Permissions",
    "Stats",
    "Stream",
    "StreamDetails",
    "StreamPermissions",
    "Topic",
    "TopicDetails",
    "TopicPermissions",
    "UserInfo",
    "UserInfoDetails",
    "UserStatus",
]


class HeaderKey:
    """The key of a user header, by its kind."""

    Raw = staticmethod(iggy_protocol.HeaderKey.raw_bytes)
    String = staticmethod(iggy_protocol.HeaderKey.string)
    Bool = staticmethod(iggy_protocol.HeaderKey.boolean)
    Int8 = staticmethod(iggy_protocol.HeaderKey.int8)
    Int16 = staticmethod(iggy_protocol.HeaderKey.int16)
    Int32 = staticmethod(iggy_protocol.HeaderKey.int32)
    Int64 = staticmethod(iggy_protocol.HeaderKey.int64)
    Int128 = staticmethod(iggy_protocol.HeaderKey.int128)
    UnsignedInt8 = staticmethod(iggy_protocol.HeaderKey.uint8)
    UnsignedInt16 = staticmethod(iggy_protocol.HeaderKey.uint16)
    UnsignedInt32 = staticmethod(iggy_protocol.HeaderKey.uint32)
    UnsignedInt64 = staticmethod(iggy_protocol.HeaderKey.uint64)
    UnsignedInt128 = staticmethod(iggy_protocol.HeaderKey.uint128)
    Float32 = staticmethod(iggy_protocol.HeaderKey.float32)
    Float64 = staticmethod(iggy_protocol.HeaderKey.float64)


class HeaderValue:
    """The value of a user header, by its kind."""

    Raw = staticmethod(iggy_protocol.HeaderValue.raw_bytes)
    String = staticmethod(iggy_protocol.HeaderValue.string)
    Bool = staticmethod(iggy_protocol.HeaderValue.boolean)
    Int8 = staticmethod(iggy_protocol.HeaderValue.int8)
    Int16 = staticmethod(iggy_protocol.HeaderValue.int16)
    Int32 = staticmethod(iggy_protocol.HeaderValue.int32)
    Int64 = staticmethod(iggy_protocol.HeaderValue.int64)
    Int128 = staticmethod(iggy_protocol.HeaderValue.int128)
    UnsignedInt8 = staticmethod(iggy_protocol.HeaderValue.uint8)
    UnsignedInt16 = staticmethod(iggy_protocol.HeaderValue.uint16)
    UnsignedInt32 = staticmethod(iggy_protocol.HeaderValue.uint32)
    UnsignedInt64 = staticmethod(iggy_protocol.HeaderValue.uint64)
    UnsignedInt128 = staticmethod(iggy_protocol.HeaderValue.uint128)
    Float32 = staticmethod(iggy_protocol.HeaderValue.float32)
    Float64 = staticmethod(iggy_protocol.HeaderValue.float64)
