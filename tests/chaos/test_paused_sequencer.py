"""A sequencer that was paused has an old state when it resumes, and never answers from it."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.contracts import codec, subjects
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.contracts.queries.log import LATEST, OffsetOf, OffsetsQuery, OffsetsView
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import connect_nats
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.every_sender import EverySender
from tests.testkit.loads.ledger import QUIET
from tests.testkit.loads.retries import CALL_TIMEOUT_S, until_done
from tests.testkit.loads.steady_load import Account, steady_account

TOPIC = "steady"
GROUP = "outside"
PARTITIONS = 4
CLUSTER = "default"
QUERIES = 200
ANSWER_TIMEOUT_S = 5.0
CLIENT_TIMEOUT_S = 60.0


class Queries:
    """Queries sequencers over NATS, as gateways do."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = cluster.nats_url
        self.seen_sequence = 0
        self._topic_id = TopicId(bytes(16))

    async def look(self) -> None:
        """Ask a running sequencer for the journal's present sequence."""
        connection = await connect_nats(self._url, name="test")
        client = EverySender(connection.bus, CLUSTER, SystemClock())
        view = await client.query("metadata", MetadataQuery(0, [TOPIC]), MetadataView, deadline_s=CLIENT_TIMEOUT_S)
        [topic] = view.topics
        self._topic_id, self.seen_sequence = topic.topic_id, client.seen_sequence
        await connection.close()

    async def ask_for_ends(self) -> list[OffsetsView]:
        """Send many queries at once for the state at `look`, until one is answered; return all answers.

        A resumed sequencer may need longer than the timeout of one query.
        """
        connection = await connect_nats(self._url, name="test")
        places = [OffsetOf(self._topic_id, number, LATEST) for number in range(PARTITIONS)]
        query = codec.encode(OffsetsQuery(self.seen_sequence, places))
        subject = subjects.sequencer_query(CLUSTER, "offsets")
        views: list[OffsetsView] = []
        end_s = time.monotonic() + CLIENT_TIMEOUT_S
        while not _given(views) and time.monotonic() < end_s:
            asking = [connection.bus.request(subject, query, ANSWER_TIMEOUT_S) for _ in range(QUERIES)]
            answers = await asyncio.gather(*asking, return_exceptions=True)
            unexpected = [each for each in answers if isinstance(each, Exception) and not isinstance(each, Unavailable)]
            assert not unexpected
            views += [codec.decode(each, OffsetsView) for each in answers if isinstance(each, bytes)]
        await connection.close()
        return views


def _given(views: list[OffsetsView]) -> list[OffsetsView]:
    """The answers that are not rejections."""
    return [view for view in views if view.failure is None]


class Client:
    """A stock client, connected to a gateway."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **QUIET})

    def ends(self) -> list[int]:
        """The present end offset of every partition."""
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return [until_done(partial(self._consumer.get_watermark_offsets, place, CALL_TIMEOUT_S))[1] for place in places]

    def commit(self, offset: int) -> None:
        places = [TopicPartition(TOPIC, 0, offset)]
        until_done(lambda: self._consumer.commit(offsets=places, asynchronous=False))

    def committed(self) -> int:
        [found] = until_done(lambda: self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=CALL_TIMEOUT_S))
        return int(found.offset)

    def close(self) -> None:
        self._consumer.close()


def acknowledged_ends(account: Account) -> list[int]:
    acknowledged = account.load.ledger.acknowledged
    return [max(offset for offset, _ in list(acknowledged[number])) + 1 for number in range(PARTITIONS)]


def hold(seconds: float) -> None:
    """Wait; the load continues in its threads."""
    end_s = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end_s, seconds + 1, "the end of the pause")


@pytest.mark.parametrize(
    "pause_s", [pytest.param(5.0, marks=pytest.mark.e2e), pytest.param(60.0, marks=pytest.mark.chaos)]
)
def test_a_sequencer_that_was_paused_gives_no_old_answers_when_it_resumes(tmp_path: Path, pause_s: float) -> None:
    paused, other = "sequencer-1", "sequencer-2"
    with (
        running(tmp_path / "data", "--flush-ms", "20", "--sequencers", "2") as cluster,
        steady_account(cluster.kafka, TOPIC, PARTITIONS, record_pause_s=0.005) as account,
    ):
        queries, client = Queries(cluster), Client(cluster.kafka)
        account.load.wait_for_more(100)
        cluster.pause(paused)
        hold(pause_s)
        account.load.wait_for_more(100)
        client.commit(offset=77)
        ends = acknowledged_ends(account)
        asyncio.run(queries.look())
        # Now only the resumed sequencer can answer.
        cluster.pause(other)
        cluster.resume(paused)
        try:
            answers = asyncio.run(queries.ask_for_ends())
            ends_now, committed = client.ends(), client.committed()
        finally:
            cluster.resume(other)
        client.close()
        given = _given(answers)
        print(f"{len(given)} queries answered, {len(answers) - len(given)} rejected")
        assert given, "the resumed sequencer answered no query"
        for answer in given:
            assert answer.sequence >= queries.seen_sequence
            assert all(found.offset >= end for found, end in zip(answer.partitions, ends, strict=True))
        assert all(now >= end for now, end in zip(ends_now, ends, strict=True)), (ends_now, ends)
        assert committed == 77
        wait_until(cluster.is_ready, CLIENT_TIMEOUT_S, "everything to be ready again")
        account.settle()
