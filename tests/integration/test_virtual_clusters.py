"""Several virtual clusters on one sequencer process and one nats-server, each with NATS users of its own."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client

from penstock.cli import main
from penstock.cli.credentials.nats_accounts import accounts_of_clusters, password_variable
from penstock.clusters import ClusterQuotas, ClusterRecord, ClusterRegistry, ClusterState, ClusterWatch
from penstock.clusters.cleanup import Cleanup, CleanupLimits
from penstock.contracts import subjects
from penstock.contracts.commands import Command, CreatePartitions, CreateTopic, Outcome, Rejected
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import new_topic_id
from penstock.contracts.queries.topics import MetadataQuery, MetadataView, ValidateQuery, ValidateView
from penstock.contracts.rejections import Rejection
from penstock.contracts.subjects import Sender
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock, SystemEntropy
from tests.testkit.clusters.sequencers import Process, Processes
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats import NatsServer
from tests.testkit.waiting import TIMEOUT_S, known, until

CLUSTERS = ("a", "b")
LAST = "denied.to.all"
DENIED = re.compile(r'permissions violation for (publish|subscription) to "(.*?)"')
clock = SystemClock()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server with the users that `penstock cluster nats-config` prints; a user's name is its password."""
    folder = tmp_path / "nats"
    folder.mkdir()
    made = NatsServer(folder)
    text = accounts_of_clusters(CLUSTERS)
    users = re.findall(r"user: ([a-z-]+),", text)
    passwords = "".join(f"{password_variable(user)}: {json.dumps(user)}\n" for user in users)
    made.config_path.write_text(made.config_path.read_text() + passwords + text)
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    opened = await open_store(f"file://{tmp_path}/objects")
    yield opened
    await opened.close()


@pytest.fixture
async def process(tmp_path: Path, server: NatsServer, store: ObjectStore) -> AsyncIterator[Process]:
    """A sequencer process for all clusters that are registered; a and b are."""
    for name in CLUSTERS:
        await ClusterRegistry(store).create(ClusterRecord(name=name, created_id=name, created_ms=1))
    settings = {"clusters": "*", "nats-user": "sequencer", "nats-password": "sequencer"}
    processes = Processes(tmp_path, server, **settings)
    try:
        yield await processes.start("sequencer-1")
    finally:
        processes.end()


@contextlib.asynccontextmanager
async def connected(server: NatsServer, user: str) -> AsyncIterator[tuple[Client, list[str]]]:
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    client = Client()
    await client.connect(
        server.url, user=user, password=user, error_cb=note, allow_reconnect=False, connect_timeout=TIMEOUT_S
    )
    try:
        yield client, errors
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def administrator(server: NatsServer, cluster: str, role: str = "gateway") -> AsyncIterator[SequencerClient]:
    user = f"{role}-{cluster}"
    connection = await connect_nats(server.url, name=user, user=user, password=user)
    try:
        yield SequencerClient(connection.bus, cluster, clock, sender=Sender.CLIENT)
    finally:
        await connection.close()


async def topics(client: SequencerClient) -> set[str]:
    view = await client.query("metadata", MetadataQuery(client.seen_sequence, None), MetadataView, deadline_s=TIMEOUT_S)
    return {topic.name for topic in view.topics}


def topic_of(name: str, partitions: int = 1) -> CreateTopic:
    return CreateTopic(clock.now_ms(), name, new_topic_id(SystemEntropy().take(16)), partitions, {})


async def create_topic(client: SequencerClient, name: str) -> None:
    await client.command([topic_of(name)], deadline_s=TIMEOUT_S)


def subjects_of(cluster: str) -> set[str]:
    """Subjects of all kinds with which services of a cluster talk to each other and to its journal."""
    stream, landing = subjects.journal_stream(cluster), subjects.landing_stream(cluster)
    return {
        *(subjects.sequencer_command(cluster, sender) for sender in Sender),
        *(subjects.sequencer_query(cluster, name) for name in subjects.QUERY_NAMES),
        subjects.flush(cluster, "z1", "x"),
        subjects.cache(cluster, "z1", "x"),
        subjects.confirm(cluster, "x"),
        subjects.advanced(cluster),
        subjects.heard(cluster),
        subjects.explain(cluster),
        subjects.journal_subject(cluster),
        *(subjects.presence(cluster, role, "z1", "x") for role in ("gateway", "sequencer", "admin")),
        *(f"_INBOX.{role}-{cluster}.x.1" for role in ("gateway", "flusher", "cacher", "admin", "agent", "console")),
        *(
            f"$JS.API.{verb}.{name}"
            for name in (stream, landing)
            for verb in ("STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE")
        ),
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}",
        f"$JS.API.DIRECT.GET.{landing}.x",
    }


@pytest.mark.parametrize("role", ["gateway", "flusher", "cacher", "agent", "console", "admin"])
async def test_no_user_of_a_cluster_reaches_another_cluster(server: NatsServer, role: str) -> None:
    foreign = subjects_of("b")
    wildcards = {"penstock.>", "penstock.b.>", "penstock.*.presence.>", "_INBOX.>", f"_INBOX.{role}-b.>", ">"}
    async with connected(server, f"{role}-a") as (client, errors):
        for subject in foreign:
            await client.publish(subject, b"")
        for subject in foreign | wildcards:
            await client.subscribe(subject)
        await client.publish(LAST, b"")
        await until(lambda: any(LAST in error for error in errors))
        found = [match for error in errors for match in DENIED.findall(error)]
    assert {subject for kind, subject in found if kind == "publish"} >= {subject.lower() for subject in foreign}
    assert {subject for kind, subject in found if kind == "subscription"} >= {
        subject.lower() for subject in foreign | wildcards
    }


@pytest.mark.parametrize("role", ["gateway", "flusher", "agent"])
async def test_no_user_of_a_cluster_makes_a_stream_that_could_copy_another_one(server: NatsServer, role: str) -> None:
    streams = {subjects.landing_stream("a"), subjects.journal_stream("a")}
    wanted = {f"$JS.API.{verb}.{stream}" for verb in ("STREAM.CREATE", "CONSUMER.CREATE") for stream in streams}
    async with connected(server, f"{role}-a") as (client, errors):
        for subject in {*wanted, LAST}:
            await client.publish(subject, b"")
        await until(lambda: any(LAST in error for error in errors))
        found = {subject for error in errors for _, subject in DENIED.findall(error)}
    assert found >= {subject.lower() for subject in wanted}


async def test_a_cluster_gets_no_more_partitions_than_its_quota(
    process: Process, server: NatsServer, store: ObjectStore
) -> None:
    registry = ClusterRegistry(store)
    found = await registry.find("a")
    assert found is not None
    await registry.replace(found, msgspec.structs.replace(found.record, quotas=ClusterQuotas(partitions=4)))
    async with administrator(server, "a") as a, administrator(server, "b") as b:
        first = topic_of("first", 3)
        await a.command([first], deadline_s=TIMEOUT_S)
        growth = CreatePartitions(clock.now_ms(), "first", 5)

        async def rejected() -> Outcome:
            """The outcome of a trial, when the sequencer has read the new quota."""
            query = ValidateQuery(a.seen_sequence, [growth])
            (outcome,) = (await a.query("validate", query, ValidateView, deadline_s=TIMEOUT_S)).outcomes
            if not isinstance(outcome, Rejected):
                raise Unavailable("the quota is not known yet")
            return outcome

        await known(rejected)
        commands: list[Command] = [topic_of("one-more"), topic_of("too-many"), growth, first]
        outcomes = await a.command(commands, deadline_s=TIMEOUT_S)
        await b.command([topic_of("of-b", 50)], deadline_s=TIMEOUT_S)
        assert await topics(a) == {"first", "one-more"} and await topics(b) == {"of-b"}
    kinds = [each.rejection if isinstance(each, Rejected) else None for each in outcomes]
    assert kinds == [None, Rejection.POLICY_VIOLATION, Rejection.POLICY_VIOLATION, None]


async def test_clusters_have_their_own_topics_and_a_lost_journal_of_one_harms_no_other(
    process: Process, server: NatsServer
) -> None:
    async with administrator(server, "a") as a, administrator(server, "b") as b:
        await create_topic(a, "of-a")
        await create_topic(b, "of-b")
        assert await topics(a) == {"of-a"} and await topics(b) == {"of-b"}
    connection = await connect_nats(server.url, name="janitor", user="janitor", password="janitor")
    await connection.delete_stream(subjects.journal_stream("a"))
    await connection.close()
    await until(lambda: "the journal of cluster a" in _problem_of_a(process))
    assert json.loads(process.get("/ready"))["ready"]
    assert 'penstock_hosted_clusters{state="failed"} 1.0' in process.get("/metrics")
    async with administrator(server, "b") as b:
        await create_topic(b, "still-works")
        assert await topics(b) == {"of-b", "still-works"}


def _problem_of_a(process: Process) -> str:
    report: dict[str, Any] = json.loads(process.get("/health"))
    return str(report["degraded"].get("a: cluster", ""))


async def test_the_command_line_creates_deletes_and_brings_back_a_cluster(
    process: Process,
    server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_NATS_USER", "admin-a")
    monkeypatch.setenv("PENSTOCK_NATS_PASSWORD", "admin-a")
    where = ["--nats-url", server.url, "--store", f"file://{tmp_path}/objects", "-o", "json"]

    async def run(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["cluster", *words, *where])
        captured = capsys.readouterr()
        return code, captured.out or captured.err

    assert (await run("create", "a", "--if-absent"))[0] == 0
    assert "exists" in (await run("create", "a"))[1]
    code, text = await run("create", "c", "--wait-s", "0", "--tenant", "t", "--quota-partitions", "7")
    assert code == 0 and json.loads(text)["created"] == ["c"]
    assert "the cluster c has the name 't' already" in (await run("create", "d", "--tenant", "t"))[1]
    assert json.loads((await run("describe", "c"))[1])["quota_partitions"] == 7
    code, text = await run("create", "c,e", "--replace", "--wait-s", "0", "--quota-connections", "9")
    made = json.loads(text)
    assert (code, made["created"], made["clusters"]) == (0, ["e"], ["c", "e"])
    replaced = json.loads((await run("describe", "c"))[1])
    assert (replaced["quota_partitions"], replaced["quota_connections"], replaced["tenants"]) == (0, 9, [])
    await until(lambda: "c" in json.loads(process.get("/ready"))["clusters"])

    assert "Confirm it with --yes" in (await run("delete", "a"))[1]
    assert json.loads((await run("delete", "a", "--dry-run"))[1])["state"] == "deleted"
    assert json.loads((await run("describe", "a"))[1])["state"] == "active"
    async with administrator(server, "a") as a:
        await create_topic(a, "kept")
    described = json.loads((await run("describe", "a"))[1])
    assert (described["used_partitions"], described["used_stored_bytes"]) == (1, 0)
    assert (await run("delete", "a", "--yes"))[0] == 0
    await until(lambda: "a" not in json.loads(process.get("/ready"))["clusters"])
    assert "penstock cluster undelete a" in (await run("create", "a"))[1]
    assert (await run("undelete", "a"))[0] == 0
    async with administrator(server, "a") as a:
        assert await topics(a) == {"kept"}


async def test_a_deleted_cluster_goes_with_its_journal_and_objects_and_its_name_begins_anew(
    process: Process, server: NatsServer, store: ObjectStore, tmp_path: Path
) -> None:
    async with administrator(server, "a") as a:
        await create_topic(a, "old")
    registry = ClusterRegistry(store)
    found = await registry.find("a")
    assert found is not None
    now_ms = clock.now_ms()
    fields = {"deleted_ms": now_ms, "undelete_until_ms": now_ms + 1}
    await registry.replace(found, msgspec.structs.replace(found.record, state=ClusterState.DELETED, **fields))
    connection = await connect_nats(server.url, name="janitor", user="janitor", password="janitor")
    cleanup = Cleanup(
        watch=ClusterWatch(store),
        store=store,
        connection=connection,
        clock=clock,
        entropy=SystemEntropy(),
        set_degraded=lambda name, reason: None,
        address=f"file://{tmp_path}/objects",
        has_own_landing=True,
        is_wanted=lambda name: True,
        limits=CleanupLimits(rest_ms=0),
    )

    async def clean() -> None:
        """Clean until the name is free. As long as the process has not noticed the deletion, that is `Unavailable`."""
        while (found := await registry.find("a")) is None or found.record.state != ClusterState.GONE:
            await cleanup.clean("a")

    await known(clean)
    assert not await store.list("a/") and await store.list("b/")
    await registry.create(ClusterRecord(name="a", created_id="a-2", created_ms=2))
    await until(lambda: "a" in json.loads(process.get("/ready"))["clusters"])
    async with administrator(server, "a") as a:
        assert await topics(a) == set()
    await connection.close()


async def test_a_sequencer_started_by_name_ends_when_its_cluster_is_deleted(
    tmp_path: Path, server: NatsServer, store: ObjectStore
) -> None:
    registry = ClusterRegistry(store)
    created = await registry.create(ClusterRecord(name="a", created_id="a", created_ms=1))
    settings = {"cluster": "a", "nats-user": "sequencer", "nats-password": "sequencer"}
    processes = Processes(tmp_path, server, **settings)
    try:
        running = await processes.start("one")
        await registry.replace(created, msgspec.structs.replace(created.record, state=ClusterState.DELETED))
        assert await running.ended() == 1
        assert "penstock cluster undelete a" in running.log.read_text()
        late = processes.begin("two")
        assert await late.ended() == 1
    finally:
        processes.end()
