"""What the terminal says when the server has started: a few lines that answer the first questions.

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

Owns the words. Knows no room: everything is passed in, and the text is returned.
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
    "memory": "messages are acknowledged in memory, so a crash may lose some",
    "written": "messages are acknowledged when written",
    "fsync": "messages are acknowledged when on the disk",
}


# The doors as clients are sent to them, each with its schemes, plain and encrypted.
_SCHEMES: Final = {
    "tcp": ("iggy", "iggy"),
    "websocket": ("iggy+ws", "iggy+wss"),
    "quic": ("iggy+quic", "iggy+quic"),
    "http": ("iggy+http", "iggy+https"),
}


@record(kw_only=True)
class Door:
    """A way into the server.

    Attributes:
        name: such as ``tcp``.
        address: where it is, or would be.
        is_served: whether anybody answers there.
        is_encrypted: whether it speaks TLS.
        development_certificate: the file of a certificate that no client knows yet, or empty.
    """

    name: str
    address: str
    is_served: bool
    is_encrypted: bool = False
    development_certificate: str = ""


@record(kw_only=True)
class Started:
    """A server that has just started.

    Attributes:
        version: of this server.
        cores: the core of each shard.
        engine: what serves the files, and why it is not the better one.
        ack: what an acknowledgement promises: ``memory``, ``written`` or ``fsync``.
        data_directory: as an absolute path.
        source: where the configuration came from.
        doors: those that are enabled.
        username: the root user.
        is_follower: whether clients are told so.
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
    """Say what has started, where it is, and how to connect.

    Args:
        started: everything there is to say.

    Returns:
        Lines without line ends.
    """
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
        absent = "" if door.is_served else " is configured, but this release does not serve it"
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
    """Turn "every interface" into an address that a client on this machine can use."""
    try:
        ip = ipaddress.ip_address(address.host)
    except ValueError:
        return address
    if not ip.is_unspecified:
        return address
    return Address("127.0.0.1" if ip.version == 4 else "::1", address.port)


def root_password_line(root: RootCredentials) -> str:
    """Tell the password that was made up; it is told once, and never logged."""
    assert root.is_generated
    return f"Generated root user password: {root.password}"
