"""The commands of a client by family: one typed method for each of the 47 commands.

Methods are named as in the official SDK. Streams, topics, groups and users are named by their name
or their id. ``create_*`` return what they made, and with ``exist_ok=True`` what was there before;
``get_*`` return None for what does not exist, and raise with ``required=True``. Every method takes
``timeout=``.
"""

from __future__ import annotations

from iggy_sdk.families.groups import ConsumerGroupsFamily
from iggy_sdk.families.messages import MessagesFamily
from iggy_sdk.families.offsets import OffsetsFamily
from iggy_sdk.families.partitions import PartitionsFamily
from iggy_sdk.families.streams import StreamsFamily
from iggy_sdk.families.system import SystemFamily
from iggy_sdk.families.tokens import TokensFamily
from iggy_sdk.families.topics import TopicsFamily
from iggy_sdk.families.users import UsersFamily

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
