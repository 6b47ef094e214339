"""Hold what fsck says and what a server serves to what was acknowledged.

Each rule yields sentences, one for each promise that is broken:

    starts       the server starts, or refuses with a sentence that somebody wrote
    serves       only what was acknowledged, each message under its offset
    agrees       a sound directory serves everything; what is missing is what fsck named
    goes on      a new message gets an offset above all that were given away
    keeps        every message record that was there is there, or in quarantine
    mends        after a repair nothing is to mend, and the same rules hold
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.server.corruption.examine import NEW_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.corruption.damage import Excused
    from tests.server.corruption.examine import PartitionSeen, Seen, Verdict
    from tests.server.corruption.sample_data import PartitionTruth, Specimen, Truth

SOUND = 0
QUIET = "agrees: check finds nothing there, and"
SHOWN_MAX = 8


def some(offsets: set[int]) -> str:
    """Name offsets, the first few of many."""
    ordered = sorted(offsets)
    shown = ", ".join(map(str, ordered[:SHOWN_MAX]))
    return f"{shown} and {len(ordered) - SHOWN_MAX} more" if len(ordered) > SHOWN_MAX else shown


def judge_fsck(verdict: Verdict, what: str) -> Iterator[str]:
    """fsck has words for everything."""
    if verdict.unforeseen:
        yield f"{what} ended with {verdict.unforeseen}"


def judge_start(seen: Seen, verdict: Verdict) -> Iterator[str]:
    """The server starts or refuses with a sentence, and fsck agrees."""
    for error in dict.fromkeys(seen.unforeseen):
        yield f"starts: the server met an error that nobody foresaw: {error[:300]}"
    if not seen.is_started and verdict.is_quiet and not seen.unforeseen:
        yield f"{QUIET} the server refuses to start: {seen.refusal[:300]}"
    if seen.is_started and seen.is_locked_out and verdict.is_quiet:
        yield f"{QUIET} nobody can log in"


def judge_names(seen: Seen, truth: Truth, verdict: Verdict, excused: Excused) -> Iterator[str]:
    """Streams, topics and users are those that were acknowledged."""
    if not seen.is_started or seen.is_locked_out:
        return
    found = {*seen.streams} | {
        f"{name}/{topic}" for name in seen.streams for topic in seen.streams[name]
    }
    for name in sorted(found - truth.ever):
        yield f"serves: {name}, which never was"
    if verdict.concerns_metadata or excused.metadata:
        return
    wanted = {*truth.streams} | {
        f"{name}/{topic}" for name in truth.streams for topic in truth.streams[name]
    }
    for name in sorted(wanted - found):
        yield f"{QUIET} {name} is gone"
    for name in sorted(found - wanted):
        yield f"{QUIET} {name} is back, which was deleted"
    for name in sorted(truth.users ^ seen.users):
        fate = "gone" if name in truth.users else "back"
        yield f"{QUIET} user {name} is {fate}"


def judge_partition(
    each: PartitionTruth,
    seen: PartitionSeen,
    verdict: Verdict,
    excused: Excused,
    *,
    is_repaired: bool,
) -> Iterator[str]:
    """A partition serves what was acknowledged, or says that it cannot."""
    if seen.undecodable:
        yield f"serves: {each.name} answers a poll with what nobody can read: {seen.undecodable}"
    for offset, payload in seen.messages.items():
        if each.path in excused.foreign:
            break
        if payload != each.messages.get(offset) and payload != NEW_MESSAGE:
            was = each.messages.get(offset, b"nothing")[:40]
            yield f"serves: {each.name} at {offset} was {was!r} and is {payload[:40]!r}"
            break
    missing = {*each.messages} - {*seen.messages}
    is_named = verdict.concerns(each.path) or verdict.concerns_metadata
    if each.path in excused.unknown and is_named:
        return
    if is_repaired and each.path in verdict.emptied:
        # That was announced, and the rule about bytes sees that they are in quarantine.
        return
    if not is_named:
        yield from _judge_sound(each, seen, missing, excused)
    else:
        yield from _judge_named(each, seen, missing, verdict, excused)
    yield from _judge_stored(each, seen, is_named, excused)
    at = seen.new_offset
    if at is not None and at < each.next_offset and each.path not in excused.ends:
        yield f"goes on: {each.name} gave offset {at} to a new message, {each.next_offset} is next"


def _judge_sound(
    each: PartitionTruth, seen: PartitionSeen, missing: set[int], excused: Excused
) -> Iterator[str]:
    if each.path in excused.ends:
        missing = {offset for offset in missing if offset < max(seen.messages, default=-1)}
    if seen.refused is not None:
        yield f"{QUIET} {each.name} is refused with {seen.refused}"
    elif seen.broken:
        yield f"{QUIET} {each.name} serves broken messages {some(seen.broken)}"
    elif missing:
        yield f"{QUIET} {each.name} lacks {some(missing)}"
    if seen.new_offset is None and seen.refused is None:
        yield f"{QUIET} {each.name} takes no messages"


def _judge_named(
    each: PartitionTruth,
    seen: PartitionSeen,
    missing: set[int],
    verdict: Verdict,
    excused: Excused,
) -> Iterator[str]:
    """What is missing is what fsck named; a partition that is set aside serves nothing."""
    if seen.refused is not None or seen.undecodable:
        return
    named = verdict.lost.get(each.path, set())
    # Messages that were sent to see how it goes on are behind whatever was cut.
    old = {offset for offset, payload in seen.messages.items() if payload != NEW_MESSAGE}
    last = max(old | seen.broken, default=-1)
    if each.path in verdict.torn or each.path in excused.ends:
        missing = {offset for offset in missing if offset < last}
    unnamed = missing - named - seen.broken
    if unnamed:
        yield (
            f"agrees: {each.name} is served without {some(unnamed)}, and check names "
            f"{some(named) or 'nothing'} as lost"
        )


def _judge_stored(
    each: PartitionTruth, seen: PartitionSeen, is_named: bool, excused: Excused
) -> Iterator[str]:
    for name, offset in seen.stored.items():
        is_excused = f"{each.path}/offsets/{name}" in excused.stored
        if offset is None:
            if not is_named and not is_excused:
                yield f"{QUIET} {each.name} has lost {name}"
        elif offset != each.stored[name]:
            is_end = offset >= each.next_offset - 1 and offset > each.stored[name]
            if is_end and each.path not in excused.ends:
                yield (
                    f"goes on: {name} of {each.name} was {each.stored[name]} and is {offset}, the "
                    "end: unread messages are skipped"
                )
            elif not is_excused and each.path not in excused.ends and not is_named:
                yield f"agrees: {name} of {each.name} was {each.stored[name]} and is {offset}"


def judge_served(
    seen: Seen, truth: Truth, verdict: Verdict, excused: Excused, *, is_repaired: bool = False
) -> Iterator[str]:
    """Everything about one look at a server."""
    yield from judge_start(seen, verdict)
    yield from judge_names(seen, truth, verdict, excused)
    for path, found in seen.partitions.items():
        each = truth.partitions[path]
        yield from judge_partition(each, found, verdict, excused, is_repaired=is_repaired)


# ---- bytes


def present_records(directory: Path, specimen: Specimen) -> set[bytes]:
    """Find which message records of a specimen are whole in any file below a directory."""
    content = b"\0".join(
        path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".index"
    )
    return {
        record for records in specimen.records.values() for record in records if record in content
    }


def judge_kept(before: set[bytes], after: set[bytes], who: str) -> Iterator[str]:
    """No message that was there is gone; what was moved to quarantine is still there."""
    gone = before - after
    if gone:
        yield f"keeps: {len(gone)} whole messages were there before {who} and are nowhere now"
