"""The bytes of topics: counted by topic for a limited number of topics, without those that are deleted."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock_gateway.topic_bytes import OTHERS, TopicBytes
from tests.unit.gateway.gateway_read_world import World, asking, batch_of

READ = "penstock_gateway_topic_read_bytes_total"
PRODUCED = "penstock_gateway_topic_produced_bytes_total"


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """All samples of one scrape."""
    lines = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("penstock_gateway_t")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_the_record_bytes_of_answers_are_counted_by_topic() -> None:
    world = World()
    first, second = await world.open(), await world.create("u")
    small, large = batch_of(b"a"), batch_of(b"b" * 100)
    await world.produce(first, {0: [small], 1: [large]})
    await world.produce(second, {0: [large]})
    await world.fetch(asking({0: 0, 1: 0, 2: 0, 9: 0}))
    await world.fetch(asking({0: 0}))
    await world.fetch(asking({0: 0}, topic="u"))
    await world.fetch(asking({0: 1}, topic="u"))
    assert world.registry.get_sample_value(READ, {"topic": "t"}) == 2 * len(small) + len(large)
    assert world.registry.get_sample_value(READ, {"topic": "u"}) == len(large)
    await world.close()


async def test_a_deleted_topic_has_no_series_after_one_more_scrape() -> None:
    world = World()
    topic_id = await world.open()
    await world.produce(topic_id, {0: [batch_of(b"a")]})
    await world.fetch(asking({0: 0}))
    await world.delete("t")
    series = f'{READ}{{topic="t"}}'
    assert series in scraped(world.registry), "the last bytes were never seen"
    assert series not in scraped(world.registry)
    await world.close()


def test_topics_above_the_limit_are_one_series_and_the_sum_stays_exact() -> None:
    registry = CollectorRegistry()
    counted = TopicBytes(registry, topics_max=2)
    for number in range(10):
        counted.add_produced(f"t{number}", 2**number)
        counted.add_read(f"t{number}", 1)
    assert scraped(registry) == {
        f'{PRODUCED}{{topic="t0"}}': 1,
        f'{PRODUCED}{{topic="t1"}}': 2,
        f'{PRODUCED}{{topic="{OTHERS}"}}': 2**10 - 4,
        f'{READ}{{topic="t0"}}': 1,
        f'{READ}{{topic="t1"}}': 1,
        f'{READ}{{topic="{OTHERS}"}}': 8,
    }


def test_the_place_of_a_deleted_topic_is_free_for_another_one() -> None:
    registry = CollectorRegistry()
    counted = TopicBytes(registry, topics_max=1)
    counted.add_produced("old", 1)
    counted.record_changed(["old", "new", "unknown"])
    scraped(registry)
    counted.add_produced("new", 5)
    assert registry.get_sample_value(PRODUCED, {"topic": "new"}) == 5
    assert registry.get_sample_value(PRODUCED, {"topic": "old"}) is None


def test_a_topic_that_was_only_changed_keeps_its_sum_while_clients_use_it() -> None:
    registry = CollectorRegistry()
    counted = TopicBytes(registry)
    counted.add_produced("t", 1)
    counted.record_changed(["t"])
    counted.add_read("t", 1)
    scraped(registry)
    assert registry.get_sample_value(PRODUCED, {"topic": "t"}) == 1


@pytest.mark.parametrize("topic", ["t", OTHERS])
def test_without_topics_there_are_no_series(topic: str) -> None:
    registry = CollectorRegistry()
    counted = TopicBytes(registry, topics_max=0)
    counted.add_produced(topic, 1)
    counted.add_read(topic, 1)
    assert not scraped(registry)
