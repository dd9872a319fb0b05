"""Fakes around a flusher: a manual clock, a store that can be blocked, and sequencers that record their requests."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.codec import Buffer, decode, encode_with_payload
from penstock.contracts.commands import Command, Outcome, SegmentCommitted
from penstock.contracts.errors import PenstockError
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushReply, FlushRequest
from penstock.runtime.bus.bus import Payload, joined
from penstock.runtime.clock import Clock
from penstock.runtime.traces.traces import NO_TRACES, Traces
from penstock_flusher.budget import Budget
from penstock_flusher.buffer import ActiveBuffer, BufferLimits, Reason, TokenBucket
from penstock_flusher.flush import FlushLimits, FlushQueue
from penstock_flusher.fragments import Fragment
from penstock_flusher.intake import Intake, Lane
from penstock_flusher.landing import Landing
from penstock_flusher.metrics import FlusherMetrics
from penstock_flusher.reassembly import Reassembly
from penstock_flusher.recent import RecentSegments
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.fakes.virtual_time import CountingEntropy

MIB = 1024 * 1024
TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(1, 17))


class HeldStore:
    """A store whose puts end when the test ends them: `ends[n]` ends the n-th put."""

    def __init__(self, *, held: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        self.ends: list[asyncio.Future[None]] = []
        self.running = 0
        self.running_max = 0
        self._held = held

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        assert key not in self.objects
        end = asyncio.get_running_loop().create_future()
        self.ends.append(end)
        if not self._held:
            end.set_result(None)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            await end
        finally:
            self.running -= 1
        self.objects[key] = b"".join(body)
        return "etag"


class LoggingSequencers:
    """Sequencers that assign offsets per partition, and record the commit requests in the order of arrival."""

    def __init__(self, *, held: bool = False) -> None:
        self.seen_sequence = 0
        self.seen_clock_ms = 0
        self.clock_seen_s = 0.0
        self.clock_questions = 0  # requests without commands
        self.requests: list[list[Command]] = []
        self.traces: list[str] = []  # of the requests
        self.replies: asyncio.Queue[list[Outcome] | PenstockError | None] = asyncio.Queue()  # None: the usual outcome
        self.running = 0
        self.running_max = 0
        self._held = held
        self._ends: dict[tuple[bytes, int], int] = {}
        self._outcomes: dict[bytes, SegmentCommitted] = {}

    async def command(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float = 1.0, trace: str = ""
    ) -> list[Outcome]:
        assert deadline_s > 0
        self.traces.append(trace)
        if not commands:
            self.clock_questions += 1
            return []
        self.requests.append(commands)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        reply = await self.replies.get() if self._held or not self.replies.empty() else await asyncio.sleep(0)
        self.running -= 1
        if isinstance(reply, PenstockError):
            raise reply
        self.seen_sequence += 1
        return reply or [self.outcome(command) for command in commands]

    def outcome(self, command: Command) -> SegmentCommitted:
        if command.segment_id not in self._outcomes:
            runs = [[self._result(run, meta) for meta in run.batches] for run in command.runs]
            self._outcomes[command.segment_id] = SegmentCommitted(runs)
        return self._outcomes[command.segment_id]

    def _result(self, run: object, meta: BatchMeta) -> BatchResult:
        place = (run.topic_id, run.partition)
        base_offset = self._ends.get(place, 0)
        self._ends[place] = base_offset + meta.record_count
        return BatchResult(0, base_offset, 0)

    def segment_ids(self) -> list[list[bytes]]:
        return [[command.segment_id for command in request] for request in self.requests]


class RecordingGateways:
    """Gateways that confirm every request, except those in `given_up`, and record what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []
        self.given_up: set[int] = set()
        self.lease_ms = 2_000

    async def leases(self, gateway: str, requests: Sequence[int]) -> dict[int, int]:
        self.asked.append((gateway, list(requests)))
        return {number: 0 if number in self.given_up else self.lease_ms for number in requests}


class FakeInbound:
    """A message, and its reply when there is one."""

    def __init__(self, data: bytes) -> None:
        self.subject = "a.subject"
        self.data = data
        self.buffers: Sequence[Buffer] = (data,)
        self.replied: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def respond(self, data: Payload) -> None:
        self.replied.set_result(joined(data))

    async def reply(self) -> FlushReply:
        async with asyncio.timeout(60):
            return decode(await self.replied, FlushReply)


def meta(length: int = 100, **changes: int) -> BatchMeta:
    plain = BatchMeta(length, 1, 1_700_000_000_000, -1, -1, -1, 0)
    return msgspec.structs.replace(plain, **changes)


def produce(
    request: int,
    *lengths: int,
    part: int = 0,
    parts: int = 1,
    partition: int = 0,
    topic: bytes = TOPIC,
    needs_confirmation: bool = False,
    is_express: bool = False,
    trace: str = "",
) -> FlushProduce:
    batches = [FlushBatch(topic, partition, meta(length)) for length in lengths or (100,)]
    return FlushProduce(request, part, parts, batches, needs_confirmation, is_express=is_express, trace=trace)


def flush_message(*produces: FlushProduce, gateway: str = "g1") -> FakeInbound:
    """A flush message; the bytes of each batch are the lowest byte of its request's number."""
    payload = [bytes([produce.request % 256]) * batch.meta.length for produce in produces for batch in produce.batches]
    return FakeInbound(encode_with_payload(FlushRequest(gateway, list(produces)), payload))


class Rig:
    """A flusher without a bus; the test closes the buffer."""

    def __init__(
        self,
        *,
        store: HeldStore | None = None,
        sequencers: LoggingSequencers | None = None,
        clock: Clock | None = None,
        bytes_max: int = 8 * MIB,
        interval_s: float = 1_000.0,
        quiet_s: float = math.inf,
        budget_bytes: int = 128 * MIB,
        upload_parallel_max: int = 8,
        commit_bytes_max: int = 4 * MIB,
        express_rate: float | None = None,  # bytes per second; with it, there is an express lane
        lands_all: bool = False,  # also segments of the standard lane land
        traces: Traces = NO_TRACES,
    ) -> None:
        self.store = store or HeldStore()
        self.sequencers = sequencers or LoggingSequencers()
        self.clock = clock or ManualClock()
        self.gateways = RecordingGateways()
        self.recent = RecentSegments(64 * MIB)
        self.budget = Budget(budget_bytes)
        self.registry = CollectorRegistry()
        self.metrics = FlusherMetrics(self.registry)
        new_queue = partial(
            FlushQueue,
            cluster="c",
            zone="z",
            instance="flusher-1",
            store=self.store,
            sequencers=self.sequencers,
            recent=self.recent,
            confirmer=self.gateways,
            clock=self.clock,
            entropy=CountingEntropy(),
            metrics=self.metrics,
            limits=FlushLimits(
                upload_parallel_max=upload_parallel_max, segment_age_max_s=900.0, commit_bytes_max=commit_bytes_max
            ),
            traces=traces,
        )
        self.degraded: dict[str, str] = {}
        landing = partial(Landing, self.store, set_degraded=self.degraded.__setitem__)
        self.flushes = new_queue(landing=landing() if lands_all else None)
        limits = BufferLimits(
            bytes_max=bytes_max, batches_max=1_000, interval_s=interval_s, quiet_s=quiet_s, quiet_under_way_max=0
        )
        self.buffer: ActiveBuffer[Fragment] = ActiveBuffer(limits, TokenBucket(1_000.0))
        self.express: Lane | None = None
        if express_rate is not None:
            express_limits = msgspec.structs.replace(limits, interval_s=0.005)
            express_queue = new_queue(landing=landing(bytes_per_second_max=express_rate))
            self.express = Lane(ActiveBuffer(express_limits, TokenBucket(1_000.0)), express_queue)
        self.intake = Intake(
            standard=Lane(self.buffer, self.flushes),
            express=self.express,
            reassembly=Reassembly(5.0),
            budget=self.budget,
            clock=self.clock,
            metrics=self.metrics,
        )

    async def __aenter__(self) -> "Rig":
        self.flushes_task = asyncio.create_task(self.flushes.run())
        self._tasks = [self.flushes_task, asyncio.create_task(self.intake.run())]
        if self.express is not None:
            self._tasks.append(asyncio.create_task(self.express.flushes.run()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        errors = [end for end in ends if isinstance(end, Exception)]
        if errors:
            raise errors[0]

    async def send(self, *produces: FlushProduce, gateway: str = "g1") -> FakeInbound:
        message = flush_message(*produces, gateway=gateway)
        await self.intake.handle(message)
        return message

    def metric(self, name: str, **labels: str) -> float:
        """A metric of the flusher; 0 if it has no value."""
        return self.registry.get_sample_value(f"penstock_flusher_{name}", labels) or 0.0

    def close_buffer(self) -> None:
        first_s = self.buffer.first_s
        fragments = self.buffer.close(Reason.TIMER, self.clock.monotonic_s())
        self.flushes.submit(fragments, Reason.TIMER, first_s)

    async def send_and_close(self, *produces: FlushProduce) -> FakeInbound:
        message = await self.send(*produces)
        self.close_buffer()
        return message


async def until(condition: object, turns: int = 10_000) -> None:
    """Let other tasks run until the condition holds."""
    for _ in range(turns):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came true")
