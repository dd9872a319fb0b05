"""One answer's bytes are divided fairly over the partitions that have data."""

from hypothesis import given, strategies as st

from penstock_gateway.fetch.partition_read import divide_bytes


@given(st.lists(st.integers(0, 100)), st.integers(0, 1000), st.integers(0, 50))
def test_no_partition_gets_more_than_wanted_and_all_together_no_more_than_the_total(
    wanted: list[int], total: int, least: int
) -> None:
    shares = divide_bytes(wanted, total, least)
    assert all(share <= size_bytes for share, size_bytes in zip(shares, wanted, strict=True))
    assert sum(shares) <= total
    assert sum(shares) == min(total, sum(wanted)), "bytes were left although a partition wanted them"


def test_small_wants_are_met_and_large_ones_share_the_rest_equally() -> None:
    assert divide_bytes([100, 5, 100], 65, 1) == [30, 5, 30]


def test_a_share_is_not_cut_below_the_least_size() -> None:
    assert divide_bytes([100, 100, 100], 60, 40) == [40, 20, 0]


def test_the_first_partition_gets_a_useful_share_even_if_others_want_little() -> None:
    assert divide_bytes([100, 30, 30, 30], 60, 40) == [40, 20, 0, 0]
