"""Encode and decode JSON shapes, bodies, queries and user headers.

Errors of msgspec become errors of this package here.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode, b64encode
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec
from msgspec.inspect import BoolType, IntType, Type, UnionType, type_info

from iggy_protocol.errors import InvalidField, LocalProtocolError, RemoteProtocolError
from iggy_protocol.model.user import (
    GlobalPermissions,
    Permissions,
    StreamPermissions,
    TopicPermissions,
)
from iggy_protocol.options import OptionValue
from iggy_protocol.rest.shapes import (
    GlobalPermissionsShape,
    HeaderEntryShape,
    HeaderFieldShape,
    HeaderKindName,
    PermissionsShape,
    StreamPermissionsShape,
    TopicPermissionsShape,
    UserHeadersField,
)
from iggy_protocol.status_table import StatusCode
from iggy_protocol.user_headers import HeaderKey, HeaderKind, HeaderValue, decode_user_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


_T = TypeVar("_T")
_Q = TypeVar("_Q", bound=msgspec.Struct)

# msgspec ends its complaint with the place, as in "... - at `$.messages[0].id`".
_PLACE: Final = re.compile(r"^(?P<message>.*) - at (`key` in )?`\$\.?(?P<path>.*)`$", re.DOTALL)

_PREFIX: Final = struct.Struct("<BI")

# What Apache Iggy 0.8 reads as a number; msgspec's own lenience would take 1.0 and refuse 05.
_DIGITS: Final = re.compile(r"\+?0*([0-9]{1,20})")
_TRUTHS: Final = {"true": True, "false": False}

_KIND_NAMES: Final[dict[HeaderKind, HeaderKindName]] = dict(
    zip(HeaderKind, get_args(HeaderKindName), strict=True)
)


def encode_json(value: object) -> bytes:
    """Write a shape, a body or a sequence of them as JSON."""
    return msgspec.json.encode(value)


def decode_json(data: bytes | bytearray | memoryview | str, shape: type[_T]) -> _T:
    """Read JSON into a shape.

    Args:
        data: the body of a request or an answer.
        shape: what it should be, such as ``StreamShape`` or ``list[StreamShape]``.

    Raises:
        InvalidField: it is JSON, but of another shape; a server answers 422.
        RemoteProtocolError: it is no JSON at all; a server answers 400.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RemoteProtocolError(
            f"this is no JSON: {error}", have=len(data), status=StatusCode.INVALID_JSON_RESPONSE
        ) from None


def decode_query(query: Mapping[str, str], shape: type[_Q]) -> _Q:
    """Read the parameters of a query, which are all text, into a shape.

    Raises:
        InvalidField: a parameter is missing or of another kind; a server answers 400.
    """
    readers = _readers(shape)
    values = {name: readers.get(name, str)(text) for name, text in query.items()}
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def encode_header_entries(entries: Iterable[HeaderEntryShape]) -> bytes:
    """Write the block that a server stores for the entries of a message.

    The pairs are sorted by key, and of equal keys the last one counts. Sizes are not checked, as
    no server does: a block that does not add up comes back as bytes, not as entries.
    """
    pairs = {_header_field(entry.key): _header_field(entry.value) for entry in entries}
    return b"".join(
        _PREFIX.pack(kind, len(raw)) + raw
        for key in sorted(pairs)
        for kind, raw in (key, pairs[key])
    )


def interpret_user_headers(block: bytes | bytearray | memoryview) -> UserHeadersField:
    """Turn a stored block into entries, or into the bytes it is when it cannot be interpreted.

    The entries are sorted by key, in whichever order the producer wrote them.
    """
    try:
        headers = decode_user_headers(block)
    except RemoteProtocolError:
        return bytes(block)
    return tuple(
        HeaderEntryShape(key=_shape_of(key), value=_shape_of(headers[key]))
        for key in sorted(headers, key=lambda key: (key.kind, key.raw))
    )


def _read_number(text: str) -> int | str:
    match = _DIGITS.fullmatch(text)
    return text if match is None else int(match[1])


def _read_truth(text: str) -> bool | str:
    return _TRUTHS.get(text, text)


_QUERY_READERS: Final[dict[type[Type], Callable[[str], object]]] = {
    IntType: _read_number,
    BoolType: _read_truth,
}


@cache
def _readers(shape: type[msgspec.Struct]) -> Mapping[str, Callable[[str], object]]:
    """Say how the text of each parameter is read; what cannot be read so stays text."""
    readers: dict[str, Callable[[str], object]] = {}
    for field in msgspec.structs.fields(shape):
        known = type_info(field.type)
        for kind in known.types if isinstance(known, UnionType) else (known,):
            if type(kind) in _QUERY_READERS:
                readers[field.name] = _QUERY_READERS[type(kind)]
    return readers


def _refusal(complaint: str) -> InvalidField:
    match = _PLACE.match(complaint)
    if match is None:
        return InvalidField(complaint)
    return InvalidField(match["message"], field=re.sub(r"\[(\d+|\.+)\]", r".\1", match["path"]))


def _header_field(field: HeaderFieldShape) -> tuple[HeaderKind, bytes]:
    return HeaderKind[field.kind.upper()], field.value


def _shape_of(half: HeaderKey | HeaderValue) -> HeaderFieldShape:
    return HeaderFieldShape(kind=_KIND_NAMES[half.kind], value=half.raw)


# Convert the values of options from and to text.


def option_text(value: OptionValue) -> str:
    """Write a value as in a configuration file; bytes become base64."""
    scalar = value.value
    if isinstance(scalar, bool):
        return "true" if scalar else "false"
    return b64encode(scalar).decode() if isinstance(scalar, bytes) else str(scalar)


def option_from_text(kind: HeaderKind, text: str) -> OptionValue:
    """Read a value of a kind that ``option_text`` has written.

    Raises:
        InvalidField: the kind has no such value.
    """
    try:
        if kind is HeaderKind.STRING:
            return OptionValue.string(text)
        if kind is HeaderKind.RAW:
            return OptionValue.raw_bytes(b64decode(text, validate=True))
        if kind is HeaderKind.BOOL:
            return OptionValue.boolean(_TRUTHS[text])
        return _OPTION_NUMBERS[kind](int(text))
    except (KeyError, ValueError, LocalProtocolError):
        raise InvalidField(f"{text!r} is no option of kind {kind.name}") from None


_OPTION_NUMBERS: Final[Mapping[HeaderKind, Callable[[int], OptionValue]]] = {
    HeaderKind.UINT32: OptionValue.uint32,
    HeaderKind.UINT64: OptionValue.uint64,
}


# Convert permissions from and to JSON, where streams and topics are objects keyed by ids.


def permissions_from_shape(shape: PermissionsShape | None) -> Permissions | None:
    """Read permissions, by ascending ids."""
    if shape is None:
        return None
    server = GlobalPermissions(**msgspec.structs.asdict(shape.global_))
    streams = (_stream_from_shape(*entry) for entry in sorted((shape.streams or {}).items()))
    return Permissions(server, tuple(streams))


def _stream_from_shape(stream_id: int, shape: StreamPermissionsShape) -> StreamPermissions:
    flags = msgspec.structs.asdict(shape)
    flags["topics"] = tuple(
        TopicPermissions(topic_id, **msgspec.structs.asdict(topic))
        for topic_id, topic in sorted((shape.topics or {}).items())
    )
    return StreamPermissions(stream_id, **flags)


def permissions_to_shape(permissions: Permissions | None) -> PermissionsShape | None:
    """Write permissions; nothing below a level is ``null`` there."""
    if permissions is None:
        return None
    server = msgspec.convert(permissions.server, GlobalPermissionsShape, from_attributes=True)
    streams = {stream.stream_id: _stream_to_shape(stream) for stream in permissions.streams}
    return PermissionsShape(server, streams or None)


def _stream_to_shape(stream: StreamPermissions) -> StreamPermissionsShape:
    topics = {
        topic.topic_id: msgspec.convert(topic, TopicPermissionsShape, from_attributes=True)
        for topic in stream.topics
    }
    return StreamPermissionsShape(
        manage_stream=stream.manage_stream,
        read_stream=stream.read_stream,
        manage_topics=stream.manage_topics,
        read_topics=stream.read_topics,
        poll_messages=stream.poll_messages,
        send_messages=stream.send_messages,
        topics=topics or None,
    )
