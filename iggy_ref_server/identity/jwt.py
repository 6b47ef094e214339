"""Access tokens (JWT) of the HTTP transport: issued here, or by trusted issuers.

A token of this server names its user and the generation of the user, so that it ends with the user.
The algorithm comes from the configuration, never from the token. Times are checked against the
server's clock. Whether the user still exists is checked by the session.
"""

from __future__ import annotations

import base64
import binascii
import logging
import warnings
from typing import TYPE_CHECKING, Any, Final

import jwt
import msgspec

from iggy_protocol import CLASSIC, Dialect, StatusCode, record
from iggy_ref_server.config.syntax import NEVER_US
from iggy_ref_server.config.tree import ConfigError, ConfigProblem
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_ref_server.clock import Clock
    from iggy_ref_server.config.schema import HttpJwtConfig, TrustedIssuerConfig
    from iggy_ref_server.identity.jwks import KeySets
    from iggy_ref_server.identity.revocations import Revocations


LOGGER = logging.getLogger(__name__)

MICROSECONDS: Final = 1_000_000
# What "never" means, because every token has an end.
NEVER_S: Final = 1_000_000_000
# Ours have about 400 bytes, those of others a few thousand; what is longer is not looked at.
TOKEN_CHARACTERS_MAX: Final = 16_384
SECRET_BYTES: Final = 48
# RFC 7518 asks for a secret at least as long as the hash.
SECRET_BYTES_WANTED: Final = 32
# A refresh needs no password, so a client could fill memory with revoked tokens.
REVOCATIONS_MAX: Final = 100_000
# Whose signatures were checked once; of each about a kilobyte is remembered.
VERIFIED_TOKENS_MAX: Final = 4096
REQUIRED_CLAIMS: Final = ("jti", "iss", "aud", "sub", "iat", "exp", "nbf")
# Those that a token may name; "none" is not among them.
ALGORITHMS: Final = frozenset(
    f"{family}{bits}" for family in ("HS", "RS", "ES", "PS") for bits in (256, 384, 512)
)
# The generation of the user of a token; Apache Iggy has no such claim.
GENERATION_CLAIM: Final = "inc"
# What a client from 0.9 on speaks, as its login has told; the tokens of others have no such claim.
DIALECT_CLAIM: Final = "wire"
DIALECTS: Final = {str(dialect.version): dialect for dialect in Dialect if dialect.is_vsr}
SECONDS_MAX: Final = 2**63 - 1
USER_ID_MAX: Final = 2**32 - 1

# What the library raises for what is no token; it looks into one before it checks what it is.
MALFORMED: Final = (
    jwt.PyJWTError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

# The library reads the machine's clock, so times are checked here.
OPTIONS: Final[Any] = {
    "require": list(REQUIRED_CLAIMS),
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@record
class AccessToken:
    """A new token and when it expires, in seconds."""

    text: str
    expires_at_s: int


@record
class Claims:
    """What a token that counts says.

    Attributes:
        token_id: the id for a revocation.
        user_id: the user it authenticates.
        generation: of that user; None where the token does not say.
        issued_at_s: when it was issued.
        not_before_s: from when it is valid.
        expires_at_s: when it expires.
        is_external: whether a trusted issuer made it.
        dialect: what the client speaks that has logged in.
    """

    token_id: str
    user_id: int
    generation: int | None
    issued_at_s: int
    not_before_s: int
    expires_at_s: int
    is_external: bool = False
    dialect: Dialect = CLASSIC


def _refused(reason: str, status: StatusCode = StatusCode.UNAUTHENTICATED) -> ServerFault:
    return ServerFault(status, f"the access token is refused: {reason}")


class AccessTokens:
    """Issues, verifies and revokes access tokens.

    Args:
        config: the section ``[http.jwt]``.
        clock: the time of day.
        random_bytes: where token ids and a secret come from.
        revocations: the revoked tokens.
        key_sets: the keys of trusted issuers.

    Raises:
        ConfigError: the secrets do not fit the algorithm.
    """

    def __init__(
        self,
        config: HttpJwtConfig,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        revocations: Revocations,
        key_sets: KeySets,
    ) -> None:
        self._config = config
        self._clock = clock
        self._random_bytes = random_bytes
        self.revocations = revocations
        self._key_sets = key_sets
        self._encoding_key, self._decoding_key = _keys(config, random_bytes)
        self._leeway_s = config.clock_skew_us // MICROSECONDS
        # No external issuer can authenticate root, whose id 0 also means "not configured".
        self._issuers = {
            normalize_issuer(issuer.issuer): issuer
            for issuer in config.trusted_issuers
            if issuer.user_id
        }
        self._verified: dict[str, Claims] = {}

    def _now_s(self) -> int:
        return self._clock.now_us() // MICROSECONDS

    def issue(self, user_id: int, generation: int, dialect: Dialect = CLASSIC) -> AccessToken:
        """Make a token for a user who has proven who they are."""
        config, now_s = self._config, self._now_s()
        lifetime_us = config.access_token_expiry_us
        lifetime_s = NEVER_S if lifetime_us == NEVER_US else lifetime_us // MICROSECONDS
        claims = {
            "jti": make_token_id(self._clock.now_us(), self._random_bytes),
            "iss": config.issuer,
            "aud": config.audience,
            "sub": str(user_id),
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "nbf": now_s + config.not_before_us // MICROSECONDS,
            GENERATION_CLAIM: generation,
        }
        if dialect.is_vsr:
            claims[DIALECT_CLAIM] = str(dialect.version)
        text = jwt.encode(claims, self._encoding_key, algorithm=config.algorithm)
        return AccessToken(text, now_s + lifetime_s)

    async def read(self, token: str) -> Claims:
        """Read a token and check that it counts.

        Raises:
            ServerFault: it is not valid; status 78 where it is no token at all or was revoked, 73
                where its algorithm is another one, 40 otherwise.
        """
        claims = self._verified.get(token)
        if claims is None:
            claims = await self._verify(token)
        now_s, leeway_s = self._now_s(), self._leeway_s
        if claims.expires_at_s < now_s - leeway_s:
            raise _refused("it has expired")
        if claims.not_before_s > now_s + leeway_s:
            raise _refused("it is not valid yet")
        if claims.is_external and claims.issued_at_s > now_s + leeway_s:
            raise _refused("it was issued in the future")
        if claims.token_id in self.revocations:
            raise _refused("it was revoked", StatusCode.INVALID_ACCESS_TOKEN)
        if claims.issued_at_s < self.revocations.trusted_since_s:
            raise _refused("it may have been revoked", StatusCode.INVALID_ACCESS_TOKEN)
        return claims

    async def _verify(self, token: str) -> Claims:
        """Verify the signature, the issuer and the audience of a token."""
        header = _read_header(token)
        issuer = None
        if self._issuers:
            issuer = self._issuers.get(normalize_issuer(_claimed_issuer(token)))
        if issuer is not None and isinstance(key_id := header.get("kid"), str):
            return await self._verify_external(token, issuer, key_id)
        algorithm = header.get("alg")
        if algorithm != self._config.algorithm:
            raise _refused(f"its algorithm is {algorithm!r}", StatusCode.INVALID_JWT_ALGORITHM)
        claims = self._verify_own(token)
        if len(self._verified) >= VERIFIED_TOKENS_MAX:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _verify_own(self, token: str) -> Claims:
        config = self._config
        claims = _decode(
            token,
            self._decoding_key,
            (config.algorithm,),
            issuers=config.valid_issuers,
            audiences=config.valid_audiences,
        )
        generation = claims.get(GENERATION_CLAIM)
        if generation is not None and type(generation) is not int:
            raise _refused(f"claim {GENERATION_CLAIM!r} is not a number")
        subject = claims["sub"]
        if not (subject.isascii() and subject.isdigit() and int(subject) <= USER_ID_MAX):
            raise _refused("its subject is not a user id")
        return _make_claims(claims, claims["jti"], int(subject), generation)

    async def _verify_external(
        self, token: str, issuer: TrustedIssuerConfig, key_id: str
    ) -> Claims:
        key = await self._key_sets.find(issuer, key_id)
        if key is None:
            raise _refused(f"issuer {issuer.issuer} has no key {key_id!r}")
        claims = _decode(
            token,
            key.key,
            key.algorithms,
            issuers=(issuer.issuer,),
            audiences=(issuer.audience,),
        )
        # The ids of two issuers may be the same by chance or by intent.
        token_id = f"{claims['jti']}@{issuer.issuer}"
        return _make_claims(claims, token_id, issuer.user_id, None, is_external=True)

    async def revoke(self, claims: Claims) -> bool:
        """Revoke a token, also across restarts; False when it was revoked already."""
        # Within the leeway a token counts although it has expired.
        return await self.revocations.add(claims.token_id, claims.expires_at_s + self._leeway_s)

    def has_room(self) -> bool:
        """Tell whether a token may be exchanged for another one."""
        return len(self.revocations) < REVOCATIONS_MAX

    async def sweep(self) -> None:
        """Forget revoked tokens that have expired since."""
        await self.revocations.sweep(self._now_s())


def _read_header(token: str) -> dict[str, Any]:
    """Read which algorithm and key a token names; nothing of it is believed yet."""
    head, *others = token.split(".")
    try:
        if len(token) > TOKEN_CHARACTERS_MAX or len(others) != 2:
            raise ValueError("it does not have three parts, or is too long")
        content = base64.urlsafe_b64decode(head.encode("ascii") + b"=" * (-len(head) % 4))
        header: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise ValueError(f"the algorithm {algorithm!r} is unknown")
    except (*MALFORMED, msgspec.MsgspecError) as error:
        raise _refused(f"it is not a JWT: {error}", StatusCode.INVALID_ACCESS_TOKEN) from None
    return header


def _claimed_issuer(token: str) -> str:
    """Read who claims to have made a token; nothing of it is believed yet."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except MALFORMED:
        return ""
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else ""


def _decode(
    token: str,
    key: Any,
    algorithms: Sequence[str],
    *,
    issuers: Sequence[str],
    audiences: Sequence[str],
) -> dict[str, Any]:
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            audience=list(audiences),
            issuer=list(issuers),
            options=OPTIONS,
        )
        if not isinstance(claims["jti"], str):
            raise ValueError("its id is not a string")
        # It may have to be written down.
        claims["jti"].encode()
    except MALFORMED as error:
        raise _refused(str(error)) from None
    return claims


def _make_claims(
    claims: dict[str, Any],
    token_id: str,
    user_id: int,
    generation: int | None,
    *,
    is_external: bool = False,
) -> Claims:
    told = claims.get(DIALECT_CLAIM)
    return Claims(
        token_id=token_id,
        user_id=user_id,
        generation=generation,
        issued_at_s=_seconds(claims, "iat"),
        not_before_s=_seconds(claims, "nbf"),
        expires_at_s=_seconds(claims, "exp"),
        is_external=is_external,
        dialect=DIALECTS.get(told, CLASSIC) if isinstance(told, str) else CLASSIC,
    )


def _seconds(claims: dict[str, Any], name: str) -> int:
    value = claims[name]
    if type(value) is not int or not 0 <= value <= SECONDS_MAX:
        raise _refused(f"claim {name!r} is not a time")
    return value


def normalize_issuer(issuer: str) -> str:
    """Write an issuer in the one form in which issuers are compared: case counts in paths only."""
    scheme, separator, rest = issuer.partition("://")
    if not separator:
        return issuer.rstrip("/").lower()
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}"


def make_token_id(now_us: int, random_bytes: Callable[[int], bytes]) -> str:
    """Make a UUID of version 7: sorted by time, and random behind that."""
    number = (now_us // 1000 << 80) | int.from_bytes(random_bytes(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    digits = f"{number & (1 << 128) - 1:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _keys(config: HttpJwtConfig, random_bytes: Callable[[int], bytes]) -> tuple[Any, Any]:
    """Return what signs and what verifies."""
    signing = config.encoding_secret or config.decoding_secret
    verifying = config.decoding_secret or config.encoding_secret
    if config.algorithm.startswith("RS"):
        return _pem(config, signing, "encoding_secret"), _pem(config, verifying, "decoding_secret")
    # What is weak is said once and in our own words.
    warnings.filterwarnings("ignore", category=jwt.InsecureKeyLengthWarning)
    if not signing:
        LOGGER.info(
            "http.jwt has no secret: a random one is used, so a restart ends all HTTP sessions"
        )
        secret = random_bytes(SECRET_BYTES)
        return secret, secret
    if signing != verifying:
        raise _config_error(
            "decoding_secret",
            f"differs from encoding_secret, but {config.algorithm} uses one secret for both",
        )
    secret = _secret(config, signing)
    if len(secret) < SECRET_BYTES_WANTED:
        LOGGER.warning(
            "http.jwt.encoding_secret is too short; use at least %d bytes", SECRET_BYTES_WANTED
        )
    return secret, secret


def _secret(config: HttpJwtConfig, text: str) -> bytes:
    if not config.use_base64_secret:
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _config_error(
            "encoding_secret", "is not valid base64; see http.jwt.use_base64_secret"
        ) from None


def _pem(config: HttpJwtConfig, text: str, name: str) -> bytes:
    algorithm = jwt.get_algorithm_by_name(config.algorithm)
    content = _secret(config, text)
    try:
        algorithm.prepare_key(content)
    except (jwt.PyJWTError, ValueError, TypeError):
        raise _config_error(
            name, f"is not an RSA key in PEM format, which {config.algorithm} needs"
        ) from None
    return content


def _config_error(name: str, complaint: str) -> ConfigError:
    return ConfigError([ConfigProblem(f"http.jwt.{name}", complaint)])
