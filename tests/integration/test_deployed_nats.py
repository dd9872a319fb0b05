"""A nats-server with deploy/nats: its limits, the permissions of each user, and a cluster of three servers."""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import nats.errors
import pytest
from msgspec import structs
from nats.aio.client import Client
from nats.aio.msg import Msg

from penstock.cli.credentials import AGENT_ROLES, ROLES
from penstock.contracts import senders, subjects
from penstock.contracts.subjects import Sender
from penstock.runtime.nats.journal import JournalLimits
from penstock.runtime.nats.server import MESSAGE_BYTES_MAX, PENDING_BYTES_MAX, STORE_BYTES_MAX, WRITE_DEADLINE
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.backend import LOOPBACK
from tests.testkit.servers.connections import SLOW_MACHINE, connect_nats
from tests.testkit.servers.deployed import Credentials, DeployedNats, deployed_nats
from tests.testkit.servers.ports import free_ports
from tests.testkit.waiting import known, until

CLUSTER = "some-cluster"
STREAM = subjects.journal_stream(CLUSTER)
INSTANCE = (CLUSTER, "z1", "instance-1")
PRESENCES = {role: subjects.presence(CLUSTER, role, "z1", "instance-1") for role in ROLES}
INBOXES = {role: f"_INBOX.{role}.0123456789abcdef.7" for role in ROLES}
COMMANDS = {sender: subjects.sequencer_command(CLUSTER, sender) for sender in Sender}
OLD_COMMAND = subjects.sequencer_command_of_any(CLUSTER)
QUERIES = {subjects.sequencer_query(CLUSTER, name) for name in subjects.QUERY_NAMES}
SECURITY_QUERY = f"penstock.{CLUSTER}.sequencer.query.security"
READS = {sender: {subjects.sequencer_query(CLUSTER, name) for name in senders.QUERIES[sender]} for sender in Sender}
FLUSH, CACHE = subjects.flush(*INSTANCE), subjects.cache(*INSTANCE)
CONFIRM = subjects.confirm(CLUSTER, "instance-1")
# The subjects of another cluster on the same servers.
ELSEWHERE = {
    subjects.sequencer_command("elsewhere", Sender.CLIENT),
    subjects.sequencer_query("elsewhere", "plan"),
    subjects.flush("elsewhere", "z1", "instance-1"),
    subjects.cache("elsewhere", "z1", "instance-1"),
    subjects.journal_subject("elsewhere"),
    subjects.advanced("elsewhere"),
    f"$JS.API.STREAM.PURGE.{subjects.journal_stream('elsewhere')}",
}
ADVANCED, HEARD, JOURNAL = subjects.advanced(CLUSTER), subjects.heard(CLUSTER), subjects.journal_subject(CLUSTER)
EXPLAIN = subjects.explain(CLUSTER)
API = "$JS.API"
JOURNAL_API = {
    f"{API}.STREAM.INFO.{STREAM}",
    f"{API}.STREAM.CREATE.{STREAM}",
    f"{API}.STREAM.MSG.GET.{STREAM}",
    f"{API}.STREAM.PURGE.{STREAM}",
    f"{API}.CONSUMER.CREATE.{STREAM}",
    f"{API}.CONSUMER.DELETE.{STREAM}.consumer",
    f"$JS.FC.{STREAM}.consumer.token",
}
MOVE_API = {f"{API}.STREAM.{verb}.{STREAM}" for verb in ("DELETE", "UPDATE")}  # ADR 0058
# Subjects that no user needs: they harm the journal, inspect the server, or belong to another user.
FORBIDDEN = {
    f"{API}.INFO",
    f"{API}.STREAM.NAMES",
    f"{API}.STREAM.LIST",
    *(f"{API}.STREAM.{verb}.{STREAM}" for verb in ("MSG.DELETE", "SNAPSHOT", "RESTORE")),
    f"{API}.CONSUMER.DURABLE.CREATE.{STREAM}.consumer",
    f"$JS.ACK.{STREAM}.consumer.1.1.1.1.0",
    OLD_COMMAND,
    *ELSEWHERE,
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.ACCOUNT.PENSTOCK.CONNZ",
    "_INBOX.stranger.7",
    f"penstock.{CLUSTER}.other",
    "penstock.other",
    "other",
}
MAY_PUBLISH = {
    "gateway": {
        FLUSH,
        CACHE,
        COMMANDS[Sender.CLIENT],
        *QUERIES,
        SECURITY_QUERY,
        PRESENCES["gateway"],
        *(INBOXES[role] for role in ("gateway", "flusher", "agent")),
    },
    "flusher": {
        COMMANDS[Sender.FLUSHER],
        CONFIRM,
        PRESENCES["flusher"],
        *(INBOXES[role] for role in ("gateway", "cacher", "flusher", "agent")),
    },
    "sequencer": {
        ADVANCED,
        HEARD,
        JOURNAL,
        *JOURNAL_API,
        PRESENCES["sequencer"],
        *(INBOXES[role] for role in INBOXES if role not in ("cacher", "journal")),
    },
    "cacher": {CACHE, PRESENCES["cacher"], *(INBOXES[role] for role in ("gateway", "cacher", "agent"))},
    "compactor": {COMMANDS[Sender.COMPACTOR], *READS[Sender.COMPACTOR], PRESENCES["compactor"], INBOXES["compactor"]},
    "janitor": {
        COMMANDS[Sender.JANITOR],
        *READS[Sender.JANITOR],
        EXPLAIN,
        PRESENCES["janitor"],
        INBOXES["janitor"],
        INBOXES["admin"],
    },
    # Its commands are none, but each sender has a subject for them.
    "console": {COMMANDS[Sender.CONSOLE], *READS[Sender.CONSOLE], PRESENCES["console"], INBOXES["console"]},
    "admin": {
        COMMANDS[Sender.ADMIN],
        *QUERIES,
        SECURITY_QUERY,
        EXPLAIN,
        f"{API}.STREAM.INFO.{STREAM}",
        INBOXES["admin"],
    },
    # It is no service, and sends nothing to processes.
    "journal": {JOURNAL, *JOURNAL_API, *MOVE_API, INBOXES["journal"]},
}
# An agent may do the work of its roles, and nothing that none of them may.
MAY_PUBLISH["agent"] = set().union(*(MAY_PUBLISH[role] for role in AGENT_ROLES))
STRANGER = subjects.presence(CLUSTER, "stranger", "z1", "instance-1")
ALL_PRESENCES = {subjects.presence_all(CLUSTER), *PRESENCES.values(), STRANGER}
MAY_LISTEN = {
    "gateway": {ADVANCED, CONFIRM, *ALL_PRESENCES, INBOXES["gateway"], "_INBOX.gateway.>"},
    "flusher": {FLUSH, CACHE, *ALL_PRESENCES, INBOXES["flusher"], "_INBOX.flusher.>"},
    "sequencer": {
        *COMMANDS.values(),
        OLD_COMMAND,
        *QUERIES,
        SECURITY_QUERY,
        HEARD,
        *ALL_PRESENCES,
        INBOXES["sequencer"],
        "_INBOX.sequencer.>",
    },
    "cacher": {CACHE, *ALL_PRESENCES, INBOXES["cacher"], "_INBOX.cacher.>"},
    "compactor": {INBOXES["compactor"], "_INBOX.compactor.>"},
    "janitor": {EXPLAIN, INBOXES["janitor"], "_INBOX.janitor.>"},
    "console": {*ALL_PRESENCES, INBOXES["console"], "_INBOX.console.>"},
    "admin": {*ALL_PRESENCES, INBOXES["admin"], "_INBOX.admin.>"},
    "journal": {INBOXES["journal"], "_INBOX.journal.>"},
    # No inbox of its roles: separate services get their answers there.
    "agent": {ADVANCED, CONFIRM, FLUSH, CACHE, *ALL_PRESENCES, INBOXES["agent"], "_INBOX.agent.>"},
}
WILDCARDS = {
    ">",
    "*.>",
    "penstock.>",
    "penstock.*.*",
    "penstock.*.presence.>",
    "_INBOX.>",
    "_INBOX.*.>",
    "_INBOX.*.0123456789abcdef.7",
    "$SYS.>",
}
ANSWER_TIMEOUT_S = 60
REJECTED_ROUTE = "authentication error"
RELOADED = "Reloaded server configuration"
LAST = "denied.to.all"
DENIED = re.compile(r'permissions violation for (publish|subscription) to "(.*?)"')


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(tmp_path_factory.mktemp("credentials"), cluster=CLUSTER)


@pytest.fixture(scope="module")
def server(credentials: Credentials, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedNats]:
    with deployed_nats(tmp_path_factory.mktemp("nats"), credentials) as started:
        yield started


@contextlib.asynccontextmanager
async def connected(server: DeployedNats, user: str, password: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client of nats-py, and the errors that the server sent to it."""
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    client = Client()
    try:
        await client.connect(
            server.url,
            user=user or None,
            password=password or None,
            error_cb=note,
            allow_reconnect=False,
            connect_timeout=ANSWER_TIMEOUT_S,
        )
        yield client, errors
    finally:
        await client.close()


def connected_as(
    server: DeployedNats, credentials: Credentials, role: str
) -> contextlib.AbstractAsyncContextManager[tuple[Client, list[str]]]:
    given = credentials.of(role)
    return connected(server, given["PENSTOCK_NATS_USER"], given["PENSTOCK_NATS_PASSWORD"])


async def denied(kind: str, client: Client, errors: list[str], asked: set[str]) -> set[str]:
    """The subjects that the server denied. nats-py reports them in lower case."""
    await client.publish(LAST, b"")  # denied after all others; the client's own flush may end before that
    await until(lambda: any(LAST in error for error in errors))
    found = [match for error in errors for match in DENIED.findall(error)]
    assert len(found) == len(errors), errors
    rejected = {subject for what, subject in found if what == kind}
    return {subject for subject in asked if subject.lower() in rejected}


def taker(messages: list[Msg]) -> Callable[[Msg], Awaitable[None]]:
    async def take(message: Msg) -> None:
        messages.append(message)

    return take


@pytest.mark.parametrize("role", ROLES)
async def test_a_service_may_publish_only_to_the_subjects_of_its_work(
    server: DeployedNats, credentials: Credentials, role: str
) -> None:
    everything = FORBIDDEN.union(*MAY_PUBLISH.values()) | {STRANGER}
    async with connected_as(server, credentials, role) as (client, errors):
        for subject in everything:
            await client.publish(subject, b"")
        assert await denied("publish", client, errors, everything) == everything - MAY_PUBLISH[role]
    rejection = f'"PENSTOCK/user:{role}" - Publish Violation - Subject "{LAST}"'
    await until(lambda: rejection in server.log())  # the client may get its error first


@pytest.mark.parametrize("role", ROLES)
async def test_a_service_may_subscribe_only_to_the_subjects_of_its_work_and_its_own_inbox(
    server: DeployedNats, credentials: Credentials, role: str
) -> None:
    everything = FORBIDDEN.union(*MAY_LISTEN.values(), *MAY_PUBLISH.values()) | WILDCARDS
    async with connected_as(server, credentials, role) as (client, errors):
        for subject in everything:
            await client.subscribe(subject, cb=taker([]))
        assert await denied("subscription", client, errors, everything) == everything - MAY_LISTEN[role]


async def test_services_of_release_0_1_may_send_commands_while_the_operator_lets_them(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials", cluster=CLUSTER, with_old_services=True)
    everything = {OLD_COMMAND, *COMMANDS.values()}
    with deployed_nats(tmp_path, credentials) as server:
        for role in ("gateway", "flusher", "compactor", "janitor"):
            async with connected_as(server, credentials, role) as (client, errors):
                for subject in everything:
                    await client.publish(subject, b"")
                allowed = {OLD_COMMAND, *(MAY_PUBLISH[role] & everything)}
                assert await denied("publish", client, errors, everything) == everything - allowed


async def test_a_rotated_password_ends_the_old_connections_and_no_others(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path / "credentials", cluster=CLUSTER)
    old = credentials.of("gateway")["PENSTOCK_NATS_PASSWORD"]
    with deployed_nats(tmp_path, credentials) as server:
        async with (
            connected_as(server, credentials, "gateway") as (gateway, _),
            connected_as(server, credentials, "flusher") as (flusher, errors),
        ):
            credentials.rotate("gateway")
            server.reload(credentials)
            await until(lambda: gateway.is_closed)
            with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
                async with connected(server, "gateway", old):
                    pass
            async with connected_as(server, credentials, "gateway"):
                pass
            await flusher.flush(ANSWER_TIMEOUT_S)
            assert not errors


@pytest.mark.parametrize("role", ROLES)
async def test_the_bus_of_a_service_connects_with_its_credentials_and_gets_its_own_echo(
    server: DeployedNats, credentials: Credentials, role: str
) -> None:
    given = credentials.of(role)
    connection = await connect_nats(
        server.url, name="test", user=given["PENSTOCK_NATS_USER"], password=given["PENSTOCK_NATS_PASSWORD"]
    )
    await connection.bus.flush()
    assert connection.bus.message_bytes_max == MESSAGE_BYTES_MAX
    await connection.close()


@pytest.mark.parametrize("who", ["no user", "an unknown user", "a password of another user", "an old password"])
async def test_no_client_connects_without_its_own_credentials(
    server: DeployedNats, credentials: Credentials, who: str
) -> None:
    gateway = credentials.of("gateway")["PENSTOCK_NATS_PASSWORD"]
    user, password = {
        "no user": ("", ""),
        "an unknown user": ("stranger", gateway),
        "a password of another user": ("sequencer", gateway),
        "an old password": ("gateway", gateway[:-1]),
    }[who]
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
        async with connected(server, user, password):
            pass


async def test_the_system_user_sees_the_servers_and_no_service_does(
    server: DeployedNats, credentials: Credentials
) -> None:
    async with connected(server, "system", credentials.of_nats("SYSTEM_PASSWORD")) as (client, errors):
        answer = json.loads((await client.request("$SYS.REQ.SERVER.PING", b"", timeout=ANSWER_TIMEOUT_S)).data)
        assert answer["server"]["id"] == server.monitor("varz")["server_id"]
        leaked: list[Msg] = []
        heard: list[Msg] = []
        await client.subscribe("penstock.>", cb=taker(leaked))
        async with connected_as(server, credentials, "flusher") as (flusher, _):
            await flusher.subscribe(subjects.presence_all(CLUSTER), cb=taker(heard))
            await flusher.publish(PRESENCES["flusher"], b"hello")
            await until(lambda: heard)
        await client.request("$SYS.REQ.SERVER.PING", b"", timeout=ANSWER_TIMEOUT_S)
        assert (errors, leaked) == ([], []), "another account got messages"


def limits(page: dict[str, object], jetstream: dict[str, object]) -> dict[str, object]:
    config = jetstream["config"]
    assert isinstance(config, dict)
    return {
        "max_payload": page["max_payload"],
        "max_pending": page["max_pending"],
        "write_deadline": page["write_deadline"],
        "sync_always": config.get("sync_always"),
        "max_storage": config["max_storage"],
    }


def test_its_limits_are_the_same_as_with_penstock_up(server: DeployedNats) -> None:
    seconds = int(WRITE_DEADLINE.removesuffix("s"))
    assert limits(server.monitor("varz"), server.monitor("jsz")) == {
        "max_payload": MESSAGE_BYTES_MAX,
        "max_pending": PENDING_BYTES_MAX,
        "write_deadline": seconds * 1_000_000_000,
        "sync_always": True,
        "max_storage": STORE_BYTES_MAX,
    }


def test_it_has_one_account_with_jetstream(server: DeployedNats) -> None:
    accounts = server.monitor("jsz?accounts=true")["account_details"]
    assert [account["name"] for account in accounts] == ["PENSTOCK"]


def test_its_addresses_and_folder_are_those_of_the_containers() -> None:
    text = (Path(__file__).parents[2] / "deploy" / "nats" / "nats.conf").read_text()
    for line in ('listen: "0.0.0.0:4222"', 'http: "0.0.0.0:8222"', 'store_dir: "/data"'):
        assert f"\n{line}" in text


def start_node(name: str, port: int, folder: Path, credentials: Credentials) -> DeployedNats:
    """A server with deploy/nats/cluster.conf and the cluster port `port`."""
    (folder / name).mkdir()
    node = DeployedNats(folder / name, credentials, "cluster.conf")
    node.listen_for_routes(port)
    node.start(NATS_SERVER_NAME=name)
    return node


def neighbours(node: DeployedNats) -> set[str]:
    return {route["remote_name"] for route in node.monitor("routez")["routes"]}


def has_met(node: DeployedNats, others: int) -> bool:
    """Whether the node reports this number of routes; False without an answer."""
    with contextlib.suppress(OSError):
        return len(neighbours(node)) == others
    return False


async def check_journal(node: DeployedNats, credentials: Credentials) -> None:
    """Create a journal of three copies as the sequencer's user, write to it and read it."""
    given = credentials.of("sequencer")
    user, password = given["PENSTOCK_NATS_USER"], given["PENSTOCK_NATS_PASSWORD"]
    limits = structs.replace(SLOW_MACHINE, journal=JournalLimits(open_deadline_s=120.0))
    connection = await connect_nats(node.url, name="test", user=user, password=password, limits=limits)
    journal = await connection.journal(CLUSTER, create=True, replicas=3)
    assert await known(lambda: journal.append("entry", b"entry")) == 1
    async for entries in journal.tail(0):
        assert [entry.data for entry in entries] == [b"entry"]
        break
    assert (await known(journal.describe)).replicas == 3
    await connection.close()


async def test_three_servers_make_a_cluster_with_a_journal_and_let_no_stranger_in(tmp_path: Path) -> None:
    ports = free_ports(4)
    addresses = [f"{LOOPBACK}:{port}" for port in ports[:3]]
    credentials = Credentials(tmp_path / "credentials", *addresses, cluster=CLUSTER)
    with contextlib.ExitStack() as stack:
        nodes = []
        for number, port in enumerate(ports[:3], 1):
            nodes.append(start_node(f"nats-{number}", port, tmp_path, credentials))
            stack.callback(nodes[-1].kill)
        for node in nodes:
            node.until_healthy()
        wait_until(lambda: all(has_met(node, 2) for node in nodes), ANSWER_TIMEOUT_S, "all routes")
        await check_journal(nodes[0], credentials)
        assert not any(REJECTED_ROUTE in node.log() for node in nodes)

        stranger = start_node("stranger", ports[3], tmp_path, Credentials(tmp_path / "others", *addresses))
        stack.callback(stranger.kill)
        wait_until(
            lambda: all(REJECTED_ROUTE in node.log() for node in nodes),
            ANSWER_TIMEOUT_S,
            "the rejection of the stranger",
        )
        assert all("stranger" not in neighbours(node) for node in nodes)


async def test_the_password_between_servers_is_replaced_while_they_serve(tmp_path: Path) -> None:
    ports = free_ports(3)
    credentials = Credentials(tmp_path / "credentials", *(f"{LOOPBACK}:{port}" for port in ports), cluster=CLUSTER)
    with contextlib.ExitStack() as stack:
        nodes = []
        for number, port in enumerate(ports, 1):
            nodes.append(start_node(f"nats-{number}", port, tmp_path, credentials))
            stack.callback(nodes[-1].kill)
        wait_until(lambda: all(has_met(node, 2) for node in nodes), ANSWER_TIMEOUT_S, "all routes")
        async with connected_as(nodes[0], credentials, "gateway") as (gateway, errors):
            credentials.rotate("route")
            for node in nodes:
                node.reload(credentials)
            wait_until(lambda: all(RELOADED in node.log() for node in nodes), ANSWER_TIMEOUT_S, "all to read it")
            nodes[2].kill()
            wait_until(lambda: all(has_met(node, 1) for node in nodes[:2]), ANSWER_TIMEOUT_S, "the end of a server")
            nodes[2].start(NATS_SERVER_NAME="nats-3")
            wait_until(lambda: all(has_met(node, 2) for node in nodes), ANSWER_TIMEOUT_S, "all routes again")
            await gateway.flush(ANSWER_TIMEOUT_S)
            assert not errors
            await check_journal(nodes[2], credentials)
