"""A replica that was stalled executes nothing that its senders gave up since."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from penstock.contracts import subjects
from penstock.contracts.commands import CommitOffsets, OffsetToCommit
from penstock.contracts.errors import Unavailable
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.stall_detector import STALL_LIMITS, VOID, StallDetector
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import CLUSTER, FreezingClock, Running, SequencerRig, rig

STALL_S = STALL_LIMITS.stall_s


class SlowBus(MemoryBus):
    """Messages that wait in the socket arrive before the echo; the test sends the echo."""

    def __init__(self) -> None:
        super().__init__(MemoryHub(), "me")
        self.echoes: asyncio.Queue[Unavailable | None] = asyncio.Queue()

    async def flush(self) -> None:
        error = await self.echoes.get()
        if error is not None:
            raise error


class StallRig:
    """The stalls of a process that the test stops."""

    def __init__(self) -> None:
        self.bus = SlowBus()
        self.clock = FreezingClock()
        self.registry = CollectorRegistry()
        self.stalls = StallDetector(bus=self.bus, clock=self.clock, metrics=SequencerMetrics(self.registry))

    @property
    def count(self) -> float | None:
        return self.registry.get_sample_value("penstock_sequencer_stalls_total")

    async def stall(self, duration_s: float) -> None:
        self.clock.freeze()
        await asyncio.sleep(duration_s)
        self.clock.thaw()

    async def until_settled(self) -> None:
        async with asyncio.timeout(5):
            while self.stalls.ticket_in() == VOID:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def stall_rig() -> AsyncIterator[StallRig]:
    built = StallRig()
    task = asyncio.create_task(built.stalls.run())
    await asyncio.sleep(10)
    yield built
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_without_a_stall_a_ticket_stays_good() -> None:
    async with stall_rig() as one:
        ticket = one.stalls.ticket_in()
        await one.stall(0.7 * STALL_S)
        await asyncio.sleep(3_600)
        assert one.stalls.is_good(ticket)
        assert one.count == 0


@in_virtual_time
async def test_without_commands_the_time_is_read_often_enough_to_find_any_stall() -> None:
    async with stall_rig() as one:
        await asyncio.sleep(3_600)
        assert one.count == 0
        await one.stall(STALL_LIMITS.stall_s + 0.01)
        assert one.stalls.ticket_in() == VOID
        assert one.count == 1


@in_virtual_time
async def test_the_first_reading_finds_the_stall_and_earlier_tickets_are_void() -> None:
    async with stall_rig() as one:
        ticket = one.stalls.ticket_in()
        await one.stall(2 * STALL_S)
        assert not one.stalls.is_good(ticket)
        assert one.count == 1


@in_virtual_time
async def test_commands_before_the_echo_are_void_and_the_process_own_ones_are_not() -> None:
    async with stall_rig() as one:
        await one.stall(60)
        own = one.stalls.ticket()
        for _ in range(100):
            assert one.stalls.ticket_in() == VOID
            await asyncio.sleep(0.1)
        one.bus.echoes.put_nowait(None)
        await one.until_settled()
        assert one.stalls.is_good(own)
        assert one.count == 1


@in_virtual_time
async def test_without_an_echo_another_is_asked_for() -> None:
    async with stall_rig() as one:
        await one.stall(60)
        one.bus.echoes.put_nowait(Unavailable("the connection broke"))
        await asyncio.sleep(5)
        assert one.stalls.ticket_in() == VOID
        one.bus.echoes.put_nowait(None)
        await one.until_settled()


@in_virtual_time
async def test_the_echo_of_one_stall_does_not_settle_the_next() -> None:
    async with stall_rig() as one:
        await one.stall(60)
        await asyncio.sleep(1)
        await one.stall(60)
        one.bus.echoes.put_nowait(None)
        await asyncio.sleep(5)
        assert one.stalls.ticket_in() == VOID
        one.bus.echoes.put_nowait(None)
        await one.until_settled()
        assert one.count == 2


class Stopped:
    """A replica that reads nothing from its socket, and for which no time passes."""

    def __init__(self, running: Running) -> None:
        self._running = running
        running.gate.close_gate()
        running.clock.freeze()

    @property
    def commands(self) -> int:
        """How many requests with commands it has read since it was stopped."""
        return self._running.gate.arrived.count(subjects.sequencer_command(CLUSTER, subjects.Sender.CLIENT))

    def resume(self) -> None:
        self._running.clock.thaw()
        self._running.gate.open_gate()


def committing(both: SequencerRig, offset: int) -> CommitOffsets:
    return CommitOffsets(both.clock.now_ms(), "g", -1, "", None, [OffsetToCommit("t", 0, offset, -1, "")])


@in_virtual_time
async def test_a_replica_that_was_stopped_does_not_move_offsets_back() -> None:
    async with rig("a", "b") as both:
        await both.client.command([both.create_topic("t")], deadline_s=5)
        stopped = Stopped(both.running["a"])
        while not stopped.commands:
            await both.client.command([committing(both, 100)], deadline_s=30)
        await both.running["b"].sequencer.proposer.propose([committing(both, 200)])
        await asyncio.sleep(60)
        stopped.resume()
        await asyncio.sleep(5)
        for running in both.running.values():
            assert running.sequencer.replica.state.groups["g"].offsets["t"][0].offset == 200
        assert (
            both.running["a"].registry.get_sample_value(
                "penstock_sequencer_requests_total", {"name": "command", "result": "failed"}
            )
            == stopped.commands
        )


@in_virtual_time
async def test_a_replica_that_was_stopped_serves_again() -> None:
    async with rig("a") as one:
        stopped = Stopped(one.running["a"])
        asked = asyncio.create_task(one.client.command([one.create_topic("t")], deadline_s=90))
        await asyncio.sleep(60)
        stopped.resume()
        started_s = one.clock.monotonic_s()
        await asked
        assert one.clock.monotonic_s() - started_s < 1
