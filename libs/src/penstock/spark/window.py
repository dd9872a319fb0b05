"""Bytes that come in pieces, as one sequence."""

from collections.abc import Iterable

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt


class Window:
    """Pieces of bytes as one sequence, of which as little as possible is copied."""

    def __init__(self, fragments: Iterable[Buffer]) -> None:
        self._fragments = iter(fragments)
        self._fragment = memoryview(b"")
        self._position = 0

    def peek(self, size: int) -> memoryview:
        """The next bytes, which stay; `Corrupt` if there are fewer."""
        while len(self._fragment) - self._position < size:
            rest = self._fragment[self._position :]
            following = next(self._fragments, None)
            if following is None:
                raise Corrupt(f"the bytes of a split end {size - len(rest)} bytes too early")
            self._fragment = memoryview(b"".join((rest, following))) if len(rest) else memoryview(following)
            self._position = 0
        return self._fragment[self._position : self._position + size]

    def take(self, size: int) -> memoryview:
        """The next bytes."""
        taken = self.peek(size)
        self._position += size
        return taken

    def skip(self, size: int) -> None:
        """Leave the next bytes out."""
        while size > len(self._fragment) - self._position:
            size -= len(self._fragment) - self._position
            self._fragment, self._position = memoryview(b""), 0
            self._fragment = memoryview(next(self._fragments, b""))
            if not len(self._fragment):
                raise Corrupt(f"the bytes of a split end {size} bytes too early")
        self._position += size
