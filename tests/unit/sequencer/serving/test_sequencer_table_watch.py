"""Shared tables: their sizes are metrics, and the service is degraded before one of them is full."""

from types import SimpleNamespace
from typing import cast

import msgspec
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import (
    AlterScramCredentials,
    CreateAcls,
    InitTransactionalProducer,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    ScramVerifier,
)
from penstock.contracts.levels import SHARES_LEVEL
from penstock.runtime.process.health import Health
from penstock_sequencer.core.state.limits import Limits, LogLimits, ProducerLimits, SecurityLimits, TransactionLimits
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Replica
from penstock_sequencer.serving.table_watch import TableWatch
from tests.unit.sequencer.core.core_world import World, batch

LABELS = {"table": "producers_of_one_partition"}


def test_the_service_is_degraded_while_a_table_is_almost_full() -> None:
    world = World(Limits(producers=ProducerLimits(producers_per_partition_max=5)))
    world.topic()
    registry, health = CollectorRegistry(), Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(registry), health=health)
    for _ in range(3):
        world.produce(batch(producer=world.producer(), epoch=0, sequence=0))
    watch.look()
    assert health.degraded == []
    world.produce(batch(producer=world.producer(), epoch=0, sequence=0))
    watch.look()
    assert health.degraded == ["tables"]
    assert "producers_of_one_partition: 4 of 5" in health.report()["degraded"]["tables"]
    assert registry.get_sample_value("penstock_sequencer_table_rows", LABELS) == 4
    assert registry.get_sample_value("penstock_sequencer_table_rows_max", LABELS) == 5


def test_the_service_is_degraded_before_commits_are_rejected() -> None:
    world = World(Limits(log=LogLimits(remembered_commits_max=5)))
    world.topic()
    health = Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(CollectorRegistry()), health=health)
    for _ in range(4):
        world.produce(batch())
    watch.look()
    assert "remembered_commits: 4 of 5" in health.report()["degraded"]["tables"]


def test_the_service_is_degraded_before_users_and_access_control_lists_are_rejected() -> None:
    """Each table is logged once when it is almost full, and once when it has room again."""
    world = World(Limits(security=SecurityLimits(users_max=5, bindings_max=5)))
    health = Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(CollectorRegistry()), health=health)
    names = [f"user-{number}" for number in range(4)]
    with capture_logs() as logs:
        for name in names[:3]:
            add(world, name)
        watch.look()
        assert health.degraded == []
        add(world, names[3])
        watch.look()
        watch.look()
    degraded = health.report()["degraded"]["tables"]
    assert "users: 4 of 5" in degraded
    assert "acl_bindings: 4 of 5" in degraded
    assert sorted((line["event"], line["table"], line["rows"], line["rows_max"]) for line in logs) == [
        ("table_almost_full", "acl_bindings", 4, 5),
        ("table_almost_full", "users", 4, 5),
    ]
    world.do(AlterScramCredentials(world.now_ms, [], [ScramDeletion(names[0], ScramMechanism.SHA_256)]))
    with capture_logs() as logs:
        watch.look()
    assert [(line["event"], line["table"]) for line in logs] == [("table_has_room", "users")]
    assert "users" not in health.report()["degraded"]["tables"]


def test_the_principal_that_fills_a_table_is_named() -> None:
    limits = Limits(
        transactions=TransactionLimits(transactions_max=10),
        producers=ProducerLimits(producers_per_partition_max=10),
    )
    world = World(limits, SHARES_LEVEL)
    world.topic()
    registry, health = CollectorRegistry(), Health()
    replica = cast(Replica, SimpleNamespace(state=world.state))
    watch = TableWatch(replica=replica, metrics=SequencerMetrics(registry), health=health)
    for number in range(8):
        user = "User:eve" if number % 4 else "User:bob"
        world.do(InitTransactionalProducer(world.now_ms, f"t{number}", 60_000, principal=user))
        meta = batch(producer=world.producer(), epoch=0, sequence=0)
        command = world.segment_command((1, 0, [msgspec.structs.replace(meta, principal=1)]))
        world.do(msgspec.structs.replace(command, principals=[user]))
    with capture_logs() as logs:
        watch.look()
    degraded = health.report()["degraded"]["tables"]
    assert "transactional_ids: 8 of 10 (User:eve has 6)" in degraded
    assert "producers_of_one_partition: 8 of 10 (User:eve has 6)" in degraded
    assert {(line["table"], line["principal"], line["rows_of_principal"]) for line in logs} == {
        ("transactional_ids", "User:eve", 6),
        ("producers_of_one_partition", "User:eve", 6),
    }
    name = "penstock_sequencer_table_rows_largest_principal"
    assert registry.get_sample_value(name, {"table": "transactional_ids"}) == 6
    assert registry.get_sample_value(name, {"table": "groups"}) == 0


def add(world: World, name: str) -> None:
    """Create a user with a verifier and a binding."""
    verifier = ScramVerifier(ScramMechanism.SHA_256, 4_096, b"salt", bytes(32), bytes(32))
    world.do(AlterScramCredentials(world.now_ms, [ScramUpsertion(name, verifier)], []))
    allowed = (AclOperation.READ, AclPermission.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, "orders", PatternType.LITERAL, f"User:{name}", "*", *allowed)
    world.do(CreateAcls(world.now_ms, [binding]))
