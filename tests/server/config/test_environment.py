"""What the environment can say, and how its values get a type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.cli import StartFlags
from iggy_ref_server.config.load import load_config
from iggy_ref_server.config.value_codecs import StringListCodec, infer_value
from tests.server.config.loading import load_text, problems_of

GUESSES: dict[str, object] = {
    "true": True,
    "FALSE": False,
    "17": 17,
    "-17": -17,
    "1.5": 1.5,
    "1e3": 1000.0,
    "inf": "inf",
    "1_000": "1_000",
    "127.0.0.1:80": "127.0.0.1:80",
    "[a, b]": ["a", "b"],
    '["a, b", c]': ["a, b", "c"],
    "[1, true, x]": [1, True, "x"],
    "[]": [],
    "[": "[",
}


@pytest.mark.parametrize("text", GUESSES)
def test_value_when_it_has_no_type_then_is_guessed(text):
    guess = infer_value(text)

    assert guess == GUESSES[text]
    assert type(guess) is type(GUESSES[text])


@given(st.lists(st.text("abc ,", min_size=1).map(str.strip).filter(bool)))
def test_array_when_elements_are_quoted_then_commas_are_protected(elements):
    quoted = ", ".join(f'"{element}"' for element in elements)

    assert StringListCodec().read_text(f"[{quoted}]") == tuple(elements)


def test_environment_when_booleans_expiry_and_byte_counts_then_override(tmp_path):
    config = load_text(
        tmp_path,
        IGGY_HTTP_ENABLED="False",
        IGGY_MESSAGE_SAVER_ENABLED="true",
        IGGY_SYSTEM_TOPIC_MESSAGE_EXPIRY="1s",
        IGGY_TCP_SOCKET_OVERRIDE_DEFAULTS="true",
        IGGY_TCP_SOCKET_SEND_BUFFER_SIZE="666666",
        IGGY_TCP_SOCKET_RECV_BUFFER_SIZE="777777",
        IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE="1",
        IGGY_SYSTEM_SEGMENT_CACHE_INDEXES="true",
        IGGY_SYSTEM_SHARDING_CPU_ALLOCATION="2",
        IGGY_SYSTEM_LOGGING_MAX_FILE_SIZE="100.00 KB",
        IGGY_HTTP_CORS_ALLOWED_METHODS="[GET, POST]",
    ).config

    assert not config.http.enabled
    assert config.system.topic.message_expiry_us == 1_000_000
    assert config.tcp.socket.send_buffer_size_bytes == 666_666
    assert config.tcp.socket.recv_buffer_size_bytes == 777_777
    assert config.system.partition.messages_required_to_save == 1
    assert config.system.segment.cache_indexes == "all"
    assert config.system.sharding.cpu_allocation == "2"
    assert config.system.logging.max_file_size_bytes == 100_000
    assert config.http.cors.allowed_methods == ("GET", "POST")


@pytest.mark.parametrize("count", [1, 3])
def test_cluster_when_the_environment_names_nodes_then_they_replace_the_file(tmp_path, count):
    variables = {"IGGY_CLUSTER_ENABLED": "true", "IGGY_CLUSTER_NODE_CURRENT_IP": "10.0.0.1"}
    for index in range(count):
        node = f"IGGY_CLUSTER_NODE_OTHERS_{index}"
        variables |= {f"{node}_NAME": f"node-{index}", f"{node}_IP": f"10.0.0.{index + 2}"}
        variables |= {f"{node}_PORTS_TCP": str(9000 + index)}

    cluster = load_text(tmp_path, **variables).config.cluster

    assert [node.name for node in cluster.node.others] == [f"node-{i}" for i in range(count)]
    assert [node.ports.tcp for node in cluster.node.others] == [9000 + i for i in range(count)]
    assert {node.ports.quic for node in cluster.node.others} == {None}
    assert cluster.node.current.ip == "10.0.0.1"


def test_array_when_a_place_is_left_out_then_its_keys_are_missing(tmp_path):
    problems = problems_of(
        tmp_path, IGGY_CLUSTER_NODE_OTHERS_1_NAME="b", IGGY_CLUSTER_NODE_OTHERS_1_IP="c"
    )

    assert problems == [
        "cluster.node.others[0].name is missing",
        "cluster.node.others[0].ip is missing",
    ]


def test_text_when_it_looks_like_a_number_then_stays_text(tmp_path):
    config = load_text(
        tmp_path, IGGY_CLUSTER_NAME="0042", IGGY_TELEMETRY_SERVICE_NAME="true"
    ).config

    assert config.cluster.name == "0042"
    assert config.telemetry.service_name == "true"


def test_variable_when_empty_then_counts_as_unset(tmp_path):
    assert load_text(tmp_path, IGGY_TCP_ADDRESS="").config.tcp.address == "127.0.0.1:8090"


def test_variable_when_unknown_then_warned_with_up_to_three_names(tmp_path):
    (warning,) = load_text(tmp_path, IGGY_SYSTEM_SEGMENT_SISE="1 GiB").warnings

    assert warning.startswith("the environment variable IGGY_SYSTEM_SEGMENT_SISE is unknown")
    assert "similar: IGGY_SYSTEM_SEGMENT_SIZE" in warning
    assert warning.count(",") <= 2


@pytest.mark.parametrize(
    "name",
    ["IGGY_ROOT_USERNAME", "IGGY_CONNECTORS_SINK_X", "IGGY_TEST_VERBOSE", "IGGY_MCP_X", "PATH"],
)
def test_variable_when_it_belongs_to_something_else_then_nothing_is_said(tmp_path, name):
    assert load_text(tmp_path, **{name: "x"}).warnings == ()


def test_dotenv_when_in_a_parent_directory_then_adds_variables_below_the_process(tmp_path):
    (tmp_path / ".env").write_text(
        "IGGY_TCP_ADDRESS=127.0.0.1:7\nIGGY_HEARTBEAT_ENABLED=true\n"
        "IGGY_ROOT_USERNAME=admin\noops\n"
    )
    below = tmp_path / "below"
    below.mkdir()

    loaded = load_config(StartFlags(), {"IGGY_TCP_ADDRESS": "127.0.0.1:8"}, below)

    assert loaded.config.tcp.address == "127.0.0.1:8"
    assert loaded.config.heartbeat.enabled
    assert loaded.environment["IGGY_ROOT_USERNAME"] == "admin"
    assert loaded.warnings == (f"{tmp_path / '.env'}: line 4 is not NAME=VALUE",)


def test_dotenv_when_named_then_the_named_one_is_read(tmp_path):
    (tmp_path / ".env").write_text("IGGY_HEARTBEAT_ENABLED=true\n")
    (tmp_path / "other").write_text("IGGY_TCP_ADDRESS=127.0.0.1:7\n")

    loaded = load_config(StartFlags(), {"IGGY_ENV_PATH": "other"}, tmp_path)

    assert loaded.config.tcp.address == "127.0.0.1:7"
    assert not loaded.config.heartbeat.enabled


def test_dotenv_when_named_and_missing_then_warns(tmp_path):
    loaded = load_config(StartFlags(), {"IGGY_ENV_PATH": "gone"}, tmp_path)

    assert loaded.warnings == ("IGGY_ENV_PATH names gone, which does not exist",)


def test_dotenv_when_unreadable_then_warns(tmp_path):
    (tmp_path / ".env").write_bytes(b"\xff")

    (warning,) = load_config(StartFlags(), {}, tmp_path).warnings

    assert "cannot be read and is ignored" in warning
