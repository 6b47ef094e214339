"""Plays what official clients said, and compares the decoded replies field by field.

Requests that carry something of their own run, a token or a moment, carry that of this run. What
can never be the same twice is left out of the comparison: times, checksums, ids and tokens made by
the server, addresses, and figures of the host.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    ClientInfo,
    CommandCode,
    LoginWithPersonalAccessToken,
    MessageBatch,
    PollingKind,
    PollingStrategy,
    PollMessages,
    RawPersonalAccessToken,
    SendMessages,
    Snapshot,
    Stream,
    decode_reply,
    decode_request,
    encode_request,
)
from tests.server.replay.comparing import describe
from tests.server.replay.plausibility import now_us
from tests.server.replay.player import REPLY_SECONDS_MAX, Difference
from tests.server.replay.raw_peer import RawPeer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.server.replay.client_recording import ClientStep

HEAD_BYTES = 8

# Fields that are never the same twice.
VARYING = frozenset(
    {
        "address",
        "archive",
        "available_memory_bytes",
        "checksum",
        "client_id",
        "cpu_usage",
        "created_at_us",
        "expires_at_us",
        "host",
        "hostname",
        "http_port",
        "kernel_version",
        "memory_usage_bytes",
        "os_name",
        "os_version",
        "process_id",
        "quic_port",
        "read_bytes",
        "run_time_us",
        "start_time_us",
        "tcp_port",
        "timestamp_us",
        "token",
        "total_cpu_usage",
        "total_memory_bytes",
        "websocket_port",
        "written_bytes",
    }
)


class ClientPlayer:
    """Plays one recording to a server on an empty data directory."""

    def __init__(self, address: tuple[str, int], steps: Sequence[ClientStep]) -> None:
        self._address = address
        self._steps = steps
        self._peers: dict[int, RawPeer] = {}
        self._ids_sent: set[int] = set()
        self._tokens: dict[str, str] = {}
        self._epoch_us = _epoch_us(steps)
        # When each step began in the recording, and when it was done in this run.
        self._moments: list[tuple[int, int]] = []

    def play(self) -> list[Difference]:
        """Play all steps and return those that differ."""
        found: list[Difference] = []
        try:
            for step in self._steps:
                what = self._play(step)
                self._moments.append((step.at_us, now_us()))
                if what:
                    found.append(Difference(step.line, what))
        finally:
            for peer in self._peers.values():
                peer.close()
        return found

    def _play(self, step: ClientStep) -> str:
        if step.event == "connect":
            self._peers[step.connection] = RawPeer(self._address)
            return ""
        peer = self._peers[step.connection]
        if step.event == "close":
            self._peers.pop(step.connection).close()
            return ""
        peer.send(_frame(step.code, self._of_this_run(step)))
        got = peer.read_frame(REPLY_SECONDS_MAX)
        if not isinstance(got, bytes):
            return f"got {got.value}"
        return self._compare(step, got)

    def _of_this_run(self, step: ClientStep) -> bytes:
        """Return the request with what belongs to this run in place of what was recorded."""
        command = decode_request(step.code, step.request)
        if isinstance(command, SendMessages):
            assert isinstance(command.messages, MessageBatch)
            self._ids_sent.update(message.id for message in command.messages)
        if isinstance(command, LoginWithPersonalAccessToken) and command.token in self._tokens:
            command = LoginWithPersonalAccessToken(self._tokens[command.token])
        elif isinstance(command, PollMessages) and command.strategy.kind is PollingKind.TIMESTAMP:
            moment_us = self._moment_of_this_run(command.strategy.value)
            command = replace(command, strategy=PollingStrategy.timestamp(moment_us))
        else:
            return step.request
        return b"".join(bytes(part) for part in encode_request(command))  # type: ignore[arg-type]

    def _moment_of_this_run(self, recorded_us: int) -> int:
        """Find the moment that lies between the same two requests, or as far ahead as then."""
        since_us = recorded_us - self._epoch_us
        after = bisect_right(self._moments, since_us, key=lambda moment: moment[0])
        if after == 0:
            return recorded_us
        recorded_before_us, before_us = self._moments[after - 1]
        if after == len(self._moments):
            return before_us + since_us - recorded_before_us
        return before_us

    def _compare(self, step: ClientStep, got: bytes) -> str:
        status = int.from_bytes(got[:4], "little")
        if status != step.status:
            return f"recorded status {step.status}, got {describe(step.code, got)}"
        if status != 0:
            return ""
        if step.reply is None:
            size = len(got) - HEAD_BYTES
            return "" if size == step.reply_size else f"{size} bytes, not {step.reply_size}"
        recorded = decode_reply(step.code, step.reply)
        here = decode_reply(step.code, got[HEAD_BYTES:])
        if isinstance(recorded, RawPersonalAccessToken):
            self._tokens[recorded.token] = here.token
        wanted, found = self._essence(recorded), self._essence(here)
        return "" if wanted == found else f"recorded {wanted}\n     got {found}"

    def _essence(self, value: Any) -> Any:
        """Reduce a reply to what must be equal in every run."""
        if isinstance(value, MessageBatch):
            return [self._message(message) for message in value]
        if isinstance(value, tuple) and value and isinstance(value[0], ClientInfo):
            return sorted((self._essence(client) for client in value), key=str)
        if isinstance(value, tuple):
            return [self._essence(item) for item in value]
        if isinstance(value, Snapshot):
            return value.archive[:4]
        if is_dataclass(value):
            return {
                field.name: self._essence(getattr(value, field.name))
                for field in fields(value)
                if field.name not in VARYING
            }
        return value

    def _message(self, message: Any) -> dict[str, Any]:
        known = message.id if message.id in self._ids_sent else "made by the server"
        return {
            "id": known,
            "offset": message.offset,
            "origin_timestamp_us": message.origin_timestamp_us,
            "payload": bytes(message.payload),
            "user_headers": bytes(message.user_headers),
        }


def _frame(code: int, payload: bytes) -> bytes:
    return (len(payload) + 4).to_bytes(4, "little") + code.to_bytes(4, "little") + payload


def _epoch_us(steps: Sequence[ClientStep]) -> int:
    """Find when the recorder's clock began: a stream is made a moment after it was asked for."""
    made = (step for step in steps if step.code == CommandCode.CREATE_STREAM and step.reply)
    first = next(made)
    assert first.reply is not None
    stream = decode_reply(first.code, first.reply)
    assert isinstance(stream, Stream)
    return stream.created_at_us - first.at_us
