"""Imports the state log of Apache Iggy 0.8 into new metadata, once; that file is never changed."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import RemoteProtocolError
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.upstream_commands import meaning
from iggy_ref_server.metadata.upstream_log import (
    UPSTREAM_LOG_PATH,
    ImportRefused,
    read_upstream_log,
)

if TYPE_CHECKING:
    from iggy_protocol import PayloadCipher
    from iggy_ref_server.metadata.plan_context import MetadataSettings
    from iggy_ref_server.metadata.store import MetadataStore
    from iggy_ref_server.metadata.upstream_log import UpstreamEntry
    from iggy_ref_server.storage.interface import Storage

__all__ = ["Imported", "import_once", "import_state"]

logger = logging.getLogger("iggy_ref_server.metadata")


class Imported(NamedTuple):
    """What a state log amounts to."""

    metadata: Metadata
    changes: tuple[Change, ...]


def _understood(
    entry: UpstreamEntry, metadata: Metadata, settings: MetadataSettings
) -> list[Change]:
    try:
        return meaning(entry, metadata, settings)
    except KeyError:
        reason = f"command {entry.code} is unknown"
    except (RemoteProtocolError, struct.error, UnicodeDecodeError) as error:
        reason = f"command {entry.code} cannot be read: {error}"
    except ServerFault as error:
        reason = f"command {entry.code} cannot be applied: {error.message}"
    raise ImportRefused(UPSTREAM_LOG_PATH, entry.position, reason)


def import_state(
    data: bytes, settings: MetadataSettings, cipher: PayloadCipher | None = None
) -> Imported:
    """Turn the state log of Apache Iggy into changes, and into the state they lead to.

    Args:
        data: the content of ``state/log``.
        settings: what topics get that were left to the server's defaults.
        cipher: the key, where Apache Iggy had one.

    Raises:
        ImportRefused: the log is damaged, or says something that cannot be.
        MetadataLocked: it is encrypted with another key.
    """
    metadata = Metadata.EMPTY
    changes: list[Change] = []
    for entry in read_upstream_log(data, cipher):
        for change in _understood(entry, metadata, settings):
            metadata = apply(metadata, change)
            changes.append(change)
    return Imported(metadata, tuple(changes))


async def import_once(
    store: MetadataStore,
    storage: Storage,
    settings: MetadataSettings,
    *,
    encryptor: PayloadCipher | None = None,
) -> Imported | None:
    """Import the state log of Apache Iggy, if there is one and the store is new.

    Returns:
        What was imported; None where there is no such log, or the store is not new.

    Raises:
        ImportRefused: the log is damaged. Nothing happened.
        MetadataLocked: it is encrypted with another key. Nothing happened.
    """
    if not store.is_new:
        return None
    data = await storage.read_file(UPSTREAM_LOG_PATH)
    if not data:
        return None
    imported = import_state(data, settings, encryptor)
    await store.adopt(imported.metadata)
    logger.info(
        "imported %d changes from %s: %d streams, %d users, %d tokens",
        len(imported.changes),
        UPSTREAM_LOG_PATH,
        len(imported.metadata.streams),
        len(imported.metadata.users),
        len(imported.metadata.tokens),
    )
    return imported
