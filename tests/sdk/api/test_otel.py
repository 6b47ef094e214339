"""OpenTelemetry: spans, counters, and traces that go on behind the broker."""

from __future__ import annotations

import importlib
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    LoginUser,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_sdk import otel
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import StreamExistsError, error_for_status
from iggy_sdk.hooks import Hooks
from iggy_sdk.otel import OpenTelemetryHook
from iggy_sdk.pipeline import Pipeline
from tests.sdk.api.polling import polled
from tests.sdk.api.recording_telemetry import RecordingMeterProvider, RecordingTracerProvider

SEND = SendMessages("shop", "orders", Partitioning.balanced(), [b"x", b"y"])
POLL = PollMessages(ConsumerIdentity.single(1), "shop", "orders", PollingStrategy.next(), 10)


class Telemetry:
    """A hook together with what it recorded."""

    def __init__(self, **options) -> None:
        tracers, meters = RecordingTracerProvider(), RecordingMeterProvider()
        self.spans = tracers.spans
        self.instruments = meters.instruments
        self.hook = OpenTelemetryHook(tracer_provider=tracers, meter_provider=meters, **options)
        self.hooks = Hooks([self.hook])

    def numbers(self, name: str) -> list[float]:
        return [number for number, _ in self.instruments[name].numbers]


@pytest.fixture
def telemetry():
    made = Telemetry()
    yield made
    assert made.hooks.failures_count == 0


def test_after_request_when_a_batch_was_sent_then_makes_a_span_and_counts(telemetry):
    telemetry.hooks.after_request(SEND, seconds=0.25)

    (span,) = telemetry.spans
    assert (span.name, span.kind, span.is_over) == ("send orders", SpanKind.CLIENT, True)
    assert span.end_time - span.start_time == 250_000_000
    assert span.attributes == {
        "messaging.system": "iggy",
        "messaging.operation.name": "send",
        "messaging.destination.name": "orders",
        "messaging.batch.message_count": 2,
        "iggy.stream": "shop",
    }
    assert telemetry.numbers("messaging.client.sent.messages") == [2]
    ((seconds, labels),) = telemetry.instruments["messaging.client.operation.duration"].numbers
    assert seconds == 0.25
    assert "messaging.batch.message_count" not in labels


def test_after_request_when_a_poll_brought_messages_then_makes_a_span_and_counts(telemetry):
    telemetry.hooks.after_request(POLL, seconds=0.1, reply=polled([b"a", b"b", b"c"]))

    (span,) = telemetry.spans
    assert span.name == "poll orders"
    assert span.attributes["messaging.destination.partition.id"] == "3"
    assert telemetry.numbers("messaging.client.consumed.messages") == [3]


def test_after_request_when_nothing_happened_then_makes_no_span(telemetry):
    telemetry.hooks.after_request(Ping(), seconds=0.1)
    telemetry.hooks.after_request(POLL, seconds=0.1, reply=polled([]))

    assert telemetry.spans == []
    assert len(telemetry.numbers("messaging.client.operation.duration")) == 2


def test_after_request_when_empty_polls_are_wanted_then_makes_spans_of_them():
    telemetry = Telemetry(trace_empty_polls=True)

    telemetry.hooks.after_request(POLL, seconds=0.1, reply=polled([]))

    assert [span.name for span in telemetry.spans] == ["poll orders"]


def test_after_request_when_it_failed_then_the_span_says_so(telemetry):
    error = error_for_status(1012)
    assert isinstance(error, StreamExistsError)
    telemetry.hooks.after_request(CreateStream("shop"), seconds=0.1, error=error)
    telemetry.hooks.after_request(POLL, seconds=0.1, error=KeyError("x"))

    created, poll = telemetry.spans
    assert created.name == "create_stream"
    assert created.attributes["error.type"] == "StreamNameAlreadyExists"
    assert created.exceptions == [error]
    assert not created.status.is_ok
    assert poll.attributes["error.type"] == "KeyError"
    assert telemetry.instruments["messaging.client.consumed.messages"].numbers == []


def test_after_request_when_it_holds_secrets_then_does_not_show_them(telemetry):
    telemetry.hooks.after_request(LoginUser("app", "hunter2"), seconds=0.1)

    (span,) = telemetry.spans
    assert span.name == "login_user"
    assert "hunter2" not in repr(span.attributes)


def test_connections_when_they_come_and_go_then_are_counted(telemetry):
    telemetry.hooks.on_connect("host:1")
    telemetry.hooks.on_disconnect("host:1", error_for_status(8))
    telemetry.hooks.on_disconnect("host:1")

    assert telemetry.instruments["iggy.client.connects"].numbers == [
        (1, {"server.address": "host:1"})
    ]
    assert telemetry.instruments["iggy.client.disconnects"].numbers == [
        (1, {"server.address": "host:1", "error.type": "Disconnected"}),
        (1, {"server.address": "host:1"}),
    ]


@pytest.mark.parametrize("encryptor", [None, Encryptor.aes256_gcm(bytes(32))])
def test_trace_when_a_message_travels_then_goes_on_at_the_consumer(telemetry, encryptor):
    pipeline = Pipeline(hooks=telemetry.hooks, encryptor=encryptor)
    sent = pipeline.encode_message(b"x", stream="shop", topic="orders")
    (message,) = pipeline.batch(polled([sent]), stream="shop", topic="orders")

    with telemetry.hook.process(message):
        inside = trace.get_current_span().get_span_context()

    create, process = telemetry.spans
    assert (create.name, create.kind) == ("create orders", SpanKind.PRODUCER)
    assert (process.name, process.kind) == ("process orders", SpanKind.CONSUMER)
    assert process.parent.span_id == create.context.span_id
    assert process.parent.is_remote
    assert inside.trace_id == create.context.trace_id
    assert process.attributes["iggy.offset"] == 40
    assert str(message.headers["traceparent"]).startswith("00-")


def test_trace_when_the_sender_has_a_span_then_the_message_belongs_to_it(telemetry):
    tracer = RecordingTracerProvider().get_tracer()
    with tracer.start_as_current_span("handler"):
        Pipeline(hooks=telemetry.hooks).encode_message(b"x", topic="orders")
        telemetry.hooks.after_request(SEND, seconds=0.1)

    (handler,) = tracer.spans
    assert {span.parent.span_id for span in telemetry.spans} == {handler.context.span_id}


def test_context_of_when_headers_cannot_be_read_then_is_empty(telemetry):
    (message,) = Pipeline().batch(polled([NewMessage(b"x", 0, b"damaged")]))

    context = telemetry.hook.context_of(message)

    assert not trace.get_current_span(context).get_span_context().is_valid


class Verbose:
    """A propagator that writes more than a header holds."""

    fields = frozenset({"long", "short"})

    def inject(self, carrier, context=None, setter=None):
        carrier.update(long="x" * 256, short="x" * 255, empty="")

    def extract(self, carrier, context=None, getter=None):
        return trace.set_span_in_context(trace.INVALID_SPAN)


def test_outgoing_headers_when_a_value_is_too_long_then_is_left_out():
    telemetry = Telemetry(propagator=Verbose())

    headers = telemetry.hooks.outgoing_headers(stream="shop", topic="orders")

    assert headers == {"short": "x" * 255}


def test_hook_when_there_is_no_sdk_then_does_nothing_and_breaks_nothing():
    hooks = Hooks([OpenTelemetryHook()])
    hooks.on_connect("host:1")
    hooks.after_request(SEND, seconds=0.1)
    pipeline = Pipeline(hooks=hooks)

    assert pipeline.encode_message(b"x") == b"x"
    assert hooks.failures_count == 0


def test_otel_when_the_api_is_missing_then_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, otel.__name__)

    with pytest.raises(ModuleNotFoundError, match=r"iggy-python\[otel\]"):
        importlib.import_module(otel.__name__)
