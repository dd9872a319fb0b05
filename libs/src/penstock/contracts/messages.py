"""Messages between services other than commands and queries: flushes, cache reads, announcements and presence."""

import msgspec

from penstock.contracts.batches import BatchMeta, BatchResult, Extent, Marker, SegmentRef
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.ids import TopicId


class FlushBatch(msgspec.Struct, frozen=True, array_like=True):
    """One produced batch; its bytes are in the payload, batches one after the other in this order."""

    topic_id: TopicId
    partition: int
    meta: BatchMeta


class FlushProduce(msgspec.Struct, frozen=True, array_like=True):
    """One client's Produce request, or one part of it.

    All parts of a request come one after the other from the same gateway and join again in one buffer, so in one
    segment (DESIGN section 3).
    """

    request: int  # unique within the gateway's life
    part: int  # from 0
    parts: int
    batches: list[FlushBatch]


class FlushRequest(msgspec.Struct, frozen=True, array_like=True):
    """Head of a flush message: produce requests in the order in which their connections sent them."""

    gateway: str
    produces: list[FlushProduce]


class FlushReply(msgspec.Struct, frozen=True, array_like=True):
    """One list per produce of the message, one result per batch, true at journal sequence `sequence`."""

    sequence: int
    results: list[list[BatchResult]]
    throttle_ms: int = 0


class SegmentRead(msgspec.Struct, frozen=True, array_like=True):
    """A range of a segment: `length` bytes from `position`; the reader is likely to want `ahead` more behind them."""

    segment: SegmentRef
    position: int
    length: int
    ahead: int = 0


class CacheRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ranges wanted; the sender keeps their sum, and the reply's head, within the bus's largest message.

    With `loads_only` nothing is answered: somebody is going to want them soon.
    """

    reads: list[SegmentRead]
    loads_only: bool = False


class CacheReply(msgspec.Struct, frozen=True, array_like=True):
    """Head of the reply: per range the length that follows in the payload, or -1 where it could not be had here."""

    lengths: list[int]


class PartitionAdvance(msgspec.Struct, frozen=True, array_like=True):
    """What one partition gained; extents begin where the last announced ones ended."""

    topic_id: TopicId
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]
    markers: list[Marker] = []  # of the extents that are such


class Advanced(msgspec.Struct, frozen=True, array_like=True):
    """What the journal entry `sequence` changed. There is exactly one per entry, so a missing one is seen as a gap."""

    sequence: int
    partitions: list[PartitionAdvance]
    topics: list[str]  # names of topics made, changed or deleted
    level: int = 0  # that the cluster has reached
    quotas_sequence: int = 0  # the entry that changed client quotas last, 0 before there is one


class ListenerAddress(msgspec.Struct, frozen=True, array_like=True):
    """The address that Kafka clients are told who came by the listener of that name."""

    name: str
    host: str
    port: int


class QuotaUse(msgspec.Struct, frozen=True, array_like=True):
    """How much those who share a client quota have used of it lately at one gateway."""

    key: str
    who: Entity
    per_second: float


class Presence(msgspec.Struct, frozen=True, array_like=True):
    """One instance says that it lives, every second; three missed seconds mean that it is gone."""

    role: str  # gateway, flusher, sequencer, cacher
    zone: str
    instance: str
    version: str
    http: str = ""  # host:port of health and metrics
    load_bytes: int = 0  # unanswered bytes held now
    budget_bytes: int = 0  # bytes that all senders together may leave unanswered here
    leaving: bool = False  # draining: send nothing new
    listeners: tuple[ListenerAddress, ...] = ()  # gateways only
    quota_use: tuple[QuotaUse, ...] = ()  # gateways only


class HeardMember(msgspec.Struct, frozen=True, array_like=True):
    """A group member that a replica heard from."""

    group_id: str
    member_id: str


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """Members that the sending replica heard from since its last such message, and what it knows itself."""

    replica: str
    members: list[HeardMember]
    level: int = 0  # the highest that its code knows


class ExplainRequest(msgspec.Struct, frozen=True, array_like=True):
    """Why does the object with this key stay or go?"""

    key: str


class ExplainReply(msgspec.Struct, frozen=True, array_like=True):
    """What a janitor thinks of it: a word (live, waiting, condemned, orphan, ...), a sentence, and what it goes by."""

    verdict: str
    reason: str
    facts: dict[str, str] = {}
    failure: str | None = None
