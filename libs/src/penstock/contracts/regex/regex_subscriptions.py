"""Patterns of topic names that consumer groups subscribe to: a regular expression that runs in linear time.

Kafka runs such patterns with RE2/J. Python's `re` backtracks, so one pattern could block every replica. This module
runs a Glushkov automaton over the positions of the pattern; an integer holds a set of positions. The whole name must
match.
"""

from penstock.contracts.regex.regex_syntax import (
    END,
    IN_A_LINE,
    NO_LIMIT,
    START,
    BadPattern,
    Choice,
    Node,
    Parser,
    Repeat,
    Sequence,
    Symbols,
    mask_of,
)

PATTERN_LENGTH_MAX = 1_000  # characters
POSITIONS_MAX = 250  # characters and classes, with `{n,m}` expanded; no topic name is longer
STEPS_MAX = 10_000  # of the construction, because repetitions of an empty part take no position
REMEMBERED_STEPS_MAX = 1_024  # of one pattern; at this number all are removed, and computed again when needed

__all__ = ["BadPattern", "Pattern"]


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str, remembered_steps_max: int = REMEMBERED_STEPS_MAX) -> None:
        """Raises `BadPattern`."""
        if len(text) > PATTERN_LENGTH_MAX:
            raise BadPattern(f"longer than {PATTERN_LENGTH_MAX} characters")
        self.names_matched = 0  # calls of `matches`
        self.steps_computed = 0  # steps from a set of positions to the next; a remembered step is not counted
        self._remembered_steps_max = remembered_steps_max
        self._built = 0
        self._symbols: list[int] = []
        self._follow: list[int] = []
        node = Parser(text).parse()
        self._is_nullable, self._first, self._last = self._build(node)
        self._letters: dict[str, int] = {}  # character -> the positions that accept it
        self._starts, self._ends = self._taking(START), self._taking(END)
        self._steps: dict[int, int] = {}  # positions -> the positions that may follow
        self._begin = self._closure(self._first, self._starts)[1]
        self._open_ends = self._find_open_ends()

    @property
    def steps_remembered(self) -> int:
        """The number of steps that are remembered now."""
        return len(self._steps)

    def matches(self, name: str) -> bool:
        """Whether the whole topic name matches."""
        self.names_matched += 1
        reach, now = self._begin, 0
        for letter in name:
            taking = self._letters.get(letter)
            if taking is None:
                taking = self._letters[letter] = self._taking(mask_of(letter))
            now = reach & taking
            if not now:
                return False
            if now & self._open_ends:
                return True
            reach = self._next(now)
        return bool((now | self._closure(reach, self._ends)[0]) & self._last)

    def _find_open_ends(self) -> int:
        """Positions from which on every rest matches: `.*` at the end, as in most patterns."""
        ends = 0
        for position, symbols in enumerate(self._symbols):
            bit = 1 << position
            if symbols & IN_A_LINE == IN_A_LINE and self._follow[position] & self._last & bit:
                ends |= bit
        return ends

    def _next(self, now: int) -> int:
        reach = self._steps.get(now)
        if reach is None:
            if len(self._steps) >= self._remembered_steps_max:
                self._steps.clear()
            reach = self._steps[now] = self._followers(now)
        return reach

    def _followers(self, positions: int) -> int:
        self.steps_computed += 1
        reach = 0
        while positions:
            lowest = positions & -positions
            reach |= self._follow[lowest.bit_length() - 1]
            positions ^= lowest
        return reach

    def _closure(self, reach: int, free: int) -> tuple[int, int]:
        """The positions among `free` that need no character, and all positions that can then come next."""
        passed = 0
        while new := reach & free & ~passed:
            passed |= new
            reach |= self._followers(new)
        return passed, reach

    def _taking(self, mask: int) -> int:
        return sum(1 << position for position, symbols in enumerate(self._symbols) if symbols & mask)

    def _build(self, node: Node) -> tuple[bool, int, int]:
        """Whether the node may be empty, and its first and last positions; also record which positions follow which."""
        self._built += 1
        if self._built > STEPS_MAX:
            raise BadPattern("too many nested repetitions")
        match node:
            case Symbols(mask):
                if len(self._symbols) >= POSITIONS_MAX:
                    raise BadPattern(f"more than {POSITIONS_MAX} characters and classes, with repetitions expanded")
                self._symbols.append(mask)
                self._follow.append(0)
                position = 1 << len(self._symbols) - 1
                return False, position, position
            case Sequence(parts):
                return self._concatenated(parts)
            case Choice(parts):
                built = [self._build(part) for part in parts]
                return any(each[0] for each in built), _union(built, 1), _union(built, 2)
            case Repeat(part, low, high):
                return self._repeat(part, low, high)

    def _concatenated(self, parts: list[Node]) -> tuple[bool, int, int]:
        row = (True, 0, 0)
        for part in parts:
            row = self._join(row, self._build(part))
        return row

    def _join(self, before: tuple[bool, int, int], after: tuple[bool, int, int]) -> tuple[bool, int, int]:
        self._follow_with(before[2], after[1])
        first = before[1] | (after[1] if before[0] else 0)
        last = after[2] | (before[2] if after[0] else 0)
        return before[0] and after[0], first, last

    def _repeat(self, part: Node, low: int, high: int) -> tuple[bool, int, int]:
        row = self._concatenated([part] * low)
        if high == NO_LIMIT:
            _, first, last = again = self._build(part)
            self._follow_with(last, first)
            return self._join(row, (True, again[1], again[2]))
        for _ in range(high - low):
            _, first, last = self._build(part)
            row = self._join(row, (True, first, last))
        return row

    def _follow_with(self, lasts: int, firsts: int) -> None:
        while lasts:
            lowest = lasts & -lasts
            self._follow[lowest.bit_length() - 1] |= firsts
            lasts ^= lowest


def _union(built: list[tuple[bool, int, int]], place: int) -> int:
    union = 0
    for each in built:
        union |= each[place]
    return union
