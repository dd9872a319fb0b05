"""An Apache Kafka of the pinned version: one broker with its defaults, on loopback."""

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benches.kafka.systems.system import System
from tests.conformance.provision import class_path, program, run
from tests.testkit.clusters.cluster import wait_until
from tests.testkit.servers.ports import free_ports

START_TIMEOUT_S = 120.0
LOG_CHARACTERS = 3_000
# Those of Kafka's own start script.
JAVA_OPTIONS = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
# The server.properties that Kafka ships, with the replication of a single broker. Deleted files are removed at once, so
# that the next measurement does not pay for their unwritten pages.
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
log.segment.delete.delay.ms=0
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
FSYNC = "log.flush.interval.messages=1\n"


class Apache:
    """A started broker."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        self.bootstrap = bootstrap
        self.pid = pid
        self.topic_configs: dict[str, str] = {}


@contextlib.contextmanager
def apache(*, is_synced: bool = False) -> Iterator[System]:
    """A new broker in a temporary folder; with `is_synced` it calls fsync before it acknowledges, as Penstock does."""
    java = [program("java"), *JAVA_OPTIONS, "-cp", class_path()]
    client, controller = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-kafka-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings = folder / "server.properties"
        properties = PROPERTIES.format(client=client, controller=controller, data=folder / "data")
        settings.write_text(properties + (FSYNC if is_synced else ""))
        run([*java, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAQACAAAAAAAAAEA", "-c", str(settings)], folder)
        log = folder / "output"
        with log.open("w") as output:
            process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=output, stderr=output, cwd=folder)
        try:
            wait_until(lambda: _listens(client) or process.poll() is not None, START_TIMEOUT_S, "Kafka to listen")
            assert process.poll() is None, f"Kafka ended: {log.read_text()[-LOG_CHARACTERS:]}"
            yield Apache(f"127.0.0.1:{client}", process.pid)
        finally:
            process.kill()  # its data is not needed again
            process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
