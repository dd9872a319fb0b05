"""The journal's clock, for the births of a job's outputs.

The sequencers reject a segment that was born too long ago or in the future, by the journal's clock. The wall clock of a
compactor may be wrong. So a job takes the difference of the two clocks from the answer to its lease.
"""

import msgspec

from penstock.runtime.clock import Clock


class JournalClock(msgspec.Struct, frozen=True):
    """`Clock` of one job; Spark's workers get copies, and their wall clocks must agree with the compactor's."""

    clock: Clock
    ahead_ms: int  # of the wall clock before the journal's clock

    def now_ms(self) -> int:
        """The time of the journal's clock."""
        return self.clock.now_ms() - self.ahead_ms

    def monotonic_s(self) -> float:
        """The time of the monotonic clock."""
        return self.clock.monotonic_s()


def journal_clock(clock: Clock, seen_clock_ms: int, clock_seen_s: float) -> JournalClock:
    """The clock that showed `seen_clock_ms` at the monotonic time `clock_seen_s`; the wall clock if none was seen."""
    if not seen_clock_ms:
        return JournalClock(clock, 0)
    passed_ms = int((clock.monotonic_s() - clock_seen_s) * 1000)
    return JournalClock(clock, clock.now_ms() - seen_clock_ms - passed_ms)
