"""The official configuration classes, and what they are in the options of this SDK."""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_sdk.compat.choices import ProducerSharding
from iggy_sdk.options import Credentials, PasswordLogin, Reconnect, TlsOptions, TokenLogin
from iggy_sdk.producer import BackgroundMode, Backpressure, DirectMode

if TYPE_CHECKING:
    from iggy_sdk.options import ClientSettings

__all__ = [
    "AutoLogin",
    "BackgroundProducerConfig",
    "DirectProducerConfig",
    "TcpConfig",
    "TcpReconnectionConfig",
]


class AutoLogin:
    """Who logs in on every connection."""

    @staticmethod
    def disabled() -> Credentials | None:
        """Nobody; call ``login_user``."""
        return None

    @staticmethod
    def username_password(username: str, password: str, /) -> Credentials | None:
        """A user with a password."""
        return PasswordLogin(username, password)

    @staticmethod
    def personal_access_token(token: str, /) -> Credentials | None:
        """Whoever has the token."""
        return TokenLogin(token)


@record(kw_only=True)
class TcpReconnectionConfig:
    """How a lost connection comes back."""

    enabled: bool = True
    max_retries: int | None = None
    interval: timedelta = timedelta(seconds=1)
    reestablish_after: timedelta = timedelta(seconds=5)

    def reconnect(self) -> Reconnect:
        """Say the same in the words of this SDK."""
        return Reconnect(
            enabled=self.enabled,
            retries=self.max_retries,
            delay=self.interval,
            max_delay=max(self.interval, timedelta(seconds=30)),
            reestablish_after=self.reestablish_after,
        )


@record(kw_only=True)
class TcpConfig:
    """How to reach a server over TCP."""

    server_address: str = "127.0.0.1:8090"
    auto_login: Credentials | None = None
    reconnection: TcpReconnectionConfig = field(default_factory=TcpReconnectionConfig)
    heartbeat_interval: timedelta = timedelta(seconds=5)
    tls_enabled: bool = False
    tls_domain: str = ""
    tls_ca_file: str | None = None
    tls_validate_certificate: bool = True
    nodelay: bool = False

    def settings(self) -> ClientSettings:
        """Say the same in the words of this SDK."""
        tls = TlsOptions(
            domain=self.tls_domain or None,
            ca_file=self.tls_ca_file,
            validate=self.tls_validate_certificate,
        )
        return {
            "endpoints": [self.server_address],
            "credentials": self.auto_login,
            "reconnect": self.reconnection.reconnect(),
            "heartbeat_interval": self.heartbeat_interval,
            "tls": tls if self.tls_enabled else None,
            "nodelay": self.nodelay,
        }


def DirectProducerConfig(
    *, batch_length: int = 1_000, linger_time: timedelta = timedelta(0)
) -> DirectMode:
    """Wait for the server with every call; a ``batch_length`` of 0 is no bound."""
    return DirectMode(batch_length=batch_length or None, linger_time=linger_time)


def BackgroundProducerConfig(
    *,
    num_shards: int = 1,
    linger_time: timedelta = timedelta(milliseconds=1),
    batch_size: int = 1 << 20,
    batch_length: int = 1_000,
    max_buffer_size: int = 32 << 20,
    failure_mode: Backpressure | None = None,
    max_in_flight: int = 1,
    sharding: ProducerSharding = ProducerSharding.ORDERED,
) -> BackgroundMode:
    """Send in the background; 0 is no bound.

    ``num_shards`` and ``sharding`` are taken and have no part here: order is kept for every
    destination, and several of them are served at once.
    """
    return BackgroundMode(
        linger_time=linger_time,
        batch_size=batch_size or None,
        batch_length=batch_length or None,
        max_buffer_size=max_buffer_size or None,
        max_in_flight=max(max_in_flight, num_shards) or None,
        backpressure=failure_mode or Backpressure.block(),
    )
