"""The sources of the configuration: the environment, a ``.env`` file, and the TOML file.

    IGGY_ENV_PATH       else the nearest .env in the working directory or above
    IGGY_CONFIG_PATH    else core/server/config.toml, as in Apache Iggy 0.8; a relative path is
                        searched in the working directory and above

A missing file is no error; it is a warning if a variable names it.
"""

from __future__ import annotations

import itertools
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iggy_ref_server.config.tree import (
    ENVIRONMENT_PREFIX,
    ConfigError,
    ConfigProblem,
    KeyPath,
    Layer,
    RawSetting,
    SettingNode,
    SettingTree,
    environment_names,
    similar_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# Finding a file in parent directories, and writing one that holds secrets.


def find_upwards(name: str, directory: Path) -> Path | None:
    """Find a file in a directory or in any above it.

    Args:
        name: a relative path is searched; an absolute path is not.
        directory: where the search starts.
    """
    return next((path for path in _candidate_paths(name, directory) if path.is_file()), None)


def _candidate_paths(name: str, directory: Path) -> Iterator[Path]:
    if Path(name).is_absolute():
        yield Path(name)
    else:
        yield from (parent / name for parent in (directory, *directory.parents))


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically; only its owner can read it.

    Raises:
        OSError: the file cannot be written; an older one is unchanged.
    """
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)


# The syntax of ``.env`` files, which hold environment variables.
#
# # a comment
# IGGY_TCP_ADDRESS=127.0.0.1:8090
# export IGGY_ROOT_PASSWORD='taken as it is, with $ and #'
# IGGY_SYSTEM_PATH="${HOME}/data"        # outside single quotes variables are expanded


_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?
    (?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^'"\s\#](?:\S|\s(?!\s*\#))*)?)
    \s*(?:(?<=\s)\#.*)?""",
    re.VERBOSE | re.DOTALL,
)
_REFERENCE: Final = re.compile(r"(\\.)|\$(?:\{(\w+)\}|(\w+))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def parse_dotenv(text: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Parse a ``.env`` file.

    Args:
        text: its content.
        environment: variables that the file may refer to; they override earlier lines of it.

    Returns:
        The variables, and a problem for each line that is malformed.
    """
    variables: dict[str, str] = {}
    problems = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            problems.append(f"line {number} is not NAME=VALUE")
            continue
        if match["single"] is not None:
            variables[match["name"]] = match["single"]
        else:
            value = match["double"] or (match["plain"] or "").rstrip()
            variables[match["name"]] = _expand(value, {**variables, **environment})
    return variables, problems


def _expand(text: str, known: Mapping[str, str]) -> str:
    """Expand variables and backslash escapes."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return _ESCAPES.get(match[1][1], match[1][1])
        return known.get(match[2] or match[3], "")

    return _REFERENCE.sub(replace, text)


# Keys of the configuration in environment variables.
#
# The variable of every key starts with ``IGGY_``; an empty value counts as unset. An unknown
# variable with this prefix is reported with similar names, as Apache Iggy does.


# Variables of this server, of clients and of tools that are not keys of the configuration.
_OTHER_NAMES: Final = frozenset(
    {
        "IGGY_CI_BUILD",
        "IGGY_CONFIG_PATH",
        "IGGY_DISPLAY_CONFIG",
        "IGGY_ENV_PATH",
        "IGGY_HOME",
        "IGGY_NO_EXTENSIONS",
        "IGGY_PASSWORD",
        "IGGY_ROOT_PASSWORD",
        "IGGY_ROOT_USERNAME",
        "IGGY_RUST_SERVER",
        "IGGY_USERNAME",
    }
)
_OTHER_PREFIXES: Final = ("IGGY_BENCH_", "IGGY_CONNECTORS_", "IGGY_MCP_", "IGGY_TEST_")


def read_environment(environment: Mapping[str, str]) -> SettingTree:
    """Read every key that the environment sets.

    Returns:
        The layer; an array with any element set replaces the whole array of the layer below.
    """
    tree: SettingTree = {}
    for name, (path, _) in environment_names().items():
        text = environment.get(name, "")
        if text:
            _insert_setting(tree, path, RawSetting(text, Layer.ENVIRONMENT, name))
    return tree


def _insert_setting(tree: SettingTree, path: KeyPath, setting: RawSetting) -> None:
    """Set a value in a tree; elements of an array that are not set become empty sections."""
    node: SettingTree = tree
    for part, following in itertools.pairwise(path):
        if isinstance(part, int):
            continue
        if isinstance(following, int):
            array = node.setdefault(part, [])
            assert isinstance(array, list)
            array.extend({} for _ in range(following + 1 - len(array)))
            below: SettingNode = array[following]
        else:
            below = node.setdefault(part, {})
        assert isinstance(below, dict)
        node = below
    node[str(path[-1])] = setting


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for every unknown ``IGGY_`` variable, with up to three similar names."""
    known = environment_names()
    warnings = []
    for name in sorted(environment):
        is_foreign = name in _OTHER_NAMES or name.startswith(_OTHER_PREFIXES)
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known or is_foreign:
            continue
        similar = similar_names(name, known)
        advice = f"; similar: {', '.join(similar)}" if similar else ""
        warnings.append(f"the environment variable {name} is unknown and ignored{advice}")
    return warnings


CONFIG_PATH_VARIABLE: Final = "IGGY_CONFIG_PATH"
CONFIG_PATH_DEFAULT: Final = "core/server/config.toml"
DOTENV_VARIABLE: Final = "IGGY_ENV_PATH"
DOTENV_DEFAULT: Final = ".env"
BUILT_IN: Final = "built-in defaults"


def read_variables(
    environment: Mapping[str, str], working_directory: Path, warnings: list[str]
) -> dict[str, str]:
    """Return the variables of the process and of a ``.env`` file; those of the process win.

    Args:
        environment: the variables of the process.
        working_directory: where the search starts.
        warnings: receives lines for the log.
    """
    named = environment.get(DOTENV_VARIABLE)
    path = find_upwards(named or DOTENV_DEFAULT, working_directory)
    if path is None:
        if named:
            warnings.append(f"{DOTENV_VARIABLE} names {named}, which does not exist")
        return dict(environment)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        warnings.append(f"{path} cannot be read and is ignored: {error}")
        return dict(environment)
    variables, problems = parse_dotenv(text, environment)
    warnings += [f"{path}: {problem}" for problem in problems]
    return {**variables, **environment}


def read_config_file(
    environment: Mapping[str, str], working_directory: Path, warnings: list[str]
) -> tuple[dict[str, Any], str]:
    """Read the TOML file, if there is one.

    Args:
        environment: may name the file.
        working_directory: where the search starts.
        warnings: receives lines for the log.

    Returns:
        The content of the file, and its name.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    named = environment.get(CONFIG_PATH_VARIABLE)
    path = find_upwards(named or CONFIG_PATH_DEFAULT, working_directory)
    if path is None:
        if named:
            warnings.append(f"{CONFIG_PATH_VARIABLE} names {named}, which does not exist")
        return {}, BUILT_IN
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")), str(path)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([ConfigProblem(str(path), f"is not TOML: {error}")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([ConfigProblem(str(path), f"cannot be read: {error}")]) from None
