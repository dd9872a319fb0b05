"""Replicas under random faults, in virtual time: no acknowledged commit is lost, no offset used twice, states agree."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from penstock.contracts.commands import SegmentCommitted
from penstock_sequencer.core.snapshot.codec import encode_state
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.unit.sequencer.sequencer_rig import SequencerRig, rig

NAMES = ("a", "b", "c")
COMMITS = 60
WRITERS = 4


class Faults:
    """Random faults, one after the other, each repaired before the next."""

    def __init__(self, one: SequencerRig, seed: int) -> None:
        self._rig = one
        self._random = random.Random(seed)
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill,
            self._cut,
            self._journal_silent,
            self._lose_acknowledgements,
            self._lose_appends,
            self._duplicate_entry,
        ]

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.01, 2))
            await self._random.choice(self._kinds)()

    async def _kill(self) -> None:
        name = self._random.choice(NAMES)
        await self._rig.kill(name)
        await asyncio.sleep(self._random.uniform(0, 3))
        await self._rig.start(name)

    async def _cut(self) -> None:
        bus = self._rig.running[self._random.choice(NAMES)].bus
        bus.cut()
        await asyncio.sleep(self._random.uniform(0, 5))
        bus.mend()

    async def _journal_silent(self) -> None:
        self._rig.store.set_available(False)
        await asyncio.sleep(self._random.uniform(0, 5))
        self._rig.store.set_available(True)

    async def _lose_acknowledgements(self) -> None:
        self._rig.store.fail_next_append(with_effect=True, times=self._random.randint(1, 5))

    async def _lose_appends(self) -> None:
        self._rig.store.fail_next_append(with_effect=False, times=self._random.randint(1, 5))

    async def _duplicate_entry(self) -> None:
        data = self._rig.store.entry(self._random.randint(1, self._rig.store.last_sequence))
        assert data is not None
        self._rig.store.inject(data)


async def write(one: SequencerRig, records: list[tuple[int, int]], choose: random.Random) -> None:
    """Commit segments one after the other; returns (first offset, count) of each acknowledged one."""
    for _ in range(COMMITS // WRITERS):
        count = choose.randint(1, 5)
        (outcome,) = await one.client.command([one.commit("t", count)], deadline_s=120)
        assert isinstance(outcome, SegmentCommitted), outcome
        records.append((outcome.runs[0][0].base_offset, count))
        await asyncio.sleep(choose.uniform(0, 2))


@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_commits_are_dense_and_unique_and_all_replicas_agree(seed: int) -> None:
    print(f"seed {seed}")

    @in_virtual_time
    async def simulate() -> None:
        async with rig(*NAMES) as three:
            await three.client.command([three.create_topic("t")], deadline_s=5)
            records: list[tuple[int, int]] = []
            faults = asyncio.create_task(Faults(three, seed).run())
            writers = (write(three, records, random.Random(seed * 100 + number)) for number in range(WRITERS))
            await asyncio.gather(*writers)
            faults.cancel()
            await asyncio.gather(faults, return_exceptions=True)
            check_dense(records)
            await check_agreement(three)

    simulate()


def check_dense(records: list[tuple[int, int]]) -> None:
    expected = 0
    for offset, count in sorted(records):
        assert offset == expected
        expected += count


async def check_agreement(three: SequencerRig) -> None:
    """Repair everything; all replicas, and a new one, must have applied the whole journal in the same way."""
    three.store.set_available(True)
    for name in NAMES:
        if name not in three.running:
            await three.start(name)
        three.running[name].bus.mend()
    await three.start("d")
    for running in three.running.values():
        assert not running.task.done()
        await running.sequencer.replica.until_applied(three.store.last_sequence, 5)
    sequence = min(running.applied for running in three.running.values())
    same = [each for each in three.running.values() if each.applied == sequence]
    assert len({encode_state(each.sequencer.replica.state) for each in same}) == 1
    assert len(same) >= 3
