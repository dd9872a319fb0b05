"""The test suites of other projects: how each is fetched, built, run and read (`suite.py` is their interface)."""

from tests.suites.brokers.shape import Shape
from tests.suites.suites.franz_go import FranzGo
from tests.suites.suites.librdkafka import PARTITIONS, Librdkafka, Settings
from tests.suites.suites.suite import Suite

# Tests of groups; those with the protocol `consumer` need no rebalance by clients.
GROUP_TESTS = (
    "0018",
    "0022",
    "0026",
    "0030",
    "0033",
    "0045",
    "0050",
    "0056",
    "0081",
    "0084",
    "0089",
    "0091",
    "0102",
    "0109",
    "0113",
    "0118",
    "0122",
    "0132",
    "0137",
)

SUITES: tuple[Suite, ...] = (
    FranzGo(),
    Librdkafka("librdkafka", Settings()),
    Librdkafka(
        "librdkafka-noautocreate",
        Settings(shape=Shape(partitions=PARTITIONS, creates_topics=False), scenario="noautocreate"),
    ),
    Librdkafka("librdkafka-consumer", Settings(protocol="consumer", only=GROUP_TESTS)),
)
