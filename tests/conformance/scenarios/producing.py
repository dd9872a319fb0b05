"""Produce and consume: every codec, several partitions, compacted topics."""

import functools
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.driver import NotOffered
from tests.conformance.scenario import TIMEOUT_S, Scenario, Stage, rejection
from tests.testkit.loads.ledger import QUIET, read_everything

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [f"{number} " + "x" * 100 for number in range(300)]
PARTITIONS = 5


def create_topic(bootstrap: str, name: str, partitions: int, **configs: str) -> None:
    """Create a topic, with another client than the one under test."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, partitions, config=configs)])[name].result(TIMEOUT_S)


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, list[str]]:
    """Produce `count` records, 1 ms apart, to each partition, with another client than the one under test."""
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    now_ms = time.time_ns() // 1_000_000
    written = {each: [f"{each}-{number}" for number in range(count)] for each in range(partitions)}
    for partition, values in written.items():
        for number, value in enumerate(values):
            producer.produce(topic, value, f"key of {value}", partition, timestamp=now_ms + number)
    assert producer.flush(60) == 0
    return written


def round_trip(codec: str, stage: Stage) -> None:
    """The client and another client read the records unchanged."""
    topic = stage.name("records")
    with stage.driver() as client:
        if codec not in client.hello["codecs"]:
            raise NotOffered(codec)
        keys = [f"key {number}" for number in range(len(VALUES))]
        create_topic(stage.bootstrap, topic, 1)
        offsets = client.ask("produce", topic=topic, codec=codec, values=VALUES, keys=keys)
        assert offsets in (None, list(range(len(VALUES)))), f"acknowledged offsets {offsets}"
        own = client.ask("consume", topic=topic, count=len(VALUES))
    expected = [[0, number, keys[number], value] for number, value in enumerate(VALUES)]
    assert own == expected, f"the client read {own[:3]} ... ({len(own)} records)"
    others = read_everything(stage.bootstrap, topic)[0]
    assert others == [(offset, key.encode(), value.encode()) for _, offset, key, value in expected]


def first_use(stage: Stage) -> None:
    """The first record to an unknown topic creates it."""
    topic = stage.name("new")
    with stage.driver() as client:
        client.ask("produce", topic=topic, codec="none", values=["only"])
        assert [each[3] for each in client.ask("consume", topic=topic, count=1)] == ["only"]


def many_partitions(stage: Stage) -> None:
    """All records of a topic with several partitions are read, each partition in order."""
    topic = stage.name("spread")
    create_topic(stage.bootstrap, topic, PARTITIONS)
    written = fill(stage.bootstrap, topic, PARTITIONS, 200)
    with stage.driver() as client:
        read = client.ask("consume", topic=topic, count=PARTITIONS * 200)
    for partition, values in written.items():
        mine = [each[1:] for each in read if each[0] == partition]
        assert mine == [[number, f"key of {value}", value] for number, value in enumerate(values)], mine[:3]


def compacted(stage: Stage) -> None:
    """A compacted topic rejects a record without a key, and accepts one with a key."""
    topic = stage.name("compacted")
    create_topic(stage.bootstrap, topic, 1, **{"cleanup.policy": "compact"})
    with stage.driver() as client:
        client.ask("produce", topic=topic, codec="none", values=["kept"], keys=["key"])
        assert rejection(client, "produce", topic=topic, codec="none", values=["refused"])
        assert [each[3] for each in client.ask("consume", topic=topic, count=1)] == ["kept"]


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    round_trips = [
        Scenario(
            f"produce-{codec}",
            "producing",
            f"Records with codec {codec} are acknowledged; the client and another client read them unchanged.",
            functools.partial(round_trip, codec),
        )
        for codec in CODECS
    ]
    return [
        *round_trips,
        Scenario("first-use", "producing", "A topic is created on first use.", first_use),
        Scenario("keyless-to-compacted", "producing", "A compacted topic rejects a record without a key.", compacted),
        Scenario("many-partitions", "consuming", "All records of every partition are read in order.", many_partitions),
    ]
