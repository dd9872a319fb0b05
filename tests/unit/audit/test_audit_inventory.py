"""The inventory of an audit has every extent of every partition, also when that takes several answers."""

import msgspec
import pytest

from penstock.audit.audit import segment_checks
from penstock.audit.inventory import Inventory, take_inventory
from penstock.audit.object_check import check_objects
from penstock.contracts.batches import NO_PRODUCER, TRANSACTIONAL, BatchMeta, BatchRun
from penstock.contracts.commands import (
    AddPartitionsToTxn,
    Command,
    CommitSegment,
    CreateTopic,
    DeleteRecords,
    DeleteTopic,
    EndTxn,
    InitTransactionalProducer,
    LogOffset,
    RaiseLevel,
    TransactionPartition,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.contracts.levels import JANITOR_LEVEL, TRANSACTIONS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock.objectstore.memory import MemoryStore
from penstock.segment.keys import segment_key
from penstock_sequencer.core import queries
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS

NOW_MS = 1_700_000_000_000
TOPIC = new_topic_id(bytes(16))
PARTITIONS = 3
FLUSHES = DEFAULT_LIMITS.answers.plan_extents_max * 3 // 4  # so that one answer ends in the second partition
BATCH_BYTES = 100


class Sequencer:
    """A client of the state machine itself; `hides` is a partition whose extents it leaves out."""

    def __init__(self, hides: int | None = None) -> None:
        self.state: State = new_state()
        self._hides = hides
        self.plan_rejection = Rejection.NONE

    def do(self, command: Command) -> None:
        apply_entry(self.state, self.state.sequence + 1, [[command]])

    async def query(
        self, name: str, query: msgspec.Struct, _view: type[object], *, deadline_s: float | None = None
    ) -> object:
        answer = queries.QUERIES[name](self.state, query)
        for each in answer.partitions if name == "plan" else ():
            if each.partition == self._hides:
                each.extents.clear()
        if name == "plan" and self.plan_rejection:
            changes = {"rejection": self.plan_rejection, "high_watermark": 0}
            plans = [msgspec.structs.replace(each, **changes) for each in answer.partitions]
            return msgspec.structs.replace(answer, partitions=plans)
        return answer


MANY = DEFAULT_LIMITS.log.extents_dropped_per_command_max + 1
HIDDEN_TOPIC = new_topic_id(b"\x01" * 16)


async def shared(hides: Command, **configs: str) -> tuple[Inventory, list[str]]:
    """The inventory and the keys of three segments of two topics; one topic is hidden, the first object is missing."""
    sequencer = Sequencer()
    sequencer.do(RaiseLevel(NOW_MS, JANITOR_LEVEL))
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, 1, {}))
    sequencer.do(CreateTopic(NOW_MS, "u", HIDDEN_TOPIC, MANY, configs))
    batch = BatchMeta(BATCH_BYTES, 1, NOW_MS, NO_PRODUCER, -1, -1, 0)
    store = MemoryStore()
    keys = []
    for number in range(3):
        segment_id = new_segment_id(NOW_MS, number.to_bytes(10, "big"))
        logs = [(TOPIC, 0), *((HIDDEN_TOPIC, each) for each in range(MANY))]
        runs = [BatchRun(*log, BATCH_BYTES * (1 + at), [batch]) for at, log in enumerate(logs)]
        size_bytes = BATCH_BYTES * (2 + MANY)
        sequencer.do(CommitSegment(NOW_MS, segment_id, size_bytes, "f", "z", runs))
        keys.append(segment_key("", "c", 0, segment_id))
        if number:
            await store.put(keys[-1], [bytes(size_bytes)])
    sequencer.do(hides)
    return await take_inventory(sequencer, store, "c"), keys  # type: ignore[arg-type]  # the part of a client that is used


async def inventory_of(hides: int | None = None) -> Inventory:
    sequencer = Sequencer(hides)
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, PARTITIONS, {}))
    batch = BatchMeta(BATCH_BYTES, 1, NOW_MS, NO_PRODUCER, -1, -1, 0)
    for number in range(FLUSHES):
        segment_id = new_segment_id(NOW_MS, number.to_bytes(10, "big"))
        runs = [BatchRun(TOPIC, each, BATCH_BYTES * (1 + each), [batch]) for each in range(PARTITIONS)]
        sequencer.do(CommitSegment(NOW_MS, segment_id, BATCH_BYTES * (2 + PARTITIONS), "f", "z", runs))
    return await take_inventory(sequencer, MemoryStore(), "c")  # type: ignore[arg-type]  # the part of a client that is used


async def test_partitions_that_do_not_fit_in_one_answer_are_queried_again() -> None:
    inventory = await inventory_of()
    assert inventory.findings == []
    assert inventory.extents == PARTITIONS * FLUSHES


async def test_a_rejection_of_a_newer_release_ends_the_audit() -> None:
    sequencer = Sequencer()
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, 1, {}))
    sequencer.plan_rejection = Rejection(9_999)
    with pytest.raises(Unavailable, match="rejection_9999"):
        await take_inventory(sequencer, MemoryStore(), "c")  # type: ignore[arg-type]  # the part of a client that is used


@pytest.mark.parametrize("partition", range(PARTITIONS))
async def test_a_log_without_extents_in_an_answer_with_space_has_a_hole(partition: int) -> None:
    inventory = await inventory_of(hides=partition)
    assert [(each.kind, each.subject) for each in inventory.findings] == [("offsets-missing", f"t-{partition}")]
    assert inventory.extents == (PARTITIONS - 1) * FLUSHES


@pytest.mark.parametrize(
    ("hides", "configs"),
    [
        (DeleteTopic(NOW_MS, "u", b""), {"penstock.undelete.window.ms": "86400000"}),
        (DeleteTopic(NOW_MS, "u", b""), {}),
        (DeleteRecords(NOW_MS, [LogOffset(HIDDEN_TOPIC, each, 3) for each in range(MANY)]), {}),
    ],
    ids=["recoverable", "pending delete", "before the log's start"],
)
async def test_extents_outside_logs_that_the_journal_counts_are_no_finding(
    hides: Command, configs: dict[str, str]
) -> None:
    inventory, keys = await shared(hides, **configs)
    findings, breakdown = check_objects(inventory, "c", NOW_MS)
    assert [(each.kind, each.subject) for each in findings] == [("object-missing", keys[0])]
    assert breakdown.objects == {"live": 2}


async def test_a_missing_object_that_only_a_recoverable_topic_needs_is_found() -> None:
    sequencer = Sequencer()
    sequencer.do(RaiseLevel(NOW_MS, JANITOR_LEVEL))
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, 1, {"penstock.undelete.window.ms": "86400000"}))
    segment_id = new_segment_id(NOW_MS, bytes(10))
    batch = BatchMeta(BATCH_BYTES, 1, NOW_MS, NO_PRODUCER, -1, -1, 0)
    run = BatchRun(TOPIC, 0, BATCH_BYTES, [batch])
    sequencer.do(CommitSegment(NOW_MS, segment_id, BATCH_BYTES * 2, "f", "z", [run]))
    sequencer.do(DeleteTopic(NOW_MS, "t", b""))
    findings, _ = check_objects(await take_inventory(sequencer, MemoryStore(), "c"), "c", NOW_MS)  # type: ignore[arg-type]
    assert [(each.kind, each.subject) for each in findings] == [("object-missing", segment_key("", "c", 0, segment_id))]


async def test_the_end_of_a_transaction_is_in_no_object_and_leaves_no_hole() -> None:
    sequencer = Sequencer()
    sequencer.do(RaiseLevel(NOW_MS, TRANSACTIONS_LEVEL))
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, 1, {}))
    sequencer.do(InitTransactionalProducer(NOW_MS, "tx", 60_000))
    producer = (sequencer.state.transactions["tx"].producer_id, sequencer.state.transactions["tx"].epoch)
    store = MemoryStore()
    for number in range(2):
        sequencer.do(AddPartitionsToTxn(NOW_MS, "tx", *producer, [TransactionPartition(TOPIC, 0)]))
        batch = BatchMeta(BATCH_BYTES, 1, NOW_MS, *producer, number, TRANSACTIONAL)
        segment_id = new_segment_id(NOW_MS, number.to_bytes(10, "big"))
        run = BatchRun(TOPIC, 0, BATCH_BYTES, [batch])
        sequencer.do(CommitSegment(NOW_MS, segment_id, BATCH_BYTES * 2, "f", "z", [run]))
        await store.put(segment_key("", "c", 0, segment_id), [bytes(BATCH_BYTES * 2)])
        sequencer.do(EndTxn(NOW_MS, "tx", *producer, committed=not number))
    assert sequencer.state.topics["t"].partitions[0].high_watermark == 4
    inventory = await take_inventory(sequencer, store, "c")  # type: ignore[arg-type]
    assert check_objects(inventory, "c", NOW_MS)[0] == []
    assert (inventory.extents, inventory.live_bytes) == (2, 2 * BATCH_BYTES)
    assert inventory.transactional == {(0, 0)}
    extents = [extent for check in segment_checks(inventory, "c") for extent in check.extents]
    assert [extent.may_have_gaps for extent in extents] == [True, True], "compaction removes aborted records"
