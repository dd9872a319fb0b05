"""`penstock up` from a user's view: its output, its errors, and its leftovers."""

import asyncio
import contextlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import nats.errors
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from nats.aio.client import Client

from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.ports import free_port

pytestmark = pytest.mark.e2e

# The arguments of each shape, and its number of processes.
SHAPES = [pytest.param("--agents=1", 3, id="agents"), pytest.param("--separate", 5, id="separate")]
ANSWER_S = 60
GONE_S = 120  # orphaned children may take the whole drain time to end


def up(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock up` with arguments that make it exit by itself."""
    command = [sys.executable, "-m", "penstock.cli", "up", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


def sentence_of(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode not in (0, None)
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def produce_one(bootstrap: str, value: bytes) -> int:
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("kept", value, on_delivery=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(60) == 0
    return offsets[0]


def read_one(bootstrap: str, offset: int) -> bytes:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "one"})
    try:
        consumer.assign([TopicPartition("kept", 0, offset)])
        message = wait_until(lambda: consumer.poll(1), 60, "a record")
        assert message.error() is None
        return bytes(message.value())
    finally:
        consumer.close()


def test_all_its_files_are_for_its_user_only_and_its_nats_server_wants_a_password(tmp_path: Path) -> None:
    with running(tmp_path / "data") as cluster:
        produce_one(cluster.kafka, b"private")
        modes = modes_of(cluster.data)
        assert len(modes) > 10
        assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
        address = cluster.nats_url.rpartition("@")[2]
        secret = cluster.nats_url.partition("//up:")[2].partition("@")[0]
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization violation"):
            asyncio.run(connect_without_password(f"nats://{address}"))
        asyncio.run(connect_and_close(cluster.nats_url))
        found = [path for path in (cluster.data / "logs").rglob("*") if secret in path.read_text(errors="replace")]
        assert (len(secret), found, secret in "".join(cluster.output)) == (65, [], False)


def modes_of(folder: Path) -> dict[Path, int]:
    """The permissions of the folder and of all that is in it, except of files that are removed meanwhile."""
    modes = {}
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            modes[path] = stat.S_IMODE(path.stat().st_mode)
    return modes


async def connect_without_password(url: str) -> None:
    client = Client()
    try:
        await client.connect(url, allow_reconnect=False, connect_timeout=ANSWER_S)
    finally:
        await client.close()


async def connect_and_close(url: str) -> None:
    await (await connect_nats(url, name="known")).close()


@pytest.mark.parametrize("flag", ["--kafka", "--http"])
def test_an_address_that_others_reach_is_refused_before_anything_is_made(tmp_path: Path, flag: str) -> None:
    result = up("--data", str(tmp_path / "data"), flag, f"0.0.0.0:{free_port()}")
    assert "--insecure" in sentence_of(result)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("shape", "count"), SHAPES)
def test_it_reports_when_it_is_ready_stops_all_processes_and_keeps_the_data(
    tmp_path: Path, shape: str, count: int
) -> None:
    with running(tmp_path / "data", shape) as cluster:
        assert f"penstock is ready: kafka on {cluster.kafka}" in "".join(cluster.output)
        offset = produce_one(cluster.kafka, b"before")
        pids = [process["pid"] for process in cluster.processes().values()]
        assert len(pids) == count
        assert cluster.stop() == 0
        assert not [pid for pid in pids if is_alive(pid)]
        cluster.start()
        assert read_one(cluster.kafka, offset) == b"before"
        assert produce_one(cluster.kafka, b"after") == offset + 1


def test_small_has_two_processes_survives_its_nats_server_and_leaves_the_data_to_larger_shapes(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--small") as cluster:
        offset = produce_one(cluster.kafka, b"before")
        pids = {name: process["pid"] for name, process in cluster.processes().items()}
        assert pids == {"nats-server": pids["nats-server"], "agent-1": cluster.pid}
        cluster.kill("nats-server")
        assert produce_one(cluster.kafka, b"after") == offset + 1
        assert cluster.stop() == 0
    with running(tmp_path / "data") as larger:
        assert (read_one(larger.kafka, offset), read_one(larger.kafka, offset + 1)) == (b"before", b"after")


def test_when_it_is_killed_all_its_processes_end_and_the_data_is_kept(tmp_path: Path) -> None:
    with running(tmp_path / "data") as cluster:
        offset = produce_one(cluster.kafka, b"before")
        pids = [process["pid"] for process in cluster.processes().values()]
        cluster.kill_parent()
        wait_until(lambda: not [pid for pid in pids if is_alive(pid)], GONE_S, "all children to end")
        cluster.start()
        assert read_one(cluster.kafka, offset) == b"before"


def test_a_port_in_use_is_one_clear_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        sentence = sentence_of(up("--data", str(tmp_path / "data"), "--kafka", address))
    assert address in sentence
    assert "--kafka" in sentence


def test_a_data_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    folder = tmp_path / "file" / "data"
    addresses = ["--kafka", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{free_port()}"]
    assert str(folder) in sentence_of(up("--data", str(folder), *addresses))


def test_a_second_one_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "data"):
        other = Cluster(tmp_path / "data")
        result = subprocess.run(other.command(), capture_output=True, text=True, timeout=180)
        assert "another penstock" in sentence_of(result)


def test_the_error_of_a_second_start_names_the_folder_and_not_a_port(tmp_path: Path) -> None:
    with running(tmp_path / "data") as first:
        result = subprocess.run(first.command(), capture_output=True, text=True, timeout=180)
        assert "another penstock" in sentence_of(result)


@pytest.mark.parametrize(
    ("store", "said"),
    [("s3://bucket?endpoint=http://127.0.0.1:1", "127.0.0.1:1"), ("gopher://x", "gopher"), ("s3://", "s3://")],
)
def test_a_store_that_cannot_be_reached_is_one_clear_sentence(tmp_path: Path, store: str, said: str) -> None:
    addresses = ["--kafka", f"127.0.0.1:{free_port()}", "--http", f"127.0.0.1:{free_port()}"]
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    assert said in sentence_of(up("--data", str(tmp_path / "data"), "--store", store, *addresses))


@pytest.mark.parametrize(
    "arguments",
    [("--kafka", "nonsense"), ("--kafka", "127.0.0.1:99999"), ("--flush-ms", "0"), ("--gateways", "0")],
)
def test_the_error_of_an_invalid_flag_names_it(tmp_path: Path, arguments: tuple[str, str]) -> None:
    assert arguments[0] in sentence_of(up("--data", str(tmp_path / "data"), *arguments))
