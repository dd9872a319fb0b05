"""Dead letters of share groups (KIP-1191): members reject records, and release others until their last delivery."""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.kafkawire.api import api_versions, describe_share_group_offsets
from penstock.kafkawire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from tests.conformance.access.brokers import Connection
from tests.conformance.driver import Driver
from tests.conformance.scenario import Scenario, Stage, until
from tests.conformance.scenarios.producing import create_topic
from tests.conformance.scenarios.share_groups import ACCEPT, POLL_MS, REJECT, RELEASE, configure
from tests.testkit.loads.ledger import QUIET, end_offsets

PARTITIONS, LETTER_PARTITIONS = 3, 2  # so that records of two partitions have their dead letters in one
LIMIT = 2  # deliveries of a record
PREFIX = "dlq."  # Kafka's default
ALLOWED = {"errors.deadletterqueue.group.enable": "true"}
CONTEXT = "__dlq.errors."  # the beginning of the names of a dead letter's headers
REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."
SHARE_VERSION = ("share.version", 2)
OWN_HEADER = ["trace", "7"]
# Each partition has these records, at offsets from 0. A record without a value can only be rejected.
KEYS = ["key", "key", "key", None, "key"]
VALUES = ["accepted", "rejected", "released", "without a key", None]
TYPES = {"accepted": ACCEPT, "released": RELEASE}
# Offset, deliveries and message of the records that die.
DEAD = [(1, 1, REJECTED), (2, LIMIT, EXHAUSTED), (3, 1, REJECTED), (4, 1, REJECTED)]
DELIVERIES = PARTITIONS * (len(VALUES) + LIMIT - 1)

# The labels of answers.
WITH_COPIES, CONTEXT_ALONE = "dead letters with copies", "dead letters without copies"
OWN_HEADERS = f"{WITH_COPIES}: own headers"
NOT_ALLOWED, MISSING, OTHER_PREFIX = "a topic that does not allow them", "a missing topic", "a name without the prefix"

Answers = dict[str, Any]  # of a cluster, by label


def answers(stage: Stage) -> Answers:
    """The answers of a cluster to one client, without its names and times.

    A group ends with no record in flight. Then all its dead letters are there, or there will be none.
    """
    until(lambda: _has_dead_letters(stage.bootstrap), "dead letters to be a feature of the cluster")
    found: Answers = {}
    with stage.driver() as member:
        for label, copies in ((WITH_COPIES, "true"), (CONTEXT_ALONE, "false")):
            letters = stage.name(label.replace(" ", "-"))
            create_topic(stage.bootstrap, PREFIX + letters, LETTER_PARTITIONS, **ALLOWED)
            configs = {"errors.deadletterqueue.copy.record.enable": copies}
            found |= _answers(stage, member, label, PREFIX + letters, configs)
        topics = {NOT_ALLOWED: PREFIX + stage.name("closed"), OTHER_PREFIX: stage.name("letters")}
        create_topic(stage.bootstrap, topics[NOT_ALLOWED], LETTER_PARTITIONS)
        create_topic(stage.bootstrap, topics[OTHER_PREFIX], LETTER_PARTITIONS, **ALLOWED)
        topics[MISSING] = PREFIX + stage.name("missing")
        for label, letters in topics.items():
            found |= _answers(stage, member, label, letters, {})
    return found


def _has_dead_letters(bootstrap: str) -> bool:
    connection = Connection(bootstrap)
    try:
        found = connection.ask(api_versions.API.key, 4, api_versions.ApiVersionsRequest("scenario", "1"))
    finally:
        connection.close()
    return SHARE_VERSION in [(each.name, each.max_version_level) for each in found.finalized_features]


def _answers(stage: Stage, member: Driver, label: str, letters: str, configs: Mapping[str, str]) -> Answers:
    """The answers for one group with this topic for dead letters."""
    name = label.replace(" ", "-")
    topic, group = stage.name(f"topic-{name}"), stage.name(f"group-{name}")
    create_topic(stage.bootstrap, topic, PARTITIONS)
    limit = {"share.delivery.count.limit": str(LIMIT), "share.auto.offset.reset": "earliest"}
    configure(stage.bootstrap, group, {**limit, "errors.deadletterqueue.topic.name": letters, **configs})
    began_ms = time.time_ns() // 1_000_000
    _fill(stage.bootstrap, topic)
    deliveries = _process(member, group, topic)
    until(lambda: not any(_lags(stage.bootstrap, group, topic)), f"{label}: no record in flight")
    messages = _read(stage.bootstrap, letters)
    found = {f"{label}: deliveries": deliveries}
    if messages is None:
        return found | {f"{label}: topic": "none"}
    read = [_letter(each, {topic: "TOPIC", group: "GROUP"}) for each in messages]
    own = sorted(header for each in messages for header in _headers(each) if not header[0].startswith(CONTEXT))
    times = [each.timestamp() for each in messages]
    is_now = all(kind == TIMESTAMP_CREATE_TIME and time_ms >= began_ms for kind, time_ms in times)
    found |= {f"{label}: time of writing": is_now, f"{label}: own headers": own} if messages else {}
    return found | {label: sorted(read, key=lambda each: str(each[-1]))}


def _fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    for partition in range(PARTITIONS):
        for key, value in zip(KEYS, VALUES, strict=True):
            headers = [tuple(OWN_HEADER)] if value == "rejected" else []
            producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(60) == 0


def _process(member: Driver, group: str, topic: str) -> list[Any]:
    """The deliveries to the member, until there are no more: offset, value and count."""
    got: list[Any] = []
    poll = {"for_ms": POLL_MS, "acknowledge_type": REJECT, "others": TYPES}
    member.ask("share_join", group=group, topic=topic)
    until(lambda: got.extend(member.ask("share_poll", **poll)) or len(got) >= DELIVERIES, f"{DELIVERIES} deliveries")
    got += member.ask("share_poll", **poll)
    member.ask("share_leave")
    return sorted(got, key=lambda each: (each[0], each[2]))


def _lags(bootstrap: str, group: str, topic: str) -> list[int]:
    """How many records of each partition are not done."""
    asked = DescribeShareGroupOffsetsRequestTopic(topic, list(range(PARTITIONS)))
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, [asked])])
    connection = Connection(bootstrap)
    try:
        (found,) = connection.ask(describe_share_group_offsets.API.key, 1, request).groups
    finally:
        connection.close()
    partitions = [each for each_topic in found.topics for each in each_topic.partitions]
    assert not found.error_code, found.error_message
    assert not any(each.error_code for each in partitions), partitions
    assert len(partitions) == PARTITIONS, partitions
    return [each.lag for each in partitions]


def _read(bootstrap: str, topic: str) -> list[Message] | None:
    """All messages of a topic; None if there is no such topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    if topic not in admin.list_topics(timeout=60).topics:
        return None
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "of-letters", "enable.auto.commit": False, **QUIET}
    )
    try:
        ends = end_offsets(consumer, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        read: list[Message] = []
        total = sum(ends.values())
        until(lambda: read.extend(consumer.consume(100, 0.1)) or len(read) >= total, f"{total} dead letters")
    finally:
        consumer.close()
    assert not any(each.error() for each in read), read
    return read


def _headers(message: Message) -> list[list[str]]:
    return [[name, (value or b"").decode()] for name, value in message.headers() or []]


def _letter(message: Message, names: Mapping[str, str]) -> list[Any]:
    """Partition, key, value and context of a dead letter, with other names for the topic and the group."""
    key, value = message.key(), message.value()
    context = [[name, names.get(each, each)] for name, each in _headers(message) if name.startswith(CONTEXT)]
    return [message.partition(), key and key.decode(), value and value.decode(), context]


def expected_letters(*, copies: bool) -> list[list[Any]]:
    """The dead letters of a group, as `answers` has them."""
    found = []
    for partition in range(PARTITIONS):
        for offset, count, message in DEAD:
            values = ["TOPIC", str(partition), str(offset), "GROUP", str(count), message]
            names = ["topic", "partition", "offset", "group", "delivery.count", "message"]
            context = [[CONTEXT + name, value] for name, value in zip(names, values, strict=True)]
            copied = [KEYS[offset], VALUES[offset]] if copies else [None, None]
            found.append([partition % LETTER_PARTITIONS, *copied, context])
    return found


def dead_letters(stage: Stage) -> None:
    """Rejected records, and those at the delivery limit, are written to the topic for dead letters if it allows it."""
    found = answers(stage)
    deliveries = [[offset, value, 1] for offset, value in enumerate(VALUES) for _ in range(PARTITIONS)]
    again = [[2, VALUES[2], count] for count in range(2, LIMIT + 1) for _ in range(PARTITIONS)]
    for label in (WITH_COPIES, CONTEXT_ALONE, NOT_ALLOWED, OTHER_PREFIX, MISSING):
        got = found[f"{label}: deliveries"]
        assert got == sorted(deliveries + again, key=lambda each: (each[0], each[2])), f"{label}: {got}"
    for label, copies in ((WITH_COPIES, True), (CONTEXT_ALONE, False)):
        assert found[label] == expected_letters(copies=copies), f"{label}: {found[label]}"
        assert found[f"{label}: time of writing"], f"{label}: not the time of writing"
    assert found[OWN_HEADERS] in ([], [OWN_HEADER] * PARTITIONS), found[OWN_HEADERS]  # Kafka 4.4 does not copy them
    for label in (NOT_ALLOWED, OTHER_PREFIX):
        assert found[label] == [], f"{label}: {found[label]}"
    assert found[f"{MISSING}: topic"] == "none"


def all_scenarios() -> list[Scenario]:
    """All scenarios, in the order of the table."""
    return [Scenario("share-dead-letters", "groups", (dead_letters.__doc__ or "").rstrip(), dead_letters)]
