"""The contract of every bus: the one in memory, the simulated one, nats, and the one of roles in one process."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.contracts.errors import Invalid, PenstockError, Unavailable, Undelivered
from penstock.runtime.bus.bus import Bus, Inbound
from penstock.runtime.bus.local_first import SharedBus
from tests.testkit.fakes.memory_bus import MemoryBus, MemoryHub
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.sim.environment.bus import SimHub
from tests.testkit.sim.environment.wire import Latency, Wire
from tests.testkit.waiting import until

TIMEOUT_S = 60.0
FOREVER_S = 86_400.0  # longer than a test may take


class World:
    """Connections to one bus, and its outages."""

    breaks_requests = True  # whether an outage breaks all requests that are in flight

    def __init__(self) -> None:
        self.buses: list[Bus] = []

    async def connect(self, name: str) -> Bus:
        """Open another connection."""
        raise AssertionError("a world must define its connections")

    async def outage(self) -> None:
        """Break all connections."""

    async def recovery(self) -> None:
        """Restore all connections."""

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()


class MemoryWorld(World):
    def __init__(self, hub: MemoryHub) -> None:
        super().__init__()
        self._hub = hub

    async def connect(self, name: str) -> Bus:
        self.buses.append(self._hub.connect(name))
        return self.buses[-1]

    async def outage(self) -> None:
        for bus in self.buses:
            assert isinstance(bus, MemoryBus)
            bus.cut()

    async def recovery(self) -> None:
        for bus in self.buses:
            assert isinstance(bus, MemoryBus)
            bus.mend()


class SimulatedWorld(MemoryWorld):
    def __init__(self) -> None:
        wire = Wire(asyncio.get_running_loop(), random.Random(1), Latency(0.0005, 0.005, 0.01))
        self._simulated = SimHub(wire)
        super().__init__(self._simulated)

    async def outage(self) -> None:
        for bus in self.buses:
            assert isinstance(bus, MemoryBus)
            self._simulated.cut(bus.name)

    async def recovery(self) -> None:
        for bus in self.buses:
            assert isinstance(bus, MemoryBus)
            self._simulated.mend(bus.name)


class NatsWorld(World):
    def __init__(self, server: NatsServer) -> None:
        super().__init__()
        self._server = server

    async def connect(self, name: str) -> Bus:
        self.buses.append((await connect_nats(self._server.url, name=name)).bus)
        return self.buses[-1]

    async def outage(self) -> None:
        self._server.kill()
        await until(lambda: not any(bus.is_connected for bus in self.buses))

    async def recovery(self) -> None:
        self._server.start()
        await until(lambda: all(bus.is_connected for bus in self.buses))


class ProcessesWorld(World):
    """Every connection is the only role of a process, so that all messages cross nats."""

    def __init__(self, nats: NatsWorld) -> None:
        super().__init__()
        self._nats = nats

    async def connect(self, name: str) -> Bus:
        self.buses.append(SharedBus(await self._nats.connect(name)).connect())
        return self.buses[-1]

    async def outage(self) -> None:
        await self._nats.outage()

    async def recovery(self) -> None:
        await self._nats.recovery()


class RolesWorld(ProcessesWorld):
    """All connections are roles of one process."""

    breaks_requests = False

    def __init__(self, nats: NatsWorld) -> None:
        super().__init__(nats)
        self._shared: SharedBus | None = None

    async def connect(self, name: str) -> Bus:
        if self._shared is None:
            self._shared = SharedBus(await self._nats.connect("process"))
        self.buses.append(self._shared.connect())
        return self.buses[-1]


@pytest.fixture(params=["memory", "simulated", "nats", "processes", "roles"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made: World
    match request.param:
        case "memory":
            made = MemoryWorld(MemoryHub())
        case "simulated":
            made = SimulatedWorld()
        case "processes":
            made = ProcessesWorld(NatsWorld(request.getfixturevalue("nats_server")))
        case "roles":
            made = RolesWorld(NatsWorld(request.getfixturevalue("nats_server")))
        case _:
            made = NatsWorld(request.getfixturevalue("nats_server"))
    yield made
    await made.close()


class Collector:
    """A handler that keeps what it is given."""

    def __init__(self) -> None:
        self.subjects: list[str] = []
        self.data: list[bytes] = []

    async def __call__(self, message: Inbound) -> None:
        self.subjects.append(message.subject)
        self.data.append(message.data)


async def echo(message: Inbound) -> None:
    await message.respond(b"echo of " + message.data)


async def silence(message: Inbound) -> None:
    assert message.data


async def subscribed(bus: Bus, subject: str, handler: Callable[[Inbound], Awaitable[None]], queue: str = "") -> None:
    await bus.subscribe(subject, handler, queue)
    await bus.flush()


async def test_a_published_message_reaches_every_subscriber(world: World) -> None:
    sender, receivers, collectors = await world.connect("a"), [], [Collector(), Collector()]
    for index, collector in enumerate(collectors):
        receivers.append(await world.connect(f"r{index}"))
        await subscribed(receivers[-1], "news", collector)
    await sender.publish("news", b"one")
    await until(lambda: all(collector.data == [b"one"] for collector in collectors))


async def test_messages_of_one_publisher_arrive_in_order(world: World) -> None:
    sender, receiver, collector = await world.connect("a"), await world.connect("b"), Collector()
    await subscribed(receiver, "numbers", collector)
    sent = [b"%d" % number for number in range(2000)]
    for data in sent:
        await sender.publish("numbers", data)
    await until(lambda: len(collector.data) == len(sent))
    assert collector.data == sent


async def test_a_handler_gets_the_next_message_only_after_it_returned(world: World) -> None:
    bus, running, most, done = await world.connect("a"), 0, 0, 0

    async def handler(_message: Inbound) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        done += 1

    await subscribed(bus, "work", handler)
    for _ in range(20):
        await bus.publish("work", b"x")
    await until(lambda: done == 20)
    assert most == 1


async def test_one_of_a_queue_group_gets_each_message_and_every_other_subscriber_too(world: World) -> None:
    sender, members, alone = await world.connect("a"), [Collector(), Collector()], Collector()
    for index, member in enumerate(members):
        await subscribed(await world.connect(f"m{index}"), "jobs", member, "crew")
    await subscribed(sender, "jobs", alone)
    for number in range(200):
        await sender.publish("jobs", b"%d" % number)
    await until(lambda: sum(len(member.data) for member in members) == 200 and len(alone.data) == 200)
    assert sorted(members[0].data + members[1].data) == sorted(alone.data)
    assert all(member.data for member in members)


async def test_wildcards_match_as_in_nats(world: World) -> None:
    bus, one, rest = await world.connect("a"), Collector(), Collector()
    await subscribed(bus, "tree.*.leaf", one)
    await subscribed(bus, "tree.>", rest)
    for subject in ("tree.oak.leaf", "tree", "tree.oak", "tree.oak.leaf.green", "bush.oak.leaf"):
        await bus.publish(subject, b"x")
    await bus.flush()
    await until(lambda: len(rest.subjects) >= 3)
    assert one.subjects == ["tree.oak.leaf"]
    assert rest.subjects == ["tree.oak.leaf", "tree.oak", "tree.oak.leaf.green"]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_a_request_in_any_kind_of_buffer_is_answered(
    world: World, kind: type[bytes | bytearray | memoryview]
) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")
    await subscribed(answerer, "question", echo)
    assert await asker.request("question", kind(b"what"), TIMEOUT_S) == b"echo of what"


async def test_a_message_in_several_buffers_arrives_as_one_and_so_does_its_answer(world: World) -> None:
    asker, answerer, received = await world.connect("a"), await world.connect("b"), Collector()

    async def answer(message: Inbound) -> None:
        await received(message)
        assert b"".join(message.buffers) == message.data
        await message.respond([b"one ", memoryview(b"two "), bytearray(b"three")])

    await subscribed(answerer, "question", answer)
    data = [b"head ", memoryview(b"body of "), bytearray(70_000), b"bytes"]
    assert await asker.request("question", data, TIMEOUT_S) == b"one two three"
    assert b"".join(await asker.request_buffers("question", data, TIMEOUT_S)) == b"one two three"
    await asker.publish("question", data)
    await until(lambda: len(received.data) == 3)
    assert set(received.data) == {b"".join(data)}


async def test_many_requests_at_once_get_their_own_answers(world: World) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")
    await subscribed(answerer, "question", echo)
    answers = await asyncio.gather(*(asker.request("question", b"%d" % n, TIMEOUT_S) for n in range(500)))
    assert answers == [b"echo of %d" % n for n in range(500)]


async def test_a_request_without_a_listener_is_undelivered_at_once(world: World) -> None:
    bus = await world.connect("a")
    with pytest.raises(Undelivered, match="no subscriber on nowhere"):
        await bus.request("nowhere", b"x", FOREVER_S)


async def test_a_request_without_an_answer_in_time_has_an_unknown_outcome(world: World) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")
    await subscribed(answerer, "question", silence)
    with pytest.raises(Unavailable, match=r"no answer on question within 0\.05 s") as caught:
        await asker.request("question", b"x", 0.05)
    assert not isinstance(caught.value, Undelivered)


async def test_a_message_of_the_maximum_size_passes_and_one_byte_more_is_invalid(world: World) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")

    async def count(message: Inbound) -> None:
        await message.respond(b"%d" % len(message.data))

    await subscribed(answerer, "size", count)
    maximum = asker.message_bytes_max
    assert maximum == 8 * 1024 * 1024
    assert await asker.request("size", bytes(maximum), TIMEOUT_S) == b"%d" % maximum
    with pytest.raises(Invalid, match=f"message of {maximum + 1} bytes on size is over"):
        await asker.request("size", bytes(maximum + 1), TIMEOUT_S)
    with pytest.raises(Invalid):
        await asker.publish("size", bytes(maximum + 1))


async def test_answering_a_published_message_does_nothing(world: World) -> None:
    bus, collector = await world.connect("a"), Collector()
    await subscribed(bus, "news", echo)
    await subscribed(bus, "news", collector)
    await bus.publish("news", b"x")
    await until(lambda: collector.data == [b"x"])
    await bus.flush()
    assert bus.is_connected


async def test_an_answer_to_a_caller_that_is_gone_does_nothing(world: World) -> None:
    asker, answerer, proceed, answered = await world.connect("a"), await world.connect("b"), asyncio.Event(), []

    async def late(message: Inbound) -> None:
        await proceed.wait()
        await message.respond(b"late")
        answered.append(message.data)

    await subscribed(answerer, "question", late)
    with pytest.raises(Unavailable):
        await asker.request("question", b"x", 0.05)
    await asker.close()
    proceed.set()
    await until(lambda: answered == [b"x"])


async def test_an_exception_in_a_handler_is_raised_where_the_bus_is_run(world: World) -> None:
    bus = await world.connect("a")

    async def broken(_message: Inbound) -> None:
        raise ValueError("a bug")

    await subscribed(bus, "news", broken)
    await bus.publish("news", b"x")
    with pytest.raises(ValueError, match="a bug"):
        await asyncio.wait_for(bus.run_until_closed(), TIMEOUT_S)


async def test_running_the_bus_ends_when_it_is_closed(world: World) -> None:
    bus = await world.connect("a")
    running = asyncio.create_task(bus.run_until_closed())
    await asyncio.sleep(0)
    assert not running.done()
    await bus.close()
    await asyncio.wait_for(running, TIMEOUT_S)


async def test_a_closed_bus_answers_nothing_and_loses_what_is_published(world: World) -> None:
    bus = await world.connect("a")
    await subscribed(bus, "question", echo)
    await bus.close()
    assert not bus.is_connected
    await bus.publish("question", b"x")
    with pytest.raises(Unavailable):
        await bus.request("question", b"x", 0.05)
    with pytest.raises(Unavailable):
        await bus.subscribe("question", echo)
    await bus.close()


async def test_closing_sends_what_was_published_before(world: World) -> None:
    sender, receiver, collector = await world.connect("a"), await world.connect("b"), Collector()
    await subscribed(receiver, "news", collector)
    sent = [b"%d" % number for number in range(100)]
    for data in sent:
        await sender.publish("news", data)
    await sender.close()
    await until(lambda: len(collector.data) >= len(sent))
    assert collector.data == sent


async def test_after_unsubscribing_only_messages_sent_before_are_handed_over(world: World) -> None:
    sender, receiver, collector = await world.connect("a"), await world.connect("b"), Collector()
    subscription = await receiver.subscribe("news", collector)
    await receiver.flush()
    for number in range(300):
        await sender.publish("news", b"%d" % number)
    await sender.flush()
    await subscription.unsubscribe()
    assert len(collector.data) == 300
    await sender.publish("news", b"late")
    await sender.flush()
    await receiver.flush()
    assert len(collector.data) == 300
    await subscription.unsubscribe()


async def test_unsubscribing_lets_a_running_handler_finish(world: World) -> None:
    bus, begun, proceed, finished = await world.connect("a"), asyncio.Event(), asyncio.Event(), []

    async def slow(message: Inbound) -> None:
        begun.set()
        await proceed.wait()
        finished.append(message.data)

    subscription = await bus.subscribe("work", slow)
    await bus.publish("work", b"x")
    await asyncio.wait_for(begun.wait(), TIMEOUT_S)
    ending = asyncio.create_task(subscription.unsubscribe())
    await bus.flush()
    assert not ending.done()
    proceed.set()
    await asyncio.wait_for(ending, TIMEOUT_S)
    assert finished == [b"x"]


async def test_a_cancelled_request_harms_no_other(world: World) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")
    await subscribed(answerer, "silence", silence)
    await subscribed(answerer, "question", echo)
    cancelled = asyncio.create_task(asker.request("silence", b"x", TIMEOUT_S))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await cancelled
    assert await asker.request("question", b"y", TIMEOUT_S) == b"echo of y"


async def test_a_request_in_flight_when_the_connection_breaks_has_an_unknown_outcome_at_once(world: World) -> None:
    asker, answerer = await world.connect("a"), await world.connect("b")
    received = Collector()
    await subscribed(answerer, "question", received)
    asking = asyncio.create_task(asker.request("question", b"x", 10 * TIMEOUT_S))
    await until(lambda: received.data == [b"x"])
    await world.outage()
    if not world.breaks_requests:
        asking.cancel()
        return
    with pytest.raises(Unavailable, match="the connection broke") as caught:
        await asyncio.wait_for(asking, TIMEOUT_S)
    assert not isinstance(caught.value, Undelivered)


async def test_offline_a_request_waits_a_moment_and_then_is_undelivered(world: World) -> None:
    bus = await world.connect("a")
    await world.outage()
    with pytest.raises(Undelivered, match="not connected"):
        await bus.request("question", b"x", 0.05)


async def test_offline_published_messages_are_lost_but_for_a_few_without_an_error(world: World) -> None:
    """A connection may keep messages in its send buffer; they arrive once and in order."""
    bus, listener, collector = await world.connect("a"), await world.connect("b"), Collector()
    await subscribed(listener, "news", collector)
    await world.outage()
    for number in range(20):
        await bus.publish("news", bytes([number]) * 1024 * 1024)
    await world.recovery()
    await listener.flush()  # after this the server has certainly received the subscription again
    await bus.publish("news", b"fresh")
    await until(lambda: b"fresh" in collector.data)
    kept = [data[0] for data in collector.data[:-1]]
    assert kept == sorted(set(kept))
    assert len(kept) < 10


async def test_subscriptions_and_requests_work_again_after_an_outage(world: World) -> None:
    asker, answerer, collector = await world.connect("a"), await world.connect("b"), Collector()
    await subscribed(answerer, "question", echo)
    await subscribed(answerer, "news", collector)
    await world.outage()
    asking = asyncio.create_task(asker.request("question", b"early", TIMEOUT_S))
    await world.recovery()
    with contextlib.suppress(PenstockError):  # the answerer may reconnect after the asker
        await asking
    await answerer.flush()  # after this the server has certainly received the subscriptions again
    assert await asker.request("question", b"again", TIMEOUT_S) == b"echo of again"
    await asker.publish("news", b"fresh")
    await until(lambda: b"fresh" in collector.data)
