"""What became of each record of a share group, by what the journal holds and by what members are told.

The book goes by commands and their outcomes, and by a clock of its own that these move. It judges as it goes: a member
gets no record that is done with or another member's, says nothing of what it does not have, and is told nothing that is
not so in the journal.
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
from tests.testkit.sim.checkers.oracle import Oracle

Key = tuple[TopicId, int]
DONE_WITH = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass(slots=True)
class Lock:
    """A member has a record for a while."""

    member_id: str
    until_ms: int
    acquisition: int


@dataclass(slots=True)
class Fate:
    """What has become of one record so far."""

    lock: Lock | None = None
    is_done: bool = False
    acquired: list[tuple[str, int, int]] = field(default_factory=list)  # member, delivery count, journal sequence
    judged: list[tuple[str, int, int]] = field(default_factory=list)  # member, verdict, journal sequence


class ShareGroupChecker:
    """The records of one group."""

    def __init__(
        self, group_id: str, oracle: Oracle, lock_ms: int, delivery_limit: int, fail: Callable[[str], None]
    ) -> None:
        self.redelivered = 0
        self.judged = 0
        self._group_id = group_id
        self._oracle = oracle
        self._lock_ms = lock_ms
        self._delivery_limit = delivery_limit
        self._fail = fail
        self._fates: dict[Key, dict[int, Fate]] = defaultdict(lambda: defaultdict(Fate))
        self._settled: dict[Key, int] = defaultdict(int)  # everything below this offset
        self._clock_ms = 0
        self._acquisitions = 0
        self._is_closed = False

    @property
    def sequence(self) -> int:
        """How far the journal reaches."""
        return self._oracle.state.sequence

    def close(self) -> None:
        """Look at nothing any more."""
        self._is_closed = True

    def applied(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        """The journal holds an entry, with these outcomes."""
        for command, outcome in zip(commands, outcomes, strict=True):
            self._clock_ms = max(self._clock_ms, command.now_ms)
            if not self._is_closed and getattr(command, "group_id", None) == self._group_id:
                self._record(command, outcome)

    def _record(self, command: Command, outcome: Outcome) -> None:
        match command:
            case ShareRecords() if isinstance(outcome, RecordsShared):
                self._record_records(command, outcome)
            case ExpireMember() | ShareHeartbeat(member_epoch=consumer_groups.LEAVE_EPOCH):
                self._record_departed(command.member_id)

    def check_acquired(self, who: str, member_id: str, key: Key, acquired: tuple[int, int, int], since: int) -> None:
        """A member was told that it has some records: it got them after it asked."""
        first, last, count = acquired
        if self._is_closed:
            return
        if not 1 <= count <= self._delivery_limit:
            self._fail(f"{who} was given {_name(key, first)} for the {count}. time, {self._delivery_limit} are allowed")
        for offset in range(first, last + 1):
            found = self._fates[key][offset].acquired
            if not any(each[:2] == (member_id, count) and each[2] > since for each in found):
                self._fail(f"{who} was given {_name(key, offset)}, and the journal does not say so")

    def check_acknowledged(
        self, who: str, member_id: str, key: Key, verdicts: Iterable[tuple[int, int]], since: int
    ) -> None:
        """A member was told that what it said of some records was heard."""
        for offset, verdict in () if self._is_closed else verdicts:
            found = self._fates[key][offset].judged
            if not any(each[:2] == (member_id, verdict) and each[2] > since for each in found):
                what = f"{AcknowledgeType(verdict).name} of {_name(key, offset)}"
                self._fail(f"{who} was told that its {what} is in the journal, and it is not")

    def first_unsettled(self, topic: str, partition: int, *, is_committed: bool) -> int:
        """The first record that is to come still, -1 if there is none; `is_committed`: only what is decided counts."""
        found = self._oracle.state.topics.get(topic)
        if found is None:
            return -1
        key, log = (found.topic_id, partition), self._oracle.log(topic, partition)
        end = log.stable if is_committed else log.end
        for offset in range(self._settled[key], end):
            batch = log.at(offset)
            is_none = batch is None or batch.is_marker or batch.is_aborted
            if not is_none and not self._is_over(self._fates[key][offset]):
                return offset
            self._settled[key] = offset + 1
        return -1

    def _is_over(self, fate: Fate) -> bool:
        """Whether it is done with, or was delivered as often as it may be."""
        return fate.is_done or any(count >= self._delivery_limit for _, count, _ in fate.acquired)

    def _record_records(self, command: ShareRecords, outcome: RecordsShared) -> None:
        is_repeated = outcome.acquisition <= self._acquisitions
        self._acquisitions = max(self._acquisitions, outcome.acquisition)
        if is_repeated:
            return  # what a member got the first time, as far as it has that still
        for wanted, shared in self._parts(command, outcome):
            if wanted.acknowledged and shared.acknowledge_rejection is Rejection.NONE:
                self._take_verdicts(command.member_id, wanted)
        if command.releases_through:
            self._give_back(command)
        for wanted, shared in self._parts(command, outcome):
            for each in shared.acquired:
                for offset in range(each.first, each.last + 1):
                    self._acquire(command.member_id, outcome, wanted, offset, each.delivery_count)

    def _parts(self, command: ShareRecords, outcome: RecordsShared) -> Iterable[tuple[SharePartition, SharedPartition]]:
        return zip(command.partitions, outcome.partitions, strict=True)

    def _take_verdicts(self, member_id: str, wanted: SharePartition) -> None:
        key = (wanted.topic_id, wanted.partition)
        for offset, verdict in verdicts_of(wanted.acknowledged):
            fate = self._fates[key][offset]
            if fate.lock is None or fate.lock.member_id != member_id:
                self._fail(f"{member_id} has judged {_name(key, offset)}, which it does not have")
            fate.judged.append((member_id, verdict, self.sequence))
            self.judged += 1
            if verdict == AcknowledgeType.RENEW and fate.lock is not None:
                fate.lock.until_ms = self._clock_ms + self._lock_ms
            else:
                fate.lock, fate.is_done = None, verdict in DONE_WITH

    def _give_back(self, command: ShareRecords) -> None:
        """The end of a session."""
        for each in command.partitions:
            for fate in self._fates[each.topic_id, each.partition].values():
                lock = fate.lock
                is_its = lock is not None and lock.member_id == command.member_id
                if is_its and lock and command.releases_from <= lock.acquisition <= command.releases_through:
                    fate.lock = None

    def _acquire(self, member_id: str, outcome: RecordsShared, wanted: SharePartition, offset: int, count: int) -> None:
        key = (wanted.topic_id, wanted.partition)
        fate = self._fates[key][offset]
        where = f"{member_id} got {_name(key, offset)}"
        if fate.is_done:
            self._fail(f"{where}, which is done with")
        if fate.lock is not None and fate.lock.until_ms > self._clock_ms:
            left_ms = fate.lock.until_ms - self._clock_ms
            self._fail(f"{where}, which is {fate.lock.member_id}'s for another {left_ms} ms")
        if not 1 <= count <= min(self._delivery_limit, len(fate.acquired) + 1):
            self._fail(f"{where} for the {count}. time, it came {len(fate.acquired)} times before")
        self.redelivered += count > 1
        fate.lock = Lock(member_id, self._clock_ms + self._lock_ms, outcome.acquisition)
        fate.acquired.append((member_id, count, self.sequence))

    def _record_departed(self, member_id: str) -> None:
        """Who is no member has nothing; nor has who came in this entry, perhaps again."""
        group = self._oracle.state.share_groups.get(self._group_id)
        member = None if group is None else group.members.get(member_id)
        if member is None or member.changed_sequence == self.sequence:
            for fates in self._fates.values():
                for fate in fates.values():
                    if fate.lock is not None and fate.lock.member_id == member_id:
                        fate.lock = None


def verdicts_of(acknowledged: Iterable[AcknowledgedRange]) -> Iterator[tuple[int, int]]:
    """Each offset with what was said of it."""
    for each in acknowledged:
        for offset in range(each.first, each.last + 1):
            yield offset, each.acknowledge_types[0 if len(each.acknowledge_types) == 1 else offset - each.first]


def _name(key: Key, offset: int) -> str:
    return f"{key[0].hex()}-{key[1]} at {offset}"
