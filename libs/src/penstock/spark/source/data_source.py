"""Topics as tables: `spark.read.format("penstock")` and `spark.readStream`, which read the object store.

Spark makes these objects anew in other processes, for planning and in every task: nothing is kept in them but what
they were told.
"""

from collections.abc import Iterator, Sequence
from typing import Any

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
from penstock.spark.source.catalog import run_apart
from penstock.spark.source.columns import Columns
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


class SplitPartition(InputPartition):
    """One task's share."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class PenstockSource(DataSource):
    """Topics as a table; Spark applies predicates to what is read."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """The chosen columns."""
        return ", ".join(f"{name} {_TYPES[name]}" for name in self._config(streaming=False).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A read of what there is now."""
        return PenstockReader(self._config(streaming=False), _columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A read of what there is and what comes."""
        return PenstockStreamReader(self._config(streaming=True), _columns_of(schema))

    def _config(self, *, streaming: bool) -> SourceConfig:
        return read_source_config(dict(self.options), streaming=streaming)


class PushdownSource(PenstockSource):
    """The same with predicates that save reading, for whoever loads a table anew for every query.

    Spark 4.3 keeps what one query over a loaded table pushed down, and gives it to every later query over the same,
    whatever that asks for: records would be missing without a word. So nobody gets this without asking for it.
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
        """The tasks' shares, as things are now."""
        return [SplitPartition(split) for split in run_apart(self._plan())] or [SplitPartition(Split([]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task's records as Arrow batches."""
        assert isinstance(partition, SplitPartition), "the partition is one of ours"
        return read_in_task(self._given.address, self._columns, partition.split)

    async def _plan(self) -> list[Split]:
        async with opened_planner(self._given) as planner:
            return await planner.batch(self._scope)


class PushdownReader(PenstockReader):
    """Reads only what predicates may keep; Spark still applies all of them itself."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Note what they leave to be read."""
        self._scope = scope_of(filters)
        return iter(filters)


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets go into the query's checkpoint: a restarted query asks for the same records once more, and no others."""

    def __init__(self, config: SourceConfig, columns: Sequence[str]) -> None:
        self._given = config
        self._columns = columns
        self._last: dict[str, dict[str, int]] | None = None  # where a query with Trigger.AvailableNow ends

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        return run_apart(self._initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """What one micro-batch reads at most."""
        if self._given.trigger_bytes is not None:
            return ReadMaxBytes(self._given.trigger_bytes)
        return ReadAllAvailable() if self._given.trigger_offsets is None else ReadMaxRows(self._given.trigger_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends."""
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if bytes_max is not None:
            offsets_max = self._given.trigger_offsets
        return run_apart(latest_offsets(self._given, start, self._last, bytes_max, offsets_max))

    def prepareForTriggerAvailableNow(self) -> None:
        """Note what there is now; later records are for the next run."""
        self._last = run_apart(latest_offsets(self._given, {}, None, None, None))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the topics end now, for the query's progress."""
        return run_apart(latest_offsets(self._given, {}, None, None, None))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks' shares of a micro-batch, the same records whenever it is asked."""
        return [SplitPartition(split) for split in run_apart(stream_splits(self._given, start, end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A task's records as Arrow batches."""
        assert isinstance(partition, SplitPartition), "the partition is one of ours"
        return read_in_task(self._given.address, self._columns, partition.split)

    async def _initial(self) -> dict[str, dict[str, int]]:
        async with opened_planner(self._given) as planner:
            topics = await planner.topics()
            return to_json(await planner.starts(topics, await planner.bounds(topics)))


def read_in_task(address: ClusterAddress, columns: Sequence[str], split: Split) -> Iterator[Any]:
    """A split's records as Arrow batches, with a store and a thread of the task's own."""
    with StoreRanges(address.store_url) as ranges:

        def stream(wanted: Sequence[Range]) -> Iterator[memoryview]:
            return (fragment.data for fragment in ranges.stream(wanted))

        def replan(rest: Split) -> Split:
            return run_apart(replanned(address, rest))

        yield from read_split(split, Columns(columns), stream, replan)


def register(spark: Any, *, pushdown: bool = False) -> None:
    """Let a session read topics; with `pushdown` each loaded table is good for one query (see `PushdownSource`)."""
    if pushdown:
        spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushdownSource if pushdown else PenstockSource)


def _columns_of(schema: StructType) -> list[str]:
    """The columns of a schema, which a user may have given to have fewer; `Invalid` unless they are ours."""
    names = []
    for field in schema.fields:
        if field.name not in COLUMNS or field.dataType.simpleString() != _TYPES[field.name]:
            known = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
            raise Invalid(f"no column {field.name} {field.dataType.simpleString()}; there are {known}")
        names.append(field.name)
    return names
