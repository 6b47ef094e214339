"""The lines that the server prints when it is ready.

    iggy-server 0.1.0, speaks Apache Iggy 0.8
      shards    2 on cores 0, 1
      storage   io_uring; messages are acknowledged when written
      data      /srv/iggy/local_data
      config    built-in defaults
      tcp       127.0.0.1:8090
      http      127.0.0.1:3000
      quic      127.0.0.1:8080 with TLS
      websocket 127.0.0.1:8092
    Connect with iggy://iggy:<password>@127.0.0.1:8090

All facts are passed in, and the text is returned.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Final

from iggy_protocol import record
from iggy_ref_server.config import RootCredentials, SocketAddress, parse_address

PROTOCOL_VERSION: Final = "0.8"

_ACK_DESCRIPTIONS: Final = {
    "memory": "messages are acknowledged in memory; a crash may lose some",
    "written": "messages are acknowledged when written",
    "fsync": "messages are acknowledged when synced to disk",
}


# Which transport the "Connect with" line names first; URL schemes without and with TLS.
_SCHEMES: Final = {
    "tcp": ("iggy", "iggy"),
    "websocket": ("iggy+ws", "iggy+wss"),
    "quic": ("iggy+quic", "iggy+quic"),
    "http": ("iggy+http", "iggy+https"),
}


@record(kw_only=True)
class ListenerInfo:
    """A listener of the server, as the banner shows it.

    Attributes:
        name: such as ``tcp``.
        address: the bound address; the configured one where the listener is not served.
        is_encrypted: whether clients have to use TLS.
        development_certificate: the file of a self-signed certificate that clients have to be
            told to trust, or empty.
    """

    name: str
    address: str
    is_served: bool
    is_encrypted: bool = False
    development_certificate: str = ""


@record(kw_only=True)
class StartupInfo:
    """What the banner shows.

    Attributes:
        cores: the CPU core of each shard.
        engine: the storage engine, and why it is not io_uring where it is not.
        ack: ``memory``, ``written`` or ``fsync``.
        data_directory: an absolute path.
        source: where the configuration came from.
        listeners: the enabled listeners.
        is_follower: whether this node reports itself as a follower.
    """

    version: str
    cores: Sequence[int]
    engine: str
    ack: str
    data_directory: str
    source: str
    listeners: Sequence[ListenerInfo]
    username: str = "iggy"
    is_follower: bool = False


def startup_lines(startup: StartupInfo) -> list[str]:
    """Return the banner: title, facts, and a URL to connect with; lines without line ends."""
    role = ", as a follower" if startup.is_follower else ""
    title = f"iggy-server {startup.version}, speaks Apache Iggy {PROTOCOL_VERSION}{role}"
    facts = [f"  {name:<9} {text}" for name, text in _details(startup)]
    return [title, *facts, *_connect_line(startup)]


def _details(startup: StartupInfo) -> Iterator[tuple[str, str]]:
    shards = f"{len(startup.cores)} on core" + ("s" if len(startup.cores) > 1 else "")
    yield "shards", f"{shards} {', '.join(map(str, startup.cores))}"
    yield "storage", f"{startup.engine}; {_ACK_DESCRIPTIONS[startup.ack]}"
    yield "data", startup.data_directory
    yield "config", startup.source
    for listener in startup.listeners:
        encryption = " with TLS" if listener.is_encrypted else ""
        absent = "" if listener.is_served else " is configured, but not served by this release"
        yield listener.name, f"{listener.address}{encryption}{absent}"


def _connect_line(startup: StartupInfo) -> Iterator[str]:
    served = {listener.name: listener for listener in startup.listeners if listener.is_served}
    for name, (plain, encrypted) in _SCHEMES.items():
        if name in served:
            listener = served[name]
            scheme = encrypted if listener.is_encrypted else plain
            address = _reachable_address(parse_address(listener.address))
            login = f"{startup.username}:<password>"
            yield f"Connect with {scheme}://{login}@{address}{_url_options(listener)}"
            return


def _url_options(listener: ListenerInfo) -> str:
    if not listener.is_encrypted:
        return ""
    certificate = listener.development_certificate
    options = ["tls=true"] if listener.name == "tcp" else []
    options += ["tls_domain=localhost", f"tls_ca_file={certificate}"] if certificate else []
    return f"?{'&'.join(options)}" if options else ""


def _reachable_address(address: SocketAddress) -> SocketAddress:
    """Replace the wildcard address by loopback, which a client on this machine can use."""
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return address
    if not ip.is_unspecified:
        return address
    return SocketAddress("127.0.0.1" if ip.version == 4 else "::1", address.port)


def root_password_line(root: RootCredentials) -> str:
    """Return the line with the generated password; it is printed once and never logged."""
    assert root.is_generated
    return f"Generated root user password: {root.password}"
