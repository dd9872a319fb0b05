"""Kafka's command-line tools with the files of `penstock up --secure`."""

import re
from collections.abc import Callable

from tests.conformance.logins import OAUTHBEARER, PLAIN, SCRAM_SHA_512
from tests.conformance.scenario import Scenario, Stage, until
from tests.conformance.scenarios.tools import ACLS, CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, has
from tests.conformance.secured import SERVICE, USER

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
LINES = "".join(f"value {number}\n" for number in range(10))
PASSWORD = "chosen-by-the-administrator"


def refused(run: Callable[[], str]) -> str:
    """The error of a tool; empty if it did its work."""
    try:
        run()
    except AssertionError as error:
        return str(error)
    return ""


def administrator(stage: Stage) -> None:
    """kafka-configs, kafka-acls with the files of `penstock up --secure`: they add a user, its rights and its quota."""
    assert stage.secured is not None
    admin = stage.at(stage.secured.address, stage.secured.administrator)
    name, topic, group = stage.name("user"), stage.name("topic"), stage.name("group")
    entity = ["--entity-type", "users", "--entity-name", name]
    user = stage.logged_in(stage.secured.login(name, PASSWORD))
    admin.tool(TOPICS, "--create", "--topic", topic)
    admin.tool(CONFIGS, *entity, "--alter", "--add-config", f"SCRAM-SHA-256=[password={PASSWORD}]")
    # A gateway knows a change after a moment.
    until(lambda: not refused(lambda: user.tool(TOPICS, "--list")), "the user's login")
    has(refused(lambda: user.tool(TOPICS, "--create", "--topic", f"{topic}.other")), "(?i)authorization failed")
    roles = ["--producer", "--consumer", "--topic", topic, "--group", group]
    admin.tool(ACLS, "--add", "--allow-principal", f"User:{name}", *roles)
    until(lambda: topic in user.tool(TOPICS, "--list").split(), "the user's topic")
    user.tool(CONSOLE_PRODUCER, "--topic", topic, given=LINES)
    read = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10", "--timeout-ms", "60000"]
    assert user.tool(CONSOLE_CONSUMER, *read) == LINES
    admin.tool(CONFIGS, *entity, "--alter", "--add-config", "producer_byte_rate=1000000")
    has(admin.tool(CONFIGS, *entity, "--describe"), "producer_byte_rate=1000000.0", "SCRAM-SHA-256=iterations=4096")
    admin.tool(CONFIGS, *entity, "--alter", "--delete-config", "SCRAM-SHA-256")
    until(lambda: "invalid credentials" in refused(lambda: user.tool(TOPICS, "--list")), "the login's end")


def delegation_tokens(stage: Stage) -> None:
    """kafka-delegation-tokens: --create, --describe, --renew, --expire. A console producer logs in with the token."""
    assert stage.secured is not None
    owner, renewer = (stage.logged_in(stage.secured.right[each]) for each in (PLAIN, OAUTHBEARER))
    topic = stage.name("topic")
    owner.tool(TOPICS, "--create", "--topic", topic)
    made = owner.tool(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", f"User:{SERVICE}")
    found = re.search(rf"^(\S{{22}})\s+(\S{{88}})\s+User:{USER}\s+User:{USER}\s+\[User:{SERVICE}\]", made, re.MULTILINE)
    assert found, made
    token_id, password = found.groups()
    given = stage.secured.right[PLAIN]._replace(mechanism=SCRAM_SHA_512)
    token = stage.logged_in(given._replace(user=token_id, password=password, is_token=True))
    token.tool(CONSOLE_PRODUCER, "--topic", topic, given=LINES)
    has(refused(lambda: token.tool(TOKENS, "--describe")), "Delegation Token requests are not allowed")
    has(renewer.tool(TOKENS, "--describe", "--owner-principal", f"User:{USER}"), f"^{token_id}\\s")
    has(renewer.tool(TOKENS, "--renew", "--renew-time-period", "60000", "--hmac", password), "New expiry date")
    ended = owner.tool(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", password)
    has(ended, "New expiry date")
    assert token_id not in owner.tool(TOKENS, "--describe", "--owner-principal", f"User:{USER}")
    until(lambda: "invalid credentials" in refused(lambda: token.tool(TOPICS, "--list")), "the token's end")


def all_scenarios() -> list[Scenario]:
    """A scenario for users and lists, and one for delegation tokens."""
    found = {"tool-secure": administrator, "tool-tokens": delegation_tokens}
    return [
        Scenario(name, "tools", (run.__doc__ or "").rstrip(), run, needs_logins=True) for name, run in found.items()
    ]
