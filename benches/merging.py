"""The cost of merging segments, the overhead of Spark, and the gain for readers.

Run it with `.venv-spark/bin/python -m benches.merging`.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benches.report import Result, save, table
from penstock.contracts.batches import BatchMeta
from penstock.contracts.ids import new_segment_id
from penstock.kafkawire.records import Record, build_batch, read_batch_header
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.segment import build_segment
from penstock.segment.keys import segment_key
from penstock.spark.blocks import BLOCK_BYTES_MAX
from penstock.spark.ranges import StoreRanges
from penstock.spark.session import open_session
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.merge.merge_task import merge
from penstock_compactor.merge.tasks import InputExtent, InputRun, InputSegment, Merged, MergeTask
from penstock_compactor.planning.planner import Kind, PlanLimits
from tests.testkit.loads.compaction_model import CompactionModel

MIB = 1024 * 1024
CLUSTER = "bench"
NOW_MS = 1_700_000_000_000
TOPIC = b"t" * 16
SEGMENT_BYTES = 8 * MIB
MERGE_MB_PER_S_MIN = 150.0
PARTITIONS = 1_000  # of the replay
FLUSHES = 2_048  # 16 GiB
LARGE, SMALL = 256 * 1024, 4 * 1024  # bytes of a batch


def main() -> int:
    """Print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(prog="benches.merging")
    parser.add_argument("--mib", type=int, default=1024, help="MiB of one task's inputs (%(default)s)")
    parser.add_argument("--task", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        return _run_task(Path(arguments.task))
    results = [*tasks(arguments.mib), *replay()]
    print(table(results))
    print(f"\nas JSON in {save(results, 'merging')}", file=sys.stderr)
    return 0


def tasks(mib: int) -> Iterator[Result]:
    """One task alone in its own process, then two tasks on Spark."""
    with tempfile.TemporaryDirectory() as folder:
        place = StorePlace(f"file://{folder}/objects", CLUSTER)
        for batch_bytes in (LARGE, SMALL):
            task = make_task(place, mib * MIB, batch_bytes)
            done = _alone(place, task, Path(folder))
            yield from _of_task(f"{mib} MiB in batches of {batch_bytes // 1024} KiB", task, done)
            if batch_bytes == LARGE:
                yield from _on_spark(place, task)
            _clear(place)


def _of_task(what: str, task: MergeTask, done: Merged) -> Iterator[Result]:
    rate = task.length / 1e6
    yield Result("merging", f"{what}, by the clock", rate / done.seconds, "MB/s", MERGE_MB_PER_S_MIN, True)
    yield Result("merging", f"{what}, per second of CPU", rate / done.cpu_seconds, "MB/s", MERGE_MB_PER_S_MIN, True)
    yield Result("merging", f"{what}, memory of the process", done.resident_bytes_max / 1e6, "MB")


def _on_spark(place: StorePlace, task: MergeTask) -> Iterator[Result]:
    session = open_session("benches", "local[2]")
    try:
        run = partial(merge, place, clock=SystemClock(), entropy=SystemEntropy())
        session.sparkContext.parallelize(range(2), 2).map(str).collect()  # start the workers
        began_s = time.monotonic()
        found = session.sparkContext.parallelize([task, task], 2).map(run).collect()
        seconds = time.monotonic() - began_s
    finally:
        session.stop()
    assert all(isinstance(each, Merged) for each in found), found
    longest_s = max(each.seconds for each in found)
    yield Result(
        "merging", "the same on local[2], two at once, per core", task.length / 1e6 / seconds, "MB/s", 150, True
    )
    yield Result("merging", "Spark's share of that time", 100 * (seconds - longest_s) / seconds, "%")
    yield Result("merging", "memory of a worker", max(each.resident_bytes_max for each in found) / 1e6, "MB")


def make_task(place: StorePlace, size_bytes: int, batch_bytes: int) -> MergeTask:
    """Store flushed segments with batches of 32 partitions, and return the task that merges them."""
    data = build_batch([Record(value=os.urandom(batch_bytes - 100))])
    header = read_batch_header(data)
    meta = BatchMeta(len(data), 1, header.max_timestamp, -1, -1, -1, 0)
    count = SEGMENT_BYTES // len(data)
    segments = []
    runs: dict[int, list[InputExtent]] = {}
    with StoreRanges(place.url) as ranges:
        for number in range(size_bytes // SEGMENT_BYTES):
            segment = InputSegment(new_segment_id(NOW_MS, os.urandom(10)), 0)
            batches = [(TOPIC, each % 32, meta, data) for each in range(count)]
            built = build_segment(segment.segment_id, writer="bench", created_ms=NOW_MS, level=0, batches=batches)
            key = segment_key("", CLUSTER, 0, segment.segment_id)
            ranges.call(lambda store, key=key, built=built: store.put(key, built.buffers))  # type: ignore[misc]
            segments.append(segment)
            for run in built.runs:
                extents = runs.setdefault(run.partition, [])
                base = extents[-1].last_offset + 1 if extents else 0
                length = len(run.batches) * len(data)
                extents.append(InputExtent(number, base, base + len(run.batches) - 1, run.position, length))
    return MergeTask(1, segments, [InputRun(TOPIC, partition, extents) for partition, extents in sorted(runs.items())])


def _alone(place: StorePlace, task: MergeTask, folder: Path) -> Merged:
    """Run the task in a new process, to measure its memory alone."""
    path = folder / "task"
    path.write_bytes(msgspec.msgpack.encode((place, task)))
    answer = subprocess.run(
        [sys.executable, "-m", "benches.merging", "--task", str(path)], capture_output=True, check=True
    )
    return msgspec.msgpack.decode(answer.stdout, type=Merged)


def _run_task(path: Path) -> int:
    place, task = msgspec.msgpack.decode(path.read_bytes(), type=tuple[StorePlace, MergeTask])
    done = merge(place, task, SystemClock(), SystemEntropy())
    assert isinstance(done, Merged), done
    sys.stdout.buffer.write(msgspec.msgpack.encode(done))
    return 0


def _clear(place: StorePlace) -> None:
    with StoreRanges(place.url) as ranges, contextlib.suppress(StopIteration):
        while found := ranges.call(lambda store: store.list("")):
            keys = [each.key for each in found]
            ranges.call(lambda store, keys=keys: store.delete(keys))  # type: ignore[misc]


def replay() -> Iterator[Result]:
    """The cost of a read of one partition of 1,000 from its start, after 16 GiB in full segments."""
    sizes = dict.fromkeys([(TOPIC, number) for number in range(PARTITIONS)], SEGMENT_BYTES // PARTITIONS)
    for name, kinds in (("before level 1", None), ("after level 1", (Kind.FLUSHED,)), ("after level 2", ())):
        model = CompactionModel(PlanLimits(), NOW_MS)
        for _ in range(FLUSHES):
            model.flush(sizes)
            model.now_ms += 250
            if kinds is not None:
                model.compact(*kinds)
        lengths = model.ranges((TOPIC, 0))
        yield Result("replay", f"ranges of one partition of {PARTITIONS:,}, {name}", len(lengths), "ranges")
        gets = sum(-(-length // BLOCK_BYTES_MAX) for length in lengths)
        yield Result("replay", f"GETs for them, {name}", gets, "GETs")
        yield Result("replay", f"write amplification, {name}", model.written_bytes / model.flushed_bytes, "times")


if __name__ == "__main__":
    sys.exit(main())
