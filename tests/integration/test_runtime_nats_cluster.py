"""Connections and the journal over three real nats-servers: nodes that hang, die, start late, or lose the stream."""

import asyncio
import contextlib
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec import structs

from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.subjects import journal_stream
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.journal import Journal, JournalGap, JournalLost
from penstock.runtime.nats.client import NatsConnection, NatsLimits
from penstock.runtime.nats.journal import JournalLimits
from penstock.runtime.nats.loss import LossLimits
from penstock.runtime.nats.patched_client import PatchedClient
from tests.testkit.servers.connections import SLOW_MACHINE, connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.servers.nats_cluster import NatsCluster, NatsNode, running_nats_cluster
from tests.testkit.waiting import TIMEOUT_S, known, until

PROVEN_AFTER_S = 2.0
ELECTIONS_S = 120.0  # each takes up to 9 s on an idle machine
ATTEMPT_REQUESTS_MAX = 4  # requests of one attempt to find or create a journal
SENDERS = 1_500  # more than the client's own queue for flushes


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    with running_nats_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: NatsCluster) -> Iterator[NatsCluster]:
    """The cluster that all tests share; each test restores it."""
    yield shared_cluster
    shared_cluster.heal()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A journal name for one test."""
    return f"test-{zlib.crc32(request.node.name.encode()):x}"


@pytest.fixture
async def connection(cluster: NatsCluster) -> AsyncIterator[NatsConnection]:
    made = await connect_nats(cluster.url, name="test")
    yield made
    await made.close()


def connected_to(client: PatchedClient, node: NatsNode) -> bool:
    return client.connected_url is not None and client.connected_url.port == node.port


def with_journal(limits: JournalLimits) -> NatsLimits:
    return structs.replace(SLOW_MACHINE, journal=limits)


async def append_until_stored(journal: Journal, entry_id: str) -> int:
    return await known(lambda: journal.append(entry_id, entry_id.encode()), ELECTIONS_S)


class Tail:
    """The sequences that one tail of a journal delivers."""

    def __init__(self, journal: Journal) -> None:
        self.sequences: list[int] = []
        self.task = asyncio.create_task(self._read(journal))

    async def _read(self, journal: Journal) -> None:
        async for group in journal.tail(0):
            self.sequences.extend(entry.sequence for entry in group)

    def has(self, sequence: int) -> bool:
        if self.task.done():
            self.task.result()
        return bool(self.sequences) and self.sequences[-1] >= sequence

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def test_servers_are_tried_in_the_order_in_which_they_are_named(cluster: NatsCluster) -> None:
    limits = structs.replace(SLOW_MACHINE, connect_attempt_s=TIMEOUT_S)
    for first in cluster.nodes:
        client = PatchedClient()
        connection = await connect_nats(cluster.url_from(first), name="test", client=client, limits=limits)
        assert connected_to(client, first)
        await connection.close()


async def test_a_server_with_an_unknown_name_or_that_does_not_run_is_skipped(cluster: NatsCluster) -> None:
    dead, alive, _ = cluster.nodes
    dead.kill()
    client = PatchedClient()
    url = f"nats://nowhere.invalid:4222,{cluster.url_from(dead)}"
    connection = await connect_nats(url, name="test", client=client)
    assert connected_to(client, alive)
    await connection.close()


@pytest.mark.slow
async def test_a_leader_that_was_paused_gives_no_old_answers_when_it_resumes(
    cluster: NatsCluster, connection: NatsConnection, name: str
) -> None:
    """A resumed leader reports for more than 0.1 s that it leads, while other nodes have stored more entries."""
    journal = await connection.journal(name, create=True, replicas=3)
    await append_until_stored(journal, "before")
    leader = await until(lambda: cluster.stream_leader(journal_stream(name)))
    assert leader is not None
    others = ",".join(node.url for node in cluster.nodes if node is not leader)
    to_others, to_leader = await connect_nats(others, name="others"), await connect_nats(leader.url, name="leader")
    queried = await to_leader.journal(name, create=False)
    stored = await to_others.journal(name, create=False)
    leader.pause()
    last = await append_until_stored(stored, "meanwhile")
    answers = [asyncio.create_task(queried.last_sequence()) for _ in range(3)]
    await asyncio.sleep(0)
    leader.resume()
    for answer in answers:
        with contextlib.suppress(Unavailable):
            assert await answer == last
    seen = 0
    async with asyncio.timeout(ELECTIONS_S):
        while not seen:
            with contextlib.suppress(Unavailable):
                seen = await queried.last_sequence()
    assert seen == last
    await to_others.close()
    await to_leader.close()


@pytest.mark.slow
async def test_the_client_leaves_a_server_that_hangs_with_a_full_socket(cluster: NatsCluster) -> None:
    """The server's kernel still answers, so the socket neither breaks nor takes more bytes."""
    hung, *others = cluster.nodes
    client = PatchedClient()
    connection = await connect_nats(cluster.url, name="test", client=client)
    hung.pause()
    started_s = time.monotonic()

    async def send_for_ever() -> None:
        while True:
            await connection.bus.publish("events", bytes(64 * 1024))
            await asyncio.sleep(0)

    senders = [asyncio.create_task(send_for_ever()) for _ in range(SENDERS)]
    await until(lambda: any(connected_to(client, node) for node in others))
    took_s = time.monotonic() - started_s
    for sender in senders:
        sender.cancel()
    await asyncio.gather(*senders, return_exceptions=True)
    await connection.bus.flush()
    await connection.close()
    print(f"left after {took_s:.1f} s")


@pytest.mark.slow
async def test_requests_that_failed_do_not_reach_the_next_server(cluster: NatsCluster) -> None:
    hung, following, third = cluster.nodes
    listener = await connect_nats(third.url, name="listener")
    received: list[int] = []

    async def receive(message: Inbound) -> None:
        received.append(len(message.data))

    await listener.bus.subscribe("work", receive)
    await listener.bus.flush()
    client = PatchedClient()
    connection = await connect_nats(cluster.url, name="test", client=client)
    hung.pause()
    requests = []
    for _ in range(12):  # the first fills the socket, the others wait behind it
        requests.append(asyncio.create_task(connection.bus.request("work", bytes(4 * 1024 * 1024), 60.0)))
        await asyncio.sleep(0.01)
    assert client.pending_data_size, "nothing waits"
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    await until(lambda: connected_to(client, following) or connected_to(client, third))
    await connection.bus.publish("work", b"the last")
    await until(lambda: received and received[-1] == len(b"the last"))
    assert received == [len(b"the last")]
    await connection.close()
    await listener.close()


@pytest.mark.slow
async def test_a_journal_is_created_when_the_last_node_that_it_needs_has_started(
    cluster: NatsCluster, name: str
) -> None:
    cluster.kill()
    first, *others = cluster.nodes
    await asyncio.to_thread(first.start)
    client = PatchedClient()
    limits = with_journal(JournalLimits(open_deadline_s=120.0))  # on a busy machine nodes find each other slowly
    connection = await connect_nats(cluster.url, name="test", client=client, limits=limits)
    opening = asyncio.create_task(connection.journal(name, create=True, replicas=3))
    for node in others:
        asked = client.stats["out_msgs"]
        # So many requests are one whole failed attempt with the present nodes.
        await until(lambda asked=asked: client.stats["out_msgs"] > asked + ATTEMPT_REQUESTS_MAX)
        assert not opening.done()
        await asyncio.to_thread(node.start)
    journal = await opening
    assert (await known(journal.describe)).replicas == 3
    await connection.close()


async def test_with_too_few_nodes_there_is_no_journal_and_the_error_has_the_reason(
    cluster: NatsCluster, connection: NatsConnection, name: str
) -> None:
    await connection.journal(f"{name}-of-three", create=True, replicas=3)  # after this the nodes have a leader
    hasty = await connect_nats(cluster.url, name="hasty", limits=with_journal(JournalLimits(open_deadline_s=1.0)))
    expected = rf"^no journal of {name} within 1 s: cannot create the stream .*{name} with 5 replicas: .*peers"
    reported = ""
    async with asyncio.timeout(TIMEOUT_S):
        while not re.search(expected, reported):  # on a busy machine the first errors may differ
            with pytest.raises(Unavailable) as rejected:
                await hasty.journal(name, create=True, replicas=5)
            reported = str(rejected.value)
    await hasty.close()


async def test_a_node_alone_has_no_journal_and_the_error_has_the_reason(cluster: NatsCluster, name: str) -> None:
    cluster.kill()
    await asyncio.to_thread(cluster.nodes[0].start)
    limits = with_journal(JournalLimits(open_deadline_s=1.0))
    connection = await connect_nats(cluster.url, name="test", limits=limits)
    expected = rf"^no journal of {name} within 1 s: .*; does a majority of the nats-servers run\?$"
    with pytest.raises(Unavailable, match=expected):
        await connection.journal(name, create=True, replicas=3)
    await connection.close()


async def test_a_single_server_cannot_keep_three_copies(shared_nats_server: NatsServer) -> None:
    connection = await connect_nats(shared_nats_server.url, name="test")
    with pytest.raises(Invalid, match="with 3 replicas: replicas > 1 not supported in non-clustered mode"):
        await connection.journal("three-copies", create=True, replicas=3)
    await connection.close()


async def test_a_journal_with_fewer_copies_than_configured_is_rejected(connection: NatsConnection, name: str) -> None:
    await connection.journal(name, create=True, replicas=1)
    with pytest.raises(Invalid, match=r"has 1 replicas, but the settings ask for 3: run `penstock journal replicas 3`"):
        await connection.journal(name, create=False, replicas=3)


async def test_a_journal_with_more_copies_than_configured_is_accepted(connection: NatsConnection, name: str) -> None:
    await connection.journal(name, create=True, replicas=3)
    journal = await connection.journal(name, create=True, replicas=1)
    assert (await known(journal.describe)).replicas == 3


@pytest.mark.slow
async def test_a_tail_goes_on_when_the_node_that_serves_it_dies(cluster: NatsCluster, name: str) -> None:
    home = cluster.nodes[0]
    connection = await connect_nats(cluster.url_from(home), name="test")
    journal = await connection.journal(name, create=True, replicas=3)
    tail = Tail(journal)
    last = await append_until_stored(journal, "first")
    await until(lambda: tail.has(last))
    (served_by,) = (await until(lambda: cluster.consumer_nodes(journal_stream(name)))).values()
    await asyncio.to_thread(served_by.kill)
    killed_s = time.monotonic()
    last = await append_until_stored(journal, "after")
    stored_s = time.monotonic()
    await until(lambda: tail.has(last))
    print(f"stored after {stored_s - killed_s:.1f} s, read {time.monotonic() - stored_s:.1f} s later")
    assert tail.sequences == list(range(1, last + 1))
    await tail.stop()
    await connection.close()


async def test_a_deleted_stream_is_reported_as_lost_after_a_while(cluster: NatsCluster, name: str) -> None:
    limits = with_journal(JournalLimits(loss=LossLimits(proven_after_s=PROVEN_AFTER_S)))
    connection = await connect_nats(cluster.url, name="test", limits=limits)
    journal = await connection.journal(name, create=True, replicas=3)
    tail = Tail(journal)
    await append_until_stored(journal, "first")
    await until(lambda: tail.has(1))
    await connection.bus.request(f"$JS.API.STREAM.DELETE.{journal_stream(name)}", b"", TIMEOUT_S)
    deleted_s = time.monotonic()
    reported = ""
    while "has no stream" not in reported:  # the other error is that no answer came in time
        with pytest.raises(Unavailable) as raised:
            await journal.describe()
        reported = str(raised.value)
    assert reported.endswith("(the state of this nats server may be out of date)")
    with pytest.raises(JournalLost, match=f"nats has no stream {journal_stream(name)}"):
        await asyncio.wait_for(tail.task, TIMEOUT_S)
    assert time.monotonic() - deleted_s >= PROVEN_AFTER_S
    with pytest.raises(JournalLost):
        await connection.journal(name, create=False, replicas=3)
    await connection.close()


async def test_a_missing_entry_is_reported_as_a_gap_after_a_while(cluster: NatsCluster, name: str) -> None:
    limits = with_journal(JournalLimits(loss=LossLimits(proven_after_s=0.5)))
    connection = await connect_nats(cluster.url, name="test", limits=limits)
    journal = await connection.journal(name, create=True, replicas=3)
    for number in range(3):
        await append_until_stored(journal, str(number))
    await connection.bus.request(f"$JS.API.STREAM.PURGE.{journal_stream(name)}", b'{"seq": 3}', TIMEOUT_S)
    with pytest.raises(JournalGap, match="journal entries 1 to 2 are gone"):
        await asyncio.wait_for(Tail(journal).task, TIMEOUT_S)
    await connection.close()
