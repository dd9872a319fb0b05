"""Compares the journal with the objects of an inventory, without reading records. Pure.

It finds objects that are missing, unexplained, or of the wrong size.
"""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.audit.inventory import EXTENT_FIELDS, Inventory
from penstock.audit.report import Finding
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import SegmentId, segment_born_ms
from penstock.contracts.queries.compaction import SegmentView
from penstock.segment.keys import parse_journal_archive_key, parse_segment_key, parse_snapshot_key, segment_key

NO_PREFIX = ""  # the store's URL already has the prefix
# No segment may be committed 15 minutes after its birth. The janitor waits four times as long, and so does the audit.
ORPHAN_AGE_MIN_MS = 60 * 60 * 1000
DEAD_GRACE_MS = 10 * 60 * 1000  # for readers that still know the segment; then the janitor may delete the object
_NOTES = ("journal-identity", "journal-lost-entry")
_POSITION, _LENGTH = 4, 5  # in an extent's row


class Breakdown(msgspec.Struct):
    """Objects and bytes of the bucket by their explanation."""

    objects: dict[str, int] = {}
    bytes: dict[str, int] = {}

    def add(self, explanation: str, size_bytes: int) -> None:
        """Count one object."""
        self.objects[explanation] = self.objects.get(explanation, 0) + 1
        self.bytes[explanation] = self.bytes.get(explanation, 0) + size_bytes


def check_objects(inventory: Inventory, cluster: str, now_ms: int) -> tuple[list[Finding], Breakdown]:
    """All findings except those that need the bytes themselves, and the breakdown of the bucket."""
    breakdown = Breakdown()
    findings = list(inventory.findings)
    for key, size_bytes in inventory.objects.items():
        explanation, finding = _explain(inventory, cluster, key, size_bytes, now_ms)
        breakdown.add(explanation, size_bytes)
        if finding is not None:
            findings.append(finding)
    findings += _missing(inventory, cluster)
    return findings, breakdown


def _explain(inventory: Inventory, cluster: str, key: str, size_bytes: int, now_ms: int) -> tuple[str, Finding | None]:
    """The explanation of an object, and its defect or None."""
    if _is_of_journal(key, cluster):
        return "journal", None
    try:
        level, segment_id = parse_segment_key(key)
    except Invalid:
        return "unexplained", Finding("object-unknown", key, "no object of Penstock has such a key")
    segment = inventory.segments.get(segment_id)
    if segment is None and segment_id not in inventory.named:
        age_ms = now_ms - segment_born_ms(segment_id)
        if age_ms < ORPHAN_AGE_MIN_MS:
            return "uncommitted", None
        return "unexplained", Finding(
            "object-orphaned", key, f"no journal entry knows it, and it is {age_ms // 60_000} min old"
        )
    known = inventory.named[segment_id][0] if segment is None else segment.level
    if level != known:
        return "unexplained", Finding("object-unknown", key, f"the journal has this segment at level {known}")
    if segment is not None and segment.size_bytes != size_bytes:
        what = f"it has {size_bytes} bytes, but {segment.size_bytes} in the journal"
        return "live", Finding("object-resized", key, what)
    if segment is None or segment.dead_since_ms < 0:
        return "live", _miscounted(inventory, key, segment)
    return ("grace" if inventory.clock_ms - segment.dead_since_ms < DEAD_GRACE_MS else "condemned"), None


def _is_of_journal(key: str, cluster: str) -> bool:
    if key in {f"{cluster}/{note}" for note in _NOTES}:
        return True
    for parse in (parse_snapshot_key, parse_journal_archive_key):
        try:
            parse(key)
        except Invalid:
            continue
        return True
    return False


def _miscounted(inventory: Inventory, key: str, segment: SegmentView | None) -> Finding | None:
    """A finding if the journal's count of the segment's live bytes is not the sum of its extents."""
    if segment is None:  # it was committed during the inventory
        return None
    found = sum(length for _, length in _places(inventory, segment.segment_id))
    if found == segment.live_bytes or (found < segment.live_bytes and inventory.is_dropping):
        return None
    return Finding(
        "segment-miscounted", key, f"its extents have {found} bytes, but the journal counts {segment.live_bytes}"
    )


def _missing(inventory: Inventory, cluster: str) -> Iterator[Finding]:
    for segment_id, (level, size_bytes) in inventory.named.items():
        key = segment_key(NO_PREFIX, cluster, level, segment_id)
        if key not in inventory.objects:
            count = len(_places(inventory, segment_id))
            yield Finding("object-missing", key, f"{count} live extents point to it")
        yield from _outside(inventory, key, segment_id, size_bytes)


def _places(inventory: Inventory, segment_id: SegmentId) -> list[tuple[int, int]]:
    """Position and length of all extents that point to the segment, sorted."""
    rows: Sequence[int] = inventory.extents_by_segment.get(segment_id, ())
    hidden: Sequence[int] = inventory.hidden.get(segment_id, ())
    in_logs = zip(rows[_POSITION::EXTENT_FIELDS], rows[_LENGTH::EXTENT_FIELDS], strict=True)
    return sorted([*in_logs, *zip(hidden[0::2], hidden[1::2], strict=True)])


def _outside(inventory: Inventory, key: str, segment_id: SegmentId, size_bytes: int) -> Iterator[Finding]:
    """Findings for extents that overlap or lie outside the object."""
    end = 0
    for position, length in _places(inventory, segment_id):
        if position < end or position + length > size_bytes:
            yield Finding(
                "extent-misplaced",
                key,
                f"the {length} bytes at {position} overlap another extent or end outside the object",
            )
        end = max(end, position + length)
