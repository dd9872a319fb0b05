"""The audit trail: each kind of events has a rate, the queue has an end, and the lost events are counted."""

import asyncio

from prometheus_client import CollectorRegistry

from penstock_gateway.metrics import GatewayMetrics
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind, AuditLimits, AuditTrail
from tests.testkit.fakes.clock import ManualClock

FAILED, CHANGED = AuditKind.LOGIN_FAILED, AuditKind.CHANGED


class Trail:
    """A trail with few events in a second, and few unwritten ones."""

    def __init__(self, per_s: int = 3, unwritten: int = 100) -> None:
        self.clock = ManualClock()
        self.metrics = GatewayMetrics(CollectorRegistry())
        limits = AuditLimits(events_per_s_max=per_s, unwritten_max=unwritten, text_max=10)
        self.trail = AuditTrail(gateway="g1", clock=self.clock, metrics=self.metrics, limits=limits)

    def record(self, kind: AuditKind = FAILED, count: int = 1, principal: str = "User:a") -> None:
        for _ in range(count):
            self.trail.record(AuditEvent(kind=kind, principal=principal, peer="10.0.0.1"))

    def counted(self, kind: AuditKind, outcome: str) -> float:
        labels = {"kind": kind.value, "outcome": outcome}
        return self.metrics.registry.get_sample_value("penstock_gateway_audit_events_total", labels) or 0.0


def test_events_beyond_the_rate_are_lost_and_counted_in_the_next_event_of_their_kind() -> None:
    made = Trail()
    made.record(count=8)
    made.clock.now_s += 1
    made.record(count=2)
    taken = made.trail.take()
    assert [(each.number, each.suppressed) for each in taken] == [(1, 0), (2, 0), (3, 0), (4, 5), (5, 0)]
    assert made.counted(FAILED, "suppressed") == 5


def test_a_flood_of_one_kind_hides_no_other_kind() -> None:
    made = Trail()
    made.record(FAILED, 100)
    made.record(CHANGED)
    assert [each.kind for each in made.trail.take()] == [FAILED] * 3 + [CHANGED]


def test_unwritten_events_have_a_limit_also_while_they_are_being_written() -> None:
    made = Trail(per_s=1_000, unwritten=5)
    made.record(count=4)
    taken = made.trail.take()
    made.record(count=3)
    assert made.counted(FAILED, "dropped") == 2
    made.trail.record_written(taken)
    made.record()
    assert [each.suppressed for each in made.trail.take()] == [0, 2]
    assert made.counted(FAILED, "written") == 4


def test_an_event_has_its_time_its_gateway_and_no_endless_text() -> None:
    made = Trail()
    made.record(principal="User:" + "x" * 1_000)
    (event,) = made.trail.take()
    assert event.time is not None
    assert round(event.time.timestamp() * 1000) == made.clock.now_ms()
    assert (event.gateway, event.principal) == ("g1", "User:xxxxx...")


async def test_the_trail_is_written_when_the_last_taken_event_is() -> None:
    made = Trail()
    await made.trail.until_written()
    made.record(count=2)
    waiting = asyncio.create_task(made.trail.until_written())
    await asyncio.sleep(0)
    taken = made.trail.take()
    made.trail.record_written(taken[:1])
    await asyncio.sleep(0)
    assert not waiting.done()
    made.trail.record_written(taken[1:])
    await waiting
