"""Decides from one replica's view of the lease whether it is ours, free or due for renewal. Pure: no clock, no I/O."""

import msgspec

from penstock.contracts.commands import TakeCustody
from penstock.contracts.levels import COMMAND_LEVELS
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import CUSTODY_LEASE_MS

RENEW_MS = CUSTODY_LEASE_MS // 2  # left of the lease when it is renewed; what the custodian records renews it, too
LEASE_S = CUSTODY_LEASE_MS / 1000
# A lease unchanged for this long is dead, also if the machine's clock stands still. Its holder counts from its request.
DEAD_AFTER_S = 1.5 * LEASE_S


class CustodyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica tries to become custodian, and when it stops without progress."""

    look_interval_s: float = 0.25
    release_deadline_s: float = 2.0  # of a drain; beyond it the others wait until the lease ends
    fruitless_s_max: float = 60.0  # without progress; then another replica tries
    back_off_s: float = 60.0  # after no progress; longer than others need to see that the lease is free
    take_jitter_s: float = 1.0  # random for each replica, so that mostly one asks for a lease that became free


CUSTODY_LIMITS = CustodyLimits()


class Lease:
    """The lease as the replica `author` sees it; times are monotonic seconds and the cluster's milliseconds."""

    def __init__(self, author: str) -> None:
        self._author = author
        self._renewed_s = -LEASE_S  # when the request was sent that renewed our lease last
        self._seen = ("", 0)  # the lease as last seen
        self._seen_since_s = 0.0  # since when it is unchanged

    def record_renewed(self, asked_s: float) -> None:
        """A request sent at this time renewed the lease."""
        self._renewed_s = max(self._renewed_s, asked_s)

    def is_held(self, state: State) -> bool:
        """Whether the lease is ours by the journal."""
        return state.custody.holder == self._author

    def is_ours(self, state: State, now_s: float, now_ms: int) -> bool:
        """Whether we are custodian, as far as is known; false after a stall that outlasted the lease.

        Our own clock counts, too: the machine's clock may be far ahead of all others, and stand still.
        """
        return self.is_held(state) and now_ms < state.custody.until_ms and now_s - self._renewed_s < LEASE_S

    def is_free(self, state: State, now_s: float) -> bool:
        """Whether the journal would give us the lease, as far as is known."""
        if state.level < COMMAND_LEVELS[TakeCustody]:
            return False
        if state.custody.holder in ("", self._author) or state.clock_ms >= state.custody.until_ms:
            return True
        return self.is_dead(state, now_s)

    def is_dead(self, state: State, now_s: float) -> bool:
        """Whether the lease has not changed for so long that its holder has given it up."""
        if self._seen != (state.custody.holder, state.custody.until_ms):
            self._seen, self._seen_since_s = (state.custody.holder, state.custody.until_ms), now_s
        return now_s - self._seen_since_s >= DEAD_AFTER_S

    def dead_until_ms(self, state: State, now_s: float) -> int:
        """The end of a dead lease, for the request that replaces it; -1 if it is not dead."""
        return self._seen[1] if self.is_dead(state, now_s) else -1

    def is_renewal_due(self, state: State, now_s: float, now_ms: int) -> bool:
        """Whether our lease is to be renewed now."""
        left_ms = state.custody.until_ms - now_ms
        return left_ms <= RENEW_MS or now_s - self._renewed_s >= LEASE_S - RENEW_MS / 1000
