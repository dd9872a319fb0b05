"""`penstock producer`: the producers that a topic knows, with their sequence numbers and open transactions."""

import argparse

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.kafka.completers import with_topics
from penstock.cli.kafka.offsets import chosen_partitions
from penstock.cli.kafka.session import Session, add_verb
from penstock.cli.output import Listing, time_text


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock producer` with the command line."""
    verbs = add_verbs(new_parser(description="Producers of a topic. All verbs speak Kafka."))
    listed = add_verb(verbs, "list", list_producers, help="list the idempotent producers of a topic")
    with_topics(listed.add_argument("topic", metavar="TOPIC[/PARTITION]", help="a topic, or one of its partitions"))


def list_producers(arguments: argparse.Namespace, session: Session) -> Listing:
    """The producers of each partition."""
    from kafka import TopicPartition

    chosen = chosen_partitions(session, [arguments.topic])
    found = session.admin.describe_producers([TopicPartition(*each) for each in chosen])
    rows = [
        {
            "partition": partition.partition,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "last_sequence": each.last_sequence,
            "last_write_at": time_text(each.last_timestamp),
            "open_transaction_offset": (
                each.current_transaction_start_offset if each.current_transaction_start_offset >= 0 else None
            ),
        }
        for partition, state in sorted(found.items())
        for each in state.active_producers
    ]
    return Listing(rows, "the topic knows no idempotent producers")
