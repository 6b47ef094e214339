"""An option of the wrong type is refused at the call, with its name and what is possible."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from iggy_sdk import blocking
from iggy_sdk.client import IggyClient
from iggy_sdk.compression import Compression
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder, ConsumerOptions, ConsumerSettings
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.option_checks import SHOWN_CHARACTERS_MAX, kind_of
from iggy_sdk.options import ClientOptions, ClientSettings, Reconnect, Retry, TlsOptions
from iggy_sdk.producer import (
    BackgroundMode,
    BackgroundSettings,
    Backpressure,
    DirectMode,
    DirectSettings,
    NewTopic,
    ProducerBuilder,
    ProducerOptions,
    ProducerSettings,
)
from iggy_sdk.producer.options import NewTopicSettings
from iggy_sdk.serde import JsonSerde

CLIENT, BLOCKING_CLIENT = IggyClient(), blocking.IggyClient()
CLASSES = (
    AutoCommit,
    BackgroundMode,
    Backpressure,
    ClientOptions,
    Compression,
    ConsumerOptions,
    DirectMode,
    NewTopic,
    ProducerOptions,
    Reconnect,
    Retry,
    TlsOptions,
)
CALLS: dict[str, tuple[Callable[..., object], type]] = {
    "client": (IggyClient, ClientSettings),
    "blocking client": (blocking.IggyClient, ClientSettings),
    "consumer": (lambda **given: CLIENT.consumer("c", "s", "t", **given), ConsumerSettings),
    "group": (lambda **given: CLIENT.consumer_group("c", "s", "t", **given), ConsumerSettings),
    "producer": (lambda **given: CLIENT.producer("s", "t", **given), ProducerSettings),
    "blocking consumer": (
        lambda **given: BLOCKING_CLIENT.consumer("c", "s", "t", **given),
        ConsumerSettings,
    ),
    "blocking producer": (
        lambda **given: BLOCKING_CLIENT.producer("s", "t", **given),
        ProducerSettings,
    ),
}


class Wrong:
    """Fits no option."""

    def __repr__(self) -> str:
        return "<wrong>"


def refusal(call: Callable[..., object], *given: Any, **named: Any) -> ConfigurationError:
    """Return the error of a call."""
    with pytest.raises(ConfigurationError) as caught:
        call(*given, **named)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, field.name) for kind in CLASSES for field in fields(kind)]
)
def test_field_when_it_is_of_the_wrong_type_then_is_named_with_what_is_possible(kind, name):
    error = refusal(kind, **{name: Wrong()})

    assert error.message.startswith(f"{name} is ")
    assert error.advice.startswith(f"Give {name} as ")
    assert "<wrong>" in error.message or name == "credentials"


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (call, name)
        for call, settings in CALLS.values()
        for name in [*typing.get_type_hints(settings), *(["serde"] * (call is not IggyClient))]
        if name != "serde" or settings is not ClientSettings
    ],
)
def test_keyword_when_it_is_of_the_wrong_type_then_is_named_with_what_is_possible(call, name):
    error = refusal(call, **{name: Wrong()})

    assert error.message.startswith(f"{name} is ")
    assert error.advice.startswith(f"Give {name} as ")


@pytest.mark.parametrize(
    ("builder", "name"),
    [
        (ConsumerBuilder.group(CLIENT, "g", "s", "t"), field.name)
        for field in fields(ConsumerOptions)
    ]
    + [(ProducerBuilder(CLIENT, "s", "t"), field.name) for field in fields(ProducerOptions)],
)
def test_builder_method_when_its_value_is_of_the_wrong_type_then_names_the_option(builder, name):
    error = refusal(getattr(builder, name), Wrong())

    assert error.message == f"{name} is <wrong>"
    assert error.advice.startswith(f"Give {name} as ")


SAID = [
    (CLIENT.consumer, {"start": "earliest"}, "Give start as a PollingStrategy such as "),
    (CLIENT.consumer, {"commit": "manual"}, "as an AutoCommit such as AutoCommit.after_each()."),
    (CLIENT.consumer, {"batch_length": "10"}, "Give batch_length as a whole number or None."),
    (CLIENT.consumer, {"batch_length": 0}, "Use 1 to 1,000,000."),
    (CLIENT.consumer, {"partition_id": -1}, "Partitions count from 0: "),
    (CLIENT.consumer, {"partition_id": "some"}, "a whole number, a list (each a whole number"),
    (CLIENT.consumer, {"partition_id": True}, "Give partition_id as a whole number, "),
    (CLIENT.consumer, {"connection": "mine"}, "Give connection as 'own' or 'shared'."),
    (CLIENT.consumer, {"serde": json}, "encode() and decode() such as JsonSerde() or None."),
    (CLIENT.consumer, {"serde": JsonSerde}, "encode() and decode() such as JsonSerde() or None."),
    (CLIENT.consumer, {"poll_interval": "5s"}, "Give poll_interval as seconds, a timedelta or "),
    (CLIENT.consumer, {"encryptor": "key"}, "an Encryptor such as Encryptor.from_base64(key)"),
]
PRODUCER_SAID = [
    ({"retry": 3}, "Give retry as a Retry such as Retry(attempts=5), False or None."),
    ({"compression": "rar"}, "'gzip', 'zstd', 'lz4' or None."),
    ({"partitioning": -1}, "Partitions count from 0."),
    ({"partitioner": 3}, "Give partitioner as a function or None."),
    ({"background": {"linger_time": "1"}}, "Give linger_time as seconds or a timedelta."),
    ({"background": {"max_in_flight": 0}}, "Make max_in_flight at least 1"),
    ({"send_retries": -1}, "Give the number of retries"),
    (
        {"topic_partitions_count": 0, "create_topic_if_not_exists": True},
        "Make topic_partitions_count at least 1",
    ),
]
CLIENT_SAID = [
    ({"tls": "yes"}, "a TlsOptions such as TlsOptions(ca_file='ca.pem'), True, False or None."),
    ({"hooks": object()}, "Give hooks as a list (each a Hook)."),
    ({"endpoints": "host:1"}, "Give endpoints as a list (each an Endpoint such as "),
    ({"transport": "udp"}, "Give transport as 'tcp', 'ws', 'quic' or 'http'."),
    ({"nodelay": 1}, "Give nodelay as True or False."),
    ({"url": 8090}, "Give url as text, such as 'iggy://localhost:8090'."),
    (
        {"reconnect": 3},
        "as a Reconnect such as Reconnect(retries=5), True or False.",
    ),
]


@pytest.mark.parametrize(
    ("call", "wrong", "advice"),
    [(lambda **given: CLIENT.consumer("c", "s", "t", **given), *row[1:]) for row in SAID]
    + [(lambda **given: CLIENT.producer("s", "t", **given), *row) for row in PRODUCER_SAID]
    + [(IggyClient, *row) for row in CLIENT_SAID],
)
def test_option_when_it_is_unusable_then_the_advice_says_what_to_write(call, wrong, advice):
    error = refusal(call, **wrong)

    assert advice in error.advice


@pytest.mark.parametrize("given", [3.5, None, True, b"shop"])
def test_place_when_it_is_neither_name_nor_id_then_is_refused(given):
    assert refusal(CLIENT.consumer, given, "s", "t").message.startswith("name is ")
    assert refusal(CLIENT.consumer_group, "g", given, "t").message.startswith("stream is ")
    assert refusal(CLIENT.producer, "s", given).message.startswith("topic is ")


@pytest.mark.parametrize("name", ["password", "token", "credentials"])
def test_secret_when_it_is_of_the_wrong_type_then_is_not_shown(name):
    error = refusal(IggyClient, **{name: b"hunter2"})

    assert "hunter2" not in str(error)
    assert error.message == f"{name} is of type bytes"


def test_value_when_it_is_long_then_its_middle_is_left_out():
    error = refusal(IggyClient, nodelay="x" * 10_000)

    assert len(error.message) < SHOWN_CHARACTERS_MAX + 20


def test_value_when_it_cannot_be_shown_then_the_option_is_named_all_the_same():
    class Unshowable:
        def __repr__(self) -> str:
            raise ValueError("not today")

    assert refusal(IggyClient, nodelay=Unshowable()).message.startswith("nodelay is <Unshowable")


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        (DirectMode, DirectSettings),
        (BackgroundMode, BackgroundSettings),
        (NewTopic, NewTopicSettings),
    ],
)
def test_settings_when_compared_with_their_class_then_have_the_same_names_and_types(mode, settings):
    assert typing.get_type_hints(settings) == typing.get_type_hints(mode)


def test_settings_when_compared_with_the_options_then_none_is_missing():
    assert {field.name for field in fields(ConsumerOptions)} - {"serde"} <= set(
        typing.get_type_hints(ConsumerSettings)
    )
    assert {field.name for field in fields(ProducerOptions)} - {"serde"} <= set(
        typing.get_type_hints(ProducerSettings)
    )


def test_mapping_when_it_has_an_unknown_field_then_names_the_nearest():
    with pytest.raises(TypeError, match="a BackgroundMode has no option 'lingr_time'"):
        CLIENT.producer("s", "t", background={"lingr_time": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (float, [1, 1.5], [True, "1", timedelta(1)]),
        (typing.Literal[1, "a"], [1, "a"], [True, "b", 2]),
        (tuple[int, ...], [(), (1, 2), [3]], [(1, "a"), "12", b"12"]),
        (typing.Mapping[str, int], [{}, {"a": 1}], [{"a": "b"}, {1: 1}, []]),
        (Callable[[int], int], [print, Wrong], [3]),
        (typing.Any, [None, 3], []),
        (int | None, [None, 3], [3.0]),
    ],
)
def test_kind_when_made_from_an_annotation_then_accepts_what_it_says(hint, right, wrong):
    kind = kind_of(hint)

    assert all(map(kind.accepts, right))
    assert not any(map(kind.accepts, wrong))
