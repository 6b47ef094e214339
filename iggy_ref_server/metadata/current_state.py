"""The current state of the metadata as items, by group and key, for clients that begin to follow.

Keys are bytes whose order is that of the ids. An item is described only when a page takes it, so
that pages before it cost little.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from iggy_protocol import (
    V0_12_2,
    ConsumerGroupState,
    ItemBody,
    MemberState,
    MetadataGroup,
    PartitionsState,
    RegisteredSession,
    TopicState,
)
from iggy_ref_server.metadata.change_reports import (
    ResourceKeys,
    stream_state,
    token_state,
    user_state,
)
from iggy_ref_server.metadata.options import report_topic_options
from iggy_ref_server.metadata.state import GroupRecord, Metadata, MetadataSettings, TopicRecord

_IDS: Final = tuple(struct.Struct(f">{count}I") for count in range(5))
SESSION_BYTES: Final = 8

MemberSource = Callable[[tuple[int, int, int]], Iterable[MemberState]]
SessionSource = Callable[[int], Iterable[RegisteredSession]]


class StateItem(NamedTuple):
    """An item that is not described yet."""

    group: MetadataGroup
    key: bytes
    describe: Callable[[], ItemBody]


class StateView(NamedTuple):
    """What the current state is made of.

    Attributes:
        members: lists the members of groups, from a group on, by their ids.
        sessions: lists the sessions behind one, by their numbers.
        after: the key of the last item of the group that the client has.
    """

    metadata: Metadata
    keys: ResourceKeys
    settings: MetadataSettings
    members: MemberSource
    sessions: SessionSource
    after: bytes = b""


def _key(*ids: int) -> bytes:
    return _IDS[len(ids)].pack(*ids)


def _streams(view: StateView) -> Iterator[StateItem]:
    for stream in view.metadata.streams:
        describe = partial(stream_state, stream, view.keys, view.settings)
        yield StateItem(MetadataGroup.STREAMS, _key(stream.id), describe)


def _all_topics(view: StateView) -> Iterator[TopicRecord]:
    for stream in view.metadata.streams:
        yield from stream.topics


def _describe_topic(view: StateView, topic: TopicRecord) -> TopicState:
    options = report_topic_options(topic, V0_12_2, view.settings)
    key = view.keys.of_topic(topic.stream_id, topic.id)
    return TopicState(key, topic.created_at_us, topic.name, options)


def _topics(view: StateView) -> Iterator[StateItem]:
    for topic in _all_topics(view):
        key = _key(topic.stream_id, topic.id)
        yield StateItem(MetadataGroup.TOPICS, key, partial(_describe_topic, view, topic))


def _describe_partitions(view: StateView, topic: TopicRecord) -> PartitionsState:
    return PartitionsState(view.keys.of_topic(topic.stream_id, topic.id), len(topic.partitions))


def _partitions(view: StateView) -> Iterator[StateItem]:
    for topic in _all_topics(view):
        key = _key(topic.stream_id, topic.id)
        yield StateItem(MetadataGroup.PARTITIONS, key, partial(_describe_partitions, view, topic))


def _describe_group(view: StateView, topic: TopicRecord, group: GroupRecord) -> ConsumerGroupState:
    key = view.keys.of_topic(topic.stream_id, topic.id)
    return ConsumerGroupState(key, group.id, group.name)


def _groups(view: StateView) -> Iterator[StateItem]:
    for topic in _all_topics(view):
        for group in topic.groups:
            key = _key(topic.stream_id, topic.id, group.id)
            describe = partial(_describe_group, view, topic, group)
            yield StateItem(MetadataGroup.CONSUMER_GROUPS, key, describe)


def _itself(body: ItemBody) -> ItemBody:
    return body


def _members(view: StateView) -> Iterator[StateItem]:
    stream_id, topic_id, group_id, _ = _IDS[4].unpack(view.after or bytes(_IDS[4].size))
    for member in view.members((stream_id, topic_id, group_id)):
        key = _key(member.key.stream.id, member.key.id, member.group_id, member.member_id)
        yield StateItem(MetadataGroup.MEMBERS, key, partial(_itself, member))


def _users(view: StateView) -> Iterator[StateItem]:
    for user in view.metadata.users:
        yield StateItem(MetadataGroup.USERS, _key(user.id), partial(user_state, user))


def _tokens(view: StateView) -> Iterator[StateItem]:
    for user in view.metadata.users:
        tokens = view.metadata.tokens.of_user(user.id).values()
        for name, token in sorted((token.name.encode(), token) for token in tokens):
            describe = partial(token_state, user, token)
            yield StateItem(MetadataGroup.TOKENS, _key(user.id) + name, describe)


def _sessions(view: StateView) -> Iterator[StateItem]:
    for session in view.sessions(int.from_bytes(view.after, "big")):
        key = session.session.to_bytes(SESSION_BYTES, "big")
        yield StateItem(MetadataGroup.SESSIONS, key, partial(_itself, session))


_ITEMS: Final[Mapping[MetadataGroup, Callable[[StateView], Iterator[StateItem]]]] = (
    MappingProxyType(
        {
            MetadataGroup.STREAMS: _streams,
            MetadataGroup.TOPICS: _topics,
            MetadataGroup.PARTITIONS: _partitions,
            MetadataGroup.CONSUMER_GROUPS: _groups,
            MetadataGroup.MEMBERS: _members,
            MetadataGroup.USERS: _users,
            MetadataGroup.TOKENS: _tokens,
            MetadataGroup.SESSIONS: _sessions,
        }
    )
)


def state_items(
    view: StateView, groups: Iterable[MetadataGroup], after: tuple[int, bytes] = (0, b"")
) -> Iterator[StateItem]:
    """Yield the items of some groups behind a place, by group and key.

    Args:
        view: what they are made of.
        groups: those that are wanted.
        after: the group and the key of the last item that the client has.
    """
    for group in sorted(groups):
        if group >= after[0]:
            known = after[1] if group == after[0] else b""
            for item in _ITEMS[group](view._replace(after=known)):
                if (item.group, item.key) > after:
                    yield item
