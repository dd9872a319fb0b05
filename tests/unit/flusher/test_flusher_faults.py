"""With any faults of store and sequencers, every request is answered once, and every answer is true."""

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given, settings, strategies as st

from penstock.contracts.codec import Buffer
from penstock.contracts.commands import Command, Outcome
from penstock.contracts.errors import Unavailable
from penstock.contracts.rejections import Rejection
from penstock.segment import read_index
from tests.testkit.fakes.virtual_time import VirtualClock, VirtualLoop
from tests.unit.flusher.flusher_fakes import HeldStore, LoggingSequencers, Rig, produce

REQUESTS = 40
ALLOWED_REJECTIONS = {Rejection.NONE, Rejection.OVERLOADED, Rejection.OUTCOME_UNKNOWN}


class FaultyStore(HeldStore):
    """A slow store that sometimes fails, before or after the object is stored."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def put(self, key: str, body: Sequence[Buffer], *, if_match: str | None = None) -> str:
        await asyncio.sleep(self._chance.random() * 0.3)
        fault = self._chance.random()
        if fault < 0.1:
            raise Unavailable("nothing was stored")
        etag = await super().put(key, body)
        if fault < 0.2:
            raise Unavailable("it was stored, but the answer is lost")
        return etag


class FaultySequencers(LoggingSequencers):
    """Slow sequencers that sometimes do not answer, before or after the commit."""

    def __init__(self, chance: random.Random, objects: dict[str, bytes]) -> None:
        super().__init__()
        self._chance = chance
        self._objects = objects
        self.log: list[bytes] = []  # batch contents by the order of their commit

    async def command(
        self, commands: list[Command], *, deadline_s: float, attempt_s: float = 1.0, trace: str = ""
    ) -> list[Outcome]:
        await asyncio.sleep(self._chance.random() * 0.2)
        fault = self._chance.random()
        if fault < 0.2:
            raise Unavailable("nothing was done")
        new = [command for command in commands if command.segment_id not in self._outcomes]
        outcomes = await super().command(commands, deadline_s=deadline_s)
        for command in new:
            (data,) = [data for data in self._objects.values() if read_index(data).segment_id == command.segment_id]
            (run,) = command.runs
            position = run.position
            for batch in run.batches:
                self.log.append(data[position : position + batch.length])
                position += batch.length
        if fault < 0.4:
            raise Unavailable("it was done, but the answer is lost")
        return outcomes


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_every_request_is_answered_once_and_truly(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_scenario(random.Random(seed)))


async def _scenario(chance: random.Random) -> None:
    store = FaultyStore(chance)
    sequencers = FaultySequencers(chance, store.objects)
    clock = VirtualClock()
    async with Rig(
        store=store, sequencers=sequencers, clock=clock, bytes_max=500, interval_s=0.25, quiet_s=0.003
    ) as rig:
        messages = []
        for number in range(REQUESTS):
            messages.append(await rig.send(produce(number)))
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.02, 0.3)))
        await rig.intake.drain()
        await rig.flushes.until_idle()
        results = [(await message.reply()).results[0][0] for message in messages]
        assert rig.budget.held_bytes == 0
    assert sequencers.running_max == 1
    assert {result.rejection for result in results} <= ALLOWED_REJECTIONS
    accepted = [(result.base_offset, number) for number, result in enumerate(results) if not result.rejection]
    assert accepted == sorted(accepted)
    for base_offset, number in accepted:
        assert sequencers.log[base_offset] == bytes([number]) * 100
    for number, result in enumerate(results):
        if result.rejection == Rejection.OVERLOADED:
            assert bytes([number]) * 100 not in sequencers.log
