"""The host of a simulated process: clock and connection in place of the real ones."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.contracts.subjects import journal_stream
from penstock.runtime.bus.bus import Bus
from penstock.runtime.journal import Journal
from penstock.runtime.process.host import HostLimits, ServiceHost
from penstock.runtime.process.shared_host import SharedHost
from tests.testkit.fakes.memory_bus import MemoryBus
from tests.testkit.sim.environment.bus import SimHub
from tests.testkit.sim.environment.journal import Reach, SimJournal, SimJournalStore
from tests.testkit.sim.environment.loop import Timeline
from tests.testkit.sim.environment.wire import START_MS

NO_OTHERS: Mapping[str, SimJournalStore] = {}


class SimClock:
    """`Clock` of one process: all processes share the monotonic time, the wall clock is wrong by `skew_ms`."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + int(self._timeline.now_s * 1000) + self.skew_ms

    def monotonic_s(self) -> float:
        return self._timeline.now_s


class BusReach(Reach):
    """The reach of the journal over the connection of one life of a process."""

    def __init__(self, hub: SimHub, name: str, journal_server: Callable[[], int]) -> None:
        self._hub = hub
        self._name = name
        self._journal_server = journal_server

    def is_whole(self) -> bool:
        return self._hub.reaches(self._name, self._journal_server())

    def generation(self) -> int:
        return self._hub.generation(self._name)


class SimConnection:
    """One connection to the simulated nats servers, in place of `NatsConnection`."""

    def __init__(
        self, bus: MemoryBus, journal: SimJournalStore, reach: Reach, others: Mapping[str, SimJournalStore] = NO_OTHERS
    ) -> None:
        """`others` are the journals of clusters beside the usual one, by name."""
        self.bus: Bus = bus
        self._store = journal
        self._others = others
        self._reach = reach
        self._name = bus.name

    async def journal(self, cluster: str, *, create: bool, replicas: int = 1) -> Journal:
        """A handle on the journal of the cluster."""
        store = self._others.get(cluster, self._store)
        opened = SimJournal(store, self._name, self._reach)
        if create and not store.exists:
            await opened.create()
        await opened.describe()
        return opened

    async def delete_stream(self, name: str) -> None:
        """Delete the journal with that stream."""
        for cluster, store in self._others.items():
            if journal_stream(cluster) == name:
                await SimJournal(store, self._name, self._reach).delete()

    async def close(self) -> None:
        await self.bus.close()


class _NoHttp:
    """Health and metrics without a server."""

    address = "simulated:0"

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


class HostMaker:
    """Makes the hosts of one life of a simulated process; only connections to the outside are replaced."""

    def __init__(self, connection: SimConnection, limits: HostLimits) -> None:
        self._connection = connection
        self._settings: dict[str, Any] = {"limits": limits}

    def __call__(self, *arguments: Any, **settings: Any) -> ServiceHost:
        """The host of a process with one role."""
        return ServiceHost(*arguments, connect=self._connect, make_http=_make_http, **self._settings, **settings)

    def share(self, instance: str) -> Callable[[str], Callable[..., ServiceHost]]:
        """Makes for each role of a process what makes its host."""
        return self.shared(instance).host_maker

    def shared(self, instance: str, **settings: Any) -> SharedHost:
        """The host of a process with several roles or clusters."""
        parts: dict[str, Any] = {"connect": self._connect, "make_http": _make_http, "host_settings": self._settings}
        return SharedHost(instance, **parts, **settings)

    async def _connect(self, _url: str, **_: Any) -> SimConnection:
        return self._connection


def _make_http(*_: Any, **__: Any) -> _NoHttp:
    return _NoHttp()
