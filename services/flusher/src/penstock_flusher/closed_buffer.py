"""One closed buffer on its way into a segment and its commit."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.contracts.commands import CommitSegment
from penstock.contracts.ids import SegmentId
from penstock.segment import BuiltSegment
from penstock_flusher.fragments import Fragment
from penstock_flusher.segment_trace import SegmentTrace


@dataclass(slots=True, eq=False)
class Flush:
    """One closed buffer, until it is answered."""

    fragments: list[Fragment]
    uploaded: asyncio.Event = field(default_factory=asyncio.Event)  # also set when the upload failed
    segment_id: SegmentId = b""
    built: BuiltSegment | None = None  # None again when the upload failed
    principals: dict[str, int] = field(default_factory=dict)  # the senders of its idempotent batches -> places
    dropped: set[int] = field(default_factory=set)  # batches, by their order of arrival, that were given up
    command: CommitSegment | None = None  # sent, without an outcome: only the same command may be sent again
    closed_s: float = 0.0  # monotonic, as the next two
    born_s: float = 0.0
    stored_s: float = 0.0
    trace: SegmentTrace | None = None  # None: none of its requests is sampled


def lease_end(command: CommitSegment | None) -> int:
    """The end of the lease of a commit; -1 if it was not sent."""
    return command.not_after_ms if command is not None else -1


def given_up(flush: Flush, leases: Mapping[tuple[str, int], int]) -> Iterator[int]:
    """The flush's batches, by their order of arrival, whose requests have no lease."""
    first = 0
    for fragment in flush.fragments:
        if fragment.needs_confirmation and not leases[fragment.gateway, fragment.request]:
            yield from range(first, first + fragment.batch_count)
        first += fragment.batch_count


def begin_commits(group: Sequence[Flush], started_s: float) -> str:
    """Begin the spans of a commit of several segments; the first one is the parent of those in a sequencer."""
    begun = [flush.trace.begin_commit(started_s) for flush in group if flush.trace is not None]
    return begun[0] if begun else ""
