"""Single parts in this process: codec, CRC, segment layout, the state machine."""

import os
import time
from collections.abc import Callable, Iterator

import crc32c
import msgspec

from benches.report import Result
from penstock.contracts.batches import BatchMeta, BatchRun
from penstock.contracts.commands import (
    COMMIT_LEASE_MS,
    AllocateProducer,
    Command,
    CommitSegment,
    CreateTopic,
    RaiseLevel,
    Rejected,
    Tick,
)
from penstock.contracts.entries import Entry, decode_entry, encode_entry
from penstock.contracts.ids import new_segment_id
from penstock.contracts.levels import NEWEST_LEVEL
from penstock.kafkawire import api, records
from penstock.kafkawire.api import fetch, metadata, produce
from penstock.segment.writer import build_segment
from penstock_sequencer.core.machine import apply_entry
from penstock_sequencer.core.state.cluster import State, new_state
from penstock_sequencer.core.state.limits import DEFAULT_LIMITS

REPEATS = 7
NOW_MS = 1_700_000_000_000
TOPIC_ID = b"t" * 16
PRODUCE, FETCH, METADATA = 0, 1, 3


def best_s(work: Callable[[], object], calls: int = 1) -> float:
    """Seconds per call, in the best of several rounds."""
    rounds = []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        for _ in range(calls):
            work()
        rounds.append((time.perf_counter() - started_s) / calls)
    return min(rounds)


def codec() -> Iterator[Result]:
    """Decode and encode the messages of the hot path."""
    batch = records.build_batch([records.Record(i, NOW_MS, None, bytes(1000), []) for i in range(10)])
    partitions = [produce.PartitionProduceData(index=i, records=batch) for i in range(100)]
    topic = produce.TopicProduceData(name="topic", partition_data=partitions)
    body = api.encode_request(PRODUCE, 9, produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
    yield _us("Produce v9 request, 100 x 10 KB, decode", best_s(lambda: api.decode_request(PRODUCE, 9, body), 20))
    fetched = [fetch.PartitionData(partition_index=i, records=batch) for i in range(100)]
    answer = fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic="topic", partitions=fetched)])
    yield _us("Fetch v12 answer, 100 x 10 KB, encode", best_s(lambda: api.encode_response(FETCH, 12, answer), 20))
    described = [metadata.MetadataResponsePartition(partition_index=i, leader_id=1) for i in range(1000)]
    topics = [metadata.MetadataResponseTopic(name="topic", partitions=described)]
    many = metadata.MetadataResponse(brokers=[], topics=topics)
    yield _us(
        "Metadata v12 answer, 1,000 partitions, encode", best_s(lambda: api.encode_response(METADATA, 12, many), 5)
    )
    small = records.build_batch([records.Record(0, NOW_MS, None, bytes(100), [])])
    check = best_s(lambda: records.check_batch(small, batch_bytes_max=2**20, zstd_allowed=True), 1000)
    yield _us("a small batch checked, CRC included", check)
    megabyte = os.urandom(2**20)
    yield Result("codec", "CRC-32C", 2**20 / best_s(lambda: crc32c.crc32c(megabyte), 50) / 1e9, "GB/s")


def segment() -> Iterator[Result]:
    """Lay out a full buffer."""
    for count in (512, 8192):
        data = bytes(8 * 2**20 // count)
        meta = BatchMeta(len(data), 10, NOW_MS, -1, -1, -1, 0)
        batches = [(TOPIC_ID, number % 16, meta, data) for number in range(count)]
        segment_id = new_segment_id(NOW_MS, bytes(10))
        seconds = best_s(
            lambda b=batches, s=segment_id: build_segment(s, writer="w", created_ms=NOW_MS, level=0, batches=b)
        )
        yield Result("segment", f"8 MiB of {count} batches laid out", seconds * 1000, "ms")


def machine() -> Iterator[Result]:
    """Apply commits: the time per batch, and the replay of a million extents."""
    for name, producer_id in (("plain", -1), ("idempotent", 1)):
        commits = [commit_of(number, 100, 10, producer_id) for number in range(20)]
        state = state_with_topic(100)
        started_s = time.perf_counter()
        for sequence, commit in enumerate(commits, 10):
            apply_entry(state, sequence, [[commit]])
        seconds = (time.perf_counter() - started_s) / (20 * 100 * 10)
        yield Result("machine", f"apply, per batch in a commit, {name}", seconds * 1e6, "us", 5)
    yield Result("machine", "entries replayed, one extent each", 1 / _replay_s(50_000, 1), "entries/s", 20_000, True)
    yield Result("machine", "1,000,000 extents restored by replay", 50_000 * _replay_s(50_000, 20), "s", 5)


def commit_rate() -> Iterator[Result]:
    """Commit at the highest rate that the table of remembered commits has room for, for longer than it remembers."""
    limits = DEFAULT_LIMITS.log
    remembered_ms = COMMIT_LEASE_MS + limits.commit_memory_ms
    rate = limits.remembered_commits_max * 1_000 // (remembered_ms + 5_000)  # Ticks come late when all is busy
    state = state_with_topic(4)
    apply_entry(state, 2, [[RaiseLevel(NOW_MS, NEWEST_LEVEL)]])
    most = rejected = 0
    for second in range(remembered_ms // 500):
        now_ms = NOW_MS + second * 1_000
        for number in range(rate):
            commit = msgspec.structs.replace(
                commit_of(number, 4, 1, -1),
                now_ms=now_ms,
                segment_id=new_segment_id(now_ms, number.to_bytes(10, "big")),
                not_after_ms=now_ms + COMMIT_LEASE_MS,
            )
            [[outcome]], _ = apply_entry(state, 3, [[commit]], announce=False)
            rejected += isinstance(outcome, Rejected)
        most = max(most, len(state.commits))
        apply_entry(state, 3, [[Tick(now_ms)]])
    yield Result("commit-rate", "segments per second", rate, "/s", 1_000, True)
    yield Result("commit-rate", "rejected commits at that rate", rejected, "commits", 0)
    yield Result("commit-rate", "remembered commits at that rate", most, "commits", limits.remembered_commits_max)


def _replay_s(count: int, extents: int) -> float:
    """Seconds to decode and apply one entry with `extents` extents, the average over `count` entries."""
    entries = [_entry(number, extents) for number in range(count)]
    state = state_with_topic(extents)
    started_s = time.perf_counter()
    for sequence, data in enumerate(entries, 10):
        apply_entry(state, sequence, decode_entry(data).requests)
    return (time.perf_counter() - started_s) / count


def state_with_topic(partitions: int) -> State:
    """A state with one topic and one producer."""
    state = new_state()
    create: list[Command] = [CreateTopic(NOW_MS, "topic", TOPIC_ID, partitions, {}), AllocateProducer(NOW_MS)]
    apply_entry(state, 1, [create])
    return state


def commit_of(number: int, partitions: int, batches: int, producer_id: int) -> CommitSegment:
    """A commit of `batches` batches for each of `partitions` partitions; a batch has 10 records and 1,000 bytes."""

    def meta(batch: int) -> BatchMeta:
        sequence = (number * batches + batch) * 10 if producer_id > 0 else -1
        return BatchMeta(1000, 10, NOW_MS, producer_id, 0 if producer_id > 0 else -1, sequence, 0)

    runs = [
        BatchRun(TOPIC_ID, partition, 64 + partition * batches * 1000, [meta(batch) for batch in range(batches)])
        for partition in range(partitions)
    ]
    segment_id = new_segment_id(NOW_MS, number.to_bytes(10, "big"))
    return CommitSegment(NOW_MS, segment_id, 2**20 * 8, "flusher-1", "z1", runs)


def _entry(number: int, partitions: int) -> bytes:
    commit = commit_of(number, partitions, 1, -1)
    return encode_entry(Entry(f"r-{number}", "r", 0, bytes(16), [[commit]]))


def _us(name: str, seconds: float) -> Result:
    return Result("codec", name, seconds * 1e6, "us")
