"""The parser of the `penstock` command. Its errors suggest the nearest word; a command is imported when it is used."""

import argparse
import difflib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, Protocol

import msgspec

_WRONG_CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<choices>.*)\)$", re.DOTALL)
_HELP_COLUMN = 16


class NewParser(Protocol):
    """Creates the parser of one command, whose name and short help stand in the table of commands."""

    def __call__(self, *, description: str) -> argparse.ArgumentParser: ...


class Command(msgspec.Struct, frozen=True):
    """A command of the table: the module whose `add_parser` describes it, and its short help."""

    module: str
    help: str


class Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the nearest command, choice or flag."""

    def error(self, message: str) -> NoReturn:
        """End the process with code 2, after the usage and the error with a suggestion."""
        super().error(with_suggestion(message) + self._where_missing_words_are(message))

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As its parent. An unknown flag is the error of the command that it was given to, with its usage."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._nearest_flag(unknown[0])}")
        return found, unknown

    def _nearest_flag(self, unknown: str) -> str:
        """A suggestion by the letters alone: dashes would make all flags look alike."""
        flags = {flag.lstrip("-"): flag for flag in self._option_string_actions}
        near = difflib.get_close_matches(unknown.partition("=")[0].lstrip("-"), flags, n=1)
        return f"; did you mean {flags[near[0]]}?" if near and unknown.startswith("-") else ""

    def _where_missing_words_are(self, message: str) -> str:
        """How to list the commands or verbs of this parser, if one is missing."""
        is_missing = self._subparsers is not None and message.startswith("the following arguments are required")
        return f"; `{self.prog} --help` lists them" if is_missing else ""


class MainParser(Parser):
    """The parser of the whole command line. It knows all names, but imports only the command in use."""

    def __init__(self, sections: Mapping[str, Mapping[str, Command]], used: str) -> None:
        """`sections` has the commands by name, under the headings of the help; `used` is the command to import."""
        super().__init__(prog="penstock", description="Kafka without disks.")
        self._sections = sections
        commands = self.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
        for section in sections.values():
            for name, command in section.items():
                new_parser = partial(commands.add_parser, name, help=command.help)
                if name == used:
                    import_module(command.module).add_parser(new_parser)
                else:
                    new_parser()

    def format_help(self) -> str:
        """The commands under their headings."""
        lines = ["usage: penstock [-h] [--version] COMMAND ...", "", str(self.description), ""]
        for heading, section in self._sections.items():
            lines.append(f"{heading}:")
            lines += [f"  {name:{_HELP_COLUMN}}{command.help}" for name, command in section.items()]
            lines.append("")
        lines += ["`penstock COMMAND --help` shows the flags of a command.", ""]
        return "\n".join(lines)


def add_verbs(parser: argparse.ArgumentParser) -> "argparse._SubParsersAction[Any]":
    """The verbs of a command, of which one must be given."""
    return parser.add_subparsers(dest="verb", required=True, metavar="VERB")


def with_suggestion(message: str) -> str:
    """An error text of argparse, with the nearest choice if a word is misspelt."""
    found = _WRONG_CHOICE.search(message)
    if found is None:
        return message
    choices = [choice.strip().strip("'") for choice in found["choices"].split(",")]
    near = difflib.get_close_matches(found["given"], choices, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(choices)}"
    return f"{message[: found.start()]}invalid choice: {found['given']!r}; {hint}"
