"""Key compaction of partitions with more keys than a task can hold: with a shuffle, and with the same result."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.contracts.commands import ReplaceExtents
from penstock.kafkawire.records import Record
from penstock_compactor.keys.limits import Bounds, KeyJobLimits
from penstock_compactor.keys.plan import KeyLimits
from tests.spark.keys.key_world import AT_ONCE, KeyWorld, random_records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ALWAYS = {"min.cleanable.dirty.ratio": "0"}
IN_PARTS = KeyLimits(flushed_age_min_ms=0, dirty_bytes_min=0, output_bytes_max=12_000, together_bytes_max=12_000)
FEW_KEYS = Bounds(keys_max=10, bytes_max=2**30)
SMALL = KeyJobLimits(held_before_shuffle=FEW_KEYS, scan_bytes_max=15_000, wave_bytes_max=45_000)


def keyed(*keys: bytes, value: bytes | None = b"value") -> list[Record]:
    return [Record(number, 1_690_000_000_000 + number, key, value) for number, key in enumerate(keys)]


@pytest.mark.parametrize("seed", range(2))
def test_a_large_partition_is_compacted_output_by_output(spark: Any, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    world = KeyWorld(tmp_path, **ALWAYS)
    for turn in range(2):
        for _ in range(20):
            world.flush((0, random_records(chance, 150, 30)), codec=chance.randrange(5))
        (job,) = world.jobs(IN_PARTS)
        assert len(job.outputs) > 3
        (report,) = world.compact(spark, IN_PARTS, job_limits=SMALL)
        assert (report.failures, report.outputs_rejected) == ([], 0)
        assert report.outputs_committed == len(job.outputs) == len(world.live())
        assert world.read() == world.expected(), f"turn {turn}"
        assert report.records_left == len(world.expected())
    assert world.jobs(IN_PARTS) == []


def test_outputs_without_records_are_still_written(spark: Any, tmp_path: Path) -> None:
    world = KeyWorld(tmp_path, **ALWAYS)
    for _ in range(3):
        world.flush((0, keyed(b"a", b"b", value=bytes(9_000))))
    (report,) = world.compact(spark, IN_PARTS, job_limits=SMALL)
    assert (report.failures, report.outputs_committed) == ([], 3)
    assert world.read() == world.expected()
    assert [each.last_offset for each in world.live()] == [1, 3, 5]


def test_a_partition_too_large_for_one_task_is_shuffled(spark: Any, tmp_path: Path) -> None:
    chance = random.Random(5)
    world = KeyWorld(tmp_path, partitions=2, **ALWAYS)
    world.flush(*[(number % 2, random_records(chance, 100, 40)) for number in range(10)])
    (report,) = world.compact(spark, AT_ONCE, job_limits=msgspec.structs.replace(SMALL, held_by_a_task=FEW_KEYS))
    assert (report.failures, report.outputs_committed) == ([], 2)
    for number in range(2):
        assert world.read(number) == world.expected(number)


def test_after_a_rejected_output_no_other_is_committed(spark: Any, tmp_path: Path) -> None:
    """Otherwise records would come back that a tombstone in a later output has deleted."""
    world = KeyWorld(tmp_path, **ALWAYS, **{"delete.retention.ms": "0"})
    for _ in range(2):
        world.flush((0, keyed(b"a", b"b", value=bytes(9_000))))
    world.flush((0, keyed(b"a", b"b", value=None)), (0, keyed(b"c", value=bytes(9_000))))
    world.compact(spark, IN_PARTS, job_limits=SMALL)
    assert [offset for offset, _ in world.read()] == [4, 5, 6]
    world.flush((0, keyed(b"a", value=bytes(9_000))))
    sent: list[ReplaceExtents] = []

    def reject(command: ReplaceExtents) -> bool:
        sent.append(command)
        return False

    (report,) = world.compact(spark, IN_PARTS, commit=reject, job_limits=SMALL)
    assert (report.outputs_committed, report.outputs_rejected, len(sent)) == (0, 1, 1)
    assert [offset for offset, _ in world.read()] == [4, 5, 6, 7]
