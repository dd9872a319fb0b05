"""The level of the cluster: the commands that all its replicas understand (contracts/levels.py)."""

from penstock.contracts.commands import Done, RaiseLevel, Rejected
from penstock.contracts.configs.topics import CLUSTER_NAMES, FOR_EVER, RETENTION_MS
from penstock.contracts.levels import JANITOR_LEVEL, NAME_REUSE_LEVEL, PRODUCERS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State


def raise_level(state: State, command: RaiseLevel, changes: Changes) -> Done | Rejected:
    """Raise the level, which never falls."""
    if command.level <= state.level:
        return Rejected(Rejection.INVALID_REQUEST, f"level {state.level} is reached already")
    if state.level < JANITOR_LEVEL <= command.level:
        state.segments.begin_queue(state.sequence)
        if not command.is_new:
            _keep_for_ever(state)
    if state.level < PRODUCERS_LEVEL <= command.level:
        state.uptime_lag_ms = state.clock_ms - state.lived_ms  # the producer clock goes on from here
    if state.level < NAME_REUSE_LEVEL <= command.level:
        state.segments.begin_name_reuse()
    state.level = command.level
    return Done()


def _keep_for_ever(state: State) -> None:
    """Keep records for ever in a cluster that has some: before retention existed, all records were kept.

    An administrator may set another default.
    """
    if state.extent_count:
        state.cluster_configs = {CLUSTER_NAMES[RETENTION_MS]: str(FOR_EVER), **state.cluster_configs}
        state.cluster_altered_sequence = state.sequence
