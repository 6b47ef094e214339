"""Shows the values of failed assertions in the conformance classes, as in test modules."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.server.storage.conformance_files",
    "tests.server.storage.conformance_names",
    "tests.server.storage.conformance_lifetime",
)
