"""Classifies objects: which may be deleted, which stay, and why. Pure. Only this module decides that.

An object may be deleted in three cases:

 - Dead segment (`condemned` in metrics): no extent points to it, and none can later. It stays for a grace period,
   because readers may still have a plan with it. The period is counted twice: by the journal's clock, and by this
   janitor's monotonic clock. The second count begins when this janitor sees the entry that made the segment dead. So
   no wrong wall clock makes a deletion early. Both snapshots for a rebuild must be newer than that entry. Otherwise a
   rebuilt journal points to a deleted object.
 - Orphan: no entry has the segment at this level, and it is too old to be committed. The journal rejects commits of
   segments a quarter as old, by its own clock, which never goes back. A rebuilt journal may lack segments. For a day
   after a rebuild no orphan is deleted. In that time an operator can act on the report of the rebuild.
 - Object of a cleanup: it was written while the cluster was deleted, and left by a crash. It has no use.

All other objects stay: the sequencers delete the journal's own objects, and unknown keys do not belong to Penstock.
"""

import enum

import msgspec

from penstock.contracts.ids import SegmentId, segment_born_ms
from penstock.contracts.queries.janitor import KnownSegment
from penstock_janitor.rules.journal import NEVER

MINUTE_MS = 60_000
SEGMENT_COMMIT_AGE_MAX_MS = 15 * MINUTE_MS  # as in the state machine, which commits nothing older
ORPHAN_AGE_MIN_MS = 4 * SEGMENT_COMMIT_AGE_MAX_MS
REBUILT_REST_MS = 24 * 60 * MINUTE_MS  # time after a rebuild in which no orphan is deleted


class ObjectState(enum.StrEnum):
    """The states of an object. The values are metric labels, and `explain` prints them."""

    LIVE = "live"
    WAITING = "waiting"  # dead, but not for long enough
    DEAD_SEGMENT = "condemned"
    YOUNG = "young"  # no entry has it yet
    REMEMBERED = "remembered"  # removed, but a repeated commit of it would still be answered
    SPARED = "spared"  # a journal that was rebuilt lately does not have it
    ORPHAN = "orphan"
    UNFINISHED = "unfinished"  # an upload that will never be completed
    KEPT = "kept"  # an object of the journal
    UNKNOWN = "unknown"  # not an object of Penstock
    ABSENT = "absent"


DELETABLE = (ObjectState.DEAD_SEGMENT, ObjectState.ORPHAN, ObjectState.UNFINISHED)


class Classification(msgspec.Struct, frozen=True):
    """The state of an object, and one sentence with the reason."""

    state: ObjectState
    reason: str

    @property
    def is_deletable(self) -> bool:
        """Whether the object may be deleted now."""
        return self.state in DELETABLE


class Rules(msgspec.Struct, frozen=True):
    """The times for which objects stay."""

    grace_ms: int
    orphan_age_ms: int = ORPHAN_AGE_MIN_MS


class Now(msgspec.Struct, frozen=True):
    """The facts about time and the journal at the moment of a classification."""

    clock_ms: int  # the journal's
    own_ms: int  # this machine's
    # Every journal rebuilt from the store includes the entries up to this one.
    secured_sequence: int = NEVER
    # The journal had the entries up to this one a grace period ago, by the monotonic clock.
    watched_sequence: int = NEVER
    rebuilt_ms: int = NEVER  # when the journal was rebuilt from the store

    def age_ms(self, begun_ms: int) -> int:
        """The age by the clock that makes it younger."""
        return min(self.clock_ms, self.own_ms) - begun_ms


def classify_segment(
    level: int, segment_id: SegmentId, known: KnownSegment | None, now: Now, rules: Rules
) -> Classification:
    """Classify the object of a segment, by the level in its key and by the journal's view of the segment."""
    if known is None:
        return classify_unknown(segment_id, "the journal does not have it", now, rules)
    if known.view is None:
        reason = "the journal removed it a moment ago, and still answers a repeated commit of it"
        return Classification(ObjectState.REMEMBERED, reason)
    if known.view.level != level:
        fact = f"the journal has this segment at level {known.view.level}, not {level}"
        return classify_unknown(segment_id, fact, now, rules)
    if known.view.dead_since_ms < 0:
        reason = f"{known.view.live_extents} extents point to {known.view.live_bytes} bytes of it"
        return Classification(ObjectState.LIVE, reason)
    return classify_dead(known.view.dead_since_ms, known.dead_sequence, now, rules)


def classify_dead(dead_since_ms: int, dead_sequence: int, now: Now, rules: Rules) -> Classification:
    """Classify a segment without extents: whether it has been dead for long enough."""
    dead = f"no extent points to it since entry {dead_sequence}, {age_text(now.clock_ms - dead_since_ms)} ago"
    grace = age_text(rules.grace_ms)
    if now.clock_ms - dead_since_ms < rules.grace_ms:
        return Classification(ObjectState.WAITING, f"{dead}; readers may use it for {grace}")
    if dead_sequence > now.watched_sequence:
        reason = f"{dead}; by its monotonic clock, this janitor has known that entry for less than {grace}"
        return Classification(ObjectState.WAITING, reason)
    if dead_sequence > now.secured_sequence:
        reason = f"{dead}; two snapshots must include that entry, and they end at {now.secured_sequence}"
        return Classification(ObjectState.WAITING, reason)
    return Classification(ObjectState.DEAD_SEGMENT, dead)


def classify_unknown(segment_id: SegmentId, fact: str, now: Now, rules: Rules) -> Classification:
    """Classify a segment that the journal does not have at this level, for the reason `fact`. It may be too young."""
    age_ms = now.age_ms(segment_born_ms(segment_id))
    if age_ms < rules.orphan_age_ms:
        reason = f"{fact}, and it is {age_text(age_ms)} old: it stays until {age_text(rules.orphan_age_ms)}"
        return Classification(ObjectState.YOUNG, reason)
    if now.rebuilt_ms != NEVER and now.age_ms(now.rebuilt_ms) < REBUILT_REST_MS:
        rebuilt = f"the journal was rebuilt {age_text(now.age_ms(now.rebuilt_ms))} ago"
        reason = f"{fact}; {rebuilt}: no orphan is deleted until {age_text(REBUILT_REST_MS)}"
        return Classification(ObjectState.SPARED, reason)
    reason = f"{fact}, and it is {age_text(age_ms)} old: too old to be committed"
    return Classification(ObjectState.ORPHAN, reason)


def classify_unfinished(begun_ms: int, now: Now, rules: Rules) -> Classification:
    """Classify an upload that began at `begun_ms` by the store's clock: whether it can still become an object."""
    age_ms = now.age_ms(begun_ms)
    upload = f"an upload that began {age_text(age_ms)} ago"
    if age_ms < rules.orphan_age_ms:
        return Classification(ObjectState.YOUNG, f"{upload}: it stays until {age_text(rules.orphan_age_ms)}")
    return Classification(ObjectState.UNFINISHED, f"{upload} and is not complete")


def classify_cleanup(written_ms: int, now: Now, rules: Rules) -> Classification:
    """Classify an object that a cleanup wrote at `written_ms` by the store's clock, before the cluster came back."""
    age_ms = now.age_ms(written_ms)
    written = f"a cleanup wrote it {age_text(age_ms)} ago to learn the time of the store"
    if age_ms < rules.orphan_age_ms:
        return Classification(ObjectState.YOUNG, f"{written}: it stays until {age_text(rules.orphan_age_ms)}")
    return Classification(ObjectState.ORPHAN, f"{written}, and did not delete it")


def may_be_orphan(segment_id: SegmentId, now: Now, rules: Rules) -> bool:
    """Whether the segment is old enough to be an orphan."""
    return now.age_ms(segment_born_ms(segment_id)) >= rules.orphan_age_ms


def age_text(age_ms: int) -> str:
    """A duration as text for an operator."""
    return f"{age_ms // MINUTE_MS} min" if abs(age_ms) >= 2 * MINUTE_MS else f"{age_ms / 1000:g} s"
