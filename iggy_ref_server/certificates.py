"""TLS of the listeners: certificate files, or a self-signed development certificate.

    cert_file exists                   it is used, with key_file
    it does not, self_signed = true    a certificate for localhost is made in the runtime directory
    it does not, self_signed = false   refused

The development certificate is made once per runtime directory, so that all shards use the same one.
Opens no socket.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iggy_protocol import record
from iggy_ref_server.config.sources import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from iggy_ref_server.config.schema import TlsConfig


# Within the data directory. A development certificate stays the same across restarts, so that
# clients can pin it.
CERTIFICATES_DIRECTORY: Final = "certificates"
DEVELOPMENT_CERTIFICATE: Final = "development_cert.pem"
DEVELOPMENT_KEY: Final = "development_key.pem"
DEVELOPMENT_LIFETIME: Final = timedelta(days=365)
# Clocks of clients differ, and a certificate should not expire while the server runs.
CLOCK_TOLERANCE: Final = timedelta(days=1)

# Of the encoding of certificates (ITU-T X.690).
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
LONG_SIZE = 0x80


class CertificateError(Exception):
    """No certificate can be used; the message says what to do."""


@record
class CertificateFiles:
    """A certificate chain and its key, as PEM files.

    Attributes:
        certificate: the chain.
        key: the private key.
        is_development: whether it is self-signed by this server, so that no client trusts it yet.
    """

    certificate: Path
    key: Path
    is_development: bool


def find_certificate(
    tls: TlsConfig, *, working_directory: Path, runtime_directory: Path, now_us: int
) -> CertificateFiles:
    """Find the certificate of a listener, or make one for development.

    Args:
        tls: the listener's TLS section of the configuration.
        working_directory: where relative paths start.
        runtime_directory: where a development certificate is kept; it exists.
        now_us: the time of day in microseconds since 1970.

    Raises:
        CertificateError: there is none, and none shall be made.
        OSError: it could not be written.
    """
    certificate, key = working_directory / tls.cert_file, working_directory / tls.key_file
    if certificate.exists():
        if not key.exists():
            raise CertificateError(f"{certificate} has no key: {key} does not exist")
        return CertificateFiles(certificate, key, is_development=False)
    if not tls.self_signed:
        raise CertificateError(
            f"{certificate} does not exist; set cert_file to a file, or set self_signed = true"
        )
    made = CertificateFiles(
        runtime_directory / DEVELOPMENT_CERTIFICATE,
        runtime_directory / DEVELOPMENT_KEY,
        is_development=True,
    )
    now = datetime.fromtimestamp(now_us / 1_000_000, tz=UTC)
    if not _is_usable(made, now):
        _make_development_certificate(made, now)
    return made


def tls_context(files: CertificateFiles) -> ssl.SSLContext:
    """Make the server's TLS context, version 1.2 or newer.

    Raises:
        CertificateError: the files hold no matching certificate and key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # An encrypted key must not ask for its password on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    except (OSError, ValueError) as refusal:
        pair = f"{files.certificate} and {files.key}"
        raise CertificateError(f"{pair} are no matching certificate and key: {refusal}") from None
    return context


def _is_usable(files: CertificateFiles, now: datetime) -> bool:
    """Tell whether a certificate that was made earlier is whole and still counts.

    Every start asks this, so it must not load the library that makes certificates.
    """
    try:
        begin, end = _read_validity(ssl.PEM_cert_to_DER_cert(files.certificate.read_text()))
        tls_context(files)
    except (OSError, ValueError, IndexError, CertificateError):
        return False
    return begin <= now <= end - CLOCK_TOLERANCE


def _read_validity(der: bytes) -> tuple[datetime, datetime]:
    """Read from when until when a certificate counts.

    Raises:
        ValueError: it is no certificate.
        IndexError: it ends too early.
    """
    _, at, _ = _read_element(der, 0)
    _, at, _ = _read_element(der, at)
    # The signed part: version, serial number, algorithm, issuer, and then the validity.
    for _ in range(4):
        _, _, at = _read_element(der, at)
    _, begin, _ = _read_element(der, at)
    _, _, end = _read_element(der, begin)
    return _read_time(der, begin), _read_time(der, end)


def _read_element(der: bytes, at: int) -> tuple[int, int, int]:
    """Read the head of an element: its tag, and where its content begins and ends."""
    tag, size, at = der[at], der[at + 1], at + 2
    if size >= LONG_SIZE:
        digits = size - LONG_SIZE
        size = int.from_bytes(der[at : at + digits], "big")
        at += digits
    return tag, at, at + size


def _read_time(der: bytes, at: int) -> datetime:
    tag, begin, end = _read_element(der, at)
    form = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag, "")
    return datetime.strptime(der[begin:end].decode("ascii"), form).replace(tzinfo=UTC)


def _make_development_certificate(files: CertificateFiles, now: datetime) -> None:
    # Imported here, because loading this library would delay the start of a server without TLS.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign_for_localhost(key, now)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_private(files.key, private.decode())
    public = certificate.public_bytes(serialization.Encoding.PEM)
    write_private(files.certificate, public.decode())


def _sign_for_localhost(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    names += [x509.IPAddress(ip_address(ip)) for ip in ("127.0.0.1", "::1")]
    # ca=False: clients that trust this file itself refuse a CA certificate from a server.
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_TOLERANCE)
        .not_valid_after(now + DEVELOPMENT_LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
