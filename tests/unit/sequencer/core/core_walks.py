"""Long random walks, one per seed: few producers, topics and groups that last, to reach deep states."""

from random import Random

from penstock.contracts.batches import MARKER_BYTES, TRANSACTIONAL, BatchMeta, BatchRun
from penstock.contracts.commands import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AllocateProducer,
    AlterConfigs,
    Command,
    CommitOffsets,
    CommitSegment,
    CommitTxnOffsets,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    CreateTopic,
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
    GroupProtocol,
    InitTransactionalProducer,
    JoinGroup,
    LeaseJob,
    LeaveGroup,
    LeavingMember,
    LogOffset,
    LogRef,
    MemberAssignment,
    OffsetToCommit,
    OutputSegment,
    RaiseLevel,
    RecordArchived,
    RecordSnapshot,
    ReleaseJob,
    RemoveSegments,
    ReplacedRun,
    ReplaceExtents,
    SyncGroup,
    TakeCustody,
    TakeTaskLease,
    Tick,
    TransactionPartition,
    UndeleteTopic,
)
from penstock.contracts.ids import new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL, SHARE_GROUPS_LEVEL, STREAMS_GROUPS_LEVEL
from penstock_sequencer.core.log import control_markers
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from tests.unit.sequencer.core.core_share_walks import share_command
from tests.unit.sequencer.core.core_strategies import Log
from tests.unit.sequencer.core.core_streams_walks import missing_topics, streams_command
from tests.unit.sequencer.core.core_world import START_MS, topic_id

NEWEST_SEED = 100
SEEDS = [*range(30), *range(NEWEST_SEED, NEWEST_SEED + 10)]
MEMBERS = ["m1", "m2", "m3", "m4"]
INSTANCES = ["i", "j"]
STEPS_MS = [0, 0, 1, 10, 100, 600, 6_000]
Writer = tuple[int, str, int, int]  # time, transactional id, producer id, epoch
LEAPS_MS = [20 * 60_000, 25 * 3_600_000]


def walk(seed: int, length: int, limits: Limits = DEFAULT_LIMITS) -> Log:
    """A journal of `length` entries; the walker applies each entry and chooses the next one by the state.

    Its level rises by steps to that of share groups. With a seed from `NEWEST_SEED` on, it is the newest at once.
    """
    walker = Walker(seed, limits)
    log: Log = []
    for sequence in range(1, length + 1):
        entry: list[list[Command]] = [[walker.command() for _ in range(walker.random.randint(1, 2))]]
        if sequence == 1 and seed >= NEWEST_SEED:
            entry = [[RaiseLevel(START_MS, NEWEST_LEVEL)]]
        apply_entry(walker.state, sequence, entry)
        log.append(entry)
    return log


def make_job(state: State, random: Random, now_ms: int, level: int) -> ReplaceExtents:
    """A job over random spans of extents, one output and a run per span; some runs are cleaned or invalid."""
    inputs: dict[bytes, int] = {}
    runs: list[ReplacedRun] = []
    position = 0
    partitions = [each for topic in state.topics.values() for each in topic.partitions if each.extents]
    for partition in random.sample(partitions, min(len(partitions), random.randint(1, 3))):
        columns = partition.extents
        cuts = sorted(random.randint(columns.head, columns.end) for _ in range(random.choice([2, 2, 4])))
        if random.random() < 0.4:
            cuts[0] = columns.head
        cleaned = random.random() < 0.5
        for first, end in zip(cuts[::2], cuts[1::2], strict=True):
            if first == end:
                continue
            named: list[int] = []
            for row in range(first, end):
                segment_id = control_markers.segment_id(state, columns.segments[row])
                named += (inputs.setdefault(segment_id, len(inputs)), columns.positions[row])
            length = sum(each or MARKER_BYTES for each in columns.lengths[first:end])
            ends = (columns.base_offsets[first], columns.last_offsets[end - 1])
            newest = max(0, *columns.timestamps[first:end]) - random.choice([0, 0, 30])
            names = (partition.topic_id, partition.number, *ends, named, 0, position, length, newest)
            horizon_ms = random.choice([-1, now_ms + 5_000])
            runs.append(ReplacedRun(*names, cleaned, horizon_ms, without_aborted=random.random() < 0.5))
            position += length - (random.random() < 0.05)
    output = OutputSegment(new_segment_id(now_ms, random.randbytes(10)), level, position)
    return ReplaceExtents(now_ms, "job", list(inputs), [output], runs)


class Walker:
    """Chooses the next command at random; most of them are valid."""

    def __init__(self, seed: int, limits: Limits) -> None:
        self.random = Random(seed)
        self.state: State = new_state(limits)
        self.now_ms = START_MS
        self.topics = 0
        self.segments: list[CommitSegment] = []
        self.jobs: list[ReplaceExtents] = []

    def command(self) -> Command:
        random = self.random
        self.now_ms += random.choice(
            [0, 0, 1, 10, 100, 600, 6_000] + [20 * 60_000, 25 * 3_600_000] * (random.random() < 0.05)
        )
        weights = {
            self.tick: 10,
            self.segment: 40,
            self.segment_again: 8,
            self.create_topic: 7,
            self.delete_topic: 5,
            self.grow_topic: 3,
            self.allocate_producer: 3,
            self.join: 40,
            self.sync: 30,
            self.leave: 6,
            self.expire: 6,
            self.commit_offsets: 15,
            self.delete_group: 3,
            self.delete_offsets: 5,
            self.custody: 6,
            self.job: 24,
            self.job_again: 20,
            self.lease: 6,
            self.raise_level: 3 if self.state.level < SHARE_GROUPS_LEVEL else 1,
            self.remove: 8,
            self.alter_configs: 4,
            self.trim: 8,
            self.undelete_topic: 20 if self.state.recoverable else 1,
            self.task: 6,
            self.transact: 60,
            self.share: 40 if self.state.level >= SHARE_GROUPS_LEVEL else 0,
            self.stream: 60 if self.state.level >= STREAMS_GROUPS_LEVEL else 0,
        }
        (make,) = random.choices(list(weights), list(weights.values()))
        return make()

    def tick(self) -> Command:
        return Tick(self.now_ms)

    def segment(self) -> Command:
        random = self.random
        runs, position = [], 0
        for _ in range(random.randint(1, 3)):
            identifier = topic_id(random.randint(max(1, self.topics - 2), self.topics + 1))
            batches = [self.batch(identifier) for _ in range(random.randint(1, 3))]
            runs.append(BatchRun(identifier, random.randint(0, 2), position, batches))
            position += sum(each.length for each in batches)
        identifier = new_segment_id(self.now_ms - random.choice([0, 0, 0, 1_000, 950_000]), random.randbytes(10))
        self.segments.append(CommitSegment(self.now_ms, identifier, position, "f1", random.choice(["a", "b"]), runs))
        return self.segments[-1]

    def segment_again(self) -> Command:
        return self.random.choice(self.segments[-5:]) if self.segments else self.segment()

    def job(self) -> Command:
        """Replace a few spans of the present extents; often the command is sent later, when it may be outdated."""
        random = self.random
        self.jobs.append(make_job(self.state, random, self.now_ms, random.choice([1, 1, 2, 9, 0])))
        return self.jobs[-1] if random.random() < 0.5 else self.tick()

    def job_again(self) -> Command:
        return self.random.choice(self.jobs[-4:]) if self.jobs else self.job()

    def lease(self) -> Command:
        random = self.random
        job, holder = random.choice(["j1", "j2", "j3"]), random.choice(["c1", "c2"])
        if random.random() < 0.3:
            return ReleaseJob(self.now_ms, job, holder)
        known = [each.segment_id for each in self.segments[-6:]]
        wanted = random.sample(known, min(len(known), random.randint(1, 3)))
        return LeaseJob(self.now_ms, job, holder, wanted, random.choice([100, 60_000]))

    def batch(self, identifier: bytes) -> BatchMeta:
        """Most batches continue a producer's sequence in partition 0; some repeat, skip or bump its epoch."""
        random = self.random
        records, length, timestamp = random.randint(1, 3), random.randint(1, 50), random.randint(-1, 100)
        if random.random() < 0.3:
            return BatchMeta(length, records, timestamp, -1, -1, -1, 0)
        producer_id = random.randint(1, 4)
        topic = self.state.topics_by_id.get(identifier)
        known = topic.partitions[0].producers.get(producer_id) if topic else None
        if known is None:
            return BatchMeta(
                length, records, timestamp, producer_id, random.choice([0, 0, 1]), random.choice([0, 0, 0, 5]), 0
            )
        recent = known.recent or [known.last_sequence, known.last_sequence, 0]  # none after an aborted transaction
        place = 3 * random.randrange(len(recent) // 3)
        first, last = recent[place], recent[place + 1]
        epoch, sequence, records = random.choice(
            [(known.epoch, known.last_sequence + 1, records)] * 6
            + [(known.epoch, first, last - first + 1)] * 2
            + [(known.epoch, known.last_sequence + 3, records), (known.epoch + 1, 0, records), (known.epoch - 1, 0, 1)]
        )
        return BatchMeta(length, records, timestamp, producer_id, epoch, sequence, 0)

    def create_topic(self) -> Command:
        self.topics += 1
        name = self.random.choice([f"topic-{self.topics}", "t.a", "t_a", "t"])
        return CreateTopic(self.now_ms, name, topic_id(self.topics), self.random.randint(1, 3), {})

    def some_topic(self) -> str:
        return self.random.choice([*self.state.topics, "none"])

    def delete_topic(self) -> Command:
        return DeleteTopic(self.now_ms, self.some_topic(), bytes(16))

    def grow_topic(self) -> Command:
        return CreatePartitions(self.now_ms, self.some_topic(), self.random.randint(1, 4))

    def allocate_producer(self) -> Command:
        return AllocateProducer(self.now_ms)

    def some_member(self) -> tuple[str, str | None]:
        """A member, mostly with its own instance id."""
        group = self.state.groups.get("g")
        if group is None or not group.members or self.random.random() < 0.1:
            return self.random.choice(MEMBERS), self.random.choice([None, *INSTANCES])
        member = self.random.choice(list(group.members.values()))
        return member.member_id, member.group_instance_id

    def some_generation(self) -> int:
        group = self.state.groups.get("g")
        generation = group.generation if group else 0
        return self.random.choice([generation] * 10 + [generation - 1, -1])

    def join(self) -> Command:
        random = self.random
        group = self.state.groups.get("g")
        offered = random.choice([["range"], ["range", "sticky"], ["sticky", "range"], ["sticky"]])
        new, instance = random.choice(MEMBERS), random.choice([None, None, *INSTANCES])
        member_id = ""
        if group and random.random() < 0.6:
            member_id, instance = random.choice([*((each, None) for each in group.pending), self.some_member()])
            known = group.members.get(member_id)
            if known and random.random() < 0.5:
                offered = [protocol.name for protocol in known.protocols]
        return JoinGroup(
            self.now_ms,
            "g",
            member_id,
            new if instance is None else f"{new}-{random.randint(1, 9)}",
            instance,
            random.random() < 0.3,
            "client",
            "host",
            random.choice([6_000, 10_000]),
            random.choice([300, 1_500, 20_000]),
            "consumer",
            [GroupProtocol(name, b"said") for name in offered],
            self.some_seen_sequence(),
        )

    def sync(self) -> Command:
        group = self.state.groups.get("g")
        member_id, instance = self.some_member()
        if group and group.leader and self.random.random() < 0.4:
            member_id, instance = group.leader, group.members[group.leader].group_instance_id
        shares = [MemberAssignment(each, each.encode()) for each in MEMBERS]
        return SyncGroup(self.now_ms, "g", self.some_generation(), member_id, instance, None, None, shares)

    def leave(self) -> Command:
        member_id, instance = self.some_member()
        leaving = self.random.choice(
            [LeavingMember(member_id, instance), LeavingMember("", self.random.choice(INSTANCES))]
        )
        return LeaveGroup(self.now_ms, "g", [leaving])

    def expire(self) -> Command:
        return ExpireMember(self.now_ms, "g", self.some_member()[0], self.state.sequence - self.random.randint(0, 8))

    def commit_offsets(self) -> Command:
        member_id, instance = self.random.choice([self.some_member(), ("", None)])
        item = OffsetToCommit(self.some_topic(), self.random.randint(0, 3), self.random.randint(0, 99), 1, "")
        generation = self.some_generation() if member_id else -1
        return CommitOffsets(self.now_ms, "g", generation, member_id, instance, [item], self.some_seen_sequence())

    def delete_group(self) -> Command:
        return DeleteGroup(self.now_ms, "g", self.some_seen_sequence())

    def delete_offsets(self) -> Command:
        gone = [DeletedOffset(self.some_topic(), self.random.randint(0, 3)) for _ in range(2)]
        return DeleteOffsets(self.now_ms, "g", gone, self.some_seen_sequence())

    def some_seen_sequence(self) -> int:
        return self.random.choice([-1, max(self.state.sequence - self.random.randint(0, 60), 0)])

    def raise_level(self) -> Command:
        return RaiseLevel(self.now_ms, self.random.randint(0, SHARE_GROUPS_LEVEL))

    def remove(self) -> Command:
        """Mostly dead segments; a few that are live, unknown, or named twice."""
        random, table = self.random, self.state.segments
        dead = [table.id(slot) for slot in table.by_number if not table.live_extents[slot]]
        named = random.sample(dead, random.randint(0, len(dead)))
        if random.random() < 0.2:
            named += random.choices([bytes(16), *table.all_ids()], k=2)
        return RemoveSegments(self.now_ms, named)

    def alter_configs(self) -> Command:
        """Change retention, offset expiry or the undelete window, of the cluster or of one topic."""
        random = self.random
        if random.random() < 0.3:
            minutes = ConfigChange(
                "offsets.retention.minutes", ConfigOperation.SET, random.choice(["1", "20", "10080"])
            )
            return AlterConfigs(self.now_ms, "", [minutes])
        name = random.choice(["log.retention.ms", "penstock.undelete.window.ms"])
        topic = random.choice(["", self.some_topic()])
        change = ConfigChange(
            name.removeprefix("log.") if topic else name,
            random.choice([ConfigOperation.SET] * 3 + [ConfigOperation.DELETE]),
            random.choice(["0", "1000", "600000", "90000000", "90000000"]),
        )
        return AlterConfigs(self.now_ms, topic, [change])

    def trim(self) -> Command:
        random = self.random
        logs = [(topic.topic_id, each) for topic in self.state.topics.values() for each in topic.partitions]
        chosen = random.sample(logs, min(len(logs), 3))
        offsets = [LogOffset(topic, each.number, random.randint(-1, each.high_watermark)) for topic, each in chosen]
        return random.choice(
            [
                DeleteRecords(self.now_ms, offsets),
                ExpireLogs(self.now_ms, [LogRef(topic, each.number) for topic, each in chosen]),
                DropExtents(self.now_ms),
            ]
        )

    def undelete_topic(self) -> Command:
        names = [each.topic.name for each in self.state.recoverable.values()]
        return UndeleteTopic(self.now_ms, self.random.choice([*names, *names, "t"]), bytes(16))

    def task(self) -> Command:
        random = self.random
        holder, number = random.choice(["j1", "j2"]), random.choice([*self.state.task_leases, 7])
        if random.random() < 0.5:
            return EndTaskLease(self.now_ms, holder, number, random.random() < 0.7)
        first = random.randint(0, 4)
        periods = (random.choice([0, 5_000, 60_000]), random.choice([1_000, 60_000]))
        return TakeTaskLease(
            self.now_ms, holder, first, first + random.randint(1, 4), *periods, random.choice([-1, number])
        )

    def transact(self) -> Command:
        """The next step of one of two transactional producers, or an invalid one."""
        random = self.random
        name = random.choice(["a", "b"])
        known = self.state.transactions.get(name)
        if known is None or random.random() < 0.05:
            return InitTransactionalProducer(self.now_ms, name, 60_000)
        if random.random() < 0.03:
            return InitTransactionalProducer(self.now_ms, name, 60_000, known.producer_id, known.epoch)
        writer = (self.now_ms, name, known.producer_id, known.epoch - (random.random() < 0.03))
        seen = random.choice([-1, -1, self.state.sequence, max(self.state.sequence - 9, 0)])
        make = random.choice([self.write_some] * 6 + [self.end, self.end, self.add_some, self.commit_txn_offsets])
        return make(writer, seen)

    def end(self, writer: Writer, seen: int) -> Command:
        return EndTxn(*writer, self.random.random() < 0.6, self.random.random() < 0.5, seen)

    def add_some(self, writer: Writer, seen: int) -> Command:
        if self.random.random() < 0.3:
            return AddOffsetsToTxn(*writer, "g", seen)
        logs = [each for topic in self.state.topics.values() for each in topic.partitions]
        chosen = self.random.sample(logs, min(len(logs), 2))
        return AddPartitionsToTxn(*writer, [TransactionPartition(each.topic_id, each.number) for each in chosen], seen)

    def write_some(self, writer: Writer, seen: int) -> Command:
        """A batch of the transaction between two batches without a producer."""
        random = self.random
        topic = self.state.topics.get(self.some_topic())
        identifier = topic_id(1) if topic is None else topic.topic_id
        known = topic.partitions[0].producers.get(writer[2]) if topic else None
        sequence = known.last_sequence + 1 if known is not None and known.epoch == writer[3] else 0
        batch = BatchMeta(random.randint(1, 50), 1, 50, *writer[2:], sequence, TRANSACTIONAL, random.random() < 0.7)
        plain = BatchMeta(7, 1, 60, -1, -1, -1, 0)
        batches = [plain, batch, plain]
        segment_id = new_segment_id(self.now_ms, random.randbytes(10))
        runs = [BatchRun(identifier, 0, 0, batches)]
        self.segments.append(CommitSegment(self.now_ms, segment_id, batch.length + 14, "f1", "a", runs))
        return self.segments[-1]

    def commit_txn_offsets(self, writer: Writer, seen: int) -> Command:
        item = OffsetToCommit(self.some_topic(), self.random.randint(0, 2), self.random.randint(0, 99), 1, "")
        return CommitTxnOffsets(*writer, "g", -1, "", None, [item], self.random.random() < 0.7, seen)

    def share(self) -> Command:
        return share_command(self.random, self.state, self.now_ms)

    def stream(self) -> Command:
        missing = missing_topics(self.state)
        if not missing or self.random.random() < 0.5:
            return streams_command(self.random, self.state, self.now_ms)
        self.topics += 1
        return CreateTopic(self.now_ms, missing[0].name, topic_id(self.topics), missing[0].partitions, {})

    def custody(self) -> Command:
        author, sequence = self.random.choice(["r1", "r2"]), self.state.sequence - self.random.randint(0, 20)
        return self.random.choice(
            [
                TakeCustody(self.now_ms, author),
                RecordArchived(self.now_ms, author, max(sequence, 0)),
                RecordSnapshot(self.now_ms, author, max(sequence, 0)),
            ]
        )
