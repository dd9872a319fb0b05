"""When the signs of a lost journal are believed."""

import asyncio

import pytest

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.journal import JournalGap, JournalLost
from penstock.runtime.nats.loss import JournalReplaced, LossDetector, LossLimits
from tests.testkit.fakes.virtual_time import in_virtual_time

LIMITS = LossLimits()
GAP = JournalGap("journal entry 7 is gone")
LOST = JournalLost("there is no journal")


def look(detector: LossDetector, found: PenstockError | None) -> None:
    with detector.observe():
        if found is not None:
            raise found


async def look_for(detector: LossDetector, found: PenstockError, seconds: float) -> None:
    """Looks twice a second for so long, and finds that it is unknown each time."""
    until_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until_s:
        with pytest.raises(Unavailable):
            look(detector, found)
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("sign", [GAP, LOST])
@in_virtual_time
async def test_a_single_server_is_believed_at_once(sign: PenstockError) -> None:
    with pytest.raises(type(sign)):
        look(LossDetector(lambda: False), sign)


@pytest.mark.parametrize("sign", [GAP, LOST])
@in_virtual_time
async def test_a_cluster_is_believed_when_it_said_nothing_else_for_long_enough(sign: PenstockError) -> None:
    detector = LossDetector(lambda: True)
    await look_for(detector, sign, LIMITS.proven_after_s)
    with pytest.raises(type(sign)):
        look(detector, sign)


@pytest.mark.parametrize("other", [None, Unavailable("no answer")], ids=["all is well", "no answer"])
@in_virtual_time
async def test_any_other_answer_begins_the_wait_anew(other: PenstockError | None) -> None:
    detector = LossDetector(lambda: True)
    await look_for(detector, LOST, LIMITS.proven_after_s - 0.5)
    if other is None:
        look(detector, None)
    else:
        with pytest.raises(Unavailable, match=r"^no answer$"):
            look(detector, other)
    await look_for(detector, LOST, LIMITS.proven_after_s)
    with pytest.raises(JournalLost):
        look(detector, LOST)


@in_virtual_time
async def test_two_signs_with_a_long_silence_between_them_prove_nothing() -> None:
    detector = LossDetector(lambda: True)
    for _ in range(10):
        with pytest.raises(Unavailable):
            look(detector, LOST)
        await asyncio.sleep(LIMITS.signs_apart_s_max + 1)


@in_virtual_time
async def test_another_stream_in_its_place_needs_no_proof() -> None:
    with pytest.raises(JournalReplaced):
        look(LossDetector(lambda: True), JournalReplaced("made again"))
