"""Commands of many clients are sent together, and each client gets its own outcome."""

import asyncio
from typing import Any

import pytest

from penstock.contracts.commands import Command, EndTxn, Outcome, TransactionEnded
from penstock.contracts.errors import Invalid, Unavailable
from penstock_gateway.kafka.command_batcher import COMMANDS_MAX, MESSAGE_BYTES_MAX, CommandBatcher
from tests.testkit.cancelling import turns
from tests.unit.gateway.gateway_fakes import FakeSequencer

ENTRY = 7  # the journal sequence of all answers


def end(producer_id: int, transactional_id: str = "tx") -> EndTxn:
    return EndTxn(1_000, transactional_id, producer_id, 3, committed=True)


def ended(command: Command) -> Outcome:
    assert isinstance(command, EndTxn)
    return TransactionEnded(command.producer_id, 4)


def shared() -> tuple[CommandBatcher, FakeSequencer]:
    sequencer: Any = FakeSequencer()
    sequencer.on_command = ended
    sequencer.record_sequence(ENTRY)
    return CommandBatcher(sequencer), sequencer


async def test_commands_of_one_loop_iteration_are_sent_together_and_each_gets_its_own_outcome() -> None:
    commands, sequencer = shared()
    outcomes = await asyncio.gather(*(commands.outcome(end(number)) for number in range(5)))
    assert outcomes == [(TransactionEnded(number, 4), ENTRY) for number in range(5)]
    assert sequencer.commands == [[end(number) for number in range(5)]]


async def test_commands_of_a_later_iteration_do_not_wait_for_earlier_answers() -> None:
    commands, sequencer = shared()
    sequencer.hold = asyncio.Event()
    first = asyncio.create_task(commands.outcome(end(1)))
    await turns()
    second = asyncio.create_task(commands.outcome(end(2)))
    await turns()
    assert sequencer.commands == [[end(1)], [end(2)]]
    sequencer.hold.set()
    assert await asyncio.gather(first, second) == [(TransactionEnded(1, 4), ENTRY), (TransactionEnded(2, 4), ENTRY)]


async def test_one_message_holds_a_limited_number_of_commands() -> None:
    commands, sequencer = shared()
    await asyncio.gather(*(commands.outcome(end(number)) for number in range(COMMANDS_MAX + 1)))
    assert [len(group) for group in sequencer.commands] == [COMMANDS_MAX, 1]


async def test_a_large_command_is_sent_alone_so_that_others_do_not_fail_with_it() -> None:
    commands, sequencer = shared()
    large = end(2, "x" * MESSAGE_BYTES_MAX)
    await asyncio.gather(*(commands.outcome(command) for command in (end(1), large, end(3))))
    assert sequencer.commands == [[end(1)], [large], [end(3)]]


@pytest.mark.parametrize("error", [Unavailable("no sequencer answered"), Invalid("too large")])
async def test_all_commands_of_a_failed_message_get_its_error(error: Exception) -> None:
    commands, sequencer = shared()

    def fail(command: Command) -> Outcome:
        raise error

    sequencer.on_command = fail
    results = await asyncio.gather(*(commands.outcome(end(number)) for number in range(2)), return_exceptions=True)
    assert results == [error, error]


async def test_a_command_cancelled_before_sending_is_not_sent_and_one_cancelled_later_fails_no_other() -> None:
    commands, sequencer = shared()
    sequencer.hold = asyncio.Event()
    asked = [asyncio.create_task(commands.outcome(end(number))) for number in range(3)]
    asyncio.get_running_loop().call_soon(asked[0].cancel)  # before the commands of this iteration are sent
    await turns()
    assert sequencer.commands == [[end(1), end(2)]]
    asked[1].cancel()
    sequencer.hold.set()
    assert await asked[2] == (TransactionEnded(2, 4), ENTRY)


async def test_a_closed_batcher_has_cancelled_all_commands() -> None:
    commands, sequencer = shared()
    sequencer.hold = asyncio.Event()
    asked = asyncio.create_task(commands.outcome(end(1)))
    await turns()
    waiting = asyncio.create_task(commands.outcome(end(2)))
    await asyncio.sleep(0)
    await commands.close()
    assert [type(each) for each in await asyncio.gather(asked, waiting, return_exceptions=True)] == [
        asyncio.CancelledError,
        asyncio.CancelledError,
    ]
    assert sequencer.commands == [[end(1)]]
