"""A real S3 server with the keys of `penstock credentials`: each allows the work of its service, and nothing else."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from penstock.clusters import ClusterRegistry
from penstock.contracts.errors import Invalid
from penstock.objectstore import AlreadyExists, ObjectStore, open_store
from penstock.objectstore.errors import NotDeleted, NotFound
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.segment.keys import cluster_record_key, journal_archive_key, segment_key, snapshot_key
from tests.testkit.servers.deployed import Credentials
from tests.testkit.servers.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.testkit.servers.seaweed import running_seaweed

pytestmark = pytest.mark.slow

PREFIX, OURS, OTHER = "tests/store", "orders", "payments"
SEGMENT = bytes(range(16))
HOSTED = "hosted-"  # before the name of a service that hosts all clusters

VERBS = ("get", "list", "put", "delete")
SEGMENTS = ("flushed", "compacted")
JOURNAL = ("snapshot", "archive")
READS = {f"{verb} {kind}" for verb in ("get", "list") for kind in SEGMENTS}
EVERY_READ = {f"{verb} {kind}" for verb in ("get", "list") for kind in (*SEGMENTS, *JOURNAL, "marker")}
ALLOWED: Mapping[str, set[str]] = {  # a cacher has the rights of a gateway, and an agent those of both and a flusher
    "gateway": READS,
    "flusher": {"put flushed"},
    "compactor": READS | {"put compacted"},
    "sequencer": {f"{verb} {kind}" for verb in VERBS for kind in JOURNAL}
    | {"get marker", "list marker", "put marker", "get record", "list record"},
    "janitor": {f"list {kind}" for kind in (*SEGMENTS, *JOURNAL, "marker")}
    | {f"delete {kind}" for kind in SEGMENTS}
    | {"get marker"},
    "admin": EVERY_READ,
    "journal": EVERY_READ | {f"put {kind}" for kind in ("compacted", *JOURNAL, "marker")},
}


def keys_of(cluster: str) -> dict[str, str]:
    return {
        "flushed": segment_key("", cluster, 0, SEGMENT),
        "compacted": segment_key("", cluster, 1, SEGMENT),
        "snapshot": snapshot_key("", cluster, 7),
        "archive": journal_archive_key("", cluster, 1, 7),
        "marker": f"{cluster}/journal-identity",
        "record": cluster_record_key("", cluster),
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("seaweed")
    with running_seaweed(folder, keys(folder)) as started:
        asyncio.run(put_objects(started))
        yield started


def keys(folder: Path) -> dict[str, Any]:
    """The keys that `penstock credentials` makes for one cluster, and those for all, with other names and one secret.

    The name of a user is its access key.
    """
    wanted = {"bucket": BUCKET, "prefix": PREFIX, "cluster": OURS}
    joint: dict[str, Any] = {"identities": [], "policies": []}
    for before, options in (("", {}), (HOSTED, {"hosts_clusters": True})):
        made = Credentials(folder / f"credentials-{before}", **wanted, **options)
        found = json.loads((made.folder / "s3" / "s3.json").read_text())
        for each in found["identities"]:
            name = before + each["name"]
            key = {"accessKey": name, "secretKey": SECRET_KEY}
            names = [before + policy for policy in each.get("policyNames", [])]
            joint["identities"].append(each | {"name": name, "credentials": [key], "policyNames": names})
        joint["policies"] += [each | {"name": before + each["name"]} for each in found["policies"]]
    return joint


async def put_objects(server: S3Server) -> None:
    """Every kind of object in both clusters."""
    async with opened(server, ACCESS_KEY) as store:
        for cluster in (OURS, OTHER):
            for key in keys_of(cluster).values():
                await store.put(key, [b"an object"])


@contextlib.asynccontextmanager
async def opened(server: S3Server, user: str) -> AsyncIterator[ObjectStore]:
    options = {"endpoint": server.endpoint, "access_key": user, "secret_key": SECRET_KEY}
    store = await open_store(f"s3://{BUCKET}/{PREFIX}?{urlencode(options)}")
    try:
        yield store
    finally:
        await store.close()


async def is_allowed(store: ObjectStore, verb: str, key: str) -> bool:
    """Whether the server allows the request, which changes no existing object."""
    try:
        match verb:
            case "get":
                assert await store.get(key) == b"an object"
            case "list":
                assert key in [info.key for info in await store.list(key)]
            case "put":
                with contextlib.suppress(AlreadyExists):
                    await store.put(key, [b"another object"])
            case "delete":
                await store.delete([f"{key}0"])  # an absent object
    except (Invalid, NotDeleted) as error:
        assert "AccessDenied" in str(error), error
        return False
    return True


async def allowed(store: ObjectStore, cluster: str) -> set[str]:
    kinds = keys_of(cluster).items()
    return {f"{verb} {kind}" for verb in VERBS for kind, key in kinds if await is_allowed(store, verb, key)}


@pytest.mark.parametrize("service", ALLOWED)
async def test_a_service_does_its_work_and_nothing_else(server: S3Server, service: str) -> None:
    async with opened(server, service) as store:  # as the service does at its start
        assert await allowed(store, OURS) == ALLOWED[service]
        assert await allowed(store, OTHER) == set(), "of another cluster"
        with pytest.raises(Invalid, match="AccessDenied"):
            await store.list("", limit=2)
        if "get flushed" in ALLOWED[service]:
            with pytest.raises(NotFound):
                await store.get(segment_key("", OURS, 0, SEGMENT[::-1]))


async def test_a_console_opens_no_store(server: S3Server) -> None:
    with pytest.raises(Invalid, match="AccessDenied"):
        async with opened(server, "console"):
            pass


async def test_a_janitor_ends_the_upload_of_a_compactor(server: S3Server) -> None:
    key = segment_key("", OURS, 2, SEGMENT)
    async with opened(server, "compactor") as compactor, opened(server, "janitor") as janitor:
        left = await compactor.begin_parts(key, PART_BYTES_MIN)
        await left.put_part(0, [b"a part"])
        [upload] = await janitor.unfinished(f"{OURS}/")
        await janitor.abort_unfinished(upload)
        assert await janitor.unfinished(f"{OURS}/") == []
        done = await compactor.begin_parts(key, PART_BYTES_MIN)
        await done.put_part(0, [b"the only part"])
        await done.complete()
        assert await compactor.get(key) == b"the only part"


async def test_a_janitor_of_all_clusters_empties_them_and_keeps_the_registry(server: S3Server) -> None:
    async with opened(server, HOSTED + "janitor") as store:
        found = await allowed(store, OTHER)
        everything = {f"delete {kind}" for kind in keys_of(OTHER)}
        assert everything - found == {"delete record"}
        assert {"get record", "list record", "put record"} <= found
        assert await is_allowed(store, "put", f"{OTHER}/cleanup-0")


async def test_a_gateway_of_all_clusters_reads_segments_and_the_registry(server: S3Server) -> None:
    async with opened(server, HOSTED + "gateway") as store:
        assert await allowed(store, OTHER) == READS | {"get record", "list record"}


async def test_an_operator_of_all_clusters_reads_everything_and_registers_clusters(server: S3Server) -> None:
    async with opened(server, HOSTED + "admin") as store:
        writes = {each for each in await allowed(store, OTHER) if each.startswith(("put ", "delete "))}
        assert writes == {"put record"}
        assert await ClusterRegistry(store).has_data(OTHER)
        assert len(await store.list("", limit=2)) == 2
