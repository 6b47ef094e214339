"""Running a test once for each generation of the wire, against servers in memory.

``every_dialect`` is a fixture for modules whose servers are fakes: the fakes ask ``spoken`` what to
speak, and the client is told the same generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iggy_protocol import CLASSIC, V0_12_0, V0_12_2, Dialect
from iggy_sdk.connection_string import ServerProtocol
from tests.sdk.scripted_peer import Peer
from tests.sdk.vsr_peer import vsr_peers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sdk.scripted_peer import PeerFactory


class Spoken:
    """What fakes speak at the moment."""

    def __init__(self) -> None:
        self.dialect: Dialect = CLASSIC

    @property
    def peers(self) -> PeerFactory:
        """Make the servers' ends of connections in this dialect."""
        return vsr_peers(self.dialect) if self.dialect.is_vsr else Peer

    @property
    def options(self) -> dict[str, Any]:
        """Tell a client which generation to speak."""
        return {"protocol": ServerProtocol(self.dialect.generation)}


SPOKEN = Spoken()


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.name)
def every_dialect(request: pytest.FixtureRequest) -> Iterator[Dialect]:
    """Run the test in every dialect; servers in memory speak it."""
    SPOKEN.dialect = request.param
    yield request.param
    SPOKEN.dialect = CLASSIC


@pytest.fixture(params=[V0_12_0, V0_12_2], ids=lambda dialect: dialect.name)
def later_dialect(request: pytest.FixtureRequest) -> Iterator[Dialect]:
    """Run the test in the dialects from 0.10 on."""
    SPOKEN.dialect = request.param
    yield request.param
    SPOKEN.dialect = CLASSIC
