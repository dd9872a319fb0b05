"""Converts record batches into Arrow columns, many records at a time: numpy finds the fields, Arrow copies them.

The records of a group of batches lie one after the other in one buffer. Python visits only their lengths. Then all
fields of all records are read column by column. Keys and values become Arrow arrays by one `take` each. It takes every
second element of an array over the buffer, in which fields and the bytes between them alternate.
"""

from collections.abc import Sequence
from typing import Any

import crc32c
import msgspec
import numpy as np
import pyarrow as pa

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt
from penstock.kafkawire.compression import decompress
from penstock.kafkawire.errors import DecodeError
from penstock.kafkawire.records import (
    BATCH_OVERHEAD,
    CRC_START,
    DECOMPRESSED_BYTES_MAX,
    MAGIC,
    BatchHeader,
    codec,
    is_control,
    read_batch_header,
    size_bytes,
    timestamp_type,
)
from penstock.spark.varints import read_varints, record_starts

# Of one Arrow batch, before compression. Below 1 MiB, the batch costs more than its records.
GROUP_BYTES = 4 * 1024 * 1024
GROUP_RECORDS_MAX = 200_000
ERRORS_MAX = 10  # of skipped batches in one split
# numpy reads so many bytes past the records: attributes and three varints of the largest size.
_PADDING = bytes(64)
# A Spark timestamp is microseconds in 64 bits. A producer may send any number of milliseconds.
_MILLISECONDS_MAX = (2**63 - 1) // 1000

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_type": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS_TYPE,
}

Ints = Any  # a numpy array of int64
Bytes = Any  # a numpy array of uint8
Spans = tuple[Ints, Ints]  # the starts and lengths of byte strings; a negative length is null
_NOTHING: Spans = np.zeros(0, np.int64), np.zeros(0, np.int64)


class _Batch(msgspec.Struct, frozen=True, gc=False):
    """The common facts of the records of one batch."""

    topic: str
    partition: int
    base_offset: int
    from_offset: int  # the first wanted one
    to_offset: int  # after the last wanted one
    records: int
    base_timestamp: int
    append_timestamp: int  # of the broker, -1 if the timestamps of the producer count
    timestamp_type: int


class SkippedBatches:
    """The batches that were left out, because their records cannot be decoded."""

    def __init__(self) -> None:
        self.count = 0
        self.errors: list[str] = []  # of the first ones

    def record(self, error: Corrupt) -> None:
        """Record a batch, with its place and its error."""
        self.count += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(str(error))


class Columns:
    """Converts record batches into Arrow batches with the columns `names`, a choice of `FIELDS`.

    A batch that cannot be decoded is `Corrupt`. With `skipped` it is left out and recorded there.
    """

    def __init__(
        self,
        names: Sequence[str] = tuple(FIELDS),
        *,
        group_bytes: int = GROUP_BYTES,
        skipped: SkippedBatches | None = None,
    ) -> None:
        self._skipped = skipped
        self.schema = pa.schema([pa.field(name, FIELDS[name]) for name in names])
        self._names = frozenset(names)
        self._group_bytes = group_bytes
        self._clear()

    @property
    def is_full(self) -> bool:
        """Whether it is time to `take`."""
        return self._size_bytes >= self._group_bytes or len(self._starts) >= GROUP_RECORDS_MAX

    def add(
        self, batch: Buffer, *, topic: str, partition: int, base_offset: int, from_offset: int, to_offset: int
    ) -> None:
        """Add one complete batch whose first offset is `base_offset`.

        Only records from `from_offset` to before `to_offset` are kept.
        """
        header = read_batch_header(batch)
        try:
            _check(batch, header)
            if is_control(header) or not header.record_count:
                return
            plain = bytes(decompress(memoryview(batch)[BATCH_OVERHEAD:], codec(header), DECOMPRESSED_BYTES_MAX))
            starts = record_starts(plain, header.record_count)
        except DecodeError as error:
            self._leave_out(f"{topic} [{partition}] {base_offset}", error)
            return
        self._starts += [start + self._size_bytes for start in starts]
        self._plain.append(plain)
        self._size_bytes += len(plain)
        kind = timestamp_type(header)
        appended = header.max_timestamp if kind else -1
        self._batches.append(
            _Batch(
                topic,
                partition,
                base_offset,
                from_offset,
                to_offset,
                header.record_count,
                header.base_timestamp,
                appended,
                kind,
            )
        )

    def take(self) -> Any | None:
        """All records added since the last call, as an Arrow batch; None if there are none."""
        if not self._starts:
            return None
        batches, plain, starts = self._batches, self._plain, np.array(self._starts, np.int64)
        self._clear()
        try:
            records = _records_of(plain, starts)
        except DecodeError:
            batches, plain, starts = self._decodable(batches, plain, starts)
            if not batches:
                return None
            records = _records_of(plain, starts)
        table = pa.RecordBatch.from_arrays(self._arrays(batches, records), schema=self.schema)
        return table if table.num_rows else None

    def _decodable(
        self, batches: Sequence[_Batch], plain: Sequence[bytes], starts: Ints
    ) -> tuple[list[_Batch], list[bytes], Ints]:
        """The group without the batches that cannot be decoded."""
        kept: list[tuple[_Batch, bytes]] = []
        kept_starts: list[Ints] = []
        first = position = size_bytes = 0
        for batch, data in zip(batches, plain, strict=True):
            own_starts = starts[first : first + batch.records] - position
            first, position = first + batch.records, position + len(data)
            try:
                _records_of([data], own_starts)
            except DecodeError as error:
                self._leave_out(f"{batch.topic} [{batch.partition}] {batch.base_offset}", error)
                continue
            kept.append((batch, data))
            kept_starts.append(own_starts + size_bytes)
            size_bytes += len(data)
        together = np.concatenate(kept_starts) if kept else np.zeros(0, np.int64)
        return [batch for batch, _ in kept], [data for _, data in kept], together

    def _leave_out(self, place: str, error: DecodeError) -> None:
        """Record the batch at this place as skipped; `Corrupt` if it may not be."""
        if self._skipped is None:
            raise Corrupt(
                f"{place}: {error}; the option failOnCorruptBatch=false of spark.read skips such batches"
            ) from error
        self._skipped.record(Corrupt(f"{place}: {error}"))

    def _arrays(self, batches: Sequence[_Batch], records: "_Records") -> list[Any]:
        counts = np.array([batch.records for batch in batches])

        def of_each(values: list[int]) -> Ints:
            return np.repeat(np.array(values, np.int64), counts)

        offsets = of_each([batch.base_offset for batch in batches]) + records.offset_deltas
        rows = np.flatnonzero(
            (offsets >= of_each([batch.from_offset for batch in batches]))
            & (offsets < of_each([batch.to_offset for batch in batches]))
        )
        made: dict[str, Any] = {"offset": pa.array(offsets[rows])}
        if "topic" in self._names:
            topics = sorted({batch.topic for batch in batches})
            numbers = of_each([topics.index(batch.topic) for batch in batches])
            made["topic"] = pa.array(topics).take(pa.array(numbers[rows]))
        if "partition" in self._names:
            made["partition"] = pa.array(of_each([batch.partition for batch in batches])[rows].astype(np.int32))
        if "timestamp" in self._names:
            made["timestamp"] = _timestamps(batches, of_each, records.timestamp_deltas)[rows]
            made["timestamp"] = pa.array(made["timestamp"]).cast(FIELDS["timestamp"])
        if "timestamp_type" in self._names:
            kinds = of_each([batch.timestamp_type for batch in batches])
            made["timestamp_type"] = pa.array(kinds[rows].astype(np.int32))
        if "key" in self._names:
            made["key"] = records.slices(*records.keys, rows)
        if "value" in self._names:
            made["value"] = records.slices(*records.values, rows)
        if "headers" in self._names:
            made["headers"] = records.headers().take(pa.array(rows))
        return [made[name] for name in self.schema.names]

    def _clear(self) -> None:
        self._plain: list[bytes] = []
        self._starts: list[int] = []
        self._batches: list[_Batch] = []
        self._size_bytes = 0


def _check(batch: Buffer, header: BatchHeader) -> None:
    """`DecodeError` if the bytes do not match their header."""
    if header.magic != MAGIC or size_bytes(header) != len(batch):
        raise DecodeError(f"{len(batch)} bytes that are no batch")
    if crc32c.crc32c(memoryview(batch)[CRC_START:]) != header.crc:
        raise DecodeError("a batch with a wrong crc")


def _records_of(plain: Sequence[bytes], starts: Ints) -> "_Records":
    """The records of several batches."""
    data = np.frombuffer(b"".join((*plain, _PADDING)), np.uint8)
    return _Records(data, len(data) - len(_PADDING), starts)


def _timestamps(batches: Sequence[_Batch], of_each: Any, deltas: Ints) -> Ints:
    """Microseconds since 1970 of each record."""
    appended = of_each([batch.append_timestamp for batch in batches])
    kinds = of_each([batch.timestamp_type for batch in batches])
    created = of_each([batch.base_timestamp for batch in batches]) + deltas
    milliseconds = np.where(kinds == 1, appended, created)
    return np.clip(milliseconds, -_MILLISECONDS_MAX, _MILLISECONDS_MAX) * 1000


class _Records:
    """The fields of all records in a buffer, column by column; `DecodeError` if fields do not fill their record."""

    def __init__(self, data: Bytes, size: int, starts: Ints) -> None:
        self._data = data
        self._size = size
        lengths, position = self._varints(starts)
        ends = position + lengths
        self.timestamp_deltas, position = self._varints(self._within(position + 1))  # after the attributes
        self.offset_deltas, position = self._varints(position)
        self.keys, position = self._spans(position)
        self.values, position = self._spans(position)
        counts, position = self._varints(position)
        if counts.any():
            position = self._read_headers(counts, position)
        else:
            self._header_counts, self._header_keys, self._header_values = counts, _NOTHING, _NOTHING
        if (position != ends).any():
            raise DecodeError(f"record {int(np.flatnonzero(position != ends)[0])} does not end where its fields do")

    def slices(self, starts: Ints, lengths: Ints, rows: Ints) -> Any:
        """Byte strings of the buffer as an Arrow array; null where the length is negative."""
        if not len(rows):
            return pa.array([], pa.binary())
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[0::2] = starts
        bounds[1::2] = starts + np.maximum(lengths, 0)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        alternating = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
        missing = lengths[rows] < 0
        return alternating.take(pa.array(2 * rows, mask=missing if missing.any() else None))

    def headers(self) -> Any:
        """Every record's headers, in the type of `HEADERS_TYPE`."""
        ends = np.cumsum(self._header_counts)
        offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
        rows = np.arange(int(ends[-1]))
        keys = _text(self.slices(*self._header_keys, rows))
        values = self.slices(*self._header_values, rows)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
        return pa.ListArray.from_arrays(offsets, structs, type=HEADERS_TYPE)

    def _read_headers(self, counts: Ints, position: Ints) -> Ints:
        """Find all headers: the first header of every record, then the second of records that have one, and so on."""
        if (counts < 0).any() or int(counts.sum()) > self._size:
            raise DecodeError("an impossible number of record headers")
        firsts = np.cumsum(counts) - counts
        total = int(counts.sum())
        keys = np.zeros(total, np.int64), np.zeros(total, np.int64)
        values = np.zeros(total, np.int64), np.zeros(total, np.int64)
        position = position.copy()
        rows = np.flatnonzero(counts)
        number = 0
        while len(rows):
            places = firsts[rows] + number
            (keys[0][places], keys[1][places]), after = self._spans(position[rows])
            (values[0][places], values[1][places]), position[rows] = self._spans(after)
            number += 1
            rows = rows[counts[rows] > number]
        if (keys[1] < 0).any():
            raise DecodeError("a record header without a key")
        self._header_counts, self._header_keys, self._header_values = counts, keys, values
        return position

    def _spans(self, position: Ints) -> tuple[Spans, Ints]:
        """The spans of length-prefixed byte strings, and the positions after them; length -1 is null."""
        lengths, starts = self._varints(position)
        if (lengths < -1).any() or (lengths > self._size).any():
            raise DecodeError("a byte string of impossible length")
        return (starts, lengths), self._within(starts + np.maximum(lengths, 0))

    def _varints(self, position: Ints) -> tuple[Ints, Ints]:
        """Zigzag varints at these positions, and the positions after them."""
        return read_varints(self._data, position, self._size)

    def _within(self, position: Ints) -> Ints:
        """Limit positions to one byte after the buffer; that is enough to detect records with wrong lengths."""
        return np.minimum(position, self._size + 1)


def _text(raw: Any) -> Any:
    """Bytes as text; invalid UTF-8 becomes replacement characters, as with other consumers."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([str(each.as_py(), "utf-8", "replace") for each in raw], pa.string())
