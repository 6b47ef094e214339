"""The verbs of a blocking client, family by family; all but this page is generated."""

from __future__ import annotations

from iggy_sdk.blocking.families.groups import ConsumerGroupsFamily
from iggy_sdk.blocking.families.messages import MessagesFamily
from iggy_sdk.blocking.families.offsets import OffsetsFamily
from iggy_sdk.blocking.families.partitions import PartitionsFamily
from iggy_sdk.blocking.families.streams import StreamsFamily
from iggy_sdk.blocking.families.system import SystemFamily
from iggy_sdk.blocking.families.tokens import TokensFamily
from iggy_sdk.blocking.families.topics import TopicsFamily
from iggy_sdk.blocking.families.users import UsersFamily

__all__ = ["AllFamilies"]


class AllFamilies(
    SystemFamily,
    UsersFamily,
    TokensFamily,
    StreamsFamily,
    TopicsFamily,
    PartitionsFamily,
    ConsumerGroupsFamily,
    OffsetsFamily,
    MessagesFamily,
):
    """Every verb there is."""
