"""Keys and last records from columns are the same as from a walk through the records."""

import random
from collections.abc import Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from penstock.kafkawire.cleaning import scan_records
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import Record, build_batch, read_batch_header
from penstock_compactor.keys.batches import PlacedBatch
from penstock_compactor.keys.clean_pass import Survivors
from penstock_compactor.keys.columns import Records, plain_of, read_records
from penstock_compactor.keys.latest import TooManyKeys, latest_of, latest_parts
from penstock_compactor.keys.limits import Bounds
from penstock_compactor.keys.plan import KeyRun

pytestmark = pytest.mark.spark

RUN = KeyRun(b"t" * 16, 0, 0, [])
UNBOUNDED = Bounds(2**40, 2**40)

optional_bytes = st.none() | st.binary(max_size=200)
records = st.builds(
    Record,
    offset_delta=st.integers(1, 500),  # from the previous record
    timestamp=st.integers(-(2**60), 2**60),
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=2).map(tuple),
)


def placed(several: list[Record], base_offset: int, codec: int = 0) -> PlacedBatch:
    offset, ascending = -1, []
    for record in several:
        offset += record.offset_delta
        ascending.append(Record(offset, record.timestamp, record.key, record.value, record.headers))
    data = build_batch(ascending, codec=codec)
    return PlacedBatch(memoryview(data), read_batch_header(data), base_offset)


batches_in_a_row = st.lists(
    st.builds(placed, st.lists(records, min_size=1, max_size=8), st.integers(0, 2**50), st.integers(0, 4)), max_size=5
)


def plain(batch: PlacedBatch) -> bytes:
    found = plain_of(batch)
    assert found is not None
    return found


@settings(deadline=None, max_examples=150)
@given(batches_in_a_row)
def test_records_in_columns_equal_those_of_a_walk(several: list[PlacedBatch]) -> None:
    if not several:
        assert read_records([], []) == []
        return
    plains = [plain(batch) for batch in several]
    found = Records(several, plains)
    walked = [each for batch, data in zip(several, plains, strict=True) for each in scan_records(data, batch.header)]
    begins = np.repeat(np.cumsum([0, *map(len, plains)])[:-1], found.counts)
    assert (found.starts - begins).tolist() == [each.start for each in walked]
    assert (found.ends - begins).tolist() == [each.end for each in walked]
    assert found.timestamp_deltas.tolist() == [each.timestamp_delta for each in walked]
    assert found.is_tombstone.tolist() == [each.is_tombstone for each in walked]
    assert found.offsets.tolist() == [
        batch.base_offset + each.offset_delta
        for batch, data in zip(several, plains, strict=True)
        for each in scan_records(data, batch.header)
    ]
    assert found.keys().to_pylist() == [
        each.key(data) for batch, data in zip(several, plains, strict=True) for each in scan_records(data, batch.header)
    ]


@settings(deadline=None, max_examples=300)
@given(
    data=st.binary(min_size=1, max_size=60),
    position=st.integers(0, 200),
    several=st.lists(records, min_size=1, max_size=4),
)
def test_damaged_records_are_rejected_in_both_ways(data: bytes, position: int, several: list[Record]) -> None:
    batch = placed([msgspec.structs.replace(each, headers=()) for each in several], 0)
    damaged = bytearray(plain(batch))
    position %= len(damaged)
    damaged[position : position + len(data)] = data
    assert rejects(Records, [batch], [bytes(damaged)]) == rejects(scan_records, bytes(damaged), batch.header)


def rejects(read: object, *arguments: object) -> bool:
    try:
        read(*arguments)  # type: ignore[operator]
    except DecodeError:
        return True
    return False


def test_one_batch_that_cannot_be_read_does_not_affect_the_others() -> None:
    good = placed([Record(1, 5, b"a", b"x")], 0)
    bad = placed([Record(1, 5, b"a", b"x"), Record(0, 5, b"b", b"x")], 1)
    first, second, third = read_records([good, bad, good], [plain(good), plain(bad), plain(good)])
    assert isinstance(first, Records) and second is bad and isinstance(third, Records)


def row_of_batches(chance: random.Random, keys: int) -> list[PlacedBatch]:
    offset, found = 0, []
    for _ in range(40):
        several = [
            Record(chance.randint(1, 3), 5, chance.choice((None, b"k%d" % chance.randrange(keys))), b"x")
            for _ in range(chance.randint(1, 50))
        ]
        found.append(placed(several, offset))
        offset = found[-1].last_offset + 1
    return found


def dictionary(batches: list[PlacedBatch]) -> dict[bytes, int]:
    latest = {}
    for batch in batches:
        data = plain(batch)
        for each in scan_records(data, batch.header):
            key = each.key(data)
            if key is not None:
                latest[key] = batch.base_offset + each.offset_delta
    return latest


@pytest.mark.parametrize("bounds", [UNBOUNDED, Bounds(150, 2**40)])
def test_the_last_record_of_each_key_is_found(bounds: Bounds) -> None:
    batches = row_of_batches(random.Random(1), keys=100)
    assert latest_of(RUN, batches, bounds).offsets().tolist() == sorted(dictionary(batches).values())


def test_more_keys_than_a_task_may_hold_raise_an_error() -> None:
    batches = row_of_batches(random.Random(1), keys=100)
    keys = len(dictionary(batches))
    assert len(latest_of(RUN, batches, Bounds(keys, 2**40)).offsets()) == keys
    for bounds in (Bounds(keys - 1, 2**40), Bounds(2**40, 500)):
        with pytest.raises(TooManyKeys):
            latest_of(RUN, batches, bounds)


def test_parts_within_the_bounds_have_every_last_record() -> None:
    batches = row_of_batches(random.Random(1), keys=100)
    parts = list(latest_parts(RUN, batches, Bounds(20, 2**40, group_bytes=500)))
    assert len(parts) > 5
    latest: dict[bytes, int] = {}
    for table in parts:
        for key, offset in zip(table.column("key").to_pylist(), table.column("last").to_pylist(), strict=True):
            latest[key] = max(offset, latest.get(key, -1))
    assert latest == dictionary(batches)
    assert sum(table.num_rows for table in parts) < sum(batch.header.record_count for batch in batches)


@given(st.sets(st.integers(0, 1_000)), st.lists(st.integers(0, 300), max_size=20), st.integers(1, 50))
def test_survivors_are_returned_up_to_each_offset(offsets: set[int], steps: list[int], chunk: int) -> None:
    ascending = sorted(offsets)

    def fragments() -> Iterator[object]:
        for start in range(0, len(ascending), chunk):
            yield pa.array(ascending[start : start + chunk], pa.int64()).to_numpy()

    survivors = Survivors(fragments())
    before = -1
    for step in steps:
        taken = survivors.up_to(before + step)
        assert taken.tolist() == [offset for offset in ascending if before < offset <= before + step]
        before += step
