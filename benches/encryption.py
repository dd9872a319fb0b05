"""The cost of encrypted objects: CPU per MiB, and the bytes that a small range reads from the store."""

import asyncio
import base64
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from benches.micro import best_s
from benches.report import Result
from penstock.objectstore import ObjectStore
from penstock.objectstore.encryption import EncryptedStore, parse_keys
from penstock.objectstore.encryption.chunks import STORED_BYTES
from penstock.objectstore.memory import MemoryStore
from penstock.runtime.clock import SystemEntropy

MIB = 2**20
SEGMENT_BYTES = 8 * MIB
CACHED_BYTES = 4 * MIB  # read by a cacher at once
SMALL_BYTES = 4 * 1024
# AES-GCM with the instructions of the processor takes 0.2 ms; TLS costs a gateway as much again.
MS_PER_MIB_MAX = 1.0
SMALL_READ_US_MAX = 200.0
ADDED_SHARE_MAX = 0.1  # per cent of the bytes of a segment, and of the chunks that cachers read
ROUNDS = 20


class _Counted(MemoryStore):
    """Counts the bytes of reads."""

    read_bytes = 0

    async def get_up_to(self, key: str, position: int, length: int) -> bytes:
        data = await super().get_up_to(key, position, length)
        self.read_bytes += len(data)
        return data


def costs() -> Iterator[Result]:
    """Measure with a full segment."""
    loop = asyncio.new_event_loop()
    body = os.urandom(SEGMENT_BYTES)
    inner = _Counted()
    keys = parse_keys(f"bench {base64.b64encode(os.urandom(32)).decode()}", "the bench")
    store = EncryptedStore(inner, keys, SystemEntropy())

    def run(name: str, plain: ObjectStore) -> dict[str, float]:
        """CPU milliseconds per MiB of each verb."""
        loop.run_until_complete(plain.put(name, [body]))
        reads = range(0, SEGMENT_BYTES, CACHED_BYTES)

        async def put() -> None:
            await plain.delete([f"{name}-again"])
            await plain.put(f"{name}-again", [body])

        async def ranges() -> None:
            for position in reads:
                await plain.get_range(name, position, CACHED_BYTES)

        return {"put": _cpu_ms(loop, put), "ranges of 4 MiB": _cpu_ms(loop, ranges)}

    plain, sealed = run("plain", MemoryStore()), run("sealed", store)
    for verb, cost in sealed.items():
        added = (cost - plain[verb]) / (SEGMENT_BYTES / MIB)
        yield Result("encryption", f"{verb} of a segment of 8 MiB, CPU added", added, "ms/MiB", MS_PER_MIB_MAX)
    small = SMALL_BYTES + CACHED_BYTES // 3
    small_s = best_s(lambda: loop.run_until_complete(store.get_range("sealed", small, SMALL_BYTES)), 20)
    yield Result("encryption", "a range of 4 KiB, time", small_s * 1e6, "us", SMALL_READ_US_MAX)
    [stored] = [info.size_bytes for info in loop.run_until_complete(inner.list("sealed", limit=1))]
    yield Result("encryption", "bytes added to a segment", (stored / len(body) - 1) * 100, "%", ADDED_SHARE_MAX)
    for name, position, length, budget in (
        ("a chunk of a cacher, 4 MiB", CACHED_BYTES, CACHED_BYTES, 1 + ADDED_SHARE_MAX / 100),
        ("a range of 64 KiB at any place", small, 64 * 1024, 2 * STORED_BYTES / (64 * 1024)),
        ("a range of 4 KiB inside a chunk", small, SMALL_BYTES, STORED_BYTES / SMALL_BYTES),
    ):
        inner.read_bytes = 0
        loop.run_until_complete(store.get_range("sealed", position, length))
        yield Result("encryption", f"bytes read for {name}", inner.read_bytes / length, "times", budget)
    loop.close()


def _cpu_ms(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> float:
    """The CPU of this process for one call, all threads included; the best of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        started_s = time.process_time()
        loop.run_until_complete(work())
        rounds.append((time.process_time() - started_s) * 1000)
    return min(rounds)
