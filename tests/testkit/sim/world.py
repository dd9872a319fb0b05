"""One simulated cluster with its clients, made from a seed."""

import asyncio
import hashlib

import msgspec

from penstock.contracts.commands import Command, Outcome, RaiseLevel
from penstock.contracts.entries import GENESIS_HASH, Entry, encode_entry
from penstock.contracts.ids import ENTROPY_BYTES, new_landed_id, new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.error_codes import ErrorCode
from penstock.segment.keys import segment_key
from penstock_sequencer.core.machine import Effects, apply_entry
from penstock_sequencer.core.snapshot.codec import encode_state
from penstock_sequencer.core.state.cluster import State
from tests.testkit.every_sender import EverySender
from tests.testkit.fakes.memory_bus import MESSAGE_BYTES_MAX
from tests.testkit.sim.checkers.answer_judge import AnswerJudge
from tests.testkit.sim.checkers.deletion_checker import ORPHAN_AGE_MS, DeletionChecker
from tests.testkit.sim.checkers.model_judge import ModelJudge
from tests.testkit.sim.checkers.oracle import Oracle
from tests.testkit.sim.clients.compactor import Compactor
from tests.testkit.sim.clients.consumer import Reader
from tests.testkit.sim.clients.consumer_member import ConsumerMember, OwnershipChecker, group_configs
from tests.testkit.sim.clients.expiring_topic import ExpiringTopic
from tests.testkit.sim.clients.kafka import CREATE_TOPICS, Disconnected, KafkaClient
from tests.testkit.sim.clients.lane_switcher import LaneSwitcher
from tests.testkit.sim.clients.member import GroupLedger, Member
from tests.testkit.sim.clients.merger import Merger
from tests.testkit.sim.clients.producer import Producer
from tests.testkit.sim.clients.recreated_topic import RecreatedTopic
from tests.testkit.sim.clients.share_workload import ShareWorkload
from tests.testkit.sim.clients.timestamp_lookup import TimestampLookups
from tests.testkit.sim.clients.transaction_workload import TransactionWorkload
from tests.testkit.sim.environment.host import SimClock
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.opening import open_simulated
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.services import CLUSTER, app_factories, counts_of, gateway_address
from tests.testkit.sim.environment.shared import NEIGHBOUR
from tests.testkit.sim.environment.store import StoreServer
from tests.testkit.sim.environment.wire import START_MS, Latency
from tests.testkit.sim.length import Length
from tests.testkit.sim.neighbour import Neighbour
from tests.testkit.sim.sequential.late_copies import LateCopies
from tests.testkit.sim.sequential.register_writer import RegisterWriter
from tests.testkit.sim.sequential.sequential_committer import SequentialCommitter
from tests.testkit.sim.shared_tables.crowd import Crowd
from tests.testkit.sim.stage import Stage

TOPIC = "events"
RECREATED_TOPIC = "passing"
EXPIRING_TOPIC = "fading"
REGISTERS = 2  # topics, with one writer each
MUCH_BYTES = (2_000, 1_000_000)  # of one fetch of a reader that reads_much
EXTRA_SHARE = 0.3  # of runs with a certain additional client
GROUP = "group"
SMALL_MESSAGE_BYTES_MAX = 64 * 1024  # in some runs, so that requests do not fit into one
COMPARED_ENTRIES = 16  # between two comparisons of the states of all replicas
UPGRADE_SHARE = 0.15  # of runs
COMPACTED_SHARE = 0.5  # of runs
COMPACTORS = 2  # in each of these runs
CONSUMER_PROTOCOL_SHARE = 0.3  # of runs without an upgrade; their group uses the protocol of KIP-848
CONSUMER_PROTOCOL_STREAM = (
    "group-protocol-58"  # with this name, the runs in tests/simulation/seeds.txt keep their protocols
)
UPGRADE_PAUSE_S = (0.2, 4.0)  # between one replica and the next
JANITORS_SHARE = 0.5  # of runs
GRACES_MS = (1_500, 4_000)
ORPHANS = 6
ALMOST_ORPHAN_MS = 120_000  # before some of them may be deleted
LANES_SHARE = 0.3  # of runs: the topic's lane changes
LANDING_STORES = 3
LANDING_STREAM = "landing-stores-263"  # with this name, the runs in tests/simulation/seeds.txt have none
LANDING_STORES_SHARE = 0.15  # of runs: all segments land in three stores
LANDING_LATENCY = Latency(0.002, 0.05, 0.02)
AGENTS_SHARE = 0.25  # of runs: their processes are gateway, flusher and cacher in one


class _Reply(msgspec.Struct, array_like=True):
    """The first field of all answers of replicas."""

    sequence: int


_decode_reply = msgspec.msgpack.Decoder(_Reply).decode


class World(Stage):
    """The processes, clients and checkers of one run."""

    def __init__(self, seed: int, length: Length, *, keep_trace: bool = False) -> None:
        super().__init__(seed, length, keep_trace=keep_trace)
        self.dice = self.stream("world")
        self.partitions = self.dice.randint(1, 4)
        self.hub.message_bytes_max = self.dice.choice((MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX))
        self._state_digests: dict[int, bytes] = {}
        self.oracle = Oracle(CLUSTER, self.store, self.fail, self.record, length.services.sequencer.core)
        self.judge = ModelJudge(self.oracle, length.services.sequencer.core, self.fail)
        self.answers = AnswerJudge(self.judge.model, self.fail)
        self.late_copies = LateCopies(self.oracle, lambda: self.timeline.now_s)
        self.on_halt = self.late_copies.halted
        self.journal.observers.append(self.oracle.observe)
        store_url = self.dice.choice(("s3://simulated/bucket", "memory://simulated"))
        self.has_lanes = self.stream("lanes").random() < LANES_SHARE
        store_url += self._landing_options()
        housekeeping = self.stream("housekeeping")
        self.janitors = housekeeping.randint(1, 2) if housekeeping.random() < JANITORS_SHARE else 0
        grace_ms = housekeeping.choice(GRACES_MS)
        now_s = lambda: self.timeline.now_s  # noqa: E731
        self.deletion_checker = DeletionChecker(CLUSTER, self.oracle, self.store, self.fail, now_s, grace_ms / 1000)
        for server in self.store.landing:
            server.on_delete = self.store.on_delete
        self.neighbour: Neighbour | None = None
        if length.has_neighbour:
            self.neighbour = Neighbour(self, self.add_journal(NEIGHBOUR), length.services.sequencer.core)
        make = app_factories(
            network=self.network,
            store_url=store_url,
            dice=self.dice,
            known_level=self._known_level,
            grace_ms=grace_ms,
            length=length,
            apply=self._apply_and_compare,
            neighbour_apply=self.neighbour.apply if self.neighbour is not None else None,
        )
        keeps_names = self.dice.random() < 0.3
        counts = counts_of(has_agents=self.stream("agents").random() < AGENTS_SHARE) | {"janitor": self.janitors}
        self.processes = [
            Process(self, kind, number, make[kind], keeps_name=keeps_names, host_limits=length.services.host)
            for kind, count in counts.items()
            for number in range(count)
        ]
        self.old_replicas = self._old_replicas()  # the sequencers that run an earlier release
        self._replicas = {f"{each.name}-": each for each in self.role("sequencer")}
        self.hub.on_answer = self._check_answer
        self.client_loop = SimLoop(self.timeline, "clients", self._client_exception)
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.registers: list[RegisterWriter] = []
        self.members: list[Member] = []
        self.compactors: list[Compactor] = []
        self.recreated_topic = RecreatedTopic(self.client("passing"), self.oracle, RECREATED_TOPIC, START_MS)
        bus = self.hub.connect("fading")
        sequencer = EverySender(bus, CLUSTER, SimClock(self.timeline))
        self.expiring_topic = ExpiringTopic(self.client("fading"), self.oracle, EXPIRING_TOPIC, START_MS, sequencer)
        self.group = GroupLedger(GROUP, self.oracle)
        self.ownership = OwnershipChecker(GROUP, TOPIC, self.oracle)
        self.journal.observers.append(self.ownership.observe)
        is_new = self.stream(CONSUMER_PROTOCOL_STREAM).random() < CONSUMER_PROTOCOL_SHARE
        self.has_consumer_group = is_new and not self.old_replicas
        self.transactions = TransactionWorkload(self)
        self.shares = ShareWorkload(self, TOPIC)
        self.crowd = Crowd(self)
        self.topic_exists = False
        self.long_pauses = 0

    def _landing_options(self) -> str:
        """The options of the store's address for landing stores: none, one for one lane, or three for both lanes."""
        if self.stream(LANDING_STREAM).random() < LANDING_STORES_SHARE:
            self.store.landing = [
                StoreServer(self._wire(f"landing-{number}", LANDING_LATENCY), self.record)
                for number in range(LANDING_STORES)
            ]
            places = "&".join(f"landing=memory://landing-{number}" for number in range(LANDING_STORES))
            return f"?{places}&landing_for=all"
        return "?landing=memory://landing" if self.has_lanes else ""

    def _old_replicas(self) -> dict[str, None]:
        """All sequencers in some runs, none in the others."""
        is_upgrade = self.stream("upgrade").random() < UPGRADE_SHARE and not self.length.has_neighbour
        return dict.fromkeys(process.name for process in self.role("sequencer") if is_upgrade)

    @property
    def level(self) -> int:
        return self.oracle.state.level

    def raise_level(self) -> None:
        """Raise the level at once instead of after some seconds, as most clusters already have the newest one."""
        commands = [RaiseLevel(START_MS, NEWEST_LEVEL), *self._consumer_group_configs()]
        raised = Entry("operator", "operator", 0, GENESIS_HASH, [commands + self.shares.group_configs(START_MS)])
        self.journal.inject(encode_entry(raised))

    def _consumer_group_configs(self) -> list[Command]:
        session_timeout_ms = self.length.clients.consumer_member.session_timeout_ms
        return group_configs(START_MS, session_timeout_ms) if self.has_consumer_group else []

    def _known_level(self, process: Process) -> int:
        """The level of a sequencer that starts now. An old one is replaced when it does not know the level."""
        return 0 if process.name in self.old_replicas and not self.oracle.state.level else NEWEST_LEVEL

    async def upgrade(self) -> None:
        """Replace sequencers of the earlier release one by one."""
        stream = self.stream("upgrade-times")
        for process in self.role("sequencer"):
            await asyncio.sleep(stream.uniform(*UPGRADE_PAUSE_S))
            self.old_replicas.pop(process.name, None)
            process.stop()

    def client(self, name: str) -> KafkaClient:
        """One Kafka client."""
        gateways = [gateway_address(each) for each in self.role("gateway")]
        return KafkaClient(self.network, name, gateways, self.stream(f"client/{name}"), self.answers)

    async def make_topic(self) -> None:
        """Create the topic of most clients."""
        client = self.client("admin")
        request = CreateTopicsRequest([CreatableTopic(TOPIC, self.partitions, 1)])
        while not self.topic_exists:
            connection = await client.connect()
            try:
                answer = await connection.ask(CREATE_TOPICS, 5, request, 10.0)
                error = ErrorCode(answer.topics[0].error_code)
                self.topic_exists = error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            except Disconnected:
                pass
            connection.close()
            if not self.topic_exists:
                await client.back_off()

    def begin_work(self, request_interval_s: float) -> None:
        """Start producers, readers and members, chosen by the seed."""
        if not self.old_replicas:
            self.raise_level()
        for number in range(3):
            is_idempotent = number < 2
            producer = Producer(
                self.client(f"producer-{number}"),
                self.oracle,
                TOPIC,
                self.partitions,
                is_idempotent=is_idempotent,
                retries=is_idempotent or self.dice.random() < 0.5,
                count=self.length.requests,
                interval_s=request_interval_s,
                now_ms=START_MS,
            )
            self.producers.append(producer)
            self.spawn(producer.run())
        self.add_reader("reader")
        for number in range(2):
            self.members.append(self._member(self.client(f"member-{number}")))
            self.spawn(self.members[-1].run())
        self._begin_extras(self.length.requests)
        self._begin_sequential_clients(request_interval_s)

    def _begin_sequential_clients(self, pause_s: float) -> None:
        """Start clients that wait for each answer. A late copy of a request that they gave up would be seen."""
        for number in range(REGISTERS):
            name = f"register-{number}"
            count = 2 * self.length.requests
            client, pauses_s = self.client(name), pause_s / 2
            writer = RegisterWriter(client, self.oracle, self.late_copies, name, count, pauses_s, START_MS)
            self.registers.append(writer)
            self.spawn(writer.run())
        committer = SequentialCommitter(self.client("committer"), self.oracle, "sequential", TOPIC, pause_s / 2)
        self.spawn(committer.run())
        if self.neighbour is not None:
            self.spawn(self.neighbour.run())

    def _member(self, client: KafkaClient) -> Member:
        settings = self.length.clients
        if self.has_consumer_group:
            return ConsumerMember(client, self.oracle, self.group, self.ownership, TOPIC, self.partitions, settings)
        return Member(client, self.oracle, self.group, TOPIC, self.partitions, settings)

    def _begin_extras(self, requests: int) -> None:
        dice = self.stream("extras")
        if dice.random() < EXTRA_SHARE:
            self.spawn(self.recreated_topic.run())
        else:
            self.recreated_topic.is_done = True
        if self.janitors or dice.random() < EXTRA_SHARE:
            self.spawn(self.expiring_topic.run())
        else:
            self.expiring_topic.is_done = True
        if self.janitors:
            self._add_orphans()
        if dice.random() < EXTRA_SHARE:
            last_ms = START_MS + requests
            asker = TimestampLookups(self.client("asker"), self.oracle, TOPIC, self.partitions, START_MS, last_ms)
            self.spawn(asker.run())

        if self.has_lanes:
            self.spawn(LaneSwitcher(self.client("lanes"), TOPIC, self.stream("lane-switches")).run())
        if self.transactions.is_wanted:
            self.spawn(self.transactions.run())
        self.shares.begin()
        self.crowd.begin()
        if self.stream("compaction").random() < COMPACTED_SHARE:
            for number in range(COMPACTORS):
                self._add_compactor(f"compactor-{number}", Compactor)
        if self.transactions.has_merger:
            self._add_compactor("merger", Merger)

    def _add_orphans(self) -> None:
        """Add objects that were stored and never committed, some of them long ago."""
        dice = self.stream("orphans")
        for _ in range(ORPHANS):
            age_ms = dice.choice((dice.randint(0, ORPHAN_AGE_MS), ORPHAN_AGE_MS - ALMOST_ORPHAN_MS, 2 * ORPHAN_AGE_MS))
            born_ms = START_MS - age_ms
            key = segment_key("", CLUSTER, dice.randint(0, 2), new_segment_id(born_ms, dice.randbytes(ENTROPY_BYTES)))
            self.store.add_object(key, b"orphaned")
        for server in self.store.landing:  # each has one that the others do not have
            landed_id = new_landed_id(START_MS - 2 * ORPHAN_AGE_MS, dice.randbytes(ENTROPY_BYTES))
            server.add_object(segment_key("", CLUSTER, 0, landed_id), b"orphaned")

    def _add_compactor(self, name: str, kind: type[Compactor]) -> None:
        clock, stream = SimClock(self.timeline), self.stream(name)
        sequencer = EverySender(self.hub.connect(name), CLUSTER, clock)
        store = open_simulated(self.store, name, stream, self.timeline)
        topics = (TOPIC, TOPIC, EXPIRING_TOPIC)
        compactor = kind(
            sequencer,
            store,
            clock,
            stream,
            cluster=CLUSTER,
            topics=topics,
            state=lambda: self.oracle.state,
            settings=self.length.clients.compactor,
        )
        self.compactors.append(compactor)
        self.spawn(compactor.run())

    def add_reader(self, name: str, *, reads_much: bool = False) -> None:
        """Add a reader of the whole topic; with `reads_much`, its fetches are large."""
        reader = Reader(self.client(name), self.oracle, TOPIC, self.partitions)
        if reads_much:
            reader.reading.partition_bytes_max, reader.reading.bytes_max = MUCH_BYTES, MUCH_BYTES
        self.readers.append(reader)
        self.spawn(reader.run())

    def _apply_and_compare(
        self, state: State, sequence: int, requests: list[list[Command]]
    ) -> tuple[list[list[Outcome]], Effects]:
        """Apply an entry, and check that all replicas have the same state afterwards, byte for byte."""
        applied = apply_entry(state, sequence, requests)
        if sequence % COMPARED_ENTRIES == 0:
            self._compare(state, sequence)
        return applied

    def _compare(self, state: State, sequence: int) -> None:
        digest = hashlib.blake2b(encode_state(state), digest_size=16).digest()
        if self._state_digests.setdefault(sequence, digest) != digest:
            self.fail(f"replicas differ after journal entry {sequence}")

    def _check_answer(self, sender: str, data: bytes) -> None:
        """Check that a replica's answers include all entries that were in the journal when it started."""
        self.late_copies.answered(sender, data)
        replica = self._replicas.get(sender[: sender.rindex("-") + 1])
        if replica is None or replica.connection_name != sender:
            return
        sequence = _decode_reply(data[1:]).sequence
        if sequence < replica.born_at_sequence:
            self.fail(
                f"{sender} answers as of {sequence}, but {replica.born_at_sequence} was in the journal before its start"
            )
