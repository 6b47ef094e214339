"""JSON in and out: the one place where msgspec's errors become the protocol's.

Owns reading and writing of shapes, bodies and queries, and the two forms of user headers. Knows
neither routes nor commands.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from iggy_protocol.codes import StatusCode
from iggy_protocol.errors import InvalidField, RemoteProtocolError
from iggy_protocol.rest.shapes import HeaderEntryShape, HeaderFieldShape, HeaderKindName
from iggy_protocol.user_headers import HeaderKind, decode_user_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_protocol.rest.shapes import UserHeadersField
    from iggy_protocol.user_headers import HeaderKey, HeaderValue

__all__ = [
    "decode_json",
    "decode_query",
    "encode_header_entries",
    "encode_json",
    "interpret_user_headers",
]

_T = TypeVar("_T")

# msgspec ends its complaint with the place, as in "... - at `$.messages[0].id`".
_PLACE: Final = re.compile(r"^(?P<message>.*) - at (`key` in )?`\$\.?(?P<path>.*)`$", re.DOTALL)

_PREFIX: Final = struct.Struct("<BI")

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


def decode_query(query: Mapping[str, str], shape: type[_T]) -> _T:
    """Read the parameters of a query, which are all text, into a shape.

    Raises:
        InvalidField: a parameter is missing or of another kind; a server answers 400.
    """
    try:
        return msgspec.convert(query, shape, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def encode_header_entries(entries: Iterable[HeaderEntryShape]) -> bytes:
    """Write the block that a server stores for the entries of a message.

    The pairs are sorted by key, and of equal keys the last one counts. Sizes are not checked, as
    no server does: a block that does not add up comes back as bytes, not as entries.
    """
    pairs = {_half(entry.key): _half(entry.value) for entry in entries}
    return b"".join(
        _PREFIX.pack(kind, len(raw)) + raw
        for key in sorted(pairs)
        for kind, raw in (key, pairs[key])
    )


def interpret_user_headers(block: bytes | bytearray | memoryview) -> UserHeadersField:
    """Turn a stored block into entries, or into the bytes it is when it cannot be interpreted."""
    try:
        headers = decode_user_headers(block)
    except RemoteProtocolError:
        return bytes(block)
    return tuple(
        HeaderEntryShape(key=_shape_of(key), value=_shape_of(value))
        for key, value in headers.items()
    )


def _refusal(complaint: str) -> InvalidField:
    match = _PLACE.match(complaint)
    if match is None:
        return InvalidField(complaint)
    return InvalidField(match["message"], field=re.sub(r"\[(\d+|\.+)\]", r".\1", match["path"]))


def _half(field: HeaderFieldShape) -> tuple[HeaderKind, bytes]:
    return HeaderKind[field.kind.upper()], field.value


def _shape_of(half: HeaderKey | HeaderValue) -> HeaderFieldShape:
    return HeaderFieldShape(kind=_KIND_NAMES[half.kind], value=half.raw)
