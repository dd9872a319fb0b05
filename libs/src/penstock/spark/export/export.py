"""Exports a topic's new records to a target, once each: from the end of the target to the present end of the topic."""

import contextlib
import fcntl
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts.errors import Conflict, Invalid
from penstock.contracts.ids import topic_id_text
from penstock.runtime.clock import Clock, Entropy, SystemClock, SystemEntropy
from penstock.spark.config import ClusterAddress
from penstock.spark.export.files import ExportedFile, FileTask, exported_schema
from penstock.spark.export.targets import Reached, Target, open_target
from penstock.spark.export.value_schema import ValueSchema
from penstock.spark.source.catalog import run_apart
from penstock.spark.source.config import SourceConfig, TopicChoice
from penstock.spark.source.planning import opened_planner
from penstock.spark.source.splits import Split

SPLIT_BYTES = 128 * 1024 * 1024  # of one file
LOCK = ".lock"
PROGRESS_S = 2.0

Report = Callable[[str], None]  # takes a line about the progress
# Runs one task per split, in any order and possibly several times, and returns one result per split.
Runner = Callable[[FileTask, Sequence[Split], Report], list[ExportedFile]]


class ExportRequest(msgspec.Struct, frozen=True):
    """The source and the target of an export."""

    address: ClusterAddress
    topic: str
    folder: Path
    kind: str  # parquet or iceberg
    value_schema: ValueSchema | None = None
    skips_lost: bool = False  # whether to continue after records that retention has removed


class ExportReport(msgspec.Struct, frozen=True):
    """The result of an export."""

    topic: str
    rows: int
    files: int
    size_bytes: int
    malformed: int
    offsets: dict[str, int]  # the end offset of the target now, by partition


class _Plan(msgspec.Struct, frozen=True):
    splits: list[Split]
    reached: Reached


def export_topic(
    request: ExportRequest, run: Runner, report: Report, *, clock: Clock | None = None, entropy: Entropy | None = None
) -> ExportReport:
    """Export the new records; `Conflict`, `Invalid` or `Unavailable` with one sentence if that is not possible."""
    folder = request.folder.absolute()
    with _locked(folder):
        schema = exported_schema(request.value_schema)
        target = open_target(request.kind, folder, request.topic, schema)
        plan = run_apart(_planned(request, target.reached()))
        files: list[ExportedFile] = []
        if plan.splits:
            report(f"exporting {sum(split.size_bytes for split in plan.splits):,} bytes in {len(plan.splits)} parts")
            task = FileTask(
                address=request.address,
                folder=str(target.folder()),
                value_schema=request.value_schema,
                clock=clock or SystemClock(),
                entropy=entropy or SystemEntropy(),
            )
            files = _written(request, task, target, plan, run, report)
        return ExportReport(
            request.topic,
            sum(file.rows for file in files),
            len(files),
            sum(file.size_bytes for file in files),
            sum(file.malformed for file in files),
            plan.reached.offsets,
        )


def _written(
    request: ExportRequest, task: FileTask, target: Target, plan: _Plan, run: Runner, report: Report
) -> list[ExportedFile]:
    written = run(task, plan.splits, report)
    files = [file for file in written if file.rows]
    for empty in (file for file in written if not file.rows):
        Path(empty.path).unlink()
    reached = msgspec.structs.replace(plan.reached, rows=sum(file.rows for file in files))
    if files or request.kind == "parquet":
        target.commit(files, reached)
    return files


async def _planned(request: ExportRequest, reached: Reached | None) -> _Plan:
    config = SourceConfig(
        address=request.address,
        topics=TopicChoice((request.topic,), ()),
        split_bytes=SPLIT_BYTES,
        fail_on_data_loss=not request.skips_lost,
    )
    async with opened_planner(config) as planner:
        topics = await planner.topics()
        topic_id = topic_id_text(topics[request.topic].topic_id)
        _check(request, reached, topic_id)
        bounds = await planner.bounds(topics)
        known = {} if reached is None else reached.offsets
        start = {key: known.get(str(key[1]), log.start) for key, log in bounds.items()}
        end = {key: max(start[key], log.end) for key, log in bounds.items()}
        splits = await planner.splits(planner.wanted(topics, bounds, start, end))
    offsets = {str(number): offset for (_, number), offset in sorted(end.items())}
    return _Plan(splits, Reached(request.address.cluster, request.topic, topic_id, offsets))


def _check(request: ExportRequest, reached: Reached | None, topic_id: str) -> None:
    if reached is None:
        return
    if (reached.cluster, reached.topic) != (request.address.cluster, request.topic):
        raise Invalid(f"{request.folder} has an export of {reached.topic!r} of the cluster {reached.cluster!r}")
    if reached.topic_id != topic_id:
        raise Conflict(f"{request.topic!r} was deleted and created again; export it to another folder")


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one export at a time writes to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a+")
    except OSError as error:
        raise Invalid(f"cannot write to {folder}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(f"another export to {folder} is running") from error
        yield


def run_on_spark(session: Any) -> Runner:
    """A runner of an export's tasks in a Spark session."""

    def run(task: FileTask, splits: Sequence[Split], report: Report) -> list[ExportedFile]:
        context = session.sparkContext
        job = context.parallelize(list(splits), len(splits)).map(task)
        ended = threading.Event()
        reporter = threading.Thread(target=_report_progress, args=(context, len(splits), report, ended), daemon=True)
        reporter.start()
        try:
            files: list[ExportedFile] = job.collect()
        finally:
            ended.set()
            reporter.join()
        return files

    return run


def _report_progress(context: Any, total: int, report: Report, ended: threading.Event) -> None:
    tracker = context.statusTracker()
    reported = 0
    while not ended.wait(PROGRESS_S):
        done = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            done = max(done, info.numCompletedTasks if info is not None else 0)
        if done > reported:
            reported = done
            report(f"{done} of {total} parts written")
