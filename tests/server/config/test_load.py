"""Layers: defaults, file, environment, and what is said about what does not fit."""

from __future__ import annotations

import msgspec
import pytest

from iggy_ref_server.cli import StartFlags
from iggy_ref_server.config.load import choose_root_credentials, default_config, load_config
from iggy_ref_server.config.rules import DEPRECATED_KEYS
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.tree import ConfigError, known_paths
from tests.server.config.loading import load_text, problems_of


def test_load_when_nothing_is_said_then_defaults_and_no_warning(tmp_path):
    loaded = load_config(StartFlags(), {}, tmp_path)

    assert loaded.config == default_config()
    assert loaded.source == "built-in defaults"
    assert loaded.warnings == ()


def test_load_when_file_and_environment_speak_then_the_environment_wins(tmp_path):
    text = '[heartbeat]\nenabled = true\ninterval = "2s"\n[tcp]\naddress = "127.0.0.1:1"\n'

    config = load_text(tmp_path, text, IGGY_TCP_ADDRESS="127.0.0.1:0").config

    assert config.heartbeat.enabled
    assert config.heartbeat.interval_us == 2_000_000
    assert config.tcp.address == "127.0.0.1:0"
    assert config.http == default_config().http


def test_load_when_the_path_is_relative_then_parents_are_searched(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "iggy.toml").write_text("[heartbeat]\nenabled = true\n")

    loaded = load_config(StartFlags(), {"IGGY_CONFIG_PATH": "iggy.toml"}, below)

    assert loaded.config.heartbeat.enabled
    assert loaded.source == str(tmp_path / "iggy.toml")


def test_load_when_no_path_is_named_then_the_place_of_the_original_is_searched(tmp_path):
    (tmp_path / "core" / "server").mkdir(parents=True)
    (tmp_path / "core" / "server" / "config.toml").write_text("[heartbeat]\nenabled = true\n")

    assert load_config(StartFlags(), {}, tmp_path / "core").config.heartbeat.enabled


def test_load_when_the_named_file_is_missing_then_warns(tmp_path):
    loaded = load_config(StartFlags(), {"IGGY_CONFIG_PATH": "gone.toml"}, tmp_path)

    assert loaded.config == default_config()
    assert loaded.warnings == ("IGGY_CONFIG_PATH names gone.toml, which does not exist",)


def test_load_when_the_file_is_no_toml_then_names_the_line(tmp_path):
    (problem,) = problems_of(tmp_path, "[tcp\n")

    assert "is not TOML" in problem
    assert "line 1" in problem


def test_load_when_the_file_is_no_text_then_says_so(tmp_path):
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(StartFlags(), {"IGGY_CONFIG_PATH": "bad.toml"}, tmp_path)


UNKNOWN = {
    "[tpc]\naddress = 1": "tpc is not a key of the configuration; did you mean tcp?",
    "[tcp]\nadress = 1": "tcp.adress is not a key of the configuration; did you mean tcp.address?",
    "[segment]\nsize = 1": (
        "segment is not a key of the configuration; did you mean system.segment?"
    ),
    "[http]\ncleaner_enabled = true": (
        "http.cleaner_enabled is not a key of the configuration; "
        "did you mean data_maintenance.messages.cleaner_enabled?"
    ),
    "[[cluster.node.others]]\nname = 'a'\nip = 'b'\nport = 1": (
        "cluster.node.others[0].port is not a key of the configuration; "
        "did you mean cluster.node.others[0].ports?"
    ),
    "zzzzzzzz = 1": (
        "zzzzzzzz is not a key of the configuration; iggy-server defaults lists all keys"
    ),
}


def test_load_when_the_file_has_keys_of_older_releases_then_they_are_passed_over(tmp_path):
    text = '[system.users]\npath = "users"\n[http.jwt]\nenabled = true\nissuer = "me"\n'

    loaded = load_text(tmp_path, text)

    assert loaded.config.http.jwt.issuer == "me"
    assert [line.split()[0] for line in loaded.warnings] == ["system.users", "http.jwt.enabled"]


def test_former_keys_when_compared_with_those_of_today_then_none_is_in_both_lists():
    assert not {path for path in known_paths() if path in DEPRECATED_KEYS}


@pytest.mark.parametrize("text", UNKNOWN)
def test_load_when_a_key_is_unknown_then_refused_with_the_nearest(tmp_path, text):
    (problem,) = problems_of(tmp_path, text)

    assert problem.startswith(UNKNOWN[text])
    assert problem.endswith("(from " + str(tmp_path / "server.toml") + ")")


MISFITS = {
    "tcp = 5": "tcp must be a section: write [tcp] and its keys below",
    "[tcp.address]\na = 1": "tcp.address must be a value, not a section",
    "[tcp]\nenabled = 1": "tcp.enabled must be true or false, not 1",
    "[tcp]\naddress = 1": "tcp.address must be a string in quotes, not 1",
    "[heartbeat]\ninterval = 5": 'heartbeat.interval needs a unit, such as "5 s"',
    "[heartbeat]\ninterval = '5 miles'": "heartbeat.interval = '5 miles' is not a duration",
    "[system.segment]\nsize = true": "system.segment.size must be a string with a unit, not True",
    "[system.segment]\nsize = 1.5": "system.segment.size must be a string with a unit, not 1.5",
    "[system.segment]\nsize = '1 kb'": "system.segment.size = '1 kb' is not a size",
    "[system.segment]\ncache_indexes = 'some'": (
        "must be one of all, open_segment, none, not 'some'"
    ),
    "[system.partition]\nack = 'maybe'": "must be one of memory, written, fsync, not 'maybe'",
    "[system.partition]\nmessages_required_to_save = 0": "must be from 1 to 4294967295, not 0",
    "[personal_access_token]\nmax_tokens_per_user = 0": "must be from 1 to",
    "[personal_access_token]\nmax_tokens_per_user = '5'": "must be an integer, not '5'",
    "[http.cors]\nallowed_origins = '*'": "must be a list of strings",
    "[http.cors]\nallowed_origins = [1]": "must be a string in quotes, not 1",
    "[cluster.node]\nothers = 5": "must be a list of sections: write [[cluster.node.others]]",
    "[cluster.node]\nothers = [{name = 'a', ip = 'b'}, 3]": "must be a list of sections",
    "[[cluster.node.others]]\nname = 'a'": "cluster.node.others[0].ip is missing",
    "[[cluster.node.others]]\nname = 'a'\nip = 'b'\nports = {tcp = 70000}": (
        "cluster.node.others[0].ports.tcp must be from 0 to 65535, not 70000"
    ),
    "[system.sharding]\ncpu_allocation = 'some'": "is not a CPU allocation",
    "[system.sharding]\ncpu_allocation = 1.5": "must be a number or a string",
    '[system]\npath = "a\\u0000b"': "has characters that UTF-8 cannot encode",
}


@pytest.mark.parametrize("text", MISFITS)
def test_load_when_a_value_does_not_fit_then_says_what_would(tmp_path, text):
    (problem,) = problems_of(tmp_path, text)

    assert MISFITS[text] in problem


def test_load_when_much_is_wrong_then_all_is_said_at_once(tmp_path):
    text = '[tcp]\nenabled = 3\nadress = "x"\n[heartbeat]\ninterval = "x"\n'

    with pytest.raises(ConfigError, match="The configuration has 4 problems:") as caught:
        load_text(tmp_path, text, IGGY_SYSTEM_SEGMENT_SIZE="big")

    assert [problem.path for problem in caught.value.problems] == [
        "heartbeat.interval",
        "system.segment.size",
        "tcp.adress",
        "tcp.enabled",
    ]
    assert "(from IGGY_SYSTEM_SEGMENT_SIZE)" in str(caught.value)


def test_load_when_a_secret_does_not_fit_then_is_not_shown(tmp_path):
    (problem,) = problems_of(tmp_path, "[system.encryption]\nkey = 12345")

    assert "12345" not in problem


def test_config_when_printed_then_secrets_do_not_show(tmp_path):
    text = '[system.encryption]\nkey = "hush"\n[http.jwt]\nencoding_secret = "hush"\n'

    shown = repr(load_text(tmp_path, text, IGGY_ROOT_PASSWORD="hush", IGGY_ROOT_USERNAME="root"))

    assert "encoding_secret=******" in shown
    assert "hush" not in shown


def test_config_when_sent_to_another_process_then_arrives_whole(tmp_path):
    config = load_text(
        tmp_path, IGGY_CLUSTER_NODE_OTHERS_0_NAME="a", IGGY_CLUSTER_NODE_OTHERS_0_IP="b"
    ).config

    data = msgspec.msgpack.encode(config)

    assert msgspec.msgpack.decode(data, type=ServerConfig) == config


def test_load_when_no_listener_is_enabled_then_warns(tmp_path):
    listeners = ("TCP", "HTTP", "QUIC", "WEBSOCKET")

    loaded = load_text(tmp_path, **{f"IGGY_{listener}_ENABLED": "false" for listener in listeners})

    assert loaded.warnings == ("no transport is enabled, so no client can connect",)


def test_default_credentials_when_flagged_then_fill_what_is_unset(tmp_path):
    flags = StartFlags(with_default_root_credentials=True)

    loaded = load_config(flags, {"IGGY_ROOT_PASSWORD": "better"}, tmp_path)

    root = choose_root_credentials(loaded.environment, max)
    assert (root.username, root.password) == ("iggy", "better")
    assert "do not use this where others can connect" in loaded.warnings[0]


def test_default_credentials_when_both_are_set_then_ignored_with_a_warning(tmp_path):
    flags = StartFlags(with_default_root_credentials=True)
    environment = {"IGGY_ROOT_USERNAME": "admin", "IGGY_ROOT_PASSWORD": "better"}

    loaded = load_config(flags, environment, tmp_path)

    root = choose_root_credentials(loaded.environment, max)
    assert (root.username, root.password) == ("admin", "better")
    assert "is ignored" in loaded.warnings[0]


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("TRUE", True), ("0", False), ("", False)]
)
def test_display_when_asked_for_then_noted(tmp_path, value, expected):
    assert load_text(tmp_path, IGGY_DISPLAY_CONFIG=value).is_displayed is expected
