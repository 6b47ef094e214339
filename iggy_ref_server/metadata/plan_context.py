"""The context of a plan: the time, the user and the server's settings; and limits of metadata."""

from __future__ import annotations

from iggy_protocol import NEVER_EXPIRES, UNLIMITED, record
from iggy_ref_server.metadata.state import ROOT_USER_ID

# What fits the packed number by which a partition finds its shard.
STREAMS_MAX = 4096
TOPICS_PER_STREAM_MAX = 4096
PARTITIONS_PER_TOPIC_MAX = 1_000_000


@record(kw_only=True)
class MetadataSettings:
    """The server's settings that become part of the metadata, or limit it.

    Attributes:
        message_expiry_us: what a topic gets that asks for the server's default.
        max_topic_size_bytes: the same for its size.
        segment_size_bytes: no topic may be limited to less than this.
        tokens_per_user_max: how many personal access tokens a user may hold, expired ones included.
    """

    message_expiry_us: int = NEVER_EXPIRES
    max_topic_size_bytes: int = UNLIMITED
    segment_size_bytes: int = 1 << 30
    tokens_per_user_max: int = 100


@record(kw_only=True)
class PlanContext:
    """The time, the user and the settings under which a command is planned."""

    now_us: int
    user_id: int = ROOT_USER_ID
    settings: MetadataSettings = MetadataSettings()
