"""The limits of key compaction that are not settings. They need no Arrow, unlike the modules that use them."""

import msgspec

MIB = 1024 * 1024
GROUP_BYTES = 4 * MIB  # of plain records that are parsed together


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """The limits of the distinct keys in a task: their number and their bytes.

    Keys that are not yet grouped may use about as many bytes again.
    """

    keys_max: int
    bytes_max: int
    group_bytes: int = GROUP_BYTES


class KeyJobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one job on Spark."""

    # A key uses its bytes and twelve more, and twice that while keys are grouped.
    held_by_a_task: Bounds = Bounds(keys_max=2_000_000, bytes_max=256 * MIB)
    # Before a shuffle. A task that groups more keys sends fewer of them through the shuffle.
    held_before_shuffle: Bounds = Bounds(keys_max=500_000, bytes_max=64 * MIB)
    scan_bytes_max: int = 256 * MIB  # of one task that finds last records
    # Outputs are committed after each wave, because the sequencers reject outputs older than 15 minutes. A wave of this
    # size ends within that time at 5 MB/s.
    wave_bytes_max: int = 4 * 1024 * MIB


class KeyWorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the search for logs to compact, and of its jobs."""

    logs_per_query: int = 2_000  # about 200 KB of answer
    leased_max: int = 20_000  # segments in one lease; a log in more segments is still compacted
    logs_inspected_max: int = 100  # in one search; the next search begins with the other logs
    extents_held_max: int = 200_000  # a search ends with so many, about 60 MB
    # A job on Spark gets this time, and more for each byte, which is read twice and written once. Then it is cancelled,
    # so that a hanging job releases its segments.
    job_deadline_s: float = 900.0
    bytes_per_s_min: int = 2_000_000
    job: KeyJobLimits = KeyJobLimits()
