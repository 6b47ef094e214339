"""The client over HTTP at the reference server, and what it sees over TCP at the same time."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest
import trustme

from iggy_protocol import (
    ChangePassword,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeleteConsumerOffset,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    FlushUnsavedBuffer,
    GetConsumerGroup,
    GetConsumerGroups,
    GetConsumerOffset,
    GetStream,
    GetTopic,
    GetTopics,
    GetUser,
    LoginUser,
    LoginWithPersonalAccessToken,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    PurgeStream,
    PurgeTopic,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    encode_user_headers,
)
from iggy_sdk.blocking import IggyClient as BlockingClient
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    ConnectionFailedError,
    DisconnectedError,
    IggyError,
    InvalidRequestError,
    MessageTooLargeError,
)
from iggy_sdk.options import Reconnect
from tests.certificates import Certificate
from tests.sdk.exchanges import make_topic
from tests.sdk.net.socket_servers import socket_server
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from tests.fix_server import StartServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


def url_of(server: RunningServer, *, scheme: str = "iggy+http", query: str = "") -> str:
    config: Any = server.current_config()
    return f"{scheme}://iggy:iggy@{config['http']['address']}{query}"


def tcp_url_of(server: RunningServer) -> str:
    """Tell where HTTP is compared with: it is that of 0.8, whatever TCP speaks besides."""
    return "iggy://iggy:iggy@{}:{}?protocol=0.8".format(*server.address)


# The same over both


async def test_messages_when_polled_over_both_then_are_the_same_bytes(server):
    headers = encode_user_headers(
        {"content-type": "json", "big": 2**60, "raw": b"\0\xff", "real": 0.5, "yes": True}
    )
    messages: list[Any] = [
        b"plain",
        NewMessage("ü🚀".encode(), id=2**128 - 1),
        NewMessage(bytes(range(256)), id=7, user_headers=headers),
        NewMessage(b"\0", user_headers=b"\x01\x02\x03 no headers at all"),
        NewMessage(bytes(100_000), origin_timestamp_us=5),
    ]
    async with IggyClient(url_of(server)) as http, IggyClient(tcp_url_of(server)) as tcp:
        await make_topic(tcp, "bytes")
        for client in (tcp, http):
            await client.request(
                SendMessages("bytes", "orders", Partitioning.partition(0), messages)
            )
        for strategy in (
            PollingStrategy.first(),
            PollingStrategy.offset(3),
            PollingStrategy.last(),
            PollingStrategy.timestamp(1),
        ):
            poll = PollMessages(
                ConsumerIdentity.single("both"), "bytes", "orders", strategy, 100, 0
            )
            one, other = await tcp.request(poll), await http.request(poll)
            assert bytes(one.messages.buffer) == bytes(other.messages.buffer)
            assert one == other
            assert len(one.messages) >= 7
            other.messages.verify()


async def test_poll_when_there_is_nothing_then_both_say_so(server):
    async with IggyClient(url_of(server)) as http, IggyClient(tcp_url_of(server)) as tcp:
        await make_topic(tcp, "empty", partitions_count=3)
        poll = PollMessages(
            ConsumerIdentity.single("x"), "empty", "orders", PollingStrategy.first(), 10, 2
        )
        one, other = await tcp.request(poll), await http.request(poll)

    assert len(one.messages) == len(other.messages) == 0
    assert one.messages_count == other.messages_count == 0


SINGLE = ConsumerIdentity.single("nobody")
FIRST = PollingStrategy.first()
NOWHERE: list[Any] = [
    GetStream("none"),
    UpdateStream("none", "other"),
    DeleteStream("none"),
    PurgeStream("none"),
    GetTopic("none", "none"),
    GetTopic("there", "none"),
    GetTopics("none"),
    CreateTopic("none", "orders", partitions_count=1),
    UpdateTopic("there", "none", "other"),
    DeleteTopic("there", "none"),
    PurgeTopic("there", "none"),
    CreatePartitions("there", "none", 1),
    DeletePartitions("there", "none", 1),
    DeletePartitions("there", "orders", 1001),
    DeleteSegments("there", "orders", 99, 1),
    SendMessages("none", "orders", Partitioning.balanced(), [b"x"]),
    SendMessages("there", "none", Partitioning.balanced(), [b"x"]),
    SendMessages("there", "orders", Partitioning.partition(99), [b"x"]),
    SendMessages("there", "orders", Partitioning.balanced(), []),
    PollMessages(SINGLE, "none", "orders", FIRST, 1, 0),
    PollMessages(SINGLE, "there", "none", FIRST, 1, 0),
    PollMessages(SINGLE, "there", "orders", FIRST, 1, 99),
    FlushUnsavedBuffer("there", "orders", 99),
    FlushUnsavedBuffer("there", "orders", 0, fsync=True),
    GetConsumerOffset(SINGLE, "there", "orders", 0),
    GetConsumerOffset(SINGLE, "there", "orders", 99),
    GetConsumerOffset(SINGLE, "there", "none", 0),
    StoreConsumerOffset(SINGLE, "there", "orders", 99, 0),
    StoreConsumerOffset(SINGLE, "there", "orders", 0, 99),
    StoreConsumerOffset(SINGLE, "there", "none", 0, 0),
    DeleteConsumerOffset(SINGLE, "there", "orders", 0),
    GetConsumerGroup("there", "orders", "none"),
    GetConsumerGroup("there", "none", "none"),
    GetConsumerGroups("there", "orders"),
    GetConsumerGroups("there", "none"),
    CreateConsumerGroup("there", "none", "group"),
    DeleteConsumerGroup("there", "orders", "none"),
    GetUser("none"),
    UpdateUser("none", "other"),
    UpdatePermissions("none", None),
    ChangePassword("none", "one-password", "other-password"),
    ChangePassword("iggy", "wrong-password", "other-password"),
    DeleteUser("none"),
    DeleteUser("iggy"),
    CreateUser("iggy", "some-password"),
    CreateUser("x", "some-password"),
    CreateStream("there"),
    CreateTopic("there", "orders", partitions_count=1),
    CreateTopic("there", "many", partitions_count=1001),
    CreateTopic("there", "small", partitions_count=1, max_topic_size_bytes=1),
    DeletePersonalAccessToken("none"),
    LoginUser("iggy", "wrong"),
    LoginUser("nobody", "wrong"),
    LoginWithPersonalAccessToken("no-such-token"),
]


async def outcome(client: IggyClient, command: Any) -> object:
    try:
        return await client.request(command)
    except IggyError as error:
        return type(error), error.code


async def test_refusals_when_asked_over_both_then_are_the_same_errors(server):
    different: dict[str, tuple[object, object]] = {}
    async with IggyClient(url_of(server)) as http, IggyClient(tcp_url_of(server)) as tcp:
        await make_topic(tcp, "there", partitions_count=2)
        for command in NOWHERE:
            one, other = await outcome(tcp, command), await outcome(http, command)
            if one != other:
                different[repr(command)] = one, other

    assert different == {}


# Tokens


async def test_token_when_it_is_revoked_by_another_client_then_requests_go_on(server):
    async with IggyClient(url_of(server)) as client:
        conversation: Any = client._session._session
        bearer = conversation._token_source
        first = bearer._token
        await _revoke(server, first)
        assert await client.get_users()
        assert bearer._token != first
        assert client.epoch == 1


async def _revoke(server: RunningServer, token: str) -> None:
    config: Any = server.current_config()
    host, _, port = config["http"]["address"].rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(
            b"DELETE /users/logout HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %s\r\n\r\n"
            % token.encode()
        )
        answer = await stream.receive()
    assert answer.startswith(b"HTTP/1.1 204")


async def test_token_when_it_is_exchanged_then_the_server_takes_the_new_one(server):
    async with IggyClient(url_of(server)) as client:
        conversation: Any = client._session._session
        bearer = conversation._token_source
        first, bearer._renew_at = bearer._token, 0.0
        assert await client.get_users()
        assert bearer._token != first
        assert bearer.renewals_count == 1


async def test_client_when_a_personal_token_logs_in_then_all_goes_on(server):
    async with IggyClient(url_of(server)) as client:
        token = await client.create_personal_access_token("runner", expiry=600)
        host = url_of(server).rpartition("@")[2]
        async with IggyClient(f"iggy+http://{host}", token=token.token) as other:
            assert await other.get_users()
        await client.delete_personal_access_token("runner")


# Size


async def test_batch_when_it_is_larger_than_the_server_takes_then_says_what_to_do(server):
    batch = SendMessages("large", "orders", Partitioning.partition(0), [bytes(2_000_000)])
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "large")
        with pytest.raises(MessageTooLargeError, match="max_request_size"):
            await client.request(batch)
        await client.request(Ping())


async def test_consumer_group_when_opened_then_says_what_to_use_instead(server):
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "grouped")
        with pytest.raises(InvalidRequestError, match="iggy://") as caught:
            async with client.consumer_group("g", "grouped", "orders"):
                raise AssertionError("the consumer was opened")

    assert caught.value.code == StatusCode.FEATURE_UNAVAILABLE


# Cancelling, restarting, blocking


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.004, 0.016])
async def test_request_when_cancelled_then_the_client_goes_on(server, seconds):
    batch = SendMessages("cut", "orders", Partitioning.partition(0), [bytes(100_000)] * 8)
    async with IggyClient(url_of(server)) as client:
        await make_topic(client, "cut")
        for _ in range(5):
            with anyio.move_on_after(seconds):
                await client.request(batch)
            await client.request(Ping())
        assert await client.request(GetStream("cut")) is not None
        assert client.epoch == 1


async def test_client_when_the_server_is_killed_and_comes_back_then_goes_on(
    start_server: StartServer,
):
    server = await anyio.to_thread.run_sync(start_server)
    config: Any = server.current_config()
    server.settings["IGGY_HTTP_ADDRESS"] = config["http"]["address"]
    errors: list[DisconnectedError] = []
    answers: list[int] = []
    answered = anyio.Event()

    async def ask(client: IggyClient) -> None:
        nonlocal answered
        while len(answers) < 200:
            assert await client.request(GetStream("shop")) is not None
            answers.append(1)
            if len(answers) in (50, 200):
                answered.set()

    async def send(client: IggyClient) -> None:
        batch = SendMessages("shop", "orders", Partitioning.partition(0), [b"payload"])
        while len(answers) < 200:
            try:
                await client.request(batch)
            except DisconnectedError as error:
                errors.append(error)

    async with IggyClient(url_of(server), reconnect=Reconnect(delay=0.01)) as client:
        await make_topic(client, "shop")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask, client)
            tasks.start_soon(send, client)
            await answered.wait()
            answered = anyio.Event()
            await anyio.to_thread.run_sync(server.kill)
            await anyio.to_thread.run_sync(server.start)
        assert client.epoch >= 2

    assert len(errors) <= 2
    assert all(error.sent for error in errors)


def test_blocking_client_when_it_uses_http_then_works_the_same(server):
    with BlockingClient(url_of(server)) as client:
        client.create_stream("blocking", exist_ok=True)
        client.create_topic("blocking", "orders", partitions_count=1, exist_ok=True)
        client.send_messages(
            "blocking", "orders", [b"one", b"two"], partitioning=Partitioning.partition(0)
        )
        batch = client.poll_messages(
            "blocking",
            "orders",
            consumer=ConsumerIdentity.single(1),
            partition_id=0,
            strategy=PollingStrategy.first(),
        )
        assert [message.payload for message in batch][:2] == [b"one", b"two"]


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA):
    """A server whose HTTP listener speaks TLS, and the file of its authority."""
    folder = tmp_path_factory.mktemp("https")
    certificate = Certificate.make(authority, folder, ("127.0.0.1", "iggy.example"))
    with RunningServer(folder, settings=certificate.settings("HTTP_TLS")) as server:
        yield server, certificate.ca_file


async def test_https_when_the_authority_is_trusted_then_many_requests_go(secured):
    server, ca_file = secured
    batch = SendMessages("safe", "orders", Partitioning.partition(0), [bytes(100_000)] * 10)
    url = url_of(server, scheme="iggy+https", query=f"?tls_ca_file={ca_file}")
    async with IggyClient(url) as client:
        await make_topic(client, "safe")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.request, batch)
                tasks.start_soon(client.request, Ping())
        assert client.epoch == 1


async def test_https_when_a_domain_is_given_then_that_name_is_checked(secured):
    server, ca_file = secured
    query = f"?tls_ca_file={ca_file}&tls_domain="
    url = url_of(server, scheme="iggy+https", query=query)
    async with IggyClient(f"{url}iggy.example") as client:
        await client.request(Ping())
    with pytest.raises(ConnectionFailedError, match="tls_domain"):
        await IggyClient(f"{url}other.example").connect()


async def test_https_when_the_authority_is_unknown_then_is_refused_by_default(secured):
    with pytest.raises(ConnectionFailedError, match="tls_ca_file") as caught:
        await IggyClient(url_of(secured[0], scheme="iggy+https")).connect()

    assert not caught.value.retriable


async def test_http_when_the_server_wants_tls_then_does_not_hang(secured):
    with pytest.raises(IggyError, match=r"https|broke"):
        await IggyClient(url_of(secured[0]), reconnect=False).connect()


async def test_https_when_the_server_speaks_no_tls_then_says_so(server, secured):
    url = url_of(server, scheme="iggy+https", query=f"?tls_ca_file={secured[1]}")
    with pytest.raises(ConnectionFailedError, match="TLS"):
        await IggyClient(url, reconnect=False).connect()


async def test_https_when_a_client_certificate_is_asked_for_then_it_is_shown(authority, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    own = authority.issue_cert("client.example")
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "own.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "own.key"))
    ca = f"tls_ca_file={tmp_path}/ca.pem"
    shown = f"tls_client_cert={tmp_path}/own.pem&tls_client_key={tmp_path}/own.key"

    async with socket_server(pong, context=context) as endpoint:
        client = IggyClient(f"iggy+https://{endpoint}?{ca}&{shown}", reconnect=False)
        await client.connect()
        await client.aclose()
        with pytest.raises(IggyError):
            await IggyClient(f"iggy+https://{endpoint}?{ca}", reconnect=False).connect()


async def pong(stream: Any) -> None:
    """Answer everything as if it were a ping."""
    while True:
        try:
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong")
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
