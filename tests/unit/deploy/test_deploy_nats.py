"""The NATS accounts name every service, and allow no more of JetStream than journal and landing store ask for."""

import re
from pathlib import Path

import pytest

from penstock.cli.agent.roles import USUAL
from penstock.cli.credentials import AGENT, AGENT_ROLES, JOURNAL, OPERATORS, ROLES, USERS
from penstock.cli.credentials.nats_accounts import accounts, permissions
from penstock.contracts import subjects
from penstock.contracts.senders import COMMANDS, QUERIES
from penstock.contracts.subjects import Sender

ROOT = Path(__file__).parents[3]
CLUSTER = "blue"
STREAM = subjects.journal_stream(CLUSTER)
LANDING = subjects.landing_stream(CLUSTER)
OBJECTS = subjects.landing_objects(CLUSTER)
ACCOUNTS = accounts(CLUSTER, ROLES)
ALLOWED = permissions(CLUSTER)
# The first words of all subjects that a user of this cluster may use.
OWN = (f"penstock.{CLUSTER}.", f"penstock-landing.{CLUSTER}.", "_INBOX.", "$JS.API.", f"$JS.FC.{STREAM}.")


def test_there_are_credentials_and_a_user_for_each_service_one_for_agents_and_two_for_operators() -> None:
    services = {path.name for path in (ROOT / "services").iterdir() if (path / "src").exists()}
    assert set(ROLES) == services | {*OPERATORS, AGENT}
    assert re.findall(r"user: (\w+)", ACCOUNTS) == list(USERS)
    for user in USERS:
        assert f"user: {user}, password: ${user.upper()}_PASSWORD" in ACCOUNTS


@pytest.mark.parametrize("role", ROLES)
def test_a_user_listens_to_its_own_inbox_and_is_present_under_its_own_roles_only(role: str) -> None:
    publish, subscribe = ALLOWED[role].publish, ALLOWED[role].subscribe
    assert [subject for subject in subscribe if "_INBOX" in subject] == [f"_INBOX.{role}.>"]
    present = [subject for subject in publish if ".presence." in subject]
    roles = {**dict.fromkeys(OPERATORS, ()), AGENT: AGENT_ROLES}.get(role, (role,))
    assert present == [f"penstock.{CLUSTER}.presence.{each}.>" for each in roles]


def test_an_agent_may_do_what_its_roles_may_and_nothing_else() -> None:
    assert AGENT_ROLES == USUAL
    for verb in ("publish", "subscribe"):
        of_roles = {subject for role in AGENT_ROLES for subject in getattr(ALLOWED[role], verb)}
        own = set(getattr(ALLOWED[AGENT], verb))
        assert own - of_roles <= {f"_INBOX.{AGENT}.>"}
        assert {subject for subject in of_roles - own if "_INBOX" not in subject} == set()


@pytest.mark.parametrize("role", ROLES)
def test_no_user_may_use_subjects_of_another_cluster(role: str) -> None:
    for subject in (*ALLOWED[role].publish, *ALLOWED[role].subscribe):
        assert subject.startswith(OWN), subject
        if subject.startswith("$JS.API."):
            assert {STREAM, LANDING} & {*subject.split(".")}, subject
        assert "*" not in subject.removesuffix(".*"), subject


def test_the_sequencer_may_ask_of_jetstream_just_what_the_journal_asks() -> None:
    asked = asked_by("runtime/nats/journal.py")
    assert "STREAM.INFO" in asked
    assert verbs_of("sequencer", STREAM) == asked
    assert users_of(STREAM) == ["sequencer", "admin", JOURNAL]
    # Operators may ask for the state of the journal, and for nothing else of it.
    assert verbs_of("admin", STREAM) == {"STREAM.INFO"}


def test_only_the_user_of_penstock_journal_may_change_and_delete_streams() -> None:
    changes = {"STREAM.UPDATE", "STREAM.DELETE"}
    assert verbs_of(JOURNAL, STREAM) == verbs_of("sequencer", STREAM) | changes
    assert verbs_of(JOURNAL, LANDING) == verbs_of("flusher", LANDING) | {"STREAM.UPDATE"}
    for user in ROLES:
        used = verbs_of(user, STREAM) | verbs_of(user, LANDING)
        assert user == JOURNAL or not used & changes, user


def test_all_but_consoles_may_read_the_landing_store_writers_write_it_and_janitors_delete_from_it() -> None:
    asked = asked_by("objectstore/jetstream.py")
    assert {"DIRECT.GET", "STREAM.PURGE"} <= asked
    assert set(re.findall(rf"\$JS\.API\.([A-Z.]+)\.{LANDING}", ACCOUNTS)) == asked | {"STREAM.UPDATE"}
    assert users_of(LANDING) == [user for user in ALLOWED if user != "console"]
    assert users_of(f"$JS.API.STREAM.PURGE.{LANDING}") == ["janitor"]
    assert users_of(OBJECTS) == ["flusher", JOURNAL, AGENT]


def test_a_console_only_asks_and_looks_at_processes() -> None:
    allowed = ALLOWED["console"]
    queries = {subjects.sequencer_query(CLUSTER, name) for name in QUERIES[Sender.CONSOLE]}
    commands = subjects.sequencer_command(CLUSTER, Sender.CONSOLE)
    assert COMMANDS[Sender.CONSOLE] == frozenset(), "a sequencer rejects each command from there"
    present = f"penstock.{CLUSTER}.presence.console.>"
    assert {*allowed.publish} == {*queries, commands, present, "_INBOX.console.>"}
    assert {*allowed.subscribe} == {subjects.presence_all(CLUSTER), "_INBOX.console.>"}


def asked_by(sources: str) -> set[str]:
    """The verbs of JetStream's interface in these sources."""
    text = "".join(path.read_text() for path in (ROOT / "libs/src/penstock").glob(sources))
    return set(re.findall(r"\b((?:STREAM|CONSUMER|DIRECT)(?:\.[A-Z]+)+)\.\{", text))


def verbs_of(user: str, stream: str) -> set[str]:
    """The verbs of JetStream's interface that a user may use on a stream."""
    subjects_of = " ".join(ALLOWED[user].publish)
    return set(re.findall(rf"\$JS\.API\.([A-Z.]+)\.{stream}", subjects_of))


def users_of(part: str) -> list[str]:
    """The users that may publish to this subject, or to one with this word."""
    return [
        user
        for user, each in ALLOWED.items()
        if any(part == subject or part in subject.split(".") for subject in each.publish)
    ]
