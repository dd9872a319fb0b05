"""Decides from one replica's view of the lease whether it is ours, free or due for renewal. Pure: no clock, no I/O."""

import msgspec

from penstock.contracts.commands import TakeCustody
from penstock.contracts.levels import COMMAND_LEVELS
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS

RENEW_MS = CUSTODY_LEASE_MS // 2  # remaining time at which the custodian renews; its records renew the lease too
LEASE_S = CUSTODY_LEASE_MS / 1000
# A lease unchanged for this long is dead, even if the machine's clock stands still. Its holder counts from its request.
DEAD_AFTER_S = 1.5 * LEASE_S


class CustodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica tries to become custodian, and when it gives up without progress."""

    look_interval_s: float = 0.25
    release_deadline_s: float = 2.0  # of a drain; after it, other replicas wait until the lease ends
    fruitless_s_max: float = 60.0  # without progress; then another replica tries
    back_off_s: float = 60.0  # after no progress; longer than other replicas need to see that the lease is free
    take_jitter_s: float = 1.0  # random for each replica, so that mostly one replica asks for a free lease


CUSTODY_LIMITS = CustodyLimits()


class Lease:
    """The lease as the replica `author` sees it; times are monotonic seconds and the machine's milliseconds."""

    def __init__(self, author: str) -> None:
        self._author = author
        self._renewed_s = -LEASE_S  # send time of the request that last renewed the lease
        self._seen = ("", 0)  # the lease as last seen
        self._seen_since_s = 0.0  # when this replica first saw it so

    def record_renewed(self, asked_s: float) -> None:
        """Record that a request sent at this time renewed the lease."""
        self._renewed_s = max(self._renewed_s, asked_s)

    def is_held(self, state: State) -> bool:
        """Whether the lease is this replica's by the journal."""
        return state.custody.holder == self._author

    def is_ours(self, state: State, now_s: float, now_ms: int) -> bool:
        """Whether this replica is custodian, as far as it knows; false after a stall longer than the lease.

        The process's own clock counts too: the machine's clock may be far ahead of all others, and stand still.
        """
        return self.is_held(state) and now_ms < state.custody.until_ms and now_s - self._renewed_s < LEASE_S

    def is_free(self, state: State, now_s: float) -> bool:
        """Whether the journal would give this replica the lease, as far as it knows."""
        if state.level < COMMAND_LEVELS[TakeCustody]:
            return False
        if state.custody.holder in ("", self._author) or state.clock_ms >= state.custody.until_ms:
            return True
        return self.is_dead(state, now_s)

    def is_dead(self, state: State, now_s: float) -> bool:
        """Whether the lease is unchanged for so long that its holder has given it up."""
        if self._seen != (state.custody.holder, state.custody.until_ms):
            self._seen, self._seen_since_s = (state.custody.holder, state.custody.until_ms), now_s
        return now_s - self._seen_since_s >= DEAD_AFTER_S

    def dead_until_ms(self, state: State, now_s: float) -> int:
        """The end of a dead lease, for the request that replaces it; -1 if it is not dead."""
        return self._seen[1] if self.is_dead(state, now_s) else -1

    def is_renewal_due(self, state: State, now_s: float, now_ms: int) -> bool:
        """Whether to renew this replica's lease now."""
        left_ms = state.custody.until_ms - now_ms
        return left_ms <= RENEW_MS or now_s - self._renewed_s >= LEASE_S - RENEW_MS / 1000
