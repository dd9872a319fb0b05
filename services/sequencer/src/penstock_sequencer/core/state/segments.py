"""The table of segments: which objects there are, how much of each is alive, and since when one is condemned."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import ID_BYTES, SegmentId
from penstock_sequencer.core.state.columns import column_bytes, read_columns

NOT_DEAD = -1
NO_SLOT = -1
MARKERS = 2**32 - 1  # in an extent, in the place of a slot: it is a marker, and in no segment
_FREE = -1  # as a number: the slot holds no segment
_NO_ID = bytes(ID_BYTES)
_COLUMNS_BEFORE_REMOVING = 7  # that snapshots have in which no segment was ever forgotten


class Segments:
    """Columns of slots, about 80 bytes each; extents name their segment by its slot.

    A slot is used again when its segment was forgotten, the smallest free one first. A segment's `number` is its place
    in the order of commits and never given to another, so who lists segments goes by numbers.

    `live_bytes` is the sum of the lengths of the extents that point here, `live_extents` their count. A segment that
    no extent points to is condemned: no new extent will ever point to it. Writers and zones are numbers of `names`.
    `contents` is the way from a live slot to its extents (contents.py). `by_number` and `by_id` are the slots in use in
    those orders. `dead` are those of condemned segments in the order of their condemnation, within one moment by
    number; `begin_queue` makes it, and before that the entries that condemned them are not noted. `free` is a heap of
    the slots without a segment.
    """

    __slots__ = (
        "_is_queueing",
        "by_id",
        "by_number",
        "contents",
        "dead",
        "dead_count",
        "dead_sequences",
        "dead_since_ms",
        "dead_size_bytes",
        "free",
        "ids",
        "levels",
        "live_bytes",
        "live_bytes_total",
        "live_extents",
        "name_numbers",
        "names",
        "next_number",
        "numbers",
        "size_bytes_total",
        "sizes",
        "writers",
        "zones",
    )

    def __init__(self) -> None:
        self.ids = bytearray()
        self.contents: list[bytes] = []
        self.levels = array("B")
        self.sizes = array("I")
        self.live_bytes = array("q")
        self.live_extents = array("I")
        self.dead_since_ms = array("q")
        self.writers = array("I")
        self.zones = array("I")
        self.numbers = array("q")
        self.dead_sequences = array("q")
        self.names: list[str] = []
        self.next_number = 0
        self.name_numbers: dict[str, int] = {}
        self.by_number = array("I")
        self.by_id = array("I")
        self.dead = array("I")
        self.free: list[int] = []  # a heap
        self._is_queueing = False
        self.size_bytes_total = 0
        self.live_bytes_total = 0
        self.dead_count = 0
        self.dead_size_bytes = 0

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, segment_id: SegmentId, level: int, size_bytes: int, writer: str, zone: str) -> int:
        """A new segment without live extents; its slot."""
        slot = heappop(self.free) if self.free else self._new_slot()
        self.ids[slot * ID_BYTES : (slot + 1) * ID_BYTES] = segment_id
        self.levels[slot] = level
        self.sizes[slot] = size_bytes
        self.writers[slot] = self._name_number(writer)
        self.zones[slot] = self._name_number(zone)
        self.numbers[slot] = self.next_number
        self.next_number += 1
        self.size_bytes_total += size_bytes
        self.by_number.append(slot)
        self._enter_id(slot, segment_id)
        return slot

    def gain(self, slot: int, extents: int, length: int) -> None:
        """Extents of `length` bytes in all now point to the segment."""
        self.live_extents[slot] += extents
        self.live_bytes[slot] += length
        self.live_bytes_total += length

    def lose_many(self, slots: "array[int]", lengths: "array[int]") -> int:
        """As many extents of these lengths point to these slots no longer; whoever calls looks who is dead.

        Returns the sum of the lengths.
        """
        live_extents, live_bytes = self.live_extents, self.live_bytes
        for slot, length in zip(slots, lengths, strict=True):
            if slot != MARKERS:
                live_extents[slot] -= 1
                live_bytes[slot] -= length
        lost_bytes = sum(lengths)
        self.live_bytes_total -= lost_bytes
        return lost_bytes

    def mark_dead_if_empty(self, slot: int, clock_ms: int, sequence: int) -> None:
        """Condemn the segment, by the entry `sequence`, if no extent points to it; markers are in none."""
        if slot == MARKERS or self.live_extents[slot] or self.dead_since_ms[slot] != NOT_DEAD:
            return
        self.dead_since_ms[slot] = clock_ms
        self.contents[slot] = b""
        self.dead_count += 1
        self.dead_size_bytes += self.sizes[slot]
        if self._is_queueing:
            self.dead_sequences[slot] = sequence
            self._queue(slot)

    def begin_queue(self, sequence: int) -> None:
        """From the entry `sequence` on note what entries condemn; for what is condemned already it is this one.

        So it makes no difference whether a replica has seen the entries before it or the snapshot of a release that
        did not note them.
        """
        self._is_queueing = True
        self.dead = self._in_dead_order()
        for slot in self.dead:
            self.dead_sequences[slot] = sequence

    def remove(self, slots: Sequence[int]) -> None:
        """Let go of these condemned segments, no slot given twice; each table is gone through once."""
        assert self._is_queueing, "segments are forgotten from the level on that notes what condemned them"
        self.by_number = _without(self.by_number, [self.place_of_number(self.numbers[slot]) for slot in slots])
        self.by_id = _without(self.by_id, [self._place_of_id(self.id(slot)) for slot in slots])
        places = [bisect_left(self.dead, self._order(slot), key=self._order) for slot in slots]
        self.dead = _without(self.dead, places)
        for slot in slots:
            self._clear(slot)
            heappush(self.free, slot)

    def find(self, segment_id: SegmentId) -> int:
        """The slot of the segment with this id, or NO_SLOT."""
        place = self._place_of_id(segment_id)
        if place < len(self.by_id) and self.id(self.by_id[place]) == segment_id:
            return self.by_id[place]
        return NO_SLOT

    def find_number(self, number: int) -> int:
        """The slot of the segment with this number, or NO_SLOT."""
        place = self.place_of_number(number)
        if place < len(self.by_number) and self.numbers[self.by_number[place]] == number:
            return self.by_number[place]
        return NO_SLOT

    def place_of_number(self, number: int) -> int:
        """The place in `by_number` of the first segment whose number is `number` or above."""
        return bisect_left(self.by_number, number, key=self.numbers.__getitem__)

    def id(self, slot: int) -> SegmentId:
        """The segment's id."""
        return bytes(self.ids[slot * ID_BYTES : (slot + 1) * ID_BYTES])

    def all_ids(self) -> Iterator[SegmentId]:
        """The ids of all segments, in their order."""
        return map(self.id, self.by_id)

    def ref(self, slot: int) -> SegmentRef:
        """The segment as other services name it."""
        writer, zone = self.names[self.writers[slot]], self.names[self.zones[slot]]
        return SegmentRef(self.id(slot), self.levels[slot], self.sizes[slot], writer, zone)

    def columns(self) -> list[bytes]:
        """The numbers of all slots as bytes, in the order of `_columns`; the rest comes beside them."""
        return [column_bytes(column) for column in self._columns()]

    @classmethod
    def of_columns(
        cls, ids: bytes, names: Sequence[str], data: Sequence[bytes], next_number: int, *, is_queueing: bool
    ) -> "Segments":
        """The table whose `ids`, `names`, `columns` and `next_number` these are.

        `ValueError` if they do not belong together.
        """
        segments = cls()
        segments.ids += ids
        columns = segments._columns()
        if len(data) == _COLUMNS_BEFORE_REMOVING:
            read_columns(columns[:_COLUMNS_BEFORE_REMOVING], data)
            segments.numbers.extend(range(len(segments.levels)))
            segments.dead_sequences.frombytes(bytes(8 * len(segments.levels)))
            next_number = len(segments.levels)
        else:
            read_columns(columns, data)
        for name in names:
            segments._name_number(name)
        if len(segments.ids) != ID_BYTES * len(segments.levels) or segments.names != list(names):
            raise ValueError(f"{len(ids)} bytes of ids and {len(names)} names for {len(segments.levels)} segments")
        segments.next_number = next_number
        segments._is_queueing = is_queueing
        segments._derive()
        return segments

    def _derive(self) -> None:
        """Make what follows from the columns."""
        slots = range(len(self.levels))
        self.contents = [b""] * len(slots)
        self.free = [slot for slot in slots if self.numbers[slot] == _FREE]
        used = sorted((slot for slot in slots if self.numbers[slot] != _FREE), key=self.numbers.__getitem__)
        self.by_number = array("I", used)
        self.by_id = array("I", sorted(used, key=self.id))
        self.size_bytes_total = sum(self.sizes)
        self.live_bytes_total = sum(self.live_bytes)
        dead = self._in_dead_order()
        self.dead_count = len(dead)
        self.dead_size_bytes = sum(map(self.sizes.__getitem__, dead))
        if self._is_queueing:
            self.dead = dead

    def _in_dead_order(self) -> "array[int]":
        """The slots of condemned segments as `dead` has them."""
        found = [slot for slot in self.by_number if self.dead_since_ms[slot] != NOT_DEAD]
        found.sort(key=self.dead_since_ms.__getitem__)
        found.sort(key=self.dead_sequences.__getitem__)
        return array("I", found)

    def _queue(self, slot: int) -> None:
        queue = self.dead
        place = len(queue)
        if queue and self._order(queue[-1]) > self._order(slot):
            place = bisect_left(queue, self._order(slot), key=self._order)
        queue.insert(place, slot)

    def _order(self, slot: int) -> tuple[int, int, int]:
        return self.dead_sequences[slot], self.dead_since_ms[slot], self.numbers[slot]

    def _enter_id(self, slot: int, segment_id: SegmentId) -> None:
        by_id = self.by_id
        # Ids begin with the time of their making, so a new one belongs to the end, or close to it.
        is_last = not by_id or self.id(by_id[-1]) < segment_id
        by_id.insert(len(by_id) if is_last else self._place_of_id(segment_id), slot)

    def _place_of_id(self, segment_id: SegmentId) -> int:
        return bisect_left(self.by_id, segment_id, key=self.id)

    def _new_slot(self) -> int:
        self.ids += _NO_ID
        self.contents.append(b"")
        self.dead_since_ms.append(NOT_DEAD)
        for column in (self.levels, self.sizes, self.live_bytes, self.live_extents, self.writers, self.zones):
            column.append(0)
        self.numbers.append(_FREE)
        self.dead_sequences.append(0)
        return len(self.levels) - 1

    def _clear(self, slot: int) -> None:
        """A free slot looks the same whatever was in it."""
        self.size_bytes_total -= self.sizes[slot]
        self.dead_count -= 1
        self.dead_size_bytes -= self.sizes[slot]
        self.ids[slot * ID_BYTES : (slot + 1) * ID_BYTES] = _NO_ID
        self.levels[slot] = self.sizes[slot] = self.writers[slot] = self.zones[slot] = 0
        self.dead_since_ms[slot] = NOT_DEAD
        self.dead_sequences[slot] = 0
        self.numbers[slot] = _FREE

    def _columns(self) -> "tuple[array[int], ...]":
        return (
            self.levels,
            self.sizes,
            self.live_bytes,
            self.live_extents,
            self.dead_since_ms,
            self.writers,
            self.zones,
            self.numbers,
            self.dead_sequences,
        )

    def _name_number(self, name: str) -> int:
        number = self.name_numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def _without(column: "array[int]", places: Sequence[int]) -> "array[int]":
    """The column without what stands in these places."""
    kept = array(column.typecode)
    start = 0
    for place in sorted(places):
        kept += column[start:place]
        start = place + 1
    kept += column[start:]
    return kept
