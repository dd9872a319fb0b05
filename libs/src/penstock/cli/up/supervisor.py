"""The supervisor of `penstock up`: starts all processes and the console, waits until they are ready, stops them."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from functools import partial

from penstock.cli.children import Child, Start, start_process
from penstock.cli.up.console import Console
from penstock.cli.up.console_proxy import ConsoleProxy
from penstock.cli.up.disk import report_shortages, shortage
from penstock.cli.up.helpers import Helpers
from penstock.cli.up.limits import DEFAULT_LIMITS, UpLimits
from penstock.cli.up.options import UpOptions
from penstock.cli.up.processes import SERVICES, Processes
from penstock.cli.up.progress import Progress
from penstock.cli.up.secure import SecureFiles, how_to_connect, make_administrator
from penstock.cli.up.specs import NATS_USER, Specs
from penstock.cli.up.watch import Watch
from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.bus.presence import Directory
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock, SystemClock, SystemEntropy
from penstock.runtime.nats.client import NatsConnection, connect_nats
from penstock.runtime.process.config import BAD_SETTINGS_EXIT_CODE
from penstock.runtime.process.life import INVALID_EXIT_CODE

SYSTEM_CLOCK = SystemClock()
PERMANENT_EXIT_CODES = (BAD_SETTINGS_EXIT_CODE, INVALID_EXIT_CODE)  # another start would end in the same way


def print_line(line: str, clock: Clock = SYSTEM_CLOCK) -> None:
    """Print a line for the user, with the time. Ignore a failure, such as a full disk."""
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(clock.now_ms() / 1000))
    with contextlib.suppress(OSError):
        print(f"{now} {line}", flush=True)


class Supervisor:
    """One `penstock up`, from its first process to its last."""

    def __init__(
        self,
        options: UpOptions,
        nats_port: int,
        monitor_port: int,
        console_port: int = 0,
        report: Callable[[str], None] = print_line,
        *,
        limits: UpLimits = DEFAULT_LIMITS,
        secure: SecureFiles | None = None,
        make_specs: Callable[..., Specs] = Specs,
        start: Start = start_process,
    ) -> None:
        """`start` starts the services, which may run in this process."""
        self._options = options
        self._report = report
        self._limits = limits
        self._secure = secure
        self._specs = make_specs(options, nats_port, monitor_port, console_port, limits=limits, secure=secure)
        self._processes = Processes(self._specs, report, limits=limits, start=start)
        self._helpers = Helpers(self._specs, report, limits=limits)
        self._find_shortage = partial(shortage, options.data, limits.free_bytes_min)
        self._progress = Progress(report, limits=limits.progress)
        self._is_ready = asyncio.Event()
        self._stop_asked = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal or an error; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        keepers = [asyncio.create_task(child.keep()) for child in self._processes.all]
        helping = asyncio.create_task(self._helpers.run(self._is_ready))
        serving = asyncio.create_task(self._serve())
        stop = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({serving, helping, stop, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            serving.cancel()
            self._helpers.begin_stop()
            await self._stop_children()
            ends = await asyncio.gather(serving, helping, *keepers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise _first_cause(end)
        return 0

    def kill_all(self) -> None:
        """Kill all children now."""
        for child in self._children():
            child.kill()

    def _children(self) -> list[Child]:
        return [*self._processes.all, *self._helpers.all]

    async def _serve(self) -> None:
        options = self._options
        connection = await self._connect()
        directory = Directory(connection.bus, options.cluster, SystemClock())
        token_file = options.http_token_file
        proxy = ConsoleProxy(self._specs.console_port, self._helpers.want_console) if self._specs.console_port else None
        console = Console(
            options.http,
            directory,
            self._children,
            self._find_shortage,
            token_file=token_file,
            proxy=proxy,
            is_secure=options.is_secure,
        )
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(connection.close)
            await directory.open()
            stack.push_async_callback(directory.close)
            await console.open()
            stack.push_async_callback(console.close)
            async with asyncio.TaskGroup() as group:
                group.create_task(directory.run())
                group.create_task(connection.bus.run_until_closed())
                watch = Watch(self._children, directory, connection.bus, self._report)
                group.create_task(watch.run(self._limits.watch_poll_s))
                poll_s = self._limits.disk_poll_s
                group.create_task(report_shortages(options.data, self._find_shortage, self._report, poll_s=poll_s))
                await self._until_ready(directory, console)
                if self._secure is not None:
                    sequencers = SequencerClient(connection.bus, options.cluster, SYSTEM_CLOCK)
                    await make_administrator(sequencers, self._secure, SYSTEM_CLOCK, SystemEntropy())
                advertised = f", advertised as {options.advertised}" if options.advertised is not None else ""
                self._report(f"penstock is ready: kafka on {options.kafka}{advertised}")
                for each in options.more_clusters:
                    self._report(f"cluster {each.name}: kafka on {each.advertised or each.kafka}")
                if self._secure is not None:
                    for line in how_to_connect(self._secure, options.advertised or options.kafka):
                        self._report(line)
                for warning in options.warnings:
                    self._report(f"warning: {warning}")
                self._is_ready.set()
                self._report(f"console on http://{options.http}, data in {options.data}; Ctrl-C stops it")

    async def _connect(self) -> NatsConnection:
        deadline_s = asyncio.get_running_loop().time() + self._limits.ready_deadline_s
        while True:
            try:
                return await connect_nats(
                    f"nats://{self._specs.nats_address}",
                    name="penstock-up",
                    user=NATS_USER,
                    password=self._specs.nats_password,
                )
            except Unavailable:
                self._progress.look("waiting for nats-server")
                self._raise_if_broken(deadline_s)

    async def _until_ready(self, directory: Directory, console: Console) -> None:
        deadline_s = asyncio.get_running_loop().time() + self._limits.ready_deadline_s
        changed = asyncio.Event()
        directory.subscribe(changed.set)
        while waiting := self._missing_services(directory) or await console.waiting():
            self._progress.look(f"waiting: {waiting[0]}")
            self._raise_if_broken(deadline_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.ready_poll_s):
                    await changed.wait()
            changed.clear()

    def _missing_services(self, directory: Directory) -> list[str]:
        """A sentence for each service that is missing. Before there is one of each, none is asked."""
        return [f"there is no {role} yet" for role in SERVICES if self._is_missing(role, directory)]

    def _is_missing(self, role: str, directory: Directory) -> bool:
        """Whether instances of a service are missing; the only sequencer may be a role of an agent."""
        return len(directory.live(role)) < max(self._specs.count(role), 1)

    def _raise_if_broken(self, deadline_s: float) -> None:
        for child in self._children():
            words = child.error or f"see {child.spec.log_path}"
            if child.last_code in PERMANENT_EXIT_CODES:
                raise Invalid(f"{child.spec.name} cannot start: {words}")
            if child.restarts >= self._limits.starts_before_giving_up:
                raise Unavailable(f"{child.spec.name} does not start: {words}")
        if asyncio.get_running_loop().time() > deadline_s:
            logs = self._options.data / "logs"
            raise Unavailable(f"not ready after {self._limits.ready_deadline_s:g} s; see the logs in {logs}")

    async def _stop_children(self) -> None:
        self._report("stopping ...")
        await self._helpers.stop()
        await self._processes.stop()
        self._report("stopped")

    def _on_signal(self) -> None:
        if self._stop_asked.is_set():
            self._report("stopping now")
            self.kill_all()
        self._stop_asked.set()


def _first_cause(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
