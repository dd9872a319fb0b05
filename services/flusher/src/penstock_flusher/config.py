"""The flusher's settings."""

from typing import Annotated

from msgspec import Meta

from penstock.runtime.process.config import ADVANCED, PoolConfig
from penstock.runtime.traces.opening import TracesRatio

MIB = 1024 * 1024
PUTS_PER_SECOND_PAID = 8.0  # limits the cost: at most $105 a month for quiet flushes at $5 per million PUTs
# A PUT to a local disk costs only its fsync. But sequencers remember 200,000 commits for 3 minutes: 1,100 a second.
PUTS_PER_SECOND_FREE = 200.0
EXPRESS_BYTES_MAX = MIB  # of a segment of the express lane


class FlusherConfig(PoolConfig, frozen=True, kw_only=True):
    """Settings of one flusher process."""

    flush_bytes_max: Annotated[
        int, Meta(ge=MIB, description="a segment closes at this many record bytes", extra=ADVANCED)
    ] = 8 * MIB
    flush_batches_max: Annotated[
        int, Meta(ge=1, le=65_536, description="a segment closes at this many batches", extra=ADVANCED)
    ] = 8_192
    flush_interval_ms: Annotated[
        int, Meta(ge=5, description="a segment closes at the latest this long after its first byte")
    ] = 250
    express_interval_ms: Annotated[
        int,
        Meta(ge=1, description="the same for the express lane, which needs a landing store", extra=ADVANCED),
    ] = 5
    express_bytes_per_second_max: Annotated[
        int,
        Meta(
            ge=1,
            description="bytes per second that go to the landing store; segments above that go to the final store",
            extra=ADVANCED,
        ),
    ] = 64 * MIB
    flush_quiet_ms: Annotated[
        int, Meta(ge=1, description="a quiet flush needs this long without a new byte", extra=ADVANCED)
    ] = 3
    quiet_puts_per_second: Annotated[
        float,
        Meta(ge=0, description="quiet flushes per second at most; 0: chosen from the price of a PUT and the interval"),
    ] = 0.0
    quiet_under_way_max: Annotated[
        int,
        Meta(ge=0, description="no quiet flush while more segments than this are not yet answered", extra=ADVANCED),
    ] = 0
    put_hedge_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of small segments that may be put twice because the store is slow",
            extra=ADVANCED,
        ),
    ] = 0.05
    part_wait_ms: Annotated[
        int, Meta(ge=100, description="time that a request in several messages waits for its next part", extra=ADVANCED)
    ] = 5_000
    flusher_bytes_max: Annotated[
        int, Meta(ge=128 * MIB, description="bytes held unanswered; above it the flusher rejects requests")
    ] = 256 * MIB
    recent_bytes_max: Annotated[int, Meta(ge=0, description="bytes of the newest segments kept in memory")] = 256 * MIB
    upload_parallel_max: Annotated[
        int, Meta(ge=1, le=256, description="segments uploaded at the same time", extra=ADVANCED)
    ] = 8
    segment_commit_age_max_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            description="an older segment is never committed; the sequencers have the same limit",
            extra=ADVANCED,
        ),
    ] = 15 * 60 * 1000
    traces_ratio: TracesRatio = 0.0


def quiet_puts_per_second(config: FlusherConfig) -> float:
    """The configured rate of quiet flushes, else a rate for the price of a PUT and the flush interval."""
    if config.quiet_puts_per_second > 0:
        return config.quiet_puts_per_second
    if _is_local(config):
        return PUTS_PER_SECOND_FREE
    return max(PUTS_PER_SECOND_PAID, 1000 / config.flush_interval_ms)


def put_hedge_share(config: FlusherConfig) -> float:
    """The configured share of hedged puts; 0 for a local store, where a second put is not faster."""
    return 0.0 if _is_local(config) else config.put_hedge_share


def _is_local(config: FlusherConfig) -> bool:
    return config.store_url.startswith(("file:", "memory:"))
