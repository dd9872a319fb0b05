"""The cluster's subscriptions to metrics of clients, in this gateway's memory."""

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
import structlog

from penstock.contracts.configs.client_metrics import INTERVAL, INTERVAL_DEFAULT_MS, METRICS, conditions, items
from penstock.contracts.levels import CLIENT_METRICS_LEVEL
from penstock.contracts.queries.client_metrics import ClientMetricsQuery, ClientMetricsView
from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern
from penstock_gateway.security.state_copy import DEFAULT_LIMITS, CopyLimits, Sequencers, StateCopy
from penstock_gateway.telemetry.subscriptions import Subscription, Wanted, union

log = structlog.get_logger()


class _Selector(msgspec.Struct, frozen=True):
    """A subscription, and its patterns by attribute of a client."""

    subscription: Subscription
    patterns: dict[str, Pattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether the client fulfils all conditions."""
        return all(pattern.matches(attributes[name]) for name, pattern in self.patterns.items())


class SubscriptionCache(StateCopy):
    """The subscriptions in force."""

    def __init__(self, sequencer: Sequencers, limits: CopyLimits = DEFAULT_LIMITS) -> None:
        super().__init__("client_metrics", CLIENT_METRICS_LEVEL, sequencer, limits)
        self._selectors: list[_Selector] = []

    @property
    def is_empty(self) -> bool:
        """Whether it is known that there is no subscription."""
        return self.is_known and not self._selectors

    async def _refresh(self) -> None:
        view = await self._query(ClientMetricsQuery(0, fresh=True), ClientMetricsView)
        self.is_known = True
        if view.altered_sequence > self.sequence:
            self.sequence = view.altered_sequence
            self._selectors = [found for name, each in view.subscriptions.items() if (found := _selector(name, each))]

    async def wanted(self, attributes: Mapping[str, str], timeout_s: float) -> Wanted:
        """All that a client is to push; after a start of the gateway wait until the subscriptions are known."""
        if not self.is_known:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self.refresh()
        return union(each.subscription for each in self._selectors if each.matches(attributes))


def _selector(name: str, configs: dict[str, str]) -> _Selector | None:
    subscription = Subscription(tuple(items(configs.get(METRICS, ""))), int(configs.get(INTERVAL, INTERVAL_DEFAULT_MS)))
    try:
        return _Selector(subscription, {name: Pattern(each) for name, each in conditions(configs).items()})
    except BadPattern as error:  # a sequencer of another release accepts more
        log.warning("client_metrics_pattern_unknown", subscription=name, error=str(error))
        return None
