"""The configuration: keys, sources, rules, and the resulting ``ServerConfig``.

    load_config(flags, environment, working_directory) -> LoadedConfig
    dump_config(config, addresses) -> str

The environment and the working directory are passed in, so tests need no process. Every other part
of the server may read ``ServerConfig``.
"""

from __future__ import annotations

from iggy_ref_server.cli import StartFlags
from iggy_ref_server.config.defaults import DEFAULT_TOML
from iggy_ref_server.config.load import (
    LoadedConfig,
    RootCredentials,
    choose_root_credentials,
    default_config,
    dump_config,
    load_config,
)
from iggy_ref_server.config.schema import (
    ClusterConfig,
    LimitsConfig,
    LoggingConfig,
    OtherNodeConfig,
    QuicListenerConfig,
    ServerConfig,
    SystemConfig,
    TcpListenerConfig,
    TlsConfig,
    WebSocketListenerConfig,
)
from iggy_ref_server.config.sources import write_private
from iggy_ref_server.config.syntax import (
    NEVER_US,
    SERVER_DEFAULT,
    UNLIMITED_BYTES,
    AllCores,
    CoreCount,
    CoreRange,
    CpuAllocation,
    LogFilter,
    NumaCores,
    SocketAddress,
    format_duration,
    format_size,
    parse_address,
    parse_cpu_allocation,
    parse_duration,
    parse_log_filter,
    parse_size,
)
from iggy_ref_server.config.tree import ConfigError, ConfigProblem

__all__ = [
    "DEFAULT_TOML",
    "NEVER_US",
    "SERVER_DEFAULT",
    "UNLIMITED_BYTES",
    "AllCores",
    "ClusterConfig",
    "ConfigError",
    "ConfigProblem",
    "CoreCount",
    "CoreRange",
    "CpuAllocation",
    "LimitsConfig",
    "LoadedConfig",
    "LogFilter",
    "LoggingConfig",
    "NumaCores",
    "OtherNodeConfig",
    "QuicListenerConfig",
    "RootCredentials",
    "ServerConfig",
    "SocketAddress",
    "StartFlags",
    "SystemConfig",
    "TcpListenerConfig",
    "TlsConfig",
    "WebSocketListenerConfig",
    "choose_root_credentials",
    "default_config",
    "dump_config",
    "format_duration",
    "format_size",
    "load_config",
    "parse_address",
    "parse_cpu_allocation",
    "parse_duration",
    "parse_log_filter",
    "parse_size",
    "write_private",
]
