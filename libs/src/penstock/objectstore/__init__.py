"""Object stores: a few verbs over immutable objects, in memory, in a folder or in S3, with retries and metrics."""

from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotDeleted, NotFound, Throttled
from penstock.objectstore.opening import make_bucket, open_store
from penstock.objectstore.store import ObjectInfo, ObjectStore, PartedPut, Unfinished
from penstock.objectstore.streaming import StreamedPut, put_stream, streamed_put

__all__ = [
    "open_store",
    "make_bucket",
    "ObjectStore",
    "ObjectInfo",
    "PartedPut",
    "Unfinished",
    "StreamedPut",
    "streamed_put",
    "put_stream",
    "NotFound",
    "AlreadyExists",
    "EtagMismatch",
    "NotDeleted",
    "Throttled",
]
