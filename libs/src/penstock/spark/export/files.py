"""The tasks of an export: each writes the records of a split to a Parquet file."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.contracts.ids import ENTROPY_BYTES, new_segment_id, ulid_text
from penstock.runtime.clock import Clock, Entropy
from penstock.spark.config import ClusterAddress
from penstock.spark.export.value_schema import MALFORMED, Values, ValueSchema, column_names
from penstock.spark.source.columns import FIELDS
from penstock.spark.source.data_source import read_in_task
from penstock.spark.source.splits import Split

# All fields of a record but the topic, whose name is that of the table.
COLUMNS = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
ROW_GROUP_BYTES = 64 * 1024 * 1024  # in memory; query engines read one row group at a time
UNFINISHED = ".unfinished"


class ExportedFile(msgspec.Struct, frozen=True):
    """A file that a task wrote."""

    path: str
    rows: int
    size_bytes: int
    malformed: int


class FileTask(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the tasks of one export.

    Spark's workers get copies. The entropy must have no state, or two copies give two files the same name.
    """

    address: ClusterAddress
    folder: str
    value_schema: ValueSchema | None
    clock: Clock
    entropy: Entropy

    def __call__(self, split: Split) -> ExportedFile:
        """Write the split's records; the file gets its final name when it is complete and on the disk."""
        return write_file(self, split)


def exported_schema(value_schema: ValueSchema | None) -> Any:
    """The columns of an export as an Arrow schema."""
    return _Shape(value_schema).schema


def write_file(task: FileTask, split: Split) -> ExportedFile:
    """Write one Parquet file under a new name."""
    shape = _Shape(task.value_schema)
    name = ulid_text(new_segment_id(task.clock.now_ms(), task.entropy.take(ENTROPY_BYTES)))
    path = Path(task.folder) / f"{name}.parquet"
    unfinished = path.with_suffix(UNFINISHED)
    rows = malformed = 0
    with pq.ParquetWriter(unfinished, shape.schema, compression="zstd") as writer:
        for table in _row_groups(shape, read_in_task(task.address, COLUMNS, split)):
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            rows += table.num_rows
            if task.value_schema is not None:
                malformed += table.num_rows - table[MALFORMED].null_count
    sync(unfinished)
    unfinished.rename(path)
    return ExportedFile(str(path), rows, path.stat().st_size, malformed)


def sync(path: Path) -> None:
    """Return when the file, or the folder with its file names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _row_groups(shape: "_Shape", batches: Any) -> Any:
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        shaped = shape.shaped(batch)
        waiting.append(shaped)
        size += shaped.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting, shape.schema)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, shape.schema)


class _Shape:
    """The conversion of a topic's columns to the columns of an export."""

    def __init__(self, value_schema: ValueSchema | None) -> None:
        self._values = None if value_schema is None else Values(value_schema)
        self._kept = COLUMNS if self._values is None else tuple(name for name in COLUMNS if name != "value")
        fields = [pa.field(name, FIELDS[name], nullable=name in ("key", "value", "headers")) for name in self._kept]
        if self._values is not None:
            inner: Sequence[Any] = list(self._values.type)
            names = column_names([field.name for field in inner], self._kept)
            fields += [pa.field(name, field.type) for name, field in zip(names, inner, strict=True)]
            fields.append(pa.field(MALFORMED, pa.binary()))
        self.schema = pa.schema(fields)

    def shaped(self, batch: Any) -> Any:
        """An Arrow batch of the topic as a batch of the export."""
        arrays = [batch.column(name) for name in self._kept]
        if self._values is not None:
            columns, malformed = self._values.columns(batch.column("value"))
            arrays += [*columns, malformed]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
