"""What transactional producers were told and what readers saw, noted while it happens, to be judged afterwards.

Moments are numbers that only grow, taken from the history itself: one thing surely happened before another where its
moment is the lower one. So whatever is asked takes its moment before it is sent, and an answer when it is there.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

Place = tuple[str, int]  # a topic and a partition of it
GroupPlace = tuple[str, Place]  # what a group has committed an offset of


class Outcome(Enum):
    """What is known of a transaction."""

    ABORTED = "aborted"  # surely, as when nobody ever asked for its commit
    COMMITTED = "committed"
    UNKNOWN = "unknown"  # its commit was asked for, and no answer settles what came of that


class Isolation(Enum):
    """Which records a reader wants."""

    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@dataclass(eq=False)
class Sent:
    """One record, whose value no other has; its offset once that is known."""

    place: Place
    value: bytes
    offset: int | None = None


@dataclass(eq=False)
class Life:
    """One life under a transactional id, from the answer to InitProducerId on; later lives fence earlier ones."""

    transactional_id: str
    order: tuple[int, ...]
    begun_at: int
    transactions: list["Transaction"] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.transactional_id}{list(self.order)}"


@dataclass(eq=False)
class Transaction:
    """What one transaction wrote, the offsets of others' records that it consumed, and how it ended."""

    life: Life
    number: int  # in its life
    sent: list[Sent] = field(default_factory=list)
    consumed: dict[GroupPlace, tuple[int, int]] = field(default_factory=dict)  # the first, and the one to go on with
    asked_at: int | None = None  # for its commit
    committed_at: int | None = None  # the answer
    outcome: Outcome = Outcome.ABORTED

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.life}, {self.outcome.value},"


@dataclass(frozen=True)
class Seen:
    """A record that a reader was given."""

    offset: int
    value: bytes
    at: int


@dataclass(eq=False)
class Reading:
    """What one reader was given, place by place from the beginning, in that order; complete if it reached the end."""

    name: str
    isolation: Isolation
    seen: dict[Place, list[Seen]]
    is_complete: bool = False


@dataclass(frozen=True)
class Observed:
    """An offset that a group was said to have committed (0 if none), asked for at one moment and told at another."""

    group_place: GroupPlace
    offset: int
    asked_at: int
    told_at: int
    is_last: bool  # nothing happens any more


class History:
    """All of it."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.readings: list[Reading] = []
        self.observed: list[Observed] = []
        self._moments = itertools.count(1)

    def moment(self) -> int:
        """A new one."""
        return next(self._moments)

    @property
    def transactions(self) -> list[Transaction]:
        """All of them."""
        return [each for life in self.lives for each in life.transactions]

    def begin_life(self, transactional_id: str, order: tuple[int, ...] | None = None) -> Life:
        """InitProducerId was answered; `order` tells which life is later, else the answers do."""
        life = Life(transactional_id, (len(self.lives),) if order is None else order, self.moment())
        self.lives.append(life)
        return life

    def begin(self, life: Life) -> Transaction:
        """A transaction begins."""
        transaction = Transaction(life, len(life.transactions))
        life.transactions.append(transaction)
        return transaction

    def ask(self, transaction: Transaction) -> None:
        """Its commit is asked for; what comes of that is unknown until somebody says so."""
        transaction.asked_at = self.moment()
        transaction.outcome = Outcome.UNKNOWN

    def committed(self, transaction: Transaction) -> None:
        """It is said to be committed."""
        transaction.committed_at = self.moment()
        transaction.outcome = Outcome.COMMITTED

    def read(self, name: str, isolation: Isolation, places: Iterable[Place]) -> Reading:
        """Somebody begins to read these places."""
        reading = Reading(name, isolation, {place: [] for place in places})
        self.readings.append(reading)
        return reading

    def see(self, reading: Reading, place: Place, offset: int, value: bytes) -> None:
        """A reader is given a record."""
        reading.seen[place].append(Seen(offset, value, self.moment()))

    def observe(self, group_place: GroupPlace, offset: int, asked_at: int, *, is_last: bool = False) -> None:
        """A group was said to have committed an offset."""
        self.observed.append(Observed(group_place, offset, asked_at, self.moment(), is_last))
