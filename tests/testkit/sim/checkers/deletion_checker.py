"""Checks all deletions: records at the starts of logs, objects in the store, segments in the journal's table.

A record may be deleted by retention, by DeleteRecords or with its topic. Retention needs the clock of the state machine
and a second clock. At most one clock at a time is wrong by days, so the second one must be nearly true. The checker
knows the times and sizes of the produced batches. A janitor may delete an object that has been dead for
the grace, also in two snapshots. It may delete an object that no commit can name any more, too. The journal may
remove a segment only after its object is deleted.
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
from tests.testkit.sim.environment.wire import START_MS

ORPHAN_AGE_MS = 3_600_000
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS_DEFAULT = 604_800_000  # Kafka's
SKEW_FAR_MS_MAX = 600_000  # of several clocks at the same time
JANITOR = "janitor"
SNAPSHOTS_WITH_DEATH_MIN = 2  # one of them may be damaged when the journal is rebuilt


@dataclass(frozen=True)
class DeadSegment:
    """The time and the entry of a segment's death, and the key of its object."""

    since_s: float
    sequence: int
    key: str


class DeletionChecker:
    """Compares each deletion with the oracle's state, which it reads after each entry."""

    def __init__(
        self, cluster: str, oracle: Oracle, store: StoreServer, fail: Fail, now_s: Callable[[], float], grace_s: float
    ) -> None:
        self.deleted = 0  # objects of segments
        self.trimmed = 0  # trims of logs
        self._cluster = cluster
        self._oracle = oracle
        self._store = store
        self._fail = fail
        self._now_s = now_s
        self._grace_s = grace_s
        self._dead: dict[SegmentId, DeadSegment] = {}
        self._removed: dict[SegmentId, None] = {}
        self._deleted_keys: dict[str, None] = {}
        self._seen_dead = 0
        oracle.on_applied.append(self._applied)
        store.on_delete = self._check_deletion

    @property
    def removed(self) -> int:
        """The number of segments that the journal removed."""
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
        """Check that a trim goes forward, and deletes only records that may be deleted."""
        topic_id, number, start = partition.topic_id, partition.number, partition.log_start_offset
        where = f"{topic_id.hex()}-{number}"
        requested = is_expiry = 0
        for command in commands:
            if isinstance(command, DeleteRecords):
                for each in command.logs:
                    if (each.topic_id, each.partition) == (topic_id, number):
                        requested = max(requested, log.end if each.offset == TO_HIGH_WATERMARK else each.offset)
            elif isinstance(command, ExpireLogs):
                is_expiry |= any((each.topic_id, each.partition) == (topic_id, number) for each in command.logs)
        if not log.start < start <= log.end:
            self._fail(f"the start of {where} moved from {log.start} to {start}, its end is {log.end}")
        elif start > requested and not is_expiry:
            self._fail(f"the start of {where} moved from {log.start} to {start}, requested was {requested}")
        elif start > requested:
            self._check_expired(topic_id, where, log, max(requested, log.start), start)
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
            age_ms = self._agreed_ms() - batch.meta.max_timestamp
            is_old = retention_ms >= 0 and age_ms > retention_ms
            if not is_old and not 0 <= retention_bytes <= left_bytes:
                facts = f"{age_ms} ms old, {left_bytes} bytes follow it"
                self._fail(f"{where} expired {batch.base_offset}, {facts}; {configs}")

    def _agreed_ms(self) -> int:
        """The latest time that two clocks can agree on."""
        true_ms = START_MS + int(self._now_s() * 1000)
        return min(self._oracle.state.clock_ms, true_ms + SKEW_FAR_MS_MAX)

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
                self._dead[ref.segment_id] = DeadSegment(self._now_s(), sequence, key)

    def _record_removed(self, command: RemoveSegments, outcome: PerItem) -> None:
        for segment_id, rejection in zip(command.segment_ids, outcome.rejections, strict=True):
            dead = self._dead.get(segment_id)
            if rejection is not Rejection.NONE or dead is None:
                continue
            self._removed[segment_id] = None
            if dead.key not in self._deleted_keys:
                self._fail(f"the journal removed {dead.key}, whose object was never deleted")

    def _check_deletion(self, name: str, keys: Sequence[str]) -> None:
        """Check a deletion in the store at the moment of its effect."""
        for key in keys:
            violation = self._violation(key) if name.startswith(JANITOR) else _violation_by_others(key)
            if violation and self._store.size_of(key) is not None:
                self._fail(f"{name} deleted {key}: {violation}")
            self._deleted_keys[key] = None

    def _violation(self, key: str) -> str:
        """Why a janitor may not delete the object now; empty if it may."""
        try:
            level, segment_id = parse_segment_key(key)
        except Invalid:
            return "it is no segment"
        self.deleted += 1
        state = self._oracle.state
        dead = self._dead.get(segment_id)
        if dead is not None and dead.key == key:
            return "" if segment_id in self._removed else self._violation_for_dead(dead)
        if (
            state.segments.find(segment_id) != NO_SLOT
            and state.segments.ref(state.segments.find(segment_id)).level == level
        ):
            return "it is live"
        age_ms = state.clock_ms - segment_born_ms(segment_id)
        return "" if age_ms >= ORPHAN_AGE_MS else f"the journal does not know it, but it is only {age_ms} ms old"

    def _violation_for_dead(self, dead: DeadSegment) -> str:
        dead_s = self._now_s() - dead.since_s
        if dead_s < self._grace_s:
            return f"it has been dead for {dead_s:.3f} s, the grace is {self._grace_s:g} s"
        snapshots = [parse_snapshot_key(key) for key in self._store.keys(f"{self._cluster}/snapshots/")]
        if sum(each >= dead.sequence for each in snapshots) < SNAPSHOTS_WITH_DEATH_MIN:
            return f"it is dead since entry {dead.sequence}, the snapshots are of {snapshots}"
        return ""


def belongs_to_journal(key: str) -> bool:
    """Whether an object belongs to the journal, so that it stays after the deletion of all topics."""
    return not _violation_by_others(key) or key.endswith("/journal-identity")


def _violation_by_others(key: str) -> str:
    """Why services other than janitors may not delete the object; empty if they may."""
    for parse in (parse_snapshot_key, parse_journal_archive_key):
        try:
            parse(key)
        except Invalid:
            continue
        return ""
    return "it is neither a snapshot nor a part of the archive"
