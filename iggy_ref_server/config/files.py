"""Finding a file in parent directories, and writing one that holds secrets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_upwards", "write_private"]


def find_upwards(name: str, directory: Path) -> Path | None:
    """Find a file in a directory or in any above it.

    Args:
        name: a relative path is searched; an absolute path is not.
        directory: where the search starts.
    """
    return next((path for path in _candidates(name, directory) if path.is_file()), None)


def _candidates(name: str, directory: Path) -> Iterator[Path]:
    if Path(name).is_absolute():
        yield Path(name)
    else:
        yield from (parent / name for parent in (directory, *directory.parents))


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically; only its owner can read it.

    Raises:
        OSError: the file cannot be written; an older one is unchanged.
    """
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    aside.replace(path)
