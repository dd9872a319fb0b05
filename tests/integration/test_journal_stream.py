"""The stream of a rebuilt journal on a real nats-server: it starts at its first sequence, and has its own mark."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid
from penstock.contracts.subjects import journal_stream
from penstock.runtime.nats.client import NatsConnection
from penstock_sequencer.storage.journal_stream import MADE_BY_REBUILD, NatsStreams
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import running_nats_server
from tests.testkit.waiting import known

FIRST = 5_000_000_000


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[NatsConnection]:
    with running_nats_server(tmp_path) as server:
        made = await connect_nats(server.url, name="test")
        yield made
        await made.close()


async def test_where_there_is_no_stream_none_is_found(connection: NatsConnection) -> None:
    assert await known(NatsStreams(connection, "test", 1).find) is None


async def test_the_first_entry_has_the_requested_sequence_and_the_journal_continues(
    connection: NatsConnection,
) -> None:
    streams = NatsStreams(connection, "test", 1)
    made = await known(lambda: streams.make(FIRST, 1))
    assert (made.first_sequence, made.last_sequence, made.made_by) == (FIRST, FIRST - 1, MADE_BY_REBUILD)
    assert await known(streams.find) == made
    journal = await streams.journal()
    info = await known(journal.describe)
    assert (info.first_sequence, info.last_sequence, info.created) == (FIRST, FIRST - 1, made.created)
    for count in range(3):
        assert await known(partial(journal.append, f"e{count}", b"x%d" % count)) == FIRST + count
    async for group in journal.tail(FIRST - 1):
        assert group[0].sequence == FIRST
        break
    assert (await known(journal.describe)).first_sequence == FIRST


async def test_a_rebuild_continues_with_a_stream_that_it_made_before(connection: NatsConnection) -> None:
    streams = NatsStreams(connection, "test", 1)
    made = await known(lambda: streams.make(FIRST, 1))
    assert await known(lambda: streams.make(FIRST + 1000, 1)) == made


async def test_a_journal_made_by_sequencers_is_no_rebuilt_one(connection: NatsConnection) -> None:
    journal = await connection.journal("test", create=True)
    found = await known(NatsStreams(connection, "test", 1).find)
    assert found is not None
    assert (found.made_by, found.created) == ("", (await known(journal.describe)).created)


async def test_more_copies_than_servers_are_rejected(connection: NatsConnection) -> None:
    with pytest.raises(Invalid, match=f"cannot make the stream {journal_stream('test')}"):
        await known(lambda: NatsStreams(connection, "test", 3).make(FIRST, 3))
