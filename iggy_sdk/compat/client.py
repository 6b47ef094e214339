"""The official client: its constructor, its argument order, its way to producers and consumers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import iggy_protocol
from iggy_protocol import (
    BindSession,
    Identifier,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    PollMessages,
    ProtocolError,
    Register,
    StatusCode,
    decode_request,
    encode_reply,
)
from iggy_sdk.compat.accounts import GroupsMethods, UsersMethods
from iggy_sdk.compat.auto_commit import AutoCommit, own_auto_commit
from iggy_sdk.compat.choices import AnyPartitioning, own_partitioning
from iggy_sdk.compat.configs import TransportConfig
from iggy_sdk.compat.consumer import IggyConsumer
from iggy_sdk.compat.messages import ReceiveMessage, SendMessagesResponse, confirmations_of
from iggy_sdk.compat.polling import Poller
from iggy_sdk.compat.producer import IggyProducer, ProducerMode, own_mode
from iggy_sdk.compat.settings import AnyExpiry, AnySize, Durability, TopicOptions
from iggy_sdk.compat.streams import StreamsMethods, TopicsMethods
from iggy_sdk.consumer import ConsumerBuilder, ConsumerOptions
from iggy_sdk.consumer.options import apply_options
from iggy_sdk.consumer.subscription import Subscription
from iggy_sdk.errors import InvalidRequestError, TopicExistsError
from iggy_sdk.options import Retry
from iggy_sdk.producer import ProducerBuilder
from iggy_sdk.transport import open_transport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.compat.records import PartitionContext
    from iggy_sdk.consumer import AutoCommit as OwnAutoCommit
    from iggy_sdk.families.messages import Outgoing
    from iggy_sdk.options import ClientOptions
    from iggy_sdk.session.reconnecting import ReconnectingSession
    from iggy_sdk.transport import Dial

DEFAULT_CONSUMER: Final = iggy_protocol.ConsumerIdentity.single(0)
"""The consumer of a poll that names none, as with the official client 0.8."""

RETRY_SECONDS: Final = timedelta(seconds=1)

LOGINS: Final = (LoginUser, LoginWithPersonalAccessToken, LogoutUser, Register, BindSession)
"""What a client sends by itself, because it has to know who is logged in."""


class IggyClient(StreamsMethods, TopicsMethods, GroupsMethods, UsersMethods):
    """A client with the interface of the official one; ``own`` is that of this SDK."""

    def __init__(self, conn: TransportConfig | str | None = None) -> None:
        """Take an address ``host:port``, a configuration, or nothing for the usual port here.

        Raises:
            ConfigurationError: an address or a setting cannot be used.
        """
        if isinstance(conn, TransportConfig):
            self._initialise(conn.options(), open_transport)
        else:
            super().__init__(conn)

    def _initialise(
        self, options: ClientOptions, dial: Dial, *, sibling: ReconnectingSession | None = None
    ) -> None:
        super()._initialise(options, dial, sibling=sibling)
        self._poller = Poller(self.own)

    async def send_messages(  # type: ignore[override]
        self,
        stream: Identifier,
        topic: Identifier,
        partitioning: AnyPartitioning,
        messages: Sequence[Outgoing],
    ) -> SendMessagesResponse:
        """Append a batch to a partition, whose number may stand for the partitioning."""
        where = own_partitioning(partitioning)
        sent = await self.own.send_messages(stream, topic, messages, partitioning=where)
        return SendMessagesResponse(confirmations_of([] if sent is None else [sent]))

    async def poll_messages(  # type: ignore[override]
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int | None = None,
        polling_strategy: iggy_protocol.PollingStrategy | None = None,
        count: int = 100,
        auto_commit: bool = False,
        *,
        consumer: iggy_protocol.ConsumerIdentity = DEFAULT_CONSUMER,
        context: PartitionContext | None = None,
    ) -> list[ReceiveMessage]:
        """Ask for messages of a partition; versions after 0.8 give all but the first two by name.

        Args:
            stream: name or id.
            topic: name or id.
            partition_id: None means 0, or for a group the partitions of its member in turn.
            polling_strategy: where to start; behind the stored offset by default.
            count: how many at most.
            auto_commit: whether the server stores the last offset of the reply at once.
            consumer: a single consumer, or a group that this client has joined.
            context: the state of the partition as an earlier message told it; servers from 0.10
                on refuse the poll if the partition was made anew since.
        """
        command = PollMessages(
            consumer,
            stream,
            topic,
            polling_strategy or iggy_protocol.PollingStrategy.next(),
            count,
            partition_id,
            auto_commit,
        )
        # Zeros are what a message has whose state is not told.
        told = context.own if context is not None and context.incarnation else None
        return await self._poller.poll(command, told)

    async def consumer_group(  # type: ignore[override]
        self,
        name: str,
        stream: str,
        topic: str,
        partition_id: int | None = None,
        polling_strategy: iggy_protocol.PollingStrategy | None = None,
        batch_length: int | None = None,
        auto_commit: AutoCommit | OwnAutoCommit | None = None,
        create_consumer_group_if_not_exists: bool = True,
        auto_join_consumer_group: bool = True,
        poll_interval: timedelta | None = None,
        polling_retry_interval: timedelta | None = None,
        init_retries: int | None = None,
        init_retry_interval: timedelta | None = None,
        allow_replay: bool = False,
    ) -> IggyConsumer:
        """Join a consumer group, on a connection of its own; ``shutdown()`` leaves it.

        Without ``auto_commit`` a message is committed after it was processed: at least once.
        """
        options = {
            "partition_id": partition_id,
            "polling_strategy": polling_strategy,
            "batch_length": batch_length,
            "auto_commit": own_auto_commit(auto_commit),
            "create_consumer_group_if_not_exists": create_consumer_group_if_not_exists,
            "auto_join_consumer_group": auto_join_consumer_group,
            "poll_interval": poll_interval,
            "polling_retry_interval": polling_retry_interval,
            "init_retries": init_retries,
            "init_retry_interval": init_retry_interval,
            "allow_replay": allow_replay,
        }
        # A polling strategy is deprecated in this SDK's own API, and not in the official one.
        subscription = Subscription(iggy_protocol.ConsumerIdentity.group(name), stream, topic)
        own = apply_options(ConsumerOptions(connection="own"), options)
        builder: ConsumerBuilder[bytes] = ConsumerBuilder(self.own, subscription, own)
        return IggyConsumer(await builder)

    async def producer(  # type: ignore[override]
        self,
        stream: str,
        topic: str,
        partitioning: AnyPartitioning | None = None,
        mode: ProducerMode | None = None,
        create_stream_if_not_exists: bool = True,
        create_topic_if_not_exists: bool = True,
        topic_partitions_count: int = 1,
        topic_message_expiry: AnyExpiry = None,
        topic_max_size: AnySize = None,
        send_retries: int | None = 3,
        send_retry_interval: timedelta | None = RETRY_SECONDS,
        *,
        topic_durability: Durability | None = None,
    ) -> IggyProducer:
        """Make a producer, with the stream and the topic if they are missing."""
        if create_stream_if_not_exists:
            await self.own.create_stream(stream, exist_ok=True)
        if create_topic_if_not_exists:
            settings = TopicOptions(
                partitions_count=topic_partitions_count,
                message_expiry=topic_message_expiry,
                max_topic_size=topic_max_size,
                durability=topic_durability,
            )
            await self._ensure_topic(stream, topic, settings)
        builder: ProducerBuilder[Any] = ProducerBuilder(
            self.own,
            stream,
            topic,
            partitioning=own_partitioning(partitioning),
            mode=own_mode(mode),
            retry=Retry(attempts=send_retries or 0, backoff=send_retry_interval or RETRY_SECONDS),
        )
        return IggyProducer(await builder)

    async def _ensure_topic(self, stream: str, topic: str, settings: TopicOptions) -> None:
        if await self.own.get_topic(stream, topic) is not None:
            return
        try:
            await self._create_topic(stream, topic, settings)
        except TopicExistsError:
            # Another client was faster.
            return

    async def send_binary_request(self, code: int, payload: bytes) -> bytes:
        """Send a command that is written already, and return the reply as it is written.

        The command is read before it is sent, so it must be one that ``iggy_protocol`` knows.

        Args:
            code: the number of the command.
            payload: its bytes, in the layout that the server speaks.

        Raises:
            InvalidRequestError: there is no such command, the bytes are none, or it is a login.
        """
        dialect = self.dialect
        try:
            command = decode_request(code, payload, dialect)
        except ProtocolError as error:
            raise InvalidRequestError(
                f"this is no command {code}: {error}", code=StatusCode.INVALID_COMMAND
            ) from error
        if isinstance(command, LOGINS):
            raise InvalidRequestError(
                f"command {code} is a login",
                code=StatusCode.INVALID_COMMAND,
                advice="Call login_user or logout_user.",
            )
        reply = await self.request(command)
        return b"".join(map(bytes, encode_reply(code, reply, dialect)))
