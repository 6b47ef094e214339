"""Short words for tests of metadata: change a state by commands, without a server around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iggy_protocol import (
    ChangePassword,
    Command,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    PurgeStream,
    PurgeTopic,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.plan_streams import (
    plan_create_group,
    plan_create_partitions,
    plan_create_stream,
    plan_create_topic,
    plan_delete_group,
    plan_delete_partitions,
    plan_delete_stream,
    plan_delete_topic,
    plan_purge_stream,
    plan_purge_topic,
    plan_update_stream,
    plan_update_topic,
)
from iggy_ref_server.metadata.plan_users import (
    plan_change_password,
    plan_create_root,
    plan_create_token,
    plan_create_user,
    plan_delete_token,
    plan_delete_user,
    plan_update_permissions,
    plan_update_user,
)
from iggy_ref_server.metadata.state import Metadata, MetadataSettings, PlanContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_ref_server.metadata.changes import Change

NOW_US = 1_700_000_000_000_000
CONTEXT = PlanContext(now_us=NOW_US)


def hashed(secret: str) -> str:
    """Stand in for a real hash."""
    return f"#{secret}"


def _create_user(metadata: Metadata, command: CreateUser, context: PlanContext) -> Change:
    return plan_create_user(metadata, command, context, password_hash=hashed(command.password))


def _change_password(metadata: Metadata, command: ChangePassword, context: PlanContext) -> Change:
    return plan_change_password(
        metadata,
        command,
        context,
        verified_hash=hashed(command.current_password),
        password_hash=hashed(command.new_password),
    )


def _create_token(
    metadata: Metadata, command: CreatePersonalAccessToken, context: PlanContext
) -> Change:
    digest = hashed(f"{context.user_id}/{command.name}/{metadata.version}")
    return plan_create_token(metadata, command, context, token_hash=digest)


PLANS: dict[type[Command[Any]], Callable[[Metadata, Any, PlanContext], Change]] = {
    CreateStream: plan_create_stream,
    UpdateStream: plan_update_stream,
    DeleteStream: plan_delete_stream,
    PurgeStream: plan_purge_stream,
    CreateTopic: plan_create_topic,
    UpdateTopic: plan_update_topic,
    DeleteTopic: plan_delete_topic,
    PurgeTopic: plan_purge_topic,
    CreatePartitions: plan_create_partitions,
    DeletePartitions: plan_delete_partitions,
    CreateConsumerGroup: plan_create_group,
    DeleteConsumerGroup: plan_delete_group,
    CreateUser: _create_user,
    UpdateUser: plan_update_user,
    DeleteUser: plan_delete_user,
    UpdatePermissions: plan_update_permissions,
    ChangePassword: _change_password,
    CreatePersonalAccessToken: _create_token,
    DeletePersonalAccessToken: plan_delete_token,
}


def plan(metadata: Metadata, command: Command[Any], context: PlanContext = CONTEXT) -> Change:
    """Plan any command that changes metadata."""
    return PLANS[type(command)](metadata, command, context)


def planned(command: Command[Any], context: PlanContext = CONTEXT) -> Callable[[Metadata], Change]:
    """Make what ``MetadataStore.change`` takes."""
    return lambda metadata: plan(metadata, command, context)


def after(metadata: Metadata, *commands: Command[Any], context: PlanContext = CONTEXT) -> Metadata:
    """Carry out commands one after another."""
    for command in commands:
        metadata = apply(metadata, plan(metadata, command, context))
    return metadata


def with_root(metadata: Metadata = Metadata.EMPTY) -> Metadata:
    """Create the root user."""
    root = plan_create_root(metadata, "iggy", hashed("iggy"), CONTEXT)
    assert root is not None
    return apply(metadata, root)


def status_of(metadata: Metadata, command: Command[Any], context: PlanContext = CONTEXT) -> int:
    """Tell which status a command is refused with."""
    with pytest.raises(ServerFault) as fault:
        plan(metadata, command, context)
    return fault.value.status


def small_segments() -> MetadataSettings:
    """Make settings under which small topics are allowed."""
    return MetadataSettings(segment_size_bytes=512)
