"""Each topic configuration has its effect or is rejected by name; none is ignored silently."""

import pytest

from penstock.contracts.configs import topics as topic_configs
from penstock.contracts.configs.unsupported_topics import (
    COMPRESSION_TYPE,
    INERT_CONFIGS,
    LATER_INERT_CONFIGS,
    REJECTED_CONFIGS,
    segment_bytes,
)
from penstock.contracts.levels import INERT_CONFIGS_LEVEL, KAFKA_VALUES_LEVEL, level_of_configs


def test_every_default_is_a_value_that_would_be_accepted() -> None:
    defaults = {name: config.default for name, config in topic_configs.TOPIC_CONFIGS.items()}
    assert topic_configs.validation_errors(defaults) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.config", "1"),
        ("max.message.bytes", "60"),
        ("max.message.bytes", "1e6"),
        ("max.message.bytes", "٣٠٠"),
        ("max.message.bytes", "9" * 30),
        ("cleanup.policy", "compact,"),
        ("cleanup.policy", "compact,compact"),
        ("cleanup.policy", "compacted"),
        ("delete.retention.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", str(2**63)),
        ("min.compaction.lag.ms", "-1"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "-0.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", ""),
        ("min.cleanable.dirty.ratio", "٠"),
        ("retention.ms", "-2"),
        ("retention.ms", "7d"),
        ("retention.bytes", str(2**63)),
        ("penstock.undelete.window.ms", "-1"),
    ],
)
def test_an_unsupported_configuration_is_rejected_by_name(name: str, value: str) -> None:
    (sentence,) = topic_configs.validation_errors({name: value})
    assert name in sentence


def test_the_largest_batch_follows_the_topic() -> None:
    assert topic_configs.message_bytes_max({}) == topic_configs.MESSAGE_BYTES_DEFAULT
    assert topic_configs.message_bytes_max({"max.message.bytes": "2000000"}) == 2_000_000


@pytest.mark.parametrize("value", ["delete", "compact", "compact,delete", "delete,compact", "compact, delete"])
def test_a_cleanup_policy_is_one_or_both(value: str) -> None:
    assert topic_configs.validation_errors({"cleanup.policy": value}) == []
    assert topic_configs.is_compacted({"cleanup.policy": value}) is ("compact" in value)


@pytest.mark.parametrize("value", ["0", "1", "0.5", "1.0", "5e-1", "0.01"])
def test_a_ratio_is_a_number_from_0_to_1(value: str) -> None:
    assert topic_configs.validation_errors({"min.cleanable.dirty.ratio": value}) == []


def test_the_smallest_compaction_lag_is_not_above_the_largest() -> None:
    assert topic_configs.validation_errors({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}) == []
    (sentence,) = topic_configs.validation_errors({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    assert "min.compaction.lag.ms" in sentence and "max.compaction.lag.ms" in sentence


def test_key_compaction_follows_the_topic() -> None:
    assert not topic_configs.is_compacted({})
    assert topic_configs.compaction_configs({}) == topic_configs.CompactionConfigs(0, 2**63 - 1, 0.5, 86_400_000)
    configs = {
        "min.compaction.lag.ms": "1",
        "max.compaction.lag.ms": "2",
        "min.cleanable.dirty.ratio": "0.25",
        "delete.retention.ms": "3",
    }
    assert topic_configs.compaction_configs(configs) == topic_configs.CompactionConfigs(1, 2, 0.25, 3)


@pytest.mark.parametrize(
    ("configs", "needed"),
    [
        ({}, False),
        ({"cleanup.policy": "delete", "max.message.bytes": "100"}, False),
        ({"cleanup.policy": "compact"}, True),
        ({"cleanup.policy": "delete,compact"}, True),
        ({"delete.retention.ms": "1"}, True),
    ],
)
def test_configurations_that_need_key_compaction_are_recognized(configs: dict[str, str], needed: bool) -> None:
    assert topic_configs.need_key_compaction(configs) is needed


@pytest.mark.parametrize(
    ("configs", "needed"),
    [
        ({}, False),
        ({"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "compact"}, False),
        ({"retention.ms": "604800000"}, True),
        ({"retention.bytes": "0"}, True),
        ({"retention.bytes": "-01"}, True),
        ({"penstock.undelete.window.ms": "0"}, True),
        ({"message.timestamp.type": "CreateTime"}, False),
        ({"message.timestamp.type": "LogAppendTime"}, True),
        ({"message.timestamp.before.max.ms": "1"}, True),
        ({"message.timestamp.after.max.ms": "1"}, True),
    ],
)
def test_configurations_that_need_retention_are_recognized(configs: dict[str, str], needed: bool) -> None:
    assert topic_configs.need_retention(configs) is needed


def test_the_topics_value_comes_before_the_clusters_and_before_kafkas_default() -> None:
    cluster = {"log.retention.ms": "5", "log.retention.bytes": "6", "penstock.undelete.window.ms": "7"}
    own = {"retention.ms": "1", "retention.bytes": "2", "penstock.undelete.window.ms": "3"}
    assert topic_configs.retention_configs({}, {}) == topic_configs.RetentionConfigs(604_800_000, -1)
    assert topic_configs.retention_configs({}, cluster) == topic_configs.RetentionConfigs(5, 6)
    assert topic_configs.retention_configs(own, cluster) == topic_configs.RetentionConfigs(1, 2)
    assert topic_configs.undelete_window_ms({}, {}) == 0
    assert topic_configs.undelete_window_ms({}, cluster) == 7
    assert topic_configs.undelete_window_ms(own, cluster) == 3


def test_a_topic_that_is_only_compacted_has_no_retention() -> None:
    own = {"retention.ms": "1", "retention.bytes": "2"}
    kept = topic_configs.retention_configs({"cleanup.policy": "compact", **own}, {})
    assert kept == topic_configs.RetentionConfigs(topic_configs.FOR_EVER, topic_configs.FOR_EVER)
    both = topic_configs.retention_configs({"cleanup.policy": "compact,delete", **own}, {})
    assert both == topic_configs.RetentionConfigs(1, 2)


def test_timestamp_type_and_limits_follow_the_topic() -> None:
    assert not topic_configs.is_append_time({})
    assert topic_configs.is_append_time({"message.timestamp.type": "LogAppendTime"})
    assert topic_configs.timestamp_limits_ms({}) == (2**63 - 1, 2**63 - 1)
    limits = {"message.timestamp.before.max.ms": "1", "message.timestamp.after.max.ms": "2"}
    assert topic_configs.timestamp_limits_ms(limits) == (1, 2)


def test_the_clusters_defaults_have_the_brokers_names() -> None:
    assert topic_configs.cluster_validation_errors({"log.retention.ms": "1", "log.retention.bytes": "-1"}) == []
    for name, value in (("retention.ms", "1"), ("log.retention.hours", "1"), ("log.retention.ms", "-2")):
        (sentence,) = topic_configs.cluster_validation_errors({name: value})
        assert name in sentence


@pytest.mark.parametrize("name", topic_configs.GROUP_CONFIGS)
def test_configurations_of_groups_have_bounds_and_belong_to_the_cluster(name: str) -> None:
    default = topic_configs.GROUP_CONFIGS[name].default
    assert topic_configs.cluster_validation_errors({name: default}) == []
    assert topic_configs.group_config(name, {}) == int(default)
    for value in ("-1", str(2**31), "many", ""):
        assert topic_configs.cluster_validation_errors({name: value})
    assert topic_configs.validation_errors({name: default})


def test_the_shortest_session_timeout_is_not_longer_than_the_longest() -> None:
    both = {"group.min.session.timeout.ms": "9000", "group.max.session.timeout.ms": "8999"}
    (sentence,) = topic_configs.cluster_validation_errors(both)
    assert "must not be larger" in sentence
    assert topic_configs.cluster_validation_errors(both | {"group.max.session.timeout.ms": "9000"}) == []


# All topic configurations of Kafka 4.4, without the internal ones.
KAFKAS = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


@pytest.mark.parametrize("name", KAFKAS)
def test_each_of_kafkas_configurations_is_either_accepted_or_rejected_with_a_reason(name: str) -> None:
    assert (name in topic_configs.TOPIC_CONFIGS) != (name in REJECTED_CONFIGS)
    if name in REJECTED_CONFIGS:
        (validation_error,) = topic_configs.validation_errors({name: "1"})
        assert validation_error == f"{name} is not a supported topic configuration: {REJECTED_CONFIGS[name]}"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("segment.ms", "600000", "0"),
        ("min.insync.replicas", "2", "0"),
        ("unclean.leader.election.enable", "false", "no"),
        ("preallocate", "true", ""),
        ("flush.messages", "1", "0"),
        ("file.delete.delay.ms", "0", "-1"),
    ],
)
def test_configurations_without_effect_still_need_valid_values(name: str, good: str, bad: str) -> None:
    assert topic_configs.validation_errors({name: good}) == []
    assert topic_configs.validation_errors({name: bad}) != []
    assert topic_configs.TOPIC_CONFIGS[name].documentation.startswith("Accepted, and without effect.")


def test_the_only_effect_of_segment_bytes_is_on_retention() -> None:
    assert topic_configs.validation_errors({"segment.bytes": "52428800"}) == []
    assert topic_configs.validation_errors({"segment.bytes": "1000"}) != []
    assert "retention.bytes" in topic_configs.TOPIC_CONFIGS["segment.bytes"].documentation
    assert (segment_bytes({}), segment_bytes({"segment.bytes": "52428800"})) == (2**30, 52_428_800)


# Values that a broker of Kafka 4.4.0 accepted, and rejected, when topics were created with them.
ACCEPTED_BY_KAFKA = [
    *[("compression.type", codec) for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer")],
    *[("compression.gzip.level", level) for level in ("-1", "1", "9")],
    *[("compression.lz4.level", level) for level in ("1", "17")],
    *[("compression.zstd.level", level) for level in ("-131072", "0", "22")],
    *[("remote.log.copy.disable", value) for value in ("false", "true")],
    *[("remote.log.delete.on.disable", value) for value in ("false", "true")],
    *[("local.retention.ms", value) for value in ("-2", "-1", "1000")],
    *[("local.retention.bytes", value) for value in ("-2", "1000")],
    *[("leader.replication.throttled.replicas", value) for value in ("", "*", "0:1,1:2")],
    ("remote.storage.enable", "false"),
    ("unclean.leader.election.enable", "true"),
    ("preallocate", "true"),
    ("cleanup.policy", ""),
]
REJECTED_BY_KAFKA = [
    *[("compression.type", codec) for codec in ("none", "GZIP", "brotli", "")],
    *[("compression.gzip.level", level) for level in ("0", "10")],
    *[("compression.lz4.level", level) for level in ("0", "18")],
    *[("compression.zstd.level", level) for level in ("-131073", "23")],
    ("local.retention.bytes", "-3"),
    ("remote.storage.enable", "true"),
    ("follower.replication.throttled.replicas", "abc"),
    ("message.downconversion.enable", "false"),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED_BY_KAFKA)
def test_a_value_that_kafka_accepts_is_accepted(name: str, value: str) -> None:
    assert topic_configs.validation_errors({name: value}) == []


@pytest.mark.parametrize(("name", "value"), REJECTED_BY_KAFKA)
def test_a_value_that_kafka_rejects_is_rejected(name: str, value: str) -> None:
    (sentence,) = topic_configs.validation_errors({name: value})
    assert name in sentence


def test_codecs_and_their_levels_may_be_defaults_of_the_cluster() -> None:
    assert topic_configs.cluster_validation_errors({"compression.type": "gzip", "compression.zstd.level": "5"}) == []
    for name, value in (("compression.type", "bzip"), ("compression.lz4.level", "99")):
        assert topic_configs.cluster_validation_errors({name: value})


def test_without_a_cleanup_policy_records_stay_for_ever() -> None:
    own = {"cleanup.policy": "", "retention.ms": "1", "retention.bytes": "2"}
    assert not topic_configs.is_compacted(own)
    forever = topic_configs.FOR_EVER
    assert topic_configs.retention_configs(own, {}) == topic_configs.RetentionConfigs(forever, forever)


@pytest.mark.parametrize("name", INERT_CONFIGS)
def test_configurations_without_effect_need_their_level(name: str) -> None:
    level = KAFKA_VALUES_LEVEL if name in LATER_INERT_CONFIGS else INERT_CONFIGS_LEVEL
    assert level_of_configs({name: INERT_CONFIGS[name].default}) == (0 if name == COMPRESSION_TYPE else level)
    assert level_of_configs({"retention.ms": "1"}) < INERT_CONFIGS_LEVEL
