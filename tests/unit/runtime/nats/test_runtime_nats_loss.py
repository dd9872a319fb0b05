"""Reports of a lost journal, and when they count as proof."""

import asyncio

import pytest

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.journal import JournalGap, JournalLost
from penstock.runtime.nats.loss import JournalReplaced, LossDetector, LossLimits
from tests.testkit.fakes.virtual_time import in_virtual_time

LIMITS = LossLimits()
GAP = JournalGap("journal entry 7 is gone")
LOST = JournalLost("there is no journal")


def observe(detector: LossDetector, found: PenstockError | None) -> None:
    with detector.observe():
        if found is not None:
            raise found


async def observe_for(detector: LossDetector, found: PenstockError, seconds: float) -> None:
    """Observe twice a second for so long; the result is unknown each time."""
    until_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until_s:
        with pytest.raises(Unavailable):
            observe(detector, found)
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("report", [GAP, LOST])
@in_virtual_time
async def test_a_loss_on_a_single_server_counts_at_once(report: PenstockError) -> None:
    with pytest.raises(type(report)):
        observe(LossDetector(lambda: False), report)


@pytest.mark.parametrize("report", [GAP, LOST])
@in_virtual_time
async def test_a_loss_in_a_cluster_counts_after_long_enough_with_no_other_result(report: PenstockError) -> None:
    detector = LossDetector(lambda: True)
    await observe_for(detector, report, LIMITS.proven_after_s)
    with pytest.raises(type(report)):
        observe(detector, report)


@pytest.mark.parametrize("other", [None, Unavailable("no answer")], ids=["no loss", "no answer"])
@in_virtual_time
async def test_any_other_result_restarts_the_proof(other: PenstockError | None) -> None:
    detector = LossDetector(lambda: True)
    await observe_for(detector, LOST, LIMITS.proven_after_s - 0.5)
    if other is None:
        observe(detector, None)
    else:
        with pytest.raises(Unavailable, match=r"^no answer$"):
            observe(detector, other)
    await observe_for(detector, LOST, LIMITS.proven_after_s)
    with pytest.raises(JournalLost):
        observe(detector, LOST)


@in_virtual_time
async def test_two_reports_with_a_long_gap_between_them_prove_nothing() -> None:
    detector = LossDetector(lambda: True)
    for _ in range(10):
        with pytest.raises(Unavailable):
            observe(detector, LOST)
        await asyncio.sleep(LIMITS.report_gap_s_max + 1)


@in_virtual_time
async def test_another_stream_in_its_place_needs_no_proof() -> None:
    with pytest.raises(JournalReplaced):
        observe(LossDetector(lambda: True), JournalReplaced("created again"))
