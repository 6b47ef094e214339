"""The verbs of a blocking client, family by family; all but this page is generated."""

from __future__ import annotations

from iggy_sdk.blocking.families.messages import ConsumerGroupsFamily, MessagesFamily, OffsetsFamily
from iggy_sdk.blocking.families.streams import PartitionsFamily, StreamsFamily, TopicsFamily
from iggy_sdk.blocking.families.system import SystemFamily, TokensFamily, UsersFamily

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
