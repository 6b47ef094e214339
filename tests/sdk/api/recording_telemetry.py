"""Providers of OpenTelemetry that write down what they are told, on its API alone."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, TraceFlags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass
class Recorded:
    """What a span was told."""

    name: str
    kind: SpanKind
    attributes: dict[str, Any]
    parent: SpanContext
    context: SpanContext
    start_time: int | None
    end_time: int | None = None
    is_over: bool = False
    status: Status | None = None
    exceptions: list[BaseException] = field(default_factory=list)


class RecordingSpan(NonRecordingSpan):
    """A span that writes itself down."""

    def __init__(self, recorded: Recorded) -> None:
        super().__init__(recorded.context)
        self.recorded = recorded

    def record_exception(self, exception: BaseException, *args: Any, **details: Any) -> None:
        self.recorded.exceptions.append(exception)

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.recorded.status = status

    def end(self, end_time: int | None = None) -> None:
        self.recorded.is_over = True
        self.recorded.end_time = end_time


class RecordingTracer(trace.Tracer):
    """A tracer whose spans can be read."""

    def __init__(self, spans: list[Recorded]) -> None:
        self.spans = spans
        self.numbers = count(1)

    def start_span(
        self,
        name: str,
        context: Any = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None,
        links: Any = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> RecordingSpan:
        parent = trace.get_current_span(context).get_span_context()
        number = next(self.numbers)
        trace_id = parent.trace_id if parent.is_valid else number << 64
        own = SpanContext(trace_id, number, is_remote=False, trace_flags=TraceFlags(1))
        recorded = Recorded(name, kind, dict(attributes or {}), parent, own, start_time)
        self.spans.append(recorded)
        return RecordingSpan(recorded)

    @contextmanager
    def start_as_current_span(  # type: ignore[override]  # the API's decorator has no hook
        self, name: str, *args: Any, **details: Any
    ) -> Iterator[Any]:
        span = self.start_span(name, *args, **details)
        with trace.use_span(span, end_on_exit=True):
            yield span


class RecordingTracerProvider(trace.TracerProvider):
    """Makes tracers that share one list of spans."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def get_tracer(self, *args: Any, **details: Any) -> RecordingTracer:
        return RecordingTracer(self.spans)


class RecordingInstrument:
    """A counter or a histogram that writes its numbers down."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: list[tuple[float, dict[str, Any]]] = []

    def add(self, amount: float, attributes: Mapping[str, Any] | None = None) -> None:
        self.numbers.append((amount, dict(attributes or {})))

    record = add


class RecordingMeter(metrics.NoOpMeter):
    """A meter whose instruments can be read."""

    def __init__(self, instruments: dict[str, RecordingInstrument]) -> None:
        super().__init__("recording")
        self.instruments = instruments

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        return self.instruments.setdefault(name, RecordingInstrument(name))

    def create_histogram(self, name: str, unit: str = "", description: str = "", **_: Any) -> Any:
        return self.instruments.setdefault(name, RecordingInstrument(name))


class RecordingMeterProvider(metrics.MeterProvider):
    """Makes meters that share one table of instruments."""

    def __init__(self) -> None:
        self.instruments: dict[str, RecordingInstrument] = {}

    def get_meter(self, *args: Any, **details: Any) -> RecordingMeter:
        return RecordingMeter(self.instruments)
