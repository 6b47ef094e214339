"""What official clients say of a refusal, turned into the name of its status.

The clients up to 0.8 print the name and what belongs to it, 0.9 prints a sentence for people, and
those from 0.10 on tell the number.
"""

from __future__ import annotations

import re
from typing import Any

from iggy_protocol import StatusCode

SENTENCES = {
    r"Invalid credentials": StatusCode.INVALID_CREDENTIALS,
    r"Invalid personal access token": StatusCode.INVALID_PERSONAL_ACCESS_TOKEN,
    r"Invalid partitions count": StatusCode.INVALID_PARTITIONS_COUNT,
    r"Invalid option value": StatusCode.INVALID_OPTION_VALUE,
    r"Too many partitions": StatusCode.TOO_MANY_PARTITIONS,
    r"User already exists": StatusCode.USER_ALREADY_EXISTS,
    r"Cannot delete user": StatusCode.CANNOT_DELETE_USER,
    r"Unauthenticated": StatusCode.UNAUTHENTICATED,
    r"Unauthorized": StatusCode.UNAUTHORIZED,
    r"Invalid command": StatusCode.INVALID_COMMAND,
    r"Feature is unavailable": StatusCode.FEATURE_UNAVAILABLE,
    r"Invalid offset": StatusCode.INVALID_OFFSET,
    r"Resource with key": StatusCode.RESOURCE_NOT_FOUND,
    r"Stream with name: .*already exists": StatusCode.STREAM_NAME_ALREADY_EXISTS,
    r"Stream with ID: .*not found": StatusCode.STREAM_ID_NOT_FOUND,
    r"Topic with name: .*already exists": StatusCode.TOPIC_NAME_ALREADY_EXISTS,
    r"Topic with name: .*not found": StatusCode.TOPIC_NAME_NOT_FOUND,
    r"Topic with ID: .*not found": StatusCode.TOPIC_ID_NOT_FOUND,
    r"Partition with ID: .*not found": StatusCode.PARTITION_NOT_FOUND,
    r"Consumer group with name: .*already": StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS,
    r"Consumer group with ID: .*not found": StatusCode.CONSUMER_GROUP_ID_NOT_FOUND,
    r"Consumer group member .*not found": StatusCode.CONSUMER_GROUP_MEMBER_NOT_FOUND,
    r"Unsupported option key": StatusCode.UNSUPPORTED_OPTION_KEY,
}


def refused(status: StatusCode) -> str:
    """Return what stands for a refusal with a status in a report."""
    return f"refused: {status.name}"


def readable(saw: Any) -> Any:
    """Return what a step saw, with the names of statuses in the place of errors."""
    if isinstance(saw, dict) and saw.keys() == {"error", "code"}:
        return _named(saw["error"], saw["code"])
    if isinstance(saw, list):
        return [readable(each) for each in saw]
    return saw


def _named(error: str, code: int | None) -> str:
    if code is not None:
        return refused(StatusCode(code))
    for pattern, status in SENTENCES.items():
        if re.match(pattern, error):
            return refused(status)
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", error.partition("(")[0]).upper()
    known = StatusCode.__members__.get(name)
    return error if known is None else refused(known)
