"""The simulator allows a late copy only from a gateway that confirmed the request, and was halted before the commit.

Below the level of leases, the confirmation alone is enough.
"""

import pytest

from penstock.contracts.batches import BatchMeta, BatchResult, BatchRun
from penstock.contracts.codec import encode
from penstock.contracts.commands import CommitSegment, SegmentCommitted
from penstock.contracts.levels import COMMIT_LEASE_LEVEL
from penstock.contracts.messages import ConfirmReply
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.environment.shared import SharedEnvironment
from tests.testkit.sim.sequential.late_copies import Attempt, LateCopies

TOPIC_ID = bytes(16)


class Times:
    """Events at given times; the late copy has offset 7."""

    def __init__(self) -> None:
        environment = SharedEnvironment(1)
        self.now_s = 0.0
        self.oracle = Oracle("c", environment.store, environment.fail, environment.record, DEFAULT_LIMITS)
        self.oracle.state.level = COMMIT_LEASE_LEVEL
        self.late_copies = LateCopies(self.oracle, lambda: self.now_s)

    def happen(self, event: str, at_s: float) -> None:
        self.now_s = at_s
        if event == "confirmed":
            self.late_copies.answered("gateway-1-2", encode(ConfirmReply([0, 1_500])))
        elif event == "given up":
            self.late_copies.answered("gateway-1-2", encode(ConfirmReply([0, 0])))
        elif event == "halted":
            self.late_copies.halted("gateway-1", "gateway-1-2")
        else:
            batch = BatchMeta(61, 1, 0, -1, -1, -1, 0)
            command = CommitSegment(0, bytes(16), 61, "f", "z", [BatchRun(TOPIC_ID, 0, 0, [batch])])
            for applied in self.oracle.on_applied:
                applied([command], [SegmentCommitted([[BatchResult(0, 7)]])])

    def is_allowed(self, *attempts: Attempt) -> bool:
        return self.late_copies.allows(TOPIC_ID, 7, list(attempts))


@pytest.mark.parametrize(
    ("events", "is_allowed"),
    [
        ((("confirmed", 1.1), ("halted", 1.2), ("stored", 2.5)), True),
        ((("confirmed", 1.1), ("stored", 2.5)), False),
        ((("halted", 1.2), ("stored", 2.5)), False),
        ((("given up", 1.1), ("halted", 1.2), ("stored", 2.5)), False),
        ((("confirmed", 0.9), ("halted", 1.2), ("stored", 2.5)), False),
        ((("confirmed", 1.1), ("stored", 1.15), ("halted", 1.2)), False),
        ((("confirmed", 1.1), ("halted", 1.2), ("stored", 30.0)), False),
        ((("halted", 0.5), ("confirmed", 1.1), ("stored", 2.5)), False),
        ((("halted", 1.05), ("confirmed", 1.1), ("halted", 1.2), ("stored", 2.5)), True),
    ],
)
def test_a_late_copy_needs_a_confirmation_and_then_a_halt(
    events: tuple[tuple[str, float], ...], is_allowed: bool
) -> None:
    times = Times()
    for event, at_s in events:
        times.happen(event, at_s)
    assert times.is_allowed(Attempt("gateway-0", 0.5), Attempt("gateway-1", 1.0)) == is_allowed
    assert not times.is_allowed(Attempt("gateway-0", 1.0))


@pytest.mark.parametrize(
    ("events", "is_allowed"),
    [
        ((("confirmed", 1.1), ("stored", 2.5)), True),
        ((("confirmed", 0.9), ("stored", 2.5)), False),
        ((("given up", 1.1), ("stored", 2.5)), False),
        ((("stored", 1.05), ("confirmed", 1.1)), False),
    ],
)
def test_below_the_level_of_leases_a_confirmed_copy_may_be_late(
    events: tuple[tuple[str, float], ...], is_allowed: bool
) -> None:
    times = Times()
    times.oracle.state.level = COMMIT_LEASE_LEVEL - 1
    for event, at_s in events:
        times.happen(event, at_s)
    times.oracle.state.level = COMMIT_LEASE_LEVEL  # the level when the copy was stored counts
    assert times.is_allowed(Attempt("gateway-0", 0.5), Attempt("gateway-1", 1.0)) == is_allowed
    assert not times.is_allowed(Attempt("gateway-0", 1.0))


def test_a_halted_agent_may_have_confirmed_each_of_its_requests() -> None:
    times = Times()
    times.now_s = 1.2
    times.late_copies.halted("agent-1", "agent-1-2")
    times.happen("stored", 2.5)
    assert times.is_allowed(Attempt("agent-1", 1.0))
    assert not times.is_allowed(Attempt("agent-1", 1.3))
    assert not times.is_allowed(Attempt("agent-0", 1.0))
