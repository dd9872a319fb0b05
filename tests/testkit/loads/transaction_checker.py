"""Judges histories of transactions: the promises to those who read what is committed, and to those who commit.

- A reader of what is committed sees every record of every committed transaction once, and no other record.
- Of one transactional id it sees them in each partition in the order in which they were sent, life after life.
- A transaction whose end is unknown was committed as a whole or not at all, its offsets with its records.
- All readers see the same, at the same offsets, and nothing before its commit was asked for.
- Whose successor has begun can commit nothing any more.
- A group's transactions consume its partitions without a gap and nothing twice, and what is said to be its offset is
  what one of them has committed.
- Who reads everything sees every acknowledged record at its offset, committed or not.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.testkit.loads.transaction_history import (
    GroupPlace,
    History,
    Isolation,
    Outcome,
    Place,
    Reading,
    Seen,
    Sent,
    Transaction,
)


def check(history: History, *, aborted_may_go: bool = False) -> list[str]:
    """What is wrong, in words; with `aborted_may_go` records that nobody may read may have been compacted away."""
    return list(_Checker(history, aborted_may_go).violations())


class _Checker:
    def __init__(self, history: History, aborted_may_go: bool) -> None:
        self._history = history
        self._aborted_may_go = aborted_may_go
        self._writers: dict[bytes, tuple[Transaction, int]] = {}  # by value: its transaction, and its place in that
        for transaction in history.transactions:
            if transaction.consumed and not transaction.sent:
                raise ValueError(f"{transaction} has offsets and no record that could tell whether it was committed")
            for index, sent in enumerate(transaction.sent):
                if sent.value in self._writers:
                    raise ValueError(f"{sent.value!r} is sent twice, nobody can tell which is read")
                self._writers[sent.value] = transaction, index
        self._committed = _longest(history, Isolation.COMMITTED)
        self._everything = _longest(history, Isolation.UNCOMMITTED)
        self._read = {seen.value for read in self._committed.values() for seen in read}

    def violations(self) -> Iterator[str]:
        """All of them."""
        for reading in self._history.readings:
            for place, seen in reading.seen.items():
                yield from self._check_seen(f"{reading.name}: {_name(place)}", reading, place, seen)
        yield from self._check_agreement()
        for transaction in self._history.transactions:
            yield from self._check_whole(transaction)
            yield from self._check_everything(transaction)
        yield from self._check_fencing()
        for group_place in {key: None for each in self._history.transactions for key in each.consumed}:
            yield from self._check_chain(group_place)
        yield from self._check_observed()

    def _is_visible(self, transaction: Transaction) -> bool:
        if transaction.outcome is Outcome.UNKNOWN:
            return any(sent.value in self._read for sent in transaction.sent)
        return transaction.outcome is Outcome.COMMITTED

    def _check_seen(self, who: str, reading: Reading, place: Place, seen: list[Seen]) -> Iterator[str]:
        """One reader in one partition."""
        last: dict[str, tuple[tuple[int, ...], int, int]] = {}  # by transactional id
        values: set[bytes] = set()
        for before, after in pairwise(seen):
            if before.offset >= after.offset:
                yield f"{who} comes to {after.offset} after {before.offset}"
        for each in seen:
            what = f"{who} at {each.offset} has {each.value!r}"
            if each.value in values:
                yield f"{what} a second time"
                continue
            values.add(each.value)
            found = self._writers.get(each.value)
            if found is None:
                yield f"{what}, which nobody sent"
                continue
            transaction, index = found
            yield from _check_sent(f"{what} of {transaction}", transaction.sent[index], place, each)
            if reading.isolation is Isolation.COMMITTED:
                yield from _check_may_be_read(f"{what} of {transaction}", transaction, each)
            order = (transaction.life.order, transaction.number, index)
            if order < last.get(transaction.life.transactional_id, order):
                yield f"{what} of {transaction} behind what was sent later"
            last[transaction.life.transactional_id] = order

    def _check_agreement(self) -> Iterator[str]:
        """Whoever reads sees what all others see, as far as he has come."""
        for reading in self._history.readings:
            all_longest = self._committed if reading.isolation is Isolation.COMMITTED else self._everything
            for place, all_seen in reading.seen.items():
                seen, longest = self._lasting(all_seen), self._lasting(all_longest[place])
                for own, others in zip(seen, longest, strict=False):
                    if (own.offset, own.value) != (others.offset, others.value):
                        what = f"{own.value!r} at {own.offset} where another reads {others.value!r} at {others.offset}"
                        yield f"{reading.name}: {_name(place)} has {what}"
                        break
                if reading.is_complete and len(seen) < len(longest):
                    yield f"{reading.name}: {_name(place)} ends before {longest[len(seen)].offset}"
        for place, seen in self._everything.items():
            offsets = {each.value: each.offset for each in seen}
            for each in self._committed.get(place, ()):
                if offsets.get(each.value, each.offset) != each.offset:
                    yield f"{_name(place)} has {each.value!r} at {each.offset} and at {offsets[each.value]}"

    def _lasting(self, seen: list[Seen]) -> list[Seen]:
        """What whoever reads it later sees, too."""
        if not self._aborted_may_go:
            return seen
        return [
            each for each in seen if each.value not in self._writers or self._is_visible(self._writers[each.value][0])
        ]

    def _check_whole(self, transaction: Transaction) -> Iterator[str]:
        """All of its records are read, or none."""
        if self._is_visible(transaction):
            complete = _complete(self._history, Isolation.COMMITTED)
            for sent in transaction.sent:
                if sent.place in complete and sent.value not in self._read:
                    yield f"{transaction} lacks {sent.value!r} in {_name(sent.place)}"

    def _check_everything(self, transaction: Transaction) -> Iterator[str]:
        """Who reads everything has seen what was acknowledged."""
        if self._aborted_may_go and not self._is_visible(transaction):
            return
        complete = _complete(self._history, Isolation.UNCOMMITTED)
        for sent in transaction.sent:
            if sent.offset is not None and sent.place in complete:
                there = self._everything.get(sent.place, [])
                if not any(each.value == sent.value for each in there):
                    yield f"{transaction}: {sent.value!r} in {_name(sent.place)} was acknowledged and is not there"

    def _check_fencing(self) -> Iterator[str]:
        for transaction in self._history.transactions:
            if transaction.asked_at is None or not self._is_visible(transaction):
                continue
            life = transaction.life
            for other in self._history.lives:
                is_later = other.transactional_id == life.transactional_id and other.order > life.order
                if is_later and other.begun_at < transaction.asked_at:
                    yield f"{transaction} is read, its commit was asked for when {other} had fenced it"
                    break

    def _check_chain(self, group_place: GroupPlace) -> Iterator[str]:
        """What is committed consumes a partition without gaps, and nothing twice."""
        reached = 0
        for first, stop, transaction in self._consumed(group_place):
            if first != reached:
                what = "twice" if first < reached else "never"
                amiss = f"{min(first, reached)} to {max(first, reached)} of {_of(group_place)}"
                yield f"{transaction} begins at {first}: {amiss} are consumed {what}"
            reached = stop

    def _consumed(self, group_place: GroupPlace) -> list[tuple[int, int, Transaction]]:
        """From where to where each committed transaction consumed, in order."""
        found = [
            (*each.consumed[group_place], each)
            for each in self._history.transactions
            if group_place in each.consumed and self._is_visible(each)
        ]
        return sorted(found, key=lambda row: row[:2])

    def _check_observed(self) -> Iterator[str]:
        for each in self._history.observed:
            consumed = self._consumed(each.group_place)
            what = f"the offset of {_of(each.group_place)} is said to be {each.offset}"
            asked = [0] + [stop for _, stop, by in consumed if by.asked_at is not None and by.asked_at < each.told_at]
            surely = [
                stop for _, stop, by in consumed if by.committed_at is not None and by.committed_at < each.asked_at
            ]
            if each.offset not in asked:
                yield f"{what}, nobody has committed that"
            if each.offset < max(surely, default=0):
                yield f"{what} when {max(surely)} was committed"
            if each.is_last and each.offset != max((stop for _, stop, _ in consumed), default=0):
                yield f"{what} in the end, what was written with the offsets says {consumed[-1][1] if consumed else 0}"


def _check_sent(what: str, sent: Sent, place: Place, seen: Seen) -> Iterator[str]:
    if sent.place != place:
        yield f"{what}, which was sent to {_name(sent.place)}"
    elif sent.offset not in (None, seen.offset):
        yield f"{what}, which was acknowledged at {sent.offset}"


def _check_may_be_read(what: str, transaction: Transaction, seen: Seen) -> Iterator[str]:
    if transaction.outcome is Outcome.ABORTED:
        yield f"{what}, which is not committed"
    elif transaction.asked_at is None or transaction.asked_at > seen.at:
        yield f"{what} before its commit was asked for"


def _of_isolation(history: History, isolation: Isolation) -> Iterable[Reading]:
    return (reading for reading in history.readings if reading.isolation is isolation)


def _longest(history: History, isolation: Isolation) -> dict[Place, list[Seen]]:
    """By place, what the reader saw who came farthest."""
    longest: dict[Place, list[Seen]] = {}
    for reading in _of_isolation(history, isolation):
        for place, seen in reading.seen.items():
            if len(seen) > len(longest.get(place, [])):
                longest[place] = seen
            longest.setdefault(place, seen)
    return longest


def _complete(history: History, isolation: Isolation) -> set[Place]:
    """The places that somebody has read to their ends."""
    return {place for reading in _of_isolation(history, isolation) if reading.is_complete for place in reading.seen}


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _of(group_place: GroupPlace) -> str:
    return f"{group_place[0]} in {_name(group_place[1])}"
