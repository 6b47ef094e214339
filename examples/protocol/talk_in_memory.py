"""Connect a client and a small server in one process, without a network.

The protocol uses no socket: each side takes bytes and returns events. So one function can do it
all: log in, create a stream and a topic, send three messages and poll them. The server below has
one topic with one partition, in memory, and refuses everything else.

Run it with ``python examples/protocol/talk_in_memory.py``.
"""

from __future__ import annotations

import secrets
from time import time_ns
from typing import Any, TypeVar

from iggy_protocol import (
    Buffer,
    ClientConnection,
    Command,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    ErrorReceived,
    Identity,
    LoginUser,
    MessageBatch,
    NewMessage,
    Partition,
    Partitioning,
    PolledMessages,
    PollingStrategy,
    PollMessages,
    RemoteProtocolError,
    RequestReceived,
    ResponseReceived,
    RuleViolation,
    SendMessages,
    ServerConnection,
    StatusCode,
    Stream,
    TopicDetails,
    stamp,
    status,
    validate,
)

R = TypeVar("R")

MESSAGE_ID_BYTES = 16


def now_us() -> int:
    """Read the clock, which the protocol itself never does."""
    return time_ns() // 1_000


class RequestError(Exception):
    """The server refused a request."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code} {status(code).meaning}")
        self.status = code


class TinyServer:
    """One stream, one topic, one partition: a log is a bytearray that grows."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.messages_count = 0

    def answer(self, command: Command[Any]) -> object:
        """Do what a command asks for and return its reply."""
        validate(command)
        match command:
            case LoginUser(username="iggy", password="iggy"):
                return Identity(user_id=0)
            case LoginUser():
                raise RequestError(StatusCode.INVALID_CREDENTIALS)
            case CreateStream(name=name):
                return Stream(0, now_us(), 0, 0, 0, name)
            case CreateTopic():
                return self.create_topic(command)
            case SendMessages(messages=MessageBatch() as batch):
                self.append(batch)
                return None
            case PollMessages():
                return self.poll()
        raise RequestError(StatusCode.FEATURE_UNAVAILABLE)

    def create_topic(self, command: CreateTopic) -> TopicDetails:
        """Describe the topic as if the client's wishes had been met."""
        return TopicDetails(
            id=0,
            created_at_us=now_us(),
            partitions_count=1,
            message_expiry_us=command.message_expiry_us,
            compression=command.compression,
            max_topic_size_bytes=command.max_topic_size_bytes,
            replication_factor=1,
            size_bytes=0,
            messages_count=0,
            name=command.name,
            partitions=(Partition(0, now_us(), 1, 0, 0, 0),),
        )

    def append(self, batch: MessageBatch) -> None:
        """Give the messages offsets, a time, checksums and the ids they lack; keep them."""
        messages = bytearray(batch.buffer)
        self.messages_count += stamp(
            messages,
            base_offset=self.messages_count,
            timestamp_us=now_us(),
            random=secrets.token_bytes(MESSAGE_ID_BYTES * len(batch)),
        )
        self.log += messages

    def poll(self) -> PolledMessages:
        """Return the whole log."""
        batch = MessageBatch(bytes(self.log))
        return PolledMessages(0, max(0, self.messages_count - 1), len(batch), batch)


class InMemoryConnection:
    """A client's and a server's end, wired back to back."""

    def __init__(self) -> None:
        self.client = ClientConnection()
        self.server = ServerConnection()
        self.tiny = TinyServer()

    def ask(self, command: Command[R]) -> R:
        """Carry a command to the server and its answer back; the type of the reply is known."""
        for buffer in self.client.send(command):
            self.server.receive_data(buffer)
        for buffer in self.serve():
            self.client.receive_data(buffer)
        event = self.client.next_event()
        if isinstance(event, ErrorReceived):
            raise RequestError(event.status)
        assert isinstance(event, ResponseReceived)
        reply: R = event.decode()
        return reply

    def serve(self) -> list[Buffer]:
        """Answer the one request that has arrived."""
        event = self.server.next_event()
        assert isinstance(event, RequestReceived)
        try:
            return self.server.send(self.tiny.answer(event.decode()))
        except (RequestError, RemoteProtocolError, RuleViolation) as refusal:
            return self.server.send_error(refusal.status)


def main() -> None:
    """Run all requests and print the replies."""
    conversation = InMemoryConnection()
    try:
        conversation.ask(LoginUser("iggy", "a guess"))
    except RequestError as refusal:
        print(f"refused: {refusal}")
    identity = conversation.ask(LoginUser("iggy", "iggy"))
    print(f"logged in as user {identity.user_id}")

    stream = conversation.ask(CreateStream("orders"))
    topic = conversation.ask(CreateTopic(stream.name, "paid", partitions_count=1))
    print(f"created stream {stream.name!r} and topic {topic.name!r}")

    messages: list[Buffer | NewMessage] = [b"tea", b"coffee", NewMessage(b"cake", id=7)]
    partition = Partitioning.partition(0)
    conversation.ask(
        SendMessages("orders", "paid", partition, messages, origin_timestamp_us=now_us())
    )
    print(f"sent {len(messages)} messages")

    polled = conversation.ask(
        PollMessages(
            ConsumerIdentity.single(1), "orders", "paid", PollingStrategy.first(), count=10
        )
    )
    polled.messages.verify()
    for message in polled.messages:
        print(f"read offset {message.offset}: {bytes(message.payload).decode()}")


if __name__ == "__main__":
    main()
