"""Every key of the original with its default: the same here, and enough to start."""

from __future__ import annotations

import tomllib

import pytest

from iggy_ref_server.config.defaults import DEFAULT_TOML
from iggy_ref_server.config.load import default_config
from iggy_ref_server.config.rules import flatten_section
from iggy_ref_server.config.tree import environment_names, known_paths, scalar_keys
from tests.server.config.loading import load_text

CERTIFICATE = {"cert_file": "core/certs/iggy_cert.pem", "key_file": "core/certs/iggy_key.pem"}

# As the original's file has them, section by section.
ORIGINAL: dict[str, dict[str, object]] = {
    "consumer_group": {"rebalancing_timeout": "30s", "rebalancing_check_interval": "5s"},
    "data_maintenance.messages": {"cleaner_enabled": False, "interval": "1 m"},
    "http": {
        "enabled": True,
        "address": "127.0.0.1:3000",
        "max_request_size": "2 MB",
        "web_ui": False,
    },
    "http.cors": {
        "enabled": True,
        "allowed_methods": ["GET", "POST", "PUT", "DELETE"],
        "allowed_origins": ["*"],
        "allowed_headers": ["content-type", "authorization"],
        "exposed_headers": [""],
        "allow_credentials": False,
        "allow_private_network": False,
    },
    "http.jwt": {
        "algorithm": "HS256",
        "issuer": "iggy.apache.org",
        "audience": "iggy.apache.org",
        "valid_issuers": ["iggy.apache.org"],
        "valid_audiences": ["iggy.apache.org"],
        "access_token_expiry": "1 h",
        "clock_skew": "5 s",
        "not_before": "0 s",
        "encoding_secret": "",
        "decoding_secret": "",
        "use_base64_secret": False,
        "trusted_issuers": [
            {
                "issuer": "test-issuer",
                "jwks_url": "http://127.0.0.1:8081/.well-known/jwks.json",
                "audience": "iggy.apache.org",
            }
        ],
    },
    "http.metrics": {"enabled": True, "endpoint": "/metrics"},
    "http.tls": {"enabled": False, **CERTIFICATE},
    "tcp": {
        "enabled": True,
        "address": "127.0.0.1:8090",
        "socket_migration": True,
        "ipv6": False,
    },
    "tcp.tls": {"enabled": False, "self_signed": True, **CERTIFICATE},
    "tcp.socket": {
        "override_defaults": False,
        "recv_buffer_size": "100 KB",
        "send_buffer_size": "100 KB",
        "keepalive": False,
        "nodelay": False,
        "linger": "0 s",
    },
    "quic": {
        "enabled": True,
        "address": "127.0.0.1:8080",
        "max_concurrent_bidi_streams": 10_000,
        "datagram_send_buffer_size": "100 KB",
        "initial_mtu": "8 KB",
        "send_window": "100 KB",
        "receive_window": "100 KB",
        "keep_alive_interval": "5 s",
        "max_idle_timeout": "10 s",
    },
    "quic.certificate": {"self_signed": True, **CERTIFICATE},
    "quic.socket": {
        "override_defaults": False,
        "recv_buffer_size": "64 KB",
        "send_buffer_size": "64 KB",
        "keepalive": False,
    },
    "websocket": {
        "enabled": True,
        "address": "127.0.0.1:8092",
        "accept_unmasked_frames": False,
    },
    "websocket.tls": {"enabled": False, "self_signed": True, **CERTIFICATE},
    "message_saver": {"enabled": True, "enforce_fsync": True, "interval": "30 s"},
    "personal_access_token": {"max_tokens_per_user": 100},
    "personal_access_token.cleaner": {"enabled": True, "interval": "1 m"},
    "heartbeat": {"enabled": False, "interval": "5 s"},
    "telemetry": {"enabled": False, "service_name": "iggy"},
    "telemetry.logs": {"transport": "grpc", "endpoint": "http://localhost:7281/v1/logs"},
    "telemetry.traces": {"transport": "grpc", "endpoint": "http://localhost:7281/v1/traces"},
    "system": {"path": "local_data"},
    "system.backup": {"path": "backup"},
    "system.backup.compatibility": {"path": "compatibility"},
    "system.state": {
        "enforce_fsync": False,
        "max_file_operation_retries": 1,
        "retry_delay": "1 s",
    },
    "system.runtime": {"path": "runtime"},
    "system.logging": {
        "path": "logs",
        "level": "info",
        "file_enabled": True,
        "max_file_size": "500 MB",
        "max_total_size": "4 GB",
        "rotation_check_interval": "1 h",
        "retention": "7 days",
        "sysinfo_print_interval": "10 s",
    },
    "system.encryption": {"enabled": False, "key": ""},
    "system.compression": {"allow_override": False, "default_algorithm": "none"},
    "system.stream": {"path": "streams"},
    "system.topic": {"path": "topics", "max_size": "unlimited", "message_expiry": "none"},
    "system.partition": {
        "path": "partitions",
        "enforce_fsync": False,
        "validate_checksum": False,
        "messages_required_to_save": 1024,
        "size_of_messages_required_to_save": "1 MiB",
    },
    "system.segment": {
        "size": "1 GiB",
        "archive_expired": False,
        "cache_indexes": "open_segment",
    },
    "system.message_deduplication": {"enabled": False, "max_entries": 10_000, "expiry": "1 m"},
    "system.recovery": {"recreate_missing_state": False},
    "system.memory_pool": {"enabled": True, "size": "4 GiB", "bucket_capacity": 8192},
    "system.sharding": {"cpu_allocation": "numa:auto"},
    "cluster": {"enabled": False, "name": "iggy-cluster"},
    "cluster.node.current": {"name": "iggy-node-1", "ip": "127.0.0.1"},
    "cluster.node": {
        "others": [
            {
                "name": "iggy-node-2",
                "ip": "127.0.0.1",
                "ports": {"tcp": 8091, "quic": 8081, "http": 3001, "websocket": 8093},
            }
        ]
    },
}
OWN_KEYS = {
    "system.retention.min_free_space",
    "system.segment.max_age",
    "system.partition.ack",
    "tcp.congestion_control",
}
OPTIONAL = {
    f"websocket.{key}"
    for key in (
        "read_buffer_size",
        "write_buffer_size",
        "max_write_buffer_size",
        "max_message_size",
        "max_frame_size",
    )
}


def section(tree: dict, path: str) -> dict:
    """Find a section in a parsed TOML file."""
    for part in path.split("."):
        tree = tree[part]
    return tree


def toml_inline(value: object) -> str:
    """Write a value in one line of TOML."""
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return f"[{', '.join(map(toml_inline, value))}]"
    assert isinstance(value, dict)
    return f"{{ {', '.join(f'{key} = {toml_inline(each)}' for key, each in value.items())} }}"


@pytest.mark.parametrize("path", ORIGINAL)
def test_default_when_the_original_has_one_then_is_the_same(path):
    ours = section(tomllib.loads(DEFAULT_TOML), path)

    assert {key: ours[key] for key in ORIGINAL[path]} == ORIGINAL[path]


def test_default_text_when_walked_then_holds_every_key_of_the_schema_and_no_other():
    parsed = tomllib.loads(DEFAULT_TOML)
    written = {path for path, _, _ in flatten_section(default_config())}
    theirs = {f"{path}.{key}" for path, keys in ORIGINAL.items() for key in keys}

    missing = {
        path
        for path in written
        if path.split(".")[-1] not in section(parsed, path.rpartition(".")[0])
    }

    assert missing == OPTIONAL
    assert written - theirs - OPTIONAL == OWN_KEYS | {
        path for path in written if path.startswith(("limits.", "system.storage."))
    }
    assert theirs <= written


def test_file_with_every_key_of_the_original_at_its_default_when_loaded_then_starts(tmp_path):
    lines = []
    for path, keys in ORIGINAL.items():
        lines += [f"[{path}]", *(f"{key} = {toml_inline(value)}" for key, value in keys.items())]

    loaded = load_text(tmp_path, "\n".join(lines))

    assert loaded.config == default_config()
    assert loaded.warnings == ()


def test_default_text_when_loaded_as_a_file_then_changes_nothing(tmp_path):
    loaded = load_text(tmp_path, DEFAULT_TOML)

    assert loaded.config == default_config()
    assert loaded.warnings == ()


def test_environment_names_when_made_then_no_two_keys_share_one():
    assert len(environment_names()) == len(list(scalar_keys()))
    assert "IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE" in environment_names()
    assert "IGGY_CLUSTER_NODE_OTHERS_9_PORTS_TCP" in environment_names()
    assert "IGGY_CLUSTER_NODE_OTHERS_10_NAME" not in environment_names()
    assert "cluster.node.others[0].ports.tcp" in known_paths()


def test_own_defaults_when_asked_then_are_the_documented_ones():
    config = default_config()

    assert config.system.partition.ack == "written"
    assert config.system.storage.engine == "auto"
    assert config.tcp.congestion_control == ""
    assert config.limits.max_poll_bytes == 64 * 2**20
    assert config.limits.idle_timeout_us == 0


def test_text_of_the_defaults_when_it_comes_to_quic_then_says_that_it_is_served():
    before, _, section = DEFAULT_TOML.partition("\n[quic]\n")

    assert default_config().quic.enabled
    assert section.startswith("enabled = true")
    assert before.endswith("# The binary protocol over QUIC, always encrypted.")
    assert "not served" not in DEFAULT_TOML


def test_partition_path_when_named_then_is_the_tree_of_the_original():
    assert default_config().system.partition_path(3, 1, 4) == "streams/3/topics/1/partitions/4"
