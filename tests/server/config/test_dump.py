"""Configurations as TOML: they load back, with the addresses that were bound."""

from __future__ import annotations

import stat
import tomllib

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from iggy_ref_server.config.load import _default_tree, default_config, dump_config
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.sources import write_private
from iggy_ref_server.config.tree import Layer, build_section, merge_trees, tree_from_toml
from tests.server.config.loading import load_text


def read_back(text: str) -> ServerConfig | None:
    """Build what a dump says over the defaults, without the rules across keys."""
    return build_section(
        ServerConfig,
        merge_trees(_default_tree(), tree_from_toml(tomllib.loads(text), Layer.FILE)),
        [],
    )


def test_dump_when_loaded_then_is_the_same(tmp_path):
    config = load_text(
        tmp_path,
        "[cluster.node]\nothers = []\n[http.jwt]\ntrusted_issuers = []\n",
        IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC="true",
        IGGY_SYSTEM_TOPIC_MESSAGE_EXPIRY="3 days",
        IGGY_WEBSOCKET_MAX_FRAME_SIZE="17",
        IGGY_SYSTEM_SHARDING_CPU_ALLOCATION="2",
    ).config

    assert load_text(tmp_path, dump_config(config)).config == config


def test_dump_when_addresses_were_bound_then_holds_them():
    text = dump_config(default_config(), {"tcp": "127.0.0.1:40123", "http": "[::1]:40124"})

    parsed = tomllib.loads(text)
    assert parsed["tcp"]["address"] == "127.0.0.1:40123"
    assert parsed["http"]["address"] == "[::1]:40124"
    assert parsed["quic"]["address"] == "127.0.0.1:8080"


def test_dump_when_secrets_are_hidden_then_none_is_left(tmp_path):
    text = '[system.encryption]\nkey = "hush"\n[http.jwt]\ndecoding_secret = "hush"\n'
    config = load_text(tmp_path, text).config

    assert dump_config(config).count("hush") == 2
    assert "hush" not in dump_config(config, show_secrets=False)
    assert 'encoding_secret = ""' in dump_config(config, show_secrets=False)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
DURATIONS = st.integers(0, 2**64 - 1)


@settings(max_examples=settings().max_examples // 2)  # each example parses two whole files
@given(TEXTS, TEXTS, DURATIONS, st.lists(TEXTS, max_size=3).map(tuple))
def test_dump_when_values_are_odd_then_reads_back(path, secret, interval_us, origins):
    config = default_config()
    odd = replace(
        config,
        system=replace(
            config.system, path=path, encryption=replace(config.system.encryption, key=secret)
        ),
        heartbeat=replace(config.heartbeat, interval_us=interval_us),
        http=replace(config.http, cors=replace(config.http.cors, allowed_origins=origins)),
    )

    assert read_back(dump_config(odd)) == odd


def test_private_file_when_written_then_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "current_config.toml"
    path.write_text("old")
    (tmp_path / "current_config.toml.new").write_text("left over from a crash")

    write_private(path, "new")

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
