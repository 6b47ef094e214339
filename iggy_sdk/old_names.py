"""Names that public classes had before; each is the same class, with a ``DeprecationWarning``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


OLD_ERRORS: Final[Mapping[str, str]] = {
    "ConsumerGroupExists": "ConsumerGroupExistsError",
    "ConsumerGroupNotFound": "ConsumerGroupNotFoundError",
    "InvalidOffset": "InvalidOffsetError",
    "MessageTooLarge": "MessageTooLargeError",
    "NotAMember": "NotAMemberError",
    "PartitionNotFound": "PartitionNotFoundError",
    "PartitionNotOwned": "PartitionNotOwnedError",
    "PartitionRestarted": "PartitionRestartedError",
    "StreamExists": "StreamExistsError",
    "StreamNotFound": "StreamNotFoundError",
    "TopicExists": "TopicExistsError",
    "TopicNotFound": "TopicNotFoundError",
}
OLD_NAMES: Final[Mapping[str, str]] = {**OLD_ERRORS, "Consumer": "ConsumerIdentity"}


def warn_of_old_name(old: str, new: str) -> None:
    """Warn the caller of the caller."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
