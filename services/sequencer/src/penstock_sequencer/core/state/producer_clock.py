"""The clock of idempotent producers and transactional ids: it runs like the machine's clock, but does not leap.

From PRODUCERS_LEVEL on it is the uptime clock `State.lived_ms`, which counts a minute at most between two entries. It
begins at the machine's clock of that moment, so earlier times stay valid. Below that level it is the machine's clock.
It never passes faster than the machine's clock: a producer that is idle by this clock is idle
for as long by the other.
"""

from penstock.contracts.levels import PRODUCERS_LEVEL
from penstock_sequencer.core.state.cluster import State


def producer_ms(state: State) -> int:
    """The present time of this clock."""
    return state.lived_ms + state.uptime_lag_ms if state.level >= PRODUCERS_LEVEL else state.clock_ms
