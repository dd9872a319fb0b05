"""The findings of an audit without reading records: each kind of difference between bucket and journal."""

from array import array

import pytest

from penstock.audit.inventory import Inventory
from penstock.audit.object_check import DEAD_GRACE_MS, ORPHAN_AGE_MIN_MS, check_objects
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.queries.compaction import SegmentView
from penstock.contracts.queries.topics import TopicView
from penstock.segment.keys import journal_archive_key, segment_key, snapshot_key

CLUSTER = "c"
NOW_MS = 1_800_000_000_000
SIZE_BYTES = 1_000
LIVE_BYTES = 300


def segment_of(seed: int, born_ms: int = NOW_MS) -> SegmentId:
    return new_segment_id(born_ms, bytes([seed] * 10))


def key_of(segment_id: SegmentId, level: int = 0) -> str:
    return segment_key("", CLUSTER, level, segment_id)


LIVE, DEAD_SEGMENT, YOUNG = segment_of(1), segment_of(2), segment_of(3, NOW_MS - ORPHAN_AGE_MIN_MS + 1)


@pytest.fixture
def sound() -> Inventory:
    """Two extents in a live segment, one in its grace, one not yet committed, and the journal's own objects."""
    rows = array("q", [0, 0, 10, 19, 104, 100, 5, 0, 1, 0, 9, 204, 200, 5])
    return Inventory(
        topics=[TopicView("t", bytes(16), 2, {}, 1)],
        extents_by_segment={LIVE: rows},
        named={LIVE: (0, SIZE_BYTES)},
        segments={
            LIVE: SegmentView(0, LIVE, 0, SIZE_BYTES, LIVE_BYTES, 2, -1, False),
            DEAD_SEGMENT: SegmentView(1, DEAD_SEGMENT, 0, SIZE_BYTES, 0, 0, NOW_MS - 1, False),
        },
        clock_ms=NOW_MS,
        objects={
            key_of(LIVE): SIZE_BYTES,
            key_of(DEAD_SEGMENT): SIZE_BYTES,
            key_of(YOUNG): 7,
            snapshot_key("", CLUSTER, 5): 11,
            journal_archive_key("", CLUSTER, 1, 5): 12,
            f"{CLUSTER}/journal-identity": 13,
        },
    )


def kinds(inventory: Inventory) -> list[tuple[str, str]]:
    findings, _ = check_objects(inventory, CLUSTER, NOW_MS)
    return [(finding.kind, finding.subject) for finding in findings]


def test_a_sound_bucket_gives_no_finding_and_every_byte_is_explained(sound: Inventory) -> None:
    findings, breakdown = check_objects(sound, CLUSTER, NOW_MS)
    assert findings == []
    assert breakdown.objects == {"live": 1, "grace": 1, "uncommitted": 1, "journal": 3}
    assert breakdown.bytes == {"live": SIZE_BYTES, "grace": SIZE_BYTES, "uncommitted": 7, "journal": 36}


def test_a_live_segment_without_its_object_is_missing(sound: Inventory) -> None:
    del sound.objects[key_of(LIVE)]
    assert kinds(sound) == [("object-missing", key_of(LIVE))]


def test_the_object_of_a_dead_segment_may_be_missing(sound: Inventory) -> None:
    del sound.objects[key_of(DEAD_SEGMENT)]
    assert kinds(sound) == []


def test_an_old_object_that_no_entry_knows_is_an_orphan(sound: Inventory) -> None:
    orphan = key_of(segment_of(4, NOW_MS - ORPHAN_AGE_MIN_MS))
    sound.objects[orphan] = 5
    findings, breakdown = check_objects(sound, CLUSTER, NOW_MS)
    assert [(finding.kind, finding.subject) for finding in findings] == [("object-orphaned", orphan)]
    assert breakdown.bytes["unexplained"] == 5


def test_an_object_that_is_not_from_penstock_is_reported(sound: Inventory) -> None:
    sound.objects[f"{CLUSTER}/holiday.jpg"] = 5
    assert kinds(sound) == [("object-unknown", f"{CLUSTER}/holiday.jpg")]


def test_an_object_at_another_level_than_its_segment_is_reported(sound: Inventory) -> None:
    """No gateway reads it there, and no janitor would delete it with its segment."""
    sound.objects[key_of(LIVE, level=1)] = SIZE_BYTES
    assert kinds(sound) == [("object-unknown", key_of(LIVE, level=1))]


def test_an_object_of_another_size_is_reported(sound: Inventory) -> None:
    sound.objects[key_of(LIVE)] += 1
    assert kinds(sound) == [("object-resized", key_of(LIVE))]


def test_live_bytes_that_are_not_the_sum_of_the_extents_are_reported(sound: Inventory) -> None:
    sound.segments[LIVE] = SegmentView(0, LIVE, 0, SIZE_BYTES, LIVE_BYTES + 1, 2, -1, False)
    assert kinds(sound) == [("segment-miscounted", key_of(LIVE))]


@pytest.mark.parametrize(("counted_too_much", "expected"), [(1, []), (-1, ["segment-miscounted"])])
def test_while_extents_are_dropped_the_journal_may_count_more_than_its_answers_contain(
    sound: Inventory, counted_too_much: int, expected: list[str]
) -> None:
    sound.is_dropping = True
    sound.segments[LIVE] = SegmentView(0, LIVE, 0, SIZE_BYTES, LIVE_BYTES + counted_too_much, 2, -1, False)
    assert [kind for kind, _ in kinds(sound)] == expected


def test_extents_that_are_in_no_log_count_and_have_bytes_of_their_own(sound: Inventory) -> None:
    sound.segments[LIVE] = SegmentView(0, LIVE, 0, SIZE_BYTES, LIVE_BYTES + 50, 3, -1, False)
    sound.hidden[LIVE] = array("q", [404, 50])
    assert kinds(sound) == []
    sound.hidden[LIVE] = array("q", [403, 50])
    assert kinds(sound) == [("extent-misplaced", key_of(LIVE))]


@pytest.mark.parametrize("position", [104 + 99, SIZE_BYTES - 199])
def test_extents_that_overlap_or_leave_the_object_are_reported(sound: Inventory, position: int) -> None:
    sound.extents_by_segment[LIVE][11] = position
    assert kinds(sound) == [("extent-misplaced", key_of(LIVE))]


def test_a_segment_committed_during_the_audit_is_no_finding(sound: Inventory) -> None:
    del sound.segments[LIVE]
    assert kinds(sound) == []


def test_dead_segments_after_their_grace_are_counted_separately(sound: Inventory) -> None:
    sound.clock_ms += DEAD_GRACE_MS
    _, breakdown = check_objects(sound, CLUSTER, NOW_MS)
    assert breakdown.objects["condemned"] == 1
