"""Footers for tests: segments of flushers with batches of producers, and the machine that commits them."""

from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.ids import TopicId, new_segment_id, new_topic_id
from penstock.segment import HEADER_BYTES, SegmentIndex

BORN_MS = 1_700_000_000_000
BATCH_BYTES = 100
TOPIC = new_topic_id(bytes(16))

Run = tuple[TopicId, int, list[BatchMeta]]


def batch(producer: int = -1, epoch: int = 0, sequence: int = 0, records: int = 1) -> BatchMeta:
    """A batch; of an idempotent producer if `producer` is given."""
    if producer < 0:
        return BatchMeta(BATCH_BYTES, records, BORN_MS, -1, -1, -1, 0)
    return BatchMeta(BATCH_BYTES, records, BORN_MS, producer, epoch, sequence, 0)


def segment(
    writer: str, born_ms: int, *batches: BatchMeta, chance: int = 0, runs: list[Run] | None = None
) -> SegmentIndex:
    """A segment born `born_ms` after the start; its batches are of partition 0 unless `runs` is given."""
    position = HEADER_BYTES
    placed = []
    for topic_id, partition, metas in runs if runs is not None else [(TOPIC, 0, list(batches))]:
        placed.append(BatchRun(topic_id, partition, position, metas))
        position += sum(each.length for each in metas)
    # The flusher's name is in the id, so that segments of two flushers in one millisecond differ.
    entropy = chance.to_bytes(2, "big") + writer.encode().rjust(8, b"\0")[-8:]
    identifier = new_segment_id(BORN_MS + born_ms, entropy)
    return SegmentIndex(identifier, 0, writer, BORN_MS + born_ms, position + 200, placed)
