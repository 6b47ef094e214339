"""The blocking client against a real server: verbs, producers, consumers, threads, the end."""

from __future__ import annotations

import os
import pickle
import signal
import threading

import pytest

from iggy_protocol import ConsumerIdentity, PollingStrategy, PollMessages
from iggy_sdk.blocking import IggyClient
from iggy_sdk.consumer import AutoCommit
from iggy_sdk.errors import (
    ClientClosedError,
    ConnectionFailedError,
    RequestTimeoutError,
    StreamExistsError,
    TopicNotFoundError,
)
from iggy_sdk.serde import JsonSerde

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def client(iggy_server):
    with IggyClient(iggy_server.url) as opened:
        opened.create_stream("shop")
        opened.create_topic("shop", "orders", 2)
        yield opened


def fill(client, count, *, partition_id=0):
    payloads = [b"%d" % number for number in range(count)]
    client.send_messages("shop", "orders", payloads, partition_id=partition_id)
    return payloads


def stored(client, name, partition_id=0):
    found = client.get_consumer_offset(
        "shop", "orders", consumer=ConsumerIdentity.single(name), partition_id=partition_id
    )
    return None if found is None else found.stored_offset


def test_verbs_when_called_then_answer_as_the_async_ones(client):
    assert client.ping() is None
    assert client.get_stream("shop").name == "shop"
    assert client.get_stream("missing") is None
    with pytest.raises(StreamExistsError):
        client.create_stream("shop")
    assert client.create_stream("shop", exist_ok=True).name == "shop"


def test_send_when_given_a_generator_then_it_runs_in_the_callers_thread(client):
    threads = []

    def values():
        for number in range(3):
            threads.append(threading.get_ident())
            client.ping()
            yield b"%d" % number

    client.send_messages("shop", "orders", values(), partition_id=0)

    assert set(threads) == {threading.get_ident()}


def test_poll_when_asked_for_then_brings_views_on_what_came(client):
    payloads = fill(client, 100)

    batch = client.poll_messages(
        "shop",
        "orders",
        consumer=ConsumerIdentity.single("c"),
        partition_id=0,
        strategy=PollingStrategy.first(),
    )
    polled = client.request(
        PollMessages(
            ConsumerIdentity.single("c"), "shop", "orders", PollingStrategy.first(), 100, 0
        )
    )

    assert batch.payloads() == payloads
    assert polled.messages.payloads() == payloads


def test_producer_when_direct_then_the_receipt_is_done(client):
    with client.producer("shop", "orders", serde=JsonSerde()) as producer:
        receipt = producer.send({"id": 1}, partition_id=0)
        producer.send_many(({"id": number} for number in range(2, 5)), partition_id=0)

    assert receipt.is_done
    with client.consumer("c", "shop", "orders", serde=JsonSerde(), until_end=True) as consumer:
        assert [message.value["id"] for message in consumer] == [1, 2, 3, 4]


def test_producer_when_in_the_background_then_leaving_the_block_flushes(client):
    builder = client.producer("shop", "orders").partitioning(0).background(linger_time=30.0)
    with builder as producer:
        receipts = [producer.send(b"%d" % number) for number in range(10)]
        producer.flush()
        receipts[-1].delivered()
        producer.send(b"last")

    with client.consumer("c", "shop", "orders", until_end=True) as consumer:
        assert len([message.payload for message in consumer]) == 11


def test_consumer_when_iterated_then_hands_out_all_in_order(client):
    payloads = fill(client, 2_000)

    with client.consumer("c", "shop", "orders", until_end=True) as consumer:
        assert [message.payload for message in consumer] == payloads

    assert stored(client, "c") == 1_999


def test_consumer_when_left_early_then_all_but_the_message_in_hand_is_stored(client):
    fill(client, 1_000)

    with client.consumer("c", "shop", "orders") as consumer:
        for message in consumer:
            if message.offset == 700:
                break
        assert consumer.get_last_consumed_offset(0) == 700
        assert consumer.last_partition_id == 0

    assert stored(client, "c") == 699


def test_message_when_committed_then_break_keeps_it(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders") as consumer:
        message = next(consumer)
        message.commit()

    assert stored(client, "c") == 0


@pytest.mark.parametrize("mode", [AutoCommit.disabled(), AutoCommit.after_all()])
def test_consumer_when_the_mode_does_not_store_then_leaving_early_stores_nothing(client, mode):
    fill(client, 10)

    with client.consumer("c", "shop", "orders", commit=mode) as consumer:
        next(consumer)
        next(consumer)

    assert stored(client, "c") is None


def test_consumer_when_handing_out_is_what_counts_then_nothing_is_fetched_ahead(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders", commit=AutoCommit.when_each()) as consumer:
        next(consumer)
        next(consumer)

    assert stored(client, "c") == 1


def test_consumer_when_each_must_be_stored_then_each_is(client):
    fill(client, 10)
    mode = AutoCommit.after_each(coalesce_messages=1)

    with client.consumer("c", "shop", "orders", commit=mode) as consumer:
        for _ in range(4):
            next(consumer)

        assert stored(client, "c") == 2


def test_consumer_when_iteration_is_resumed_then_goes_on_where_it_was(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders", until_end=True) as consumer:
        for message in consumer:
            if message.offset == 3:
                break
        assert consumer.positions() == {0: 4}
        rest = [message.offset for message in consumer]

    assert rest == [4, 5, 6, 7, 8, 9]


def test_consumer_when_it_turns_to_batches_then_goes_on_where_it_was(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders") as consumer:
        next(consumer)
        next(consumer)
        batches = [
            [message.offset for message in batch] for batch in consumer.batches(3, until_end=True)
        ]

    assert [offset for batch in batches for offset in batch] == list(range(2, 10))
    assert max(map(len, batches)) == 3
    assert stored(client, "c") == 9


def test_batch_when_committed_then_is_stored_before_the_next(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders", commit=AutoCommit.disabled()) as consumer:
        batch = next(consumer.batches(4))
        batch.commit()

        assert (batch.payloads(), batch.last_offsets()) == ([b"0", b"1", b"2", b"3"], {0: 3})
        assert stored(client, "c") == 3


def test_consumer_when_it_seeks_then_reads_from_there(client):
    fill(client, 10)

    with client.consumer("c", "shop", "orders", until_end=True) as consumer:
        next(consumer)
        consumer.seek(PollingStrategy.offset(7))
        assert [message.offset for message in consumer] == [7, 8, 9]
        consumer.seek(PollingStrategy.first())
        assert next(consumer).offset == 0
        assert consumer.lag() == {0: 9}


def test_group_when_its_partitions_go_then_the_callback_may_commit_on_its_thread(client):
    fill(client, 10)
    calls = []
    mode = AutoCommit.disabled()

    def commit(partitions):
        calls.append((threading.current_thread() is threading.main_thread(), partitions))
        consumer.commit(0, 4)

    group = client.consumer_group("g", "shop", "orders", commit=mode, until_end=True)
    with group.on_revoked(commit) as consumer:
        assert len(list(consumer)) == 10
        assert consumer.assignment() == {0, 1}
    assert calls == [(False, frozenset({0, 1}))]
    assert client.consumer_lag("g", "shop", "orders") == {0: 5, 1: 0}


def test_consumer_when_it_reads_again_then_holds_back_what_it_commits(client):
    payloads = fill(client, 10)
    group = client.consumer_group("g", "shop", "orders", until_end=True)
    with group as consumer:
        assert len(list(consumer)) == 10
    with group.replay_from("earliest") as consumer:
        assert next(consumer).payload == payloads[0]
        consumer.seek(7)
        assert next(consumer).payload == payloads[7]
    assert client.consumer_lag("g", "shop", "orders") == {0: 0, 1: 0}


def test_run_when_given_a_plain_function_then_it_runs_on_threads_and_may_block(client):
    fill(client, 20)
    seen, threads = [], set()

    def handle(message):
        client.ping()
        threads.add(threading.get_ident())
        seen.append(message.offset)

    with client.consumer("c", "shop", "orders") as consumer:
        consumer.run(handle, concurrency=4, until_end=True)

    assert sorted(seen) == list(range(20))
    assert threading.get_ident() not in threads
    assert stored(client, "c") == 19


def test_run_when_a_message_cannot_be_handled_then_goes_to_the_dead_letters(client):
    fill(client, 3)
    client.create_topic("shop", "dead", 1)

    def handle(message):
        if message.offset == 1:
            raise ValueError("no")

    with client.consumer("c", "shop", "orders") as consumer:
        consumer.run(handle, dead_letter=client.producer("shop", "dead"), until_end=True)

    with client.consumer("d", "shop", "dead", until_end=True) as consumer:
        assert [message.payload for message in consumer] == [b"1"]


def test_group_when_two_members_read_then_share_the_work(client):
    fill(client, 50, partition_id=0)
    fill(client, 50, partition_id=1)
    group = client.consumer_group("g", "shop", "orders")

    with group as one, group as two:
        taken = set()
        for consumer in (one, two):
            for batch in consumer.batches(max_wait=0.0, until_end=True):
                taken |= {(message.partition_id, message.offset) for message in batch}

    assert len(taken) == 100


def test_consumer_when_stopped_by_another_thread_then_iteration_ends(client):
    with client.consumer("c", "shop", "orders") as consumer:
        stopper = threading.Timer(0.05, consumer.stop)
        stopper.start()
        assert list(consumer) == []
        stopper.join()


def test_interrupt_when_waiting_for_a_message_then_nothing_is_lost(client):
    with client.consumer("c", "shop", "orders") as consumer:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(consumer)
        fill(client, 3)

        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]


def test_client_when_threads_share_it_then_each_gets_its_answers(client):
    errors = []

    def work(number):
        try:
            for step in range(20):
                name = f"{number}-{step}"
                assert client.create_stream(name).name == name
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not errors
    assert len(client.get_streams()) == 81


def test_client_when_not_open_then_says_how_to_open(iggy_server):
    with pytest.raises(ClientClosedError, match="with IggyClient"):
        IggyClient(iggy_server.url).ping()


def test_client_when_closed_then_its_producers_are_flushed(iggy_server, client):
    other = IggyClient(iggy_server.url)
    other.connect()
    builder = other.producer("shop", "orders").partitioning(0).background(linger_time=30.0)
    producer = builder.open()
    producer.send(b"x")
    other.close()
    other.close()

    assert client.get_topic("shop", "orders").messages_count == 1
    with pytest.raises(ClientClosedError):
        other.ping()


def test_client_when_the_port_is_closed_then_says_so_and_ends_its_thread(iggy_server):
    before = threading.active_count()
    iggy_server.faults.refuse_connections()

    with pytest.raises(ConnectionFailedError):
        IggyClient(iggy_server.url, connect_timeout=0.2, reconnect=False).connect()

    assert threading.active_count() == before


def test_client_when_an_answer_is_lost_then_the_timeout_is_raised_here(iggy_server):
    with IggyClient(iggy_server.url) as client:
        iggy_server.faults.swallow_reply(command="ping")

        with pytest.raises(RequestTimeoutError):
            client.ping(timeout=0.2)


@pytest.mark.anyio
async def test_client_when_used_in_a_task_of_another_engine_then_works(iggy_server):
    with IggyClient(iggy_server.url) as client, client.sibling() as sibling:
        client.create_stream("shop")
        client.create_topic("shop", "orders")
        with client.producer("shop", "orders").background() as producer:
            producer.send(b"x")
        with sibling.consumer("c", "shop", "orders", until_end=True) as consumer:
            assert [message.payload for message in consumer] == [b"x"]


def test_client_when_pickled_then_says_what_to_send_instead(client):
    with pytest.raises(TypeError, match="pass the address instead"):
        pickle.dumps(client)


def test_builder_when_entered_without_a_topic_then_raises(client):
    with pytest.raises(TopicNotFoundError), client.producer("shop", "missing"):
        pass


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_client_when_forked_then_the_child_makes_its_own(iggy_server, client):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            client.ping()
        except ClientClosedError as error:
            with IggyClient(iggy_server.url) as own:
                own.ping()
            said = str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)

    assert "after the fork" in text
    client.ping()
