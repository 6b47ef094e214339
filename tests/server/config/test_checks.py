"""Every rule across keys, broken once; and what is inert, and what only seems to be."""

from __future__ import annotations

import base64

import pytest

from iggy_ref_server.config.load import default_config
from iggy_ref_server.config.rules import IGNORED_KEYS, UNSUPPORTED_KEYS, flatten_section
from tests.server.config.loading import load_text, problems_of

KEY = base64.b64encode(bytes(32)).decode()
CLUSTER = {"IGGY_CLUSTER_ENABLED": "true"}


def node(index: int, name: str, ip: str = "10.0.0.1", **ports: str) -> dict[str, str]:
    """Name another node of the cluster through the environment."""
    prefix = f"IGGY_CLUSTER_NODE_OTHERS_{index}"
    named = {f"{prefix}_PORTS_{listener.upper()}": port for listener, port in ports.items()}
    return {f"{prefix}_NAME": name, f"{prefix}_IP": ip, **named}


BROKEN: list[tuple[dict[str, str], str]] = [
    (
        {"IGGY_SYSTEM_SEGMENT_SIZE": "2 GiB"},
        "system.segment.size must be above 0 and at most 1 GiB",
    ),
    ({"IGGY_SYSTEM_SEGMENT_SIZE": "0"}, "system.segment.size must be above 0"),
    ({"IGGY_SYSTEM_SEGMENT_SIZE": "1000"}, "must be a multiple of 512 bytes; write 512"),
    ({"IGGY_SYSTEM_TOPIC_MAX_SIZE": "1 MiB"}, "system.topic.max_size must be at least one segment"),
    ({"IGGY_SYSTEM_TOPIC_MAX_SIZE": "server_default"}, 'write "unlimited" or a size'),
    ({"IGGY_SYSTEM_TOPIC_MAX_SIZE": "0"}, 'write "unlimited" or a size'),
    ({"IGGY_SYSTEM_TOPIC_MESSAGE_EXPIRY": "server_default"}, 'write "none" or a duration'),
    (
        {"IGGY_HTTP_JWT_ACCESS_TOKEN_EXPIRY": "default"},
        "http.jwt.access_token_expiry has no default",
    ),
    (
        {"IGGY_SYSTEM_MEMORY_POOL_SIZE": "511 MiB"},
        "system.memory_pool.size must be at least 512 MiB",
    ),
    ({"IGGY_SYSTEM_MEMORY_POOL_SIZE": "600000001"}, "a multiple of 4096"),
    ({"IGGY_SYSTEM_MEMORY_POOL_BUCKET_CAPACITY": "64"}, "must be a power of two and at least 128"),
    ({"IGGY_SYSTEM_MEMORY_POOL_BUCKET_CAPACITY": "200"}, "must be a power of two"),
    (
        {
            "IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED": "true",
            "IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL": "0",
        },
        "data_maintenance.messages.interval must not be zero",
    ),
    ({"IGGY_MESSAGE_SAVER_INTERVAL": "none"}, "message_saver.interval must not be zero"),
    (
        {"IGGY_PERSONAL_ACCESS_TOKEN_CLEANER_INTERVAL": "0 s"},
        "personal_access_token.cleaner.interval must not be zero",
    ),
    (
        {"IGGY_HEARTBEAT_ENABLED": "true", "IGGY_HEARTBEAT_INTERVAL": "0"},
        "heartbeat.interval must not be zero",
    ),
    (
        {"IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT": "0"},
        "consumer_group.rebalancing_timeout must not be zero",
    ),
    (
        {"IGGY_CONSUMER_GROUP_REBALANCING_CHECK_INTERVAL": "0"},
        "consumer_group.rebalancing_check_interval must not be zero",
    ),
    ({"IGGY_SYSTEM_LOGGING_LEVEL": "loud"}, "system.logging.level = 'loud' is neither"),
    ({"IGGY_SYSTEM_LOGGING_LEVEL": "a=loud"}, "system.logging.level = 'a=loud' is neither"),
    (
        {"IGGY_SYSTEM_LOGGING_RETENTION": "1ms"},
        "system.logging.retention must be at least one second",
    ),
    (
        {"IGGY_SYSTEM_LOGGING_ROTATION_CHECK_INTERVAL": "0"},
        "system.logging.rotation_check_interval must be at least one second",
    ),
    (
        {"IGGY_SYSTEM_LOGGING_MAX_TOTAL_SIZE": "1 MB"},
        "system.logging.max_total_size must be at least system.logging.max_file_size",
    ),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "streams"}, "cannot be the directory of system.stream.path"),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "state"}, "cannot be the directory of the metadata"),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "logs/x"}, "cannot be the directory of system.logging.path"),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "."}, "system.runtime.path must name a directory inside"),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "/etc"}, "system.runtime.path must name a directory inside"),
    ({"IGGY_SYSTEM_RUNTIME_PATH": "a/../.."}, "system.runtime.path must name a directory inside"),
    ({"IGGY_SYSTEM_STREAM_PATH": "/x"}, "system.stream.path must name a directory inside"),
    ({"IGGY_SYSTEM_STREAM_PATH": "state"}, 'system.stream.path cannot be "state"'),
    (
        {"IGGY_SYSTEM_ENCRYPTION_ENABLED": "true"},
        "system.encryption.key must be 32 bytes in base64",
    ),
    (
        {"IGGY_SYSTEM_ENCRYPTION_ENABLED": "true", "IGGY_SYSTEM_ENCRYPTION_KEY": KEY[:-4]},
        "system.encryption.key must be 32 bytes in base64",
    ),
    ({"IGGY_TCP_ADDRESS": "8090"}, "tcp.address = '8090' is not an address"),
    ({"IGGY_TCP_ADDRESS": "127.0.0.1:70000"}, "tcp.address = '127.0.0.1:70000' is not an address"),
    ({"IGGY_QUIC_ADDRESS": "1.2.3.400:1"}, "has an invalid IP address"),
    ({"IGGY_TCP_IPV6": "true"}, "tcp.ipv6 requires IPv6, but tcp.address = 127.0.0.1:8090 is IPv4"),
    ({"IGGY_TCP_CONGESTION_CONTROL": "cubic; rm"}, "tcp.congestion_control must be a name"),
    ({"IGGY_WEBSOCKET_MAX_FRAME_SIZE": "0"}, "websocket.max_frame_size must be above 0"),
    (
        {"IGGY_LIMITS_WEBSOCKET_HANDSHAKE_TIMEOUT": "0"},
        "limits.websocket.handshake_timeout must not be zero",
    ),
    (
        {"IGGY_LIMITS_WEBSOCKET_MAX_REPLY_BACKLOG_BYTES": "0"},
        "limits.websocket.max_reply_backlog_bytes must be above 0",
    ),
    ({"IGGY_HTTP_JWT_ALGORITHM": "none"}, "http.jwt.algorithm must be one of HS256"),
    ({"IGGY_HTTP_CORS_ALLOWED_METHODS": "[GET, FETCH]"}, "has unknown methods: FETCH"),
    ({"IGGY_HTTP_METRICS_ENDPOINT": "metrics"}, 'http.metrics.endpoint must start with "/"'),
    (CLUSTER | {"IGGY_CLUSTER_NAME": " "}, "cluster.name must not be empty"),
    (CLUSTER | node(0, "iggy-node-1"), "cluster.node.others[0].name is used by more than one"),
    (CLUSTER | node(0, " "), "cluster.node.others[0].name must not be empty"),
    (CLUSTER | node(0, "a", ip=" "), "cluster.node.others[0].ip must not be empty"),
    (CLUSTER | node(0, "a", tcp="0"), "cluster.node.others[0].ports.tcp must not be 0"),
    (
        CLUSTER | node(0, "a", tcp="5") | node(1, "b", tcp="5"),
        "cluster.node.others[1].ports.tcp is used twice",
    ),
    ({"IGGY_LIMITS_MAX_POLL_BYTES": "0"}, "limits.max_poll_bytes must be above 0"),
    (
        {"IGGY_LIMITS_MAX_SEND_BYTES": "4 GiB"},
        "limits.max_send_bytes must be above 0 and below 4 GiB",
    ),
    ({"IGGY_LIMITS_MAX_CONNECTIONS": "5"}, "must be at most limits.max_connections"),
    ({"IGGY_LIMITS_MAX_CONNECTIONS": "0"}, "must be from 1"),
]


@pytest.mark.parametrize(("environment", "expected"), BROKEN)
def test_rule_when_broken_then_named_with_the_way_out(tmp_path, environment, expected):
    problems = problems_of(tmp_path, **environment)

    assert any(expected in problem for problem in problems), problems


FINE = [
    {"IGGY_SYSTEM_SEGMENT_SIZE": "512B"},
    {"IGGY_SYSTEM_TOPIC_MAX_SIZE": "1 GiB"},
    {"IGGY_SYSTEM_LOGGING_MAX_FILE_SIZE": "0 B", "IGGY_SYSTEM_LOGGING_MAX_TOTAL_SIZE": "0 B"},
    {"IGGY_SYSTEM_LOGGING_SYSINFO_PRINT_INTERVAL": "0"},
    {"IGGY_SYSTEM_LOGGING_LEVEL": "warn,server=debug,iggy=trace"},
    {"IGGY_SYSTEM_LOGGING_PATH": "/var/log/iggy"},
    {"IGGY_SYSTEM_ENCRYPTION_ENABLED": "true", "IGGY_SYSTEM_ENCRYPTION_KEY": KEY},
    {"IGGY_TCP_IPV6": "true", "IGGY_TCP_ADDRESS": "[::1]:0"},
    {"IGGY_TCP_ADDRESS": "localhost:0"},
    {"IGGY_TCP_SOCKET_MIGRATION": "false"},
    {"IGGY_TCP_SOCKET_NODELAY": "true", "IGGY_TCP_SOCKET_OVERRIDE_DEFAULTS": "true"},
    {"IGGY_TCP_CONGESTION_CONTROL": "cubic"},
    {"IGGY_MESSAGE_SAVER_ENFORCE_FSYNC": "false"},
    {"IGGY_MESSAGE_SAVER_ENABLED": "false", "IGGY_MESSAGE_SAVER_INTERVAL": "0"},
    {"IGGY_SYSTEM_STATE_ENFORCE_FSYNC": "true"},
    {"IGGY_WEBSOCKET_MAX_FRAME_SIZE": "1 MiB"},
    {"IGGY_SYSTEM_STORAGE_ENGINE": "threads"},
    CLUSTER,
    CLUSTER | node(0, "a", tcp="5") | node(1, "b", quic="5"),
]


@pytest.mark.parametrize("environment", FINE)
def test_configuration_when_unusual_but_sound_then_loads_in_silence(tmp_path, environment):
    assert load_text(tmp_path, **environment).warnings == ()


CHANGED = {
    "system.backup.path": "elsewhere",
    "system.backup.compatibility.path": "elsewhere",
    "system.state.max_file_operation_retries": "2",
    "system.state.retry_delay": "2s",
    "system.compression.allow_override": "true",
    "system.compression.default_algorithm": "gzip",
    "system.segment.archive_expired": "true",
    "system.recovery.recreate_missing_state": "true",
    "telemetry.enabled": "true",
    "system.memory_pool.enabled": "false",
    "system.memory_pool.size": "1 GiB",
    "system.memory_pool.bucket_capacity": "4096",
    "http.web_ui": "true",
    "websocket.write_buffer_size": "1 MiB",
    "websocket.max_write_buffer_size": "2 MiB",
    "quic.datagram_send_buffer_size": "1 MiB",
}


def variable(path: str) -> str:
    """Name the environment variable of a key."""
    return f"IGGY_{path.replace('.', '_').upper()}"


@pytest.mark.parametrize("path", UNSUPPORTED_KEYS)
def test_inert_key_when_changed_then_refused_with_the_reason(tmp_path, path):
    (problem,) = problems_of(tmp_path, **{variable(path): CHANGED[path]})

    assert problem.startswith(f"{path} must be ")
    assert UNSUPPORTED_KEYS[path] in problem
    assert problem.endswith(f"(from {variable(path)})")


@pytest.mark.parametrize("path", IGNORED_KEYS)
def test_key_without_effect_when_changed_then_warned_about(tmp_path, path):
    (warning,) = load_text(tmp_path, **{variable(path): CHANGED[path]}).warnings

    assert warning == f"{path} has no effect on this server: {IGNORED_KEYS[path]}"


def test_inert_keys_when_listed_then_are_keys():
    assert {*UNSUPPORTED_KEYS, *IGNORED_KEYS} <= {
        path for path, _, _ in flatten_section(default_config())
    }


def test_ack_when_fsync_is_enforced_then_is_fsync(tmp_path):
    loaded = load_text(tmp_path, IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC="true")

    assert loaded.config.system.partition.ack == "fsync"


@pytest.mark.parametrize("ack", ["memory", "written", "fsync"])
def test_ack_when_named_then_is_taken(tmp_path, ack):
    assert load_text(tmp_path, IGGY_SYSTEM_PARTITION_ACK=ack).config.system.partition.ack == ack


BOTH = '[system.partition]\nack = "written"\nenforce_fsync = true\n'


def test_ack_when_one_place_says_both_then_the_contradiction_is_explained(tmp_path):
    (problem,) = problems_of(tmp_path, BOTH)

    assert problem.startswith(
        'system.partition.ack = "written" contradicts system.partition.enforce_fsync = true; write '
    )


def test_ack_when_the_environment_takes_back_what_the_file_enforces_then_refused(tmp_path):
    text = "[system.partition]\nenforce_fsync = true\n"

    assert problems_of(tmp_path, text, IGGY_SYSTEM_PARTITION_ACK="memory")
    assert not problems_of(tmp_path, text, IGGY_SYSTEM_PARTITION_ACK="fsync")


def test_ack_when_the_environment_enforces_more_than_the_file_says_then_it_wins(tmp_path):
    text = '[system.partition]\nack = "written"\n'

    loaded = load_text(tmp_path, text, IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC="true")

    assert loaded.config.system.partition.ack == "fsync"
