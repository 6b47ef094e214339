"""The refusal of a first QUIC packet: one CONNECTION_CLOSE packet, for which no state is kept."""

from __future__ import annotations

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.connection import TRANSPORT_CLOSE_FRAME_CAPACITY
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicFrameType, QuicHeader, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder

__all__ = ["refuse"]


def refuse(header: QuicHeader, error_code: int) -> bytes:
    """Build the packet that refuses a connection."""
    assert header.version is not None
    crypto = CryptoPair()
    crypto.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
    builder = QuicPacketBuilder(
        host_cid=header.destination_cid,
        is_client=False,
        max_datagram_size=SMALLEST_MAX_DATAGRAM_SIZE,
        peer_cid=header.source_cid,
        version=header.version,
    )
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    frame = builder.start_frame(
        QuicFrameType.TRANSPORT_CLOSE, capacity=TRANSPORT_CLOSE_FRAME_CAPACITY
    )
    frame.push_uint_var(error_code)
    frame.push_uint_var(QuicFrameType.PADDING)
    frame.push_uint_var(0)
    datagrams, _ = builder.flush()
    return bytes(datagrams[0])
