"""The supervisor: starts one process per shard, watches them, and stops them in sequence.

It locks the data directory and binds the ports before it forks, so that two servers never share
either by accident. It lets the shards accept connections when all of them have opened their
partitions, and announces the server when all of them accept. When a shard ends unexpectedly, it
stops the others and exits with an error. It serves no requests itself.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iggy_protocol import record
from iggy_ref_server.certificates import CertificateFiles, tls_context
from iggy_ref_server.cli import SPOKEN, package_version
from iggy_ref_server.config.load import (
    LoadedConfig,
    RootCredentials,
    choose_root_credentials,
    dump_config,
    given_root_credentials,
)
from iggy_ref_server.config.syntax import SocketAddress, parse_address
from iggy_ref_server.descriptor_limit import raise_descriptor_limit
from iggy_ref_server.host import Ports
from iggy_ref_server.logs import start_logging
from iggy_ref_server.metadata.position import make_position_memory
from iggy_ref_server.process.locks import (
    bind_shared_port,
    clear_data_directory,
    clear_runtime_directory,
    full_disk_warnings,
    lock_data_directory,
    permission_warnings,
    record_boot_id,
    write_runtime_file,
    writes_survived,
)
from iggy_ref_server.process.monitor import (
    WATCHED_SIGNALS,
    ProcessMonitor,
    ShardProcess,
    watch_signals,
)
from iggy_ref_server.process.shard_process import (
    ShardProcessSpec,
    SupervisorPipes,
    run_shard_process,
)
from iggy_ref_server.shard.cpu_topology import ShardPlacement, place_shards, read_cpu_topology
from iggy_ref_server.shard.listener_table import LISTENERS, BoundSockets
from iggy_ref_server.shard.router import make_round_robin_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from iggy_ref_server.config.schema import ServerConfig


LOGGER = logging.getLogger(__name__)

CURRENT_CONFIG_NAME = "current_config.toml"


def run_server(
    loaded: LoadedConfig,
    print_line: Callable[[str], None],
    load_certificates: Callable[[], Mapping[str, CertificateFiles]],
) -> int:
    """Run a server until it is stopped; return the exit code of the process.

    Args:
        loaded: the configuration.
        print_line: prints a line on the terminal.
        load_certificates: returns the certificates of listeners with TLS, by their names; called
            after the data directory is locked.

    Raises:
        AlreadyRunning: another server uses the data directory.
        PortTaken: another program listens on the address.
        TooFewDescriptors: the limit of open files is too low.
        TopologyError: the machine does not have the configured cores.
    """
    config = loaded.config
    directory = Path(config.system.path)
    raise_descriptor_limit()
    placements = place_shards(config.system.sharding.cpu_allocation, read_cpu_topology())
    lock_data_directory(directory)
    if loaded.flags.fresh:
        clear_data_directory(directory)
    certificates = load_certificates()
    runtime = directory / config.system.runtime.path
    clear_runtime_directory(runtime)
    bound = _bind_listeners(config, len(placements))
    specs = _process_specs(
        loaded, placements, bound, certificates, survived=writes_survived(directory)
    )
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    children = [_fork_shard(spec) for spec in specs]
    for spec in specs:
        for bound_sockets in spec.bound_by_listener.values():
            for own_socket in bound_sockets.sockets:
                own_socket.close()
        for own_socket in (*spec.peer_sockets.values(), *spec.migration_sockets.values()):
            own_socket.close()
    # Logging starts a thread, and a process with threads must not fork.
    with start_logging(config.system.logging, directory, loaded.environment, process="supervisor"):
        disk_warnings = full_disk_warnings(directory)
        for warning in (*loaded.warnings, *permission_warnings(directory), *disk_warnings):
            LOGGER.warning("%s", warning)
        # Shards are opening their partitions, so this is the time for a slow look-up.
        version = package_version()
        with watch_signals() as signals:
            return ProcessMonitor(children, print_line, signals).run(
                lambda watch: _announce_ready(watch, loaded, version, placements, specs, runtime)
            )


def _bind_listeners(config: ServerConfig, count: int) -> dict[str, list[socket.socket]]:
    """Bind the sockets of all enabled listeners, one per shard that accepts."""
    bound: dict[str, list[socket.socket]] = {}
    for listener in LISTENERS:
        section = getattr(config, listener.name)
        if section.enabled:
            host, port = parse_address(section.address)
            shards = count if listener.is_on_every_shard else 1
            bound[listener.name], _ = bind_shared_port(
                host,
                port,
                shards,
                setting=f"IGGY_{listener.name.upper()}_ADDRESS",
                kind=listener.kind,
            )
    return bound


def _listener_addresses(
    config: ServerConfig, bound: Mapping[str, list[socket.socket]]
) -> dict[str, SocketAddress]:
    """Return the address of each listener: bound, or as configured where it is not bound."""
    addresses: dict[str, SocketAddress] = {}
    for listener in LISTENERS:
        address = parse_address(getattr(config, listener.name).address)
        if listener.name in bound:
            address = address._replace(port=bound[listener.name][0].getsockname()[1])
        addresses[listener.name] = address
    return addresses


def _sockets_for_shard(
    shard_id: int,
    bound: Mapping[str, list[socket.socket]],
    certificates: Mapping[str, CertificateFiles],
) -> dict[str, BoundSockets]:
    """Return the sockets and certificates of one shard, by the name of the listener."""
    bound_by_listener: dict[str, BoundSockets] = {}
    for name, sockets in bound.items():
        if shard_id < len(sockets):
            certificate = certificates.get(name)
            bound_by_listener[name] = BoundSockets(
                sockets=(sockets[shard_id],),
                tls=None if certificate is None else tls_context(certificate),
                certificate=certificate,
            )
    return bound_by_listener


def _process_specs(
    loaded: LoadedConfig,
    placements: Sequence[ShardPlacement],
    bound: Mapping[str, list[socket.socket]],
    certificates: Mapping[str, CertificateFiles],
    *,
    survived: bool,
) -> list[ShardProcessSpec]:
    """Return what each shard process gets; each pair of shards is joined by a socket."""
    config = loaded.config
    channel_sockets = _socket_pairs(len(placements), socket.SOCK_STREAM)
    # The TLS state of a connection cannot be moved to another process.
    is_migration_enabled = config.tcp.socket_migration and "tcp" not in certificates
    migration_sockets = _socket_pairs(
        len(placements) if is_migration_enabled else 0, socket.SOCK_SEQPACKET
    )
    addresses = _listener_addresses(config, bound)
    ports = Ports(**{name: address.port for name, address in addresses.items()})

    round_robin_memory = make_round_robin_memory(len(placements))
    position_memory = make_position_memory()

    def root() -> RootCredentials:
        return choose_root_credentials(loaded.environment, secrets.choice)

    return [
        ShardProcessSpec(
            shard_id=placement.shard_id,
            core=placement.core,
            cores=frozenset(one.core for one in placements if one.core is not None),
            config=config,
            bound_by_listener=_sockets_for_shard(placement.shard_id, bound, certificates),
            peer_sockets=channel_sockets[placement.shard_id],
            migration_sockets=migration_sockets[placement.shard_id] if migration_sockets else {},
            root=root,
            given_root=given_root_credentials(loaded.environment),
            environment=loaded.environment,
            round_robin_memory=round_robin_memory,
            position_memory=position_memory,
            ports=ports,
            ip=addresses["tcp"].host,
            is_follower=loaded.flags.follower,
            writes_survived=survived,
        )
        for placement in placements
    ]


def _socket_pairs(count: int, kind: socket.SocketKind) -> list[dict[int, socket.socket]]:
    """Make a socket pair for each pair of shards; return the sockets of each shard."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for left in range(count):
        for right in range(left + 1, count):
            ends[left][right], ends[right][left] = socket.socketpair(socket.AF_UNIX, kind)
    return ends


def _fork_shard(spec: ShardProcessSpec) -> ShardProcess:
    orders_read, orders_write = os.pipe()
    reports_read, reports_write = os.pipe()
    parent = os.getpid()
    process_id = os.fork()
    if process_id:
        os.close(orders_read)
        os.close(reports_write)
        os.set_blocking(reports_read, False)
        return ShardProcess(spec.shard_id, process_id, orders_write, reports_read)
    exit_code = 1
    try:
        os.close(orders_write)
        os.close(reports_read)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED_SIGNALS)
        exit_code = run_shard_process(spec, SupervisorPipes(orders_read, reports_write), parent)
    except BaseException:
        LOGGER.exception("shard %d ended by an unexpected error", spec.shard_id)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _listener_info(name: str, config: ServerConfig, spec: ShardProcessSpec) -> ListenerInfo:
    """Describe a listener for the banner."""
    address = parse_address(getattr(config, name).address)
    bound_sockets = spec.bound_by_listener.get(name)
    if bound_sockets is None:
        return ListenerInfo(name=name, address=str(address), is_served=False)
    certificate = bound_sockets.certificate
    return ListenerInfo(
        name=name,
        address=str(address._replace(port=getattr(spec.ports, name))),
        is_served=True,
        is_encrypted=certificate is not None,
        # Clients have to be told to trust a self-signed certificate.
        development_certificate=str(certificate.certificate)
        if certificate and certificate.is_development
        else "",
    )


def _announce_ready(
    watch: ProcessMonitor,
    loaded: LoadedConfig,
    version: str,
    placements: Sequence[ShardPlacement],
    specs: Sequence[ShardProcessSpec],
    runtime: Path,
) -> None:
    """Print the banner and write the runtime file: the server is ready."""
    config = loaded.config
    facts = watch.children[0].find_report("open")
    assert facts is not None
    # What is not opened yet has not been looked at since a loss of power.
    if not any((child.find_report("open") or {}).get("waiting") for child in watch.children):
        record_boot_id(Path(config.system.path))
    # Shard 0 has sockets of every listener.
    listeners = [
        _listener_info(kind.name, config, specs[0])
        for kind in LISTENERS
        if getattr(config, kind.name).enabled
    ]
    if "root" in facts:
        watch.print_line(root_password_line(RootCredentials(**facts["root"], is_generated=True)))
    for line in startup_lines(
        StartupInfo(
            version=version,
            cores=[placement.core for placement in placements],
            engine=facts["engine"],
            ack=config.system.partition.ack,
            data_directory=str(Path(config.system.path).resolve()),
            source=loaded.source,
            listeners=listeners,
            is_follower=loaded.flags.follower,
        )
    ):
        watch.print_line(line)
    for line in full_disk_warnings(Path(config.system.path)):
        watch.print_line(line)
    addresses = {listener.name: listener.address for listener in listeners}
    write_runtime_file(runtime / CURRENT_CONFIG_NAME, dump_config(config, addresses))


# The lines that the server prints when it is ready.
#
#     iggy-server 0.1.0, speaks Apache Iggy 0.7 to 0.10
#       shards    2 on cores 0, 1
#       storage   io_uring; messages are acknowledged when written
#       data      /srv/iggy/local_data
#       config    built-in defaults
#       tcp       127.0.0.1:8090
#       http      127.0.0.1:3000
#       quic      127.0.0.1:8080 with TLS
#       websocket 127.0.0.1:8092
#     Connect with iggy://iggy:<password>@127.0.0.1:8090
#
# All facts are passed in, and the text is returned.


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
    title = f"iggy-server {startup.version}, {SPOKEN}{role}"
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
