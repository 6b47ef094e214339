"""The commands of a client by family: one typed method for each command that a program asks for.

Those are the 47 of 0.8 and three that came later.

Methods are named as in the official SDK. Streams, topics, groups and users are named by their name
or their id. ``create_*`` return what they made, and with ``exist_ok=True`` what was there before;
``get_*`` return None for what does not exist, and raise with ``required=True``. Every method takes
``timeout=``.
"""

from __future__ import annotations

from iggy_sdk.families.messages import ConsumerGroupsFamily, MessagesFamily, OffsetsFamily
from iggy_sdk.families.streams import PartitionsFamily, StreamsFamily, TopicsFamily
from iggy_sdk.families.system import SystemFamily, TokensFamily, UsersFamily

__all__ = [
    "AllFamilies",
    "ConsumerGroupsFamily",
    "MessagesFamily",
    "OffsetsFamily",
    "PartitionsFamily",
    "StreamsFamily",
    "SystemFamily",
    "TokensFamily",
    "TopicsFamily",
    "UsersFamily",
]


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
    """All commands; a client implements ``request`` and ``options``."""
