"""The time of a Produce request with and without landing stores: gateways, flusher and sequencers in virtual time.

The processes are those of the simulator: all services are real, and the network, the journal and the stores have given
waits. So the figures do not depend on the load of this machine. They do not contain the time of its processors.
"""

import asyncio
import logging
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import structlog

from benches.report import Result
from benches.slow_store import Waits
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.kafkawire.api.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.kafkawire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.kafkawire.records import Record, build_batch
from penstock_flusher.app import FlusherApp
from penstock_flusher.config import FlusherConfig
from penstock_sequencer.core.machine import apply_entry
from tests.testkit.sim.clients.kafka import CREATE_TOPICS, PRODUCE, KafkaClient, KafkaConnection, Witness
from tests.testkit.sim.environment.loop import SimLoop
from tests.testkit.sim.environment.process import Process
from tests.testkit.sim.environment.services import CLUSTER, app_factories, gateway_address
from tests.testkit.sim.environment.shared import SharedEnvironment
from tests.testkit.sim.environment.store import StoreFaults, StoreServer
from tests.testkit.sim.environment.wire import START_MS, Latency, Wire
from tests.testkit.sim.length import LONG

TOPIC = "events"
CLIENTS, INTERVAL_S = 10, 0.05  # each sends one record of 1 KiB per interval: 200 requests a second
PARTITIONS = 4
VERSION = 9
ACKNOWLEDGED_BY_ALL = -1
COUNTS = {"sequencer": 3, "flusher": 1, "gateway": 1, "cacher": 1}
HOP, JOURNAL = Latency(0.0004), Latency(0.001)  # of one message; an entry in the journal takes two
FINAL_MS = (50, 100)  # median and 99th percentile of a PUT to S3: 30 to 100 ms
EXPRESS_MS = (8, 15)  # of a PUT to S3 Express: 5 to 15 ms
START_S, END_S = 30.0, 600.0
TARGET_MS = 50
HANGS, GONE = StoreFaults(hung_share=1.0), StoreFaults(failed_share=1.0)


class RandomWaits:
    """The waits of a store's PUTs, in place of the simulator's."""

    def __init__(self, p50_ms: float, p99_ms: float, seed: int) -> None:
        self._waits = Waits(p50_ms, p99_ms, seed)

    def choose_s(self, _stream: random.Random) -> float:
        """The next wait."""
        return self._waits.draw_s()


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    landing: int = 0  # stores
    fault: StoreFaults | None = None  # of the last one
    flush_ms: int = 5
    target_ms: float | None = None


CASES = (
    Case("final store, flush 250 ms", flush_ms=250),
    Case("final store"),
    Case("one landing store", 1, target_ms=TARGET_MS),
    Case("one landing store, which hangs", 1, HANGS),
    Case("one landing store, which is gone", 1, GONE),
    Case("three landing stores", 3, target_ms=TARGET_MS),
    Case("three landing stores, one hangs", 3, HANGS, target_ms=TARGET_MS),
    Case("three landing stores, one is gone", 3, GONE, target_ms=TARGET_MS),
)


class Landing(SharedEnvironment):
    """A small cluster without faults other than that of the case."""

    def __init__(self, case: Case, requests: int) -> None:
        super().__init__(seed=1)
        self.times_ms: list[float] = []
        self._case = case
        self._requests = requests // CLIENTS
        self._slow(self.store, FINAL_MS, 1)
        self.store.landing = [self._landing_store(number) for number in range(case.landing)]
        if case.fault is not None:
            self.store.landing[-1].faults = case.fault
        self.processes = self._processes()
        self._clients = SimLoop(self.timeline, "clients", self._exception)

    def run(self) -> list[float]:
        """The times of all requests, in ms."""
        for process in self.processes:
            process.start()
        self._clients.create_task(self._produce())
        wanted = self._requests * CLIENTS
        self.timeline.run(lambda: self.failures or len(self.times_ms) == wanted, END_S, 0.005)
        assert not self.failures, self.failures
        assert len(self.times_ms) == wanted, f"{len(self.times_ms)} of {wanted} requests are answered"
        self._clients.kill()
        for process in self.processes:
            process.is_wanted = False
            process.kill()
        self.infrastructure.kill()
        return self.times_ms

    def _wire(self, name: str, latency: Latency) -> Wire:
        return super()._wire(name, JOURNAL if name == "journal" else HOP)

    def _landing_store(self, number: int) -> StoreServer:
        wire = Wire(self.infrastructure, self.stream(f"landing-{number}"))
        server = StoreServer(wire)
        self._slow(server, EXPRESS_MS, 2 + number)
        return server

    def _slow(self, server: StoreServer, waits_ms: tuple[float, float], seed: int) -> None:
        server.wire.latency = Latency()
        server.writes = cast(Latency, RandomWaits(*waits_ms, seed))

    def _processes(self) -> list[Process]:
        options = "&".join(f"landing=memory://landing-{number}" for number in range(self._case.landing))
        store_url = "s3://simulated/bucket" + (f"?{options}&landing_for=all" if options else "")
        make = app_factories(
            network=self.network,
            store_url=store_url,
            dice=self.stream("settings"),
            known_level=lambda _: NEWEST_LEVEL,
            grace_ms=1_000,
            length=LONG,
            apply=apply_entry,
        )
        make["flusher"] = partial(self._flusher, store_url)
        return [
            Process(self, role, number, make[role], keeps_name=True, host_limits=LONG.services.host)
            for role, count in COUNTS.items()
            for number in range(count)
        ]

    def _flusher(self, store_url: str, process: Process, given: dict[str, Any]) -> FlusherApp:
        config = FlusherConfig(
            cluster=CLUSTER,
            zone=process.zone,
            instance=process.instance,
            store_url=store_url,
            flush_interval_ms=self._case.flush_ms,
        )
        return FlusherApp(config, **given)

    async def _produce(self) -> None:
        gateways = [gateway_address(each) for each in self.processes if "gateway" in each.roles]
        clients = [
            KafkaClient(self.network, f"client-{number}", gateways, self.stream(f"client-{number}"), Witness())
            for number in range(CLIENTS)
        ]
        connections = [await client.connect() for client in clients]
        request = CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 1)])
        await connections[0].ask(CREATE_TOPICS, 5, request, START_S)
        await asyncio.sleep(1.0)  # all gateways know the topic
        async with asyncio.TaskGroup() as group:
            for client, connection in zip(clients, connections, strict=True):
                group.create_task(self._send(client.stream, connection))

    async def _send(self, dice: random.Random, connection: KafkaConnection) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(INTERVAL_S * dice.random())
        answers = []
        for _ in range(self._requests):
            batch = build_batch([Record(0, START_MS, None, bytes(1_024))])
            data = TopicProduceData(TOPIC, partition_data=[PartitionProduceData(dice.randrange(PARTITIONS), batch)])
            request = ProduceRequest(None, ACKNOWLEDGED_BY_ALL, 30_000, [data])
            answer = connection.send(PRODUCE, VERSION, request)
            answer.add_done_callback(partial(self._answered, loop.time(), loop.time))
            answers.append(answer)
            await asyncio.sleep(INTERVAL_S * dice.uniform(0.5, 1.5))
        await asyncio.gather(*answers)

    def _answered(self, sent_s: float, now_s: Callable[[], float], answer: "asyncio.Future[Any]") -> None:
        (topic,) = answer.result().responses
        assert not any(each.error_code for each in topic.partition_responses), topic
        self.times_ms.append((now_s() - sent_s) * 1000)


def waits(requests: int) -> Iterator[Result]:
    """Produce request to answer, for each kind of landing store and fault."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for case in CASES:
        times = sorted(Landing(case, requests).run())
        yield Result("landing", f"{case.name}, p50", statistics.median(times), "ms")
        yield Result("landing", f"{case.name}, p99", times[int(len(times) * 0.99) - 1], "ms", case.target_ms)
        yield Result("landing", f"{case.name}, longest", times[-1], "ms")
    structlog.configure(**before)
