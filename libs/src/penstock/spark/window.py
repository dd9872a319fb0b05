"""A stream of byte fragments, read as one sequence."""

from collections.abc import Iterable

from penstock.contracts.codec import Buffer
from penstock.contracts.errors import Corrupt


class Window:
    """Byte fragments as one sequence; bytes are copied only where a read crosses fragments."""

    def __init__(self, fragments: Iterable[Buffer]) -> None:
        self._fragments = iter(fragments)
        self._fragment = memoryview(b"")
        self._position = 0

    def peek(self, size: int) -> memoryview:
        """The next bytes, without taking them; `Corrupt` if there are fewer."""
        while len(self._fragment) - self._position < size:
            rest = self._fragment[self._position :]
            following = next(self._fragments, None)
            if following is None:
                raise Corrupt(f"the bytes of a split end {size - len(rest)} bytes too early")
            self._fragment = memoryview(b"".join((rest, following))) if len(rest) else memoryview(following)
            self._position = 0
        return self._fragment[self._position : self._position + size]

    def take(self, size: int) -> memoryview:
        """Take the next bytes."""
        taken = self.peek(size)
        self._position += size
        return taken

    def skip(self, size: int) -> None:
        """Skip the next bytes."""
        while size > len(self._fragment) - self._position:
            size -= len(self._fragment) - self._position
            self._fragment, self._position = memoryview(b""), 0
            self._fragment = memoryview(next(self._fragments, b""))
            if not len(self._fragment):
                raise Corrupt(f"the bytes of a split end {size} bytes too early")
        self._position += size
