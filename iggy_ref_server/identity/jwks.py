"""The public keys of trusted issuers, fetched from their key sets (JWKS).

A key set is fetched when a key is missing or stale, by one task at a time, with limits of time and
size. There is a pause between two fetches, so that tokens with made-up key ids cannot make this
server flood an issuer with requests. While an issuer is unreachable, its last keys are used for a
limited time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt
import msgspec
import trio

if TYPE_CHECKING:
    from iggy_ref_server.config.schema import TrustedIssuerConfig


LOGGER = logging.getLogger(__name__)

FETCH_TIMEOUT_S: Final = 5.0
# Key sets have a handful of keys of about 500 bytes each.
KEY_SET_BYTES_MAX: Final = 1 << 18
KEYS_MAX: Final = 100
# How soon a key that its issuer has withdrawn is noticed.
FRESH_S: Final = 300.0
# How soon a key that its issuer has just published is noticed, and how often we may ask.
FETCH_PAUSE_S: Final = 10.0
# How long the last known keys serve when their issuer does not answer.
STALE_KEYS_MAX_S: Final = 3600.0

# A key is good for the algorithms of its family only, whatever a token says: a public key that is
# taken for the secret of an HMAC would let every client sign.
RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVE_ALGORITHMS: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}


class IssuerKey(NamedTuple):
    """A public key and the algorithms it may be used with."""

    key: Any
    algorithms: tuple[str, ...]


@dataclass(slots=True)
class _IssuerCache:
    """What is known of one issuer."""

    keys: Mapping[str, IssuerKey] = field(default_factory=dict)
    fetched_at: float = float("-inf")
    asked_at: float = float("-inf")
    lock: trio.Lock = field(default_factory=trio.Lock)

    def is_due(self, key_id: str, now: float) -> bool:
        """Tell whether to ask the issuer now."""
        is_missing_or_stale = key_id not in self.keys or now >= self.fetched_at + FRESH_S
        return is_missing_or_stale and now >= self.asked_at + FETCH_PAUSE_S


class KeySets:
    """The keys of all trusted issuers."""

    def __init__(self) -> None:
        self._caches: dict[str, _IssuerCache] = {}

    async def find(self, issuer: TrustedIssuerConfig, key_id: str) -> IssuerKey | None:
        """Return a key of an issuer; None where it has no such key, or cannot be asked."""
        cache = self._caches.setdefault(issuer.issuer, _IssuerCache())
        if cache.is_due(key_id, trio.current_time()):
            async with cache.lock:
                if cache.is_due(key_id, trio.current_time()):
                    await self._refresh(issuer, cache)
        return cache.keys.get(key_id)

    async def _refresh(self, issuer: TrustedIssuerConfig, cache: _IssuerCache) -> None:
        try:
            cache.keys = read_key_set(await _fetch(issuer.jwks_url))
            cache.fetched_at = trio.current_time()
        except _KeySetUnavailable as refusal:
            LOGGER.warning(
                "the key set of issuer %s could not be refreshed: %s", issuer.issuer, refusal
            )
            if trio.current_time() > cache.fetched_at + STALE_KEYS_MAX_S:
                cache.keys = {}
        finally:
            cache.asked_at = trio.current_time()


class _KeySetUnavailable(Exception):
    """What came is no key set, or nothing came."""


async def _fetch(url: str) -> bytes:
    # Imported here: a server without trusted issuers should not wait for this library.
    import httpx

    content = bytearray()
    try:
        with trio.fail_after(FETCH_TIMEOUT_S):
            # Neither proxies of the environment nor redirects may lead elsewhere.
            async with (
                httpx.AsyncClient(trust_env=False, timeout=FETCH_TIMEOUT_S) as client,
                client.stream("GET", url) as response,
            ):
                if response.status_code != 200:
                    raise _KeySetUnavailable(f"{url} answered {response.status_code}")
                # What is too much is read all the same, but not kept: the time is bounded, and a
                # stream of httpx that is left in the middle complains.
                async for piece in response.aiter_bytes():
                    content += piece[: KEY_SET_BYTES_MAX + 1 - len(content)]
    except (httpx.HTTPError, httpx.InvalidURL, OSError, trio.TooSlowError) as error:
        raise _KeySetUnavailable(f"{url} cannot be fetched: {error!r}") from error
    if len(content) > KEY_SET_BYTES_MAX:
        raise _KeySetUnavailable(f"{url} has more than {KEY_SET_BYTES_MAX} bytes")
    return bytes(content)


def read_key_set(content: bytes) -> Mapping[str, IssuerKey]:
    """Read the keys of a key set that have an id and a kind that is known; others are left out."""
    try:
        entries = msgspec.json.decode(content, type=_KeySet).keys
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _KeySetUnavailable(f"the response is not a key set: {error}") from error
    keys: dict[str, IssuerKey] = {}
    for entry in entries[:KEYS_MAX]:
        key_id = entry.get("kid")
        if isinstance(key_id, str) and (key := _read_key(entry)) is not None:
            keys[key_id] = key
    return keys


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def _read_key(entry: dict[str, Any]) -> IssuerKey | None:
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "RSA":
        algorithms: tuple[str, ...] = RSA_ALGORITHMS
    elif kind == "EC" and isinstance(curve, str):
        algorithms = CURVE_ALGORITHMS.get(curve, ())
    else:
        return None
    stated = entry.get("alg")
    if stated is not None:
        algorithms = tuple(name for name in algorithms if name == stated)
    if not algorithms or entry.get("use", "sig") != "sig":
        return None
    # If an issuer published a private key by mistake, only its public part is used.
    public = {name: value for name, value in entry.items() if name in ("kty", "crv", *"nexy")}
    try:
        return IssuerKey(jwt.PyJWK(public, algorithm=algorithms[0]).key, algorithms)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        LOGGER.warning("ignored a key of a key set: %s", error)
        return None
