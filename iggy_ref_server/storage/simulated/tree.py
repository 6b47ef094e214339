"""The simulated directory tree: names as they are, and as a power loss would leave them.

A change of names is durable once a directory it touches is synced, together with all earlier
changes it depends on; changes in other directories are not. Raises ``OSError`` as a kernel would.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from iggy_protocol import record
from iggy_ref_server.storage.interface import DirectoryEntry, parent_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from iggy_ref_server.storage.simulated.disk import PowerLoss


@dataclass(slots=True, eq=False)
class SimulatedDirectory:
    """Names, and the names that are on the disk."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = "SimulatedDirectory | FileContent"


@record
class NameChange:
    """A name set, or where ``node`` is None removed."""

    directory: SimulatedDirectory
    name: str
    node: Node | None

    def apply_to(self, names: dict[str, Node]) -> None:
        """Set or remove the name."""
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


def os_error(number: int) -> OSError:
    """Make the error that a kernel would answer with."""
    return OSError(number, os.strerror(number))


class SimulatedTree:
    """All names below a data directory."""

    def __init__(self) -> None:
        self._root = SimulatedDirectory()
        # Each change is a tuple of edits that happen together.
        self._journal: list[tuple[NameChange, ...]] = []

    def find(self, path: str) -> Node | None:
        """Return what has a name; None where there is nothing."""
        node: Node | None = self._root
        for name in path.split("/") if path else ():
            if node is None:
                return None
            if not isinstance(node, SimulatedDirectory):
                raise os_error(errno.ENOTDIR)
            node = node.names.get(name)
        return node

    def directory(self, path: str) -> SimulatedDirectory:
        """Return a directory that must be there."""
        node = self.find(path)
        if node is None:
            raise os_error(errno.ENOENT)
        if not isinstance(node, SimulatedDirectory):
            raise os_error(errno.ENOTDIR)
        return node

    def content(self, path: str) -> FileContent | None:
        """Return a file; None where there is none."""
        node = self.find(path)
        if isinstance(node, SimulatedDirectory):
            raise os_error(errno.EISDIR)
        return node

    def put(self, path: str, content: FileContent) -> None:
        """Give a file a name, in the place of another file or of nothing."""
        directory = self.directory(parent_path(path))
        self.content(path)
        self._change(NameChange(directory, name_of(path), content))

    def rename(self, source: str, target: str) -> None:
        """Give a file or a directory another name."""
        source_directory = self.directory(parent_path(source))
        target_directory = self.directory(parent_path(target))
        node, replaced = self.find(source), self.find(target)
        if node is None:
            raise os_error(errno.ENOENT)
        if target.startswith(f"{source}/"):
            raise os_error(errno.EINVAL)
        if source.startswith(f"{target}/"):
            raise os_error(errno.ENOTEMPTY)
        if node is replaced:
            return
        check_replaceable(node, replaced)
        self._change(
            NameChange(source_directory, name_of(source), None),
            NameChange(target_directory, name_of(target), node),
        )

    def remove(self, path: str) -> None:
        """Remove the name of a file; no error where there is none."""
        if self.content(path) is not None:
            self._change(NameChange(self.directory(parent_path(path)), name_of(path), None))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it, one by one from below."""
        if self.find(path) is None:
            return
        directory = self.directory(path)
        for name, node in list(directory.names.items()):
            if isinstance(node, SimulatedDirectory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._change(NameChange(directory, name, None))
        self._change(NameChange(self.directory(parent_path(path)), name_of(path), None))

    def make_directories(self, path: str) -> list[str]:
        """Make a directory and those above it; return the directories that changed."""
        changed = []
        parts = path.split("/") if path else []
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            node = self.find(part)
            if isinstance(node, FileContent):
                raise os_error(errno.EEXIST)
            if node is None:
                self._change(
                    NameChange(
                        self.directory(parent_path(part)), name_of(part), SimulatedDirectory()
                    )
                )
                changed.append(parent_path(part))
        return changed

    def entries(self, path: str) -> list[DirectoryEntry]:
        """List a directory sorted by name; an empty list where there is none."""
        if self.find(path) is None:
            return []
        return [
            describe_node(name, node) for name, node in sorted(self.directory(path).names.items())
        ]

    def sync(self, path: str) -> None:
        """Make the names in a directory durable, with all that they stand on."""
        touched = {self.directory(path)}
        pending, durable = [], []
        for change in reversed(self._journal):
            directories = {edit.directory for edit in change}
            if touched & directories:
                touched |= directories
                durable.append(change)
            else:
                pending.append(change)
        for change in reversed(durable):
            for edit in change:
                edit.apply_to(edit.directory.durable)
        self._journal = pending[::-1]

    def used_bytes(self) -> int:
        """Count the bytes of all files that have a name."""
        return sum(content.used_bytes for content in walk_files(self._root))

    def after_power_loss(self, loss: PowerLoss) -> SimulatedTree:
        """Return the tree that is found when the power is back."""
        names: dict[SimulatedDirectory, dict[str, Node]] = {}
        for change in self._journal[: loss.names_count(len(self._journal))]:
            for edit in change:
                edit.apply_to(names.setdefault(edit.directory, dict(edit.directory.durable)))

        def survivor(node: Node) -> Node:
            if isinstance(node, FileContent):
                return node.after_power_loss(loss.surviving)
            found = names.get(node, node.durable)
            inside = {name: survivor(child) for name, child in found.items()}
            return SimulatedDirectory(inside, dict(inside))

        tree = SimulatedTree()
        root = survivor(self._root)
        assert isinstance(root, SimulatedDirectory)
        tree._root = root
        return tree

    def _change(self, *edits: NameChange) -> None:
        for edit in edits:
            edit.apply_to(edit.directory.names)
        self._journal.append(edits)


def check_replaceable(node: Node, replaced: Node | None) -> None:
    """Refuse to put one kind of thing in the place of another, or of a full directory."""
    if replaced is None:
        return
    if isinstance(replaced, SimulatedDirectory):
        if not isinstance(node, SimulatedDirectory):
            raise os_error(errno.EISDIR)
        if replaced.names:
            raise os_error(errno.ENOTEMPTY)
    elif isinstance(node, SimulatedDirectory):
        raise os_error(errno.ENOTDIR)


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def describe_node(name: str, node: Node) -> DirectoryEntry:
    """Describe a name for a list."""
    is_directory = isinstance(node, SimulatedDirectory)
    size = 0 if isinstance(node, SimulatedDirectory) else len(node.written)
    return DirectoryEntry(name, is_directory, size)


def walk_files(directory: SimulatedDirectory) -> Iterator[FileContent]:
    """Find all files below a directory."""
    for node in directory.names.values():
        if isinstance(node, SimulatedDirectory):
            yield from walk_files(node)
        else:
            yield node


# The content of a simulated file: what was written, and what a power loss would leave.
#
# Every change since the last sync is kept until it is known to be on the disk. After a failed sync
# its changes stay doubtful, as on Linux: a later sync that succeeds says nothing about them.


class ChangeState(Enum):
    """How sure it is that a change is on the disk."""

    DIRTY = "dirty"
    DOUBTFUL = "doubtful"
    DURABLE = "durable"


@dataclass(slots=True)
class ContentChange:
    """One write, or where ``data`` is None one change of the size to ``position``."""

    position: int
    data: bytes | None
    state: ChangeState = ChangeState.DIRTY

    def apply_to(self, content: bytearray) -> None:
        """Change some bytes; a gap before a write becomes zeros."""
        if self.data is None:
            del content[self.position :]
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        if self.data is not None:
            content[self.position : self.position + len(self.data)] = self.data


class FileContent:
    """The two layers of a file.

    Attributes:
        written: what every reader sees.
        reserved_bytes: room that the disk keeps for it, at least.
    """

    def __init__(self, content: bytes = b"") -> None:
        self.written = bytearray(content)
        self.reserved_bytes = 0
        self._base = bytearray(content)
        self._changes: deque[ContentChange] = deque()

    @property
    def used_bytes(self) -> int:
        """How much of the disk it takes."""
        return max(len(self.written), self.reserved_bytes)

    def write(self, data: bytes, position: int) -> None:
        """Write at a position; no bytes change nothing."""
        if data:
            self._do(ContentChange(position, data))

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        if size < 0:
            raise OSError(errno.EINVAL, "a size cannot be negative")
        self._do(ContentChange(size, None))
        self.reserved_bytes = 0

    def _do(self, change: ContentChange) -> None:
        change.apply_to(self.written)
        self._changes.append(change)

    def begin_sync(self) -> list[ContentChange]:
        """Return the changes that a sync beginning at this moment covers."""
        return [change for change in self._changes if change.state is ChangeState.DIRTY]

    def finish_sync(self, covered: Iterable[ContentChange]) -> None:
        """Take the changes as durable, but for those that another sync has failed on."""
        for change in covered:
            if change.state is ChangeState.DIRTY:
                change.state = ChangeState.DURABLE
        while self._changes and self._changes[0].state is ChangeState.DURABLE:
            self._changes.popleft().apply_to(self._base)

    def fail_sync(self, covered: Iterable[ContentChange]) -> None:
        """Take the changes as doubtful, but for those that another sync has made durable."""
        for change in covered:
            if change.state is ChangeState.DIRTY:
                change.state = ChangeState.DOUBTFUL

    def after_power_loss(
        self, choose: Callable[[list[ContentChange]], Iterable[ContentChange]]
    ) -> FileContent:
        """Return what is found when the power is back.

        Args:
            choose: picks, from all changes that are not part of the durable base, those that are
                on the disk, or parts of them, in their order.
        """
        found = bytearray(self._base)
        for change in choose(list(self._changes)):
            change.apply_to(found)
        return FileContent(bytes(found))
