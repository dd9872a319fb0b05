"""What `penstock up` does with its children and its port, without running them all."""

import asyncio
import io
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.cli import children, up
from penstock.cli.options import Address, UpOptions, take_folder
from penstock.cli.up import NATS_PORT_MAX, NATS_PORT_MIN, Supervisor, reserved_port, say
from penstock.contracts.errors import Invalid
from penstock.runtime.journal import JOURNAL_STUCK_EXIT_CODE
from tests.testkit.waiting import TIMEOUT_S, until

RESTARTING = "the journal takes no entries; restarting nats-server"


class Rig:
    """A supervisor of which only the nats-server runs."""

    def __init__(self, data: Path, port: int, monitor_port: int) -> None:
        address = Address("127.0.0.1", 1)
        options = UpOptions(
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
        self.said: list[str] = []
        self.supervisor = Supervisor(options, port, monitor_port, self.said.append)
        self.nats = self.supervisor._nats
        self.keeper = asyncio.create_task(self.nats.keep())

    async def until_nats_runs(self, restarts: int) -> None:
        await until(lambda: self.nats.restarts == restarts and self.nats.pid is not None)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    with take_folder(tmp_path), reserved_port() as port, reserved_port() as monitor_port:
        built = Rig(tmp_path, port, monitor_port)
        yield built
        built.nats.kill()
        await built.keeper


async def test_a_sequencer_that_found_the_journal_stuck_has_the_nats_server_restarted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.until_nats_runs(restarts=0)
    monkeypatch.setattr(children, "HEALTHY_AFTER_S", 0.0)
    await rig.supervisor._after_death(JOURNAL_STUCK_EXIT_CODE)
    await rig.until_nats_runs(restarts=1)
    assert rig.said[0] == RESTARTING
    assert rig.said[1].startswith("nats-server ")


async def test_two_sequencers_that_find_it_at_once_have_it_restarted_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.until_nats_runs(restarts=0)
    monkeypatch.setattr(children, "HEALTHY_AFTER_S", 0.0)
    await rig.supervisor._after_death(JOURNAL_STUCK_EXIT_CODE)
    monkeypatch.undo()
    await rig.until_nats_runs(restarts=1)
    pid = rig.nats.pid
    await rig.supervisor._after_death(JOURNAL_STUCK_EXIT_CODE)
    assert (rig.nats.pid, rig.said.count(RESTARTING)) == (pid, 1)


@pytest.mark.parametrize("code", [0, 1, -9])
async def test_a_sequencer_that_ended_otherwise_leaves_the_nats_server_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    await rig.until_nats_runs(restarts=0)
    monkeypatch.setattr(children, "HEALTHY_AFTER_S", 0.0)
    pid = rig.nats.pid
    await rig.supervisor._after_death(code)
    assert (rig.nats.pid, rig.said) == (pid, [])


def test_every_service_tells_the_supervisor_how_it_ended(rig: Rig) -> None:
    services = [child for role in rig.supervisor._services.values() for child in role]
    assert [child._after_death for child in services] == [rig.supervisor._after_death] * 4


def test_the_port_is_below_those_that_the_kernel_gives_to_connections_and_reserved() -> None:
    with reserved_port() as first, reserved_port() as second:
        assert NATS_PORT_MIN <= first < second <= NATS_PORT_MAX
        with socket.socket() as nats:
            nats.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            nats.bind(("127.0.0.1", first))
            nats.listen()
            with socket.create_connection(("127.0.0.1", first)):
                pass


class FullDisk(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def test_what_cannot_be_told_the_user_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    with pytest.raises(OSError, match="No space left"):
        print("this cannot be printed")
    say("penstock is ready")


async def test_compactors_begin_when_clients_are_served_and_there_is_a_python_with_spark(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[str] = []
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")  # one that ended would be started again, and that told
    python.chmod(0o700)

    def find(_environ: object) -> str:
        if not found:
            raise Invalid("Spark is not installed")
        return found[0]

    monkeypatch.setattr(up, "need_spark_python", find)
    monkeypatch.setattr(up, "SPARK_POLL_S", 0.01)
    supervisor = rig.supervisor
    keeping = asyncio.create_task(supervisor._keep_helpers())
    supervisor._is_ready.set()
    await until(lambda: "compaction waits: Spark is not installed" in rig.said)
    (janitor,) = supervisor._helpers
    assert janitor.spec.argv == ["nice", "-n", "5", sys.executable, "-m", "penstock_janitor"], "it waits for no Spark"
    found.append(str(python))
    await until(lambda: len(supervisor._helpers) == 2)
    compactor = supervisor._helpers[1]
    assert compactor.spec.argv == ["nice", "-n", "5", str(python), "-m", "penstock_compactor"]
    assert {janitor, compactor} <= set(supervisor._all), "the console shows them, and they are killed with the others"
    supervisor._begin_no_more()
    await asyncio.gather(janitor.stop(TIMEOUT_S), compactor.stop(TIMEOUT_S))
    await keeping
    assert rig.said == ["compaction waits: Spark is not installed", "compaction waits no more"]


async def test_too_little_room_on_the_disk_is_told_once_and_so_is_its_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    trouble = ["only 3 MiB are free"]

    def look(_folder: Path) -> str:
        looks.append(trouble[0])
        return trouble[0]

    monkeypatch.setattr(up, "disk_trouble", look)
    monkeypatch.setattr(up, "DISK_POLL_S", 0.001)
    watching = asyncio.create_task(rig.supervisor._watch_disk())
    await until(lambda: len(looks) > 3)
    trouble[0] = ""
    await until(lambda: looks.count("") > 3)
    watching.cancel()
    assert [line.split(" under ")[0] for line in rig.said] == ["only 3 MiB are free", "there is room again"]


async def test_helpers_that_wait_for_spark_are_not_started_while_everything_stops(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def find(_environ: object) -> str:
        if not found:
            raise Invalid("Spark is not installed")
        return found[0]

    monkeypatch.setattr(up, "need_spark_python", find)
    monkeypatch.setattr(up, "SPARK_POLL_S", 0.01)
    supervisor = rig.supervisor
    keeping = asyncio.create_task(supervisor._keep_helpers())
    supervisor._is_ready.set()
    await until(lambda: supervisor._helpers)
    found.append("/bin/true")
    supervisor._begin_no_more()
    await asyncio.gather(*(child.stop(TIMEOUT_S) for child in supervisor._helpers))
    await keeping
    assert [child.spec.name for child in supervisor._helpers] == ["janitor-1"]
