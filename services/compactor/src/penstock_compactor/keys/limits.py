"""The limits of key compaction that are not settings. They need no Arrow, unlike the modules that use them."""

import msgspec

MIB = 1024 * 1024
GROUP_BYTES = 4 * MIB  # of plain records that are looked at together


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """How many distinct keys a task may hold, and in how many bytes.

    Keys that are not grouped yet may take about as much again.
    """

    keys_max: int
    bytes_max: int
    group_bytes: int = GROUP_BYTES


class KeyJobLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one job on Spark."""

    # A key takes its bytes and twelve more; twice that while keys are grouped.
    held_by_a_task: Bounds = Bounds(keys_max=2_000_000, bytes_max=256 * MIB)
    # Before a shuffle: the more keys a task groups, the fewer go through the shuffle.
    held_before_shuffle: Bounds = Bounds(keys_max=500_000, bytes_max=64 * MIB)
    scan_bytes_max: int = 256 * MIB  # of one task that finds last records
    # Outputs are committed after each wave, because the sequencers reject an output after 15 minutes. A wave of this
    # size is done within that time at 5 MB/s.
    wave_bytes_max: int = 4 * 1024 * MIB


class KeyWorkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the search for logs to compact, and of its jobs."""

    logs_per_query: int = 2_000  # about 200 KB of answer
    leased_max: int = 20_000  # segments of one lease; a log in more segments is compacted all the same
    logs_looked_into_max: int = 100  # in one look; the next look begins with the other logs
    extents_held_max: int = 200_000  # a look ends with so many, about 60 MB
    # A job on Spark gets this time, and more for each byte, which is read twice and written once. Then it ends, so that
    # a hanging job gives its segments back.
    job_deadline_s: float = 900.0
    bytes_per_s_min: int = 2_000_000
    job: KeyJobLimits = KeyJobLimits()
