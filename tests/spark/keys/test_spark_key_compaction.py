"""Key compaction keeps the last record of every key, as a dictionary does, and no record changes its offset."""

import random
import struct
from pathlib import Path
from typing import NoReturn

import crc32c
import msgspec
import pytest

from penstock.contracts.commands import ReplaceExtents
from penstock.kafkawire.records import CRC_START, Record, build_batch, decode_records, read_batch_header
from penstock_compactor.keys.limits import Bounds, KeyJobLimits
from tests.spark.keys.key_world import AT_ONCE, HOUR_MS, InlineSpark, KeyWorld, SetClock, random_records

pytestmark = pytest.mark.spark

ALWAYS = {"min.cleanable.dirty.ratio": "0"}


def fill(world: KeyWorld, chance: random.Random, *, segments: int, keys: int) -> None:
    """Segments with batches of every codec and size."""
    for _ in range(segments):
        batches = [
            (chance.randrange(world.partitions), random_records(chance, keys, chance.choice((1, 2, 30))))
            for _ in range(chance.randint(1, 6))
        ]
        world.flush(*batches, codec=chance.randrange(5))


def keyed(*keys: bytes | None, value: bytes | None = b"value") -> list[Record]:
    return [Record(number, 1_690_000_000_000 + number, key, value) for number, key in enumerate(keys)]


def offsets(world: KeyWorld) -> list[int]:
    return [offset for offset, _ in world.read()]


@pytest.mark.parametrize("seed", range(12))
def test_the_last_record_of_every_key_is_kept(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = KeyWorld(tmp_path, partitions=3, **ALWAYS)
    for _ in range(3):
        fill(world, chance, segments=5, keys=chance.choice((1, 10, 100)))
        reports = world.compact()
        assert not [failure for report in reports for failure in report.failures]
        for number in range(world.partitions):
            assert world.read(number) == world.expected(number)
            assert len(world.live(number)) <= 1
    assert world.jobs() == []


def test_a_batch_that_loses_no_record_is_unchanged(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    producer = {"producer_id": world.machine.producer(), "producer_epoch": 0, "base_sequence": 0}
    world.flush((0, keyed(b"a", b"b")), codec=1, **producer)
    (before,) = world.batches()
    world.compact()
    (after,) = world.batches()
    assert after[:12] + after[16:] == before[:12] + before[16:]


def test_a_last_batch_without_records_still_holds_its_last_offset(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    world.flush((0, keyed(b"a", b"b")), (0, keyed(None, None)))
    world.compact()
    assert offsets(world) == [0, 1]
    last = read_batch_header(world.batches()[-1])
    assert (last.base_offset, last.last_offset_delta, last.record_count) == (2, 1, 0)
    world.flush((0, keyed(b"c")))
    world.compact()
    assert [read_batch_header(batch).record_count for batch in world.batches()] == [2, 1]
    assert offsets(world) == [0, 1, 4]


def test_a_log_of_records_without_a_key_becomes_one_empty_batch(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    world.flush((0, keyed(None)), (0, keyed(None, None)))
    world.compact()
    (batch,) = world.batches()
    assert decode_records(batch) == []
    assert world.live()[0].last_offset == 2


def test_a_tombstone_is_kept_for_its_retention_and_then_removed(tmp_path: Path) -> None:
    clock = SetClock()
    world = KeyWorld(tmp_path, clock=clock, **ALWAYS, **{"delete.retention.ms": str(HOUR_MS)})
    world.flush((0, keyed(b"a", b"b")))
    world.flush((0, keyed(b"a", value=None)), (0, keyed(b"c")))
    world.compact()
    assert offsets(world) == [1, 2, 3]
    horizon_ms = clock.wall_ms + HOUR_MS
    assert world.horizons() == [-1, horizon_ms, -1]
    assert world.logs()[0].delete_horizon_ms == horizon_ms
    clock.wall_ms = horizon_ms - 1
    assert world.jobs() == []
    clock.wall_ms = horizon_ms
    world.compact()
    assert offsets(world) == [1, 3]
    assert world.logs()[0].delete_horizon_ms == -1
    assert world.jobs() == []


@pytest.mark.parametrize("minutes_off", [-10, 10])
def test_the_uptime_clock_decides_when_a_tombstone_is_removed(tmp_path: Path, minutes_off: int) -> None:
    """The compactor's clock may be wrong. If it counted, the job would run again and again, or too early."""
    clock, own_clock = SetClock(), SetClock()
    world = KeyWorld(tmp_path, clock=clock, **ALWAYS, **{"delete.retention.ms": "60000"})
    world.flush((0, keyed(b"a", b"b")), (0, keyed(b"a", value=None)))

    def compact() -> int:
        jobs = world.jobs()
        own_clock.wall_ms = clock.wall_ms + minutes_off * 60_000
        for job in jobs:
            world.compaction(clock=own_clock).run("job", job, world.commit)
        return len(jobs)

    assert [compact(), compact()] == [1, 0]
    clock.wall_ms += 59_999
    assert compact() == 0 and offsets(world) == [1, 2]
    clock.wall_ms += 1
    assert [compact(), compact()] == [1, 0] and offsets(world) == [1]


def test_outputs_of_single_tasks_are_committed_before_a_shuffle_begins(tmp_path: Path) -> None:
    """The shuffle may take long, and sequencers reject an output that is older than a quarter of an hour."""
    world = KeyWorld(tmp_path, partitions=2, **ALWAYS)
    world.flush((0, keyed(*(b"%d" % number for number in range(50)))), (1, keyed(b"a", b"a")))
    [job] = world.jobs(msgspec.structs.replace(AT_ONCE, extents_max=1))
    assert [[run.partition for run in output.runs] for output in job.outputs] == [[0], [1]]
    steps: list[str] = []

    class Shuffled(Exception):
        pass

    class Recorded(InlineSpark):
        def range(self, *_: int) -> NoReturn:
            steps.append("shuffle")
            raise Shuffled

    def commit(command: ReplaceExtents) -> bool:
        steps.append(f"commit {command.runs[0].partition}")
        return world.commit(command)

    with pytest.raises(Shuffled):
        world.compaction(Recorded(), KeyJobLimits(held_by_a_task=Bounds(10, 1000))).run("job", job, commit)
    assert steps == ["commit 1", "shuffle"]


def test_another_cleaning_does_not_delay_the_removal_of_a_tombstone(tmp_path: Path) -> None:
    clock = SetClock()
    world = KeyWorld(tmp_path, clock=clock, **ALWAYS, **{"delete.retention.ms": str(HOUR_MS)})
    world.flush((0, keyed(b"a", b"b", value=None)))
    world.compact()
    first_ms = clock.wall_ms + HOUR_MS
    clock.wall_ms += HOUR_MS // 2
    world.flush((0, keyed(b"b")), (0, keyed(b"z", value=None)))
    world.compact()
    assert world.horizons() == [first_ms, -1, first_ms + HOUR_MS // 2]
    assert world.logs()[0].delete_horizon_ms == first_ms
    assert next(record.timestamp for _, record in world.read()) == 1_690_000_000_000


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The batch with other attributes and a matching CRC."""
    data = bytearray(batch)
    struct.pack_into(">h", data, CRC_START, attributes)
    struct.pack_into(">I", data, CRC_START - 4, crc32c.crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)


def test_batches_that_cannot_be_parsed_are_kept(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    good = build_batch(keyed(b"a", b"b"))
    not_compressed = with_attributes(good, 1)
    out_of_order = build_batch([Record(1, 5, b"a", b"x"), Record(1, 6, b"b", b"x")], last_offset_delta=1)
    marker = build_batch([Record(0, 5, b"a", b"x")], control=True, transactional=True)
    world.flush_built([(0, good), (0, not_compressed), (0, out_of_order), (0, marker), (0, good)])
    for _ in range(2):
        world.compact()
        found = world.batches()
        assert [batch[CRC_START:] for batch in found[:3]] == [
            each[CRC_START:] for each in (not_compressed, out_of_order, marker)
        ]
        assert [read_batch_header(batch).base_offset for batch in found[:3]] == [2, 4, 6]
        assert [len(decode_records(batch)) for batch in found[3:]] == [2]
        world.flush_built([(0, good)])


@pytest.mark.parametrize("codec", range(5))
def test_a_damaged_batch_ends_the_job_and_changes_nothing(tmp_path: Path, codec: int) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    world.flush((0, keyed(b"a", b"a")), codec=codec)
    world.flush((0, keyed(b"a", b"b")), codec=codec)
    before = world.batches()
    objects = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    extent = world.live()[1]
    for path in objects:
        data = bytearray(path.read_bytes())
        if extent.segment.segment_id in data[:64]:
            data[extent.position + extent.length - 1] ^= 1
            path.write_bytes(data)
    (report,) = world.compact()
    ((kind, reason),) = report.failures
    assert kind == "Corrupt" and "wrong crc" in reason
    assert (report.outputs_committed, report.outputs_rejected) == (0, 0)
    assert len(world.batches()) == len(before)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == objects


def test_records_that_arrive_during_a_job_are_for_the_next_job(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    world.flush((0, keyed(b"a", b"a")))

    def commit_late(command: ReplaceExtents) -> bool:
        world.flush((0, keyed(b"a")))
        return world.commit(command)

    world.compact(commit=commit_late)
    assert offsets(world) == [1, 2]
    world.compact()
    assert offsets(world) == [2]


def test_a_late_job_changes_nothing(tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    world.flush((0, keyed(b"a", b"a", b"b")))
    (job,) = world.jobs()
    world.compact()
    report = world.compaction().run("late", job, world.commit)
    assert (report.outputs_committed, report.outputs_rejected) == (0, 1)
    assert offsets(world) == [1, 2]


def test_records_within_the_minimum_lag_are_not_compacted(tmp_path: Path) -> None:
    clock = SetClock()
    world = KeyWorld(tmp_path, clock=clock, **ALWAYS, **{"min.compaction.lag.ms": str(HOUR_MS)})
    for timestamp in (clock.wall_ms - HOUR_MS, clock.wall_ms - HOUR_MS + 1):
        world.flush((0, [Record(number, timestamp, b"a", b"x") for number in range(2)]))
    world.compact()
    assert world.read() == world.expected(up_to=2)
    clock.wall_ms += 1
    world.compact()
    assert world.read() == world.expected()
