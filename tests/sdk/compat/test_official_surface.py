"""``iggy_sdk.compat`` offers what the official wheels offer, but for what is listed here.

A name that a new wheel brings, one that is lost here, and one that is listed without need fail.
"""

from __future__ import annotations

import pytest

from iggy_sdk import compat
from tests.interop.wheels import ROOT
from tests.sdk.compat.official_surface import (
    GOLDEN,
    differences,
    different_parameters,
    facts_of,
    parameters_of,
)
from tests.sdk.compat.samples import sample_of
from tools import official_names

NO_PENDING = (
    "a client of this SDK keeps no operation whose answer was lost: DisconnectedError.sent and "
    "RequestTimeoutError say that it may have been carried out"
)
ORDER_OF_0_9 = "stands at the place of 0.9.0, and 0.9.1.dev5 changed the order; by name it is taken"
NO_0_9 = "is taken by name only, because 0.9.0 has something else at its place"

MISSING = {
    "0.9.0": {},
    "0.9.1.dev5": {
        "IggyClient.abandon_operation": NO_PENDING,
        "IggyClient.create_topic(options)": (
            "stands at the place of 0.9.0; TopicOptions are taken as the third argument as well"
        ),
        "IggyClient.producer(topic_durability)": NO_0_9,
        "IggyClient.resolve_operation": NO_PENDING,
        "IggyClient.send_binary_request_to_replica": (
            "a client of this SDK has a connection to one node at a time"
        ),
        "IggyClient.update_stream(options)": ORDER_OF_0_9,
        "IggyClient.update_stream(raw_reset)": NO_0_9,
        "IggyClient.update_stream(reset)": NO_0_9,
        "IggyClient.update_topic(max_topic_size)": ORDER_OF_0_9,
        "IggyClient.update_topic(message_expiry)": ORDER_OF_0_9,
        "IggyClient.update_topic(raw_reset)": NO_0_9,
        "IggyClient.update_topic(reset)": NO_0_9,
        "IggyClient.update_user(options)": ORDER_OF_0_9,
        "IggyClient.update_user(raw_reset)": NO_0_9,
        "IggyClient.update_user(reset)": NO_0_9,
        "PendingOperationError": NO_PENDING,
        "TokenInfo": "this SDK keeps the token of a login over HTTP to itself, and renews it",
    },
}


@pytest.mark.parametrize("version", MISSING)
def test_compat_when_compared_with_a_wheel_then_lacks_what_is_listed_and_no_more(version):
    found = differences(facts_of(version), compat, sample_of)

    assert sorted(found - MISSING[version].keys()) == []
    assert sorted(MISSING[version].keys() - found) == [], "these are there now: unlist them"


def test_compat_when_listed_then_every_name_is_there_once():
    assert [name for name in compat.__all__ if not hasattr(compat, name)] == []
    assert sorted(set(compat.__all__)) == compat.__all__


def test_facts_when_read_again_from_the_wheels_then_are_the_same():
    files = [path.stem.removeprefix("names.") for path in GOLDEN.glob("names.*.json")]
    environments = {version: ROOT / ".venv-wheels" / f"apache-iggy-{version}" for version in files}
    installed = [str(path) for path in environments.values() if path.exists()]

    assert set(files) == set(MISSING)
    assert installed, "make wheels"
    assert official_names.main(["--check", *installed]) == 0


# The comparison itself: it sees what it is there for.

STUB = """
__all__ = ["Thing", "Gone", "measure"]

class Gone: ...

class Thing(dict):
    __match_args__ = ("size",)
    FIRST = ...
    @property
    def size(self) -> int: ...
    def __new__(cls, size: int, *, colour: str = "red") -> Thing: ...
    def __len__(self) -> int: ...
    def move(self, left: int, right: int = 1 << 4) -> collections.abc.Awaitable[None]: ...
    class Small(Thing): ...

def measure(thing: Thing, /) -> int: ...
"""


class Package:
    """What a package looks like that offers something else."""

    __all__ = ("Thing", "measure")

    class Thing:
        def __init__(self, size=0, *, colour="blue", weight):
            self.weight = weight

        def move(self, right, left):
            return None

    @staticmethod
    def measure():
        return 0


def test_comparison_when_a_package_differs_then_names_each_difference():
    facts = official_names.facts_of("1.0", STUB)

    found = differences(facts, Package, lambda kind: kind(weight=1))

    assert found == {
        "Gone",
        "Thing is no dict",
        "Thing(colour)",
        "Thing(weight)",
        "Thing.FIRST",
        "Thing.Small",
        "Thing.__len__",
        "Thing.__match_args__",
        "Thing.move is not awaited alike",
        "Thing.move(left)",
        "Thing.move(right)",
        "Thing.size",
        "measure(thing)",
    }


def test_facts_when_written_then_hold_no_text_of_the_stub():
    body = 'def f(self, a: int = 1) -> None: "A sentence."'
    facts = official_names.facts_of("1.0", f'__all__ = ["A"]\nclass A:\n    "One."\n    {body}')

    assert "sentence" not in str(facts)
    assert facts["classes"]["A"]["methods"]["f"]["parameters"] == [
        {"name": "a", "kind": "by position or name", "default": "1"}
    ]


def test_parameters_when_alike_then_none_is_named():
    facts = official_names.facts_of("1.0", STUB)["classes"]["Thing"]["methods"]["move"]

    async def move(self, left, right=16, *, more=None):
        return None

    assert list(different_parameters(facts["parameters"], parameters_of(move, bound=True))) == []


def test_migration_page_when_read_then_names_what_is_missing():
    text = (ROOT / "docs" / "sdk-migration.md").read_text(encoding="utf-8")
    section = text[text.index("## What is missing") :]
    named = {
        name
        for missing in MISSING.values()
        for name, reason in missing.items()
        if reason not in (ORDER_OF_0_9, NO_0_9)
    }

    unnamed = [name for name in named if name.removesuffix(")") not in section]

    assert sorted(unnamed) == ["IggyClient.create_topic(options)"]
    assert "the order of `create_topic`, `update_topic`, `update_stream`, `update_user`" in section
