"""The limits and waits of the read path, each with its reason."""

import msgspec

MIB = 1024 * 1024


class ThrottleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How fast catch-up reads may go while other clients tail."""

    tailed_s: float = 10.0  # after a tailing read more of them are expected for so long
    bytes_per_second_min: int = 4 * MIB
    bytes_per_second_per_age_s: int = 512 * MIB  # new data that is 200 ms old when it arrives: 100 MiB/s
    newest_share: float = 1 / 16  # the weight of the newest sample in the mean age
    written_s: float = 10.0  # the time over which the rate of new data is averaged
    written_factor: int = 2  # a reader that fell behind must be able to catch up with the writers


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and work of all reads of one gateway."""

    fetched_bytes_max: int = 128 * MIB  # held by all fetches from before they read until they are assembled
    # The part of it that catch-up reads may hold: 8 MiB. These bytes stand in all queues before those that tailing
    # reads wait for, which costs the first of them some 30 ms. After that the throttle decides.
    catch_up_fraction: int = 16
    memory_wait_s: float = 1.0  # for other clients to take their answers; then the answer has no records
    # Each round reads on in the partitions whose batch was not found yet. A segment of 8 MiB is searched in eight. A
    # longer search continues in the client's next fetch, from where this one ended.
    rounds_max: int = 16
    searches_max: int = 16  # timestamp searches side by side, each with `scan_bytes` in memory
    scan_bytes: int = MIB  # read at once while looking for the batch that holds an offset or a time
    # Of one batch that a timestamp search decodes. A batch may be made so that it expands to any size. A search answers
    # a larger batch with its first record.
    searched_records_max: int = 100_000
    searched_bytes_max: int = 64 * MIB  # decompressed
    # Extents of compacted segments above this length are searched by their offset index; shorter ones are read as a
    # whole, in one read.
    indexed_bytes_min: int = MIB
    positions_max: int = 32_768  # places of readers: about 15 MB; one for each reader of a partition is enough
    # Offset indexes kept in memory. That of a segment of 1 GiB with 1,000 partitions takes half a MiB.
    indexes_bytes_max: int = 64 * MIB
    throttle: ThrottleLimits = ThrottleLimits()


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one Fetch request may ask for, and how long it waits."""

    fetch_bytes_max: int = 16 * MIB  # of one answer, whatever the client asks for; it asks again at once
    # Of one answer with catch-up data in it: tailing clients wait until such an answer is assembled, and not much
    # longer. Small answers cost more for each byte, because the batches at their ends are read again.
    catch_up_bytes_max: int = 4 * MIB
    throttled_bytes_max: int = MIB  # the same while catch-up reads are throttled
    # For a place in the queue of catch-up reads; then the answer has no records, and the client asks again.
    queue_timeout_s: float = 1.0
    tailing_queue_timeout_s: float = 0.1  # the same for a client that also tails: new data may arrive soon
    wait_ms_max: int = 300_000  # no client needs longer, and a mistaken client holds no connection for ever
    barrier_deadline_s: float = 5.0  # for the command that brings a replica up to what the client has seen
    # A share below a usual batch is often too small for even one batch. Fewer partitions then get one each.
    share_bytes_min: int = MIB
    located_s: float = 120.0  # extents found for a waiting fetch are looked up again after this time
