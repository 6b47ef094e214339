"""Names of before: importable, the same objects, and with a warning that says what they are now."""

from __future__ import annotations

import pytest

import iggy_protocol
import iggy_sdk
from iggy_sdk import blocking, errors
from iggy_sdk.old_names import OLD_ERRORS
from iggy_sdk.producer import Producer
from tests.sdk.consumer.fake_topic import fake_topic_and_client


@pytest.mark.parametrize("module", [iggy_sdk, errors], ids=lambda module: module.__name__)
@pytest.mark.parametrize(("old", "new"), OLD_ERRORS.items())
def test_error_when_asked_for_by_its_old_name_then_is_the_same_class(module, old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}$") as caught:
        found = getattr(module, old)

    assert found is getattr(errors, new)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("module", [iggy_sdk, iggy_protocol], ids=lambda module: module.__name__)
def test_consumer_when_asked_for_by_its_old_name_then_is_the_identity(module):
    with pytest.warns(DeprecationWarning, match="Consumer is now ConsumerIdentity$"):
        assert module.Consumer is iggy_protocol.ConsumerIdentity


@pytest.mark.parametrize("module", [iggy_sdk, errors, iggy_protocol])
def test_name_when_there_never_was_one_then_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = module.Nothing


def test_errors_when_listed_then_every_public_one_ends_in_error():
    kinds = [getattr(iggy_sdk, name) for name in iggy_sdk.__all__]
    errors = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)]
    names = [kind.__name__ for kind in errors if not issubclass(kind, Warning)]

    assert len(names) > 30
    assert [name for name in names if not name.endswith("Error")] == []


@pytest.mark.parametrize("kind", [iggy_sdk.IggyConsumer, blocking.IggyConsumer, Producer])
def test_place_when_looked_at_then_is_a_property_of_consumers_and_producers_alike(kind):
    assert isinstance(kind.stream, property)
    assert isinstance(kind.topic, property)


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_last_partition_when_asked_for_by_its_old_name_then_is_told_with_a_warning():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 1)
        async with client.consumer("c", "s", "t") as consumer:
            assert consumer.last_partition_id is None
            await anext(consumer)

            with pytest.warns(
                DeprecationWarning, match=r"partition_id\(\) is now last_partition_id"
            ):
                assert consumer.partition_id() == consumer.last_partition_id == 0
