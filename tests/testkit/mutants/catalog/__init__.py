"""All mutants, grouped by the area that they break: plain data.

Each replaced text is as short as possible and still unique. So a mutant still fits after changes around it.
"""

from tests.testkit.mutants.catalog import (
    clusters,
    consumer_groups,
    flusher,
    gateway,
    janitor,
    journal,
    logs,
    object_stores,
    security,
    sequencer,
    share_groups,
    transactions,
)
from tests.testkit.mutants.mutant import Mutant

AREAS: dict[str, list[Mutant]] = {
    "flusher": flusher.MUTANTS,
    "sequencer": sequencer.MUTANTS,
    "logs": logs.MUTANTS,
    "journal": journal.MUTANTS,
    "object stores": object_stores.MUTANTS,
    "gateway": gateway.MUTANTS,
    "janitor": janitor.MUTANTS,
    "security": security.MUTANTS,
    "clusters": clusters.MUTANTS,
    "consumer groups": consumer_groups.MUTANTS,
    "share groups": share_groups.MUTANTS,
    "transactions": transactions.MUTANTS,
}
# The tests of each area, as arguments of pytest: `make mutants` runs them under mutants that name no tests themselves.
TESTS: dict[str, tuple[str, ...]] = {
    "flusher": ("tests/unit/flusher",),
    "gateway": ("tests/unit/gateway",),
    "janitor": ("tests/unit/janitor",),
    "clusters": ("tests/unit/clusters",),
    "sequencer": ("tests/unit/sequencer/core/log", "tests/unit/sequencer/core/maintenance"),
    "security": ("tests/unit/sequencer/core/security",),
    "consumer groups": ("tests/unit/sequencer/core/groups",),
    "share groups": ("tests/unit/sequencer/core/share",),
    "transactions": ("tests/unit/sequencer/core/transactions",),
}
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutants in AREAS.values() for mutant in mutants}
