"""Values over time, by the journal's sequence: an answer is compared with the values since its question."""

from bisect import bisect_right
from typing import Generic, TypeVar

T = TypeVar("T")


class Past(Generic[T]):
    """A value with all its former values."""

    __slots__ = ("_sequences", "_values")

    def __init__(self, first: T, sequence: int = 0) -> None:
        self._sequences = [sequence]
        self._values = [first]

    @property
    def now(self) -> T:
        """The present value."""
        return self._values[-1]

    def set(self, sequence: int, value: T) -> None:
        """Change the value by an entry. An entry with several commands may change it several times."""
        if value != self._values[-1]:
            self._sequences.append(sequence)
            self._values.append(value)

    def during(self, first: int, last: int) -> list[T]:
        """All values that were true at some time between two entries, both included."""
        start = max(bisect_right(self._sequences, first) - 1, 0)
        return self._values[start : bisect_right(self._sequences, last)]
