"""The limits and waiting times of the writer of dead letters, each with its reason."""

import msgspec

MIB = 1024 * 1024


class DeadLetterLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a gateway writes dead letters, and when it writes those of another gateway's groups."""

    pause_s: float = 0.1  # between two rounds: records that die meanwhile share a batch
    groups_at_once_max: int = 4  # a group whose records cannot be read must not stop the others
    views_per_round_max: int = 20  # of one group; then its other gateways, topics and configurations count again
    # The gateway that is chosen for a group has this time for any progress. Each later choice waits once longer.
    take_over_s: float = 15.0
    read_bytes_max: int = 4 * MIB  # at once, of one partition; a whole batch is read in any case
    gap_max: int = 1_000  # offsets between two dead records that are read at once
    # Of one batch that is decoded for a copy: a crafted batch has millions, and each takes some hundred bytes. A record
    # of a larger batch has no copy.
    decoded_records_max: int = 100_000
    decoded_headers_max: int = 500_000  # of all records of the batch
    # Of one batch that is decompressed for a copy. No topic accepts a larger record without a codec.
    decompressed_bytes_max: int = 64 * MIB
    # Reads that find nothing at a record's offset, before it counts as gone. Its segment may be replaced meanwhile.
    empty_reads_max: int = 3
    write_timeout_s: float = 10.0
    command_deadline_s: float = 5.0
