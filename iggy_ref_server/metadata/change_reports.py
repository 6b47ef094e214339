"""What clients that follow the metadata are told of a change: its kind, and its body.

A deletion is told once, for the thing that was deleted; all that was in it is gone as well. Only
the permissions that a deletion takes from users are told one by one. A purge is told by no kind:
it changes what partitions hold, and their incarnations.

Options are those of the newest dialect. Older ones are told of an option more than they know.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iggy_protocol import (
    V0_12_2,
    ChangeBody,
    ChangeKind,
    ConsumerGroupAdded,
    ConsumerGroupRemoved,
    PartitionsChanged,
    PermissionsReason,
    PermissionsReplaced,
    StreamKey,
    StreamRemoved,
    StreamState,
    TokenReason,
    TokenRemoved,
    TokenState,
    TopicChanged,
    TopicKey,
    TopicRemoved,
    UserKey,
    UserNamed,
    UserState,
)
from iggy_ref_server.metadata import changes as change_types
from iggy_ref_server.metadata.options import (
    report_stream_options,
    report_topic_options,
    report_user_options,
)
from iggy_ref_server.metadata.state import (
    Metadata,
    MetadataSettings,
    StreamRecord,
    TokenRecord,
    TopicRecord,
    UserRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Report = tuple[ChangeKind, ChangeBody]

NEVER: Final = 0
"""The expiry of a token that never expires."""


class ResourceKeys:
    """The keys of streams and topics: their ids, and the position at which they were created.

    What existed before the server started has the position of the start.
    """

    def __init__(self) -> None:
        self.start_op = 0
        self._streams: dict[int, int] = {}
        self._topics: dict[tuple[int, int], int] = {}

    def note(self, change: change_types.Change, op: int) -> None:
        """Note what was created; a deleted thing is noted again only when its id is."""
        match change:
            case change_types.StreamCreated():
                self._streams[change.id] = op
            case change_types.TopicCreated():
                self._topics[change.stream_id, change.id] = op

    def forget(self, change: change_types.Change) -> None:
        """Forget what was deleted, after it was told."""
        match change:
            case change_types.StreamDeleted():
                self._streams.pop(change.id, None)
                for key in [key for key in self._topics if key[0] == change.id]:
                    del self._topics[key]
            case change_types.TopicDeleted():
                self._topics.pop((change.stream_id, change.id), None)

    def of_stream(self, stream_id: int) -> StreamKey:
        """Return the key of a stream."""
        return StreamKey(stream_id, self._streams.get(stream_id, self.start_op))

    def of_topic(self, stream_id: int, topic_id: int) -> TopicKey:
        """Return the key of a topic."""
        created_op = self._topics.get((stream_id, topic_id), self.start_op)
        return TopicKey(self.of_stream(stream_id), topic_id, created_op)


def key_of_user(user: UserRecord) -> UserKey:
    """Return the key of a user."""
    return UserKey(user.id, user.created_at_us)


class Transition(NamedTuple):
    """A change, with the metadata before and after it."""

    change: Any
    before: Metadata
    after: Metadata
    keys: ResourceKeys
    settings: MetadataSettings


# Bodies of things that exist, in changes and in the current state alike.


def stream_state(
    stream: StreamRecord, keys: ResourceKeys, settings: MetadataSettings
) -> StreamState:
    """Describe a stream."""
    options = report_stream_options(stream, V0_12_2, settings)
    return StreamState(keys.of_stream(stream.id), stream.created_at_us, stream.name, options)


def user_state(user: UserRecord) -> UserState:
    """Describe a user."""
    options = report_user_options(user, V0_12_2)
    return UserState(key_of_user(user), user.username, user.status, user.permissions, options)


def token_state(user: UserRecord, token: TokenRecord) -> TokenState:
    """Describe a token of a user."""
    return TokenState(key_of_user(user), token.name, token.expires_at_us or NEVER)


# Reports of changes, one function for each kind of change.


def _stream_created(step: Transition) -> Iterator[Report]:
    stream = step.after.require_stream(step.change.id)
    yield ChangeKind.STREAM_CREATED, stream_state(stream, step.keys, step.settings)


def _stream_renamed(step: Transition) -> Iterator[Report]:
    stream = step.after.require_stream(step.change.id)
    yield ChangeKind.STREAM_UPDATED, stream_state(stream, step.keys, step.settings)


def _stream_deleted(step: Transition) -> Iterator[Report]:
    stream = step.before.require_stream(step.change.id)
    key = step.keys.of_stream(stream.id)
    yield ChangeKind.STREAM_DELETED, StreamRemoved(key, stream.created_at_us, stream.name)
    yield from _permissions_lost(step)


def _permissions_lost(step: Transition) -> Iterator[Report]:
    for user in step.after.users:
        before = step.before.users.by_id[user.id]
        if before.permissions != user.permissions:
            yield (
                ChangeKind.PERMISSIONS_UPDATED,
                PermissionsReplaced(
                    key_of_user(user),
                    user.username,
                    user.permissions,
                    PermissionsReason.RESOURCE_DELETED,
                ),
            )


def _topic_changed(topic: TopicRecord, step: Transition) -> TopicChanged:
    return TopicChanged(
        step.keys.of_topic(topic.stream_id, topic.id),
        topic.created_at_us,
        topic.name,
        len(topic.partitions),
        report_topic_options(topic, V0_12_2, step.settings),
    )


def _topic_created(step: Transition) -> Iterator[Report]:
    topic = step.after.require_topic(step.change.stream_id, step.change.id)
    yield ChangeKind.TOPIC_CREATED, _topic_changed(topic, step)


def _topic_updated(step: Transition) -> Iterator[Report]:
    topic = step.after.require_topic(step.change.stream_id, step.change.id)
    yield ChangeKind.TOPIC_UPDATED, _topic_changed(topic, step)


def _topic_deleted(step: Transition) -> Iterator[Report]:
    topic = step.before.require_topic(step.change.stream_id, step.change.id)
    key = step.keys.of_topic(topic.stream_id, topic.id)
    yield ChangeKind.TOPIC_DELETED, TopicRemoved(key, topic.created_at_us, topic.name)
    yield from _permissions_lost(step)


def _partitions_changed(step: Transition) -> Iterator[Report]:
    stream_id, topic_id = step.change.stream_id, step.change.topic_id
    before = len(step.before.require_topic(stream_id, topic_id).partitions)
    count = len(step.after.require_topic(stream_id, topic_id).partitions)
    key, removed = step.keys.of_topic(stream_id, topic_id), tuple(range(count, before))
    yield ChangeKind.PARTITIONS_CHANGED, PartitionsChanged(key, count, removed)


def _group_created(step: Transition) -> Iterator[Report]:
    change = step.change
    topic = step.after.require_topic(change.stream_id, change.topic_id)
    key = step.keys.of_topic(topic.stream_id, topic.id)
    body = ConsumerGroupAdded(key, change.id, change.name, len(topic.groups))
    yield ChangeKind.CONSUMER_GROUP_CREATED, body


def _group_deleted(step: Transition) -> Iterator[Report]:
    change = step.change
    topic = step.after.require_topic(change.stream_id, change.topic_id)
    group = step.before.require_group(change.stream_id, change.topic_id, change.id)
    key = step.keys.of_topic(topic.stream_id, topic.id)
    body = ConsumerGroupRemoved(key, group.id, group.name, len(topic.groups))
    yield ChangeKind.CONSUMER_GROUP_DELETED, body


def _user_created(step: Transition) -> Iterator[Report]:
    yield ChangeKind.USER_CREATED, user_state(step.after.require_user(step.change.id))


def _user_updated(step: Transition) -> Iterator[Report]:
    yield ChangeKind.USER_UPDATED, user_state(step.after.require_user(step.change.id))


def _user_deleted(step: Transition) -> Iterator[Report]:
    user = step.before.require_user(step.change.id)
    yield ChangeKind.USER_DELETED, UserNamed(key_of_user(user), user.username)


def _password_changed(step: Transition) -> Iterator[Report]:
    user = step.after.require_user(step.change.user_id)
    yield ChangeKind.PASSWORD_CHANGED, UserNamed(key_of_user(user), user.username)


def _permissions_changed(step: Transition) -> Iterator[Report]:
    user = step.after.require_user(step.change.user_id)
    reason = PermissionsReason.UPDATED
    body = PermissionsReplaced(key_of_user(user), user.username, user.permissions, reason)
    yield ChangeKind.PERMISSIONS_UPDATED, body


def _token_created(step: Transition) -> Iterator[Report]:
    user = step.after.require_user(step.change.user_id)
    token = step.after.tokens.of_user(user.id)[step.change.name]
    yield ChangeKind.TOKEN_CREATED, token_state(user, token)


def _token_deleted(step: Transition) -> Iterator[Report]:
    user = step.before.require_user(step.change.user_id)
    body = TokenRemoved(key_of_user(user), step.change.name, TokenReason.DELETED)
    yield ChangeKind.TOKEN_DELETED, body


def _tokens_expired(step: Transition) -> Iterator[Report]:
    for token in step.before.tokens:
        if token.is_expired(step.change.now_us):
            key = key_of_user(step.before.require_user(token.user_id))
            yield ChangeKind.TOKEN_DELETED, TokenRemoved(key, token.name, TokenReason.EXPIRED)


def _nothing(step: Transition) -> Iterator[Report]:
    return iter(())


_REPORTERS: Final[Mapping[type[Any], Callable[[Transition], Iterator[Report]]]] = MappingProxyType(
    {
        change_types.StreamCreated: _stream_created,
        change_types.StreamRenamed: _stream_renamed,
        change_types.StreamDeleted: _stream_deleted,
        change_types.StreamPurged: _nothing,
        change_types.TopicCreated: _topic_created,
        change_types.TopicUpdated: _topic_updated,
        change_types.TopicDeleted: _topic_deleted,
        change_types.TopicPurged: _nothing,
        change_types.PartitionsAdded: _partitions_changed,
        change_types.PartitionsRemoved: _partitions_changed,
        change_types.GroupCreated: _group_created,
        change_types.GroupDeleted: _group_deleted,
        change_types.UserCreated: _user_created,
        change_types.UserUpdated: _user_updated,
        change_types.UserDeleted: _user_deleted,
        change_types.PasswordChanged: _password_changed,
        change_types.PermissionsChanged: _permissions_changed,
        change_types.TokenCreated: _token_created,
        change_types.TokenDeleted: _token_deleted,
        change_types.TokensExpired: _tokens_expired,
    }
)


def report_change(step: Transition) -> Iterator[Report]:
    """Yield what clients are told of a change, in the order of the ordinals."""
    return _REPORTERS[type(step.change)](step)
