"""Personal access tokens: a token is shown once, and only its hash is stored."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["hash_token", "make_token"]

TOKEN_BYTES = 50


def make_token(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make a token: 50 random bytes as text."""
    return base64.b64encode(random_bytes(TOKEN_BYTES)).decode("ascii")


def hash_token(token: str) -> str:
    """Compute what is stored of a token, and what a login looks up."""
    return blake3(token.encode()).hexdigest()
