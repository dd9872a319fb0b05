"""`penstock txn`: lists and describes transactions, finds those that hang, and aborts one."""

import argparse
from typing import Any

from penstock.cli.command_line import NewParser, add_verbs
from penstock.cli.kafka.offsets import Partition
from penstock.cli.kafka.session import Session, add_verb, confirm
from penstock.cli.output import Done, Listing, Report, time_text
from penstock.contracts.errors import Invalid
from penstock.runtime.clock import SystemClock

_OPEN = "Ongoing"
_OVERDUE = 2  # a transaction hangs after so many of its time-outs: then the cluster should have aborted it


def add_parser(new_parser: NewParser) -> None:
    """Register `penstock txn` with the command line."""
    verbs = add_verbs(new_parser(description="Transactions of a cluster. All verbs speak Kafka."))
    listed = add_verb(verbs, "list", list_transactions, help="list transactional ids and their states")
    listed.add_argument("--state", action="append", default=[], metavar="STATE", help="only this state, as Ongoing")
    listed.add_argument("--hanging", action="store_true", help="only open ones that are older than their time-out")
    described = add_verb(verbs, "describe", describe_transaction, help="show one transaction")
    aborted = add_verb(
        verbs,
        "abort",
        abort_transaction,
        help="abort an open transaction",
        description="Abort the open transaction of a producer. Its client gets an error at its next request.",
    )
    aborted.add_argument("-y", "--yes", action="store_true", help="do not ask")
    for verb in (described, aborted):
        verb.add_argument("name", metavar="ID", help="the transactional id")


def list_transactions(arguments: argparse.Namespace, session: Session) -> Listing:
    """The transactional ids by name. While gateways change, two may list the same one."""
    wanted = [_OPEN] if arguments.hanging else arguments.state
    by_broker = session.admin.list_transactions(state_filters=wanted or None)
    found = {each.transactional_id: each for listings in by_broker.values() for each in listings}
    rows = [
        {"transactional_id": name, "producer_id": each.producer_id, "state": _state(each.state)}
        for name, each in sorted(found.items())
    ]
    if arguments.hanging:
        now_ms = SystemClock().now_ms()
        details = session.admin.describe_transactions([row["transactional_id"] for row in rows])
        rows = [
            row | {"age_seconds": age_s}
            for row in rows
            if (age_s := hanging_s(details[row["transactional_id"]], now_ms)) is not None
        ]
    return Listing(rows, "no transaction hangs" if arguments.hanging else "there are no transactions")


def hanging_s(description: Any, now_ms: int) -> float | None:
    """The age of an open transaction in seconds, None if it is not open, or not old enough to hang."""
    started_ms = description.transaction_start_time_ms
    if _state(description.state) != _OPEN or started_ms < 0:
        return None
    age_ms = now_ms - started_ms
    return age_ms / 1000 if age_ms > _OVERDUE * description.transaction_timeout_ms else None


def describe_transaction(arguments: argparse.Namespace, session: Session) -> Report:
    """One transaction with its partitions."""
    found = read_transaction(session, arguments.name)
    started_ms = found.transaction_start_time_ms
    age_s = (SystemClock().now_ms() - started_ms) / 1000 if started_ms >= 0 else None
    return Report(
        {
            "transactional_id": arguments.name,
            "state": _state(found.state),
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "timeout_seconds": found.transaction_timeout_ms / 1000,
            "started_at": time_text(started_ms),
            "age_seconds": age_s,
            "partitions": [
                {"topic": topic, "partition": partition} for topic, partition in sorted(found.topic_partitions)
            ],
        }
    )


def abort_transaction(arguments: argparse.Namespace, session: Session) -> Done:
    """Abort an open transaction in all its partitions, after a question."""
    from kafka.admin import AbortTransactionSpec

    found = read_transaction(session, arguments.name)
    if _state(found.state) != _OPEN:
        raise Invalid(f"the transaction of {arguments.name!r} is not open: its state is {_state(found.state)}")
    partitions: list[Partition] = sorted(found.topic_partitions)
    confirm(f"Abort the transaction of {arguments.name} in {len(partitions)} partitions?", is_confirmed=arguments.yes)
    for partition, state in session.admin.describe_producers(partitions).items():
        for producer in state.active_producers:
            if producer.producer_id == found.producer_id:
                epochs = (producer.producer_epoch, max(producer.coordinator_epoch, 0))
                session.admin.abort_transaction(AbortTransactionSpec(partition, producer.producer_id, *epochs))
    return Done(
        f"the transaction of {arguments.name} is aborted",
        {"transactional_id": arguments.name, "partitions": len(partitions)},
    )


def read_transaction(session: Session, name: str) -> Any:
    """The description of a transaction; `Invalid` if the id is unknown."""
    from kafka.errors import TransactionalIdNotFoundError

    try:
        return session.admin.describe_transactions([name])[name]
    except TransactionalIdNotFoundError:
        raise Invalid(f"there is no transactional id {name!r}; `penstock txn list` lists all") from None


def _state(state: Any) -> str:
    return str(getattr(state, "value", state))
