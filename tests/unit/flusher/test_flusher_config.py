"""The defaults of PUT rates depend on the price of a PUT and on the flush interval."""

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
def test_on_a_local_store_there_are_many_quiet_puts_and_no_hedges(store_url: str) -> None:
    config = FlusherConfig(store_url=store_url)
    assert quiet_puts_per_second(config) == PUTS_PER_SECOND_FREE
    assert put_hedge_share(config) == 0


def test_paid_quiet_puts_are_few_unless_the_interval_causes_more() -> None:
    assert quiet_puts_per_second(FlusherConfig(store_url=PAID)) == PUTS_PER_SECOND_PAID
    assert quiet_puts_per_second(FlusherConfig(store_url=PAID, flush_interval_ms=50)) == 20


def test_explicit_settings_have_priority() -> None:
    config = FlusherConfig(store_url=PAID, flush_interval_ms=50, quiet_puts_per_second=3.0, put_hedge_share=0.25)
    assert quiet_puts_per_second(config) == 3
    assert put_hedge_share(config) == 0.25
