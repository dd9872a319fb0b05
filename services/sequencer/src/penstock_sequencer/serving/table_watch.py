"""Watches the tables that all clients share, and makes the service degraded before one of them is full.

A full table evicts what was idle for long. If there is nothing of that kind, new clients are rejected for a while.
While the table of remembered commits is full, commits are rejected. Flushers make fewer segments before that. Users and
access control list entries are never evicted: operators have to remove some. Where entries belong to principals, the
reason names the principal that has most of them (ADR 0040).
"""

import asyncio
from collections import Counter

import msgspec
import structlog

from penstock.contracts.acls import user_principal
from penstock.contracts.configs.quotas import ANONYMOUS
from penstock.runtime.process.health import Health
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.metrics import SequencerMetrics
from penstock_sequencer.replication.replica import Replica

DEGRADED = "tables"

Owner = tuple[str, int]  # a principal, and how many rows of a table it has

log = structlog.get_logger()


class TableLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the tables are looked at, and how full they may be."""

    interval_s: float = 10.0  # one look at 200,000 partitions takes about 10 ms
    full_percent: int = 80  # from here on the service is degraded; Ticks begin to evict a little later


class TableWatch:
    """Looks at the tables until cancelled."""

    def __init__(
        self, *, replica: Replica, metrics: SequencerMetrics, health: Health, limits: TableLimits | None = None
    ) -> None:
        self._replica = replica
        self._metrics = metrics
        self._health = health
        self._limits = limits or TableLimits()
        self._full: set[str] = set()

    async def run(self) -> None:
        """Look, report, wait, for ever."""
        while True:
            self.look()
            await asyncio.sleep(self._limits.interval_s)

    def look(self) -> None:
        """Set the metrics and the degraded state."""
        found = table_sizes(self._replica.state)
        largest = largest_owners(self._replica.state)
        for name, (size, size_max) in found.items():
            self._metrics.table_rows.labels(name).set(size)
            self._metrics.table_rows_max.labels(name).set(size_max)
        for name, (_, size) in largest.items():
            self._metrics.table_rows_largest_principal.labels(name).set(size)
        percent = self._limits.full_percent
        full = {name: rows for name, rows in found.items() if rows[0] * 100 >= rows[1] * percent}
        texts = ", ".join(f"{name}: {size} of {most}{_owner(largest.get(name))}" for name, (size, most) in full.items())
        reason = f"shared tables are almost full, clients or new rows may be rejected: {texts}" if full else ""
        self._health.set_degraded(DEGRADED, reason)
        self._log_changes(full, largest)

    def _log_changes(self, full: dict[str, tuple[int, int]], largest: dict[str, Owner]) -> None:
        """Log a table once when it is almost full, and once when it has room again."""
        for name in full.keys() - self._full:
            principal, owned = largest.get(name, (None, None))
            rows, rows_max = full[name]
            log.warning(
                "table_almost_full",
                table=name,
                rows=rows,
                rows_max=rows_max,
                principal=principal,
                rows_of_principal=owned,
            )
        for name in self._full - full.keys():
            log.info("table_has_room", table=name)
        self._full = set(full)


def table_sizes(state: State) -> dict[str, tuple[int, int]]:
    """The rows of each table, and how many it may have."""
    producers, transactions, security = state.limits.producers, state.limits.transactions, state.limits.security
    groups = state.limits.groups
    fullest = max((len(partition.producers) for partition in state.producer_sweep), default=0)
    return {
        "producers": (state.producer_count, producers.producers_max),
        "producers_of_one_partition": (fullest, producers.producers_per_partition_max),
        "remembered_commits": (len(state.commits), state.limits.log.remembered_commits_max),
        "transactional_ids": (len(state.transactions), transactions.transactions_max),
        "groups": (len(state.groups) + len(state.share_groups), groups.groups_max),
        "member_bytes": (state.member_bytes, groups.members_bytes_max),
        "users": (len(state.users), security.users_max),
        "acl_bindings": (len(state.bindings), security.bindings_max),
        "delegation_tokens": (len(state.tokens), security.tokens_max),
    }


def largest_owners(state: State) -> dict[str, Owner]:
    """For each table with rows of principals, the principal that has most of them. A walk over all principals."""
    rows = state.principals.values()
    found = {
        "producers": max((each.producers, each.name) for each in rows),
        "transactional_ids": max((each.transactional_ids, each.name) for each in rows),
        "groups": max((each.groups, each.name) for each in rows),
        "member_bytes": max((each.member_bytes, each.name) for each in rows),
        "producers_of_one_partition": _largest_in_fullest(state),
    }
    return {table: (name or user_principal(ANONYMOUS), size) for table, (size, name) in found.items()}


def _largest_in_fullest(state: State) -> tuple[int, str]:
    fullest = max(state.producer_sweep, key=lambda each: len(each.producers), default=None)
    counts = Counter(each.owner for each in fullest.producers.values()) if fullest is not None else Counter[int]()
    return max(((count, state.principals[owner].name) for owner, count in counts.items()), default=(0, ""))


def _owner(owner: Owner | None) -> str:
    return f" ({owner[0]} has {owner[1]})" if owner is not None else ""
