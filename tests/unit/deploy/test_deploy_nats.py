"""The NATS accounts in deploy/nats name every service, and allow no more of JetStream than the journal asks for."""

import re
from pathlib import Path

import pytest

from penstock.cli.credentials import ROLES, USERS

ROOT = Path(__file__).parents[3]
ACCOUNTS = (ROOT / "deploy" / "nats" / "accounts.conf").read_text()
SECTIONS: dict[str, str] = dict(
    re.findall(r"user: (\w+), password: \$\w+(.*?)(?=user: \w+, password|\Z)", ACCOUNTS, re.DOTALL)
)


def test_there_are_credentials_and_a_user_for_each_service_and_for_nobody_else() -> None:
    services = {path.name for path in (ROOT / "services").iterdir() if (path / "pyproject.toml").exists()}
    assert set(ROLES) == services
    assert set(SECTIONS) == set(USERS)
    for user in USERS:
        assert f"user: {user}, password: ${user.upper()}_PASSWORD" in ACCOUNTS


@pytest.mark.parametrize("role", ROLES)
def test_a_service_listens_to_its_own_inbox_and_is_present_under_its_own_name_only(role: str) -> None:
    publish, subscribe = re.findall(r"(?:publish|subscribe): \[(.*?)\]", SECTIONS[role], re.DOTALL)
    assert re.findall(r"_INBOX[^\"]*", subscribe) == [f"_INBOX.{role}.>"]
    assert re.findall(r"penstock\.\*\.presence[^\"]*", publish) == [f"penstock.*.presence.{role}.>"]
    assert not re.findall(r'"(?:[>*]|_INBOX\.>|penstock\.(?:\*\.)?>)"', publish + subscribe)


def test_the_sequencer_may_ask_of_jetstream_just_what_the_journal_asks() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "libs/src/penstock/runtime" / "nats").glob("*.py"))
    asked = set(re.findall(r"\b((?:STREAM|CONSUMER)(?:\.[A-Z]+)+)\.\{", sources))
    allowed = set(re.findall(r"\$JS\.API\.([A-Z.]+?)(?:\.\*)+\"", ACCOUNTS))
    assert "STREAM.INFO" in asked
    assert allowed == asked
    assert SECTIONS["sequencer"].count("$JS.API.") == ACCOUNTS.count("$JS.API.") == len(allowed)
