"""Sees what goes: records at the fronts of logs, objects in the store, segments in the journal's table.

A record may go when its topic's retention, DeleteRecords or its topic's deletion allows it at that moment of the
machine's clock, by the times and sizes of the batches as they were produced. A janitor may delete an object when the
journal holds it for dead since a grace, and two snapshots tell so, too; or when no commit could ever name it. What the
journal forgets has to be gone from the store.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.contracts.commands import (
    TO_HIGH_WATERMARK,
    Command,
    DeleteRecords,
    ExpireLogs,
    Outcome,
    PerItem,
    RemoveSegments,
)
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import SegmentId, TopicId, segment_born_ms
from penstock.contracts.rejections import Rejection
from penstock.segment.keys import (
    parse_journal_archive_key,
    parse_segment_key,
    parse_snapshot_key,
    segment_key,
)
from penstock_sequencer.core.state.cluster import Partition
from penstock_sequencer.core.state.segments import NO_SLOT
from tests.testkit.sim.checkers.oracle import Fail, Oracle
from tests.testkit.sim.checkers.partition_log import PartitionLog
from tests.testkit.sim.environment.store import StoreServer

ORPHAN_AGE_MS = 3_600_000
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS_DEFAULT = 604_800_000  # Kafka's
JANITOR = "janitor"
SNAPSHOTS_WITH_DEATH_MIN = 2  # either may turn out to be damaged when the journal is to be made anew


@dataclass(frozen=True)
class DeadSegments:
    """Since when, by which entry, and at which level a segment is dead."""

    since_s: float
    sequence: int
    key: str


class DeletionChecker:
    """Beside the oracle, whose state it looks at after each entry."""

    def __init__(
        self, cluster: str, oracle: Oracle, store: StoreServer, fail: Fail, now_s: Callable[[], float], grace_s: float
    ) -> None:
        self.deleted = 0  # objects of segments
        self.trimmed = 0  # times that a log's start moved
        self._cluster = cluster
        self._oracle = oracle
        self._store = store
        self._fail = fail
        self._now_s = now_s
        self._grace_s = grace_s
        self._dead: dict[SegmentId, DeadSegments] = {}
        self._removed: dict[SegmentId, None] = {}
        self._gone: dict[str, None] = {}  # keys that were deleted
        self._seen_dead = 0
        oracle.on_applied.append(self._applied)
        store.on_delete = self._check_deletion

    @property
    def removed(self) -> int:
        """How many segments the journal forgot."""
        return len(self._removed)

    def _applied(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        for partition in self._oracle.state.partitions_by_index.values():
            log = self._oracle.logs.get((partition.topic_id, partition.number))
            if log is not None and partition.log_start_offset != log.start:
                self._check_start(commands, partition, log)
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, RemoveSegments) and isinstance(outcome, PerItem):
                self._record_removed(command, outcome)
        self._record_dead()

    def _check_start(self, commands: list[Command], partition: Partition, log: PartitionLog) -> None:
        """A log's start moved: forward, and not beyond what may go."""
        topic_id, number, start = partition.topic_id, partition.number, partition.log_start_offset
        where = f"{topic_id.hex()}-{number}"
        asked = is_expiry = 0
        for command in commands:
            if isinstance(command, DeleteRecords):
                for each in command.logs:
                    if (each.topic_id, each.partition) == (topic_id, number):
                        asked = max(asked, log.end if each.offset == TO_HIGH_WATERMARK else each.offset)
            elif isinstance(command, ExpireLogs):
                is_expiry |= any((each.topic_id, each.partition) == (topic_id, number) for each in command.logs)
        if not log.start < start <= log.end:
            self._fail(f"the start of {where} moved from {log.start} to {start}, its end is {log.end}")
        elif start > asked and not is_expiry:
            self._fail(f"the start of {where} moved from {log.start} to {start}, asked for was {asked}")
        elif start > asked:
            self._check_expired(topic_id, where, log, max(asked, log.start), start)
        log.start = start
        self.trimmed += 1

    def _check_expired(self, topic_id: TopicId, where: str, log: PartitionLog, first: int, stop: int) -> None:
        state = self._oracle.state
        configs = state.topics_by_id[topic_id].configs
        retention_ms = int(configs.get(RETENTION_MS, RETENTION_MS_DEFAULT))
        retention_bytes = int(configs.get(RETENTION_BYTES, -1))
        left_bytes = sum(len(batch.data) for batch in log.batches[bisect_left(log.bases, first) :])
        for batch in log.batches[bisect_left(log.bases, first) : bisect_left(log.bases, stop)]:
            left_bytes -= len(batch.data)
            age_ms = state.clock_ms - batch.meta.max_timestamp
            is_old = retention_ms >= 0 and age_ms > retention_ms
            if not is_old and not 0 <= retention_bytes <= left_bytes:
                what = f"{age_ms} ms old, {left_bytes} bytes come behind it"
                self._fail(f"{where} let go of {batch.base_offset}, {what}; {configs}")

    def _record_dead(self) -> None:
        segments = self._oracle.state.segments
        if len(segments.dead) + len(self._removed) == self._seen_dead:
            return
        self._seen_dead = len(segments.dead) + len(self._removed)
        for slot in segments.dead:
            ref = segments.ref(slot)
            if ref.segment_id not in self._dead:
                key = segment_key("", self._cluster, ref.level, ref.segment_id)
                sequence = segments.dead_sequences[slot]
                self._dead[ref.segment_id] = DeadSegments(self._now_s(), sequence, key)

    def _record_removed(self, command: RemoveSegments, outcome: PerItem) -> None:
        for segment_id, rejection in zip(command.segment_ids, outcome.rejections, strict=True):
            dead = self._dead.get(segment_id)
            if rejection is not Rejection.NONE or dead is None:
                continue
            self._removed[segment_id] = None
            if dead.key not in self._gone:
                self._fail(f"the journal forgot {dead.key}, which was never deleted")

    def _check_deletion(self, name: str, keys: Sequence[str]) -> None:
        """The store deletes, in this moment."""
        for key in keys:
            objection = self._objection(key) if name.startswith(JANITOR) else _objection_to_others(key)
            if objection and self._store.size_of(key) is not None:
                self._fail(f"{name} deleted {key}: {objection}")
            self._gone[key] = None

    def _objection(self, key: str) -> str:
        try:
            level, segment_id = parse_segment_key(key)
        except Invalid:
            return "it is no segment"
        self.deleted += 1
        state = self._oracle.state
        dead = self._dead.get(segment_id)
        if dead is not None and dead.key == key:
            return "" if segment_id in self._removed else self._objection_to_dead(dead)
        if (
            state.segments.find(segment_id) != NO_SLOT
            and state.segments.ref(state.segments.find(segment_id)).level == level
        ):
            return "it is live"
        age_ms = state.clock_ms - segment_born_ms(segment_id)
        return "" if age_ms >= ORPHAN_AGE_MS else f"nobody knows it, and it is {age_ms} ms old"

    def _objection_to_dead(self, dead: DeadSegments) -> str:
        dead_s = self._now_s() - dead.since_s
        if dead_s < self._grace_s:
            return f"it is dead for {dead_s:.3f} s, the grace is {self._grace_s:g} s"
        snapshots = [parse_snapshot_key(key) for key in self._store.keys(f"{self._cluster}/snapshots/")]
        if sum(each >= dead.sequence for each in snapshots) < SNAPSHOTS_WITH_DEATH_MIN:
            return f"entry {dead.sequence} condemned it, the snapshots are of {snapshots}"
        return ""


def belongs_to_journal(key: str) -> bool:
    """Whether an object is one of the journal's own that may be there when all topics are gone."""
    return not _objection_to_others(key) or key.endswith("/journal-identity")


def _objection_to_others(key: str) -> str:
    """What services other than janitors may delete."""
    for parse in (parse_snapshot_key, parse_journal_archive_key):
        try:
            parse(key)
        except Invalid:
            continue
        return ""
    return "it is neither a snapshot nor a part of the archive"
