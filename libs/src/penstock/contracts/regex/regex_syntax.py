"""The syntax of patterns over topic names: the part of RE2's syntax that can matter in a name.

Supported elements:

 - literals, `.`, and `\\Q...\\E`
 - classes with ranges, negation and `[:alpha:]`, and `\\d \\w \\s` with their opposites
 - groups with and without names, the flags `i m s U`, and `|`
 - `* + ? {n} {n,} {n,m}`, lazy or not, which makes no difference for a match of the whole name
 - `^ $ \\A \\z`

Unicode classes and `\\b \\B` are rejected, and everything else that RE2 rejects. Topic names are ASCII, so other
characters are allowed in a pattern but match nothing.
"""

import msgspec

REPEATS_MAX = 1_000  # RE2's
NESTING_MAX = 50

ANY = (1 << 128) - 1
START, END = 1 << 128, 1 << 129  # the symbols of `^` and `$`, which lie between characters
_DIGITS = "0123456789"
_WORD = _DIGITS + "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
NO_LIMIT = -1


class BadPattern(Exception):
    """The pattern is not valid or not supported; the message states why."""


class Symbols(msgspec.Struct, frozen=True):
    """One character of a set: bit n stands for the character with code n."""

    mask: int


class Sequence(msgspec.Struct, frozen=True):
    """All parts, one after the other."""

    parts: list["Node"]


class Choice(msgspec.Struct, frozen=True):
    """One of the parts."""

    parts: list["Node"]


class Repeat(msgspec.Struct, frozen=True):
    """The part, from `low` to `high` times; -1 for no limit."""

    part: "Node"
    low: int
    high: int


Node = Symbols | Sequence | Choice | Repeat


def mask_of(letters: str) -> int:
    mask = 0
    for letter in letters:
        mask |= 1 << ord(letter) if ord(letter) < 128 else 0
    return mask


_CLASSES = {"d": mask_of(_DIGITS), "w": mask_of(_WORD), "s": mask_of(" \t\n\r\f")}
IN_A_LINE = ANY & ~mask_of("\n")  # the characters that `.` accepts
_UPPER, _LOWER = mask_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), mask_of("abcdefghijklmnopqrstuvwxyz")
_NAMED_CLASSES = {
    "alnum": _UPPER | _LOWER | _CLASSES["d"],
    "alpha": _UPPER | _LOWER,
    "digit": _CLASSES["d"],
    "lower": _LOWER,
    "punct": mask_of("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "space": _CLASSES["s"] | mask_of("\v"),
    "upper": _UPPER,
    "word": _CLASSES["w"],
    "xdigit": mask_of(_DIGITS + "abcdefABCDEF"),
}


class Parser:
    """A recursive-descent parser of the pattern's text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._fold = False  # (?i)
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._at < len(self._text):
            raise BadPattern("unexpected )")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        letter = self._peek()
        if not letter:
            raise BadPattern("unexpected end")
        self._at += 1
        return letter

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise BadPattern(f"more than {NESTING_MAX} nested groups")
        branches = [self._sequence()]
        while self._accept("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Choice(branches)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at :] if end < 0 else self._text[self._at : end]
                self._at = len(self._text) if end < 0 else end + 2
                parts += [self._letter(letter) for letter in quoted[:-1]]
                parts += [self._repeated(self._letter(letter)) for letter in quoted[-1:]]
                continue
            parts.append(self._repeated(self._atom()))
        return Sequence(parts)

    def _repeated(self, node: Node) -> Node:
        limits = self._limits()
        if limits is None:
            return node
        self._accept("?")  # lazy: no difference for a match of the whole name
        if self._limits() is not None:
            raise BadPattern("nothing to repeat between two repetitions")
        return Repeat(node, *limits)

    def _limits(self) -> tuple[int, int] | None:
        for sign, limits in (("*", (0, NO_LIMIT)), ("+", (1, NO_LIMIT)), ("?", (0, 1))):
            if self._accept(sign):
                return limits
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None  # as in RE2, a brace that begins no repetition is a literal
        self._at = end + 1
        limits = int(low), (int(high) if high else NO_LIMIT) if comma else int(low)
        if max(limits) > REPEATS_MAX or 0 <= limits[1] < limits[0]:
            raise BadPattern(f"bad repetition {{{low}{comma}{high}}}")
        return limits

    def _atom(self) -> Node:
        letter = self._take()
        if letter in "*+?":
            raise BadPattern(f"nothing to repeat before {letter}")
        if letter == "(":
            return self._group()
        if letter == "[":
            return Symbols(self._class())
        if letter == "\\":
            return self._escape()
        special = {".": IN_A_LINE, "^": START, "$": END}.get(letter)
        return self._letter(letter) if special is None else Symbols(special)

    def _letter(self, letter: str) -> Node:
        return Symbols(self._folded(mask_of(letter)))

    def _folded(self, mask: int) -> int:
        if not self._fold:
            return mask
        upper, lower = mask >> 65 & (1 << 26) - 1, mask >> 97 & (1 << 26) - 1
        return mask | (upper | lower) << 65 | (upper | lower) << 97

    def _escape(self) -> Node:
        letter = self._take()
        if letter in "Az":
            return Symbols(START if letter == "A" else END)
        return Symbols(self._folded(self._escaped(letter)))

    def _escaped(self, letter: str) -> int:
        """The characters that an escape stands for, also in a class."""
        if letter.lower() in _CLASSES:
            mask = _CLASSES[letter.lower()]
            return mask if letter.islower() else ANY & ~mask
        if letter == "x":
            digits = self._text[self._at : self._at + 2]
            if len(digits) < 2 or any(each not in "0123456789abcdefABCDEF" for each in digits):
                raise BadPattern("bad escape \\x")
            self._at += 2
            return mask_of(chr(int(digits, 16)))
        if letter in _ESCAPED:
            return mask_of(_ESCAPED[letter])
        if letter.isalnum():
            raise BadPattern(f"unknown escape \\{letter}")
        return mask_of(letter)

    def _class(self) -> int:
        negated, mask, is_first = self._accept("^"), 0, True
        while is_first or self._peek() != "]":
            is_first = False
            mask |= self._named_class() if self._accept("[:") else self._class_item()
        self._at += 1
        mask = self._folded(mask)
        return ANY & ~mask if negated else mask

    def _named_class(self) -> int:
        end = self._text.find(":]", self._at)
        name = self._text[self._at : end]
        mask = _NAMED_CLASSES.get(name.removeprefix("^")) if end >= 0 else None
        if mask is None:
            raise BadPattern("unknown class")
        self._at = end + 2
        return ANY & ~mask if name.startswith("^") else mask

    def _class_item(self) -> int:
        letter = self._take()
        if letter == "\\":
            low = self._escaped(self._take())
            if low.bit_count() != 1:
                return low
            letter = chr(low.bit_length() - 1)
        following = self._text[self._at + 1 : self._at + 2]
        if self._peek() != "-" or following in ("", "]"):
            return mask_of(letter)
        self._at += 1
        last = self._take()
        if last == "\\":
            high = self._escaped(self._take())
            last = chr(high.bit_length() - 1) if high.bit_count() == 1 else ""
        if last < letter:
            raise BadPattern(f"bad range {letter}-{last}")
        return sum(1 << code for code in range(ord(letter), min(ord(last), 127) + 1))

    def _group(self) -> Node:
        fold = self._fold
        if self._accept("?") and not self._accept(":") and not self._named():
            flags = self._flags()
            if self._accept(")"):
                return self._rest_with(flags)
            if not self._accept(":"):
                raise BadPattern("unknown group")
            self._fold = flags
        node = self._choice()
        self._fold = fold
        if not self._accept(")"):
            raise BadPattern("missing )")
        return node

    def _rest_with(self, flags: bool) -> Node:
        """Flags without a group apply to the rest of the group around them."""
        self._fold = flags
        return Sequence([])

    def _named(self) -> bool:
        if not (self._accept("P<") or (not self._text[self._at :].startswith(("<=", "<!")) and self._accept("<"))):
            return False
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not name or any(letter not in _WORD for letter in name):
            raise BadPattern("bad group name")
        self._at = end + 1
        return True

    def _flags(self) -> bool:
        """Whether letter case is ignored from here on; `m`, `s` and `U` do not matter in a topic name."""
        fold, value = self._fold, True
        while self._peek() not in ("", ":", ")"):
            letter = self._take()
            if letter == "i":
                fold = value
            elif letter == "-" and value:
                value = False
            elif letter not in "msU":
                raise BadPattern(f"unknown group (?{letter}")
        return fold


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 4 and all(letter in _DIGITS for letter in text)
