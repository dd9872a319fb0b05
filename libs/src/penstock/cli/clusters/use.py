"""The present use of a virtual cluster, as its sequencers and gateways announce it; for `penstock cluster describe`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.diagnosis.processes import ListenLimits, find_processes
from penstock.contracts.configs.quotas import CLUSTER_ENTITY, FETCH_RATE, PRODUCE_RATE
from penstock.contracts.messages import Presence, newest_cluster_use

if TYPE_CHECKING:
    from penstock.runtime.bus.bus import Bus

USES = ("used_partitions", "used_stored_bytes", "used_produced_bytes_per_s", "used_consumed_bytes_per_s")
LISTEN_LIMITS = ListenLimits(quiet_s=1.2, listen_s_max=3.0)


async def find_use(bus: "Bus", cluster: str, *, limits: ListenLimits = LISTEN_LIMITS) -> dict[str, Any]:
    """The use beside each quota, by name; None if no process announces it."""
    return use_in(await find_processes(bus, cluster, limits=limits))


def use_in(processes: Sequence[Presence]) -> dict[str, Any]:
    """The use in announcements. Gateways measure bytes a second only while there is a quota for them."""
    newest = newest_cluster_use(processes)
    if newest is None:
        return dict.fromkeys(USES)
    produced = _rate(processes, PRODUCE_RATE) if newest.produced_bytes_per_s_max else None
    consumed = _rate(processes, FETCH_RATE) if newest.consumed_bytes_per_s_max else None
    return dict(zip(USES, (newest.partitions, newest.stored_bytes, produced, consumed), strict=True))


def _rate(processes: Sequence[Presence], key: str) -> int:
    uses = [use for each in processes for use in each.quota_use if (use.key, use.who) == (key, CLUSTER_ENTITY)]
    return round(sum(use.per_second for use in uses))
