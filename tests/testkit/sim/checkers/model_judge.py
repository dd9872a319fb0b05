"""Compares the state machine with the independent model: after entries, everything that clients can see is the same.

The model takes each entry of the journal. `compare` reads the state that the machine has after it. This is the only
place that knows both.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from penstock.contracts.commands import Command, Outcome
from penstock_sequencer.core.log.partitions import last_stable_offset
from penstock_sequencer.core.state.cluster import NOT_NAMED, Group, State
from penstock_sequencer.core.state.limits import Limits
from tests.testkit.sim.checkers.oracle import Fail, Oracle
from tests.testkit.sim.model.cluster import Model, committed_of, offsets_of
from tests.testkit.sim.model.logs import ENTRIES_PER_FREE_PLACE, Offsets
from tests.testkit.sim.model.tokens import Token

COMPARED_ENTRIES = 8  # between two comparisons, as they take time


class ModelJudge:
    """Feeds the model, and reports each difference to the machine's state."""

    def __init__(self, oracle: Oracle, limits: Limits, fail: Fail) -> None:
        self.model = Model(fail)
        self.compared = 0
        self._oracle = oracle
        self._limits = limits
        self._fail = fail
        oracle.on_applied.append(self._applied)

    def _applied(self, commands: list[Command], outcomes: list[Outcome]) -> None:
        sequence = self._oracle.state.sequence
        self.model.apply(sequence, commands, outcomes)
        if sequence % COMPARED_ENTRIES == 0:
            self.compare()

    def compare(self) -> None:
        """Compare the present states."""
        self.compared += 1
        for difference in (*differences(self.model, self._oracle.state), *self._shares()):
            self._fail(f"after entry {self.model.sequence} {difference}")

    def _shares(self) -> Iterator[str]:
        """Principals beyond their share; entries of ANONYMOUS may be older than the level."""
        state, transactions = self._oracle.state, self._limits.transactions.transactions_max
        of_partition = self._limits.producers.producers_per_partition_max
        yield from _beyond(
            "transactional ids", Counter(each.owner for each in state.transactions.values()), transactions
        )
        for partition in (each for topic in state.topics.values() for each in topic.partitions):
            owners = Counter(each.owner for each in partition.producers.values())
            yield from _beyond("producers of a partition", owners, of_partition)


def _beyond(what: str, owned: Counter[int], most: int) -> Iterator[str]:
    """Principals with more entries than one may have alone."""
    for owner, count in owned.items():
        if owner != NOT_NAMED and count * (ENTRIES_PER_FREE_PLACE + 1) > most * ENTRIES_PER_FREE_PLACE:
            yield f"principal {owner} has {count} of {most} {what}"


def differences(model: Model, state: State) -> Iterator[str]:
    """All differences between the model and the machine."""
    yield from _table_differences(
        "topics",
        {name: (each.topic_id, len(each.logs), each.configs) for name, each in model.topics.items()},
        {name: (each.topic_id, len(each.partitions), each.configs) for name, each in state.topics.items()},
    )
    yield from _table_differences("cluster configurations", model.cluster_configs, state.cluster_configs)
    yield from _table_differences("group configurations", model.group_configs, state.group_configs)
    yield from _table_differences("subscriptions to metrics", model.client_metrics, state.client_metrics)
    yield from _table_differences("passwords", model.security.credentials.now, _credentials(state))
    bindings = dict.fromkeys(model.security.bindings.now)
    yield from _table_differences("access control lists", bindings, state.bindings)
    yield from _table_differences("delegation tokens", model.tokens.tokens, _tokens(state))
    yield from _table_differences("logs", offsets_of(model), _offsets(state))
    yield from _table_differences("committed offsets", committed_of(model), _committed(state))
    yield from _table_differences("transactions", _model_transactions(model), _transactions(state))
    yield from _table_differences("pending offsets", _model_pending(model), _pending(state))
    yield from _owner_differences(model, state)
    yield from _group_differences(model, state)


def _table_differences(what: str, expected: dict[Any, Any], found: dict[Any, Any]) -> Iterator[str]:
    if expected != found:
        for key in dict.fromkeys((*expected, *found)):
            if expected.get(key) != found.get(key):
                yield f"the {what} differ in {key!r}: the model has {expected.get(key)}, the machine {found.get(key)}"


def _credentials(state: State) -> dict[Any, Any]:
    return {(name, each.mechanism): each for name, verifiers in state.users.items() for each in verifiers}


def _tokens(state: State) -> dict[Any, Any]:
    return {
        token_id: Token(
            each.owner,
            each.requester,
            frozenset(each.renewers),
            each.expiry_ms,
            each.max_ms,
            each.is_revoked,
            each.altered_sequence,
        )
        for token_id, each in state.tokens.items()
    }


def _offsets(state: State) -> dict[Any, Offsets]:
    return {
        (topic.topic_id, each.number): Offsets(each.log_start_offset, last_stable_offset(each), each.high_watermark)
        for topic in state.topics.values()
        for each in topic.partitions
    }


def _committed(state: State) -> dict[Any, int]:
    return {
        (group_id, state.topics[topic].topic_id, number): committed.offset
        for group_id, group in state.groups.items()
        for topic, offsets in group.offsets.items()
        for number, committed in offsets.items()
    }


def _model_transactions(model: Model) -> dict[str, Any]:
    return {name: (each.producer, each.state, sorted(each.partitions)) for name, each in model.transactions.items()}


def _transactions(state: State) -> dict[str, Any]:
    return {
        name: ((each.producer_id, each.epoch), each.state, sorted(each.partitions))
        for name, each in state.transactions.items()
    }


def _model_pending(model: Model) -> dict[Any, int]:
    return {
        (name, *key): pending.offset
        for name, each in model.transactions.items()
        for key, pending in each.offsets.items()
    }


def _pending(state: State) -> dict[Any, int]:
    return {
        (name, group_id, topic_id, number): committed.offset
        for name, transaction in state.transactions.items()
        for group_id, topics in transaction.offsets.items()
        for topic_id, offsets in topics.items()
        for number, committed in offsets.items()
    }


def _owner_differences(model: Model, state: State) -> Iterator[str]:
    """Each transactional id, and each producer in a partition, belongs to the principal that made it (ADR 0040)."""
    made = {name: each.principal for name, each in model.transactions.items()}
    found = {name: state.principals[each.owner].name for name, each in state.transactions.items()}
    yield from _table_differences("owners of transactional ids", made, found)
    owners: dict[Any, str] = {}
    expected: dict[Any, str] = {}
    for topic_id, number, log in model.all_logs():
        for producer_id, producer in state.topics_by_id[topic_id].partitions[number].producers.items():
            key = (topic_id, number, producer_id)
            owners[key] = state.principals[producer.owner].name
            expected[key] = log.producers[producer_id].principal
    yield from _table_differences("owners of producers", expected, owners)


def _group_differences(model: Model, state: State) -> Iterator[str]:
    """The machine may have removed silent members; it may have no others than those that joined and did not leave."""
    for group_id, group in state.groups.items():
        known = model.group(group_id)
        strange = [member_id for member_id in _members(group) if member_id not in known.members]
        if strange:
            yield f"group {group_id!r} has members that have not joined, or have left: {strange}"
        if group.consumer is None and group.members and group.generation < known.generation:
            yield f"group {group_id!r} is at generation {group.generation}, members were in {known.generation}"


def _members(group: Group) -> list[str]:
    return list(group.members if group.consumer is None else group.consumer.members)
