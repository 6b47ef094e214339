"""Certificates for servers under test: an authority issues one for a listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

LOCAL_NAMES = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Certificate:
    """The files of an authority and of what it has issued."""

    ca_file: str
    cert_file: str
    key_file: str

    @classmethod
    def make(
        cls, authority: trustme.CA, folder: Path, names: tuple[str, ...] = LOCAL_NAMES
    ) -> Certificate:
        """Issue a certificate, for this machine unless other names are given."""
        issued = authority.issue_cert(*names)
        certificate = cls(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))
        authority.cert_pem.write_to_path(certificate.ca_file)
        issued.cert_chain_pems[0].write_to_path(certificate.cert_file)
        issued.private_key_pem.write_to_path(certificate.key_file)
        return certificate

    def settings(self, section: str, *, is_switch: bool = True) -> dict[str, str]:
        """Return the settings of one listener: the files, and TLS on where there is a switch."""
        told = {"SELF_SIGNED": "false", "CERT_FILE": self.cert_file, "KEY_FILE": self.key_file}
        if is_switch:
            told["ENABLED"] = "true"
        return {f"IGGY_{section}_{name}": value for name, value in told.items()}
