"""Requests between roles of one process: no copy, no server, and no harm when roles end."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Invalid, Unavailable, Undelivered
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.bus.local_first import LocalFirstLimits, SharedBus
from tests.testkit.fakes.memory_bus import MemoryHub, MemorySubscription
from tests.testkit.fakes.virtual_time import in_virtual_time
from tests.testkit.waiting import until

TIMEOUT_S = 60.0


class Process:
    """A process with two roles, beside another process on the same bus."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.real = self.hub.connect("process")
        self.shared = SharedBus(self.real, limits=LocalFirstLimits(silent_avoided_s=0.05, leave_s=0.05))
        self.asker, self.answerer = self.shared.connect(), self.shared.connect()
        self.other = self.hub.connect("other")


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    made = Process()
    yield made
    await made.asker.close()
    await made.answerer.close()
    await made.hub.close()


async def here(message: Inbound) -> None:
    await message.respond(b"here")


async def elsewhere(message: Inbound) -> None:
    await message.respond(b"elsewhere")


async def test_a_local_request_and_its_answer_keep_the_buffers_of_their_senders(process: Process) -> None:
    received: list[Sequence[Buffer]] = []
    answer: list[Buffer] = [b"head", memoryview(bytearray(b"body"))]

    async def handler(message: Inbound) -> None:
        received.append(message.buffers)
        await message.respond(answer)

    await process.answerer.subscribe("question", handler)
    question: list[Buffer] = [b"head", memoryview(b"body"), bytearray(b"rest")]
    found = await process.asker.request_buffers("question", question, TIMEOUT_S)
    assert [id(each) for each in received[0]] == [id(each) for each in question]
    assert [id(each) for each in found] == [id(each) for each in answer]
    assert not process.hub.published, "nothing crossed the servers"


async def test_a_request_from_another_process_reaches_the_same_handler(process: Process) -> None:
    await process.answerer.subscribe("question", here)
    assert await process.other.request("question", b"x", TIMEOUT_S) == b"here"
    assert [subject for subject, _ in process.hub.published] == ["question"]


async def test_local_and_remote_requests_are_handled_one_after_the_other(process: Process) -> None:
    running = most = 0

    async def slow(message: Inbound) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        await message.respond(message.data)

    await process.answerer.subscribe("question", slow)
    buses = (process.asker, process.other)
    answers = await asyncio.gather(*(buses[n % 2].request("question", b"%d" % n, TIMEOUT_S) for n in range(50)))
    assert answers == [b"%d" % n for n in range(50)]
    assert most == 1


async def test_local_requests_arrive_in_the_order_of_their_sender(process: Process) -> None:
    received: list[bytes] = []

    async def handler(message: Inbound) -> None:
        received.append(message.data)
        await message.respond(b"")

    await process.answerer.subscribe("question", handler)
    await asyncio.gather(*(process.asker.request("question", b"%d" % n, TIMEOUT_S) for n in range(200)))
    assert received == [b"%d" % n for n in range(200)]


async def test_a_remote_receiver_takes_over_when_the_local_one_unsubscribed(process: Process) -> None:
    subscription = await process.answerer.subscribe("question", here, "crew")
    await process.other.subscribe("question", elsewhere, "crew")
    for _ in range(4):
        assert await process.asker.request("question", b"x", TIMEOUT_S) == b"here"
    assert process.asker.is_local("question")
    await subscription.unsubscribe()
    assert not process.asker.is_local("question")
    assert await process.asker.request("question", b"x", TIMEOUT_S) == b"elsewhere"


async def test_unsubscribing_lets_waiting_local_requests_finish(process: Process) -> None:
    proceed = asyncio.Event()

    async def slow(message: Inbound) -> None:
        await proceed.wait()
        await message.respond(message.data)

    subscription = await process.answerer.subscribe("question", slow)
    asking = [asyncio.create_task(process.asker.request("question", b"%d" % n, TIMEOUT_S)) for n in range(3)]
    await asyncio.sleep(0)
    ending = asyncio.create_task(subscription.unsubscribe())
    await asyncio.sleep(0)
    proceed.set()
    assert await asyncio.gather(*asking) == [b"0", b"1", b"2"]
    await asyncio.wait_for(ending, TIMEOUT_S)
    with pytest.raises(Undelivered):
        await process.asker.request("question", b"x", TIMEOUT_S)


@in_virtual_time
async def test_a_silent_local_member_of_a_queue_group_is_avoided_for_a_while() -> None:
    process = Process()

    async def silent(message: Inbound) -> None:
        assert message.data

    await process.answerer.subscribe("question", silent, "crew")
    with pytest.raises(Unavailable, match=r"no answer on question within 0\.01 s"):
        await process.asker.request("question", b"x", 0.01)
    assert not process.asker.is_local("question"), "the servers choose a member for the next attempt"
    await until(lambda: process.asker.is_local("question"))


async def test_the_only_receiver_of_a_subject_is_never_avoided(process: Process) -> None:
    async def silent(message: Inbound) -> None:
        assert message.data

    await process.answerer.subscribe("question", silent)
    with pytest.raises(Unavailable):
        await process.asker.request("question", b"x", 0.01)
    assert process.asker.is_local("question")


async def test_an_outage_does_not_disturb_a_local_request(process: Process) -> None:
    proceed = asyncio.Event()

    async def slow(message: Inbound) -> None:
        await proceed.wait()
        await message.respond(b"done")

    await process.answerer.subscribe("question", slow)
    asking = asyncio.create_task(process.asker.request("question", b"x", TIMEOUT_S))
    await asyncio.sleep(0)
    process.real.cut()
    assert not process.asker.is_connected
    proceed.set()
    assert await asking == b"done"
    process.real.mend()


async def test_a_cancelled_local_request_does_not_end_its_handler(process: Process) -> None:
    begun, proceed, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(message: Inbound) -> None:
        begun.set()
        await proceed.wait()
        await message.respond(b"too late")
        finished.set()

    await process.answerer.subscribe("question", slow)
    asking = asyncio.create_task(process.asker.request("question", b"x", TIMEOUT_S))
    await begun.wait()
    asking.cancel()
    await asyncio.wait({asking})
    proceed.set()
    await asyncio.wait_for(finished.wait(), TIMEOUT_S)


async def test_other_work_runs_between_local_requests(process: Process) -> None:
    handled, seen_between = 0, []

    async def handler(message: Inbound) -> None:
        nonlocal handled
        handled += 1
        await message.respond(b"")

    async def other_work() -> None:
        while handled < 100:
            seen_between.append(handled)
            await asyncio.sleep(0)

    await process.answerer.subscribe("question", handler)
    requests = [asyncio.create_task(process.asker.request("question", b"x", TIMEOUT_S)) for _ in range(100)]
    await asyncio.gather(other_work(), *requests)
    assert len(set(seen_between)) > 50, "the loop must not wait until all requests are handled"


@pytest.mark.parametrize("is_local", [True, False])
async def test_an_exception_of_a_handler_ends_its_role_and_no_other(process: Process, is_local: bool) -> None:
    async def broken(message: Inbound) -> None:
        raise ValueError(f"a bug after {len(message.data)} byte")

    await process.answerer.subscribe("question", broken)
    await process.asker.subscribe("other question", here)
    running = [asyncio.create_task(bus.run_until_closed()) for bus in (process.asker, process.answerer)]
    sender = process.asker if is_local else process.other
    with pytest.raises(Unavailable):
        await sender.request("question", b"x", 0.05)
    with pytest.raises(ValueError, match="a bug after 1 byte"):
        await asyncio.wait_for(running[1], TIMEOUT_S)
    assert await process.other.request("other question", b"x", TIMEOUT_S) == b"here"
    assert not running[0].done()
    running[0].cancel()


async def test_a_closed_role_takes_no_messages_of_the_servers_from_other_members(process: Process) -> None:
    await process.answerer.subscribe("question", here, "queue")
    await process.answerer.close()
    await process.other.subscribe("question", elsewhere, "queue")
    for _ in range(20):  # the servers choose a member by chance
        assert await process.asker.request("question", b"x", TIMEOUT_S) == b"elsewhere"


async def test_a_closed_role_leaves_the_connection_to_the_other_roles(process: Process) -> None:
    await process.answerer.subscribe("question", here)
    asking = asyncio.create_task(process.answerer.request("silence", b"x", TIMEOUT_S))
    await process.other.subscribe("silence", _never)
    await process.answerer.close()
    await process.answerer.close()
    assert process.asker.is_connected and not process.answerer.is_connected
    with pytest.raises(Unavailable, match="the bus is closed"):
        await process.answerer.request("question", b"x", TIMEOUT_S)
    assert not process.asker.is_local("question")
    asking.cancel()
    await asyncio.wait({asking})
    await process.asker.close()
    assert process.real.is_closed


async def test_a_role_ends_soon_while_the_servers_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the end of one of many clusters would use up its deadline, and leave its store open."""
    made, ended = Process(), list[bool]()

    async def hang(_subscription: MemorySubscription) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    await made.answerer.subscribe("question", here)
    await made.answerer.subscribe("other question", here)
    monkeypatch.setattr(MemorySubscription, "unsubscribe", hang)
    async with asyncio.timeout(TIMEOUT_S):
        await made.answerer.close()
    assert ended == [True, True]
    assert made.asker.is_connected
    await made.asker.close()
    await made.hub.close()


async def test_a_local_message_has_the_size_limit_of_the_servers(process: Process) -> None:
    async def too_much(message: Inbound) -> None:
        with pytest.raises(Invalid, match="is over the limit"):
            await message.respond([bytes(maximum), b"x"])
        await message.respond(b"small")

    await process.answerer.subscribe("question", too_much)
    maximum = process.asker.message_bytes_max
    with pytest.raises(Invalid, match=f"message of {maximum + 1} bytes on question is over the limit"):
        await process.asker.request("question", [bytes(maximum), b"x"], TIMEOUT_S)
    assert await process.asker.request("question", bytes(maximum), TIMEOUT_S) == b"small"


async def _never(message: Inbound) -> None:
    assert message.data
