"""Personal access tokens."""

from __future__ import annotations

import base64
import json

from iggy_protocol import (
    CreatePersonalAccessToken,
    RawPersonalAccessToken,
    decode_reply,
    decode_request,
)
from iggy_ref_server.identity.credentials import hash_token, make_token
from tests.protocol.recordings import GOLDEN


def recorded_tokens(file):
    for line in (GOLDEN / file).read_text().splitlines():
        entry = json.loads(line)
        if entry.get("cmd") == "create_personal_access_token" and entry.get("status") == 0:
            command = decode_request(entry["code"], bytes.fromhex(entry["request"])[8:])
            reply = decode_reply(entry["code"], bytes.fromhex(entry["reply"])[8:])
            assert isinstance(command, CreatePersonalAccessToken)
            assert isinstance(reply, RawPersonalAccessToken)
            yield command.name, reply.token


def test_token_when_made_then_is_the_random_bytes_as_text():
    assert make_token(lambda size: b"\xfb" * size) == base64.b64encode(b"\xfb" * 50).decode()
    assert make_token() != make_token()


def test_token_when_compared_with_recorded_ones_then_has_the_same_shape():
    tokens = [token for _, token in recorded_tokens("raw/tokens.jsonl")]

    assert tokens
    for token in tokens:
        assert len(token) == len(make_token())
        assert len(base64.b64decode(token, validate=True)) == 50


def test_hash_when_of_a_recorded_token_then_is_what_the_real_server_stored():
    state = (GOLDEN / "disk" / "plain" / "state" / "log").read_bytes()
    tokens = dict(recorded_tokens("disk/plain.jsonl"))

    assert tokens
    for token in tokens.values():
        assert len(hash_token(token)) == 64
        assert hash_token(token).encode() in state
        assert token.encode() not in state
