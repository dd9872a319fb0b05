"""The machine's own watch: how long it has lived, as far as its entries show that, whatever a clock that leaps says."""

from penstock.contracts.levels import OFFSET_EXPIRY_LEVEL
from penstock_sequencer.core.state.cluster import Group, State


def pass_time(state: State, passed_ms: int) -> None:
    """The machine's clock has gone on by this much since the last entry."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        state.lived_ms += min(passed_ms, state.limits.offsets.leap_max_ms)


def record_emptied(state: State, group: Group) -> None:
    """The group's last member is gone."""
    if state.level >= OFFSET_EXPIRY_LEVEL:
        group.emptied_ms = state.lived_ms
