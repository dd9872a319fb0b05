"""The list of all clients and all scenarios."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.conformance import provision
from tests.conformance.logins import Login, as_json, as_librdkafka, as_properties
from tests.conformance.results import About
from tests.conformance.scenario import Scenario, Stage
from tests.conformance.scenarios import (
    administration,
    dead_letters,
    groups,
    logins,
    producing,
    secured_tools,
    share_groups,
    tools,
    transactions,
)


def from_its_hello(stage: Stage) -> About:
    """The client as its driver reports it."""
    with stage.driver() as driver:
        return About(driver.hello["client"], driver.hello["version"], driver.hello["library"])


def of_java(stage: Stage) -> About:
    """The same for a Java client. This also keeps its classes, so that later starts are faster."""
    provision.keep_classes(stage.bootstrap, stage.name("classes"))
    return from_its_hello(stage)


def with_newer_library(stage: Stage) -> About:
    """kcat with another librdkafka than the one of its package."""
    return from_its_hello(stage)._replace(client=NEWER_KCAT)


def as_pinned(stage: Stage) -> About:
    """Kafka's tools, with the version of their pinned jar."""
    provision.keep_classes(stage.bootstrap, stage.name("classes"))
    return About(TOOLS, provision.pinned_version("kafka-tools"))


class Client(NamedTuple):
    """A client, and the command and environment of its process; both functions may raise `Missing`.

    `write_login` makes the content of the file that gives its process a login.
    """

    name: str
    command: Callable[[], list[str]]
    environment: Callable[[], Mapping[str, str]] = dict
    about: Callable[[Stage], About] = from_its_hello
    write_login: Callable[[Login], str] = as_json


NEWER_KCAT = "kcat with newer library"
TOOLS = "Kafka's command-line tools"
CLIENTS = [
    Client("confluent-kafka", lambda: provision.python_driver("confluent"), write_login=as_librdkafka),
    Client("aiokafka", lambda: provision.python_driver("aio")),
    Client("kafka-python", lambda: provision.python_driver("kafka_python")),
    Client("KafkaJS", provision.node_driver, lambda: {"NODE_PATH": str(provision.node_modules())}),
    Client("franz-go", provision.go_driver),
    Client("kcat", lambda: provision.python_driver("kcat"), write_login=as_librdkafka),
    Client(
        NEWER_KCAT,
        lambda: provision.python_driver("kcat"),
        provision.librdkafka,
        about=with_newer_library,
        write_login=as_librdkafka,
    ),
    Client("Java client", lambda: [*provision.java_command(), "JavaClient"], about=of_java, write_login=as_properties),
    Client(TOOLS, provision.java_command, about=as_pinned, write_login=as_properties),
]
FOR_LIBRARIES = [
    *producing.all_scenarios(),
    *groups.all_scenarios(),
    *share_groups.all_scenarios(),
    *dead_letters.all_scenarios(),
    *transactions.all_scenarios(),
    *administration.all_scenarios(),
    *logins.all_scenarios(),
]
FOR_TOOLS = [*tools.all_scenarios(), *secured_tools.all_scenarios()]
SCENARIOS = [*FOR_LIBRARIES, *FOR_TOOLS]
# The short list for CI: the most specific scenarios of the clients that no other test has. It has no franz-go, because
# its compilation takes almost a minute.
SHORT = {
    "KafkaJS": ["produce-gzip", "group-classic", "transaction-crash-committing", "admin-groups", "login-oauthbearer"],
    "Java client": [
        "produce-zstd",
        "group-classic",
        "share-group",
        "transaction-crash-committing",
        "admin-configs",
        "login-certificate",
    ],
    TOOLS: [
        "tool-console",
        "tool-share-groups",
        "tool-transactional-copier",
        "tool-delete-records",
        "login-scram-sha-512",
    ],
}


def scenarios_of(client: Client) -> list[Scenario]:
    """The scenarios of a client."""
    if client.name == NEWER_KCAT:  # its library differs in logins
        return logins.all_scenarios()
    return [*FOR_TOOLS, *logins.all_scenarios(of_tools=True)] if client.name == TOOLS else FOR_LIBRARIES


class Catalogue(NamedTuple):
    """The clients and scenarios of a run."""

    clients: Sequence[Client] = CLIENTS
    scenarios: Sequence[Scenario] = SCENARIOS
    scenarios_of: Callable[[Client], Sequence[Scenario]] = scenarios_of
    short: Mapping[str, Sequence[str]] = SHORT  # names of scenarios by client


EVERYTHING = Catalogue()
