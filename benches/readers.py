"""Many Kafka consumers in one process that discard their records: `python -m benches.readers ...` prints JSON.

Each consumer has its own connection, and fetches its partitions from offset 0 on until it has every record. A hundred
of them are cheap enough for one machine. So the cost of clients is not part of the figures.
"""

import argparse
import asyncio
import json
import struct
import sys
import time
from collections.abc import Iterator

from penstock.kafkawire.api import API_TABLE, decode_response, encode_request, is_flexible
from penstock.kafkawire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

FETCH, VERSION = 1, 12
MAX_WAIT_MS = 500  # the default of clients
PARTITION_BYTES_MAX = 2**20
READ_UNAVAILABLE = 6  # NOT_LEADER_OR_FOLLOWER
STARTED = "reading"
_BATCH = struct.Struct(">qi11xi")  # base offset, length of the rest, last offset delta


class Reader:
    """One consumer with its partitions."""

    def __init__(
        self, topic: str, partitions: list[int], records: int, max_wait_ms: int, *, is_endless: bool = False
    ) -> None:
        self._topic = topic
        self._records = records
        self._max_wait_ms = max_wait_ms
        self._next_offsets = dict.fromkeys(partitions, 0)
        self._is_endless = is_endless
        self.received_bytes = 0
        self.requests = 0
        self.unavailable = 0
        self.times: list[tuple[float, float]] = []  # start and duration of each fetch, in seconds

    async def read(self, host: str, port: int) -> None:
        """Fetch until all records are read, once or repeatedly."""
        reader, writer = await asyncio.open_connection(host, port, limit=2**26)
        try:
            while not self._has_all():
                began_s = time.time()
                frame = self._frame()
                writer.write(struct.pack(">i", len(frame)) + frame)
                size_bytes = int.from_bytes(await reader.readexactly(4))
                # Correlation id, and no tagged fields.
                self._take(decode_response(FETCH, VERSION, memoryview(await reader.readexactly(size_bytes))[5:]))
                if self._is_endless:
                    self.times.append((began_s, time.time() - began_s))
        finally:
            writer.close()

    def _has_all(self) -> bool:
        if any(offset < self._records for offset in self._next_offsets.values()):
            return False
        if self._is_endless:
            self._next_offsets = dict.fromkeys(self._next_offsets, 0)
        return not self._is_endless

    def _frame(self) -> bytes:
        self.requests += 1
        partitions = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES_MAX)
            for partition, offset in self._next_offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=50 * 2**20,
            topics=[FetchTopic(topic=self._topic, partitions=partitions)],
        )
        tags = b"\0" if is_flexible(API_TABLE[FETCH], VERSION) else b""
        return struct.pack(">hhih", FETCH, VERSION, self.requests, -1) + tags + encode_request(FETCH, VERSION, request)

    def _take(self, answer: FetchResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code == READ_UNAVAILABLE:  # stock clients retry this silently
                    self.unavailable += 1
                    continue
                assert partition.error_code == 0, f"partition {partition.partition_index}: {partition.error_code}"
                for base_offset, last_offset in _batches(partition.records or b""):
                    expected = self._next_offsets[partition.partition_index]
                    assert base_offset <= expected <= last_offset + 1, f"offset {base_offset}, expected {expected}"
                    self._next_offsets[partition.partition_index] = last_offset + 1
                self.received_bytes += len(partition.records or b"")


def _batches(records: bytes | memoryview) -> Iterator[tuple[int, int]]:
    position = 0
    while position < len(records):
        base_offset, length, last_delta = _BATCH.unpack_from(records, position)
        yield base_offset, base_offset + last_delta
        position += 12 + length


async def run(arguments: argparse.Namespace) -> dict[str, float | list[tuple[float, float]]]:
    """Start all consumers, print STARTED, and wait for the last one, or for `--seconds`."""
    host, _, port = arguments.bootstrap.rpartition(":")
    readers = [
        Reader(arguments.topic, share, arguments.records, arguments.max_wait_ms, is_endless=arguments.endless)
        for share in _shares(arguments.consumers, arguments.partitions)
    ]
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    tasks = [asyncio.create_task(reader.read(host, int(port))) for reader in readers]
    print(STARTED, flush=True)
    done, pending = await asyncio.wait(tasks, timeout=arguments.seconds or None, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()
    return {
        "mib": sum(reader.received_bytes for reader in readers) / 2**20,
        "seconds": time.perf_counter() - started_s,
        "client_cpu_s": time.process_time() - cpu_started_s,
        "requests": sum(reader.requests for reader in readers),
        "unavailable": sum(reader.unavailable for reader in readers),
        "times": [each for reader in readers for each in reader.times],
    }


def _shares(consumers: int, partitions: int) -> list[list[int]]:
    """The partitions of each consumer, as in a group; with fewer partitions than consumers, several share one."""
    if consumers > partitions:
        return [[number % partitions] for number in range(consumers)]
    return [list(range(number, partitions, consumers)) for number in range(consumers)]


def main() -> None:
    """Read, and print the figures."""
    parser = argparse.ArgumentParser(prog="benches.readers")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--consumers", type=int, required=True)
    parser.add_argument("--records", type=int, required=True, help="records of each partition")
    parser.add_argument("--seconds", type=float, default=0, help="end after this time")
    parser.add_argument("--max-wait-ms", type=int, default=MAX_WAIT_MS)
    parser.add_argument(
        "--endless", action="store_true", help="repeat the reads until the end, and report each duration"
    )
    json.dump(asyncio.run(run(parser.parse_args())), sys.stdout)


if __name__ == "__main__":
    main()
