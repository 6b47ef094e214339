"""What every storage engine must do: one class, run over each engine.

A test module inherits from ``StorageConformance`` and supplies an async fixture ``storage``: an
empty, open storage that never feels pressure (``Pressure(clock=lambda: 0.0)`` on real disks), so
that ``write_nowait`` writes whenever nothing is in its way.

    class TestThreads(StorageConformance):
        @pytest.fixture
        async def storage(self, tmp_path):
            storage = ThreadStorage(tmp_path, pressure=Pressure(clock=lambda: 0.0))
            yield storage
            await storage.aclose()
"""

from __future__ import annotations

from tests.server.storage.conformance_files import FileConformance
from tests.server.storage.conformance_lifetime import LifetimeConformance
from tests.server.storage.conformance_names import NameConformance

__all__ = ["StorageConformance"]


class StorageConformance(FileConformance, NameConformance, LifetimeConformance):
    """All that is asked of an engine."""
