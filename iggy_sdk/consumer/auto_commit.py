"""When a consumer stores its offsets: the modes as values.

A mode says two things. What counts as done: a message that was *delivered* (the ``when`` modes,
at most once) or one that was *acknowledged* (the ``after`` modes, at least once). And which
moments ask for a store: each message, every nth, the end of a polled batch, the passing of time,
or the poll itself.

These are values only; the offset tracker counts, and the commit scheduler stores.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Final

from iggy_protocol import record
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.option_checks import check_fields, check_value, kind_of

COALESCE_SECONDS: Final = 0.2
"""How long acknowledged messages may wait for their store; a rebalance waits for it, so half a
second would stall the new owner of a partition."""

COALESCE_MESSAGES: Final = 1000
"""How many acknowledged messages may wait for their store: one poll of the usual length."""


class Trigger(Enum):
    """Which moment asks for a store."""

    NEVER = "never"
    POLLING = "polling"
    EACH = "each"
    ALL = "all"
    NTH = "every nth"


class Basis(Enum):
    """What makes a message count as done."""

    DELIVERED = "when"
    ACKNOWLEDGED = "after"


@record
class AutoCommit:
    """When offsets are stored without being asked for; make one with the methods below.

    Attributes:
        trigger: the moment that asks for a store.
        basis: what makes a message count as done.
        nth: how many messages make one store, for ``Trigger.NTH``.
        every: seconds between stores that only the clock asks for, or None.
        coalesce: seconds that stores of ``Trigger.EACH`` are gathered for.
        coalesce_messages: messages that stores of ``Trigger.EACH`` are gathered for.
    """

    trigger: Trigger = Trigger.EACH
    basis: Basis = Basis.ACKNOWLEDGED
    nth: int = 1
    every: float | None = None
    coalesce: float = COALESCE_SECONDS
    coalesce_messages: int = COALESCE_MESSAGES

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def disabled(cls) -> AutoCommit:
        """Store nothing; ``message.commit()`` and ``store_offset`` do."""
        return cls(Trigger.NEVER)

    @classmethod
    def interval(cls, every: Seconds, or_: AutoCommit | None = None) -> AutoCommit:
        """Store what is done every so often, and also when another mode asks for it.

        Args:
            every: the time between two stores.
            or_: the other mode; on its own, only acknowledged messages are stored.

        Raises:
            ConfigurationError: the time is zero, or the other mode has an interval itself.
        """
        seconds = to_seconds(every, name="interval")
        if seconds <= 0:
            raise ConfigurationError(
                "a commit interval of zero", advice="Use AutoCommit.after_each() instead."
            )
        if or_ is None:
            return cls(Trigger.NEVER, every=seconds)
        if or_.every is not None:
            raise ConfigurationError(
                "two commit intervals in one mode",
                advice="Give or_ a mode without an interval, such as AutoCommit.after_each().",
            )
        return replace(or_, every=seconds)

    @classmethod
    def when_polling(cls) -> AutoCommit:
        """Let the server store the end of each polled batch at once: at most once."""
        return cls(Trigger.POLLING, Basis.DELIVERED)

    @classmethod
    def when_each(cls) -> AutoCommit:
        """Store each message before it is delivered: at most once, one request each."""
        return cls(Trigger.EACH, Basis.DELIVERED, coalesce=0.0, coalesce_messages=1)

    @classmethod
    def when_all(cls) -> AutoCommit:
        """Store the end of a polled batch before its last message is delivered."""
        return cls(Trigger.ALL, Basis.DELIVERED)

    @classmethod
    def when_every_nth(cls, n: int) -> AutoCommit:
        """Store before each nth message of a partition is delivered."""
        return cls(Trigger.NTH, Basis.DELIVERED, nth=_positive(n))

    @classmethod
    def after_each(
        cls, *, coalesce: Seconds = COALESCE_SECONDS, coalesce_messages: int = COALESCE_MESSAGES
    ) -> AutoCommit:
        """Store each acknowledged message: at least once. This is the default.

        Stores are gathered for a moment, and made at once when nothing is left in the buffer.

        Args:
            coalesce: how long acknowledged messages may wait.
            coalesce_messages: how many may wait; 1 stores each by itself.
        """
        return cls(
            Trigger.EACH,
            coalesce=to_seconds(coalesce, name="coalesce"),
            coalesce_messages=_positive(coalesce_messages),
        )

    @classmethod
    def after_all(cls) -> AutoCommit:
        """Store when all messages of a polled batch are acknowledged."""
        return cls(Trigger.ALL)

    @classmethod
    def after_every_nth(cls, n: int) -> AutoCommit:
        """Store after each nth acknowledged message of a partition; the rest is not stored."""
        return cls(Trigger.NTH, nth=_positive(n))

    @property
    def is_disabled(self) -> bool:
        """Whether nothing is ever stored without being asked for."""
        return self.trigger is Trigger.NEVER and self.every is None

    @property
    def stores_all(self) -> bool:
        """Whether all that is done gets stored sooner or later without being asked for."""
        return self.every is not None or self.trigger not in (Trigger.NEVER, Trigger.NTH)

    @property
    def counts_handed_out(self) -> bool:
        """Whether handing a message out is what makes it done."""
        return self.basis is Basis.DELIVERED

    @property
    def by_server(self) -> bool:
        """Whether the server stores as part of the poll."""
        return self.trigger is Trigger.POLLING

    @property
    def pulse(self) -> float | None:
        """Seconds between two looks at the clock, or None when time plays no part."""
        gathered = self.coalesce if self.trigger is Trigger.EACH and self.coalesce > 0 else None
        spans = [span for span in (self.every, gathered) if span is not None]
        return min(spans, default=None)


def _positive(n: int) -> int:
    check_value("n", n, kind_of(int))
    if n < 1:
        raise ConfigurationError(f"a count of {n} messages", advice="Use 1 or more.")
    return n
