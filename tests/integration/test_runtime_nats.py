"""The bus and the journal over a real nats-server: faults of servers, connections and settings."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from penstock.contracts.errors import Invalid, Unavailable
from penstock.contracts.subjects import journal_stream, journal_subject
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.journal import Journal, JournalLost
from penstock.runtime.nats.bus import BusLimits
from penstock.runtime.nats.client import NatsConnection, NatsLimits
from penstock.runtime.nats.journal import JournalLimits
from penstock.runtime.nats.patched_client import PatchedClient
from penstock.runtime.nats.server import server_config
from penstock.runtime.nats.subscription import SubscriptionLimits
from penstock.runtime.nats.tail import TailLimits
from tests.testkit.servers.connections import SLOW_MACHINE, connect_nats
from tests.testkit.servers.nats import NatsServer, running_nats_server
from tests.testkit.servers.nats_cluster import NatsNode
from tests.testkit.servers.ports import free_ports
from tests.testkit.waiting import TIMEOUT_S, known, until

CLUSTER = "integration"


@pytest.fixture
def client() -> PatchedClient:
    """The NATS client of the test's connection."""
    return PatchedClient()


@pytest.fixture
async def connection(nats_server: NatsServer, client: PatchedClient) -> AsyncIterator[NatsConnection]:
    async with connected(nats_server, client=client) as made:
        yield made


@contextlib.asynccontextmanager
async def connected(
    server: NatsServer, limits: NatsLimits = SLOW_MACHINE, **options: Any
) -> AsyncIterator[NatsConnection]:
    made = await connect_nats(server.url, name="test", limits=limits, **options)
    yield made
    await made.close()


def with_journal(limits: JournalLimits) -> NatsLimits:
    return structs.replace(SLOW_MACHINE, journal=limits)


async def api(connection: NatsConnection, verb: str, question: dict[str, object]) -> dict[str, object]:
    answer = await connection.bus.request(f"$JS.API.{verb}", json.dumps(question).encode(), TIMEOUT_S)
    decoded: dict[str, object] = json.loads(answer)
    return decoded


class Tail:
    """The sequences that one tail of a journal delivers."""

    def __init__(self, journal: Journal) -> None:
        self.sequences: list[int] = []
        self.stored: dict[int, bytes] = {}
        self.task = asyncio.create_task(self._read(journal))

    async def _read(self, journal: Journal) -> None:
        async for group in journal.tail(0):
            self.sequences.extend(entry.sequence for entry in group)
            self.stored.update((entry.sequence, entry.data) for entry in group)

    def has(self, count: int) -> bool:
        """Whether so many entries came; raises the error that ended the tail."""
        if self.task.done():
            self.task.result()
        return len(self.sequences) >= count

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


async def append_until_stored(journal: Journal, entry_id: str) -> int:
    return await known(lambda: journal.append(entry_id, entry_id.encode()))


async def test_without_a_server_the_error_is_one_sentence() -> None:
    with pytest.raises(Unavailable, match=r"^no nats server at nats://127\.0\.0\.1:1: Connection refused; "):
        await connect_nats("nats://127.0.0.1:1", name="test", limits=NatsLimits(connect_deadline_s=1.0))


@pytest.mark.parametrize("url", ["", "nats://", "nats://h:99999", "nats://u:s3cret@h:port", "nats://h:4222,"])
async def test_an_invalid_address_is_rejected_in_one_sentence(url: str) -> None:
    with pytest.raises(Invalid, match="the address of a nats server must be nats://host:port") as rejected:
        await connect_nats(url, name="test")
    assert "s3cret" not in str(rejected.value)


async def test_a_password_in_an_address_is_not_in_the_error() -> None:
    limits = NatsLimits(connect_deadline_s=0.1)
    with pytest.raises(Unavailable, match=r"no nats server at nats://\*\*\*@127.0.0.1:1") as rejected:
        await connect_nats("nats://u:s3cret@127.0.0.1:1", name="test", limits=limits)
    assert "s3cret" not in str(rejected.value)


async def test_the_connection_waits_for_a_server_that_starts_later(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    connecting = asyncio.create_task(connect_nats(server.url, name="test"))
    await asyncio.sleep(0.05)
    assert not connecting.done()
    await asyncio.to_thread(server.start)
    try:
        connection = await connecting
        assert connection.bus.is_connected
        await connection.close()
    finally:
        server.kill()


async def test_only_the_disk_limits_the_journal_also_when_it_was_full_at_the_servers_start(
    nats_server: NatsServer, connection: NatsConnection
) -> None:
    """By default a server allows 3/4 of the free space at its start, which is 0 on a full disk."""
    assert connection.bus.is_connected
    assert "Max Storage:     1.00 EB" in nats_server.log_path.read_text()


async def test_a_user_needs_the_right_password(tmp_path: Path) -> None:
    secret = 'with "quotes", \\ and ü'
    with running_nats_server(tmp_path, user="penstock", password=secret) as server:
        connection = await connect_nats(server.url, name="test", user="penstock", password=secret)
        await connection.bus.flush()
        await connection.close()
        limits = NatsLimits(connect_deadline_s=5.0)  # it retries during this time
        with pytest.raises(Unavailable, match="Authorization Violation"):
            await connect_nats(server.url, name="test", user="penstock", password="wrong", limits=limits)


async def test_the_reason_why_a_connection_does_not_come_back_is_logged_once(tmp_path: Path) -> None:
    with running_nats_server(tmp_path, user="penstock", password="old") as server:
        connection = await connect_nats(server.url, name="test", user="penstock", password="old")
        server.stop()
        server.config_path.write_text(server.config_path.read_text().replace('"old"', '"new"'))
        with capture_logs() as logged:
            server.start()

            def rejections(event: str) -> list[object]:
                return [each for each in logged if each["event"] == event and "Authorization" in each["error"]]

            await until(lambda: rejections("nats_error"))
        assert len(rejections("nats_not_reconnected")) == 1
        await connection.close()


async def test_messages_lost_to_a_slow_handler_are_counted(nats_server: NatsServer) -> None:
    bus = structs.replace(SLOW_MACHINE.bus, subscription=SubscriptionLimits(pending_bytes_max=4096))
    limits = structs.replace(SLOW_MACHINE, bus=bus)
    registry = prometheus_client.CollectorRegistry()
    connection = await connect_nats(nats_server.url, name="test", registry=registry, limits=limits)
    proceed = asyncio.Event()

    async def slow(_message: Inbound) -> None:
        await proceed.wait()

    await connection.bus.subscribe("events", slow)
    for _ in range(10):
        await connection.bus.publish("events", bytes(1024))
    await connection.bus.flush()
    lost = registry.get_sample_value("penstock_bus_dropped_messages_total", {"cause": "slow"})
    assert lost is not None
    assert 5 <= lost <= 7
    proceed.set()
    await connection.close()


async def test_a_paused_server_costs_requests_their_answer_but_not_the_connection(
    connection: NatsConnection, nats_server: NatsServer
) -> None:
    async def echo(message: Inbound) -> None:
        await message.respond(message.data)

    await connection.bus.subscribe("question", echo)
    await connection.bus.flush()
    nats_server.pause()
    try:
        with pytest.raises(Unavailable, match="no answer"):
            await connection.bus.request("question", b"early", 0.2)
        flushing = asyncio.create_task(connection.bus.flush())
        await asyncio.sleep(0)
        flushing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await flushing
    finally:
        nats_server.resume()
    assert await connection.bus.request("question", b"late", TIMEOUT_S) == b"late"


async def until_socket_is_full(client: PatchedClient) -> None:
    transport = client.transport
    assert transport is not None
    await until(lambda: transport.unsent_bytes > 64 * 1024)


async def test_a_sender_that_is_cancelled_while_the_socket_is_full_ends(
    connection: NatsConnection, client: PatchedClient, nats_server: NatsServer
) -> None:
    await connection.bus.flush()
    nats_server.pause()
    try:
        sending = asyncio.create_task(_publish_for_ever(connection))
        await until_socket_is_full(client)
        sending.cancel()
        ended, _ = await asyncio.wait({sending}, timeout=TIMEOUT_S)
        assert ended == {sending}
        assert sending.cancelled()
    finally:
        nats_server.resume()


async def test_closing_offline_drops_unsent_messages(connection: NatsConnection, nats_server: NatsServer) -> None:
    nats_server.kill()
    await until(lambda: not connection.bus.is_connected)
    await connection.bus.publish("events", bytes(1024))
    await connection.close()
    assert not connection.bus.is_connected


async def test_closing_ends_also_if_the_server_reads_nothing(nats_server: NatsServer, client: PatchedClient) -> None:
    limits = NatsLimits(bus=BusLimits(close_timeout_s=0.1))
    connection = await connect_nats(nats_server.url, name="test", client=client, limits=limits)
    nats_server.pause()
    try:
        sending = [asyncio.create_task(_publish_for_ever(connection)) for _ in range(3)]
        await until_socket_is_full(client)
        await asyncio.wait_for(connection.close(), TIMEOUT_S)
        assert not connection.bus.is_connected
    finally:
        nats_server.resume()
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def _publish_for_ever(connection: NatsConnection) -> None:
    while True:
        await connection.bus.publish("events", bytes(1024 * 1024))


async def test_a_journal_is_created_only_on_request(connection: NatsConnection) -> None:
    with pytest.raises(JournalLost, match=f"nats has no stream {journal_stream(CLUSTER)}"):
        await connection.journal(CLUSTER, create=False)
    made = await connection.journal(CLUSTER, create=True)
    found = await connection.journal(CLUSTER, create=False)
    assert await known(made.describe) == await known(found.describe)


async def test_two_clients_that_create_a_journal_at_once_get_the_same(
    connection: NatsConnection, nats_server: NatsServer
) -> None:
    other = await connect_nats(nats_server.url, name="other")
    one, two = await asyncio.gather(connection.journal(CLUSTER, create=True), other.journal(CLUSTER, create=True))
    assert await known(one.describe) == await known(two.describe)
    await other.close()


async def test_our_stream_keeps_everything_and_denies_deletion(connection: NatsConnection) -> None:
    journal = await connection.journal(CLUSTER, create=True)
    await append_until_stored(journal, "a")
    info = await api(connection, f"STREAM.INFO.{journal_stream(CLUSTER)}", {})
    config = info["config"]
    assert isinstance(config, dict)
    unlimited = {name: config[name] for name in ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject")}
    assert unlimited == {"max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1}
    assert (config["retention"], config["storage"], config["deny_delete"]) == ("limits", "file", True)
    assert config["duplicate_window"] == 120_000_000_000
    answer = await api(connection, f"STREAM.MSG.DELETE.{journal_stream(CLUSTER)}", {"seq": 1})
    assert "error" in answer


@pytest.mark.parametrize(
    ("setting", "value"), [("max_age", 60_000_000_000), ("max_msgs", 10), ("storage", "memory"), ("max_bytes", 10_000)]
)
async def test_a_stream_that_can_lose_entries_is_no_journal(
    connection: NatsConnection, setting: str, value: object
) -> None:
    stream, subject = journal_stream(CLUSTER), journal_subject(CLUSTER)
    await api(connection, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [subject], setting: value})
    with pytest.raises(Invalid, match=f"is no journal: its {setting} is"):
        await connection.journal(CLUSTER, create=True)


async def test_without_jetstream_there_is_no_journal(tmp_path: Path) -> None:
    limits = with_journal(JournalLimits(open_deadline_s=0.1, ask_timeout_s=TIMEOUT_S))
    server = NatsServer(tmp_path)
    config = tmp_path / "nats-server.conf"
    config.write_text("\n".join(line for line in config.read_text().splitlines() if "jetstream" not in line))
    server.start()
    connection = await connect_nats(server.url, name="test", limits=limits)
    try:
        with pytest.raises(Unavailable, match="jetstream does not answer; is it enabled"):
            await connection.journal(CLUSTER, create=True)
    finally:
        await connection.close()
        server.kill()


async def test_a_tail_continues_at_once_when_a_killed_server_is_back(
    nats_server: NatsServer,
) -> None:
    limits = with_journal(JournalLimits(tail=TailLimits(heartbeat_ms=int(2 * TIMEOUT_S * 1000))))
    async with connected(nats_server, limits) as connection:
        journal = await connection.journal(CLUSTER, create=True)
        tail = Tail(journal)
        for round_number in range(3):
            await append_until_stored(journal, f"before-{round_number}")
            await until(lambda count=2 * round_number + 1: tail.has(count))
            nats_server.kill()
            await asyncio.to_thread(nats_server.start)
            await append_until_stored(journal, f"after-{round_number}")
            await until(lambda count=2 * round_number + 2: tail.has(count))
        assert tail.sequences == [1, 2, 3, 4, 5, 6]
        await tail.stop()


async def test_a_server_killed_again_and_again_under_load_loses_and_repeats_nothing(
    connection: NatsConnection, nats_server: NatsServer
) -> None:
    journal = await connection.journal(CLUSTER, create=True)
    reader_connection = await connect_nats(nats_server.url, name="reader")
    tails = [Tail(journal), Tail(await reader_connection.journal(CLUSTER, create=False))]
    acknowledged: dict[str, int] = {}
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            entry_id = f"{writer}-{number}"
            acknowledged[entry_id] = await append_until_stored(journal, entry_id)
            number += 1

    async with asyncio.TaskGroup() as group:
        for writer in range(8):
            group.create_task(write(writer))
        for _ in range(4):
            reached = len(acknowledged)
            await until(lambda reached=reached: len(acknowledged) > reached + 200)
            nats_server.kill()
            await asyncio.to_thread(nats_server.start)
        stop.set()

    last = (await known(journal.describe)).last_sequence
    assert sorted(acknowledged.values()) == sorted(set(acknowledged.values())), "two entries have the same sequence"
    for tail in tails:
        await until(lambda tail=tail: tail.has(last))
        assert tail.sequences == list(range(1, last + 1))
        assert {sequence: tail.stored[sequence] for sequence in acknowledged.values()} == {
            sequence: entry_id.encode() for entry_id, sequence in acknowledged.items()
        }, "an acknowledged entry is missing or has other bytes"
        await tail.stop()
    assert last == len(acknowledged), "a retried entry is stored twice"
    await reader_connection.close()


async def test_a_tail_outlives_a_server_that_pauses(connection: NatsConnection, nats_server: NatsServer) -> None:
    journal = await connection.journal(CLUSTER, create=True)
    tail = Tail(journal)
    await append_until_stored(journal, "before")
    await until(lambda: tail.has(1))
    with capture_logs() as logged:
        nats_server.pause()
        await until(lambda: logged)  # the tail missed its heartbeats and subscribes again
        nats_server.resume()
    assert [(each["event"], each["cause"]) for each in logged] == [
        ("journal_tail_interrupted", "the consumer fell silent")
    ]
    await append_until_stored(journal, "after")
    await until(lambda: tail.has(2))
    assert tail.sequences == [1, 2]
    await tail.stop()


async def consumers(connection: NatsConnection) -> list[str]:
    names = (await api(connection, f"CONSUMER.NAMES.{journal_stream(CLUSTER)}", {}))["consumers"]
    assert isinstance(names, list)
    return names


async def test_a_tail_whose_consumer_is_deleted_makes_another(connection: NatsConnection) -> None:
    journal = await connection.journal(CLUSTER, create=True)
    tail = Tail(journal)
    await append_until_stored(journal, "a")
    await until(lambda: tail.has(1))
    names = await consumers(connection)
    assert names
    for name in names:  # after a wait the tail may have a second consumer, and the server removes the first
        await api(connection, f"CONSUMER.DELETE.{journal_stream(CLUSTER)}.{name}", {})
    await append_until_stored(journal, "b")
    await until(lambda: tail.has(2))
    assert tail.sequences == [1, 2]
    await tail.stop()


async def test_a_tail_that_ends_leaves_no_consumer_behind(nats_server: NatsServer) -> None:
    # By default the server removes an abandoned consumer after 5 s.
    tail = TailLimits(consumer_inactive_s=10 * TIMEOUT_S)
    limits = with_journal(JournalLimits(ask_timeout_s=TIMEOUT_S, tail=tail))
    async with connected(nats_server, limits) as connection:
        journal = await connection.journal(CLUSTER, create=True)
        await append_until_stored(journal, "a")
        entries = journal.tail(0)
        assert [entry.sequence for entry in await anext(entries)] == [1]
        await entries.aclose()  # type: ignore[attr-defined]  # the tail is a generator
        async with asyncio.timeout(TIMEOUT_S):
            while await consumers(connection):
                await asyncio.sleep(0.01)


async def received_until_quiet(client: PatchedClient) -> int:
    """The bytes received by the connection, when no more come."""
    received, quiet = -1, 0
    while quiet < 20:
        quiet = quiet + 1 if client.stats["in_bytes"] == received else 0
        received = client.stats["in_bytes"]
        await asyncio.sleep(0.02)
    return int(received)


async def test_a_slow_reader_holds_little_of_a_long_journal(connection: NatsConnection, client: PatchedClient) -> None:
    """Flow control: the server sends more only after the reader took the earlier entries."""
    journal = await connection.journal(CLUSTER, create=True)
    entry = bytes(256 * 1024)
    count = 600  # 150 MiB; the server's window is at most 32 MiB
    for start in range(0, count, 20):
        await asyncio.gather(*(known(partial(journal.append, str(n), entry)) for n in range(start, start + 20)))
    entries = journal.tail(0)
    seen = [each.sequence for each in await anext(entries)]
    assert await received_until_quiet(client) < 64 * 1024 * 1024
    async for group in entries:
        seen.extend(each.sequence for each in group)
        if seen[-1] == count:
            break
    assert seen == list(range(1, count + 1))


async def test_a_server_with_a_tiny_max_payload_is_rejected_in_one_sentence(tmp_path: Path) -> None:
    """Otherwise a gateway that splits a read into such small messages would never finish."""
    with running_nats_server(tmp_path) as server:
        connection = await connect_nats(server.url, name="test")
        server.stop()
        text = server.config_path.read_text()
        server.config_path.write_text(re.sub(r"max_payload: \d+", "max_payload: 16384", text))
        server.start()
        sentence = "allows messages of 16384 bytes, but 65536 are needed: set its max_payload"
        with pytest.raises(Invalid, match=sentence):
            await connect_nats(server.url, name="test")
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(Invalid, match=sentence):
                await connection.bus.run_until_closed()
        await connection.close()


async def test_the_servers_log_is_bounded_while_it_runs(tmp_path: Path) -> None:
    port, monitor_port = free_ports(2)
    node = NatsNode("logging", tmp_path, port, monitor_port)
    log_path, bytes_max = tmp_path / "logs" / "nats-server.log", 2_000
    log_path.parent.mkdir()
    settings = server_config(
        store_dir=tmp_path / "jetstream", host="127.0.0.1", port=port, log_path=log_path, log_bytes_max=bytes_max
    )
    node.config_path.write_text(settings)
    node.start()
    try:
        for _ in range(40):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"NONSENSE\r\n")  # the server logs an error
            await reader.read()
            writer.close()
    finally:
        node.kill()
    sizes = [path.stat().st_size for path in log_path.parent.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 2 * bytes_max
