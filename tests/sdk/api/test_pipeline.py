"""Values on their way to the wire and back, through every station."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    HeaderKey,
    HeaderKind,
    HeaderValue,
    NewMessage,
    PayloadCipher,
    decode_user_headers,
    encode_user_headers,
)
from iggy_sdk.compression import Compression
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import DecryptionError, InvalidRequestError, SerdeError
from iggy_sdk.hooks import Hook, Hooks
from iggy_sdk.message import Message, ReceivedMessage
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.serde import JsonSerde, StrSerde
from tests.sdk.api.polling import polled

KEY = bytes(range(32))
SCALARS = (
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
    | st.binary(min_size=1, max_size=255)
    | st.booleans()
    | st.integers(-(2**127), 2**128 - 1)
    | st.floats(allow_nan=False)
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
HEADERS = st.dictionaries(
    NAMES.filter(lambda name: name not in ("iggy-key", "content-encoding")), SCALARS, max_size=6
)
KEYS = st.none() | st.text("abcé", min_size=1, max_size=60) | st.binary(min_size=1, max_size=255)
STATIONS = st.fixed_dictionaries(
    {
        "compression": st.none()
        | st.builds(Compression, st.sampled_from(["gzip", "zstd", "lz4"]), st.integers(0, 200)),
        "encryptor": st.none() | st.just(Encryptor.aes256_gcm(KEY)),
        "key_header": st.booleans(),
    }
)


def travel(pipeline: Pipeline[Any], *values: Any, **place: Any) -> list[ReceivedMessage[Any]]:
    """Send values and receive them."""
    sent = pipeline.encode_batch(list(values), **place)
    return list(pipeline.batch(polled(sent)))


@given(
    payload=st.binary(max_size=500),
    headers=HEADERS,
    id_=st.integers(1, 2**128 - 1),
    key=KEYS,
    origin=st.none() | st.integers(0, 2**64 - 1),
    stations=STATIONS,
)
def test_pipeline_when_a_message_goes_there_and_back_then_is_the_same(
    payload, headers, id_, key, origin, stations
):
    message = Message(payload, headers=headers, id=id_, key=key, origin_timestamp_us=origin)

    (back,) = travel(Pipeline(**stations), message)

    assert back.payload == back.value == payload
    assert back.id == id_
    assert back.key == (key if stations["key_header"] else None)
    assert origin is None or back.origin_timestamp_us == origin
    ours = {"iggy-key", "content-encoding"}
    assert {name: value for name, value in back.headers.items() if name not in ours} == headers
    assert back.error is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=20,
)


@given(values=st.lists(JSON, min_size=1, max_size=5), stations=STATIONS)
def test_pipeline_when_values_go_through_a_serde_then_come_back(values, stations):
    pipeline = Pipeline(JsonSerde(), **stations)

    assert [message.value for message in travel(pipeline, *values)] == values


def test_outgoing_when_there_is_nothing_to_do_then_passes_the_very_object_on():
    payloads = [b"one", b"two"]

    assert Pipeline().encode_message(payloads[0]) is payloads[0]
    assert Pipeline().encode_batch(payloads) is payloads
    view = memoryview(b"three")
    assert Pipeline().encode_message(view) is view
    new = NewMessage(b"four")
    assert Pipeline().encode_message(new) is new


def test_outgoing_when_value_is_text_then_is_written_as_utf8():
    assert Pipeline().encode_message("grüße") == "grüße".encode()
    assert Pipeline().encode_batch([b"a", "b"]) == [b"a", b"b"]
    assert Pipeline().encode_message(Message("c")) == b"c"


def test_outgoing_when_a_key_is_given_then_travels_in_a_header():
    sent = Pipeline().encode_message(b"x", key="customer-1")

    assert sent == NewMessage(b"x", 0, encode_user_headers({"iggy-key": "customer-1"}))
    assert Pipeline(key_header=False).encode_message(b"x", key="customer-1") == b"x"


def test_outgoing_when_the_message_has_a_key_then_it_wins():
    (mine,) = travel(Pipeline(), Message(b"x", key="mine"), key="yours")
    (typed,) = travel(
        Pipeline(),
        Message(b"x", key="a", headers={HeaderKey.string("iggy-key"): HeaderValue.string("b")}),
    )

    assert mine.key == "mine"
    assert typed.key == "b"


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x", headers={"": 1}),
        Message(b"x", headers={"a": "b" * 256}),
        Message(b"x", key=""),
        Message(b"x", headers={str(n): "b" * 255 for n in range(500)}),
    ],
)
def test_outgoing_when_headers_do_not_fit_then_says_so(message):
    with pytest.raises(InvalidRequestError):
        Pipeline().encode_message(message)


@pytest.mark.parametrize("value", [7, None, ["a"]])
def test_outgoing_when_the_serde_cannot_write_then_names_value_and_serde(value):
    with pytest.raises(SerdeError, match="RawSerde cannot write") as caught:
        Pipeline().encode_message(value)

    assert caught.value.name == "CannotSerializeResource"
    assert isinstance(caught.value.__cause__, TypeError)


def test_value_when_a_message_is_poison_then_only_its_value_raises():
    good, poison = Pipeline(JsonSerde()).batch(polled([b"[1]", b"no json"]))

    assert good.value == [1]
    assert poison.payload == b"no json"
    assert poison.headers == {}
    for _ in range(2):
        with pytest.raises(SerdeError, match="JsonSerde cannot read the payload"):
            _ = poison.value


class Strict:
    """A serde that keeps count."""

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, value: int, /) -> bytes:
        return str(value).encode()

    def decode(self, payload: bytes, /) -> int:
        self.decoded += 1
        return int(payload)


def test_value_when_never_asked_for_then_is_never_read_and_else_once():
    serde = Strict()
    first, second = travel(Pipeline(serde), 1, 2)

    assert serde.decoded == 0
    assert (second.value, second.value, serde.decoded) == (2, 2, 1)
    assert first.payload == b"1"
    assert serde.decoded == 1


def test_payload_when_the_key_is_another_then_is_what_came_and_value_raises():
    sealed = Pipeline(StrSerde(), encryptor=Encryptor.aes256_gcm(KEY)).encode_message(
        Message("secret", headers={"a": 1}, key="k")
    )
    assert isinstance(sealed, NewMessage)
    other = Pipeline(StrSerde(), encryptor=Encryptor.aes256_gcm(bytes(32)))
    (message,) = other.batch(polled([sealed]))

    assert message.payload == message.raw_payload == sealed.payload
    assert isinstance(message.error, DecryptionError)
    assert message.key is None
    for read in (lambda: message.value, lambda: message.headers, lambda: message.typed_headers):
        with pytest.raises(DecryptionError):
            read()


def test_value_when_only_the_headers_are_lost_then_raises_because_they_may_matter():
    encryptor = Encryptor.aes256_gcm(KEY)
    message = NewMessage(encryptor.seal(b"x"), 0, b"these headers are not sealed at all")
    (back,) = Pipeline(encryptor=encryptor).batch(polled([message]))

    assert back.payload == b"x"
    with pytest.raises(DecryptionError):
        _ = back.value


def test_encryption_when_used_then_seals_payload_and_headers_each_as_upstream_does():
    sealed = Pipeline(encryptor=Encryptor.aes256_gcm(KEY)).encode_message(
        Message(b"secret", headers={"a": "b"}, id=UUID(int=1))
    )
    assert isinstance(sealed, NewMessage)
    cipher = PayloadCipher(KEY)

    assert cipher.open(sealed.payload) == b"secret"
    assert decode_user_headers(cipher.open(sealed.user_headers)) == {
        HeaderKey.string("a"): HeaderValue.string("b")
    }
    assert memoryview(sealed.payload).nbytes == 12 + len(b"secret") + 16
    plain = Pipeline(encryptor=Encryptor.aes256_gcm(KEY)).encode_message(b"secret")
    assert isinstance(plain, bytes)
    assert cipher.open(plain) == b"secret"


def test_encryption_when_a_message_is_written_already_then_seals_it_too():
    (back,) = travel(
        Pipeline(encryptor=Encryptor.aes256_gcm(KEY)),
        NewMessage(b"x", 5, encode_user_headers({"a": 1})),
    )

    assert (back.payload, back.id, back.headers) == (b"x", 5, {"a": 1})


def test_compression_when_it_pays_then_marks_the_message():
    pipeline = Pipeline(compression=Compression("gzip", threshold=100))
    small, large = travel(pipeline, b"a" * 99, b"a" * 1000)

    assert small.headers == {}
    assert small.raw_payload == b"a" * 99
    assert large.headers == {"content-encoding": "gzip"}
    assert len(large.raw_payload) < 100
    assert large.payload == b"a" * 1000
    assert pipeline.batch(polled(pipeline.encode_batch([b"a" * 1000]))).payloads() == [b"a" * 1000]


def test_compression_when_a_message_is_encoded_already_then_leaves_it_alone():
    pipeline = Pipeline(compression=Compression("gzip", threshold=0))
    (back,) = travel(pipeline, Message(b"a" * 999, headers={"content-encoding": "br"}))

    assert back.raw_payload == b"a" * 999


def test_compression_when_the_reader_knows_nothing_of_it_then_goes_by_the_header():
    sent = Pipeline(compression=Compression("gzip", 0)).encode_batch([b"a" * 1000])

    assert Pipeline().batch(polled(sent))[0].value == b"a" * 1000


@pytest.mark.parametrize("encoding", ["br", "gzip", "zstd", "lz4", 7])
def test_compression_when_it_cannot_be_undone_then_value_raises_and_payload_never(encoding):
    block = encode_user_headers({"content-encoding": encoding})
    (message,) = Pipeline().batch(polled([NewMessage(b"bytes", 0, block)]))

    assert message.payload == b"bytes"
    assert message.headers == {"content-encoding": encoding}
    with pytest.raises(SerdeError):
        _ = message.value
    assert isinstance(message.error, SerdeError)


def test_compression_when_its_name_is_no_text_then_value_raises():
    block = encode_user_headers({"content-encoding": HeaderValue(HeaderKind.STRING, b"\xff")})
    (message,) = Pipeline().batch(polled([NewMessage(b"bytes", 0, block)]))

    with pytest.raises(SerdeError, match="content-encoding cannot be read"):
        _ = message.value


class Adding(Hook):
    """A hook that adds where a message goes, and a header that messages may have themselves."""

    def outgoing_headers(self, *, stream, topic):
        return {"place": f"{stream}/{topic}", "kind": "hook"}


def test_hooks_when_they_add_headers_then_messages_carry_them_and_keep_their_own():
    pipeline = Pipeline(hooks=Hooks([Adding()]))
    plain, own = travel(
        pipeline, b"x", Message(b"y", headers={"kind": "mine"}), stream="shop", topic="orders"
    )

    assert plain.headers == {"place": "shop/orders", "kind": "hook"}
    assert own.headers == {"place": "shop/orders", "kind": "mine"}
