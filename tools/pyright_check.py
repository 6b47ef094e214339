"""Shows what users of pyright see: the typing cases, and how much of the public API has a type.

python -m tools.pyright_check .venv-pyright/bin/pyright

The typing cases (``tests/sdk/api/typing_cases.py``) have to be as they say, and 99 of 100 public
names, with everything they refer to, need a type that all type checkers agree on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
COMPLETE_MIN = 0.99
PACKAGES = ("iggy_sdk", "iggy_protocol")


def run(pyright: Path, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run pyright as if its environment was active: it looks there for packages."""
    place = pyright.parent.parent
    path = f"{pyright.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [pyright, *arguments],
        cwd=folder,
        env={**os.environ, "VIRTUAL_ENV": str(place), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def link_packages(pyright: Path) -> None:
    """Make the sources, and what they need, packages of pyright's environment."""
    [packages] = pyright.parent.parent.glob("lib/python3*/site-packages")
    [needed] = ROOT.glob(".venv/lib/python3*/site-packages")
    places = (ROOT, ROOT / "protocol", needed)
    (packages / "project.pth").write_text("".join(f"{place}\n" for place in places))


def main(arguments: list[str]) -> int:
    """Check both, and say what is wrong."""
    pyright = Path(arguments[0]).absolute()
    link_packages(pyright)
    cases = run(pyright)
    sys.stdout.write(cases.stdout)
    failed = cases.returncode != 0
    for package in PACKAGES:
        # Where there is no configuration, the packages count as installed ones.
        with tempfile.TemporaryDirectory() as folder:
            options = ("--verifytypes", package, "--ignoreexternal", "--outputjson")
            found = run(pyright, *options, folder=Path(folder))
        completeness = json.loads(found.stdout)["typeCompleteness"]
        score = completeness["completenessScore"]
        sys.stdout.write(f"{package}: {score:.1%} of the public names have a known type\n")
        if score < COMPLETE_MIN:
            failed = True
            for symbol in completeness["symbols"]:
                if symbol["isExported"] and not symbol["isTypeKnown"]:
                    sys.stdout.write(f"  {symbol['name']}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
