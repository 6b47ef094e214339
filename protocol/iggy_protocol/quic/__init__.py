"""An optional part of the protocol: the state machine of a QUIC connection, for both ends.

It is that of ``aioquic`` with additions, and like the rest of the package it has no socket and no
clock: datagrams and the time go in, events and datagrams come out. ``split_runs`` and
``segment_option`` prepare datagrams for one system call. ``import iggy_protocol`` does not load
this part.
"""

from __future__ import annotations

try:
    import aioquic as _aioquic  # noqa: F401  its absence gets a text of its own
except ImportError as error:
    raise ModuleNotFoundError(
        "QUIC needs the library aioquic. Run: pip install 'iggy-python[quic]'", name="aioquic"
    ) from error

from iggy_protocol.quic.aioquic_internals import (
    AIOQUIC_INTERNALS,
    AIOQUIC_VERSIONS,
    AioquicInternal,
    check_aioquic,
)
from iggy_protocol.quic.core import (
    LONG_HEADER,
    RESET_BYTES_MIN,
    RESET_TOKEN_BYTES,
    RUN_BYTES_MAX,
    SEGMENTATION_ERRNOS,
    SEGMENTS_MAX,
    QuicClientCore,
    QuicCore,
    QuicServerCore,
    segment_option,
    split_runs,
)

__all__ = [
    "AIOQUIC_INTERNALS",
    "AIOQUIC_VERSIONS",
    "LONG_HEADER",
    "RESET_BYTES_MIN",
    "RESET_TOKEN_BYTES",
    "RUN_BYTES_MAX",
    "SEGMENTATION_ERRNOS",
    "SEGMENTS_MAX",
    "AioquicInternal",
    "QuicClientCore",
    "QuicCore",
    "QuicServerCore",
    "check_aioquic",
    "segment_option",
    "split_runs",
]
