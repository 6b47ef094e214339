"""The name that the identity of a consumer had before."""

from __future__ import annotations

import pytest

import iggy_protocol


def test_consumer_when_asked_for_by_its_old_name_then_is_the_identity_and_warns():
    with pytest.warns(DeprecationWarning, match="Consumer is now ConsumerIdentity"):
        assert iggy_protocol.Consumer is iggy_protocol.ConsumerIdentity


def test_name_when_there_never_was_one_then_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = iggy_protocol.Nothing  # type: ignore[attr-defined]
