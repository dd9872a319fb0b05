"""A topic's configurations as Kafka clients see them: what was set, what is the default, and where each comes from."""

import enum

import msgspec

from penstock.contracts.topic_configs import TOPIC_CONFIGS, TopicConfig


class ConfigSource(enum.IntEnum):
    """Where a value comes from, in Kafka's numbers (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


CONFIG_TYPES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}  # Kafka's numbers (KIP-569)


class Setting(msgspec.Struct, frozen=True):
    """One configuration of one topic."""

    config: TopicConfig
    value: str
    source: ConfigSource


def settings_of(configs: dict[str, str]) -> list[Setting]:
    """Every configuration that a topic has, given those that were set."""
    return [
        Setting(config, configs.get(name, config.default), _source(name, configs))
        for name, config in TOPIC_CONFIGS.items()
    ]


def _source(name: str, configs: dict[str, str]) -> ConfigSource:
    return ConfigSource.TOPIC if name in configs else ConfigSource.DEFAULT
