"""Generation of Python source line by line, and its compilation, for the decoder and the encoder."""

import struct
from collections.abc import Callable
from typing import Any

Message = Any  # a struct of some API; the caller knows its type from the API's key

_INDENT = "    "


class Source:
    """The lines of one function, its local names, and the values that it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.values: dict[str, Any] = {}
        self._names = 0
        self._constants: dict[tuple[str, int], str] = {}
        self._kept: list[Any] = []

    def add(self, *lines: str) -> None:
        """Write lines at the current depth."""
        self.lines += [_INDENT * self.depth + line for line in lines]

    def open(self, line: str) -> None:
        """Write a line that opens a block, and enter the block."""
        self.add(line)
        self.depth += 1

    def close(self) -> None:
        """Leave the innermost block."""
        self.depth -= 1

    def local(self, stem: str) -> str:
        """A new local name."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, value: Any, stem: str) -> str:
        """The name by which the function refers to this object."""
        key = (stem, id(value))
        if key not in self._constants:
            self._constants[key] = name = f"{stem.upper()}_{len(self._constants)}"
            self.values[name] = value
            self._kept.append(value)
        return self._constants[key]

    def build(self, signature: str, names: dict[str, Any]) -> Callable[..., Any]:
        """Compile the lines as the body of `def run(signature)`."""
        text = "\n".join([f"def run({signature}):", *self.lines])
        namespace: dict[str, Any] = {**names, **self.values}
        exec(compile(text, "<kafkawire>", "exec"), namespace)  # noqa: S102 - made from our own schema, never from input
        function: Callable[..., Any] = namespace["run"]
        return function


class Run:
    """Adjacent fixed-size fields, collected so that one `struct` call reads or writes all of them."""

    def __init__(self) -> None:
        self.formats: list[str] = []
        self.terms: list[str] = []

    def add(self, format_character: str, term: str) -> None:
        """Append a field; `term` is the name or expression of its value."""
        self.formats.append(format_character)
        self.terms.append(term)

    def take(self) -> tuple[str, list[str]]:
        """The format and the terms of this run; the next run starts empty."""
        taken = ">" + "".join(self.formats), self.terms
        self.formats, self.terms = [], []
        return taken


def size_of(layout: str) -> int:
    """The size of a `struct` layout in bytes."""
    return struct.calcsize(layout)
