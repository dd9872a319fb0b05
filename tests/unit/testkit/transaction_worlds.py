"""Correct `History` records, made by one thread in a world without failures, and mutations that break them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tests.testkit.loads.transaction_history import (
    GroupPlace,
    History,
    Isolation,
    Life,
    Outcome,
    Place,
    Reading,
    Sent,
    Transaction,
)

PRODUCERS = 3
PLACES: list[Place] = [("books", 0), ("books", 1), ("notes", 0)]
GROUP_PLACES: list[GroupPlace] = [("readers", ("letters", number)) for number in range(PRODUCERS)]
STEPS = 120
CONSUMED_MAX = 5


@dataclass
class Log:
    """One partition: records with their transactions, and None for a marker."""

    entries: list[tuple[Sent, Transaction] | None] = field(default_factory=list)


class World:
    """Producers, readers and groups that do one random step after the other."""

    def __init__(self, seed: int) -> None:
        self.history = History()
        self._dice = random.Random(seed)
        self._logs = {place: Log() for place in PLACES}
        self._decided: set[Transaction] = set()  # no longer open
        self._visible: set[Transaction] = set()
        self._lives: list[Life | None] = [None] * PRODUCERS
        self._current: list[Transaction | None] = [None] * PRODUCERS
        self._offsets: dict[GroupPlace, int] = dict.fromkeys(GROUP_PLACES, 0)
        self._readers = [self._reader(name, isolation) for name in "ab" for isolation in Isolation]
        self._written = 0

    def run(self) -> History:
        """Do all steps; some readers in the result have reached the end, others have not."""
        for _ in range(STEPS):
            self._step(self._dice.randrange(PRODUCERS))
        for number in range(PRODUCERS):
            self._end_life(number)
        for isolation in Isolation:
            reading = self._reader("last", isolation)
            for place in PLACES:
                self._read(reading, place, len(self._logs[place].entries))
            reading.is_complete = True
        for group_place in GROUP_PLACES:
            self._observe(group_place, is_last=True)
        return self.history

    def _reader(self, name: str, isolation: Isolation) -> Reading:
        return self.history.read(f"{name} {isolation.value}", isolation, PLACES)

    def _step(self, number: int) -> None:
        act = self._dice.choice(("send", "send", "send", "send", "end", "end", "succeed", "read", "read", "observe"))
        if act == "read":
            self._read(self._dice.choice(self._readers), self._dice.choice(PLACES), self._dice.randint(1, 4))
        elif act == "observe":
            self._observe(self._dice.choice(GROUP_PLACES))
        elif act == "succeed" and self._dice.random() < 0.3:
            self._end_life(number)
        elif act == "send":
            self._send(number)
        elif act == "end" and self._current[number] is not None:
            self._end(number)

    def _send(self, number: int) -> None:
        history, dice = self.history, self._dice
        life = self._lives[number] or history.begin_life(f"producer-{number}")
        transaction = self._current[number] or history.begin(life)
        self._lives[number], self._current[number] = life, transaction
        entries = self._logs[place := dice.choice(PLACES)].entries
        self._written += 1
        sent = Sent(place, f"{number}/{self._written}".encode(), len(entries) if dice.random() < 0.8 else None)
        transaction.sent.append(sent)
        entries.append((sent, transaction))
        group_place = GROUP_PLACES[number]
        if not transaction.consumed and dice.random() < 0.3:
            first = self._offsets[group_place]
            transaction.consumed[group_place] = (first, first + dice.randint(1, CONSUMED_MAX))

    def _end(self, number: int) -> None:
        """Commit or abort; some answers are lost."""
        transaction = self._current[number]
        assert transaction is not None
        if self._dice.random() < 0.3:
            self._decide(number, committed=False)
            return
        self.history.ask(transaction)
        is_committed = self._dice.random() < 0.8
        self._decide(number, committed=is_committed)
        if is_committed and self._dice.random() < 0.8:
            self.history.committed(transaction)

    def _end_life(self, number: int) -> None:
        """Start a successor, which aborts an open transaction."""
        if self._current[number] is not None:
            self._decide(number, committed=False)
        self._lives[number] = self.history.begin_life(f"producer-{number}")

    def _decide(self, number: int, *, committed: bool) -> None:
        transaction, self._current[number] = self._current[number], None
        assert transaction is not None
        self._decided.add(transaction)
        for place in {sent.place: None for sent in transaction.sent}:
            self._logs[place].entries.append(None)
        if committed:
            self._visible.add(transaction)
            self._offsets |= {key: stop for key, (_, stop) in transaction.consumed.items()}

    def _read(self, reading: Reading, place: Place, count: int) -> None:
        seen = reading.seen[place]
        first = seen[-1].offset + 1 if seen else 0
        is_committed = reading.isolation is Isolation.COMMITTED
        for offset, entry in enumerate(self._logs[place].entries):
            if entry is None:
                continue
            if is_committed and entry[1] not in self._decided:
                return
            if offset >= first and count and (entry[1] in self._visible or not is_committed):
                self.history.see(reading, place, offset, entry[0].value)
                count -= 1

    def _observe(self, group_place: GroupPlace, *, is_last: bool = False) -> None:
        self.history.observe(group_place, self._offsets[group_place], self.history.moment(), is_last=is_last)


def _last(history: History, isolation: Isolation = Isolation.COMMITTED) -> Reading:
    return next(each for each in history.readings if each.is_complete and each.isolation is isolation)


def _readings(history: History, isolation: Isolation) -> list[Reading]:
    return [each for each in history.readings if each.isolation is isolation]


def _is_read(history: History, transaction: Transaction) -> bool:
    values = {seen.value for read in _last(history).seen.values() for seen in read}
    return any(sent.value in values for sent in transaction.sent)


def _read_transactions(history: History) -> list[Transaction]:
    return [each for each in history.transactions if _is_read(history, each)]


def _hide(history: History, isolation: Isolation, values: set[bytes]) -> None:
    for reading in _readings(history, isolation):
        for place, seen in reading.seen.items():
            reading.seen[place] = [each for each in seen if each.value not in values]


def lose_a_record(history: History) -> bool:
    """No reader gets one of the records of a committed transaction."""
    lost = next((each for each in _read_transactions(history) if each.outcome is Outcome.COMMITTED), None)
    if lost is not None:
        _hide(history, Isolation.COMMITTED, {lost.sent[0].value})
    return lost is not None


def lose_a_record_of_one_reader(history: History) -> bool:
    """One reader does not get a record that all others get."""
    reading = _readings(history, Isolation.COMMITTED)[0]
    for seen in reading.seen.values():
        if len(seen) > 1:
            del seen[len(seen) // 2 - 1]
            return True
    return False


def split_a_transaction_of_unknown_outcome(history: History) -> bool:
    """Readers get the records of a transaction of unknown outcome in one partition, but not those in another."""
    for each in _read_transactions(history):
        if each.outcome is Outcome.UNKNOWN and len({sent.place for sent in each.sent}) > 1:
            hidden = {sent.value for sent in each.sent if sent.place == each.sent[0].place}
            _hide(history, Isolation.COMMITTED, hidden)
            return True
    return False


def hide_a_committed_transaction(history: History) -> bool:
    """No reader gets any record of a transaction whose producer knows that it is committed."""
    found = next((each for each in _read_transactions(history) if each.outcome is Outcome.COMMITTED), None)
    if found is not None:
        _hide(history, Isolation.COMMITTED, {sent.value for sent in found.sent})
    return found is not None


def _show(history: History, transaction: Transaction) -> None:
    """Give the records of a transaction to all read_committed readers."""
    offsets = {
        each.value: (place, each) for place, read in _last(history, Isolation.UNCOMMITTED).seen.items() for each in read
    }
    for sent in transaction.sent:
        place, seen = offsets[sent.value]
        for reading in _readings(history, Isolation.COMMITTED):
            if reading.is_complete:
                at = history.moment()
                reading.seen[place] = sorted((*reading.seen[place], replace(seen, at=at)), key=lambda each: each.offset)


def show_an_aborted_transaction(history: History) -> bool:
    """An aborted transaction is read."""
    found = [each for each in history.transactions if each.sent and each.outcome is Outcome.ABORTED]
    if found:
        _show(history, found[-1])
    return bool(found)


def read_twice(history: History) -> bool:
    """A reader gets a record again."""
    for seen in _last(history).seen.values():
        if len(seen) > 1:
            seen.insert(2, replace(seen[0], offset=seen[1].offset))
            return True
    return False


def reorder(history: History) -> bool:
    """Two records of one producer change places in a partition, for all readers."""
    for place in PLACES:
        seen = _last(history).seen[place]
        for left, right in pairwise(seen):
            if left.value[:1] == right.value[:1]:
                swap = {left.value: right.value, right.value: left.value}
                for reading in history.readings:
                    found = reading.seen[place]
                    reading.seen[place] = [replace(each, value=swap.get(each.value, each.value)) for each in found]
                for sent in (each for by in history.transactions for each in by.sent if each.value in swap):
                    sent.offset = None
                return True
    return False


def read_too_early(history: History) -> bool:
    """A record is read before its commit is requested."""
    for each in _read_transactions(history):
        place = each.sent[0].place
        seen = _last(history).seen[place]
        index = next(index for index, one in enumerate(seen) if one.value == each.sent[0].value)
        assert each.asked_at is not None
        seen[index] = replace(seen[index], at=each.asked_at - 1)
        return True
    return False


def invent(history: History) -> bool:
    """A record is read that was never sent."""
    seen = _last(history).seen[PLACES[0]]
    seen.append(replace(seen[-1], offset=seen[-1].offset + 1, value=b"never sent")) if seen else None
    return bool(seen)


def move_an_acknowledged_record(history: History) -> bool:
    """A record is read at another offset than its acknowledgement had."""
    for each in _read_transactions(history):
        if each.sent[0].offset is not None:
            each.sent[0].offset += 1
            return True
    return False


def lose_an_acknowledged_aborted_record(history: History) -> bool:
    """The read_uncommitted readers do not get a record that was acknowledged and aborted."""
    for each in history.transactions:
        if each.outcome is Outcome.ABORTED and any(sent.offset is not None for sent in each.sent):
            _hide(history, Isolation.UNCOMMITTED, {sent.value for sent in each.sent})
            return True
    return False


def let_a_zombie_commit(history: History) -> bool:
    """A transaction is read whose commit was requested after the producer's successor had started."""
    for each in _read_transactions(history):
        later = [life for life in history.lives if life.transactional_id == each.life.transactional_id]
        if later[-1] is not each.life and later[-1].begun_at < history.moment():
            each.asked_at = later[-1].begun_at + 1
            return True
    return False


def _consumers(history: History) -> list[Transaction]:
    return [each for each in _read_transactions(history) if each.consumed]


def remove_offsets(history: History) -> bool:
    """A transaction's records are read, but the group does not have its offsets: it consumes them once more."""
    found = _consumers(history)
    if len(found) < 2:
        return False
    by_place = [each for each in found if each.consumed.keys() == found[0].consumed.keys()]
    if len(by_place) < 2:
        return False
    (group_place,) = by_place[0].consumed
    by_place[1].consumed[group_place] = by_place[0].consumed[group_place]
    return True


def commit_offsets_without_records(history: History) -> bool:
    """A group's offsets are higher than its committed transactions consumed."""
    found = _consumers(history)
    if not found:
        return False
    (group_place,) = found[0].consumed
    first, stop = found[0].consumed[group_place]
    found[0].consumed[group_place] = (first + 1, stop)
    return True


def show_offsets_of_an_aborted_transaction(history: History) -> bool:
    """A group reports an offset that only an aborted transaction had."""
    for each in history.transactions:
        if each.consumed and each.outcome is Outcome.ABORTED:
            ((group_place, (_, stop)),) = each.consumed.items()
            committed = [one.consumed.get(group_place, (0, 0))[1] for one in _read_transactions(history)]
            if stop not in committed:
                history.observe(group_place, stop, history.moment())
                return True
    return False


def let_offsets_go_back(history: History) -> bool:
    """A group reports a lower offset than a transaction had committed before the request."""
    for each in _consumers(history):
        if each.committed_at is not None:
            ((group_place, _),) = each.consumed.items()
            history.observe(group_place, 0, history.moment())
            return True
    return False


def leave_offsets_behind(history: History) -> bool:
    """In the end, a group does not have the offsets of the last transaction, whose outcome no client knows."""
    for index, each in enumerate(history.observed):
        if each.is_last and each.offset:
            history.observed[index] = replace(each, offset=0, asked_at=0)
            return True
    return False


MUTATIONS: list[Callable[[History], bool]] = [
    lose_a_record,
    lose_a_record_of_one_reader,
    split_a_transaction_of_unknown_outcome,
    hide_a_committed_transaction,
    show_an_aborted_transaction,
    read_twice,
    reorder,
    read_too_early,
    invent,
    move_an_acknowledged_record,
    lose_an_acknowledged_aborted_record,
    let_a_zombie_commit,
    remove_offsets,
    commit_offsets_without_records,
    show_offsets_of_an_aborted_transaction,
    let_offsets_go_back,
    leave_offsets_behind,
]
