"""When a consumer stores offsets, in the official spelling.

``AutoCommit.After(AutoCommitAfter.ConsumingEachMessage())`` is what this SDK calls
``AutoCommit.after_each()``. Each value has it as ``own``, and is equal to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from iggy_sdk.compat.variants import SequenceVariant, variant
from iggy_sdk.consumer import AutoCommit as OwnAutoCommit

if TYPE_CHECKING:
    from datetime import timedelta


class CommitMode(SequenceVariant, ABC):
    """A mode, which is equal to the one of this SDK that does the same."""

    __slots__ = ()

    @property
    @abstractmethod
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it.

        Raises:
            ConfigurationError: it has an interval or a count that cannot be used.
        """

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OwnAutoCommit):
            return self.own == other
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash(self.own)


# Before a message is delivered: at most once.


class AutoCommitWhen(CommitMode):
    """Store the offset when something is delivered: at most once."""

    __slots__ = ()
    PollingMessages: ClassVar[type[WhenPolling]]
    ConsumingAllMessages: ClassVar[type[WhenAll]]
    ConsumingEachMessage: ClassVar[type[WhenEach]]
    ConsumingEveryNthMessage: ClassVar[type[WhenEveryNth]]


@variant(AutoCommitWhen, "PollingMessages")
class WhenPolling(AutoCommitWhen):
    """Store as part of the poll."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.when_polling()


@variant(AutoCommitWhen, "ConsumingAllMessages")
class WhenAll(AutoCommitWhen):
    """Store when the last message of a poll is delivered."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.when_all()


@variant(AutoCommitWhen, "ConsumingEachMessage")
class WhenEach(AutoCommitWhen):
    """Store when each message is delivered."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.when_each()


@variant(AutoCommitWhen, "ConsumingEveryNthMessage")
class WhenEveryNth(AutoCommitWhen):
    """Store when every nth message is delivered."""

    __slots__ = ("_0",)
    __match_args__ = ("_0",)

    def __init__(self, _0: int) -> None:
        self._0 = _0

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.when_every_nth(self._0)


# After a message was processed: at least once.


class AutoCommitAfter(CommitMode):
    """Store the offset after something was processed: at least once."""

    __slots__ = ()
    ConsumingAllMessages: ClassVar[type[AfterAll]]
    ConsumingEachMessage: ClassVar[type[AfterEach]]
    ConsumingEveryNthMessage: ClassVar[type[AfterEveryNth]]


@variant(AutoCommitAfter, "ConsumingAllMessages")
class AfterAll(AutoCommitAfter):
    """Store after the last message of a poll."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.after_all()


@variant(AutoCommitAfter, "ConsumingEachMessage")
class AfterEach(AutoCommitAfter):
    """Store after each message."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.after_each(coalesce_messages=1)


@variant(AutoCommitAfter, "ConsumingEveryNthMessage")
class AfterEveryNth(AutoCommitAfter):
    """Store after every nth message."""

    __slots__ = ("_0",)
    __match_args__ = ("_0",)

    def __init__(self, _0: int) -> None:
        self._0 = _0

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.after_every_nth(self._0)


# What a consumer is given.


class AutoCommit(CommitMode):
    """When offsets are stored without being asked for."""

    __slots__ = ()
    Disabled: ClassVar[type[NoCommit]]
    Interval: ClassVar[type[CommitInterval]]
    IntervalOrWhen: ClassVar[type[CommitIntervalOrWhen]]
    IntervalOrAfter: ClassVar[type[CommitIntervalOrAfter]]
    When: ClassVar[type[CommitWhen]]
    After: ClassVar[type[CommitAfter]]


@variant(AutoCommit, "Disabled")
class NoCommit(AutoCommit):
    """Store nothing; ``store_offset`` does."""

    __slots__ = ()

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.disabled()


@variant(AutoCommit, "Interval")
class CommitInterval(AutoCommit):
    """Store every so often what was processed."""

    __slots__ = ("_0",)
    __match_args__ = ("_0",)

    def __init__(self, _0: timedelta) -> None:
        self._0 = _0

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.interval(self._0)


@variant(AutoCommit, "IntervalOrWhen")
class CommitIntervalOrWhen(AutoCommit):
    """Store every so often, and when ``AutoCommitWhen`` says so."""

    __slots__ = ("_0", "_1")
    __match_args__ = ("_0", "_1")

    def __init__(self, _0: timedelta, _1: AutoCommitWhen) -> None:
        self._0 = _0
        self._1 = _1

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.interval(self._0, or_=self._1.own)


@variant(AutoCommit, "IntervalOrAfter")
class CommitIntervalOrAfter(AutoCommit):
    """Store every so often, and after what ``AutoCommitAfter`` says."""

    __slots__ = ("_0", "_1")
    __match_args__ = ("_0", "_1")

    def __init__(self, _0: timedelta, _1: AutoCommitAfter) -> None:
        self._0 = _0
        self._1 = _1

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return OwnAutoCommit.interval(self._0, or_=self._1.own)


@variant(AutoCommit, "When")
class CommitWhen(AutoCommit):
    """Store when ``AutoCommitWhen`` says so."""

    __slots__ = ("_0",)
    __match_args__ = ("_0",)

    def __init__(self, _0: AutoCommitWhen) -> None:
        self._0 = _0

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return self._0.own


@variant(AutoCommit, "After")
class CommitAfter(AutoCommit):
    """Store after what ``AutoCommitAfter`` says."""

    __slots__ = ("_0",)
    __match_args__ = ("_0",)

    def __init__(self, _0: AutoCommitAfter) -> None:
        self._0 = _0

    @property
    def own(self) -> OwnAutoCommit:
        """The mode as this SDK spells it."""
        return self._0.own


def own_auto_commit(mode: AutoCommit | OwnAutoCommit | None) -> OwnAutoCommit | None:
    """Return a mode as this SDK spells it, in either spelling."""
    return mode.own if isinstance(mode, AutoCommit) else mode
