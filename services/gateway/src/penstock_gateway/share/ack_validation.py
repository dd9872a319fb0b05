"""Acknowledgements as members send them, checked as Kafka does before anybody else sees them. Pure."""

from collections.abc import Sequence

from penstock.contracts.commands import JudgedRange, Verdict
from penstock.kafkawire.api import share_acknowledge, share_fetch

FIRST_VERSION_RENEW = 2  # KIP-1222

AcknowledgementBatches = Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch]


def judged_ranges(batches: AcknowledgementBatches, *, renews: bool) -> list[JudgedRange] | str:
    """What a member says of one partition, or what is wrong with it."""
    newest = Verdict.RENEW if renews else Verdict.REJECT
    judged: list[JudgedRange] = []
    for batch in batches:
        verdicts = batch.acknowledge_types
        if batch.first_offset < 0 or batch.first_offset > batch.last_offset:
            return f"from offset {batch.first_offset} to {batch.last_offset} there is nothing"
        if judged and batch.first_offset <= judged[-1].last:
            return f"offset {batch.first_offset} comes behind {judged[-1].last}"
        if len(verdicts) not in (1, batch.last_offset - batch.first_offset + 1):
            return f"{len(verdicts)} acknowledge types from offset {batch.first_offset} to {batch.last_offset}"
        if not all(Verdict.GAP <= each <= newest for each in verdicts):
            return f"acknowledge types are 0 to {newest:d}"
        judged.append(JudgedRange(batch.first_offset, batch.last_offset, bytes(verdicts)))
    return judged
