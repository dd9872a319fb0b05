"""Configurations of share groups that need level 13 (ADR 0068), of the group and of the topics that it shares.

Names that begin with `penstock` are not Kafka's.
"""

from collections.abc import Iterable

from penstock.contracts.configs.values import TopicConfig, only, whole_number

SHARE_RENEW_ENABLE = "share.renew.acknowledge.enable"
REDELIVERY_DELAY = "penstock.share.redelivery.delay.ms"  # of groups and of topics
REDELIVERY_DELAY_CEILING_MS = 86_400_000  # a delayed record counts as in flight all the time
DELAY_OF_GROUP = -1  # a topic's redelivery delay: each group has its own

_DELAY = "Milliseconds after which a record that a member released is delivered again"

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
    )
}

SHARED_TOPIC_CONFIGS: dict[str, TopicConfig] = {
    REDELIVERY_DELAY: TopicConfig(
        REDELIVERY_DELAY,
        "LONG",
        str(DELAY_OF_GROUP),
        f"{_DELAY}, in all share groups; -1 for the group's own delay.",
        whole_number(DELAY_OF_GROUP, REDELIVERY_DELAY_CEILING_MS),
    )
}


def need_later_share_configs(names: Iterable[str]) -> bool:
    """Whether a release must know the configurations of this module to accept these names of a group."""
    return any(name in LATER_SHARE_CONFIGS for name in names)


def need_shared_topic_configs(names: Iterable[str]) -> bool:
    """Whether a release must know the configurations of this module to accept these names of a topic."""
    return any(name in SHARED_TOPIC_CONFIGS for name in names)


def redelivery_delay_ms(group_configs: dict[str, str], topic_configs: dict[str, str]) -> int:
    """The delay in force for the records of a topic in a group."""
    of_topic = int(topic_configs.get(REDELIVERY_DELAY, DELAY_OF_GROUP))
    return int(group_configs.get(REDELIVERY_DELAY, 0)) if of_topic == DELAY_OF_GROUP else of_topic
