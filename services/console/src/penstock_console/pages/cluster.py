"""The processes of the cluster: version, load, memory, restarts, and their problems."""

import msgspec

from penstock.contracts.messages import shown_pool
from penstock_console.pages.context import Request, Sources
from penstock_console.pages.problems import Problem, problems_of
from penstock_console.survey.processes import Process, Reading

HANGS = "hangs"


class ProcessRow(msgspec.Struct, frozen=True):
    """One role of a process; None where its metrics do not say."""

    role: str
    instance: str
    zone: str
    pool: str
    version: str
    is_ready: bool
    kafka: list[str]
    load_bytes: int
    budget_bytes: int
    memory_bytes: float | None
    cpu_seconds: float | None
    uptime_seconds: float | None
    problem: str


class SupervisedRow(msgspec.Struct, frozen=True):
    """A process that `penstock up` started."""

    name: str
    state: str
    pid: int | None
    restarts: int


class ClusterPage(msgspec.Struct, frozen=True):
    """All processes; `supervised` is empty unless `penstock up` started the console."""

    cluster: str
    problems: list[Problem]
    processes: list[ProcessRow]
    supervised: list[SupervisedRow]
    has_versions: list[str]


async def cluster(sources: Sources, _request: Request) -> ClusterPage:
    """The processes that announce themselves, and those that `penstock up` knows."""
    reading: Reading = await sources.processes.current()
    now_s = sources.clock.now_ms() / 1000
    return ClusterPage(
        sources.cluster,
        problems_of(reading),
        [_row(each, now_s) for each in reading.processes],
        [SupervisedRow(each.name, each.state, each.pid, each.restarts) for each in reading.supervised],
        sorted({each.presence.version for each in reading.processes}),
    )


def _row(process: Process, now_s: float) -> ProcessRow:
    presence, report = process.presence, process.report
    started_s = _sample(process, "process_start_time_seconds")
    problems = [report["reason"], *report["degraded"].values()]
    return ProcessRow(
        presence.role,
        presence.instance,
        presence.zone,
        shown_pool(presence),
        presence.version,
        bool(report["ready"]),
        [f"{each.host}:{each.port}" for each in presence.listeners],
        presence.load_bytes,
        presence.budget_bytes,
        _sample(process, "process_resident_memory_bytes"),
        _sample(process, "process_cpu_seconds_total"),
        None if started_s is None else max(now_s - started_s, 0.0),
        "; ".join(each for each in problems if each),
    )


def _sample(process: Process, name: str) -> float | None:
    return next((value for (each, _), value in process.samples.items() if each == name), None)
