"""Every flag against every command.

``ALLOWS`` is written flag by flag, the other way round than the server's table, so that the two
cannot share a slip.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from iggy_protocol import (
    CLASSIC,
    CommandCode,
    GlobalPermissions,
    Permissions,
    StatusCode,
    StreamPermissions,
    TopicPermissions,
    UpdatePermissions,
    commands_of,
    decode_request,
)
from iggy_ref_server.dispatch.table import COMMAND_TABLE, Login
from iggy_ref_server.identity import permissions as grants
from iggy_ref_server.identity.permissions import RIGHTS_CACHED_MAX
from tests.protocol.recordings import GOLDEN

STREAM, TOPIC, OTHER = 3, 5, 8
UNAUTHENTICATED_COMMANDS = {
    row.code for row in COMMAND_TABLE.values() if row.login is not Login.NEEDED
}


def is_allowed(code, permissions, *, stream_id=None, topic_id=None):
    requirement = COMMAND_TABLE[code].requirement
    return grants.is_allowed(requirement, permissions, stream_id=stream_id, topic_id=topic_id)


def commands(names):
    return {CommandCode[name.upper()] for name in names.split()}


ALWAYS = commands(
    "ping get_me get_cluster_metadata login_user logout_user login_with_personal_access_token"
    " get_personal_access_tokens create_personal_access_token delete_personal_access_token"
)
READ_TOPIC = commands(
    "get_topic get_consumer_group get_consumer_groups create_consumer_group delete_consumer_group"
    " join_consumer_group leave_consumer_group"
)
MANAGE_TOPIC = commands(
    "update_topic delete_topic purge_topic create_partitions delete_partitions delete_segments"
)
POLL = commands("poll_messages get_consumer_offset store_consumer_offset delete_consumer_offset")
SEND = commands("send_messages flush_unsaved_buffer")
READ_TOPICS = commands("get_topics") | READ_TOPIC | POLL
MANAGE_TOPICS = commands("create_topic") | MANAGE_TOPIC | READ_TOPICS | SEND
READ_STREAM = commands("get_stream") | READ_TOPICS
MANAGE_STREAM = commands("update_stream delete_stream purge_stream") | MANAGE_TOPICS | READ_STREAM
READ_SERVERS = commands("get_stats get_client get_clients")
READ_USERS = commands("get_user get_users")

ALLOWS = {
    ("server", "manage_servers"): READ_SERVERS | commands("get_snapshot"),
    ("server", "read_servers"): READ_SERVERS,
    ("server", "manage_users"): READ_USERS
    | commands("create_user delete_user update_user update_permissions change_password"),
    ("server", "read_users"): READ_USERS,
    ("server", "manage_streams"): commands("get_streams create_stream") | MANAGE_STREAM,
    ("server", "read_streams"): commands("get_streams") | READ_STREAM,
    ("server", "manage_topics"): MANAGE_TOPICS,
    ("server", "read_topics"): READ_TOPICS,
    ("server", "poll_messages"): POLL,
    ("server", "send_messages"): SEND,
    ("stream", "manage_stream"): MANAGE_STREAM,
    ("stream", "read_stream"): READ_STREAM,
    ("stream", "manage_topics"): MANAGE_TOPICS,
    ("stream", "read_topics"): READ_TOPICS,
    ("stream", "poll_messages"): POLL,
    ("stream", "send_messages"): SEND,
    ("topic", "manage_topic"): MANAGE_TOPIC | READ_TOPIC | POLL | SEND,
    ("topic", "read_topic"): READ_TOPIC | POLL,
    ("topic", "poll_messages"): POLL,
    ("topic", "send_messages"): SEND,
}


def holding(scope, *flags):
    """Make permissions of some flags, on the whole server, on STREAM, or on TOPIC of STREAM."""
    flags_on: dict[str, Any] = dict.fromkeys(flags, True)
    if scope == "server":
        return Permissions(GlobalPermissions(**flags_on))
    if scope == "stream":
        return Permissions(streams=(StreamPermissions(STREAM, **flags_on),))
    topic = TopicPermissions(TOPIC, **flags_on)
    return Permissions(streams=(StreamPermissions(STREAM, topics=(topic,)),))


def allowed(permissions, stream_id=STREAM, topic_id=TOPIC):
    return {
        code
        for code in commands_of(CLASSIC)
        if is_allowed(code, permissions, stream_id=stream_id, topic_id=topic_id)
    }


def test_flags_when_listed_then_none_is_missing():
    flags = {("server", field.name) for field in fields(GlobalPermissions)}
    flags |= {("stream", field.name) for field in fields(StreamPermissions)}
    flags |= {("topic", field.name) for field in fields(TopicPermissions)}

    assert flags - ALLOWS.keys() == {
        ("stream", "stream_id"),
        ("stream", "topics"),
        ("topic", "topic_id"),
    }
    assert set(COMMAND_TABLE) >= commands_of(CLASSIC)


@pytest.mark.parametrize(("scope", "flag"), ALLOWS)
def test_changes_of_metadata_when_asked_for_then_only_those_who_manage_servers_are_told(
    scope, flag
):
    is_told = is_allowed(CommandCode.GET_METADATA_CHANGES, holding(scope, flag))

    assert is_told == ((scope, flag) == ("server", "manage_servers"))


@pytest.mark.parametrize(("scope", "flag"), ALLOWS)
def test_flag_when_it_is_the_only_one_then_allows_exactly_its_commands(scope, flag):
    assert allowed(holding(scope, flag)) == ALWAYS | ALLOWS[scope, flag]


@pytest.mark.parametrize("permissions", [None, Permissions()], ids=["none", "all off"])
def test_permissions_when_empty_then_only_a_login_is_of_use(permissions):
    assert allowed(permissions) == ALWAYS


def test_permissions_when_all_are_on_then_everything_is_allowed():
    flags = [field.name for field in fields(GlobalPermissions)]

    assert allowed(holding("server", *flags), None, None) == commands_of(CLASSIC)


@pytest.mark.parametrize(("scope", "flag"), [flag for flag in ALLOWS if flag[0] != "server"])
def test_scoped_flag_when_the_command_is_about_something_else_then_allows_nothing(scope, flag):
    permissions = holding(scope, flag)

    assert allowed(permissions, OTHER, TOPIC) == ALWAYS
    assert allowed(permissions, OTHER, OTHER) == ALWAYS
    assert allowed(permissions, None, None) == ALWAYS
    if scope == "topic":
        assert allowed(permissions, STREAM, OTHER) == ALWAYS
        assert allowed(permissions, STREAM, None) == ALWAYS


def test_scoped_flag_when_off_then_takes_nothing_from_the_server_wide_one():
    off = StreamPermissions(STREAM, topics=(TopicPermissions(TOPIC),))
    permissions = Permissions(GlobalPermissions(poll_messages=True), (off,))

    assert allowed(permissions) == ALWAYS | POLL


def test_grants_when_of_several_scopes_then_add_up():
    topic = TopicPermissions(TOPIC, send_messages=True)
    stream = StreamPermissions(STREAM, poll_messages=True, topics=(topic,))
    permissions = Permissions(GlobalPermissions(read_servers=True), (stream,))

    assert allowed(permissions) == ALWAYS | READ_SERVERS | POLL | SEND
    assert allowed(permissions, STREAM, OTHER) == ALWAYS | READ_SERVERS | POLL


def test_stream_when_named_twice_then_the_later_entry_counts():
    topic = TopicPermissions(TOPIC, send_messages=True)
    permissions = Permissions(
        streams=(
            StreamPermissions(STREAM, manage_stream=True, topics=(topic,)),
            StreamPermissions(STREAM, poll_messages=True),
        )
    )

    assert allowed(permissions) == ALWAYS | POLL


def test_groups_when_only_polling_is_allowed_then_cannot_be_joined():
    found = allowed(holding("topic", "poll_messages"))

    assert CommandCode.JOIN_CONSUMER_GROUP not in found
    assert CommandCode.STORE_CONSUMER_OFFSET in found


def test_snapshot_when_servers_may_only_be_read_then_is_refused():
    # The real server gives its configuration, secrets included, to every user.
    assert not is_allowed(CommandCode.GET_SNAPSHOT, holding("server", "read_servers"))
    assert is_allowed(CommandCode.GET_SNAPSHOT, holding("server", "manage_servers"))


def test_rights_when_of_more_users_than_are_kept_then_are_worked_out_again():
    users = [
        Permissions(streams=(StreamPermissions(stream_id, poll_messages=True),))
        for stream_id in range(RIGHTS_CACHED_MAX + 1)
    ]
    for _ in range(2):
        for stream_id, permissions in enumerate(users):
            code = CommandCode.POLL_MESSAGES
            assert is_allowed(code, permissions, stream_id=stream_id, topic_id=0)
            assert not is_allowed(code, permissions, stream_id=stream_id + 1, topic_id=0)


def test_own_account_when_asked_for_then_two_commands_need_no_permission():
    own_account = {row.code for row in COMMAND_TABLE.values() if row.allows_own_account}

    assert own_account == commands("get_user change_password")


# --- recordings ---


def entries(file):
    lines = (GOLDEN / "raw" / f"{file}.jsonl").read_text().splitlines()[1:]
    return [entry for entry in map(json.loads, lines) if "request" in entry]


def test_commands_when_not_logged_in_then_those_recorded_as_open_are_open():
    answered = {
        entry["code"]: entry["status"]
        for entry in entries("unauthenticated-every-command")
        if entry["conn"] == 0 and entry["status"] != StatusCode.INVALID_COMMAND
    }
    open_codes = {code for code, status in answered.items() if status != StatusCode.UNAUTHENTICATED}

    assert open_codes <= UNAUTHENTICATED_COMMANDS
    assert commands_of(CLASSIC) - answered.keys() <= UNAUTHENTICATED_COMMANDS | {
        CommandCode.SEND_MESSAGES
    }


IDS: dict[str | None, int] = {"s": 0, "s2": 1, "t": 0, "t2": 1}


@pytest.mark.parametrize(("file", "grants"), [("permissions-global", 12), ("permissions-topic", 5)])
def test_grants_when_recorded_then_refuse_the_same_commands(file, grants):
    granted, seen, compared = None, 0, 0
    for entry in entries(file):
        command = decode_request(entry["code"], bytes.fromhex(entry["request"])[8:])
        if isinstance(command, UpdatePermissions):
            granted, seen = command.permissions, seen + 1
        where = [getattr(command, part, None) for part in ("stream", "topic")]
        if entry["conn"] != 1 or "nope" in where:
            continue
        stream_id, topic_id = (IDS.get(name) for name in where)
        verdict = is_allowed(
            CommandCode(entry["code"]), granted, stream_id=stream_id, topic_id=topic_id
        )
        assert verdict == (entry["status"] != StatusCode.UNAUTHORIZED), entry["note"]
        compared += 1
    assert seen == grants
    assert compared > 35 * grants
