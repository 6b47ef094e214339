"""An issuer of tokens on this machine, with its key set on a real port."""

from __future__ import annotations

import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import jwt
import trio
from cryptography.hazmat.primitives.asymmetric import ec, rsa

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """Makes tokens, and tells everybody its public keys.

    Attributes:
        url: where the key set is.
        keys: the entries of the key set.
        fetches: how often somebody asked.
        answer: sent instead of the key set, if it is set.
        is_silent: whether nothing is answered at all.
    """

    NAME = "https://issuer.example"

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/jwks"
        self.keys: list[dict[str, Any]] = [rsa_entry("rsa"), ec_entry("ec")]
        self.fetches = 0
        self.answer: bytes | None = None
        self.is_silent = False

    def settings(self, user_id: int = 1) -> dict[str, str]:
        """Return the configuration that trusts this issuer."""
        prefix = "HTTP_JWT_TRUSTED_ISSUERS_0_"
        return {
            f"{prefix}ISSUER": self.NAME,
            f"{prefix}AUDIENCE": "iggy",
            f"{prefix}JWKS_URL": self.url,
            f"{prefix}USER_ID": str(user_id),
        }

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one request."""
        async with stream:
            await stream.receive_some(65_536)
            self.fetches += 1
            if self.is_silent:
                await trio.sleep_forever()
            body = json.dumps({"keys": self.keys}).encode()
            head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(head.encode() + body if self.answer is None else self.answer)


def rsa_entry(key_id: str, key: Any = RSA_KEY, **more: Any) -> dict[str, Any]:
    entry = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**entry, "kid": key_id, **more}


def ec_entry(key_id: str) -> dict[str, Any]:
    entry = jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True)
    return {**entry, "kid": key_id}


@asynccontextmanager
async def open_issuer() -> AsyncIterator[Issuer]:
    """Run an issuer for the time of the block."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        issuer = Issuer(listener.socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, issuer.serve, [listener])
        yield issuer
        nursery.cancel_scope.cancel()
