"""Packs produce requests into flush messages that the bus can carry, and assigns the replies to the requests. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from penstock.contracts.acls import PRINCIPAL_LENGTH_MAX
from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import HEAD_BYTES, Buffer
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushReply, FlushRequest
from penstock.contracts.rejections import Rejection
from penstock.runtime.traces.traces import TRACE_BYTES_MAX

# Upper bounds of a message's head: msgpack of ids, counts and a full batch metadata, rounded up.
HEAD_BYTES_PER_MESSAGE = HEAD_BYTES + 128
HEAD_BYTES_PER_PRODUCE = 40  # and the bytes of its principal and its trace
PRINCIPAL_BYTES_MAX = 4 * PRINCIPAL_LENGTH_MAX + 5
HEAD_BYTES_PER_BATCH = 80
# The memory that a flusher counts for a batch beyond its bytes; the gateway's windows count the same.
OVERHEAD_BYTES_PER_BATCH = 1_024


class Produce:
    """One client's Produce request in flight: its accepted batches, and their results so far."""

    __slots__ = (
        "batches",
        "cost_bytes",
        "deadline_s",
        "is_express",
        "needs_confirmation",
        "number",
        "parts",
        "parts_left",
        "payload",
        "principal",
        "results",
        "trace",
        "was_delivered",
    )

    def __init__(
        self, number: int, batches: Sequence[FlushBatch], payload: Sequence[Buffer], deadline_s: float
    ) -> None:
        assert len(batches) == len(payload), f"{len(batches)} batches with {len(payload)} payloads"
        self.number = number
        self.batches = batches
        self.payload = payload
        self.deadline_s = deadline_s  # monotonic
        self.needs_confirmation = False
        self.principal = ""
        self.trace = ""
        self.is_express = False
        self.cost_bytes = sum(map(len, payload)) + OVERHEAD_BYTES_PER_BATCH * len(batches)
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Reset the results, after an attempt that had no effect."""
        self.parts = self.parts_left = 0
        self.was_delivered = False
        self.results = [BatchResult(Rejection.OUTCOME_UNKNOWN)] * len(self.batches)


class Part:
    """Consecutive batches of a produce that are sent in one message."""

    __slots__ = ("first", "number", "produce", "stop")

    def __init__(self, produce: Produce, number: int, first: int, stop: int) -> None:
        self.produce = produce
        self.number = number
        self.first = first
        self.stop = stop


Message = list[Part]


def batch_bytes_max(message_bytes_max: int) -> int:
    """The largest record batch that fits into one message."""
    of_produce = HEAD_BYTES_PER_PRODUCE + PRINCIPAL_BYTES_MAX + TRACE_BYTES_MAX
    return message_bytes_max - HEAD_BYTES_PER_MESSAGE - of_produce - HEAD_BYTES_PER_BATCH


def pack(produces: Iterable[Produce], message_bytes_max: int) -> list[Message]:
    """Messages of at most `message_bytes_max` that hold the produces in order.

    A produce that fits into a message is never split. The parts of a larger one are consecutive.
    """
    parts_bytes_max = message_bytes_max - HEAD_BYTES_PER_MESSAGE
    messages: list[Message] = []
    used_bytes = parts_bytes_max
    for produce in produces:
        parts = list(_parts(produce, parts_bytes_max))
        produce.parts = produce.parts_left = len(parts)
        for part, size_bytes in parts:
            if used_bytes + size_bytes > parts_bytes_max or part.number:
                messages.append([])
                used_bytes = 0
            messages[-1].append(part)
            used_bytes += size_bytes
    return messages


def _parts(produce: Produce, parts_bytes_max: int) -> Iterator[tuple[Part, int]]:
    number = first = 0
    head_bytes = HEAD_BYTES_PER_PRODUCE + len(produce.principal.encode()) + len(produce.trace)
    used_bytes = head_bytes
    for index, batch in enumerate(produce.batches):
        size_bytes = batch.meta.length + HEAD_BYTES_PER_BATCH
        if used_bytes + size_bytes > parts_bytes_max:
            yield Part(produce, number, first, index), used_bytes
            number, first, used_bytes = number + 1, index, head_bytes
        used_bytes += size_bytes
    yield Part(produce, number, first, len(produce.batches)), used_bytes


def head_of(message: Message, gateway: str) -> FlushRequest:
    """The head that describes the message's payload."""
    return FlushRequest(
        gateway,
        [_produce_of(part) for part in message],
    )


def _produce_of(part: Part) -> FlushProduce:
    produce = part.produce
    return FlushProduce(
        produce.number,
        part.number,
        produce.parts,
        _batches(part),
        produce.needs_confirmation,
        produce.principal,
        produce.is_express,
        produce.trace,
    )


def payload_of(message: Message) -> list[Buffer]:
    """The record batches of the message in order, not copied."""
    return [buffer for part in message for buffer in part.produce.payload[part.first : part.stop]]


def _batches(part: Part) -> list[FlushBatch]:
    return list(part.produce.batches[part.first : part.stop])


def fits(reply: FlushReply, message: Message) -> bool:
    """Whether a reply has one result for every batch of the message."""
    wanted = [part.stop - part.first for part in message]
    return [len(results) for results in reply.results] == wanted


def record_reply(reply: FlushReply, message: Message) -> None:
    """Write the results into the produces of the message."""
    for part, results in zip(message, reply.results, strict=True):
        part.produce.results[part.first : part.stop] = results


def record_delivered(message: Message) -> None:
    """Record that the message may have had an effect, even if no reply comes."""
    for part in message:
        part.produce.was_delivered = True


def record_finished(message: Message) -> list[Produce]:
    """Record that a message was answered or given up; return the produces that have no more parts in flight."""
    finished = []
    for part in message:
        part.produce.parts_left -= 1
        if not part.produce.parts_left:
            finished.append(part.produce)
    return finished
