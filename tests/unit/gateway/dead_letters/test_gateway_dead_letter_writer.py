"""The writer of dead letters against the real state machine: each is written, or dropped for a reason, and ended."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import Buffer
from penstock.contracts.commands import (
    AcknowledgedRange,
    AlterConfigs,
    AlterGroupConfigs,
    CommitSegment,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    DeadRecords,
    RaiseLevel,
    Rejected,
    SegmentCommitted,
    SharePartition,
    ShareRecords,
    Tick,
    TopicCreated,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId, new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.contracts.messages import FlushBatch
from penstock.contracts.queries.share import DeadLetterGroup, DeadLetterGroupsView
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.compression import ZSTD
from penstock.kafkawire.records import LOG_APPEND_TIME, Record, batches, build_batch, decode_records
from penstock.runtime.clock import Clock
from penstock.segment.keys import segment_key
from penstock.segment.writer import build_segment
from penstock_gateway.dead_letters.limits import DeadLetterLimits
from penstock_gateway.dead_letters.source import DeadRecordReader
from penstock_gateway.dead_letters.topic import DeadLetterTopics
from penstock_gateway.dead_letters.writer import DeadLetterWriter
from penstock_gateway.kafka.broker_view import rendezvous_weight
from penstock_gateway.produce.producer_route import Flushed
from penstock_gateway.share.limits import ShareLimits
from penstock_gateway.share.reader import ShareReader
from tests.testkit.waiting import until
from tests.testkit.work import counted_work
from tests.unit.gateway.gateway_read_world import (
    CLUSTER,
    START_MS,
    UNSENT_BYTES_MAX,
    ZONE,
    World,
    asking,
    partitions_of,
)
from tests.unit.gateway.gateway_share import GROUP, REJECT, RELEASE, Member, joined_members, open_world

DLQ = "dlq.t"
TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ALLOWED = "errors.deadletterqueue.group.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
CREATE = "errors.deadletterqueue.auto.create.topics.enable"
TAKE_OVER_S = 15.0
OWN = "gateway-0"
NEWER_REJECTION = 9_999  # of a later release of the sequencers


class StoringFlusher:
    """Commits produced batches at once, as a flusher and its router do; or answers with a rejection."""

    batch_bytes_max = 8_000_000

    def __init__(self, world: World) -> None:
        self.world = world
        self.rejection: int = Rejection.NONE
        self.is_over = False
        self.routes = 0
        self.submitted: list[dict[str, Any]] = []

    def open_route(self, on_change: Any) -> "StoringFlusher":
        self.routes += 1
        self.is_over = False
        return self

    def close(self) -> None:
        self.is_over = True

    async def submit(
        self, flushed: Sequence[FlushBatch], payload: Sequence[Buffer], timeout_s: float, **settings: Any
    ) -> Flushed:
        self.submitted.append(settings)
        if self.rejection:
            return Flushed([BatchResult(self.rejection)] * len(flushed), 0)
        world = self.world
        world.segments += 1
        segment_id = new_segment_id(world.clock.now_ms(), world.segments.to_bytes(10))
        placed = [(each.topic_id, each.partition, each.meta, data) for each, data in zip(flushed, payload, strict=True)]
        built = build_segment(segment_id, writer="f", created_ms=START_MS, level=0, batches=placed)
        await world.store.put(segment_key("", CLUSTER, 0, segment_id), built.buffers)
        (outcome,) = await world.commit([CommitSegment(START_MS, segment_id, built.size_bytes, "f", ZONE, built.runs)])
        assert isinstance(outcome, SegmentCommitted), outcome
        found = {(run.topic_id, run.partition): done for run, done in zip(built.runs, outcome.runs, strict=True)}
        return Flushed([found[each.topic_id, each.partition][0] for each in flushed], 0)


class UndecidedRoute:
    """A route that decides no request. It ends when the test ends it."""

    def __init__(self) -> None:
        self.is_over = False
        self.is_closed = False
        self.answers: list[asyncio.Future[Flushed]] = []

    def submit(self, flushed: Sequence[FlushBatch], *arguments: Any, **settings: Any) -> "asyncio.Future[Flushed]":
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def end(self) -> None:
        self.is_over = True
        for answer in self.answers:
            answer.set_result(Flushed([BatchResult(Rejection.OUTCOME_UNKNOWN)], 0))

    def close(self) -> None:
        self.is_closed = True


class Letters:
    """A world with a share group, a topic for its dead letters, and the writer of one gateway."""

    def __init__(self) -> None:
        self.world = World()
        self.flusher = StoringFlusher(self.world)
        self.storage_error = ""
        self.limits = DeadLetterLimits(take_over_s=TAKE_OVER_S)
        self.writer = self.new_writer(OWN)
        self.topic_id: TopicId
        self.member: Member

    def new_writer(self, instance: str, clock: Clock | None = None) -> DeadLetterWriter:
        world = self.world
        reader = ShareReader(
            log_reader=world.log_reader, tail=world.tail, sequencer=cast(Any, world.sequencer), limits=ShareLimits()
        )
        topics = DeadLetterTopics(
            topics=world.topics,
            sequencer=cast(Any, world.sequencer),
            clock=world.clock,
            entropy=cast(Any, world.entropy),
            partitions=2,
            limits=self.limits,
        )
        return DeadLetterWriter(
            topics=topics,
            reader=DeadRecordReader(reader=reader, limits=self.limits),
            sequencer=cast(Any, world.sequencer),
            flush_router=cast(Any, self.flusher),
            directory=cast(Any, world.directory),
            instance=instance,
            clock=clock or world.clock,
            metrics=world.metrics,
            storage_error=lambda: self.storage_error,
            limits=self.limits,
        )

    async def open(self, *, partitions: int = 1, make_topic: bool = True) -> None:
        self.topic_id = await open_world(self.world, partitions=partitions)
        await self.world.commit([RaiseLevel(START_MS, NEWEST_LEVEL)])
        await self.configure(**{TOPIC: DLQ})
        if make_topic:
            await self.make_topic(2, **{ALLOWED: "true"})
        (self.member,) = await joined_members(self.world, self.topic_id, "m1")

    async def make_topic(self, partitions: int, **configs: str) -> None:
        command = CreateTopic(START_MS, DLQ, DLQ.encode().ljust(16, b"\1"), partitions, configs)
        (outcome,) = await self.world.commit([command])
        assert isinstance(outcome, TopicCreated), outcome

    async def configure(self, **configs: str) -> None:
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items()]
        (outcome,) = await self.world.commit([AlterGroupConfigs(START_MS, GROUP, changes)])
        assert not hasattr(outcome, "rejection"), outcome

    async def configure_topic(self, topic: str, **configs: str) -> None:
        """Configure a topic, or the cluster with an empty name."""
        changes = [ConfigChange(name, ConfigOperation.SET, value) for name, value in configs.items()]
        (outcome,) = await self.world.commit([AlterConfigs(START_MS, topic, changes)])
        assert not hasattr(outcome, "rejection"), outcome

    async def reject(self, *values: bytes, partition: int = 0, codec: int = 0) -> None:
        """Write a batch of records with keys and headers, and let the member reject all of them."""
        records = [Record(delta, START_MS, b"key", value, (("trace", b"1"),)) for delta, value in enumerate(values)]
        await self.world.produce(self.topic_id, {partition: [build_batch(records, codec=codec)]})
        await self.member.fetch(partition)
        await self.acknowledge(partition, REJECT)

    async def acknowledge(self, partition: int, kind: int) -> None:
        held = [
            (hold.first, hold.last, kind)
            for hold in self.world.sequencer.state.share_groups[GROUP].partitions[self.topic_id][partition].holds
            if hold.member_id
        ]
        await self.member.acknowledge({partition: held})

    @property
    def pending(self) -> int:
        """How many dead letters are pending."""
        (share,) = [self.world.sequencer.state.share_groups[GROUP].partitions[self.topic_id][0]]
        return share.in_flight

    async def written(self, partition: int = 0) -> list[Record]:
        """The records of the topic for dead letters."""
        fetched = partitions_of(await self.world.fetch(asking({partition: 0}, topic=DLQ)))[partition]
        buffer = bytes(cast(Buffer, fetched.records or b""))
        return [each for position, _ in batches(buffer) for each in decode_records(buffer[position:])]

    def counted(self, outcome: str) -> float:
        return (
            self.world.registry.get_sample_value("penstock_gateway_share_dead_letters_total", {"outcome": outcome})
            or 0.0
        )


@pytest.fixture
async def letters() -> AsyncIterator[Letters]:
    made = Letters()
    yield made
    assert made.world.log_reader.held_bytes == 0, "a read still holds bytes of the budget"
    await made.world.close()


def offsets_of(records: list[Record]) -> list[bytes | None]:
    return [dict(record.headers)["__dlq.errors.offset"] for record in records]


async def test_a_rejected_record_has_a_dead_letter_with_its_context(letters: Letters) -> None:
    await letters.open()
    await letters.reject(b"a", b"b")
    assert letters.pending == 2
    await letters.writer.write_all()
    first, second = await letters.written()
    assert (first.key, first.value) == (None, None)
    assert first.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    assert dict(second.headers)["__dlq.errors.offset"] == b"1"
    assert (letters.pending, letters.world.sequencer.state.dead_letters) == (0, {})
    assert letters.counted("context") == 2
    await letters.writer.write_all()
    assert len(await letters.written()) == 2, "an ended dead letter is not written again"
    assert letters.flusher.submitted == [{"needs_confirmation": True, "is_express": False}]


@pytest.mark.parametrize("codec", [0, ZSTD])
async def test_a_copy_has_the_records_key_value_and_headers(letters: Letters, codec: int) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await letters.reject(b"a", b"b", codec=codec)
    await letters.reject(b"c", codec=codec)
    await letters.writer.write_all()
    written = await letters.written()
    assert [(each.key, each.value, each.headers[0]) for each in written] == [
        (b"key", value, ("trace", b"1")) for value in (b"a", b"b", b"c")
    ]
    assert offsets_of(written) == [b"0", b"1", b"2"]
    assert letters.counted("copied") == 3


async def reject_first_of(letters: Letters, count: int, headers: int = 0) -> None:
    """Write a batch of so many records, and let the member reject the first one."""
    records = [Record(delta, START_MS, b"key", b"%d" % delta, (("h", None),) * headers) for delta in range(count)]
    await letters.world.produce(letters.topic_id, {0: [build_batch(records, codec=ZSTD)]})
    await letters.member.fetch(0)
    await letters.member.acknowledge({0: [(0, 0, REJECT)]})


async def test_a_record_of_a_batch_with_very_many_records_has_no_copy(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await reject_first_of(letters, letters.limits.decoded_records_max + 1)
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [None]
    assert letters.counted("context") == 1


async def test_a_record_of_a_batch_with_very_many_headers_has_no_copy(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await reject_first_of(letters, 1, letters.limits.decoded_headers_max + 1)
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [None]
    assert letters.counted("context") == 1


async def test_a_large_batch_is_decoded_beside_the_event_loop(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await reject_first_of(letters, letters.limits.decoded_records_max)
    with counted_work() as work:  # of this thread
        await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [b"0"]
    assert work.instructions < letters.limits.decoded_records_max


async def test_dead_letters_of_a_partition_go_to_one_partition(letters: Letters) -> None:
    await letters.open(partitions=4)
    for partition in (0, 1, 3):
        await letters.reject(b"%d" % partition, partition=partition)
    await letters.writer.write_all()
    sources = [
        [dict(each.headers)["__dlq.errors.partition"] for each in await letters.written(number)] for number in (0, 1)
    ]
    assert sources == [[b"0"], [b"1", b"3"]]


async def test_the_last_delivery_is_named(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{"share.delivery.count.limit": "2"})
    await letters.world.produce(letters.topic_id, {0: [build_batch([Record(0, START_MS, None, b"a")])]})
    for _ in range(2):
        await letters.member.fetch(0)
        await letters.acknowledge(0, RELEASE)
    await letters.writer.write_all()
    (written,) = await letters.written()
    found = dict(written.headers)
    assert found["__dlq.errors.delivery.count"] == b"2"
    assert found["__dlq.errors.message"] == b"Offset delivery count exceeded the threshold."


async def drop_of(letters: Letters) -> None:
    """Write, and expect that the only dead letter is dropped."""
    await letters.reject(b"a")
    await letters.writer.write_all()
    assert (letters.pending, letters.counted("dropped"), letters.flusher.submitted) == (0, 1, [])


async def test_a_topic_that_does_not_allow_dead_letters_gets_none(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.make_topic(1)
    await drop_of(letters)


async def test_a_missing_topic_gets_no_dead_letters(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await drop_of(letters)
    assert DLQ not in letters.world.sequencer.state.topics


async def test_a_topic_without_the_prefix_gets_no_dead_letters(letters: Letters) -> None:
    await letters.open()
    await letters.configure_topic("", **{PREFIX: "other."})
    await drop_of(letters)


async def test_a_group_that_lost_its_topic_has_no_dead_letters(letters: Letters) -> None:
    await letters.open()
    await letters.reject(b"a")
    await letters.configure(**{TOPIC: ""})
    await letters.writer.write_all()
    assert (letters.pending, letters.counted("dropped")) == (0, 1)


async def test_a_missing_topic_is_created_if_the_cluster_allows_that(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.configure_topic("", **{CREATE: "true"})
    await letters.reject(b"a")
    await letters.writer.write_all()
    made = letters.world.sequencer.state.topics[DLQ]
    assert (len(made.partitions), made.configs) == (2, {ALLOWED: "true"})
    assert offsets_of(await letters.written()) == [b"0"]


@pytest.mark.parametrize(
    "rejection",
    [
        Rejection.OUTCOME_UNKNOWN,
        Rejection.OVERLOADED,
        Rejection.UNKNOWN_TOPIC,
        Rejection.INVALID_REQUEST,  # of the segment with the letters, which other batches may have made invalid
        NEWER_REJECTION,
    ],
)
async def test_dead_letters_stay_pending_through_an_outage(letters: Letters, rejection: int) -> None:
    await letters.open()
    await letters.reject(b"a")
    letters.flusher.rejection = rejection
    for _ in range(3):
        await letters.writer.write_all()
    assert (letters.pending, letters.counted("dropped")) == (1, 0)
    letters.flusher.rejection = Rejection.NONE
    await letters.writer.write_all()
    assert (letters.pending, offsets_of(await letters.written())) == (0, [b"0"])


async def test_a_group_does_not_close_the_route_of_another_group(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other group opens a new route after the end of the old one, before this group runs again."""
    await letters.open()
    await letters.reject(b"a")
    routes: list[UndecidedRoute] = []
    may_ask = asyncio.Event()
    query = letters.world.sequencer.query

    def open_route(on_change: Any) -> UndecidedRoute:
        routes.append(UndecidedRoute())
        return routes[-1]

    async def of_two_groups(name: str, asked: Any, view: Any) -> Any:
        if name == "dead_letters":
            if asked.group_id == "other":
                await may_ask.wait()
            asked = msgspec.structs.replace(asked, group_id=GROUP)
        answer = await query(name, asked, view)
        if name == "dead_letter_groups":
            (group,) = answer.groups
            answer = msgspec.structs.replace(answer, groups=[group, msgspec.structs.replace(group, group_id="other")])
        return answer

    monkeypatch.setattr(letters.world.sequencer, "query", of_two_groups)
    monkeypatch.setattr(letters.flusher, "open_route", open_route)
    writing = asyncio.create_task(letters.writer.write_all())
    await until(lambda: routes and routes[0].answers)
    may_ask.set()
    routes[0].end()
    await until(lambda: len(routes) == 2 and any(each.is_closed for each in routes))
    assert [each.is_closed for each in routes] == [True, False]
    routes[1].end()
    await writing
    assert letters.pending == 1


async def test_a_full_cluster_keeps_dead_letters_pending(letters: Letters) -> None:
    await letters.open()
    await letters.reject(b"a")
    letters.storage_error = "the quota of stored bytes is reached"
    await letters.writer.write_all()
    assert letters.pending == 1
    letters.storage_error = ""
    await letters.writer.write_all()
    assert letters.pending == 0


async def test_without_sequencers_nothing_is_known_and_nothing_is_lost(letters: Letters) -> None:
    await letters.open()
    await letters.reject(b"a")
    letters.world.sequencer.is_down = True
    with pytest.raises(Unavailable):
        await letters.writer.write_all()
    letters.world.sequencer.is_down = False
    await letters.writer.write_all()
    assert letters.pending == 0


@pytest.mark.parametrize("outcomes", [None, [Rejected(Rejection.OVERLOADED)]])
async def test_a_dead_letter_without_a_confirmed_end_is_written_once_more_in_the_next_round(
    letters: Letters, outcomes: list[Rejected] | None
) -> None:
    await letters.open()
    await letters.reject(b"a")
    command = letters.world.sequencer.command

    async def lost(*_: Any, **__: Any) -> Any:
        if outcomes is None:
            raise Unavailable("no sequencer answered")
        return outcomes

    letters.world.sequencer.command = lost  # type: ignore[method-assign]
    await letters.writer.write_all()
    assert letters.pending == 1
    letters.world.sequencer.command = command  # type: ignore[method-assign]
    await letters.writer.write_all()
    assert (letters.pending, offsets_of(await letters.written())) == (0, [b"0", b"0"])


async def test_a_record_that_retention_removed_has_no_copy(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await letters.reject(b"a", b"b")
    await letters.world.delete_records(letters.topic_id, {0: 1})
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [None, b"b"]
    assert (letters.counted("context"), letters.counted("copied")) == (1, 1)


async def test_a_record_whose_segment_is_lost_has_no_copy_in_the_end(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    batch = build_batch([Record(0, START_MS, None, b"a")])
    await letters.world.produce(letters.topic_id, {0: [batch]}, stored=False)
    acquired = SharePartition(letters.topic_id, 0, [], 0, -1, 1)
    rejected = SharePartition(letters.topic_id, 0, [AcknowledgedRange(0, 0, bytes([REJECT]))])
    for partition in (acquired, rejected):
        await letters.world.commit([ShareRecords(START_MS, GROUP, "m1", [partition], 1)])
    for _ in range(letters.limits.empty_reads_max - 1):
        await letters.writer.write_all()
        assert letters.pending == 1, "the segment may be replaced just now"
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [None]


async def test_a_record_that_is_not_read_for_lack_of_memory_is_copied_later(letters: Letters) -> None:
    await letters.open()
    await letters.configure(**{COPY: "true"})
    await letters.reject(b"a")
    letters.world.response_memory.change(UNSENT_BYTES_MAX)
    for _ in range(letters.limits.empty_reads_max + 1):
        await letters.writer.write_all()
    assert letters.pending == 1, "clients have not taken their answers yet"
    letters.world.response_memory.change(-UNSENT_BYTES_MAX)
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [b"a"]


async def test_a_copy_above_the_topics_limit_is_left_out(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.make_topic(1, **{ALLOWED: "true", "max.message.bytes": "1000"})
    await letters.configure(**{COPY: "true"})
    await letters.reject(bytes(2_000), b"b")
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [None, b"b"]


async def test_a_topic_that_accepts_no_dead_letter_at_all_gets_none(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.make_topic(1, **{ALLOWED: "true", "max.message.bytes": "100"})
    await letters.reject(b"a", b"b")
    await letters.writer.write_all()
    assert (letters.pending, letters.counted("dropped"), letters.flusher.submitted) == (0, 2, [])


async def test_a_compacted_topic_gets_the_dead_letters_with_keys(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.make_topic(1, **{ALLOWED: "true", "cleanup.policy": "compact"})
    await letters.reject(b"a")
    await letters.writer.write_all()
    assert letters.counted("dropped") == 1
    await letters.configure(**{COPY: "true"})
    await letters.reject(b"b")
    await letters.writer.write_all()
    assert [each.value for each in await letters.written()] == [b"b"]


async def test_a_topic_with_append_time_has_the_time_of_writing(letters: Letters) -> None:
    await letters.open(make_topic=False)
    await letters.make_topic(1, **{ALLOWED: "true", "message.timestamp.type": "LogAppendTime"})
    await letters.reject(b"a")
    await letters.writer.write_all()
    fetched = partitions_of(await letters.world.fetch(asking({0: 0}, topic=DLQ)))[0]
    ((_, header),) = batches(bytes(cast(Buffer, fetched.records)))
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == letters.world.clock.now_ms()


def ranked(*instances: str) -> list[str]:
    """The instances in the order in which they are chosen for the group."""
    return sorted(instances, key=lambda each: rendezvous_weight(GROUP, each), reverse=True)


async def test_one_gateway_is_chosen_and_the_next_takes_over_if_it_makes_no_progress(letters: Letters) -> None:
    first, second = ranked("gateway-0", "gateway-1")
    letters.world.directory.gateways = [first, second]
    await letters.open()
    await letters.reject(b"a")
    clock = ManualSeconds()
    writers = {name: letters.new_writer(name, clock) for name in (first, second)}
    await writers[second].write_all()
    clock.seconds = TAKE_OVER_S - 1
    await writers[second].write_all()
    assert letters.pending == 1
    clock.seconds = TAKE_OVER_S
    await writers[second].write_all()
    assert letters.pending == 0
    await letters.reject(b"b")
    await writers[second].write_all()
    assert letters.pending == 1, "this one was seen just now"
    await writers[first].write_all()
    assert letters.pending == 0


class ManualSeconds:
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic_s(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return START_MS


async def failed_groups(letters: Letters, *groups: str, is_more: bool = False) -> list[str]:
    """Write while these groups have dead letters that cannot be read; the groups whose failure is logged."""
    listed = [DeadLetterGroup(each, letters.topic_id, 0, DeadRecords(0, 0, 1)) for each in groups]

    async def query(kind: str, *_: Any, **__: Any) -> DeadLetterGroupsView:
        if kind != "dead_letter_groups":
            raise Unavailable("no sequencer answers")
        return DeadLetterGroupsView(1, listed, is_more)

    letters.world.sequencer.query = query  # type: ignore[method-assign, assignment]
    with capture_logs() as logs:
        await letters.writer.write_all()
    return [each["group"] for each in logs if each["event"] == "dead_letters_not_written"]


async def test_a_group_without_dead_letters_is_removed_while_others_have_some(letters: Letters) -> None:
    await letters.open()
    assert await failed_groups(letters, "a", "b", "d") == ["a", "b", "d"]
    assert await failed_groups(letters, "b", is_more=True) == []
    assert await failed_groups(letters, "c", "d") == ["c"], "b is in the first part of the list"
    assert await failed_groups(letters, "a", "b", "c", is_more=True) == ["a"], "its first failure was another one"
    assert await failed_groups(letters, "e") == ["e"]
    assert await failed_groups(letters, "a", "b", "c", "d", "e") == ["d"]


async def test_an_announcement_starts_the_writer(letters: Letters) -> None:
    await letters.open()
    letters.world.tail.record_dead_letters = letters.writer.record_announced
    running = asyncio.create_task(letters.writer.run())
    for value in (b"a", b"b"):
        await letters.reject(value)
        await letters.world.commit([Tick(START_MS)])  # this fake announces no commands of gateways
        await until(lambda: letters.pending == 0)
    assert offsets_of(await letters.written()) == [b"0", b"1"]
    running.cancel()
    await asyncio.wait({running})
