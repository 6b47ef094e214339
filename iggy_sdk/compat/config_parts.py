"""Parts of the official configurations: who logs in, how often to dial, how much to take.

What is left out, or is None, takes the official default.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeVar

from iggy_sdk.compat.variants import ByValue
from iggy_sdk.connection_string import Credentials, PasswordLogin, TokenLogin
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.options import Reconnect

V = TypeVar("V")

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1


def either(value: V | None, default: V) -> V:
    """Return a value, or its default where it is None."""
    return default if value is None else value


def invalid(name: str, value: object, advice: str) -> ConfigurationError:
    """Make the error of a value that cannot be used."""
    return ConfigurationError(f"{name} is {value!r}", advice=advice)


def positive_span(name: str, value: timedelta | None, default: timedelta) -> timedelta:
    """Take a time span that is above zero."""
    span = either(value, default)
    if to_seconds(span, name=name) == 0:
        raise invalid(name, span, f"Make {name} more than zero.")
    return span


def count_in(name: str, value: int | None, default: int, *, high: int = U64_MAX) -> int:
    """Take a count that is in its range."""
    count = either(value, default)
    if not 0 <= count <= high:
        raise invalid(name, count, f"Give {name} from 0 to {high}.")
    return count


class AutoLogin:
    """Who logs in on every connection; ``own`` is what this SDK says."""

    __slots__ = ("own",)

    def __init__(self, own: Credentials | None) -> None:
        """Take the value of this SDK; the methods below are the official ways to make one."""
        self.own: Credentials | None = own

    @staticmethod
    def disabled() -> AutoLogin:
        """No login; call ``login_user``."""
        return AutoLogin(None)

    @staticmethod
    def username_password(username: str, password: str) -> AutoLogin:
        """A user with a password."""
        return AutoLogin(PasswordLogin(username, password))

    @staticmethod
    def personal_access_token(token: str) -> AutoLogin:
        """The user of the token."""
        return AutoLogin(TokenLogin(token))

    @property
    def enabled(self) -> bool:
        """Whether anybody logs in."""
        return self.own is not None

    @property
    def username(self) -> str | None:
        """Who logs in with a password; None for a token, and where nobody does."""
        return self.own.username if isinstance(self.own, PasswordLogin) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AutoLogin) and self.own == other.own

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        if self.own is None:
            return "AutoLogin.disabled()"
        if isinstance(self.own, PasswordLogin):
            return f"AutoLogin.username_password({self.own.username!r}, ...)"
        return "AutoLogin.personal_access_token(...)"


def login_of(given: AutoLogin | Credentials | None) -> AutoLogin:
    """Take a login in either spelling."""
    return given if isinstance(given, AutoLogin) else AutoLogin(given)


class ReconnectionConfig(ByValue):
    """How a lost connection comes back."""

    __slots__ = __match_args__ = ("enabled", "max_retries", "interval", "reestablish_after")

    def __init__(
        self,
        *,
        enabled: bool | None = None,
        max_retries: int | None = None,
        interval: timedelta | None = None,
        reestablish_after: timedelta | None = None,
    ) -> None:
        """Say how often and when to dial.

        Args:
            enabled: whether the client does it by itself; it does by default.
            max_retries: how many attempts follow the first; None means without end.
            interval: the wait between two attempts; a second by default.
            reestablish_after: how old a connection must be to be dialled again at once; five
                seconds by default.

        Raises:
            ConfigurationError: a value is out of range.
        """
        self.enabled: bool = either(enabled, True)
        self.max_retries: int | None = max_retries
        if max_retries is not None:
            count_in("max_retries", max_retries, 0, high=U32_MAX)
        self.interval: timedelta = positive_span("interval", interval, timedelta(seconds=1))
        self.reestablish_after: timedelta = either(reestablish_after, timedelta(seconds=5))
        to_seconds(self.reestablish_after, name="reestablish_after")

    def reconnect(self) -> Reconnect:
        """Say the same in the words of this SDK."""
        return Reconnect(
            enabled=self.enabled,
            retries=self.max_retries,
            delay=self.interval,
            max_delay=self.interval,
            reestablish_after=self.reestablish_after,
        )


class TcpReconnectionConfig(ReconnectionConfig):
    """How a lost connection over TCP comes back."""

    __slots__ = ()


class QuicReconnectionConfig(ReconnectionConfig):
    """How a lost connection over QUIC comes back."""

    __slots__ = ()


class WebSocketReconnectionConfig(ReconnectionConfig):
    """How a lost connection over WebSocket comes back."""

    __slots__ = ()


class PendingOperationsConfig(ByValue):
    """How many operations a client may have in flight; the bytes have no part here."""

    __slots__ = __match_args__ = ("max_operations", "max_bytes")

    def __init__(self, *, max_operations: int = 256, max_bytes: int = 64 << 20) -> None:
        """Take the bounds.

        Args:
            max_operations: further requests wait for their turn.
            max_bytes: taken for compatibility; requests wait by number alone.

        Raises:
            ConfigurationError: there would be no operation at all.
        """
        if max_operations < 1:
            raise invalid("max_operations", max_operations, "Allow at least one operation.")
        self.max_operations: int = max_operations
        self.max_bytes: int = count_in("max_bytes", max_bytes, 0)


class WebSocketFramingConfig(ByValue):
    """Bounds of WebSocket frames and messages; buffers have no part here."""

    __slots__ = __match_args__ = (
        *("read_buffer_size", "write_buffer_size", "max_write_buffer_size"),
        *("max_message_size", "max_frame_size", "accept_unmasked_frames"),
    )

    def __init__(
        self,
        *,
        read_buffer_size: int | None = None,
        write_buffer_size: int | None = None,
        max_write_buffer_size: int | None = None,
        max_message_size: int | None = 64 << 20,
        max_frame_size: int | None = 16 << 20,
        accept_unmasked_frames: bool | None = None,
    ) -> None:
        """Take the bounds.

        Args:
            read_buffer_size: taken for compatibility; this SDK reads what has come.
            write_buffer_size: taken for compatibility; this SDK writes at once.
            max_write_buffer_size: taken for compatibility, as the other buffers.
            max_message_size: bytes of the longest message; None is no bound.
            max_frame_size: bytes of the longest frame; None is no bound.
            accept_unmasked_frames: taken for compatibility; servers never mask their frames.

        Raises:
            ConfigurationError: a value is out of range.
        """
        self.read_buffer_size: int = count_in("read_buffer_size", read_buffer_size, 128 << 10)
        self.write_buffer_size: int = count_in("write_buffer_size", write_buffer_size, 128 << 10)
        self.max_write_buffer_size: int = count_in(
            "max_write_buffer_size", max_write_buffer_size, U64_MAX
        )
        self.max_message_size = max_message_size
        self.max_frame_size = max_frame_size
        for name, limit in self.limits().items():
            count_in(name, limit, 0)
        self.accept_unmasked_frames: bool = either(accept_unmasked_frames, False)
        if self.max_write_buffer_size <= self.write_buffer_size:
            raise invalid(
                "max_write_buffer_size",
                self.max_write_buffer_size,
                f"Make it more than write_buffer_size, which is {self.write_buffer_size}.",
            )

    def limits(self) -> dict[str, int]:
        """Return the bounds that there are, under the names of the connection string."""
        both = {"max_message_size": self.max_message_size, "max_frame_size": self.max_frame_size}
        return {name: limit for name, limit in both.items() if limit is not None}
