"""The audit writer: it makes the topic, writes batches, and waits for flushers while no request waits."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.contracts.commands import CreateTopic, Outcome, Rejected, TopicCreated
from penstock.contracts.ids import AUDIT_TOPIC
from penstock.contracts.rejections import Rejection
from penstock.kafkawire.records import batches, decode_records, size_bytes
from penstock_gateway.audit_topic.writer import AuditWriter
from penstock_gateway.security.audit_trail import AuditEvent, AuditKind, AuditLimits, AuditTrail, NewAuditTopic
from tests.testkit.cancelling import turns
from tests.testkit.fakes.virtual_time import CountingEntropy
from tests.unit.gateway.gateway_fakes import FakeFlusher, World, new_world, with_flushes

LIMITS = AuditLimits(linger_s=0, retry_s=0, unwritten_max=10)


class Audited:
    """A world with an audit writer, which runs."""

    def __init__(self, world: World) -> None:
        self.world = world
        metrics = world.gateway.metrics
        self.trail = AuditTrail(gateway="g1", clock=world.clock, metrics=metrics, limits=LIMITS)
        self.writer = AuditWriter(
            trail=self.trail,
            flush_router=world.flush_router,
            topics=world.gateway.topics,
            sequencer=world.sequencer,
            clock=world.clock,
            entropy=CountingEntropy(),
            new_topic=NewAuditTopic(partitions=4, retention_ms=1_000),
        )
        world.sequencer.on_command = self.create

    def create(self, command: Any) -> Outcome:
        assert isinstance(command, CreateTopic)
        if command.name in self.world.sequencer.topics:
            return Rejected(Rejection.TOPIC_EXISTS)
        self.world.sequencer.add_topic(command.name, command.partitions, **command.configs)
        return TopicCreated(command.topic_id, command.partitions, command.configs)

    def record(self, *principals: str) -> None:
        for principal in principals:
            self.trail.record(AuditEvent(kind=AuditKind.CHANGED, principal=principal, peer="10.0.0.1", api="X"))

    def commands(self) -> list[CreateTopic]:
        return [each for some in self.world.sequencer.commands for each in some if isinstance(each, CreateTopic)]

    def lost(self) -> float:
        return self.world.metric("penstock_gateway_audit_events_total", kind="changed", outcome="dropped")


@pytest.fixture
async def audited() -> AsyncIterator[Audited]:
    world = new_world()
    async with with_flushes(world):
        made = Audited(world)
        running = asyncio.create_task(made.writer.run())
        yield made
        running.cancel()
        await asyncio.wait({running})


def written(flusher: FakeFlusher) -> list[tuple[int, bytes, dict[str, Any]]]:
    """Partition, key and value of all records at a flusher."""
    found = []
    for request, payload in flusher.requests:
        parts = [batch.partition for produce in request.produces for batch in produce.batches]
        headers = list(batches(payload))
        for partition, (position, header) in zip(parts, headers, strict=True):
            for record in decode_records(payload[position : position + size_bytes(header)]):
                assert record.key is not None
                assert record.value is not None
                found.append((partition, record.key, json.loads(record.value)))
    return found


async def test_the_first_event_makes_the_topic_and_each_event_is_a_record_of_its_principal(audited: Audited) -> None:
    flusher = await audited.world.add_flusher("f1")
    audited.record("User:alice", "User:bob", "User:alice")
    await audited.trail.until_written()
    (made,) = audited.commands()
    assert (made.name, made.partitions, made.configs) == (AUDIT_TOPIC, 4, {"retention.ms": "1000"})
    records = written(flusher)
    assert sorted((key, value["number"]) for _, key, value in records) == [
        (b"User:alice", 1),
        (b"User:alice", 3),
        (b"User:bob", 2),
    ]
    assert len({partition for partition, key, _ in records if key == b"User:alice"}) == 1
    assert {"kind": "changed", "gateway": "g1", "peer": "10.0.0.1", "api": "X"}.items() <= records[0][2].items()
    assert all(produce.needs_confirmation for produce in flusher.produces)
    audited.record("User:alice")
    await audited.trail.until_written()
    assert len(audited.commands()) == 1


async def test_a_topic_that_another_gateway_makes_first_is_used(audited: Audited) -> None:
    flusher = await audited.world.add_flusher("f1")

    def lose(command: Any) -> Outcome:
        audited.world.sequencer.add_topic(AUDIT_TOPIC)
        return Rejected(Rejection.TOPIC_EXISTS)

    audited.world.sequencer.on_command = lose
    audited.record("User:alice")
    await audited.trail.until_written()
    assert [partition for partition, _, _ in written(flusher)] == [0]


async def test_without_flushers_events_wait_up_to_a_limit_and_are_written_later(audited: Audited) -> None:
    audited.record(*["User:alice"] * 4)
    await turns()
    audited.record(*["User:alice"] * 10)  # returns at once
    assert audited.lost() == 4
    flusher = await audited.world.add_flusher("f1")
    await audited.trail.until_written()
    assert [value["number"] for _, _, value in written(flusher)] == list(range(1, 11))
    audited.record("User:alice")
    await audited.trail.until_written()
    assert written(flusher)[-1][2]["suppressed"] == 4


async def test_without_sequencers_events_wait(audited: Audited) -> None:
    flusher = await audited.world.add_flusher("f1")
    audited.world.sequencer.is_down = True
    audited.record("User:alice")
    await turns()
    assert flusher.requests == []
    audited.world.sequencer.is_down = False
    await audited.trail.until_written()
    assert len(written(flusher)) == 1


@pytest.mark.parametrize("rejection", [Rejection.OUTCOME_UNKNOWN, 9_999], ids=["unknown outcome", "later release"])
async def test_events_of_an_unknown_outcome_are_sent_again_with_the_same_number(
    audited: Audited, rejection: int
) -> None:
    flusher = await audited.world.add_flusher("f1")
    flusher.rejection = rejection
    audited.record("User:alice")
    await turns(100)
    flusher.rejection = Rejection.NONE
    await audited.trail.until_written()
    assert {value["number"] for _, _, value in written(flusher)} == {1}
    assert len(written(flusher)) > 1


async def test_a_topic_that_is_gone_is_made_again(audited: Audited) -> None:
    flusher = await audited.world.add_flusher("f1")
    audited.record("User:alice")
    await audited.trail.until_written()
    del audited.world.sequencer.topics[AUDIT_TOPIC]
    flusher.rejection = Rejection.UNKNOWN_TOPIC
    audited.record("User:alice")
    while len(audited.commands()) < 2:
        await asyncio.sleep(0)
    flusher.rejection = Rejection.NONE
    await audited.trail.until_written()


async def test_a_drain_waits_for_events_and_ends_at_its_deadline(audited: Audited) -> None:
    flusher = await audited.world.add_flusher("f1")
    flusher.answers_at_once = False
    audited.record("User:alice")
    await audited.writer.drain(0)
    draining = asyncio.create_task(audited.writer.drain(300))
    while not flusher.requests:
        await asyncio.sleep(0)
    assert not draining.done()
    await flusher.answer_all()
    await draining
    await audited.trail.until_written()
