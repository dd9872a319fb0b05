"""The table of segments: which objects there are, how much of each is alive, and since when one is condemned."""

from array import array

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import SegmentId

NOT_CONDEMNED = -1


class Segments:
    """Rows numbered from 0; extents name their segment by its row, because a number is smaller than an id.

    `live_bytes` is the sum of the lengths of the extents that point here, `live_extents` their count. A segment that
    no extent points to is condemned: no new extent will ever point to it.
    """

    __slots__ = (
        "condemned_ms",
        "ids",
        "levels",
        "live_bytes",
        "live_extents",
        "names",
        "rows",
        "sizes",
        "writers",
        "zones",
    )

    def __init__(self) -> None:
        self.rows: dict[SegmentId, int] = {}
        self.ids: list[SegmentId] = []
        self.levels = array("B")
        self.sizes = array("I")
        self.live_bytes = array("q")
        self.live_extents = array("I")
        self.condemned_ms = array("q")
        self.writers: list[str] = []
        self.zones: list[str] = []
        self.names: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, segment_id: SegmentId, level: int, size_bytes: int, writer: str, zone: str) -> int:
        """A new segment without live extents; its row."""
        row = len(self.ids)
        self.rows[segment_id] = row
        self.ids.append(segment_id)
        self.levels.append(level)
        self.sizes.append(size_bytes)
        self.live_bytes.append(0)
        self.live_extents.append(0)
        self.condemned_ms.append(NOT_CONDEMNED)
        self.writers.append(self.names.setdefault(writer, writer))
        self.zones.append(self.names.setdefault(zone, zone))
        return row

    def gain(self, row: int, extents: int, length: int) -> None:
        """Extents of `length` bytes in all now point to the segment."""
        self.live_extents[row] += extents
        self.live_bytes[row] += length

    def lose(self, row: int, length: int, clock_ms: int) -> None:
        """An extent of `length` bytes points here no longer; the last one to go condemns the segment."""
        self.live_extents[row] -= 1
        self.live_bytes[row] -= length
        self.condemn_if_dead(row, clock_ms)

    def condemn_if_dead(self, row: int, clock_ms: int) -> None:
        """Condemn the segment if no extent points to it."""
        if not self.live_extents[row] and self.condemned_ms[row] == NOT_CONDEMNED:
            self.condemned_ms[row] = clock_ms

    def ref(self, row: int) -> SegmentRef:
        """The segment as other services name it."""
        return SegmentRef(self.ids[row], self.levels[row], self.sizes[row], self.writers[row], self.zones[row])
