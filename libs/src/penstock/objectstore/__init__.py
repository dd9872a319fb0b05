"""Object stores with five verbs over immutable objects: in memory, in a folder, or in a cloud.

May import `penstock.contracts`, `penstock.segment.keys`, `penstock.runtime.clock` and, for `jetstream`,
`penstock.runtime.nats`. Start with `store` (the protocol), then `opening`. `memory`, `file`, `s3`, `clouds` and
`jetstream` are the stores. `retrying`, `measured` and `encryption` wrap any of them. `landed` makes one store of two,
and `quorum` one of three.
"""

from penstock.objectstore.errors import AlreadyExists, EtagMismatch, Full, NotDeleted, NotFound, Throttled
from penstock.objectstore.limits import (
    CloudLimits,
    FileLimits,
    JetStreamLimits,
    QuorumLimits,
    RetryLimits,
    S3Limits,
    StoreLimits,
)
from penstock.objectstore.opening import (
    LandingFor,
    absolute_address,
    folder_address,
    has_landing,
    landing_for,
    make_bucket,
    open_store,
)
from penstock.objectstore.store import ObjectInfo, ObjectStore, PartedPut, Unfinished
from penstock.objectstore.streaming import StreamedPut, put_stream, streamed_put

__all__ = [
    "open_store",
    "make_bucket",
    "absolute_address",
    "folder_address",
    "has_landing",
    "landing_for",
    "LandingFor",
    "StoreLimits",
    "FileLimits",
    "S3Limits",
    "CloudLimits",
    "JetStreamLimits",
    "QuorumLimits",
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
    "Full",
    "NotDeleted",
    "Throttled",
]
