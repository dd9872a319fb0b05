"""What is not set is chosen by what PUTs cost, and by how many of them the flush interval means anyway."""

import pytest

from penstock_flusher.config import (
    PUTS_PER_SECOND_FREE,
    PUTS_PER_SECOND_PAID,
    FlusherConfig,
    put_hedge_share,
    quiet_puts_per_second,
)

PAID = "s3://bucket"


@pytest.mark.parametrize("store_url", ["file:///folder", "memory://name"])
def test_where_puts_cost_nothing_there_are_many_and_none_is_made_twice(store_url: str) -> None:
    config = FlusherConfig(store_url=store_url)
    assert quiet_puts_per_second(config) == PUTS_PER_SECOND_FREE
    assert put_hedge_share(config) == 0


def test_quiet_puts_that_are_paid_are_few_unless_the_interval_means_more() -> None:
    assert quiet_puts_per_second(FlusherConfig(store_url=PAID)) == PUTS_PER_SECOND_PAID
    assert quiet_puts_per_second(FlusherConfig(store_url=PAID, flush_interval_ms=50)) == 20


def test_what_is_set_counts() -> None:
    config = FlusherConfig(store_url=PAID, flush_interval_ms=50, quiet_puts_per_second=3.0, put_hedge_share=0.25)
    assert quiet_puts_per_second(config) == 3
    assert put_hedge_share(config) == 0.25
