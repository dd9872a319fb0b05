"""One connection without its socket: bytes in, frames out in order, answers in any order, bytes out in order.

    bytes --> FrameReader --> next_frame() --> slot per frame
                                                 |  answer(slot, ...) in whatever order they come
    bytes <-- take_output() <-- slots from the front, as far as they are answered

A slot is made for every frame, also for one that gets no answer. Bytes count as held from their receipt until their
frame's slot has left; the budget over all connections is `ReceiveBudget`. Raises `DecodeError` for a frame of a length
that cannot be; the connection is then to be closed.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from penstock.kafkawire.frame import FrameReader
from penstock.kafkawire.primitives import Buffer

LENGTH_BYTES = 4


class Reader(Protocol):
    """Somebody who reads when the budget allows it."""

    @property
    def partial_bytes(self) -> int:
        """How many bytes it holds of a frame that is not complete."""

    def on_room(self) -> None:
        """The budget may allow reading again."""


class ReceiveBudget:
    """Bytes that all connections together may hold: received, and not answered.

    When the budget is spent everybody stops reading. If then no complete frame is left to be answered, nothing would
    ever free it; so in that case, and only then, one that is in the middle of a frame may go on until it is complete.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0
        self.frames = 0  # complete and not answered
        self._waiting: dict[Reader, None] = {}

    @property
    def is_spent(self) -> bool:
        """Whether everybody has to wait."""
        return self.held_bytes >= self._bytes_max

    def may_read(self, reader: Reader) -> bool:
        """Whether to read now; if not, `on_room` is called later."""
        if not self.is_spent:
            self._waiting.pop(reader, None)
            return True
        self._waiting[reader] = None
        return self._favoured() is reader

    def remove(self, reader: Reader) -> None:
        """The reader is gone."""
        self._waiting.pop(reader, None)
        self._wake()

    def hold(self, size_bytes: int) -> None:
        """Bytes were received."""
        self.held_bytes += size_bytes

    def begin_frame(self) -> None:
        """A frame is complete."""
        self.frames += 1

    def release(self, size_bytes: int, frames: int) -> None:
        """Frames were answered, or bytes dropped."""
        self.held_bytes -= size_bytes
        self.frames -= frames
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        if not self.is_spent:
            for reader in list(self._waiting):
                reader.on_room()
        elif (favoured := self._favoured()) is not None:
            favoured.on_room()

    def _favoured(self) -> Reader | None:
        if self.frames:
            return None
        return next((reader for reader in self._waiting if reader.partial_bytes), None)


class Slot:
    """The place of one request among the answers."""

    __slots__ = ("answer", "answer_bytes", "is_in_turn", "is_last", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.answer: Sequence[Buffer] | None = None
        self.answer_bytes = 0
        self.is_in_turn = True  # it runs after those before it that are; not so Produce
        self.is_last = False  # the connection ends when this slot's turn comes


class Pipeline:
    """The state of one connection."""

    def __init__(self, budget: ReceiveBudget, *, frame_bytes_max: int, requests_in_flight_max: int) -> None:
        self._budget = budget
        self._frames = FrameReader(frame_bytes_max)
        self._requests_in_flight_max = requests_in_flight_max
        self._slots: deque[Slot] = deque()
        self._held_bytes = 0
        self._partial_bytes = 0
        self.is_rejected = False  # nothing more is read: the connection ends at some request's turn
        # Of answers that wait for earlier ones, without those that came out of turn: who is to wait until this is
        # less must not be waited for by what it counts.
        self.unsent_bytes = 0
        self.is_finished = False  # the last answer has been taken
        self.get_buffer = self._frames.get_buffer

    @property
    def unanswered(self) -> int:
        """How many requests have not left yet."""
        return len(self._slots)

    @property
    def has_room(self) -> bool:
        """Whether another request may begin."""
        return len(self._slots) < self._requests_in_flight_max and not self.is_rejected

    @property
    def partial_bytes(self) -> int:
        """Bytes received that no frame handed out holds."""
        return self._partial_bytes

    def received(self, size_bytes: int) -> None:
        """So many bytes were put into the buffer that `get_buffer` gave."""
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
        self._budget.begin_frame()
        return slot, frame

    def answer(self, slot: Slot, buffers: Sequence[Buffer]) -> None:
        """The request's answer; no buffers if it gets none."""
        assert slot.answer is None, "a request is answered once"
        slot.answer = buffers
        slot.answer_bytes = sum(map(len, buffers)) if slot.is_in_turn else 0
        self.unsent_bytes += slot.answer_bytes

    def reject(self, slot: Slot) -> None:
        """The connection ends where this request's answer would be; what was asked before is still answered."""
        self.is_rejected = True
        slot.is_last = True
        slot.answer = ()

    def reject_rest(self) -> None:
        """The connection ends after the answers to what was asked so far: what follows is not a frame."""
        slot = Slot(0)
        self._slots.append(slot)
        self._budget.begin_frame()
        self.reject(slot)

    def take_output(self) -> list[Buffer]:
        """What can be sent now: the answers from the front on, up to the first that is still missing."""
        output: list[Buffer] = []
        size_bytes = frames = 0
        slots = self._slots
        while slots and slots[0].answer is not None and not self.is_finished:
            slot = slots.popleft()
            assert slot.answer is not None
            output += slot.answer
            self.unsent_bytes -= slot.answer_bytes
            self.is_finished = slot.is_last
            size_bytes += slot.size_bytes
            frames += 1
        if frames:
            self._held_bytes -= size_bytes
            self._budget.release(size_bytes, frames)
        return output

    def close(self) -> None:
        """Give back what the budget counts; nothing is answered any more."""
        self._budget.release(self._held_bytes, len(self._slots))
        self._held_bytes = 0
        self._slots.clear()
