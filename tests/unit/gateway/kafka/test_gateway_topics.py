"""The topic cache: fresh after every change, one query for many requests, and absence is never cached."""

import asyncio

import pytest

from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.topics import MetadataQuery
from penstock_gateway.kafka.topic_cache import NAMES_PER_QUERY_MAX, TOPICS_MAX, TopicCache
from tests.testkit.cancelling import cancelled_after, turns
from tests.unit.gateway.gateway_fakes import FakeSequencer


@pytest.fixture
def sequencer() -> FakeSequencer:
    return FakeSequencer()


@pytest.fixture
def cache(sequencer: FakeSequencer) -> TopicCache:
    return TopicCache(sequencer)  # type: ignore[arg-type]


def names_queried(sequencer: FakeSequencer) -> list[list[str] | None]:
    return [query.names for _, query in sequencer.queries if isinstance(query, MetadataQuery)]


async def test_a_cached_topic_is_not_queried_again(cache: TopicCache, sequencer: FakeSequencer) -> None:
    view = sequencer.add_topic("a")
    assert await cache.find(["a"]) == {"a": view}
    assert await cache.find(["a"]) == {"a": view}
    assert await cache.find_ids([view.topic_id]) == {view.topic_id: view}
    assert (cache.cached("a"), cache.cached_id(view.topic_id)) == (view, view)
    assert names_queried(sequencer) == [["a"]]


async def test_absence_is_never_cached(cache: TopicCache, sequencer: FakeSequencer) -> None:
    assert await cache.find(["a"]) == {}
    sequencer.add_topic("a")
    assert "a" in await cache.find(["a"])


async def test_a_topic_created_again_is_never_taken_for_the_deleted_one(
    cache: TopicCache, sequencer: FakeSequencer
) -> None:
    """A replica that is cut off from the journal would still answer with the deleted topic."""
    sequencer.add_topic("a")
    await cache.find(["a"])
    assert all(query.fresh for _, query in sequencer.queries if isinstance(query, MetadataQuery))


async def test_of_many_more_topics_than_fit_the_newest_are_cached(cache: TopicCache, sequencer: FakeSequencer) -> None:
    """The gateway stood still for 20 s when it removed the oldest ones singly."""
    names = [f"{number:08}" for number in range(2 * TOPICS_MAX)]
    for name in names:
        sequencer.add_topic(name)
    assert len(await cache.everything()) == len(names)
    cached = [name for name in names if cache.cached(name) is not None]
    assert cached == names[TOPICS_MAX:]
    assert cache.cached_id(sequencer.topics[names[0]].topic_id) is None


async def test_a_topic_that_exists_is_never_reported_absent(cache: TopicCache, sequencer: FakeSequencer) -> None:
    """The first replica may not know a topic that was just created through another gateway."""
    known, new = sequencer.add_topic("known"), sequencer.add_topic("new")
    sequencer.unheard_of = {"new"}
    assert await cache.find(["known", "new", "nowhere"]) == {"known": known, "new": new}
    cache.remove_all()
    assert await cache.find_ids([new.topic_id]) == {new.topic_id: new}
    assert {view.name for view in await cache.everything()} == {"known", "new"}


async def test_a_removed_topic_is_queried_again(cache: TopicCache, sequencer: FakeSequencer) -> None:
    old = sequencer.add_topic("a", 1)
    await cache.find(["a"])
    new = sequencer.add_topic("a", 2)
    cache.remove(["a"])
    assert cache.cached_id(old.topic_id) is None
    assert await cache.find(["a"]) == {"a": new}


async def test_after_a_gap_every_topic_is_queried_again(cache: TopicCache, sequencer: FakeSequencer) -> None:
    sequencer.add_topic("a")
    await cache.find(["a"])
    cache.remove_all()
    assert cache.cached("a") is None


async def test_a_topic_that_changes_during_its_query_is_not_cached(cache: TopicCache, sequencer: FakeSequencer) -> None:
    sequencer.add_topic("a")
    sequencer.hold = asyncio.Event()
    finding = asyncio.create_task(cache.find(["a"]))
    await turns()
    cache.remove(["a"])
    sequencer.hold.set()
    assert "a" in await finding
    assert cache.cached("a") is None


async def test_requests_that_come_during_a_query_share_the_next(cache: TopicCache, sequencer: FakeSequencer) -> None:
    for name in "abcd":
        sequencer.add_topic(name)
    sequencer.hold = asyncio.Event()
    tasks = [asyncio.create_task(cache.find([name])) for name in "abcdd"]
    await turns()
    sequencer.hold.set()
    found = await asyncio.gather(*tasks)
    assert [list(each) for each in found] == [["a"], ["b"], ["c"], ["d"], ["d"]]
    assert names_queried(sequencer) == [["a"], ["b", "c", "d"]]


async def test_a_query_in_flight_is_not_joined_because_it_may_be_too_old(
    cache: TopicCache, sequencer: FakeSequencer
) -> None:
    sequencer.hold = asyncio.Event()
    first = asyncio.create_task(cache.find(["a"]))
    await turns()
    second = asyncio.create_task(cache.find(["a"]))
    await turns()
    sequencer.add_topic("b")
    sequencer.hold.set()
    await asyncio.gather(first, second)
    assert names_queried(sequencer) == [["a"], ["a"]]


async def test_every_request_of_a_shared_query_gets_its_failure(cache: TopicCache, sequencer: FakeSequencer) -> None:
    sequencer.is_down = True
    found = await asyncio.gather(*[cache.find([name]) for name in "abc"], return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in found)
    sequencer.is_down = False
    sequencer.add_topic("a")
    assert "a" in await cache.find(["a"])


async def test_when_the_sending_request_is_cancelled_the_next_sends_instead(
    cache: TopicCache, sequencer: FakeSequencer
) -> None:
    sequencer.add_topic("a")
    sequencer.add_topic("b")
    first, second = asyncio.create_task(cache.find(["a"])), asyncio.create_task(cache.find(["b"]))
    sequencer.hold = asyncio.Event()
    await turns()
    first.cancel()
    await turns()
    sequencer.hold.set()
    assert "b" in await second


@pytest.mark.parametrize("count", range(1, 8))
async def test_topics_of_a_request_whose_client_has_left_are_not_queried(
    cache: TopicCache, sequencer: FakeSequencer, count: int
) -> None:
    """Clients that come and leave while the sequencers are slow would add up names without an end."""
    sequencer.add_topic("a")
    sequencer.hold = asyncio.Event()
    slow = asyncio.create_task(cache.find(["a"]))
    await turns()
    for number in range(3):
        await cancelled_after(count, cache.find([f"left-{number}"]))
        await cancelled_after(count, cache.find_ids([bytes([number]) * 16]))
    following = asyncio.create_task(cache.find(["b"]))
    await turns()
    sequencer.hold.set()
    await asyncio.gather(slow, following)
    assert names_queried(sequencer) == [["a"], ["b"]]
    assert not any(query.topic_ids for _, query in sequencer.queries if isinstance(query, MetadataQuery))


async def test_very_many_names_are_queried_in_bounded_queries(cache: TopicCache, sequencer: FakeSequencer) -> None:
    names = [f"t{number}" for number in range(NAMES_PER_QUERY_MAX + 1)]
    sequencer.add_topic(names[-1])
    assert list(await cache.find(names)) == [names[-1]]
    assert [len(asked or []) for asked in names_queried(sequencer)] == [NAMES_PER_QUERY_MAX, 1]
