"""Messages that are neither commands nor queries: flushes, cache reads, announcements and presence."""

from collections.abc import Iterable

import msgspec

from penstock.contracts.batches import BatchMeta, BatchResult, Extent, Marker, SegmentRef
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.ids import DEFAULT_POOL, TopicId

POOLED_ROLES = ("gateway", "flusher", "cacher")


class FlushBatch(msgspec.Struct, frozen=True, array_like=True):
    """One produced batch; its bytes are in the payload, which holds all batches in this order."""

    topic_id: TopicId
    partition: int
    meta: BatchMeta


class FlushProduce(msgspec.Struct, frozen=True, array_like=True):
    """One client's Produce request, or one part of it.

    One gateway sends all parts of a request one after the other. The flusher puts them together in one buffer, and so
    in one segment (docs/design.md, section 3).
    """

    request: int  # unique within the gateway's instance
    part: int  # from 0
    parts: int
    batches: list[FlushBatch]
    # Whether the gateway must confirm it before its commit: without a producer id, a late copy is not recognised.
    needs_confirmation: bool = False
    principal: str = ""  # the client's; "" for ANONYMOUS (ADR 0040)
    is_express: bool = False  # all its topics have the express lane (ADR 0045)
    trace: str = ""  # of a sampled request: its span (ADR 0051)


class FlushRequest(msgspec.Struct, frozen=True, array_like=True):
    """The head of a flush message: produce requests in the order in which their connections sent them."""

    gateway: str
    produces: list[FlushProduce]


class FlushReply(msgspec.Struct, frozen=True, array_like=True):
    """The result of each batch, in one list per produce of the message, as of journal sequence `sequence`."""

    sequence: int
    results: list[list[BatchResult]]
    throttle_ms: int = 0


class ConfirmRequest(msgspec.Struct, frozen=True, array_like=True):
    """Asks a gateway whether its clients still wait for these produce requests, which are about to be committed."""

    requests: list[int]


class ConfirmReply(msgspec.Struct, frozen=True, array_like=True):
    """For each request how long it may still be committed, in ms; 0 if it was given up (ADR 0024)."""

    leases_ms: list[int]


class SegmentRead(msgspec.Struct, frozen=True, array_like=True):
    """A range of a segment: `length` bytes from `position`; the reader probably needs the next `ahead` bytes soon."""

    segment: SegmentRef
    position: int
    length: int
    ahead: int = 0


class CacheRequest(msgspec.Struct, frozen=True, array_like=True):
    """The ranges to read; the sender keeps their sum, with the reply's head, within the largest message of the bus.

    With `loads_only` the cacher loads the ranges for a coming read, and sends no bytes.
    """

    reads: list[SegmentRead]
    loads_only: bool = False
    trace: str = ""  # of a sampled request: the span that waits for the answer (ADR 0051)


class CacheReply(msgspec.Struct, frozen=True, array_like=True):
    """The head of the reply: for each range the length of its bytes in the payload, or -1 if they are not available."""

    lengths: list[int]


class PartitionAdvance(msgspec.Struct, frozen=True, array_like=True):
    """The change of one partition; its extents begin where the last announced extents ended."""

    topic_id: TopicId
    partition: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    extents: list[Extent]
    markers: list[Marker] = []  # one for each extent that is a marker


class Advanced(msgspec.Struct, frozen=True, array_like=True):
    """The effects of the journal entry `sequence`. There is one message per entry, so a lost message shows as a gap."""

    sequence: int
    partitions: list[PartitionAdvance]
    topics: list[str]  # names of created, changed and deleted topics
    level: int = 0  # the level of the cluster
    quotas_sequence: int = 0  # the last entry that changed client quotas, 0 if there is none
    security_altered_sequence: int = 0  # the last entry that changed users or bindings, 0 if there is none
    tokens_altered_sequence: int = 0  # the last entry that changed a delegation token, 0 if there is none
    metrics_altered_sequence: int = 0  # the last entry that changed a subscription to metrics, 0 if there is none
    dead_letter_groups: int = 0  # how many share groups have pending dead letters


class ListenerAddress(msgspec.Struct, frozen=True, array_like=True):
    """The address that clients of the listener `name` get in Metadata and FindCoordinator responses."""

    name: str
    host: str
    port: int


class QuotaUse(msgspec.Struct, frozen=True, array_like=True):
    """The recent use of one client quota at one gateway, by all clients that share the quota."""

    key: str
    who: Entity
    per_second: float


class ClusterUse(msgspec.Struct, frozen=True, array_like=True):
    """The quotas in bytes of a virtual cluster (0: no limit), and its present use, as one sequencer knows them."""

    produced_bytes_per_s_max: int = 0
    consumed_bytes_per_s_max: int = 0
    stored_bytes_max: int = 0
    stored_bytes: int = 0  # of live records, as they are stored
    partitions: int = 0


class Presence(msgspec.Struct, frozen=True, array_like=True):
    """The presence of one instance, published every second; after three missed seconds the instance counts as gone."""

    role: str  # gateway, flusher, sequencer, cacher
    zone: str
    instance: str
    version: str
    http: str = ""  # host:port of health and metrics
    load_bytes: int = 0  # bytes of requests that are not answered yet
    budget_bytes: int = 0  # limit of load_bytes, over all senders
    leaving: bool = False  # draining: send nothing new
    listeners: tuple[ListenerAddress, ...] = ()  # gateways only
    quota_use: tuple[QuotaUse, ...] = ()  # gateways only
    pool: str = DEFAULT_POOL  # see `shown_pool` (ADR 0060)
    started_ms: int = 0  # when the process started, by its wall clock; 0 from older releases
    # Sequencers: the newest entry applied. Gateways: the newest announcement applied. -1 for none, or an older release.
    journal_sequence: int = -1
    journal_ms: int = -1  # sequencers only: the state's clock at that entry
    cluster_use: ClusterUse | None = None  # sequencers only, while they serve
    seen_sequence: int = 0  # the newest journal entry in an answer of a sequencer; 0 from older releases


def newest_cluster_use(presences: Iterable[Presence]) -> ClusterUse | None:
    """The use that the sequencer has announced that has applied most; None if none has."""
    announced = [each for each in presences if each.cluster_use is not None]
    return max(announced, key=lambda each: each.journal_sequence).cluster_use if announced else None


def shown_pool(presence: Presence) -> str:
    """The pool of an instance for people; "-" for a role without pools."""
    return presence.pool if presence.role in POOLED_ROLES else "-"


class HeardMember(msgspec.Struct, frozen=True, array_like=True):
    """A group member that sent a heartbeat to a replica."""

    group_id: str
    member_id: str


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """The members that the replica heard from since its last message of this kind, and the replica's level."""

    replica: str
    members: list[HeardMember]
    level: int = 0  # the newest level that the replica's code knows


class ExplainRequest(msgspec.Struct, frozen=True, array_like=True):
    """The question why the object with this key is kept or deleted."""

    key: str


class ExplainReply(msgspec.Struct, frozen=True, array_like=True):
    """A janitor's answer: the state of the object (`live`, `orphan`, ...), the reason as a sentence, and the facts."""

    state: str
    reason: str
    facts: dict[str, str] = {}
    failure: str | None = None
