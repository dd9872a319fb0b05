"""Timers of groups: deadlines, the uptime clock by which offsets expire, and the removal of idle groups.

The uptime clock `State.lived_ms` runs with the machine's clock, but counts `leap_max_ms` at most between two entries.
So a wall clock that leaps lets no offset expire.
"""

from heapq import heapify, heappop, heappush

from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock_sequencer.core.state.cluster import EMPTY, Group, State

_STALE_ALARMS_MAX = 64  # beyond this, and more than the deadlines there are, the heap is built anew


def set_deadline(state: State, group_id: str, deadline_ms: int) -> None:
    """The group's earliest deadline is now this one; 0 for none."""
    if not deadline_ms:
        state.deadlines.pop(group_id, None)
    elif state.deadlines.get(group_id) != deadline_ms:
        state.deadlines[group_id] = deadline_ms
        heappush(state.alarms, (deadline_ms, group_id))
        _shrink(state)


def next_deadline_ms(state: State) -> int | None:
    """When a Tick is needed for a group; None if nobody waits for time to pass. Clears stale alarms on the way."""
    alarms = state.alarms
    while alarms and state.deadlines.get(alarms[0][1]) != alarms[0][0]:
        heappop(alarms)
    return alarms[0][0] if alarms else None


def _shrink(state: State) -> None:
    if len(state.alarms) > 2 * len(state.deadlines) + _STALE_ALARMS_MAX:
        state.alarms = [(deadline_ms, group_id) for group_id, deadline_ms in state.deadlines.items()]
        heapify(state.alarms)


def is_idle(group: Group) -> bool:
    """Whether nothing would be lost with the group."""
    return group.state == EMPTY and not group.offsets and not group.pending


def record_idle(state: State, group: Group) -> None:
    """If the group is idle, look at it again after `group_idle_ms`."""
    if is_idle(group):
        state.idle_groups.pop(group.group_id, None)
        state.idle_groups[group.group_id] = state.clock_ms + state.limits.groups.group_idle_ms


def remove_idle_groups(state: State) -> None:
    """Forget groups that are still idle since they were noted."""
    idle = state.idle_groups
    due = []
    for group_id, look_ms in idle.items():
        if look_ms > state.clock_ms:
            break
        due.append(group_id)
    for group_id in due:
        del idle[group_id]
        if is_idle(state.groups[group_id]):
            del state.groups[group_id]


def pass_time(state: State, passed_ms: int) -> None:
    """Let the uptime clock go on with the machine's clock, by `passed_ms` since the last entry."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        state.lived_ms += min(passed_ms, state.limits.offsets.leap_max_ms)


def record_emptied(state: State, group: Group) -> None:
    """Record when the group's last member went."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        group.emptied_ms = state.lived_ms
