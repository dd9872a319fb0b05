"""Subscriptions to metrics of clients (KIP-714): the state machine keeps them, and gateways apply them.

As with client quotas, the sender of a change must have seen the last change of any subscription (`seen_sequence`).
"""

from penstock.contracts.commands import AlterClientMetrics, Done, Rejected
from penstock.contracts.configs.client_metrics import (
    CLIENT_METRICS_CONFIGS,
    NAME_LENGTH_MAX,
    client_metrics_validation_errors,
)
from penstock.contracts.queries.client_metrics import ClientMetricsQuery, ClientMetricsView
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.state.cluster import Changes, State
from penstock_sequencer.core.topics.configs import changed


def alter_client_metrics(state: State, command: AlterClientMetrics, changes: Changes) -> Done | Rejected:
    """Change, create or remove the subscription."""
    altered = _altered(state, command)
    if isinstance(altered, Rejected):
        return altered
    if altered == state.client_metrics.get(command.name, {}):
        return Done()
    if altered:
        state.client_metrics[command.name] = altered
    else:
        del state.client_metrics[command.name]
    state.metrics_altered_sequence = state.sequence
    return Done()


def check_alter_client_metrics(state: State, command: AlterClientMetrics) -> Done | Rejected:
    """The outcome that `alter_client_metrics` would have."""
    altered = _altered(state, command)
    return altered if isinstance(altered, Rejected) else Done()


def client_metrics(state: State, query: ClientMetricsQuery) -> ClientMetricsView:
    """All subscriptions."""
    return ClientMetricsView(state.sequence, state.metrics_altered_sequence, dict(state.client_metrics))


def _altered(state: State, command: AlterClientMetrics) -> dict[str, str] | Rejected:
    """The configurations that the subscription sets after the command."""
    if not command.name:
        return Rejected(Rejection.INVALID_REQUEST, "Subscription name can't be empty")
    if len(command.name) > NAME_LENGTH_MAX:
        return Rejected(Rejection.INVALID_REQUEST, f"the name of a subscription has 1 to {NAME_LENGTH_MAX} characters")
    before = state.client_metrics.get(command.name, {})
    after = changed(command, before, CLIENT_METRICS_CONFIGS.get, client_metrics_validation_errors)
    if isinstance(after, Rejected) or after == before:
        return after
    if 0 <= command.seen_sequence < state.metrics_altered_sequence:
        return Rejected(Rejection.STALE, "subscriptions to metrics have been changed since")
    subscriptions_max = state.limits.topics.metrics_subscriptions_max
    if not before and len(state.client_metrics) >= subscriptions_max:
        return Rejected(Rejection.INVALID_REQUEST, f"there are {subscriptions_max} subscriptions to metrics already")
    return after
