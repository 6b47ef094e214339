"""The JSON of polled messages, written without an object for each that is checked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import CommandCode, NewMessage, decode_reply, encode_polled, stamp
from iggy_protocol.rest import (
    MessageHeaderShape,
    MessageShape,
    PolledMessagesShape,
    encode_json,
    interpret_user_headers,
)
from iggy_ref_server.dispatch.handlers.messages import EncodedReply
from iggy_ref_server.web.operations import respond_polled
from tests.server.partitions.partition_calls import body_of

pytestmark = pytest.mark.trio

HEADERS = bytes.fromhex("0201000000 6b 0501000000 07".replace(" ", ""))


def stored(messages):
    """Make the bytes of messages as a segment has them."""
    body, shape = body_of(messages)
    batch = memoryview(body)[shape.messages_at :]
    stamp(batch, base_offset=7, timestamp_us=2**60, random=bytes(16 * shape.missing_ids))
    return bytes(batch)


def expected(reply: bytes) -> bytes:
    """Write the answer with the shapes that the protocol declares."""
    polled = decode_reply(CommandCode.POLL_MESSAGES, reply)
    messages = tuple(
        MessageShape(
            MessageHeaderShape(
                message.checksum,
                message.id,
                message.offset,
                message.timestamp_us,
                message.origin_timestamp_us,
                len(message.user_headers),
                len(message.payload),
                0,
            ),
            bytes(message.payload),
            interpret_user_headers(message.user_headers) if message.user_headers else (),
        )
        for message in polled.messages
    )
    return encode_json(
        PolledMessagesShape(
            polled.partition_id, polled.current_offset, polled.messages_count, messages
        )
    )


async def ask(reply: EncodedReply) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Run the answer as hypercorn does; return its headers and the pieces of its body."""
    sent: list[dict[str, Any]] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        raise AssertionError("nothing is to be received")

    response = await respond_polled(reply)
    await response({"type": "http", "method": "GET"}, receive, send)
    start, *bodies = sent
    assert (start["type"], start["status"]) == ("http.response.start", 200)
    assert [event.get("more_body", False) for event in bodies] == [True] * (len(bodies) - 1) + [
        False
    ]
    return dict(start["headers"]), [event["body"] for event in bodies]


@given(
    contents=st.lists(
        st.builds(
            lambda payload, number, block: NewMessage(payload, number, block),
            st.binary(min_size=1, max_size=300),
            st.integers(0, 2**128 - 1),
            st.sampled_from([b"", HEADERS, b"not headers"]),
        ),
        min_size=1,
        max_size=20,
    )
)
async def test_messages_when_written_then_as_their_shapes_say(contents):
    messages = stored(contents)
    parts = (*encode_polled(3, 26, len(contents), []), messages)

    headers, pieces = await ask(EncodedReply(parts))

    assert b"".join(pieces) == expected(b"".join(map(bytes, parts)))
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"content-length"] == str(sum(map(len, pieces))).encode()


async def test_answer_when_empty_then_all_is_zero():
    _, pieces = await ask(EncodedReply(tuple(encode_polled(0, 0, 0, []))))

    assert pieces == [b'{"partition_id":0,"current_offset":0,"count":0,"messages":[]}']


@pytest.mark.parametrize(
    ("count", "size", "pieces_count"), [(1000, 1000, 5), (3, 400_000, 2), (600, 873, 3)]
)
async def test_answer_when_large_then_leaves_in_pieces_of_a_moment(count, size, pieces_count):
    parts = (*encode_polled(0, count - 1, count, []), stored([bytes(size)] * count))

    headers, pieces = await ask(EncodedReply(parts))

    assert b"".join(pieces) == expected(b"".join(map(bytes, parts)))
    assert b"content-length" not in headers
    assert headers[b"content-type"] == b"application/json"
    assert len([piece for piece in pieces if len(piece) > 2]) == pieces_count


async def test_answer_when_the_large_messages_stand_together_then_no_piece_holds_them_all():
    messages = [b"small"] * 500 + [bytes(300_000)] * 20
    parts = (*encode_polled(0, 519, 520, []), stored(messages))

    _, pieces = await ask(EncodedReply(parts))

    assert b"".join(pieces) == expected(b"".join(map(bytes, parts)))
    assert max(map(len, pieces)) < 1_000_000
