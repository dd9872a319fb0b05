"""From the batches of a run, and the offsets of the records that stay, to the batches that are left. Pure.

What nobody can take apart stays as it is: a batch whose records are not what they should be, which a producer may have
written while the topic was not compacted. Of transactions there stays what `decided` says.
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

HORIZON_MS_MAX = 2**62  # "never", with room for sums

Ints = Any  # a numpy array of int64


class Times(msgspec.Struct, frozen=True, array_like=True):
    """When a job began, and when the tombstones that it comes by first may go."""

    now_ms: int
    horizon_ms: int


def times_of(now_ms: int, delete_retention_ms: int) -> Times:
    """For a job that begins now."""
    return Times(now_ms, min(now_ms + delete_retention_ms, HORIZON_MS_MAX))


class Survivors:
    """Offsets of records that stay, ascending, as they come from wherever they are."""

    def __init__(self, arrays: Iterable[Ints]) -> None:
        self._arrays = iter(arrays)
        self._rest = np.empty(0, np.int64)

    def up_to(self, last_offset: int) -> Ints:
        """The next ones, up to an offset."""
        while not len(self._rest) or self._rest[-1] <= last_offset:
            following = next(self._arrays, None)
            if following is None:
                break
            self._rest = np.concatenate((self._rest, following)) if len(self._rest) else following
        count = int(np.searchsorted(self._rest, last_offset, "right"))
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


class Left(msgspec.Struct, gc=False):
    """A batch that is left, or what is left of one."""

    data: Buffer
    facts: BatchFacts


class _Pending(msgspec.Struct, gc=False):
    """A batch on its way; with `plain` it is to be looked into, and `kept` are the offsets that stay."""

    batch: PlacedBatch
    kept: Ints
    plain: bytes | None


class _Look(msgspec.Struct, gc=False):
    """Records of one batch or several, and whether each stays; `first` is the row of the batch's first."""

    records: Records
    stays: Any
    first: int


class RunCleaner:
    """Cleans the batches of one run."""

    def __init__(self, run: KeyRun, times: Times) -> None:
        self._run = run
        self._decided = Decided(run.base_offset, run.aborted, keeps_commits=False)
        self._times = times
        self.delete_horizon_ms = NO_HORIZON  # when the first tombstone that was left may go

    def clean(self, batches: Iterable[PlacedBatch], survivors: Survivors) -> Iterator[Left]:
        """What is left, at least one batch, the last of which ends where the run does."""
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
        """The batch if it may have to stay."""
        header = batch.header
        if not header.record_count:
            return None
        if self._decided.leaves_out(header.attributes, header.producer_id, batch.base_offset, batch.data):
            return None
        if is_control(header):
            return _Pending(batch, kept, None)
        is_whole = len(kept) == header.record_count
        is_known = batch.last_offset < self._run.cleaned_offset and delete_horizon_ms(header) == NO_HORIZON
        if is_whole and is_known:
            return _Pending(batch, kept, None)
        plain = plain_of(batch)
        return _Pending(batch, kept, plain)

    def _left(self, pending: list[_Pending]) -> Iterator[Left]:
        looked_into = [each for each in pending if each.plain is not None]
        found = read_records([each.batch for each in looked_into], [each.plain or b"" for each in looked_into])
        looks = iter(_looks(looked_into, found))
        for each in pending:
            look = next(looks) if each.plain is not None else None
            data = each.batch.placed_data() if look is None else self._cleaned(each, look)
            if data is not None:
                yield _left(data)

    def _cleaned(self, each: _Pending, look: _Look) -> Buffer | None:
        """The batch with the records that stay, None without any."""
        header, records, first = each.batch.header, look.records, look.first
        rows = slice(first, first + header.record_count)
        horizon_ms = delete_horizon_ms(header)
        stays = look.stays[rows]
        is_tombstone = records.is_tombstone[rows]
        is_settled = each.batch.last_offset < self._run.cleaned_offset
        if is_settled and NO_HORIZON < horizon_ms <= self._times.now_ms:
            stays = stays & ~is_tombstone
        if not stays.any():
            return None
        has_tombstones = bool((stays & is_tombstone).any())
        if has_tombstones and horizon_ms == NO_HORIZON:
            data: Buffer = self._with_horizon(each, stays)
            horizon_ms = delete_horizon_ms(read_batch_header(data))
        elif stays.all():
            data = each.batch.placed_data()
        else:
            kept = np.flatnonzero(stays) + first
            bounds = zip(records.starts[kept].tolist(), records.ends[kept].tolist(), strict=True)
            slices = [records.data[start:end] for start, end in bounds]
            data = keep_slices(
                each.batch.placed_header(), slices, len(slices), int(records.timestamp_deltas[kept].max())
            )
        if has_tombstones:
            self._record_horizon(horizon_ms)
        return data

    def _with_horizon(self, each: _Pending, stays: Any) -> bytes:
        header = each.batch.placed_header()
        plain = each.plain or b""
        scanned = scan_records(plain, header)
        kept = [record for record, does_stay in zip(scanned, stays.tolist(), strict=True) if does_stay]
        return keep_records(header, plain, kept, self._times.horizon_ms)

    def _record_horizon(self, horizon_ms: int) -> None:
        if horizon_ms != NO_HORIZON:
            before = self.delete_horizon_ms
            self.delete_horizon_ms = horizon_ms if before == NO_HORIZON else min(before, horizon_ms)


def _looks(looked_into: list[_Pending], found: list[Records | PlacedBatch]) -> Iterator[_Look | None]:
    """One for each batch, None for one whose records cannot be read; `found` has all of them together or each alone."""
    if len(found) == 1 and isinstance(found[0], Records):
        stays = _are_in(found[0].offsets, np.concatenate([each.kept for each in looked_into]))
        first = 0
        for each in looked_into:
            yield _Look(found[0], stays, first)
            first += each.batch.header.record_count
        return
    for each, records in zip(looked_into, found, strict=True):
        if isinstance(records, Records):
            yield _Look(records, _are_in(records.offsets, each.kept), 0)
        else:
            yield None


def _are_in(offsets: Ints, kept: Ints) -> Any:
    """Which of some offsets are among those kept; both ascend."""
    if not len(kept):
        return np.zeros(len(offsets), bool)
    places = np.minimum(np.searchsorted(kept, offsets), len(kept) - 1)
    return kept[places] == offsets


def _left(data: Buffer) -> Left:
    (facts,) = batch_facts(data)
    return Left(data, facts)
