"""Topic configurations of Kafka 4 that Penstock does not support: some are accepted without effect, others rejected.

Scripts, Kafka Streams and Connect set some of them on every topic. A configuration is accepted if Penstock fulfils
every value of it, or if it is about files, replicas or tiers: Penstock has none. A codec is accepted because readers
get the same records. Accepted values are stored and described as they were set. A configuration that promises
something Penstock does not do is rejected by name.
"""

import re
from collections.abc import Callable

import msgspec

from penstock.contracts.configs.values import TopicConfig, only, whole_number

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class InertConfig(msgspec.Struct, frozen=True):
    """A configuration that is accepted without effect: its accepted values, and why it needs no effect."""

    name: str
    kind: str  # Kafka's words: BOOLEAN, INT, LONG, STRING, LIST
    default: str
    low: int
    high: int
    reason: str
    has_effect: bool = False  # the exception: it has the effect that `reason` names, and no other
    validation_error: Callable[[str], str] | None = None  # the check of values that are no numbers
    cluster_name: str = ""  # the name of its cluster default, "" if there is none


SEGMENT_BYTES = "segment.bytes"

_NO_FILES = "There are no log files: segments are shared objects that flushers write."
_DURABLE = "Acknowledged records are already stored in the object store."
_RETENTION = "Retention and compaction work on single runs of records, not on log segments."
_EXCESS = "Its only effect: a log keeps less than so many bytes more than retention.bytes."
_NO_REPLICAS = "There are no replicas: the object store keeps the copies."
_CODEC = "Batches keep the producer's codec, also when they are merged."
_TIERED = "All data is in the object store, and there is no second tier."
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_REPLICAS = re.compile(r"\*|(\d+:\d+(,\d+:\d+)*)?", re.ASCII)
COMPRESSION_TYPE = "compression.type"


def _gzip_level(value: str) -> str:
    return "" if value == "-1" else whole_number(1, 9)(value) and "must be a whole number from 1 to 9, or -1"


def _throttled_replicas(value: str) -> str:
    return "" if _REPLICAS.fullmatch(value) else "must be * or a list PARTITION:BROKER,PARTITION:BROKER,..."


def _codec(name: str, kind: str, default: str, low: int, high: int, check: Callable[[str], str] | None) -> InertConfig:
    return InertConfig(name, kind, default, low, high, _CODEC, validation_error=check, cluster_name=name)


# From level 3 on.
_FIRST_INERT_CONFIGS: dict[str, InertConfig] = {
    config.name: config
    for config in (
        InertConfig("file.delete.delay.ms", "LONG", "60000", 0, LONG_MAX, _NO_FILES),
        InertConfig("flush.messages", "LONG", str(LONG_MAX), 1, LONG_MAX, _DURABLE),
        InertConfig("flush.ms", "LONG", str(LONG_MAX), 0, LONG_MAX, _DURABLE),
        InertConfig("index.interval.bytes", "INT", "4096", 0, INT_MAX, _NO_FILES),
        InertConfig("min.insync.replicas", "INT", "1", 1, INT_MAX, _NO_REPLICAS),
        InertConfig("preallocate", "BOOLEAN", "false", 0, 0, _NO_FILES),
        InertConfig(SEGMENT_BYTES, "INT", "1073741824", 1_048_576, INT_MAX, _EXCESS, has_effect=True),
        InertConfig("segment.index.bytes", "INT", "10485760", 4, INT_MAX, _NO_FILES),
        InertConfig("segment.jitter.ms", "LONG", "0", 0, LONG_MAX, _RETENTION),
        InertConfig("segment.ms", "LONG", "604800000", 1, LONG_MAX, _RETENTION),
        InertConfig("unclean.leader.election.enable", "BOOLEAN", "false", 0, 0, _NO_REPLICAS),
    )
}

# From `KAFKA_VALUES_LEVEL` on; `compression.type` was known before, with the value "producer" alone.
LATER_INERT_CONFIGS: dict[str, InertConfig] = {
    config.name: config
    for config in (
        _codec(COMPRESSION_TYPE, "STRING", "producer", 0, 0, only(*_CODECS)),
        _codec("compression.gzip.level", "INT", "-1", -1, 9, _gzip_level),
        _codec("compression.lz4.level", "INT", "9", 1, 17, None),
        _codec("compression.zstd.level", "INT", "3", -131_072, 22, None),
        InertConfig(
            "follower.replication.throttled.replicas",
            "LIST",
            "",
            0,
            0,
            _NO_REPLICAS,
            validation_error=_throttled_replicas,
        ),
        InertConfig(
            "leader.replication.throttled.replicas",
            "LIST",
            "",
            0,
            0,
            _NO_REPLICAS,
            validation_error=_throttled_replicas,
        ),
        InertConfig("local.retention.bytes", "LONG", "-2", -2, LONG_MAX, _TIERED),
        InertConfig("local.retention.ms", "LONG", "-2", -2, LONG_MAX, _TIERED),
        InertConfig("remote.log.copy.disable", "BOOLEAN", "false", 0, 0, _TIERED),
        InertConfig("remote.log.delete.on.disable", "BOOLEAN", "false", 0, 0, _TIERED),
        InertConfig("remote.storage.enable", "BOOLEAN", "false", 0, 0, _TIERED, validation_error=only("false")),
    )
}

INERT_CONFIGS = _FIRST_INERT_CONFIGS | LATER_INERT_CONFIGS

REJECTED_CONFIGS: dict[str, str] = {
    "message.downconversion.enable": "records are never converted to an older format, nor by Kafka 4",
    "message.format.version": "there is one format of records, as in Kafka 4",
    "message.timestamp.difference.max.ms": "its successors are message.timestamp.before.max.ms and .after.max.ms",
}


def documentation_of(inert: InertConfig) -> str:
    """The text that DescribeConfigs has for it."""
    return inert.reason if inert.has_effect else f"Accepted, and without effect. {inert.reason}"


def config_of(inert: InertConfig) -> TopicConfig:
    """The configuration with its check: a word, a number in its range, or a check of its own."""
    check = only("true", "false") if inert.kind == "BOOLEAN" else whole_number(inert.low, inert.high)
    documentation = documentation_of(inert)
    check = inert.validation_error or check
    return TopicConfig(inert.name, inert.kind, inert.default, documentation, check, inert.cluster_name)


def segment_bytes(configs: dict[str, str]) -> int:
    """So many bytes more than `retention.bytes` may stay in each log of a topic with these configurations."""
    return int(configs.get(SEGMENT_BYTES, INERT_CONFIGS[SEGMENT_BYTES].default))
