"""A limit of one process that several clusters share, so that none of them can use it up alone. Pure.

Half of the limit is divided: each cluster always has an equal part of it. The other half is for the clusters that need
more than their part. With one cluster, the limit is simply the limit.
"""

from typing import NamedTuple


class Share:
    """The use of a limit by one cluster."""

    def __init__(self, limit: "SharedLimit") -> None:
        self._limit = limit
        self.used = 0

    def is_spent(self, scale: int = 1) -> bool:
        """Whether the cluster may use no more now; with a `scale`, of a limit that is so many times smaller."""
        return self._limit.is_spent(self, scale)

    def leave(self) -> None:
        """Give the share back: the cluster is gone."""
        self._limit.remove(self)


class SharedLimit:
    """The shares of all clusters of a process."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._shares: list[Share] = []

    def join(self) -> Share:
        """The share of one more cluster."""
        share = Share(self)
        self._shares.append(share)
        return share

    def remove(self, share: Share) -> None:
        """Divide the limit by the clusters that are left."""
        self._shares.remove(share)

    @property
    def used(self) -> int:
        """The use by all clusters together."""
        return sum(share.used for share in self._shares)

    def is_spent(self, share: Share, scale: int) -> bool:
        """Whether a share has used its own part, and all shares the common half."""
        half = self.limit / 2
        own_part = half / len(self._shares)
        if share.used * scale < own_part:
            return False
        return sum(max(each.used * scale - own_part, 0) for each in self._shares) >= half


class ProcessLimits:
    """The limits of a process that its clusters share."""

    def __init__(self, *, connections: int, held_bytes: int, unsent_bytes: int) -> None:
        self.connections = SharedLimit(connections)
        self.held_bytes = SharedLimit(held_bytes)
        self.unsent_bytes = SharedLimit(unsent_bytes)

    def join(self) -> "ClusterShares":
        """The shares of one more cluster."""
        return ClusterShares(self.connections.join(), self.held_bytes.join(), self.unsent_bytes.join())


class ClusterShares(NamedTuple):
    """One cluster's shares of the limits of its process."""

    connections: Share
    held_bytes: Share
    unsent_bytes: Share

    def leave(self) -> None:
        """Give the shares back: the cluster is gone."""
        for share in self:
            share.leave()
