"""Loads the configuration: defaults, overridden by the file, overridden by the environment."""

from __future__ import annotations

import json
import os
import string
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from iggy_protocol import record
from iggy_ref_server.cli import StartFlags
from iggy_ref_server.config.defaults import DEFAULT_TOML
from iggy_ref_server.config.rules import (
    ack_conflict,
    drop_deprecated_keys,
    ignored_key_warnings,
    rule_violations,
    unsupported_key_problems,
    with_effective_ack,
)
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.sources import (
    read_config_file,
    read_environment,
    read_variables,
    unknown_variables,
)
from iggy_ref_server.config.tree import (
    ConfigError,
    ConfigProblem,
    Layer,
    ScalarField,
    SettingTree,
    build_section,
    find_setting,
    merge_trees,
    section_fields,
    tree_from_toml,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from iggy_ref_server.config.value_codecs import Section, TomlValue


# The credentials of the root user of a new data directory.
#
#     both IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD    they are used
#     neither                                           iggy, and a password that is printed once
#     one of them                                       an error
#
# Later starts leave the stored user as it is. If both are still those of the user, they spare its
# first login the check of the password.


USERNAME_VARIABLE: Final = "IGGY_ROOT_USERNAME"
PASSWORD_VARIABLE: Final = "IGGY_ROOT_PASSWORD"
USERNAME_DEFAULT: Final = "iggy"
USERNAME_BYTES: Final = range(3, 51)
PASSWORD_BYTES: Final = range(3, 101)
GENERATED_PASSWORD_LENGTH: Final = 32
PASSWORD_ALPHABET: Final = string.ascii_letters + string.digits


@record
class RootCredentials:
    """A name and a password.

    Attributes:
        password: never logged.
        is_generated: whether the password was generated, so that it must be printed.
    """

    username: str
    password: str = field(repr=False)
    is_generated: bool = False


def given_root_credentials(environment: Mapping[str, str]) -> RootCredentials | None:
    """Return the credentials that the environment has; None if it lacks one."""
    username, password = environment.get(USERNAME_VARIABLE), environment.get(PASSWORD_VARIABLE)
    if username is None or password is None or not _is_text(username + password):
        return None
    return RootCredentials(username, password)


def _is_text(value: str) -> bool:
    """Tell whether a variable of the environment is UTF-8; Python accepts other bytes there."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def choose_root_credentials(
    environment: Mapping[str, str], choose: Callable[[str], str]
) -> RootCredentials:
    """Return the credentials of the root user.

    Args:
        environment: may hold both.
        choose: picks a character at random, such as ``secrets.choice``.

    Raises:
        ConfigError: only one is set, or one is too short or too long.
    """
    username, password = environment.get(USERNAME_VARIABLE), environment.get(PASSWORD_VARIABLE)
    if username is None and password is None:
        generated = "".join(choose(PASSWORD_ALPHABET) for _ in range(GENERATED_PASSWORD_LENGTH))
        return RootCredentials(USERNAME_DEFAULT, generated, is_generated=True)
    if username is None or password is None:
        missing = USERNAME_VARIABLE if username is None else PASSWORD_VARIABLE
        message = "is missing: set both the name and the password of the root user, or neither"
        raise ConfigError([ConfigProblem(missing, message)])
    given = (
        (USERNAME_VARIABLE, len(os.fsencode(username)), USERNAME_BYTES),
        (PASSWORD_VARIABLE, len(os.fsencode(password)), PASSWORD_BYTES),
    )
    for name, text in ((USERNAME_VARIABLE, username), (PASSWORD_VARIABLE, password)):
        if not _is_text(text):
            raise ConfigError([ConfigProblem(name, "must be UTF-8: clients send theirs so")])
    problems = [
        ConfigProblem(name, f"must have from {sizes.start} to {sizes.stop - 1} bytes, not {size}")
        for name, size, sizes in given
        if size not in sizes
    ]
    if problems:
        raise ConfigError(problems)
    return RootCredentials(username, password)


# Writes a configuration as TOML that loads back to the same configuration.
#
# Used for ``runtime/current_config.toml``, which tells tools the bound addresses, and for the
# display at a start, which hides secrets.


HIDDEN_SECRET: Final = "******"


def dump_config(
    config: ServerConfig, addresses: Mapping[str, str] | None = None, *, show_secrets: bool = True
) -> str:
    """Write a configuration as TOML.

    Args:
        addresses: the bound addresses by listener: ``tcp``, ``http``, ``quic``, ``websocket``.
        show_secrets: whether to write secrets; only for a file with mode 0600.
    """
    for listener, address in (addresses or {}).items():
        config = replace(config, **{listener: replace(getattr(config, listener), address=address)})
    return "\n".join(_section_lines(config, "", "", show_secrets=show_secrets)).lstrip() + "\n"


def _section_lines(
    section: Section, name: str, header: str, *, show_secrets: bool
) -> Iterator[str]:
    """Write a section: its values first, because in TOML they would belong to the next section."""
    values = list(_value_lines(section, show_secrets=show_secrets))
    if values:
        yield f"\n{header}"
    yield from values
    for key, section_field in section_fields(type(section)).items():
        value = getattr(section, section_field.attribute)
        below = f"{name}.{key}".removeprefix(".")
        if section_field.is_array:
            for element in value:
                yield from _section_lines(element, below, f"[[{below}]]", show_secrets=show_secrets)
        elif not isinstance(section_field.content, ScalarField):
            yield from _section_lines(value, below, f"[{below}]", show_secrets=show_secrets)


def _value_lines(section: Section, *, show_secrets: bool) -> Iterator[str]:
    for key, section_field in section_fields(type(section)).items():
        value = getattr(section, section_field.attribute)
        if isinstance(section_field.content, ScalarField) and value is not None:
            is_hidden = section_field.content.is_secret and value and not show_secrets
            written = HIDDEN_SECRET if is_hidden else section_field.content.codec.write(value)
            yield f"{key} = {_toml(written)}"
        elif section_field.is_array and not value:
            yield f"{key} = []"


def _toml(value: TomlValue) -> str:
    """Write a value; a TOML string is a JSON string, but for DEL, which TOML must escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
    from_file = drop_deprecated_keys(tree_from_toml(raw, Layer.FILE, source), warnings)
    tree = merge_trees(_default_tree(), from_file)
    config = _build_checked(merge_trees(tree, read_environment(variables)))
    warnings += unknown_variables(variables)
    warnings += ignored_key_warnings(config, default_config())
    if not any(
        listener.enabled for listener in (config.tcp, config.http, config.quic, config.websocket)
    ):
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
    problems: list[ConfigProblem] = []
    config = build_section(ServerConfig, _default_tree(), problems)
    assert config is not None, problems
    return config


@cache
def _default_tree() -> SettingTree:
    return tree_from_toml(tomllib.loads(DEFAULT_TOML), Layer.DEFAULT)


def _build_checked(tree: SettingTree) -> ServerConfig:
    problems: list[ConfigProblem] = []
    config = build_section(ServerConfig, tree, problems)
    if config is None:
        raise ConfigError(problems)
    violations = (
        *rule_violations(config),
        *unsupported_key_problems(config, default_config()),
        *ack_conflict(config, tree),
    )
    for path, message in violations:
        setting = find_setting(tree, path)
        problems.append(ConfigProblem(path, message, setting.origin if setting else ""))
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
