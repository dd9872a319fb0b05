"""Kafka's command-line tools with the files of `penstock up --secure`."""

from collections.abc import Callable

from tests.conformance.scenario import Scenario, Stage, until
from tests.conformance.scenarios.tools import ACLS, CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS, has

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


def all_scenarios() -> list[Scenario]:
    """The one scenario."""
    promise = (administrator.__doc__ or "").rstrip()
    return [Scenario("tool-secure", "tools", promise, administrator, needs_logins=True)]
