"""Random frames after a login, with access control on: `python -m tests.testkit.fuzz.after_login --frames 100000`.

The user of the frames may do everything with half of the topics that they name. All others must stay as they are, and
so must users and access control lists. The process lives, and has no more memory than after the first frames.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock.kafkawire.api import encode_request
from penstock.kafkawire.api.sasl_authenticate import SaslAuthenticateRequest
from penstock.kafkawire.api.sasl_handshake import SaslHandshakeRequest
from tests.testkit.clusters.cluster import Cluster, running
from tests.testkit.clusters.secured_gateway import SecuredGateway, add_user, allow_everything, secured_gateway
from tests.testkit.fuzz.before_login import AUTHENTICATE, HANDSHAKE, LISTENER, WARM_UP_FRAMES, Fuzzer, Report, fuzz_with
from tests.testkit.fuzz.frames import Frames, request_head, with_length
from tests.testkit.fuzz.values import GROUPS, TOPICS

HOSTILE, PASSWORD = "mallory", "secret-of-mallory"
OPEN, GUARDED = TOPICS[:3], TOPICS[3:]
RECORDS = 20
TIMEOUT_S = 60.0
SETTINGS = {
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl_plain_without_tls": "true",
    "authorizer": "on",
    "super_users": "User:root",
}


class State(NamedTuple):
    """The parts of the cluster that the user of the frames must not change."""

    records: list[list[bytes]]
    configs: list[dict[str, str]]
    topics: list[str]  # names and numbers of partitions
    users: list[str]
    lists: list[str]


def prepare(cluster: Cluster) -> None:
    """Make the user with its rights, and the topics, of which some have records."""
    add_user(cluster, HOSTILE, PASSWORD)
    add_user(cluster, "alice", PASSWORD)
    allow_everything(cluster, f"User:{HOSTILE}", topics=OPEN, groups=GROUPS)
    allow_everything(cluster, "User:alice", topics=GUARDED, groups=["alice"])
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    for made in admin.create_topics([NewTopic(name, 2) for name in TOPICS]).values():
        made.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": cluster.kafka})
    for number in range(RECORDS):
        for topic in GUARDED:
            producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def state(cluster: Cluster) -> State:
    """Read it through a gateway without access control."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in GUARDED]
    configs = [each.result(TIMEOUT_S) for each in admin.describe_configs(resources).values()]
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    return State(
        [_records(cluster, topic) for topic in GUARDED],
        [{name: entry.value for name, entry in each.items()} for each in configs],
        [f"{name} {len(topics[name].partitions)}" for name in GUARDED if name in topics],
        sorted(admin.describe_user_scram_credentials().result(TIMEOUT_S)),
        sorted(map(str, admin.describe_acls(every).result(TIMEOUT_S))),
    )


def _records(cluster: Cluster, topic: str) -> list[bytes]:
    """The values from the log's start to its end."""
    consumer = Consumer({"bootstrap.servers": cluster.kafka, "group.id": "reader", "enable.auto.commit": "false"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, 0, low)])
        return [message.value() or b"" for message in consumer.consume(high - low, TIMEOUT_S)]
    finally:
        consumer.close()


def greeting() -> list[bytes]:
    """The frames of a login, each of which is answered."""
    token = f"\0{HOSTILE}\0{PASSWORD}".encode()
    bodies = {HANDSHAKE: SaslHandshakeRequest("PLAIN"), AUTHENTICATE: SaslAuthenticateRequest(token)}
    return [with_length(request_head(key, 1, 1, "fuzz") + encode_request(key, 1, body)) for key, body in bodies.items()]


async def fuzz(gateway: SecuredGateway, frames: int, seed: int, warm_up_frames: int = WARM_UP_FRAMES) -> Report:
    """Log in and send random frames, and measure the gateway's memory before and after; it must live."""
    chance = random.Random(seed)
    every = Frames(chance)
    fuzzer = Fuzzer(gateway.addresses[LISTENER], chance, lambda: every.next().data, greeting())
    return await fuzz_with(gateway, fuzzer, frames, warm_up_frames)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "data", "--flush-ms", "20") as cluster:
        prepare(cluster)
        with secured_gateway(cluster, "fuzzed", LISTENER, **SETTINGS) as gateway:
            before = state(cluster)
            report = asyncio.run(fuzz(gateway, given.frames, seed))
            print(report, f"denied: {gateway.metric('penstock_gateway_access_denied_total'):.0f}")
            is_same = state(cluster) == before
            restarts = sum(process["restarts"] for process in cluster.processes().values())
    print(f"the state of others is {'the same' if is_same else 'CHANGED'}; restarts: {restarts}")
    return int(not report.is_memory_back or not is_same or restarts > 0)


if __name__ == "__main__":
    sys.exit(main())
