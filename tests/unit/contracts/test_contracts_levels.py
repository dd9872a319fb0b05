"""Every topic configuration has the level that its name needs; a replica below that level rejects the name."""

from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.contracts.levels import level_of_changed_configs, level_of_cluster_configs, level_of_configs

# A name that is not here yet is new: it needs a new level, or a replica of the last release rejects it (ADR 0008).
NAMES = {
    0: {"cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type", "retention.bytes"},
    1: {"delete.retention.ms", "max.compaction.lag.ms", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"},
    2: {
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "penstock.undelete.window.ms",
        "retention.ms",
    },
    3: {
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "min.insync.replicas",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    },
    5: {"penstock.check.records"},
    8: {"penstock.lane"},
    10: {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    },
    12: {"penstock.replicas"},
    13: {"errors.deadletterqueue.group.enable", "penstock.share.redelivery.delay.ms"},
}


def test_every_name_of_a_topic_configuration_has_its_level() -> None:
    levels = {name: level_of_configs({name: config.default}) for name, config in TOPIC_CONFIGS.items()}
    assert levels == {name: level for level, names in NAMES.items() for name in names}


def test_compaction_by_key_needs_level_1() -> None:
    assert level_of_configs({"cleanup.policy": "compact"}) == 1


def test_codecs_and_an_empty_policy_need_level_10() -> None:
    assert level_of_configs({"compression.type": "producer"}) == 0
    assert level_of_configs({"compression.type": "zstd"}) == 10
    assert level_of_configs({"cleanup.policy": ""}) == 10
    assert level_of_configs({"compression.type": "zstd", "penstock.lane": "express"}) == 10


def test_names_that_older_replicas_reject_need_their_level_even_when_they_are_removed() -> None:
    assert level_of_changed_configs({}, ["compression.zstd.level"]) == 10
    assert level_of_changed_configs({}, ["compression.type"]) == 0
    assert level_of_changed_configs({}, ["penstock.lane"]) == 0
    assert level_of_changed_configs({}, ["penstock.share.redelivery.delay.ms"]) == 13
    assert level_of_cluster_configs({}, ["compression.type"]) == 10
    assert level_of_cluster_configs({"compression.zstd.level": "3"}, []) == 10
    assert level_of_cluster_configs({}, ["penstock.broker.7.num.io.threads"]) == 14
    assert level_of_cluster_configs({"log.retention.ms": "3"}, ["log.retention.ms"]) == 0
    assert level_of_cluster_configs({}, ["errors.deadletterqueue.topic.name.prefix"]) == 13


def test_the_highest_level_of_several_names_counts() -> None:
    assert level_of_configs({"retention.ms": "1", "min.compaction.lag.ms": "1", "flush.ms": "1"}) == 3
