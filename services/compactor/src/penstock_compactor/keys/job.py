"""The driver's part of key compaction: runs a job's tasks on Spark, and commits output after output.

The outputs of one partition are committed in the order of its offsets. After a rejected output, no other follows.
A later output may have lost tombstones. Older records of their keys may still be in the earlier part of the log.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.contracts.codec import decode
from penstock.contracts.commands import OutputSegment, ReplacedRun, ReplaceExtents
from penstock.runtime.clock import Clock, Entropy
from penstock_compactor.jobs.values import Failed, StorePlace
from penstock_compactor.keys.clean_pass import Times, times_of
from penstock_compactor.keys.limits import KeyJobLimits
from penstock_compactor.keys.plan import KEY_LEVEL, KeyInput, KeyJob, KeyOutput, KeyRun
from penstock_compactor.keys.tasks import (
    LATEST_SCHEMA,
    RESULT_SCHEMA,
    Cleaned,
    CleanTask,
    Crowded,
    NotCleaned,
    Result,
    Worker,
    clean_empty,
    clean_partitions,
    clean_parts,
    find_latest,
)

# Sends the command until its outcome is known, and returns whether every run was accepted.
Commit = Callable[[ReplaceExtents], bool]


class Report(msgspec.Struct):
    """The result of a job, with its costs."""

    bytes_in: dict[int, int] = {}  # by level
    bytes_out: int = 0
    task_seconds: float = 0.0  # of the tasks that wrote outputs
    task_cpu_seconds: float = 0.0
    resident_bytes_max: int = 0  # of a worker
    records_left: int = 0
    outputs_committed: int = 0
    outputs_rejected: int = 0
    failures: list[tuple[str, str]] = []  # kind, reason


class KeyCompaction:
    """Runs key compaction jobs on one Spark session, with blocking calls."""

    def __init__(
        self,
        session: Any,
        place: StorePlace,
        clock: Clock,
        entropy: Entropy,
        *,
        limits: KeyJobLimits,
    ) -> None:
        self._session = session
        self._worker = Worker(place, clock, entropy)
        self._clock = clock
        self._limits = limits

    def run(self, job_id: str, job: KeyJob, commit: Commit) -> Report:
        """Run the job; failures are in the report, and another job can retry them."""
        report = Report()
        times = times_of(job.now_ms, job.delete_retention_ms)
        work = _Work(job_id, self._clock, commit, report)
        if job.is_one_partition and len(job.outputs) > 1:
            self._clean_large(work, job.outputs, times)
        else:
            self._clean_small(work, job.outputs, times)
        return report

    def _clean_small(self, work: "_Work", outputs: Sequence[KeyOutput], times: Times) -> None:
        """Clean whole partitions, each in one task; partitions that are too large for that use a shuffle."""
        tasks = [CleanTask(number, output, times) for number, output in enumerate(outputs)]
        results = self._each(tasks, partial(clean_partitions, self._worker, self._limits.held_by_a_task))
        crowded = [result for result in results if isinstance(result, Crowded)]
        for result in results:  # commit before the shuffle, because a finished output would get too old in that time
            if not isinstance(result, Crowded):
                work.commit(outputs[result.output], result)
        for run in (run for result in crowded for run in outputs[result.output].runs):
            self._clean_large(work, [KeyOutput([run])], times)

    def _clean_large(self, work: "_Work", outputs: Sequence[KeyOutput], times: Times) -> None:
        """Clean one partition with a shuffle of its keys."""
        tasks = [CleanTask(number, output, times) for number, output in enumerate(outputs)]
        latest = self._latest([(task.number, run) for task in tasks for run in task.output.runs])
        waves = list(_waves(tasks, self._limits.wave_bytes_max))
        if len(waves) > 1:
            latest = latest.persist()
        try:
            for wave in waves:
                for result in self._clean_wave(latest, wave):
                    if not work.commit(outputs[result.output], result):
                        return
        finally:
            latest.unpersist()

    def _latest(self, runs: Sequence[tuple[int, KeyRun]]) -> Any:
        """A data frame with the offsets of the kept records (`last`) and the output of each."""
        parts = [(output, part) for output, run in runs for part in _scans(run, self._limits.scan_bytes_max)]
        find = partial(find_latest, self._worker.place, self._limits.held_before_shuffle, parts)
        found = self._session.range(0, len(parts), 1, len(parts)).mapInArrow(find, LATEST_SCHEMA)
        grouped = found.groupBy("key").agg({"last": "max", "output": "max"})
        return grouped.selectExpr("`max(last)` AS last", "`max(output)` AS output")

    def _clean_wave(self, latest: Any, wave: Sequence[CleanTask]) -> list[Result]:
        """The results of consecutive outputs, in order."""
        first, last = wave[0].number, wave[-1].number
        offsets = latest.where(f"output BETWEEN {first} AND {last}").repartition(len(wave), "output")
        cleaned = offsets.sortWithinPartitions("output", "last").mapInArrow(
            partial(clean_parts, self._worker, list(wave)), RESULT_SCHEMA
        )
        results = {each.output: each for each in (_result(row[0]) for row in cleaned.collect())}
        empty = [task for task in wave if task.number not in results]
        results |= {each.output: each for each in self._each(empty, partial(clean_empty, self._worker))}
        return [results[task.number] for task in wave]

    def _each(self, tasks: Sequence[CleanTask], work: Callable[[CleanTask], bytes]) -> list[Result]:
        if not tasks:
            return []
        encoded = self._session.sparkContext.parallelize(tasks, len(tasks)).map(work).collect()
        return [_result(each) for each in encoded]


class _Work:
    """A job in progress: commits outputs, and records results in the report."""

    def __init__(self, job_id: str, clock: Clock, commit: Commit, report: Report) -> None:
        self._job_id = job_id
        self._clock = clock
        self._commit = commit
        self._report = report

    def commit(self, output: KeyOutput, result: Result) -> bool:
        """Commit an output; return whether it replaced its inputs."""
        report = self._report
        if not isinstance(result, Cleaned):
            failed = result.failed if isinstance(result, NotCleaned) else Failed("Crowded", "too many keys for a task")
            report.failures.append((failed.kind, failed.reason))
            return False
        for each in (each for run in output.runs for each in run.inputs):
            report.bytes_in[each.level] = report.bytes_in.get(each.level, 0) + each.length
        report.bytes_out += result.size_bytes
        report.records_left += result.records_left
        report.task_seconds += result.seconds
        report.task_cpu_seconds += result.cpu_seconds
        report.resident_bytes_max = max(report.resident_bytes_max, result.resident_bytes_max)
        is_accepted = self._commit(_command(self._job_id, self._clock.now_ms(), output, result))
        report.outputs_committed += is_accepted
        report.outputs_rejected += not is_accepted
        return is_accepted


def _command(job_id: str, now_ms: int, output: KeyOutput, cleaned: Cleaned) -> ReplaceExtents:
    segments = {each.segment_id: 0 for run in output.runs for each in run.inputs}
    places = {segment_id: place for place, segment_id in enumerate(segments)}
    runs = [
        ReplacedRun(
            topic_id=run.topic_id,
            partition=run.partition,
            base_offset=run.base_offset,
            last_offset=run.last_offset,
            inputs=[number for each in run.inputs for number in (places[each.segment_id], each.position)],
            output=0,
            position=done.position,
            length=done.length,
            max_timestamp=done.max_timestamp,
            cleaned=True,
            delete_horizon_ms=done.delete_horizon_ms,
            without_aborted=True,
        )
        for run, done in zip(output.runs, cleaned.runs, strict=True)
    ]
    stored = OutputSegment(cleaned.segment_id, KEY_LEVEL, cleaned.size_bytes)
    return ReplaceExtents(now_ms, job_id, list(segments), [stored], runs)


def _result(encoded: bytes) -> Result:
    return decode(bytes(encoded), Result)  # type: ignore[arg-type]


def _waves(tasks: Sequence[CleanTask], bytes_max: int) -> Iterator[list[CleanTask]]:
    wave: list[CleanTask] = []
    size = 0
    for task in tasks:
        if wave and size + task.output.size_bytes > bytes_max:
            yield wave
            wave, size = [], 0
        wave.append(task)
        size += task.output.size_bytes
    yield wave


def _scans(run: KeyRun, bytes_max: int) -> Iterator[KeyRun]:
    """The parts of a run, one per task, cut between extents."""
    inputs: list[KeyInput] = []
    size = 0
    for each in run.inputs:
        if inputs and size + each.length > bytes_max:
            yield msgspec.structs.replace(run, inputs=inputs)
            inputs, size = [], 0
        inputs.append(each)
        size += each.length
    yield msgspec.structs.replace(run, inputs=inputs)
