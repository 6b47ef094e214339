"""The advice in the text of an error, by status; a status without one uses that of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol import Status, StatusGroup

if TYPE_CHECKING:
    from collections.abc import Mapping


_STORAGE = (
    "The server could not use one of its files: look into its log, at its free disk space and at "
    "the rights of its data directory, then try again."
)
_CORRUPTION = (
    "Data of the server is damaged: look into its log, check the disk, and restore the partition "
    "or skip the damaged offsets."
)
_MALFORMED = (
    "The server could not read this request: make sure that client and server speak the same "
    "version of the protocol, and report it if they do."
)
_TLS_FILE = "Check the files and the domain of the TLS options of the client and the server."
_TOKEN = "Create a new personal access token and log in with it."

UNSENT_ADVICE: Final = (
    "Try again, raise the timeout, or find out what keeps the server busy; nothing was carried out."
)
"""What to do about a timeout before the request was sent."""

UNKNOWN_LOGIN_ADVICE: Final = (
    "Check the credentials; create a new personal access token if the old one was deleted."
)
"""What to do about a login with something that the server does not know."""

_OF_GROUP: Mapping[StatusGroup, str] = {
    StatusGroup.CONNECTION: (
        "Check that the server runs and can be reached at this address, then try again."
    ),
    StatusGroup.CLIENT_CLOSED: "Make a new client, or keep the call inside the 'async with' block.",
    StatusGroup.TIMEOUT: (
        "Try again, raise the timeout, or find out what keeps the server busy; the request may "
        "have been carried out."
    ),
    StatusGroup.PROTOCOL: (
        "Make sure that this address is an Apache Iggy server and that the transport matches its "
        "port."
    ),
    StatusGroup.AUTHENTICATION: "Log in with valid credentials first.",
    StatusGroup.PERMISSION: "Ask an administrator for the permission, or log in as another user.",
    StatusGroup.NOT_FOUND: "Check the name or the id, or create it first.",
    StatusGroup.ALREADY_EXISTS: "Choose another name, or pass exist_ok=True to take what exists.",
    StatusGroup.LIMIT: "Delete what is not needed any more, or raise the limit on the server.",
    StatusGroup.INVALID_REQUEST: "Correct the arguments; the same request will fail again.",
    StatusGroup.CONSUMER_GROUP: "Join the group on this connection, then try again.",
    StatusGroup.PRODUCER: "Look at the cause, and send the unsent messages again if they matter.",
    StatusGroup.ENCRYPTION: "Check that producer and consumer use the same encryption key.",
    StatusGroup.CONFIGURATION: "Correct this setting and start again.",
    StatusGroup.CORRUPTION: _CORRUPTION,
    StatusGroup.STORAGE: _STORAGE,
    StatusGroup.SERVER: "Look into the log of the server, then try again.",
}

_OF_CODE: Mapping[int, str] = {
    5: "Use another transport or a newer server; this one does not offer the operation.",
    3: _MALFORMED,
    4: "Names have 1 to 255 bytes; correct the arguments.",
    6: "Give a name of 1 to 255 bytes or a number of 0 or more.",
    7: "Give a version such as 0.8.0.",
    20: "Check the name or the id of the user or token, or create it first.",
    30: "The client reconnects by itself; if it happens often, shorten heartbeat_interval.",
    33: "Give the address as host:port.",
    34: "Give the address as host:port.",
    35: "Give the address as host:port.",
    40: "Log in with login_user() or put credentials into the connection string.",
    42: "Check the user name and the password.",
    43: "User names have 3 to 50 bytes.",
    44: "Passwords have 3 to 100 bytes.",
    45: "Use UserStatus.ACTIVE or UserStatus.INACTIVE.",
    47: "Ask an administrator to activate the user with update_user().",
    48: "The root user cannot be deleted; name another one.",
    49: "The permissions of the root user cannot be changed; name another one.",
    50: "Names of personal access tokens have 3 to 30 bytes.",
    52: "Delete tokens that are not needed any more with delete_personal_access_token().",
    53: _TOKEN,
    54: _TOKEN,
    55: "Delete users that are not needed any more with delete_user().",
    56: "Give an expiry in the future, or leave it out.",
    57: "Try again; if it matters, look first whether the change has been made.",
    58: "Try again; the cluster may be choosing another leader.",
    59: "Do not repeat it: the change has been made.",
    61: "Enter the client with 'async with' or await connect() first.",
    64: _TLS_FILE,
    65: _TLS_FILE,
    66: _TLS_FILE,
    67: _TLS_FILE,
    70: "Give a key of exactly 32 bytes, for example from os.urandom(32).",
    71: "Check the encryption key; it has exactly 32 bytes.",
    77: "Log in with login_user() before any other call.",
    78: "Log in again; the access token is not valid any more.",
    79: "Check that the server can reach the issuer of the token.",
    80: "Give the size as a number of bytes.",
    81: "Send text as UTF-8.",
    82: _MALFORMED,
    83: "Write true or false.",
    84: "Write a whole number.",
    85: "Look whether the change has been made before repeating it.",
    87: "Read the topic again: its messages were purged or its partition was made anew.",
    88: "Try again in a moment; the resource is being created or deleted.",
    89: "Try again; the client finds the new primary by itself.",
    90: "Try again in a moment, with fewer polls that wait.",
    95: "Name the partition with Partitioning.partition().",
    100: "List the clients with get_clients(); this one may have gone.",
    101: "Client ids start at 1; get_me() tells your own.",
    209: "Use one of the fifteen kinds of HeaderKind.",
    304: "Try again; the connection broke inside the answer.",
    306: "Check the URL of the server.",
    1009: "Create it with create_stream(), or check the name or the id.",
    1010: "Create it with create_stream(), or check the name.",
    1012: "Choose another name, or call create_stream(..., exist_ok=True).",
    1013: "Stream names have 1 to 255 bytes.",
    1014: "Name the stream by its name or by a number of 0 or more.",
    1019: "Make max_topic_size at least as large as a segment of the server, or leave it out.",
    2010: "Create it with create_topic(), or check the name or the id; it needs a partition too.",
    2011: "Create it with create_topic(), or check the name.",
    2013: "Choose another name, or call create_topic(..., exist_ok=True).",
    2014: "Topic names have 1 to 255 bytes.",
    2015: "Ask for 1 to 1000 partitions in one call.",
    2016: "Name the topic by its name or by a number of 0 or more.",
    2018: "Leave replication_factor out, or make it at least 1.",
    2019: "Look at partitions_count of get_topic() and delete fewer.",
    2023: "Create another topic; this one keeps the number of partitions it was created with.",
    3007: "Partitions count from 0; get_topic() tells how many there are.",
    3008: "Add partitions with create_partitions().",
    3009: "Purge the topic, shorten its expiry or raise its max_topic_size.",
    3021: "Nothing is stored for this consumer in this partition; store an offset first.",
    3022: "Join the group, and use only partitions that this member was given.",
    4000: "List the segments with get_topic(); this one may have expired.",
    4002: "Correct the segment size in the configuration of the server.",
    4009: "Send at least one message.",
    4017: "Keep the headers of a message within 100000 bytes.",
    4018: "Header keys have 1 to 255 bytes.",
    4019: "Header values have 1 to 255 bytes.",
    4022: "Keep a payload within 64000000 bytes: split it, or compress it.",
    4023: "Send fewer messages in one call.",
    4024: "Give every message a payload.",
    4025: "Give every message a payload.",
    4027: "The message was damaged in transit or on disk; read it again, then check the disk.",
    4028: "Partitioning keys have 1 to 255 bytes.",
    4029: _MALFORMED,
    4030: "Ask for at least one segment.",
    4040: "Use one of the fifteen kinds of HeaderKind.",
    4041: "Use the options that the server describes for this kind of resource.",
    4042: "Give the option a value of the kind and range that the server describes.",
    4043: "Give fewer or shorter options; a block holds 1024 of them in 100000 bytes.",
    4050: "Send the messages again once the client is connected.",
    4052: "Send more slowly, raise max_buffer_size, or wait longer for space.",
    4053: "Send more slowly, raise max_buffer_size, or let the producer block.",
    4054: "Make a new producer; the worker of this one has ended.",
    4055: "Send less at once, raise max_buffer_size, or let the producer block.",
    4057: "Make a new producer, or keep the call inside the 'async with' block.",
    4100: "Store offsets of messages that exist; get_topic() tells the last one.",
    4103: "Set the option when creating the resource; it cannot be changed later.",
    4104: "Give the option a value; it has no default to go back to.",
    4105: "Leave the option out; the server only reports it.",
    4106: "Leave encryption_key out, or ask another server.",
    4108: "The root user cannot be changed; name another one.",
    5000: "Create it with create_consumer_group(), or check the name or the id.",
    5002: "Name the group by its name or by a number of 0 or more.",
    5003: "Create it with create_consumer_group(), or check the name.",
    5004: "Choose another name, or call create_consumer_group(..., exist_ok=True).",
    5005: "Names of consumer groups have 1 to 255 bytes.",
    5006: "Join it with join_consumer_group() on this very connection.",
    5009: "Sync the group and poll the partitions that it assigns to this member.",
    8000: "Write it as iggy://user:password@host:port?key=value.",
    10013: "Give microseconds since 1970.",
    12000: "Choose another port or stop what occupies it.",
    14003: "Set protocol=auto, or name a generation that the server speaks.",
    14006: "Look whether the change has been made before repeating it.",
    14010: "Read from a stored offset again; messages may come twice.",
}

# Requests that this client cannot write, so only a mismatch of versions explains them.
_MALFORMED_CODES = (4031, 4032, 4033, 4034, 4035, 4036, 4037, 4038, 4039, 4101, 10011)
_SENTENCES: Mapping[int, str] = {**_OF_CODE, **dict.fromkeys(_MALFORMED_CODES, _MALFORMED)}


def advice_for(status: Status) -> str:
    """Say what to do about a status."""
    return _SENTENCES.get(status.code) or _OF_GROUP[status.group]
