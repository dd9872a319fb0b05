"""Every NATS subject and stream name that Penstock uses, built in this one place (DESIGN section 2)."""

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
    "log_sizes",
    "share_heartbeat",
    "share_partitions",
    "share_groups",
    "share_offsets",
    "group_configs",
    "journal",
)


def flush(cluster: str, zone: str, instance: str) -> str:
    """Produce batches, to one flusher."""
    return f"{ROOT}.{cluster}.flush.{zone}.{instance}"


def sequencer_command(cluster: str) -> str:
    """Commands that change state, to whichever sequencer takes them (queue group `sequencer`)."""
    return f"{ROOT}.{cluster}.sequencer.command"


def sequencer_query(cluster: str, name: str) -> str:
    """Reads of the state, to whichever sequencer takes them (queue group `sequencer`)."""
    assert name in QUERY_NAMES, f"unknown query {name!r}"
    return f"{ROOT}.{cluster}.sequencer.query.{name}"


def explain(cluster: str) -> str:
    """Why an object stays or goes, to whichever janitor takes the question (queue group `janitor`)."""
    return f"{ROOT}.{cluster}.janitor.explain"


def advanced(cluster: str) -> str:
    """What each journal entry added, published by the entry's author."""
    return f"{ROOT}.{cluster}.advanced"


def cache(cluster: str, zone: str, instance: str) -> str:
    """Ranges of segments, to one cacher, or to the flusher that wrote them."""
    return f"{ROOT}.{cluster}.cache.{zone}.{instance}"


def presence(cluster: str, role: str, zone: str, instance: str) -> str:
    """One instance saying that it lives."""
    return f"{ROOT}.{cluster}.presence.{role}.{zone}.{instance}"


def presence_all(cluster: str) -> str:
    """Every instance of the cluster saying that it lives."""
    return f"{ROOT}.{cluster}.presence.>"


def heard(cluster: str) -> str:
    """Group members heard from lately, between sequencers."""
    return f"{ROOT}.{cluster}.heard"


def journal_stream(cluster: str) -> str:
    """The JetStream stream that is the journal."""
    return f"{ROOT}-journal-{check_token('cluster', cluster)}"


def journal_subject(cluster: str) -> str:
    """The one subject that the journal's stream stores."""
    return f"{ROOT}.{cluster}.journal"


SEQUENCER_QUEUE = "sequencer"
JANITOR_QUEUE = "janitor"
