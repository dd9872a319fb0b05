"""What may go and what has to stay, and why: pure, and the one place that decides it.

A segment goes only if the journal calls it dead, and for long enough:

 - condemned: no extent points to it, and none ever will again. It stays for a grace, since readers may still know of
   it. That time is counted twice, by the journal's clock and by this janitor's own watch: the entry that condemned it
   has to be one that this janitor knew to be in the journal a grace ago. So no wall clock that is wrong, whosesoever,
   makes it go early. And both snapshots that a journal may be made anew from have to be of after that entry, so that
   none that is points to what is gone.
 - orphan: no entry knows it, or only at another level, and it is so old that none ever can. The journal refuses to
   commit what is a quarter as old by its own clock, which never goes back. A journal that was made anew from the store
   may not know what it should: for a day after that somebody may look at what the rebuild has reported.

Everything else stays: the journal's own objects are its sequencers' to delete, and what we do not understand is not
ours.
"""

import enum

import msgspec

from penstock.contracts.ids import SegmentId, segment_born_ms
from penstock.contracts.queries.janitor import KnownSegment

MINUTE_MS = 60_000
SEGMENT_COMMIT_AGE_MAX_MS = 15 * MINUTE_MS  # as in the state machine, which commits nothing older
ORPHAN_AGE_MIN_MS = 4 * SEGMENT_COMMIT_AGE_MAX_MS
REBUILT_REST_MS = 24 * 60 * MINUTE_MS  # no orphan goes that is from before a rebuild which is not so long ago
NEVER = -1  # as a sequence or a time: before all that may go


class Verdict(enum.StrEnum):
    """What becomes of an object."""

    LIVE = "live"
    WAITING = "waiting"  # condemned, but not for long enough
    DEAD_SEGMENT = "condemned"
    YOUNG = "young"  # nobody knows it yet
    REMEMBERED = "remembered"  # forgotten, but its commit would still be answered
    SPARED = "spared"  # a journal that was just made anew does not know it
    ORPHAN = "orphan"
    UNFINISHED = "unfinished"  # an upload that nobody will complete
    KEPT = "kept"  # the journal's own
    UNKNOWN = "unknown"  # nothing of Penstock's
    ABSENT = "absent"


GOING = (Verdict.DEAD_SEGMENT, Verdict.ORPHAN, Verdict.UNFINISHED)


class Judgement(msgspec.Struct, frozen=True):
    """What becomes of an object, and one sentence why."""

    verdict: Verdict
    reason: str

    @property
    def goes(self) -> bool:
        """Whether it may be deleted now."""
        return self.verdict in GOING


class Rules(msgspec.Struct, frozen=True):
    """How long things stay."""

    grace_ms: int
    orphan_age_ms: int = ORPHAN_AGE_MIN_MS


class Now(msgspec.Struct, frozen=True):
    """What is known at the moment of judging."""

    clock_ms: int  # the journal's
    own_ms: int  # this machine's
    secured_sequence: int = NEVER  # all entries up to it count in any journal that is made anew from the store
    watched_sequence: int = NEVER  # all entries up to it were in the journal a grace ago, by our own watch
    rebuilt_ms: int = NEVER  # when the journal was made anew from the store


def judge_segment(level: int, segment_id: SegmentId, known: KnownSegment | None, now: Now, rules: Rules) -> Judgement:
    """What becomes of the object of a segment, whose key says `level`, by what the journal knows of it."""
    if known is None:
        return judge_unknown(segment_id, "no entry of the journal knows it", now, rules)
    if known.view is None:
        return Judgement(Verdict.REMEMBERED, "the journal forgot it a moment ago, and knows of its commit still")
    if known.view.level != level:
        what = f"the journal knows this segment at level {known.view.level}, not {level}"
        return judge_unknown(segment_id, what, now, rules)
    if known.view.dead_since_ms < 0:
        return Judgement(Verdict.LIVE, f"{known.view.live_extents} extents in {known.view.live_bytes} bytes of it")
    return judge_dead(known.view.dead_since_ms, known.dead_sequence, now, rules)


def judge_dead(dead_since_ms: int, dead_sequence: int, now: Now, rules: Rules) -> Judgement:
    """Whether a segment without extents has been so for long enough."""
    dead = f"no extent points to it since entry {dead_sequence}, {age(now.clock_ms - dead_since_ms)} ago"
    if now.clock_ms - dead_since_ms < rules.grace_ms:
        return Judgement(Verdict.WAITING, f"{dead}; readers may know of it for {age(rules.grace_ms)}")
    if dead_sequence > now.watched_sequence:
        return Judgement(
            Verdict.WAITING, f"{dead}; this janitor has not known that for {age(rules.grace_ms)} by its own watch"
        )
    if dead_sequence > now.secured_sequence:
        return Judgement(
            Verdict.WAITING,
            f"{dead}; two snapshots of after that are wanted, and they end at {now.secured_sequence}",
        )
    return Judgement(Verdict.DEAD_SEGMENT, dead)


def judge_unknown(segment_id: SegmentId, what: str, now: Now, rules: Rules) -> Judgement:
    """Whether an object that the journal does not know as it is can still come to be known."""
    age_ms = _age_ms(segment_born_ms(segment_id), now)
    if age_ms < rules.orphan_age_ms:
        return Judgement(
            Verdict.YOUNG, f"{what}, and it is {age(age_ms)} old: until {age(rules.orphan_age_ms)} it stays"
        )
    if now.rebuilt_ms != NEVER and _age_ms(now.rebuilt_ms, now) < REBUILT_REST_MS:
        since = f"the journal was made anew {age(_age_ms(now.rebuilt_ms, now))} ago"
        return Judgement(Verdict.SPARED, f"{what}; {since}: until {age(REBUILT_REST_MS)} nothing goes as an orphan")
    return Judgement(Verdict.ORPHAN, f"{what}, and it is {age(age_ms)} old: too old ever to be committed")


def judge_unfinished(begun_ms: int, now: Now, rules: Rules) -> Judgement:
    """Whether an upload that was begun, by the store's clock then, can still become an object."""
    age_ms = _age_ms(begun_ms, now)
    if age_ms < rules.orphan_age_ms:
        return Judgement(
            Verdict.YOUNG, f"an upload, begun {age(age_ms)} ago: until {age(rules.orphan_age_ms)} it stays"
        )
    return Judgement(Verdict.UNFINISHED, f"an upload, begun {age(age_ms)} ago and never completed")


def may_be_orphan(segment_id: SegmentId, now: Now, rules: Rules) -> bool:
    """Whether it is old enough to ask the journal."""
    return _age_ms(segment_born_ms(segment_id), now) >= rules.orphan_age_ms


def age(age_ms: int) -> str:
    """A time in words."""
    return f"{age_ms // MINUTE_MS} min" if abs(age_ms) >= 2 * MINUTE_MS else f"{age_ms / 1000:g} s"


def _age_ms(begun_ms: int, now: Now) -> int:
    """By the clock that makes it younger."""
    return min(now.clock_ms, now.own_ms) - begun_ms
