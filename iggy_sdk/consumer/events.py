"""The log of a consumer: one line for each event, with structured fields in ``extra``.

The logger is ``iggy_sdk.consumer``. Each record has ``iggy_event``, ``stream``, ``topic`` and
``group`` or ``consumer``; other fields belong to the event. No record has a payload.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iggy_sdk.log_events import EVENT

if TYPE_CHECKING:
    from iggy_sdk.consumer.subscription import Subscription


logger: logging.Logger = logging.getLogger("iggy_sdk.consumer")


def log_event(
    event: str,
    subscription: Subscription,
    text: str,
    *,
    level: int = logging.INFO,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Log an event of a consumer.

    Args:
        event: the name of the event, for machines.
        subscription: whose event it is.
        text: what happened, for people.
        level: how important it is.
        error: its traceback is logged as well.
        fields: what belongs to the event.
    """
    if not logger.isEnabledFor(level):
        return
    extra = {EVENT: event, **subscription.log_fields, **fields}
    logger.log(level, "%s: %s", subscription, text, exc_info=error, extra=extra)
