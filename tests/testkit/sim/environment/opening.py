"""Opens the simulated store for one process: one store, or one with a landing store or three."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.objectstore import ObjectStore, QuorumLimits
from penstock.objectstore.landed import LandedStore
from penstock.objectstore.quorum import Member, QuorumStore
from penstock.objectstore.retrying import RetryingStore
from penstock.segment.keys import is_landing_key, may_list_segments
from tests.testkit.sim.environment.loop import Timeline
from tests.testkit.sim.environment.store import SimStore, StoreServer

# Shorter times than in a cluster, as faults last for seconds.
LIMITS = QuorumLimits(call_s_max=3.0, last_answer_s=0.5, gone_after_s=6.0, read_half_life_s=2.0, behind_puts_max=8)


def open_simulated(
    server: StoreServer, name: str, stream: random.Random, timeline: Timeline, *, has_local_reads: bool = False
) -> ObjectStore:
    """The store of one process, with retries as in the real one."""
    now_s = lambda: timeline.now_s  # noqa: E731
    store: ObjectStore = SimStore(server, name, has_local_reads=has_local_reads)
    if len(server.landing) == 1:
        store = LandedStore(store, SimStore(server.landing[0], name), is_landing_key, may_list_segments)
    elif server.landing:
        members = [
            Member(f"landing-{number}", partial(_opened, each, name), monotonic_s=now_s, limits=LIMITS)
            for number, each in enumerate(server.landing)
        ]
        store = LandedStore(store, QuorumStore(members, LIMITS), is_landing_key, may_list_segments)
    return RetryingStore(store, jitter=stream.random, monotonic_s=now_s)


async def _opened(server: StoreServer, name: str) -> ObjectStore:
    return SimStore(server, name)


def store_opener(server: StoreServer, name: str, stream: random.Random, timeline: Timeline) -> Callable[..., Any]:
    """Opens the store of one process in place of `open_store`; memory:// has local reads."""

    async def open_store(url: str, **_: Any) -> ObjectStore:
        return open_simulated(server, name, stream, timeline, has_local_reads=url.startswith("memory://"))

    return open_store
