"""Members that left consumer groups lately; with them, late commands of such members are rejected."""

from penstock_sequencer.core.state.cluster import State


def record_departed(state: State, group_id: str, member_id: str) -> None:
    """Record that the member has left the group."""
    record_joined(state, group_id, member_id)
    state.departed[group_id, member_id] = (state.sequence, state.clock_ms)
    if len(state.departed) > state.limits.consumers.departed_members_max:
        del state.departed[next(iter(state.departed))]


def record_joined(state: State, group_id: str, member_id: str) -> None:
    """Record that the member is in the group."""
    state.departed.pop((group_id, member_id), None)


def departed_sequence(state: State, group_id: str, member_id: str) -> int:
    """The sequence of the entry by which the member left; 0 if it did not leave lately."""
    return state.departed.get((group_id, member_id), (0, 0))[0]


def expire_departed(state: State) -> None:
    """Remove old rows: no command that was sent before these members left can still arrive."""
    old = []
    for key, (_, left_ms) in state.departed.items():
        if left_ms > state.clock_ms - state.limits.consumers.departed_memory_ms:
            break
        old.append(key)
    for key in old:
        del state.departed[key]
