"""Custody as one replica has it: it tries to become custodian, keeps the lease, and does the work while that lasts."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from penstock.contracts.commands import RecordArchived, RecordSnapshot, Rejected, ReleaseCustody, TakeCustody
from penstock.contracts.errors import Unavailable
from penstock.contracts.levels import COMMAND_LEVELS
from penstock.runtime.clock import Clock, Entropy
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.proposer import Proposals
from penstock_sequencer.replication.replica import Replica

LOOK_INTERVAL_S = 0.25
RENEW_MS = CUSTODY_LEASE_MS // 2  # left of the lease when it is renewed; what the custodian notes renews it, too
LEASE_S = CUSTODY_LEASE_MS / 1000
# A lease unchanged for so long is dead, whatever the machine's clock says: its holder counts from before it asked.
DEAD_AFTER_S = 1.5 * LEASE_S
RELEASE_DEADLINE_S = 2.0  # of a drain; without it the others wait for the lease to be over
FRUITLESS_S_MAX = 60.0  # without progress; then another replica shall try
BACK_OFF_S = 60.0  # of one that made no progress, longer than others need to see that the lease is free
TAKE_JITTER_S = 1.0  # spread over replicas by lot, so that mostly one of them asks for a lease that became free

Worker = Callable[[], Awaitable[None]]

log = structlog.get_logger()


class _CustodyLost(Exception):
    """Ends the custodian's work."""


class Custody:
    """Whether this replica is custodian; `run` keeps trying, and runs every worker while it is."""

    def __init__(
        self, replica: Replica, proposals: Proposals, clock: Clock, entropy: Entropy, metrics: SequencerMetrics
    ) -> None:
        self._replica = replica
        self._proposals = proposals
        self._clock = clock
        self._entropy = entropy
        self._metrics = metrics
        self._workers: list[Worker] = []
        self._renewed_s = -LEASE_S  # when we asked for what renewed our lease last
        self._seen = ("", 0)  # the lease, and since when we have seen it like this
        self._seen_since_s = 0.0
        self._is_leaving = False
        self._fruitless_s = 0.0  # how long we have been custodian without progress though there is something to archive

    def add(self, worker: Worker) -> None:
        """Work that is begun whenever custody becomes ours and cancelled when it is lost; it never ends by itself.

        A worker contains what it can try again, and asks `is_ours` after every wait and before what others can see.
        """
        self._workers.append(worker)

    @property
    def is_ours(self) -> bool:
        """Whether we are custodian, as far as we know; false when we wake from a stall that outlasted the lease.

        That by our own clock, too: the machine's may be far ahead of all that there are, and stand still.
        """
        custody = self._replica.state.custody
        if self._is_leaving or custody.holder != self._proposals.author:
            return False
        return self._now_ms() < custody.until_ms and self._clock.monotonic_s() - self._renewed_s < LEASE_S

    def made_progress(self) -> None:
        """Something was archived, so this replica does well as custodian."""
        self._fruitless_s = 0.0

    async def record_archived(self, sequence: int) -> bool:
        """Journal that all entries up to `sequence` are archived; false if custody is lost, so nothing was noted.

        `Unavailable`: it is unknown whether it is noted; noted again it does no harm.
        """
        return await self._propose(RecordArchived(self._clock.now_ms(), self._proposals.author, sequence))

    async def record_snapshot(self, sequence: int) -> bool:
        """Journal that the snapshot taken after entry `sequence` is stored and verified; else as `record_archived`."""
        return await self._propose(RecordSnapshot(self._clock.now_ms(), self._proposals.author, sequence))

    async def run(self) -> None:
        """Be custodian whenever nobody else is, until cancelled; ends with the first worker that fails."""
        while True:
            await self._until_ours()
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
            if self._is_fruitless:
                log.warning("custody_left_to_others", back_off_s=BACK_OFF_S)
                await asyncio.sleep(BACK_OFF_S)

    async def release(self) -> None:
        """Be custodian no longer, and let the others know, if that can be done soon."""
        self._is_leaving = True
        if self._replica.state.custody.holder != self._proposals.author:
            return
        try:
            async with asyncio.timeout(RELEASE_DEADLINE_S):
                await self._propose(ReleaseCustody(self._clock.now_ms(), self._proposals.author))
        except (Unavailable, TimeoutError) as error:
            log.warning("custody_not_released", error=str(error))

    async def _until_ours(self) -> None:
        while not self.is_ours:
            await asyncio.sleep(LOOK_INTERVAL_S)
            if self._is_free():
                await asyncio.sleep(self._entropy.take(1)[0] / 256 * TAKE_JITTER_S)
                if self._is_free():
                    await self._take()

    def _is_free(self) -> bool:
        """Whether the journal would give us the lease, as far as we know."""
        state = self._replica.state
        if self._is_leaving or state.level < COMMAND_LEVELS[TakeCustody]:
            return False
        if state.custody.holder in ("", self._proposals.author) or state.clock_ms >= state.custody.until_ms:
            return True
        return self._is_dead()

    def _is_dead(self) -> bool:
        """Whether the lease, as we see it, has not changed for so long that its holder does not count on it."""
        custody = self._replica.state.custody
        if self._seen != (custody.holder, custody.until_ms):
            self._seen, self._seen_since_s = (custody.holder, custody.until_ms), self._clock.monotonic_s()
        return self._clock.monotonic_s() - self._seen_since_s >= DEAD_AFTER_S

    async def _keep(self) -> None:
        """Return when custody is lost; without progress we do not renew it, so that another replica gets its turn."""
        self._fruitless_s = 0.0
        while self.is_ours:
            if not self._is_fruitless and self._is_renewal_due():
                await self._take()
            await asyncio.sleep(LOOK_INTERVAL_S)
            self._fruitless_s += LOOK_INTERVAL_S  # by looks, so that a process that stood still is not blamed for it
            if self._replica.worked_sequence <= self._replica.state.custody.archived_sequence:
                self._fruitless_s = 0.0

    def _is_renewal_due(self) -> bool:
        left_ms = self._replica.state.custody.until_ms - self._now_ms()
        return left_ms <= RENEW_MS or self._clock.monotonic_s() - self._renewed_s >= LEASE_S - RENEW_MS / 1000

    @property
    def _is_fruitless(self) -> bool:
        return self._fruitless_s >= FRUITLESS_S_MAX

    async def _take(self) -> None:
        dead_until_ms = self._seen[1] if self._is_dead() else -1
        try:
            await self._propose(TakeCustody(self._clock.now_ms(), self._proposals.author, dead_until_ms))
        except Unavailable as error:
            log.warning("custody_not_journaled", error=str(error))

    async def _propose(self, command: TakeCustody | RecordArchived | RecordSnapshot | ReleaseCustody) -> bool:
        asked_s = self._clock.monotonic_s()
        _, (outcome,) = await self._proposals.propose([command])
        if isinstance(outcome, Rejected):
            log.info("custody_refused", command=type(command).__name__, reason=outcome.message)
            return False
        self._renewed_s = max(self._renewed_s, asked_s)
        return True

    def _now_ms(self) -> int:
        """The machine's clock, or ours if that is ahead: it will be the machine's with the next Tick."""
        return max(self._clock.now_ms(), self._replica.state.clock_ms)


async def _work(worker: Worker) -> None:
    await worker()
    raise AssertionError(f"{worker} ended by itself")
