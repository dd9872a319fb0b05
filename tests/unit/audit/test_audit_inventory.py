"""What an audit takes in of the logs: every extent of every partition, however many answers that takes."""

import msgspec
import pytest

from penstock.audit.inventory import Inventory, take_inventory
from penstock.contracts.batches import NO_PRODUCER, BatchMeta, BatchRun
from penstock.contracts.commands import Command, CommitSegment, CreateTopic
from penstock.contracts.ids import new_segment_id, new_topic_id
from penstock.objectstore.memory import MemoryStore
from sequencer.core import queries
from sequencer.core.limits import PLAN_EXTENTS_MAX
from sequencer.core.machine import apply_entry
from sequencer.core.state import State, new_state

NOW_MS = 1_700_000_000_000
TOPIC = new_topic_id(bytes(16))
PARTITIONS = 3
FLUSHES = PLAN_EXTENTS_MAX * 3 // 4  # so that one answer ends in the second partition
BATCH_BYTES = 100


class Sequencer:
    """A client of the state machine itself; `hides` is a partition whose extents it does not tell."""

    def __init__(self, hides: int | None = None) -> None:
        self.state: State = new_state()
        self._hides = hides

    def do(self, command: Command) -> None:
        apply_entry(self.state, self.state.sequence + 1, [[command]])

    async def query(self, name: str, query: msgspec.Struct, _view: type[object]) -> object:
        answer = queries.QUERIES[name](self.state, query)
        for each in answer.partitions if name == "plan" else ():
            if each.partition == self._hides:
                each.extents.clear()
        return answer


async def inventory_of(hides: int | None = None) -> Inventory:
    sequencer = Sequencer(hides)
    sequencer.do(CreateTopic(NOW_MS, "t", TOPIC, PARTITIONS, {}))
    batch = BatchMeta(BATCH_BYTES, 1, NOW_MS, NO_PRODUCER, -1, -1, 0)
    for number in range(FLUSHES):
        segment_id = new_segment_id(NOW_MS, number.to_bytes(10, "big"))
        runs = [BatchRun(TOPIC, each, BATCH_BYTES * (1 + each), [batch]) for each in range(PARTITIONS)]
        sequencer.do(CommitSegment(NOW_MS, segment_id, BATCH_BYTES * (2 + PARTITIONS), "f", "z", runs))
    return await take_inventory(sequencer, MemoryStore(), "c")  # type: ignore[arg-type]  # as much of one as it asks


async def test_partitions_that_one_answer_has_no_room_for_are_asked_for_again() -> None:
    inventory = await inventory_of()
    assert inventory.findings == []
    assert inventory.extents == PARTITIONS * FLUSHES


@pytest.mark.parametrize("partition", range(PARTITIONS))
async def test_a_log_of_which_nothing_is_told_where_there_is_room_has_a_hole(partition: int) -> None:
    inventory = await inventory_of(hides=partition)
    assert [(each.kind, each.subject) for each in inventory.findings] == [("offsets-missing", f"t-{partition}")]
    assert inventory.extents == (PARTITIONS - 1) * FLUSHES
