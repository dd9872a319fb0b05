"""The options of `spark.read.format("penstock")`, with defaults from the environment."""

import os
import re
from collections.abc import Mapping

import msgspec

from penstock.contracts.errors import Invalid
from penstock.spark.config import ClusterAddress, read_address
from penstock.spark.source.offsets import EARLIEST_TEXT, LATEST_TEXT, Place, parse_place

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
# Of one task: large enough that its start costs little, small enough that a repeat after a failure costs little.
SPLIT_BYTES = 64 * 1024 * 1024
SPLIT_BYTES_MIN = 1024 * 1024
# Spark shows every option in its plans, except those whose names say that they are secret.
_KNOWN = {
    "topics": "topics",
    "nats": "nats_url",
    "store": "store_url",
    "cluster": "cluster",
    "natsuser": "nats_user",
    "natspassword": "nats_password",
    "envfile": "env_file",
    "isolation": "isolation",
    "columns": "columns",
    "startingoffsets": "starting",
    "endingoffsets": "ending",
    "startingtimestamp": "starting_timestamp",
    "endingtimestamp": "ending_timestamp",
    "maxbytespersplit": "split_bytes",
    "maxbytespertrigger": "trigger_bytes",
    "maxoffsetspertrigger": "trigger_offsets",
    "failondataloss": "fail_on_data_loss",
    "failoncorruptbatch": "fail_on_corrupt_batch",
}
_NAMES = (
    "topics, startingOffsets, endingOffsets, startingTimestamp, endingTimestamp, columns, isolation, nats, natsUser, "
    "natsPassword, store, cluster, envFile, maxBytesPerSplit, maxBytesPerTrigger, maxOffsetsPerTrigger, "
    "failOnDataLoss, failOnCorruptBatch"
)


class TopicChoice(msgspec.Struct, frozen=True):
    """Topics by name, and by patterns that a whole name must match."""

    names: tuple[str, ...]
    patterns: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        """Whether the topic is chosen."""
        return topic in self.names or any(re.fullmatch(pattern, topic) for pattern in self.patterns)


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a reader of topics."""

    address: ClusterAddress
    topics: TopicChoice
    columns: tuple[str, ...] = COLUMNS
    starting: Place = EARLIEST_TEXT
    ending: Place = LATEST_TEXT
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    split_bytes: int = SPLIT_BYTES
    trigger_bytes: int | None = None
    trigger_offsets: int | None = None
    fail_on_data_loss: bool = True
    fail_on_corrupt_batch: bool = True
    read_committed: bool = True


def read_source_config(
    options: Mapping[str, str], *, streaming: bool = False, environ: Mapping[str, str] | None = None
) -> SourceConfig:
    """The options of a read; the case of their names does not matter. `Invalid` with one sentence for a bad option."""
    given: dict[str, str] = {}
    for name, value in options.items():
        field = _KNOWN.get(name.lower().replace("_", ""))
        if field is None:
            raise Invalid(f"no option {name!r}; the options are {_NAMES}")
        given[field] = value.strip()
    if given.get("isolation", "read_committed") not in ("read_committed", "read_uncommitted"):
        raise Invalid(f"isolation must be read_committed or read_uncommitted: {given['isolation']!r}")
    for side in ("starting", "ending"):
        if side in given and f"{side}_timestamp" in given:
            raise Invalid(f"{side}Offsets and {side}Timestamp exclude each other")
    if streaming and {"ending", "ending_timestamp"} & set(given):
        raise Invalid("a stream has no end: endingOffsets and endingTimestamp are for spark.read")
    return SourceConfig(
        address=read_address(given, os.environ if environ is None else environ),
        topics=_topics(given.get("topics", "")),
        columns=_columns(given.get("columns", "")),
        starting=parse_place("startingOffsets", given.get("starting", LATEST_TEXT if streaming else EARLIEST_TEXT)),
        ending=parse_place("endingOffsets", given.get("ending", LATEST_TEXT)),
        starting_timestamp_ms=_number(given, "starting_timestamp", "startingTimestamp", 0),
        ending_timestamp_ms=_number(given, "ending_timestamp", "endingTimestamp", 0),
        split_bytes=_number(given, "split_bytes", "maxBytesPerSplit", SPLIT_BYTES_MIN) or SPLIT_BYTES,
        trigger_bytes=_number(given, "trigger_bytes", "maxBytesPerTrigger", 1),
        trigger_offsets=_number(given, "trigger_offsets", "maxOffsetsPerTrigger", 1),
        fail_on_data_loss=_boolean(given, "fail_on_data_loss", "failOnDataLoss"),
        fail_on_corrupt_batch=_boolean(given, "fail_on_corrupt_batch", "failOnCorruptBatch"),
        read_committed=given.get("isolation") != "read_uncommitted",
    )


def _topics(text: str) -> TopicChoice:
    """Names and patterns, separated by commas; a text with a character that topic names cannot have is a pattern."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise Invalid('no topics are named: give the option topics, for example "a,b.*"')
    names, patterns = [], []
    for part in parts:
        if re.fullmatch(r"[A-Za-z0-9._-]+", part):
            names.append(part)
            continue
        try:
            re.compile(part)
        except re.error as error:
            raise Invalid(f"topics has an invalid pattern, {part!r}: {error}") from error
        patterns.append(part)
    return TopicChoice(tuple(names), tuple(patterns))


def _columns(text: str) -> tuple[str, ...]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = sorted(set(wanted) - set(COLUMNS))
    if unknown:
        raise Invalid(f"no column {unknown[0]!r}; the columns are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in wanted) if wanted else COLUMNS


def _number(given: Mapping[str, str], field: str, option: str, least: int) -> int | None:
    text = given.get(field)
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise Invalid(f"{option} must be a whole number, at least {least}: {text!r}")
    return int(text)


def _boolean(given: Mapping[str, str], field: str, option: str) -> bool:
    text = given.get(field, "true")
    if text.lower() not in ("true", "false"):
        raise Invalid(f"{option} must be true or false: {text!r}")
    return text.lower() == "true"
