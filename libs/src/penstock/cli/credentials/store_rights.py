"""The rights of each service at the object store, and policy documents with exactly these rights.

The table follows the calls in the code of the services. Keys are patterns, with `*` for any characters. They are
relative to the prefix of the store's address. A document is in the language of AWS, which SeaweedFS knows, too.
`penstock credentials` gives SeaweedFS these documents with the keys.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.objectstore.encryption.store import MARKER as ENCRYPTION
from penstock.segment.keys import (
    FLUSHED_LEVEL,
    cleanup_key,
    cluster_prefix,
    cluster_record_key,
    cluster_records_prefix,
    journal_archive_prefix,
    segments_prefix,
    snapshots_prefix,
)

VERSION = "2012-10-17"  # of the language


class Verb(enum.Enum):
    """A kind of access to objects."""

    OPEN = "open"  # list one key of the whole store, as each process does at its start
    LIST = "list"  # also needed for reads: without it, S3 answers 403 in place of 404
    READ = "read"
    CREATE = "create"  # only if the object does not exist
    PARTS = "create in parts"
    REPLACE = "replace"  # only a known version
    DELETE = "delete"
    KEEP = "never delete"  # an exception from a wider pattern
    LIST_UPLOADS = "list uploads"  # of the whole bucket: S3 knows no condition for it
    END_UPLOADS = "end uploads"


class Right(msgspec.Struct, frozen=True):
    """Verbs that are allowed for the keys of a pattern."""

    key: str
    verbs: tuple[Verb, ...]


class Place(msgspec.Struct, frozen=True):
    """A bucket, the prefix in the store's address, and a cluster; ALL_CLUSTERS for a process that hosts many."""

    bucket: str = "BUCKET"
    prefix: str = "PREFIX"
    cluster: str = "CLUSTER"


ALL_CLUSTERS = "*"  # as the cluster of a place
_CLUSTER = Place().cluster
_ALL = f"{cluster_prefix('', _CLUSTER)}*"
_SEGMENTS = f"{segments_prefix('', _CLUSTER)}*"
_FLUSHED = f"{_SEGMENTS}/{FLUSHED_LEVEL}-*"
_COMPACTED = tuple(f"{_SEGMENTS}/{level}-*" for level in (1, 2))
_SNAPSHOTS = f"{snapshots_prefix('', _CLUSTER)}*"
_ARCHIVE = f"{journal_archive_prefix('', _CLUSTER)}*"
_MARKER = f"{cluster_prefix('', _CLUSTER)}journal-identity"
_LOST_ENTRY = f"{cluster_prefix('', _CLUSTER)}journal-lost-entry"
_DOCTOR = f"{cluster_prefix('', _CLUSTER)}doctor/*"
_CLEANUP = cleanup_key("", _CLUSTER, "*")
_RECORD = cluster_record_key("", _CLUSTER)
_REGISTRY = f"{cluster_records_prefix('')}*"

_GET = (Verb.LIST, Verb.READ)
_OPEN = (Right("", (Verb.OPEN,)), Right(ENCRYPTION, _GET))  # of each process with a store
_READS = (*_OPEN, Right(_SEGMENTS, _GET))
_FLUSHES = (*_OPEN, Right(_FLUSHED, (Verb.CREATE,)))
_SWEEPS = (
    *_OPEN,
    Right(_ALL, (Verb.LIST, Verb.LIST_UPLOADS, Verb.END_UPLOADS)),
    Right(_MARKER, (Verb.READ,)),
    Right(_SEGMENTS, (Verb.DELETE,)),
)

# A new service needs an entry here. An empty one opens no store.
RIGHTS: Mapping[str, tuple[Right, ...]] = {
    "gateway": _READS,
    "cacher": _READS,
    "flusher": _FLUSHES,
    "agent": (*_READS, Right(_FLUSHED, (Verb.CREATE,))),
    "compactor": (*_READS, *(Right(key, (Verb.CREATE, Verb.PARTS)) for key in _COMPACTED)),
    "sequencer": (
        *_OPEN,
        Right(ENCRYPTION, (Verb.CREATE, Verb.REPLACE)),  # the marker of encrypted stores
        Right(_SNAPSHOTS, (*_GET, Verb.CREATE, Verb.PARTS, Verb.DELETE)),
        Right(_ARCHIVE, (*_GET, Verb.CREATE, Verb.REPLACE, Verb.DELETE)),
        Right(_MARKER, (*_GET, Verb.CREATE)),
        Right(_LOST_ENTRY, (*_GET, Verb.CREATE, Verb.REPLACE)),
        Right(_RECORD, _GET),
    ),
    "janitor": _SWEEPS,
    "console": (),
    "admin": (  # `penstock doctor`, `audit`, `record`
        *_OPEN,
        Right(_ALL, _GET),
        Right(_DOCTOR, (Verb.CREATE, Verb.DELETE)),
    ),
    "journal": (  # `penstock journal` and `penstock rebuild`
        *_OPEN,
        Right(_ALL, _GET),
        *(Right(key, (Verb.CREATE,)) for key in (_COMPACTED[0], _SNAPSHOTS, _ARCHIVE)),
        Right(_MARKER, (Verb.CREATE, Verb.REPLACE)),
    ),
}
# Further rights of a process that hosts many clusters, with the setting `clusters`, and of operators of all clusters.
HOSTING: Mapping[str, tuple[Right, ...]] = {
    **dict.fromkeys(("gateway", "cacher", "flusher", "sequencer", "compactor"), (Right(_REGISTRY, _GET),)),
    "janitor": (  # it also removes deleted clusters
        Right(_CLEANUP, (Verb.CREATE,)),
        Right(_ALL, (Verb.DELETE,)),
        Right(_REGISTRY, (*_GET, Verb.REPLACE, Verb.KEEP)),  # `*/*` matches it, too
    ),
    "admin": (  # `penstock cluster`, `encryption`
        Right("*", _GET),
        Right(_REGISTRY, (Verb.CREATE, Verb.REPLACE)),
    ),
}

_ACTIONS = {
    Verb.LIST: "s3:ListBucket",
    Verb.READ: "s3:GetObject",
    Verb.CREATE: "s3:PutObject",
    Verb.PARTS: "s3:PutObject",
    Verb.REPLACE: "s3:PutObject",
    Verb.DELETE: "s3:DeleteObject",
    Verb.KEEP: "s3:DeleteObject",
    Verb.LIST_UPLOADS: "s3:ListBucketMultipartUploads",
    Verb.END_UPLOADS: "s3:AbortMultipartUpload",
    Verb.OPEN: "s3:ListBucket",
}
# Conditions that keep an object from being replaced. The requests of parts have no such header; their end has one.
_CONDITIONS = {
    Verb.CREATE: {"Null": {"s3:if-none-match": "false"}},
    Verb.PARTS: {"Bool": {"s3:ObjectCreationOperation": "false"}},
    Verb.REPLACE: {"Null": {"s3:if-match": "false"}},
}


def seaweed_policy(user: str, place: Place) -> dict[str, Any]:
    """The policy document of a user of `penstock credentials` for SeaweedFS."""
    hosting = HOSTING.get(user, ()) if place.cluster == ALL_CLUSTERS else ()
    return policy((*RIGHTS[user], *hosting), place, with_write_conditions=False)


def policy(rights: Iterable[Right], place: Place, *, with_write_conditions: bool = True) -> dict[str, Any]:
    """The policy document of an identity with these rights.

    Without `with_write_conditions`, it is for servers that do not know the conditions for PUT, such as SeaweedFS.
    """
    keys: dict[Verb, list[str]] = {}
    for right in rights:
        verbs = (*right.verbs, Verb.END_UPLOADS) if Verb.PARTS in right.verbs else right.verbs
        for verb in verbs:
            keys.setdefault(verb, []).append(_in(place, right.key))
    return {
        "Version": VERSION,
        "Statement": [
            _statement(verb, list(dict.fromkeys(keys[verb])), place.bucket, with_write_conditions=with_write_conditions)
            for verb in Verb
            if verb in keys
        ],
    }


def _in(place: Place, key: str) -> str:
    """The pattern of whole keys in the bucket."""
    folder = f"{place.prefix}/" if place.prefix else ""
    return folder + key.replace(_CLUSTER, place.cluster, 1)


def _statement(verb: Verb, keys: list[str], bucket: str, *, with_write_conditions: bool) -> dict[str, Any]:
    whole = f"arn:aws:s3:::{bucket}"
    effect = "Deny" if verb is Verb.KEEP else "Allow"
    made = {"Sid": verb.name.title().replace("_", ""), "Effect": effect, "Action": _ACTIONS[verb]}
    match verb:
        case Verb.OPEN:
            # SeaweedFS takes an empty prefix for none, so no prefix of a letter or more is allowed in its place.
            prefix = {"StringEquals": {"s3:prefix": keys[0]}} if keys[0] else {"StringNotLike": {"s3:prefix": "?*"}}
            condition = {**prefix, "NumericLessThanEquals": {"s3:max-keys": "1"}}
            return {**made, "Resource": whole, "Condition": condition}
        case Verb.LIST:
            return {**made, "Resource": whole, "Condition": {"StringLike": {"s3:prefix": keys}}}
        case Verb.LIST_UPLOADS:
            return {**made, "Resource": whole}
    resources = {"Resource": [f"{whole}/{key}" for key in keys]}
    if with_write_conditions and verb in _CONDITIONS:
        return {**made, **resources, "Condition": _CONDITIONS[verb]}
    return {**made, **resources}
