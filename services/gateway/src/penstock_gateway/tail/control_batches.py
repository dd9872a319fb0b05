"""Markers as readers meet them: extents whose batch, a control record, is at hand (ADR 0012). Pure.

A marker is an extent without bytes, and what it says comes beside it. Here both become one extent of the batch's size,
so that all who count, cut and send bytes need not know of markers; only who reads segments does.
"""

from collections.abc import Sequence

from penstock.contracts.batches import MARKER_BYTES, NO_SEGMENT_ID, AbortedTransaction, Extent, Marker
from penstock.segment.transactions import marker_batch


class MarkerExtent(Extent, frozen=True, gc=False):
    """The extent of one control record."""

    marker: Marker
    data: bytes  # its batch, whose leader epoch is still to be written


def with_markers(extents: list[Extent], markers: Sequence[Marker]) -> list[Extent]:
    """The extents, those of markers with their batches."""
    if not markers:
        return extents
    by_offset = {marker.offset: marker for marker in markers}
    return [
        _placed(each, by_offset[each.base_offset]) if each.segment.segment_id == NO_SEGMENT_ID else each
        for each in extents
    ]


def aborted_by(extent: Extent) -> AbortedTransaction | None:
    """The transaction that the extent aborts, if it is such a marker."""
    if not isinstance(extent, MarkerExtent) or extent.marker.committed:
        return None
    return AbortedTransaction(extent.marker.producer_id, extent.marker.first_offset, extent.base_offset)


def _placed(extent: Extent, marker: Marker) -> MarkerExtent:
    return MarkerExtent(
        extent.base_offset,
        extent.last_offset,
        extent.segment,
        0,
        MARKER_BYTES,
        marker.timestamp,
        marker,
        marker_batch(marker),
    )
