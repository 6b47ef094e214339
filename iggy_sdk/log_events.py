"""What the SDK logs: one name for each event, and the fields that come with it.

Loggers are ``iggy_sdk.session``, ``iggy_sdk.producer``, ``iggy_sdk.topics`` and
``iggy_sdk.consumer``. A record has the name of its event in the attribute ``iggy_event``, and
further attributes by event, so that programs need not read the text. No record has a password, a
token or a payload.

    connected   endpoint, dialect                    the first connection is open and logged in
    lost        endpoint, reason                     it has ended, and the client did not want that
    attempt     attempt, delay_s, reason             connecting failed; when the next attempt begins
    back        endpoint, dialect, seconds, attempt  open again, and how long it was away
    gave_up     reason                               no attempt follows before the next request
    redirected  endpoint, leader                     the client moves to the leader of the cluster
    send_given_up  stream, topic, messages_count, reason, sent
    topic_differs  stream, topic, differences        it exists, and not as it was asked for
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import logging

EVENT: Final = "iggy_event"
"""The attribute of a record that names the event."""

CONNECTED: Final = "connected"
LOST: Final = "lost"
ATTEMPT: Final = "attempt"
BACK: Final = "back"
GAVE_UP: Final = "gave_up"
REDIRECTED: Final = "redirected"
SEND_GIVEN_UP: Final = "send_given_up"
TOPIC_DIFFERS: Final = "topic_differs"


def log_event(
    logger: logging.Logger, level: int, event: str, text: str, /, *values: object, **fields: Any
) -> None:
    """Log an event.

    Args:
        logger: the logger of the package.
        level: how much it matters.
        event: its name.
        text: a sentence with ``%s`` for each value.
        values: what the sentence says.
        fields: further attributes of the record.
    """
    if logger.isEnabledFor(level):
        # The record names the function that logs, and not this one.
        logger.log(level, text, *values, extra={EVENT: event, **fields}, stacklevel=2)
