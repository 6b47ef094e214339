"""The attributes of ``aioquic`` that are no part of its documented interface, and are used here.

Subclassing the library's connection depends on them, so the versions that have been tried are
pinned. The check at the end of this module runs before anything else of this package is imported,
so a version without one of them is refused with a sentence instead of failing in a connection.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aioquic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


AIOQUIC_VERSIONS: Final = ">=1.7,<1.8"
"""The versions that work, as the extras of the distribution require them."""


class AioquicInternal(NamedTuple):
    """One undocumented attribute.

    Attributes:
        module: the module of the class, below ``aioquic``.
        owner: the class; empty for a name of the module itself.
        attribute: its name.
        reason: what it is used for.
    """

    module: str
    owner: str
    attribute: str
    reason: str

    @property
    def name(self) -> str:
        """The attribute with its class or module."""
        return f"{self.owner or self.module}.{self.attribute}"


CONNECTION, PACKET, RECOVERY = "quic.connection", "quic.packet", "quic.recovery"
STREAM, CONGESTION = "quic.stream", "quic.congestion.base"


def _rows(module: str, owner: str, reasons: dict[str, str]) -> list[AioquicInternal]:
    return [AioquicInternal(module, owner, *row) for row in reasons.items()]


AIOQUIC_INTERNALS: Final = (
    *_rows(
        CONNECTION,
        "QuicConnection",
        {
            "_ack_delay": "a single datagram is acknowledged later, with a request or a reply",
            "_close_begin": "a stateless reset ends the connection",
            "_close_event": "the end is known before its event, which comes after the drain time",
            "_crypto_streams": "whether session tickets are left to write",
            "_handshake_confirmed": "no packet is saved before that",
            "_host_cids": "connection ids get tokens that can be derived again",
            "_local_max_data": "the connection's receive window slides and never grows",
            "_local_max_streams_bidi": "the peer may open few streams",
            "_local_max_streams_uni": "the peer may open no unidirectional streams",
            "_local_next_stream_id_bidi": "whether another stream may be opened",
            "_loss": "leads to the pacer and to the congestion control",
            "_max_datagram_size": "datagrams grow after the handshake",
            "_pacing_at": "a pacer that has nothing to write sets no timer",
            "_parse_transport_parameters": "reads the max_udp_payload_size of the peer",
            "_peer_cid": "has the token by which a stateless reset is recognised",
            "_remote_max_streams_bidi": "whether another stream may be opened",
            "_replenish_connection_ids": "connection ids get tokens that can be derived again",
            "_spaces": "when the next acknowledgement is due",
            "_state": "whether the connection is established, and which end has closed it",
            "_streams": "the bytes that are unsent, unacknowledged or out of order",
            "_streams_queue": "whether stream data is left to write",
            "_write_stream_limits": "a paused stream gets no credit",
        },
    ),
    *_rows(
        CONNECTION,
        "Limit",
        {
            "sent": "a limit from the start is not announced again",
            "used": "the received bytes, with which the window slides",
            "value": "the limit, which the library would double",
        },
    ),
    *_rows(
        CONNECTION,
        "QuicConnectionId",
        {
            "cid": "the id from which a token is derived",
            "stateless_reset_token": "the token of a stateless reset",
        },
    ),
    *_rows(
        RECOVERY,
        "QuicPacketRecovery",
        {
            "_cc": "the congestion control knows the size of datagrams",
            "_pacer": "is replaced by one that stops when nothing is left to write",
        },
    ),
    *_rows(
        RECOVERY,
        "QuicPacketPacer",
        {
            "_max_datagram_size": "datagrams grow after the handshake",
            "next_send_time": "where the library asks whether to begin a packet",
            "update_after_send": "where it says that a packet was written",
        },
    ),
    *_rows(
        CONGESTION,
        "QuicCongestionControl",
        {
            "_max_datagram_size": "datagrams grow after the handshake",
            "congestion_window": "holds as many of the larger datagrams",
        },
    ),
    *_rows(RECOVERY, "QuicPacketSpace", {"ack_at": "when the next acknowledgement is due"}),
    *_rows(
        STREAM,
        "QuicStream",
        {
            "receiver": "what has arrived of a stream",
            "sender": "what was written to a stream",
            "stream_id": "which stream it is",
        },
    ),
    *_rows(
        STREAM,
        "QuicStreamReceiver",
        {
            "_buffer": "the bytes that came out of order",
            "is_finished": "a stream that has ended need not be stopped",
        },
    ),
    *_rows(
        STREAM,
        "QuicStreamSender",
        {
            "_buffer": "the bytes that are not acknowledged",
            "_buffer_fin": "whether the end of the stream was written",
            "_pending": "the bytes that are not sent",
            "_pending_eof": "whether the end of the stream is not sent",
            "buffer_is_empty": "whether all was sent once",
            "is_finished": "whether all was acknowledged",
        },
    ),
    *_rows("_buffer", "", {"Buffer": "reads headers and transport parameters"}),
    *_rows(CONGESTION, "", {"K_INITIAL_WINDOW": "the congestion window in datagrams"}),
    *_rows(
        PACKET,
        "",
        {"pull_quic_transport_parameters": "reads the max_udp_payload_size of the peer"},
    ),
)
"""Every attribute that is used although ``aioquic`` does not document it."""

# How to reach an object of each class; most attributes exist on objects alone.
_EXAMPLES: Final[dict[str, Callable[[Any], object]]] = {
    "QuicConnection": lambda core: core,
    "Limit": lambda core: core._local_max_data,
    "QuicConnectionId": lambda core: core._host_cids[0],
    "QuicPacketRecovery": lambda core: core._loss,
    "QuicPacketPacer": lambda core: core._loss._pacer,
    "QuicCongestionControl": lambda core: core._loss._cc,
    "QuicPacketSpace": lambda core: _find("quic.recovery", "QuicPacketSpace")(),
    "QuicStream": lambda core: _find("quic.stream", "QuicStream")(),
    "QuicStreamReceiver": lambda core: _find("quic.stream", "QuicStream")().receiver,
    "QuicStreamSender": lambda core: _find("quic.stream", "QuicStream")().sender,
}


def _find(module: str, name: str) -> Any:
    return getattr(import_module(f"aioquic.{module}"), name)


def check_aioquic(internals: Iterable[AioquicInternal] = AIOQUIC_INTERNALS) -> None:
    """Check that the installed ``aioquic`` has these attributes; takes half a millisecond.

    Raises:
        ImportError: one of them is missing.
    """
    configuration = _find("quic.configuration", "QuicConfiguration")(is_client=True)
    core = _find(CONNECTION, "QuicConnection")(configuration=configuration)
    for internal in internals:
        try:
            found: object = import_module(f"aioquic.{internal.module}")
            if internal.owner:
                getattr(found, internal.owner)
                # Rows are in an order in which the way to an object is checked before it is gone.
                found = _EXAMPLES[internal.owner](core)
            getattr(found, internal.attribute)
        except (ImportError, AttributeError) as error:
            raise ImportError(_missing_text(internal), name="aioquic") from error


def _missing_text(internal: AioquicInternal) -> str:
    return (
        f"aioquic {aioquic.__version__} has no {internal.name}, which QUIC connections need "
        f"({internal.reason}); versions that work: {AIOQUIC_VERSIONS}. "
        "Run: pip install 'iggy-python[quic]'"
    )


check_aioquic()
