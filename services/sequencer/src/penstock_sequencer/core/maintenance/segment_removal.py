"""Forgetting segments whose objects are deleted: the last thing that becomes of one.

There is no rule of age here. Whoever deletes objects waits long enough, and a commit that is sent once more is answered
from `State.commits` for as long as it could come at all.
"""

from penstock.contracts.commands import SEGMENTS_REMOVED_MAX, PerItem, Rejected, RemoveSegments
from penstock.contracts.levels import JANITOR_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.state.segments import NO_SLOT


def remove_segments(state: State, command: RemoveSegments, changes: Changes) -> PerItem | Rejected:
    """Each condemned segment goes; one that is not known any more is gone, one that lives is refused."""
    if state.level < JANITOR_LEVEL:
        return Rejected(Rejection.INVALID_REQUEST, f"segments are forgotten from level {JANITOR_LEVEL} on")
    if len(command.segment_ids) > SEGMENTS_REMOVED_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"{len(command.segment_ids)} segments are too many")
    table = state.segments
    slots = [table.find(segment_id) for segment_id in command.segment_ids]
    is_live = [slot != NO_SLOT and table.live_extents[slot] > 0 for slot in slots]
    removed = {slot: None for slot, lives in zip(slots, is_live, strict=True) if slot != NO_SLOT and not lives}
    table.remove(list(removed))
    return PerItem([Rejection.INVALID_REQUEST if lives else Rejection.NONE for lives in is_live])
