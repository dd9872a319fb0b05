"""Configurations of share groups that need level 13 (ADR 0068), of the group and of the topics that it shares.

Names that begin with `penstock` are not Kafka's.
"""

from collections.abc import Iterable

from penstock.contracts.configs.values import TopicConfig, only, whole_number
from penstock.contracts.ids import is_legal_topic_name

SHARE_RENEW_ENABLE = "share.renew.acknowledge.enable"
REDELIVERY_DELAY = "penstock.share.redelivery.delay.ms"  # of groups and of topics
REDELIVERY_DELAY_CEILING_MS = 86_400_000  # a delayed record counts as in flight all the time
DELAY_OF_GROUP = -1  # a topic's redelivery delay: each group has its own
# Dead letters (KIP-1191): of groups, of topics, and of the cluster.
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY = "errors.deadletterqueue.copy.record.enable"
DEAD_LETTERS_ALLOWED = "errors.deadletterqueue.group.enable"
DEAD_LETTER_PREFIX = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTER_TOPICS_CREATED = "errors.deadletterqueue.auto.create.topics.enable"

_DELAY = "Milliseconds after which a record that a member released is delivered again"


def _dead_letter_topic(value: str) -> str:
    if value.startswith("__"):
        return "must not begin with __"
    return "" if not value or is_legal_topic_name(value) else "must be the name of a topic, or empty"


def _prefix(value: str) -> str:
    return "" if is_legal_topic_name(f"{value}a") else "must be the beginning of a topic's name, or empty"


LATER_SHARE_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            SHARE_RENEW_ENABLE,
            "BOOLEAN",
            "true",
            "Whether members of a share group may renew the locks on their records.",
            only("true", "false"),
        ),
        TopicConfig(
            REDELIVERY_DELAY,
            "LONG",
            "0",
            f"{_DELAY}, unless its topic has a delay of its own.",
            whole_number(0, REDELIVERY_DELAY_CEILING_MS),
        ),
        TopicConfig(
            DEAD_LETTER_TOPIC,
            "STRING",
            "",
            "The topic for the group's dead letters: records that it rejected, or delivered as often as allowed.",
            _dead_letter_topic,
        ),
        TopicConfig(
            DEAD_LETTER_COPY,
            "BOOLEAN",
            "false",
            "Whether a dead letter has the record's key, value and headers, and not only the context in its headers.",
            only("true", "false"),
        ),
    )
}

SHARED_TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            REDELIVERY_DELAY,
            "LONG",
            str(DELAY_OF_GROUP),
            f"{_DELAY}, in all share groups; -1 for the group's own delay.",
            whole_number(DELAY_OF_GROUP, REDELIVERY_DELAY_CEILING_MS),
        ),
        TopicConfig(
            DEAD_LETTERS_ALLOWED,
            "BOOLEAN",
            "false",
            "Whether share groups may write dead letters to this topic.",
            only("true", "false"),
        ),
    )
}

DEAD_LETTER_CLUSTER_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            DEAD_LETTER_PREFIX,
            "STRING",
            "dlq.",
            "The beginning of the names of topics for dead letters of share groups; empty for any name.",
            _prefix,
            DEAD_LETTER_PREFIX,
        ),
        TopicConfig(
            DEAD_LETTER_TOPICS_CREATED,
            "BOOLEAN",
            "false",
            "Whether a missing topic for dead letters of share groups is created.",
            only("true", "false"),
            DEAD_LETTER_TOPICS_CREATED,
        ),
    )
}


def need_later_share_configs(names: Iterable[str]) -> bool:
    """Whether a release must know the configurations of this module to accept these names of a group."""
    return any(name in LATER_SHARE_CONFIGS for name in names)


def need_shared_topic_configs(names: Iterable[str]) -> bool:
    """Whether a release must know the configurations of this module to accept these names of a topic."""
    return any(name in SHARED_TOPIC_CONFIGS for name in names)


def need_dead_letter_configs(names: Iterable[str]) -> bool:
    """Whether a release must know dead letters to accept these names of the cluster."""
    return any(name in DEAD_LETTER_CLUSTER_CONFIGS for name in names)


def dead_letter_prefix(cluster_configs: dict[str, str]) -> str:
    """The beginning that names of topics for dead letters must have."""
    return cluster_configs.get(DEAD_LETTER_PREFIX, DEAD_LETTER_CLUSTER_CONFIGS[DEAD_LETTER_PREFIX].default)


def creates_dead_letter_topics(cluster_configs: dict[str, str]) -> bool:
    """Whether a missing topic for dead letters is created."""
    return cluster_configs.get(DEAD_LETTER_TOPICS_CREATED) == "true"


def allows_dead_letters(topic_configs: dict[str, str]) -> bool:
    """Whether share groups may write dead letters to a topic with these configurations."""
    return topic_configs.get(DEAD_LETTERS_ALLOWED) == "true"


def redelivery_delay_ms(group_configs: dict[str, str], topic_configs: dict[str, str]) -> int:
    """The delay in force for the records of a topic in a group."""
    of_topic = int(topic_configs.get(REDELIVERY_DELAY, DELAY_OF_GROUP))
    return int(group_configs.get(REDELIVERY_DELAY, 0)) if of_topic == DELAY_OF_GROUP else of_topic
