"""Reads the path, query and body of a request, each within its limits.

Malformed parts are rejected with the statuses of Apache Iggy: 400 for a path, a query or invalid
JSON, 413 for a large body, 415 for another content type, 422 for JSON of another shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import trio

from iggy_protocol import InvalidField, RemoteProtocolError
from iggy_protocol.rest import decode_json, decode_query
from iggy_ref_server.client_limits import PROGRESS_BYTES_MIN
from iggy_ref_server.web.connection import BODY_COPIES, RequestBuffers
from iggy_ref_server.web.errors import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Receive, Scope


# Bodies up to this size never wait for others. It is enough for a login, and for the refresh of a
# long token of an external issuer.
SMALL_BODY_BYTES: Final = 1 << 16
# The limit of larger bodies in memory; with the default size 128 MB.
LARGE_BODIES_MAX: Final = 64
# The slowest accepted sender: below this a client holds memory on purpose.
BODY_BYTES_PER_SECOND_MIN: Final = 1 << 14
U32_MAX: Final = 2**32 - 1
U32_DIGITS: Final = len(str(U32_MAX))


@dataclass(slots=True)
class BodyLimits:
    """The limits of request bodies.

    Attributes:
        size_max_bytes: of one body.
        stall_timeout_s: the time for a body in addition to its time at the slowest speed, and the
            time in which a body must be complete or grow by a minimum.
        large: limits the large bodies in memory.
    """

    size_max_bytes: int
    stall_timeout_s: float
    large: trio.Semaphore

    @classmethod
    def of(cls, size_max_bytes: int, stall_timeout_s: float) -> BodyLimits:
        """Make the limits of a listener."""
        return cls(size_max_bytes, stall_timeout_s, trio.Semaphore(LARGE_BODIES_MAX))

    def for_unauthenticated(self) -> BodyLimits:
        """Return the limits for requests without a token, which must not delay others."""
        return replace(self, size_max_bytes=min(self.size_max_bytes, SMALL_BODY_BYTES))


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return the first header with a lower-case name."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value for found, value in headers if found == name), None)


# Paths and queries


def _read_number(text: str) -> int | None:
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    # Python refuses to read thousands of digits at all, even if most of them are zeros.
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= U32_DIGITS and int(digits) <= U32_MAX else None


def _read_bool(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


_READERS: Final[Mapping[str, tuple[str, Callable[[str], int | None]]]] = {
    "client_id": ("u32", _read_number),
    "partition_id": ("u32", _read_number),
    "fsync": ("bool", _read_bool),
}


def read_values(raw: Mapping[str, str]) -> dict[str, Any]:
    """Decode the raw parameters of a path.

    Raises:
        Rejection: a parameter is malformed.
    """
    values: dict[str, Any] = {}
    for place, (name, text) in enumerate(raw.items()):
        try:
            value = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            raise Rejection(400, f"Invalid URL: Invalid UTF-8 in `{name}`") from None
        values[name] = value
        if name in _READERS:
            kind, read = _READERS[name]
            values[name] = read(value)
            if values[name] is None:
                where = f"value at index {place} with value " if len(raw) > 1 else ""
                text = f"Invalid URL: Cannot parse {where}`{value}` to a `{kind}`"
                raise Rejection(400, text)
    return values


def read_query(scope: Scope, shape: type[Any] | None) -> Any:
    """Read the query into a shape.

    Raises:
        Rejection: a parameter is missing or of another kind.
    """
    if shape is None:
        return None
    try:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        values = dict(pairs)
        for name in shape.__struct_fields__ if len(values) < len(pairs) else ():
            if sum(name == given for given, _ in pairs) > 1:
                raise ValueError(f"duplicate field `{name}`")
        return decode_query(values, shape)
    except (InvalidField, ValueError) as error:
        raise Rejection(400, f"Failed to deserialize query string: {_error_text(error)}") from None


def _error_text(error: Exception) -> str:
    field = getattr(error, "field", "")
    return f"{field}: {error}" if field else str(error)


# Bodies


async def read_json(
    scope: Scope,
    receive: Receive,
    shape: type[Any] | None,
    limits: BodyLimits,
    buffers: RequestBuffers,
    choose: Callable[[bytes], Any] | None = None,
) -> Any:
    """Read the body into a shape.

    Args:
        scope: the request.
        receive: returns the pieces of its body.
        shape: what the body is; None where there is none.
        limits: those of the listener.
        buffers: counts what the body takes.
        choose: chooses the shape by the content, where there are several.

    Raises:
        Rejection: it is too large, too slow, no JSON or of another shape, or there is no room.
    """
    if shape is None:
        return None
    kind = (header_of(scope, b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (
        kind.startswith(b"application/") and kind.endswith(b"+json")
    ):
        raise Rejection(415, "Expected request with `Content-Type: application/json`")
    content = await read_body(scope, receive, limits, buffers)
    try:
        return decode_json(content, shape if choose is None else choose(content))
    except InvalidField as error:
        text = f"Failed to deserialize the JSON body into the target type: {_error_text(error)}"
        raise Rejection(422, text) from None
    except (RemoteProtocolError, RecursionError) as error:
        raise Rejection(400, f"Failed to parse the request body as JSON: {error}") from None


async def read_body(
    scope: Scope, receive: Receive, limits: BodyLimits, buffers: RequestBuffers
) -> bytes:
    """Read the whole body, as fast as there is room for it.

    Raises:
        Rejection: it is too large or too slow, there is no room, or the client is gone.
    """
    length = header_of(scope, b"content-length")
    stated = int(length) if length is not None and length.isdigit() else None
    if stated is not None and stated > limits.size_max_bytes:
        raise _too_large()
    timeout_s = limits.stall_timeout_s + limits.size_max_bytes / BODY_BYTES_PER_SECOND_MIN
    with trio.move_on_after(timeout_s):
        if min(stated or limits.size_max_bytes, limits.size_max_bytes) <= SMALL_BODY_BYTES:
            return await _gather(receive, limits, _Progress(buffers, limits.stall_timeout_s))
        async with limits.large:
            progress = _Progress(buffers, limits.stall_timeout_s, stated, waits=True)
            await progress.note(0)
            return await _gather(receive, limits, progress)
    if buffers.is_waiting:
        raise Rejection(503, "There is no room for a body of this size at the moment")
    raise _too_slow()


class _Progress:
    """How far a body has come: counted in the budget, and within its time.

    Args:
        buffers: the account.
        stall_timeout_s: how long the body may take to be complete or to grow by a minimum.
        stated: how long it will be, where that is known.
        waits: whether it has to wait where there is no room.
    """

    def __init__(
        self,
        buffers: RequestBuffers,
        stall_timeout_s: float,
        stated: int | None = None,
        *,
        waits: bool = False,
    ) -> None:
        self._buffers = buffers
        self._stalled_s = stall_timeout_s
        self._stated = stated or 0
        self._waits = waits
        self._due_bytes = PROGRESS_BYTES_MIN
        self.timeout = trio.CancelScope(deadline=trio.current_time() + stall_timeout_s)

    async def note(self, size_bytes: int) -> None:
        """Note how much has come; what waits for room loses no time by that."""
        missing_bytes = max(0, self._stated - size_bytes)
        held_bytes, wanted_bytes = size_bytes * BODY_COPIES, missing_bytes * BODY_COPIES
        self._buffers.hold(held_bytes, wanted_bytes)
        is_complete = self._stated and not missing_bytes
        if self._waits and not is_complete and self._buffers.is_paused:
            self.timeout.deadline = float("inf")
            await self._buffers.wait_for_room(held_bytes, wanted_bytes)
        elif size_bytes < self._due_bytes:
            return
        self._due_bytes = size_bytes + PROGRESS_BYTES_MIN
        self.timeout.deadline = trio.current_time() + self._stalled_s


async def _gather(receive: Receive, limits: BodyLimits, progress: _Progress) -> bytes:
    pieces: list[bytes] = []
    size_bytes = 0
    with progress.timeout:
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Rejection(400, "Failed to buffer the request body: the client disconnected")
            piece = message.get("body", b"")
            size_bytes += len(piece)
            if size_bytes > limits.size_max_bytes:
                raise _too_large()
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
            await progress.note(size_bytes)
    raise _too_slow()


def _too_slow() -> Rejection:
    return Rejection(408, "The request body did not arrive in time")


def _too_large() -> Rejection:
    return Rejection(413, "Failed to buffer the request body: length limit exceeded")
