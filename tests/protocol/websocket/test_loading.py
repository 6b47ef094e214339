"""Which parts of the library ``websockets`` are needed, and what happens without them."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys

import pytest
import websockets.utils
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.websocket import header

# Modules of the library that open sockets or run an event loop.
WITH_IO = ("asyncio", "sync", "legacy", "trio", "connection", "proxy")


def test_package_when_imported_then_loads_no_part_of_the_library_with_io():
    script = "import sys, iggy_protocol.websocket; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=20
    )
    loaded = set(done.stdout.split())

    assert "websockets.protocol" in loaded
    assert not loaded & {f"websockets.{name}" for name in WITH_IO}


def test_package_when_the_library_is_missing_then_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)
    monkeypatch.delitem(sys.modules, "iggy_protocol.websocket")

    with pytest.raises(ModuleNotFoundError, match=r"'iggy-python\[websocket\]'") as caught:
        importlib.import_module("iggy_protocol.websocket")

    assert caught.value.name == "websockets"


@given(data=st.binary(max_size=70), mask=st.binary(min_size=4, max_size=4))
def test_mask_when_the_library_has_no_c_extension_then_is_applied_in_python(data, mask):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "websockets.speedups", None)
        spec = importlib.util.spec_from_file_location("header_in_python", header.__file__)
        assert spec
        assert spec.loader
        python = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(python)

    assert python.apply_mask is websockets.utils.apply_mask
    assert python.apply_mask(data, mask) == header.apply_mask(data, mask)
