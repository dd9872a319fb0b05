"""Values that all jobs share: the place and the contents of segments, and the result of a job."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import LogTransactions, PlacedExtent


class StorePlace(msgspec.Struct, frozen=True, array_like=True):
    """The store of a cluster. The address may contain credentials, so no log shows it."""

    url: str
    cluster: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cluster={self.cluster!r})"


class Contents(msgspec.Struct):
    """The extents in segments, in the order of the segments, and the transactions of their logs."""

    extents: list[list[PlacedExtent]] = []
    transactions: list[LogTransactions] = []  # one of each segment, at most, for a log


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """A task without an output. Bytes that it stored are an orphan."""

    kind: str  # the error's class
    reason: str


class JobResult(msgspec.Struct, frozen=True):
    """How a job ended."""

    accepted: int = 0  # runs
    rejected: int = 0
    failures: tuple[Failed, ...] = ()
    outputs: tuple[tuple[SegmentId, TopicId], ...] = ()  # those of one topic

    @property
    def is_complete(self) -> bool:
        """Whether everything that was planned is done."""
        return not self.rejected and not self.failures
