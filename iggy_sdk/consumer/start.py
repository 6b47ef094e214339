"""Where reading starts: places in a partition, as options name them.

``start_if_new`` says where a group or consumer starts that has stored nothing yet. ``replay_from``
and ``seek`` read again on purpose. All three take the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeGuard

from iggy_protocol import PollingStrategy
from iggy_sdk.errors import ConfigurationError

StartIfNew: TypeAlias = Literal["earliest", "latest"] | int | datetime
"""Where a new group or consumer starts: at its oldest message, behind its newest one, at an offset,
or at the first message of a time."""

ReplayPlace: TypeAlias = Literal["earliest"] | int | datetime
"""Where to read again: from the oldest message, an offset, or the first message of a time."""

ReplayFrom: TypeAlias = ReplayPlace | Mapping[int, ReplayPlace]
"""One place for all partitions, or a place for each partition that is to be read again."""

PLACES_ADVICE: Final = "Use 'earliest', an offset from 0 on, or a datetime with a time zone."
START_ADVICE: Final = (
    "Use 'earliest', 'latest', an offset from 0 on, or a datetime with a time zone."
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_start_if_new(value: StartIfNew) -> StartIfNew:
    """Return the value of ``start_if_new``.

    Raises:
        ConfigurationError: it is none of the possible values.
    """
    if value == "latest" or _is_place(value):
        return value
    raise ConfigurationError(f"start_if_new is {value!r}", advice=START_ADVICE)


def read_replay_from(value: ReplayFrom | None) -> ReplayFrom | None:
    """Return the value of ``replay_from``, a mapping as a copy.

    Raises:
        ConfigurationError: it is none of the possible values.
    """
    if value is None or _is_place(value):
        return value
    if isinstance(value, Mapping):
        places = dict(value)
        if all(_is_offset(key) and _is_place(place) for key, place in places.items()):
            return places
    advice = f"{PLACES_ADVICE} A mapping has a partition and such a place in each item."
    raise ConfigurationError(f"replay_from is {value!r}", advice=advice)


def strategy_of(place: ReplayPlace | PollingStrategy) -> PollingStrategy:
    """Return the strategy of a poll that starts at a place.

    Raises:
        ConfigurationError: there is no such place.
    """
    if isinstance(place, PollingStrategy):
        return place
    if not _is_place(place):
        raise ConfigurationError(f"there is no place {place!r} to seek", advice=PLACES_ADVICE)
    if isinstance(place, datetime):
        return PollingStrategy.timestamp(microseconds_of(place))
    return PollingStrategy.first() if place == "earliest" else PollingStrategy.offset(place)


def microseconds_of(time: datetime) -> int:
    """Return a time as the wire has it; nothing is older than the year 1970."""
    return max(0, (time - _EPOCH) // timedelta(microseconds=1))


class StartPlan:
    """Where the first poll of each partition starts, until a seek of all partitions.

    Attributes:
        strategy: of partitions that are not read again.
        replay: where partitions are read again; None reads none again.
        guards: whether commits of a partition that is read again are held back.
    """

    def __init__(
        self,
        strategy: PollingStrategy,
        replay: ReplayFrom | None = None,
        *,
        commit_backwards: bool = False,
    ) -> None:
        self.strategy = strategy
        self.replay = replay
        self.guards: bool = not commit_backwards

    @classmethod
    def seek(cls, strategy: PollingStrategy, *, guards: bool) -> StartPlan:
        """Return the plan after a seek of all partitions."""
        plan = cls(strategy)
        plan.guards = guards
        plan._is_seek = True
        return plan

    _is_seek = False

    def strategy_of(self, partition_id: int) -> PollingStrategy:
        """Return where the first poll of a partition starts."""
        place = self._replay_place(partition_id)
        return self.strategy if place is None else strategy_of(place)

    def is_guarded(self, partition_id: int) -> bool:
        """Tell whether lower commits than the stored offset are held back at first."""
        is_replay = self._is_seek or self._replay_place(partition_id) is not None
        return self.guards and is_replay

    def _replay_place(self, partition_id: int) -> ReplayPlace | None:
        if isinstance(self.replay, Mapping):
            return self.replay.get(partition_id)
        return self.replay


def _is_offset(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_place(value: object) -> TypeGuard[ReplayPlace]:
    if isinstance(value, datetime):
        return value.utcoffset() is not None
    return value == "earliest" or _is_offset(value)
