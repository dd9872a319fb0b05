"""One partition of a share group: the settings that apply to it, and acquisitions of its records.

    after the end, or AVAILABLE -- acquired -------------------------------------------> ACQUIRED
    ACQUIRED -- accepted, rejected, no record; or released at the delivery limit ------> DONE
    ACQUIRED -- released, unread, its lock has ended, its member has gone -------------> AVAILABLE
    after the end, or AVAILABLE -- it is a gap, or the log now begins after it --------> DONE

In a group with a topic for dead letters, rejected records are REJECTED, and those released at the limit EXHAUSTED. Once
their dead letters are written, they are DONE. `release.py` has all ways out of ACQUIRED.

A group or a topic may delay records that a member released: they are AVAILABLE, but no member gets them for a while.

Members get the lowest available offsets, so none is skipped. `share.partition.max.record.locks` limits the records in
flight, and `share_records_max` limits those of all groups together. An extent without a segment is a marker, not a
record. Gateways report all other gaps.

Near the delivery limit members get fewer records at once, as in Kafka. So a record that ends its readers takes few
other records with it, and none at its last delivery.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice

import msgspec

from penstock.contracts.commands import AcquiredRange, OffsetRange
from penstock.contracts.configs.groups import (
    READ_COMMITTED,
    SHARE_DELIVERY_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_LOCK_DURATION,
    SHARE_LOCKS_MAX,
    share_config,
)
from penstock.contracts.configs.share_groups import DEAD_LETTER_TOPIC, SHARE_RENEW_ENABLE
from penstock.contracts.levels import THROTTLED_DELIVERIES_LEVEL
from penstock_sequencer.core.log.control_markers import is_marker
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.share.offset_ranges import (
    available,
    cut,
    dead,
    done,
    drop_done,
    end_of,
    fragments,
    is_free,
    put,
)
from penstock_sequencer.core.state.cluster import Partition, State
from penstock_sequencer.core.state.share_group import ACQUIRED, AVAILABLE, EXHAUSTED, Hold, SharePartition

THROTTLED_FROM_MIN = 2  # deliveries, as in Kafka


class Rules(msgspec.Struct, frozen=True):
    """The settings that apply to a group."""

    lock_duration_ms: int
    delivery_limit: int
    locks_max: int
    read_committed: bool
    may_renew: bool
    has_dead_letters: bool
    throttled_from: int  # records delivered so often come fewer at once


def rules_of(state: State, group_id: str) -> Rules:
    """Read the settings from the group's configurations and the defaults."""
    configs = state.group_configs.get(group_id, {})
    delivery_limit = int(share_config(SHARE_DELIVERY_LIMIT, configs))
    is_throttled = state.level >= THROTTLED_DELIVERIES_LEVEL
    return Rules(
        int(share_config(SHARE_LOCK_DURATION, configs)),
        delivery_limit,
        int(share_config(SHARE_LOCKS_MAX, configs)),
        share_config(SHARE_ISOLATION_LEVEL, configs) == READ_COMMITTED,
        share_config(SHARE_RENEW_ENABLE, configs) == "true",
        bool(share_config(DEAD_LETTER_TOPIC, configs)),
        max(-(-delivery_limit // 2), THROTTLED_FROM_MIN) if is_throttled else delivery_limit,
    )


def visible_end(rules: Rules, partition: Partition) -> int:
    """The end of the records that the group may read."""
    return last_stable_offset(partition) if rules.read_committed else partition.high_watermark


def lock_end_ms(state: State, rules: Rules) -> int:
    """The end of a lock that begins now."""
    return later_ms(state, rules.lock_duration_ms)


def later_ms(state: State, duration_ms: int) -> int:
    """The deadline after a duration that begins now, or slightly later."""
    end_ms = state.clock_ms + duration_ms
    return end_ms + -end_ms % state.limits.share.share_lock_grain_ms


def room_for_new(state: State, rules: Rules, share: SharePartition, gone: int = 0) -> int:
    """How many more records may be in flight, if `gone` of the present ones end first."""
    room_in_all = state.limits.share.share_records_max - state.share_record_count
    return max(min(rules.locks_max - share.in_flight, room_in_all) + gone, 0)


def gone_count(share: SharePartition, log_start_offset: int) -> int:
    """How many AVAILABLE offsets the log no longer has; the next acquisition trims them."""
    return sum(
        min(hold.last + 1, log_start_offset) - hold.first
        for hold in share.holds
        if hold.status == AVAILABLE and hold.first < log_start_offset
    )


def trim(state: State, share: SharePartition, log_start_offset: int) -> None:
    """Mark offsets that the log no longer has as DONE; a member may still acknowledge those that it has acquired."""
    if share.start >= log_start_offset:
        return
    if not share.holds:
        share.start = log_start_offset
        return
    end = end_of(share)
    place, stop = cut(share, share.start, log_start_offset - 1)
    gone = [done(each.first, each.last) if each.status == AVAILABLE else each for each in share.holds[place:stop]]
    if end < log_start_offset:
        gone.append(done(end, log_start_offset - 1))
    replace_holds(state, share, place, stop, gone)
    drop_done(share)


def end_of_deliveries(rules: Rules, hold: Hold, sequence: int) -> Hold:
    """The records after their last delivery, in the entry `sequence`: DONE, or with pending dead letters."""
    return dead(hold, EXHAUSTED, sequence) if rules.has_dead_letters else done(hold.first, hold.last)


class Acquisition(msgspec.Struct, frozen=True):
    """The member that acquires, the end of its locks, and the acquisition's number."""

    member_id: str
    until_ms: int
    number: int


def acquire(
    state: State,
    rules: Rules,
    partition: Partition,
    share: SharePartition,
    acquisition: Acquisition,
    window: OffsetRange,
    gaps: list[OffsetRange],
    records_max: int,
) -> list[AcquiredRange]:
    """Acquire the lowest free offsets of the window for the member, `records_max` at most."""
    first, last = max(window.first, share.start), min(window.last, visible_end(rules, partition) - 1)
    if first > last:
        return []
    reported_gaps = [(gap.first, gap.last) for gap in gaps]
    end = end_of(share)
    place, stop = cut(share, first, min(last, end - 1)) if first < end else (len(share.holds), len(share.holds))
    taker = _Taker(rules, acquisition, records_max, state.sequence)
    holds = [hold for old in share.holds[place:stop] for hold in taker.take_again(old, reported_gaps)]
    replace_holds(state, share, place, stop, holds)
    if first <= end <= last:
        room = room_for_new(state, rules, share)
        fragments_max = state.limits.share.share_fragments_max
        all_gaps = merge(reported_gaps, _markers(partition, end, fragments_max))
        new = taker.take_new(islice(fragments(end, last, all_gaps), fragments_max), room)
        replace_holds(state, share, len(share.holds), len(share.holds), new)
    drop_done(share)
    if taker.taken:
        share.due_ms = min(share.due_ms or acquisition.until_ms, acquisition.until_ms)
    return taker.taken


class _Taker:
    """Acquires offsets in ascending order, up to the limits."""

    def __init__(self, rules: Rules, acquisition: Acquisition, records_max: int, sequence: int) -> None:
        self.taken: list[AcquiredRange] = []
        self._rules = rules
        self._acquisition = acquisition
        self._room = max(records_max, 0)
        self._sequence = sequence

    def take_again(self, hold: Hold, gaps: Iterable[tuple[int, int]]) -> list[Hold]:
        """Acquire from a hold, if it is AVAILABLE and not delayed."""
        if not is_free(hold):
            return [hold]
        if hold.deliveries >= self._rules.delivery_limit:
            return [end_of_deliveries(self._rules, hold, self._sequence)]
        if hold.deliveries >= self._rules.throttled_from:
            return self._take_few(hold, gaps)
        return self._take_parts(hold, gaps)

    def _take_few(self, hold: Hold, gaps: Iterable[tuple[int, int]]) -> list[Hold]:
        """Acquire half of the records, a quarter after one more delivery, and so on; one for the last delivery.

        They come without others: none if the member gets other records already, and afterwards no others.
        """
        room = self._room
        if self.taken:
            self._room = 0
            return self._take_parts(hold, gaps)
        is_last = hold.deliveries == self._rules.delivery_limit - 1
        halvings = hold.deliveries - self._rules.throttled_from + 1
        few = 1 if is_last else max(min(hold.last - hold.first + 1, room) >> halvings, 1)
        self._room = min(few, room)
        found = self._take_parts(hold, gaps)
        self._room = 0 if self.taken else room
        return found

    def _take_parts(self, hold: Hold, gaps: Iterable[tuple[int, int]]) -> list[Hold]:
        """Acquire the first offsets that are no gaps."""
        found: list[Hold] = []
        for first, last, is_gap in fragments(hold.first, hold.last, gaps):
            if is_gap:
                found.append(done(first, last))
                continue
            middle = self._take(found, first, last, hold.deliveries)
            if middle <= last:
                found.append(available(middle, last, hold.deliveries))
        return found

    def take_new(self, found: Iterable[tuple[int, int, bool]], room: int) -> list[Hold]:
        """Acquire offsets that were never in flight, up to the limit, and mark gaps on the way as DONE."""
        self._room = min(self._room, room)
        holds: list[Hold] = []
        for first, last, is_gap in found:
            if is_gap:
                holds.append(done(first, last))
            elif self._take(holds, first, last, 0) <= last:
                break
        return holds

    def _take(self, holds: list[Hold], first: int, last: int, deliveries: int) -> int:
        """Acquire the first of these offsets; returns the first offset that is not acquired."""
        end = min(last, first + self._room - 1) + 1
        if end > first:
            self._room -= end - first
            by = self._acquisition
            holds.append(Hold(first, end - 1, ACQUIRED, deliveries + 1, by.member_id, by.until_ms, by.number))
            self._record(AcquiredRange(first, end - 1, deliveries + 1))
        return end

    def _record(self, taken: AcquiredRange) -> None:
        """Merge with the range before, as holds are merged: a repeated command is answered from the holds."""
        before = self.taken[-1] if self.taken else None
        if before is not None and (before.last + 1, before.delivery_count) == (taken.first, taken.delivery_count):
            self.taken[-1] = AcquiredRange(before.first, taken.last, taken.delivery_count)
        else:
            self.taken.append(taken)


def _markers(partition: Partition, first: int, rows_max: int) -> Iterator[tuple[int, int]]:
    if partition.transactions is None:
        return
    extents = partition.extents
    begin = extents.find_offset(first)
    for row in range(begin, min(extents.end, begin + rows_max)):
        if is_marker(partition, row):
            yield extents.base_offsets[row], extents.last_offsets[row]


def acquired_by(share: SharePartition, member_id: str, number: int) -> list[AcquiredRange]:
    """The offsets of an acquisition that the member still has."""
    return [
        AcquiredRange(hold.first, hold.last, hold.deliveries)
        for hold in share.holds
        if hold.status == ACQUIRED and hold.member_id == member_id and hold.acquisition == number
    ]


def windows(
    state: State, rules: Rules, partition: Partition, share: SharePartition, windows_max: int
) -> list[OffsetRange]:
    """Ranges that could be acquired now, in ascending order; the last range may never have been in flight."""
    start, end, stop = partition.log_start_offset, end_of(share), visible_end(rules, partition)
    found: list[OffsetRange] = []
    for hold in share.holds:
        first, last = max(hold.first, start), min(hold.last, stop - 1)
        if not is_free(hold) or first > last:
            continue
        if found and found[-1].last + 1 == first:
            found[-1] = OffsetRange(found[-1].first, last)
        elif len(found) < windows_max:
            found.append(OffsetRange(first, last))
        else:
            return found
    first, room = max(end, start), room_for_new(state, rules, share, gone_count(share, start))
    if first < stop and room and len(found) < windows_max:
        found.append(OffsetRange(first, min(stop, first + room) - 1))
    return found


def replace_holds(state: State, share: SharePartition, place: int, stop: int, holds: list[Hold]) -> None:
    """Replace holds by others, and count the records in flight."""
    state.share_record_count += put(share, place, stop, holds)
