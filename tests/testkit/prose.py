"""Checks the English in the repository: sentence lengths, loose words, line lengths.

It reads Markdown pages, docstrings, comments, and the texts of errors, logs and command lines.
`python -m tests.testkit.prose PATH...` lists the places to mend in files and folders.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

WORD_LIMITS = {"page": 25, "code": 20}  # words in one sentence
MARKDOWN_LINE_MAX = 100  # characters; tables, headings and links may be longer

# Words without a clear subject, and private names for standard terms. The values say what to write instead.
LOOSE_WORDS = {
    r"whoever|whomever|whosoever": "name the subject",
    r"whatever|whichever(?= (is|was|comes|has))": "name the thing",
    r"somebody|nobody|everybody|anybody|no one|someone|everyone|anyone": "name the subject: a client, a process",
    r"one's|somebody's|nobody's|else's": "name the owner",
    r"^(?:who|what|that which)(?= [^?]*$)": "begin with a noun",
    r"that which|those who|those which|he who|she who|they who|all who|all those|of those that": "name the subject",
    r"(?:of|for|to|than|and|but|or|by|from|as|if) who": "name the subject",
    r"(?:of|than|and|but|or|by|from|as|is|in|on|all|to|with) what(?! to| happens)": "name the thing",
    r"history|histories": "catch-up reads, old data",
    r"news": "new data, tailing reads",
    r"replays? of (readers|clients|consumers)": "catch-up reads",
    r"pace|paces|paced": "throttle, rate",
    r"keeps? house|house rules|household": "housekeeping, maintenance",
    r"told|tells|tell|telling": "reported, sent, answered",
    r"says|said|saying": "reports, states, contains",
    r"forget|forgets|forgot|forgotten|forgetting": "remove, delete from memory",
    r"lets? go|letting go|let go": "release, remove",
    r"chores?": "task, task lease",
    r"claim(s|ed|ing)?": "job lease, acquire",
    r"condemn(s|ed|ing)?|doom(s|ed)?": "dead, pending delete",
    r"pieces?": "fragment, range",
    r"portions?": "partition read",
    r"refusals?|objections?|verdicts?": "rejection, validation error, result",
    r"whole segments?": "full-object read",
    r"run maps?": "offset index",
    r"patience|impatient|patient": "timeout",
    r"wish(es|ed)?|believ(e|es|ed|ing)|content with": "no personification",
    r"departures?": "departed member",
    r"by and by|meanwhile it": "plain words",
    r"trouble|mishap|estate|fate": "error, state",
}
_LOOSE = [
    (re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE), advice) for words, advice in LOOSE_WORDS.items()
]

_CODE_SPAN = re.compile(r"``[^`]*``|`[^`]*`")
_MENTION = re.compile(r"(?<![*\w])\*[^*\s]+\*(?![*\w])")  # a word in italics stands for itself
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE_END = re.compile(r"(?<=[.!?:])[\"')\]*]*\s+|\n\n+")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|No)\.", re.IGNORECASE)
_PRAGMA = re.compile(r"^#!|^#:|noqa|type: ignore|pragma:|fmt: (on|off)|made: ")
_LIST_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+")


class Place(Enum):
    """Where a text stands; the length of its sentences depends on it."""

    PAGE = "page"
    DOCSTRING = "docstring"
    COMMENT = "comment"
    MESSAGE = "message"


class Text(NamedTuple):
    """One run of English, with code spans and links still in it."""

    path: str
    line: int
    place: Place
    words: str


class Finding(NamedTuple):
    """A place to mend."""

    path: str
    line: int
    why: str


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Every text of one file; none for a file that is neither Python nor Markdown."""
    if path.endswith(".md"):
        yield from _markdown_texts(path, source)
    elif path.endswith(".py"):
        yield from _comments(path, source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _docstring(path, node)
            elif isinstance(node, ast.Assert | ast.Call):
                yield from _message(path, node)


def sentences(text: Text) -> list[str]:
    """The sentences of a text; a code span counts as one word."""
    plain = _LINK.sub(r"\1", _MENTION.sub("WORD", _CODE_SPAN.sub("CODE", text.words)))
    plain = _ABBREVIATION.sub(lambda found: found[0].replace(".", ""), plain)
    return [each.strip() for each in _SENTENCE_END.split(plain) if each and re.search(r"\w", each)]


def word_count(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def loose_words(sentence: str) -> list[tuple[str, str]]:
    """The loose words of a sentence, each with the advice for it; a question may begin with its pronoun."""
    return [(found[0], advice) for pattern, advice in _LOOSE for found in pattern.finditer(sentence)]


def findings(path: str, source: str) -> Iterator[Finding]:
    """All places to mend in one file."""
    for text in texts_of(path, source):
        yield from long_sentences(text)
        yield from loose_sentences(text)
    if path.endswith(".md"):
        yield from long_lines(path, source)


def long_sentences(text: Text) -> Iterator[Finding]:
    limit = WORD_LIMITS["page" if text.place is Place.PAGE else "code"]
    for sentence in sentences(text):
        words = word_count(sentence)
        if words > limit:
            yield Finding(text.path, text.line, f"{words} words, at most {limit}: {sentence[:90]} ...")


def loose_sentences(text: Text) -> Iterator[Finding]:
    for sentence in sentences(text):
        for word, advice in loose_words(sentence):
            yield Finding(text.path, text.line, f"'{word}' ({advice}): {sentence[:90]}")


def long_lines(path: str, source: str) -> Iterator[Finding]:
    """Lines of a page above the limit; a table row, a heading or one long word cannot be broken."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        if is_code or line.lstrip().startswith(("|", "#")) or " " not in line.strip():
            continue
        if len(line) > MARKDOWN_LINE_MAX:
            yield Finding(path, number, f"{len(line)} characters, at most {MARKDOWN_LINE_MAX}")


def _markdown_texts(path: str, source: str) -> Iterator[Text]:
    block: list[str] = []
    began, is_code = 1, False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith("```"):
            is_code = not is_code
            bare = ""
        starts_anew = not bare or is_code or bare.startswith(("#", "|", "<!--")) or _LIST_ITEM.match(line)
        if starts_anew and block:
            yield Text(path, began, Place.PAGE, " ".join(block))
            block = []
        if not bare or is_code or bare.startswith("<!--") or set(bare) <= set("|-: "):
            continue
        if bare.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", bare)]
            yield from (Text(path, number, Place.PAGE, cell) for cell in cells if cell)
        elif bare.startswith("#"):
            yield Text(path, number, Place.PAGE, bare.lstrip("# "))
        else:
            began = began if block else number
            block.append(_LIST_ITEM.sub("", bare))


def _docstring(path: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Text]:
    docstring = ast.get_docstring(node)
    if docstring:
        yield from _paragraphs(path, node.body[0].lineno, docstring)


def _paragraphs(path: str, line: int, docstring: str) -> Iterator[Text]:
    """Paragraphs and list items; what is indented deeper or laid out in columns is a drawing or a table."""
    block: list[str] = []
    for each in [*docstring.splitlines(), ""]:
        is_drawing = each.startswith("    ") or re.search(r"\S {3,}\S", each) is not None
        if (not each.strip() or is_drawing or _LIST_ITEM.match(each)) and block:
            yield Text(path, line, Place.DOCSTRING, " ".join(block))
            block = []
        if each.strip() and not is_drawing:
            block.append(_LIST_ITEM.sub("", each.strip()))


def _comments(path: str, source: str) -> Iterator[Text]:
    """Comments of following lines in one column are one text."""
    block: list[str] = []
    began = last = column = -2
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _PRAGMA.search(token.string):
            continue
        number, start = token.start
        if block and (number != last + 1 or start != column):
            yield Text(path, began, Place.COMMENT, " ".join(block))
            block = []
        if not block:
            began, column = number, start
        last = number
        block.append(token.string.lstrip("#").strip())
    if block:
        yield Text(path, began, Place.COMMENT, " ".join(block))


def _message(path: str, node: ast.Assert | ast.Call) -> Iterator[Text]:
    """Texts of errors, assertions, log events, prints and help: literals in calls, raises and asserts."""
    if isinstance(node, ast.Assert):
        if node.msg is not None:
            yield from _literal(path, node.msg)
    elif _logs(node.func) and node.args:
        yield from _event(path, node.args[0])
    elif _speaks(node.func):
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            yield from _literal(path, argument)


def _speaks(function: ast.expr) -> bool:
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    return name in {"print", "add_argument", "add_parser", "ArgumentParser", "error", "exit"} or name[:1].isupper()


def _logs(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"


def _event(path: str, node: ast.expr) -> Iterator[Text]:
    """The words of a log event, whose name is in snake case."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield Text(path, node.lineno, Place.MESSAGE, node.value.replace("_", " "))


def _literal(path: str, node: ast.expr) -> Iterator[Text]:
    words = ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values]
        words = "".join(str(part) for part in parts)
    if " " in words.strip():
        yield Text(path, node.lineno, Place.MESSAGE, words)


def files_below(path: Path) -> list[Path]:
    """The files with English of a folder, or the file itself."""
    return sorted([*path.rglob("*.py"), *path.rglob("*.md")]) if path.is_dir() else [path]


if __name__ == "__main__":
    files = [file for path in sys.argv[1:] for file in files_below(Path(path))]
    found = [finding for file in files for finding in findings(str(file), file.read_text())]
    print(*(f"{finding.path}:{finding.line}: {finding.why}" for finding in found), sep="\n")
    print(f"{len(found)} places to mend in {len(files)} files", file=sys.stderr)
    raise SystemExit(bool(found))
