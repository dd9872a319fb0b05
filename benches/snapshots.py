"""The cost of a snapshot of a large state: its memory, the pause while it is taken, and the time of a restart."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

import uvloop

from benches.report import Result
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import Command, CommitSegment, CreateTopic
from penstock.contracts.entries import Entry, decode_entry, encode_entry
from penstock.contracts.errors import Corrupt
from penstock.contracts.ids import new_segment_id
from penstock.objectstore import ObjectStore, open_store, streamed_put
from penstock.objectstore.store import PART_BYTES_MIN
from penstock.runtime.clock import SystemClock
from penstock.runtime.journal import Journal
from penstock.runtime.nats.client import connect_nats
from penstock.segment.keys import snapshot_key
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import new_state
from penstock_sequencer.custodian.fork_capture import capture_forked
from penstock_sequencer.custodian.snapshotter import write_proven
from penstock_sequencer.journal_guard.identity import open_own_journal
from penstock_sequencer.replication.hash_chain import HashChain
from penstock_sequencer.storage.snapshot_format import Snapshot, encode_snapshot, read_snapshot
from penstock_sequencer.storage.snapshot_store import NO_PREFIX, check_stored_snapshot
from tests.testkit.clusters.sequencers import CLUSTER, Processes
from tests.testkit.servers.nats import NatsServer, running_nats_server

TOPIC_ID = b"t" * 16
PARTITIONS = 1_000
ENTRIES = 1_000  # with an extent in each partition, so a million extents
SUFFIX_ENTRIES = 50_000  # of one extent each
APPENDS_AT_ONCE = 64
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SNAPSHOTS_TAKEN = 5
RESTARTS = 3

Value = TypeVar("Value")


class Past:
    """A generated journal, and its state."""

    def __init__(self) -> None:
        self.chain = HashChain()
        self.state = new_state()
        self._now_ms = SystemClock().now_ms()
        self._random = Random(1)

    def next_entry(self, commands: list[Command]) -> bytes:
        """Apply the commands, and return the bytes of their entry."""
        sequence = self.chain.sequence + 1
        data = encode_entry(Entry(f"b.{sequence}", "b", self.chain.sequence, self.chain.hash, [commands]))
        self.chain.advance(data)
        apply_entry(self.state, sequence, decode_entry(data).requests, announce=False)
        return data

    def topic(self) -> bytes:
        """The entry that creates the topic."""
        return self.next_entry([CreateTopic(self._now_ms, "topic", TOPIC_ID, PARTITIONS, {})])

    def commit(self, partitions: int) -> bytes:
        """An entry that commits a segment with one batch for each of `partitions` partitions."""
        random = self._random
        runs, position = [], 64
        for partition in sorted(random.sample(range(PARTITIONS), partitions)):
            length = random.randint(200, 8_000)
            meta = BatchMeta(length, random.randint(1, 40), self._now_ms - random.randint(0, 250), -1, -1, -1, 0)
            runs.append(BatchRun(TOPIC_ID, partition, position, [meta]))
            position += length
        segment_id = new_segment_id(self._now_ms, random.randbytes(10))
        return self.next_entry([CommitSegment(self._now_ms, segment_id, position + 500, "flusher-1", "z1", runs)])

    def snapshot(self) -> Snapshot:
        """A snapshot of the present state."""
        return Snapshot(CLUSTER, self.chain.newest_hashes(1_024), self.state)


def costs() -> Iterator[Result]:
    """A million extents: in memory, as an object, while a snapshot is taken, and at a restart with later entries."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        (Path(folder) / "nats").mkdir()
        with running_nats_server(Path(folder) / "nats") as server:
            snapshot = asyncio.run(_prepare(Path(folder), server))
            path = Path(folder) / "snapshot"
            path.write_bytes(snapshot)
            yield Result("snapshot", "object of 1,000,000 extents", len(snapshot) / 1e6, "MB")
            memory_mb, read_s = _in_fresh_process(_memory, path)
            yield Result("snapshot", "memory of 1,000,000 extents", memory_mb, "MB", 150)
            yield Result("snapshot", "1,000,000 extents read from a snapshot", read_s, "s", 5)
            alone_ms, pause_ms, seconds = _in_fresh_process(_pause, path)
            yield Result("snapshot", "longest pause of an idle event loop, best of 5", alone_ms, "ms")
            yield Result("snapshot", "the same while a snapshot is taken, stored and verified", pause_ms, "ms", 50)
            yield Result("snapshot", "time to take, store and verify a snapshot", seconds, "s")
            restart_s, cpu_s = asyncio.run(_restart(Path(folder), server))
            name = "restart: 1,000,000 extents from a snapshot, then 50,000 entries"
            yield Result("snapshot", name, restart_s, "s", 8)
            yield Result("snapshot", "CPU time of that restart", cpu_s, "s")


def _in_fresh_process(measure: Callable[[Path], Value], path: Path) -> Value:
    """The result of a measurement in a new process, without the memory of the bench itself."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, path).result()


async def _prepare(folder: Path, server: NatsServer) -> bytes:
    """Make a journal with the snapshot's entries and the later ones, and return the snapshot."""
    connection = await connect_nats(server.url, name="bench")
    store = await open_store(f"file://{folder}/objects")
    journal = (await open_own_journal(connection, store, CLUSTER, 1)).journal
    past = Past()
    await _append(journal, 0, [past.topic()])
    for start in range(0, ENTRIES, APPENDS_AT_ONCE):
        entries = [past.commit(PARTITIONS) for _ in range(min(APPENDS_AT_ONCE, ENTRIES - start))]
        await _append(journal, 1 + start, entries)
    snapshot = encode_snapshot(past.snapshot())
    await store.put(snapshot_key(NO_PREFIX, CLUSTER, past.chain.sequence), [snapshot])
    await store.close()
    first = past.chain.sequence
    for start in range(0, SUFFIX_ENTRIES, APPENDS_AT_ONCE):
        entries = [past.commit(1) for _ in range(min(APPENDS_AT_ONCE, SUFFIX_ENTRIES - start))]
        await _append(journal, first + start, entries)
    await journal.purge(first)
    await connection.close()
    return snapshot


async def _append(journal: Journal, after: int, entries: list[bytes]) -> None:
    appends = (journal.append(f"b.{after + number}", data) for number, data in enumerate(entries, 1))
    found = await asyncio.gather(*appends)
    assert found == list(range(after + 1, after + 1 + len(entries))), "the entries are in another order"


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def _memory(path: Path) -> tuple[float, float]:
    """Megabytes of a state that was read from a snapshot, and the seconds of the read."""
    data = path.read_bytes()
    gc.collect()
    before_mb = _resident_mb()
    started_s = time.perf_counter()
    snapshot = read_snapshot(data)
    seconds = time.perf_counter() - started_s
    gc.collect()
    assert snapshot.state.extent_count == PARTITIONS * ENTRIES
    return _resident_mb() - before_mb, seconds


def _pause(path: Path) -> tuple[float, float, float]:
    """Milliseconds of the longest pause alone and with snapshots, best of several; seconds of the fastest."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_pause_of(read_snapshot(path.read_bytes()), path.parent))


async def _pause_of(snapshot: Snapshot, folder: Path) -> tuple[float, float, float]:
    gc.collect()
    gc.freeze()
    store = await open_store(f"file://{folder}/other")
    alone = []
    taking: list[tuple[float, float]] = []
    for number in range(SNAPSHOTS_TAKEN):
        alone.append((await _longest_pause_ms(lambda: asyncio.sleep(1)))[0])
        taking.append(await _longest_pause_ms(lambda n=number: _take(store, snapshot, n)))
    await store.close()
    return min(alone), min(pause for pause, _ in taking), min(seconds for _, seconds in taking)


async def _take(store: ObjectStore, snapshot: Snapshot, number: int) -> None:
    """Take and store a snapshot as the custodian does, under a new key."""
    data = await capture_forked(lambda out: write_proven(out, snapshot))
    cluster, sequence = f"{CLUSTER}-{number}", snapshot.state.sequence
    key = snapshot_key(NO_PREFIX, cluster, sequence)
    async with streamed_put(store, key, part_bytes=PART_BYTES_MIN, parts_in_flight_max=1) as put:
        await put.write(data)
    with contextlib.suppress(Corrupt):  # the last check fails, because the snapshot is of another cluster
        await check_stored_snapshot(store, cluster, sequence)


async def _longest_pause_ms(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Milliseconds of the longest iteration of the event loop during the work, and the seconds of the work."""
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        before_s = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now_s = time.perf_counter()
            longest_s, before_s = max(longest_s, now_s - before_s), now_s

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    started_s = time.perf_counter()
    await work()
    seconds = time.perf_counter() - started_s
    watching.cancel()
    return longest_s * 1000, seconds


async def _restart(folder: Path, server: NatsServer) -> tuple[float, float]:
    """Seconds from a sequencer's start until it serves, and its CPU time until then; the best of several."""
    processes = Processes(folder, server)
    found = []
    try:
        for number in range(RESTARTS):
            started_s = time.perf_counter()
            process = await processes.start(f"s{number}")
            seconds = time.perf_counter() - started_s
            found.append((seconds, _cpu_s(process.process.pid)))
            assert process.metric("entries_total") >= SUFFIX_ENTRIES
            process.signal(signal.SIGKILL)
            await process.ended()
    finally:
        processes.end()
    return min(found)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
