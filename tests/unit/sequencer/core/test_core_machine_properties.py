"""Promises for any journal: no exception, the invariants, and the same state from the same entries."""

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
from hypothesis import HealthCheck, given, settings, strategies as st

from penstock.contracts.commands import (
    Command,
    CommandReply,
    CreateTopic,
    PerItem,
    Rejected,
    SegmentCommitted,
    StreamsHeartbeat,
    Tick,
)
from penstock.contracts.messages import Advanced
from penstock.contracts.queries import (
    compaction as ask_compaction,
    consumer_groups,
    groups as ask_groups,
    janitor as ask_janitor,
    log as ask_log,
    streams_groups,
    topics as ask_topics,
    transactions as ask_transactions,
)
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import machine, queries
from penstock_sequencer.core.groups.streams.topology import configure
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import State, new_state
from tests.unit.sequencer.core.core_strategies import (
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
    streams_heartbeats,
    wild,
)
from tests.unit.sequencer.core.core_walks import NEWEST_SEED, SEEDS, walk
from tests.unit.sequencer.core.core_world import START_MS, World, batch, check_invariants, topic_id

any_log = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
any_walk = pytest.mark.parametrize("seed", SEEDS)
WALK_ENTRIES = 300


def replay(log: Log) -> tuple[State, list[Any]]:
    state = new_state()
    answers = [apply_entry(state, sequence, entry) for sequence, entry in enumerate(log, 1)]
    return state, answers


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
    """The extents begin where the last announced ones ended, or with the extent that holds the log's new start."""
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
    (one, answers), (other, again) = replay(log), replay(log)
    assert encode_state(one) == encode_state(other)
    assert answers == again


@any_walk
def test_a_replay_without_announcements_leads_to_the_same_state(seed: int) -> None:
    log = walk(seed, WALK_ENTRIES)
    quiet = new_state()
    loud, answers = replay(log)
    for sequence, entry in enumerate(log, 1):
        outcomes, effects = apply_entry(quiet, sequence, entry, announce=False)
        assert outcomes == answers[sequence - 1][0]
        assert effects.partitions == []
        assert (effects.topics, effects.groups) == (answers[sequence - 1][1].topics, answers[sequence - 1][1].groups)
    assert encode_state(quiet) == encode_state(loud)


def test_walks_compact_their_segments() -> None:
    """Otherwise the promises above would test little of compaction."""
    rejections: Counter[Rejection] = Counter()
    live = 0
    for seed in range(15):
        state, answers = replay(walk(seed, WALK_ENTRIES))
        outcomes = [outcome for answered, _ in answers for request in answered for outcome in request]
        rejections.update(each for outcome in outcomes if isinstance(outcome, PerItem) for each in outcome.rejections)
        table = state.segments
        live += sum(count > 0 for count, level in zip(table.live_extents, table.levels, strict=True) if level)
    assert min(rejections[each] for each in (Rejection.NONE, Rejection.EXTENTS_CHANGED)) > 15
    assert live > 10


def test_walks_commit_and_abort_transactions() -> None:
    """Otherwise the promises would test little of transactions and markers."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        state = new_state()
        for sequence, entry in enumerate(walk(seed, WALK_ENTRIES), 1):
            _, effects = apply_entry(state, sequence, entry)
            seen.update(str(marker.committed) for each in effects.partitions for marker in each.markers)
            seen["undecided"] += sum(each.last_stable_offset < each.high_watermark for each in effects.partitions)
            seen["offsets"] += any(each.offset_count for each in state.ongoing.values())
    assert min(seen[each] for each in ("True", "False", "undecided", "offsets")) > 10


def test_walks_trim_delete_and_restore() -> None:
    """Otherwise the promises would test little of retention, recoverable topics and segment removal."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        state = new_state()
        for sequence, entry in enumerate(walk(seed, WALK_ENTRIES), 1):
            outcomes, effects = apply_entry(state, sequence, entry)
            answered = zip(entry, outcomes, strict=True)
            pairs = [pair for commands, results in answered for pair in zip(commands, results, strict=True)]
            seen.update(type(command).__name__ for command, outcome in pairs if not isinstance(outcome, Rejected))
            seen["trimmed"] += sum(not each.extents for each in effects.partitions)
            seen["recoverable"] += bool(state.recoverable)
        seen["removed"] += state.segments.next_number - len(state.segments)
    assert seen["trimmed"] > 15
    assert seen["recoverable"] > 15
    assert seen["removed"] > 100
    assert seen["UndeleteTopic"] > 3
    rare = ("AlterConfigs", "ExpireLogs", "DropExtents", "TakeTaskLease", "EndTaskLease")
    assert min(seen[each] for each in rare) > 15


def test_walks_assign_revoke_and_leave_tasks_of_streams_groups() -> None:
    """Otherwise the promises would test little of streams groups."""
    seen: Counter[str] = Counter()
    for seed in range(NEWEST_SEED, NEWEST_SEED + 10):
        state = new_state()
        for sequence, entry in enumerate(walk(seed, WALK_ENTRIES), 1):
            outcomes, _ = apply_entry(state, sequence, entry)
            pairs = zip(entry[0], outcomes[0], strict=True)
            for command, outcome in pairs:
                if isinstance(command, StreamsHeartbeat):
                    seen["rejected" if isinstance(outcome, Rejected) else "accepted"] += 1
                    seen["left"] += command.member_epoch < 0 and not isinstance(outcome, Rejected)
            streams = [each.streams for each in state.groups.values() if each.streams is not None]
            for member in (member for each in streams for member in each.members.values()):
                seen["active"] += bool(member.active)
                seen["standby"] += bool(member.standby)
                seen["revoking"] += bool(member.revoking_active or member.revoking_standby)
            for each in streams:
                status = configure(state, each.topology).status
                seen["unready" if status else "ready"] += 1
    names = ("accepted", "rejected", "left", "active", "standby", "revoking", "unready", "ready")
    assert min(seen[each] for each in names) > 15, seen


@any_walk
def test_a_commit_that_is_sent_again_gets_the_same_answer(seed: int) -> None:
    world = World()
    answered = 0
    for command in (command for entry in walk(seed, WALK_ENTRIES) for request in entry for command in request):
        first = world.do(command)
        if isinstance(first, SegmentCommitted):
            before = encode_state(world.state)
            world.state.sequence -= 1  # only the entry with the second commit is new
            assert world.do(command) == first
            assert encode_state(world.state) == before
            answered += 1
    assert answered > 20


wanted_queries = st.one_of(
    st.builds(ask_topics.MetadataQuery, st.just(0), st.none() | st.lists(NAMES), st.lists(TOPIC_IDS, max_size=2)),
    st.builds(ask_topics.MetadataQuery, st.just(0), st.none(), after=NAMES | st.just("")),
    st.builds(
        ask_log.PlanQuery,
        st.just(0),
        st.lists(st.builds(ask_log.PlanPartition, TOPIC_IDS, wild(SMALL), wild(SMALL), ANY_INTEGER), max_size=4),
        ANY_INTEGER,
    ),
    st.builds(
        ask_log.OffsetsQuery,
        st.just(0),
        st.lists(st.builds(ask_log.OffsetOf, TOPIC_IDS, wild(SMALL), wild(st.integers(-4, 100))), max_size=4),
    ),
    st.builds(
        ask_groups.GroupOffsetsQuery,
        st.just(0),
        GROUPS,
        st.none() | st.lists(st.builds(ask_groups.GroupTopicPartitions, NAMES, st.lists(wild(SMALL))), max_size=2),
    ),
    st.builds(ask_groups.GroupsQuery, st.just(0), st.lists(st.sampled_from(["Stable", "Empty", "x"]))),
    st.builds(ask_groups.GroupsQuery, st.just(0), st.just([]), after=GROUPS | st.just("")),
    st.builds(ask_groups.DescribeGroupsQuery, st.just(0), st.lists(GROUPS)),
    st.builds(ask_groups.HeartbeatQuery, st.just(0), GROUPS, wild(SMALL), MEMBERS, INSTANCES),
    st.builds(consumer_groups.ConsumerHeartbeatQuery, st.just(0), consumer_heartbeats(wild)),
    st.builds(consumer_groups.ConsumerGroupsQuery, st.just(0), st.lists(GROUPS)),
    st.builds(streams_groups.StreamsHeartbeatQuery, st.just(0), streams_heartbeats(wild)),
    st.builds(streams_groups.StreamsGroupsQuery, st.just(0), st.lists(GROUPS | st.just("st"))),
    st.builds(
        ask_groups.GroupWaitQuery,
        st.just(0),
        st.sampled_from(["join", "sync", "x"]),
        GROUPS,
        MEMBERS,
        wild(SMALL),
        ANY_INTEGER,
    ),
    st.builds(ask_topics.ValidateQuery, st.just(0), st.lists(commands, max_size=2)),
    st.builds(
        ask_compaction.SegmentsQuery,
        st.just(0),
        wild(SMALL),
        st.lists(wild(SMALL), max_size=2),
        wild(SMALL),
        st.booleans(),
    ),
    st.builds(ask_compaction.SegmentExtentsQuery, st.just(0), st.lists(wild(SMALL), max_size=6)),
    st.builds(ask_compaction.LogsQuery, st.just(0), st.lists(TOPIC_IDS, max_size=3)),
    st.builds(ask_janitor.DeadSegmentsQuery, st.just(0), ANY_INTEGER, ANY_INTEGER, wild(SMALL)),
    st.builds(ask_janitor.KnownSegmentsQuery, st.just(0), st.lists(SEGMENT_IDS | st.binary(max_size=17), max_size=4)),
    st.builds(ask_janitor.UsageQuery, st.just(0)),
    st.builds(ask_janitor.RetentionQuery, st.just(0), ANY_INTEGER, ANY_INTEGER),
    st.builds(ask_topics.DeletedTopicsQuery, st.just(0)),
    st.builds(ask_topics.ClusterConfigsQuery, st.just(0)),
    st.builds(ask_transactions.DescribeTransactionsQuery, st.just(0), st.lists(st.sampled_from(["a", "b", ""]))),
    st.builds(
        ask_transactions.TransactionsQuery, st.just(0), st.just([]), st.lists(wild(SMALL), max_size=2), wild(SMALL)
    ),
    st.builds(ask_transactions.ProducersQuery, st.just(0), st.lists(st.tuples(TOPIC_IDS, wild(SMALL)), max_size=3)),
)
FUNCTIONS = {
    ask_topics.MetadataQuery: queries.metadata,
    ask_log.PlanQuery: queries.plan,
    ask_log.OffsetsQuery: queries.offsets,
    ask_groups.GroupOffsetsQuery: queries.group_offsets,
    ask_groups.GroupsQuery: queries.groups,
    ask_groups.DescribeGroupsQuery: queries.describe_groups,
    consumer_groups.ConsumerHeartbeatQuery: queries.consumer_heartbeat,
    consumer_groups.ConsumerGroupsQuery: queries.consumer_groups,
    streams_groups.StreamsHeartbeatQuery: queries.QUERIES["streams_heartbeat"],
    streams_groups.StreamsGroupsQuery: queries.QUERIES["streams_groups"],
    ask_groups.HeartbeatQuery: queries.heartbeat,
    ask_groups.GroupWaitQuery: queries.group_wait,
    ask_topics.ValidateQuery: queries.validate,
    ask_compaction.SegmentsQuery: queries.segments,
    ask_compaction.SegmentExtentsQuery: queries.segment_extents,
    ask_compaction.LogsQuery: queries.logs,
    ask_janitor.DeadSegmentsQuery: queries.dead,
    ask_janitor.KnownSegmentsQuery: queries.known_segments,
    ask_janitor.UsageQuery: queries.usage,
    ask_janitor.RetentionQuery: queries.retention,
    ask_topics.DeletedTopicsQuery: queries.deleted_topics,
    ask_topics.ClusterConfigsQuery: queries.cluster_configs,
    ask_transactions.DescribeTransactionsQuery: queries.describe_transactions,
    ask_transactions.TransactionsQuery: queries.transactions,
    ask_transactions.ProducersQuery: queries.producers,
}


@any_log
@given(logs, st.lists(wanted_queries, max_size=6))
def test_any_query_is_answered_and_changes_nothing(log: Log, wanted: list[Any]) -> None:
    state, _ = replay(log)
    read_and_check(state, wanted)


@any_log
@given(st.integers(0, 10), st.integers(0, 300), st.lists(wanted_queries, max_size=6))
def test_any_query_is_answered_after_any_part_of_a_walk(seed: int, length: int, wanted: list[Any]) -> None:
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
    assert set(machine.APPLY) == set(get_args(Command))


def test_a_time_beyond_any_segments_birth_is_ignored() -> None:
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
from tests.unit.sequencer.core.core_walks import walk
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import new_state
state = new_state()
for sequence, entry in enumerate(walk(7, 500), 1):
    apply_entry(state, sequence, entry)
print(hashlib.sha256(encode_state(state)).hexdigest())
"""


def test_replicas_with_different_hash_seeds_have_the_same_bytes() -> None:
    here = Path(__file__).parents[4]
    digests = {hashlib.sha256(encode_state(replay(walk(7, 500))[0])).hexdigest()}
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(here)}
        run = subprocess.run(
            [sys.executable, "-c", REPLAY], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def test_different_states_have_different_bytes() -> None:
    states = [new_state() for _ in range(4)]
    topic = CreateTopic(START_MS, "t", topic_id(1), 1, {})
    commit = World().segment_command((1, 0, [batch()]))
    for state, log in zip(states, ([], [topic], [topic, commit], [topic, commit, Tick(START_MS + 1)]), strict=True):
        apply_entry(state, 1, [list(log)])
    assert len({encode_state(state) for state in states}) == 4
