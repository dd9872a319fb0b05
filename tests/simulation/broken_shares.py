"""Share groups that are broken in the ways that would be worst; the simulator must catch every one."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec

from penstock.contracts.commands import Verdict
from penstock.kafkawire.records import BatchHeader
from penstock_gateway.context import Gateway
from penstock_gateway.share import batch_scan
from penstock_gateway.share.acknowledge import Acknowledged, acknowledge as acknowledge_in_time
from penstock_sequencer.core.share import group as share_groups, partition as share_partitions
from penstock_sequencer.core.share.offset_ranges import available
from penstock_sequencer.core.share.partition import Rules
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.share_group import ACQUIRED, Hold

Break = Callable[[], AbstractContextManager[Any]]


def acknowledge_before_commit() -> AbstractContextManager[Any]:
    """A gateway tells members that they were heard while their word is still on its way."""

    async def acknowledge_at_once(
        gateway: Gateway, group_id: str, member_id: str, acknowledged: Sequence[Acknowledged], **options: Any
    ) -> int:
        copies = [Acknowledged(each.key, each.judged, each.error) for each in acknowledged]
        underway = asyncio.create_task(acknowledge_in_time(gateway, group_id, member_id, copies, **options))
        underway.add_done_callback(asyncio.Task.result)
        return 0

    return mock.patch("penstock_gateway.handlers.share.share_acknowledge.acknowledge", acknowledge_at_once)


def give_out_what_was_accepted() -> AbstractContextManager[Any]:
    """The machine takes what was accepted for released."""
    judged = share_partitions._judged

    def judge_otherwise(rules: Rules, hold: Hold, verdict: int, until_ms: int) -> Hold:
        return judged(rules, hold, Verdict.RELEASE if verdict == Verdict.ACCEPT else verdict, until_ms)

    return mock.patch.object(share_partitions, "_judged", judge_otherwise)


def free_everything_when_a_member_goes() -> AbstractContextManager[Any]:
    """The machine forgets all members' locks when it applies the end of one."""
    release_its = share_groups.release

    def release_all(state: State, group: Any, member_id: str, *args: Any, **options: Any) -> None:
        for each in (member_id, *group.members):
            release_its(state, group, each, *args, **options)

    return mock.patch("penstock_sequencer.core.share.group.release", release_all)


def give_out_what_is_locked() -> AbstractContextManager[Any]:
    """The machine lets a member take what another one has."""
    take_again = share_partitions._Taker.take_again

    def take_from_others(self: Any, hold: Hold, gaps: Any) -> list[Hold]:
        is_others = hold.status == ACQUIRED and hold.member_id != self._acquisition.member_id
        return take_again(self, available(hold.first, hold.last, hold.deliveries) if is_others else hold, gaps)

    return mock.patch.object(share_partitions._Taker, "take_again", take_from_others)


def hear_whoever_speaks() -> AbstractContextManager[Any]:
    """The machine lets members judge what they do not have any more."""
    return mock.patch("penstock_sequencer.core.share.partition._has", lambda *_: True)


def deliver_for_ever() -> AbstractContextManager[Any]:
    """The machine counts deliveries, and draws no conclusion."""
    rules_of = share_partitions.rules_of

    def without_limit(state: State, group_id: str) -> Rules:
        return msgspec.structs.replace(rules_of(state, group_id), delivery_limit=1_000)

    return mock.patch.multiple("penstock_sequencer.core.share.acquire_ack", rules_of=without_limit)


def remove_what_was_released() -> AbstractContextManager[Any]:
    """The machine takes records for done with that are released, or whose lock has ended."""

    def end_them(rules: Rules, hold: Hold) -> Hold:
        return share_partitions.done(hold.first, hold.last)

    return mock.patch("penstock_sequencer.core.share.partition._released", end_them)


def take_transactions_for_nothing() -> AbstractContextManager[Any]:
    """A gateway passes over records of transactions, also of those that were committed."""

    has_records = batch_scan._has_records

    def has_plain_records(header: BatchHeader, _aborted: object) -> bool:
        return has_records(header, ()) and not batch_scan.is_transactional(header)

    return mock.patch("penstock_gateway.share.batch_scan._has_records", has_plain_records)


BROKEN_SHARES: dict[str, Break] = {
    f"shares_{each.__name__}": each
    for each in (
        acknowledge_before_commit,
        give_out_what_was_accepted,
        free_everything_when_a_member_goes,
        give_out_what_is_locked,
        hear_whoever_speaks,
        deliver_for_ever,
        remove_what_was_released,
        take_transactions_for_nothing,
    )
}
