"""Keywords and fluent methods are one table; builders are values; wrong values are refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from iggy_protocol import Partitioning
from iggy_sdk.client import IggyClient
from iggy_sdk.compression import Compression
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.options import Retry
from iggy_sdk.producer import BackgroundMode, Backpressure, DirectMode, NewTopic, ProducerBuilder
from iggy_sdk.producer.background import BackgroundProducer
from iggy_sdk.producer.direct import DirectProducer
from iggy_sdk.producer.options import OPTION_NAMES
from iggy_sdk.serde import JsonSerde

CLIENT = IggyClient()
SERDE, ENCRYPTOR = JsonSerde(), Encryptor.aes256_gcm(key=bytes(32))


def choose(*_: object) -> int:
    """Choose the first partition."""
    return 0


SAMPLES: dict[str, Any] = {
    "mode": BackgroundMode(batch_length=7),
    "direct": DirectMode(batch_length=7),
    "background": BackgroundMode(linger_time=0.5, on_error=print),
    "serde": SERDE,
    "encryptor": ENCRYPTOR,
    "compression": "gzip",
    "key_header": False,
    "partitioning": Partitioning.partition(3),
    "partitioner": choose,
    "retry": Retry(attempts=9),
    "request_timeout": 2.5,
    "idempotent_ids": True,
    "create_stream_if_not_exists": True,
    "create_topic_if_not_exists": NewTopic(partitions_count=3),
}


def builder(**options: Any) -> ProducerBuilder[Any]:
    """Make a builder from keywords."""
    return ProducerBuilder(CLIENT, "shop", "orders", **options)


def test_samples_when_compared_with_the_table_then_none_is_missing():
    assert set(SAMPLES) == OPTION_NAMES


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_option_when_given_as_keyword_or_as_method_then_builders_are_equal(name):
    by_keyword = builder(**{name: SAMPLES[name]})
    by_method = getattr(builder(), name)(SAMPLES[name])

    assert by_keyword == by_method
    assert hash(by_keyword) == hash(by_method)
    assert by_keyword != builder()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("direct", {"batch_length": 5, "linger_time": timedelta(seconds=1)}),
        ("background", {"max_buffer_size": 1_000, "backpressure": Backpressure.fail()}),
        ("create_topic_if_not_exists", {"partitions_count": 3, "message_expiry": 60}),
    ],
)
def test_option_when_its_fields_are_given_then_keyword_and_method_are_equal(name, settings):
    assert builder(**{name: settings}) == getattr(builder(), name)(**settings)
    assert builder(**{name: settings}) != builder(**{name: True})


def test_all_options_when_chained_then_equal_to_all_keywords():
    names = [name for name in SAMPLES if name not in ("direct", "background")]
    chained = builder()
    for name in names:
        chained = getattr(chained, name)(SAMPLES[name])

    assert chained == builder(**{name: SAMPLES[name] for name in names})


def test_builder_when_method_is_called_then_it_stays_as_it_was():
    first = builder()

    second = first.idempotent_ids()

    assert first == builder()
    assert (first.options.idempotent_ids, second.options.idempotent_ids) == (False, True)


def test_builder_when_mode_is_chosen_then_makes_that_kind():
    assert isinstance(builder().make(), DirectProducer)
    assert isinstance(builder().background().make(), BackgroundProducer)
    assert isinstance(builder().background().direct().make(), DirectProducer)


def test_names_of_the_official_sdk_when_given_then_they_are_understood():
    official = builder(
        partitioning=None,
        mode=None,
        create_stream_if_not_exists=True,
        create_topic_if_not_exists=True,
        topic_partitions_count=5,
        topic_message_expiry=timedelta(days=1),
        topic_max_size=1 << 30,
        send_retries=7,
        send_retry_interval=timedelta(seconds=2),
    )

    assert official.options.retry == Retry(attempts=7, backoff=2.0)
    assert official.options.create_topic_if_not_exists == NewTopic(
        partitions_count=5, message_expiry=timedelta(days=1), max_topic_size=1 << 30
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"background": {"batch_length": 0}},
        {"background": {"batch_size": 0}},
        {"background": {"max_buffer_size": 0}},
        {"background": {"max_in_flight": 0}},
        {"background": {"max_in_flight": True}},
        {"background": {"linger_time": -1}},
        {"background": {"batch_size": 1 << 30}},
        {"background": 5},
        {"direct": {"batch_length": 0}},
        {"direct": {"batch_size": 1 << 30}},
        {"create_topic_if_not_exists": {"partitions_count": 0}},
        {"request_timeout": 0},
        {"partitioning": "everywhere"},
        {"retry": 3},
        {"mode": "background"},
        {"compression": "rar"},
        {"direct": True, "background": True},
    ],
)
def test_option_when_value_is_unusable_then_value_error_says_what_to_do(wrong):
    with pytest.raises(ValueError) as caught:
        builder(**wrong)

    assert isinstance(caught.value, ConfigurationError)
    assert caught.value.advice


@pytest.mark.parametrize(
    "bound", ["batch_length", "batch_size", "max_buffer_size", "max_in_flight"]
)
def test_bound_when_none_then_there_is_none(bound):
    mode = builder(background={bound: None}).options.mode

    assert getattr(mode, bound) is None


def test_option_when_unknown_then_the_nearest_name_is_told():
    with pytest.raises(TypeError, match="did you mean 'background'"):
        builder(backgruond=True)


def test_compression_when_named_then_it_is_one():
    assert builder(compression="gzip").options.compression == Compression("gzip")
