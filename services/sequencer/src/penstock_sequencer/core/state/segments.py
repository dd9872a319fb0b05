"""The table of segments: all stored objects, how much of each is live, and since when a dead one is dead."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import ID_BYTES, SegmentId
from penstock.contracts.levels import JANITOR_LEVEL, NAME_REUSE_LEVEL
from penstock_sequencer.core.state.columns import column_bytes, read_columns

NOT_DEAD = -1
NO_SLOT = -1
MARKERS = 2**32 - 1  # the slot of an extent that is a marker, and so in no segment
_FREE = -1  # the number in a slot without a segment
_NO_ID = bytes(ID_BYTES)
_COLUMNS_BEFORE_REMOVING = 7  # columns in snapshots of releases that removed no segments


class Segments:
    """Columns of slots, about 80 bytes per slot; extents name their segment by its slot.

    A slot is used again after the removal of its segment, the smallest free slot first. A segment's `number` is its
    place in the order of commits. No other segment ever gets it, so a listing of segments continues by number.

    `live_bytes` is the sum of the lengths of the extents that point to the segment, `live_extents` is their count. A
    segment that no extent points to is dead: no new extent will ever point to it.

    Writers and zones are places in `names`. `name_uses` counts their segments. After `begin_name_reuse` a name without
    segments is removed, and the smallest free place gets the next new name. A free place holds "".

    `contents` leads from a live slot to its extents (log/segment_contents.py).
    `by_number` and `by_id` are the used slots in these orders. `free` is a heap of the slots without a segment.

    `dead` is the queue of dead segments: slots in the order in which they died, and by number within one entry and
    time. `begin_queue` makes it. Before that call, the entries that made segments dead are not recorded.
    """

    __slots__ = (
        "_is_queueing",
        "_is_reusing_names",
        "by_id",
        "by_number",
        "contents",
        "dead",
        "dead_count",
        "dead_sequences",
        "dead_since_ms",
        "dead_size_bytes",
        "free",
        "free_names",
        "ids",
        "levels",
        "live_bytes",
        "live_bytes_total",
        "live_extents",
        "name_numbers",
        "name_uses",
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
        self.name_uses = array("I")
        self.free_names: list[int] = []  # a heap
        self._is_reusing_names = False
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
        """Add a segment without live extents; return its slot."""
        slot = heappop(self.free) if self.free else self._new_slot()
        self.ids[slot * ID_BYTES : (slot + 1) * ID_BYTES] = segment_id
        self.levels[slot] = level
        self.sizes[slot] = size_bytes
        self.writers[slot] = self._use_name(writer)
        self.zones[slot] = self._use_name(zone)
        self.numbers[slot] = self.next_number
        self.next_number += 1
        self.size_bytes_total += size_bytes
        self.by_number.append(slot)
        self._enter_id(slot, segment_id)
        return slot

    def gain(self, slot: int, extents: int, length: int) -> None:
        """Count `extents` more extents that point to the segment, of `length` bytes in all."""
        self.live_extents[slot] += extents
        self.live_bytes[slot] += length
        self.live_bytes_total += length

    def lose_many(self, slots: "array[int]", lengths: "array[int]") -> int:
        """Count extents of these lengths that no longer point to these slots; return the sum of the lengths.

        The caller then marks the dead segments among them.
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
        """Mark the segment dead from the entry `sequence` on if no extent points to it; markers have no segment."""
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
        """Begin the queue of dead segments: from now on the table records which entry makes a segment dead.

        For segments that are dead already, that is the entry `sequence`. So a replica has the same state after the
        earlier entries as after a snapshot that has no such records.
        """
        self._is_queueing = True
        self.dead = self._in_dead_order()
        for slot in self.dead:
            self.dead_sequences[slot] = sequence

    def begin_name_reuse(self) -> None:
        """Remove names without segments from now on; replicas of lower levels keep all names."""
        self._is_reusing_names = True
        for number in range(len(self.names)):
            self._free_name_if_unused(number)

    def remove(self, slots: Sequence[int]) -> None:
        """Remove these dead segments, each slot given once; the method walks each table once."""
        assert self._is_queueing, "segments are removed only after `begin_queue`"
        self.by_number = _without(self.by_number, [self.place_of_number(self.numbers[slot]) for slot in slots])
        self.by_id = _without(self.by_id, [self._place_of_id(self.id(slot)) for slot in slots])
        places = [bisect_left(self.dead, self._order(slot), key=self._order) for slot in slots]
        self.dead = _without(self.dead, places)
        for slot in slots:
            self._clear(slot)
            heappush(self.free, slot)

    def find(self, segment_id: SegmentId) -> int:
        """The slot of the segment with this id, or NO_SLOT."""
        if not self.by_id or self.id(self.by_id[-1]) < segment_id:
            return NO_SLOT  # newer than all; a commit asks for such an id
        place = self._place_of_id(segment_id)
        if self.id(self.by_id[place]) == segment_id:
            return self.by_id[place]
        return NO_SLOT

    def find_number(self, number: int) -> int:
        """The slot of the segment with this number, or NO_SLOT."""
        place = self.place_of_number(number)
        if place < len(self.by_number) and self.numbers[self.by_number[place]] == number:
            return self.by_number[place]
        return NO_SLOT

    def place_of_number(self, number: int) -> int:
        """The place in `by_number` of the first segment with this number or a higher one."""
        return bisect_left(self.by_number, number, key=self.numbers.__getitem__)

    def id(self, slot: int) -> SegmentId:
        """The id of the segment in the slot."""
        return bytes(self.ids[slot * ID_BYTES : (slot + 1) * ID_BYTES])

    def all_ids(self) -> Iterator[SegmentId]:
        """The ids of all segments, ascending."""
        return map(self.id, self.by_id)

    def ref(self, slot: int) -> SegmentRef:
        """The segment as other services name it."""
        writer, zone = self.names[self.writers[slot]], self.names[self.zones[slot]]
        return SegmentRef(self.id(slot), self.levels[slot], self.sizes[slot], writer, zone)

    def columns(self) -> list[bytes]:
        """The columns of numbers as bytes, in the order of `_columns`; ids and names are written beside them."""
        return [column_bytes(column) for column in self._columns()]

    @classmethod
    def of_columns(
        cls, ids: bytes, names: Sequence[str], data: Sequence[bytes], next_number: int, *, level: int
    ) -> "Segments":
        """The table with these `ids`, `names`, `columns` and `next_number`; `ValueError` if they do not match."""

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
        segments.names = list(names)
        segments.name_numbers = {name: number for number, name in enumerate(names)}
        segments.name_uses = array("I", bytes(4 * len(names)))
        if len(segments.ids) != ID_BYTES * len(segments.levels):
            raise ValueError(f"{len(ids)} bytes of ids and {len(names)} names for {len(segments.levels)} segments")
        segments.next_number = next_number
        segments._is_queueing = level >= JANITOR_LEVEL
        segments._derive()
        if level >= NAME_REUSE_LEVEL:
            segments.begin_name_reuse()
        if len(segments.name_numbers) + len(segments.free_names) != len(names):
            raise ValueError(f"{len(names)} names, some of them twice")
        return segments

    def _derive(self) -> None:
        """Compute the derived fields from the columns."""
        slots = range(len(self.levels))
        self.contents = [b""] * len(slots)
        self.free = [slot for slot in slots if self.numbers[slot] == _FREE]
        used = sorted((slot for slot in slots if self.numbers[slot] != _FREE), key=self.numbers.__getitem__)
        for slot in used:
            for number in (self.writers[slot], self.zones[slot]):
                self.name_uses[number] += 1
                self.name_numbers[self.names[number]] = number
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
        """The slots of dead segments in the order of `dead`."""
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
        # An id begins with its time of creation, so a new id belongs at the end or close to it.
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
        """Reset the slot, so that all free slots have the same values."""
        self.size_bytes_total -= self.sizes[slot]
        self.dead_count -= 1
        self.dead_size_bytes -= self.sizes[slot]
        for number in (self.writers[slot], self.zones[slot]):
            self.name_uses[number] -= 1
            self._free_name_if_unused(number)
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

    def _use_name(self, name: str) -> int:
        """The place of the name, which one more segment uses."""
        number = self.name_numbers.get(name)
        if number is None:
            number = heappop(self.free_names) if self.free_names else self._new_name()
            self.names[number] = name
            self.name_numbers[name] = number
        self.name_uses[number] += 1
        return number

    def _new_name(self) -> int:
        self.names.append("")
        self.name_uses.append(0)
        return len(self.names) - 1

    def _free_name_if_unused(self, number: int) -> None:
        if not self._is_reusing_names or self.name_uses[number]:
            return
        if self.name_numbers.get(self.names[number]) == number:  # "" is also the name of a writer without a zone
            del self.name_numbers[self.names[number]]
        self.names[number] = ""
        heappush(self.free_names, number)


def _without(column: "array[int]", places: Sequence[int]) -> "array[int]":
    """The column without the items in these places."""
    kept = array(column.typecode)
    start = 0
    for place in sorted(places):
        kept += column[start:place]
        start = place + 1
    kept += column[start:]
    return kept
