"""The world of the state machine's tests: one state, and short methods for each kind of client."""

from penstock_sequencer.core.state.limits import DEFAULT_LIMITS, Limits
from tests.unit.sequencer.core.core_classic import INITIAL_DELAY_MS as INITIAL_DELAY_MS, ClassicGroups
from tests.unit.sequencer.core.core_consumers import ConsumerGroups
from tests.unit.sequencer.core.core_invariants import check_invariants as check_invariants
from tests.unit.sequencer.core.core_machine import (
    START_MS as START_MS,
    Machine,
    batch as batch,
    topic_id as topic_id,
)
from tests.unit.sequencer.core.core_shares import ShareGroups
from tests.unit.sequencer.core.core_streams import StreamsGroups
from tests.unit.sequencer.core.core_transactions import Transactions


class World(Machine):
    """A state machine with its clients: own methods for producers and administrators, attributes for the others."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS, level: int = 0) -> None:
        super().__init__(limits, level)
        self.classic = ClassicGroups(self)
        self.consumers = ConsumerGroups(self)
        self.shares = ShareGroups(self)
        self.streams = StreamsGroups(self)
        self.transactions = Transactions(self)


def share_world(*members: str, records: int = 0, limits: Limits = DEFAULT_LIMITS, **configs: str) -> World:
    """A world at the level of share groups: the members of "g" read topic "t" with one partition from its beginning."""
    world = World(limits)
    world.shares.begin(*members, records=records, **configs)
    return world


def transaction_world(limits: Limits = DEFAULT_LIMITS) -> World:
    """A world at the level of transactions, with topic "t" of two partitions."""
    world = World(limits)
    world.transactions.begin()
    return world
