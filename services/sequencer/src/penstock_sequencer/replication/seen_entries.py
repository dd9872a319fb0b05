"""Checks that the journal has the entries that other services have seen; halts if it has lost them.

All sequencers may start with a journal from an older backup. If it ends behind its archive, they halt at once. The
archive is some seconds late, so the journal may end between the two. Then only other services know the entries that are
missing: each request and each presence names the newest entry that its sender has seen. A replica must not answer such
a sender from the older state. Nor must it append to the journal: another entry in that place would look the same. So it
asks all live services before its first entry.

An entry that a service has seen was applied by a replica, so the journal had it. A replica may be behind the journal. A
server of a cluster may be out of date for a moment (runtime/nats/loss.py). Neither is a loss.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from penstock.contracts.errors import PenstockError, Unavailable, Undelivered
from penstock.runtime.journal import Journal, JournalLost
from penstock.runtime.nats.loss import LossDetector
from penstock_sequencer.replication.halt import REMEDY, Halted
from penstock_sequencer.replication.proposer import Proposer
from penstock_sequencer.replication.read_index import ReadIndex
from penstock_sequencer.replication.replica import Replica

log = structlog.get_logger()


class SeenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a replica asks the journal about an entry that it has not applied."""

    behind_s: float = 0.2  # a replica is usually some milliseconds behind
    look_interval_s: float = 0.5  # between two looks at a journal that may have lost entries
    recorded_s: float = 1.0  # one wait for an entry of a presence


SEEN_LIMITS = SeenLimits()


class SeenEntries:
    """Waits for entries that senders have seen, and watches the journal if it ends before one of them."""

    def __init__(
        self,
        *,
        journal: Journal,
        replica: Replica,
        proposer: Proposer,
        read_index: ReadIndex,
        record_lost: Callable[[int], Awaitable[None]],
        limits: SeenLimits = SEEN_LIMITS,
    ) -> None:
        """`record_lost` gets the newest entry that is lost, before the replica halts."""
        self._journal = journal
        self._replica = replica
        self._proposer = proposer
        self._read_index = read_index
        self._record_lost = record_lost
        self._limits = limits
        self._missing = 0  # the newest entry that a sender has seen and the journal did not have
        self._is_suspected = asyncio.Event()
        self._recorded = 0  # the newest entry in any presence
        self._is_recorded = asyncio.Event()

    def record(self, sequence: int) -> None:
        """Let `run` check that the journal has an entry, which another service has seen."""
        self._recorded = max(self._recorded, sequence)
        if self._recorded > self._replica.applied_sequence:
            self._is_recorded.set()

    async def until_recorded_applied(self) -> None:
        """Return when the state includes all recorded entries; never if the journal has lost one, and `run` halts."""
        while self._replica.applied_sequence < self._recorded:
            with contextlib.suppress(Unavailable):
                await self.until_applied(self._recorded, self._limits.recorded_s)

    async def until_applied(self, sequence: int, timeout_s: float) -> None:
        """Return when the state includes an entry that a sender has seen; `Unavailable` after the timeout."""
        soon_s = min(self._limits.behind_s, timeout_s)
        with contextlib.suppress(Unavailable):
            await self._replica.until_applied(sequence, soon_s)
        if self._replica.applied_sequence >= sequence:
            return
        last_sequence = await self._read_index.ask(timeout_s)
        if last_sequence < sequence:
            self._suspect(sequence, last_sequence)
            raise Undelivered(f"a sender has seen journal entry {sequence}, but the journal ends at {last_sequence}")
        await self._replica.until_applied(sequence, timeout_s - soon_s)

    def _suspect(self, sequence: int, last_sequence: int) -> None:
        self._missing = max(self._missing, sequence)
        self._proposer.suspend(f"the journal ends at {last_sequence}, before entry {self._missing}, which was seen")
        self._is_suspected.set()

    async def run(self) -> None:
        """Watch until cancelled; `Halted` when the loss of entries is proven."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_recorded())
            group.create_task(self._watch())

    async def _check_recorded(self) -> None:
        while True:
            await self._is_recorded.wait()
            self._is_recorded.clear()
            await self.until_recorded_applied()

    async def _watch(self) -> None:
        while True:
            await self._is_suspected.wait()
            await self._until_found()
            self._missing = 0
            self._is_suspected.clear()
            self._proposer.resume()

    async def _until_found(self) -> None:
        replicas = 1
        detector = LossDetector(lambda: replicas > 1)
        while True:
            try:
                info = await self._journal.describe()
                replicas = info.replicas
                with detector.observe():
                    if info.last_sequence < self._missing:
                        raise JournalLost(
                            f"the journal ends at entry {info.last_sequence}, but another service has seen entry "
                            f"{self._missing}"
                        )
                return
            except JournalLost as loss:
                await self._record()
                raise Halted(f"the sequencer halted: {loss}. {REMEDY}") from loss
            except Unavailable:
                await asyncio.sleep(self._limits.look_interval_s)

    async def _record(self) -> None:
        try:
            await self._record_lost(self._missing)
        except PenstockError as error:  # also a store that denies the note: the reason of the halt is the loss
            log.warning("lost_entry_not_recorded", entry=self._missing, error=str(error))
