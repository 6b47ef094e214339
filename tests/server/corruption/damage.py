"""What can happen to the files of a stopped server, chosen by a seed and told in words.

Some damage leaves files exactly as they once were: nothing in them can tell that there was more.
What may be missing without a word because of that is said by ``Excused``, and nothing else is.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from iggy_protocol import InvalidField, MessageBatch, TruncatedField
from iggy_protocol.message_view import extents_of
from tests.server.corruption.sample_data import Specimen

HEADER_BYTES = 64
PAGE_BYTES = 4_096
INDEX_ENTRY_BYTES = 16
PARTITION = re.compile(r"(streams/\d+/topics/\d+/partitions/\d+)/")

# What a file is, by its path; the first that fits.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("metadata log", r"state/metadata\.log$"),
        ("metadata snapshot", r"state/metadata\.snapshot$"),
        ("log", r"partitions/\d+/\d+\.log$"),
        ("index", r"partitions/\d+/\d+\.index$"),
        ("consumer offset", r"offsets/consumers/\d+$"),
        ("group offset", r"offsets/groups/\d+$"),
        ("generation", r"partitions/\d+/(incarnation|generation)$"),
        ("reservation", r"partitions/\d+/reservation$"),
        ("file of state", r"^state/"),
        ("file of a partition", r"partitions/\d+/"),
        ("file beside the data", r""),
    )
)


@dataclass
class Excused:
    """What may be missing or different although nobody can tell.

    Attributes:
        ends: paths of partitions whose last messages may be gone.
        stored: paths of offset files whose content nobody can judge.
        foreign: paths of partitions with messages of another partition or time, each under an
            offset that it has a right to.
        metadata: whether the last changes of metadata may be gone.
        unknown: paths of partitions whose files are all gone, so that after a repair nobody knows
            which offsets they had given away.
    """

    ends: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    metadata: bool = False
    unknown: set[str] = field(default_factory=set)


@dataclass
class Damage:
    """What was done.

    Attributes:
        words: for people, with the paths.
        excused: what may follow from it in silence.
    """

    words: str
    excused: Excused = field(default_factory=Excused)


@dataclass
class Scene:
    """A copy of a specimen that something is to happen to."""

    specimen: Specimen
    directory: Path
    chance: random.Random

    def files(self) -> dict[str, list[Path]]:
        """List all files by their kind."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.directory.rglob("*")):
            if path.is_file():
                found.setdefault(kind_of(self.name(path)), []).append(path)
        return found

    def name(self, path: Path) -> str:
        """Name a file as seen from the data directory."""
        return path.relative_to(self.directory).as_posix()

    def original(self, path: Path) -> bytes:
        """Read what a file held before anything happened to it."""
        return (self.specimen.directory / self.name(path)).read_bytes()


Action = Callable[[Scene, str, Path], str]
"""Does something to a file of a kind, and says what in words; empty words where it cannot."""


def kind_of(name: str) -> str:
    """Tell what a file is."""
    return next(kind for kind, pattern in KINDS if pattern.search(name))


# ---- what happens to one file


def flip_bit(scene: Scene, kind: str, path: Path) -> str:
    """Turn one bit over."""
    content = bytearray(path.read_bytes())
    if not content:
        return ""
    at, bit = scene.chance.randrange(len(content)), scene.chance.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {at} of {len(content)} turned over in"


def change_byte(scene: Scene, kind: str, path: Path) -> str:
    """Put another byte in the place of one."""
    content = bytearray(path.read_bytes())
    if not content:
        return ""
    at = scene.chance.randrange(len(content))
    content[at] = (content[at] + scene.chance.randrange(1, 256)) % 256
    path.write_bytes(content)
    return f"byte {at} of {len(content)} changed to {content[at]} in"


def zero_page(scene: Scene, kind: str, path: Path) -> str:
    """Have a block of zeros where data were, as a disk does that lost a page."""
    content = bytearray(path.read_bytes())
    size = scene.chance.choice([64, 512, PAGE_BYTES])
    at = scene.chance.randrange(0, max(len(content), 1), size)
    zeros = bytes(len(content[at : at + size]))
    if content[at : at + size] == zeros:
        return ""
    content[at : at + size] = zeros
    path.write_bytes(content)
    return f"bytes {at} to {at + len(zeros) - 1} of {len(content)} zeroed in"


def empty_file(scene: Scene, kind: str, path: Path) -> str:
    """Cut a file to nothing."""
    if not path.stat().st_size:
        return ""
    path.write_bytes(b"")
    return "cut to 0 bytes:"


def cut_anywhere(scene: Scene, kind: str, path: Path) -> str:
    """Cut a file at any place."""
    content = path.read_bytes()
    if len(content) < 2:
        return ""
    at = scene.chance.randrange(1, len(content))
    path.write_bytes(content[:at])
    return f"cut from {len(content)} to {at} bytes:"


def cut_between(scene: Scene, kind: str, path: Path) -> str:
    """Cut a file between two of the things that it holds."""
    content = path.read_bytes()
    places = boundaries(kind, content)
    if not places:
        return ""
    at = scene.chance.choice(places)
    path.write_bytes(content[:at])
    return f"cut between two records, from {len(content)} to {at} bytes:"


def append_garbage(scene: Scene, kind: str, path: Path) -> str:
    """Have noise behind the end."""
    garbage = scene.chance.randbytes(scene.chance.choice([1, 7, 64, 300]))
    with path.open("ab") as file:
        file.write(garbage)
    return f"{len(garbage)} bytes of noise added to"


def append_zeros(scene: Scene, kind: str, path: Path) -> str:
    """Have zeros behind the end, as after a power loss."""
    size = scene.chance.choice([1, 16, 64, PAGE_BYTES])
    with path.open("ab") as file:
        file.write(bytes(size))
    return f"{size} zeros added to"


def append_itself(scene: Scene, kind: str, path: Path) -> str:
    """Have the end of the file once more behind it."""
    content = path.read_bytes()
    tail = content[-scene.chance.choice([16, 64, 200, len(content) + 1]) :]
    if not tail:
        return ""
    path.write_bytes(content + tail)
    return f"its own last {len(tail)} bytes added to"


def remove(scene: Scene, kind: str, path: Path) -> str:
    """Have no such file."""
    path.unlink()
    return "removed"


def restore_older(scene: Scene, kind: str, path: Path) -> str:
    """Bring back the file as it was in the middle of its life."""
    older = scene.specimen.older / scene.name(path)
    if not older.is_file() or older.read_bytes() == path.read_bytes():
        return ""
    shutil.copy(older, path)
    return "an older copy restored of"


def _other(scene: Scene, kind: str, path: Path) -> Path | None:
    """Choose another file of the same kind that holds something else; best of the same name."""
    content = path.read_bytes()
    others = [
        other
        for other in scene.files().get(kind, [])
        if other != path and other.read_bytes() != content
    ]
    namesakes = [other for other in others if other.name == path.name]
    return scene.chance.choice(namesakes or others) if others else None


def swap(scene: Scene, kind: str, path: Path) -> str:
    """Exchange two files of a kind."""
    other = _other(scene, kind, path)
    if other is None:
        return ""
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)
    return f"exchanged with {scene.name(other)}:"


def overwrite(scene: Scene, kind: str, path: Path) -> str:
    """Put a copy of another file of the kind in the place of one."""
    other = _other(scene, kind, path)
    if other is None:
        return ""
    shutil.copy(other, path)
    return f"overwritten with {scene.name(other)}:"


ACTIONS: tuple[Action, ...] = (
    flip_bit,
    flip_bit,
    flip_bit,
    change_byte,
    zero_page,
    empty_file,
    cut_anywhere,
    cut_between,
    append_garbage,
    append_zeros,
    append_itself,
    remove,
    restore_older,
    swap,
    overwrite,
)


# ---- what happens to a directory


def remove_directory(scene: Scene) -> Damage | None:
    """Have none of the files of a partition."""
    path = scene.chance.choice(sorted(scene.specimen.truth.partitions))
    shutil.rmtree(scene.directory / path)
    return Damage(f"removed the directory {path}", Excused(unknown={path}))


def restore_directory(scene: Scene) -> Damage | None:
    """Bring back a partition as it was; nobody can tell that it once had more."""
    paths = [
        path
        for path in sorted(scene.specimen.truth.partitions)
        if (scene.specimen.older / path).is_dir()
    ]
    path = scene.chance.choice(paths)
    shutil.rmtree(scene.directory / path)
    shutil.copytree(scene.specimen.older / path, scene.directory / path)
    stored = {f"{path}/offsets/{name}" for name in scene.specimen.truth.partitions[path].stored}
    excused = Excused(ends={path}, stored=stored, foreign={path})
    return Damage(f"an older copy restored of the directory {path}", excused)


def exchange_directories(scene: Scene) -> Damage | None:
    """Exchange the files of two partitions that were made in different lives."""
    ours, theirs = scene.chance.sample(sorted(scene.specimen.truth.partitions), 2)
    aside = scene.directory / "aside"
    (scene.directory / ours).rename(aside)
    (scene.directory / theirs).rename(scene.directory / ours)
    aside.rename(scene.directory / theirs)
    excused = Excused(unknown={ours, theirs})
    return Damage(f"exchanged the directories {ours} and {theirs}", excused)


def remove_state(scene: Scene) -> Damage | None:
    """Have no metadata at all beside the data."""
    shutil.rmtree(scene.directory / "state")
    return Damage("removed the directory state")


DIRECTORY_ACTIONS: tuple[Callable[[Scene], Damage | None], ...] = (
    remove_directory,
    restore_directory,
    exchange_directories,
    remove_state,
)
DIRECTORY_SHARE = 0.06
"""How often something happens to a directory instead of a file."""
SERVER_FILES_SHARE = 0.03
"""How often it happens to files that hold no data, such as the log of the server."""


def inflict(scene: Scene) -> Damage:
    """Let something happen to a copy of a specimen."""
    while True:
        damage = _try_once(scene)
        if damage is not None:
            return damage


def _try_once(scene: Scene) -> Damage | None:
    if scene.chance.random() < DIRECTORY_SHARE:
        return scene.chance.choice(DIRECTORY_ACTIONS)(scene)
    files = scene.files()
    beside = files.pop("file beside the data", [])
    if beside and scene.chance.random() < SERVER_FILES_SHARE:
        files = {"file beside the data": beside}
    # Every kind is as likely as any other, however many files there are of it; logs count twice.
    kind = scene.chance.choice([*sorted(files), "log"] if "log" in files else sorted(files))
    path = scene.chance.choice(files[kind])
    before = {each: each.read_bytes() for each in files[kind]}
    words = scene.chance.choice(ACTIONS)(scene, kind, path)
    if not words:
        return None
    changed = [
        each
        for each, content in before.items()
        if not each.exists() or each.read_bytes() != content
    ]
    excused = Excused()
    for each in changed:
        _excuse(scene, kind, each, before[each], excused)
    return Damage(f"{words} {scene.name(path)}", excused)


# ---- what nobody can tell


def _excuse(scene: Scene, kind: str, path: Path, before: bytes, excused: Excused) -> None:
    name = scene.name(path)
    if kind in ("consumer offset", "group offset"):
        excused.stored.add(name)
        return
    if not path.exists():
        return
    after = path.read_bytes()
    if kind == "metadata log":
        # What is cut off the end may never have been made; an empty file is no log any more.
        excused.metadata |= before.startswith(after) and 0 < len(after) < len(before)
    elif kind == "log" and _is_silent_cut(path, before, after):
        excused.ends.add(partition_of(name))
    elif kind == "log" and _is_of_the_same_place(path, before, after):
        excused.ends.add(partition_of(name))
        excused.foreign.add(partition_of(name))


def partition_of(name: str) -> str:
    """Name the directory of the partition that a file belongs to."""
    found = PARTITION.match(name)
    assert found is not None, name
    return found[1]


def _is_silent_cut(path: Path, before: bytes, after: bytes) -> bool:
    """Tell whether a log ends sooner than it did, as if killed there, and no index knows of it."""
    if not before.startswith(after) or len(after) == len(before):
        return False
    if any(int(other.stem) > int(path.stem) for other in path.parent.glob("*.log")):
        return False
    index = path.with_suffix(".index")
    entries = index.stat().st_size // INDEX_ENTRY_BYTES if index.exists() else 0
    return entries <= sum(at + size <= len(after) for at, _, size in extents_of(memoryview(before)))


def _is_of_the_same_place(path: Path, before: bytes, after: bytes) -> bool:
    """Tell whether the messages of a log are others, with the offsets of those that were there."""
    if not after or before[:HEADER_BYTES] == after[:HEADER_BYTES]:
        return False
    try:
        first = next(iter(MessageBatch(after)))
        MessageBatch(after).verify()
    except (InvalidField, TruncatedField, StopIteration):
        return False
    return first.offset == int(path.stem)


def boundaries(kind: str, content: bytes) -> list[int]:
    """List the places between two things in a file, its beginning included."""
    if kind == "log":
        try:
            return [at for at, _, _ in extents_of(memoryview(content))]
        except ValueError:
            return []
    if kind == "index":
        return list(range(0, len(content), INDEX_ENTRY_BYTES))
    if kind == "metadata log":
        return [found.start() for found in re.finditer(rb"\xf1igm", content)]
    return []
