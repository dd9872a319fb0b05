"""Turns transaction markers into extents that contain their control batch (ADR 0012). Pure.

In plans and announcements a marker is an extent without bytes, with the marker's content beside it. Here both become
one extent of the batch's size. So code that counts, cuts and sends bytes treats markers like other extents. Only code
that reads segments must know them.
"""

from collections.abc import Sequence

from penstock.contracts.batches import MARKER_BYTES, NO_SEGMENT_ID, AbortedTransaction, Extent, Marker
from penstock.segment.transactions import marker_batch


class MarkerExtent(Extent, frozen=True, gc=False):
    """The extent of one control record."""

    marker: Marker
    data: bytes  # its batch; the leader epoch is written later


def with_markers(extents: list[Extent], markers: Sequence[Marker]) -> list[Extent]:
    """The extents; the extents of markers contain their batches."""
    if not markers:
        return extents
    by_offset = {marker.offset: marker for marker in markers}
    return [
        _placed(each, by_offset[each.base_offset]) if each.segment.segment_id == NO_SEGMENT_ID else each
        for each in extents
    ]


def aborted_by(extent: Extent) -> AbortedTransaction | None:
    """The transaction that the extent aborts, None if it is no abort marker."""
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
