"""`penstock.testing` from a user's view: a folder of tests with nothing but the plugin, a producer and a consumer."""

import os
import signal
import sys
from pathlib import Path

import pytest

from penstock.contracts.errors import Invalid, Unavailable
from penstock.testing import PenstockServer
from tests.testkit.clusters.cluster import wait_until

pytest_plugins = "pytester"
pytestmark = pytest.mark.e2e

TESTS = """
import os
import pathlib
import signal

import pytest
from confluent_kafka import Consumer, Producer

seen = set()


@pytest.mark.parametrize("value", [b"first", b"second"])
def test_a_consumer_reads_what_a_producer_wrote(penstock_server, penstock_topic, value):
    servers = {"bootstrap.servers": penstock_server.bootstrap_servers}
    producer = Producer(servers)
    producer.produce(penstock_topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(servers | {"group.id": penstock_topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([penstock_topic])
    message = consumer.poll(60)
    assert (message.error(), message.value()) == (None, value)
    consumer.close()
    seen.add((penstock_server.pid, penstock_topic))


def test_the_server_is_one_and_the_topics_are_two(penstock_server):
    assert len({pid for pid, _ in seen}) == 1
    assert len({topic for _, topic in seen}) == 2
    pathlib.Path("pid").write_text(str(penstock_server.pid))
    if pathlib.Path("crash").exists():
        os.kill(os.getpid(), signal.SIGKILL)
"""
GONE_S = 60.0
QUIET = ("-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_fixtures_give_a_server_for_the_run_and_a_topic_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest_subprocess(*QUIET, timeout=180).assert_outcomes(passed=3)
    assert not is_alive(int((pytester.path / "pid").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_the_server_ends_when_the_test_run_is_killed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    (pytester.path / "crash").touch()
    assert pytester.runpytest_subprocess(*QUIET, timeout=180).ret == -signal.SIGKILL
    pid = int((pytester.path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), GONE_S, "the server to end")


def test_a_server_that_cannot_start_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"^penstock ended: penstock: --store must be file:///DIR"):
        PenstockServer(tmp_path, "--store", "gopher://x").start()


def test_a_topic_that_cannot_be_made_or_deleted_is_one_clear_sentence(tmp_path: Path) -> None:
    with PenstockServer(tmp_path) as server:
        with pytest.raises(Invalid, match=r"^topic 'a b' is not created: Topic name is invalid: [^()]*$"):
            server.create_topic("a b")
        with pytest.raises(Invalid, match=r"^topic 'none' is not deleted: unknown topic or partition$"):
            server.delete_topic("none")
