"""Names of all NATS subjects, queue groups and streams; no other module builds them (docs/design.md, section 2)."""

import enum

from penstock.contracts.ids import check_token

ROOT = "penstock"
QUERY_NAMES = (
    "metadata",
    "plan",
    "offsets",
    "group_offsets",
    "groups",
    "describe_groups",
    "heartbeat",
    "group_wait",
    "consumer_heartbeat",
    "consumer_groups",
    "validate",
    "segments",
    "segment_extents",
    "logs",
    "retention",
    "condemned",
    "known_segments",
    "usage",
    "deleted_topics",
    "cluster_configs",
    "describe_transactions",
    "transactions",
    "producers",
    "client_quotas",
    "security",
    "delegation_tokens",
    "log_sizes",
    "share_heartbeat",
    "share_partitions",
    "share_groups",
    "share_offsets",
    "dead_letter_groups",
    "dead_letters",
    "group_configs",
    "journal",
    "topic_survey",
    "group_survey",
    "client_metrics",
    "streams_heartbeat",
    "streams_groups",
)


class Sender(enum.StrEnum):
    """A kind of process that sends commands; each has its own subject (`contracts/senders.py` has their commands)."""

    CLIENT = "client"  # gateways, for Kafka clients
    FLUSHER = "flusher"
    COMPACTOR = "compactor"
    JANITOR = "janitor"
    CONSOLE = "console"  # it only asks
    ADMIN = "admin"  # operators, with `penstock` on the command line


def flush(cluster: str, zone: str, instance: str) -> str:
    """The subject of produced batches for one flusher."""
    return f"{ROOT}.{cluster}.flush.{zone}.{instance}"


def confirm(cluster: str, gateway: str) -> str:
    """The subject of flushers' questions to one gateway whether produce requests may still be committed."""
    return f"{ROOT}.{cluster}.confirm.{gateway}"


def sequencer_command(cluster: str, sender: Sender) -> str:
    """The subject of one kind of sender's commands; any one sequencer takes a message (queue group `sequencer`)."""
    return f"{ROOT}.{cluster}.sequencer.command.{sender.value}"


def sequencer_command_of_any(cluster: str) -> str:
    """The subject of all commands of release 0.1, which had one for all senders (ADR 0036)."""
    return f"{ROOT}.{cluster}.sequencer.command"


def sequencer_query(cluster: str, name: str) -> str:
    """The subject of reads of the state; any one sequencer takes a message (queue group `sequencer`)."""
    assert name in QUERY_NAMES, f"unknown query {name!r}"
    return f"{ROOT}.{cluster}.sequencer.query.{name}"


def explain(cluster: str) -> str:
    """The subject of questions why an object is kept or deleted, to any one janitor (queue group `janitor`)."""
    return f"{ROOT}.{cluster}.janitor.explain"


def advanced(cluster: str) -> str:
    """The subject of announcements of each journal entry's effects, published by the entry's author."""
    return f"{ROOT}.{cluster}.advanced"


def cache(cluster: str, zone: str, instance: str) -> str:
    """The subject of reads of segment ranges, from one cacher or from the flusher that wrote the segment."""
    return f"{ROOT}.{cluster}.cache.{zone}.{instance}"


def presence(cluster: str, role: str, zone: str, instance: str) -> str:
    """The subject of one instance's presence."""
    return f"{ROOT}.{cluster}.presence.{role}.{zone}.{instance}"


def presence_all(cluster: str) -> str:
    """The wildcard subject of the presence of all instances of the cluster."""
    return f"{ROOT}.{cluster}.presence.>"


def heard(cluster: str) -> str:
    """The subject on which sequencers report to each other the group members that they heard from."""
    return f"{ROOT}.{cluster}.heard"


def journal_stream(cluster: str) -> str:
    """The name of the JetStream stream that is the journal."""
    return f"{ROOT}-journal-{check_token('cluster', cluster)}"


def journal_subject(cluster: str) -> str:
    """The only subject that the journal's stream stores."""
    return f"{ROOT}.{cluster}.journal"


def landing_stream(name: str) -> str:
    """The name of the JetStream stream that is the landing store of this name, by default a cluster's (ADR 0045)."""
    return f"{ROOT}-landing-{check_token('landing store', name)}"


def landing_objects(name: str) -> str:
    """The wildcard subject of all objects in a landing store; each object has a subject of its own."""
    return f"{ROOT}-landing.{check_token('landing store', name)}.>"


SEQUENCER_QUEUE = "sequencer"
JANITOR_QUEUE = "janitor"
