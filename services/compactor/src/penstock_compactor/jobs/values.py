"""Values of all jobs: the store and the contents of segments, and the result of a job."""

import msgspec

from penstock.contracts.ids import SegmentId, TopicId
from penstock.contracts.queries.compaction import LogTransactions, PlacedExtent


class StorePlace(msgspec.Struct, frozen=True, array_like=True):
    """The store of a cluster. The URL may contain credentials, so it is never logged."""

    url: str
    cluster: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(cluster={self.cluster!r})"


class Contents(msgspec.Struct):
    """The extents of segments, in the order of the segments, and the transactions of their logs."""

    extents: list[list[PlacedExtent]] = []
    transactions: list[LogTransactions] = []  # at most one per segment and log


class Failed(msgspec.Struct, frozen=True, array_like=True):
    """A task that failed to write its output. An object that it stored is an orphan."""

    kind: str  # the class of the error
    reason: str


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job."""

    accepted: int = 0  # runs
    rejected: int = 0
    failures: tuple[Failed, ...] = ()
    outputs: tuple[tuple[SegmentId, TopicId], ...] = ()  # outputs with one topic

    @property
    def is_complete(self) -> bool:
        """Whether all planned work is done."""
        return not self.rejected and not self.failures
