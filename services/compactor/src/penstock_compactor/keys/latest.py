"""Finds the last record of each key among the records read so far, within a limit of memory."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kafkawire.records import is_transactional
from penstock.segment.transactions import Aborted
from penstock_compactor.keys.batches import PlacedBatch
from penstock_compactor.keys.columns import Records, plain_of, read_records
from penstock_compactor.keys.limits import Bounds
from penstock_compactor.keys.plan import KeyRun

# So many records, or so many bytes of keys, are gathered before they are grouped.
ROWS_GATHERED_MAX = 1_000_000
BYTES_GATHERED_MAX = 64 * 1024 * 1024

SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("last", pa.int64())])


class TooManyKeys(Exception):
    """There are more distinct keys than the memory limit allows."""


class LatestOffsets:
    """Distinct keys and the offset of the last record of each."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._grouped: Any = SCHEMA.empty_table()
        self._gathered: list[Any] = []
        self._rows = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether there are more grouped keys than allowed."""
        return bool(self._grouped.num_rows > self._bounds.keys_max or self._grouped.nbytes > self._bounds.bytes_max)

    def add(self, keys: Any, offsets: Any) -> None:
        """Add Arrow arrays of keys, without nulls, and of their records' offsets."""
        self._gathered.append(pa.record_batch([keys, offsets], schema=SCHEMA))
        self._rows += len(keys)
        self._bytes += int(self._gathered[-1].nbytes)
        # The cost of grouping grows with all keys. So wait until there are as many new ones as grouped ones.
        is_much = self._rows >= max(min(ROWS_GATHERED_MAX, self._bounds.keys_max), self._grouped.num_rows)
        if is_much or self._bytes >= max(min(BYTES_GATHERED_MAX, self._bounds.bytes_max), self._grouped.nbytes):
            self.group()

    def group(self) -> None:
        """Group the gathered keys, so that every key is there once."""
        if not self._gathered:
            return
        table = pa.concat_tables([self._grouped, pa.Table.from_batches(self._gathered)]).combine_chunks()
        latest = table.group_by("key", use_threads=False).aggregate([("last", "max")])
        self._grouped = latest.rename_columns({"last_max": "last"}).select(SCHEMA.names).cast(SCHEMA)
        self._clear_gathered()

    def drain(self) -> Any:
        """Remove all keys and return them as an Arrow table."""
        self.group()
        grouped, self._grouped = self._grouped, SCHEMA.empty_table()
        return grouped

    def offsets(self) -> Any:
        """The offsets of all last records, ascending."""
        self.group()
        return np.sort(self._grouped.column("last").to_numpy())

    def _clear_gathered(self) -> None:
        self._gathered, self._rows, self._bytes = [], 0, 0


def latest_of(run: KeyRun, batches: Iterable[PlacedBatch], bounds: Bounds) -> LatestOffsets:
    """The last record of every key in a run; `TooManyKeys` above the bounds."""
    latest = LatestOffsets(bounds)
    for keys, offsets in keyed(run, batches, bounds.group_bytes):
        latest.add(keys, offsets)
        if latest.is_full:
            raise TooManyKeys
    latest.group()
    if latest.is_full:
        raise TooManyKeys
    return latest


def latest_parts(run: KeyRun, batches: Iterable[PlacedBatch], bounds: Bounds) -> Iterator[Any]:
    """The same as several Arrow tables, each within the bounds; a key may be in several tables."""
    latest = LatestOffsets(bounds)
    for keys, offsets in keyed(run, batches, bounds.group_bytes):
        latest.add(keys, offsets)
        if latest.is_full:
            yield latest.drain()
    yield latest.drain()


def keyed(run: KeyRun, batches: Iterable[PlacedBatch], group_bytes: int) -> Iterator[tuple[Any, Any]]:
    """Keys and offsets of records as Arrow arrays. Aborted records, and those without a key, are left out."""
    group: list[PlacedBatch] = []
    plains: list[bytes] = []
    size = 0
    aborted = Aborted(run.aborted)
    for batch in batches:
        is_aborted = is_transactional(batch.header) and aborted.has(batch.header.producer_id, batch.base_offset)
        plain = None if is_aborted else plain_of(batch)
        if plain is None:
            continue
        group.append(batch)
        plains.append(plain)
        size += len(plain)
        if size >= group_bytes:
            yield from _keyed(group, plains)
            group, plains, size = [], [], 0
    yield from _keyed(group, plains)


def _keyed(group: list[PlacedBatch], plains: list[bytes]) -> Iterator[tuple[Any, Any]]:
    for records in read_records(group, plains):
        if isinstance(records, Records) and len(records.offsets):
            keys, offsets = records.keys(), pa.array(records.offsets)
            if keys.null_count:
                has_key = keys.is_valid()
                keys, offsets = keys.filter(has_key), offsets.filter(has_key)
            yield keys, offsets
