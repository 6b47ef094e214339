"""Looks for known weaknesses of what the locks in requirements/ name, with pip-audit.

    python -m tools.audit .venv-audit/bin/pip-audit requirements/*.txt

Ends with 1 if there is one. Where no database of weaknesses can be reached it says so and ends with
0: machines without a network run `make slow` too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

SERVICES = ("pypi", "osv")
SECONDS_MAX = 300


class Verdict(NamedTuple):
    """What a database said of one lock.

    Attributes:
        audited: how many distributions it knew.
        unknown: those that it did not know, so that nothing is known of them either.
        weak: a line for each known weakness.
    """

    audited: int
    unknown: list[str]
    weak: list[str]


def judge(report: dict[str, Any]) -> Verdict:
    """Read what pip-audit found.

    A mirror of the index that knows no weaknesses has pip-audit skip every distribution and call
    that a success, so those are counted.
    """
    audited = [entry for entry in report["dependencies"] if "vulns" in entry]
    unknown = [entry["name"] for entry in report["dependencies"] if "vulns" not in entry]
    weak = [
        f"{entry['name']} {entry['version']}: {found['id']}"
        + (f", mended in {', '.join(found['fix_versions'])}" if found["fix_versions"] else "")
        for entry in audited
        for found in entry["vulns"]
    ]
    return Verdict(len(audited), unknown, weak)


def ask(program: str, lock: str, service: str) -> Verdict | None:
    """Have pip-audit ask a database about a lock; return nothing if it cannot be reached."""
    command = [program, "--requirement", lock, "--require-hashes", "--disable-pip"]
    command += ["--vulnerability-service", service, "--format", "json"]
    try:
        result = subprocess.run(
            [*command, "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        return judge(json.loads(result.stdout))
    except (ValueError, subprocess.TimeoutExpired):
        return None


def audit(program: str, lock: str) -> int:
    """Say what is known of one lock; return how many weaknesses that is."""
    for service in SERVICES:
        verdict = ask(program, lock, service)
        if verdict is None or not verdict.audited:
            continue
        print(f"{lock}: {verdict.audited} audited by {service}, {len(verdict.weak)} weaknesses")
        if verdict.unknown:
            print(f"  unknown there: {', '.join(verdict.unknown)}")
        for line in verdict.weak:
            print(f"  {line}")
        return len(verdict.weak)
    print(f"{lock}: not audited, no database of weaknesses can be reached from this machine")
    return 0


def main(program: str, *locks: str) -> int:
    """Audit all locks."""
    if not Path(program).exists():
        print(f"there is no {program}", file=sys.stderr)
        return 2
    return 1 if sum(audit(program, lock) for lock in locks) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
