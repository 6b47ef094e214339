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
from iggy_ref_server.config import Address, RootCredentials, parse_address

__all__ = ["PROTOCOL_VERSION", "Door", "Started", "root_password_line", "start_lines"]

PROTOCOL_VERSION: Final = "0.8"

_PROMISES: Final = {
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
class Door:
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
class Started:
    """What the banner shows.

    Attributes:
        cores: the CPU core of each shard.
        engine: the storage engine, and why it is not io_uring where it is not.
        ack: ``memory``, ``written`` or ``fsync``.
        data_directory: an absolute path.
        source: where the configuration came from.
        doors: the enabled listeners.
        is_follower: whether this node reports itself as a follower.
    """

    version: str
    cores: Sequence[int]
    engine: str
    ack: str
    data_directory: str
    source: str
    doors: Sequence[Door]
    username: str = "iggy"
    is_follower: bool = False


def start_lines(started: Started) -> list[str]:
    """Return the banner: title, facts, and a URL to connect with; lines without line ends."""
    role = ", as a follower" if started.is_follower else ""
    title = f"iggy-server {started.version}, speaks Apache Iggy {PROTOCOL_VERSION}{role}"
    facts = [f"  {name:<9} {text}" for name, text in _facts(started)]
    return [title, *facts, *_how_to_connect(started)]


def _facts(started: Started) -> Iterator[tuple[str, str]]:
    shards = f"{len(started.cores)} on core" + ("s" if len(started.cores) > 1 else "")
    yield "shards", f"{shards} {', '.join(map(str, started.cores))}"
    yield "storage", f"{started.engine}; {_PROMISES[started.ack]}"
    yield "data", started.data_directory
    yield "config", started.source
    for door in started.doors:
        encryption = " with TLS" if door.is_encrypted else ""
        absent = "" if door.is_served else " is configured, but not served by this release"
        yield door.name, f"{door.address}{encryption}{absent}"


def _how_to_connect(started: Started) -> Iterator[str]:
    served = {door.name: door for door in started.doors if door.is_served}
    for name, (plain, encrypted) in _SCHEMES.items():
        if name in served:
            door = served[name]
            scheme = encrypted if door.is_encrypted else plain
            address = _reachable(parse_address(door.address))
            login = f"{started.username}:<password>"
            yield f"Connect with {scheme}://{login}@{address}{_options(door)}"
            return


def _options(door: Door) -> str:
    if not door.is_encrypted:
        return ""
    certificate = door.development_certificate
    options = ["tls=true"] if door.name == "tcp" else []
    options += ["tls_domain=localhost", f"tls_ca_file={certificate}"] if certificate else []
    return f"?{'&'.join(options)}" if options else ""


def _reachable(address: Address) -> Address:
    """Replace the wildcard address by loopback, which a client on this machine can use."""
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return address
    if not ip.is_unspecified:
        return address
    return Address("127.0.0.1" if ip.version == 4 else "::1", address.port)


def root_password_line(root: RootCredentials) -> str:
    """Return the line with the generated password; it is printed once and never logged."""
    assert root.is_generated
    return f"Generated root user password: {root.password}"
