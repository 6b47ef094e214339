"""What a start does before clients come: the metadata are read, and the first login is made quick.

Shard 0 opens the metadata, and gives a new data directory its root user. Every shard has passwords
of its own to prepare.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from iggy_protocol import CLASSIC, V0_12_2, CommandCode, compile_commands
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.importer import import_if_new
from iggy_ref_server.metadata.plan_users import plan_create_root, plan_expire_tokens
from iggy_ref_server.metadata.recovery import require_metadata
from iggy_ref_server.metadata.state import ROOT_USER_ID, Metadata, MetadataSettings, PlanContext
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.shard import settings

if TYPE_CHECKING:
    from iggy_ref_server.config.load import RootCredentials
    from iggy_ref_server.identity.credentials import Passwords
    from iggy_ref_server.shard.spec import ShardSpec


LOGGER = logging.getLogger(__name__)

# What clients send as soon as they are connected.
CLASSIC_LOGIN_CODES: Final = (
    CommandCode.PING,
    CommandCode.LOGIN_USER,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    CommandCode.GET_CLUSTER_METADATA,
)
VSR_LOGIN_CODES: Final = (
    CommandCode.REGISTER,
    CommandCode.BIND_SESSION,
    CommandCode.GET_CLUSTER_METADATA,
)


async def open_metadata(
    spec: ShardSpec, defaults: MetadataSettings, passwords: Passwords
) -> MetadataStore:
    """Read the metadata, or import or begin them where the data directory has none yet."""
    cipher = settings.cipher_of(spec.config)
    await require_metadata(spec.storage, spec.config.system.stream.path)
    store = await MetadataStore.open(spec.storage, spec.clock, encryptor=cipher)
    await import_if_new(store, spec.storage, defaults, encryptor=cipher)
    context = PlanContext(now_us=spec.clock.now_us(), settings=defaults)
    try:
        await store.change(lambda metadata: plan_expire_tokens(metadata, context))
    except ServerFault as fault:  # such as a full disk; logins check the expiry themselves
        LOGGER.warning("expired tokens cannot be removed now: %s", fault)
    if store.current.users.find(ROOT_USER_ID) is None:
        await _create_root_user(store, context, spec.root(), passwords)
    return store


async def _create_root_user(
    store: MetadataStore, context: PlanContext, root: RootCredentials, passwords: Passwords
) -> None:
    """Create the root user: in a new data directory, or where it was lost."""
    users = store.current.users
    name = root.username
    while name in users.id_by_name:
        name += "-root"
    if users:
        LOGGER.warning("the root user is missing: %r is created", name)
    password_hash = await passwords.hash(root.password)
    await store.change(lambda metadata: plan_create_root(metadata, name, password_hash, context))


async def prepare_logins(
    passwords: Passwords, metadata: Metadata, given_root: RootCredentials | None
) -> None:
    """Make the first login as quick as the later ones.

    Clients that were connected before a restart all come back in its first moments. Where the
    environment still has the credentials of the root user, their check is done by then.
    """
    compile_commands(CLASSIC_LOGIN_CODES, CLASSIC)
    compile_commands(VSR_LOGIN_CODES, V0_12_2)
    root = metadata.users.find(ROOT_USER_ID)
    if given_root is None or root is None or root.username != given_root.username:
        return
    is_right = await passwords.verify(
        root.password_hash, given_root.password, remember=root.is_active
    )
    if not is_right:
        LOGGER.info(
            "IGGY_ROOT_PASSWORD is not the password of the root user any more: "
            "only the first start of a data directory sets it"
        )
