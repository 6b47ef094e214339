"""The options of a producer: one frozen value, and how each option is read.

``ProducerOptions`` is the one table of options. The keywords of ``client.producer()`` and the
methods of its builder both write into it through ``apply_option``, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

from iggy_protocol import Limits, Partitioning, record
from iggy_sdk.compression import Compression, CompressionName
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError, SendFailedError
from iggy_sdk.option_checks import check_fields, check_settings, invalid_option
from iggy_sdk.options import Partitioner, Retry
from iggy_sdk.serde import Serde

V = TypeVar("V")

METADATA_BYTES_MAX: Final = 2_048
"""Stream, topic and partitioning have 255 bytes each at most; with their heads and the count of
messages they stay far below this."""

REQUEST_BYTES_MAX: Final = Limits().send_bytes_max - METADATA_BYTES_MAX
"""What the messages of one request may occupy; servers refuse larger frames."""

ErrorCallback: TypeAlias = Callable[[SendFailedError], Awaitable[None] | None]
"""Called with messages that were not sent; a plain or an async function."""


class Inherited:
    """Marks an option that is inherited from the client, where None means "none"."""

    def __repr__(self) -> str:
        return "INHERITED"


INHERITED: Final = Inherited()


def _check_bound(options: object, *names: str) -> None:
    """Refuse bounds below 1; None is the way to say that there is none."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise invalid_option(name, value, f"Make {name} at least 1, or None for no bound.")


def _check_request_size(value: int | None) -> None:
    if value is not None and value > REQUEST_BYTES_MAX:
        raise invalid_option(
            "batch_size", value, f"Servers take {REQUEST_BYTES_MAX} bytes at most."
        )


@record
class Backpressure:
    """What a send does while the buffer is full; made by ``block`` and ``fail``.

    Attributes:
        waits: whether it waits for space at all.
        timeout: how long it waits, in seconds; None waits as long as it takes.
    """

    waits: bool = True
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def block(cls, timeout: Seconds | None = None) -> Backpressure:
        """Wait for space, and raise ``BufferFullError`` when it takes longer than the timeout."""
        return cls(True, None if timeout is None else to_seconds(timeout, name="timeout"))

    @classmethod
    def fail(cls) -> Backpressure:
        """Raise ``BufferFullError`` at once."""
        return cls(False)


@record(kw_only=True)
class DirectMode:
    """Every send waits for the server.

    Attributes:
        batch_length: messages of one request at most; longer lists are sent in several.
        batch_size: bytes after which a request is full. Larger requests are not faster, and what
            a lost answer makes uncertain is kept small.
        linger_time: the least time between two sends, as a pace; nothing is collected meanwhile.
    """

    batch_length: int | None = 1_000
    batch_size: int | None = 8 << 20
    linger_time: Seconds = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "linger_time", to_seconds(self.linger_time, name="linger_time"))
        _check_bound(self, "batch_length", "batch_size")
        _check_request_size(self.batch_size)


@record(kw_only=True)
class BackgroundMode:
    """A send is done when the message is in the buffer; tasks of the producer deliver it.

    Attributes:
        linger_time: how long the oldest message of a batch waits for further ones.
        batch_length: messages that make a batch full.
        batch_size: bytes that make a batch full.
        max_buffer_size: bytes of all messages that no server has acknowledged yet.
        max_in_flight: requests that wait for their answers, at most one for each destination.
        backpressure: what a send does while the buffer is full.
        delivery_timeout: how long a message may take from its acceptance to the acknowledgement,
            with all attempts, of which each takes ``request_timeout`` at most; then it counts as
            not sent. None takes 120 seconds, or what ``linger_time`` and all attempts may take if
            that is longer.
        on_error: called for every batch that was not sent. Without it the next call raises.
    """

    linger_time: Seconds = 0.001
    batch_length: int | None = 1_000
    batch_size: int | None = 1 << 20
    max_buffer_size: int | None = 32 << 20
    max_in_flight: int | None = 4
    backpressure: Backpressure = field(default_factory=Backpressure)
    delivery_timeout: Seconds | None = None
    on_error: ErrorCallback | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "linger_time", to_seconds(self.linger_time, name="linger_time"))
        if self.delivery_timeout is not None:
            seconds = to_seconds(self.delivery_timeout, name="delivery_timeout")
            object.__setattr__(self, "delivery_timeout", seconds)
            if not seconds:
                raise invalid_option(
                    "delivery_timeout", seconds, "Make delivery_timeout more than 0."
                )
        _check_bound(self, "batch_length", "batch_size", "max_buffer_size", "max_in_flight")
        _check_request_size(self.batch_size)


DELIVERY_SECONDS: Final = 120.0
"""How long a delivery may take at least, unless ``delivery_timeout`` says otherwise."""


def delivery_seconds_max(mode: BackgroundMode, retry: Retry, *, attempt_seconds: float) -> float:
    """Tell how long the delivery of a message may take.

    Args:
        mode: of the producer.
        retry: how often an attempt is repeated.
        attempt_seconds: how long one attempt may take.
    """
    if mode.delivery_timeout is not None:
        return to_seconds(mode.delivery_timeout)
    pauses = retry.attempts * to_seconds(retry.max_backoff)
    attempts = (retry.attempts + 1) * attempt_seconds
    return max(DELIVERY_SECONDS, to_seconds(mode.linger_time) + attempts + pauses)


@record(kw_only=True)
class NewTopic:
    """How a missing topic is created.

    Attributes:
        partitions_count: how many partitions it gets. None makes one, and takes any number where
            the topic exists; another number than the topic has is warned of.
        message_expiry: how long messages are kept; None takes what the server is set to.
        max_topic_size: bytes after which the oldest segments go; None as above.
        replication_factor: None takes what the server is set to.
    """

    partitions_count: int | None = None
    message_expiry: Seconds | None = None
    max_topic_size: int | None = None
    replication_factor: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_bound(self, "partitions_count", "max_topic_size", "replication_factor")
        if self.message_expiry is not None:
            to_seconds(self.message_expiry, name="message_expiry")


@record(kw_only=True)
class ProducerOptions:
    """The options of a producer.

    Attributes:
        mode: whether sends wait for the server (``DirectMode``) or not (``BackgroundMode``).
        serde: turns values into payloads; None takes bytes and text as they are.
        encryptor: seals messages; inherited from the client, None seals nothing.
        compression: how payloads are compressed; None leaves them alone.
        key_header: whether the key of a message travels in a header, for consumers.
        partitioning: where messages go that say nothing else; None is balanced.
        partitioner: asked for the partition of each call; inherited from the client.
        retry: how often a failed request is repeated.
        request_timeout: how long a call may take with all its attempts. Where a call is given more
            time with ``timeout=``, and in the background, it is what one attempt may take.
            Inherited from the client.
        idempotent_ids: whether messages get ids before the first attempt, so that a server with
            deduplication stores a repeated request once.
        create_stream_if_not_exists: whether a missing stream is created on entry.
        create_topic_if_not_exists: how a missing topic is created on entry; None never does.
    """

    mode: DirectMode | BackgroundMode = field(default_factory=DirectMode)
    serde: Serde[Any] | None = None
    encryptor: Encryptor | Inherited | None = INHERITED
    compression: Compression | None = None
    key_header: bool = True
    partitioning: Partitioning | None = None
    partitioner: Partitioner | Inherited | None = INHERITED
    retry: Retry = field(default_factory=Retry)
    request_timeout: float | None = None
    idempotent_ids: bool = False
    create_stream_if_not_exists: bool = False
    create_topic_if_not_exists: NewTopic | None = None

    def __post_init__(self) -> None:
        check_fields(self)


class DirectSettings(TypedDict, total=False):
    """The fields of ``DirectMode`` as keywords."""

    batch_length: int | None
    batch_size: int | None
    linger_time: Seconds


class BackgroundSettings(TypedDict, total=False):
    """The fields of ``BackgroundMode`` as keywords."""

    linger_time: Seconds
    batch_length: int | None
    batch_size: int | None
    max_buffer_size: int | None
    max_in_flight: int | None
    backpressure: Backpressure
    delivery_timeout: Seconds | None
    on_error: ErrorCallback | None


class NewTopicSettings(TypedDict, total=False):
    """The fields of ``NewTopic`` as keywords."""

    partitions_count: int | None
    message_expiry: Seconds | None
    max_topic_size: int | None
    replication_factor: int | None


class ProducerSettings(TypedDict, total=False):
    """The keywords of ``client.producer()``, besides ``serde``.

    The serde is a parameter of its own, because it decides the type of the values.
    """

    mode: DirectMode | BackgroundMode | None
    direct: DirectMode | DirectSettings | bool | None
    background: BackgroundMode | BackgroundSettings | bool | None
    encryptor: Encryptor | None
    compression: Compression | CompressionName | None
    key_header: bool
    partitioning: Partitioning | int | None
    partitioner: Partitioner | None
    retry: Retry | Literal[False] | None
    request_timeout: Seconds | None
    idempotent_ids: bool
    create_stream_if_not_exists: bool
    create_topic_if_not_exists: NewTopic | NewTopicSettings | bool | None
    topic_partitions_count: int | None
    topic_message_expiry: Seconds | None
    topic_max_size: int | None
    send_retries: int | None
    send_retry_interval: Seconds | None


def _as_mode(value: object) -> DirectMode | BackgroundMode:
    if isinstance(value, DirectMode | BackgroundMode):
        return value
    raise invalid_option("mode", value, "Pass a DirectMode or a BackgroundMode.")


def _as_direct(value: object) -> DirectMode:
    return _as_value("direct", DirectMode, value)


def _as_background(value: object) -> BackgroundMode:
    return _as_value("background", BackgroundMode, value)


def _as_new_topic(value: object) -> NewTopic | None:
    if value is None or value is False:
        return None
    return _as_value("create_topic_if_not_exists", NewTopic, value)


def _as_value(name: str, kind: type[V], value: object) -> V:
    """Take a value of a kind, the keywords of one, or True for its defaults."""
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping):
        check_settings(kind.__name__, value, kind)
        return kind(**value)
    if value is True:
        return kind()
    raise invalid_option(name, value, f"Pass a {kind.__name__}, a mapping of its fields, or True.")


def _as_compression(value: Any) -> Compression | None:
    """Take a compression, or the name of one."""
    return Compression(value) if isinstance(value, str) else value  # type: ignore[arg-type]


def as_partitioning(value: object) -> Partitioning | None:
    """Take a partitioning, or the number of a partition as the official SDK does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Partitioning.partition(value)
    if value is None or isinstance(value, Partitioning):
        return value
    raise invalid_option("partitioning", value, "Pass a Partitioning or the number of a partition.")


def _as_usual_partitioning(value: Any) -> Partitioning | None:
    if isinstance(value, int) and value < 0:
        raise invalid_option("partitioning", value, "Partitions count from 0.")
    return as_partitioning(value)


def _as_retry(value: Retry | Literal[False] | None) -> Retry:
    return value if isinstance(value, Retry) else Retry(attempts=0)


def _as_timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds = to_seconds(value, name="request_timeout")
    if seconds == 0:
        raise invalid_option("request_timeout", value, "Make request_timeout more than 0.")
    return seconds


# The name of each option: the field it writes, and how its value is read.
_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    **{row.name: (row.name, lambda value: value) for row in fields(ProducerOptions)},
    "mode": ("mode", _as_mode),
    "direct": ("mode", _as_direct),
    "background": ("mode", _as_background),
    "compression": ("compression", _as_compression),
    "partitioning": ("partitioning", _as_usual_partitioning),
    "retry": ("retry", _as_retry),
    "request_timeout": ("request_timeout", _as_timeout),
    "create_topic_if_not_exists": ("create_topic_if_not_exists", _as_new_topic),
}


# Keywords of the official producer() that have no counterpart of the same name: the field that they
# refine, and which of its fields. They are read after that one.
_OFFICIAL: Final[Mapping[str, tuple[str, str]]] = {
    "topic_partitions_count": ("create_topic_if_not_exists", "partitions_count"),
    "topic_message_expiry": ("create_topic_if_not_exists", "message_expiry"),
    "topic_max_size": ("create_topic_if_not_exists", "max_topic_size"),
    "send_retries": ("retry", "attempts"),
    "send_retry_interval": ("retry", "backoff"),
}


def _refine(options: ProducerOptions, name: str, value: Any) -> ProducerOptions:
    target, detail = _OFFICIAL[name]
    refined = getattr(options, target)
    # What is said of a topic counts only if one is to be created.
    if value is None or refined is None:
        return options
    try:
        return replace(options, **{target: replace(refined, **{detail: value})})
    except ConfigurationError as error:
        raise invalid_option(name, value, error.advice.replace(detail, name)) from None


OPTION_NAMES: Final = frozenset(_OPTIONS)
_MODES: Final = ("mode", "direct", "background")


def apply_option(options: ProducerOptions, name: str, value: Any) -> ProducerOptions:
    """Return the options with one of them changed.

    Raises:
        ConfigurationError: the value cannot be used.
        TypeError: there is no such option.
    """
    check_settings("producer", {name: value}, ProducerOptions, ProducerSettings)
    if name in _OFFICIAL:
        return _refine(options, name, value)
    target, read = _OPTIONS[name]
    return replace(options, **{target: read(value)})


def apply_options(options: ProducerOptions, changes: Mapping[str, Any]) -> ProducerOptions:
    """Return the options with several changed; what refines others is read after them."""
    left_out = {name for name in _MODES if changes.get(name) in (None, False)}
    modes = [name for name in _MODES if name not in left_out]
    if len(modes) > 1:
        raise invalid_option(" and ".join(modes), "given together", "Choose one mode.")
    for name in sorted(changes, key=_OFFICIAL.__contains__):
        if name not in left_out:
            options = apply_option(options, name, changes[name])
    return options
