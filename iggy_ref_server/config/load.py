"""Loads the configuration: defaults, overridden by the file, overridden by the environment."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Final

from iggy_protocol import record
from iggy_ref_server.config.acknowledgement import ack_conflict, with_effective_ack
from iggy_ref_server.config.checks import broken_rules
from iggy_ref_server.config.default_text import DEFAULT_TOML
from iggy_ref_server.config.environment import read_environment, unknown_variables
from iggy_ref_server.config.former import drop_former
from iggy_ref_server.config.inert import inert_problems, inert_warnings
from iggy_ref_server.config.layers import Layer, Tree, build, find_setting, merge, plant
from iggy_ref_server.config.problems import ConfigError, Problem
from iggy_ref_server.config.root_credentials import PASSWORD_VARIABLE, USERNAME_VARIABLE
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.sources import read_config_file, read_variables
from iggy_ref_server.start_flags import StartFlags

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LoadedConfig", "default_config", "load_config"]

DEFAULT_CREDENTIAL: Final = "iggy"
DISPLAY_VARIABLE: Final = "IGGY_DISPLAY_CONFIG"


@record(kw_only=True)
class LoadedConfig:
    """The result of loading.

    Attributes:
        environment: the variables, with those of ``.env`` and of the flags; it holds secrets.
        source: the file of the configuration, for the banner.
        warnings: lines for the log.
        is_displayed: whether all keys are to be printed, by ``IGGY_DISPLAY_CONFIG``.
    """

    config: ServerConfig
    flags: StartFlags
    environment: Mapping[str, str] = field(repr=False)
    source: str
    warnings: tuple[str, ...]
    is_displayed: bool


def load_config(
    flags: StartFlags, environment: Mapping[str, str], working_directory: Path
) -> LoadedConfig:
    """Load the configuration.

    Args:
        environment: the variables of the process.
        working_directory: the base of relative paths.

    Raises:
        ConfigError: the configuration is invalid; it lists every problem.
    """
    warnings: list[str] = []
    variables = read_variables(environment, working_directory, warnings)
    raw, source = read_config_file(variables, working_directory, warnings)
    from_file = drop_former(plant(raw, Layer.FILE, source), warnings)
    tree = merge(_default_tree(), from_file)
    config = _build_checked(merge(tree, read_environment(variables)))
    warnings += unknown_variables(variables)
    warnings += inert_warnings(config, default_config())
    if not any(door.enabled for door in (config.tcp, config.http, config.quic, config.websocket)):
        warnings.append("no transport is enabled, so no client can connect")
    if flags.with_default_root_credentials:
        variables = _with_default_credentials(variables, warnings)
    return LoadedConfig(
        config=config,
        flags=flags,
        environment=variables,
        source=source,
        warnings=tuple(warnings),
        is_displayed=variables.get(DISPLAY_VARIABLE, "").lower() in {"1", "true"},
    )


@cache
def default_config() -> ServerConfig:
    """Return the configuration with every key at its default."""
    problems: list[Problem] = []
    config = build(ServerConfig, _default_tree(), problems)
    assert config is not None, problems
    return config


@cache
def _default_tree() -> Tree:
    return plant(tomllib.loads(DEFAULT_TOML), Layer.DEFAULT)


def _build_checked(tree: Tree) -> ServerConfig:
    problems: list[Problem] = []
    config = build(ServerConfig, tree, problems)
    if config is None:
        raise ConfigError(problems)
    broken = (
        *broken_rules(config),
        *inert_problems(config, default_config()),
        *ack_conflict(config, tree),
    )
    for path, message in broken:
        setting = find_setting(tree, path)
        problems.append(Problem(path, message, setting.origin if setting else ""))
    if problems:
        raise ConfigError(problems)
    return with_effective_ack(config)


def _with_default_credentials(variables: dict[str, str], warnings: list[str]) -> dict[str, str]:
    """Set the credentials of the root user to iggy/iggy where the environment has none."""
    names = (USERNAME_VARIABLE, PASSWORD_VARIABLE)
    if all(name in variables for name in names):
        warnings.append(
            "--with-default-root-credentials is ignored: the environment sets the credentials"
        )
    else:
        warnings.append(
            "a new data directory gets the root user iggy with the password iggy; "
            "do not use this where others can connect"
        )
    return {**dict.fromkeys(names, DEFAULT_CREDENTIAL), **variables}
