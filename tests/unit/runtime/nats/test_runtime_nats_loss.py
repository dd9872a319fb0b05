"""When the signs of a lost journal are believed."""

import asyncio

import pytest

from penstock.contracts.errors import PenstockError, Unavailable
from penstock.runtime.journal import JournalGap, JournalLost
from penstock.runtime.nats.loss import LOSS_PROVEN_AFTER_S, SIGNS_APART_S_MAX, JournalReplaced, LossWatch
from tests.testkit.fakes.virtual_time import in_virtual_time

GAP = JournalGap("journal entry 7 is gone")
LOST = JournalLost("there is no journal")


def look(watch: LossWatch, found: PenstockError | None) -> None:
    with watch.watch():
        if found is not None:
            raise found


async def look_for(watch: LossWatch, found: PenstockError, seconds: float) -> None:
    """Looks twice a second for so long, and finds that it is unknown each time."""
    until_s = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until_s:
        with pytest.raises(Unavailable):
            look(watch, found)
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("sign", [GAP, LOST])
@in_virtual_time
async def test_a_single_server_is_believed_at_once(sign: PenstockError) -> None:
    with pytest.raises(type(sign)):
        look(LossWatch(lambda: False), sign)


@pytest.mark.parametrize("sign", [GAP, LOST])
@in_virtual_time
async def test_a_cluster_is_believed_when_it_said_nothing_else_for_long_enough(sign: PenstockError) -> None:
    watch = LossWatch(lambda: True)
    await look_for(watch, sign, LOSS_PROVEN_AFTER_S)
    with pytest.raises(type(sign)):
        look(watch, sign)


@pytest.mark.parametrize("other", [None, Unavailable("no answer")], ids=["all is well", "no answer"])
@in_virtual_time
async def test_any_other_answer_begins_the_wait_anew(other: PenstockError | None) -> None:
    watch = LossWatch(lambda: True)
    await look_for(watch, LOST, LOSS_PROVEN_AFTER_S - 0.5)
    if other is None:
        look(watch, None)
    else:
        with pytest.raises(Unavailable, match=r"^no answer$"):
            look(watch, other)
    await look_for(watch, LOST, LOSS_PROVEN_AFTER_S)
    with pytest.raises(JournalLost):
        look(watch, LOST)


@in_virtual_time
async def test_two_signs_with_a_long_silence_between_them_prove_nothing() -> None:
    watch = LossWatch(lambda: True)
    for _ in range(10):
        with pytest.raises(Unavailable):
            look(watch, LOST)
        await asyncio.sleep(SIGNS_APART_S_MAX + 1)


@in_virtual_time
async def test_another_stream_in_its_place_needs_no_proof() -> None:
    with pytest.raises(JournalReplaced):
        look(LossWatch(lambda: True), JournalReplaced("made again"))
