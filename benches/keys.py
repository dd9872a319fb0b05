"""`.venv-spark/bin/python -m benches.keys`: key compaction of many records, by one task and by a shuffle."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import msgspec
import numpy as np

from benches.report import Result, save, table
from penstock.contracts.batches import BatchMeta
from penstock.contracts.commands import ReplaceExtents
from penstock.contracts.ids import new_segment_id
from penstock.kafkawire.cleaning import scan_records
from penstock.kafkawire.records import CRC_START, Record, build_batch, read_batch_header
from penstock.runtime.clock import SystemClock, SystemEntropy
from penstock.segment.keys import segment_key
from penstock.segment.writer import build_segment
from penstock.spark.blocks import Range
from penstock.spark.ranges import StoreRanges
from penstock.spark.session import heap_bytes, open_session
from penstock_compactor.jobs.values import StorePlace
from penstock_compactor.keys.batches import batches_of
from penstock_compactor.keys.columns import Records, plain_of
from penstock_compactor.keys.job import KeyCompaction, Report
from penstock_compactor.keys.limits import Bounds, KeyJobLimits
from penstock_compactor.keys.plan import KEY_LEVEL, KeyInput, KeyJob, KeyOutput, KeyRun

MIB = 1024 * 1024
CLUSTER = "bench"
TOPIC = b"t" * 16
KEY_DIGITS = 16
VALUE = b"v" * 84
BATCH_RECORDS = 1_000
BATCHES_PER_SEGMENT = 70  # about 8 MB
PARTS = 4  # outputs of the shuffled job
UNBOUNDED = Bounds(2**40, 2**40)
MADE_BY_TEN = 10 ** np.arange(KEY_DIGITS - 1, -1, -1, dtype=np.int64)


class Log(msgspec.Struct):
    """One partition in a store: its extents, and the last offset of each key."""

    place: StorePlace
    inputs: list[KeyInput]
    latest: Any

    @property
    def size_bytes(self) -> int:
        return sum(each.length for each in self.inputs)


def main() -> int:
    """Measure both ways, and compare their results with a plain table of keys."""
    parser = argparse.ArgumentParser(prog="benches.keys")
    parser.add_argument("--records", type=int, default=10_000_000, help="(%(default)s)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="distinct keys (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = list(measure(Path(folder), arguments.records, arguments.keys))
    print(table(results))
    print(f"\nas JSON in {save(results, 'keys')}", file=sys.stderr)
    return 0


def measure(folder: Path, records: int, keys: int) -> Iterator[Result]:
    """Make a log in a folder, and compact it in both ways."""
    log = make_log(folder, records, keys)
    print(f"{records} records of {keys} keys, {log.size_bytes / MIB:.0f} MiB", file=sys.stderr, flush=True)
    session = open_session("bench", "local[2]")
    session.range(10).count()  # the first job takes 1 s longer
    whole = KeyJob(TOPIC, 0, [KeyOutput([KeyRun(TOPIC, 0, 0, log.inputs)])], SystemClock().now_ms())
    limits = KeyJobLimits(held_by_a_task=UNBOUNDED)
    yield from _compacted("by one task", _compaction(session, log, limits), whole, log)
    count = -(-len(log.inputs) // PARTS)
    parts = [log.inputs[start : start + count] for start in range(0, len(log.inputs), count)]
    cut = KeyJob(TOPIC, 0, [KeyOutput([KeyRun(TOPIC, 0, 0, part)]) for part in parts], SystemClock().now_ms())
    yield from _compacted("by a shuffle", _compaction(session, log, KeyJobLimits()), cut, log)
    yield Result("keys", "heap of Spark's JVM", heap_bytes(session) / MIB, "MiB")
    session.stop()


def _compaction(session: Any, log: Log, limits: KeyJobLimits) -> KeyCompaction:
    return KeyCompaction(session, log.place, SystemClock(), SystemEntropy(), limits=limits)


def _compacted(how: str, compaction: KeyCompaction, job: KeyJob, log: Log) -> Iterator[Result]:
    commands: list[ReplaceExtents] = []

    def commit(command: ReplaceExtents) -> bool:
        commands.append(command)
        return True

    began_s = time.perf_counter()
    report = compaction.run("bench", job, commit)
    seconds = time.perf_counter() - began_s
    records = log.inputs[-1].last_offset + 1
    yield Result("keys", f"{how}, seconds", seconds, "s")
    yield Result("keys", f"{how}, CPU seconds of the tasks that wrote", report.task_cpu_seconds, "s")
    yield Result("keys", f"{how}, records", records / seconds / 1e6, "million/s", more_is_better=True)
    yield Result("keys", f"{how}, bytes read once", log.size_bytes / seconds / 1e6, "MB/s", more_is_better=True)
    yield Result("keys", f"{how}, most memory of a worker", report.resident_bytes_max / MIB, "MiB")
    yield Result("keys", f"{how}, bytes left", report.bytes_out / MIB, "MiB")
    yield Result("keys", f"{how}, records that differ", float(_differing(log, report, commands)), "records", 0)


def _differing(log: Log, report: Report, commands: list[ReplaceExtents]) -> int:
    """How many keys have anything else than exactly their last record."""
    assert not report.failures, report.failures
    found = np.full(len(log.latest), -1, np.int64)
    seen = 0
    with StoreRanges(log.place.url) as ranges:
        for command in commands:
            output = command.outputs[0]
            for run in command.runs:
                key = segment_key("", CLUSTER, KEY_LEVEL, output.segment_id)
                each = KeyInput(
                    output.segment_id, KEY_LEVEL, run.base_offset, run.last_offset, run.position, run.length, 0
                )
                for batch in batches_of([each], ranges.stream([Range(key, run.position, run.length)])):
                    if not batch.header.record_count:
                        continue
                    records = Records([batch], [plain_of(batch) or b""])
                    digits = records.key_starts[:, None] + np.arange(KEY_DIGITS)
                    data = np.frombuffer(records.data, np.uint8)
                    numbers = ((data[digits].astype(np.int64) - ord("0")) * MADE_BY_TEN).sum(axis=1)
                    found[numbers] = records.offsets
                    seen += len(numbers)
    return int((found != log.latest).sum()) + seen - int((log.latest >= 0).sum())


def make_log(folder: Path, records: int, keys: int) -> Log:
    """Level-0 segments of one partition, with random keys."""
    chance = np.random.default_rng(1)
    template, places = _template()
    log = Log(StorePlace(f"file://{folder}", CLUSTER), [], np.full(keys, -1, np.int64))
    offset = 0
    with StoreRanges(log.place.url) as ranges:
        while offset < records:
            now_ms = SystemClock().now_ms()
            segment_id = new_segment_id(now_ms, chance.bytes(10))
            batches = []
            base_offset = offset
            for _ in range(min(BATCHES_PER_SEGMENT, (records - offset) // BATCH_RECORDS)):
                numbers = chance.integers(0, keys, BATCH_RECORDS)
                batches.append(_batch(template, places, numbers))
                log.latest[numbers] = np.arange(offset, offset + BATCH_RECORDS)
                offset += BATCH_RECORDS
            placed = [(TOPIC, 0, _meta(data), data) for data in batches]
            built = build_segment(segment_id, writer="bench", created_ms=now_ms, level=0, batches=placed)
            key = segment_key("", CLUSTER, 0, segment_id)
            ranges.call(lambda store, key=key, built=built: store.put(key, built.buffers))  # type: ignore[misc]
            length = sum(map(len, batches))
            log.inputs.append(KeyInput(segment_id, 0, base_offset, offset - 1, built.runs[0].position, length, now_ms))
    return log


def _template() -> tuple[Any, Any]:
    """A batch to fill in, and the places of the digits of its keys."""
    several = [Record(number, number, b"0" * KEY_DIGITS, VALUE) for number in range(BATCH_RECORDS)]
    data = build_batch(several)
    header = read_batch_header(data)
    starts = np.array([each.key_start for each in scan_records(data[61:], header)]) + 61
    return np.frombuffer(data, np.uint8).copy(), starts[:, None] + np.arange(KEY_DIGITS)


def _batch(template: Any, places: Any, numbers: Any) -> bytes:
    template[places] = numbers[:, None] // MADE_BY_TEN % 10 + ord("0")
    template[CRC_START - 4 : CRC_START] = np.frombuffer(
        crc32c.crc32c(memoryview(template)[CRC_START:]).to_bytes(4, "big"), np.uint8
    )
    return bytes(template)


def _meta(data: bytes) -> BatchMeta:
    header = read_batch_header(data)
    return BatchMeta(len(data), header.record_count, header.max_timestamp, -1, -1, -1, header.attributes)


if __name__ == "__main__":
    sys.exit(main())
