"""The Tick of a replica that cannot propose now."""

import asyncio

import pytest

from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until
from tests.unit.sequencer.sequencer_rig import rig


@in_virtual_time
async def test_a_replica_that_may_not_propose_tries_its_tick_a_few_times_a_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It logs each attempt, and may be suspended for ten seconds while it waits for the proof of a loss."""
    async with rig("a") as one:
        proposer = one.running["a"].sequencer.proposer
        proposer.suspend("the journal ends at 7, before entry 9, which was seen")
        capsys.readouterr()
        await asyncio.sleep(10)
        attempts = capsys.readouterr().out.count("tick_not_journaled")
        assert 10 <= attempts <= 50
        last = one.store.last_sequence
        proposer.resume()
        await until(lambda: one.store.last_sequence > last, 1)
