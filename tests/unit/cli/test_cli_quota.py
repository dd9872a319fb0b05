"""`penstock quota`: flags, errors, and changes against the real state machine."""

import argparse
from typing import Any

import pytest

from penstock.cli import parse_arguments
from penstock.cli.security import quota
from penstock.cli.security.client import SecurityClient
from penstock.cli.security.over_nats import NatsAdmin
from penstock.contracts.configs.quotas import Entity
from penstock.contracts.errors import Invalid
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.queries import client_quotas, validate
from penstock_sequencer.core.state.cluster import new_state

ALICE: Entity = (("user", "alice"),)


class Sequencer:
    """A sequencer with the real machine."""

    def __init__(self) -> None:
        self.state = new_state()
        self.seen_sequence = 0

    async def command(self, commands: list[Any], *, deadline_s: float) -> list[Any]:
        outcomes, _ = apply_entry(self.state, self.state.sequence + 1, [commands])
        self.seen_sequence = self.state.sequence
        return outcomes[0]

    async def query(self, name: str, query: Any, view: Any, *, deadline_s: float) -> Any:
        return {"client_quotas": client_quotas, "validate": validate}[name](self.state, query)


def arguments(*argv: str) -> argparse.Namespace:
    return parse_arguments(list(argv))


@pytest.mark.parametrize(
    ("flags", "entity", "words"),
    [
        (["--user", "alice"], ALICE, "user alice"),
        (["--default-user"], (("user", None),), "the default user"),
        (
            ["--user", "alice", "--default-client-id"],
            (("client-id", None), ("user", "alice")),
            "the default client-id, user alice",
        ),
        (["--ip", "127.0.0.1"], (("ip", "127.0.0.1"),), "ip 127.0.0.1"),
    ],
)
def test_flags_name_an_entity(flags: list[str], entity: Entity, words: str) -> None:
    assert quota.read_entity(arguments("quota", "remove", *flags)) == entity
    assert quota.named(entity) == words


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ([], "--user, --client-id, --ip"),
        (["--ip", "127.0.0.1", "--user", "alice"], "IP entity"),
        (["--user", ""], "Empty user"),
    ],
)
def test_a_wrong_entity_is_rejected_with_the_reason(flags: list[str], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        quota.read_entity(arguments("quota", "remove", *flags))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("producer_byte_rate", "KEY=VALUE"),
        ("speed=1", "no quota 'speed'; there are producer_byte_rate"),
        ("producer_byte_rate=-1", "greater than 0"),
        ("producer_byte_rate=fast", "a quota is a number"),
        ("connection_creation_rate=5", "Invalid configuration key"),
    ],
)
def test_a_wrong_value_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        quota.read_changes(ALICE, [text])


async def test_quotas_are_set_listed_and_removed() -> None:
    admin = NatsAdmin(SecurityClient(Sequencer()))  # type: ignore[arg-type]
    changes = quota.read_changes(ALICE, ["producer_byte_rate=1000", "request_percentage=12.5"])
    await admin.alter_quotas(ALICE, changes)
    ((entity, values),) = (await admin.quotas()).items()
    assert quota.row_of(entity, values) == {
        "entity": "user alice",
        "quotas": ["producer_byte_rate=1000", "request_percentage=12.5"],
    }
    await admin.alter_quotas(ALICE, [quota.QuotaChange(key) for key in values])
    assert await admin.quotas() == {}


async def test_a_trial_changes_nothing_and_has_the_reason_of_a_rejection() -> None:
    admin = NatsAdmin(SecurityClient(Sequencer()))  # type: ignore[arg-type]
    await admin.alter_quotas(ALICE, quota.read_changes(ALICE, ["producer_byte_rate=1000"]), is_trial=True)
    assert await admin.quotas() == {}
    with pytest.raises(Invalid, match="Invalid configuration key speed"):
        await admin.alter_quotas(ALICE, [quota.QuotaChange("speed", "1")], is_trial=True)
