"""The test suites of other projects: how each is fetched, built, run and read (`suite.py` is their interface)."""

from tests.suites.brokers.shape import Shape
from tests.suites.suites.franz_go import FranzGo
from tests.suites.suites.kafkajs import KafkaJs
from tests.suites.suites.librdkafka import PARTITIONS, Librdkafka, Settings
from tests.suites.suites.serializers import Serializers
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

# Tests of administration, ACLs, credentials and repeated logins, and some of each kind of client.
LOGIN_TESTS = (
    "0001",
    "0012",
    "0018",
    "0030",
    "0081",
    "0097",
    "0098",
    "0103",
    "0109",
    "0126",
    "0135",
    "0142",
    "0170",
    "0171",
)
REAUTHENTICATION_MS = 10_000  # 0142 takes fifteen times as long

SUITES: tuple[Suite, ...] = (
    FranzGo(),
    Librdkafka("librdkafka", Settings()),
    Librdkafka(
        "librdkafka-noautocreate",
        Settings(shape=Shape(partitions=PARTITIONS, creates_topics=False), scenario="noautocreate"),
    ),
    Librdkafka(
        "librdkafka-logins",
        Settings(
            shape=Shape(partitions=PARTITIONS, has_logins=True, reauthentication_ms=REAUTHENTICATION_MS),
            only=LOGIN_TESTS,
        ),
    ),
    Librdkafka("librdkafka-consumer", Settings(protocol="consumer", only=GROUP_TESTS)),
    KafkaJs(),
    Serializers(),
)
