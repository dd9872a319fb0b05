"""The limits and waits of the read path, each with its reason."""

import msgspec

MIB = 1024 * 1024


class ThrottleLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of catch-up reads while other clients tail."""

    tailed_s: float = 10.0  # after a tailing read, more of them are expected during this time
    bytes_per_second_min: int = 4 * MIB
    bytes_per_second_per_age_s: int = 512 * MIB  # if new data is 200 ms old on arrival: 100 MiB/s
    newest_share: float = 1 / 16  # the weight of the newest sample in the mean age
    written_s: float = 10.0  # the time over which the rate of new data is averaged
    written_factor: int = 2  # times that rate: a reader that fell behind must be able to catch up


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and work of all reads of one gateway."""

    fetched_bytes_max: int = 128 * MIB  # reserved by all fetches, from before the read until the answer is assembled
    # The part of it that catch-up reads may hold: 1/16 is 8 MiB. In all queues these bytes come before the bytes of
    # tailing reads. That delays the first tailing read by some 30 ms; after it the throttle decides.
    catch_up_fraction: int = 16
    memory_wait_s: float = 1.0  # until other clients take their answers; then the answer has no records
    # Each round reads on in the partitions whose batch was not found yet. Eight rounds search a segment of 8 MiB; the
    # rest is reserve. A longer search continues in the client's next fetch, where this one ended.
    rounds_max: int = 16
    searches_max: int = 16  # timestamp searches side by side, each with `scan_bytes` in memory
    scan_bytes: int = MIB  # read at once while looking for the batch that holds an offset or a time
    # Limits of one batch that a timestamp search decodes, because a crafted batch expands to any size. For a larger
    # batch the search answers with its first record.
    searched_records_max: int = 100_000
    searched_headers_max: int = 500_000  # of all records of the batch; some 90 bytes each in memory
    searched_bytes_max: int = 64 * MIB  # decompressed
    # Extents of compacted segments above this length are searched by their offset index. A shorter one is read whole,
    # in one read.
    indexed_bytes_min: int = MIB
    positions_max: int = 32_768  # positions of readers: about 15 MB; one for each reader of a partition is enough
    # Offset indexes kept in memory. The index of a segment of 1 GiB with 1,000 partitions takes half a MiB.
    indexes_bytes_max: int = 64 * MIB
    throttle: ThrottleLimits = ThrottleLimits()


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one Fetch request may ask for, and how long it waits."""

    fetch_bytes_max: int = 16 * MIB  # of one answer, even if the client asks for more; it asks again at once
    # Of one answer with catch-up data in it: tailing clients wait until such an answer is assembled, and not much
    # longer. Small answers cost more for each byte, because the batches at their ends are read again.
    catch_up_bytes_max: int = 4 * MIB
    throttled_bytes_max: int = MIB  # the same while catch-up reads are throttled
    # The wait in the queue of catch-up reads; after it the answer has no records, and the client asks again.
    queue_timeout_s: float = 1.0
    tailing_queue_timeout_s: float = 0.1  # the same for a client that also tails: new data may arrive soon
    wait_ms_max: int = 300_000  # no client needs longer, and a client with a wrong setting must not wait for ever
    # A request for thousands of partitions keeps others of its size waiting. Its client asks again at once.
    large_wait_ms_max: int = 500
    barrier_deadline_s: float = 5.0  # for the command after which a replica knows all that the client has seen
    # A share below a usual batch is often too small for even one batch. Fewer partitions then get one each.
    share_bytes_min: int = MIB
    located_s: float = 120.0  # extents found for a waiting fetch are looked up again after this time


class FetchSessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of fetch sessions. A partition takes some 300 bytes, and as much again while it is fetched."""

    session_partitions_max: int = 10_000  # a consumer of more gets no session, and names all partitions each time
    partitions_max: int = 100_000  # of all sessions of a gateway: then new consumers get no session
