"""Makes one replica the custodian: it takes the lease, renews it, and runs the custodian's workers while it has it."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from penstock.contracts.commands import RecordArchived, RecordSnapshot, Rejected, ReleaseCustody, TakeCustody
from penstock.contracts.errors import Unavailable
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.nats.cancellation import honest_cancellation
from penstock_sequencer.custodian.lease import CUSTODY_LIMITS, CustodyLimits, Lease
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.replica import Replica

Worker = Callable[[], Awaitable[None]]

log = structlog.get_logger()


class _CustodyLost(Exception):
    """Custody is lost, so the custodian's work ends."""


class Custody:
    """This replica's attempts to be custodian; `run` runs every worker while it is."""

    def __init__(
        self,
        *,
        replica: Replica,
        proposer: Proposer,
        clock: Clock,
        entropy: Entropy,
        metrics: SequencerMetrics,
        limits: CustodyLimits = CUSTODY_LIMITS,
    ) -> None:
        self._replica = replica
        self._proposer = proposer
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._limits = limits
        self._workers: list[Worker] = []
        self._lease = Lease(proposer.author)
        self._is_leaving = False
        self._fruitless_s = 0.0  # time as custodian without progress although there are entries to archive

    def add(self, worker: Worker) -> None:
        """Add a worker, which starts when this replica becomes custodian and is cancelled when it no longer is.

        A worker never ends by itself. It catches failures that it can retry. It checks `is_ours` after every wait, and
        before each effect that other processes can see.
        """
        self._workers.append(worker)

    @property
    def is_ours(self) -> bool:
        """Whether this replica is custodian, as far as is known; false after a stall that outlasted the lease."""
        if self._is_leaving:
            return False
        return self._lease.is_ours(self._replica.state, self._clock.monotonic_s(), self._now_ms())

    def made_progress(self) -> None:
        """Record that something was archived, so this replica works well as custodian."""
        self._fruitless_s = 0.0

    async def record_archived(self, sequence: int) -> bool:
        """Journal that all entries up to `sequence` are archived; false if custody is lost, so nothing was recorded.

        `Unavailable`: it is unknown whether it is recorded; a second record does no harm.
        """
        return await self._propose(RecordArchived(self._clock.now_ms(), self._proposer.author, sequence))

    async def record_snapshot(self, sequence: int) -> bool:
        """Journal that the snapshot taken after entry `sequence` is stored and verified; else as `record_archived`."""
        return await self._propose(RecordSnapshot(self._clock.now_ms(), self._proposer.author, sequence))

    async def run(self) -> None:
        """Be custodian whenever no other replica is, until cancelled; a worker's failure ends it."""
        while True:
            await self._until_ours()
            with honest_cancellation():  # a task group that is ending swallows a cancellation
                await self._work_until_lost()
            if self._is_fruitless:
                log.warning("custody_paused", back_off_s=self._limits.back_off_s)
                await asyncio.sleep(self._limits.back_off_s)

    async def _work_until_lost(self) -> None:
        """Run the workers until custody is lost, and return when all of them have ended."""
        log.info("custody_taken")
        self._metrics.custodian.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(_work(worker))
                await self._keep()
                raise _CustodyLost
        except* _CustodyLost:
            log.warning("custody_lost", holder=self._replica.state.custody.holder)
        finally:
            self._metrics.custodian.set(0)

    async def release(self) -> None:
        """Stop being custodian, and journal that if it succeeds soon."""
        self._is_leaving = True
        if not self._lease.is_held(self._replica.state):
            return
        try:
            async with asyncio.timeout(self._limits.release_deadline_s):
                await self._propose(ReleaseCustody(self._clock.now_ms(), self._proposer.author))
        except (Unavailable, TimeoutError) as error:
            log.warning("custody_not_released", error=str(error))

    async def _until_ours(self) -> None:
        while not self.is_ours:
            await asyncio.sleep(self._limits.look_interval_s)
            if self._is_free():
                await asyncio.sleep(self._entropy.take(1)[0] / 256 * self._limits.take_jitter_s)
                if self._is_free():
                    await self._take()

    def _is_free(self) -> bool:
        return not self._is_leaving and self._lease.is_free(self._replica.state, self._clock.monotonic_s())

    async def _keep(self) -> None:
        """Return when custody is lost. Without progress it is not renewed, so that another replica can take it."""
        self._fruitless_s = 0.0
        while self.is_ours:
            if not self._is_fruitless and self._is_renewal_due():
                await self._take()
            await asyncio.sleep(self._limits.look_interval_s)
            # Counted per look, so that the time of a stall does not count.
            self._fruitless_s += self._limits.look_interval_s
            if self._replica.worked_sequence <= self._replica.state.custody.archived_sequence:
                self._fruitless_s = 0.0

    def _is_renewal_due(self) -> bool:
        return self._lease.is_renewal_due(self._replica.state, self._clock.monotonic_s(), self._now_ms())

    @property
    def _is_fruitless(self) -> bool:
        return self._fruitless_s >= self._limits.fruitless_s_max

    async def _take(self) -> None:
        dead_until_ms = self._lease.dead_until_ms(self._replica.state, self._clock.monotonic_s())
        try:
            await self._propose(TakeCustody(self._clock.now_ms(), self._proposer.author, dead_until_ms))
        except Unavailable as error:
            log.warning("custody_not_journaled", error=str(error))

    async def _propose(self, command: TakeCustody | RecordArchived | RecordSnapshot | ReleaseCustody) -> bool:
        asked_s = self._clock.monotonic_s()
        _, (outcome,) = await self._proposer.propose([command])
        if isinstance(outcome, Rejected):
            log.info("custody_rejected", command=type(command).__name__, reason=outcome.message)
            return False
        self._lease.record_renewed(asked_s)
        return True

    def _now_ms(self) -> int:
        """The machine's clock, or this process's clock if it is ahead: the next Tick sets the machine's to that."""
        return max(self._clock.now_ms(), self._replica.state.clock_ms)


async def _work(worker: Worker) -> None:
    await worker()
    raise AssertionError(f"{worker} ended by itself")
