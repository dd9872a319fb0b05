"""Ways of records out of ACQUIRED: acknowledgements, ended locks, and members that have gone."""

from collections.abc import Iterator

import msgspec

from penstock.contracts.commands import AcknowledgedRange, AcknowledgeType
from penstock.contracts.levels import RENEWED_LOCKS_LEVEL
from penstock.contracts.rejections import Rejection
from penstock_sequencer.core.share.offset_ranges import available, cut, dead, done, drop_done, find, part
from penstock_sequencer.core.share.partition import Rules, end_of_deliveries, later_ms, lock_end_ms, replace_holds
from penstock_sequencer.core.state.cluster import State
from penstock_sequencer.core.state.limits import INTEGER_MAX
from penstock_sequencer.core.state.share_group import ACQUIRED, AVAILABLE, REJECTED, Hold, SharePartition

ANY_ACQUISITION = range(INTEGER_MAX)


def acknowledge(
    state: State,
    rules: Rules,
    share: SharePartition,
    member_id: str,
    acknowledged: list[AcknowledgedRange],
    delay_ms: int = 0,
) -> Rejection:
    """Apply acknowledgements of a member, to all records that it names or to none.

    Records that it releases are available after `delay_ms`.
    """
    before = -1
    for each in acknowledged:
        count = each.last - each.first + 1
        wrong = not before < each.first <= each.last or len(each.acknowledge_types) not in (1, count)
        if wrong or max(each.acknowledge_types) > AcknowledgeType.UNREAD:
            return Rejection.INVALID_REQUEST
        before = each.last
    if not all(_has(share, member_id, each) for each in acknowledged):
        return Rejection.INVALID_RECORD_STATE
    if not rules.may_renew and any(AcknowledgeType.RENEW in each.acknowledge_types for each in acknowledged):
        return Rejection.INVALID_RECORD_STATE
    now = _Now(state.sequence, lock_end_ms(state, rules), later_ms(state, delay_ms) if delay_ms else 0)
    for each in acknowledged:
        place, stop = cut(share, each.first, each.last)
        holds = [
            _acknowledged(rules, part(hold, max(first, hold.first), min(last, hold.last)), acknowledge_type, now)
            for hold, (first, last, acknowledge_type) in _overlaps(share.holds[place:stop], _acknowledge_types(each))
        ]
        replace_holds(state, share, place, stop, holds)
        for hold in holds:
            if hold.until_ms and (hold.status == AVAILABLE or state.level >= RENEWED_LOCKS_LEVEL):
                share.due_ms = min(share.due_ms or hold.until_ms, hold.until_ms)
    drop_done(share)
    return Rejection.NONE


class _Now(msgspec.Struct, frozen=True):
    """The journal entry, and the ends of a lock and of a delay that begin now; 0 without a delay."""

    sequence: int
    lock_end_ms: int = 0
    delay_end_ms: int = 0


def _has(share: SharePartition, member_id: str, acknowledged: AcknowledgedRange) -> bool:
    place, offset = find(share, acknowledged.first), acknowledged.first
    while offset <= acknowledged.last:
        hold = share.holds[place] if place < len(share.holds) else None
        if hold is None or hold.first > offset or hold.status != ACQUIRED or hold.member_id != member_id:
            return False
        place, offset = place + 1, hold.last + 1
    return True


def _acknowledge_types(acknowledged: AcknowledgedRange) -> Iterator[tuple[int, int, int]]:
    """Runs of equal types: first offset, last offset, acknowledge type."""
    types = acknowledged.acknowledge_types
    if len(types) == 1:
        yield acknowledged.first, acknowledged.last, types[0]
        return
    begin = 0
    for place in range(1, len(types) + 1):
        if place == len(types) or types[place] != types[begin]:
            yield acknowledged.first + begin, acknowledged.first + place - 1, types[begin]
            begin = place


def _overlaps(holds: list[Hold], types: Iterator[tuple[int, int, int]]) -> Iterator[tuple[Hold, tuple[int, int, int]]]:
    """Each hold with each run of types that overlaps it; both are dense, and cover the same offsets."""
    run = next(types)
    for hold in holds:
        while run[1] < hold.last:
            yield hold, run
            run = next(types)
        yield hold, run
        if run[1] == hold.last:
            run = next(types, run)


def _acknowledged(rules: Rules, hold: Hold, acknowledge_type: int, now: _Now) -> Hold:
    if acknowledge_type == AcknowledgeType.REJECT and rules.has_dead_letters:
        return dead(hold, REJECTED, now.sequence)
    if acknowledge_type in (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
        return done(hold.first, hold.last)
    if acknowledge_type == AcknowledgeType.RENEW:
        return msgspec.structs.replace(hold, until_ms=now.lock_end_ms)
    if acknowledge_type == AcknowledgeType.UNREAD:
        return available(hold.first, hold.last, hold.deliveries - 1)
    return _released(rules, hold, now)


def _released(rules: Rules, hold: Hold, now: _Now) -> Hold:
    if hold.deliveries >= rules.delivery_limit:
        return end_of_deliveries(rules, hold, now.sequence)
    return available(hold.first, hold.last, hold.deliveries, now.delay_end_ms)


def release_member(
    state: State,
    rules: Rules,
    share: SharePartition,
    member_id: str,
    *,
    unread: bool,
    acquisitions: range = ANY_ACQUISITION,
) -> bool:
    """Release the member's records of these acquisitions; whether there were any."""
    found = [
        each.status == ACQUIRED and each.member_id == member_id and each.acquisition in acquisitions
        for each in share.holds
    ]
    if not any(found):
        return False
    acknowledge_type = AcknowledgeType.UNREAD if unread else AcknowledgeType.RELEASE
    holds = [
        _acknowledged(rules, hold, acknowledge_type, _Now(state.sequence)) if its else hold
        for hold, its in zip(share.holds, found, strict=True)
    ]
    replace_holds(state, share, 0, len(share.holds), holds)
    drop_done(share)
    return True


def release_overdue(state: State, rules: Rules, share: SharePartition) -> int:
    """End locks and delays by the machine's clock; returns how many records the ended locks held."""
    count = 0
    holds: list[Hold] = []
    for hold in share.holds:
        if not 0 < hold.until_ms <= state.clock_ms:
            holds.append(hold)
        elif hold.status == ACQUIRED:
            count += hold.last - hold.first + 1
            holds.append(_released(rules, hold, _Now(state.sequence)))
        else:
            holds.append(available(hold.first, hold.last, hold.deliveries))
    replace_holds(state, share, 0, len(share.holds), holds)
    drop_done(share)
    share.due_ms = min((each.until_ms for each in share.holds if each.until_ms), default=0)
    return count
