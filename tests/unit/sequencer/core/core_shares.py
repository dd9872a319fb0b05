"""A world with share groups: members that acquire and judge records, and commands of theirs by chance."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from penstock.contracts.commands import (
    AlterGroupConfigs,
    AlterShareOffsets,
    Command,
    ConfigChange,
    ConfigOperation,
    DeleteShareOffsets,
    ExpireMember,
    JudgedRange,
    OffsetRange,
    RaiseLevel,
    ShareHeartbeat,
    ShareOffset,
    SharePartition,
    ShareRecords,
    Verdict,
)
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from penstock.contracts.queries.share import (
    ShareHeartbeatQuery,
    ShareOffsetsQuery,
    SharePartitionRef,
    SharePartitionsQuery,
)
from penstock_sequencer.core import queries
from penstock_sequencer.core.state.share_group import ShareGroup, SharePartition as Share
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
from tests.unit.sequencer.core.core_world import World, batch, topic_id

LOCK_MS = 30_000
Ranges = list[tuple[int, int, int]]  # first and last offset, deliveries


class ShareWorld(World):
    """At the level of share groups; "g" reads topic "t", which has one partition, from its begin."""

    def __init__(self, *members: str, records: int = 0, **configs: str) -> None:
        super().__init__()
        self.do(RaiseLevel(self.now_ms, SHARE_GROUPS_LEVEL))
        self.topic()
        at_once = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
        self.configure(**(at_once | configs))
        for member in members:
            self.join(member)
        self.write(records)

    def configure(self, group_id: str = "g", **configs: str) -> Any:
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items()]
        return self.do(AlterGroupConfigs(self.now_ms, group_id, changes))

    def write(self, records: int, number: int = 1) -> None:
        if records:
            self.produce(batch(records), number=number)

    def heartbeat(self, member: str, epoch: int, topics: list[str] | None = None, **said: Any) -> Any:
        given: dict[str, Any] = {"group_id": "g", "rack_id": None, "client_id": "client", "client_host": "/host"}
        command = ShareHeartbeat(self.now_ms, member_id=member, member_epoch=epoch, topics=topics, **(given | said))
        asked = queries.QUERIES["share_heartbeat"](self.state, ShareHeartbeatQuery(0, command)).outcome
        return self.do(command) if asked is None else asked

    def join(self, member: str, *topics: str, **said: Any) -> Any:
        return self.heartbeat(member, 0, list(topics or ("t",)), **said)

    def leave(self, member: str, **said: Any) -> Any:
        return self.heartbeat(member, -1, **said)

    def expire(self, member: str) -> Any:
        return self.do(ExpireMember(self.now_ms, "g", member, self.group.members[member].active_sequence))

    def records(self, member: str, *partitions: SharePartition, records_max: int = 500, **more: Any) -> Any:
        return self.do(ShareRecords(self.now_ms, "g", member, list(partitions), records_max, **more))

    def acquire(self, member: str, count: int = 500, first: int = 0, last: int = -1, **more: Any) -> Ranges:
        wanted = SharePartition(topic_id(1), 0, [], first, last, count, **more)
        (shared,) = self.records(member, wanted, records_max=count).partitions
        return [(each.first, each.last, each.delivery_count) for each in shared.acquired]

    def judge(self, member: str, first: int, last: int, *verdicts: Verdict) -> Any:
        judged = [JudgedRange(first, last, bytes(verdicts))]
        return self.records(member, SharePartition(topic_id(1), 0, judged)).partitions[0].judged

    def windows(self, member: str = "one") -> list[tuple[int, int]]:
        query = SharePartitionsQuery(0, "g", member, [SharePartitionRef(topic_id(1), 0)])
        (view,) = queries.QUERIES["share_partitions"](self.state, query).partitions
        return [(each.first, each.last) for each in view.windows]

    def lag(self) -> int:
        (view,) = queries.QUERIES["share_offsets"](self.state, ShareOffsetsQuery(0, "g", None)).offsets
        lag: int = view.lag
        return lag

    @property
    def group(self) -> ShareGroup:
        return self.state.share_groups["g"]

    @property
    def share(self) -> Share:
        return self.group.partitions[topic_id(1)][0]


def share_commands(number: Callable[[Integers], Integers]) -> st.SearchStrategy[Command]:
    offsets = number(st.sampled_from([-1, 0, 0, 0, 1, 2, 3, 5, 9]))
    verdicts = st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\4", b"\5", b"\1\2", b"\2\1\3", b"\7"])
    judged = st.lists(st.builds(JudgedRange, offsets, offsets, verdicts), max_size=2)
    gaps = st.lists(st.builds(OffsetRange, offsets, offsets), max_size=1)
    partition = st.builds(
        SharePartition, TOPIC_IDS, number(st.integers(0, 1)), judged, offsets, offsets, number(SMALL), gaps
    )
    wanted = st.builds(
        SharePartition, TOPIC_IDS, number(st.integers(0, 1)), st.just([]), st.just(0), st.just(-1), SMALL
    )
    partitions = st.lists(partition, max_size=2) | st.lists(wanted, max_size=2)
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
    )
    tickets = st.sampled_from([0, 0, 1, 2])
    through = number(st.sampled_from([0, 0, 1, 2, 9]))
    records = st.builds(
        ShareRecords, number(NOW_MS), GROUPS, MEMBERS, partitions, number(st.integers(0, 5)), through, tickets, through
    )
    altered = st.lists(st.builds(ShareOffset, NAMES, number(st.integers(0, 1)), offsets), max_size=2)
    set_here = [
        ("share.auto.offset.reset", "earliest"),
        ("share.isolation.level", "read_committed"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "2"),
        ("share.assignment.interval.ms", "0"),
        ("share.assignment.interval.ms", "2000"),
        ("share.x", "1"),
    ]
    changes = st.lists(
        st.sampled_from([ConfigChange(name, ConfigOperation.SET, value) for name, value in set_here]), max_size=2
    )
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
        segments(number),
    )
