"""Whether a reply is the recorded one: masks, prefixes, and words for what differs.

Pure: bytes in, a sentence or nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import ProtocolError, decode_reply
from tests.server.replay.raw_peer import Absence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.server.replay.recording import Exchange, Mask

SHOWN_CHARACTERS = 700


def difference(exchange: Exchange, got: bytes | Absence) -> str | None:
    """Say how what came differs from what was recorded; None if it does not count."""
    if exchange.compare == "any":
        return None
    wanted = _recorded(exchange)
    if isinstance(wanted, bytes) and isinstance(got, bytes):
        if _is_equal(exchange, wanted, got):
            return None
    elif wanted is got:
        return None
    return f"recorded {describe(exchange.code, wanted)}\n     got {describe(exchange.code, got)}"


def _recorded(exchange: Exchange) -> bytes | Absence:
    if exchange.reply is not None:
        return exchange.reply
    return Absence.SILENCE if exchange.is_silent else Absence.CLOSED


def _is_equal(exchange: Exchange, wanted: bytes, got: bytes) -> bool:
    mode, _, length = exchange.compare.partition(":")
    if mode == "status":
        return wanted[:4] == got[:4]
    if mode == "prefix":
        end = int(length)
        return _masked(wanted[:end], exchange.masks) == _masked(got[:end], exchange.masks)
    return _masked(wanted, exchange.masks) == _masked(got, exchange.masks)


def _masked(frame: bytes, masks: Sequence[Mask]) -> bytes:
    """Blank the masked bytes, and keep the length."""
    blanked = bytearray(frame)
    for mask in masks:
        end = min(mask.end, len(frame))
        blanked[mask.start : end] = bytes(max(0, end - mask.start))
    return bytes(blanked)


def describe(code: int | None, frame: bytes | Absence) -> str:
    """Say what a frame is, as far as it can be decoded."""
    if isinstance(frame, Absence):
        return frame.value
    status = int.from_bytes(frame[:4], "little")
    text = f"status {status}, {len(frame)} bytes"
    if status == 0 and code is not None and len(frame) > 8:
        try:
            text += f": {decode_reply(code, frame[8:])}"
        except ProtocolError:
            text += " that do not decode"
    text += f" [{frame.hex()}]"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
