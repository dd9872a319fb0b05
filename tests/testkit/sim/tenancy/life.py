"""The life of a virtual cluster from its creation on: its journal as an oracle reads it, and its clients."""

from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.consumer import Reader
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.wire import START_MS
from tests.testkit.sim.sequential.sequential_committer import SequentialCommitter
from tests.testkit.sim.stage import Stage
from tests.testkit.sim.tenancy.clients import GROUP, PARTITIONS, TOPIC, Inspector, TenantClient
from tests.testkit.sim.tenancy.services import POOLS

REQUESTS = 20  # of each producer
REQUEST_INTERVAL_S = 0.6
FINISH_INTERVAL_S = 0.05
COMMIT_PAUSE_S = 0.8


class Life:
    """A cluster that was created under a name. The next one of this name has a life of its own."""

    def __init__(self, stage: Stage, cluster: str, place: int, number: int) -> None:
        """`place` is that of the name in the list of all names, `number` that of the life."""
        self.name = f"{cluster}-{number}"
        self.has_journal = False
        self.oracle = Oracle(cluster, stage.store, stage.fail, stage.record, stage.length.services.sequencer.core)
        self._stage = stage
        self._place = place
        self._loop = SimLoop(
            stage.timeline,
            f"clients-{self.name}",
            lambda context: stage.fail(f"a client of {self.name}: {context.get('exception')!r}"),
        )
        self._inspector = Inspector(self._client("inspector", POOLS[0], is_named=False), self._fail, self._begin_work)
        self._producers = [self._producer(number) for number in range(len(POOLS))]
        self._readers: list[Reader] = []
        self._loop.create_task(self._inspector.run())

    @property
    def acknowledged(self) -> int:
        """The batches that producers know to be stored."""
        return sum(producer.acknowledged for producer in self._producers)

    @property
    def has_topic(self) -> bool:
        """Whether the clients' topic was created."""
        return self._inspector.has_topic

    def _begin_work(self) -> None:
        """Start the other clients."""
        for producer in self._producers:
            self._loop.create_task(producer.run())
        client = self._client("committer", POOLS[0], is_named=True)
        committer = SequentialCommitter(client, self.oracle, GROUP, TOPIC, COMMIT_PAUSE_S)
        self._loop.create_task(committer.run())
        self._add_reader("reader", POOLS[1])

    def finish_soon(self) -> None:
        """Let the producers end soon."""
        for producer in self._producers:
            producer.finish_soon(FINISH_INTERVAL_S)
            producer.skip_remaining()

    def end_clients(self) -> None:
        """End all clients at once."""
        for client in self._loop.kill():
            self._fail(f"a client does not end: {client}")

    def audit(self) -> None:
        """Start a reader that reads all records again, when all producers are done."""
        self._add_reader("auditor", POOLS[0])

    @property
    def is_produced(self) -> bool:
        """Whether all producers are done."""
        return all(producer.is_done for producer in self._producers)

    @property
    def is_read(self) -> bool:
        """Whether all readers have read all records."""
        return all(reader.is_at_end for reader in self._readers)

    def _client(self, name: str, pool: str, *, is_named: bool) -> TenantClient:
        whole = f"{self.name}-{name}"
        stream = self._stage.stream(f"client/{whole}")
        return TenantClient(self._stage.network, whole, self._place, stream, self._fail, pool=pool, is_named=is_named)

    def _producer(self, number: int) -> Producer:
        return Producer(
            self._client(f"producer-{number}", POOLS[number], is_named=number > 0),
            self.oracle,
            TOPIC,
            PARTITIONS,
            is_idempotent=True,
            retries=True,
            count=REQUESTS,
            interval_s=REQUEST_INTERVAL_S,
            now_ms=START_MS,
        )

    def _add_reader(self, name: str, pool: str) -> None:
        reader = Reader(self._client(name, pool, is_named=False), self.oracle, TOPIC, PARTITIONS)
        self._readers.append(reader)
        self._loop.create_task(reader.run())

    def _fail(self, text: str) -> None:
        self._stage.fail(f"the cluster {self.name}: {text}")
