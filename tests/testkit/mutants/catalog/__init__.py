"""All mutants, grouped by the area that they break: plain data.

Each text that is replaced is as short as it can be and still unique, so that a mutant outlives changes around it.
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
