"""An optional part of the protocol: the WebSocket frames of both ends, after the handshake.

    FrameReader           server   decodes requests: payloads are handed out in unmasked pieces
    InPlaceFrameReader    client   decodes replies: payloads are moved together where they were read
    ReplyFramer           server   encodes replies, with gaps for bytes that are sent from files
    RequestFramer         client   encodes requests, masked

Both readers are a ``FrameDecoder``, which has everything but the payloads. Like the rest of the
package it has no socket and no clock, and random bytes are an argument. ``import iggy_protocol``
does not load this part.
"""

from __future__ import annotations

try:
    import websockets as _websockets  # noqa: F401  its absence gets a text of its own
except ImportError as error:
    raise ModuleNotFoundError(
        "WebSocket needs the library websockets. Run: pip install 'iggy-python[websocket]'",
        name="websockets",
    ) from error

from iggy_protocol.websocket.decoder import FrameDecoder, FrameReader, InPlaceFrameReader
from iggy_protocol.websocket.encoder import ReplyFramer, RequestFramer

__all__ = [
    "FrameDecoder",
    "FrameReader",
    "InPlaceFrameReader",
    "ReplyFramer",
    "RequestFramer",
]
