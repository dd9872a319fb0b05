"""How produce requests are packed into flush messages that the bus can carry, and their answers told apart; pure."""

from collections.abc import Iterable, Iterator, Sequence

from penstock.contracts.batches import BatchResult
from penstock.contracts.codec import HEAD_BYTES, Buffer
from penstock.contracts.messages import FlushBatch, FlushProduce, FlushReply, FlushRequest
from penstock.contracts.rejections import Rejection

# What the head of a message takes at most: msgpack of ids, counts and a full batch metadata, rounded up.
HEAD_BYTES_PER_MESSAGE = HEAD_BYTES + 128
HEAD_BYTES_PER_PRODUCE = 40
HEAD_BYTES_PER_BATCH = 80
# What a flusher counts for a batch beyond its bytes; the gateway's windows count the same.
OVERHEAD_BYTES_PER_BATCH = 1_024


class Produce:
    """One client's Produce request on its way: what was accepted of it, and what became of that so far."""

    __slots__ = (
        "batches",
        "cost_bytes",
        "deadline_s",
        "number",
        "parts",
        "parts_left",
        "payload",
        "results",
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
        self.cost_bytes = sum(map(len, payload)) + OVERHEAD_BYTES_PER_BATCH * len(batches)
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Forget what an attempt without any effect brought."""
        self.parts = self.parts_left = 0
        self.was_delivered = False
        self.results = [BatchResult(Rejection.OUTCOME_UNKNOWN)] * len(self.batches)


class Part:
    """Consecutive batches of a produce that travel in one message."""

    __slots__ = ("first", "number", "produce", "stop")

    def __init__(self, produce: Produce, number: int, first: int, stop: int) -> None:
        self.produce = produce
        self.number = number
        self.first = first
        self.stop = stop


Message = list[Part]


def batch_bytes_max(message_bytes_max: int) -> int:
    """The largest record batch that fits into one message."""
    return message_bytes_max - HEAD_BYTES_PER_MESSAGE - HEAD_BYTES_PER_PRODUCE - HEAD_BYTES_PER_BATCH


def pack(produces: Iterable[Produce], message_bytes_max: int) -> list[Message]:
    """Messages, none larger than allowed, that hold the produces in order.

    A produce that fits into a message is never split; the parts of one that does not are consecutive.
    """
    room = message_bytes_max - HEAD_BYTES_PER_MESSAGE
    messages: list[Message] = []
    used = room
    for produce in produces:
        parts = list(_parts(produce, room))
        produce.parts = produce.parts_left = len(parts)
        for part, size_bytes in parts:
            if used + size_bytes > room or part.number:
                messages.append([])
                used = 0
            messages[-1].append(part)
            used += size_bytes
    return messages


def _parts(produce: Produce, room: int) -> Iterator[tuple[Part, int]]:
    number = first = 0
    used = HEAD_BYTES_PER_PRODUCE
    for index, batch in enumerate(produce.batches):
        size_bytes = batch.meta.length + HEAD_BYTES_PER_BATCH
        if used + size_bytes > room:
            yield Part(produce, number, first, index), used
            number, first, used = number + 1, index, HEAD_BYTES_PER_PRODUCE
        used += size_bytes
    yield Part(produce, number, first, len(produce.batches)), used


def head_of(message: Message, gateway: str) -> FlushRequest:
    """The head that says what the message's payload is."""
    return FlushRequest(
        gateway,
        [FlushProduce(part.produce.number, part.number, part.produce.parts, _batches(part)) for part in message],
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
    """Whatever comes of it, the message may have had an effect."""
    for part in message:
        part.produce.was_delivered = True


def record_finished(message: Message) -> list[Produce]:
    """The message is answered or given up; the produces of which nothing is on its way any more."""
    finished = []
    for part in message:
        part.produce.parts_left -= 1
        if not part.produce.parts_left:
            finished.append(part.produce)
    return finished
