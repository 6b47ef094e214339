"""Verbs of administration against a real server, on both engines."""

from __future__ import annotations

import io
import zipfile
from datetime import timedelta

import pytest

from iggy_protocol import (
    NEVER_EXPIRES,
    UNLIMITED,
    CompressionAlgorithm,
    GlobalPermissions,
    Permissions,
    PurgeStream,
    PurgeTopic,
    SnapshotType,
    UserStatus,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    AlreadyExistsError,
    AuthenticationError,
    ConsumerGroupExistsError,
    ConsumerGroupNotFoundError,
    IggyError,
    InvalidRequestError,
    NotAMemberError,
    NotFoundError,
    PermissionDeniedError,
    StreamExistsError,
    StreamNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
)
from iggy_sdk.testing.server import in_test_protocol
from tests.sdk.exchanges import refused_if_missing

pytestmark = pytest.mark.anyio


async def test_system_when_asked_then_answers(client):
    await client.ping()

    stats = await client.get_stats()
    assert stats.clients_count >= 1
    assert stats.server_version
    cluster = await client.get_cluster_metadata()
    assert cluster.nodes
    snapshot = await client.get_snapshot(types=[SnapshotType.SERVER_CONFIG])
    assert zipfile.ZipFile(io.BytesIO(snapshot.archive)).namelist()


async def test_clients_when_asked_then_shows_this_one(client):
    me = await client.get_me()

    assert me.user_id == 0
    assert me.client_id in {info.client_id for info in await client.get_clients()}
    found = await client.get_client(me.client_id, required=True)
    assert found.address == me.address


async def test_client_when_missing_then_is_none_or_not_found(client):
    assert await client.get_client(4_294_967_000) is None
    with pytest.raises(NotFoundError):
        await client.get_client(4_294_967_000, required=True)


async def test_streams_when_managed_then_come_and_go(client, name):
    created = await client.create_stream(name)
    assert created.name == name
    assert await client.create_stream(name, exist_ok=True) == created
    with pytest.raises(StreamExistsError):
        await client.create_stream(name)

    assert await client.get_stream(name) == created
    assert await client.get_stream(created.id, required=True) == created
    assert name in {stream.name for stream in await client.get_streams()}

    await client.update_stream(name, f"{name}-new")
    assert await client.get_stream(name) is None
    with pytest.raises(StreamNotFoundError):
        await client.get_stream(name, required=True)
    with refused_if_missing(client, PurgeStream):
        await client.purge_stream(f"{name}-new")
    await client.delete_stream(created.id)
    with pytest.raises(StreamNotFoundError):
        await client.delete_stream(created.id)


async def test_topics_when_managed_then_come_and_go(client, name):
    await client.create_stream(name)
    created = await client.create_topic(
        name,
        "orders",
        3,
        compression_algorithm="gzip",
        message_expiry=timedelta(hours=1),
        max_topic_size="100 GB",
    )

    assert (created.name, created.partitions_count, len(created.partitions)) == ("orders", 3, 3)
    assert created.compression is CompressionAlgorithm.GZIP
    assert created.message_expiry_us == 3_600_000_000
    assert created.max_topic_size_bytes == 100 * 10**9
    with pytest.raises(TopicExistsError):
        await client.create_topic(name, "orders")
    again = await client.create_topic(name, "orders", exist_ok=True)
    # A server counts segments only once they are there, so the partitions may differ.
    assert (again.id, again.partitions_count, again.compression) == (
        created.id,
        3,
        CompressionAlgorithm.GZIP,
    )

    assert await client.get_topic(name, "orders") == again
    assert [topic.name for topic in await client.get_topics(name)] == ["orders"]
    await client.update_topic(
        name, "orders", "sales", message_expiry="never", max_topic_size="unlimited"
    )
    updated = await client.get_topic(name, created.id, required=True)
    assert (updated.name, updated.message_expiry_us) == ("sales", NEVER_EXPIRES)
    assert updated.max_topic_size_bytes == UNLIMITED

    with pytest.raises(TopicNotFoundError):
        await client.get_topic(name, "orders", required=True)
    with pytest.raises(StreamNotFoundError):
        await client.get_topic(f"{name}-no", "orders", required=True)
    with refused_if_missing(client, PurgeTopic):
        await client.purge_topic(name, "sales")
    await client.delete_topic(name, "sales")
    assert await client.get_topics(name) == []


async def test_partitions_when_managed_then_grow_and_shrink(client, name):
    await client.create_stream(name)
    await client.create_topic(name, "orders", 1)

    await client.create_partitions(name, "orders", 2)
    assert (await client.get_topic(name, "orders", required=True)).partitions_count == 3
    await client.delete_partitions(name, "orders", 1)
    assert (await client.get_topic(name, "orders", required=True)).partitions_count == 2
    await client.delete_segments(name, "orders", 0, 1)
    with pytest.raises(InvalidRequestError):
        await client.delete_partitions(name, "orders", 7)


async def test_groups_when_managed_then_come_and_go(client, name):
    await client.create_stream(name)
    await client.create_topic(name, "orders", 2)

    created = await client.create_consumer_group(name, "orders", "billing")
    assert (created.name, created.partitions_count, created.members) == ("billing", 2, ())
    with pytest.raises(ConsumerGroupExistsError):
        await client.create_consumer_group(name, "orders", "billing")
    assert await client.create_consumer_group(name, "orders", "billing", exist_ok=True) == created

    await client.join_consumer_group(name, "orders", "billing")
    joined = await client.get_consumer_group(name, "orders", created.id, required=True)
    assert [sorted(member.partitions) for member in joined.members] == [[0, 1]]
    assert [group.name for group in await client.get_consumer_groups(name, "orders")] == ["billing"]
    await client.leave_consumer_group(name, "orders", "billing")
    with pytest.raises(NotAMemberError):
        await client.leave_consumer_group(name, "orders", "billing")

    await client.delete_consumer_group(name, "orders", "billing")
    assert await client.get_consumer_group(name, "orders", "billing") is None
    for place, kind in {
        ("no", "orders"): StreamNotFoundError,
        (name, "no"): TopicNotFoundError,
        (name, "orders"): ConsumerGroupNotFoundError,
    }.items():
        with pytest.raises(kind):
            await client.get_consumer_group(*place, "billing", required=True)


async def test_users_when_managed_then_come_and_go(client, name):
    rights = Permissions(GlobalPermissions(read_streams=True))
    created = await client.create_user(name, "secret", permissions=rights)
    assert (created.username, created.status) == (name, UserStatus.ACTIVE)
    assert created.permissions == rights
    with pytest.raises(AlreadyExistsError):
        await client.create_user(name, "other")
    assert await client.create_user(name, "other", exist_ok=True) == created

    assert await client.get_user(created.id) == created
    assert name in {user.username for user in await client.get_users()}
    await client.update_permissions(name, None)
    await client.update_user(name, username=f"{name}-b", status=UserStatus.INACTIVE)
    updated = await client.get_user(f"{name}-b", required=True)
    assert (updated.status, updated.permissions) == (UserStatus.INACTIVE, None)
    await client.change_password(f"{name}-b", "secret", "new-secret")

    await client.delete_user(created.id)
    assert await client.get_user(created.id) is None
    with pytest.raises(NotFoundError):
        await client.get_user(created.id, required=True)


async def test_login_when_done_by_hand_then_works_and_ends(client, url, name):
    await client.create_user(name, "secret")
    address = url.partition("@")[2].partition("?")[0]

    async with IggyClient(in_test_protocol(f"iggy://{address}")) as anonymous:
        with pytest.raises(AuthenticationError) as caught:
            await anonymous.get_streams()
        assert caught.value.code == 40
        with pytest.raises(AuthenticationError):
            await anonymous.login_user(name, "wrong")
        identity = await anonymous.login_user(name, "secret")
        assert identity.user_id == (await anonymous.get_me()).user_id
        with pytest.raises(PermissionDeniedError):
            await anonymous.create_stream(f"{name}-forbidden")
        await anonymous.logout_user()
        with pytest.raises(AuthenticationError):
            await anonymous.get_streams()


async def test_tokens_when_managed_then_log_in_until_deleted(client, url, name):
    raw = await client.create_personal_access_token(name, expiry=timedelta(hours=1))
    forever = await client.create_personal_access_token(f"{name}-b")
    with pytest.raises(AlreadyExistsError):
        await client.create_personal_access_token(name)
    expiries = {
        token.name: token.expires_at_us for token in await client.get_personal_access_tokens()
    }
    assert expiries[name]
    assert expiries[f"{name}-b"] is None

    address = url.partition("@")[2].partition("?")[0]
    async with IggyClient(in_test_protocol(f"iggy://{forever.token}@{address}")) as by_string:
        assert (await by_string.get_me()).user_id == 0
    async with IggyClient(in_test_protocol(f"iggy://{address}")) as by_hand:
        identity = await by_hand.login_with_personal_access_token(raw.token)
        assert identity.user_id == 0
    await client.delete_personal_access_token(name)
    async with IggyClient(in_test_protocol(f"iggy://{address}")) as late:
        with pytest.raises(IggyError) as caught:
            await late.login_with_personal_access_token(raw.token)
        assert isinstance(caught.value, AuthenticationError | NotFoundError)


async def test_verb_when_the_name_is_too_long_then_says_so_and_the_client_goes_on(client, name):
    with pytest.raises(InvalidRequestError):
        await client.create_stream("x" * 256)

    await client.ping()
