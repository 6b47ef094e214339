"""Three tenants on one server: a stream and a user for each, who sees nothing of the others.

Run it with ``python -m examples.multi_tenant.tenants [URL]``; the user of the URL must be allowed
to manage users.
"""

from __future__ import annotations

import sys

import anyio

from iggy_sdk import IggyClient, PermissionDeniedError, Permissions, StreamPermissions

URL = "iggy://iggy:iggy@127.0.0.1:8090"
TENANTS = ("north", "south", "west")
TOPIC, PASSWORD = "events", "a-secret"
MESSAGES = 20


async def prepare(client: IggyClient, tenant: str) -> None:
    """Make a stream, and a user who may send to it and read from it."""
    stream = await client.create_stream(f"tenant-{tenant}", exist_ok=True)
    await client.create_topic(stream.id, TOPIC, partitions_count=2, exist_ok=True)
    own = StreamPermissions(
        stream.id, read_stream=True, read_topics=True, poll_messages=True, send_messages=True
    )
    permissions = Permissions(streams=(own,))
    user = await client.create_user(f"{tenant}-user", PASSWORD, exist_ok=True)
    await client.update_permissions(user.id, permissions)


async def work(client: IggyClient, tenant: str) -> None:
    """Send and read as one tenant, and try the stream of another."""
    own = client.options
    mine = IggyClient(endpoints=own.endpoints, username=f"{tenant}-user", password=PASSWORD)
    neighbour = TENANTS[(TENANTS.index(tenant) + 1) % len(TENANTS)]
    async with mine as user:
        async with user.producer(f"tenant-{tenant}", TOPIC) as producer:
            await producer.send_many([f"{tenant} {number}" for number in range(MESSAGES)])
        reader = user.consumer(
            "reader", f"tenant-{tenant}", TOPIC, partition_id="all", until_end=True
        )
        async with reader as consumer:
            texts = [message.payload.decode() async for message in consumer]
        try:
            await user.send_messages(f"tenant-{neighbour}", TOPIC, [b"hello"])
        except PermissionDeniedError:
            print(f"{tenant}: read {len(texts)} messages, may not send to {neighbour}")


async def run(url: str) -> None:
    """Prepare all tenants, then let them work one after the other."""
    async with IggyClient(url) as client:
        for tenant in TENANTS:
            await prepare(client, tenant)
        for tenant in TENANTS:
            await work(client, tenant)


def main(arguments: list[str]) -> None:
    """Work on the server that the command line names."""
    anyio.run(run, arguments[0] if arguments else URL)


if __name__ == "__main__":
    main(sys.argv[1:])
