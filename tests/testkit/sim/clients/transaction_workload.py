"""The transactions of a run: producers and members that write in transactions, readers, and the final checks."""

import asyncio
from typing import TYPE_CHECKING

from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import GroupPlace, History, Isolation, Outcome
from tests.testkit.sim.clients.consume_transform_produce import TransformingMember
from tests.testkit.sim.clients.consumer import Reader
from tests.testkit.sim.clients.isolated_reading import IsolatedReading
from tests.testkit.sim.clients.kafka import CREATE_TOPICS, Disconnected
from tests.testkit.sim.clients.member import GroupLedger
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.clients.transaction_client import NEW, TransactionClient
from tests.testkit.sim.clients.transactional_producer import TransactionalProducer, committed_offset
from tests.testkit.sim.environment.wire import START_MS

if TYPE_CHECKING:
    from tests.testkit.sim.world import World

TOPIC = "accounts"
EVENTS = "events"  # the topic of all other clients
SOURCE = "orders"  # has no records, only committed offsets
GROUP = "clerks"
PREFIX = b"trans"  # of the names and record values of all transactional clients
TRANSFORMERS_GROUP = "transforming clerks"
TRANSFORMERS = 2
TRANSFORMERS_SHARE = 0.4  # of runs with transactions
PARTITIONS_MAX = 3
PRODUCERS = (1, 3)
PLAIN_REQUESTS = 10
PLAIN_SHARE = 0.5
PLAIN_INTERVAL_S = 0.6
LEVEL_LOOK_S = 0.3
MERGED_SHARE = 0.5  # of runs with transactions: a compactor merges as the service does
READERS = (Isolation.COMMITTED, Isolation.COMMITTED, Isolation.UNCOMMITTED)


class TransactionWorkload:
    """The transactional clients of a run; some runs have none."""

    def __init__(self, world: "World") -> None:
        self.history = History()
        self.producers: list[TransactionalProducer] = []
        self.readers: list[Reader] = []
        self.transformers: list[TransformingMember] = []
        self.transformers_ledger = GroupLedger(TRANSFORMERS_GROUP, world.oracle)
        self.plain: Producer | None = None
        self._world = world
        self._skips_remaining = False
        self._is_finishing = False
        self._dice = world.stream("transactions")
        self.is_wanted = self._dice.random() < world.length.clients.transactions.runs_share
        self.partitions = self._dice.randint(1, PARTITIONS_MAX)
        self.has_merger = self.is_wanted and self._dice.random() < MERGED_SHARE
        self.has_begun = not self.is_wanted

    async def run(self) -> None:
        """Start all clients as soon as the cluster's level allows transactions."""
        world, dice = self._world, self._dice
        while world.oracle.state.level < TRANSACTIONS_LEVEL:
            await asyncio.sleep(LEVEL_LOOK_S)
        count = dice.randint(*PRODUCERS)
        await self._make_topics(count)
        for number in range(count):
            producer = TransactionalProducer(
                world.client(f"transactor-{number}"),
                world.oracle,
                self.history,
                TOPIC,
                self.partitions,
                (GROUP, (SOURCE, number)),
                count=1 if self._skips_remaining else dice.randint(*world.length.transactions),
                spawn=world.spawn,
                now_ms=START_MS,
                settings=world.length.clients.transactions,
            )
            self.producers.append(producer)
            world.spawn(producer.run())
        if dice.random() < PLAIN_SHARE:
            self._begin_plain()
        if dice.random() < TRANSFORMERS_SHARE:
            self._begin_transformers()
        for number, isolation in enumerate(READERS):
            self._add_reader(f"isolated-{number}", isolation)
        self.has_begun = True
        if self._is_finishing:  # the level rose after the faults had ended
            self.finish_soon()

    def finish_soon(self) -> None:
        """Have no accidents any more: there are no faults, and the run ends."""
        self._is_finishing = True
        for each in (*self.producers, *self.transformers):
            each.finish_soon()

    def skip_remaining(self) -> None:
        """Make at most one more transaction under each id."""
        self._skips_remaining = True
        for producer in self.producers:
            producer.left = min(producer.left, 1)
        if self.plain is not None:
            self.plain.skip_remaining()

    @property
    def is_done(self) -> bool:
        """Whether all transactions have been made, and all input is consumed."""
        is_plain_done = self.plain is None or self.plain.is_done
        is_written = self.has_begun and is_plain_done and all(each.is_done for each in self.producers)
        return is_written and all(self._consumed(each) for each in self._transformers_places())

    def _transformers_places(self) -> list[GroupPlace]:
        partitions = range(self._world.partitions) if self.transformers else ()
        return [(TRANSFORMERS_GROUP, (EVENTS, each)) for each in partitions]

    def _consumed(self, group_place: GroupPlace) -> bool:
        """Whether the transforming members have consumed one partition to its end."""
        topic, partition = group_place[1]
        return self.transformers_ledger.committed[partition] == self._world.oracle.log(topic, partition).end

    def add_auditors(self) -> None:
        """Add new readers of everything, and fetch the groups' offsets."""
        for transformer in self.transformers:
            transformer.begin_no_more()
        for isolation in Isolation:
            self._add_reader(f"auditor, {isolation.value}", isolation)
        self._world.spawn(self._fetch_offsets())

    @property
    def is_read(self) -> bool:
        """Whether each reader has read everything, and all offsets were fetched."""
        places = len(self.producers) + len(self._transformers_places())
        is_known = sum(each.is_last for each in self.history.observed) == places
        return is_known and all(each.is_at_end for each in self.readers)

    def check(self) -> None:
        """Check the recorded results of all producers and readers."""
        for reader in self.readers:
            assert isinstance(reader.reading, IsolatedReading)
            reader.reading.history_reading.is_complete = True
        for violation in check(self.history, aborted_may_go=bool(self._world.compactors)):
            self._world.fail(violation)

    def counts(self) -> dict[str, int]:
        """Counts of events that some runs do not have."""
        outcomes = [each.outcome for each in self.history.transactions]
        counts = {f"transactions {each.value}": outcomes.count(each) for each in Outcome}
        return counts | {
            "transactions of members": sum(
                each.outcome is Outcome.COMMITTED and any(group == TRANSFORMERS_GROUP for group, _ in each.consumed)
                for each in self.history.transactions
            ),
            "producers fenced": sum(each.fenced for each in self.producers),
            "producers that stalled while a successor started": sum(each.zombies for each in self.producers),
        }

    async def _make_topics(self, sources: int) -> None:
        client = self._world.client("transactions-admin")
        topics = [CreatableTopic(TOPIC, self.partitions, 1), CreatableTopic(SOURCE, sources, 1)]
        while True:
            connection = await client.connect()
            try:
                answer = await connection.ask(CREATE_TOPICS, 5, CreateTopicsRequest(topics), 10.0)
                errors = {ErrorCode(each.error_code) for each in answer.topics}
                if errors <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return
            except Disconnected:
                pass
            finally:
                connection.close()
            await client.back_off()

    def _begin_transformers(self) -> None:
        world = self._world
        source, target = (EVENTS, world.partitions), (TOPIC, self.partitions)
        for number in range(TRANSFORMERS):
            client = world.client(f"transformer-{number}")
            settings = world.length.clients
            transformer = TransformingMember(
                client, world.oracle, self.transformers_ledger, source, target, self.history, START_MS, settings
            )
            self.transformers.append(transformer)
            world.spawn(transformer.run())

    def _begin_plain(self) -> None:
        world = self._world
        self.plain = Producer(
            world.client("plain"),
            world.oracle,
            TOPIC,
            self.partitions,
            is_idempotent=True,
            retries=True,
            count=PLAIN_REQUESTS,
            interval_s=PLAIN_INTERVAL_S,
            now_ms=START_MS,
        )
        world.spawn(self.plain.run())

    def _add_reader(self, name: str, isolation: Isolation) -> None:
        world = self._world
        client = world.client(name)
        reading = IsolatedReading(client, world.oracle, TOPIC, self.partitions, self.history, isolation, PREFIX)
        self.readers.append(Reader(client, world.oracle, TOPIC, self.partitions, reading))
        world.spawn(self.readers[-1].run())

    async def _fetch_offsets(self) -> None:
        client = self._world.client("transactions-auditor")
        request_timeouts_s = self._world.length.clients.transactions.request_timeouts_s
        requests = TransactionClient(client, self._world.oracle, "", NEW, 1, request_timeouts_s)
        for group_place in [each.group_place for each in self.producers] + self._transformers_places():
            await committed_offset(requests, self.history, group_place, is_last=True)
        requests.close()
