"""One noun for one concept: no two classes of the product share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("protocol/iggy_protocol", "iggy_sdk", "iggy_ref_server", "spark_jobs")

# These offer the classes of `iggy_sdk` again, under the same names on purpose: the one without
# `await`, the other with the arguments of the official client. One import chooses between them.
FACADES = ("iggy_sdk/blocking/", "iggy_sdk/compat/")
SHARED = {
    # What the wire says and what a user catches: the SDK turns one into the other.
    "ProtocolError": {"protocol/iggy_protocol/errors.py", "iggy_sdk/errors.py"},
    # The implementation in Python of a class that has one in C as well.
    "ContentIds": {
        "protocol/iggy_protocol/message_rows.py",
        "protocol/iggy_protocol/message_rows_python.py",
    },
}


def class_names() -> dict[str, set[str]]:
    """Return the files that define each class at their top level."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(FACADES):
                for node in ast.parse(path.read_text(encoding="utf-8")).body:
                    if isinstance(node, ast.ClassDef):
                        found[node.name].add(name)
    return found


def test_classes_when_collected_then_no_two_share_a_name():
    found = class_names()
    assert len(found) > 400

    shared = {name: places for name, places in found.items() if len(places) > 1}

    assert {name: places for name, places in shared.items() if SHARED.get(name) != places} == {}
    assert set(SHARED) <= set(shared), "an exception that is needed no more"
