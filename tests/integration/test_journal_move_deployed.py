"""A move with the generated credentials of the user `journal`, between two servers with the settings of deploy/."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.contracts.commands import CreateTopic
from penstock.contracts.ids import new_topic_id
from penstock.contracts.queries.topics import MetadataQuery, MetadataView
from penstock.objectstore import ObjectStore, open_store
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import NatsConnection
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.every_sender import EverySender
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.deployed import Credentials, DeployedNats, DeployedService, deployed_nats

pytestmark = pytest.mark.slow

CLUSTER = "default"
TIMEOUT_S = 60.0
KEY = f"{CLUSTER}/segments/0/one"


def store_url(folder: Path) -> str:
    return f"file://{folder}/objects?landing=jetstream:"


def sequencer(folder: Path, server: DeployedNats, credentials: Credentials) -> DeployedService:
    settings = {"NATS_URL": server.url, "NATS_MONITOR_URL": server.monitor_url, "STORE_URL": store_url(folder)}
    return DeployedService("sequencer", ["-m", "penstock_sequencer"], folder, credentials, **settings)


def move(
    folder: Path, old: DeployedNats, old_credentials: Credentials, new: DeployedNats, new_credentials: Credentials
) -> subprocess.CompletedProcess[str]:
    environ = {
        "PENSTOCK_ENV_FILE": str(old_credentials.env_file("journal")),
        "PENSTOCK_STORE_URL": store_url(folder),
        "PENSTOCK_NATS_URL": old.url,
        "PATH": os.environ["PATH"],
    }
    flags = ["--to", new.url, "--to-env-file", str(new_credentials.env_file("journal")), "--yes"]
    command = [sys.executable, "-m", "penstock.cli", "journal", "move", *flags]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S)


async def client_of(server: DeployedNats, credentials: Credentials) -> tuple[NatsConnection, SequencerClient]:
    gateway = credentials.of("gateway")
    user, password = gateway["PENSTOCK_NATS_USER"], gateway["PENSTOCK_NATS_PASSWORD"]
    connection = await connect_nats(server.url, name="test", user=user, password=password)
    return connection, EverySender(connection.bus, CLUSTER, SystemClock())


async def landing(server: DeployedNats, credentials: Credentials) -> ObjectStore:
    flusher = credentials.of("flusher")
    login = f"user=flusher&password={flusher['PENSTOCK_NATS_PASSWORD']}"
    return await open_store(f"jetstream://{server.url.removeprefix('nats://')}/{CLUSTER}?{login}")


async def test_the_credentials_of_the_user_journal_are_enough_for_a_move(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    here, there = Credentials(tmp_path / "here"), Credentials(tmp_path / "there")
    with deployed_nats(tmp_path / "one", here) as old, deployed_nats(tmp_path / "two", there) as new:
        first = sequencer(tmp_path, old, here)
        try:
            wait_until(first.is_ready, TIMEOUT_S, "the sequencer")
            connection, client = await client_of(old, here)
            topic_id = new_topic_id(bytes(16))
            await client.command([CreateTopic(SystemClock().now_ms(), "kept", topic_id, 3, {})], deadline_s=TIMEOUT_S)
            await connection.close()
            objects = await landing(old, here)
            await objects.put(KEY, [b"an express segment"])
            await objects.close()

            done = move(tmp_path, old, here, new, there)
            assert done.returncode == 0, done.stderr
            assert "Permissions Violation" not in old.log() + new.log()
            assert first.process.wait(TIMEOUT_S) != 0
            assert f"the journal was moved to {new.url}" in first.log()
            assert "Set nats_url of all services to these servers" in first.log()
        finally:
            first.kill()
        second = sequencer(tmp_path, new, there)
        try:
            wait_until(second.is_ready, TIMEOUT_S, "the sequencer at the new server")
            connection, client = await client_of(new, there)
            view = await client.query("metadata", MetadataQuery(0, None), MetadataView, deadline_s=TIMEOUT_S)
            assert [topic.name for topic in view.topics] == ["kept"]
            await connection.close()
            objects = await landing(new, there)
            assert await objects.get(KEY) == b"an express segment"
            await objects.close()
        finally:
            second.kill()
