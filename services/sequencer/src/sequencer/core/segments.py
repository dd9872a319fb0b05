"""The table of segments: which objects there are, how much of each is alive, and since when one is condemned."""

from array import array
from collections.abc import Sequence

from penstock.contracts.batches import SegmentRef
from penstock.contracts.ids import ID_BYTES, SegmentId
from sequencer.core.columns import column_bytes, read_columns

NOT_CONDEMNED = -1


class Segments:
    """Rows numbered from 0, in columns, about 50 bytes each; extents name their segment by its row.

    `live_bytes` is the sum of the lengths of the extents that point here, `live_extents` their count. A segment that
    no extent points to is condemned: no new extent will ever point to it. Writers and zones are numbers of `names`.
    There is no way from an id to its row: only a commit would ask, and it knows from State.commits. `contents` is the
    way from a live row to its extents (contents.py).
    """

    __slots__ = (
        "_name_numbers",
        "condemned_ms",
        "contents",
        "ids",
        "levels",
        "live_bytes",
        "live_extents",
        "names",
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
        self.condemned_ms = array("q")
        self.writers = array("I")
        self.zones = array("I")
        self.names: list[str] = []
        self._name_numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.levels)

    def add(self, segment_id: SegmentId, level: int, size_bytes: int, writer: str, zone: str) -> int:
        """A new segment without live extents; its row."""
        self.ids += segment_id
        self.levels.append(level)
        self.sizes.append(size_bytes)
        self.contents.append(b"")
        self.live_bytes.append(0)
        self.live_extents.append(0)
        self.condemned_ms.append(NOT_CONDEMNED)
        self.writers.append(self._name_number(writer))
        self.zones.append(self._name_number(zone))
        return len(self.levels) - 1

    def gain(self, row: int, extents: int, length: int) -> None:
        """Extents of `length` bytes in all now point to the segment."""
        self.live_extents[row] += extents
        self.live_bytes[row] += length

    def lose(self, row: int, length: int, clock_ms: int) -> None:
        """An extent of `length` bytes points here no longer; the last one to go condemns the segment."""
        self.live_extents[row] -= 1
        self.live_bytes[row] -= length
        self.condemn_if_dead(row, clock_ms)

    def lose_many(self, rows: "array[int]", lengths: "array[int]") -> None:
        """As many extents of these lengths point to these rows no longer; whoever calls looks who is dead."""
        live_extents, live_bytes = self.live_extents, self.live_bytes
        for row, length in zip(rows, lengths, strict=True):
            live_extents[row] -= 1
            live_bytes[row] -= length

    def condemn_if_dead(self, row: int, clock_ms: int) -> None:
        """Condemn the segment if no extent points to it."""
        if not self.live_extents[row] and self.condemned_ms[row] == NOT_CONDEMNED:
            self.condemned_ms[row] = clock_ms
            self.contents[row] = b""

    def id(self, row: int) -> SegmentId:
        """The segment's id."""
        return bytes(self.ids[row * ID_BYTES : (row + 1) * ID_BYTES])

    def ref(self, row: int) -> SegmentRef:
        """The segment as other services name it."""
        writer, zone = self.names[self.writers[row]], self.names[self.zones[row]]
        return SegmentRef(self.id(row), self.levels[row], self.sizes[row], writer, zone)

    def columns(self) -> list[bytes]:
        """The numbers of all rows as bytes, in the order of `_columns`; `ids` and `names` come beside them."""
        return [column_bytes(column) for column in self._columns()]

    @classmethod
    def of_columns(cls, ids: bytes, names: Sequence[str], data: Sequence[bytes]) -> "Segments":
        """The table whose `ids`, `names` and `columns` these are; `ValueError` if they do not belong together."""
        segments = cls()
        segments.ids += ids
        read_columns(segments._columns(), data)
        for name in names:
            segments._name_number(name)
        if len(segments.ids) != ID_BYTES * len(segments) or segments.names != list(names):
            raise ValueError(f"{len(ids)} bytes of ids and {len(names)} names for {len(segments)} segments")
        return segments

    def _columns(self) -> "tuple[array[int], ...]":
        return (
            self.levels,
            self.sizes,
            self.live_bytes,
            self.live_extents,
            self.condemned_ms,
            self.writers,
            self.zones,
        )

    def _name_number(self, name: str) -> int:
        number = self._name_numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number
