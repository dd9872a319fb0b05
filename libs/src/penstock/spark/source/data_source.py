"""The classes that Spark calls for `spark.read.format("penstock")` and `spark.readStream`.

Spark creates copies of these objects in other processes, for planning and in every task. So they keep nothing but their
arguments.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.contracts.errors import Invalid
from penstock.spark.config import ClusterAddress
from penstock.spark.ranges import StoreRanges
from penstock.spark.source.catalog import configure_logs_once, run_apart
from penstock.spark.source.columns import Columns, SkippedBatches
from penstock.spark.source.config import COLUMNS, SourceConfig, read_source_config
from penstock.spark.source.filters import Scope, scope_of
from penstock.spark.source.offsets import to_json
from penstock.spark.source.planning import opened_planner, replanned
from penstock.spark.source.reading import Range, read_split
from penstock.spark.source.splits import Split
from penstock.spark.source.streaming import latest_offsets, stream_splits

FORMAT = "penstock"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_TYPES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


log = structlog.get_logger()


class SplitPartition(InputPartition):
    """The split of one task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class PenstockSource(DataSource):
    """Topics as a table; Spark applies all predicates to the read records."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """The chosen columns."""
        return ", ".join(f"{name} {_TYPES[name]}" for name in self._config(streaming=False).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the present records."""
        return PenstockReader(self._config(streaming=False), _columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of present and later records."""
        return PenstockStreamReader(self._config(streaming=True), _columns_of(schema))

    def _config(self, *, streaming: bool) -> SourceConfig:
        return read_source_config(dict(self.options), streaming=streaming)


class PushdownSource(PenstockSource):
    """The same with predicate pushdown, for users that load a table again for every query.

    Spark 4.3 keeps the predicates of the first query over a loaded table. It uses them for every later query over it,
    whose records would silently be missing. So pushdown is off by default.
    """

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushdownReader(self._config(streaming=False), _columns_of(schema))


class PenstockReader(DataSourceReader):
    """Plans in the driver, reads in tasks."""

    def __init__(self, config: SourceConfig, columns: Sequence[str]) -> None:
        self._given = config
        self._columns = columns
        self._scope = Scope()

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of the tasks, for the present state of the topics."""
        return [SplitPartition(split) for split in run_apart(self._plan())] or [SplitPartition(Split([]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task's records as Arrow batches."""
        assert isinstance(partition, SplitPartition), "the partition is a SplitPartition"
        return read_in_task(
            self._given.address,
            self._columns,
            partition.split,
            fail_on_corrupt_batch=self._given.fail_on_corrupt_batch,
        )

    async def _plan(self) -> list[Split]:
        async with opened_planner(self._given) as planner:
            return await planner.batch(self._scope)


class PushdownReader(PenstockReader):
    """Reads only records that predicates may keep; Spark still applies all predicates itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Narrow the scope of the read."""
        self._scope = scope_of(filters)
        return iter(filters)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Offsets are in the query's checkpoint, so a restarted query reads exactly the same records."""

    def __init__(self, config: SourceConfig, columns: Sequence[str]) -> None:
        self._given = config
        self._columns = columns
        self._last: dict[str, dict[str, int]] | None = None  # the end of a query with Trigger.AvailableNow

    def initialOffset(self) -> dict[str, Any]:
        """The start of a new query."""
        return run_apart(self._initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of one micro-batch."""
        if self._given.trigger_bytes is not None:
            return ReadMaxBytes(self._given.trigger_bytes)
        return ReadAllAvailable() if self._given.trigger_offsets is None else ReadMaxRows(self._given.trigger_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch."""
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if bytes_max is not None:
            offsets_max = self._given.trigger_offsets
        return run_apart(latest_offsets(self._given, start, self._last, bytes_max, offsets_max))

    def prepareForTriggerAvailableNow(self) -> None:
        """Record the present ends of the topics; later records are for the next run."""
        self._last = run_apart(latest_offsets(self._given, {}, None, None, None))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The present ends of the topics, for the query's progress report."""
        return run_apart(latest_offsets(self._given, {}, None, None, None))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of a micro-batch; every call gives the same records."""
        return [SplitPartition(split) for split in run_apart(stream_splits(self._given, start, end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task's records as Arrow batches."""
        assert isinstance(partition, SplitPartition), "the partition is a SplitPartition"
        return read_in_task(
            self._given.address,
            self._columns,
            partition.split,
            fail_on_corrupt_batch=self._given.fail_on_corrupt_batch,
        )

    async def _initial(self) -> dict[str, dict[str, int]]:
        async with opened_planner(self._given) as planner:
            topics = await planner.topics()
            return to_json(await planner.starts(topics, await planner.bounds(topics)))


def read_in_task(
    address: ClusterAddress, columns: Sequence[str], split: Split, *, fail_on_corrupt_batch: bool = True
) -> Iterator[Any]:
    """A split's records as Arrow batches; the task has its own store and thread. Skipped batches are logged."""
    skipped = SkippedBatches()
    converter = Columns(columns, skipped=None if fail_on_corrupt_batch else skipped)
    with StoreRanges(address.store_url) as ranges:

        def stream(wanted: Sequence[Range]) -> Iterator[memoryview]:
            return (fragment.data for fragment in ranges.stream(wanted))

        def replan(rest: Split) -> Split:
            return run_apart(replanned(address, rest))

        yield from read_split(split, converter, stream, replan)
    if skipped.count:
        configure_logs_once()
        log.error("corrupt_batches_skipped", batches=skipped.count, errors=skipped.errors)


def register(spark: Any, *, pushdown: bool = False) -> None:
    """Let a session read topics; with `pushdown`, each loaded table works for one query (see `PushdownSource`)."""
    if pushdown:
        spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushdownSource if pushdown else PenstockSource)


def _columns_of(schema: StructType) -> list[str]:
    """The columns of a schema, which may be a user's choice of fewer columns; `Invalid` for an unknown column."""
    names = []
    for field in schema.fields:
        if field.name not in COLUMNS or field.dataType.simpleString() != _TYPES[field.name]:
            known = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
            raise Invalid(f"no column {field.name} {field.dataType.simpleString()}; the columns are {known}")
        names.append(field.name)
    return names
