"""Random commands: whatever happens, the state stays in order and its copies stay equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iggy_protocol import (
    Command,
    CreateConsumerGroup,
    CreatePartitions,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerGroup,
    DeletePartitions,
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    Permissions,
    PurgeStream,
    PurgeTopic,
    StreamPermissions,
    TopicPermissions,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, encode_change
from iggy_ref_server.metadata.log import HEADER_SIZE, encode_frame, scan_log
from iggy_ref_server.metadata.plan_users import plan_expire_tokens
from iggy_ref_server.metadata.recovery import apply_entry, apply_frames
from iggy_ref_server.metadata.snapshot import decode_snapshot, encode_snapshot
from iggy_ref_server.metadata.state import Metadata, PlanContext
from tests.server.metadata.metadata_calls import NOW_US, plan, with_root

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import Catalog

names = st.sampled_from(["a", "b", "c", "dd", "7"])
identifiers = st.one_of(names, st.integers(0, 3))
counts = st.integers(0, 3)
grants = st.builds(
    Permissions,
    streams=st.lists(
        st.builds(
            StreamPermissions,
            st.integers(0, 3),
            read_stream=st.booleans(),
            topics=st.lists(st.builds(TopicPermissions, st.integers(0, 3)), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)
statuses = st.sampled_from([None, UserStatus.ACTIVE, UserStatus.INACTIVE])
commands: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(CreateStream, names),
    st.builds(CreateStream, names),
    st.builds(UpdateStream, identifiers, names),
    st.builds(DeleteStream, identifiers),
    st.builds(PurgeStream, identifiers),
    st.builds(CreateTopic, identifiers, names, counts),
    st.builds(CreateTopic, identifiers, names, counts),
    st.builds(UpdateTopic, identifiers, identifiers, names),
    st.builds(DeleteTopic, identifiers, identifiers),
    st.builds(PurgeTopic, identifiers, identifiers),
    st.builds(CreatePartitions, identifiers, identifiers, counts),
    st.builds(DeletePartitions, identifiers, identifiers, counts),
    st.builds(CreateConsumerGroup, identifiers, identifiers, names),
    st.builds(DeleteConsumerGroup, identifiers, identifiers, identifiers),
    st.builds(CreateUser, names, st.just("secret"), permissions=st.none() | grants),
    st.builds(UpdateUser, identifiers, st.none() | names, statuses),
    st.builds(DeleteUser, identifiers),
    st.builds(UpdatePermissions, identifiers, st.none() | grants),
    st.builds(CreatePersonalAccessToken, names, st.sampled_from([0, 3])),
    st.builds(DeletePersonalAccessToken, names),
)


def check_catalog(catalog: Catalog[Any]) -> None:
    """Hold a catalog to its own rules."""
    assert catalog.id_by_name == {thing.name: thing.id for thing in catalog}
    assert all(number == thing.id for number, thing in catalog.by_id.items())
    used = sorted([*catalog.by_id, *catalog.free_ids])
    assert used == list(range(len(used)))
    assert catalog.next_id not in catalog.by_id


class MetadataMachine(RuleBasedStateMachine):
    """Carries out random commands, and keeps a replica, a log and a snapshot beside the state."""

    @initialize()
    def begin(self) -> None:
        """Start with root alone."""
        self.metadata = with_root()
        self.replica = self.metadata
        self.log = bytes(HEADER_SIZE)
        self.first = self.metadata
        self.generations: dict[tuple[int, ...], int] = {}

    @rule(command=commands, user_id=st.integers(0, 2), passed_us=st.integers(0, 4))
    def carry_out(self, command: Command[Any], user_id: int, passed_us: int) -> None:
        """Plan a command; refused ones change nothing."""
        context = PlanContext(now_us=NOW_US + passed_us, user_id=user_id)
        try:
            change = plan(self.metadata, command, context)
        except ServerFault:
            return
        self.happen(change)

    @rule(passed_us=st.integers(0, 8))
    def sweep(self, passed_us: int) -> None:
        """Let tokens expire."""
        change = plan_expire_tokens(self.metadata, PlanContext(now_us=NOW_US + passed_us))
        if change is not None:
            self.happen(change)

    def happen(self, change: Change) -> None:
        """Apply a change here, there and in the log."""
        before = self.metadata
        self.metadata = apply(before, change)
        assert self.metadata.version == before.version + 1
        entry = encode_frame(self.metadata.version, NOW_US, encode_change(change))
        self.replica = apply_entry(self.replica, entry)
        self.log += entry

    @invariant()
    def is_in_order(self) -> None:
        """Ids and names are unique, partitions contiguous, root present, tokens owned."""
        check_catalog(self.metadata.streams)
        check_catalog(self.metadata.users)
        assert self.metadata.require_user(0).is_active
        for stream in self.metadata.streams:
            check_catalog(stream.topics)
            for topic in stream.topics:
                check_catalog(topic.groups)
                assert topic.stream_id == stream.id
                assert [entry.id for entry in topic.partitions] == list(
                    range(len(topic.partitions))
                )
        for token in self.metadata.tokens:
            assert self.metadata.find_user(token.user_id) is not None
            assert self.metadata.tokens.of_user(token.user_id)[token.name] == token

    @invariant()
    def incarnations_never_go_back(self) -> None:
        """Whoever remembers an id and an incarnation is never fooled."""
        for stream in self.metadata.streams:
            for topic in stream.topics:
                for entry in topic.partitions:
                    place = (stream.id, topic.id, entry.id)
                    assert entry.generation >= self.generations.get(place, 1)
                    assert entry.generation <= self.metadata.last_generation
                    self.generations[place] = entry.generation

    @invariant()
    def copies_are_equal(self) -> None:
        """A replica, a snapshot and a replayed log all lead to the same state."""
        assert self.replica == self.metadata
        assert decode_snapshot(encode_snapshot(self.metadata, NOW_US)) == self.metadata

    def teardown(self) -> None:
        """Read the log as after a restart."""
        if hasattr(self, "log"):
            scan = scan_log(self.log, "log", self.first.version)
            assert apply_frames(self.first, scan.frames, None) == self.metadata
            assert scan.torn_size == 0


TestMetadataMachine = MetadataMachine.TestCase
TestMetadataMachine.settings = settings(
    max_examples=settings().max_examples // 2, stateful_step_count=30
)


def test_metadata_when_empty_then_is_equal_to_a_new_one():
    assert Metadata() == Metadata.EMPTY
