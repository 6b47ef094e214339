"""Loading a configuration from a text and a few variables, without a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.cli import StartFlags
from iggy_ref_server.config.load import LoadedConfig, load_config
from iggy_ref_server.config.tree import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "server.toml"


def load_text(directory: Path, text: str = "", **environment: str) -> LoadedConfig:
    """Load a configuration whose file says ``text``."""
    (directory / FILE).write_text(text, encoding="utf-8")
    variables = {"IGGY_CONFIG_PATH": str(directory / FILE), **environment}
    return load_config(StartFlags(), variables, directory)


def problems_of(directory: Path, text: str = "", **environment: str) -> list[str]:
    """Load a configuration that cannot be loaded, and list what is wrong with it."""
    try:
        load_text(directory, text, **environment)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []
