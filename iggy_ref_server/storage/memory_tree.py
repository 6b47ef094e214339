"""The simulated directory tree: names as they are, and as a power loss would leave them.

A change of names is durable once a directory it touches is synced, together with all earlier
changes it depends on; changes in other directories are not. Raises ``OSError`` as a kernel would.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from iggy_protocol import record
from iggy_ref_server.storage.interface import Entry
from iggy_ref_server.storage.memory_content import Content
from iggy_ref_server.storage.paths import parent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_ref_server.storage.power_loss import PowerLoss

__all__ = ["MemoryTree"]


@dataclass(slots=True, eq=False)
class Directory:
    """Names, and the names that are on the disk."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = "Directory | Content"


@record
class Edit:
    """A name set, or where ``node`` is None removed."""

    directory: Directory
    name: str
    node: Node | None

    def apply_to(self, names: dict[str, Node]) -> None:
        """Set or remove the name."""
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


def refusal(number: int) -> OSError:
    """Make the error that a kernel would answer with."""
    return OSError(number, os.strerror(number))


class MemoryTree:
    """All names below a data directory."""

    def __init__(self) -> None:
        self._root = Directory()
        # Each change is a tuple of edits that happen together.
        self._journal: list[tuple[Edit, ...]] = []

    def find(self, path: str) -> Node | None:
        """Return what has a name; None where there is nothing."""
        node: Node | None = self._root
        for name in path.split("/") if path else ():
            if node is None:
                return None
            if not isinstance(node, Directory):
                raise refusal(errno.ENOTDIR)
            node = node.names.get(name)
        return node

    def directory(self, path: str) -> Directory:
        """Return a directory that must be there."""
        node = self.find(path)
        if node is None:
            raise refusal(errno.ENOENT)
        if not isinstance(node, Directory):
            raise refusal(errno.ENOTDIR)
        return node

    def content(self, path: str) -> Content | None:
        """Return a file; None where there is none."""
        node = self.find(path)
        if isinstance(node, Directory):
            raise refusal(errno.EISDIR)
        return node

    def put(self, path: str, content: Content) -> None:
        """Give a file a name, in the place of another file or of nothing."""
        directory = self.directory(parent(path))
        self.content(path)
        self._change(Edit(directory, name_of(path), content))

    def rename(self, source: str, target: str) -> None:
        """Give a file or a directory another name."""
        source_directory = self.directory(parent(source))
        target_directory = self.directory(parent(target))
        node, replaced = self.find(source), self.find(target)
        if node is None:
            raise refusal(errno.ENOENT)
        if target.startswith(f"{source}/"):
            raise refusal(errno.EINVAL)
        if source.startswith(f"{target}/"):
            raise refusal(errno.ENOTEMPTY)
        if node is replaced:
            return
        check_replaceable(node, replaced)
        self._change(
            Edit(source_directory, name_of(source), None),
            Edit(target_directory, name_of(target), node),
        )

    def remove(self, path: str) -> None:
        """Remove the name of a file; no error where there is none."""
        if self.content(path) is not None:
            self._change(Edit(self.directory(parent(path)), name_of(path), None))

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it, one by one from below."""
        if self.find(path) is None:
            return
        directory = self.directory(path)
        for name, node in list(directory.names.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._change(Edit(directory, name, None))
        self._change(Edit(self.directory(parent(path)), name_of(path), None))

    def make_directories(self, path: str) -> list[str]:
        """Make a directory and those above it; return the directories that changed."""
        changed = []
        parts = path.split("/") if path else []
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            node = self.find(part)
            if isinstance(node, Content):
                raise refusal(errno.EEXIST)
            if node is None:
                self._change(Edit(self.directory(parent(part)), name_of(part), Directory()))
                changed.append(parent(part))
        return changed

    def entries(self, path: str) -> list[Entry]:
        """List a directory sorted by name; an empty list where there is none."""
        if self.find(path) is None:
            return []
        return [describe(name, node) for name, node in sorted(self.directory(path).names.items())]

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
        return sum(content.used_bytes for content in walk(self._root))

    def after_power_loss(self, loss: PowerLoss) -> MemoryTree:
        """Return the tree that is found when the power is back."""
        names: dict[Directory, dict[str, Node]] = {}
        for change in self._journal[: loss.names_count(len(self._journal))]:
            for edit in change:
                edit.apply_to(names.setdefault(edit.directory, dict(edit.directory.durable)))

        def survivor(node: Node) -> Node:
            if isinstance(node, Content):
                return node.after_power_loss(loss.surviving)
            found = names.get(node, node.durable)
            inside = {name: survivor(child) for name, child in found.items()}
            return Directory(inside, dict(inside))

        tree = MemoryTree()
        root = survivor(self._root)
        assert isinstance(root, Directory)
        tree._root = root
        return tree

    def _change(self, *edits: Edit) -> None:
        for edit in edits:
            edit.apply_to(edit.directory.names)
        self._journal.append(edits)


def check_replaceable(node: Node, replaced: Node | None) -> None:
    """Refuse to put one kind of thing in the place of another, or of a full directory."""
    if replaced is None:
        return
    if isinstance(replaced, Directory):
        if not isinstance(node, Directory):
            raise refusal(errno.EISDIR)
        if replaced.names:
            raise refusal(errno.ENOTEMPTY)
    elif isinstance(node, Directory):
        raise refusal(errno.ENOTDIR)


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def describe(name: str, node: Node) -> Entry:
    """Describe a name for a list."""
    is_directory = isinstance(node, Directory)
    size = 0 if isinstance(node, Directory) else len(node.written)
    return Entry(name, is_directory, size)


def walk(directory: Directory) -> Iterator[Content]:
    """Find all files below a directory."""
    for node in directory.names.values():
        if isinstance(node, Directory):
            yield from walk(node)
        else:
            yield node
