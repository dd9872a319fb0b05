"""The bytes of share group commands: journals and buses of earlier releases hold them in this form."""

from penstock.contracts import codec
from penstock.contracts.commands import (
    AcknowledgedRange,
    AcknowledgeType,
    AcquiredRange,
    OffsetRange,
    RecordsShared,
    SharedPartition,
    SharePartition,
    ShareRecords,
)
from penstock.contracts.rejections import Rejection

RANGES = [
    AcknowledgedRange(0, 1, bytes([AcknowledgeType.ACCEPT])),
    AcknowledgedRange(2, 3, bytes([AcknowledgeType.RELEASE, AcknowledgeType.UNREAD])),
]
PARTITION = SharePartition(b"t" * 16, 0, RANGES, 4, -1, 5, [OffsetRange(6, 7)])
COMMAND = ShareRecords(1, "g", "m", [PARTITION], 8, 9, 10, 11)
COMMAND_BYTES = (
    b"\x01\x99e\x01\xa1g\xa1m\x91\x97\xc4\x10tttttttttttttttt\x00"
    b"\x92\x93\x00\x01\xc4\x01\x01\x93\x02\x03\xc4\x02\x02\x05"
    b"\x04\xff\x05\x91\x92\x06\x07\x08\t\n\x0b"
)
SHARED = SharedPartition(Rejection.INVALID_RECORD_STATE, [AcquiredRange(4, 5, 1)], Rejection.UNKNOWN_TOPIC)
OUTCOME = RecordsShared([SHARED], 30_000, 12)
OUTCOME_BYTES = b"\x01\x94e\x91\x93d\x91\x93\x04\x05\x01\x01\xcdu0\x0c"


def test_acknowledgements_keep_their_bytes() -> None:
    assert codec.encode(COMMAND) == COMMAND_BYTES
    assert codec.decode(COMMAND_BYTES, ShareRecords) == COMMAND


def test_outcomes_of_acknowledgements_keep_their_bytes() -> None:
    assert codec.encode(OUTCOME) == OUTCOME_BYTES
    assert codec.decode(OUTCOME_BYTES, RecordsShared) == OUTCOME
