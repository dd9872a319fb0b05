"""A limit that clusters share: no cluster keeps another one from its part, and all together stay within the limit."""

from hypothesis import given, strategies as st

from penstock_gateway.kafka.response_memory import ResponseMemory
from penstock_gateway.kafka.shared_limit import ProcessLimits, SharedLimit
from penstock_gateway.server.receive_budget import ReceiveBudget


@given(st.integers(1, 1000), st.integers(1, 4))
def test_one_cluster_alone_has_the_whole_limit(limit: int, scale: int) -> None:
    share = SharedLimit(limit * scale).join()
    share.used = limit - 1
    assert not share.is_spent(scale)
    share.used = limit
    assert share.is_spent(scale)


@given(st.integers(10, 1000), st.lists(st.integers(0, 9), min_size=1, max_size=2000), st.integers(2, 10))
def test_clusters_that_stop_when_spent_stay_within_the_limit_and_none_is_starved(
    limit: int, takers: list[int], count: int
) -> None:
    shared = SharedLimit(limit)
    shares = [shared.join() for _ in range(count)]
    for taker in takers:
        share = shares[taker % count]
        if not share.is_spent():
            share.used += 1
    assert shared.used <= limit + count
    greedy, *others = shares
    while not greedy.is_spent():
        greedy.used += 1
    assert all(not each.is_spent() for each in others if each.used < limit / 2 / count)


def test_a_cluster_that_is_gone_leaves_its_part_to_the_others() -> None:
    limits = ProcessLimits(connections=8, held_bytes=8, unsent_bytes=8)
    first, second = limits.join(), limits.join()
    first.connections.used = 6
    assert first.connections.is_spent()
    second.leave()
    assert not first.connections.is_spent()


class Waiting:
    """A reader that counts its calls."""

    partial_bytes = 0
    partial_frame = (0, 0)

    def __init__(self) -> None:
        self.calls = 0

    def on_room(self) -> None:
        self.calls += 1


def test_readers_go_on_when_another_cluster_has_freed_enough() -> None:
    limits = ProcessLimits(connections=1, held_bytes=100, unsent_bytes=100)
    noisy, other = (ReceiveBudget(100, limits.join().held_bytes) for _ in range(2))
    reader = Waiting()
    noisy.hold(75)
    other.hold(25)
    assert not other.may_read(reader)
    other.look_again()
    assert reader.calls == 0
    noisy.release(50, 0)
    other.look_again()
    assert reader.calls == 1


def test_fetches_go_on_when_another_cluster_has_freed_enough() -> None:
    limits = ProcessLimits(connections=1, held_bytes=1, unsent_bytes=100)
    noisy, other = (ResponseMemory(limits.join().unsent_bytes) for _ in range(2))
    noisy.change(75)
    other.change(25)
    assert not other.has_room(is_catch_up=False)
    noisy.change(-50)
    other.look_again()
    assert other.has_room(is_catch_up=False)
