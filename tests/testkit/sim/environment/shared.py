"""The shared environment of all simulated processes: time, randomness, trace, wires, failures."""

import random
from collections.abc import Callable
from typing import Any

from tests.testkit.sim.environment.bus import SimHub
from tests.testkit.sim.environment.chance import Chance, SimEntropy
from tests.testkit.sim.environment.journal import OtherJournalStore, SimJournalStore
from tests.testkit.sim.environment.loop import SimLoop, Timeline
from tests.testkit.sim.environment.sockets import Network
from tests.testkit.sim.environment.store import StoreServer
from tests.testkit.sim.environment.trace import Trace
from tests.testkit.sim.environment.wire import Latency, Wire

BUS_LATENCY = Latency(0.0004, 0.02, 0.02)
STORE_LATENCY = Latency(0.005, 0.2, 0.05)
NEIGHBOUR = "neighbour"  # the name of the second virtual cluster, in runs that have one
SOCKET_LATENCY = Latency(0.0005, 0.05, 0.02)


class SharedEnvironment:
    """One simulated world, without its processes."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.chance = Chance(seed)
        self.trace = Trace(keep_trace)
        self.timeline = Timeline()
        self.failures: list[str] = []
        self.infrastructure = SimLoop(self.timeline, "infrastructure", self._exception)
        self.hub = SimHub(self._wire("bus", BUS_LATENCY), self.record)
        self.journal = SimJournalStore(self._wire("journal", BUS_LATENCY))
        self.store = StoreServer(self._wire("store", STORE_LATENCY), self.record)
        self.on_halt: Callable[[str, str], None] = lambda process, life: None
        self.network = Network(self._wire("sockets", SOCKET_LATENCY))
        self.journals: dict[str, SimJournalStore] = {}  # of other clusters, by their names
        self._journal_server = 0

    def _wire(self, name: str, latency: Latency) -> Wire:
        return Wire(self.infrastructure, self.chance.stream(name), latency)

    @property
    def now_s(self) -> float:
        """The virtual time since the beginning."""
        return self.timeline.now_s

    def record(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.record(self.timeline.now_s, text)

    def fail(self, text: str) -> None:
        """Record a broken guarantee."""
        self.record(f"FAILED {text}")
        self.failures.append(text)

    def entropy(self, name: str) -> SimEntropy:
        """Random bytes for one life of a process."""
        return SimEntropy(self.chance.stream(f"entropy/{name}"))

    def stream(self, name: str) -> random.Random:
        """The stream of random numbers of that name."""
        return self.chance.stream(name)

    def add_journal(self, cluster: str) -> SimJournalStore:
        """The journal of another cluster in the same servers, which has the same faults."""
        made = OtherJournalStore(self._wire(f"journal/{cluster}", BUS_LATENCY), self.journal)
        self.journals[cluster] = made
        return made

    def journal_server(self) -> int:
        """The server with the journal's leader."""
        return self._journal_server

    def move_journal(self, server: int) -> None:
        """Set the server with the journal's leader, after an election."""
        self._journal_server = server

    def _exception(self, context: dict[str, Any]) -> None:
        self.fail(f"infrastructure: {context.get('message')}: {context.get('exception')!r}")
