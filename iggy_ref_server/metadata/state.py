"""The metadata: everything that exists on the server, as one immutable value.

In look-ups a number is an id and a string is a name, even one made of digits.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from iggy_protocol import Identifier, StatusCode, record
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.catalog import Catalog
from iggy_ref_server.metadata.records import (
    GroupRecord,
    StreamRecord,
    TokenRecord,
    TopicRecord,
    UserRecord,
)
from iggy_ref_server.metadata.token_shelf import TokenShelf

__all__ = ["Metadata"]


@record
class Metadata:
    """What exists after a number of changes.

    Attributes:
        version: how many changes led here; the next one has the number ``version + 1``.
        last_incarnation: the highest that was ever given out, as far as is known.
        doubtful_incarnation: up to this one, changes may have been lost in a repair, so that
            nothing follows from a thing not being here.
    """

    EMPTY: ClassVar[Metadata]

    version: int = 0
    streams: Catalog[StreamRecord] = field(default_factory=Catalog)
    users: Catalog[UserRecord] = field(default_factory=Catalog)
    tokens: TokenShelf = field(default_factory=TokenShelf)
    last_incarnation: int = 0
    doubtful_incarnation: int = 0

    def next_incarnation(self, now_us: int) -> int:
        """Return a generation number that was never used before.

        It follows the clock, so that even new metadata after a loss never reuse a number that is
        still on the disk. It only rises, even if the clock goes back. Older releases used the
        numbers of changes.
        """
        return max(now_us, self.last_incarnation + 1, self.version + 1)

    @property
    def newest_generation(self) -> int:
        """The highest number that a partition can have; earlier releases took those of changes."""
        return max(self.last_incarnation, self.version)

    def find_stream(self, stream: Identifier) -> StreamRecord | None:
        """Look up a stream."""
        return self.streams.find(stream)

    def require_stream(self, stream: Identifier) -> StreamRecord:
        """Look up a stream, or raise the fault that a client is told."""
        found = self.streams.find(stream)
        if found is None:
            raise ServerFault(StatusCode.STREAM_ID_NOT_FOUND, f"stream {stream!r} does not exist")
        return found

    def find_topic(self, stream: Identifier, topic: Identifier) -> TopicRecord | None:
        """Look up a topic; it knows the id of its stream."""
        parent = self.streams.find(stream)
        return None if parent is None else parent.topics.find(topic)

    def require_topic(self, stream: Identifier, topic: Identifier) -> TopicRecord:
        """Look up a topic, or raise the fault that a client is told."""
        return self.require_stream(stream).require_topic(topic)

    def find_group(
        self, stream: Identifier, topic: Identifier, group: Identifier
    ) -> GroupRecord | None:
        """Look up a consumer group."""
        parent = self.find_topic(stream, topic)
        return None if parent is None else parent.groups.find(group)

    def require_group(
        self, stream: Identifier, topic: Identifier, group: Identifier
    ) -> GroupRecord:
        """Look up a consumer group, or raise the fault that a client is told."""
        return self.require_topic(stream, topic).require_group(group)

    def find_user(self, user: Identifier) -> UserRecord | None:
        """Look up a user."""
        return self.users.find(user)

    def require_user(self, user: Identifier) -> UserRecord:
        """Look up a user, or raise the fault that a client is told."""
        found = self.users.find(user)
        if found is None:
            raise ServerFault(StatusCode.RESOURCE_NOT_FOUND, f"user {user!r} does not exist")
        return found

    def find_token(self, token_hash: str) -> TokenRecord | None:
        """Look up a personal access token by its hash, expired or not."""
        return self.tokens.by_hash.get(token_hash)


Metadata.EMPTY = Metadata()
