"""The health of a partition: whether it can be read and written, and why not."""

from __future__ import annotations

import logging
from enum import Enum

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault

LOGGER = logging.getLogger(__name__)


class PartitionHealth(Enum):
    """What a partition can do."""

    OK = "ok"
    READ_ONLY = "read_only"


class HealthTracker:
    """The health of one partition.

    Args:
        path: the partition's directory.

    Attributes:
        state: what it can do.
        reason: why it cannot do more; empty when all is well.
    """

    __slots__ = ("_path", "reason", "state")

    def __init__(self, path: str) -> None:
        self._path = path
        self.state = PartitionHealth.OK
        self.reason = ""

    def degrade(self, state: PartitionHealth, reason: str) -> None:
        """Serve less from here on."""
        self.state, self.reason = state, reason
        LOGGER.error("partition %s is now %s: %s", self._path, state.value, reason)

    def restore(self) -> None:
        """Serve everything again."""
        self.state, self.reason = PartitionHealth.OK, ""

    def check_writable(self) -> None:
        """Refuse a change.

        Raises:
            ServerFault: the partition takes none.
        """
        if self.state is not PartitionHealth.OK:
            raise ServerFault(
                StatusCode.CANNOT_APPEND_MESSAGE,
                f"partition {self._path} is {self.state.value}: {self.reason}",
            )
