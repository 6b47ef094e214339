"""The rule for ``ack`` and ``enforce_fsync``.

``system.partition.ack`` is a key of this server, ``system.partition.enforce_fsync`` is the key of
Apache Iggy 0.8 and means ``fsync``. A configuration that sets both in one source, or ``ack`` in the
higher one, must not contradict itself.
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
    """Yield path and message where the two keys contradict each other."""
    partition = config.system.partition
    ack, enforce_fsync = find_setting(tree, ACK), find_setting(tree, ENFORCE_FSYNC)
    if not partition.enforce_fsync or partition.ack == "fsync" or not (ack and enforce_fsync):
        return
    if ack.layer >= enforce_fsync.layer:
        contradiction = f'= "{partition.ack}" contradicts {ENFORCE_FSYNC} = true'
        yield ACK, f'{contradiction}; write ack = "fsync", or set enforce_fsync to false'


def with_effective_ack(config: ServerConfig) -> ServerConfig:
    """Set ``ack`` to ``fsync`` where ``enforce_fsync`` is true."""
    partition = config.system.partition
    if not partition.enforce_fsync:
        return config
    return replace(config, system=replace(config.system, partition=replace(partition, ack="fsync")))
