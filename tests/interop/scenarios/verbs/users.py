"""Users and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import PollingStrategy

from tests.interop.scenarios.report import refusal, step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

OLD, NEW = "secret-one", "secret-two"


async def run(scene: Scene) -> None:
    """Go through the life of a user."""
    calls = scene.calls
    # A name is at most 50 characters, and two transports make one each.
    name, renamed = f"{scene.stream}-user", f"{scene.stream}-other"
    status = apache_iggy.UserStatus
    await step("create a user", create, scene, name)
    await step("create the user again", create, scene, name)
    await step("show the user", show, scene, name)
    await step("show a missing user", calls.get_user, "missing")
    await step("list users", listed, scene, name)
    await step("act as the user", act, scene, name, OLD)
    await step("rename the user", calls.update_user, name, username=renamed)
    await step("change the password wrongly", calls.change_password, renamed, "wrong", NEW)
    await step("change the password", calls.change_password, renamed, OLD, NEW)
    await step("log in with the old password", scene.connect_as, renamed, OLD)
    await step("let the user do all", calls.update_permissions, renamed, anything())
    await step("act again", act, scene, renamed, NEW)
    await step("suspend the user", calls.update_user, renamed, status=status.Inactive)
    await step("log in while suspended", scene.connect_as, renamed, NEW)
    await step("show the suspended user", show, scene, renamed)
    await step("delete the user", calls.delete_user, renamed)
    await step("delete the user again", calls.delete_user, renamed)
    await step("delete root", calls.delete_user, "iggy")


async def create(scene: Scene, name: str) -> list[Any]:
    """Create a user who may poll the stream and do nothing else."""
    stream = (await scene.calls.get_stream(scene.stream)).id
    permissions = apache_iggy.Permissions(
        global_permissions=apache_iggy.GlobalPermissions(),
        streams={stream: apache_iggy.StreamPermissions(poll_messages=True)},
    )
    made = await scene.calls.create_user(name, OLD, permissions=permissions)
    return [made.username == name, made.id > 0]


def anything() -> Any:
    return apache_iggy.Permissions(
        global_permissions=apache_iggy.GlobalPermissions(
            manage_streams=True, manage_topics=True, poll_messages=True, send_messages=True
        )
    )


async def show(scene: Scene, name: str) -> list[Any]:
    """Return the status of a user and what it may do, in short."""
    found = await scene.calls.get_user(name)
    everywhere = found.permissions.global_permissions
    somewhere = found.permissions.streams or {}
    return [
        str(found.status).rpartition(".")[2],
        everywhere.poll_messages,
        [[each.poll_messages, each.send_messages] for each in somewhere.values()],
    ]


async def listed(scene: Scene, name: str) -> list[bool]:
    names = [user.username for user in await scene.calls.get_users()]
    return ["iggy" in names, name in names]


async def act(scene: Scene, name: str, password: str) -> list[Any]:
    """Poll, send, create a stream and list users; return what came of each."""
    client = await scene.connect_as(name, password)
    stream = f"{scene.stream}-of-{name}"[:50]
    return [
        await outcome(client.poll(scene.stream, "t", 0, PollingStrategy.First(), 1)),
        await outcome(client.send(scene.stream, "t", 0, ["as a user"])),
        await outcome(client.calls.create_stream(stream)),
        await outcome(client.calls.get_users()),
    ]


async def outcome(call: Any) -> Any:
    """Return true, or what the error says."""
    try:
        await call
    except Exception as error:
        return refusal(error)
    return True
