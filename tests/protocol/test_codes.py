"""The tables of numbers, against the recorded list of all statuses of Apache Iggy 0.8."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import CLASSIC, commands_of
from iggy_protocol.codes import status
from iggy_protocol.status_table import STATUSES, Status, StatusCode, StatusGroup, index_statuses

GOLDEN = Path(__file__).parents[1] / "golden"


def recorded_commands() -> dict[str, int]:
    """Collect every command that the recorded driver named, with the code it sent."""
    lines = [
        json.loads(line)
        for path in sorted((GOLDEN / "raw").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {
        line["cmd"]: line["code"]
        for line in lines
        if line.get("cmd", "raw") not in {"raw", "unknown", "unsolicited"}
    }


def recorded_statuses() -> dict[int, str]:
    with (GOLDEN / "error-codes.csv").open(newline="", encoding="utf-8") as file:
        return {int(row["code"]): row["name"] for row in csv.DictReader(file)}


ADDED_IN_0_9 = {37, *range(56, 60), 1020, 2021, 3013, 3024, *range(4041, 4044), 4102, 5009} | {
    14000,
    14001,
    14003,
}
ADDED_IN_0_10 = (
    {85, *range(87, 96), 2022, 2023, 3014, 5010} | set(range(4103, 4109)) | set(range(14004, 14011))
)


def test_command_codes_when_listed_then_are_the_47_of_the_recordings():
    classic = commands_of(CLASSIC)

    assert {code.name.lower(): int(code) for code in classic} == recorded_commands()
    assert len(classic) == 47


def test_statuses_when_compared_with_the_list_then_have_the_same_codes_and_names():
    named = {code: record.name for code, record in STATUSES.items()}

    assert len(recorded_statuses()) == 223
    assert named.items() >= recorded_statuses().items()
    assert named.keys() - recorded_statuses().keys() == ADDED_IN_0_9 | ADDED_IN_0_10


def test_statuses_when_walked_then_are_in_the_order_of_their_codes():
    assert list(STATUSES) == sorted(STATUSES)


def test_status_codes_when_listed_then_are_the_table_and_success():
    assert {int(code) for code in StatusCode} == STATUSES.keys() | {0}
    assert StatusCode.OK.value == 0


@pytest.mark.parametrize("code", [code for code in StatusCode if code != StatusCode.OK])
def test_status_code_when_looked_up_then_member_and_record_agree(code):
    assert status(code).code == code
    assert status(code).snake_name.upper() == code.name


@pytest.mark.parametrize("record", STATUSES.values(), ids=lambda record: record.name)
def test_status_when_read_then_has_one_line_of_meaning(record):
    assert record.meaning.strip() == record.meaning
    assert "\n" not in record.meaning
    assert record.meaning


def test_status_group_when_listed_then_every_group_has_members():
    assert {record.group for record in STATUSES.values()} == set(StatusGroup)


RETRIABLE_GROUPS = {StatusGroup.CONNECTION, StatusGroup.TIMEOUT, StatusGroup.STORAGE}
EXCEPTIONS = {
    StatusCode.CANNOT_CLOSE_WEB_SOCKET_CONNECTION,
    StatusCode.WEB_SOCKET_CLOSE_ERROR,
    StatusCode.EMPTY_RESPONSE,
    StatusCode.CANNOT_SEND_MESSAGES_DUE_TO_CLIENT_DISCONNECTION,
    StatusCode.BACKGROUND_SEND_TIMEOUT,
    StatusCode.BACKGROUND_SEND_BUFFER_FULL,
    StatusCode.BACKGROUND_SEND_BUFFER_OVERFLOW,
    StatusCode.TRANSIENT_NOT_COMMITTED,
    StatusCode.TRANSIENT_NOT_ACCEPTED,
    StatusCode.LIFECYCLE_OPERATION_PENDING,
    StatusCode.NOT_PRIMARY,
    StatusCode.TOO_MANY_DEFERRED_POLLS,
    StatusCode.PARTITION_HISTORY_CHANGED,
    StatusCode.OPERATION_UNCERTAIN,
    StatusCode.FETCH_PROGRESS_UNCERTAIN,
}


@pytest.mark.parametrize("record", STATUSES.values(), ids=lambda record: record.name)
def test_status_when_asked_for_a_retry_then_follows_its_group_or_is_a_known_exception(record):
    follows = record.retriable == (record.group in RETRIABLE_GROUPS)

    assert follows == (record.code not in EXCEPTIONS)


@pytest.mark.parametrize(
    ("code", "group"),
    [
        (3, StatusGroup.INVALID_REQUEST),
        (8, StatusGroup.CONNECTION),
        (30, StatusGroup.CONNECTION),
        (40, StatusGroup.AUTHENTICATION),
        (41, StatusGroup.PERMISSION),
        (42, StatusGroup.AUTHENTICATION),
        (72, StatusGroup.ENCRYPTION),
        (1009, StatusGroup.NOT_FOUND),
        (2013, StatusGroup.ALREADY_EXISTS),
        (3007, StatusGroup.NOT_FOUND),
        (4022, StatusGroup.INVALID_REQUEST),
        (4100, StatusGroup.INVALID_REQUEST),
        (5006, StatusGroup.CONSUMER_GROUP),
        (10006, StatusGroup.STORAGE),
        (12001, StatusGroup.TIMEOUT),
    ],
)
def test_status_when_met_often_then_is_in_the_group_a_client_expects(code, group):
    assert status(code).group is group


@given(st.integers(min_value=0, max_value=2**32 - 1).filter(lambda code: code not in STATUSES))
def test_status_when_unknown_then_keeps_its_number_and_means_what_code_1_means(code):
    record = status(code)

    assert record.code == code
    assert (record.name, record.meaning, record.group) == (
        STATUSES[1].name,
        STATUSES[1].meaning,
        STATUSES[1].group,
    )
    assert not record.retriable


def test_statuses_when_written_to_then_refuse():
    with pytest.raises(TypeError):
        STATUSES[1] = STATUSES[2]  # type: ignore[index]
    with pytest.raises(AttributeError):
        STATUSES[1].code = 2  # type: ignore[misc]


def renamed(record: Status, *, code: int | None = None, name: str | None = None) -> Status:
    return Status(
        code=record.code if code is None else code,
        name=record.name if name is None else name,
        meaning=record.meaning,
        group=record.group,
        retriable=record.retriable,
    )


def test_index_statuses_when_a_code_comes_twice_then_refuses():
    with pytest.raises(ValueError, match="twice"):
        index_statuses([*STATUSES.values(), renamed(STATUSES[3], name="Another")])


def test_index_statuses_when_a_name_comes_twice_then_refuses():
    with pytest.raises(ValueError, match="twice"):
        index_statuses([*STATUSES.values(), renamed(STATUSES[3], code=99)])


def test_index_statuses_when_a_code_is_left_out_then_refuses():
    with pytest.raises(ValueError, match=r"\[3\] are not in the table"):
        index_statuses([record for record in STATUSES.values() if record.code != 3])
