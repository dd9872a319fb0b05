"""Configurations as Kafka clients see them: the values in force, their sources, and the fallback values."""

import enum

import msgspec

from penstock.contracts.configs.brokers import BROKER_CONFIGS, config_of_kept, configs_of_broker
from penstock.contracts.configs.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.contracts.configs.groups import GROUP_RESOURCE_CONFIGS
from penstock.contracts.configs.topics import CLUSTER_CONFIGS, TOPIC_CONFIGS
from penstock.contracts.configs.values import TopicConfig
from penstock.contracts.levels import CLIENT_METRICS_LEVEL, SHARE_GROUPS_LEVEL
from penstock.contracts.queries.client_metrics import ClientMetricsQuery, ClientMetricsView
from penstock.contracts.queries.groups import GroupConfigsQuery, GroupConfigsView
from penstock.contracts.queries.topics import ClusterConfigsQuery, ClusterConfigsView
from penstock.runtime.bus.listings import all_configured_groups
from penstock_gateway.kafka.parts import HasSequencer

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32  # types of resources that have configurations
CONFIGS_DEADLINE_S = 5.0  # sequencers of an earlier release do not know the query, and do not answer


class ConfigSource(enum.IntEnum):
    """Where a value comes from, in Kafka's numbers (KIP-226)."""

    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


CONFIG_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
}  # Kafka's numbers (KIP-569)


# Kafka's broker names for the defaults of configurations that Penstock sets for topics only.
BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
}


class Synonym(msgspec.Struct, frozen=True):
    """A value that is in force unless an earlier synonym is."""

    name: str
    value: str
    source: ConfigSource


class Setting(msgspec.Struct, frozen=True):
    """One configuration, by the name that its resource has for it; the first synonym is in force."""

    name: str
    config: TopicConfig
    synonyms: list[Synonym]

    @property
    def value(self) -> str:
        """The value in force."""
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        """The source of the value in force."""
        return self.synonyms[0].source


async def cluster_configs(gateway: HasSequencer, deadline_s: float = CONFIGS_DEADLINE_S) -> dict[str, str]:
    """The defaults that were set for all topics, by brokers' names; `Unavailable` if no sequencer answers."""
    view = await gateway.sequencer.query(
        "cluster_configs", ClusterConfigsQuery(0, fresh=True), ClusterConfigsView, deadline_s=deadline_s
    )
    return view.configs


async def group_configs(gateway: HasSequencer, group_ids: list[str]) -> dict[str, dict[str, str]]:
    """The configurations set for each of these groups; `Unavailable` if no sequencer answers."""
    level = gateway.sequencer.seen_level
    if level is not None and level < SHARE_GROUPS_LEVEL:
        return {group_id: {} for group_id in group_ids}
    view = await gateway.sequencer.query(
        "group_configs", GroupConfigsQuery(0, group_ids, fresh=True), GroupConfigsView, deadline_s=CONFIGS_DEADLINE_S
    )
    return dict(zip(group_ids, view.configs, strict=True))


async def groups_with_configs(gateway: HasSequencer) -> list[str]:
    """The groups with configurations, also those that do not exist; `Unavailable` if no sequencer answers."""
    level = gateway.sequencer.seen_level
    if level is not None and level < SHARE_GROUPS_LEVEL:  # there is none, and older sequencers do not answer
        return []
    return await all_configured_groups(gateway.sequencer, CONFIGS_DEADLINE_S)


async def metrics_subscriptions(gateway: HasSequencer) -> dict[str, dict[str, str]]:
    """The configurations of all subscriptions to metrics, by name; `Unavailable` if no sequencer answers."""
    level = gateway.sequencer.seen_level
    if level is not None and level < CLIENT_METRICS_LEVEL:  # there is none, and older sequencers do not answer
        return {}
    view = await gateway.sequencer.query(
        "client_metrics", ClientMetricsQuery(0, fresh=True), ClientMetricsView, deadline_s=CONFIGS_DEADLINE_S
    )
    return view.subscriptions


def group_settings(configs: dict[str, str], cluster: dict[str, str]) -> list[Setting]:
    """Every configuration of a group, given those that were set for it and for the cluster."""
    settings = []
    for name, config in GROUP_RESOURCE_CONFIGS.items():
        own = [Synonym(name, configs[name], ConfigSource.GROUP)] if name in configs else []
        settings.append(Setting(name, config, own + _defaults(config, cluster)))
    return settings


def subscription_settings(configs: dict[str, str]) -> list[Setting]:
    """Every configuration of a subscription to metrics, given those that were set for it."""
    return _settings(CLIENT_METRICS_CONFIGS, configs, ConfigSource.CLIENT_METRICS)


def _settings(known: dict[str, TopicConfig], configs: dict[str, str], source: ConfigSource) -> list[Setting]:
    """Every configuration of a resource, given those that were set for it; its defaults are fixed."""
    settings = []
    for name, config in known.items():
        own = [Synonym(name, configs[name], source)] if name in configs else []
        settings.append(Setting(name, config, [*own, Synonym(name, config.default, ConfigSource.DEFAULT)]))
    return settings


def settings_of(configs: dict[str, str], cluster: dict[str, str]) -> list[Setting]:
    """Every configuration of a topic, given those that were set for it and for the cluster."""
    settings = []
    for name, config in TOPIC_CONFIGS.items():
        own = [Synonym(name, configs[name], ConfigSource.TOPIC)] if name in configs else []
        settings.append(Setting(name, config, own + _defaults(config, cluster)))
    return settings


def cluster_settings(cluster: dict[str, str]) -> list[Setting]:
    """Every default that a cluster can have, given those that were set."""
    return [Setting(name, config, _defaults(config, cluster)) for name, config in CLUSTER_CONFIGS.items()]


def set_for_cluster(cluster: dict[str, str]) -> list[Setting]:
    """The configurations that were set for the cluster, also those of single brokers by the names that keep them."""
    found = [setting for setting in cluster_settings(cluster) if setting.source == ConfigSource.CLUSTER]
    for name in cluster:
        config = config_of_kept(name)
        if config is not None:
            found.append(Setting(name, config, [Synonym(name, cluster[name], ConfigSource.CLUSTER)]))
    return found


def set_for_broker(broker_id: int, cluster: dict[str, str]) -> list[Setting]:
    """The configurations that were set for one broker, out of the cluster's."""
    configs = configs_of_broker(broker_id, cluster)
    known = {name: BROKER_CONFIGS[name] for name in configs if name in BROKER_CONFIGS}
    return _settings(known, configs, ConfigSource.BROKER)


def _defaults(config: TopicConfig, cluster: dict[str, str]) -> list[Synonym]:
    name = config.cluster_name or BROKER_NAMES.get(config.name, config.name)
    set_here = [Synonym(name, cluster[name], ConfigSource.CLUSTER)] if name in cluster else []
    return [*set_here, Synonym(name, config.default, ConfigSource.DEFAULT)]
