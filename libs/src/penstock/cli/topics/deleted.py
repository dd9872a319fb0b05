"""`penstock topic deleted` and `undelete`: recoverable topics, which were deleted but can come back."""

import argparse
import base64
import binascii
from collections.abc import Sequence
from typing import Any

from penstock.cli.output import Listing, add_output_flag, time_text
from penstock.cli.running import add_cluster_flags, connected_bus, read_cluster, run
from penstock.contracts.commands import Rejected, UndeleteTopic
from penstock.contracts.errors import Invalid
from penstock.contracts.ids import ID_BYTES, TopicId, is_legal_topic_name, topic_id_text
from penstock.contracts.queries.topics import DeletedTopicsQuery, DeletedTopicsView, DeletedTopicView
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.spark.config import ClusterAddress

DEADLINE_S = 10.0


def add_to(verbs: "argparse._SubParsersAction[Any]") -> None:
    """Add the verbs."""
    deleted = verbs.add_parser(
        "deleted",
        help="list deleted topics that can come back",
        description="List the deleted topics that can still come back, with times of the journal's clock. A topic that "
        "was deleted with penstock.undelete.window.ms above 0 can come back until that time is over.",
    )
    add_output_flag(deleted)
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


async def _list_deleted(arguments: argparse.Namespace) -> Listing:
    cluster = read_cluster(arguments)
    async with connected_bus(cluster, "penstock-topic") as bus:
        view = await deleted_topics(SequencerClient(bus, cluster.cluster, SystemClock()))
    return Listing([row_of(topic) for topic in view.topics], "no deleted topic can come back")


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


def row_of(topic: DeletedTopicView) -> dict[str, Any]:
    """One line of the list."""
    return {
        "name": topic.name,
        "topic_id": topic_id_text(topic.topic_id),
        "partitions": topic.partitions,
        "size_bytes": topic.size_bytes,
        "deleted_at": time_text(topic.deleted_ms),
        "gone_at": time_text(topic.until_ms),
    }
