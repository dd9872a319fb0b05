"""`PenstockContainer`: the image with everything small, used from the host by a real producer and consumer."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from testcontainers.core.config import testcontainers_config

from penstock.contracts.errors import Unavailable
from penstock.testing import PenstockContainer
from tests.testkit.clusters.compose import docker

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "penstock/small:tests"
IMAGE_BYTES_MAX = 280 * 2**20


@pytest.fixture(scope="module")
def image() -> str:
    """The image, built as in docs/guides/testing.md."""
    build = ["docker", "compose", "--file", str(ROOT / "compose.small.yaml"), "--progress", "quiet", "build"]
    subprocess.run(build, env={**os.environ, "PENSTOCK_VERSION": "tests"}, check=True)
    testcontainers_config.ryuk_disabled = True  # each test stops its container, and the watcher needs an image
    return IMAGE


def test_a_container_serves_clients_of_the_host_by_the_port_that_docker_chose(image: str) -> None:
    with PenstockContainer(image) as penstock:
        servers = {"bootstrap.servers": penstock.get_bootstrap_server()}
        producer = Producer(servers)
        producer.produce("made-by-its-first-record", b"value")
        assert producer.flush(60) == 0
        consumer = Consumer(servers | {"group.id": "readers", "auto.offset.reset": "earliest"})
        brokers = consumer.list_topics(timeout=60).brokers.values()
        assert [f"{broker.host}:{broker.port}" for broker in brokers] == [penstock.get_bootstrap_server()]
        consumer.subscribe(["made-by-its-first-record"])
        message = consumer.poll(60)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"value")
        consumer.close()
        with urllib.request.urlopen(f"{penstock.get_console_url()}/ready", timeout=60) as answer:
            assert json.load(answer)["ready"]
        facts = json.loads(docker("inspect", penstock.get_wrapped_container().id))[0]
        assert facts["Config"]["User"] == "10001:10001"


def test_the_image_is_small(image: str) -> None:
    assert json.loads(docker("inspect", image))[0]["Size"] < IMAGE_BYTES_MAX


def test_a_container_that_cannot_start_is_removed_with_its_words_in_the_error(image: str) -> None:
    container = PenstockContainer(image, arguments="--flush-ms 0")
    with pytest.raises(Unavailable, match="--flush-ms must be from 5 to 60000: 0"):
        container.start()
    assert docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}") == ""
