"""Replays logged changes: at the start of the server, and in replicas while it runs.

No change may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import decode_change
from iggy_ref_server.metadata.damage import MetadataDamaged
from iggy_ref_server.metadata.frame import open_payload, read_frame
from iggy_ref_server.metadata.log import LOG_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.metadata.changes import Change
    from iggy_ref_server.metadata.frame import Frame, Seal
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["change_in", "follow", "replay"]


def change_in(frame: Frame, seal: Seal | None) -> Change:
    """Read the change in a frame of the log.

    Raises:
        MetadataDamaged: this version knows no such change.
        MetadataLocked: it is sealed with another key.
    """
    try:
        return decode_change(open_payload(frame, seal, LOG_PATH))
    except msgspec.MsgspecError as error:
        raise MetadataDamaged(
            LOG_PATH, frame.position, f"the change is not known to this version: {error}"
        ) from error


def follow(metadata: Metadata, frames: Iterable[Frame], seal: Seal | None) -> Metadata:
    """Apply the changes in frames of the log that are not yet part of the state.

    Raises:
        MetadataDamaged: one cannot be read, or one is missing.
        MetadataLocked: they are sealed with another key.
    """
    for frame in frames:
        if frame.version <= metadata.version:
            continue
        if frame.version != metadata.version + 1:
            raise MetadataDamaged(
                LOG_PATH,
                frame.position,
                f"change {metadata.version + 1} is missing, change {frame.version} follows",
            )
        metadata = apply(metadata, change_in(frame, seal))
    return metadata


def replay(metadata: Metadata, entry: bytes) -> Metadata:
    """Return a replica's state after an entry that a listener was given.

    An entry that is part of the state already changes nothing.

    Raises:
        MetadataDamaged: these are not the bytes of an entry, or one before it was missed.
    """
    frame = read_frame(entry, 0)
    if frame is None:
        raise MetadataDamaged(LOG_PATH, 0, "a replica received bytes that are no change")
    return follow(metadata, [frame], None)
