"""Answers requests for the reason why an object stays or may be deleted, by the rules of the deleting loops."""

import asyncio

import structlog

from penstock.contracts import codec, subjects
from penstock.contracts.errors import Invalid, PenstockError
from penstock.contracts.ids import SegmentId, segment_born_ms
from penstock.contracts.messages import ExplainReply, ExplainRequest
from penstock.contracts.queries.janitor import KnownSegmentsQuery, KnownSegmentsView
from penstock.objectstore import ObjectInfo, ObjectStore
from penstock.objectstore.store import check_key
from penstock.runtime.bus.bus import Bus, Inbound, Subscription
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.segment.keys import is_cleanup_key, parse_own_segment_key
from penstock_janitor.coordination.guard import Guard
from penstock_janitor.deletion.maintenance import is_known_key
from penstock_janitor.rules.classification import (
    Classification,
    Now,
    ObjectState,
    Rules,
    age_text,
    classify_cleanup,
    classify_segment,
)
from penstock_janitor.rules.journal import Checkpoints, rebuilt_ms

REQUESTS_MAX = 16  # at once; an operator sends them by hand
LEASED = "a compactor or a janitor has a job lease on it, and other janitors wait until that lease ends"

log = structlog.get_logger()


class Explain:
    """Takes requests from the bus and answers each in a separate task."""

    def __init__(
        self,
        *,
        bus: Bus,
        cluster: str,
        store: ObjectStore,
        sequencers: SequencerClient,
        guard: Guard,
        checkpoints: Checkpoints,
        rules: Rules,
        clock: Clock,
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._store = store
        self._sequencers = sequencers
        self._guard = guard
        self._checkpoints = checkpoints
        self._rules = rules
        self._clock = clock
        self._owner: asyncio.TaskGroup | None = None
        self._subscription: Subscription | None = None
        self._running = 0

    async def run(self) -> None:
        """Answer until cancelled."""
        async with asyncio.TaskGroup() as self._owner:
            subject = subjects.explain(self._cluster)
            self._subscription = await self._bus.subscribe(subject, self._take, subjects.JANITOR_QUEUE)
            try:
                await asyncio.Event().wait()
            finally:
                self._owner = None

    async def drain(self) -> None:
        """Take no more requests."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def _take(self, message: Inbound) -> None:
        if self._owner is None or self._running >= REQUESTS_MAX:
            await message.respond(codec.encode(_failed(f"{self._running} such requests are already in work")))
            return
        self._running += 1
        self._owner.create_task(self._answer(message))

    async def _answer(self, message: Inbound) -> None:
        try:
            reply = await self.explain(codec.decode(message.data, ExplainRequest).key)
        except PenstockError as error:
            reply = _failed(str(error))
        except Exception as error:  # a bug fails its own request only
            log.error("explain_failed", exc_info=error)
            reply = _failed(f"internal error: {type(error).__name__}")
        finally:
            self._running -= 1
        await message.respond(codec.encode(reply))

    async def explain(self, key: str) -> ExplainReply:
        """The state of the object and the reason; the key may begin with the store's own prefix."""
        check_key(key)
        await self._guard.check()
        _, inside, rest = f"/{key}".partition(f"/{self._cluster}/")
        if not inside:
            return _reply(ObjectState.UNKNOWN, f"not a key of cluster {self._cluster}: objects outside it stay", {})
        key = f"{self._cluster}/{rest}"
        listed = [info for info in await self._store.list(key, limit=1) if info.key == key]
        facts = {"key": key}
        if listed:
            facts |= {"bytes": str(listed[0].size_bytes), "modified_ms": str(listed[0].modified_ms)}
        try:
            level, segment_id = parse_own_segment_key(key, "", self._cluster)
        except Invalid:
            return self._explain_other(key, listed, facts)
        return await self._explain_segment(level, segment_id, listed, facts)

    def _explain_other(self, key: str, listed: list[ObjectInfo], facts: dict[str, str]) -> ExplainReply:
        if not listed:
            return _reply(ObjectState.ABSENT, "the store has no such object", facts)
        if is_cleanup_key(key, "", self._cluster):
            now_ms = self._clock.now_ms()
            found = classify_cleanup(listed[0].modified_ms, Now(now_ms, now_ms), self._rules)
            return _reply(found.state, found.reason, facts)
        if is_known_key(key, self._cluster):
            return _reply(
                ObjectState.KEPT, "it belongs to the journal: the sequencers delete it when they do not need it", facts
            )
        return _reply(ObjectState.UNKNOWN, "no object of Penstock has such a key: it is counted, and stays", facts)

    async def _explain_segment(
        self, level: int, segment_id: SegmentId, listed: list[ObjectInfo], facts: dict[str, str]
    ) -> ExplainReply:
        query = KnownSegmentsQuery(0, [segment_id], fresh=True)
        view = await self._sequencers.query("known_segments", query, KnownSegmentsView)
        (known,) = view.segments
        watched = self._checkpoints.watched_sequence(self._clock.monotonic_s())
        rebuilt = rebuilt_ms(await self._guard.check(), view.sequence)
        now = Now(view.clock_ms, self._clock.now_ms(), view.secured_sequence, watched, rebuilt)
        classification = classify_segment(level, segment_id, known, now, self._rules)
        is_leased = known is not None and known.view is not None and known.view.leased
        if is_leased and classification.state is ObjectState.DEAD_SEGMENT:
            classification = Classification(ObjectState.WAITING, f"{classification.reason}; {LEASED}")
        facts |= {
            "born_ms": str(segment_born_ms(segment_id)),
            "age": age_text(now.clock_ms - segment_born_ms(segment_id)),
            "journal_sequence": str(view.sequence),
            "journal_clock_ms": str(now.clock_ms),
            "own_clock_ms": str(now.own_ms),
            "secured_sequence": str(now.secured_sequence),
            "watched_sequence": str(now.watched_sequence),
        }
        if known is not None and known.view is not None:
            facts |= {
                "level": str(known.view.level),
                "live_extents": str(known.view.live_extents),
                "live_bytes": str(known.view.live_bytes),
                "claimed": "yes" if is_leased else "no",
            }
            if known.view.dead_since_ms >= 0:
                facts |= {
                    "condemned_ms": str(known.view.dead_since_ms),
                    "condemned_sequence": str(known.dead_sequence),
                }
        return _of_segment(classification, bool(listed), facts)


def _of_segment(classification: Classification, exists: bool, facts: dict[str, str]) -> ExplainReply:
    if exists:
        return _reply(classification.state, classification.reason, facts)
    if classification.state is ObjectState.LIVE:
        return _reply(
            ObjectState.ABSENT,
            f"the store has no such object, but the journal needs it: {classification.reason}",
            facts,
        )
    return _reply(ObjectState.ABSENT, f"the store has no such object; {classification.reason}", facts)


def _reply(state: ObjectState, reason: str, facts: dict[str, str]) -> ExplainReply:
    return ExplainReply(str(state), reason, facts)


def _failed(text: str) -> ExplainReply:
    return ExplainReply("", "", {}, text)
