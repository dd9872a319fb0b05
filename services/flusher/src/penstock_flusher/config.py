"""The flusher's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ServiceConfig

MIB = 1024 * 1024
PUTS_PER_SECOND_PAID = 8.0  # a bounded bill: at most $105 a month for quiet flushes at $5 per million PUTs
PUTS_PER_SECOND_FREE = 200.0  # a PUT costs its fsync only, but sequencers remember 15 minutes of 220 commits a second


class FlusherConfig(ServiceConfig, frozen=True, kw_only=True):
    """Settings of one flusher process."""

    flush_bytes_max: Annotated[int, Meta(ge=MIB, description="a segment closes at this many record bytes")] = 8 * MIB
    flush_batches_max: Annotated[int, Meta(ge=1, le=65_536, description="a segment closes at this many batches")] = (
        8_192
    )
    flush_interval_ms: Annotated[int, Meta(ge=5, description="a segment closes this long after its first byte")] = 250
    flush_quiet_ms: Annotated[int, Meta(ge=1, description="a segment closes when no byte came for this long")] = 3
    quiet_puts_per_second: Annotated[
        float, Meta(ge=0, description="quiet closes allowed per second; 0 chooses by a PUT's price and the interval")
    ] = 0.0
    quiet_under_way_max: Annotated[
        int, Meta(ge=0, description="no quiet close while more segments than this are not answered yet")
    ] = 0
    put_hedge_share: Annotated[
        float, Meta(ge=0, le=1, description="small segments that may be put twice because the store is slow, of all")
    ] = 0.05
    part_wait_ms: Annotated[int, Meta(ge=100, description="how long a request waits for its next part")] = 5_000
    flusher_bytes_max: Annotated[int, Meta(ge=128 * MIB, description="bytes held unanswered before refusing more")] = (
        256 * MIB
    )
    recent_bytes_max: Annotated[int, Meta(ge=0, description="bytes of newest segments kept in memory")] = 256 * MIB
    upload_parallel_max: Annotated[int, Meta(ge=1, le=256, description="segments uploaded at the same time")] = 8
    segment_commit_age_max_ms: Annotated[
        int, Meta(ge=1_000, description="a segment older than this is never committed; as in the sequencer")
    ] = 15 * 60 * 1000


def quiet_puts_per_second(config: FlusherConfig) -> float:
    """The rate of quiet closes that was set, or what suits the store and the bill that the flush interval allows."""
    if config.quiet_puts_per_second > 0:
        return config.quiet_puts_per_second
    if _is_local(config):
        return PUTS_PER_SECOND_FREE
    return max(PUTS_PER_SECOND_PAID, 1000 / config.flush_interval_ms)


def put_hedge_share(config: FlusherConfig) -> float:
    """The share that was set; 0 for a store on this machine, which is as slow for the second as for the first."""
    return 0.0 if _is_local(config) else config.put_hedge_share


def _is_local(config: FlusherConfig) -> bool:
    return config.store_url.startswith(("file:", "memory:"))
