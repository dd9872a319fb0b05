"""Configurations of a subscription to metrics of clients (Kafka's CLIENT_METRICS resource, KIP-714)."""

from penstock.contracts.configs.values import TopicConfig
from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern

METRICS = "metrics"
INTERVAL = "interval.ms"
MATCH = "match"
INTERVAL_DEFAULT_MS = 300_000
INTERVAL_MIN_MS, INTERVAL_MAX_MS = 100, 3_600_000
CLIENT_INSTANCE_ID = "client_instance_id"
CLIENT_ID = "client_id"
SOFTWARE_NAME = "client_software_name"
SOFTWARE_VERSION = "client_software_version"
SOURCE_ADDRESS = "client_source_address"
SOURCE_PORT = "client_source_port"
ATTRIBUTES = (CLIENT_INSTANCE_ID, CLIENT_ID, SOFTWARE_NAME, SOFTWARE_VERSION, SOURCE_ADDRESS, SOURCE_PORT)
NAME_LENGTH_MAX = 255  # characters of a subscription's name
VALUE_LENGTH_MAX = 1_000  # characters; gateways accept no longer values for any configuration
INT_MIN, INT_MAX = -(2**31), 2**31 - 1


def items(value: str) -> list[str]:
    """The elements of a list, without blanks around them and without empty ones."""
    return [item.strip() for item in value.split(",") if item.strip()]


def _metrics_error(value: str) -> str:
    return ""


def _interval_error(value: str) -> str:
    digits = value.strip().removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 10
    if not is_number or not INT_MIN <= int(value) <= INT_MAX:
        return f"Invalid value {value} for configuration {INTERVAL}: Not a number of type INT"
    if not INTERVAL_MIN_MS <= int(value) <= INTERVAL_MAX_MS:
        return f"Invalid value {int(value)} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
    return ""


def _match_error(value: str) -> str:
    for item in items(value):
        name, pattern = _condition(item)
        if name not in ATTRIBUTES or not pattern or "=" in pattern:
            return f"Illegal client matching pattern: {item}"
        try:
            Pattern(pattern)
        except BadPattern as error:
            return f"Illegal client matching pattern: {item} ({error})"
    return ""


# The checks give whole sentences, those of Kafka.
CLIENT_METRICS_CONFIGS: dict[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            METRICS, "LIST", "", "Prefixes of the names of the metrics that clients push; `*` for all.", _metrics_error
        ),
        TopicConfig(
            INTERVAL,
            "INT",
            str(INTERVAL_DEFAULT_MS),
            "Milliseconds between two pushes of a client, from 100 to 3600000.",
            _interval_error,
        ),
        TopicConfig(
            MATCH,
            "LIST",
            "",
            "Conditions `ATTRIBUTE=PATTERN` that a client must all fulfil; without one all clients match.",
            _match_error,
        ),
    )
}


def client_metrics_validation_errors(configs: dict[str, str]) -> list[str]:
    """The reasons why a subscription cannot have these configurations, one sentence each."""
    found = []
    for name, value in configs.items():
        config = CLIENT_METRICS_CONFIGS.get(name)
        if config is None:
            found.append(f"Unknown client metrics configuration: {name}")
        elif len(value) > VALUE_LENGTH_MAX:
            found.append(f"the value of {name} is longer than {VALUE_LENGTH_MAX} characters")
        elif reason := config.validation_error(value):
            found.append(reason)
    return found


def conditions(configs: dict[str, str]) -> dict[str, str]:
    """The patterns of a subscription by attribute; of two for one attribute the last one counts, as in Kafka."""
    return dict(map(_condition, items(configs.get(MATCH, ""))))


def _condition(item: str) -> tuple[str, str]:
    name, _, pattern = item.partition("=")
    return name.strip(), pattern.strip()
