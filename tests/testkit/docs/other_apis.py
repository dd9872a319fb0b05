"""The APIs of Kafka 4.4: a data file of facts, and the reason for each API that Penstock does not serve."""

from pathlib import Path

import msgspec

from penstock.kafkawire.api import API_TABLE

FACTS = Path(__file__).with_name("kafka-4.4-apis.txt")
QUORUM = "Kafka's controllers use it among themselves. Here sequencers agree on the journal in NATS."
BROKER_LIFE = "Kafka's brokers send it to their controllers. Gateways announce themselves in NATS."
VOTERS = "Changes the voters of Kafka's controllers. Sequencers are added and removed without a command."
SHARE_STATE = "Kafka's brokers use it among themselves for share groups. That state is in the journal here."
# An API leaves this table when it is served; a test compares the two.
REASONS = {
    52: QUORUM,
    53: QUORUM,
    54: QUORUM,
    56: "Kafka's leaders report their in-sync replicas. There are no replicas here.",
    57: "Features follow the level of the cluster, which rises once all sequencers know it.",
    58: "Kafka's brokers forward requests of clients in it. Here each gateway serves every request itself.",
    59: QUORUM,
    62: BROKER_LIFE,
    63: BROKER_LIFE,
    64: "Removes a broker that is gone for good. Here no command is needed for a gateway that is gone.",
    67: "Kafka's brokers reserve producer ids with it. Here the sequencers assign each one.",
    70: "Kafka's controllers register with it. Sequencers announce themselves in NATS.",
    73: "Kafka's brokers report the directories of replicas. There are no replicas here.",
    80: VOTERS,
    81: VOTERS,
    82: VOTERS,
    83: SHARE_STATE,
    84: SHARE_STATE,
    85: SHARE_STATE,
    86: SHARE_STATE,
    87: SHARE_STATE,
    93: "Takes the description of a topology, for tools (KIP-1331). Streams groups work without it.",
    94: "Removes a controller that is gone for good. Here no command is needed for a sequencer that is gone.",
}


class KafkaApi(msgspec.Struct, frozen=True):
    """One API of Kafka 4.4 with its stable versions; `servers` are brokers, controllers or both."""

    key: int
    name: str
    versions: str
    servers: str


def kafka_apis() -> list[KafkaApi]:
    """All APIs of Kafka 4.4, in the order of their keys."""
    lines = (line.split() for line in FACTS.read_text().splitlines() if not line.startswith("#"))
    return [KafkaApi(int(key), *rest) for key, *rest in lines]


def unserved() -> list[KafkaApi]:
    """The APIs of Kafka 4.4 that Penstock does not serve."""
    return [api for api in kafka_apis() if api.key not in API_TABLE]
