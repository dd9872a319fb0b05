"""The nats-server and the services: kept alive and stopped in reverse order; a stuck nats-server is restarted."""

import asyncio
from collections.abc import Callable

from penstock.cli.children import Child, Start, start_process
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.specs import AGENT, Specs
from penstock.runtime.clock import Clock
from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE

SERVICES = ("sequencer", "flusher", "cacher", "gateway")


class Processes:
    """The processes that are necessary to serve clients."""

    def __init__(
        self,
        specs: Specs,
        report: Callable[[str], None],
        *,
        limits: UpLimits = DEFAULT_LIMITS,
        clock: Clock | None = None,
        start: Start = start_process,
    ) -> None:
        """`start` starts the services."""
        self._report = report
        self._limits = limits
        self.nats = Child(specs.nats(), report, limits=limits.children, clock=clock)
        # By kind of process, in start order; they stop in reverse order.
        self.services = {
            kind: [
                Child(spec, report, self.after_death, limits=limits.children, clock=clock, start=start)
                for spec in specs.services(kind)
            ]
            for kind in (("sequencer", AGENT) if specs.count(AGENT) else SERVICES)
            if specs.count(kind)
        }

    @property
    def all(self) -> list[Child]:
        """All processes in start order."""
        return [self.nats, *(child for children in self.services.values() for child in children)]

    async def stop(self) -> None:
        """End the services in reverse order, then the nats-server."""
        grace_s = self._limits.stop_grace_s
        for children in reversed(self.services.values()):
            await asyncio.gather(*(child.stop(grace_s) for child in children))
        await self.nats.stop(grace_s)

    async def after_death(self, code: int) -> None:
        """After the end of a service: restart the nats-server if its exit code reports a stuck journal.

        Several sequencers may report that at once; they cause one restart.
        """
        if code == JOURNAL_STUCK_EXIT_CODE and self.nats.is_settled:
            self._report("the journal accepts no entries; restarting nats-server")
            await self.nats.restart(self._limits.stop_grace_s)
