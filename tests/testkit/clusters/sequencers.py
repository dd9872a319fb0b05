"""Sequencer processes on one nats-server and one store in a folder."""

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.testkit.servers.nats import NatsServer
from tests.testkit.servers.ports import free_port
from tests.testkit.waiting import TIMEOUT_S, until

CLUSTER = "test"


class Process:
    """One sequencer process; `settings` are added to the usual ones."""

    def __init__(self, name: str, folder: Path, server: NatsServer, http_port: int, **settings: str) -> None:
        self.http = f"http://127.0.0.1:{http_port}"
        self.log = folder / f"{name}.log"
        all_settings = {
            "cluster": CLUSTER,
            "instance": name,
            "nats-url": server.url,
            "nats-monitor-url": server.monitor_url,
            "store-url": f"file://{folder}/objects",
            "http-port": str(http_port),
            **settings,
        }
        flags = [part for key, value in all_settings.items() for part in (f"--{key.replace('_', '-')}", value)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock_sequencer", *flags], stdout=output, stderr=output
            )

    def get(self, path: str, timeout_s: float = 5.0) -> str:
        with urllib.request.urlopen(self.http + path, timeout=timeout_s) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        values = dict(line.rpartition(" ")[::2] for line in self.get("/metrics", TIMEOUT_S).splitlines())
        return float(values[f"penstock_sequencer_{name}"])

    async def until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return bool(json.loads(self.get("/ready"))["ready"])
            except OSError:
                return False

        await until(is_ready)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


class Processes:
    """Sequencers that share a server and a store."""

    def __init__(self, folder: Path, server: NatsServer, **settings: str) -> None:
        self.folder = folder
        self.settings = settings
        self.server = server
        self.running: list[Process] = []

    async def start(self, name: str) -> Process:
        process = self.begin(name)
        await process.until_ready()
        return process

    def begin(self, name: str) -> Process:
        """Start a sequencer, which may never be ready, and do not wait for it."""
        process = Process(name, self.folder, self.server, free_port(), **self.settings)
        self.running.append(process)
        return process

    def end(self) -> None:
        for each in self.running:
            each.process.kill()
            each.process.wait()
