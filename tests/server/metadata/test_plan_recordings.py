"""Recorded conversations, their metadata carried out by plans and shown by views."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iggy_protocol import (
    Command,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    GetConsumerGroup,
    GetConsumerGroups,
    GetPersonalAccessTokens,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    GetUser,
    GetUsers,
    LoginUser,
    ProtocolError,
    RuleViolation,
    StatusCode,
    decode_reply,
    decode_request,
    validate,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import GroupCreated, StreamCreated, TopicCreated, UserCreated
from iggy_ref_server.metadata.state import PlanContext
from iggy_ref_server.metadata.views import (
    no_members,
    no_statistics,
    view_group,
    view_group_details,
    view_groups,
    view_stream,
    view_stream_details,
    view_streams,
    view_tokens,
    view_topic_details,
    view_topics,
    view_user_details,
    view_users,
)
from tests.server.metadata.metadata_calls import NOW_US, PLANS, plan, with_root

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import Metadata

RAW = Path(__file__).parents[2] / "golden" / "raw"

# Where ours is better than what was recorded, and what that leads to further down.
BETTERED = {
    "topics-crud": {
        **dict.fromkeys((36, 37, 38, 39), "an update is checked as a creation is"),
        **dict.fromkeys((40, 43, 50, 51), "so that topic kept its name"),
    },
    "restart-persistence": dict.fromkeys((40, 41, 42), "resolved values survive a restart"),
}
FILES = (
    "group-lifecycle",
    "partitions",
    "purge",
    "restart-persistence",
    "streams-crud",
    "tokens",
    "topics-crud",
    "users-crud",
)
# Decided by permissions and passwords, which plans know nothing of.
REFUSED_BEFORE = {
    StatusCode.UNAUTHENTICATED,
    StatusCode.UNAUTHORIZED,
    StatusCode.INVALID_CREDENTIALS,
}
ZEROED = {
    "created_at_us",
    "current_offset",
    "expires_at_us",
    "members_count",
    "messages_count",
    "segments_count",
    "size_bytes",
}


def comparable(value: Any) -> Any:
    """Leave times, counters and members out."""
    if isinstance(value, tuple):
        return tuple(comparable(entry) for entry in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changes = {
        entry.name: 0
        if entry.name in ZEROED
        else ()
        if entry.name == "members"
        else comparable(getattr(value, entry.name))
        for entry in fields(value)
    }
    return replace(value, **changes)


def exchanges(file: str) -> list[tuple[int, int, Command[Any], int, Any]]:
    """Read the exchanges of a recording that were understood: line, connection, both values."""
    found = []
    for number, line in enumerate((RAW / f"{file}.jsonl").read_text().splitlines(), start=1):
        entry = json.loads(line)
        if not entry.get("request") or not entry.get("reply"):
            continue
        request, reply = bytes.fromhex(entry["request"]), bytes.fromhex(entry["reply"])
        try:
            command = decode_request(entry["code"], request[8:])
        except ProtocolError:
            continue
        answer = None if entry["status"] else decode_reply(entry["code"], reply[8:])
        found.append((number, entry["conn"], command, entry["status"], answer))
    return found


def shown(metadata: Metadata, command: Command[Any], user_id: int) -> Any:
    """Answer a command that only looks."""
    match command:
        case GetStreams():
            return view_streams(metadata, no_statistics)
        case GetStream(name):
            stream = metadata.find_stream(name)
            return stream and view_stream_details(stream, no_statistics)
        case GetTopics(name):
            stream = metadata.find_stream(name)
            return view_topics(stream, no_statistics) if stream else ()
        case GetTopic(stream_name, name):
            topic = metadata.find_topic(stream_name, name)
            return topic and view_topic_details(topic, no_statistics)
        case GetConsumerGroups(stream_name, name):
            topic = metadata.find_topic(stream_name, name)
            return view_groups(topic, no_members) if topic else ()
        case GetConsumerGroup(stream_name, topic_name, name):
            topic = metadata.find_topic(stream_name, topic_name)
            group = metadata.find_group(stream_name, topic_name, name)
            return view_group_details(topic, group, no_members) if topic and group else None
        case GetUsers():
            return view_users(metadata)
        case GetUser(name):
            user = metadata.find_user(name)
            return user and view_user_details(user)
        case GetPersonalAccessTokens():
            return view_tokens(metadata, user_id)
    return NotImplemented


def created(metadata: Metadata, change: Any) -> Any:
    """Answer a command that created something."""
    match change:
        case StreamCreated():
            return view_stream(metadata.require_stream(change.id), no_statistics)
        case TopicCreated():
            topic = metadata.require_topic(change.stream_id, change.id)
            return view_topic_details(topic, no_statistics)
        case GroupCreated():
            topic = metadata.require_topic(change.stream_id, change.topic_id)
            return view_group(topic, topic.require_group(change.id), no_members)
        case UserCreated():
            return view_user_details(metadata.require_user(change.id))
    return None


class Replayed:
    """A server of metadata alone."""

    def __init__(self) -> None:
        self.metadata = with_root()
        self.users = {0: 0}

    def answer(self, connection: int, command: Command[Any]) -> tuple[int, Any]:
        """Carry a command out; return the status and the reply."""
        user_id = self.users.get(connection, 0)
        if type(command) not in PLANS:
            return 0, shown(self.metadata, command, user_id)
        try:
            validate(command)
            change = plan(self.metadata, command, PlanContext(now_us=NOW_US, user_id=user_id))
        except (ServerFault, RuleViolation) as refusal:
            return refusal.status, None
        self.metadata = apply(self.metadata, change)
        return 0, created(self.metadata, change)


CREATIONS = (CreateStream, CreateTopic, CreateConsumerGroup, CreateUser)


@pytest.mark.parametrize("file", FILES)
def test_recording_when_its_metadata_is_replayed_then_answers_are_equal(file):
    server = Replayed()
    bettered = BETTERED.get(file, {})
    compared = 0
    differing = []
    for line, connection, command, status, reply in exchanges(file):
        if isinstance(command, LoginUser) and status == 0:
            server.users[connection] = reply.user_id
        if status in REFUSED_BEFORE:
            continue
        ours, shown_reply = server.answer(connection, command)
        if shown_reply is NotImplemented:
            continue
        compared += 1
        told = not isinstance(command, CreatePersonalAccessToken)
        if (ours, comparable(shown_reply)) != (status, comparable(reply) if told else None):
            differing.append(line)

    assert differing == list(bettered)
    assert compared >= 15
