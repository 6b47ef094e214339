"""Received bytes that are not decoded yet.

Bytes enter through ``receive_data`` (the caller has them) or through ``get_buffer`` and
``buffer_updated`` (the caller is about to read them from a socket). Frames leave through ``ensure``
and ``take`` as memoryviews. Both kinds of input may be mixed, and the sizes of the pieces do not
matter.

Copies are made in three places only. What is missing of a frame that began in an earlier input is
copied behind its beginning. The beginning itself is moved when the frame does not fit where it
is; at that point the size of the frame is known, so this happens once, and the rest is received at
its final position. And inputs that the caller may change later are copied.

Where the bytes are. Unread bytes are in ``view[start:end]``, the front, and behind it in ``_rest``.
The front is either a window on the caller's immutable input, or lies in the chunk, a bytearray
of our own. The chunk is filled from its beginning to its end; ``_used`` marks how far. ``_rest``
is empty unless the front was completed from an input that holds more than that.

When a chunk may be used again. Payloads are returned as views, and there is no call that returns
them. But CPython knows: a bytearray refuses to change its size while any view of it is alive,
slices of slices and views held by C code included. So the buffer releases its own view and pops
the last byte. If that works, no view is alive: the byte is appended again (neither step
reallocates) and the chunk is filled again from its beginning. If it raises BufferError, the chunk
lives as long as its last view, and the buffer takes another chunk. So a caller only has to release
or drop a view; a forgotten view costs memory and never corrupts bytes. The test is made when space
is needed and not when a frame is taken, because an event loop still holds the view it read into
while it reports the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol.batch import allocate
from iggy_protocol.errors import LocalProtocolError

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


CHUNK_BYTES = 65_536
"""Size of a chunk for small frames; larger socket reads gain nothing measurable."""

RETAINED_BYTES_MAX = 2_097_152
"""The largest chunk kept for the next frame. Batches of about a megabyte are the steady load worth
keeping memory for: pages fresh from the kernel are filled at a tenth of the speed of used ones."""

LEAST_SPACE_DIVISOR = 4
"""Space below this part of a chunk is not worth a system call: the chunk is begun anew."""

MOVED_BYTES_MAX = 256
"""A beginning so short that moving it costs less than a short read."""

EMPTY = memoryview(b"")


def is_unshared(chunk: bytearray) -> bool:
    """Return whether no view of the chunk is alive."""
    try:
        last = chunk.pop()
    except BufferError:
        return False
    chunk.append(last)
    return True


class ReceiveBuffer:
    """Unread bytes, returned frame by frame without copying them.

    Args:
        unread_bytes_max: how many bytes may be buffered when the caller takes none. A caller that
            waits for bytes (``ensure`` has returned False) gets them whatever their number.
        retained_bytes_max: the largest chunk that is kept when it is empty.
        chunk_bytes: the size of a chunk that no large frame asked for.
        keeps_spare: whether a chunk with live views is kept and used again when they are gone.
            This saves fresh pages from the kernel for a client that reads one reply while the next
            one arrives.

    Attributes:
        view: where the unread bytes are; with ``start`` it is what a head is parsed from.
        start: the first unread byte in ``view``.
        end: one past the last unread byte that lies in ``view``.
        chunk_allocations: how many chunks were allocated.
        copied_bytes: how many bytes were copied or moved, of all that came in.
    """

    __slots__ = (
        "_chunk",
        "_chunk_bytes",
        "_chunk_view",
        "_expected",
        "_keeps_spare",
        "_least_space",
        "_offered",
        "_rest",
        "_spare",
        "_used",
        "_wanted",
        "chunk_allocations",
        "copied_bytes",
        "end",
        "retained_bytes_max",
        "start",
        "unread_bytes_max",
        "view",
    )

    def __init__(
        self,
        *,
        unread_bytes_max: int,
        retained_bytes_max: int = RETAINED_BYTES_MAX,
        chunk_bytes: int = CHUNK_BYTES,
        keeps_spare: bool = False,
    ) -> None:
        self.unread_bytes_max: int = unread_bytes_max
        self.retained_bytes_max: int = retained_bytes_max
        self.view: memoryview[int] = EMPTY
        self.start: int = 0
        self.end: int = 0
        self.chunk_allocations: int = 0
        self.copied_bytes: int = 0
        self._chunk_bytes = chunk_bytes
        self._least_space = max(chunk_bytes // LEAST_SPACE_DIVISOR, 1)
        self._keeps_spare = keeps_spare
        self._spare = bytearray()
        self._chunk = bytearray()
        self._chunk_view = EMPTY
        self._used = 0
        self._rest = EMPTY
        self._wanted = 0
        self._expected = 0
        self._offered = 0

    def __len__(self) -> int:
        """Return the number of unread bytes."""
        return self.end - self.start + len(self._rest)

    @property
    def reserved_bytes(self) -> int:
        """The size of the chunks that are kept at present."""
        return len(self._chunk) + len(self._spare)

    # Bytes in

    def receive_data(self, data: Buffer) -> None:
        """Take bytes that the caller has.

        Args:
            data: kept as it is when it is ``bytes``; anything else is copied, because the caller
                may go on using it.

        Raises:
            LocalProtocolError: too many bytes are unread already; take them first.
        """
        assert len(data), "the connection handles the end of the stream"
        source = memoryview(data).cast("B")
        size = len(source)
        self._offered = 0
        if self.start == self.end:
            self._adopt(data, source)
        elif self._wanted:
            missing = self._wanted - (self.end - self.start)
            self._append(source[:missing], self._wanted)
            if size > missing:
                self._rest = self._immutable(data, source[missing:])
        else:
            self._check_unread(size)
            self._append_unread(source)

    def get_buffer(self, hint: int = -1) -> memoryview:
        """Return space to read into; report how much of it was filled to ``buffer_updated``.

        The space is never empty. While a large frame is incomplete it ends where the frame ends,
        so that the next one begins in place.

        Args:
            hint: the preferred size in bytes, granted up to the largest retained chunk.

        Raises:
            LocalProtocolError: too many bytes are unread already; take them first.
        """
        if self._has_space_for_small(hint):
            stop = self.end + min(self._chunk_bytes, self.retained_bytes_max)
        else:
            stop = self._prepare_space(hint)
        space = self._chunk_view[self.end : stop]
        self._offered = len(space)
        return space

    def buffer_updated(self, size: int) -> None:
        """Take the first ``size`` bytes of the space that ``get_buffer`` has returned.

        Raises:
            LocalProtocolError: no space of that size is on offer.
        """
        if not 0 <= size <= self._offered:
            raise LocalProtocolError(
                f"{size} bytes cannot have been read into a space of {self._offered}"
            )
        self._offered = 0
        self._grow_front(size)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the frame at the front still wants; 0 when that is not known."""
        return max(0, self._wanted - (self.end - self.start))

    # Frames out

    def ensure(self, size: int) -> bool:
        """Return whether the next ``size`` bytes are received, and then in ``view`` at ``start``.

        If not, the buffer prepares for so many.
        """
        have = self.end - self.start
        if have >= size:
            return True
        if self._rest:
            missing = size - have
            piece, self._rest = self._rest[:missing], self._rest[missing:]
            self._append(piece, size)
            if len(piece) == missing:
                return True
        self._wanted = size
        return False

    def take(self, head_bytes: int, size: int) -> memoryview:
        """Consume ``size`` bytes that were ensured, and return all but the first ``head_bytes``.

        The view is writable when the bytes lie in a chunk, and stays valid as long as it lives.
        """
        start = self.start
        if size > head_bytes:
            payload = self.view[start + head_bytes : start + size]
        else:
            # An empty view of the chunk would keep all of it from being used again; and it must be
            # a new one each time, because the caller may release it.
            payload = memoryview(b"")
        self.start = start + size
        assert self.start <= self.end, "take more than was ensured"
        if self.start == self.end:
            self._wanted = 0
            self._next_front()
        return payload

    def skip(self, size: int) -> int:
        """Drop up to ``size`` bytes, and return how many there were to drop."""
        dropped = 0
        while dropped < size and self.start != self.end:
            step = min(size - dropped, self.end - self.start)
            self.start += step
            dropped += step
            if self.start == self.end:
                self._next_front()
        self._wanted = 0
        return dropped

    # Inside

    def _has_space_for_small(self, hint: int) -> bool:
        """Return whether nothing is unread and the chunk has space, as between two small frames.

        A shortcut: the result of ``_prepare_space`` is known then, and calling it takes longer than
        the rest of the work for a small frame.
        """
        least = self._least_space
        return (
            self.start == self.end
            and self._wanted <= least >= hint
            and not self._expected
            and self.view is self._chunk_view
            and self.end + least <= len(self._chunk)
        )

    def _prepare_space(self, hint: int) -> int:
        """Make space for a read, and return where it ends."""
        space_max = self._check_unread(1)
        if self._rest:
            self._append_unread(EMPTY)
        self._place(self._space_wanted(hint))
        if self._wanted > self._chunk_bytes:
            return self.start + self._wanted
        return self.end + min(max(self._chunk_bytes, hint), space_max)

    def _check_unread(self, size: int) -> int:
        """Return how many more bytes may be received, or raise if fewer than ``size``."""
        if self._wanted or self.start == self.end:
            return self.retained_bytes_max
        room = self.unread_bytes_max - len(self)
        if room < size:
            raise LocalProtocolError(
                f"{len(self)} bytes are unread and {self.unread_bytes_max} are allowed:"
                " call next_event first, and answer what it returned if it says PAUSED"
            )
        return room

    def _adopt(self, data: Buffer, source: memoryview) -> None:
        """Make an input the front, without a copy if it is immutable."""
        self.view = self._immutable(data, source)
        self.start, self.end = 0, len(source)
        if self.end >= self._wanted:
            self._wanted = 0

    def _immutable(self, data: Buffer, part: memoryview) -> memoryview:
        if isinstance(data, bytes):
            return part
        self.copied_bytes += len(part)
        return memoryview(bytes(part))

    def _append(self, piece: memoryview, size: int) -> None:
        """Copy bytes to the end of the front, which will grow to ``size`` bytes."""
        self._place(size)
        end = self.end
        self._chunk_view[end : end + len(piece)] = piece
        self.copied_bytes += len(piece)
        self._grow_front(len(piece))

    def _append_unread(self, piece: memoryview) -> None:
        """Append input while complete bytes are unread.

        Happens when input follows input and nothing is taken in between. The space doubles, so
        that bytes coming one by one are not moved one by one.
        """
        rest, self._rest = self._rest, EMPTY
        size = len(rest) + len(piece) + self.end - self.start
        if self.view is not self._chunk_view or self.start + size > len(self._chunk):
            self._place(2 * size)
        self._append(rest, size)
        self._append(piece, size)

    def _grow_front(self, size: int) -> None:
        self.end = self._used = self.end + size
        if self.end - self.start >= self._wanted:
            self._wanted = 0

    def _space_wanted(self, hint: int) -> int:
        """Return how much space the front needs before a read, its present bytes included."""
        have = self.end - self.start
        if self._wanted > self._chunk_bytes:
            self._expected = self._wanted if self._wanted <= self.retained_bytes_max else 0
            return self._wanted
        if have <= MOVED_BYTES_MAX:
            # Large frames follow each other, so the next one gets space like the last one.
            room = max(self._expected, self._least_space)
            self._expected = 0
            return max(self._wanted, have + max(room, min(hint, self.retained_bytes_max)))
        if hint > self._chunk_bytes:
            # What is moved is less than what such a read brings.
            return max(self._wanted, have + min(hint, self.retained_bytes_max))
        if self._wanted:
            return self._wanted
        is_space_left = self.view is self._chunk_view and self.end < len(self._chunk)
        return have + 1 if is_space_left else 2 * have

    def _place(self, size: int) -> None:
        """Move the front to the chunk if needed, with space for ``size`` bytes from its start."""
        if self.view is self._chunk_view:
            if self.start + size > len(self._chunk):
                self._renew_chunk(size)
        elif self._used + size <= len(self._chunk):
            self._move_front(self.view, self._used)
        else:
            self._renew_chunk(size)

    def _renew_chunk(self, size: int) -> None:
        """Begin the chunk anew, or another one, and move the front to its beginning."""
        old = self._chunk
        source = None if self.view is self._chunk_view else self.view
        self.view = self._chunk_view = EMPTY
        if len(old) < size or not is_unshared(old):
            self._chunk = self._other_chunk(old, size)
        self._chunk_view = memoryview(self._chunk)
        self._move_front(memoryview(old) if source is None else source, 0)

    def _other_chunk(self, old: bytearray, size: int) -> bytearray:
        """Return the spare chunk if it is large enough and unshared, else a new one."""
        spare = self._spare
        fits = len(spare) >= size and is_unshared(spare)
        if self._keeps_spare and self._chunk_bytes < len(old) <= self.retained_bytes_max:
            self._spare = old
        elif fits:
            self._spare = bytearray()
        if fits:
            return spare
        self.chunk_allocations += 1
        # Whole multiples, so that the next frame may be a little larger than this one.
        return allocate(-(-size // self._chunk_bytes) * self._chunk_bytes)

    def _move_front(self, source: memoryview, target: int) -> None:
        have = self.end - self.start
        self._chunk_view[target : target + have] = source[self.start : self.end]
        self.copied_bytes += have
        self.view = self._chunk_view
        self.start = target
        self.end = self._used = target + have

    def _next_front(self) -> None:
        """Continue with the rest, or with an empty front."""
        if self._rest:
            self.view, self._rest = self._rest, EMPTY
            self.start, self.end = 0, len(self.view)
            return
        if len(self._chunk) > self.retained_bytes_max and not self._offered:
            self._chunk, self._chunk_view, self._used = bytearray(), EMPTY, 0
        self.view = self._chunk_view
        self.start = self.end = self._used
