"""The tasks of key compaction in Spark's workers: find the last record of each key, and write the kept records.

If one task can hold the keys of a partition, it compacts the partition from start to end. For a larger partition, tasks
find the last records of its parts, and Spark groups these by key. Then tasks get the sorted offsets of the kept records
for their outputs.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.contracts.batches import NO_SEGMENT_ID
from penstock.contracts.codec import encode
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import ENTROPY_BYTES, new_segment_id
from penstock.runtime.clock import Clock, Entropy
from penstock.runtime.process.memory import resident_bytes_max
from penstock.segment.compacted_writer import CompactedWriter
from penstock.segment.keys import segment_key
from penstock.spark.blocks import Range
from penstock.spark.ranges import StoreRanges
from penstock_compactor.jobs.values import Failed, StorePlace
from penstock_compactor.keys.batches import PlacedBatch, batches_of
from penstock_compactor.keys.clean_pass import RunCleaner, Survivors, Times
from penstock_compactor.keys.latest import TooManyKeys, latest_of, latest_parts
from penstock_compactor.keys.limits import Bounds
from penstock_compactor.keys.plan import KEY_LEVEL, KeyOutput, KeyRun

NO_PREFIX = ""  # the store's URL already has the prefix

LATEST_SCHEMA = "key binary, last long, output int"  # in Spark's syntax
RESULT_SCHEMA = "result binary"


class CleanedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a run in an output, and the time from which its first tombstone may be removed (-1: none)."""

    position: int
    length: int
    max_timestamp: int
    delete_horizon_ms: int


class Cleaned(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A stored output: its runs in the order of the plan, and its costs."""

    output: int  # the output's number in the job
    segment_id: bytes
    size_bytes: int
    runs: list[CleanedRun]
    records_left: int
    seconds: float
    cpu_seconds: float
    resident_bytes_max: int  # of the worker since its start


class Crowded(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """No output was written, because one task cannot hold the keys of one of the partitions."""

    output: int


class NotCleaned(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """No output was written, for this reason."""

    output: int
    failed: Failed


Result = Cleaned | Crowded | NotCleaned


class CleanTask(msgspec.Struct, frozen=True, array_like=True):
    """One output of a job."""

    number: int  # the output's number in the job
    output: KeyOutput
    times: Times


class Worker(msgspec.Struct, frozen=True):
    """The dependencies of a task.

    Spark's workers get copies. The entropy must have no state, or two copies give two segments the same id.
    """

    place: StorePlace
    clock: Clock
    entropy: Entropy


def clean_partitions(worker: Worker, bounds: Bounds, task: CleanTask) -> bytes:
    """Find the last records of whole partitions and write them; returns an encoded `Result`."""

    def of_task(ranges: StoreRanges, run: KeyRun) -> Survivors:
        return Survivors([latest_of(run, _batches(ranges, worker.place, run), bounds).offsets()])

    return encode(_result_of(worker, task, of_task))


def clean_empty(worker: Worker, task: CleanTask) -> bytes:
    """Write an output without records; returns an encoded `Result`."""
    return encode(_result_of(worker, task, lambda ranges, run: Survivors([])))


def find_latest(
    place: StorePlace, bounds: Bounds, parts: list[tuple[int, KeyRun]], numbers: Iterable[Any]
) -> Iterator[Any]:
    """For Spark's `mapInArrow`: takes numbers of parts, and returns their last records as `LATEST_SCHEMA`."""
    with StoreRanges(place.url) as ranges:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                output, run = parts[number]
                for table in latest_parts(run, _batches(ranges, place, run), bounds):
                    outputs = pa.array(np.full(table.num_rows, output, np.int32))
                    yield from table.append_column("output", outputs).to_batches()


def clean_parts(worker: Worker, tasks: list[CleanTask], latest: Iterable[Any]) -> Iterator[Any]:
    """For Spark's `mapInArrow`: takes rows (last, output), sorted by output and offset; returns encoded `Result`s.

    The outputs of `tasks` are consecutive in the job.
    """
    by_number = {task.number: task for task in tasks}
    for number, fragments in groupby(_by_output(latest), key=itemgetter(0)):
        found = Survivors(offsets for _, offsets in fragments)
        result = _result_of(worker, by_number[number], partial(_given, found))
        yield pa.record_batch([pa.array([encode(result)], pa.binary())], names=["result"])


def _given(survivors: Survivors, _ranges: StoreRanges, _run: KeyRun) -> Survivors:
    return survivors


def _by_output(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """(Output, its next offsets) from Arrow batches that are sorted by output and offset."""
    for batch in batches:
        offsets, outputs = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(outputs)) + 1).tolist(), len(outputs)]
        for start, end in pairwise(bounds):
            if end > start:
                yield int(outputs[start]), offsets[start:end]


def _result_of(worker: Worker, task: CleanTask, survivors_of: Callable[[StoreRanges, KeyRun], Survivors]) -> Result:
    """Write the output. A failure is a result: other tasks of the job continue, and a stored object is an orphan."""
    try:
        return _write(worker, task, survivors_of)
    except TooManyKeys:
        return Crowded(task.number)
    except PenstockError as error:
        return NotCleaned(task.number, Failed(type(error).__name__, str(error)))


def _write(worker: Worker, task: CleanTask, survivors_of: Callable[[StoreRanges, KeyRun], Survivors]) -> Cleaned:
    place, clock = worker.place, worker.clock
    began_s, began_cpu_s, born_ms = clock.monotonic_s(), time.process_time(), clock.now_ms()
    segment_id = new_segment_id(born_ms, worker.entropy.take(ENTROPY_BYTES))
    key = segment_key(NO_PREFIX, place.cluster, KEY_LEVEL, segment_id)
    runs, records_left = [], 0
    with StoreRanges(place.url) as ranges, ranges.output(key) as output:
        writer = CompactedWriter(segment_id, level=KEY_LEVEL, created_ms=born_ms, sink=output.write)
        for run in task.output.runs:
            survivors = survivors_of(ranges, run)
            cleaner = RunCleaner(run, task.times)
            writer.begin_run(run.topic_id, run.partition, run.base_offset)
            for left in cleaner.clean(_batches(ranges, place, run), survivors):
                writer.add(left.data, [left.facts])
            done = writer.end_run()
            assert done.last_offset == run.last_offset, "the last batch ends at the end of the run"
            runs.append(CleanedRun(done.position, done.length, done.max_timestamp, cleaner.delete_horizon_ms))
            records_left += done.record_count
        writer.finish()
    return Cleaned(
        output=task.number,
        segment_id=segment_id,
        size_bytes=output.size_bytes,
        runs=runs,
        records_left=records_left,
        seconds=clock.monotonic_s() - began_s,
        cpu_seconds=time.process_time() - began_cpu_s,
        resident_bytes_max=resident_bytes_max(),
    )


def _batches(ranges: StoreRanges, place: StorePlace, run: KeyRun) -> Iterator[PlacedBatch]:
    wanted = [
        Range(segment_key(NO_PREFIX, place.cluster, each.level, each.segment_id), each.position, each.length)
        for each in run.inputs
        if each.segment_id != NO_SEGMENT_ID
    ]
    return batches_of(run.inputs, ranges.stream(wanted), run.markers)
