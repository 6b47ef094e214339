"""Every verb of administration over every transport."""

from __future__ import annotations

import io
import zipfile
from datetime import timedelta

import pytest

from iggy_protocol import (
    CompressionAlgorithm,
    GlobalPermissions,
    Permissions,
    PurgeStream,
    PurgeTopic,
    SnapshotType,
    StatusCode,
    StreamPermissions,
    TopicPermissions,
    Transport,
    UserStatus,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    ConsumerGroupExistsError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    StreamExistsError,
    StreamNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
)
from tests.sdk.exchanges import refused_if_missing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

KINDS = {
    **dict.fromkeys(("tcp", "tls"), Transport.TCP),
    **dict.fromkeys(("ws", "wss"), Transport.WEBSOCKET),
    "quic": Transport.QUIC,
}


def is_http(transport: str) -> bool:
    return transport in ("http", "https")


async def test_system_when_asked_then_answers(client, transport):
    await client.ping()
    assert (await client.get_stats()).server_version
    assert (await client.get_cluster_metadata()).nodes
    snapshot = await client.get_snapshot(types=[SnapshotType.TEST])
    assert zipfile.ZipFile(io.BytesIO(snapshot.archive)).namelist()
    assert await client.get_client(4_294_967_000) is None
    if is_http(transport):
        with pytest.raises(InvalidRequestError, match="HTTP") as caught:
            await client.get_me()
        assert caught.value.code == StatusCode.FEATURE_UNAVAILABLE
    else:
        me = await client.get_me()
        assert (me.user_id, me.transport) == (0, KINDS[transport])
        assert me.client_id in {info.client_id for info in await client.get_clients()}


async def test_streams_topics_partitions_when_managed_then_come_and_go(client, name):
    stream = await client.create_stream(name)
    assert await client.create_stream(name, exist_ok=True) == stream
    with pytest.raises(StreamExistsError):
        await client.create_stream(name)
    assert name in {one.name for one in await client.get_streams()}

    created = await client.create_topic(
        name, "orders", 2, compression_algorithm="gzip", message_expiry=timedelta(hours=1)
    )
    assert (created.partitions_count, created.compression) == (2, CompressionAlgorithm.GZIP)
    with pytest.raises(TopicExistsError):
        await client.create_topic(name, "orders")
    await client.create_partitions(name, "orders", 2)
    await client.delete_partitions(name, "orders", 1)
    await client.delete_segments(name, "orders", 0, 1)
    found = await client.get_topic(name, "orders", required=True)
    assert (found.partitions_count, found.message_expiry_us) == (3, 3_600_000_000)
    await client.update_topic(name, "orders", "sales", message_expiry="never")
    assert [one.name for one in await client.get_topics(name)] == ["sales"]
    with refused_if_missing(client, PurgeTopic):
        await client.purge_topic(name, created.id)
    await client.delete_topic(name, "sales")
    with pytest.raises(TopicNotFoundError):
        await client.get_topic(name, "sales", required=True)

    with refused_if_missing(client, PurgeStream):
        await client.purge_stream(name)
    await client.update_stream(stream.id, f"{name}-new")
    await client.delete_stream(f"{name}-new")
    assert await client.get_stream(stream.id) is None
    with pytest.raises(StreamNotFoundError):
        await client.delete_stream(name)


async def test_groups_when_managed_then_come_and_go(client, topic):
    created = await client.create_consumer_group(topic, "orders", "billing")
    with pytest.raises(ConsumerGroupExistsError):
        await client.create_consumer_group(topic, "orders", "billing")
    assert [group.name for group in await client.get_consumer_groups(topic, "orders")] == [
        "billing"
    ]
    assert await client.get_consumer_group(topic, "orders", created.id) == created
    await client.delete_consumer_group(topic, "orders", "billing")
    assert await client.get_consumer_group(topic, "orders", "billing") is None


async def test_users_when_managed_then_come_and_go(client, topic, name):
    stream_id = (await client.get_stream(topic, required=True)).id
    rights = Permissions(
        GlobalPermissions(read_users=True),
        (StreamPermissions(stream_id, read_stream=True, topics=(TopicPermissions(0),)),),
    )
    created = await client.create_user(name, "secret", permissions=rights)
    assert created.permissions == rights
    with pytest.raises(AlreadyExistsError):
        await client.create_user(name, "other")
    assert name in {user.username for user in await client.get_users()}
    await client.update_permissions(name, None)
    await client.change_password(name, "secret", "new-secret")
    await client.update_user(name, username=f"{name}-b", status=UserStatus.INACTIVE)
    updated = await client.get_user(f"{name}-b", required=True)
    assert (updated.status, updated.permissions) == (UserStatus.INACTIVE, None)
    await client.delete_user(created.id)
    with pytest.raises(NotFoundError):
        await client.get_user(created.id, required=True)


async def test_login_when_done_by_hand_then_works_and_ends(
    client, transport_server, transport, name
):
    await client.create_user(name, "secret")
    async with IggyClient(transport_server.url(transport, login="")) as anonymous:
        with pytest.raises(AuthenticationError) as caught:
            await anonymous.get_streams()
        assert caught.value.code == StatusCode.UNAUTHENTICATED
        with pytest.raises(AuthenticationError) as caught:
            await anonymous.login_user(name, "wrong")
        assert caught.value.code == StatusCode.INVALID_CREDENTIALS
        assert (await anonymous.login_user(name, "secret")).user_id
        with pytest.raises(PermissionDeniedError):
            await anonymous.create_stream(f"{name}-forbidden")
        await anonymous.logout_user()
        with pytest.raises(AuthenticationError):
            await anonymous.get_streams()


async def test_tokens_when_managed_then_log_in_until_deleted(
    client, transport_server, transport, name
):
    raw = await client.create_personal_access_token(name, expiry=timedelta(hours=1))
    assert name in {token.name for token in await client.get_personal_access_tokens()}
    async with IggyClient(transport_server.url(transport, login=""), token=raw.token) as bearer:
        assert await bearer.get_users()
    await client.delete_personal_access_token(name)
    with pytest.raises((AuthenticationError, NotFoundError)):
        await IggyClient(transport_server.url(transport, login=""), token=raw.token).connect()
