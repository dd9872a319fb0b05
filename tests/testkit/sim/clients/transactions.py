"""A topic that only transactions write to, and one producer without: who writes it, who reads it, and the judgement."""

import asyncio
from typing import TYPE_CHECKING

from penstock.contracts.levels import TRANSACTIONS_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.error_codes import ErrorCode
from tests.testkit.loads.transaction_checker import check
from tests.testkit.loads.transaction_history import GroupPlace, History, Isolation, Outcome
from tests.testkit.sim.clients.clerk import Clerk
from tests.testkit.sim.clients.consumer import Reader
from tests.testkit.sim.clients.isolated import IsolatedReading
from tests.testkit.sim.clients.kafka import CREATE_TOPICS, Disconnected
from tests.testkit.sim.clients.member import GroupLedger
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.clients.transaction_wire import NEW, TransactionWire
from tests.testkit.sim.clients.transactor import Transactor, committed_offset
from tests.testkit.sim.environment.wire import START_MS

if TYPE_CHECKING:
    from tests.testkit.sim.world import World

TOPIC = "accounts"
CLERKS_SOURCE = "events"  # what all others work with
SOURCE = "orders"  # consumed by all, written by nobody: its offsets are numbers like others
GROUP = "clerks"
PREFIX = b"trans"  # of all names, and so of all values, of those who write in transactions
CLERKS_GROUP = "transforming clerks"
CLERKS = 2
CLERKS_SHARE = 0.4  # of runs with transactions
PARTITIONS_MAX = 3
TRANSACTORS = (1, 3)
PLAIN_REQUESTS = 10
PLAIN_SHARE = 0.5
PLAIN_PACE_S = 0.6
LEVEL_LOOK_S = 0.3
MERGED_SHARE = 0.5  # of runs with transactions in which a compactor merges as the service does
READERS = (Isolation.COMMITTED, Isolation.COMMITTED, Isolation.UNCOMMITTED)


class Transactions:
    """Everything that a run has of transactions; in some runs nothing."""

    def __init__(self, world: "World") -> None:
        self.history = History()
        self.transactors: list[Transactor] = []
        self.readers: list[Reader] = []
        self.clerks: list[Clerk] = []
        self.clerks_ledger = GroupLedger(CLERKS_GROUP, world.oracle)
        self.plain: Producer | None = None
        self._world = world
        self._is_cut_short = False
        self._dice = world.stream("transactions")
        self.is_wanted = self._dice.random() < world.length.clients.transactions.runs_share
        self.partitions = self._dice.randint(1, PARTITIONS_MAX)
        self.is_merged = self.is_wanted and self._dice.random() < MERGED_SHARE
        self.has_begun = not self.is_wanted

    async def run(self) -> None:
        """Begin, as soon as the cluster can have transactions."""
        world, dice = self._world, self._dice
        while world.oracle.state.level < TRANSACTIONS_LEVEL:
            await asyncio.sleep(LEVEL_LOOK_S)
        count = dice.randint(*TRANSACTORS)
        await self._make_topics(count)
        for number in range(count):
            transactor = Transactor(
                world.client(f"transactor-{number}"),
                world.oracle,
                self.history,
                TOPIC,
                self.partitions,
                (GROUP, (SOURCE, number)),
                count=1 if self._is_cut_short else dice.randint(*world.length.transactions),
                spawn=world.spawn,
                now_ms=START_MS,
                settings=world.length.clients.transactions,
            )
            self.transactors.append(transactor)
            world.spawn(transactor.run())
        if dice.random() < PLAIN_SHARE:
            self._begin_plain()
        if dice.random() < CLERKS_SHARE:
            self._begin_clerks()
        for number, isolation in enumerate(READERS):
            self._add_reader(f"isolated-{number}", isolation)
        self.has_begun = True

    def hurry(self) -> None:
        """Nothing fails any more."""
        for each in (*self.transactors, *self.clerks):
            each.hurry()

    def cut_short(self) -> None:
        """One more transaction under each id at the most."""
        self._is_cut_short = True
        for transactor in self.transactors:
            transactor.left = min(transactor.left, 1)
        if self.plain is not None:
            self.plain.cut_short()

    @property
    def is_done(self) -> bool:
        """Whether all who write have written everything."""
        is_plain_done = self.plain is None or self.plain.is_done
        is_written = self.has_begun and is_plain_done and all(each.is_done for each in self.transactors)
        return is_written and all(self._consumed(each) for each in self._clerks_places())

    def _clerks_places(self) -> list[GroupPlace]:
        partitions = range(self._world.partitions) if self.clerks else ()
        return [(CLERKS_GROUP, (CLERKS_SOURCE, each)) for each in partitions]

    def _consumed(self, group_place: GroupPlace) -> bool:
        """Whether clerks have consumed all there is of one of their partitions."""
        topic, partition = group_place[1]
        return self.clerks_ledger.committed[partition] == self._world.oracle.log(topic, partition).end

    def add_auditors(self) -> None:
        """Somebody reads everything once more, and the groups' offsets."""
        for clerk in self.clerks:
            clerk.rest()
        for isolation in Isolation:
            self._add_reader(f"auditor, {isolation.value}", isolation)
        self._world.spawn(self._look_at_offsets())

    @property
    def is_read(self) -> bool:
        """Whether everybody has read everything, and all offsets were asked for."""
        places = len(self.transactors) + len(self._clerks_places())
        is_known = sum(each.is_last for each in self.history.observed) == places
        return is_known and all(each.is_at_end for each in self.readers)

    def judge(self) -> None:
        """Hold what was read against what was promised."""
        for reader in self.readers:
            assert isinstance(reader.reading, IsolatedReading)
            reader.reading.noted.is_complete = True
        for violation in check(self.history, aborted_may_go=bool(self._world.compactors)):
            self._world.fail(violation)

    def happened(self) -> dict[str, int]:
        """How often what not every run has."""
        outcomes = [each.outcome for each in self.history.transactions]
        counts = {f"transactions {each.value}": outcomes.count(each) for each in Outcome}
        return counts | {
            "transactions of members": sum(
                each.outcome is Outcome.COMMITTED and any(group == CLERKS_GROUP for group, _ in each.consumed)
                for each in self.history.transactions
            ),
            "producers fenced": sum(each.fenced for each in self.transactors),
            "producers that stood still while another came": sum(each.zombies for each in self.transactors),
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

    def _begin_clerks(self) -> None:
        world = self._world
        source, target = (CLERKS_SOURCE, world.partitions), (TOPIC, self.partitions)
        for number in range(CLERKS):
            client = world.client(f"transformer-{number}")
            settings = world.length.clients
            clerk = Clerk(client, world.oracle, self.clerks_ledger, source, target, self.history, START_MS, settings)
            self.clerks.append(clerk)
            world.spawn(clerk.run())

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
            pace_s=PLAIN_PACE_S,
            now_ms=START_MS,
        )
        world.spawn(self.plain.run())

    def _add_reader(self, name: str, isolation: Isolation) -> None:
        world = self._world
        client = world.client(name)
        reading = IsolatedReading(client, world.oracle, TOPIC, self.partitions, self.history, isolation, PREFIX)
        self.readers.append(Reader(client, world.oracle, TOPIC, self.partitions, reading))
        world.spawn(self.readers[-1].run())

    async def _look_at_offsets(self) -> None:
        client = self._world.client("transactions-auditor")
        request_timeouts_s = self._world.length.clients.transactions.request_timeouts_s
        wire = TransactionWire(client, self._world.oracle, "", NEW, 1, request_timeouts_s)
        for group_place in [each.group_place for each in self.transactors] + self._clerks_places():
            await committed_offset(wire, self.history, group_place, is_last=True)
        wire.close()
