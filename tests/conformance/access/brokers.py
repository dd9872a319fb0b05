"""Two brokers to compare, an Apache Kafka and a Penstock, and their administrators: each sets bindings at once."""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.contracts.acls import AclBinding, AclFilter
from penstock.contracts.commands import CreateTopic, Rejected
from penstock.contracts.commands.security import CreateAcls, DeleteAcls
from penstock.contracts.levels import SECURITY_LEVEL
from penstock.contracts.subjects import Sender
from penstock.kafkawire.api import (
    API_TABLE,
    api_versions,
    create_acls,
    create_topics,
    decode_response,
    delete_acls,
    encode_request,
    is_flexible,
    metadata,
)
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import SystemClock
from penstock.runtime.nats.client import connect_nats
from tests.conformance.provision import JAVA_JAR, JAVA_OPTIONS, class_path, compiled, program, run
from tests.testkit.clusters.cluster import Cluster, running, wait_for_level, wait_until
from tests.testkit.servers.ports import free_port

PRINCIPALS = Path(__file__).parent / "ListenerPrincipals.java"
START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENT://127.0.0.1:{client},ADMIN://127.0.0.1:{admin},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=ADMIN
controller.listener.names=CONTROLLER
listener.security.protocol.map=CLIENT:PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:root
principal.builder.class=ListenerPrincipals
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


class Connection:
    """One connection of a client without a login."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S)

    def ask(self, key: int, version: int, request: Any) -> Any:
        """The answer to one request; `ConnectionError` if the broker ends the connection instead."""
        tagged = is_flexible(API_TABLE[key], version)
        tagged_answer = tagged and key != api_versions.API.key  # KIP-511: its answer must be readable by any client
        head = struct.pack(">hhih", key, version, 7, -1) + (b"\0" if tagged else b"")
        body = encode_request(key, version, request)
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (length,) = struct.unpack(">i", self._receive(4))
        return decode_response(key, version, self._receive(length)[5 if tagged_answer else 4 :])

    def close(self) -> None:
        self._socket.close()

    def _receive(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            more = self._socket.recv(size_bytes - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


class Broker:
    """A broker: its address for clients, and the action that replaces all its bindings."""

    def __init__(
        self, name: str, address: str, topic_id: bytes, replace: Callable[[Sequence[AclBinding]], None]
    ) -> None:
        self.name = name
        self.address = address
        self.topic_id = topic_id  # of the one topic that exists
        self.replace = replace


@contextlib.contextmanager
def kafka(folder: Path, topic: str) -> Iterator[Broker]:
    """An Apache Kafka of the pinned version, with its StandardAuthorizer."""
    principals = compiled("listener-principals-jar", PRINCIPALS) / JAVA_JAR
    java = [program("java"), *JAVA_OPTIONS, "-cp", class_path(principals)]
    ports = {"client": free_port(), "admin": free_port(), "controller": free_port()}
    settings = folder / "server.properties"
    settings.write_text(PROPERTIES.format(**ports, data=folder / "data"))
    run([*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAEA", "-c", str(settings)], folder)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=output, stderr=output)
    try:
        admin = wait_until(lambda: _connected(f"127.0.0.1:{ports['admin']}"), START_TIMEOUT_S, "Kafka to listen")
        new = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(topic, 1, 1)], 30_000)
        made_topics = admin.ask(create_topics.API.key, 7, new).topics
        assert made_topics[0].error_code == 0, made_topics
        asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=topic)], False)
        wait_until(lambda: not admin.ask(3, 12, asked).topics[0].error_code, START_TIMEOUT_S, "Kafka's topic")
        address = f"127.0.0.1:{ports['client']}"
        yield Broker("Kafka", address, made_topics[0].topic_id, lambda bindings: _replace(admin, bindings))
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


def _connected(address: str) -> Connection | None:
    try:
        return Connection(address)
    except OSError:
        return None


def _replace(admin: Connection, bindings: Sequence[AclBinding]) -> None:
    every = delete_acls.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    admin.ask(delete_acls.API.key, 3, delete_acls.DeleteAclsRequest([every]))
    new = [
        create_acls.AclCreation(
            each.resource_type,
            each.name,
            each.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission,
        )
        for each in bindings
    ]
    results = admin.ask(create_acls.API.key, 3, create_acls.CreateAclsRequest(new)).results
    assert not any(each.error_code for each in results), results


@contextlib.contextmanager
def penstock(folder: Path, topic: str) -> Iterator[Broker]:
    """A `penstock up` with access control; the administrator sends commands to its sequencers."""
    topic_id = b"\3" * 16
    with (
        _settings(AUTHORIZER="on", SHARE_GROUPS="true"),
        running(folder / "data", "--flush-ms", "20") as cluster,
        asyncio.Runner() as runner,
    ):
        wait_for_level(cluster, SECURITY_LEVEL)
        runner.run(_commands(cluster, Sender.CLIENT, CreateTopic(_now_ms(), topic, topic_id, 1, {})))

        def replace(bindings: Sequence[AclBinding]) -> None:
            changes = DeleteAcls(_now_ms(), [AclFilter()]), CreateAcls(_now_ms(), list(bindings))
            runner.run(_commands(cluster, Sender.ADMIN, *changes))

        yield Broker("Penstock", cluster.kafka, topic_id, replace)


def _started(folder: Path) -> contextlib.AbstractContextManager[Cluster]:
    return running(folder / "data", "--flush-ms", "20")


@contextlib.contextmanager
def _settings(**settings: str) -> Iterator[None]:
    """Settings in the environment, for the processes that start meanwhile."""
    before = dict(os.environ)
    os.environ.update({f"PENSTOCK_{name}": value for name, value in settings.items()})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _commands(cluster: Cluster, sender: Sender, *commands: Any) -> None:
    connection = await connect_nats(cluster.nats_url, name="comparison")
    try:
        client = SequencerClient(connection.bus, "default", SystemClock(), sender=sender)
        # In one entry: a gateway never has the bindings between two changes.
        for outcome in await client.command(list(commands), deadline_s=30.0):
            assert not isinstance(outcome, Rejected), f"a command was rejected: {outcome}"
    finally:
        await connection.close()
