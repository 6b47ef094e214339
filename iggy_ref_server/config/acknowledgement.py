"""What an acknowledgement promises, where two keys speak about it.

``system.partition.ack`` is the key of this server, ``system.partition.enforce_fsync`` that of the
original; the latter means ``fsync``. Someone who writes both in one place, or the former above the
latter, must not contradict himself.

Owns this one rule, which needs to know who said what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from iggy_ref_server.config.layers import Tree, find_setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.config.schema import ServerConfig

__all__ = ["ack_conflict", "with_effective_ack"]

ACK = "system.partition.ack"
ENFORCE_FSYNC = "system.partition.enforce_fsync"


def ack_conflict(config: ServerConfig, tree: Tree) -> Iterator[tuple[str, str]]:
    """Complain where one key takes back what the other asks for: path and message."""
    partition = config.system.partition
    ack, enforce_fsync = find_setting(tree, ACK), find_setting(tree, ENFORCE_FSYNC)
    if not partition.enforce_fsync or partition.ack == "fsync" or not (ack and enforce_fsync):
        return
    if ack.layer >= enforce_fsync.layer:
        contradiction = f'= "{partition.ack}" contradicts {ENFORCE_FSYNC} = true'
        yield ACK, f'{contradiction}; write ack = "fsync", or set enforce_fsync to false'


def with_effective_ack(config: ServerConfig) -> ServerConfig:
    """Let ``ack`` say what counts."""
    partition = config.system.partition
    if not partition.enforce_fsync:
        return config
    return replace(config, system=replace(config.system, partition=replace(partition, ack="fsync")))
