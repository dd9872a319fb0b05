"""Logins over TLS with each mechanism: a topic and a group are used, and a wrong login is refused."""

import functools
import re

from tests.conformance.logins import CERTIFICATE, MECHANISMS, OAUTHBEARER, Login
from tests.conformance.scenario import Scenario, Stage, rejection, until
from tests.conformance.scenarios.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS

VALUES = [f"value {number}" for number in range(30)]
POLL_MS = 500
# A client shows of a refused login: the gateway's reason, or the alert of TLS in the words of its TLS library.
REASON_OF_PASSWORDS = "invalid credentials"
REASONS = {OAUTHBEARER: "invalid_token", CERTIFICATE: "unknown.?(ca|certificate authority)|post-handshake"}
# Clients that show no reason. Some do not expect an answer to a forged token, which RFC 7628 has before the error.
REASONS_OF_CLIENTS = {
    ("aiokafka", OAUTHBEARER): "connection at .* closed",
    ("aiokafka", CERTIFICATE): "connection at .* closed",
    ("franz-go", OAUTHBEARER): "unexpected data in oauth response",
    ("KafkaJS", OAUTHBEARER): "closed connection",
}
WRONG = {OAUTHBEARER: "A forged token", CERTIFICATE: "A certificate of another authority"}


def logins_of(stage: Stage, mechanism: str) -> tuple[Login, Login]:
    """The right and the wrong login of a mechanism."""
    assert stage.secured is not None
    return stage.secured.right[mechanism], stage.secured.wrong[mechanism]


def check_reason(mechanism: str, shown: str, client: str = "") -> None:
    """Assert that a client showed why its login was refused."""
    reason = REASONS_OF_CLIENTS.get((client, mechanism)) or REASONS.get(mechanism, REASON_OF_PASSWORDS)
    assert re.search(reason, shown, re.IGNORECASE), f"no {reason!r} in {shown!r}"


def by_library(mechanism: str, stage: Stage) -> None:
    """The client reads its records as a member of a group. A wrong login is refused, and most clients show why."""
    right, wrong = logins_of(stage, mechanism)
    topic, read = stage.name("topic"), list[str]()
    with stage.logged_in(right).driver() as client:
        client.ask("produce", topic=topic, codec="none", values=VALUES)
        client.ask("join", group=stage.name("group"), topics=[topic])

        def poll() -> bool:
            read.extend(each[2] for each in client.ask("poll", for_ms=POLL_MS)["records"])
            return len(read) >= len(VALUES)

        until(poll, "the records")
        client.ask("leave")
    assert read == VALUES, read
    with stage.logged_in(wrong).driver() as client:
        error = rejection(client, "list_topics")
        check_reason(mechanism, error + client.log(), client.hello["client"])


def by_tools(mechanism: str, stage: Stage) -> None:
    """The same for Kafka's tools."""
    right, wrong = logins_of(stage, mechanism)
    topic, given = stage.name("topic"), "".join(f"{value}\n" for value in VALUES)
    tools = stage.logged_in(right)
    tools.tool(CONSOLE_PRODUCER, "--topic", topic, given=given)
    read = ["--topic", topic, "--from-beginning", "--max-messages", str(len(VALUES)), "--timeout-ms", "60000"]
    assert tools.tool(CONSOLE_CONSUMER, *read, "--group", stage.name("group")) == given
    try:
        shown = stage.logged_in(wrong).tool(TOPICS, "--list")
    except AssertionError as error:
        check_reason(mechanism, str(error))
    else:
        raise AssertionError(f"a wrong login was accepted: {shown}")


def _scenario(mechanism: str, of_tools: bool) -> Scenario:
    named = "its own certificate" if mechanism == CERTIFICATE else mechanism
    promise = (
        f"A client with {named} over TLS produces, and reads as a member of a group."
        f" {WRONG.get(mechanism, 'A wrong password')} is refused."
    )
    run = functools.partial(by_tools if of_tools else by_library, mechanism)
    return Scenario(f"login-{mechanism.lower()}", "logins", promise, run, needs_logins=True)


def all_scenarios(*, of_tools: bool = False) -> list[Scenario]:
    """A scenario for each mechanism, for libraries or for Kafka's tools."""
    return [_scenario(mechanism, of_tools) for mechanism in MECHANISMS]
