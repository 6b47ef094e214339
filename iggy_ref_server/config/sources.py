"""The sources of the configuration: the environment, a ``.env`` file, and the TOML file.

    IGGY_ENV_PATH       else the nearest .env in the working directory or above
    IGGY_CONFIG_PATH    else core/server/config.toml, as in Apache Iggy 0.8; a relative path is
                        searched in the working directory and above

A missing file is no error; it is a warning if a variable names it.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from iggy_ref_server.config.dotenv import parse_dotenv
from iggy_ref_server.config.files import find_upwards
from iggy_ref_server.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["BUILT_IN", "read_config_file", "read_variables"]

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
    except (OSError, UnicodeDecodeError) as refusal:
        warnings.append(f"{path} cannot be read and is ignored: {refusal}")
        return dict(environment)
    variables, complaints = parse_dotenv(text, environment)
    warnings += [f"{path}: {complaint}" for complaint in complaints]
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
    except tomllib.TOMLDecodeError as refusal:
        raise ConfigError([Problem(str(path), f"is not TOML: {refusal}")]) from None
    except (OSError, UnicodeDecodeError) as refusal:
        raise ConfigError([Problem(str(path), f"cannot be read: {refusal}")]) from None
