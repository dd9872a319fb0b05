"""The waiting time of a record in a flusher, in virtual time: a real flusher over a store with given waits.

So the figures do not depend on the load of this machine.
"""

import asyncio
import itertools
import random
import statistics
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from prometheus_client import CollectorRegistry

from benches.report import Result
from benches.slow_store import Waits
from penstock.contracts import subjects
from penstock.contracts.batches import BatchMeta, BatchResult
from penstock.contracts.codec import Buffer, decode, encode, encode_with_payload
from penstock.contracts.commands import CommandReply, CommandRequest, CommitSegment, Outcome, SegmentCommitted
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushRequest
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_flusher.app import Flusher
from penstock_flusher.config import FlusherConfig
from penstock_flusher.metrics import FlusherMetrics
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub
from tests.testkit.fakes.virtual_time import CountingEntropy, VirtualClock, VirtualLoop

CLUSTER, ZONE, INSTANCE = "bench", "z1", "flusher-1"
TOPIC = bytes(16)
BATCH_BYTES = 1_024
COMMIT_S = 0.002  # the budget in docs/design.md for the median
ANSWER_TIMEOUT_S = 60.0
STALL_S = 2.0
Store = tuple[tuple[float, float], float]  # median and 99th percentile of its PUTs in ms, and the share that stalls
STORES: dict[str, Store] = {
    "a store of 5 ms": ((5, 5.1), 0.0),
    "a store like S3": ((60, 250), 0.0),
    "a store with one stall in 200": ((60, 250), 0.005),
}
BUDGETS_MS = {("a store like S3", 250): (250, 500), ("a store like S3", 50): (150, 350)}  # of the whole path
FOLDER_MS = (2, 8)  # median and 99th percentile of a PUT of a small segment into a folder
# Name, largest number of requests in flight, and the time that the producer takes for one.
LOCAL_LOADS = (
    ("five in flight, 0.3 ms each", 5, 0.0003),
    ("20 in flight, 0.1 ms each", 20, 0.0001),
    ("a request each 5 ms", 5, 0.005),
    ("a request each 50 ms", 5, 0.05),
)
INTERVALS_S = (0.05, 0.005)
HEDGE_SHARES = (0.0, 0.05)


class SlowStore(MemoryStore):
    """A store in memory whose puts wait. It stands for the stores of all addresses."""

    def __init__(self, waits: Waits, stall_share: float) -> None:
        super().__init__()
        self.puts = 0
        self._waits = waits
        self._stall_share = stall_share
        self._dice = random.Random(3)

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        self.puts += 1
        stalls = self._dice.random() < self._stall_share
        await asyncio.sleep(STALL_S if stalls else self._waits.draw_s())
        return await super().put(key, body, if_match=if_match)


async def _commit(clock: VirtualClock, inbound: Inbound) -> None:
    """A sequencer that accepts every commit."""
    await asyncio.sleep(COMMIT_S)
    outcomes: list[Outcome] = []
    for command in decode(inbound.data, CommandRequest).commands:
        assert isinstance(command, CommitSegment)
        outcomes.append(SegmentCommitted([[BatchResult(0, 0, 0)] * len(run.batches) for run in command.runs]))
    await inbound.respond(encode(CommandReply(1, outcomes, clock_ms=clock.now_ms())))


async def _request(bus: MemoryBus, number: int) -> None:
    batch = FlushBatch(TOPIC, 0, BatchMeta(BATCH_BYTES, 1, 0, -1, -1, -1, 0))
    request = FlushRequest("gateway", [FlushProduce(number, 0, 1, [batch])])
    subject = subjects.flush(CLUSTER, ZONE, INSTANCE)
    await bus.request(subject, encode_with_payload(request, [bytes(BATCH_BYTES)]), ANSWER_TIMEOUT_S)


async def _run(
    store_as: Store, flush_ms: int, interval_s: float, share: float, records: int
) -> tuple[list[float], float]:
    """The times of all records from arrival to answer, in ms, and the PUTs per second."""
    hub = MemoryHub()
    writes_ms, stall_share = store_as
    store, clock = SlowStore(Waits(*writes_ms, seed=2), stall_share), VirtualClock()
    flusher = _flusher(hub, store, clock, "s3://bench", flush_interval_ms=flush_ms, put_hedge_share=share)
    commands = subjects.sequencer_command(CLUSTER, subjects.Sender.FLUSHER)
    await hub.connect("sequencer").subscribe(commands, partial(_commit, clock))
    await flusher.open()
    bus, dice, times = hub.connect("gateway"), random.Random(1), list[float]()

    async def send(number: int) -> None:
        began_s = clock.monotonic_s()
        await _request(bus, number)
        times.append((clock.monotonic_s() - began_s) * 1000)

    working = asyncio.create_task(flusher.run())
    began_s = clock.monotonic_s()
    async with asyncio.TaskGroup() as sending:
        for number in range(records):
            sending.create_task(send(number))
            await asyncio.sleep(interval_s * dice.uniform(0.9, 1.1))
    elapsed_s = clock.monotonic_s() - began_s
    working.cancel()
    await asyncio.wait([working])
    return times, store.puts / elapsed_s


def _flusher(hub: MemoryHub, store: SlowStore, clock: VirtualClock, store_url: str, **settings: float) -> Flusher:
    where = {"cluster": CLUSTER, "zone": ZONE, "instance": INSTANCE, "store_url": store_url}
    bus = hub.connect("flusher")
    return Flusher(
        config=msgspec.convert(where | settings, FlusherConfig),
        bus=bus,
        sequencers=SequencerClient(bus, CLUSTER, clock, sender=subjects.Sender.FLUSHER),
        store=store,
        clock=clock,
        entropy=CountingEntropy(),
        metrics=FlusherMetrics(CollectorRegistry()),
    )


def waits(records: int) -> Iterator[Result]:
    """Arrival to answer for stores and flush intervals, with and without hedges; without the rest of the path."""
    for (store, store_as), flush_ms in itertools.product(STORES.items(), (250, 50)):
        for interval_s, share in itertools.product(INTERVALS_S, HEDGE_SHARES):
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                times, puts = runner.run(_run(store_as, flush_ms, interval_s, share, records))
            times.sort()
            p50, p99 = BUDGETS_MS.get((store, flush_ms), (None, None))
            name = f"{store}, flush {flush_ms} ms, a record each {interval_s * 1000:.0f} ms, {share:.0%} hedges"
            yield Result("flush-times", f"{name}, p50", statistics.median(times), "ms", p50)
            yield Result("flush-times", f"{name}, p99", times[int(len(times) * 0.99) - 1], "ms", p99)
            yield Result("flush-times", f"{name}: PUTs", puts, "per s")


async def _run_local(depth: int, period_s: float, requests: int) -> tuple[list[float], float, float]:
    """The times of requests to a flusher over a folder, in ms. Then its requests and its PUTs per second.

    One producer has at most `depth` requests in flight, and takes `period_s` for each.
    """
    hub = MemoryHub()
    store, clock = SlowStore(Waits(*FOLDER_MS, seed=2), 0.0), VirtualClock()
    flusher = _flusher(hub, store, clock, "file:///bench")
    commands = subjects.sequencer_command(CLUSTER, subjects.Sender.FLUSHER)
    await hub.connect("sequencer").subscribe(commands, partial(_commit, clock))
    await flusher.open()
    bus, dice, times = hub.connect("gateway"), random.Random(1), list[float]()
    places = asyncio.Semaphore(depth)

    async def send(number: int, due_s: float) -> None:
        await _request(bus, number)
        times.append((clock.monotonic_s() - due_s) * 1000)
        places.release()

    working = asyncio.create_task(flusher.run())
    began_s = clock.monotonic_s()
    async with asyncio.TaskGroup() as sending:
        for number in range(requests):
            await asyncio.sleep(period_s * dice.uniform(0.5, 1.5))
            due_s = clock.monotonic_s()
            await places.acquire()
            sending.create_task(send(number, due_s))
    elapsed_s = clock.monotonic_s() - began_s
    working.cancel()
    await asyncio.wait([working])
    return times, requests / elapsed_s, store.puts / elapsed_s


def local_waits(requests: int) -> Iterator[Result]:
    """The same over a folder, for one producer that sends as fast as it is answered, and at steady rates."""
    for name, depth, period_s in LOCAL_LOADS:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            times, rate, puts = runner.run(_run_local(depth, period_s, requests))
        times.sort()
        name = f"a folder of {FOLDER_MS[0]} ms, {name}"
        yield Result("flush-times", f"{name}, p50", statistics.median(times), "ms")
        yield Result("flush-times", f"{name}, p99", times[int(len(times) * 0.99) - 1], "ms")
        yield Result("flush-times", f"{name}: requests", rate, "per s", more_is_better=True)
        yield Result("flush-times", f"{name}: PUTs", puts, "per s")
