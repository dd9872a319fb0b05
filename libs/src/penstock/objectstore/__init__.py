"""Object stores with five verbs over immutable objects: in memory, in a folder, or in S3; with retries and metrics.

May import `penstock.contracts` and `penstock.runtime.clock`. Start with `store` (the protocol), then `opening`.
`memory`, `file` and `s3` are the stores; `retrying`, `measured` and `encryption` wrap any of them.
"""

from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotDeleted, NotFound, Throttled
from penstock.objectstore.limits import FileLimits, RetryLimits, S3Limits, StoreLimits
from penstock.objectstore.opening import absolute_address, folder_address, make_bucket, open_store
from penstock.objectstore.store import ObjectInfo, ObjectStore, PartedPut, Unfinished
from penstock.objectstore.streaming import StreamedPut, put_stream, streamed_put

__all__ = [
    "open_store",
    "make_bucket",
    "absolute_address",
    "folder_address",
    "StoreLimits",
    "FileLimits",
    "S3Limits",
    "RetryLimits",
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
