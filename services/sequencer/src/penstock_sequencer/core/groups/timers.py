"""Timers of groups: deadlines, the uptime clock by which offsets expire, and the removal of idle groups.

The uptime clock `State.lived_ms` runs with the machine's clock, but counts `leap_max_ms` at most between two entries.
So a wall clock that leaps lets no offset expire.
"""

from heapq import heapify, heappop, heappush

from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL, SHARES_LEVEL
from penstock_sequencer.core.state.cluster import EMPTY, Group, State
from penstock_sequencer.core.state.group_sizes import remove_topology
from penstock_sequencer.core.state.shares import count_group

_STALE_ALARMS_MAX = 64  # the heap is rebuilt when it has this many rows more than twice the deadlines


def set_deadline(state: State, group_id: str, deadline_ms: int) -> None:
    """Set the group's earliest deadline; 0 for none."""
    if not deadline_ms:
        state.deadlines.pop(group_id, None)
    elif state.deadlines.get(group_id) != deadline_ms:
        state.deadlines[group_id] = deadline_ms
        heappush(state.alarms, (deadline_ms, group_id))
        _shrink(state)


def next_deadline_ms(state: State) -> int | None:
    """The time of the Tick that a group needs next; None if there is no deadline. Removes stale alarms."""
    alarms = state.alarms
    while alarms and state.deadlines.get(alarms[0][1]) != alarms[0][0]:
        heappop(alarms)
    return alarms[0][0] if alarms else None


def _shrink(state: State) -> None:
    if len(state.alarms) > 2 * len(state.deadlines) + _STALE_ALARMS_MAX:
        state.alarms = [(deadline_ms, group_id) for group_id, deadline_ms in state.deadlines.items()]
        heapify(state.alarms)


def is_idle(group: Group) -> bool:
    """Whether the group holds nothing and can be removed."""
    return group.state == EMPTY and not group.offsets and not group.pending


def record_idle(state: State, group: Group) -> None:
    """Schedule a check of an idle group after `group_idle_ms`."""
    if is_idle(group):
        state.idle_groups.pop(group.group_id, None)
        state.idle_groups[group.group_id] = state.clock_ms + state.limits.groups.group_idle_ms


def remove_idle_groups(state: State) -> None:
    """Remove groups that are due for a check and still idle."""
    idle = state.idle_groups
    due = []
    for group_id, look_ms in idle.items():
        if look_ms > state.clock_ms:
            break
        due.append(group_id)
    for group_id in due:
        del idle[group_id]
        group = state.groups[group_id]
        if is_idle(group) and not _is_promised(state, group_id):
            remove_topology(state, group)
            count_group(state, group.owner, -1)
            del state.groups[group_id]


def _is_promised(state: State, group_id: str) -> bool:
    """Whether a transaction may still commit offsets of the group; at its end the group is checked again."""
    return state.level >= SHARES_LEVEL and group_id in state.transactions_by_group


def pass_time(state: State, passed_ms: int) -> None:
    """Advance the uptime clock by `passed_ms`, the time since the last entry, or by less (see above)."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        state.lived_ms += min(passed_ms, state.limits.offsets.leap_max_ms)


def record_emptied(state: State, group: Group) -> None:
    """Record when the last member left the group."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        group.emptied_ms = state.lived_ms
