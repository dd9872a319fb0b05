"""All mutants, grouped by the area that they break: plain data.

Each replaced text is as short as possible and still unique. So a mutant still fits after changes around it.
"""

from tests.testkit.mutants.catalog import (
    consumer_groups,
    flusher,
    gateway,
    janitor,
    sequencer,
    share_groups,
    transactions,
)
from tests.testkit.mutants.mutant import Mutant

AREAS: dict[str, list[Mutant]] = {
    "flusher": flusher.MUTANTS,
    "sequencer": sequencer.MUTANTS,
    "gateway": gateway.MUTANTS,
    "janitor": janitor.MUTANTS,
    "consumer groups": consumer_groups.MUTANTS,
    "share groups": share_groups.MUTANTS,
    "transactions": transactions.MUTANTS,
}
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for mutants in AREAS.values() for mutant in mutants}
