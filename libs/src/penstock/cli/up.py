"""`penstock up`: a nats-server, every service and a console on one machine, until Ctrl-C."""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

import prometheus_client

from penstock.cli.children import Child, ChildSpec, last_line
from penstock.cli.console import Console
from penstock.cli.disk import disk_trouble
from penstock.cli.options import (
    UpOptions,
    add_flags,
    check_port_is_free,
    parse_address,
    read_options,
    take_folder,
)
from penstock.cli.spark_python import need_spark_python
from penstock.contracts.errors import Invalid, PenstockError, Unavailable
from penstock.objectstore import open_store
from penstock.runtime.bus.presence import Directory
from penstock.runtime.clock import SystemClock
from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE
from penstock.runtime.nats.client import NatsConnection, connect_nats
from penstock.runtime.nats.server import find_nats_server, write_config
from penstock.runtime.process.logs import configure_logs

CLUSTER = "default"
ZONE = "local"
SERVICES = ("sequencer", "flusher", "cacher", "gateway")  # in starting order; they stop in the reverse of it
DRAIN_DEADLINE_MS = 10_000
STOP_GRACE_S = DRAIN_DEADLINE_MS / 1000 + 5  # the drain and then some, before SIGKILL
READY_DEADLINE_S = 60.0
READY_POLL_S = 0.05
SPARK_POLL_S = 2.0
DISK_POLL_S = 2.0
NICELY = ("nice", "-n", "5")  # where all run on one machine, clients go first
NATS_PORT_MIN = 14_222
NATS_PORT_MAX = 32_767  # above it the kernel takes the near ends of connections from, so ours might be gone
STARTS_BEFORE_GIVING_UP = 4  # a service that dies this often before the first "ready" will not come


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `penstock up` with the command line."""
    parser = commands.add_parser(
        "up",
        help="run everything on this machine",
        description="Run NATS and every service on this machine until Ctrl-C. All data is in --data.",
    )
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped; 0 after a clean stop, 1 with one sentence if it cannot be."""
    try:
        options = read_options(arguments)
        configure_logs("up", "up", "error", "auto")  # of what happens to children, this process tells itself
        return asyncio.run(_run(options))
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


async def _run(options: UpOptions) -> int:
    # The folder first: who starts it twice should hear that, and not of a port.
    with take_folder(options.data):
        check_port_is_free("--kafka", options.kafka)
        check_port_is_free("--http", options.http)
        store = await open_store(options.store, registry=prometheus_client.CollectorRegistry())
        await store.close()
        with reserved_port() as nats_port, reserved_port() as monitor_port:
            supervisor = Supervisor(options, nats_port, monitor_port)
            try:
                return await supervisor.run()
            finally:
                supervisor.kill_all()


def say(line: str) -> None:
    """Tell the user; where nobody can be told, as in a file on a full disk, everything goes on all the same."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


class Supervisor:
    """Owns the children and the console: start in order, wait, stop in reverse order."""

    def __init__(self, options: UpOptions, nats_port: int, monitor_port: int, say: Callable[[str], None] = say) -> None:
        self._options = options
        self._say = say
        self._nats_address = parse_address("nats", f"127.0.0.1:{nats_port}")
        self._monitor_port = monitor_port
        self._nats = Child(self._nats_spec(), say)
        self._services = {
            role: [Child(self._spec(role, i), say, self._after_death) for i in range(self._count(role))]
            for role in SERVICES
        }
        self._helpers: list[Child] = []  # janitors, and compactors once there is an interpreter with Spark
        self._all = [self._nats, *(child for role in SERVICES for child in self._services[role])]
        self._starting: asyncio.Task[None] | None = None  # of these
        self._ending = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._stop_asked = asyncio.Event()

    async def run(self) -> int:
        """Everything between the checks and the end; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        keepers = [asyncio.create_task(child.keep()) for child in self._all]
        helping = asyncio.create_task(self._keep_helpers())
        serving = asyncio.create_task(self._serve())
        stop = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({serving, helping, stop, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            serving.cancel()
            self._begin_no_more()
            await self._stop_children()
            ends = await asyncio.gather(serving, helping, *keepers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise _first_cause(end)
        return 0

    async def _serve(self) -> None:
        connection = await self._connect()
        directory = Directory(connection.bus, CLUSTER, SystemClock())
        console = Console(self._options.http, directory, self._all, self._options.data)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(connection.close)
            await directory.open()
            stack.push_async_callback(directory.close)
            await console.open()
            stack.push_async_callback(console.close)
            async with asyncio.TaskGroup() as group:
                group.create_task(directory.run())
                group.create_task(connection.bus.run_until_closed())
                group.create_task(self._watch_disk())
                await self._until_ready(directory, console)
                self._say(f"penstock is ready: kafka on {self._options.kafka}")
                self._is_ready.set()
                self._say(f"console on http://{self._options.http}, data in {self._options.data}; Ctrl-C stops it")

    async def _watch_disk(self) -> None:
        """Tell once when there is little room, and once when there is enough again."""
        told = False
        while True:
            trouble = disk_trouble(self._options.data)
            if trouble and not told:
                self._say(trouble)
            elif told and not trouble:
                self._say(f"there is room again under {self._options.data}")
            told = bool(trouble)
            await asyncio.sleep(DISK_POLL_S)

    async def _keep_helpers(self) -> None:
        """Janitors and compactors run once clients are served, and nobody waits for them."""
        async with asyncio.TaskGroup() as group:
            self._starting = group.create_task(self._start_helpers(group))
            await self._ending.wait()
            self._starting.cancel()

    async def _start_helpers(self, group: asyncio.TaskGroup) -> None:
        await self._is_ready.wait()
        self._start(group, "janitor", sys.executable)
        if self._options.compactors:
            self._start(group, "compactor", await self._spark_python())

    def _start(self, group: asyncio.TaskGroup, role: str, python: str) -> None:
        specs = [self._spec(role, index, (*NICELY, python)) for index in range(self._count(role))]
        children = [Child(spec, self._say) for spec in specs]
        self._helpers += children
        self._all += children
        for child in children:
            group.create_task(child.keep())

    async def _spark_python(self) -> str:
        """The interpreter for compactors; why there is none yet is told, each reason once."""
        told = ""
        while True:
            try:
                python = str(need_spark_python(os.environ))
            except Invalid as error:
                if str(error) != told:
                    told = str(error)
                    self._say(f"compaction waits: {told}")
            else:
                if told:
                    self._say("compaction waits no more")
                return python
            await asyncio.sleep(SPARK_POLL_S)

    async def _connect(self) -> NatsConnection:
        deadline_s = asyncio.get_running_loop().time() + READY_DEADLINE_S
        while True:
            try:
                return await connect_nats(f"nats://{self._nats_address}", name="penstock-up")
            except Unavailable:
                self._give_up_if_hopeless(deadline_s)

    async def _until_ready(self, directory: Directory, console: Console) -> None:
        deadline_s = asyncio.get_running_loop().time() + READY_DEADLINE_S
        while (
            not all(len(directory.live(role)) >= self._count(role) for role in SERVICES) or not await console.is_ready()
        ):
            self._give_up_if_hopeless(deadline_s)
            await asyncio.sleep(READY_POLL_S)

    def _give_up_if_hopeless(self, deadline_s: float) -> None:
        for child in self._all:
            if child.restarts >= STARTS_BEFORE_GIVING_UP:
                raise Unavailable(f"{child.spec.name} does not start: {last_line(child.spec.log_path)}")
        if asyncio.get_running_loop().time() > deadline_s:
            raise Unavailable(f"not ready after {READY_DEADLINE_S:g} s; see the logs in {self._options.data / 'logs'}")

    def _begin_no_more(self) -> None:
        """Start no helper any more; those that run are stopped with the others."""
        self._ending.set()
        if self._starting is not None:
            self._starting.cancel()

    async def _stop_children(self) -> None:
        self._say("stopping ...")
        await asyncio.gather(*(child.stop(STOP_GRACE_S) for child in self._helpers))
        for role in reversed(SERVICES):
            await asyncio.gather(*(child.stop(STOP_GRACE_S) for child in self._services[role]))
        await self._nats.stop(STOP_GRACE_S)
        self._say("stopped")

    async def _after_death(self, code: int) -> None:
        """Restart the nats-server when a sequencer found that it takes no entries; once for all who find it."""
        if code == JOURNAL_STUCK_EXIT_CODE and self._nats.is_settled:
            self._say("the journal takes no entries; restarting nats-server")
            await self._nats.restart(STOP_GRACE_S)

    def _on_signal(self) -> None:
        if self._stop_asked.is_set():
            self._say("stopping now")
            self.kill_all()
        self._stop_asked.set()

    def kill_all(self) -> None:
        """Leave no child behind, whatever happened."""
        for child in self._all:
            child.kill()

    def _count(self, role: str) -> int:
        count: int = getattr(self._options, f"{role}s")
        return count

    def _nats_spec(self) -> ChildSpec:
        folder = self._options.data / "nats"
        config = folder / "nats-server.conf"
        write_config(
            config,
            store_dir=folder / "jetstream",
            host=self._nats_address.host,
            port=self._nats_address.port,
            monitor_port=self._monitor_port,
        )
        return ChildSpec(
            name="nats-server",
            argv=[str(find_nats_server()), "--config", str(config)],
            env=dict(os.environ),
            log_path=self._options.data / "logs" / "nats-server.log",
        )

    def _spec(self, role: str, index: int, program: Sequence[str] = (sys.executable,)) -> ChildSpec:
        name = f"{role}-{index + 1}"
        settings = {
            "CLUSTER": CLUSTER,
            "ZONE": ZONE,
            "NATS_URL": f"nats://{self._nats_address}",
            "STORE_URL": self._options.store,
            "DRAIN_DEADLINE_MS": str(DRAIN_DEADLINE_MS),
            "PARENT_PID": str(os.getpid()),
            **self._settings_of(role),
        }
        return ChildSpec(
            name=name,
            argv=[*program, "-m", f"penstock_{role}"],
            env=os.environ | {f"PENSTOCK_{key}": value for key, value in settings.items()},
            log_path=self._options.data / "logs" / f"{name}.log",
        )

    def _settings_of(self, role: str) -> dict[str, str]:
        if role == "gateway":
            return {"LISTENERS": f"PLAINTEXT://{self._options.kafka}"}
        if role == "flusher":
            return {"FLUSH_INTERVAL_MS": str(self._options.flush_ms)}
        if role == "sequencer":
            return {"NATS_MONITOR_URL": f"http://127.0.0.1:{self._monitor_port}"}
        return {}


def _first_cause(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port on loopback that only who reuses addresses, as a nats-server does, can listen on meanwhile.

    So no other `penstock up` takes it while our nats-server is starting again.
    """
    for port in range(NATS_PORT_MIN, NATS_PORT_MAX + 1):
        with socket.socket() as held:
            try:
                held.bind(("127.0.0.1", port))
            except OSError:
                continue
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield port
            return
    raise Unavailable(f"no port from {NATS_PORT_MIN} to {NATS_PORT_MAX} is free for the nats-server")
