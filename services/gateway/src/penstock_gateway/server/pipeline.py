"""One connection without its socket: bytes in, frames out in order, answers in any order, bytes out in order.

    bytes --> FrameReader --> next_frame() --> slot per frame
                                                 |  answer(slot, ...) in any order
    bytes <-- take_output() <-- slots from the front, as far as they are answered

Every frame gets a slot, also if it gets no answer. Received bytes count as held until their frame's slot has left.
`ReceiveBudget` limits the held bytes of all connections. A frame with an impossible length raises `DecodeError`; then
the connection must be closed.
"""

from collections import deque
from collections.abc import Sequence

from penstock.kafkawire.frame import FrameReader
from penstock.kafkawire.primitives import Buffer
from penstock_gateway.kafka.client import Arrival
from penstock_gateway.server.receive_budget import ReceiveBudget

LENGTH_BYTES = 4


class Slot:
    """The place of one request among the answers."""

    __slots__ = ("answer", "answer_bytes", "arrival", "is_last", "is_serial", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.answer: Sequence[Buffer] | None = None
        self.answer_bytes = 0
        self.arrival = Arrival(0.0, 0)
        self.is_serial = True  # it runs after all earlier serial requests; only Produce is not serial
        self.is_last = False  # the connection ends when this slot is at the front


class Pipeline:
    """The requests and answers of one connection."""

    def __init__(self, budget: ReceiveBudget, *, frame_bytes_max: int, requests_in_flight_max: int) -> None:
        self._budget = budget
        self._frames = FrameReader(frame_bytes_max)
        self._requests_in_flight_max = requests_in_flight_max
        self._slots: deque[Slot] = deque()
        self._held_bytes = 0
        self._partial_bytes = 0
        self._frames_begun = 0
        self.is_rejected = False  # nothing more is read: the connection ends at the place of some request
        # Of serial answers that wait for earlier ones. Other answers would make a deadlock: they may wait for a request
        # that itself waits until these bytes are fewer.
        self.unsent_bytes = 0
        self.is_finished = False  # the last answer has been taken
        self.get_buffer = self._frames.get_buffer

    def set_limits(self, *, frame_bytes_max: int, requests_in_flight_max: int) -> None:
        """Accept frames of this size, and so many requests, from now on."""
        self._frames.set_limit(frame_bytes_max)
        self._requests_in_flight_max = requests_in_flight_max

    @property
    def unanswered(self) -> int:
        """How many requests have no answer that has left."""
        return len(self._slots)

    @property
    def has_room(self) -> bool:
        """Whether another request may begin."""
        return len(self._slots) < self._requests_in_flight_max and not self.is_rejected

    @property
    def partial_bytes(self) -> int:
        """How many received bytes belong to no frame that was handed out."""
        return self._partial_bytes

    @property
    def partial_frame(self) -> tuple[int, int]:
        """The number of the incomplete frame, and its announced size with its length; 0 while that is unknown."""
        return self._frames_begun, self._frames.announced_bytes

    def partial_head(self, size_bytes: int) -> bytes:
        """The first bytes of the incomplete frame, without its length, as far as they were received."""
        return self._frames.head(size_bytes)

    def received(self, size_bytes: int) -> None:
        """Take `size_bytes` that were put into the buffer of `get_buffer`."""
        self._frames.buffer_updated(size_bytes)
        self._partial_bytes += size_bytes
        self._held_bytes += size_bytes
        self._budget.hold(size_bytes)

    def next_frame(self) -> tuple[Slot, memoryview] | None:
        """The next request's slot and its frame; None until one is complete."""
        frame = self._frames.next()
        if frame is None:
            return None
        slot = Slot(len(frame) + LENGTH_BYTES)
        self._partial_bytes -= slot.size_bytes
        self._slots.append(slot)
        self._budget.begin_frame(slot.size_bytes)
        self._frames_begun += 1
        return slot, frame

    def answer(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """Set the request's answer; no buffers if it gets none."""
        assert slot.answer is None, "a request is answered once"
        slot.answer = buffers
        slot.answer_bytes = sum(map(len, buffers)) if slot.is_serial else 0
        self.unsent_bytes += slot.answer_bytes

    def answer_last(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """Set the request's answer, after which the connection ends."""
        self.answer(slot, buffers)
        self.is_rejected = slot.is_last = True

    def reject(self, slot: Slot) -> None:
        """End the connection at the place of this request's answer; earlier requests are still answered."""
        self.is_rejected = True
        slot.is_last = True
        slot.answer = ()

    def reject_rest(self) -> None:
        """End the connection after the answers to all requests so far: the next bytes are not a frame."""
        slot = Slot(0)
        self._slots.append(slot)
        self.reject(slot)

    def take_output(self) -> list[Buffer]:
        """The buffers that can be sent now: the answers from the front on, up to the first missing one."""
        output: list[Buffer] = []
        size_bytes = 0
        slots = self._slots
        while slots and slots[0].answer is not None and not self.is_finished:
            slot = slots.popleft()
            assert slot.answer is not None
            output += slot.answer
            self.unsent_bytes -= slot.answer_bytes
            self.is_finished = slot.is_last
            size_bytes += slot.size_bytes
        if size_bytes:
            self._held_bytes -= size_bytes
            self._budget.release(size_bytes, size_bytes)
        return output

    def move(self, budget: ReceiveBudget) -> None:
        """Count the held bytes in another budget from now on."""
        complete_bytes = self._held_bytes - self._partial_bytes
        self._budget.release(self._held_bytes, complete_bytes)
        self._budget = budget
        budget.hold(self._held_bytes)
        budget.begin_frame(complete_bytes)

    def close(self) -> None:
        """Give the held bytes back to the budget; no request is answered any more."""
        self._budget.release(self._held_bytes, self._held_bytes - self._partial_bytes)
        self._held_bytes = self._partial_bytes = 0
        self._slots.clear()
