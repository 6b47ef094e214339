"""Settings are checked at the call: each refusal names the setting, what was given, what may be."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
import pytest

from iggy_sdk import IggyClient
from iggy_sdk.arrow.settings import arrow_schema, microseconds, read_options
from iggy_sdk.errors import ConfigurationError

START = datetime(2026, 1, 31, tzinfo=UTC)
USUAL = ["stream", "topic", "partition", "offset", "timestamp", "origin_timestamp", "id", "payload"]


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"start": "first"}, 'start is \'first\'.*Give "earliest", "latest", an offset'),
        ({"start": -1}, "start is -1"),
        ({"start": True}, "start is True"),
        ({"end": 1.5}, "end is 1.5"),
        ({"end": START.replace(tzinfo=None)}, "end is datetime.*a time with a zone"),
        ({"start": {0: "newest"}}, "start is {0: 'newest'}.*offsets by partition"),
        ({"start": {"0": 5}}, "start is {'0': 5}"),
        ({"partitions": "0"}, "partitions is '0'.*numbers of partitions"),
        ({"partitions": [-1]}, r"partitions is \[-1\]"),
        ({"partitions": 1.5}, "partitions is 1.5"),
        ({"limit": -1}, "limit is -1.*at least 0"),
        ({"limit": "5"}, "limit is '5'"),
        ({"batch_bytes": 0}, "batch_bytes is 0.*at least 1"),
        ({"columns": "payload"}, r"columns is 'payload'.*a list of names, such as \[\"payload\"\]"),
        ({"columns": ["paylod"]}, "columns is 'paylod'.*the column 'payload'"),
        ({"columns": ["zzz"]}, "columns is 'zzz'.*columns of stream, topic"),
        ({"columns": ["id", "id"]}, "each column once"),
        ({"schema": {"a": "int"}}, "schema is {'a': 'int'}.*a pyarrow.Schema of the JSON"),
        ({"on_error": "ignore"}, 'on_error is \'ignore\'.*"raise" or "null"'),
    ],
)
def test_setting_when_it_cannot_be_used_then_the_answer_helps(settings, answer):
    with pytest.raises(ConfigurationError, match=answer):
        IggyClient().arrow_batches("s", "t", **settings)


def test_setting_when_misspelt_then_the_right_one_is_named():
    with pytest.raises(TypeError, match=r"takes no colums=; did you mean columns=\?"):
        read_options("s", "t", colums=["id"])  # type: ignore[call-arg]  # that is the mistake


def test_setting_when_it_is_like_no_other_then_is_refused():
    with pytest.raises(TypeError, match=r"takes no qqqq=$"):
        read_options("s", "t", qqqq=1)  # type: ignore[call-arg]  # that is the mistake


def test_columns_when_none_are_named_then_are_those_of_the_spark_source():
    assert arrow_schema().names == USUAL
    assert arrow_schema(headers=True).names == [*USUAL, "headers"]
    assert arrow_schema(columns=["headers", "id"], headers=True).names == ["headers", "id"]


def test_payload_when_a_schema_is_given_then_is_a_struct_that_may_be_missing():
    field = arrow_schema(schema=pa.schema([("a", pa.int8())])).field("payload")

    assert (field.type, field.nullable) == (pa.struct([("a", pa.int8())]), True)
    assert not arrow_schema().field("payload").nullable
    assert arrow_schema(on_error="null").field("payload").nullable


def test_microseconds_when_the_time_has_any_zone_then_count_from_1970():
    moment = datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)

    assert microseconds(moment) == 1_000_005
    assert microseconds(moment - timedelta(days=1)) == 0


def test_options_when_checked_then_partitions_are_kept_as_numbers():
    assert read_options("s", "t", partitions=iter([2, 0])).partitions == (2, 0)
    one: Any = 1
    assert read_options("s", "t", partitions=one).partitions == (1,)


def test_sdk_when_arrow_is_not_asked_for_then_it_is_not_imported():
    script = (
        "import sys, iggy_sdk.blocking; from iggy_sdk import IggyClient, IggyConsumer; "
        "print('pyarrow' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "False\n"


def test_arrow_when_pyarrow_is_missing_then_the_answer_helps():
    script = (
        "import sys; sys.modules['pyarrow'] = None; import iggy_sdk; "
        "iggy_sdk.IggyClient().arrow_batches('s', 't')"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert "Arrow needs the package pyarrow" in done.stderr
    assert "pip install 'iggy-python[arrow]'" in done.stderr
