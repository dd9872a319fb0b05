"""Promises that hold for any journal whatever: no exception, the invariants, the same state from the same entries."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from core_strategies import (
    ANY_INTEGER,
    GROUPS,
    INSTANCES,
    MEMBERS,
    NAMES,
    SEGMENT_IDS,
    SMALL,
    TOPIC_IDS,
    Log,
    commands,
    consumer_heartbeats,
    logs,
    wild,
)
from core_walks import walk
from core_world import START_MS, World, batch, check_invariants, topic_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contracts import consumer_group_queries as consumers
from penstock.contracts import janitor_queries as janitors
from penstock.contracts import queries as contracts
from penstock.contracts import transaction_queries as told
from penstock.contracts.commands import Command, CommandReply, CreateTopic, PerItem, Refused, SegmentCommitted, Tick
from penstock.contracts.messages import Advanced
from penstock.contracts.refusals import Refusal
from sequencer.core import machine, queries
from sequencer.core.machine import apply_entry
from sequencer.core.snapshot import encode_state
from sequencer.core.state import State, new_state

any_log = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
any_walk = pytest.mark.parametrize("seed", range(30))
WALK_ENTRIES = 300


def replay(log: Log) -> tuple[State, list[Any]]:
    state = new_state()
    said = [apply_entry(state, sequence, entry) for sequence, entry in enumerate(log, 1)]
    return state, said


def apply_and_check(log: Log) -> None:
    state = new_state()
    for sequence, entry in enumerate(log, 1):
        clock_ms = state.clock_ms
        ends = {(each.topic_id, each.number): each.high_watermark for each in partitions(state)}
        outcomes, effects = apply_entry(state, sequence, entry)
        check_invariants(state)
        assert [len(each) for each in outcomes] == [len(each) for each in entry]
        assert state.sequence == sequence
        assert state.clock_ms >= clock_ms
        for request in outcomes:
            msgspec.msgpack.decode(msgspec.msgpack.encode(CommandReply(sequence, request)), type=CommandReply)
        msgspec.msgpack.encode(Advanced(sequence, effects.partitions, effects.topics))
        for advance in effects.partitions:
            check_advance(advance, ends.get((advance.topic_id, advance.partition), 0))


def partitions(state: State) -> list[Any]:
    return [partition for topic in state.topics.values() for partition in topic.partitions]


def check_advance(advance: Any, start: int) -> None:
    """Announced extents begin where the last announced ones ended, or with the one that holds a log's new start."""
    extents, log_start_offset = advance.extents, advance.log_start_offset
    if not extents:
        assert advance.high_watermark == max(start, log_start_offset)
        return
    assert extents[0].base_offset == start or extents[0].base_offset <= log_start_offset <= extents[0].last_offset
    for before, after in pairwise(extents):
        assert after.base_offset == before.last_offset + 1
    assert extents[-1].last_offset + 1 == advance.high_watermark


@any_log
@given(logs)
def test_any_log_is_applied_without_exception_and_keeps_the_invariants(log: Log) -> None:
    apply_and_check(log)


@any_walk
def test_any_walk_is_applied_without_exception_and_keeps_the_invariants(seed: int) -> None:
    apply_and_check(walk(seed, WALK_ENTRIES))


@any_walk
def test_the_same_log_gives_the_same_state_and_the_same_answers(seed: int) -> None:
    log = walk(seed, WALK_ENTRIES)
    (one, said), (other, again) = replay(log), replay(log)
    assert encode_state(one) == encode_state(other)
    assert said == again


@any_walk
def test_a_replay_that_announces_nothing_comes_to_the_same_state(seed: int) -> None:
    log = walk(seed, WALK_ENTRIES)
    quiet = new_state()
    loud, said = replay(log)
    for sequence, entry in enumerate(log, 1):
        outcomes, effects = apply_entry(quiet, sequence, entry, announce=False)
        assert outcomes == said[sequence - 1][0]
        assert effects.partitions == []
        assert (effects.topics, effects.groups) == (said[sequence - 1][1].topics, said[sequence - 1][1].groups)
    assert encode_state(quiet) == encode_state(loud)


def test_walks_compact_what_they_write() -> None:
    """Or the promises above would say little about compaction."""
    refusals: Counter[Refusal] = Counter()
    live = 0
    for seed in range(15):
        state, said = replay(walk(seed, WALK_ENTRIES))
        outcomes = [outcome for answered, _ in said for request in answered for outcome in request]
        refusals.update(each for outcome in outcomes if isinstance(outcome, PerItem) for each in outcome.refusals)
        table = state.segments
        live += sum(count > 0 for count, level in zip(table.live_extents, table.levels, strict=True) if level)
    assert min(refusals[each] for each in (Refusal.NONE, Refusal.EXTENTS_CHANGED)) > 15
    assert live > 10


def test_walks_commit_and_abort_transactions() -> None:
    """Or they would say little about these, their markers and what becomes of them."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        state = new_state()
        for sequence, entry in enumerate(walk(seed, WALK_ENTRIES), 1):
            _, effects = apply_entry(state, sequence, entry)
            seen.update(str(marker.committed) for each in effects.partitions for marker in each.markers)
            seen["undecided"] += sum(each.last_stable_offset < each.high_watermark for each in effects.partitions)
            seen["offsets"] += any(each.offset_count for each in state.ongoing.values())
    assert min(seen[each] for each in ("True", "False", "undecided", "offsets")) > 10


def test_walks_let_go_of_what_they_wrote() -> None:
    """Or they would say little about retention, about what can come back, and about forgetting."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        state = new_state()
        for sequence, entry in enumerate(walk(seed, WALK_ENTRIES), 1):
            outcomes, effects = apply_entry(state, sequence, entry)
            answered = zip(entry, outcomes, strict=True)
            pairs = [pair for commands, said in answered for pair in zip(commands, said, strict=True)]
            seen.update(type(command).__name__ for command, said in pairs if not isinstance(said, Refused))
            seen["trimmed"] += sum(not each.extents for each in effects.partitions)
            seen["buried"] += bool(state.buried)
        seen["forgotten"] += state.segments.next_number - len(state.segments)
    assert seen["trimmed"] > 15
    assert seen["buried"] > 15
    assert seen["forgotten"] > 100
    assert seen["UndeleteTopic"] > 3
    assert min(seen[each] for each in ("AlterConfigs", "ExpireLogs", "DropExtents", "TakeChore", "EndChore")) > 15


@any_walk
def test_a_segment_that_was_committed_is_answered_alike_when_sent_again(seed: int) -> None:
    world = World()
    answered = 0
    for command in (command for entry in walk(seed, WALK_ENTRIES) for request in entry for command in request):
        first = world.do(command)
        if isinstance(first, SegmentCommitted):
            before = encode_state(world.state)
            world.state.sequence -= 1  # the entry with the second commit is the only thing that is new
            assert world.do(command) == first
            assert encode_state(world.state) == before
            answered += 1
    assert answered > 20


wanted_queries = st.one_of(
    st.builds(contracts.MetadataQuery, st.just(0), st.none() | st.lists(NAMES), st.lists(TOPIC_IDS, max_size=2)),
    st.builds(
        contracts.PlanQuery,
        st.just(0),
        st.lists(st.builds(contracts.PlanPartition, TOPIC_IDS, wild(SMALL), wild(SMALL), ANY_INTEGER), max_size=4),
        ANY_INTEGER,
    ),
    st.builds(
        contracts.OffsetsQuery,
        st.just(0),
        st.lists(st.builds(contracts.OffsetOf, TOPIC_IDS, wild(SMALL), wild(st.integers(-4, 100))), max_size=4),
    ),
    st.builds(
        contracts.GroupOffsetsQuery,
        st.just(0),
        GROUPS,
        st.none() | st.lists(st.builds(contracts.GroupTopicPartitions, NAMES, st.lists(wild(SMALL))), max_size=2),
    ),
    st.builds(contracts.GroupsQuery, st.just(0), st.lists(st.sampled_from(["Stable", "Empty", "x"]))),
    st.builds(contracts.DescribeGroupsQuery, st.just(0), st.lists(GROUPS)),
    st.builds(contracts.HeartbeatQuery, st.just(0), GROUPS, wild(SMALL), MEMBERS, INSTANCES),
    st.builds(consumers.ConsumerHeartbeatQuery, st.just(0), consumer_heartbeats(wild)),
    st.builds(consumers.ConsumerGroupsQuery, st.just(0), st.lists(GROUPS)),
    st.builds(
        contracts.GroupWaitQuery,
        st.just(0),
        st.sampled_from(["join", "sync", "x"]),
        GROUPS,
        MEMBERS,
        wild(SMALL),
        ANY_INTEGER,
    ),
    st.builds(contracts.ValidateQuery, st.just(0), st.lists(commands, max_size=2)),
    st.builds(
        contracts.SegmentsQuery, st.just(0), wild(SMALL), st.lists(wild(SMALL), max_size=2), wild(SMALL), st.booleans()
    ),
    st.builds(contracts.SegmentExtentsQuery, st.just(0), st.lists(wild(SMALL), max_size=6)),
    st.builds(contracts.LogsQuery, st.just(0), st.lists(TOPIC_IDS, max_size=3)),
    st.builds(janitors.CondemnedQuery, st.just(0), ANY_INTEGER, ANY_INTEGER, wild(SMALL)),
    st.builds(janitors.KnownSegmentsQuery, st.just(0), st.lists(SEGMENT_IDS | st.binary(max_size=17), max_size=4)),
    st.builds(janitors.UsageQuery, st.just(0)),
    st.builds(janitors.RetentionQuery, st.just(0), ANY_INTEGER, ANY_INTEGER),
    st.builds(janitors.DeletedTopicsQuery, st.just(0)),
    st.builds(janitors.ClusterConfigsQuery, st.just(0)),
    st.builds(told.DescribeTransactionsQuery, st.just(0), st.lists(st.sampled_from(["a", "b", ""]))),
    st.builds(told.TransactionsQuery, st.just(0), st.just([]), st.lists(wild(SMALL), max_size=2), wild(SMALL)),
    st.builds(told.ProducersQuery, st.just(0), st.lists(st.tuples(TOPIC_IDS, wild(SMALL)), max_size=3)),
)
FUNCTIONS = {
    contracts.MetadataQuery: queries.metadata,
    contracts.PlanQuery: queries.plan,
    contracts.OffsetsQuery: queries.offsets,
    contracts.GroupOffsetsQuery: queries.group_offsets,
    contracts.GroupsQuery: queries.groups,
    contracts.DescribeGroupsQuery: queries.describe_groups,
    consumers.ConsumerHeartbeatQuery: queries.consumer_heartbeat,
    consumers.ConsumerGroupsQuery: queries.consumer_groups,
    contracts.HeartbeatQuery: queries.heartbeat,
    contracts.GroupWaitQuery: queries.group_wait,
    contracts.ValidateQuery: queries.validate,
    contracts.SegmentsQuery: queries.segments,
    contracts.SegmentExtentsQuery: queries.segment_extents,
    contracts.LogsQuery: queries.logs,
    janitors.CondemnedQuery: queries.condemned,
    janitors.KnownSegmentsQuery: queries.known_segments,
    janitors.UsageQuery: queries.usage,
    janitors.RetentionQuery: queries.retention,
    janitors.DeletedTopicsQuery: queries.deleted_topics,
    janitors.ClusterConfigsQuery: queries.cluster_configs,
    told.DescribeTransactionsQuery: queries.describe_transactions,
    told.TransactionsQuery: queries.transactions,
    told.ProducersQuery: queries.producers,
}


@any_log
@given(logs, st.lists(wanted_queries, max_size=6))
def test_any_read_is_answered_and_changes_nothing(log: Log, wanted: list[Any]) -> None:
    state, _ = replay(log)
    read_and_check(state, wanted)


@any_log
@given(st.integers(0, 10), st.integers(0, 300), st.lists(wanted_queries, max_size=6))
def test_any_read_is_answered_wherever_a_walk_has_come(seed: int, length: int, wanted: list[Any]) -> None:
    state, _ = replay(walk(seed, length))
    read_and_check(state, wanted)


def read_and_check(state: State, wanted: list[Any]) -> None:
    before = encode_state(state)
    for query in wanted:
        function: Any = FUNCTIONS[type(query)]
        view = function(state, query)
        assert view.sequence == state.sequence
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(view), type=type(view)) == view
    assert encode_state(state) == before


def test_every_command_has_its_function() -> None:
    assert set(machine._APPLY) == set(get_args(Command))


def test_a_broken_clock_beyond_any_segments_time_is_ignored() -> None:
    world = World()
    world.do(Tick(2**48))
    assert world.state.clock_ms == 0
    world.do(Tick(2**48 - 1))
    assert world.state.clock_ms == 2**48 - 1


def test_the_clock_never_goes_back() -> None:
    world = World()
    world.do(Tick(START_MS))
    world.do(Tick(START_MS - 1))
    assert world.state.clock_ms == START_MS


REPLAY = """
import hashlib
from core_walks import walk
from sequencer.core.machine import apply_entry
from sequencer.core.snapshot import encode_state
from sequencer.core.state import new_state
state = new_state()
for sequence, entry in enumerate(walk(7, 500), 1):
    apply_entry(state, sequence, entry)
print(hashlib.sha256(encode_state(state)).hexdigest())
"""


def test_replicas_with_other_hash_seeds_have_the_same_bytes() -> None:
    here = Path(__file__).parent
    digests = {hashlib.sha256(encode_state(replay(walk(7, 500))[0])).hexdigest()}
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here)}
        run = subprocess.run(
            [sys.executable, "-c", REPLAY], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def test_other_states_have_other_bytes() -> None:
    states = [new_state() for _ in range(4)]
    topic = CreateTopic(START_MS, "t", topic_id(1), 1, {})
    commit = World().segment_command((1, 0, [batch()]))
    for state, log in zip(states, ([], [topic], [topic, commit], [topic, commit, Tick(START_MS + 1)]), strict=True):
        apply_entry(state, 1, [list(log)])
    assert len({encode_state(state) for state in states}) == 4
