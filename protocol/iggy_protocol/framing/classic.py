"""The classic dialect: eight bytes in front of every payload, for servers up to 0.8.

    request     0  u32  length   counts the code and the payload, so at least 4
                4  u32  code
                8       payload  length - 4 bytes

    response    0  u32  status   0 is success
                4  u32  length   counts the payload only
                8       payload  never on errors, and never of exactly one byte

The two lengths follow different rules, and responses name no request: they come in the order of
the requests.
"""

from __future__ import annotations

from construct import Int32ul, Struct

from iggy_protocol.layout import Buffer, derive_struct

REQUEST_HEAD = Struct("length" / Int32ul, "code" / Int32ul)
RESPONSE_HEAD = Struct("status" / Int32ul, "length" / Int32ul)

REQUEST_HEADROOM = REQUEST_HEAD.sizeof()
"""Free bytes to leave in front of a payload so that its head can be written in place."""

CODE_BYTES = 4
"""The part of the head that a request's length counts."""

LENGTH_MAX = 2**32 - 1

# Two small heads are read and written for every frame, so the declarations above are run as a
# struct.Struct: a hundred nanoseconds where construct's compiled form takes some thousand.
_REQUEST, _ = derive_struct(REQUEST_HEAD)
_RESPONSE, _ = derive_struct(RESPONSE_HEAD)


class ClassicFraming:
    """The heads of the classic dialect; stateless, so there is one: ``CLASSIC_FRAMING``."""

    __slots__ = ()

    request_head_bytes: int = _REQUEST.size
    response_head_bytes: int = _RESPONSE.size
    payload_bytes_max = LENGTH_MAX - CODE_BYTES

    @staticmethod
    def read_request_head(buffer: Buffer, position: int) -> tuple[int, int]:
        """Return the code and the payload size, negative when the length is below its minimum."""
        length, code = _REQUEST.unpack_from(buffer, position)
        return code, length - CODE_BYTES

    @staticmethod
    def read_response_head(buffer: Buffer, position: int) -> tuple[int, int]:
        """Return the status and the payload size."""
        status, length = _RESPONSE.unpack_from(buffer, position)
        return status, length

    @staticmethod
    def request_head(code: int, payload_bytes: int) -> bytes:
        """Return the head of a request."""
        return _REQUEST.pack(payload_bytes + CODE_BYTES, code)

    @staticmethod
    def response_head(status: int, payload_bytes: int) -> bytes:
        """Return the head of a response."""
        return _RESPONSE.pack(status, payload_bytes)

    @staticmethod
    def write_request_head(
        buffer: bytearray | memoryview, position: int, code: int, payload_bytes: int
    ) -> None:
        """Write the head of a request into ``buffer``."""
        _REQUEST.pack_into(buffer, position, payload_bytes + CODE_BYTES, code)


CLASSIC_FRAMING = ClassicFraming()
