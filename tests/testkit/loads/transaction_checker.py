"""Checks a `History` of transactions against the guarantees for committing clients and for their readers.

- A read_committed reader gets every record of every committed transaction once, and no other record.
- It gets the records of one transactional id in each partition in the order of sending, session by session.
- A transaction with unknown outcome was committed completely or not at all, its offsets with its records.
- All readers get the same records at the same offsets, and no record before its commit was requested.
- A producer cannot commit after its successor has started.
- The transactions of a group consume its partitions without a gap, and nothing twice.
- The committed offset that a group reports is an offset that one of its transactions has committed.
- A read_uncommitted reader gets every acknowledged record at its offset, committed or not.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.testkit.loads.transaction_history import (
    GroupPlace,
    History,
    Isolation,
    Life,
    Outcome,
    Place,
    Reading,
    Seen,
    Sent,
    Transaction,
)


def check(history: History, *, aborted_may_go: bool = False) -> list[str]:
    """The violations as texts; with `aborted_may_go`, compaction may have removed aborted records."""
    return list(_Checker(history, aborted_may_go).violations())


class _Checker:
    def __init__(self, history: History, aborted_may_go: bool) -> None:
        self._history = history
        self._aborted_may_go = aborted_may_go
        self._writers: dict[bytes, tuple[Transaction, int]] = {}  # by value: its transaction, and its index in it
        for transaction in history.transactions:
            if transaction.consumed and not transaction.sent:
                raise ValueError(f"{transaction} has offsets and no record that could show whether it was committed")
            for index, sent in enumerate(transaction.sent):
                if sent.value in self._writers:
                    raise ValueError(f"{sent.value!r} is sent twice, so a reader cannot distinguish the two")
                self._writers[sent.value] = transaction, index
        self._committed = _longest(history, Isolation.COMMITTED)
        self._everything = _longest(history, Isolation.UNCOMMITTED)
        self._read = {seen.value for read in self._committed.values() for seen in read}
        self._stored = {place: {seen.value for seen in read} for place, read in self._everything.items()}
        self._complete = {isolation: _complete(history, isolation) for isolation in Isolation}

    def violations(self) -> Iterator[str]:
        """All violations."""
        for reading in self._history.readings:
            for place, seen in reading.seen.items():
                yield from self._check_seen(f"{reading.name}: {_name(place)}", reading, place, seen)
        yield from self._check_agreement()
        for transaction in self._history.transactions:
            yield from self._check_atomicity(transaction)
            yield from self._check_acknowledged(transaction)
        yield from self._check_fencing()
        for group_place in {key: None for each in self._history.transactions for key in each.consumed}:
            yield from self._check_consumption(group_place)
        yield from self._check_observed()

    def _is_visible(self, transaction: Transaction) -> bool:
        if transaction.outcome is Outcome.UNKNOWN:
            return any(sent.value in self._read for sent in transaction.sent)
        return transaction.outcome is Outcome.COMMITTED

    def _check_seen(self, reader: str, reading: Reading, place: Place, seen: list[Seen]) -> Iterator[str]:
        """The records of one reader in one partition."""
        last: dict[str, tuple[tuple[int, ...], int, int]] = {}  # by transactional id
        values: set[bytes] = set()
        for before, after in pairwise(seen):
            if before.offset >= after.offset:
                yield f"{reader} gets {after.offset} after {before.offset}"
        for each in seen:
            what = f"{reader} at {each.offset} has {each.value!r}"
            if each.value in values:
                yield f"{what} a second time"
                continue
            values.add(each.value)
            found = self._writers.get(each.value)
            if found is None:
                yield f"{what}, which was never sent"
                continue
            transaction, index = found
            yield from _check_sent(f"{what} of {transaction}", transaction.sent[index], place, each)
            if reading.isolation is Isolation.COMMITTED:
                yield from _check_may_be_read(f"{what} of {transaction}", transaction, each)
            order = (transaction.life.order, transaction.number, index)
            if order < last.get(transaction.life.transactional_id, order):
                yield f"{what} of {transaction} after a record that was sent later"
            last[transaction.life.transactional_id] = order

    def _check_agreement(self) -> Iterator[str]:
        """Every reader gets the same records as all others, as far as it has read."""
        for reading in self._history.readings:
            all_longest = self._committed if reading.isolation is Isolation.COMMITTED else self._everything
            for place, all_seen in reading.seen.items():
                seen, longest = self._lasting(all_seen), self._lasting(all_longest[place])
                for own, other in zip(seen, longest, strict=False):
                    if (own.offset, own.value) != (other.offset, other.value):
                        what = f"{own.value!r} at {own.offset} where another has {other.value!r} at {other.offset}"
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
        """The records that later readers get, too."""
        if not self._aborted_may_go:
            return seen
        return [
            each for each in seen if each.value not in self._writers or self._is_visible(self._writers[each.value][0])
        ]

    def _check_atomicity(self, transaction: Transaction) -> Iterator[str]:
        """All records of a transaction are read, or none."""
        if self._is_visible(transaction):
            complete = self._complete[Isolation.COMMITTED]
            for sent in transaction.sent:
                if sent.place in complete and sent.value not in self._read:
                    yield f"{transaction} lacks {sent.value!r} in {_name(sent.place)}"

    def _check_acknowledged(self, transaction: Transaction) -> Iterator[str]:
        """Every read_uncommitted reader has got all acknowledged records."""
        if self._aborted_may_go and not self._is_visible(transaction):
            return
        complete = self._complete[Isolation.UNCOMMITTED]
        for sent in transaction.sent:
            is_there = sent.value in self._stored.get(sent.place, ())
            if sent.offset is not None and sent.place in complete and not is_there:
                yield f"{transaction}: {sent.value!r} in {_name(sent.place)} was acknowledged and is not there"

    def _check_fencing(self) -> Iterator[str]:
        lives: dict[str, list[Life]] = {}
        for life in self._history.lives:
            lives.setdefault(life.transactional_id, []).append(life)
        for transaction in self._history.transactions:
            if transaction.asked_at is None or not self._is_visible(transaction):
                continue
            life = transaction.life
            for other in lives[life.transactional_id]:
                if other.order > life.order and other.begun_at < transaction.asked_at:
                    yield f"{transaction} is read, but its commit was requested after {other} had fenced it"
                    break

    def _check_consumption(self, group_place: GroupPlace) -> Iterator[str]:
        """Committed transactions consume a partition without gaps, and nothing twice."""
        reached = 0
        for first, stop, transaction in self._consumed(group_place):
            if first != reached:
                what = "twice" if first < reached else "never"
                wrong = f"{min(first, reached)} to {max(first, reached)} of {_of(group_place)}"
                yield f"{transaction} begins at {first}: {wrong} are consumed {what}"
            reached = stop

    def _consumed(self, group_place: GroupPlace) -> list[tuple[int, int, Transaction]]:
        """The first and the end offset that each committed transaction consumed, in order."""
        found = [
            (*each.consumed[group_place], each)
            for each in self._history.transactions
            if group_place in each.consumed and self._is_visible(each)
        ]
        return sorted(found, key=lambda row: row[:2])

    def _check_observed(self) -> Iterator[str]:
        group_places = {each.group_place: None for each in self._history.observed}
        all_consumed = {group_place: list(self._consumed(group_place)) for group_place in group_places}
        for each in self._history.observed:
            consumed = all_consumed[each.group_place]
            what = f"the offset of {_of(each.group_place)} is reported as {each.offset}"
            possible = [0] + [
                stop for _, stop, by in consumed if by.asked_at is not None and by.asked_at < each.answered_at
            ]
            certain = [
                stop for _, stop, by in consumed if by.committed_at is not None and by.committed_at < each.asked_at
            ]
            if each.offset not in possible:
                yield f"{what}, which was never committed"
            if each.offset < max(certain, default=0):
                yield f"{what} after {max(certain)} was committed"
            if each.is_last and each.offset != max((stop for _, stop, _ in consumed), default=0):
                yield f"{what} in the end, but its records were committed up to {consumed[-1][1] if consumed else 0}"


def _check_sent(what: str, sent: Sent, place: Place, seen: Seen) -> Iterator[str]:
    if sent.place != place:
        yield f"{what}, which was sent to {_name(sent.place)}"
    elif sent.offset not in (None, seen.offset):
        yield f"{what}, which was acknowledged at {sent.offset}"


def _check_may_be_read(what: str, transaction: Transaction, seen: Seen) -> Iterator[str]:
    if transaction.outcome is Outcome.ABORTED:
        yield f"{what}, which is not committed"
    elif transaction.asked_at is None or transaction.asked_at > seen.at:
        yield f"{what} before its commit was requested"


def _of_isolation(history: History, isolation: Isolation) -> Iterable[Reading]:
    return (reading for reading in history.readings if reading.isolation is isolation)


def _longest(history: History, isolation: Isolation) -> dict[Place, list[Seen]]:
    """By place, the records of the reader that read most."""
    longest: dict[Place, list[Seen]] = {}
    for reading in _of_isolation(history, isolation):
        for place, seen in reading.seen.items():
            if len(seen) > len(longest.get(place, [])):
                longest[place] = seen
            longest.setdefault(place, seen)
    return longest


def _complete(history: History, isolation: Isolation) -> set[Place]:
    """The places that some reader has read to the end."""
    return {place for reading in _of_isolation(history, isolation) if reading.is_complete for place in reading.seen}


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _of(group_place: GroupPlace) -> str:
    return f"{group_place[0]} in {_name(group_place[1])}"
