"""A sequencer without its process: the parts over a bus and a journal, so that tests can run several in one place."""

import asyncio

import structlog

from penstock.contracts.errors import Unavailable
from penstock.objectstore import ObjectStore
from penstock.runtime.bus import Bus
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.journal import Journal
from sequencer.api import Api
from sequencer.archiving import Archiving
from sequencer.chain import Chain
from sequencer.custody import Custody
from sequencer.heartbeats import Heartbeats
from sequencer.members import Members
from sequencer.metrics import SequencerMetrics
from sequencer.proposals import Proposals
from sequencer.replica import Replica
from sequencer.stalls import Stalls
from sequencer.ticker import Ticker

DESCRIBE_RETRY_S = 0.2
CATCH_UP_LOOK_S = 60.0  # how long we wait in one go; a long journal takes several

log = structlog.get_logger()


class Sequencer:
    """One replica with all that it does; `author` is unique to this life.

    Without a `store` it never becomes custodian, so somebody else has to archive the journal and take snapshots.
    """

    def __init__(
        self,
        journal: Journal,
        bus: Bus,
        cluster: str,
        author: str,
        clock: Clock,
        entropy: Entropy,
        metrics: SequencerMetrics,
        store: ObjectStore | None = None,
    ) -> None:
        chain = Chain()
        members = Members()
        self._journal = journal
        self._stalls = Stalls(bus, clock, metrics)
        self._proposals = Proposals(journal, chain, author, clock, metrics, self._stalls)
        self.replica = Replica(journal, bus, cluster, self._proposals, chain, clock, metrics)
        self._ticker = Ticker(self.replica, self._proposals, clock, entropy)
        self.custody = Custody(self.replica, self._proposals, clock, entropy, metrics)
        self._has_store = store is not None
        if store is not None:
            self.custody.add(Archiving(journal, store, cluster, chain, self.custody, clock, metrics).run)
        self._heartbeats = Heartbeats(bus, cluster, members, self.replica, self._proposals, clock)
        self._api = Api(bus, cluster, self.replica, self._proposals, members, clock, metrics, self._stalls)

    async def run(self) -> None:
        """Replay the journal, then answer, until cancelled; `Halted` if the journal cannot be followed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.replica.run())
            await self._catch_up()
            group.create_task(self._stalls.run())
            await self._heartbeats.open()
            group.create_task(self._proposals.run())
            group.create_task(self._ticker.run())
            group.create_task(self._heartbeats.run())
            group.create_task(self._api.run())
            if self._has_store:
                group.create_task(self.custody.run())

    async def until_serving(self) -> None:
        """Return when questions are answered."""
        await self._api.until_serving()

    async def drain(self) -> None:
        """Take nothing new and finish what was taken; `run` goes on meanwhile."""
        await self._heartbeats.close()
        await self._api.drain()

    async def _catch_up(self) -> None:
        """Apply all that the journal held when we came."""
        last_sequence = await self._last_sequence()
        while self.replica.applied_sequence < last_sequence:
            try:
                await self.replica.until_applied(last_sequence, CATCH_UP_LOOK_S)
            except Unavailable:
                log.info("replay_goes_on", applied=self.replica.applied_sequence, last=last_sequence)
        log.info("caught_up", sequence=last_sequence)

    async def _last_sequence(self) -> int:
        while True:
            try:
                return (await self._journal.describe()).last_sequence
            except Unavailable as error:
                log.warning("journal_not_described", error=str(error))
                await asyncio.sleep(DESCRIBE_RETRY_S)
