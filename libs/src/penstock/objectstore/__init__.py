"""Object stores: five verbs over immutable objects, in memory, in a folder or in S3, with retries and metrics."""

from penstock.objectstore.errors import AlreadyExists, EtagMismatch, NotFound, Throttled
from penstock.objectstore.opening import make_bucket, open_store
from penstock.objectstore.store import ObjectInfo, ObjectStore

__all__ = [
    "open_store",
    "make_bucket",
    "ObjectStore",
    "ObjectInfo",
    "NotFound",
    "AlreadyExists",
    "EtagMismatch",
    "Throttled",
]
