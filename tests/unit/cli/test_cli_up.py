"""The children and the port of `penstock up`, tested without running all processes."""

import asyncio
import contextlib
import io
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from penstock.cli.children import ChildLimits, ChildSpec
from penstock.cli.data_folder import take_folder
from penstock.cli.ports import NATS_PORT_MAX, NATS_PORT_MIN, Address, reserved_port
from penstock.cli.up.disk import report_shortages
from penstock.cli.up.helpers import Helpers
from penstock.cli.up.limits import UpLimits
from penstock.cli.up.options import UpOptions
from penstock.cli.up.processes import SERVICES, Processes
from penstock.cli.up.specs import Specs
from penstock.cli.up.supervisor import Supervisor, print_line
from penstock.contracts.errors import Invalid
from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE
from penstock.runtime.process.life import INVALID_EXIT_CODE
from tests.testkit.fakes.clock import ManualClock
from tests.testkit.servers.ports import free_port
from tests.testkit.waiting import TIMEOUT_S, until

RESTARTING = "the journal accepts no entries; restarting nats-server"
LONG_S = ChildLimits().healthy_after_s + 1
LIMITS = UpLimits(spark_poll_s=0.01)


def options_of(data: Path) -> UpOptions:
    address = Address("127.0.0.1", 1)
    return UpOptions(
        data=data,
        kafka=address,
        http=address,
        store=f"file://{data}/objects",
        flush_ms=250,
        gateways=1,
        flushers=1,
        sequencers=1,
        cachers=1,
    )


class EndingServices(Specs):
    """The usual processes, but each service ends at once with a code."""

    def __init__(self, data: Path, port: int, monitor_port: int, code: int) -> None:
        super().__init__(options_of(data), port, monitor_port)
        self._code = code

    def services(self, role: str) -> list[ChildSpec]:
        specs = super().services(role)
        return [structs.replace(spec, argv=["sh", "-c", f"exit {self._code}"]) for spec in specs]


class Rig:
    """The processes of `penstock up`, of which only the nats-server runs."""

    def __init__(self, specs: Specs) -> None:
        self.reports: list[str] = []
        self.clock = ManualClock()
        self.processes = Processes(specs, self.reports.append, clock=self.clock)
        self.nats = self.processes.nats
        self.keeper = asyncio.create_task(self.nats.keep())

    async def until_nats_runs(self, restarts: int) -> None:
        await until(lambda: self.nats.restarts == restarts and self.nats.pid is not None)


@contextlib.asynccontextmanager
async def running(tmp_path: Path, code: int = 0) -> AsyncIterator[Rig]:
    with take_folder(tmp_path), reserved_port() as port, reserved_port() as monitor_port:
        built = Rig(EndingServices(tmp_path, port, monitor_port, code))
        yield built
        built.nats.kill()
        await built.keeper


async def test_a_stuck_journal_restarts_the_nats_server(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.until_nats_runs(restarts=0)
        rig.clock.now_s += LONG_S
        await rig.processes.after_death(JOURNAL_STUCK_EXIT_CODE)
        await rig.until_nats_runs(restarts=1)
        assert rig.reports[0] == RESTARTING
        assert rig.reports[1].startswith("nats-server ")


async def test_two_reports_of_a_stuck_journal_cause_one_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.until_nats_runs(restarts=0)
        rig.clock.now_s += LONG_S
        await rig.processes.after_death(JOURNAL_STUCK_EXIT_CODE)
        await rig.until_nats_runs(restarts=1)
        pid = rig.nats.pid
        await rig.processes.after_death(JOURNAL_STUCK_EXIT_CODE)
        assert (rig.nats.pid, rig.reports.count(RESTARTING)) == (pid, 1)


@pytest.mark.parametrize("code", [0, 1, -9])
async def test_other_exit_codes_do_not_restart_the_nats_server(tmp_path: Path, code: int) -> None:
    async with running(tmp_path) as rig:
        await rig.until_nats_runs(restarts=0)
        rig.clock.now_s += LONG_S
        pid = rig.nats.pid
        await rig.processes.after_death(code)
        assert (rig.nats.pid, rig.reports) == (pid, [])


async def test_the_exit_code_of_every_service_is_checked(tmp_path: Path) -> None:
    async with running(tmp_path, JOURNAL_STUCK_EXIT_CODE) as rig:
        for number, role in enumerate(SERVICES):
            await rig.until_nats_runs(restarts=number)
            rig.clock.now_s += LONG_S
            (service,) = rig.processes.services[role]
            keeping = asyncio.create_task(service.keep())
            await until(lambda number=number: rig.reports.count(RESTARTING) == number + 1)
            await service.stop(TIMEOUT_S)
            await keeping


def test_the_port_is_reserved_and_below_the_ports_for_outgoing_connections() -> None:
    with reserved_port() as first, reserved_port() as second:
        assert first != second
        assert all(NATS_PORT_MIN <= each <= NATS_PORT_MAX for each in (first, second))
        with socket.socket() as nats:
            nats.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            nats.bind(("127.0.0.1", first))
            nats.listen()
            with socket.create_connection(("127.0.0.1", first)):
                pass


class RejectedServices(Specs):
    """The usual processes, but each service finds at its start that its settings can never work."""

    def services(self, role: str) -> list[ChildSpec]:
        script = f"echo '{role}: allow s3:PutObject' >&2; exit {INVALID_EXIT_CODE}"
        return [structs.replace(spec, argv=["sh", "-c", script]) for spec in super().services(role)]


async def test_a_permanent_error_of_a_service_ends_the_start_at_once_with_its_words(tmp_path: Path) -> None:
    options = structs.replace(options_of(tmp_path), http=Address("127.0.0.1", free_port()))
    # A service that died starts again long after the supervisor has given up.
    limits = UpLimits(children=ChildLimits(restart_delay_ms_min=600_000, restart_delay_ms_max=600_000))
    with take_folder(tmp_path), reserved_port() as port, reserved_port() as monitor_port:
        supervisor = Supervisor(options, port, monitor_port, make_specs=RejectedServices, limits=limits)
        with pytest.raises(Invalid, match=r"[a-z]+-1 cannot start: [a-z]+: allow s3:PutObject"):
            await supervisor.run()


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_line_that_cannot_be_printed_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        print("this cannot be printed")
    print_line("penstock is ready")


class SparkPython:
    """A search for a Python with Spark, which finds one once `path` is set."""

    def __init__(self) -> None:
        self.path: Path | None = None

    def find(self) -> Path:
        if self.path is None:
            raise Invalid("Spark is not installed")
        return self.path


def helpers_of(data: Path, python: SparkPython, reports: list[str]) -> Helpers:
    (data / "logs").mkdir()
    specs = Specs(options_of(data), 1, 1)
    return Helpers(specs, reports.append, limits=LIMITS, find_python=python.find)


async def test_compactors_start_when_clients_are_served_and_again_with_a_python_with_spark(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")  # a program that ends would be restarted, with a report
    program.chmod(0o700)
    python, reports, is_ready = SparkPython(), [], asyncio.Event()
    helpers = helpers_of(tmp_path, python, reports)
    keeping = asyncio.create_task(helpers.run(is_ready))
    is_ready.set()
    await until(lambda: len(helpers.all) == 2)
    janitor, small = helpers.all
    assert janitor.spec.argv == [sys.executable, "-m", "penstock_janitor"]
    assert small.spec.argv == ["nice", "-n", "19", sys.executable, "-m", "penstock_compactor"]
    await until(lambda: small.pid is not None)
    python.path = program
    await until(lambda: small not in helpers.all and len(helpers.all) == 2)
    assert small.pid is None, "two compactors of one name never run"
    compactor = helpers.all[1]
    assert compactor.spec.argv == ["nice", "-n", "19", str(program), "-m", "penstock_compactor"]
    helpers.begin_stop()
    await asyncio.gather(janitor.stop(TIMEOUT_S), compactor.stop(TIMEOUT_S))
    await keeping
    # The janitor finds no nats-server, so it may have ended before.
    found = [line for line in reports if not line.startswith("janitor-1 died")]
    assert found == ["only small merges run yet: Spark is not installed", "all compaction runs now"]


async def test_low_disk_space_is_reported_once_and_so_is_its_end() -> None:
    found: list[str] = []
    shortage, reports = ["only 3 MiB are free"], list[str]()

    def find() -> str:
        found.append(shortage[0])
        return shortage[0]

    reporting = asyncio.create_task(report_shortages(Path("data"), find, reports.append, poll_s=0.001))
    await until(lambda: len(found) > 3)
    shortage[0] = ""
    await until(lambda: found.count("") > 3)
    reporting.cancel()
    assert reports == ["only 3 MiB are free", "there is free space again under data"]


async def test_helpers_that_wait_for_spark_are_not_started_during_a_stop(tmp_path: Path) -> None:
    python, is_ready = SparkPython(), asyncio.Event()
    helpers = helpers_of(tmp_path, python, [])
    keeping = asyncio.create_task(helpers.run(is_ready))
    is_ready.set()
    await until(lambda: len(helpers.all) == 2)
    python.path = Path("/bin/true")
    helpers.begin_stop()
    await asyncio.gather(*(child.stop(TIMEOUT_S) for child in helpers.all))
    await keeping
    assert [child.spec.name for child in helpers.all] == ["janitor-1", "compactor-1"]
    assert helpers.all[1].spec.argv[3] == sys.executable
