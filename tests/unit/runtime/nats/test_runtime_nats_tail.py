"""The feed of a JetStream consumer: strict order, flow control, and the events that break it."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, strategies as st

from penstock.runtime.journal import JournalEntry
from penstock.runtime.nats.tail import Feed, TailLimits
from tests.testkit.fakes.virtual_time import in_virtual_time

LIMITS = TailLimits()


class Message(msgspec.Struct):
    """A message as the client delivers it."""

    reply: str
    data: bytes = b""
    headers: dict[str, str] | None = None


class Recorder:
    """Keeps the subjects that the feed publishes to."""

    def __init__(self) -> None:
        self.published: list[str] = []

    async def __call__(self, subject: str, _data: bytes) -> None:
        self.published.append(subject)


def entry(sequence: int, *, consumed: int | None = None, data: bytes = b"x") -> Message:
    count = sequence if consumed is None else consumed
    return Message(f"$JS.ACK.penstock-journal-c.abc.1.{sequence}.{count}.1700000000.0", data)


def heartbeat(sent: int, stalled: str = "") -> Message:
    headers = {"Status": "100", "Description": "Idle Heartbeat", "Nats-Last-Consumer": str(sent)}
    return Message("", headers=headers | ({"Nats-Consumer-Stalled": stalled} if stalled else {}))


def flow_control(subject: str) -> Message:
    return Message(subject, headers={"Status": "100", "Description": "FlowControl Request"})


def sequences(group: list[JournalEntry]) -> list[int]:
    return [each.sequence for each in group]


async def test_entries_are_handed_out_in_order_with_their_bytes() -> None:
    feed = Feed(Recorder(), 5)
    feed.deliver(entry(5, consumed=1, data=b"a"))
    feed.deliver(entry(6, consumed=2, data=b""))
    assert await feed.take() == [JournalEntry(5, b"a"), JournalEntry(6, b"")]
    assert not feed.broken


async def test_a_domain_before_the_stream_changes_nothing() -> None:
    feed = Feed(Recorder(), 7)
    feed.deliver(Message("$JS.ACK.hub.account.penstock-journal-c.abc.1.7.1.1700000000.0.token", b"x"))
    assert sequences(await feed.take()) == [7]


async def test_a_missing_entry_ends_the_feed_after_the_entries_before_it() -> None:
    feed = Feed(Recorder(), 1)
    for message in (entry(1), entry(3), entry(2)):
        feed.deliver(message)
    assert sequences(await feed.take()) == [1]
    assert await feed.take() == []
    assert feed.broken == "entry 3 came instead of 2"


async def test_an_entry_seen_already_is_ignored() -> None:
    feed = Feed(Recorder(), 1)
    for message in (entry(1), entry(1, consumed=2), entry(2, consumed=3)):
        feed.deliver(message)
    assert sequences(await feed.take()) == [1, 2]


async def test_flow_control_is_answered_only_when_the_entries_before_it_were_taken() -> None:
    publish = Recorder()
    feed = Feed(publish, 1, limits=TailLimits(group_entries_max=2))
    for message in (entry(1), entry(2), entry(3), flow_control("$JS.FC.one"), entry(4)):
        feed.deliver(message)
    assert sequences(await feed.take()) == [1, 2]
    assert publish.published == []
    assert sequences(await feed.take()) == [3, 4]
    assert publish.published == ["$JS.FC.one"]


async def test_a_stalled_consumer_is_resumed() -> None:
    publish = Recorder()
    feed = Feed(publish, 1)
    feed.deliver(heartbeat(0, stalled="$JS.FC.two"))
    feed.deliver(entry(1))
    assert sequences(await feed.take()) == [1]
    assert publish.published == ["$JS.FC.two"]


async def test_a_heartbeat_that_counts_more_than_came_breaks_the_feed() -> None:
    feed = Feed(Recorder(), 1)
    feed.deliver(entry(1))
    feed.deliver(heartbeat(1))
    assert not feed.broken
    feed.deliver(heartbeat(2))
    assert feed.broken == "2 messages were sent but 1 came"


@in_virtual_time
async def test_a_consumer_that_falls_silent_breaks_the_feed_and_heartbeats_keep_it() -> None:
    feed = Feed(Recorder(), 1)
    taking = asyncio.create_task(feed.take())
    loop = asyncio.get_running_loop()
    last_beat_s = 0.0
    for _ in range(10):
        last_beat_s = loop.time()
        feed.deliver(heartbeat(0))
        await asyncio.sleep(LIMITS.heartbeat_ms / 1000)
    assert not taking.done()
    assert await taking == []
    assert loop.time() - last_beat_s == pytest.approx(LIMITS.heartbeats_missed_max * LIMITS.heartbeat_ms / 1000)
    assert feed.broken == "the consumer fell silent"


@in_virtual_time
async def test_an_interruption_ends_the_wait_at_once() -> None:
    feed = Feed(Recorder(), 1)
    taking = asyncio.create_task(feed.take())
    await asyncio.sleep(0)
    feed.interrupt()
    assert await taking == []
    assert asyncio.get_running_loop().time() == 0
    assert feed.broken == "the connection broke"


async def test_groups_are_bounded_in_entries_and_in_bytes() -> None:
    feed = Feed(Recorder(), 1, limits=TailLimits(group_bytes_max=1000))
    for sequence in range(1, 700):
        feed.deliver(entry(sequence, data=b""))
    for sequence in range(700, 705):
        feed.deliver(entry(sequence, data=bytes(400)))
    assert [len(await feed.take()) for _ in range(3)] == [256, 256, 190]
    assert [len(await feed.take()) for _ in range(1)] == [2]


async def test_closing_ends_everything_in_reverse_order_and_only_once() -> None:
    feed = Feed(Recorder(), 1)
    ended: list[str] = []

    def end(name: str) -> Callable[[], asyncio.Future[None]]:
        def run() -> asyncio.Future[None]:
            ended.append(name)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done

        return run

    feed.on_close(lambda: ended.append("listener"))
    feed.end_with(end("subscription"))
    feed.end_with(end("consumer"))
    await feed.close()
    await feed.close()
    assert ended == ["listener", "consumer", "subscription"]


@given(st.lists(st.integers(1, 12), max_size=60), st.integers(1, 4))
def test_for_any_input_the_entries_taken_have_no_gap_and_no_repeat(came: list[int], first: int) -> None:
    async def run() -> list[int]:
        feed = Feed(Recorder(), first)
        for count, sequence in enumerate(came, 1):
            feed.deliver(entry(sequence, consumed=count))
        feed.interrupt()
        taken: list[int] = []
        while group := await feed.take():
            taken += sequences(group)
        return taken

    taken = asyncio.run(run())
    assert taken == list(range(first, first + len(taken)))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
async def test_a_feed_whose_end_is_cancelled_still_ends_its_subscription(count: int) -> None:
    """Else the client would keep the subscription, and open it again after each reconnect."""
    feed, ended = Feed(Recorder(), 1), list[str]()

    async def end(name: str) -> None:
        ended.append(name)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    feed.end_with(lambda: end("subscription"))
    feed.end_with(lambda: end("consumer"))
    closing = asyncio.create_task(feed.close())
    for _ in range(count):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert ended == ["consumer", "subscription"]
