"""Arithmetic of the holds of a shared partition: find, cut, replace (pure)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from penstock_sequencer.core.state.share_group import AVAILABLE, DONE, Hold, SharePartition

Fragment = tuple[int, int, bool]  # first and last offset, whether it is a gap


def end_of(share: SharePartition) -> int:
    """The first offset that was never acquired."""
    return share.holds[-1].last + 1 if share.holds else share.start


def find(share: SharePartition, offset: int) -> int:
    """The number of the first hold that ends at the offset or after it."""
    return bisect_left(share.holds, offset, key=_last)


def cut(share: SharePartition, first: int, last: int) -> tuple[int, int]:
    """Cut holds at these offsets; returns the number of the first hold and the one after the last."""
    return _cut_before(share, first), _cut_before(share, last + 1)


def _cut_before(share: SharePartition, offset: int) -> int:
    place = find(share, offset)
    if place < len(share.holds) and share.holds[place].first < offset:
        hold = share.holds[place]
        share.holds[place : place + 1] = [part(hold, hold.first, offset - 1), part(hold, offset, hold.last)]
        return place + 1
    return place


def put(share: SharePartition, place: int, stop: int, holds: list[Hold]) -> int:
    """Replace holds by others, and merge equal neighbours; returns the growth of the offsets in flight."""
    growth = _in_flight(holds) - _in_flight(share.holds[place:stop])
    begin, end = max(place - 1, 0), min(stop + 1, len(share.holds))
    share.holds[begin:end] = _joined([*share.holds[begin:place], *holds, *share.holds[stop:end]])
    share.in_flight += growth
    return growth


def drop_done(share: SharePartition) -> None:
    """Remove DONE holds at the front."""
    count = 0
    for hold in share.holds:
        if hold.status != DONE:
            break
        share.start = hold.last + 1
        count += 1
    del share.holds[:count]


def fragments(first: int, last: int, gaps: Iterable[tuple[int, int]]) -> Iterator[Fragment]:
    """Divide the offsets from first to last into gaps and the ranges between them; gaps ascend and may overlap."""
    place = first
    for gap_first, gap_last in gaps:
        if gap_first > last:
            break
        if gap_last < place:
            continue
        if gap_first > place:
            yield place, gap_first - 1, False
        begin, place = max(gap_first, place), min(gap_last, last) + 1
        yield begin, place - 1, True
    if place <= last:
        yield place, last, False


def part(hold: Hold, first: int, last: int) -> Hold:
    """A hold with these offsets and the same state."""
    return Hold(first, last, hold.status, hold.deliveries, hold.member_id, hold.until_ms, hold.acquisition)


def done(first: int, last: int) -> Hold:
    """A hold of DONE offsets."""
    return Hold(first, last, DONE)


def available(first: int, last: int, deliveries: int, until_ms: int = 0) -> Hold:
    """A hold of AVAILABLE offsets, which are delayed until `until_ms` unless it is 0."""
    return Hold(first, last, AVAILABLE, deliveries, until_ms=until_ms)


def dead(hold: Hold, status: int, sequence: int) -> Hold:
    """A hold of records that died by this entry, with pending dead letters."""
    return Hold(hold.first, hold.last, status, hold.deliveries, acquisition=sequence)


def is_free(hold: Hold) -> bool:
    """Whether the offsets can be acquired now."""
    return hold.status == AVAILABLE and not hold.until_ms


def _last(hold: Hold) -> int:
    return hold.last


def _in_flight(holds: list[Hold]) -> int:
    return sum(hold.last - hold.first + 1 for hold in holds if hold.status != DONE)


def _joined(holds: list[Hold]) -> list[Hold]:
    found: list[Hold] = []
    for hold in holds:
        if found and part(found[-1], hold.first, hold.last) == hold:
            found[-1] = part(hold, found[-1].first, hold.last)
        else:
            found.append(hold)
    return found
