"""Options of callers and responders that cannot be used are refused at the call."""

from __future__ import annotations

from typing import Any

import pytest

from iggy_sdk import ConfigurationError, IggyClient
from iggy_sdk.producer import NewTopic
from iggy_sdk.request_reply.options import RequestReplyOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "soon"),
        ("max_in_flight", 0),
        ("max_in_flight", True),
        ("max_in_flight", 1.5),
        ("reply_partition", -1),
        ("reply_partition", "first"),
    ],
)
def test_caller_when_an_option_cannot_be_used_then_the_call_names_it(name, value):
    client = IggyClient()

    with pytest.raises(ConfigurationError, match=name):
        client.request_reply("shop", "prices", reply_topic="replies", **{name: value})


@pytest.mark.parametrize("value", [-1, "long"])
def test_responder_when_the_tolerance_cannot_be_used_then_the_call_names_it(value):
    with pytest.raises(ConfigurationError, match="expiry_tolerance"):
        IggyClient().responder("shop", "prices", expiry_tolerance=value)


def test_options_when_misspelt_then_the_call_fails():
    client: Any = IggyClient()

    with pytest.raises(TypeError, match="time_out"):
        client.request_reply("shop", "prices", reply_topic="replies", time_out=1)
    with pytest.raises(TypeError, match="groups"):
        client.responder("shop", "prices", groups="g")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"partitions_count": 3}, NewTopic(partitions_count=3)),
        (NewTopic(partitions_count=2), NewTopic(partitions_count=2)),
        (True, True),
        (None, None),
    ],
)
def test_new_reply_topic_when_given_in_any_form_then_is_read(given, read):
    options = RequestReplyOptions(reply_topic="r", create_reply_topic_if_not_exists=given)

    assert options.new_reply_topic == read


@pytest.mark.anyio
async def test_responder_when_it_is_not_entered_then_does_not_serve():
    async def handler(message):
        return b""

    with pytest.raises(ConfigurationError, match="not entered"):
        await IggyClient().responder("shop", "prices").serve(handler)
