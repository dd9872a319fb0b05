"""`penstock topic`: lists recoverable topics, which were deleted but can come back, and undeletes them."""

import argparse
import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.cli.running import add_cluster_flags, connected_bus, read_cluster, run
from penstock.contracts.commands import Rejected, UndeleteTopic
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import ID_BYTES, TopicId, is_legal_topic_name, topic_id_text
from penstock.contracts.queries.topics import DeletedTopicsQuery, DeletedTopicsView, DeletedTopicView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.spark.config import ClusterAddress

DEADLINE_S = 10.0
LAST_MS = 253_402_300_799_000  # the end of the year 9999, after which dates have no text
HEADINGS = ("NAME", "ID", "PARTITIONS", "BYTES", "DELETED", "GONE AT")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register `penstock topic` with the command line."""
    parser = commands.add_parser(
        "topic",
        help="list deleted topics, and bring one back",
        description="A topic deleted with penstock.undelete.window.ms above 0 can come back until that time is over.",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    deleted = verbs.add_parser(
        "deleted",
        help="list the topics that can still come back",
        description="List the deleted topics that can still come back, with times of the journal's clock (UTC).",
    )
    deleted.add_argument("--json", action="store_true", help="print the list as JSON")
    undelete = verbs.add_parser(
        "undelete",
        help="bring a deleted topic back",
        description="Bring a deleted topic back, with its records, configurations and groups' offsets. "
        "The name must not be in use.",
    )
    undelete.add_argument("name", metavar="NAME", help="name of the topic")
    undelete.add_argument(
        "--id",
        metavar="ID",
        default="",
        help="id of the topic, if several had the name: --id=ID (the one deleted last)",
    )
    for verb, run_verb in ((deleted, _list_deleted), (undelete, _undelete)):
        add_cluster_flags(verb, with_store=False)
        verb.set_defaults(run=run, run_verb=run_verb)


async def _list_deleted(arguments: argparse.Namespace) -> str:
    cluster = read_cluster(arguments)
    async with connected_bus(cluster, "penstock-topic") as bus:
        view = await deleted_topics(SequencerClient(bus, cluster.cluster, SystemClock()))
    return as_json(view.topics) if arguments.json else as_table(view.topics)


async def _undelete(arguments: argparse.Namespace) -> str:
    name = arguments.name
    if not is_legal_topic_name(name):
        raise Invalid(f"a topic name is 1 to 249 letters, digits, '.', '_' or '-': {name[:250]!r}")
    topic_id = parse_topic_id(arguments.id) if arguments.id else None
    return await undelete(read_cluster(arguments), name, topic_id)


async def undelete(cluster: ClusterAddress, name: str, topic_id: TopicId | None) -> str:
    """Undelete a topic and return the text for the user; `Invalid` if that is not possible."""
    clock = SystemClock()
    async with connected_bus(cluster, "penstock-topic") as bus:
        client = SequencerClient(bus, cluster.cluster, clock)
        # With its id, so that a repeated command does not bring back another topic.
        topic = choose((await deleted_topics(client)).topics, name, topic_id)
        command = UndeleteTopic(clock.now_ms(), name, topic.topic_id, client.seen_sequence)
        (outcome,) = await client.command([command], deadline_s=DEADLINE_S)
    if isinstance(outcome, Rejected):
        raise Invalid(f"topic {name!r} cannot come back: {outcome.message or outcome.rejection.name}")
    return (
        f"topic {name} is back: id {topic_id_text(topic.topic_id)}, "
        f"{topic.partitions:,} partitions, {topic.size_bytes:,} bytes"
    )


async def deleted_topics(client: SequencerClient) -> DeletedTopicsView:
    """All topics that can come back now."""
    query = DeletedTopicsQuery(0, fresh=True)
    return await client.query("deleted_topics", query, DeletedTopicsView, deadline_s=DEADLINE_S)


def choose(topics: Sequence[DeletedTopicView], name: str, topic_id: TopicId | None) -> DeletedTopicView:
    """The topic with the id, or the one deleted last if no id is given; `Invalid` if there is none."""
    named = [topic for topic in topics if topic.name == name]
    found = [topic for topic in named if topic_id in (None, topic.topic_id)]
    if found:
        return found[-1]
    if named:
        ids = ", ".join(topic_id_text(topic.topic_id) for topic in named)
        raise Invalid(f"no deleted topic {name!r} has that id; the known ids are {ids}")
    raise Invalid(f"no deleted topic {name!r} can come back; `penstock topic deleted` lists the recoverable topics")


def parse_topic_id(text: str) -> TopicId:
    """A topic id from Kafka's text form; `Invalid` for any other text."""
    try:
        topic_id = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != ID_BYTES or topic_id_text(topic_id) != text:
        raise Invalid(f"not a topic id: {text!r}")
    return topic_id


def as_table(topics: Sequence[DeletedTopicView]) -> str:
    """A table with one line per topic, or a sentence if there is none."""
    if not topics:
        return "no deleted topic can come back"
    rows = [HEADINGS, *(_row(topic) for topic in topics)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    numbers = {HEADINGS.index("PARTITIONS"), HEADINGS.index("BYTES")}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(topic: DeletedTopicView) -> tuple[str, ...]:
    return (
        topic.name,
        topic_id_text(topic.topic_id),
        f"{topic.partitions:,}",
        f"{topic.size_bytes:,}",
        time_text(topic.deleted_ms),
        time_text(topic.until_ms),
    )


def as_json(topics: Sequence[DeletedTopicView]) -> str:
    """A JSON list of objects."""
    return json.dumps([_plain(topic) for topic in topics])


def _plain(topic: DeletedTopicView) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": topic_id_text(topic.topic_id),
        "partitions": topic.partitions,
        "bytes": topic.size_bytes,
        "deleted_ms": topic.deleted_ms,
        "until_ms": topic.until_ms,
    }


def time_text(time_ms: int) -> str:
    """A time in UTC to the second, or `never` after the year 9999."""
    if time_ms > LAST_MS:
        return "never"
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
