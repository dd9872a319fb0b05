"""A flush message in progress: its fragments, and its reply when all of them are settled."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.contracts.acls import PRINCIPAL_LENGTH_MAX
from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import encode, split
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import ID_BYTES
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushReply, FlushRequest
from penstock.contracts.rejections import Rejection
from penstock.runtime.bus.bus import Inbound
from penstock_flusher.budget import BATCH_OVERHEAD_BYTES, Budget

BATCH_BYTES_MIN = 61  # the header of a record batch
KEPT_SHARE = 2  # at most this many bytes stay in memory for one byte of a batch
PARTS_MAX = 1_024  # of one request; far more than the largest Kafka frame needs
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1


@dataclass(slots=True, eq=False)
class Message:
    """A flush message. When its last fragment is settled, it is answered and its bytes leave the budget."""

    inbound: Inbound
    budget: Budget
    weight_bytes: int  # in the budget until answered
    results: list[list[BatchResult]]
    unsettled: int
    sequence: int = 0

    async def settle(self, index: int, results: list[BatchResult], sequence: int) -> None:
        """Record the results of the fragment at `index`, which are of journal sequence `sequence`."""
        assert self.unsettled > 0, "a fragment was settled twice"
        self.results[index] = results
        self.sequence = max(self.sequence, sequence)
        self.unsettled -= 1
        if not self.unsettled:
            throttle_ms = self.budget.throttle_ms()
            self.budget.release(self.weight_bytes)
            await self.inbound.respond(encode(FlushReply(self.sequence, self.results, throttle_ms)))


@dataclass(slots=True, eq=False)
class Fragment:
    """One produce request, or one part of it, in one message."""

    gateway: str
    request: int
    part: int
    parts: int
    batches: list[FlushBatch]
    payload: list[memoryview]  # the bytes of each batch
    message: Message
    index: int  # of the produce in its message
    needs_confirmation: bool  # by its gateway, before its commit
    principal: str  # the client's; "" for ANONYMOUS
    is_express: bool
    trace: str  # its span, if its gateway sampled it
    size_bytes: int = field(init=False)
    batch_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = sum(map(len, self.payload))
        self.batch_count = len(self.batches)


def weight_bytes(batches: Sequence[memoryview]) -> int:
    """The weight of a message in the byte budget."""
    return sum(map(len, batches)) + BATCH_OVERHEAD_BYTES * len(batches)


def compact(batches: Sequence[memoryview]) -> list[memoryview]:
    """The batches; a batch is copied if it would keep much more memory alive than its own bytes.

    The buffers of a gateway in this process also hold other requests and batches that it rejected. A segment of a few
    small batches must not keep all of that in memory.
    """
    used_bytes: dict[int, int] = {}
    for view in batches:
        used_bytes[id(view.obj)] = used_bytes.get(id(view.obj), 0) + len(view)
    return [
        view if used_bytes[id(view.obj)] * KEPT_SHARE >= memoryview(view.obj).nbytes else memoryview(bytes(view))
        for view in batches
    ]


def new_message(inbound: Inbound, request: FlushRequest, budget: Budget, weight: int) -> Message:
    """A message with no settled fragment."""
    return Message(inbound, budget, weight, [[] for _ in request.produces], len(request.produces))


def fragments_of(message: Message, request: FlushRequest, batches: Sequence[memoryview]) -> list[Fragment]:
    """The message's fragments, with the bytes of their batches."""
    fragments = []
    first = 0
    for index, produce in enumerate(request.produces):
        end = first + len(produce.batches)
        fragments.append(
            Fragment(
                request.gateway,
                produce.request,
                produce.part,
                produce.parts,
                produce.batches,
                list(batches[first:end]),
                message,
                index,
                produce.needs_confirmation,
                produce.principal,
                produce.is_express,
                produce.trace,
            )
        )
        first = end
    return fragments


def rejected(batches: Sequence[FlushBatch], rejection: Rejection) -> list[BatchResult]:
    """The same rejection for every batch."""
    return [BatchResult(rejection)] * len(batches)


def check_request(request: FlushRequest, payload: Sequence[memoryview]) -> list[memoryview]:
    """The bytes of each batch.

    `Corrupt` for a message that no correct gateway sends; its batches must not get into a segment.
    """
    if not request.produces:
        raise Corrupt(f"flush message of gateway {request.gateway!r} without a produce request")
    for produce in request.produces:
        if not _is_sound(produce):
            raise Corrupt(f"request {produce.request} of gateway {request.gateway!r} has impossible parts or batches")
    return split(payload, [batch.meta.length for produce in request.produces for batch in produce.batches])


def _is_sound(produce: FlushProduce) -> bool:
    if not 0 <= produce.part < produce.parts <= PARTS_MAX or not produce.batches:
        return False
    if len(produce.principal) > PRINCIPAL_LENGTH_MAX:
        return False
    for batch in produce.batches:  # one loop without calls: a request may have a thousand batches
        meta = batch.meta
        if not (
            len(batch.topic_id) == ID_BYTES
            and 0 <= batch.partition <= INT32_MAX
            and BATCH_BYTES_MIN <= meta.length <= INT32_MAX
            and 0 < meta.record_count <= INT32_MAX
            and -INT64_MAX <= meta.max_timestamp <= INT64_MAX
            and -1 <= meta.producer_id <= INT64_MAX
            and -1 <= meta.producer_epoch <= INT16_MAX
            and -1 <= meta.base_sequence <= INT32_MAX
            and -INT16_MAX - 1 <= meta.attributes <= INT16_MAX
            and not meta.principal
        ):
            return False
    return True
