"""Connections to a real nats-server with permissions for each user."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
import structlog.testing

from penstock.contracts.errors import Invalid, Unavailable
from penstock.runtime.bus.bus import Inbound
from penstock.runtime.nats.client import NatsConnection
from penstock.runtime.nats.server import server_config
from tests.testkit.servers.connections import connect_nats
from tests.testkit.servers.nats_cluster import NatsNode
from tests.testkit.servers.ports import free_ports
from tests.testkit.waiting import TIMEOUT_S, until

USERS = """
authorization { users: [
  { user: asker, password: secret, permissions: {
      publish: ["question", "_INBOX.asker.>"], subscribe: ["_INBOX.asker.>", "events"] } }
  { user: answerer, password: secret, permissions: {
      publish: ["_INBOX.>"], subscribe: ["question", "_INBOX.answerer.>"] } }
  { user: deaf, password: secret, permissions: { publish: [">"], subscribe: ["events"] } }
] }
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsNode]:
    port, monitor_port = free_ports(2)
    node = NatsNode("guarded", tmp_path, port, monitor_port)
    settings = server_config(store_dir=tmp_path / "jetstream", host="127.0.0.1", port=port)
    node.config_path.write_text(settings + USERS)
    node.start()
    yield node
    node.kill()


async def connect(
    server: NatsNode, user: str, registry: prometheus_client.CollectorRegistry | None = None
) -> NatsConnection:
    return await connect_nats(server.url, name=user, user=user, password="secret", registry=registry)


async def ignore(_message: Inbound) -> None:
    pass


async def test_answers_come_to_inboxes_that_are_named_after_the_user(server: NatsNode) -> None:
    asker, answerer = await connect(server, "asker"), await connect(server, "answerer")

    async def echo(message: Inbound) -> None:
        await message.respond(message.data)

    await answerer.bus.subscribe("question", echo)
    await answerer.bus.flush()
    assert await asker.bus.request("question", b"hello", TIMEOUT_S) == b"hello"
    await asker.bus.flush()
    await asker.close()
    await answerer.close()


async def test_a_user_without_permission_for_an_inbox_is_not_connected(server: NatsNode) -> None:
    with pytest.raises(Invalid, match=r"^the nats server does not let its user subscribe to _inbox\.deaf\."):
        await connect(server, "deaf")


async def test_a_refused_subscription_ends_the_process_and_every_wait_for_an_answer(server: NatsNode) -> None:
    asker, answerer = await connect(server, "asker"), await connect(server, "answerer")

    async def give_no_answer(_message: Inbound) -> None:
        await asyncio.Event().wait()

    await answerer.bus.subscribe("question", give_no_answer)
    await answerer.bus.flush()
    running = asyncio.create_task(asker.bus.run_until_closed())
    asking = asyncio.create_task(asker.bus.request("question", b"", 10 * TIMEOUT_S))
    await asker.bus.flush()
    with structlog.testing.capture_logs() as logged:
        await asker.bus.subscribe("secrets", ignore)
        with pytest.raises(Invalid, match=r"^the nats server does not let its user subscribe to secrets$"):
            await asyncio.wait_for(running, TIMEOUT_S)
        with pytest.raises(Unavailable, match="no answer on question: the nats server does not let its user"):
            await asyncio.wait_for(asking, TIMEOUT_S)
    denied = [event for event in logged if event["event"] == "nats_permission_denied"]
    assert [(event["verb"], event["subject"]) for event in denied] == [("subscribe", "secrets")]
    await asker.close()
    await answerer.close()


async def test_a_subscription_that_may_be_refused_ends_nothing(server: NatsNode) -> None:
    asker, answerer = await connect(server, "asker"), await connect(server, "answerer")

    async def echo(message: Inbound) -> None:
        await message.respond(message.data)

    await answerer.bus.subscribe("question", echo)
    await answerer.bus.flush()
    with structlog.testing.capture_logs() as logged:
        await asker.bus.subscribe("Secrets", ignore, may_be_denied=True)
        await asker.bus.flush()
        await until(lambda: [event for event in logged if event["event"] == "nats_permission_denied"])
    assert await asker.bus.request("question", b"hello", TIMEOUT_S) == b"hello"
    await asker.close()
    await asker.bus.run_until_closed()
    await answerer.close()


async def test_a_refused_message_is_logged_once_and_counted_each_time_and_ends_nothing(server: NatsNode) -> None:
    registry = prometheus_client.CollectorRegistry()
    asker = await connect(server, "asker", registry)

    def rejected() -> float | None:
        return registry.get_sample_value("penstock_bus_dropped_messages_total", {"cause": "refused"})

    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            await asker.bus.publish("secrets", b"")
        await until(lambda: rejected() == 3)
    denied = [event for event in logged if event["event"] == "nats_permission_denied"]
    assert [(event["verb"], event["subject"], event["log_level"]) for event in denied] == [
        ("publish", "secrets", "error")
    ]
    await asker.bus.subscribe("events", ignore)
    await asker.bus.flush()
    running = asyncio.create_task(asker.bus.run_until_closed())
    await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await asker.close()


async def test_a_user_whose_name_is_no_subject_token_is_invalid() -> None:
    with pytest.raises(Invalid, match=r"nats user must be 1 to 64 letters, digits, '_' or '-': 'a\.b'"):
        await connect_nats("nats://127.0.0.1:1", name="test", user="a.b", password="secret")
