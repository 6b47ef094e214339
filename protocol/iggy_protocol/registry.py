"""The table of commands by code, and encoding and decoding of all of them.

A command is a frozen dataclass with ``@command``, which registers its code, the layout of its
request and the layout of its reply, with what differs from dialect to dialect. Importing
``iggy_protocol.commands`` fills the table; a code that is declared twice raises an error.

Requests may have trailing bytes, as in Apache Iggy 0.8; replies may not. SendMessages and
PolledMessages, whose bodies are whole batches, have codecs of their own.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import CLASSIC, ByDialect, Dialect
from iggy_protocol.errors import (
    LocalProtocolError,
    NotInDialect,
    TrailingBytes,
    UnknownCommand,
)
from iggy_protocol.fields import Field, RecordStruct, StrictGreedyRange
from iggy_protocol.layout import Buffer, Layout
from iggy_protocol.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from iggy_protocol.framing import HeadroomBuffer


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Command(Generic[R_co]):
    """A request of a client; the type parameter is the type of its reply."""

    __slots__ = ()
    CODE: ClassVar[CommandCode]


class Codec(Protocol):
    """Encodes and decodes one payload."""

    def decode(self, payload: Buffer) -> Any:
        """Read the payload or raise RemoteProtocolError."""

    def encode(self, value: Any) -> Sequence[Buffer | HeadroomBuffer]:
        """Write the value as buffers to be sent one after another."""


class RecordCodec:
    """A payload that is exactly one record."""

    def __init__(self, layout: Layout[Any]) -> None:
        self.layout = layout

    def decode(self, payload: Buffer) -> Any:
        """Read the record."""
        return self.layout.decode(payload)

    def encode(self, value: Any) -> list[Buffer]:
        """Write the record."""
        return [self.layout.encode(value)]


class OptionalRecordCodec(RecordCodec):
    """One record, or no bytes when the resource does not exist."""

    def decode(self, payload: Buffer) -> Any:
        """Read the record, or ``None`` from no bytes."""
        return self.layout.decode(payload) if len(payload) else None

    def encode(self, value: Any) -> list[Buffer]:
        """Write the record, or no bytes for ``None``."""
        return [] if value is None else [self.layout.encode(value)]


class EmptyCodec:
    """No bytes."""

    def decode(self, payload: Buffer) -> None:
        """Check that there are no bytes."""
        if len(payload):
            raise TrailingBytes(
                f"the reply has no payload, but {len(payload)} bytes came", have=len(payload)
            )

    def encode(self, value: None) -> list[Buffer]:
        """Write nothing."""
        if value is not None:
            raise LocalProtocolError(f"the reply has no payload, but {value!r} was given")
        return []


EMPTY: Codec = EmptyCodec()


def reply_of_one(record: Field, name: str) -> Codec:
    """Declare a reply of one record."""
    return RecordCodec(Layout(name, record))


def reply_of_optional(record: Field, name: str) -> Codec:
    """Declare a reply of one record, or of no bytes when the resource does not exist."""
    return OptionalRecordCodec(Layout(name, record))


def reply_of_many(record: Field, name: str) -> Codec:
    """Declare a reply of records up to its end."""
    return RecordCodec(Layout(name, StrictGreedyRange(record)))


@record
class CommandSpec:
    """One row of the table of commands.

    Attributes:
        request: the codec of the request in each dialect; None where the command does not exist.
        reply: the codec of the reply in each dialect.
    """

    code: CommandCode
    command: type[Command[Any]]
    request: ByDialect[Codec | None]
    reply: ByDialect[Codec]


RequestLayout: TypeAlias = (
    "Codec | tuple[Field, ...] | Callable[[type[Command[Any]]], Field] | None"
)
"""How a command says what its request looks like in a dialect."""

_specs: dict[int, CommandSpec] = {}
COMMANDS = MappingProxyType(_specs)


def command(
    code: CommandCode,
    *fields: Field,
    reply: Codec | ByDialect[Codec],
    request: Codec | None = None,
    codec: Callable[[Layout[Any]], Codec] = RecordCodec,
    since: Dialect = CLASSIC,
    changes: Mapping[Dialect, RequestLayout] = MappingProxyType({}),
) -> Callable[[type[R]], type[R]]:
    """Register a command in the table.

    Args:
        code: its number on the wire.
        fields: the layout of the request, named as the fields of the dataclass.
        reply: the codec of the answer.
        request: a codec that takes the place of ``fields``.
        codec: makes the request's codec from the layout of its fields.
        since: the oldest dialect that has the command.
        changes: the dialects in which the request changes: its fields, the function that declares
            its layout for the class, or its codec from there on, or None where the command is gone.
    """

    def register(type_: type[R]) -> type[R]:
        if code in _specs:
            raise LocalProtocolError(f"{code!r} is {_specs[code].command.__name__} already")
        assert issubclass(type_, Command)

        def codec_of(layout: RequestLayout) -> Codec | None:
            if isinstance(layout, tuple):
                construct: Field = RecordStruct(type_, *layout)
            elif callable(layout):
                construct = layout(type_)
            else:
                return layout
            return codec(Layout(type_.__name__, construct, surplus_allowed=True))

        first = codec_of(request or fields)
        later = {dialect: codec_of(layout) for dialect, layout in changes.items()}
        requests = (
            ByDialect(first, later)
            if since is CLASSIC
            else ByDialect(None, {since: first, **later})
        )
        replies = reply if isinstance(reply, ByDialect) else ByDialect(reply)
        type_.CODE = code
        _specs[code] = CommandSpec(code, type_, requests, replies)
        return type_

    return register


def commands_of(dialect: Dialect) -> frozenset[CommandCode]:
    """Return the codes of all commands that exist in a dialect."""
    return _commands_of(dialect, len(_specs))


# Clients ask before each request; the count tells whether the commands are all declared yet.
@cache
def _commands_of(dialect: Dialect, specs_count: int) -> frozenset[CommandCode]:
    return frozenset(spec.code for spec in _specs.values() if spec.request[dialect] is not None)


def _request_codec(code: int, dialect: Dialect) -> Codec:
    spec = _specs.get(code)
    codec = spec.request[dialect] if spec is not None else None
    if codec is None:
        raise UnknownCommand(f"{code} is no command", field="code")
    return codec


def _reply_codec(code: int, dialect: Dialect) -> Codec:
    try:
        return _specs[code].reply[dialect]
    except KeyError:
        raise UnknownCommand(f"{code} is no command", field="code") from None


def compile_commands(codes: Iterable[int], dialect: Dialect) -> None:
    """Compile the layouts of commands and of their replies, which takes about a millisecond each.

    Otherwise the first request of each kind takes so much longer.
    """
    for code in codes:
        for codec in (_specs[code].request[dialect], _specs[code].reply[dialect]):
            if isinstance(codec, RecordCodec):
                codec.layout.compile()


def encode_request(
    request: Command[Any], dialect: Dialect = CLASSIC
) -> Sequence[Buffer | HeadroomBuffer]:
    """Write the payload of a request, without its frame.

    Raises:
        NotInDialect: the dialect has no such command.
        LocalProtocolError: a field does not fit the wire.
    """
    codec = _specs[request.CODE].request[dialect]
    if codec is None:
        raise NotInDialect(f"{type(request).__name__} does not exist in {dialect}")
    return codec.encode(request)


def decode_request(code: int, payload: Buffer, dialect: Dialect = CLASSIC) -> Command[Any]:
    """Read the payload of a request.

    Raises:
        RemoteProtocolError: the code or the payload is wrong; ``status`` says what to answer.
    """
    value = _request_codec(code, dialect).decode(payload)
    assert isinstance(value, Command)
    return value


def encode_reply(code: int, reply: object, dialect: Dialect = CLASSIC) -> Sequence[Buffer]:
    """Write the payload of the reply to the command with this code.

    Raises:
        LocalProtocolError: the reply does not fit the command.
    """
    buffers: Sequence[Any] = _reply_codec(code, dialect).encode(reply)
    return buffers


def decode_reply(code: int, payload: Buffer, dialect: Dialect = CLASSIC) -> Any:
    """Read the payload of a successful reply to the command with this code.

    Raises:
        RemoteProtocolError: the payload is not such a reply.
    """
    return _reply_codec(code, dialect).decode(payload)
