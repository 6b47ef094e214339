"""Command codes, status codes, and the reasons for which a server ends a session.

The statuses are literal data in ``status_table``; import them from here.
"""

from __future__ import annotations

from enum import IntEnum, unique

from iggy_protocol.status_table import STATUSES, Status, StatusCode


@unique
class CommandCode(IntEnum):
    """What a request asks for, in any dialect; ``COMMANDS`` says which dialects have it."""

    PING = 1
    GET_STATS = 10
    GET_SNAPSHOT = 11
    GET_CLUSTER_METADATA = 12
    DESCRIBE_OPTIONS = 13
    ATTACH_CONSUMER_SESSION = 14
    BIND_SESSION = 15
    GET_METADATA_CHANGES = 17
    GET_ME = 20
    GET_CLIENT = 21
    GET_CLIENTS = 22
    GET_USER = 31
    GET_USERS = 32
    CREATE_USER = 33
    DELETE_USER = 34
    UPDATE_USER = 35
    UPDATE_PERMISSIONS = 36
    CHANGE_PASSWORD = 37
    LOGIN_USER = 38
    LOGOUT_USER = 39
    REGISTER = 40
    GET_PERSONAL_ACCESS_TOKENS = 41
    CREATE_PERSONAL_ACCESS_TOKEN = 42
    DELETE_PERSONAL_ACCESS_TOKEN = 43
    LOGIN_WITH_PERSONAL_ACCESS_TOKEN = 44
    POLL_MESSAGES = 100
    SEND_MESSAGES = 101
    FLUSH_UNSAVED_BUFFER = 102
    GET_POLL_ROUTE = 103
    POLL_ON_PRIMARY = 104
    GET_PARTITION_ROUTE = 105
    POLL_DEFERRED = 106
    WAIT_FOR_MESSAGES = 107
    CANCEL_DEFERRED = 108
    FETCH_MESSAGES = 109
    GET_CONSUMER_OFFSET = 120
    STORE_CONSUMER_OFFSET = 121
    DELETE_CONSUMER_OFFSET = 122
    GET_OFFSET_ROUTE = 123
    GET_STREAM = 200
    GET_STREAMS = 201
    CREATE_STREAM = 202
    DELETE_STREAM = 203
    UPDATE_STREAM = 204
    PURGE_STREAM = 205
    GET_TOPIC = 300
    GET_TOPICS = 301
    CREATE_TOPIC = 302
    DELETE_TOPIC = 303
    UPDATE_TOPIC = 304
    PURGE_TOPIC = 305
    CREATE_PARTITIONS = 402
    DELETE_PARTITIONS = 403
    DELETE_SEGMENTS = 503
    GET_CONSUMER_GROUP = 600
    GET_CONSUMER_GROUPS = 601
    CREATE_CONSUMER_GROUP = 602
    DELETE_CONSUMER_GROUP = 603
    JOIN_CONSUMER_GROUP = 604
    LEAVE_CONSUMER_GROUP = 605
    SYNC_CONSUMER_GROUP = 606


@unique
class EvictionReason(IntEnum):
    """Why a server from 0.9 on ends the session of a client."""

    NO_SESSION = 1
    RELEASE_TOO_LOW = 2
    RELEASE_TOO_HIGH = 3
    INVALID_OPERATION = 4
    INVALID_BODY = 5
    INVALID_BODY_SIZE = 6
    SESSION_TOO_LOW = 7
    RELEASE_MISMATCH = 8
    INVALID_CREDENTIALS = 9
    INVALID_TOKEN = 10
    USER_INACTIVE = 11
    SESSION_ERROR = 12
    STALE_CLIENT = 13
    INCOMPATIBLE_PROTOCOL = 14
    MALFORMED_LOGIN = 15


def status(code: int) -> Status:
    """Look up what a status means.

    An unknown code keeps its number and has the meaning of code 1.
    """
    known = STATUSES.get(code)
    if known is not None:
        return known
    generic = STATUSES[StatusCode.ERROR]
    return Status(
        code=code,
        name=generic.name,
        meaning=generic.meaning,
        group=generic.group,
        retriable=generic.retriable,
    )
