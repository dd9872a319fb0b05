"""The spans of one segment with sampled requests: the buffer, its upload and its commit, with links to the requests."""

from collections.abc import Sequence

from penstock.contracts.ids import SegmentId, ulid_text
from penstock.runtime.traces.traces import Span, Traces, record
from penstock_flusher.fragments import Fragment


class SegmentTrace:
    """One span for the segment, from its first byte to its answers, and one under it for each stage.

    The segment serves many requests, which have traces of their own. Its span is in the trace of the first of them, and
    has a link to each of them.
    """

    def __init__(self, traces: Traces, span: Span) -> None:
        self._traces = traces
        self._span = span
        self._commit: Span | None = None

    def record_filled(self, first_s: float, closed_s: float, reason: str) -> None:
        """Record the time from the first byte until the buffer closed."""
        record(self._traces, "segment fill", first_s, closed_s, self._span.trace, reason=reason)

    def record_stored(self, segment_id: SegmentId, started_s: float, stored_s: float) -> None:
        """Record the upload."""
        record(self._traces, "segment put", started_s, stored_s, self._span.trace, segment=ulid_text(segment_id))

    def begin_commit(self, started_s: float) -> str:
        """Begin the commit, unless it has begun; its span, as the parent of those in a sequencer."""
        if self._commit is None:
            self._commit = self._traces.begin("segment commit", started_s, self._span.trace)
        return self._commit.trace if self._commit is not None else ""

    def end(self, segment_id: SegmentId, at_s: float, failure: str = "") -> None:
        """Record that the requests are answered now."""
        if self._commit is not None:
            self._commit.end(at_s, failure=failure)
        self._span.end(at_s, failure=failure, segment=ulid_text(segment_id))


def trace_segment(
    traces: Traces, fragments: Sequence[Fragment], *, first_s: float, closed_s: float, reason: str
) -> SegmentTrace | None:
    """The spans of a closed buffer, None if none of its requests is sampled."""
    sampled = list(dict.fromkeys(fragment.trace for fragment in fragments if fragment.trace))
    if not sampled:
        return None
    facts = {
        "fragments": len(fragments),
        "batches": sum(fragment.batch_count for fragment in fragments),
        "bytes": sum(fragment.size_bytes for fragment in fragments),
    }
    span = traces.begin("segment", first_s, sampled[0], sampled, **facts)
    if span is None:
        return None
    trace = SegmentTrace(traces, span)
    trace.record_filled(first_s, closed_s, reason)
    return trace
