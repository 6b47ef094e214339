"""Makes users with permissions as the official client 0.9 does, and logs in as one of them.

Run with an interpreter that has the wheel: ``users.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys

from apache_iggy import (  # type: ignore[import-not-found]
    AutoLogin,
    GlobalPermissions,
    IggyClient,
    Permissions,
    StreamPermissions,
    TcpConfig,
    TopicPermissions,
    UserStatus,
)


async def refused(awaitable):
    """Tell whether the server refuses."""
    try:
        await awaitable
    except RuntimeError:
        return True
    return False


async def main():
    address = sys.argv[1]
    root = IggyClient(
        TcpConfig(server_address=address, auto_login=AutoLogin.username_password("iggy", "iggy"))
    )
    await root.connect()
    await root.create_stream("shop")
    await root.create_topic("shop", "orders", 1)
    stream = await root.get_stream("shop")
    rights = Permissions(
        global_permissions=GlobalPermissions(read_users=True),
        streams={
            stream.id: StreamPermissions(
                read_stream=True, topics={0: TopicPermissions(poll_messages=True)}
            )
        },
    )
    made = await root.create_user("clerk", "secret1", UserStatus.Active, rights)
    found = await root.get_user("clerk")
    report = {
        "made": [made.username, made.status == UserStatus.Active, made.created_at > 0],
        "rights": [
            found.permissions == rights,
            found.permissions.streams[stream.id].topics is None,
        ],
        "topic": found.permissions.streams[stream.id].topics[0].poll_messages,
        "empty": Permissions(streams={}).streams,
        "equal": Permissions() == Permissions(GlobalPermissions()),
    }
    clerk = IggyClient(address)
    await clerk.connect()
    await clerk.login_user("clerk", "secret1")
    report["may read"] = (await clerk.get_stream("shop")).name
    report["may not create"] = await refused(clerk.create_stream("other"))
    report["users"] = sorted(user.username for user in await clerk.get_users())
    await clerk.logout_user()

    await root.change_password("clerk", "secret1", "secret2")
    report["old password"] = await refused(clerk.login_user("clerk", "secret1"))
    await root.update_permissions("clerk", None)
    report["none"] = (await root.get_user("clerk")).permissions
    await root.update_user("clerk", username="seller", status=UserStatus.Inactive)
    seller = await root.get_user("seller")
    report["inactive"] = [seller.status == UserStatus.Inactive, str(seller.status)]
    report["cannot log in"] = await refused(clerk.login_user("seller", "secret2"))
    await root.delete_user("seller")
    report["gone"] = await root.get_user("seller")
    sys.stdout.write(json.dumps(report))


asyncio.run(main())
