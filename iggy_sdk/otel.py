"""OpenTelemetry: spans and counters of a client, and the context of traces in message headers.

    async with IggyClient(url, hooks=[OpenTelemetryHook()]) as client: ...

    with hook.process(message):       # a span whose parent is the producer's
        await handle(message.value)

Needs the extra ``otel``, which is the API of OpenTelemetry alone; without its SDK all of this does
nothing.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import Command, HeaderScalar, Identifier, Ping, PolledMessages, PollMessages
from iggy_protocol import SendMessages as SendMessagesCommand
from iggy_sdk.errors import IggyError
from iggy_sdk.hooks import Hook

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "iggy_sdk.otel needs opentelemetry-api: install it with pip install 'iggy-python[otel]'",
        name="opentelemetry",
    ) from _error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from iggy_sdk.message import ReceivedMessage

__all__ = ["OpenTelemetryHook"]

SCOPE: Final = "iggy_sdk"
BATCH_SIZE: Final = "messaging.batch.message_count"

HEADER_VALUE_BYTES_MAX: Final = 255
"""What a user header holds; a longer trace state is left out, as the W3C allows."""

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


class OpenTelemetryHook(Hook):
    """Traces what a client asks for, and counts messages and connections.

    Each message that is sent carries the context of a short span of its own, so that consumers can
    go on with the trace. Pings are not traced, and neither are polls that bring nothing.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        trace_empty_polls: bool = False,
    ) -> None:
        """Take the providers.

        Args:
            tracer_provider: makes the spans; None takes the global one.
            meter_provider: makes the counters; None takes the global one.
            propagator: writes and reads the context; None is that of the W3C.
            trace_empty_polls: whether polls that bring nothing get a span, too.
        """
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagator = TraceContextTextMapPropagator() if propagator is None else propagator
        self._trace_empty_polls = trace_empty_polls
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", unit="{message}")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}"
        )
        self._durations = meter.create_histogram("messaging.client.operation.duration", unit="s")
        self._connects = meter.create_counter("iggy.client.connects", unit="{connection}")
        self._disconnects = meter.create_counter("iggy.client.disconnects", unit="{connection}")

    def on_connect(self, endpoint: str) -> None:
        """Count a connection."""
        self._connects.add(1, {"server.address": endpoint})

    def on_disconnect(self, endpoint: str, error: IggyError | None) -> None:
        """Count the end of a connection."""
        attributes = {"server.address": endpoint}
        if error is not None:
            attributes["error.type"] = error.name
        self._disconnects.add(1, attributes)

    def after_request(
        self,
        command: Command[Any],
        *,
        reply: object,
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """Make the span of a request, and count what it moved."""
        attributes = _attributes(command, reply)
        if error is not None:
            attributes["error.type"] = _error_type(error)
        self._count(command, attributes, seconds, failed=error is not None)
        if self._is_traced(command, reply):
            self._trace(command, attributes, error, seconds)

    def outgoing_headers(
        self, *, stream: Identifier, topic: Identifier
    ) -> Mapping[str, HeaderScalar] | None:
        """Give a message the context of a short span of its own."""
        span = self._tracer.start_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes=_destination_attributes("create", stream, topic),
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, trace.set_span_in_context(span))
        span.end()
        return {
            name: text
            for name, text in carrier.items()
            if 0 < len(text.encode()) <= HEADER_VALUE_BYTES_MAX
        }

    def context_of(self, message: ReceivedMessage[Any]) -> Context:
        """Read the context that the producer gave a message; an empty one if there is none."""
        try:
            headers = message.headers
        except IggyError:
            headers = {}
        carrier = {name: text for name, text in headers.items() if isinstance(text, str)}
        return self._propagator.extract(carrier)

    def process(self, message: ReceivedMessage[Any]) -> AbstractContextManager[Span]:
        """Open a span around the handling of a message, as a child of the producer's."""
        attributes = _destination_attributes("process", message.stream, message.topic)
        attributes["messaging.destination.partition.id"] = str(message.partition_id)
        attributes["iggy.offset"] = message.offset
        return self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=self.context_of(message),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )

    def _is_traced(self, command: Command[Any], reply: object) -> bool:
        if isinstance(command, Ping):
            return False
        is_empty = isinstance(reply, PolledMessages) and not len(reply.messages)
        return self._trace_empty_polls or not is_empty

    def _trace(
        self,
        command: Command[Any],
        attributes: dict[str, Any],
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """Make a span that is over already."""
        end = time.time_ns()
        span = self._tracer.start_span(
            _span_name(command),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=end - int(seconds * 1e9),
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end(end_time=end)

    def _count(
        self, command: Command[Any], attributes: Mapping[str, Any], seconds: float, *, failed: bool
    ) -> None:
        # The size of a batch is what is counted; as a label it would split the counters.
        labels = {key: value for key, value in attributes.items() if key != BATCH_SIZE}
        count = attributes.get(BATCH_SIZE, 0)
        self._durations.record(seconds, labels)
        if isinstance(command, SendMessagesCommand):
            self._sent.add(count, labels)
        elif isinstance(command, PollMessages) and not failed:
            self._consumed.add(count, labels)


def _operation(command: Command[Any]) -> str:
    if isinstance(command, SendMessagesCommand):
        return "send"
    if isinstance(command, PollMessages):
        return "poll"
    return _WORD_START.sub("_", type(command).__name__).lower()


def _span_name(command: Command[Any]) -> str:
    if isinstance(command, SendMessagesCommand | PollMessages):
        return f"{_operation(command)} {command.topic}"
    return _operation(command)


def _destination_attributes(operation: str, stream: object, topic: object) -> dict[str, Any]:
    attributes = {"messaging.system": "iggy", "messaging.operation.name": operation}
    if stream is not None:
        attributes["iggy.stream"] = str(stream)
    if topic is not None:
        attributes["messaging.destination.name"] = str(topic)
    return attributes


def _attributes(command: Command[Any], reply: object) -> dict[str, Any]:
    """Say what a command is about; neither messages nor secrets are among it."""
    stream, topic = getattr(command, "stream", None), getattr(command, "topic", None)
    attributes = _destination_attributes(_operation(command), stream, topic)
    if isinstance(command, SendMessagesCommand):
        attributes[BATCH_SIZE] = len(command.messages)
    elif isinstance(reply, PolledMessages):
        attributes[BATCH_SIZE] = len(reply.messages)
        attributes["messaging.destination.partition.id"] = str(reply.partition_id)
    return attributes


def _error_type(error: BaseException) -> str:
    return error.name if isinstance(error, IggyError) else type(error).__name__
