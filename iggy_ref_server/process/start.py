"""Start a server: configuration, certificates, supervisor.

An error that the administrator can correct ends here, as a message and an exit status.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_ref_server.certificates import (
    CERTIFICATES_DIRECTORY,
    CertificateError,
    CertificateFiles,
    find_certificate,
)
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config.load import dump_config, load_config
from iggy_ref_server.config.schema import ServerConfig, TlsConfig
from iggy_ref_server.config.tree import ConfigError
from iggy_ref_server.descriptor_limit import TooFewDescriptors
from iggy_ref_server.process.locks import AlreadyRunning, PortInUse
from iggy_ref_server.process.supervisor import run_server
from iggy_ref_server.shard.cpu_topology import TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.cli import StartFlags


# Files of the server are readable by its own user only.
PRIVATE_UMASK = 0o077
EXIT_FAILED = 1
EXIT_MISUSED = 2


def start(flags: StartFlags) -> int:
    """Run a server until it is stopped; return the exit status of the process."""
    os.umask(PRIVATE_UMASK)
    try:
        loaded = load_config(flags, os.environ, Path.cwd())
    except ConfigError as error:
        return _fail(str(error), EXIT_MISUSED)
    if loaded.is_displayed:
        _print_line(dump_config(loaded.config, show_secrets=False))
    try:
        return run_server(loaded, _print_line, lambda: _load_certificates(loaded.config))
    except (
        AlreadyRunning,
        PortInUse,
        TopologyError,
        CertificateError,
        TooFewDescriptors,
    ) as error:
        return _fail(str(error), EXIT_FAILED)


def _load_certificates(config: ServerConfig) -> dict[str, CertificateFiles]:
    """Load the certificates of listeners with TLS, or make a self-signed one where configured."""
    wanted = dict(_tls_sections(config))
    directory = Path(config.system.path) / CERTIFICATES_DIRECTORY
    if wanted:
        directory.mkdir(parents=True, exist_ok=True)
    return {
        name: find_certificate(
            tls,
            working_directory=Path.cwd(),
            runtime_directory=directory,
            now_us=SystemClock().now_us(),
        )
        for name, tls in wanted.items()
    }


def _tls_sections(config: ServerConfig) -> Iterator[tuple[str, TlsConfig]]:
    """Yield the enabled listeners that use TLS, each with its certificate settings."""
    if config.tcp.enabled and config.tcp.tls.enabled:
        yield "tcp", config.tcp.tls
    if config.websocket.enabled and config.websocket.tls.enabled:
        yield "websocket", config.websocket.tls
    if config.quic.enabled:
        quic_certificate = config.quic.certificate
        files = {"cert_file": quic_certificate.cert_file, "key_file": quic_certificate.key_file}
        yield "quic", TlsConfig(enabled=True, self_signed=quic_certificate.self_signed, **files)
    https = config.http.tls
    if config.http.enabled and https.enabled:
        files = {"cert_file": https.cert_file, "key_file": https.key_file}
        yield "http", TlsConfig(enabled=True, self_signed=False, **files)


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(message: str, exit_code: int) -> int:
    sys.stderr.write(f"iggy-server cannot start: {message}\n")
    sys.stderr.flush()
    return exit_code
