"""Limits the received bytes of all connections, and the part of them that incomplete frames may take. Pure.

A client may announce a frame of 100 MiB and never complete it. So a large frame is received only with a reservation of
its whole size. All reservations together take at most half of the budget. The other half is for complete frames and
small ones, which every connection may receive at any time. A connection that must wait for its reservation is called
back when others have given theirs back.
"""

from collections.abc import Iterator
from typing import Protocol

from penstock_gateway.kafka.shared_limit import Share, SharedLimit

# A frame of this size needs no reservation.
SMALL_FRAME_BYTES = 64 * 1024
# All reservations together take at most this part of the budget.
RESERVED_FRACTION = 2


class Reader(Protocol):
    """A connection that reads when the budget allows it."""

    @property
    def partial_bytes(self) -> int:
        """How many bytes it holds of an incomplete frame."""

    @property
    def partial_frame(self) -> tuple[int, int]:
        """The number of its incomplete frame, and that frame's announced size; 0 while the size is unknown."""

    def on_room(self) -> None:
        """The budget may allow reading again."""


class ReceiveBudget:
    """Bytes that all connections together may hold: received, and not answered.

    When the budget is spent, all connections stop reading. If complete frames hold less than half of it, their answers
    may never free enough. Only in that case, one connection with an incomplete frame may read on until it is complete.
    """

    def __init__(self, bytes_max: int, share: Share | None = None) -> None:
        """`share`: of a limit of the process that other clusters use, too."""
        self._bytes_max = bytes_max
        self._share = share or SharedLimit(bytes_max).join()
        self.held_bytes = 0
        self.complete_bytes = 0  # of frames that are complete and not answered
        self.reserved_bytes = 0  # for incomplete frames, whether received or not
        self.granted_bytes = 0  # all reservations so far
        self._waiting: dict[Reader, None] = {}  # for room in the budget
        self._queue: dict[Reader, None] = {}  # for a reservation
        self._reservations: dict[Reader, tuple[int, int]] = {}  # the frame's number and size

    @property
    def is_spent(self) -> bool:
        """Whether all connections must wait."""
        return self._share.is_spent()

    @property
    def is_contended(self) -> bool:
        """Whether incomplete frames keep other clients waiting."""
        return bool(self._queue) or (self.is_spent and self._may_favour)

    def may_read(self, reader: Reader) -> bool:
        """Whether to read now; if not, `on_room` is called later."""
        has_reservation = self._reserve(reader)
        if not self.is_spent:
            self._waiting.pop(reader, None)
            return has_reservation
        self._waiting[reader] = None
        return self._favoured() is reader

    def pause(self, reader: Reader) -> None:
        """Record that a reader reads nothing for a reason of its own. It calls `may_read` when that is over.

        The reader keeps only the reservation of a frame that is not complete.
        """
        if self._reservations.get(reader, reader.partial_frame) != reader.partial_frame:
            self._give_back(reader)
        if reader in self._waiting:
            del self._waiting[reader]
            self._wake()

    def remove(self, reader: Reader) -> None:
        """Remove a reader that is gone."""
        self._waiting.pop(reader, None)
        self._queue.pop(reader, None)
        self._give_back(reader)
        self._wake()

    def hold(self, size_bytes: int) -> None:
        """Count received bytes."""
        self.held_bytes += size_bytes
        self._share.used = self.held_bytes

    def begin_frame(self, size_bytes: int) -> None:
        """Count a complete frame; its bytes are held already."""
        self.complete_bytes += size_bytes

    def release(self, size_bytes: int, complete_bytes: int) -> None:
        """Give back bytes that were answered or dropped; `complete_bytes` is the part in complete frames."""
        self.held_bytes -= size_bytes
        self._share.used = self.held_bytes
        self.complete_bytes -= complete_bytes
        if self._waiting:
            self._wake()

    def look_again(self) -> None:
        """Wake readers if other clusters of the process have freed enough."""
        if self._waiting:
            self._wake()

    def _reserve(self, reader: Reader) -> bool:
        """Whether the reader needs no reservation, or has one; if not, it waits for one."""
        frame = reader.partial_frame
        if self._reservations.get(reader) == frame:
            return True
        self._give_back(reader)
        if frame[1] <= SMALL_FRAME_BYTES:
            self._queue.pop(reader, None)
            return True
        if not self._has_room(frame[1]):
            self._queue[reader] = None
            return False
        self._grant(reader, frame)
        return True

    def _has_room(self, size_bytes: int) -> bool:
        """A frame above the limit is received alone: its connection would wait for ever otherwise."""
        return not self._reservations or self.reserved_bytes + size_bytes <= self._bytes_max // RESERVED_FRACTION

    def _grant(self, reader: Reader, frame: tuple[int, int]) -> None:
        self._queue.pop(reader, None)
        self._reservations[reader] = frame
        self.reserved_bytes += frame[1]
        self.granted_bytes += frame[1]

    def _give_back(self, reader: Reader) -> None:
        frame = self._reservations.pop(reader, None)
        if frame is None:
            return
        self.reserved_bytes -= frame[1]
        for granted in list(self._grants()):
            granted.on_room()

    def _grants(self) -> Iterator[Reader]:
        """Grant waiting readers their reservations, in order; a small frame may pass a large one that does not fit."""
        for reader in list(self._queue):
            frame = reader.partial_frame
            if self._has_room(frame[1]):
                self._grant(reader, frame)
                yield reader
            elif self.reserved_bytes + SMALL_FRAME_BYTES > self._bytes_max // RESERVED_FRACTION:
                return

    def _wake(self) -> None:
        if not self.is_spent:
            for reader in list(self._waiting):
                reader.on_room()
        elif (favoured := self._favoured()) is not None:
            favoured.on_room()

    @property
    def _may_favour(self) -> bool:
        return self.complete_bytes * 2 < self._bytes_max

    def _favoured(self) -> Reader | None:
        if not self._may_favour:
            return None
        return next((reader for reader in self._waiting if reader.partial_bytes), None)
