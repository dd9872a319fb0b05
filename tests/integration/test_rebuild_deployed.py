"""A rebuild with only the generated credentials of the user `journal`: S3 is whole, and NATS lost its disk."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.contracts.commands import CreateTopic
from penstock.contracts.ids import new_topic_id
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.objectstore import open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.process.env_file import read_env_file, with_store_keys
from penstock.segment.keys import parse_journal_archive_key
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.every_sender import EverySender
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.deployed import Credentials, DeployedNats, DeployedService, deployed_nats, deployed_seaweed

pytestmark = pytest.mark.slow

CLUSTER = "default"
START_TIMEOUT_S = 60.0


class Place:
    """The surroundings of a sequencer: one store, and one NATS after the other."""

    def __init__(self, folder: Path, credentials: Credentials, endpoint: str) -> None:
        self.folder = folder
        self.credentials = credentials
        self.store_url = f"s3://penstock/?endpoint={endpoint}&region=us-east-1"

    def settings(self, server: DeployedNats) -> dict[str, str]:
        return {"NATS_URL": server.url, "NATS_MONITOR_URL": server.monitor_url, "STORE_URL": self.store_url}

    @contextlib.contextmanager
    def sequencer(self, server: DeployedNats) -> Iterator[DeployedService]:
        service = DeployedService(
            "sequencer", ["-m", "penstock_sequencer"], self.folder, self.credentials, **self.settings(server)
        )
        try:
            wait_until(service.is_ready, START_TIMEOUT_S, "the sequencer")
            yield service
        finally:
            service.kill()

    def rebuild(self, server: DeployedNats, *arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "PENSTOCK_ENV_FILE": str(self.credentials.env_file("journal")),
            "PENSTOCK_STORE_URL": self.store_url,
            "PENSTOCK_ARCHIVE_AGE_MIN_S": "0",
            "PATH": os.environ["PATH"],
        }
        command = [sys.executable, "-m", "penstock.cli", "rebuild", "--nats-url", server.url, *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    credentials = Credentials(tmp_path / "credentials")
    (tmp_path / "s3").mkdir()
    with deployed_seaweed(tmp_path / "s3", credentials) as endpoint:
        made = Place(tmp_path, credentials, endpoint)
        environ = {
            "PENSTOCK_STORE_URL": made.store_url,
            "PENSTOCK_ENV_FILE": str(credentials.env_file("bucket")),
        }
        subprocess.run([sys.executable, "-m", "penstock.cli", "bucket"], env=environ, check=True, capture_output=True)
        yield made


async def client_of(server: DeployedNats, credentials: Credentials) -> tuple[Any, SequencerClient]:
    gateway = credentials.of("gateway")
    user, password = gateway["PENSTOCK_NATS_USER"], gateway["PENSTOCK_NATS_PASSWORD"]
    connection = await connect_nats(server.url, name="test", user=user, password=password)
    return connection, EverySender(connection.bus, CLUSTER, SystemClock())


async def archived(place: Place) -> int:
    """The last journal sequence in the archive, 0 without one."""
    file = read_env_file(str(place.credentials.env_file("sequencer")))
    store = await open_store(with_store_keys(place.store_url, file, {}))
    try:
        spans = [parse_journal_archive_key(info.key) for info in await store.list(f"{CLUSTER}/journal/")]
        return max((last for _, last in spans), default=0)
    finally:
        await store.close()


def new_folder(place: Place, name: str) -> Path:
    folder = place.folder / name
    folder.mkdir()
    return folder


async def test_the_credentials_of_the_user_journal_are_enough_for_a_rebuild(place: Place) -> None:
    with deployed_nats(new_folder(place, "nats-1"), place.credentials) as server, place.sequencer(server):
        connection, client = await client_of(server, place.credentials)
        topic_id = new_topic_id(bytes(16))
        await client.command([CreateTopic(SystemClock().now_ms(), "kept", topic_id, 3, {})], deadline_s=START_TIMEOUT_S)
        async with asyncio.timeout(START_TIMEOUT_S):
            while await archived(place) < client.seen_sequence:
                await asyncio.sleep(0.2)
        rejected = place.rebuild(server)
        assert (rejected.returncode, rejected.stdout) == (1, "")
        assert "exists. Nothing was changed" in rejected.stderr
        await connection.close()
    with deployed_nats(new_folder(place, "nats-2"), place.credentials) as server:
        done = place.rebuild(server, "--json")
        assert done.returncode == 0, done.stderr
        assert "Permissions Violation" not in server.log()
        first_sequence = json.loads(done.stdout)["first_sequence"]
        with place.sequencer(server):
            connection, client = await client_of(server, place.credentials)
            view = await client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=START_TIMEOUT_S)
            assert [(topic.name, topic.partitions) for topic in view.topics] == [("kept", 3)]
            assert view.sequence >= first_sequence
            await connection.close()
