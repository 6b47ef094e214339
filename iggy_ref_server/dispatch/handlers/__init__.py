"""The handlers of all commands, one module per family; ``dispatch.table`` names them."""

from __future__ import annotations
