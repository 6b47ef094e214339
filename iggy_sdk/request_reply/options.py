"""The options of callers and responders: one frozen value each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from iggy_protocol import Identifier, record
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.errors import ConfigurationError, SendFailedError
from iggy_sdk.producer import NewTopic
from iggy_sdk.serde import Serde

IN_FLIGHT_DEFAULT: Final = 1_000
"""Calls that wait at a time; a reply is of one message, so that is as many as one poll brings."""

EXPIRY_TOLERANCE_SECONDS: Final = 1.0
"""How far the clocks of callers and responders may differ; computers with NTP stay below that."""

GROUP_DEFAULT: Final = "responders"


@record(kw_only=True)
class RequestReplyOptions:
    """The options of a caller.

    Attributes:
        reply_topic: the topic of the replies, in the stream of the requests.
        reply_partition: the partition of the replies to this caller; None takes any.
        request_serde: how requests are written; None takes bytes and text as they are.
        reply_serde: how replies are read; None gives bytes.
        timeout: how long a call may take; None takes ``request_timeout`` of the client.
        max_in_flight: how many calls wait for their replies at a time; further ones wait before
            they are sent.
        create_reply_topic_if_not_exists: how a missing reply topic is created; None never does.
    """

    reply_topic: Identifier
    reply_partition: int | None = None
    request_serde: Serde[Any] | None = None
    reply_serde: Serde[Any] | None = None
    timeout: Seconds | None = None
    max_in_flight: int = IN_FLIGHT_DEFAULT
    create_reply_topic_if_not_exists: NewTopic | Mapping[str, Any] | bool | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            object.__setattr__(self, "timeout", positive_seconds("timeout", self.timeout))
        check_count("max_in_flight", self.max_in_flight, least=1)
        if self.reply_partition is not None:
            check_count("reply_partition", self.reply_partition, least=0)
        if isinstance(self.create_reply_topic_if_not_exists, Mapping):
            new = NewTopic(**self.create_reply_topic_if_not_exists)
            object.__setattr__(self, "create_reply_topic_if_not_exists", new)

    @property
    def new_reply_topic(self) -> NewTopic | bool | None:
        """How a missing reply topic is created."""
        new = self.create_reply_topic_if_not_exists
        assert not isinstance(new, Mapping), "mappings are read when the options are made"
        return new


@record(kw_only=True)
class ResponderOptions:
    """The options of a responder.

    Attributes:
        group: the consumer group; responders with the same one share the requests.
        reply_topic: the only topic that replies may go to; None takes the one that a request
            names, in the stream of the request.
        request_serde: how requests are read; None gives bytes.
        reply_serde: how replies are written; None takes bytes and text as they are.
        expiry_tolerance: how long after its end a request is still answered, because the clocks
            of two computers differ.
        send_tracebacks: whether callers get the traceback of an exception as well.
    """

    group: Identifier = GROUP_DEFAULT
    reply_topic: Identifier | None = None
    request_serde: Serde[Any] | None = None
    reply_serde: Serde[Any] | None = None
    expiry_tolerance: Seconds = EXPIRY_TOLERANCE_SECONDS
    send_tracebacks: bool = False

    def __post_init__(self) -> None:
        seconds = to_seconds(self.expiry_tolerance, name="expiry_tolerance")
        object.__setattr__(self, "expiry_tolerance", seconds)


class RequestReplySettings(TypedDict, total=False):
    """The keywords of ``client.request_reply()`` besides the topics and the serdes."""

    reply_partition: int | None
    timeout: Seconds | None
    max_in_flight: int
    create_reply_topic_if_not_exists: NewTopic | Mapping[str, Any] | bool | None


class ResponderSettings(TypedDict, total=False):
    """The keywords of ``client.responder()`` besides the topics and the serdes."""

    group: Identifier
    reply_topic: Identifier | None
    expiry_tolerance: Seconds
    send_tracebacks: bool


def positive_seconds(name: str, value: Seconds) -> float:
    """Take a time span that is not zero.

    Raises:
        ConfigurationError: it is zero, negative, or no time span.
    """
    seconds = to_seconds(value, name=name)
    if seconds == 0:
        raise ConfigurationError(f"{name} is {value!r}", advice=f"Make {name} more than 0.")
    return seconds


def check_count(name: str, value: int, *, least: int) -> None:
    """Refuse what is no whole number, or too small.

    Raises:
        ConfigurationError: it is.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        advice = f"Give {name} as a whole number of {least} or more."
        raise ConfigurationError(f"{name} is {value!r}", advice=advice)


def raised_by_receipts(error: SendFailedError) -> None:
    """Do nothing with messages that were not sent: whoever sends one awaits its receipt."""
