"""The sources of a console's pages: a state machine in place of sequencers, and Kafka's clients over the same state.

`test_console_fakes.py` compares the fake clients with those of kafka-python.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
from kafka import TopicPartition
from kafka.errors import IncompatibleBrokerVersion, NoError

from penstock.cli.kafka.profiles import KafkaSettings
from penstock.cli.kafka.session import Session
from penstock.contracts.commands import (
    AlterConfigs,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    CreatePartitions,
    DeleteGroup,
    DeleteTopic,
    OffsetToCommit,
    Rejected,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID
from penstock.runtime.bus.sequencer_client import View
from penstock.runtime.clock import Clock
from penstock_console.kafka.sessions import KafkaSessions, Login
from penstock_sequencer.core import queries
from tests.unit.console.console_security_fakes import answer
from tests.unit.sequencer.core.core_world import World, batch

Result = TypeVar("Result")
NOT_FOUND, EXISTS, INVALID = 3, 36, 40  # error codes of Kafka
SETTINGS = KafkaSettings(bootstrap="127.0.0.1:1", security_protocol="PLAINTEXT")


class WorldSequencers:
    """`Sequencers` that answer from one state machine; `before` is called before each answer."""

    def __init__(self, world: World, before: Callable[[str], object] = lambda name: None) -> None:
        self.world = world
        self.before = before
        self.is_available = True
        self.hangs = False  # while it is not available

    async def query(
        self, name: str, query: msgspec.Struct, view: type[View], *, deadline_s: float | None = None
    ) -> View:
        if not self.is_available:
            if self.hangs:
                await asyncio.Event().wait()
            raise Unavailable("no sequencer answers")
        self.before(name)
        found = queries.QUERIES[name](self.world.state, query)
        assert isinstance(found, view)
        return found


class FakeAdmin:
    """The methods of `KafkaAdminClient` that the console uses, over the state machine."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.operations = ["DESCRIBE"]
        self._made = 0
        self._manager = self
        self._find_coordinator_ids = self.send

    def run(self, ask: Any, request: Any = None) -> Any:
        if request is None:
            raise IncompatibleBrokerVersion("all groups here are classic groups")
        return answer(self.world, request)

    async def send(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("`run` asks nothing")

    def describe_cluster(self) -> dict[str, Any]:
        return {"authorized_operations": self.operations}

    def describe_topics(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        return [self._topic(name) for name in topics or ()]

    def _topic(self, name: str) -> dict[str, Any]:
        topic = self.world.state.topics.get(name)
        if topic is None:
            return {"name": name, "error_code": NOT_FOUND, "partitions": []}
        partitions = [{"partition_index": each.number} for each in topic.partitions]
        return {"name": name, "error_code": 0, "partitions": partitions}

    def create_topics(
        self, new_topics: Mapping[str, Mapping[str, Any]], validate_only: bool = False, raise_errors: bool = True
    ) -> dict[str, Any]:
        rows = []
        for name, options in new_topics.items():
            self._made += 1
            made = self.world.topic(
                name, max(options["num_partitions"], 1), number=1_000 + self._made, **options["configs"]
            )
            is_bad = isinstance(made, Rejected)
            message = made.message if is_bad else None
            rows.append({"name": name, "error_code": INVALID if is_bad else 0, "error_message": message})
        return {"topics": rows}

    def create_partitions(
        self, topic_partitions: Mapping[str, int], validate_only: bool = False, raise_errors: bool = True
    ) -> Any:
        results = []
        for name, count in topic_partitions.items():
            made = self.world.do(CreatePartitions(self.world.now_ms, name, count))
            is_bad = isinstance(made, Rejected)
            results.append(
                SimpleNamespace(error_code=37 if is_bad else 0, error_message=made.message if is_bad else None)
            )
        return SimpleNamespace(results=results)

    def delete_topics(self, topics: Sequence[str], raise_errors: bool = True) -> dict[str, Any]:
        for name in topics:
            self.world.do(DeleteTopic(self.world.now_ms, name, NO_TOPIC_ID))
        return {"topics": [{"name": name, "error_code": 0} for name in topics]}

    def describe_configs(self, config_resources: Iterable[Any], config_filter: str = "all") -> dict[str, Any]:
        (resource,) = config_resources
        topic = self.world.state.topics.get(resource.name)
        given = {} if topic is None else topic.configs
        values = given if config_filter == "modified" else {"retention.ms": "604800000", **given}
        source = "DYNAMIC_TOPIC_CONFIG"
        entries = {
            name: {"value": value, "is_sensitive": False, "config_source": source if name in given else "DEFAULT"}
            for name, value in values.items()
        }
        return {"topic": {resource.name: entries}}

    def alter_configs(
        self, config_resources: Iterable[Any], validate_only: bool = False, raise_on_unknown: bool = True
    ) -> dict[str, Any]:
        (resource,) = config_resources
        changes = [
            ConfigChange(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value or "")
            for name, (_, value) in resource.configs.items()
        ]
        made = self.world.do(AlterConfigs(self.world.now_ms, resource.name, changes))
        return {"topic": {resource.name: made.message if isinstance(made, Rejected) else "OK"}}

    def list_partition_offsets(
        self, topic_partition_specs: Mapping[TopicPartition, Any], isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, Any]:
        return {each: SimpleNamespace(offset=self._offset(each, spec)) for each, spec in topic_partition_specs.items()}

    def _offset(self, place: TopicPartition, spec: Any) -> int:
        partition = self.world.state.topics[place.topic].partitions[place.partition]
        is_first = getattr(spec, "name", "") == "EARLIEST"
        return int(partition.log_start_offset if is_first else partition.high_watermark)

    def list_group_offsets(self, group_specs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._committed(name) for name in group_specs}

    def _committed(self, name: str) -> dict[TopicPartition, Any]:
        group = self.world.state.groups.get(name)
        offsets = {} if group is None else group.offsets
        return {
            TopicPartition(topic, number): SimpleNamespace(offset=each.offset)
            for topic, partitions in offsets.items()
            for number, each in partitions.items()
        }

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        for place, each in offsets.items():
            item = OffsetToCommit(place.topic, place.partition, each.offset, -1, "")
            self.world.do(CommitOffsets(self.world.now_ms, group_id, -1, "", None, [item]))
        return dict.fromkeys(offsets, NoError)

    def describe_groups(self, group_ids: Sequence[str]) -> dict[str, Any]:
        return {name: self._group(name) for name in group_ids}

    def _group(self, name: str) -> dict[str, Any]:
        group = self.world.state.groups.get(name)
        members = [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "group_instance_id": each.group_instance_id,
                "member_assignment": {"assigned_partitions": [{"topic": "t", "partitions": [0]}]},
            }
            for each in (group.members.values() if group is not None else ())
        ]
        state = "Dead" if group is None else group.state
        return {"group_state": state, "error": None, "protocol_data": "range", "members": members}

    def delete_groups(self, group_ids: Sequence[str]) -> dict[str, Any]:
        for name in group_ids:
            self.world.do(DeleteGroup(self.world.now_ms, name))
        return dict.fromkeys(group_ids, "OK")


class FakeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as a consumer returns it."""

    topic: str = "t"
    partition: int = 0
    offset: int = 0
    timestamp: int = 1_700_000_000_000
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class FakeConsumer:
    """A consumer of records in a list."""

    def __init__(
        self,
        records: list[FakeRecord],
        ends: Callable[[TopicPartition], int],
        on_poll: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_poll = on_poll
        self._records = records
        self._ends = ends
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        return self._positions[partition]

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> dict[TopicPartition, list[FakeRecord]]:
        self._on_poll()
        found: dict[TopicPartition, list[FakeRecord]] = {}
        left = max_records or 500
        for place, position in self._positions.items():
            records = [
                each
                for each in self._records
                if (each.topic, each.partition) == (place.topic, place.partition) and each.offset >= position
            ][:left]
            left -= len(records)
            if records:
                found[place] = records
                self._positions[place] = records[-1].offset + 1
            if left > 0:
                self._positions[place] = max(self._positions[place], self._ends(place))
        return found


class FakeProducer:
    """A producer that adds to a list of records, and to the state machine's log."""

    def __init__(self, world: World, records: list[FakeRecord]) -> None:
        self._world, self._records = world, records

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        found = self._world.state.topics[topic]
        log = found.partitions[partition or 0]
        record = FakeRecord(
            topic=topic,
            partition=log.number,
            offset=log.high_watermark,
            key=key,
            value=value,
            headers=tuple(headers or ()),
        )
        self._records.append(record)
        command = self._world.segment_command((1, log.number, [batch()]))
        runs = [msgspec.structs.replace(each, topic_id=found.topic_id) for each in command.runs]
        self._world.do(msgspec.structs.replace(command, runs=runs))
        written = SimpleNamespace(partition=record.partition, offset=record.offset)
        return SimpleNamespace(get=lambda timeout: written)


class FakeSession:
    """`Session` of the command line with these clients."""

    timeout_s = 1.0

    def __init__(self, world: World) -> None:
        self.admin = FakeAdmin(world)
        self.records: list[FakeRecord] = []
        self.on_poll: Callable[[], object] = lambda: None
        self._world = world

    def new_consumer(self, **_: Any) -> FakeConsumer:
        return FakeConsumer(self.records, self._end, self.on_poll)

    def new_producer(self, **_: Any) -> FakeProducer:
        return FakeProducer(self._world, self.records)

    def _end(self, place: TopicPartition) -> int:
        return int(self._world.state.topics[place.topic].partitions[place.partition].high_watermark)


class FakeKafka(KafkaSessions):
    """`KafkaSessions` with one session for all users; with `passwords`, other logins are refused."""

    def __init__(self, world: World, clock: Clock, passwords: Mapping[str, str] | None = None) -> None:
        protocol = "PLAINTEXT" if passwords is None else "SASL_PLAINTEXT"
        super().__init__(msgspec.structs.replace(SETTINGS, security_protocol=protocol), clock)
        self.session = FakeSession(world)
        self.is_available = True
        self.refusal: Exception | None = None
        self.calls: list[Login] = []
        self.closed: list[Login] = []
        self.passwords = passwords
        self.tokens: Container[str] = ()  # that gateways accept

    async def call(self, login: Login, work: Callable[[Session], Result]) -> Result:
        self.calls.append(login)
        if not self.is_available:
            raise Unavailable("no gateway accepts a connection")
        if not self._is_right(login):
            raise Unavailable(f"127.0.0.1:1 refuses the login of {login.username!r}")
        if self.refusal is not None:
            raise self.refusal
        return await self.in_thread(lambda: work(cast(Session, self.session)))

    def _is_right(self, login: Login) -> bool:
        if login.token:
            return login.token in self.tokens
        return self.passwords is None or self.passwords.get(login.username) == login.password

    @contextlib.asynccontextmanager
    async def own_session(self, login: Login) -> AsyncIterator[Session]:
        yield await self.call(login, lambda session: session)

    async def try_login(self, login: Login, work: Callable[[Session], Result]) -> Result:
        return await self.call(login, work)

    async def forget(self, login: Login) -> None:
        self.closed.append(login)
