"""The rules that a topic's configurations make for produced batches. Pure."""

import msgspec

from penstock.contracts.configs.topics import (
    CHECK_RECORDS,
    is_append_time,
    is_compacted,
    is_express,
    message_bytes_max,
    timestamp_limits_ms,
)
from penstock.contracts.configs.values import LONG_MAX
from penstock_gateway.produce.record_validation import RecordRules, TimeWindow


class TopicRules(msgspec.Struct, frozen=True):
    """The rules of one topic."""

    batch_bytes_max: int
    needs_keys: bool = False
    append_time: bool = False  # timestamps are those of the gateway's clock
    checks_records: bool = True  # the framing of each record
    # How far from the gateway's clock a record's timestamp may be, before and after; None without a limit.
    distances_ms: tuple[int, int] | None = None
    is_express: bool = False  # its lane


WITHOUT_CONFIGS = TopicRules(message_bytes_max({}))


def rules_of(configs: dict[str, str]) -> TopicRules:
    """The rules that these configurations make."""
    if not configs:
        return WITHOUT_CONFIGS
    append_time = is_append_time(configs)
    distances_ms = timestamp_limits_ms(configs)
    is_limited = not append_time and min(distances_ms) < LONG_MAX
    return TopicRules(
        message_bytes_max(configs),
        is_compacted(configs),
        append_time,
        configs.get(CHECK_RECORDS) != "false",
        distances_ms if is_limited else None,
        is_express(configs),
    )


def record_rules(rules: TopicRules, now_ms: int) -> RecordRules | None:
    """The rules for the records of a batch that arrives now, None if they are not checked at all."""
    if rules.distances_ms is None:
        return RecordRules(rules.needs_keys) if rules.needs_keys or rules.checks_records else None
    before_ms, after_ms = rules.distances_ms
    return RecordRules(rules.needs_keys, TimeWindow(now_ms - before_ms, now_ms + after_ms))
