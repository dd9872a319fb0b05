"""The steps of an audit: compare, read everything on Spark, check the findings again, report."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.audit.inventory import EXTENT_FIELDS, Inventory, take_inventory
from penstock.audit.object_check import NO_PREFIX, Breakdown, check_objects
from penstock.audit.report import Finding, Report
from penstock.audit.segment_check import Checked, ExtentCheck, SegmentCheck, check_segments
from penstock.contracts.configs.topics import is_compacted
from penstock.objectstore import ObjectStore
from penstock.runtime.bus.sequencer_client import SequencerClient
from penstock.runtime.clock import Clock
from penstock.segment.keys import segment_key
from penstock.spark.ranges import StoreRanges

TASK_BYTES = 256 * 1024 * 1024  # read by one task; a larger segment has its own task

ReadSegments = Callable[[Sequence[SegmentCheck]], Checked]


class Audit:
    """One audit of one cluster; `read` checks segments, on Spark for example, and blocks."""

    def __init__(
        self, client: SequencerClient, store: ObjectStore, cluster: str, clock: Clock, read: ReadSegments
    ) -> None:
        self._client = client
        self._store = store
        self._cluster = cluster
        self._clock = clock
        self._read = read

    async def run(self) -> Report:
        """Run all steps; `Unavailable` if sequencers or store do not answer.

        The cluster works during the audit. Data that is compacted between two steps may look wrong. So the audit
        checks its findings once more, and reports only those that it finds again.
        """
        started_s = self._clock.monotonic_s()
        inventory, findings, breakdown = await self._compare()
        checked = await self._read_all(inventory)
        findings += checked.findings
        if findings:
            findings = await self._check_again(findings)
        return Report(
            cluster=self._cluster,
            topics=len(inventory.topics),
            partitions=inventory.partitions,
            extents=inventory.extents,
            live_bytes=inventory.live_bytes,
            segments_read=checked.segments,
            batches_read=checked.batches,
            records_read=checked.records,
            bytes_read=checked.bytes,
            seconds=round(self._clock.monotonic_s() - started_s, 3),
            objects=breakdown.objects,
            bytes=breakdown.bytes,
            findings=sorted(findings),
        )

    async def _compare(self) -> tuple[Inventory, list[Finding], Breakdown]:
        inventory = await take_inventory(self._client, self._store, self._cluster)
        findings, breakdown = check_objects(inventory, self._cluster, self._clock.now_ms())
        return inventory, findings, breakdown

    async def _read_all(self, inventory: Inventory, keys: set[str] | None = None) -> Checked:
        """Read the live extents of all segments, or of the segments with these keys."""
        checks = [check for check in segment_checks(inventory, self._cluster) if keys is None or check.key in keys]
        return await asyncio.to_thread(self._read, checks) if checks else Checked()

    async def _check_again(self, suspected: list[Finding]) -> list[Finding]:
        inventory, findings, _ = await self._compare()
        findings += (await self._read_all(inventory, {each.subject.partition(" ")[0] for each in suspected})).findings
        again = {(each.kind, each.subject) for each in suspected}
        return [each for each in findings if (each.kind, each.subject) in again]


def segment_checks(inventory: Inventory, cluster: str) -> list[SegmentCheck]:
    """The checks of live extents, one per object; missing objects are left out."""
    compacted = [is_compacted(topic.configs) for topic in inventory.topics]
    checks = []
    for segment_id, rows in inventory.extents_by_segment.items():
        level, size_bytes = inventory.named[segment_id]
        key = segment_key(NO_PREFIX, cluster, level, segment_id)
        if inventory.objects.get(key) != size_bytes:
            continue
        extents = []
        for row in range(0, len(rows), EXTENT_FIELDS):
            topic = inventory.topics[rows[row]]
            partition, base, last, position, length, timestamp = rows[row + 1 : row + EXTENT_FIELDS]
            where = (topic.name, topic.topic_id, partition)
            may_have_gaps = compacted[rows[row]] or (rows[row], partition) in inventory.transactional
            extents.append(ExtentCheck(*where, base, last, position, length, timestamp, may_have_gaps))
        extents.sort(key=lambda extent: extent.position)
        checks.append(SegmentCheck(key, level, size_bytes, extents))
    return checks


def tasks_of(checks: Sequence[SegmentCheck], bytes_max: int = TASK_BYTES) -> list[list[SegmentCheck]]:
    """The checks, grouped into tasks of up to `bytes_max` bytes."""
    tasks: list[list[SegmentCheck]] = []
    task_bytes = bytes_max
    for check in checks:
        if task_bytes + check.live_bytes > bytes_max:
            tasks.append([])
            task_bytes = 0
        tasks[-1].append(check)
        task_bytes += check.live_bytes
    return tasks


def read_on_spark(session: Any, store_url: str) -> ReadSegments:
    """A function that checks segments as tasks of a Spark session."""

    def read(checks: Sequence[SegmentCheck]) -> Checked:
        tasks = [msgspec.msgpack.encode(task) for task in tasks_of(checks)]
        context = session.sparkContext
        found = context.parallelize(tasks, len(tasks)).map(lambda task: run_task(store_url, task)).collect()
        checked = Checked()
        for each in found:
            checked.add(msgspec.msgpack.decode(each, type=Checked))
        return checked

    return read


def run_task(store_url: str, task: bytes) -> bytes:
    """Run the checks of one task; the task and the result are MessagePack."""
    with StoreRanges(store_url) as store:
        checks = msgspec.msgpack.decode(task, type=list[SegmentCheck])
        found = check_segments(checks, lambda ranges: (fragment.data for fragment in store.stream(ranges)))
    return msgspec.msgpack.encode(found)
