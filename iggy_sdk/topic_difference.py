"""What a topic that exists already has that differs from what was asked for."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, Final

from iggy_sdk.errors import TopicDiffersError, TopicDiffersWarning
from iggy_sdk.log_events import TOPIC_DIFFERS, log_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_protocol import Identifier, TopicDetails

_LOGGER: Final = logging.getLogger("iggy_sdk.topics")

CALLER_FRAMES: Final = 3
"""How many calls are between the warning and the program that asked."""


def check_same_topic(
    stream: Identifier,
    found: TopicDetails,
    asked: Mapping[str, object],
    *,
    must_be_same: bool = False,
    caller_frames: int = CALLER_FRAMES,
) -> None:
    """Warn of a topic that differs from what was asked for, or refuse it.

    Args:
        stream: where it is.
        found: the topic.
        asked: what was asked for explicitly, by the field of the topic.
        must_be_same: whether a difference is an error.
        caller_frames: how many calls are between the warning and the program that asked.

    Raises:
        TopicDiffersError: it differs, and must not.
    """
    differences = {
        name: (wanted, getattr(found, name))
        for name, wanted in asked.items()
        if getattr(found, name) != wanted
    }
    if not differences:
        return
    parts = [
        f"{has} {name.replace('_', ' ').removesuffix(' count')} instead of {wanted}"
        for name, (wanted, has) in differences.items()
    ]
    error = TopicDiffersError(
        f"topic {found.name!r} of stream {stream!r} exists with {', '.join(parts)}",
        advice=_advice_for(*differences.get("partitions_count", (0, 0))),
        differences=differences,
    )
    if must_be_same:
        raise error
    log_event(
        *(_LOGGER, logging.WARNING, TOPIC_DIFFERS, "%s", error.message),
        stream=stream,
        topic=found.name,
        differences=differences,
    )
    text = f"{error.message}. {error.advice}"
    warnings.warn(text, TopicDiffersWarning, stacklevel=caller_frames)


def _advice_for(wanted: Any, has: Any) -> str:
    """Say what to do about a number of partitions, or about something else if it is the same."""
    if has < wanted:
        return (
            f"Add {wanted - has} with create_partitions() if you need them; keys then change their"
            " partitions. Leave the number out to take any."
        )
    if has > wanted:
        return "Ask for the number that the topic has, or leave it out to take any."
    return "Change it with update_topic(), or leave the setting out to take the topic as it is."
