"""Compares aioboto3 and obstore as clients of S3: the CPU of this process for each request, in pairs in one run.

`python -m benches.object_clients` starts a SeaweedFS. ADR 0055 has the result.
"""

import asyncio
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import obstore
from obstore.store import S3Store as RustS3

from penstock.objectstore.s3 import S3Store, open_s3_store
from tests.testkit.servers.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.testkit.servers.seaweed import running_seaweed

ROUNDS = 5
KIB, MIB = 1024, 1024 * 1024
Call = Callable[[int], Awaitable[object]]


def cpu_s() -> float:
    """The CPU of this process with all its threads, also those of Rust."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured_ms(call: Call, start: int, count: int) -> tuple[float, float]:
    """CPU and time of one call, in ms."""
    cpu_before_s, before_s = cpu_s(), time.monotonic()
    for index in range(start, start + count):
        await call(index)
    return (cpu_s() - cpu_before_s) * 1000 / count, (time.monotonic() - before_s) * 1000 / count


async def compare(server: S3Server) -> None:
    """Print a table of all calls, with the medians of the rounds."""
    options = {"endpoint": server.endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
    ours = await open_s3_store(BUCKET, "python", options)
    rust = RustS3(
        BUCKET,
        endpoint=server.endpoint,
        region="us-east-1",
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    large = bytes(8 * MIB)
    await ours.put("large", [large])
    print("| call | aioboto3 CPU ms | obstore CPU ms | aioboto3 ms | obstore ms |\n|---|---|---|---|---|")
    for name, count, python_call, rust_call in calls_of(ours, rust, large):
        rounds: list[Sequence[float]] = []
        for turn in range(ROUNDS):
            first = await measured_ms(python_call, turn * count, count)
            second = await measured_ms(rust_call, turn * count, count)
            rounds.append((first[0], second[0], first[1], second[1]))
        medians = (statistics.median(column) for column in zip(*rounds, strict=True))
        print(f"| {name} | {' | '.join(f'{each:.2f}' for each in medians)} |", flush=True)
    await ours.close()


def calls_of(ours: S3Store, rust: RustS3, large: bytes) -> list[tuple[str, int, Call, Call]]:
    """Name, count, and the call with each client."""
    buffer = bytearray(8 * MIB)

    def put(size: int) -> tuple[Call, Call]:
        body = large[:size]
        return (
            lambda index: ours.put(f"{size}-{index}", [body]),
            lambda index: obstore.put_async(rust, f"rust/{size}-{index}", body, mode="create"),
        )

    async def rust_into(index: int) -> None:
        buffer[:] = memoryview(await obstore.get_range_async(rust, "python/large", start=0, length=8 * MIB))

    async def rust_bytes(index: int) -> bytes:
        return bytes(await obstore.get_range_async(rust, "python/large", start=index * KIB, length=64 * KIB))

    return [
        ("PUT of 8 MiB", 5, *put(8 * MIB)),
        ("PUT of 256 KiB", 40, *put(256 * KIB)),
        ("GET of 8 MiB into a buffer", 5, lambda index: ours.get_range_into("large", 0, buffer), rust_into),
        ("GET of 64 KiB", 60, lambda index: ours.get_range("large", index * KIB, 64 * KIB), rust_bytes),
    ]


def main() -> None:
    """Start the server and compare."""
    with tempfile.TemporaryDirectory() as folder, running_seaweed(Path(folder)) as server:
        asyncio.run(compare(server))


if __name__ == "__main__":
    main()
