"""Python source that is written by the line and compiled once: the workbench of the decoder and the encoder."""

import struct
from collections.abc import Callable
from typing import Any

Message = Any  # a struct of some API; which one, the caller knows from the API's key

_INDENT = "    "


class Source:
    """Lines of one function, its local names, and the values that it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.values: dict[str, Any] = {}
        self._names = 0
        self._constants: dict[tuple[str, int], str] = {}
        self._kept: list[Any] = []

    def add(self, *lines: str) -> None:
        """Write lines at the present depth."""
        self.lines += [_INDENT * self.depth + line for line in lines]

    def open(self, line: str) -> None:
        """Write a line that opens a block, and go into it."""
        self.add(line)
        self.depth += 1

    def close(self) -> None:
        """Leave the innermost block."""
        self.depth -= 1

    def local(self, stem: str) -> str:
        """A fresh local name."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, value: Any, stem: str) -> str:
        """The name under which the function finds this very object."""
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
        exec(compile(text, "<kafkawire>", "exec"), namespace)  # noqa: S102 - written from our own schema, never from input
        function: Callable[..., Any] = namespace["run"]
        return function


class Run:
    """Neighbouring fixed-size fields, gathered so that one `struct` call reads or writes them all."""

    def __init__(self) -> None:
        self.formats: list[str] = []
        self.terms: list[str] = []

    def add(self, format_character: str, term: str) -> None:
        """Put a field behind those gathered; `term` is the name or expression of its value."""
        self.formats.append(format_character)
        self.terms.append(term)

    def take(self) -> tuple[str, list[str]]:
        """The format and the terms gathered, which starts the next run."""
        taken = ">" + "".join(self.formats), self.terms
        self.formats, self.terms = [], []
        return taken


def size_of(layout: str) -> int:
    """The bytes of a `struct` layout."""
    return struct.calcsize(layout)
