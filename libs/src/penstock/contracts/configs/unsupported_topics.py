"""Topic configurations of Kafka 4 that Penstock does not support: some are accepted without effect, others rejected.

Scripts, Kafka Streams and Connect set some of them on every topic. A configuration is accepted if Penstock fulfils
every value of it, or if it is about files or replicas: Penstock has none. Accepted values are stored and described as
they were set. A configuration that promises something Penstock does not do is rejected by name.
"""

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class InertConfig(msgspec.Struct, frozen=True):
    """A configuration that is accepted without effect: its accepted values, and why it needs no effect."""

    name: str
    kind: str  # Kafka's words: BOOLEAN, INT, LONG
    default: str
    low: int
    high: int
    reason: str
    has_effect: bool = False  # the exception: it has the effect that `reason` names, and no other


SEGMENT_BYTES = "segment.bytes"

_NO_FILES = "There are no log files: segments are shared objects that flushers write."
_DURABLE = "Acknowledged records are already stored in the object store."
_RETENTION = "Retention and compaction work on single runs of records, not on log segments."
_EXCESS = "Its only effect: a log keeps less than so many bytes more than retention.bytes."
_NO_REPLICAS = "There are no replicas: the object store keeps the copies."

INERT_CONFIGS: dict[str, InertConfig] = {
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

_TIERED = "all data is in the object store, and there is no second tier"
_THROTTLED = "there are no replicas whose traffic could be throttled"
_CODEC = "batches keep the producer's codec"

REJECTED_CONFIGS: dict[str, str] = {
    "compression.gzip.level": _CODEC,
    "compression.lz4.level": _CODEC,
    "compression.zstd.level": _CODEC,
    "follower.replication.throttled.replicas": _THROTTLED,
    "leader.replication.throttled.replicas": _THROTTLED,
    "local.retention.bytes": _TIERED,
    "local.retention.ms": _TIERED,
    "message.downconversion.enable": "records are never converted to an older format, nor by Kafka 4",
    "message.format.version": "there is one format of records, as in Kafka 4",
    "message.timestamp.difference.max.ms": "its successors are message.timestamp.before.max.ms and .after.max.ms",
    "remote.log.copy.disable": _TIERED,
    "remote.log.delete.on.disable": _TIERED,
    "remote.storage.enable": _TIERED,
}


def documentation_of(inert: InertConfig) -> str:
    """The text that DescribeConfigs has for it."""
    return inert.reason if inert.has_effect else f"Accepted, and without effect. {inert.reason}"


def segment_bytes(configs: dict[str, str]) -> int:
    """So many bytes more than `retention.bytes` may stay in each log of a topic with these configurations."""
    return int(configs.get(SEGMENT_BYTES, INERT_CONFIGS[SEGMENT_BYTES].default))
