"""Three landing stores as one: two must answer, so one of them may be slow, full or gone (ADR 0056).

May import `penstock.contracts`, `penstock.runtime.clock` and the parent's `store`, `errors` and `limits`. Start with
`store`. `member` is one of the three stores, `metrics` are their metrics.
"""

from penstock.objectstore.quorum.member import Member, SetDegraded
from penstock.objectstore.quorum.metrics import QuorumMetrics
from penstock.objectstore.quorum.store import MEMBERS, QuorumStore

__all__ = ["MEMBERS", "Member", "QuorumMetrics", "QuorumStore", "SetDegraded"]
