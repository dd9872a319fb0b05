"""The state of each record of a share group, from the commands in the journal and the answers to members.

The checker uses commands, their outcomes, and a clock that the commands advance. A member may get no record that is
done or that another member has. It may acknowledge only records that it has, before their lock ends. Every answer to a
member must agree with the journal.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    Command,
    ExpireMember,
    Outcome,
    RecordsShared,
    SharedPartition,
    ShareHeartbeat,
    SharePartition,
    ShareRecords,
    consumer_groups,
)
from penstock.contracts.ids import TopicId
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.records import decode_records
from penstock_sequencer.core.state.share_group import PENDING
from tests.testkit.sim.checkers.oracle import Oracle

Key = tuple[TopicId, int]
LOCK_GRAIN_MS = 100  # a lock may end so much later, so that many locks end together
FINAL_TYPES = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(slots=True)
class Lock:
    """A member's acquisition of a record, until a time."""

    member_id: str
    until_ms: int
    acquisition: int


@dataclass(slots=True)
class RecordState:
    """The state and the past deliveries of one record."""

    lock: Lock | None = None
    is_done: bool = False
    free_ms: int = 0  # when the delay of its redelivery ends
    acquired: list[tuple[str, int, int]] = field(default_factory=list)  # member, delivery count, journal sequence
    acknowledged: list[tuple[str, int, int]] = field(default_factory=list)  # member, type, journal sequence


class ShareGroupChecker:
    """The states of all records of one group."""

    def __init__(
        self, group_id: str, oracle: Oracle, lock_ms: int, delivery_limit: int, fail: Callable[[str], None]
    ) -> None:
        self.redelivered = 0
        self.acknowledged = 0
        self.delay_ms = 0  # of the redelivery of a released record
        self.has_dead_letters = False
        self.dead: dict[tuple[str, int, int], None] = {}  # topic, partition and offset of records that died
        self._group_id = group_id
        self._oracle = oracle
        self._lock_ms = lock_ms
        self._delivery_limit = delivery_limit
        self._fail = fail
        self._records: dict[Key, dict[int, RecordState]] = defaultdict(lambda: defaultdict(RecordState))
        self._settled: dict[Key, int] = defaultdict(int)  # all records below this offset are done
        self._clock_ms = 0
        self._acquisitions = 0
        self._is_closed = False

    @property
    def sequence(self) -> int:
        """The last sequence of the journal."""
        return self._oracle.state.sequence

    def close(self) -> None:
        """Check nothing any more."""
        self._is_closed = True

    def applied(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        """Take the commands and outcomes of one entry."""
        for command, outcome in zip(commands, outcomes, strict=True):
            self._clock_ms = max(self._clock_ms, command.now_ms)
            if not self._is_closed and getattr(command, "group_id", None) == self._group_id:
                self._record(command, outcome)
        if self.has_dead_letters and not self._is_closed:
            self._record_dead()

    def _record(self, command: Command, outcome: Outcome) -> None:
        match command:
            case ShareRecords() if isinstance(outcome, RecordsShared):
                self._record_records(command, outcome)
            case ExpireMember() | ShareHeartbeat(member_epoch=consumer_groups.LEAVE_EPOCH):
                self._record_departed(command.member_id)

    def check_acquired(self, who: str, member_id: str, key: Key, acquired: tuple[int, int, int], since: int) -> None:
        """Check an answer with acquired records: the journal must have the acquisition, after the request."""
        first, last, count = acquired
        if self._is_closed:
            return
        if not 1 <= count <= self._delivery_limit:
            self._fail(
                f"{who} got {_name(key, first)} with delivery count {count}, the limit is {self._delivery_limit}"
            )
        for offset in range(first, last + 1):
            found = self._records[key][offset].acquired
            if not any(each[:2] == (member_id, count) and each[2] > since for each in found):
                self._fail(f"{who} got {_name(key, offset)}, which is not in the journal")

    def check_acknowledged(
        self, who: str, member_id: str, key: Key, types: Iterable[tuple[int, int]], since: int
    ) -> None:
        """Check an answer to acknowledgements, given as offsets and types: the journal must have them."""
        for offset, acknowledge_type in () if self._is_closed else types:
            found = self._records[key][offset].acknowledged
            if not any(each[:2] == (member_id, acknowledge_type) and each[2] > since for each in found):
                what = f"{AcknowledgeType(acknowledge_type).name} of {_name(key, offset)}"
                self._fail(f"{who} got an answer to its {what}, which is not in the journal")

    def _record_dead(self) -> None:
        """Record the records with pending dead letters."""
        state = self._oracle.state
        for topic_id, number in state.dead_letters.get(self._group_id, {}):
            name = state.topics_by_id[topic_id].name
            for hold in state.share_groups[self._group_id].partitions[topic_id][number].holds:
                if hold.status in PENDING:
                    self.dead |= dict.fromkeys((name, number, offset) for offset in range(hold.first, hold.last + 1))

    def are_letters_written(self, topic: str) -> bool:
        """Whether no dead letter is pending and each dead record has one; fail if another record has one."""
        if self._oracle.state.dead_letters or self.missing_letters(topic):
            return False
        for place in self._letters(topic):
            if place not in self.dead:
                self._fail(f"group {self._group_id} has a dead letter of {place}, which did not die")
        return True

    def missing_letters(self, topic: str) -> list[tuple[str, int, int]]:
        """The dead records without a dead letter."""
        written = self._letters(topic)
        return [place for place in self.dead if place not in written]

    def _letters(self, topic: str) -> set[tuple[str, int, int]]:
        """Topic, partition and offset of the records with dead letters, from the headers of these."""
        found: set[tuple[str, int, int]] = set()
        for partition in self._oracle.state.topics[topic].partitions:
            for batch in self._oracle.log(topic, partition.number).batches:
                for record in decode_records(batch.data):
                    context = {name: value or b"" for name, value in record.headers}
                    numbers = [int(context[f"__dlq.errors.{name}"]) for name in ("partition", "offset")]
                    found.add((context["__dlq.errors.topic"].decode(), numbers[0], numbers[1]))
        return found

    def first_unsettled(self, topic: str, partition: int, *, is_committed: bool) -> int:
        """The first record that must still be delivered, or -1; `is_committed` counts only decided records."""
        found = self._oracle.state.topics.get(topic)
        if found is None:
            return -1
        key, log = (found.topic_id, partition), self._oracle.log(topic, partition)
        end = log.stable if is_committed else log.end
        for offset in range(self._settled[key], end):
            batch = log.at(offset)
            is_none = batch is None or batch.is_marker or batch.is_aborted
            if not is_none and not self._is_over(self._records[key][offset]):
                return offset
            self._settled[key] = offset + 1
        return -1

    def _is_over(self, record: RecordState) -> bool:
        """Whether a record is done, or its delivery limit is reached."""
        return record.is_done or any(count >= self._delivery_limit for _, count, _ in record.acquired)

    def _record_records(self, command: ShareRecords, outcome: RecordsShared) -> None:
        is_repeated = outcome.acquisition <= self._acquisitions
        self._acquisitions = max(self._acquisitions, outcome.acquisition)
        if is_repeated:
            return  # a repeated request gets the records of the first answer that the member still has
        for wanted, shared in self._parts(command, outcome):
            if wanted.acknowledged and shared.acknowledge_rejection is Rejection.NONE:
                self._acknowledge(command.member_id, wanted)
        if command.releases_through:
            self._release(command)
        for wanted, shared in self._parts(command, outcome):
            for each in shared.acquired:
                for offset in range(each.first, each.last + 1):
                    self._acquire(command.member_id, outcome, wanted, offset, each.delivery_count)

    def _parts(self, command: ShareRecords, outcome: RecordsShared) -> Iterable[tuple[SharePartition, SharedPartition]]:
        return zip(command.partitions, outcome.partitions, strict=True)

    def _acknowledge(self, member_id: str, wanted: SharePartition) -> None:
        key = (wanted.topic_id, wanted.partition)
        for offset, acknowledge_type in types_of(wanted.acknowledged):
            record = self._records[key][offset]
            lock = record.lock
            if lock is None or lock.member_id != member_id or lock.until_ms + LOCK_GRAIN_MS <= self._clock_ms:
                self._fail(f"{member_id} acknowledged {_name(key, offset)}, which it does not have")
            record.acknowledged.append((member_id, acknowledge_type, self.sequence))
            self.acknowledged += 1
            if acknowledge_type == AcknowledgeType.RENEW and record.lock is not None:
                record.lock.until_ms = self._clock_ms + self._lock_ms
            else:
                record.lock, record.is_done = None, acknowledge_type in FINAL_TYPES
            if acknowledge_type == AcknowledgeType.RELEASE:
                record.free_ms = self._clock_ms + self.delay_ms

    def _release(self, command: ShareRecords) -> None:
        """End the locks of a closed session."""
        for each in command.partitions:
            for record in self._records[each.topic_id, each.partition].values():
                lock = record.lock
                is_its = lock is not None and lock.member_id == command.member_id
                if is_its and lock and command.releases_from <= lock.acquisition <= command.releases_through:
                    record.lock = None

    def _acquire(self, member_id: str, outcome: RecordsShared, wanted: SharePartition, offset: int, count: int) -> None:
        key = (wanted.topic_id, wanted.partition)
        record = self._records[key][offset]
        where = f"{member_id} got {_name(key, offset)}"
        if record.is_done:
            self._fail(f"{where}, which is done")
        if record.free_ms > self._clock_ms:
            self._fail(f"{where}, which is delayed for another {record.free_ms - self._clock_ms} ms")
        if record.lock is not None and record.lock.until_ms > self._clock_ms:
            left_ms = record.lock.until_ms - self._clock_ms
            self._fail(f"{where}, which {record.lock.member_id} has for another {left_ms} ms")
        if not 1 <= count <= min(self._delivery_limit, len(record.acquired) + 1):
            self._fail(f"{where} with delivery count {count} after {len(record.acquired)} deliveries")
        self.redelivered += count > 1
        record.lock = Lock(member_id, self._clock_ms + self._lock_ms, outcome.acquisition)
        record.acquired.append((member_id, count, self.sequence))

    def _record_departed(self, member_id: str) -> None:
        """End the locks of a member that left, also if it joined again in this entry."""
        group = self._oracle.state.share_groups.get(self._group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or member.changed_sequence == self.sequence:
            for records in self._records.values():
                for record in records.values():
                    if record.lock is not None and record.lock.member_id == member_id:
                        record.lock = None


def types_of(acknowledged: Iterable[AcknowledgedRange]) -> Iterator[tuple[int, int]]:
    """Each offset with the type of its acknowledgement."""
    for each in acknowledged:
        for offset in range(each.first, each.last + 1):
            yield offset, each.acknowledge_types[0 if len(each.acknowledge_types) == 1 else offset - each.first]


def _name(key: Key, offset: int) -> str:
    return f"{key[0].hex()}-{key[1]} at {offset}"
