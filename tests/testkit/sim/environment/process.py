"""One simulated process, which its supervisor and the faults start, stop, pause and kill."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.contracts.errors import Corrupt, PenstockError, Unavailable
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.runtime.process.host import HostLimits
from penstock.runtime.process.life import App
from penstock_sequencer.replication.replica import LeftBehind
from penstock_sequencer.storage.snapshot_format import UnknownVersion
from tests.testkit.sim.environment.host import BusReach, HostMaker, SimClock, SimConnection
from tests.testkit.sim.environment.loop import CALLBACK, NO_STEPS, Handle, SimLoop
from tests.testkit.sim.environment.opening import store_opener
from tests.testkit.sim.environment.shared import SharedEnvironment
from tests.testkit.sim.environment.sockets import SimTransport

RESTART_S = (0.2, 2.0)  # the time until a supervisor restarts a process
DRAIN_DEADLINE_S = 10.0
AGENT = "agent"  # a process that is several services in one
AGENT_ROLES = ("flusher", "cacher", "gateway")  # in start order

# Builds an app from its process (instance name, zone) and from the dependencies of all apps.
MakeApp = Callable[["Process", dict[str, Any]], App]


class Process:
    """A process of one or several services; each life from start to end has its own loop, connection and memory."""

    def __init__(
        self,
        environment: SharedEnvironment,
        role: str,
        number: int,
        make: MakeApp,
        *,
        keeps_name: bool,
        host_limits: HostLimits,
    ) -> None:
        self.roles = AGENT_ROLES if role == AGENT else (role,)
        self.name = f"{role}-{number}"
        self.number = number
        self.server = number % 3
        self.zone = f"z{self.server}"
        self.is_up = False
        self.is_paused = False
        self.born_at_sequence = 0  # the journal's last sequence when this life began
        self.is_wanted = False  # the supervisor restarts it
        self.known_level = NEWEST_LEVEL  # of the release in this life
        self.app: App | None = None
        self.clock = SimClock(environment.timeline)
        self._environment = environment
        self._make = make
        self._keeps_name = keeps_name
        self._host_limits = host_limits
        self._stream = environment.chance.stream(f"process/{self.name}")
        self._life = 0
        self._stop = asyncio.Event()
        self.loop: SimLoop

    @property
    def instance(self) -> str:
        """The name of this life, or of all lives."""
        return self.name if self._keeps_name else f"{self.name}-{self._life}"

    @property
    def connection_name(self) -> str:
        """The name of this life's connection."""
        return f"{self.name}-{self._life}"

    def start(self) -> None:
        """Begin a life."""
        if self.is_up:
            return
        self._life += 1
        self.is_up = self.is_wanted = True
        self.born_at_sequence = self._environment.journal.last_sequence
        self._environment.record(f"start {self.name} {self._life}")
        self.loop = SimLoop(self._environment.timeline, self.connection_name, self._exception)
        self._stop = asyncio.Event()
        self.loop.create_task(self._live(self._life))

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        if self.is_up:
            self._environment.on_halt(self.name, self.connection_name)
            self._end_life()

    def _end_life(self) -> None:
        environment = self._environment
        environment.record(f"kill {self.name} {self._life}")
        self.is_up = self.is_paused = False
        environment.hub.kill(self.connection_name)
        environment.network.kill(self.connection_name)
        leaked = self.loop.kill()
        if leaked:
            environment.fail(f"{self.connection_name} has tasks that do not end: {leaked}")
        self.app = None

    def kill_at_step(self, steps: int) -> None:
        """End the process after this many more of its callbacks, also between two at the same time."""
        self.loop.stop_after(steps, self._kill_and_restart)

    def cancel_kill(self) -> None:
        """Cancel `kill_at_step`."""
        if self.is_up:
            self.loop.stop_after(NO_STEPS, lambda: None)

    def _kill_and_restart(self) -> None:
        self.kill()
        self.restart_later()

    def stop(self) -> None:
        """Ask the process to stop (SIGTERM)."""
        if self.is_up:
            self._environment.record(f"stop {self.name} {self._life}")
            self._stop.set()

    def pause(self) -> None:
        """Pause the process (SIGSTOP)."""
        if self.is_up and not self.is_paused:
            self._environment.record(f"pause {self.name} {self._life}")
            self._environment.on_halt(self.name, self.connection_name)
            self.is_paused = True
            self.loop.pause()

    def resume(self) -> None:
        """Let the process continue (SIGCONT)."""
        if self.is_up and self.is_paused:
            self._environment.record(f"resume {self.name} {self._life}")
            self.is_paused = False
            self.loop.resume(timers_first=self._stream.random() < 0.5, order=self._poll_order())

    def _poll_order(self) -> Callable[[Handle], float]:
        """A random order of sockets, as the selector reports them in any order; the bus is one socket."""
        ranks: dict[SimTransport | None, float] = {None: self._stream.random()}

        def rank(handle: Handle) -> float:
            owner = getattr(handle[CALLBACK], "__self__", None)
            socket = owner if isinstance(owner, SimTransport) else None
            return ranks.setdefault(socket, self._stream.random())

        return rank

    def restart_later(self) -> None:
        """Let the supervisor restart the process after a while."""
        self._environment.infrastructure.call_later(self._stream.uniform(*RESTART_S), self._restart)

    def _restart(self) -> None:
        if self.is_wanted:
            self.start()

    def _exception(self, context: dict[str, Any]) -> None:
        self._environment.fail(f"{self.connection_name}: {context.get('message')}: {context.get('exception')!r}")

    async def _live(self, life: int) -> None:
        """Open, run, drain and close the app, as `penstock.runtime.process` does."""
        failure: BaseException | None = None
        try:
            self.app = self._make(self, self._dependencies())
            failure = await self._open_and_run(self.app)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  `_ended` checks it
            failure = error
        if life == self._life and self.is_up:
            self._environment.infrastructure.call_soon(self._ended, life, failure)

    async def _open_and_run(self, app: App) -> BaseException | None:
        stopping = asyncio.create_task(self._stop.wait())
        opening = asyncio.create_task(app.open())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failure = await _end(opening)
        if failure is None and not stopping.done():
            running = asyncio.create_task(app.run())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                draining = asyncio.create_task(app.drain())
                await asyncio.wait({draining, running}, timeout=DRAIN_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
                failure = await _end(draining)
            elif not running.cancelled() and running.exception() is None:
                failure = RuntimeError("the service ended without a stop signal")
            failure = await _end(running) or failure
        stopping.cancel()
        closing = asyncio.create_task(app.close())
        await asyncio.wait({closing}, timeout=5.0)
        return failure or await _end(closing)

    def _ended(self, life: int, failure: BaseException | None) -> None:
        """Check why the process ended by itself or after `stop`, and restart it."""
        if life != self._life or not self.is_up:
            return
        cause = _first_cause(failure)
        self._environment.record(f"exit {self.name} {life} {type(cause).__name__}")
        leaked = self.loop.tasks
        if leaked and failure is None:
            self._environment.fail(f"{self.connection_name} stopped and left tasks behind: {leaked}")
        if cause is not None and (not isinstance(cause, PenstockError | TimeoutError) or isinstance(cause, Corrupt)):
            self._environment.fail(f"{self.connection_name} failed with {cause!r}")
        elif (
            cause is not None
            and not isinstance(cause, Unavailable | TimeoutError | LeftBehind)
            and not self._is_outdated(cause)
        ):
            self._environment.fail(f"{self.connection_name} ended: {cause}")
        self._end_life()
        if self.is_wanted:
            self.restart_later()

    def _is_outdated(self, cause: BaseException) -> bool:
        """Whether a replica's release is too old for the level, which was raised while the replica was down."""
        return isinstance(cause.__cause__, UnknownVersion) and self.known_level < NEWEST_LEVEL

    def _dependencies(self) -> dict[str, Any]:
        """The dependencies of every app."""
        environment, name = self._environment, self.connection_name
        bus = environment.hub.connect(name, self.server)
        reach = BusReach(environment.hub, name, environment.journal_server)
        connection = SimConnection(bus, environment.journal, reach, environment.journals)
        return {
            "clock": self.clock,
            "entropy": environment.entropy(name),
            "make_host": HostMaker(connection, self._host_limits),
            "open_store": store_opener(
                environment.store, name, environment.chance.stream(f"jitter/{name}"), environment.timeline
            ),
        }


async def _end(task: "asyncio.Task[Any]") -> BaseException | None:
    """End a task, and return its failure."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=2.0)
    if not task.done():
        return TimeoutError("did not end in time")
    return None if task.cancelled() else task.exception()


def _first_cause(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
