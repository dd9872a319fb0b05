"""Validates the acknowledgements of a request as Kafka does, before a sequencer gets them. Pure."""

from collections.abc import Sequence

from penstock.contracts.commands import AcknowledgedRange, AcknowledgeType
from penstock.kafkawire.api import share_acknowledge, share_fetch

FIRST_VERSION_RENEW = 2  # KIP-1222

AcknowledgementBatches = Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]


def acknowledged_ranges(batches: AcknowledgementBatches, *, renews: bool) -> list[AcknowledgedRange] | str:
    """The acknowledged ranges of one partition, or an error message for the client."""
    newest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    ranges: list[AcknowledgedRange] = []
    for batch in batches:
        types = batch.acknowledge_types
        if batch.first_offset < 0 or batch.first_offset > batch.last_offset:
            return f"offsets {batch.first_offset} to {batch.last_offset} are not a valid range"
        if ranges and batch.first_offset <= ranges[-1].last:
            return f"batches must be in ascending order: offset {batch.first_offset} follows {ranges[-1].last}"
        if len(types) not in (1, batch.last_offset - batch.first_offset + 1):
            offsets = f"offsets {batch.first_offset} to {batch.last_offset}"
            return f"{offsets} have {len(types)} acknowledge types: send one for all, or one for each"
        if min(types) < AcknowledgeType.GAP or max(types) > newest:
            return f"acknowledge types must be from 0 to {newest:d} in this request"
        ranges.append(AcknowledgedRange(batch.first_offset, batch.last_offset, bytes(types)))
    return ranges
