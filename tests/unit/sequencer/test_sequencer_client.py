"""The client of the sequencers: one answer after any number of attempts, and never an older state than before."""

import asyncio

import pytest

from penstock.contracts import codec
from penstock.contracts.commands import (
    Command,
    CommandReply,
    CommandRequest,
    CommitOffsets,
    Done,
    OffsetToCommit,
    Tick,
    Waiting,
)
from penstock.contracts.errors import Corrupt, Invalid, Unavailable, Undelivered
from penstock.contracts.queries.groups import GroupWaitQuery, GroupWaitView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.bus.sequencer_client import SequencerClient, SequencerClientLimits
from tests.testkit.fakes.memory_bus import MemoryHub
from tests.testkit.fakes.virtual_time import VirtualClock, in_virtual_time

CLUSTER = "test"
TICK: list[Command] = [Tick(1)]
Answer = bytes | None  # None: no answer
LARGE_BYTES = 1_000
FEW_LARGE = SequencerClientLimits(large_bytes_min=LARGE_BYTES, large_bytes_max=2 * LARGE_BYTES + 500, large_attempt_s=3)


class Rig:
    """A client, and a sequencer that answers from a list."""

    def __init__(self, *answers: Answer, limits: SequencerClientLimits | None = None) -> None:
        self.hub = MemoryHub()
        self.clock = VirtualClock()
        self.bus = self.hub.connect("client")
        self.server = self.hub.connect("server")
        self.client = SequencerClient(self.bus, CLUSTER, self.clock, limits=limits or SequencerClientLimits())
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.asked_s: list[float] = []
        self.delay_s = 0.0

    async def __aenter__(self) -> "Rig":
        await self.server.subscribe(f"penstock.{CLUSTER}.sequencer.>", self._answer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()
        await self.bus.close()

    async def _answer(self, message: Inbound) -> None:
        self.asked.append(message.data)
        self.asked_s.append(self.clock.monotonic_s())
        answer = self.answers.pop(0)
        await asyncio.sleep(self.delay_s)
        if answer is not None:
            await message.respond(answer)


class Held:
    """A sequencer that answers only when the test makes it."""

    def __init__(self, rig: Rig) -> None:
        self.requests: list[Inbound] = []
        self._rig = rig

    async def open(self) -> None:
        await self._rig.server.subscribe(f"penstock.{CLUSTER}.sequencer.>", self._take)

    async def _take(self, message: Inbound) -> None:
        self.requests.append(message)

    @property
    def names(self) -> list[str]:
        """The groups of all commands that arrived."""
        commands = [codec.decode(each.data, CommandRequest).commands[0] for each in self.requests]
        return [command.group_id for command in commands if isinstance(command, CommitOffsets)]

    async def answer(self, name: str) -> None:
        await self.requests[self.names.index(name)].respond(done(1))
        await asyncio.sleep(0.1)


def large(name: str) -> list[Command]:
    """A command that is large for `FEW_LARGE`."""
    return [CommitOffsets(1, name, 1, "m", None, [OffsetToCommit("t", 0, 1, 1, "x" * LARGE_BYTES)])]


def small(name: str) -> list[Command]:
    return [CommitOffsets(1, name, 1, "m", None, [])]


def done(sequence: int) -> bytes:
    return codec.encode(CommandReply(sequence, [Done()]))


def failed(text: str) -> bytes:
    return codec.encode(CommandReply(3, [], text))


@in_virtual_time
async def test_a_command_is_sent_once_and_its_outcomes_come_back() -> None:
    async with Rig(done(7)) as rig:
        assert await rig.client.command(TICK, deadline_s=5) == [Done()]
        assert [codec.decode(data, CommandRequest) for data in rig.asked] == [CommandRequest(TICK)]
        assert rig.client.seen_sequence == 7


@in_virtual_time
async def test_the_same_command_is_sent_again_after_silence_and_after_failures() -> None:
    async with Rig(None, failed("overloaded"), None, done(7)) as rig:
        assert await rig.client.command(TICK, deadline_s=10, attempt_s=1) == [Done()]
        assert [codec.decode(data, CommandRequest).commands for data in rig.asked] == 4 * [TICK]
        assert rig.clock.monotonic_s() < 2.5


@in_virtual_time
async def test_at_the_deadline_the_outcome_is_unknown_and_the_last_reason_is_reported() -> None:
    async with Rig(*[failed("no journal")] * 100) as rig:
        with pytest.raises(Unavailable, match="no sequencer answered within 3 s: no journal"):
            await rig.client.command(TICK, deadline_s=3)
        assert 2.5 < rig.clock.monotonic_s() <= 3
        gaps = [round(later - earlier, 6) for earlier, later in zip(rig.asked_s, rig.asked_s[1:], strict=False)]
        assert gaps == sorted(gaps)
        assert len(gaps) < 20


@in_virtual_time
async def test_an_attempt_never_outlives_the_deadline() -> None:
    async with Rig(None, None) as rig:
        with pytest.raises(Unavailable):
            await rig.client.command(TICK, deadline_s=1.5, attempt_s=1)
        assert rig.clock.monotonic_s() <= 1.5


@in_virtual_time
async def test_a_time_without_sequencers_is_waited_out() -> None:
    async with Rig(done(1)) as rig:
        rig.server.cut()
        asked = asyncio.create_task(rig.client.command(TICK, deadline_s=5))
        await asyncio.sleep(1)
        rig.server.mend()
        assert await asked == [Done()]


@in_virtual_time
async def test_a_request_that_fits_no_message_is_not_sent_again() -> None:
    async with Rig() as rig:
        rig.hub.message_bytes_max = 3
        with pytest.raises(Invalid):
            await rig.client.command(TICK, deadline_s=5)


@in_virtual_time
async def test_an_answer_that_cannot_be_read_raises_the_alarm() -> None:
    async with Rig(b"\x01garbage") as rig:
        with pytest.raises(Corrupt):
            await rig.client.command(TICK, deadline_s=5)


@in_virtual_time
async def test_a_query_asks_for_the_newest_sequence_that_any_answer_had() -> None:
    view = codec.encode(MetadataView(40, []))
    async with Rig(view, view, view) as rig:
        rig.client.record_sequence(30)
        rig.client.record_sequence(20)
        for min_sequence in (0, 35, 99):
            await rig.client.query("metadata", MetadataQuery(min_sequence, None), MetadataView)
        assert [codec.decode(data, MetadataQuery).min_sequence for data in rig.asked] == [30, 40, 99]


@in_virtual_time
async def test_a_sequence_seen_between_two_attempts_counts_for_the_second() -> None:
    async with Rig(None, codec.encode(MetadataView(9, []))) as rig:
        asked = asyncio.create_task(rig.client.query("metadata", MetadataQuery(0, None), MetadataView))
        await asyncio.sleep(0.5)
        rig.client.record_sequence(8)
        await asked
        assert [codec.decode(data, MetadataQuery).min_sequence for data in rig.asked] == [0, 8]


@in_virtual_time
async def test_a_group_wait_may_take_its_own_wait_time_in_addition() -> None:
    view = GroupWaitView(1, Waiting("m", 1))
    async with Rig(codec.encode(view)) as rig:
        rig.delay_s = 5.5
        query = GroupWaitQuery(0, "join", "g", "m", 1, 5_000)
        assert await rig.client.query("group_wait", query, GroupWaitView) == view
        assert len(rig.asked) == 1


@in_virtual_time
async def test_the_latest_machine_clock_is_kept_and_may_be_missing() -> None:
    replies = [CommandReply(1, [Done()], clock_ms=5), CommandReply(2, [], "no", 9), CommandReply(3, [Done()])]
    async with Rig(*(codec.encode(reply) for reply in replies)) as rig:
        await rig.client.command(TICK, deadline_s=5)
        assert rig.client.seen_clock_ms == 5
        await rig.client.command(TICK, deadline_s=5)
        assert rig.client.seen_clock_ms == 9


@in_virtual_time
async def test_a_repeated_command_keeps_the_sequence_that_was_known_at_first() -> None:
    async with Rig(failed("overloaded"), None, done(7)) as rig:
        commit = CommitOffsets(1, "g", 3, "m", None, [OffsetToCommit("t", 0, 5, 1, "")], rig.client.seen_sequence)
        asking = asyncio.create_task(rig.client.command([commit], deadline_s=5))
        await asyncio.sleep(0.5)
        rig.client.record_sequence(99)
        await asking
        assert [codec.decode(data, CommandRequest).commands for data in rig.asked] == [[commit]] * 3


@in_virtual_time
async def test_the_clusters_level_is_unknown_until_it_was_reported_and_never_falls() -> None:
    async with Rig() as rig:
        assert rig.client.seen_level is None
        first_s = rig.clock.monotonic_s()
        for reported, seen in ((0, 0), (3, 3), (2, 3)):
            rig.client.record_level(reported)
            assert (rig.client.seen_level, rig.client.level_seen_s) == (seen, first_s)
            await asyncio.sleep(1)


@in_virtual_time
async def test_large_commands_wait_for_each_other_and_small_ones_pass() -> None:
    rig = Rig(limits=FEW_LARGE)
    held = Held(rig)
    await held.open()
    sending = [asyncio.create_task(rig.client.command(large(name), deadline_s=9)) for name in "abcd"]
    await asyncio.sleep(0.1)
    assert held.names == ["a", "b"]
    sending.append(asyncio.create_task(rig.client.command(small("e"), deadline_s=9)))
    await asyncio.sleep(0.1)
    assert held.names == ["a", "b", "e"]
    await held.answer("b")
    assert held.names == ["a", "b", "e", "c"]
    for name in "aecd":
        await held.answer(name)
    assert await asyncio.gather(*sending) == [[Done()]] * 5


@in_virtual_time
async def test_a_large_command_keeps_its_turn_for_all_its_attempts() -> None:
    rig = Rig(limits=FEW_LARGE)
    held = Held(rig)
    await held.open()
    sending = [asyncio.create_task(rig.client.command(large(name), deadline_s=9)) for name in "abc"]
    await asyncio.sleep(2.9)
    assert held.names == ["a", "b"]
    await asyncio.sleep(1)
    assert held.names == ["a", "b", "a", "b"]
    held.requests.clear()
    sending[0].cancel()
    await asyncio.sleep(2.5)
    assert held.names == ["c", "b"]
    for name in "bc":
        await held.answer(name)
    assert await asyncio.gather(*sending[1:]) == [[Done()]] * 2


@in_virtual_time
async def test_a_large_command_without_a_turn_is_never_sent() -> None:
    rig = Rig(limits=FEW_LARGE)
    held = Held(rig)
    await held.open()
    sending = [asyncio.create_task(rig.client.command(large(name), deadline_s=60)) for name in "ab"]
    await asyncio.sleep(0)
    with pytest.raises(Undelivered, match="did not get its turn within 2 s"):
        await rig.client.command(large("c"), deadline_s=4)
    assert set(held.names) == {"a", "b"}
    for name in "ab":
        await held.answer(name)
    assert await asyncio.gather(*sending) == [[Done()]] * 2


@in_virtual_time
async def test_a_command_larger_than_all_turns_together_is_sent_alone() -> None:
    rig = Rig(limits=SequencerClientLimits(large_bytes_min=1, large_bytes_max=10))
    held = Held(rig)
    await held.open()
    sending = [asyncio.create_task(rig.client.command(large(name), deadline_s=9)) for name in "ab"]
    await asyncio.sleep(0.1)
    assert held.names == ["a"]
    await held.answer("a")
    assert held.names == ["a", "b"]
    await held.answer("b")
    assert await asyncio.gather(*sending) == [[Done()]] * 2
