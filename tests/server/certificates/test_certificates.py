"""Certificates from files, and those made for development."""

from __future__ import annotations

import ssl
import stat
import time
from typing import TYPE_CHECKING

import pytest
import trustme
from msgspec.structs import replace

from iggy_ref_server.certificates import (
    CertificateError,
    CertificateFiles,
    find_certificate,
    tls_context,
)
from iggy_ref_server.config.load import default_config

if TYPE_CHECKING:
    from pathlib import Path

    from iggy_ref_server.config.schema import TlsConfig

DAY_US = 86_400 * 1_000_000
NOW_US = time.time_ns() // 1000
TLS = replace(default_config().tcp.tls, enabled=True)


def find(directory: Path, tls: TlsConfig = TLS, now_us: int = NOW_US) -> CertificateFiles:
    """Find a certificate where everything is in one directory."""
    return find_certificate(
        tls, working_directory=directory, runtime_directory=directory, now_us=now_us
    )


def issue(directory: Path, prefix: str = "") -> tuple[trustme.CA, TlsConfig]:
    """Put files of a real authority into a directory."""
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(directory / f"{prefix}cert.pem")
    leaf.private_key_pem.write_to_path(directory / f"{prefix}key.pem")
    tls = replace(TLS, cert_file=f"{prefix}cert.pem", key_file=f"{prefix}key.pem")
    return authority, tls


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "localhost") -> str:
    """Hold a TLS handshake in memory and return the version agreed on."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(6):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours.version() or "none"


def trusting(path: Path) -> ssl.SSLContext:
    """Make a client that trusts one certificate file."""
    return ssl.create_default_context(cafile=path)


def test_certificate_when_files_are_given_then_clients_of_that_authority_agree(tmp_path):
    authority, tls = issue(tmp_path)
    client = ssl.create_default_context()
    authority.configure_trust(client)

    files = find(tmp_path, tls)

    assert files == CertificateFiles(tmp_path / "cert.pem", tmp_path / "key.pem", False)
    assert shake_hands(tls_context(files), client) == "TLSv1.3"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_certificate_when_made_for_development_then_a_client_can_trust_it(tmp_path, name):
    files = find(tmp_path)

    assert files.is_development
    assert shake_hands(tls_context(files), trusting(files.certificate), name) == "TLSv1.3"


def test_certificate_when_made_for_development_then_other_clients_refuse_it(tmp_path):
    files = find(tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tls_context(files), ssl.create_default_context())


def test_certificate_when_made_for_development_then_its_key_is_private(tmp_path):
    assert stat.S_IMODE(find(tmp_path).key.stat().st_mode) == 0o600


def test_certificate_when_made_earlier_then_is_kept(tmp_path):
    first = find(tmp_path).certificate.read_bytes()

    assert find(tmp_path, now_us=NOW_US + 300 * DAY_US).certificate.read_bytes() == first


@pytest.mark.parametrize("days", [365, -2])
def test_certificate_when_it_does_not_count_any_more_then_a_new_one_is_made(tmp_path, days):
    first = find(tmp_path).certificate.read_bytes()

    assert find(tmp_path, now_us=NOW_US + days * DAY_US).certificate.read_bytes() != first


def test_certificate_when_damaged_then_a_new_one_is_made(tmp_path):
    files = find(tmp_path)
    files.key.write_text("rubbish")

    tls_context(find(tmp_path))


def test_client_when_older_than_tls_1_2_then_refused(tmp_path):
    context = tls_context(find(tmp_path))

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_certificate_when_missing_and_none_shall_be_made_then_refused(tmp_path):
    with pytest.raises(CertificateError, match="does not exist; set cert_file to a file"):
        find(tmp_path, replace(TLS, self_signed=False))


def test_certificate_when_its_key_is_missing_then_refused(tmp_path):
    _, tls = issue(tmp_path)
    (tmp_path / "key.pem").unlink()

    with pytest.raises(CertificateError, match=r"key\.pem does not exist"):
        find(tmp_path, tls)


def test_certificate_when_key_and_certificate_do_not_belong_together_then_refused(tmp_path):
    _, tls = issue(tmp_path)
    issue(tmp_path, "other-")

    with pytest.raises(CertificateError, match="are no matching certificate and key"):
        tls_context(find(tmp_path, replace(tls, key_file="other-key.pem")))


ENCRYPTED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"


@pytest.mark.parametrize("key", ["rubbish", ENCRYPTED_KEY])
def test_certificate_when_the_key_cannot_be_read_then_refused_without_a_question(tmp_path, key):
    _, tls = issue(tmp_path)
    (tmp_path / "key.pem").write_text(key)

    with pytest.raises(CertificateError, match="are no matching certificate and key"):
        tls_context(find(tmp_path, tls))
