"""The table of senders: every command has its senders, and each service's code sends only its own."""

import ast
from pathlib import Path
from typing import get_args

import pytest

from penstock.contracts import commands
from penstock.contracts.commands import Command, CommitSegment, DeleteTopic, ExpireToken, ReplaceExtents, Tick
from penstock.contracts.senders import (
    COMMANDS,
    COMMANDS_OF_ANY,
    INTERNAL_COMMANDS,
    QUERIES,
    SECURITY_COMMANDS,
    SECURITY_QUERY,
    TOKEN_COMMANDS,
    not_allowed,
)
from penstock.contracts.subjects import QUERY_NAMES, Sender

SOURCES = Path(__file__).parents[3]
SERVICES = {
    Sender.CLIENT: "services/gateway/src",
    Sender.FLUSHER: "services/flusher/src",
    Sender.COMPACTOR: "services/compactor/src",
    Sender.JANITOR: "services/janitor/src",
    Sender.CONSOLE: "services/console/src",
    Sender.ADMIN: "libs/src/penstock/cli",
}
CACHER = "services/cacher/src"
ALL = set(get_args(Command))


def built_in(folder: str) -> set[type]:
    """The types of commands that the code in the folder makes."""
    found = set()
    for path in (SOURCES / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            kind = getattr(commands, name, None) if name else None
            if kind in ALL:
                found.add(kind)
    return found


def test_every_command_has_a_sender_or_is_internal_and_none_is_both() -> None:
    sent = frozenset().union(*COMMANDS.values())
    assert sent | INTERNAL_COMMANDS == ALL
    assert not sent & INTERNAL_COMMANDS


@pytest.mark.parametrize("sender", Sender)
def test_the_code_of_a_service_makes_only_commands_that_it_may_send(sender: Sender) -> None:
    made = built_in(SERVICES[sender])
    assert bool(made) == bool(COMMANDS[sender]), "each sender makes commands, but not one that only asks"
    assert made <= COMMANDS[sender]


def test_a_cacher_makes_no_commands() -> None:
    assert not built_in(CACHER)


def test_a_console_may_ask_just_the_queries_of_its_code() -> None:
    asked = {
        node.args[0].value
        for path in (SOURCES / "services/console/src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "query"
        if isinstance(node.args[0], ast.Constant)
    }
    assert asked == {*QUERIES[Sender.CONSOLE]}


def test_only_its_own_kind_sends_what_changes_segments() -> None:
    assert [sender for sender in Sender if ReplaceExtents in COMMANDS[sender]] == [Sender.COMPACTOR]
    assert [sender for sender in Sender if CommitSegment in COMMANDS[sender]] == [Sender.FLUSHER]


def test_only_gateways_and_operators_change_and_read_users() -> None:
    allowed = {Sender.CLIENT, Sender.ADMIN}
    assert {sender for sender in Sender if COMMANDS[sender] & SECURITY_COMMANDS} == allowed
    assert not COMMANDS_OF_ANY & SECURITY_COMMANDS
    assert not any(SECURITY_QUERY in QUERIES[sender] for sender in set(Sender) - allowed)


def test_only_gateways_and_operators_change_tokens_and_operators_only_end_them() -> None:
    allowed = {sender: COMMANDS[sender] & TOKEN_COMMANDS for sender in Sender}
    assert {sender: found for sender, found in allowed.items() if found} == {
        Sender.CLIENT: TOKEN_COMMANDS,
        Sender.ADMIN: {ExpireToken},
    }
    assert not COMMANDS_OF_ANY & TOKEN_COMMANDS


def test_only_queries_that_exist_are_in_the_table() -> None:
    assert set().union(*QUERIES.values()) <= set(QUERY_NAMES)


def test_the_first_command_that_is_not_allowed_is_named() -> None:
    allowed = COMMANDS[Sender.CLIENT]
    assert not_allowed([Tick(1), DeleteTopic(1, "t", bytes(16))], allowed) == ""
    assert not_allowed([Tick(1), DeleteTopic(1, "t", bytes(16))], COMMANDS[Sender.FLUSHER]) == "Tick"
    assert not_allowed([], frozenset()) == ""
