"""`penstock topic list` and `describe`."""

import argparse
import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.cli.kafka.completers import with_topics
from penstock.cli.kafka.configs import read_configs
from penstock.cli.kafka.offsets import EARLIEST, LATEST, Partition, check_topic, offsets_at
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.output import Listing, Report
from penstock.contracts.ids import topic_id_text

Topic = Mapping[str, Any]


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    listed = add_verb(verbs, "list", list_topics, help="list topics")
    listed.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="only names like 'orders-*'")
    listed.add_argument("--internal", action="store_true", help="also topics of the system itself")
    listed.add_argument("--detail", action="store_true", help="with records and sizes")
    described = add_verb(verbs, "describe", describe_topic, help="show partitions, sizes and configurations of a topic")
    with_topics(described.add_argument("name", metavar="TOPIC", help="name of the topic"))
    described.add_argument("--all-configs", action="store_true", help="also the configurations at their defaults")


def list_topics(arguments: argparse.Namespace, session: Session) -> Listing:
    """The topics by name."""
    topics = [
        topic
        for topic in session.admin.describe_topics(None)
        if (arguments.internal or not topic["is_internal"]) and fnmatch.fnmatchcase(topic["name"], arguments.pattern)
    ]
    rows = [
        {"name": topic["name"], "partitions": len(topic["partitions"])}
        for topic in sorted(topics, key=lambda each: str(each["name"]))
    ]
    if arguments.detail:
        counts = record_counts(session, topics)
        sizes = size_by_partition(session, [topic["name"] for topic in topics])
        for row in rows:
            row["records"] = sum(count for (name, _), count in counts.items() if name == row["name"])
            row["size_bytes"] = sum(size for (name, _), size in sizes.items() if name == row["name"])
    return Listing(rows, "there are no topics" if arguments.pattern == "*" else "no topic has such a name")


def describe_topic(arguments: argparse.Namespace, session: Session) -> Report:
    """One topic: its facts, its partitions, and its configurations."""
    topic = found_topic(session, arguments.name)
    name = topic["name"]
    partitions = partitions_in([topic])
    earliest, latest = (offsets_at(session, partitions, word) for word in (EARLIEST, LATEST))
    sizes = size_by_partition(session, [name])
    configs = read_configs(session, "TOPIC", name, only_changed=not arguments.all_configs)
    return Report(
        {
            "name": name,
            "topic_id": id_text(topic),
            "internal": bool(topic["is_internal"]),
            "partition_count": len(partitions),
            "records": sum(latest[each] - earliest[each] for each in partitions),
            "size_bytes": sum(sizes.values()),
            "partitions": [
                {
                    "partition": each["partition_index"],
                    "leader": each["leader_id"],
                    "earliest_offset": earliest[name, each["partition_index"]],
                    "latest_offset": latest[name, each["partition_index"]],
                    "size_bytes": sizes.get((name, each["partition_index"]), 0),
                }
                for each in sorted(topic["partitions"], key=lambda each: int(each["partition_index"]))
            ],
            "configs": configs,
        }
    )


def found_topic(session: Session, name: str) -> Topic:
    """The description of a topic; `Invalid` if there is none, or this user may not see it."""
    topic: Topic = session.admin.describe_topics([name])[0]
    check_topic(topic)
    return topic


def partitions_in(topics: Sequence[Topic]) -> list[Partition]:
    """All partitions of the topics."""
    return [(topic["name"], each["partition_index"]) for topic in topics for each in topic["partitions"]]


def record_counts(session: Session, topics: Sequence[Topic]) -> dict[Partition, int]:
    """How many offsets each partition has, which is at least the number of its records."""
    partitions = partitions_in(topics)
    earliest, latest = (offsets_at(session, partitions, word) for word in (EARLIEST, LATEST))
    return {each: latest[each] - earliest[each] for each in partitions}


def size_by_partition(session: Session, names: Sequence[str]) -> dict[Partition, int]:
    """The bytes of each partition, in all places where it is stored."""
    found: dict[Partition, int] = {}
    for broker in session.admin.describe_log_dirs(list(names)) if names else []:
        for folder in broker["log_dirs"]:
            for topic in folder["topics"]:
                for each in topic["partitions"]:
                    key = (topic["name"], each["partition_index"])
                    found[key] = found.get(key, 0) + each["partition_size"]
    return found


def id_text(topic: Topic) -> str:
    """The id of a topic in Kafka's text form."""
    return topic_id_text(UUID(topic["topic_id"]).bytes)
