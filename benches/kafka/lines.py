"""The lines of the comparison: for each a workload, the pair of systems, and its goals."""

from collections.abc import Iterator, Mapping

import msgspec

from benches.kafka.loads.load import Load
from benches.kafka.workloads.workload import AfterLoad, CatchUp, Latency, Produce, Rest, Workload, WriteAndRead

KAFKA, SYNCED = "kafka", "kafka-synced"
PENSTOCK, SLOW, EXPRESS = "penstock", "penstock-slow-store", "penstock-express"
PLAIN_PAIR = (PENSTOCK, KAFKA)
SYNCED_PAIR = (PENSTOCK, SYNCED)
SLOW_PAIR = (SLOW, KAFKA)
EXPRESS_PAIR = (EXPRESS, KAFKA)


class Goal(msgspec.Struct, frozen=True):
    """A bound of a figure: of its ratio to Kafka's, or of Penstock's own value."""

    bound: float
    is_ratio: bool = True


class Figure(msgspec.Struct, frozen=True):
    """A figure of a workload that the table shows."""

    name: str
    goal: Goal | None = None
    more_is_better: bool = True


class Line(msgspec.Struct, frozen=True):
    """A line of the table. Lines of one group share their started systems."""

    name: str
    title: str
    group: str
    workload: Workload
    figures: tuple[Figure, ...]
    pair: tuple[str, str] = PLAIN_PAIR


def at_least(name: str, bound: float | None = None) -> Figure:
    """More is better; the bound is of the ratio."""
    return Figure(name, None if bound is None else Goal(bound))


def at_most(name: str, bound: float | None = None, *, is_ratio: bool = True) -> Figure:
    """Less is better."""
    return Figure(name, None if bound is None else Goal(bound, is_ratio), more_is_better=False)


CPU = at_most("CPU-s/GiB")
JAVA_TUNED = {"batch.size": "1000000", "linger.ms": "100", "buffer.memory": "134217728"}
LIBRDKAFKA_TUNED = {
    "batch.size": "1000000",
    "linger.ms": "100",
    "batch.num.messages": "100000",
    "queue.buffering.max.kbytes": "524288",
    "queue.buffering.max.messages": "1000000",
}
RAW_1_MIB = Load(client="raw", kind="produce", clients=4, batch_bytes=2**20)
RAW_16_KIB = Load(client="raw", kind="produce", clients=4, batch_bytes=2**14)
MIXED_30 = Load(client="raw", kind="produce", clients=4, batch_bytes=2**17, mib_per_second=30)
TAIL = Load(client="raw", kind="consume", clients=4, is_tailing=True)


def _java(clients: int = 1, record_bytes: int = 1_024, **others: object) -> Load:
    load = Load(client="java", kind="produce", clients=clients, record_bytes=record_bytes)
    return msgspec.structs.replace(load, **others)


def _tuned() -> Iterator[Line]:
    for codec in ("none", "lz4", "zstd"):
        load = _java(settings={**JAVA_TUNED, "compression.type": codec})
        name = "plain" if codec == "none" else codec
        title = f"produce, Java tuned (1 MB batches), 1 KiB x 16 partitions, {name}"
        yield Line(f"java-tuned-{name}", title, "tuned", Produce(load, 16), (at_least("MiB/s", 1.0), CPU))
    load = Load(client="librdkafka", kind="produce", settings=LIBRDKAFKA_TUNED)
    title = "produce, librdkafka tuned (1 MB batches), 1 KiB x 16 partitions"
    yield Line("librdkafka-tuned", title, "tuned", Produce(load, 16), (at_least("MiB/s", 1.0), CPU))


def _raw() -> Iterator[Line]:
    for name, load, bound in (("1m", RAW_1_MIB, 1.0), ("16k", RAW_16_KIB, 0.6)):
        title = f"produce, raw client, {name[:-1]} {name[-1].upper()}iB batches, 4 connections"
        yield Line(f"raw-produce-{name}", title, "raw", Produce(load, 4), (at_least("MiB/s", bound), CPU))


def _stock() -> Iterator[Line]:
    for record_bytes, size in ((1_024, "1k"), (100, "100b")):
        words = "1 KiB" if record_bytes == 1_024 else "100 B"
        for partitions in (1, 6):
            title = f"produce, Java stock, {words}, {partitions} partition{'s' if partitions > 1 else ''}"
            workload = Produce(_java(record_bytes=record_bytes), partitions)
            yield Line(f"java-stock-{size}-p{partitions}", title, "stock", workload, (at_least("MiB/s", 0.6), CPU))
        load = Load(client="librdkafka", kind="produce", record_bytes=record_bytes)
        title = f"produce, librdkafka stock, {words}, 1 partition"
        yield Line(f"librdkafka-stock-{size}", title, "stock", Produce(load, 1), (at_least("MiB/s", 1.0), CPU))


def _many_partitions() -> Iterator[Line]:
    for name, title, load, bound in (
        ("partitions-1000", "1 stock producer, 100 B", _java(record_bytes=100, random_keys=True), 0.6),
        ("partitions-1000-x4", "4 stock producers, 1 KiB", _java(4, random_keys=True), 1.0),
    ):
        figures = (at_least("records/s", bound), CPU)
        yield Line(
            name, f"produce, 1,000 partitions, random keys, {title}", "partitions", Produce(load, 1_000), figures
        )


def _reading() -> Iterator[Line]:
    for clients, bound in ((1, 1.0), (4, 0.8)):
        load = Load(client="java", kind="consume", clients=clients)
        title = f"catch-up consume, Java, {clients} consumer{'s' if clients > 1 else ''}"
        yield Line(f"consume-java-{clients}", title, "reading", CatchUp(load), (at_least("MiB/s", bound), CPU))
    for clients, bound in ((1, 1.0), (4, 0.8)):
        load = Load(client="raw", kind="consume", clients=clients)
        title = f"catch-up raw fetch, {clients} connection{'s' if clients > 1 else ''}"
        figures = (at_least("MiB/s", bound), at_most("CPU-s/GiB", 1.5))
        yield Line(f"raw-fetch-{clients}", title, "reading", CatchUp(load), figures)


def _mixed() -> Iterator[Line]:
    figures = (at_least("MiB/s per core", 0.6), at_least("MiB/s of each"))
    title = "write and read 1:1, raw clients, 1 MiB batches, full rate"
    yield Line("mixed-full", title, "mixed", WriteAndRead(RAW_1_MIB, TAIL), figures)
    title = "write and read 1:1, raw clients, 128 KiB batches, 30 MiB/s"
    yield Line("mixed-30", title, "mixed", WriteAndRead(MIXED_30, TAIL), figures)


def _latency() -> Iterator[Line]:
    for rate in (20, 5_000):
        figures = (at_most("p50 ms", 1.5), at_most("p99 ms", 2.0), at_least("records/s"), at_most("cores"))
        title = f"end to end, Java stock, {rate:,} records/s of 1 KiB, 6 partitions"
        yield Line(f"latency-{rate}", title, "latency", _at_rate(rate), figures)


def _at_rate(rate: float) -> Latency:
    return Latency(Load(client="java", kind="latency", records_per_second=rate), 6)


def _resources() -> Iterator[Line]:
    idle = (at_most("% of a core", 1.0, is_ratio=False), at_most("MB"))
    yield Line("idle", "without clients", "idle", Rest(), idle)
    yield Line("memory", "memory after full writes and reads", "memory", AfterLoad(), (at_most("MB"),))


def _synced() -> Iterator[Line]:
    """Beside a Kafka that calls fsync for each append, which is as durable as Penstock."""
    for name, title, workload, figures in (
        ("java-stock", "produce, Java stock, 1 KiB, 1 partition", Produce(_java(), 1), (at_least("MiB/s", 0.6), CPU)),
        ("raw-16k", "produce, raw client, 16 KiB batches", Produce(RAW_16_KIB, 4), (at_least("MiB/s", 0.6), CPU)),
        ("raw-1m", "produce, raw client, 1 MiB batches", Produce(RAW_1_MIB, 4), (at_least("MiB/s", 1.0), CPU)),
        (
            "latency-5000",
            "end to end, 5,000 records/s",
            _at_rate(5_000),
            (at_most("p50 ms", 1.5), at_most("p99 ms", 2)),
        ),
    ):
        yield Line(f"synced-{name}", f"{title}, fsync", "synced", workload, figures, SYNCED_PAIR)


def _slow_store() -> Iterator[Line]:
    """On a store whose PUTs take 30 to 100 ms; a Kafka on its disk stands beside."""
    latency = (at_most("p50 ms", 250, is_ratio=False), at_most("p99 ms", 500, is_ratio=False), at_least("records/s"))
    stock = Figure("MiB/s", Goal(25e6 / 2**20, is_ratio=False))
    tuned = Produce(_java(settings=JAVA_TUNED), 16)
    for name, title, workload, figures in (
        ("java-stock", "produce, Java stock, 1 KiB, 1 partition", Produce(_java(), 1), (stock, CPU)),
        ("java-tuned", "produce, Java tuned, 1 KiB x 16 partitions", tuned, (at_least("MiB/s"), CPU)),
        ("latency-20", "end to end, 20 records/s", _at_rate(20), latency),
        ("latency-5000", "end to end, 5,000 records/s, 6 partitions", _at_rate(5_000), latency),
    ):
        yield Line(f"s3-{name}", f"{title}, S3-like store", "s3", workload, figures, SLOW_PAIR)


def _express() -> Iterator[Line]:
    """On the same store, with topics of the express lane: a landing store in NATS."""
    stock = Figure("MiB/s", Goal(8, is_ratio=False))
    title = "produce, Java stock, 1 KiB, 1 partition, express topic"
    yield Line("express-java-stock", title, "express", Produce(_java(), 1), (stock, CPU), EXPRESS_PAIR)
    for rate in (20, 5_000):
        figures = (at_most("p50 ms"), at_most("p99 ms", 40, is_ratio=False), at_least("records/s"), at_most("cores"))
        title = f"end to end, {rate:,} records/s, 6 partitions, express topic"
        yield Line(f"express-latency-{rate}", title, "express", _at_rate(rate), figures, EXPRESS_PAIR)


def all_lines() -> Mapping[str, Line]:
    """Every line by its name, in the order of the table."""
    groups = (
        _tuned,
        _raw,
        _stock,
        _many_partitions,
        _reading,
        _mixed,
        _latency,
        _resources,
        _synced,
        _slow_store,
        _express,
    )
    lines = [line for group in groups for line in group()]
    return {line.name: line for line in lines}
