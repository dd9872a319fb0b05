"""A standalone Spark cluster on loopback: a master and workers, from PySpark's distribution."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.testkit.clusters.cluster import logs_after_failure, wait_until
from tests.testkit.clusters.compactors import JAVA_OPTIONS, POLL_S, START_S, STOP_S
from tests.testkit.servers.ports import free_port

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


class StandaloneSpark:
    """One master, and workers with a core and a folder each."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.url = f"spark://127.0.0.1:{free_port()}"
        self.folders = [folder / f"worker-{number}" for number in range(workers)]
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Return when every worker has registered."""
        port = self.url.rpartition(":")[2]
        self._run("master", MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for folder in self.folders:
            options = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0")
            self._run(folder.name, WORKER, *options, "--work-dir", str(folder), self.url)
        for folder in self.folders:
            log = self._folder / f"{folder.name}.log"
            wait_until(lambda log=log: "registered with master" in log.read_text(), START_S, str(log), POLL_S)

    def used(self) -> list[bool]:
        """Whether each worker has run an executor."""
        return [any(folder.glob("app-*/*/stderr")) for folder in self.folders]

    def close(self) -> None:
        """End all processes; executors end with their workers."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(STOP_S)

    def _run(self, name: str, daemon: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            command = [home / "bin" / "spark-class", daemon, *arguments]
            self._processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))


@contextlib.contextmanager
def standalone_spark(folder: Path, workers: int = 2) -> Iterator[StandaloneSpark]:
    """A cluster, stopped at the end; after a failure the ends of its logs are printed."""
    folder.mkdir()
    with contextlib.closing(StandaloneSpark(folder, workers)) as spark, logs_after_failure(folder):
        spark.start()
        yield spark
