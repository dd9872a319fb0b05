"""The classification alone: every state of an object, at its limits."""

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import SegmentId, new_segment_id
from penstock.contracts.queries.compaction import SegmentView
from penstock.contracts.queries.janitor import KnownSegment
from penstock_janitor.rules.classification import (
    ORPHAN_AGE_MIN_MS,
    REBUILT_REST_MS,
    SEGMENT_COMMIT_AGE_MAX_MS,
    Now,
    ObjectState,
    Rules,
    classify_dead,
    classify_segment,
    classify_unfinished,
    may_be_orphan,
)
from penstock_janitor.rules.journal import (
    CHECKPOINTS_MAX,
    NEVER,
    REBUILT_SEQUENCE_MIN,
    Checkpoints,
    Identity,
    rebuilt_ms,
)
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from penstock_sequencer.rebuild import new_journal

BORN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SEGMENT: SegmentId = new_segment_id(BORN_MS, bytes(10))
RULES = Rules(grace_ms=600_000)
OLD_MS = BORN_MS + ORPHAN_AGE_MIN_MS
NOW = Now(OLD_MS, OLD_MS, secured_sequence=100, watched_sequence=100)


def known(*, dead_since_ms: int = -1, dead_sequence: int = 0, level: int = 0) -> KnownSegment:
    extents = 3 if dead_since_ms < 0 else 0
    view = SegmentView(0, SEGMENT, level, 500, 100 * extents, extents, dead_since_ms, False)
    return KnownSegment(view, False, dead_sequence)


def state_of(known: KnownSegment | None, now: Now = NOW, level: int = 0) -> ObjectState:
    return classify_segment(level, SEGMENT, known, now, RULES).state


def test_the_age_of_orphans_is_four_times_that_of_commits_in_the_state_machine() -> None:
    age_max_ms = DEFAULT_LIMITS.log.segment_commit_age_max_ms
    assert age_max_ms == SEGMENT_COMMIT_AGE_MAX_MS
    assert 4 * age_max_ms == ORPHAN_AGE_MIN_MS


def test_a_segment_with_extents_is_live() -> None:
    assert state_of(known()) is ObjectState.LIVE


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (NOW, ObjectState.DEAD_SEGMENT),
        (msgspec.structs.replace(NOW, clock_ms=NOW.clock_ms - 1), ObjectState.WAITING),
        (msgspec.structs.replace(NOW, watched_sequence=99), ObjectState.WAITING),
        (msgspec.structs.replace(NOW, watched_sequence=NEVER), ObjectState.WAITING),
        (msgspec.structs.replace(NOW, secured_sequence=99), ObjectState.WAITING),
        (msgspec.structs.replace(NOW, own_ms=0), ObjectState.DEAD_SEGMENT),
    ],
)
def test_a_dead_segment_is_deletable_after_the_grace_by_both_clocks_and_two_snapshots(
    now: Now, expected: ObjectState
) -> None:
    dead = known(dead_since_ms=NOW.clock_ms - RULES.grace_ms, dead_sequence=100)
    assert state_of(dead, now) is expected


@pytest.mark.parametrize(
    ("clock_ms", "own_ms", "expected"),
    [
        (OLD_MS, OLD_MS, ObjectState.ORPHAN),
        (OLD_MS - 1, OLD_MS, ObjectState.YOUNG),
        (OLD_MS, OLD_MS - 1, ObjectState.YOUNG),
        (OLD_MS + 10**12, OLD_MS - 1, ObjectState.YOUNG),
        (0, OLD_MS + 10**12, ObjectState.YOUNG),
    ],
)
def test_an_unknown_segment_is_an_orphan_when_it_is_old_by_both_clocks(
    clock_ms: int, own_ms: int, expected: ObjectState
) -> None:
    now = Now(clock_ms, own_ms)
    assert state_of(None, now) is expected
    assert state_of(known(), now, level=1) is expected, "a segment at another level is not classified as unknown"
    assert may_be_orphan(SEGMENT, now, RULES) == (expected is ObjectState.ORPHAN)


@pytest.mark.parametrize(
    ("rebuilt_ms", "own_late_ms", "expected"),
    [
        (NEVER, 0, ObjectState.ORPHAN),
        (OLD_MS, 0, ObjectState.SPARED),
        (OLD_MS - REBUILT_REST_MS + 1, 0, ObjectState.SPARED),
        (OLD_MS - REBUILT_REST_MS, 0, ObjectState.ORPHAN),
        (OLD_MS - REBUILT_REST_MS, 1, ObjectState.SPARED),
    ],
)
def test_for_a_day_after_a_rebuild_no_object_is_an_orphan(
    rebuilt_ms: int, own_late_ms: int, expected: ObjectState
) -> None:
    born_before = new_segment_id(BORN_MS - HOUR_MS, bytes(10))
    now = Now(OLD_MS, OLD_MS - own_late_ms, rebuilt_ms=rebuilt_ms)
    assert classify_segment(0, born_before, None, now, RULES).state is expected


def test_a_journal_with_a_very_high_sequence_was_rebuilt() -> None:
    assert REBUILT_SEQUENCE_MIN == new_journal.SEQUENCES_SKIPPED
    journal = Identity("penstock-journal-test", "2023-11-14T22:13:20.123456789Z")
    assert rebuilt_ms(journal, REBUILT_SEQUENCE_MIN - 1) == NEVER
    assert rebuilt_ms(journal, REBUILT_SEQUENCE_MIN) == 1_700_000_000_123
    with pytest.raises(Corrupt, match="the creation time of journal s is not a time"):
        rebuilt_ms(Identity("s", "yesterday"), REBUILT_SEQUENCE_MIN)


def test_a_segment_that_was_just_removed_stays() -> None:
    assert state_of(KnownSegment(None, True)) is ObjectState.REMEMBERED


def test_an_upload_is_deletable_when_it_is_old_by_both_clocks() -> None:
    assert classify_unfinished(BORN_MS, Now(OLD_MS, OLD_MS), RULES).state is ObjectState.UNFINISHED
    for now in (Now(OLD_MS - 1, OLD_MS), Now(OLD_MS, OLD_MS - 1)):
        assert classify_unfinished(BORN_MS, now, RULES).state is ObjectState.YOUNG


@given(
    extents=st.integers(0, 3),
    level=st.integers(0, 2),
    other=st.integers(0, 2),
    clock=st.integers(0, 2**48),
    own=st.integers(0, 2**48),
    dead_since_ms=st.integers(0, 2**48),
    sequences=st.tuples(st.integers(0, 200), st.integers(-1, 200), st.integers(-1, 200)),
)
def test_a_segment_with_extents_is_never_deletable(
    extents: int, level: int, other: int, clock: int, own: int, dead_since_ms: int, sequences: tuple[int, int, int]
) -> None:
    dead_sequence, secured, watched = sequences
    view = SegmentView(0, SEGMENT, level, 500, extents, extents, -1 if extents else dead_since_ms, False)
    found = classify_segment(
        other, SEGMENT, KnownSegment(view, True, dead_sequence), Now(clock, own, secured, watched), RULES
    )
    if found.is_deletable and level == other:
        assert not extents
        assert clock - dead_since_ms >= RULES.grace_ms
        assert dead_sequence <= min(secured, watched)


@pytest.mark.parametrize("reason", ["readers may use it", "by its monotonic clock", "two snapshots must include"])
def test_the_reason_names_the_missing_condition(reason: str) -> None:
    now = {
        "readers may use it": Now(1_000, 0),
        "by its monotonic clock": Now(10**6, 0, secured_sequence=9),
        "two snapshots must include": Now(10**6, 0, watched_sequence=9),
    }[reason]
    found = classify_dead(0, 9, now, RULES)
    assert found.state is ObjectState.WAITING
    assert reason in found.reason


JOURNAL = Identity("penstock-journal-test", "2026-01-01")


def test_a_checkpoint_counts_after_a_grace_period() -> None:
    checkpoints = Checkpoints(10.0)
    assert checkpoints.watched_sequence(0) == NEVER
    checkpoints.record(JOURNAL, 5.0, 7)
    assert checkpoints.watched_sequence(14.9) == NEVER
    assert checkpoints.watched_sequence(15.0) == 7
    checkpoints.record(JOURNAL, 16.0, 9)
    checkpoints.record(JOURNAL, 20.0, 12)
    assert checkpoints.watched_sequence(25.9) == 7
    assert checkpoints.watched_sequence(26.0) == 9
    assert checkpoints.watched_sequence(1_000.0) == 12


def test_checkpoints_begin_again_with_another_journal() -> None:
    checkpoints = Checkpoints(10.0)
    checkpoints.record(JOURNAL, 0.0, 7)
    checkpoints.record(Identity("penstock-journal-test", "2026-01-02"), 11.0, 3)
    assert checkpoints.watched_sequence(12.0) == NEVER
    assert checkpoints.watched_sequence(21.0) == 3


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 50)), max_size=300))
def test_the_watched_sequence_was_reached_a_grace_period_ago(steps: list[tuple[float, int]]) -> None:
    checkpoints = Checkpoints(30.0)
    now_s, sequence, seen = 0.0, 0, []
    for pause_s, entries in steps:
        now_s, sequence = now_s + pause_s, sequence + entries
        seen.append((now_s, sequence))
        checkpoints.record(JOURNAL, now_s, sequence)
        before = max((each for when_s, each in seen if when_s <= now_s - 30.0), default=NEVER)
        assert checkpoints.watched_sequence(now_s) <= before
        assert len(checkpoints) <= CHECKPOINTS_MAX + 2


def test_without_a_grace_period_a_checkpoint_counts_at_once() -> None:
    checkpoints = Checkpoints(0.0)
    checkpoints.record(JOURNAL, 1.0, 7)
    assert checkpoints.watched_sequence(1.0) == 7
    checkpoints.record(JOURNAL, 2.0, 8)
    assert checkpoints.watched_sequence(2.0) == 8
