"""Every topic configuration has the level that its name needs; a replica below that level rejects the name."""

from penstock.contracts.configs.topics import TOPIC_CONFIGS
from penstock.contracts.levels import level_of_configs

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
}


def test_every_name_of_a_topic_configuration_has_its_level() -> None:
    levels = {name: level_of_configs({name: config.default}) for name, config in TOPIC_CONFIGS.items()}
    assert levels == {name: level for level, names in NAMES.items() for name in names}


def test_compaction_by_key_needs_level_1() -> None:
    assert level_of_configs({"cleanup.policy": "compact"}) == 1


def test_the_highest_level_of_several_names_counts() -> None:
    assert level_of_configs({"retention.ms": "1", "min.compaction.lag.ms": "1", "flush.ms": "1"}) == 3
