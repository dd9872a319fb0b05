"""The limits and waits of reading segments, each with its reason."""

import msgspec

from penstock.contracts.chunks import CHUNK_BYTES, SPILL_BYTES_MAX

MIB = 1024 * 1024


class HedgingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a second cacher is asked for the same, and how many GETs that may cost."""

    samples: int = 256  # of answer times, the newest ones
    samples_min: int = 16  # with fewer there is no estimate
    computed_every: int = 32  # answers, because sorting the samples costs time
    quantile: float = 0.95
    timeout_factor: float = 3  # an answer that takes this many times longer than nearly all others is hedged
    timeout_s_min: float = 0.02
    timeout_s_max: float = 0.5
    # The budget of GETs for hedges. A few hedges identify a slow owner; if all owners are slow, hedges do not help. All
    # together cost no more than reads in the writer's zone may cost: 5 GETs for the first GiB, 2 for each further GiB.
    hedges_per_byte: float = 2 / 2**30
    hedges_max: float = 3.0  # that may be used at once
    owners_max: int = 1_000  # whose answers and losses are kept
    losses_max: int = 3  # in a row: then the owner counts as slow
    slow_avoided_s: float = 5.0  # doubled with each further loss
    slow_avoided_s_max: float = 60.0


class SegmentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Memory, requests and waits of one gateway's segment reader."""

    window_bytes: int = 32 * MIB  # of answers in flight; the bus cuts off a client that leaves 64 MB unread
    store_reads_max: int = 16  # at once
    cold_store_reads_max: int = 8  # at once, of old data: they wait for each other, and not for reads of new data
    owners_asked_max: int = 2  # the owner and the next in the ring; then the store, which always has the segment
    cacher_timeout_s: float = 2.0  # a cacher may have to load from the store first
    alone_timeout_factor: float = 2  # if the only substitute is the store, because that always costs a GET
    gone_avoided_s: float = 1.0  # no process listens there: the directory removes it within three seconds
    busy_s: float = 2.0  # a cacher that answered any request in this time is busy and not stuck
    silent_avoided_s: float = 5.0  # a process listens and does not answer: each further try would cost a time-out
    full_read_bytes_max: int = 2 * CHUNK_BYTES + SPILL_BYTES_MAX  # a full segment, as flushers write it
    full_reads_kept_bytes_max: int = 32 * MIB
    hedging: HedgingLimits = HedgingLimits()
