"""Virtual clusters that share a deployment: their registry in the object store, and processes that host many of them.

May import `penstock.contracts`, `penstock.segment.keys`, `penstock.objectstore` and `penstock.runtime` (ADR 0059).
Start with `record` (what is known of a cluster), then `registry` and `watch`.
"""

import penstock.runtime.process  # noqa: F401  first, because it imports structlog without rich
from penstock.clusters.record import ClusterQuotas, ClusterRecord, ClusterState
from penstock.clusters.registry import ClusterRegistry, Registered, read_clusters
from penstock.clusters.watch import ClusterChanges, ClusterWatch

__all__ = [
    "ClusterChanges",
    "ClusterQuotas",
    "ClusterRecord",
    "ClusterRegistry",
    "ClusterState",
    "ClusterWatch",
    "Registered",
    "read_clusters",
]
