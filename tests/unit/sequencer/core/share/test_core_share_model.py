"""Any interleaving of members, time and retention against a naive model of each single record.

The model knows exactly which member gets which records. So a record has one member at a time, and a done record is
never delivered again. No record is delivered more often than the limit, and none is skipped.
"""

from random import Random
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    Command,
    DeadRecords,
    DeleteRecords,
    Done,
    EndDeadLetters,
    EndedDeadLetters,
    LogOffset,
    OffsetRange,
    RaiseLevel,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.levels import THROTTLED_DELIVERIES_LEVEL
from penstock.contracts.queries.share import DeadLettersQuery
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.snapshot.codec import decode_state, encode_state
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.core.state.share_group import ACQUIRED, AVAILABLE, DONE, PENDING
from tests.unit.sequencer.core.core_world import World, share_world, topic_id

STEPS = 120
LIMITS = [3, 3, 7]  # of deliveries, one for each seed
LOCK_MS = 5_000
DELAYS_MS = [0, 0, 700, 7_000]  # of redelivery, one for each seed
NAMES = ("one", "two", "three")
ACKNOWLEDGE_TYPES = [
    AcknowledgeType.ACCEPT,
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
    AcknowledgeType.RENEW,
    AcknowledgeType.UNREAD,
]
FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)
any_seed = pytest.mark.parametrize("seed", range(40))


class Record(msgspec.Struct):
    """The state of one record; `holder` is "" unless a member has it."""

    offset: int
    deliveries: int = 0
    holder: str = ""
    until_ms: int = 0
    is_done: bool = False
    free_ms: int = 0  # when the delay of its redelivery ends
    letter: str = ""  # the reason of its pending dead letter

    def give(self, member: str, until_ms: int) -> None:
        self.deliveries, self.holder, self.until_ms = self.deliveries + 1, member, until_ms

    def release(self, limit: int, *, with_letters: bool) -> None:
        self.holder, self.is_done = "", self.deliveries >= limit
        self.letter = "exhausted" if self.is_done and with_letters else ""


class Play:
    """Members that join, leave, acquire and acknowledge, with the model beside them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.delay_ms = DELAYS_MS[seed % len(DELAYS_MS)]
        self.with_letters = seed % 3 > 0
        self.is_throttled = seed % 2 > 0
        self.limit = LIMITS[seed % len(LIMITS)]
        # With a high limit most records are released, so that some come near it.
        self.types = ACKNOWLEDGE_TYPES + [AcknowledgeType.RELEASE] * self.limit
        self.letters: list[tuple[int, int, bool]] = []  # ended ones: offset, deliveries, whether rejected
        self.expected_letters: list[tuple[int, int, bool]] = []
        self.world = share_world()
        self.log: list[list[list[Command]]] = []
        self.world = self.recorded_world()
        self.records: list[Record] = []
        self.log_start = 0
        self.members: list[str] = []
        self.start = self.end = 0
        self.tickets = 0

    def recorded_world(self) -> World:
        log = self.log

        class Recorded(World):
            def entry(self, *requests: Any) -> Any:
                log.append([list(each) for each in requests])
                return super().entry(*requests)

        world = Recorded()
        delay = {"penstock.share.redelivery.delay.ms": str(self.delay_ms)} if self.delay_ms else {}
        letters = {"errors.deadletterqueue.topic.name": "dlq.t"} if self.with_letters else {}
        limits = {"share.delivery.count.limit": str(self.limit), "share.record.lock.duration.ms": str(LOCK_MS)}
        world.shares.begin("one", **limits, **delay, **letters)
        if self.is_throttled:
            world.do(RaiseLevel(world.now_ms, THROTTLED_DELIVERIES_LEVEL))
        return world

    def step(self) -> None:
        actions = (
            [self.acquire] * 5
            + [self.acknowledge] * 5
            + [self.write, self.pass_time, self.come, self.go, self.trim, self.end_letters]
        )
        self.random.choice(actions)()
        self.check()

    def write(self) -> None:
        count = self.random.randint(1, 12)
        self.world.shares.write(count)
        self.records += [Record(len(self.records) + number) for number in range(count)]

    def come(self) -> None:
        name = self.random.choice(NAMES)
        self.world.shares.join(name)
        self.members = list(dict.fromkeys([*self.members, name]))

    def go(self) -> None:
        """A member leaves, expires, or ends its session; unread records do not count as delivered."""
        if not self.members:
            return
        name = self.random.choice(self.members)
        kind = self.random.choice(["leave", "expire", "release"])
        if kind == "release":
            through = self.world.shares.group.acquisitions
            self.world.shares.records(name, SharePartition(topic_id(1), 0), releases_through=through)
        else:
            self.members.remove(name)
            self.world.shares.leave(name) if kind == "leave" else self.world.shares.expire(name)
        for record in self.records:
            if record.holder == name:
                record.deliveries -= kind != "expire"
                self.release(record)

    def pass_time(self) -> None:
        self.world.wait(self.random.choice([100, 1_000, LOCK_MS]))
        self.expire_locks()

    def expire_locks(self) -> None:
        for record in self.records:
            if record.holder and record.until_ms <= self.world.now_ms:
                self.release(record)

    def release(self, record: Record) -> None:
        record.release(self.limit, with_letters=self.with_letters)
        if record.letter:
            self.expected_letters.append((record.offset, record.deliveries, False))

    def end_letters(self) -> None:
        """End some of the pending dead letters, some of them twice, and some that are of another death."""
        view = queries.QUERIES["dead_letters"](self.world.state, DeadLettersQuery(0, "g"))
        assert [each.topic for each in view.partitions] == ["t"] * len(view.partitions)
        letters = [each for partition in view.partitions for each in partition.letters]
        chosen = [each for each in letters if self.random.random() < 0.7]
        wrong = [DeadRecords(each.records.first, each.records.last, each.records.sequence + 1) for each in letters]
        ended = EndedDeadLetters(topic_id(1), 0, [*wrong, *(each.records for each in chosen)])
        for _ in range(self.random.choice([1, 1, 2])):
            assert self.world.do(EndDeadLetters(self.world.now_ms, "g", [ended])) == Done()
        for each in chosen:
            for offset in range(each.records.first, each.records.last + 1):
                self.letters.append((offset, each.deliveries, each.rejected))
                self.records[offset].letter = ""

    def trim(self) -> None:
        """Retention removes the first records; a member that has some of them may still acknowledge them."""
        self.log_start = max(self.log_start, self.random.randint(0, len(self.records)) // 2)
        self.world.do(DeleteRecords(self.world.now_ms, [LogOffset(topic_id(1), 0, self.log_start)]))

    def free(self) -> list[int]:
        return [
            offset
            for offset, record in enumerate(self.records)
            if offset >= self.log_start
            and not record.holder
            and not record.is_done
            and record.free_ms <= self.world.now_ms
        ]

    def acquire(self) -> None:
        if not self.members:
            return
        name, count = self.random.choice(self.members), self.random.randint(0, 9)
        gaps = self.gaps() if self.random.random() < 0.3 else []
        self.tickets += 1
        partition = SharePartition(topic_id(1), 0, [], 0, -1, count, gaps)
        command = ShareRecords(self.world.now_ms, "g", name, [partition], 100, ticket=self.tickets)
        answers = [self.world.do(command) for _ in range(self.random.choice([1, 1, 2]))]
        assert answers[0] == answers[-1], "a repeated command gets the same answer"
        (shared,) = answers[0].partitions
        got = [(each.delivery_count, offset) for each in shared.acquired for offset in range(each.first, each.last + 1)]
        assert got == self.expected(name, count, [offset for gap in gaps for offset in range(gap.first, gap.last + 1)])

    def gaps(self) -> list[OffsetRange]:
        first = self.random.randint(0, len(self.records) + 3)
        return [OffsetRange(first, first + self.random.randint(0, 3))]

    def expected(self, name: str, count: int, gaps: list[int]) -> list[tuple[int, int]]:
        """The records that the member gets; gaps among them are done, and so are gaps after them or in flight."""
        given: list[tuple[int, int]] = []
        end = self.end = max(self.end, self.log_start)
        free = self.free()
        few = 0  # as many as a throttled run of records gives, 0 outside of such a run
        before = -1, -1  # offset and deliveries
        for offset in free:
            record = self.records[offset]
            if before != (offset - 1, record.deliveries):  # the begin of a run
                if few and given:
                    count = 0
                few = self.few(free, offset, count) if offset < end else 0
                if few and given:
                    count = 0
            before = offset, record.deliveries
            if offset in gaps:
                record.is_done = True
            elif len(given) < (min(few, count) if few else count):
                record.give(name, self.world.now_ms + LOCK_MS)
                given.append((record.deliveries, offset))
            elif offset >= end:
                break
            self.end = max(self.end, offset + 1)
        return given

    def few(self, free: list[int], offset: int, count: int) -> int:
        """How many records of the run that begins at `offset` come at once; 0 if there is no limit."""
        deliveries = self.records[offset].deliveries
        throttled_from = max(2, (self.limit + 1) // 2)
        if not self.is_throttled or deliveries < throttled_from:
            return 0
        size = 1
        while offset + size < self.end and offset + size in free and self.deliveries_at(offset + size) == deliveries:
            size += 1
        if deliveries == self.limit - 1:
            return 1
        return max(min(size, count) // 2 ** (deliveries - throttled_from + 1), 1)

    def deliveries_at(self, offset: int) -> int:
        return self.records[offset].deliveries

    def acknowledge(self) -> None:
        """Acknowledge mostly records that a member has, sometimes others."""
        if not self.members or not self.records:
            return
        name = self.random.choice(self.members)
        held = [offset for offset, record in enumerate(self.records) if record.holder == name]
        first = self.random.choice(held) if held and self.random.random() < 0.9 else self.random.randrange(9)
        last = first
        while last + 1 in held and self.random.random() < 0.7:
            last += 1
        size = self.random.choice([1, last - first + 1])
        types = [self.random.choice(self.types) for _ in range(size)]
        acknowledged = AcknowledgedRange(first, last, bytes(types))
        (shared,) = self.world.shares.records(name, SharePartition(topic_id(1), 0, [acknowledged])).partitions
        is_its = all(offset in held for offset in range(first, last + 1))
        assert shared.acknowledge_rejection == (Rejection.NONE if is_its else Rejection.INVALID_RECORD_STATE)
        for offset in range(first, last + 1) if is_its else ():
            self.take(self.records[offset], types[0] if size == 1 else types[offset - first])

    def take(self, record: Record, acknowledge_type: AcknowledgeType) -> None:
        if acknowledge_type == AcknowledgeType.RENEW:
            record.until_ms = self.world.now_ms + LOCK_MS
            return
        record.deliveries -= acknowledge_type == AcknowledgeType.UNREAD
        if acknowledge_type == AcknowledgeType.REJECT and self.with_letters:
            record.holder, record.is_done, record.letter = "", True, "rejected"
            self.expected_letters.append((record.offset, record.deliveries, True))
            return
        if acknowledge_type in FINAL:
            record.holder, record.is_done = "", True
            return
        self.release(record)
        if acknowledge_type == AcknowledgeType.RELEASE and not record.is_done:
            record.free_ms = self.world.now_ms + self.delay_ms

    def check(self) -> None:
        """The model's records can be acquired; the group's position never goes back."""
        windows = self.world.shares.windows(self.members[0]) if self.members else []
        if self.members:
            assert [offset for first, last in windows for offset in range(first, last + 1)] == self.free()
        share = self.world.shares.share
        assert share.start >= self.start
        self.start = share.start
        for hold in share.holds:
            for offset in range(hold.first, hold.last + 1):
                record = self.records[offset]
                assert record.holder == hold.member_id
                assert (hold.status == ACQUIRED) == bool(record.holder)
                assert hold.status != ACQUIRED or (record.deliveries, record.until_ms) == (
                    hold.deliveries,
                    hold.until_ms,
                )
                assert (hold.status == DONE) <= (record.is_done or offset < self.log_start)
                assert (hold.status in PENDING) == bool(record.letter)
                is_delayed = record.free_ms > self.world.now_ms
                assert hold.status != AVAILABLE or hold.until_ms == (record.free_ms if is_delayed else 0)

    def finish(self) -> None:
        """One member acquires all remaining records; then the group is at the end."""
        self.come()
        self.world.wait(LOCK_MS + self.delay_ms)
        self.expire_locks()
        left = self.free()
        name, given = self.members[0], list[int]()
        while ranges := self.world.shares.acquire(name, 7):
            for first, last, deliveries in ranges:
                assert deliveries <= self.limit
                given += range(first, last + 1)
                assert self.world.shares.acknowledge(name, first, last, AcknowledgeType.ACCEPT) == Rejection.NONE
        assert given == left
        while self.world.state.dead_letters:
            self.end_letters()
        assert sorted(self.letters) == sorted(self.expected_letters), "each dead record has one dead letter"
        assert (self.world.shares.share.start, self.world.shares.share.holds, self.world.shares.lag()) == (
            len(self.records),
            [],
            0,
        )


@any_seed
def test_every_record_has_one_member_at_a_time_and_is_delivered_until_it_is_done(seed: int) -> None:
    play = Play(seed)
    play.come()
    for _ in range(STEPS):
        play.step()
    play.finish()
    state = new_state()
    for sequence, entry in enumerate(play.log, 1):
        apply_entry(state, sequence, [list(each) for each in entry])
        if sequence % 25 == 0:
            state = decode_state(encode_state(state))
    assert encode_state(state) == encode_state(play.world.state)
