"""The cluster's subscriptions to metrics of clients, in this gateway's memory.

Every announcement contains the sequence of the entry that changed a subscription last. A gateway queries them when it
starts, and when it sees a newer sequence.
"""

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
import structlog

from penstock.contracts.configs.client_metrics import INTERVAL, INTERVAL_DEFAULT_MS, METRICS, conditions, items
from penstock.contracts.errors import Unavailable
from penstock.contracts.queries.client_metrics import ClientMetricsQuery, ClientMetricsView
from penstock.contracts.regex.regex_subscriptions import BadPattern, Pattern
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock_gateway.telemetry.subscriptions import Subscription, Wanted, union

QUERY_DEADLINE_S = 5.0
RETRY_S = 1.0

log = structlog.get_logger()


class _Selector(msgspec.Struct, frozen=True):
    """A subscription, and its patterns by attribute of a client."""

    subscription: Subscription
    patterns: dict[str, Pattern]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Whether the client fulfils all conditions."""
        return all(pattern.matches(attributes[name]) for name, pattern in self.patterns.items())


class SubscriptionCache:
    """The subscriptions in force."""

    def __init__(self, sequencer: SequencerClient) -> None:
        self._sequencer = sequencer
        self._sequence = 0  # of the newest change that is applied here
        self._wanted_sequence = 0  # of the newest change that was announced
        self._changed = asyncio.Event()
        self._known = asyncio.Event()
        self._selectors: list[_Selector] = []

    @property
    def is_empty(self) -> bool:
        """Whether it is known that there is no subscription."""
        return self._known.is_set() and not self._selectors

    def record(self, sequence: int) -> None:
        """Record that the entry with this sequence changed subscriptions last; 0 if none did."""
        if sequence > max(self._wanted_sequence, self._sequence):
            self._wanted_sequence = sequence
            self._changed.set()
        elif self._sequence >= self._wanted_sequence:
            self._known.set()

    async def run(self) -> None:
        """Query the subscriptions at once and whenever they have changed, until cancelled."""
        await self.refresh()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.refresh()
            if self._sequence < self._wanted_sequence:  # no sequencer answered, or only one that is behind
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def refresh(self) -> None:
        """Query the subscriptions now; keep the cached ones if no sequencer answers."""
        try:
            view = await self._sequencer.query(
                "client_metrics", ClientMetricsQuery(0, fresh=True), ClientMetricsView, deadline_s=QUERY_DEADLINE_S
            )
        except Unavailable as error:
            log.warning("client_metrics_query_failed", error=str(error))
            return
        if view.altered_sequence > self._sequence:
            self._sequence = view.altered_sequence
            self._selectors = [found for name, each in view.subscriptions.items() if (found := _selector(name, each))]
        if self._sequence >= self._wanted_sequence:
            self._known.set()

    async def wanted(self, attributes: Mapping[str, str], timeout_s: float) -> Wanted:
        """All that a client is to push; after a start of the gateway wait until the subscriptions are known."""
        if not self._known.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), timeout_s)
        return union(each.subscription for each in self._selectors if each.matches(attributes))


def _selector(name: str, configs: dict[str, str]) -> _Selector | None:
    subscription = Subscription(tuple(items(configs.get(METRICS, ""))), int(configs.get(INTERVAL, INTERVAL_DEFAULT_MS)))
    try:
        return _Selector(subscription, {name: Pattern(each) for name, each in conditions(configs).items()})
    except BadPattern as error:  # a sequencer of another release accepts more
        log.warning("client_metrics_pattern_unknown", subscription=name, error=str(error))
        return None
