"""What members of share groups say became of records, on the way to the machine and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.contracts.commands import (
    NO_ACQUISITION,
    SHARE_PARTITIONS_PER_COMMAND_MAX,
    JudgedRange,
    RecordsShared,
    Rejected,
    SharePartition,
    Verdict,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import TopicId
from penstock.kafkawire.api import share_acknowledge, share_fetch
from penstock.kafkawire.error_codes import ErrorCode
from penstock_gateway.context import Gateway
from penstock_gateway.kafka.error_mapping import error_of
from penstock_gateway.metadata.partition_lookup import NO_EPOCH, READ_UNAVAILABLE, Located
from penstock_gateway.share.ack_validation import judged_ranges
from penstock_gateway.share.commands import share_records
from penstock_gateway.share.sessions import ShareSession
from penstock_gateway.tail.tail_index import PartitionKey

SET_FREE = (Verdict.RELEASE,)  # what others may have now

Topics = Iterable[share_fetch.FetchTopic] | Iterable[share_acknowledge.AcknowledgeTopic]


@dataclass(slots=True)
class Acknowledged:
    """What a member said of one partition, and what came of it."""

    key: PartitionKey
    judged: list[JudgedRange] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def acknowledged_of(topics: Topics, located: Located, *, renews: bool) -> dict[PartitionKey, Acknowledged]:
    """What a request says of each partition of which it says anything."""
    found: dict[PartitionKey, Acknowledged] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                key = (topic.topic_id, partition.partition_index)
                found[key] = _acknowledged(key, partition.acknowledgement_batches, located, renews=renews)
    return found


def topic_ids(topics: Topics) -> list[TopicId]:
    """The topics that a request names."""
    return [topic.topic_id for topic in topics]


def _acknowledged(
    key: PartitionKey,
    batches: Sequence[share_fetch.AcknowledgementBatch] | Sequence[share_acknowledge.AcknowledgementBatch],
    located: Located,
    *,
    renews: bool,
) -> Acknowledged:
    topic = located.partition(*key, NO_EPOCH)
    if isinstance(topic, ErrorCode):
        return Acknowledged(key, error=topic)
    judged = judged_ranges(batches, renews=renews)
    if isinstance(judged, str):
        return Acknowledged(key, error=ErrorCode.INVALID_REQUEST, message=judged)
    return Acknowledged(key, judged)


def sets_free(acknowledged: Iterable[Acknowledged]) -> bool:
    """Whether others may have some of these records now."""
    return any(verdict in SET_FREE for each in acknowledged for judged in each.judged for verdict in judged.verdicts)


def record_judged(gateway: Gateway, acknowledged: Acknowledged, outcome: RecordsShared | Rejected, place: int) -> None:
    """What the machine said of the partition at that place of a command."""
    rejection = outcome.rejection if isinstance(outcome, Rejected) else outcome.partitions[place].judged
    acknowledged.error = error_of(rejection)
    if isinstance(outcome, Rejected):
        acknowledged.message = outcome.message or None
    if acknowledged.error:
        gateway.metrics.share_rejected.labels(acknowledged.error.name).inc()
        return
    for each in acknowledged.judged:
        _count(gateway, each)


def _count(gateway: Gateway, judged: JudgedRange) -> None:
    if len(judged.verdicts) == 1:
        counts = {judged.verdicts[0]: judged.last - judged.first + 1}
    else:
        counts = {each: judged.verdicts.count(each) for each in set(judged.verdicts)}
    for verdict, count in counts.items():
        gateway.metrics.share_acknowledged[Verdict(verdict)].inc(count)


async def acknowledge(
    gateway: Gateway,
    group_id: str,
    member_id: str,
    acknowledged: Sequence[Acknowledged],
    *,
    ended: ShareSession | None = None,
) -> int:
    """Have the machine take in what is good of it; how long locks last from now on, in ms, 0 if nobody said.

    With the end of a session all else that the member got through it goes back.
    """
    good = [each for each in acknowledged if not each.error]
    said = [SharePartition(*each.key, each.judged) for each in good]
    gives_back = ended is not None and ended.acquisition != NO_ACQUISITION
    if ended is not None and gives_back:
        named = {each.key for each in good}
        rest = [SharePartition(*key) for key in ended.partitions if key not in named]
        said += rest[: SHARE_PARTITIONS_PER_COMMAND_MAX - len(said)]
    if not said:
        return 0
    try:
        outcome = await share_records(gateway, group_id, member_id, said, ended=ended)
    except Unavailable as error:
        for each in good:
            each.error, each.message = READ_UNAVAILABLE, str(error)
        return 0
    assert isinstance(outcome, RecordsShared | Rejected), f"an unexpected answer to acknowledgements: {outcome}"
    for place, each in enumerate(good):
        record_judged(gateway, each, outcome, place)
    if gives_back or sets_free(good):
        gateway.share_turns.wake(group_id)
    return outcome.lock_duration_ms if isinstance(outcome, RecordsShared) else 0
