"""The configuration: keys, sources, rules, and the resulting ``ServerConfig``.

    load_config(flags, environment, working_directory) -> LoadedConfig
    dump_config(config, addresses) -> str

The environment and the working directory are passed in, so tests need no process. Every other part
of the server may read ``ServerConfig``.
"""

from __future__ import annotations

from iggy_ref_server.config.addresses import Address, parse_address
from iggy_ref_server.config.cpu_allocation import (
    AllCores,
    CoreCount,
    CoreRange,
    CpuAllocation,
    NumaCores,
    parse_cpu_allocation,
)
from iggy_ref_server.config.default_text import DEFAULT_TOML
from iggy_ref_server.config.dump import dump_config
from iggy_ref_server.config.files import write_private
from iggy_ref_server.config.load import LoadedConfig, default_config, load_config
from iggy_ref_server.config.log_filter import LogFilter, parse_log_filter
from iggy_ref_server.config.problems import ConfigError, Problem
from iggy_ref_server.config.root_credentials import RootCredentials, choose_root_credentials
from iggy_ref_server.config.schema import Cluster, Limits, OtherNode, ServerConfig, System, Tcp
from iggy_ref_server.config.schema_doors import Quic, Tls, WebSocket
from iggy_ref_server.config.schema_system import Logging
from iggy_ref_server.config.units import (
    NEVER_US,
    SERVER_DEFAULT,
    UNLIMITED_BYTES,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)
from iggy_ref_server.start_flags import StartFlags

__all__ = [
    "DEFAULT_TOML",
    "NEVER_US",
    "SERVER_DEFAULT",
    "UNLIMITED_BYTES",
    "Address",
    "AllCores",
    "Cluster",
    "ConfigError",
    "CoreCount",
    "CoreRange",
    "CpuAllocation",
    "Limits",
    "LoadedConfig",
    "LogFilter",
    "Logging",
    "NumaCores",
    "OtherNode",
    "Problem",
    "Quic",
    "RootCredentials",
    "ServerConfig",
    "StartFlags",
    "System",
    "Tcp",
    "Tls",
    "WebSocket",
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
