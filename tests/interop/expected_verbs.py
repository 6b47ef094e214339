"""What each step of ``everything`` sees on a server that is as it should be, for each client."""

from __future__ import annotations

from typing import Any

from iggy_protocol import StatusCode, partition_for_key
from tests.interop.refusals import readable, refused

ALL_OF_IT = {"different": 60, "in order": True, "as sent": True}
FIRST_FIVE = [[number, f"0 {number}"] for number in range(5)]
BYTES = [5, "\x00\xff"]
NO_STREAM = refused(StatusCode.STREAM_ID_NOT_FOUND)
NO_TOPIC = refused(StatusCode.TOPIC_ID_NOT_FOUND)
NO_PARTITION = refused(StatusCode.PARTITION_NOT_FOUND)
NO_GROUP = refused(StatusCode.CONSUMER_GROUP_ID_NOT_FOUND)
NO_MEMBER = refused(StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND)
WRONG_PASSWORD = refused(StatusCode.INVALID_CREDENTIALS)
NOT_ALLOWED = refused(StatusCode.UNAUTHORIZED)

# Steps that return nothing are checked like all others: a refusal would be seen.
IN_ALL: dict[str, Any] = {
    "connect with a wrong password": WRONG_PASSWORD,
    "log in with a wrong password": WRONG_PASSWORD,
    "log in once more": None,
    "ping": None,
    "create a stream": None,
    "create it again": refused(StatusCode.STREAM_NAME_ALREADY_EXISTS),
    "show it": [True, 0, 0],
    "show a missing stream": None,
    "create a topic": None,
    "create that again": refused(StatusCode.TOPIC_NAME_ALREADY_EXISTS),
    "create a topic nowhere": NO_STREAM,
    "create too many partitions": refused(StatusCode.TOO_MANY_PARTITIONS),
    "show the topic": ["t", 3, 0],
    "show the topic by number": ["t", 3, 0],
    "show a missing topic": None,
    "send texts": None,
    "send bytes": None,
    "send elsewhere": None,
    "poll from the first": [*FIRST_FIVE, BYTES],
    "poll two from the first": FIRST_FIVE[:2],
    "poll from an offset": [FIRST_FIVE[4], BYTES],
    "poll beyond the end": [],
    "poll the last two": [FIRST_FIVE[4], BYTES],
    "poll the next two": FIRST_FIVE[:2],
    "poll the two after them": FIRST_FIVE[2:4],
    "poll without storing": FIRST_FIVE[4:],
    "poll it again": FIRST_FIVE[4:],
    "poll from a time": [BYTES],
    "poll from a time to come": [],
    "look at a message": {
        "has a number": True,
        "has a checksum": True,
        "length": 3,
        "partition": 2,
        "payload": "2 1",
    },
    "send to no stream": NO_STREAM,
    "send to no topic": NO_TOPIC,
    "send to no partition": NO_PARTITION,
    "poll from no stream": NO_STREAM,
    "poll from no topic": NO_TOPIC,
    "poll from no partition": NO_PARTITION,
    "send large messages": [True] * 3,
    "ask for much at once": [3] * 20,
    "create a topic to consume": None,
    "fill it": None,
    "name the consumer": ["readers", "read"],
    "consume it all": ALL_OF_IT,
    "tell what was consumed last": [19, 19, 19],
    "iterate over it all": ALL_OF_IT,
    "store an offset": None,
    "store one beyond the end": refused(StatusCode.INVALID_OFFSET),
    "delete an offset": None,
    "create a topic of one partition": None,
    "fill that": None,
    "start a consumer at: first": [0, 49],
    "start a consumer at: offset": [100, 149],
    "start a consumer at: timestamp": [100, 149],
    "start a consumer at: last": [150, 199],
    "start a consumer at: next": [0, 49],
}

KEY_PARTITION = partition_for_key(b"order-7", 3)
# What was sent before to the topic where the client chooses: one by number, two to each balanced.
BEFORE_KEY = [2, 3, 2]

SENT_HEADERS = {
    "text": "'x'",
    "flag": "True",
    "small": "-5",
    "big": str(1 << 100),
    "float": "0.5",
    "raw": "b'\\x00\\x01'",
}

GIVEN_OPTIONS = {
    "compression_algorithm": "gzip",
    "message_expiry": "3600000000",
    "max_topic_size": str(4 << 30),
    "segment_size": str(64 << 20),
    "durability": "persisted",
    # The client says this one for itself.
    "consumer_offset_durability": "replicated",
    "messages_required_to_save": "500",
}
CHANGED_OPTIONS = {**GIVEN_OPTIONS, "message_expiry": "86400000000"}
NOT_GIVEN = ["preallocate_segments", "size_of_messages_required_to_save"]
PLAIN_OPTIONS = {"durability": "replicated", "consumer_offset_durability": "replicated"}
DERIVED_OF_PLAIN = [
    "compression_algorithm",
    "max_topic_size",
    "message_expiry",
    "messages_required_to_save",
    "preallocate_segments",
    "segment_size",
    "size_of_messages_required_to_save",
]

IN_LATER: dict[str, Any] = {
    **IN_ALL,
    "who am I": 0,
    "make a token": True,
    "log in with a token": 0,
    "delete the token": 0,
    "log in with a deleted token": refused(StatusCode.INVALID_PERSONAL_ACCESS_TOKEN),
    "log out": None,
    "ask after the logout": refused(StatusCode.UNAUTHENTICATED),
    "log in after the logout": None,
    "who am I after it": 0,
    "create another stream": None,
    "rename it": None,
    "show it by its old name": None,
    "list streams": [True, True, False],
    "create a topic in it": None,
    "fill it": None,
    "fill the other": [[[0, 0]], [[1, 0]]],
    "rename the topic": None,
    "list topics": [True, False],
    "add partitions": None,
    "take partitions away": None,
    "take too many away": refused(StatusCode.INVALID_PARTITIONS_COUNT),
    "show what is left": ["renamed", 4, 6],
    "show its partitions": [[0, 2, 3], [1, 2, 3], [2, 0, 0], [3, 0, 0]],
    "delete the topic": None,
    "delete it again": NO_TOPIC,
    "delete the stream": None,
    "delete that again": NO_STREAM,
    "show the deleted stream": None,
    "send texts": [[0, 0]],
    "send bytes": [[0, 5]],
    "send elsewhere": [[2, 0]],
    "look at a message": {
        **IN_ALL["look at a message"],
        "was made before it came": True,
        "headers": None,
    },
    "create a topic for it": None,
    "send to a partition": [[1, 0]],
    "send balanced": [2, 2, 2],
    "send by key": [[KEY_PARTITION, BEFORE_KEY[KEY_PARTITION]]],
    "send by that key": [[KEY_PARTITION, BEFORE_KEY[KEY_PARTITION] + 1]],
    "send headers and numbers": [["with", (1 << 127) + 5, SENT_HEADERS], ["without", 6, None]],
    "poll as consumers of their own": [
        [7, [0, 1]],
        ["by name", [0, 1, 2]],
        [7, [2, 3]],
        ["by name", [3]],
    ],
    "read a stored offset": [0, 3],
    "read an offset that nobody stored": None,
    "go on as another member": True,
    "ask for statistics": dict.fromkeys(
        (
            "counted",
            "more partitions than topics",
            "has a process",
            "has started",
            "has a host",
            "has a version",
            "has memory",
            "files",
        ),
        True,
    ),
    "ask for the nodes": 1,
    "ask in an unknown way": refused(StatusCode.INVALID_COMMAND),
    "create a topic with options": None,
    "show its options": {
        "compression": "gzip",
        "expiry": 3600.0,
        "size": 4 << 30,
        "set": GIVEN_OPTIONS,
        "derived": NOT_GIVEN,
    },
    "create one with an unknown option": refused(StatusCode.UNSUPPORTED_OPTION_KEY),
    "create one with a bad value": refused(StatusCode.INVALID_OPTION_VALUE),
    "change an option": None,
    "show the changed options": {
        "compression": "gzip",
        "expiry": 86400.0,
        "size": 4 << 30,
        "set": CHANGED_OPTIONS,
        "derived": NOT_GIVEN,
    },
    "show the options of a plain topic": {
        "compression": "none",
        "expiry": "NeverExpire",
        "size": "Unlimited",
        "set": PLAIN_OPTIONS,
        "derived": DERIVED_OF_PLAIN,
    },
    "create a group": None,
    "create the group again": refused(StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS),
    "list groups": [["by hand", 3, 0]],
    "show the group": ["by hand", 3, []],
    "show a missing group": None,
    "join a missing group": NO_GROUP,
    "poll without having joined": NO_MEMBER,
    "join the group": None,
    "join it again": None,
    "show its member": ["by hand", 3, [[0, 1, 2]]],
    "poll as a member": {"taken": 12, "different": 12},
    "join it from elsewhere": [[1, 2], ["by hand", 3, [[0, 1, 2]]]],
    "leave the group": None,
    "leave it again": NO_MEMBER,
    "poll after leaving": NO_MEMBER,
    "delete the group": None,
    "delete the group again": NO_GROUP,
    "show the deleted group": None,
    "send with a producer": [[[0, 0]], [[0, 1]], [[0, 3]]],
    "read what it sent": ["one", "two", "three", "four"],
    "send in the background": None,
    "read what that sent": [str(number) for number in range(50)],
    "produce to a missing topic": refused(StatusCode.TOPIC_NAME_NOT_FOUND),
    "create a user": [True, True],
    "create the user again": refused(StatusCode.USER_ALREADY_EXISTS),
    "show the user": ["Active", False, [[True, False]]],
    "show a missing user": None,
    "list users": [True, True],
    "act as the user": [True, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED],
    "rename the user": None,
    "change the password wrongly": WRONG_PASSWORD,
    "change the password": None,
    "log in with the old password": WRONG_PASSWORD,
    "let the user do all": None,
    "act again": [True, True, True, NOT_ALLOWED],
    "suspend the user": None,
    "log in while suspended": refused(StatusCode.UNAUTHENTICATED),
    "show the suspended user": ["Inactive", True, []],
    "delete the user": None,
    "delete the user again": refused(StatusCode.RESOURCE_NOT_FOUND),
    "delete root": refused(StatusCode.CANNOT_DELETE_USER),
}

TOPIC_KINDS = {
    "compression_algorithm": "string",
    "consumer_offset_durability": "string",
    "durability": "string",
    "max_topic_size": "uint64",
    "message_expiry": "uint64",
    "messages_required_to_save": "uint32",
    "preallocate_segments": "bool",
    "segment_size": "uint64",
    "size_of_messages_required_to_save": "uint64",
}

IN_0_9_0: dict[str, Any] = {
    **IN_LATER,
    "purge the topic": None,
    "show the purged topic": ["renamed", 4, 0],
    "send after the purge": [[0, 0]],
    "purge the stream": None,
    "show the purged stream": [True, 1, 0],
    "send after that purge": [[0, 0]],
    "read after the purge": [[0, "a"]],
    "ask for a flush": refused(StatusCode.FEATURE_UNAVAILABLE),
    "describe the options of a topic": [[key, kind, []] for key, kind in TOPIC_KINDS.items()],
    "describe the options of a stream": [],
    "describe the options of a user": [],
    # The status of an option that stays came with 0.10; this client would not know it.
    "change one that stays": refused(StatusCode.UNSUPPORTED_OPTION_KEY),
}

LIMITS = ("max_topic_size", "message_expiry")
CAN_BE_TAKEN_BACK = ["updatable", "resettable"]
TOPIC_KINDS_OF_0_10 = {**TOPIC_KINDS, "partition_resize_policy": "string"}

IN_0_9_1: dict[str, Any] = {
    **IN_LATER,
    "log in with a token by hand": 0,
    "delete segments": None,
    "store the position of a message": [2, 2],
    "ask for a flush": refused(StatusCode.INVALID_COMMAND),
    "ask for changes of metadata": [True, True],
    "describe the options of a topic": sorted(
        [
            ["name", "string", ["updatable"]],
            *(
                [key, kind, CAN_BE_TAKEN_BACK if key in LIMITS else []]
                for key, kind in TOPIC_KINDS_OF_0_10.items()
            ),
        ]
    ),
    "describe the options of a stream": [
        ["encryption_kek_fingerprint", "string", ["read_only"]],
        ["encryption_key", "raw", ["secret"]],
        ["encryption_key_fingerprint", "string", ["read_only"]],
        ["encryption_key_source", "string", ["read_only"]],
        ["name", "string", ["updatable"]],
    ],
    "describe the options of a user": [
        ["status", "string", ["updatable"]],
        ["username", "string", ["updatable"]],
    ],
    "show its options": {
        **IN_LATER["show its options"],
        "derived": ["partition_resize_policy", *NOT_GIVEN],
    },
    "show the changed options": {
        **IN_LATER["show the changed options"],
        "derived": ["partition_resize_policy", *NOT_GIVEN],
    },
    "take one back": None,
    "show what is left of them": {
        "compression": "gzip",
        "expiry": 86400.0,
        "size": "Unlimited",
        "set": {key: text for key, text in CHANGED_OPTIONS.items() if key != "max_topic_size"},
        "derived": ["max_topic_size", "partition_resize_policy", *NOT_GIVEN],
    },
    "change one that stays": refused(StatusCode.OPTION_NOT_UPDATABLE),
    "take one back that stays": refused(StatusCode.OPTION_NOT_RESETTABLE),
    "change an unknown one": refused(StatusCode.UNSUPPORTED_OPTION_KEY),
    "change nothing": refused(StatusCode.INVALID_COMMAND),
    "fix the partitions of a topic": None,
    "add partitions to it": refused(StatusCode.PARTITION_RESIZE_DISABLED),
    "create a stream with a key of its own": refused(StatusCode.STREAM_ENCRYPTION_UNAVAILABLE),
    "show the options of a stream": {"set": {}, "key": "none"},
    "show the options of a plain topic": {
        **IN_LATER["show the options of a plain topic"],
        "derived": sorted([*DERIVED_OF_PLAIN, "partition_resize_policy"]),
    },
}

EXPECTED: dict[str, dict[str, Any]] = {
    "0.7.0": IN_ALL,
    "0.8.0": IN_ALL,
    "0.9.0": IN_0_9_0,
    "0.9.1.dev5": IN_0_9_1,
}


def differences(version: str, steps: dict[str, Any]) -> list[str]:
    """Return a line for each step that saw something else than it should have."""
    expected = EXPECTED[version]
    seen = {name: readable(saw) for name, saw in steps.items()}
    return [
        f"{name}: saw {seen.get(name, 'nothing, it was not done')!r}, "
        f"not {expected.get(name, 'done by this client')!r}"
        for name in {**seen, **expected}
        if name not in seen or name not in expected or seen[name] != expected[name]
    ]
