"""Builders: values whose methods and keywords are the same thing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from iggy_protocol import PollingStrategy
from iggy_sdk.client import IggyClient
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.hooks import Hook
from iggy_sdk.serde import JsonSerde
from tests.sdk.consumer.fake_topic import fake_topic_and_client, take

SAMPLES: dict[str, Any] = {
    "partition_id": [0, 2],
    "start_if_new": "latest",
    "replay_from": {1: 40},
    "commit_backwards": True,
    "start": PollingStrategy.first(),
    "polling_strategy": PollingStrategy.last(),
    "commit": AutoCommit.after_all(),
    "auto_commit": AutoCommit.disabled(),
    "batch_length": 7,
    "prefetch_messages": 0,
    "prefetch_bytes": 1_000,
    "poll_interval": 0.5,
    "polling_retry_interval": 2.0,
    "init_retries": 4,
    "init_retry_interval": timedelta(seconds=3),
    "allow_replay": True,
    "until_end": True,
    "create_consumer_group_if_not_exists": False,
    "auto_join_consumer_group": False,
    "on_assigned": print,
    "on_revoked": print,
    "connection": "shared",
    "close_timeout": 9.0,
    "serde": JsonSerde(),
    "encryptor": None,
}


@pytest.fixture
def group() -> ConsumerBuilder:
    return ConsumerBuilder.group(IggyClient(), "g", "s", "t")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", SAMPLES)
def test_option_when_set_by_method_equals_the_keyword_and_leaves_the_builder_alone(group, name):
    by_method = getattr(group, name)(SAMPLES[name])
    by_keyword = ConsumerBuilder.group(group._client, "g", "s", "t", **{name: SAMPLES[name]})
    assert by_method == by_keyword
    assert hash(by_method) == hash(by_keyword)
    assert by_method != group
    assert group == ConsumerBuilder.group(group._client, "g", "s", "t")


def test_every_option_when_listed_has_a_method_and_a_sample(group):
    options = set(type(group.options).__dataclass_fields__)
    assert options | {"polling_strategy", "auto_commit"} == set(SAMPLES)


@pytest.mark.parametrize(
    "name", ["polling_strategy", "auto_commit", "batch_length", "init_retries"]
)
def test_official_none_when_given_means_the_default(group, name):
    nothing: dict[str, Any] = {name: None}
    changed = ConsumerBuilder.group(group._client, "g", "s", "t", **nothing)
    assert changed.options == group.options


def test_defaults_when_nothing_is_said_fit_the_kind():
    client = IggyClient()
    group = ConsumerBuilder.group(client, "g", "s", "t").options
    single = ConsumerBuilder.standalone(client, "c", "s", "t").options
    assert (group.connection, group.partitions) == ("own", None)
    assert (single.connection, single.partitions) == ("shared", (0,))
    assert group.commit == AutoCommit.after_each()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"batch_length": 0}, "batch_length"),
        ({"prefetch_messages": -1}, "prefetch_messages"),
        ({"prefetch_bytes": -1}, "prefetch_bytes"),
        ({"init_retries": -1}, "init_retries"),
        ({"poll_interval": -1}, "poll_interval"),
        ({"partition_id": []}, "partition_id"),
        ({"partition_id": [1, 1]}, "once"),
        ({"partition_id": -1}, "partition_id"),
        ({"connection": "none"}, "connection"),
        ({"start_if_new": "first"}, "start_if_new is 'first'.*'latest'"),
        ({"start_if_new": -1}, "start_if_new"),
        ({"start_if_new": True}, "start_if_new"),
        ({"start_if_new": datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001  what is refused
        ({"replay_from": "latest"}, "replay_from is 'latest'.*'earliest'"),
        ({"replay_from": {0: "latest"}}, "replay_from"),
        ({"replay_from": {"0": 3}}, "replay_from"),
        ({"on_revoked": 3}, "on_revoked"),
    ],
)
def test_option_when_it_makes_no_sense_is_refused_with_advice(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        ConsumerBuilder.group(IggyClient(), "g", "s", "t", **options)


@pytest.mark.parametrize(
    ("options", "hint"),
    [({"batchlength": 3}, "did you mean 'batch_length'"), ({"nonsense": 3}, "options are")],
)
def test_option_when_there_is_none_of_that_name_then_names_what_there_is(options, hint):
    with pytest.raises(TypeError, match=hint):
        ConsumerBuilder.group(IggyClient(), "g", "s", "t", **options)


def test_when_polling_when_messages_are_sealed_is_refused_as_it_is_built(group):
    encryptor, mode = Encryptor.aes256_gcm(key=bytes(32)), AutoCommit.when_polling()
    with pytest.raises(ConfigurationError):
        group.encryptor(encryptor).commit(mode)
    with pytest.raises(ConfigurationError):
        group.commit(AutoCommit.interval(1, or_=mode)).encryptor(encryptor)
    sealed = IggyClient(encryptor=encryptor)
    with pytest.raises(ConfigurationError):
        ConsumerBuilder.group(sealed, "g", "s", "t", commit=mode)
    plain = ConsumerBuilder.group(sealed, "g", "s", "t", commit=mode, encryptor=None)
    assert plain.options.commit == mode


def test_builder_when_shown_names_what_it_reads(group):
    assert "group 'g' of 's'/'t'" in repr(group)


class Watcher(Hook):
    """Sees messages, and fails at every second one."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_message(self, message) -> None:
        """Note the message."""
        self.seen.append(message.offset)
        if message.offset % 2:
            raise ValueError("a bad hook")


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_hooks_when_messages_are_read_see_each_of_them_once():
    watcher = Watcher()
    async with fake_topic_and_client(hooks=(watcher,)) as (fake_topic, client):
        fake_topic.fill(0, 9)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 3)
            await anext(consumer.batches(max_messages=3))
            await consumer.run(lambda message: None, until_end=True)
        assert watcher.seen == list(range(9))
        assert fake_topic.offset() == 8


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_builder_when_entered_again_gives_another_consumer():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", commit=AutoCommit.disabled())
        async with builder as one, builder as other:
            assert one is not other
            assert len(await take(one, 4)) == len(await take(other, 4))
            assert one.statistics().messages == 4
            assert "consumer 'c'" in repr(one)
        assert one.is_closed
        assert other.is_closed


@pytest.mark.parametrize("name", ["start", "polling_strategy"])
def test_start_when_it_overrides_what_is_stored_warns_where_it_was_given(group, name):
    with pytest.warns(DeprecationWarning, match=f"{name}=.*replay_from=") as by_method:
        getattr(group, name)(PollingStrategy.first())
    with pytest.warns(DeprecationWarning, match=name) as by_keyword:
        group._client.consumer("c", "s", "t", **{name: PollingStrategy.first()})
    assert [one.filename for one in (*by_method, *by_keyword)] == [__file__] * 2
