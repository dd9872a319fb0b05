"""The subscriptions to metrics of clients (KIP-714), read as the user."""

import msgspec
from kafka.protocol.admin import DescribeConfigsRequest, ListConfigResourcesRequest

from penstock.cli.kafka.messages import ask_any
from penstock.cli.kafka.session import Session, check_ok
from penstock.contracts.configs.client_metrics import INTERVAL, INTERVAL_DEFAULT_MS, MATCH, METRICS, items

CLIENT_METRICS = 16  # a resource type of Kafka


class MetricsSubscription(msgspec.Struct, frozen=True):
    """A subscription: the metrics that its clients push, and how often."""

    name: str
    metrics: list[str]  # prefixes of names; `*` for all
    interval_seconds: float
    match: list[str]  # conditions that a client must all fulfil; none: all clients


def read_subscriptions(session: Session) -> list[MetricsSubscription]:
    """All subscriptions, by name; `Invalid` with the cluster's reason if the user may not see them."""
    listed = ask_any(session, ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]))
    check_ok(listed.error_code, None, "the subscriptions are not listed")
    names = sorted(each.resource_name for each in listed.config_resources)
    if not names:
        return []
    kind = DescribeConfigsRequest.DescribeConfigsResource
    wanted = [kind(resource_type=CLIENT_METRICS, resource_name=each, configuration_keys=None) for each in names]
    answer = ask_any(session, DescribeConfigsRequest(resources=wanted, include_synonyms=False))
    found = []
    for each in answer.results:
        check_ok(each.error_code, each.error_message, f"subscription {each.resource_name!r}")
        found.append(_subscription(each.resource_name, {config.name: config.value or "" for config in each.configs}))
    return found


def _subscription(name: str, configs: dict[str, str]) -> MetricsSubscription:
    interval_ms = int(configs.get(INTERVAL, INTERVAL_DEFAULT_MS))
    return MetricsSubscription(name, items(configs.get(METRICS, "")), interval_ms / 1000, items(configs.get(MATCH, "")))
