"""Topic configurations that Penstock honours, their defaults and what each accepts; every other is refused by name."""

from collections.abc import Callable

import msgspec

MESSAGE_BYTES_DEFAULT = 1_048_588  # Kafka's own default: 1 MiB and a batch's overhead
MESSAGE_BYTES_CEILING = 8_000_000  # a batch travels whole in one message of the bus, which holds 8 MiB


class TopicConfig(msgspec.Struct, frozen=True):
    """One configuration: Kafka's name, type and default, and why a value is not accepted ("" if it is)."""

    name: str
    kind: str  # Kafka's words: INT, LONG, STRING, LIST
    default: str
    documentation: str
    objection: Callable[[str], str]


def _whole_number(low: int, high: int) -> Callable[[str], str]:
    def objection(value: str) -> str:
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(value) <= high:
            return ""
        return f"must be a whole number from {low} to {high}"

    return objection


def _only(*values: str) -> Callable[[str], str]:
    def objection(value: str) -> str:
        return "" if value in values else f"only {' or '.join(values)} is supported"

    return objection


TOPIC_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig("cleanup.policy", "LIST", "delete", "What happens to old records.", _only("delete")),
        TopicConfig("compression.type", "STRING", "producer", "Batches keep the producer's codec.", _only("producer")),
        TopicConfig(
            "max.message.bytes",
            "INT",
            str(MESSAGE_BYTES_DEFAULT),
            "The largest record batch accepted, in bytes.",
            _whole_number(61, MESSAGE_BYTES_CEILING),
        ),
        TopicConfig(
            "message.timestamp.type",
            "STRING",
            "CreateTime",
            "Whose clock a record's timestamp is.",
            _only("CreateTime"),
        ),
        TopicConfig("retention.bytes", "LONG", "-1", "Bytes kept per partition; -1 keeps all.", _only("-1")),
        TopicConfig("retention.ms", "LONG", "-1", "Milliseconds a record is kept; -1 keeps it for ever.", _only("-1")),
    )
}


def objections(configs: dict[str, str]) -> list[str]:
    """Why these configurations cannot be set, one sentence each; none if they can."""
    found = []
    for name, value in configs.items():
        config = TOPIC_CONFIGS.get(name)
        reason = "is not a supported topic configuration" if config is None else config.objection(value)
        if reason:
            found.append(f"{name} {reason}: {value!r}" if config else f"{name} {reason}")
    return found


def message_bytes_max(configs: dict[str, str]) -> int:
    """The largest record batch that a topic with these configurations accepts, in bytes."""
    return int(configs.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
