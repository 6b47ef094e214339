"""A message of a producer, and the size limits of its parts."""

from __future__ import annotations

from typing import NamedTuple

from iggy_protocol.layout import Buffer

PAYLOAD_BYTES_MAX = 64_000_000
USER_HEADERS_BYTES_MAX = 100_000


class NewMessage(NamedTuple):
    """A message to be sent.

    Attributes:
        payload: the content, any bytes-like object.
        id: 0 asks the server to choose one.
        user_headers: an encoded block of user headers.
        origin_timestamp_us: the producer's clock; ``None`` takes the time of the whole batch.
    """

    payload: Buffer
    id: int = 0
    user_headers: bytes = b""
    origin_timestamp_us: int | None = None
