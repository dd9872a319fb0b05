"""Faults of virtual clusters and pools: a cluster goes early, or leaves something, or its pools share work."""

from tests.testkit.mutants.mutant import Change, Mutant

CLEANUP = "penstock.clusters.cleanup"

MUTANTS = [
    Mutant(
        "count_undelete_window_by_own_clock",
        "The janitor does not ask for the time of the store: a clock that is ahead removes a cluster in its window.",
        [Change(CLEANUP, "await self._store_now_ms(record.name) - version.modified_ms < window_ms", "False")],
    ),
    Mutant(
        "count_rest_by_wall_clock",
        "The janitor counts the rest of a name by wall clocks: one that is ahead frees the name at once.",
        [
            Change(
                CLEANUP,
                "self._rested_s(record) * 1000 >= self._limits.rest_ms",
                "self._clock.now_ms() - record.emptied_ms >= self._limits.rest_ms",
            )
        ],
    ),
    Mutant(
        "free_name_without_deletion_of_journal",
        "The janitor keeps the journal of a removed cluster: the next cluster of the name has its topics.",
        [Change(CLEANUP, "            await self._connection.delete_stream(name)\n", "")],
    ),
    Mutant(
        "use_flushers_of_all_pools",
        "A gateway sends batches to flushers of any pool: the load of one pool is in the other one.",
        [
            Change(
                "penstock_gateway.produce.flush_router",
                'self._directory.live("flusher", pool=self._pool)',
                'self._directory.live("flusher")',
            )
        ],
        ("tests/unit/gateway/produce",),
    ),
    Mutant(
        "name_brokers_of_all_pools",
        "Metadata names the gateways of all pools: clients of one pool use the other one.",
        [Change("penstock_gateway.kafka.broker_view", "if node.pool == pool]", "]")],
        ("tests/unit/gateway",),
    ),
]
