"""Transactions: the list with hanging ones marked, and one transaction with its partitions."""

import msgspec

from penstock.contracts.queries.transactions import (
    DescribeTransactionsQuery,
    DescribeTransactionsView,
    TransactionsQuery,
    TransactionsView,
    TransactionView,
)
from penstock_console.pages.context import ListQuery, Part, Request, Sources, part_of
from penstock_console.pages.errors import NotFound

ONGOING = "Ongoing"
UNKNOWN_STATE = "Dead"
OVERDUE = 2  # a transaction hangs after so many of its time-outs: then the cluster should have aborted it
LISTED_MAX = 20_000
DESCRIBED_MAX = 500


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id in the list."""

    name: str
    producer_id: int
    state: str
    age_seconds: float | None  # of an open transaction
    timeout_seconds: float | None
    is_hanging: bool


class TransactionList(msgspec.Struct, frozen=True):
    """The transactional ids that fit; `is_cut` if there are more than the console reads."""

    total: int
    open: int
    hanging: int
    is_cut: bool
    list: Part[TransactionRow]


class TransactionPage(msgspec.Struct, frozen=True):
    """One transactional id; its partitions are those of its open transaction."""

    row: TransactionRow
    producer_epoch: int
    started_ms: int | None
    partitions: list[str]


async def transactions(sources: Sources, _request: Request, query: ListQuery) -> TransactionList:
    """The transactional ids that contain the text, open transactions first."""
    rows: list[TransactionRow] = []
    wanted = TransactionsQuery(0, fresh=True)
    is_cut = False
    while True:
        view = await sources.sequencers.query("transactions", wanted, TransactionsView)
        rows += [
            TransactionRow(each.transactional_id, each.producer_id, each.state, None, None, False)
            for each in view.transactions
        ]
        if not view.is_more or not view.transactions:
            break
        if len(rows) >= LISTED_MAX:
            is_cut = True
            break
        wanted = TransactionsQuery(0, after=view.transactions[-1].transactional_id)
    described = await _described(sources, [each.name for each in rows if each.state == ONGOING][:DESCRIBED_MAX])
    rows = [_with_age(each, described.get(each.name), sources.clock.now_ms()) for each in rows]
    found = [each for each in rows if query.q.lower() in each.name.lower()]
    return TransactionList(
        len(rows),
        sum(each.state == ONGOING for each in rows),
        sum(each.is_hanging for each in rows),
        is_cut,
        part_of(found, query, "-age_seconds"),
    )


async def transaction(sources: Sources, _request: Request, name: str) -> TransactionPage:
    """One transactional id; `Invalid` if it is unknown."""
    found = (await _described(sources, [name])).get(name)
    if found is None or found.state == UNKNOWN_STATE:
        raise NotFound(f"there is no transactional id {name!r}")
    row = TransactionRow(name, found.producer_id, found.state, None, None, False)
    return TransactionPage(
        _with_age(row, found, sources.clock.now_ms()),
        found.producer_epoch,
        found.started_ms if found.started_ms >= 0 else None,
        [f"{topic.topic}/{number}" for topic in found.topics for number in topic.partitions],
    )


async def _described(sources: Sources, names: list[str]) -> dict[str, TransactionView]:
    found: dict[str, TransactionView] = {}
    while names:
        view = await sources.sequencers.query(
            "describe_transactions", DescribeTransactionsQuery(0, names, fresh=True), DescribeTransactionsView
        )
        found |= {each.transactional_id: each for each in view.transactions}
        names = names[len(view.transactions) :] if view.transactions else []
    return found


def _with_age(row: TransactionRow, found: TransactionView | None, now_ms: int) -> TransactionRow:
    if found is None or found.started_ms < 0:
        return row
    age_ms = max(now_ms - found.started_ms, 0)
    return msgspec.structs.replace(
        row,
        age_seconds=age_ms / 1000,
        timeout_seconds=found.timeout_ms / 1000,
        is_hanging=age_ms > OVERDUE * found.timeout_ms,
    )
