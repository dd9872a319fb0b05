"""Hypothesis strategies for commands: a few names, ids and numbers, so that they often meet, and rare extremes."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.contracts.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.contracts.batches import TRANSACTIONAL, BatchMeta, BatchRun
from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AllocateProducer,
    AlterClientMetrics,
    AlterClientQuotas,
    AlterConfigs,
    AlterGroupConfigs,
    AlterScramCredentials,
    Command,
    CommitOffsets,
    CommitSegment,
    CommitTxnOffsets,
    ConfigChange,
    ConfigOperation,
    ConsumerHeartbeat,
    CreateAcls,
    CreatePartitions,
    CreateToken,
    CreateTopic,
    DeleteAcls,
    DeletedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteTopic,
    DropExtents,
    EndTaskLease,
    EndTxn,
    ExpireLogs,
    ExpireMember,
    ExpireToken,
    GroupProtocol,
    InitTransactionalProducer,
    InternalTopic,
    JoinGroup,
    LeaseJob,
    LeaveGroup,
    LeavingMember,
    LogOffset,
    LogRef,
    MemberAssignment,
    OffsetToCommit,
    OutputSegment,
    OwnedTasks,
    QuotaChange,
    QuotaPart,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    ReleaseCustody,
    ReleaseJob,
    RemoveSegments,
    RenewToken,
    ReplacedRun,
    ReplaceExtents,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    ScramVerifier,
    StreamsHeartbeat,
    Subtopology,
    SyncGroup,
    TakeCustody,
    TakeTaskLease,
    TaskIds,
    TaskOffset,
    Tick,
    TopicPartitions,
    Topology,
    TransactionPartition,
    UndeleteTopic,
)
from penstock.contracts.configs.quotas import QUOTAS
from penstock.contracts.ids import new_segment_id
from penstock.contracts.levels import STREAMS_GROUPS_LEVEL
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS
from tests.unit.sequencer.core.core_world import START_MS, topic_id

Integers = st.SearchStrategy[int]
SUBSCRIBED_TO_T = bytes((0, 3, 0, 0, 0, 1, 0, 1)) + b"t" + bytes(8)  # a consumer's metadata
SUBSCRIBED_IN_VERSION_0 = bytes((0, 0, 0, 0, 0, 1, 0, 1)) + b"t" + b"\xff" * 4  # the same in version 0, complete
# limits of the integers that msgpack can hold
EXTREMES = [-(2**63), -(2**31), -2, -1, 0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**48, 2**63 - 1, 2**64 - 1]
ANY_INTEGER: Integers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(EXTREMES)


def usual(numbers: Integers) -> Integers:
    return numbers


def wild(numbers: Integers) -> Integers:
    return numbers | ANY_INTEGER


NAMES = st.sampled_from(["t", "t", "u", "a.b", "a_b", "", "bad name"])
TOPIC_IDS = st.sampled_from([*map(topic_id, (1, 1, 1, 2, 2, 3)), bytes(16), b"short"])
SEGMENT_IDS = st.builds(
    lambda age, which: new_segment_id(START_MS + age, bytes([which]) * 10),
    st.sampled_from([0, 1, 60_000, 800_000]),
    st.integers(0, 9),
)
GROUPS = st.sampled_from(["g", "g", "g", "g", "h", ""])
MEMBERS = st.sampled_from(["m1", "m2", "m3", "m4", ""])
COMING = st.sampled_from(["", "", "m1", "m2", "m3"])
INSTANCES = st.sampled_from([None, None, None, None, "i", "j"])
SMALL: Integers = st.integers(-1, 4)
SEEN: Integers = st.integers(-1, 12)
GENERATIONS: Integers = st.sampled_from([-1, 0, 1, 1, 1, 2, 2, 3])
# time moves by seconds, forward and back; sometimes by minutes or a day
NOW_MS: Integers = st.builds(
    lambda base, step: START_MS + base + step,
    st.sampled_from([0] * 12 + [60_000, 900_000, 90_000_000]),
    st.integers(0, 3_000),
)


def batches(number: Callable[[Integers], Integers]) -> st.SearchStrategy[BatchMeta]:
    return st.builds(
        BatchMeta,
        number(st.integers(1, 50)),
        number(st.integers(1, 2)),
        number(st.integers(-1, 100)),
        number(st.sampled_from([-1, 1, 1, 2, 3, 4])),
        number(st.sampled_from([0, 0, 0, 1])),
        number(st.integers(0, 3)),
        st.just(0),
    )


def segments(number: Callable[[Integers], Integers]) -> st.SearchStrategy[CommitSegment]:
    runs = st.builds(
        BatchRun,
        TOPIC_IDS,
        number(st.integers(0, 2)),
        number(st.integers(0, 100)),
        st.lists(batches(number), max_size=5),
    )
    return st.builds(
        CommitSegment,
        number(NOW_MS),
        SEGMENT_IDS if number is usual else st.binary(max_size=17),
        number(st.integers(300, 2_000)),
        st.sampled_from(["f1", "f2"]),
        st.sampled_from(["z1", "z2"]),
        st.lists(runs, min_size=1, max_size=3),
    )


def topics(number: Callable[[Integers], Integers]) -> list[st.SearchStrategy[Command]]:
    configs = st.dictionaries(
        st.sampled_from(["max.message.bytes", "colour"]), st.sampled_from(["1000", "-", "-1"]), max_size=1
    )
    return [
        st.builds(CreateTopic, number(NOW_MS), NAMES, TOPIC_IDS, number(SMALL), configs),
        st.builds(DeleteTopic, number(NOW_MS), NAMES, TOPIC_IDS),
        st.builds(CreatePartitions, number(NOW_MS), NAMES, number(SMALL)),
        st.builds(AllocateProducer, number(NOW_MS)),
    ]


def joins(number: Callable[[Integers], Integers]) -> st.SearchStrategy[JoinGroup]:
    metadata = st.sampled_from([b"1", b"1", b"2", *[SUBSCRIBED_TO_T] * 2, *[SUBSCRIBED_IN_VERSION_0] * 3])
    protocols = st.lists(
        st.builds(GroupProtocol, st.sampled_from(["range", "range", "sticky"]), metadata),
        max_size=3,
    )
    return st.builds(
        JoinGroup,
        number(NOW_MS),
        GROUPS,
        COMING,
        MEMBERS,
        INSTANCES,
        st.booleans(),
        st.just("client"),
        st.just("host"),
        number(st.sampled_from([6_000, 10_000])),
        number(st.sampled_from([0, 300, 700, 5_000])),
        st.sampled_from(["consumer"] * 9 + ["connect", ""]),
        protocols,
    )


def groups(number: Callable[[Integers], Integers]) -> list[st.SearchStrategy[Command]]:
    generations = number(GENERATIONS)
    item = st.builds(OffsetToCommit, NAMES, number(SMALL), ANY_INTEGER, ANY_INTEGER, st.sampled_from(["", "ä"]))
    items = st.lists(item, max_size=2)
    assignments = st.lists(st.builds(MemberAssignment, MEMBERS, st.sampled_from([b"", b"1"])), max_size=2)
    leaving = st.lists(st.builds(LeavingMember, MEMBERS, INSTANCES), max_size=2)
    kinds, protocols = st.sampled_from([None, None, "consumer", "connect"]), st.sampled_from([None, None, "range", "x"])
    deleted = st.builds(DeletedOffset, NAMES, number(SMALL))
    set_here = [("offsets.retention.minutes", "1"), ("offsets.retention.minutes", "9000"), ("group.max.size", "1")]
    configs = st.lists(
        st.sampled_from([ConfigChange(name, ConfigOperation.SET, value) for name, value in set_here]), max_size=2
    )
    return [
        st.builds(SyncGroup, number(NOW_MS), GROUPS, generations, MEMBERS, INSTANCES, kinds, protocols, assignments),
        st.builds(LeaveGroup, number(NOW_MS), GROUPS, leaving),
        st.builds(ExpireMember, number(NOW_MS), GROUPS, MEMBERS, number(st.integers(0, 50))),
        st.builds(CommitOffsets, number(NOW_MS), GROUPS, generations, MEMBERS, INSTANCES, items, number(SEEN)),
        st.builds(DeleteGroup, number(NOW_MS), GROUPS, number(SEEN)),
        st.builds(DeleteOffsets, number(NOW_MS), GROUPS, st.lists(deleted, max_size=2), number(SEEN)),
        st.builds(RaiseLevel, number(NOW_MS), number(st.integers(0, 3))),
        st.builds(AlterConfigs, number(NOW_MS), st.just(""), configs),
    ]


def transaction_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    ids = st.sampled_from(["a", "a", "a", "b", "", "x" * 2_000])
    producers, epochs = number(st.sampled_from([-1, 4, 4, 4, 5])), number(st.sampled_from([-1, 0, 0, 0, 1, 2]))
    writer = (number(NOW_MS), ids, producers, epochs)
    partitions = st.lists(st.builds(TransactionPartition, TOPIC_IDS, number(st.integers(0, 2))), max_size=3)
    items = st.lists(st.builds(OffsetToCommit, NAMES, number(SMALL), ANY_INTEGER, ANY_INTEGER, st.just("")), max_size=2)
    members = (GROUPS, number(GENERATIONS), MEMBERS, INSTANCES, items)
    timeouts = number(st.sampled_from([1_000, 60_000]))
    written = st.builds(
        BatchMeta,
        number(st.integers(1, 50)),
        number(st.integers(1, 2)),
        number(st.integers(-1, 100)),
        number(st.sampled_from([4, 4, 5])),
        number(st.sampled_from([0, 0, 0, 1])),
        number(st.integers(0, 2)),
        st.sampled_from([TRANSACTIONAL, TRANSACTIONAL, 0]),
        st.booleans(),
    )
    runs = st.builds(BatchRun, TOPIC_IDS, number(st.integers(0, 1)), st.just(0), st.lists(written, max_size=3))
    writing = st.builds(
        CommitSegment,
        number(NOW_MS),
        SEGMENT_IDS,
        st.just(2_000),
        st.just("f1"),
        st.just("z1"),
        st.lists(runs, min_size=1, max_size=2),
    )
    return st.one_of(
        st.builds(RaiseLevel, number(NOW_MS), st.just(3)),
        st.builds(InitTransactionalProducer, number(NOW_MS), ids, timeouts, seen_sequence=number(SEEN)),
        st.builds(InitTransactionalProducer, number(NOW_MS), ids, timeouts, producers, epochs, number(SEEN)),
        st.builds(AddPartitionsToTxn, *writer, partitions, number(SEEN)),
        st.builds(AddOffsetsToTxn, *writer, GROUPS, number(SEEN)),
        st.builds(CommitTxnOffsets, *writer, *members, st.booleans(), number(SEEN)),
        st.builds(EndTxn, *writer, st.booleans(), st.booleans(), number(SEEN)),
        st.builds(EndTxn, *writer, st.booleans(), st.booleans()),
        writing,
        writing,
        st.builds(Tick, number(NOW_MS)),
    )


def data_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    ticks = st.builds(Tick, number(NOW_MS))
    return st.one_of(ticks, segments(number), segments(number), segments(number), *topics(number))


def consumer_heartbeats(number: Callable[[Integers], Integers]) -> st.SearchStrategy[ConsumerHeartbeat]:
    partitions = st.builds(TopicPartitions, TOPIC_IDS, st.lists(number(SMALL), max_size=2))
    return st.builds(
        ConsumerHeartbeat,
        number(NOW_MS),
        GROUPS,
        MEMBERS,
        number(st.sampled_from([0, 0, 0, 0, 1, 2, 3, -1, -2])),
        INSTANCES,
        st.sampled_from([None, "r"]),
        number(st.sampled_from([-1, 500, 5_000])),
        st.just("client"),
        st.just("host"),
        st.none() | st.lists(NAMES, max_size=2),
        st.sampled_from([None, None, "", "t.*", "("]),
        st.sampled_from([None, None, "uniform", "range", "x"]),
        st.sampled_from([None, [], []]) | st.lists(partitions, max_size=2),
        number(SEEN),
    )


STREAMS_TOPICS = st.sampled_from(["t", "t", "u", "c", "r", "none", "bad name"])
VALID_TOPOLOGIES = [
    Topology(0, [Subtopology("0", ["t"], [], [], [], [])]),
    Topology(0, [Subtopology("0", ["t"], [], [InternalTopic("c", 0, 0, [("cleanup.policy", "compact")])], [], [])]),
    Topology(
        0,
        [
            Subtopology("0", ["u"], ["r"], [], [], []),
            Subtopology("1", ["t"], [], [], [InternalTopic("r", 0, 1, [])], [["r", "t"]]),
        ],
    ),
]


def topologies(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Topology]:
    """Mostly valid ones, and some of any form: with unknown topics, without sources, with groups of other topics."""
    names = st.lists(STREAMS_TOPICS, max_size=2)
    internal = st.builds(
        InternalTopic, STREAMS_TOPICS, number(st.sampled_from([0, 0, 0, 1, 2, -1])), number(SMALL), st.just([])
    )
    subtopology = st.builds(
        Subtopology,
        st.sampled_from(["0", "0", "1", ""]),
        names,
        st.lists(STREAMS_TOPICS, max_size=1),
        st.lists(internal, max_size=1),
        st.lists(internal, max_size=1),
        st.lists(names, max_size=1),
    )
    valid = st.sampled_from(VALID_TOPOLOGIES)
    any_form = st.builds(Topology, number(SMALL), st.lists(subtopology, max_size=2))
    return st.one_of(valid, valid, valid, st.builds(with_copartition_group, valid, names), any_form)


def with_copartition_group(topology: Topology, group: list[str]) -> Topology:
    first, *rest = topology.subtopologies
    return Topology(topology.epoch, [msgspec.structs.replace(first, copartition_groups=[group]), *rest])


def streams_heartbeats(number: Callable[[Integers], Integers]) -> st.SearchStrategy[StreamsHeartbeat]:
    """Members of streams groups join with a topology, or stay, report tasks and leave without one."""
    tasks = st.lists(st.builds(TaskIds, st.sampled_from(["0", "0", "1", "x"]), st.lists(number(SMALL), max_size=2)))
    owned = st.none() | st.just(OwnedTasks([], [])) | st.builds(OwnedTasks, tasks, tasks)
    offset = st.builds(TaskOffset, st.sampled_from(["0", "x"]), number(SMALL), number(st.integers(-1, 99)))
    offsets = st.none() | st.lists(offset, max_size=2)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "now_ms": number(NOW_MS),
        "group_id": GROUPS,
        "member_id": MEMBERS,
        "endpoint_epoch": number(SMALL),
        "instance_id": INSTANCES,
        "rack_id": st.sampled_from([None, None, None, "r", ""]),
        "client_id": st.just("client"),
        "client_host": st.just("host"),
        "process_id": st.sampled_from([None, "p", "q", ""]),
        "endpoint": st.sampled_from([None, ("h", 80), ("h" * 9, 0)]),
        "client_tags": st.sampled_from([None, [], [("zone", "a")]]),
        "task_offsets": offsets,
        "task_end_offsets": offsets,
        "shuts_down": st.sampled_from([False] * 9 + [True]),
        "seen_sequence": number(SEEN),
    }
    timeouts = number(st.sampled_from([-1, 500, 5_000]))
    join = st.builds(
        StreamsHeartbeat,
        member_epoch=st.just(0),
        rebalance_timeout_ms=number(st.sampled_from([500, 5_000])),
        topology=topologies(number),
        owned=st.sampled_from([None, OwnedTasks([], [])]),
        **fields,
    )
    epochs = number(st.sampled_from([1, 1, 2, 2, 3, 4, -1, -2, -3]))
    stay = st.builds(
        StreamsHeartbeat, member_epoch=epochs, rebalance_timeout_ms=timeouts, topology=st.none(), owned=owned, **fields
    )
    other = st.builds(
        StreamsHeartbeat,
        member_epoch=epochs | st.just(0),
        rebalance_timeout_ms=timeouts,
        topology=st.none() | topologies(number),
        owned=owned,
        **fields,
    )
    return st.one_of(join, join, stay, stay, other)


def streams_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    """Heartbeats of streams groups, and all that may come between them."""
    set_here = [
        ("streams.num.standby.replicas", "1"),
        ("streams.initial.rebalance.delay.ms", "0"),
        ("streams.assignment.interval.ms", "0"),
        ("streams.session.timeout.ms", "x"),
    ]
    changes = st.lists(
        st.sampled_from([ConfigChange(name, ConfigOperation.SET, value) for name, value in set_here]), max_size=2
    )
    offset = st.builds(
        OffsetToCommit, st.sampled_from(["t", "u"]), number(SMALL), ANY_INTEGER, ANY_INTEGER, st.just("")
    )
    generations = number(st.sampled_from([-1, 1, 2, 3]))
    heartbeat = streams_heartbeats(number)
    return st.one_of(
        heartbeat,
        heartbeat,
        heartbeat,
        heartbeat,
        st.builds(CreateTopic, number(NOW_MS), STREAMS_TOPICS, TOPIC_IDS, number(st.integers(1, 2)), st.just({})),
        st.builds(DeleteTopic, number(NOW_MS), STREAMS_TOPICS, st.just(bytes(16))),
        st.builds(AlterGroupConfigs, number(NOW_MS), GROUPS, changes, st.booleans(), number(SEEN)),
        st.builds(ExpireMember, number(NOW_MS), GROUPS, MEMBERS, number(st.integers(0, 50))),
        st.builds(CommitOffsets, number(NOW_MS), GROUPS, generations, MEMBERS, INSTANCES, st.lists(offset, max_size=2)),
        st.builds(DeleteGroup, number(NOW_MS), GROUPS, number(SEEN)),
        st.builds(RaiseLevel, number(NOW_MS), st.just(STREAMS_GROUPS_LEVEL)),
        st.builds(Tick, number(NOW_MS)),
    )


def group_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    ticks = st.builds(Tick, number(NOW_MS))
    join = joins(number)
    heartbeat = consumer_heartbeats(number)
    return st.one_of(ticks, ticks, join, join, join, heartbeat, heartbeat, heartbeat, *groups(number))


def compaction_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    identifiers = SEGMENT_IDS if number is usual else st.binary(max_size=17)
    names, several = st.sampled_from(["j1", "j2", "", "j" * 300]), st.lists(identifiers, max_size=3)
    runs = st.builds(
        ReplacedRun,
        TOPIC_IDS,
        number(st.integers(0, 2)),
        number(st.sampled_from([0, 0, 0, 1, 2, 4])),
        number(st.integers(0, 8)),
        st.lists(number(st.sampled_from([0, 0, 0, 1, 50])), max_size=6),
        number(st.sampled_from([0, 0, 1])),
        number(st.integers(0, 60)),
        number(st.integers(1, 50)),
        number(st.integers(-1, 100)),
        st.booleans(),
        number(st.integers(-1, 9)),
        st.booleans(),
    )
    outputs = st.builds(OutputSegment, identifiers, number(st.integers(1, 2)), number(st.integers(0, 300)))
    replacing = st.builds(
        ReplaceExtents, number(NOW_MS), names, several, st.lists(outputs, max_size=2), st.lists(runs, max_size=3)
    )
    leases = number(st.sampled_from([1_000, 60_000]))
    return st.one_of(
        st.builds(LeaseJob, number(NOW_MS), names, names, several, leases),
        st.builds(ReleaseJob, number(NOW_MS), names, names),
        replacing,
        replacing,
        replacing,
        segments(number),
    )


def custody_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    authors, sequences = st.sampled_from(["r1", "r1", "r2", "", "r" * 300]), number(st.integers(0, 20))
    ends = st.sampled_from([-1, START_MS + CUSTODY_LEASE_MS, START_MS + CUSTODY_LEASE_MS + 1])
    return st.one_of(
        st.builds(TakeCustody, number(NOW_MS), authors, ends),
        st.builds(ReleaseCustody, number(NOW_MS), authors),
        st.builds(RecordArchived, number(NOW_MS), authors, sequences),
        st.builds(RecordSnapshot, number(NOW_MS), authors, sequences),
    )


def janitor_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    holders, tasks = st.sampled_from(["j1", "j2", "", "j" * 300]), number(st.integers(-1, 5))
    identifiers = SEGMENT_IDS if number is usual else st.binary(max_size=17)
    periods = (number(st.sampled_from([0, 1_000, 60_000])), number(st.sampled_from([1, 1_000])))
    return st.one_of(
        st.builds(TakeTaskLease, number(NOW_MS), holders, tasks, tasks, *periods, tasks),
        st.builds(EndTaskLease, number(NOW_MS), holders, tasks, st.booleans()),
        st.builds(RemoveSegments, number(NOW_MS), st.lists(identifiers, max_size=4)),
        st.builds(RaiseLevel, number(NOW_MS), st.just(2)),
        segments(number),
        st.builds(DeleteTopic, number(NOW_MS), NAMES, TOPIC_IDS),
    )


def retention_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    offsets = number(st.sampled_from([-2, -1, 0, 1, 3, 8, 50]))
    logs = st.lists(st.builds(LogOffset, TOPIC_IDS, number(st.integers(0, 2)), offsets), max_size=3)
    refs = st.lists(st.builds(LogRef, TOPIC_IDS, number(st.integers(0, 2))), max_size=3)
    names = ["retention.ms", "retention.bytes", "cleanup.policy", "penstock.undelete.window.ms", "log.retention.ms"]
    values = st.sampled_from(["-1", "0", "100", "60000", "compact", "delete,compact", str(2**63 - 1), "x"])
    change = st.builds(ConfigChange, st.sampled_from(names), st.sampled_from(list(ConfigOperation)), values)
    topics = st.sampled_from(["t", "t", "u", "", "", "bad name"])
    return st.one_of(
        st.builds(Tick, number(NOW_MS)),
        st.builds(DeleteRecords, number(NOW_MS), logs),
        st.builds(ExpireLogs, number(NOW_MS), refs),
        st.builds(ExpireLogs, number(NOW_MS), refs),
        st.builds(DropExtents, number(NOW_MS)),
        st.builds(AlterConfigs, number(NOW_MS), topics, st.lists(change, max_size=2), st.booleans(), number(SEEN)),
        st.builds(AlterConfigs, number(NOW_MS), topics, st.lists(change, max_size=2)),
        st.builds(DeleteTopic, number(NOW_MS), NAMES, TOPIC_IDS),
        st.builds(UndeleteTopic, number(NOW_MS), NAMES, TOPIC_IDS),
        st.builds(RaiseLevel, number(NOW_MS), st.just(2)),
        segments(number),
        segments(number),
    )


def quota_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    kinds = st.sampled_from(["user", "user", "client-id", "client-id", "ip", "group"])
    parts = st.lists(st.builds(QuotaPart, kinds, st.sampled_from([None, "", "a", "10.0.0.1"])), max_size=2)
    keys = st.sampled_from([*QUOTAS, "bad_rate"])
    values = st.sampled_from([None, "1", "1000", "12.5", "0", "-1", "x", "9" * 30])
    changes = st.lists(st.builds(QuotaChange, keys, values), max_size=2)
    return st.builds(AlterClientQuotas, number(NOW_MS), parts, changes, number(SEEN))


def client_metrics_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    """Changes of few subscriptions, with good and bad values."""
    values = {
        "metrics": ["*", "a.b", "a.b,c", ""],
        "interval.ms": ["100", "99", "x"],
        "match": ["client_id=a.*", "x"],
        "bad": ["1"],
    }
    pairs = st.sampled_from([(name, value) for name, several in values.items() for value in several])
    change = st.builds(lambda pair, kind: ConfigChange(pair[0], kind, pair[1]), pairs, st.sampled_from(ConfigOperation))
    changes = st.lists(change, max_size=3)
    return st.builds(
        AlterClientMetrics, number(NOW_MS), st.sampled_from(["one", "two", ""]), changes, st.booleans(), number(SEEN)
    )


def verifiers(number: Callable[[Integers], Integers]) -> st.SearchStrategy[ScramVerifier]:
    """Valid verifiers with few keys, and invalid ones."""
    keys = st.sampled_from([b"k" * 32, b"q" * 32, b"k" * 64])
    iterations = number(st.sampled_from([4_096, 8_192, 16_384, 4_095]))
    valid = st.builds(ScramVerifier, st.just(ScramMechanism.SHA_256), st.just(4_096), st.just(b"salt"), keys, keys)
    salts = st.sampled_from([b"salt", b"", b"s" * 256])
    return valid | st.builds(ScramVerifier, st.sampled_from(list(ScramMechanism)), iterations, salts, keys, keys)


def security_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    users = st.sampled_from(["alice", "bob", "carol", "", "u" * 256])
    upsertions = st.lists(st.builds(ScramUpsertion, users, verifiers(number)), max_size=3)
    deletions = st.lists(st.builds(ScramDeletion, users, st.sampled_from(list(ScramMechanism))), max_size=2)
    names = st.sampled_from(["orders", "order", "o", "*", "kafka-cluster", ""])
    principals = st.sampled_from(["User:alice", "User:bob", "User:*", "alice", "User:" + "a" * 256])
    fields = (
        st.sampled_from(list(ResourceType)),
        names,
        st.sampled_from(list(PatternType)),
        principals,
        st.sampled_from(["*", "10.0.0.1"]),
        st.sampled_from([AclOperation.READ, AclOperation.ALL, AclOperation.ANY]),
        st.sampled_from(list(AclPermission)),
    )
    usual_binding = st.builds(
        AclBinding,
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        st.sampled_from(["orders", "order", "*"]),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from(["User:alice", "User:bob"]),
        st.just("*"),
        st.sampled_from([AclOperation.READ, AclOperation.WRITE]),
        st.just(AclPermission.ALLOW),
    )
    bindings = st.lists(usual_binding | st.builds(AclBinding, *fields), max_size=3)
    none_or = [fields[0], st.none() | names, fields[2], st.none() | principals, st.none() | fields[4], *fields[5:]]
    filters = st.lists(st.builds(AclFilter, *none_or) | st.builds(AclFilter), max_size=2)
    exact = st.lists(usual_binding.map(lambda each: AclFilter(*msgspec.structs.astuple(each))), max_size=2)
    return st.one_of(
        st.builds(AlterScramCredentials, number(NOW_MS), upsertions, deletions, number(SEEN)),
        st.builds(AlterScramCredentials, number(NOW_MS), upsertions, deletions),
        st.builds(CreateAcls, number(NOW_MS), bindings, number(SEEN)),
        st.builds(CreateAcls, number(NOW_MS), bindings),
        st.builds(DeleteAcls, number(NOW_MS), filters | exact, number(SEEN)),
    )


def token_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    """Commands of few tokens and users, with lifetimes that often end between two commands."""
    ids = st.sampled_from(["one", "two", "three", "", "t" * 65])
    users = st.sampled_from(["alice", "bob", "carol", "", "u" * 256])
    renewers = st.lists(users, max_size=2).map(tuple)
    lifetimes = number(st.sampled_from([0, 1, 1_000, 600_000, 2**50]))
    ends = number(st.sampled_from([-1, 0, 1, 1_000, 600_000]))
    keys = st.sampled_from(["k1", "k2", ""])
    return st.one_of(
        st.builds(CreateToken, number(NOW_MS), ids, keys, users, users, renewers, lifetimes, lifetimes),
        st.builds(RenewToken, number(NOW_MS), ids, users, lifetimes, number(SEEN)),
        st.builds(ExpireToken, number(NOW_MS), ids, users | st.none(), ends, number(SEEN)),
        st.builds(Tick, number(NOW_MS)),
    )


KINDS = (
    data_commands,
    compaction_commands,
    group_commands,
    streams_commands,
    custody_commands,
    janitor_commands,
    retention_commands,
    transaction_commands,
    quota_commands,
    client_metrics_commands,
    security_commands,
    token_commands,
)
commands: st.SearchStrategy[Command] = st.one_of(*[kind(number) for number in (usual, wild) for kind in KINDS])

Log = list[list[list[Command]]]
# most logs begin with topics and producers
OPENING: Log = [
    [
        [
            CreateTopic(START_MS, "t", topic_id(1), 2, {}),
            CreateTopic(START_MS, "u", topic_id(2), 1, {}),
            *[AllocateProducer(START_MS)] * 3,
        ]
    ]
]


def cut(opening: Log, flat: list[Command], size: int) -> Log:
    """The opening, then entries of one or two requests with `size` commands in all."""
    fragments = [flat[place : place + size] for place in range(0, len(flat), size)]
    return [*opening, *([[fragment[:1], fragment[1:]] if size > 1 else [fragment] for fragment in fragments])]


flat_logs = st.one_of(
    *[st.lists(kind, min_size=1, max_size=20) for kind in (*[kind(usual) for kind in KINDS], commands)]
)
logs: st.SearchStrategy[Log] = st.builds(cut, st.sampled_from([OPENING, OPENING, []]), flat_logs, st.integers(1, 3))
