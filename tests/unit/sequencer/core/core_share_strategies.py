"""Random commands of share groups' members and administrators."""

from collections.abc import Callable

from hypothesis import strategies as st

from penstock.contracts.commands import (
    AcknowledgedRange,
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    ConfigChange,
    ConfigOperation,
    DeadRecords,
    DeleteShareOffsets,
    EndDeadLetters,
    EndedDeadLetters,
    ExpireMember,
    OffsetRange,
    ShareHeartbeat,
    ShareOffset,
    SharePartition,
    ShareRecords,
    ShareStart,
    ShareStarts,
)
from tests.unit.sequencer.core.core_strategies import (
    GROUPS,
    MEMBERS,
    NAMES,
    NOW_MS,
    SEEN,
    SMALL,
    TOPIC_IDS,
    Integers,
    segments,
)


def share_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    offsets = number(st.sampled_from([-1, 0, 0, 0, 1, 2, 3, 5, 9]))
    types = st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\4", b"\5", b"\1\2", b"\2\1\3", b"\7"])
    acknowledged = st.lists(st.builds(AcknowledgedRange, offsets, offsets, types), max_size=2)
    gaps = st.lists(st.builds(OffsetRange, offsets, offsets), max_size=1)
    partition = st.builds(
        SharePartition, TOPIC_IDS, number(st.integers(0, 1)), acknowledged, offsets, offsets, number(SMALL), gaps
    )
    wanted = st.builds(
        SharePartition, TOPIC_IDS, number(st.integers(0, 1)), st.just([]), st.just(0), st.just(-1), SMALL
    )
    partitions = st.lists(partition, max_size=2) | st.lists(wanted, max_size=2)
    start = st.builds(ShareStart, TOPIC_IDS, number(st.integers(0, 1)), offsets)
    starts = st.builds(ShareStarts, number(NOW_MS | st.just(0)), st.lists(start, max_size=2))
    beat = st.builds(
        ShareHeartbeat,
        number(NOW_MS),
        GROUPS,
        MEMBERS,
        number(st.sampled_from([0, 0, 0, 0, 1, 2, -1, -2])),
        st.sampled_from([None, "r", ""]),
        st.just("client"),
        st.just("host"),
        st.none() | st.lists(NAMES, max_size=2),
        number(SEEN),
        st.just(""),
        st.none() | starts,
    )
    tickets = st.sampled_from([0, 0, 1, 2])
    through = number(st.sampled_from([0, 0, 1, 2, 9]))
    records = st.builds(
        ShareRecords, number(NOW_MS), GROUPS, MEMBERS, partitions, number(st.integers(0, 5)), through, tickets, through
    )
    altered = st.lists(st.builds(ShareOffset, NAMES, number(st.integers(0, 1)), offsets), max_size=2)
    set_here = [
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT0S"),
        ("share.auto.offset.reset", "by_duration:P99999D"),
        ("share.isolation.level", "read_committed"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "2"),
        ("share.assignment.interval.ms", "0"),
        ("share.assignment.interval.ms", "2000"),
        ("share.x", "1"),
        ("penstock.share.redelivery.delay.ms", "700"),
        ("share.renew.acknowledge.enable", "false"),
        ("errors.deadletterqueue.topic.name", "dlq.t"),
    ]
    changes = st.lists(
        st.sampled_from([ConfigChange(name, ConfigOperation.SET, value) for name, value in set_here]), max_size=2
    )
    dead = st.lists(st.builds(DeadRecords, offsets, offsets, number(st.integers(0, 20))), max_size=2)
    ended = st.lists(st.builds(EndedDeadLetters, TOPIC_IDS, number(st.integers(0, 1)), dead), max_size=2)
    return st.one_of(
        beat,
        beat,
        beat,
        records,
        records,
        records,
        st.builds(AlterShareOffsets, number(NOW_MS), GROUPS, altered, number(SEEN)),
        st.builds(DeleteShareOffsets, number(NOW_MS), GROUPS, st.lists(NAMES, max_size=2), number(SEEN)),
        st.builds(AlterGroupConfigs, number(NOW_MS), GROUPS, changes, st.booleans(), number(SEEN)),
        st.builds(ExpireMember, number(NOW_MS), GROUPS, MEMBERS, number(st.integers(0, 50))),
        st.builds(EndDeadLetters, number(NOW_MS), GROUPS, ended),
        segments(number),
    )
