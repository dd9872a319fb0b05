"""Cleans the batches of a run: keeps the records at given offsets, and returns the remaining batches. Pure.

A batch with records that cannot be parsed is kept unchanged. A producer may have written it while the topic was not
compacted. `decided` selects the batches of transactions that are left out.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from penstock.contracts.codec import Buffer
from penstock.kafkawire.cleaning import (
    NO_HORIZON,
    delete_horizon_ms,
    empty_batch,
    keep_records,
    keep_slices,
    scan_records,
)
from penstock.kafkawire.records import is_control, read_batch_header
from penstock.segment.compacted_writer import BatchFacts, batch_facts
from penstock_compactor.jobs.decided import Decided
from penstock_compactor.keys.batches import PlacedBatch
from penstock_compactor.keys.columns import Records, plain_of, read_records
from penstock_compactor.keys.limits import GROUP_BYTES
from penstock_compactor.keys.plan import KeyRun

HORIZON_MS_MAX = 2**62  # means "never", and sums of it do not overflow

Ints = Any  # a numpy array of int64


class Times(msgspec.Struct, frozen=True, array_like=True):
    """The start of a job, and the time from which the tombstones that it cleans first may be removed."""

    now_ms: int
    horizon_ms: int


def times_of(now_ms: int, delete_retention_ms: int) -> Times:
    """The times of a job that begins now."""
    return Times(now_ms, min(now_ms + delete_retention_ms, HORIZON_MS_MAX))


class Survivors:
    """A stream of the offsets of kept records, ascending."""

    def __init__(self, arrays: Iterable[Ints]) -> None:
        self._arrays = iter(arrays)
        self._rest = np.empty(0, np.int64)

    def up_to(self, last_offset: int) -> Ints:
        """The next offsets, up to `last_offset`."""
        while not len(self._rest) or self._rest[-1] <= last_offset:
            following = next(self._arrays, None)
            if following is None:
                break
            self._rest = np.concatenate((self._rest, following)) if len(self._rest) else following
        count = int(np.searchsorted(self._rest, last_offset, "right"))
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


class Left(msgspec.Struct, gc=False):
    """A remaining batch, with all or some of its records."""

    data: Buffer
    facts: BatchFacts


class _Pending(msgspec.Struct, gc=False):
    """A batch in progress; with `plain` its records must be parsed, and `kept` has the offsets to keep."""

    batch: PlacedBatch
    kept: Ints
    plain: bytes | None


class _Selection(msgspec.Struct, gc=False):
    """Records of one batch or several, and whether to keep each; `first` is the row of the batch's first record."""

    records: Records
    is_kept: Any
    first: int


class RunCleaner:
    """Cleans the batches of one run."""

    def __init__(self, run: KeyRun, times: Times) -> None:
        self._run = run
        self._decided = Decided(run.base_offset, run.aborted, keeps_commits=False)
        self._times = times
        self.delete_horizon_ms = NO_HORIZON  # the time from which the first kept tombstone may be removed

    def clean(self, batches: Iterable[PlacedBatch], survivors: Survivors) -> Iterator[Left]:
        """The remaining batches, at least one; the last one ends at the end of the run."""
        pending: list[_Pending] = []
        size = 0
        last: PlacedBatch | None = None
        is_last_left = False
        for batch in batches:
            last = batch
            each = self._pending(batch, survivors.up_to(batch.last_offset))
            is_last_left = False
            if each is not None:
                pending.append(each)
                size += len(batch.data) + len(each.plain or b"")
            if size >= GROUP_BYTES:
                for left in self._left(pending):
                    yield left
                    is_last_left = left.facts.last_offset == batch.last_offset
                pending, size = [], 0
        assert last is not None, "a run has batches"
        for left in self._left(pending):
            yield left
            is_last_left = left.facts.last_offset == last.last_offset
        if not is_last_left:
            yield _left(empty_batch(last.placed_header()))

    def _pending(self, batch: PlacedBatch, kept: Ints) -> _Pending | None:
        """The batch, or None if no part of it is kept."""
        header = batch.header
        if not header.record_count:
            return None
        if self._decided.leaves_out(header.attributes, header.producer_id, batch.base_offset, batch.data):
            return None
        if is_control(header):
            return _Pending(batch, kept, None)
        keeps_all = len(kept) == header.record_count
        is_known = batch.last_offset < self._run.cleaned_offset and delete_horizon_ms(header) == NO_HORIZON
        if keeps_all and is_known:
            return _Pending(batch, kept, None)
        plain = plain_of(batch)
        return _Pending(batch, kept, plain)

    def _left(self, pending: list[_Pending]) -> Iterator[Left]:
        parsed = [each for each in pending if each.plain is not None]
        found = read_records([each.batch for each in parsed], [each.plain or b"" for each in parsed])
        selections = iter(_selections(parsed, found))
        for each in pending:
            selection = next(selections) if each.plain is not None else None
            data = each.batch.placed_data() if selection is None else self._cleaned(each, selection)
            if data is not None:
                yield _left(data)

    def _cleaned(self, each: _Pending, selection: _Selection) -> Buffer | None:
        """The batch with the kept records, None without any."""
        header, records, first = each.batch.header, selection.records, selection.first
        rows = slice(first, first + header.record_count)
        horizon_ms = delete_horizon_ms(header)
        is_kept = selection.is_kept[rows]
        is_tombstone = records.is_tombstone[rows]
        was_cleaned = each.batch.last_offset < self._run.cleaned_offset
        if was_cleaned and NO_HORIZON < horizon_ms <= self._times.now_ms:
            is_kept = is_kept & ~is_tombstone
        if not is_kept.any():
            return None
        has_tombstones = bool((is_kept & is_tombstone).any())
        if has_tombstones and horizon_ms == NO_HORIZON:
            data: Buffer = self._with_horizon(each, is_kept)
            horizon_ms = delete_horizon_ms(read_batch_header(data))
        elif is_kept.all():
            data = each.batch.placed_data()
        else:
            kept = np.flatnonzero(is_kept) + first
            bounds = zip(records.starts[kept].tolist(), records.ends[kept].tolist(), strict=True)
            slices = [records.data[start:end] for start, end in bounds]
            data = keep_slices(
                each.batch.placed_header(), slices, len(slices), int(records.timestamp_deltas[kept].max())
            )
        if has_tombstones:
            self._record_horizon(horizon_ms)
        return data

    def _with_horizon(self, each: _Pending, is_kept: Any) -> bytes:
        header = each.batch.placed_header()
        plain = each.plain or b""
        scanned = scan_records(plain, header)
        kept = [record for record, is_wanted in zip(scanned, is_kept.tolist(), strict=True) if is_wanted]
        return keep_records(header, plain, kept, self._times.horizon_ms)

    def _record_horizon(self, horizon_ms: int) -> None:
        if horizon_ms != NO_HORIZON:
            before = self.delete_horizon_ms
            self.delete_horizon_ms = horizon_ms if before == NO_HORIZON else min(before, horizon_ms)


def _selections(parsed: list[_Pending], found: list[Records | PlacedBatch]) -> Iterator[_Selection | None]:
    """One per batch, None if its records cannot be read; `found` has all batches together, or each one separately."""
    if len(found) == 1 and isinstance(found[0], Records):
        is_kept = _are_in(found[0].offsets, np.concatenate([each.kept for each in parsed]))
        first = 0
        for each in parsed:
            yield _Selection(found[0], is_kept, first)
            first += each.batch.header.record_count
        return
    for each, records in zip(parsed, found, strict=True):
        if isinstance(records, Records):
            yield _Selection(records, _are_in(records.offsets, each.kept), 0)
        else:
            yield None


def _are_in(offsets: Ints, kept: Ints) -> Any:
    """For each offset, whether it is in `kept`; both arrays ascend."""
    if not len(kept):
        return np.zeros(len(offsets), bool)
    places = np.minimum(np.searchsorted(kept, offsets), len(kept) - 1)
    return kept[places] == offsets


def _left(data: Buffer) -> Left:
    (facts,) = batch_facts(data)
    return Left(data, facts)
