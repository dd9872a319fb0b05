"""Counts the work of code in bytecode instructions: the same number on every machine, busy or not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Work:
    """The instructions of this thread in functions that were called, or went on, since the count began.

    Work inside of C functions is not counted.
    """

    instructions = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """A trace function for `sys.settrace`."""
        if event == "opcode":
            self.instructions += 1
        else:
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.trace


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work of the block. It takes some fifty times as long, so the block should be small."""
    work, before = Work(), sys.gettrace()
    sys.settrace(work.trace)
    try:
        yield work
    finally:
        sys.settrace(before)
