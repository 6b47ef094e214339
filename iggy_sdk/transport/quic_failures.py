"""Errors of a failed QUIC handshake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioquic.quic.packet import QuicErrorCode
from aioquic.tls import AlertDescription

from iggy_sdk.errors import ConnectionFailedError
from iggy_sdk.transport.tcp import describe
from iggy_sdk.transport.tls import ADVICE, EXPIRED, NAME_MISMATCH, NOT_YET_VALID, UNTRUSTED_ADVICE

if TYPE_CHECKING:
    from aioquic.quic.events import ConnectionTerminated

    from iggy_sdk.options import Endpoint

__all__ = ["SILENCE_ADVICE", "handshake_failure"]

SILENCE_ADVICE: Final = (
    "Check host and port, that the server serves QUIC, and that nothing on the way blocks UDP."
)
REFUSED_ADVICE: Final = "Try again later, or raise limits.quic on the server."
OTHER_ADVICE: Final = "Check that an Iggy server of version 0.8 serves QUIC on this port."
CLIENT_CERTIFICATE_ADVICE: Final = "Set tls_client_cert and tls_client_key: the server asks for it."

# aioquic raises one of these alerts when it rejects the certificate of the server.
CERTIFICATE_ALERTS: Final = frozenset(
    {
        AlertDescription.bad_certificate,
        AlertDescription.certificate_expired,
        AlertDescription.unsupported_certificate,
    }
)


def handshake_failure(
    endpoint: Endpoint, verdict: ConnectionTerminated, *, by_peer: bool
) -> ConnectionFailedError:
    """Make the error of a failed handshake, with advice."""
    where, reason = describe(endpoint), verdict.reason_phrase
    alert = verdict.error_code - QuicErrorCode.CRYPTO_ERROR
    if not by_peer and alert in CERTIFICATE_ALERTS:
        return ConnectionFailedError(
            f"the certificate of {where} is not accepted: {reason}",
            advice=_certificate_advice(alert, reason),
            retriable=False,
        )
    if verdict.error_code == QuicErrorCode.CONNECTION_REFUSED:
        return ConnectionFailedError(
            f"{where} refuses the connection: {reason or 'its connection limit is reached'}",
            advice=REFUSED_ADVICE,
        )
    if reason == "Idle timeout":
        return ConnectionFailedError(f"{where} did not answer", advice=SILENCE_ADVICE)
    if by_peer and alert == AlertDescription.certificate_required:
        return ConnectionFailedError(
            f"{where} refuses the QUIC handshake: it wants a client certificate",
            advice=CLIENT_CERTIFICATE_ADVICE,
            retriable=False,
        )
    reason = reason or _name(verdict.error_code)
    return ConnectionFailedError(
        f"the QUIC handshake with {where} failed: {reason}",
        advice=OTHER_ADVICE,
        retriable=False,
    )


def _certificate_advice(alert: int, reason: str) -> str:
    if alert == AlertDescription.certificate_expired:
        return ADVICE[NOT_YET_VALID if "not valid yet" in reason else EXPIRED]
    return ADVICE[NAME_MISMATCH] if "hostname" in reason else UNTRUSTED_ADVICE


def _name(code: int) -> str:
    alert = code - QuicErrorCode.CRYPTO_ERROR
    if alert in AlertDescription._value2member_map_:
        return AlertDescription(alert).name.replace("_", " ")
    return f"error {code:#x}"
