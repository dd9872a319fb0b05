"""What the share groups' APIs have in common: whether there are any, and their members' commands (KIP-932)."""

from collections.abc import Iterable, Sequence

from penstock.contracts.commands import NO_ACQUISITION, Outcome, SharePartition, ShareRecords
from penstock.contracts.ids import is_legal_topic_name
from penstock.contracts.levels import SHARE_GROUPS_LEVEL
from penstock.kafkawire.error_codes import ErrorCode
from penstock.kafkawire.schema import NO_UUID
from penstock_gateway.context import Gateway
from penstock_gateway.kafka.error_mapping import GROUPS_UNAVAILABLE
from penstock_gateway.kafka.feature_levels import may_rise
from penstock_gateway.share.sessions import ShareSession

COMMAND_DEADLINE_S = 5.0
TICKET_BYTES = 7  # positive, and none of one member's like another
NOT_YET = "share groups are off here, or not all sequencers know them yet"


def level_error(gateway: Gateway) -> ErrorCode:
    """What to say where share groups are off or some sequencer knows nothing of them; the latter may end soon."""
    if not gateway.config.share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    level = gateway.sequencer.seen_level
    if level is not None and level >= SHARE_GROUPS_LEVEL:
        return ErrorCode.NONE
    return GROUPS_UNAVAILABLE if level is None or may_rise(gateway) else ErrorCode.UNSUPPORTED_VERSION


async def topic_ids_by_name(gateway: Gateway, names: Iterable[str]) -> dict[str, bytes]:
    """The topics' ids, zeros for those that are not there."""
    asked = list(dict.fromkeys(names))
    found = await gateway.topics.find([name for name in asked if is_legal_topic_name(name)])
    return {name: found[name].topic_id if name in found else NO_UUID for name in asked}


async def share_records(
    gateway: Gateway,
    group_id: str,
    member_id: str,
    partitions: Sequence[SharePartition],
    *,
    records_max: int = 0,
    ended: ShareSession | None = None,
) -> Outcome:
    """What came of a member's acknowledgements and wishes, in one entry; `Unavailable` if that is unknown.

    What it has by a session that has ended goes back, as far as it is in these partitions.
    """
    command = ShareRecords(
        now_ms=gateway.clock.now_ms(),
        group_id=group_id,
        member_id=member_id,
        partitions=list(partitions),
        records_max=records_max,
        releases_through=NO_ACQUISITION if ended is None else ended.acquisition,
        ticket=int.from_bytes(gateway.entropy.take(TICKET_BYTES)) + 1,
        releases_from=NO_ACQUISITION if ended is None else ended.first_acquisition,
    )
    (outcome,) = await gateway.sequencer.command([command], deadline_s=COMMAND_DEADLINE_S)
    return outcome
