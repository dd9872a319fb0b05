"""Streams groups with any journal: no exception, all invariants, and the same state with and without snapshots."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.commands import CommandReply, OwnedTasks, RaiseLevel, Rejected, StreamsHeartbeat, Topology
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from tests.unit.sequencer.core.core_strategies import (
    OPENING,
    VALID_TOPOLOGIES,
    Log,
    cut,
    data_commands,
    group_commands,
    retention_commands,
    streams_commands,
    transaction_commands,
    usual,
    wild,
)
from tests.unit.sequencer.core.core_streams import subtopology
from tests.unit.sequencer.core.core_world import START_MS, World, check_invariants


def joining(member_id: str, topology: Topology) -> StreamsHeartbeat:
    names = ("g", member_id, 0, -1, None, None, 5_000, "client", "host")
    return StreamsHeartbeat(START_MS, *names, topology, OwnedTasks([], []), member_id, None, [], None, None)


STREAMING: Log = [
    [[RaiseLevel(START_MS, STREAMS_GROUPS_LEVEL)]],
    *OPENING,
    [[joining("m1", VALID_TOPOLOGIES[0]), joining("m2", VALID_TOPOLOGIES[0])]],
]
others = st.one_of(data_commands(usual), group_commands(usual), retention_commands(usual), transaction_commands(usual))
mixed = st.lists(st.one_of(streams_commands(usual), streams_commands(usual), others), min_size=1, max_size=20)
alone = st.lists(streams_commands(usual) | streams_commands(wild), min_size=1, max_size=20)
logs = st.builds(cut, st.sampled_from([STREAMING, STREAMING[:2], OPENING, []]), mixed | alone, st.integers(1, 3))
any_log = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@any_log
@given(logs)
def test_every_command_has_an_outcome_and_the_invariants_hold(log: Log) -> None:
    state = new_state()
    for sequence, entry in enumerate(log, 1):
        outcomes, _ = apply_entry(state, sequence, entry)
        check_invariants(state)
        for request in outcomes:
            msgspec.msgpack.decode(msgspec.msgpack.encode(CommandReply(sequence, request)), type=CommandReply)


@any_log
@given(logs, st.integers(0, 20))
def test_a_snapshot_and_the_entries_after_it_are_the_whole_journal(log: Log, place: int) -> None:
    whole, half = new_state(), new_state()
    outcomes: list[Any] = [apply_entry(whole, sequence, entry)[0] for sequence, entry in enumerate(log, 1)]
    for sequence, entry in enumerate(log, 1):
        if sequence == min(place, len(log)):
            half = decode_state(encode_state(half))
            check_invariants(half)
        assert apply_entry(half, sequence, entry)[0] == outcomes[sequence - 1]
    assert encode_state(half) == encode_state(whole)


@pytest.mark.parametrize("level", [0, STREAMS_GROUPS_LEVEL])
def test_a_copartition_group_of_a_topic_that_its_subtopology_does_not_read_is_rejected(level: int) -> None:
    world = World(level=level)
    world.topic("t")
    world.topic("u", number=2)
    for group in (["x"], ["t", "u"]):
        topology = Topology(0, [subtopology("0", "t", copartition=(group,)), subtopology("1", "u")])
        answer = world.do(joining("m", topology))
        assert isinstance(answer, Rejected) and answer.rejection == Rejection.INVALID_TOPOLOGY
        assert f"names {group[-1]}, which is none of its source topics" in answer.message
    assert not world.state.groups
