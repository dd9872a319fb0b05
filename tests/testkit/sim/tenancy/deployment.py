"""One simulated deployment for several virtual clusters, made from a seed."""

import dataclasses
from collections.abc import Sequence

from penstock.clusters.record import ClusterRecord
from penstock.clusters.registry import ClusterRegistry
from penstock.contracts.subjects import flush
from tests.testkit.sim.environment.host import SimClock
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.opening import open_simulated
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.wire import START_MS
from tests.testkit.sim.length import SHORT
from tests.testkit.sim.stage import Stage
from tests.testkit.sim.tenancy.history import History
from tests.testkit.sim.tenancy.life import Life
from tests.testkit.sim.tenancy.operator import Operator
from tests.testkit.sim.tenancy.records import RecordedStore
from tests.testkit.sim.tenancy.services import COUNTS, Services, pool_of

STAYING, RETURNING, REMOVED = CLUSTERS = ("a", "b", "c")
LENGTH = dataclasses.replace(SHORT, fault_pause_s=(0.2, 1.5))
WINDOWS_S = (1.5, 3.0, 6.0)
RETURNS_MAX = 3
CRASHES_SHARE = 0.5  # of runs: the operators' machines crash
CRASH_STEPS = (5, 120)  # callbacks of an operator from one crash to the next
RESTART_S = 0.5
CRASHES, FLUSHES = "operators crashed", "flush messages"
FLUSH_WORDS = len(flush("c", "z", "i").split("."))


class Deployment(Stage):
    """The processes, which host all clusters, with the operators and the clients of each cluster."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, LENGTH, keep_trace=keep_trace)
        objects = RecordedStore(lambda: START_MS + int(self.timeline.now_s * 1000))
        objects.on_record = self._record_changed
        self.store.objects = objects
        self.store.on_delete = self._objects_deleted
        self.hub.on_send = self._message_sent
        self._dice = self.stream("deployment")
        self._is_crashing = self._dice.random() < CRASHES_SHARE
        self.client_loop = SimLoop(self.timeline, "clients", self._client_exception)
        self.histories = {name: self._history(name) for name in CLUSTERS}
        for _ in range(self._dice.randint(1, RETURNS_MAX)):
            self.histories[RETURNING].operator.plan_return(self._dice.choice(WINDOWS_S))
        self.histories[REMOVED].operator.plan_removal(self._dice.choice(WINDOWS_S))
        make = Services(self.network, CLUSTERS, LENGTH).factories
        keeps_names = self._dice.random() < 0.5
        self.processes = [
            Process(self, role, number, make[role], keeps_name=keeps_names, host_limits=LENGTH.services.host)
            for role, count in COUNTS.items()
            for number in range(count)
        ]
        self._operator_loops: dict[str, SimLoop] = {}

    @property
    def level(self) -> int:
        return min(history.level for history in self.histories.values())

    @property
    def is_operated(self) -> bool:
        """Whether all operators are done."""
        return all(history.operator.is_done for history in self.histories.values())

    @property
    def lives(self) -> list[Life]:
        """The clusters that live."""
        return [history.life for history in self.histories.values() if history.is_active]

    @property
    def acknowledged(self) -> int:
        """The batches that producers of all clusters know to be stored."""
        return sum(life.acknowledged for history in self.histories.values() for life in history.lives)

    def counts(self) -> dict[str, int]:
        """How often each event happened that some runs do not have."""
        histories = self.histories.values()
        return {
            "undeletes in time": sum(history.operator.came_back for history in histories),
            "undeletes too late": sum(history.operator.came_late for history in histories),
            "names used again": sum(len(history.lives) - 1 for history in histories),
            "crashes of operators": self.happened[CRASHES],
            "messages to flushers": self.happened[FLUSHES],
        }

    def expects_failure(self, cluster: str) -> bool:
        """A process that missed the end of a cluster finds its journal gone, or that of the next cluster."""
        history = self.histories.get(cluster)
        return history is not None and (not history.is_active or len(history.lives) > 1)

    def begin_operators(self) -> None:
        """Start an operator for each cluster."""
        for history in self.histories.values():
            self._begin_operator(history.operator, 0)

    def end(self) -> None:
        for loop in self._operator_loops.values():
            loop.kill()
        for history in self.histories.values():
            for life in history.lives:
                life.end_clients()
        super().end()

    def calm_operators(self) -> None:
        """Let the operators' machines crash no more."""
        self._is_crashing = False

    def _begin_operator(self, operator: Operator, crashes: int) -> None:
        name = f"operator-{operator.cluster}-{crashes}"
        loop = SimLoop(self.timeline, name, self._client_exception)
        store = open_simulated(self.store, name, self.stream(name), self.timeline)
        loop.create_task(operator.run(ClusterRegistry(store)))
        self._operator_loops[operator.cluster] = loop
        if self._is_crashing:
            loop.stop_after(self._dice.randint(*CRASH_STEPS), lambda: self._crash(operator, crashes))

    def _crash(self, operator: Operator, crashes: int) -> None:
        self.record(f"crash of the operator of {operator.cluster}")
        self.happened[CRASHES] += 1
        for task in self._operator_loops[operator.cluster].kill():
            self.fail(f"an operator does not end: {task}")
        self.infrastructure.call_later(RESTART_S, self._begin_operator, operator, crashes + 1)

    def _history(self, name: str) -> History:
        operator = Operator(name, self.stream(f"operator/{name}"), SimClock(self.timeline))
        new_life = lambda number: Life(self, name, CLUSTERS.index(name), number)  # noqa: E731
        return History(self, name, self.add_journal(name), operator, new_life)

    def _record_changed(self, record: ClusterRecord) -> None:
        self.histories[record.name].changed(record)

    def _objects_deleted(self, name: str, keys: Sequence[str]) -> None:
        for history in self.histories.values():
            history.check_deletion(name, keys)

    def _message_sent(self, sender: str, subject: str) -> None:
        """Check that gateways send batches to flushers of their pool only."""
        words = subject.split(".")
        if len(words) == FLUSH_WORDS and subject == flush(words[1], words[3], words[4]):
            self.happened[FLUSHES] += 1
            if pool_of(sender) != pool_of(words[4]):
                self.fail(f"{sender} of the pool {pool_of(sender)} sent batches to {words[4]}")
