"""Acknowledgements as members send them, checked as Kafka does before anybody else sees them. Pure."""

from collections.abc import Sequence

from penstock.contracts.commands import AcknowledgedRange, AcknowledgeType
from penstock.kafkawire.api import share_acknowledge, share_fetch

FIRST_VERSION_RENEW = 2  # KIP-1222

AcknowledgementBatches = Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]


def acknowledged_ranges(batches: AcknowledgementBatches, *, renews: bool) -> list[AcknowledgedRange] | str:
    """What a member says of one partition, or what is wrong with it."""
    newest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    ranges: list[AcknowledgedRange] = []
    for batch in batches:
        types = batch.acknowledge_types
        if batch.first_offset < 0 or batch.first_offset > batch.last_offset:
            return f"from offset {batch.first_offset} to {batch.last_offset} there is nothing"
        if ranges and batch.first_offset <= ranges[-1].last:
            return f"offset {batch.first_offset} comes behind {ranges[-1].last}"
        if len(types) not in (1, batch.last_offset - batch.first_offset + 1):
            return f"{len(types)} acknowledge types from offset {batch.first_offset} to {batch.last_offset}"
        if not all(AcknowledgeType.GAP <= each <= newest for each in types):
            return f"acknowledge types are 0 to {newest:d}"
        ranges.append(AcknowledgedRange(batch.first_offset, batch.last_offset, bytes(types)))
    return ranges
