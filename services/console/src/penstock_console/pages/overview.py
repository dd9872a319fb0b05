"""The overview: rates, latencies by stage, requests to the store with their price, zones and problems."""

import asyncio
from collections import Counter

import msgspec

from penstock.cli.diagnosis.latency import STAGES, Stage
from penstock.contracts.errors import Unavailable
from penstock_console.pages.context import Request, Sources
from penstock_console.pages.problems import ERROR, Problem, problems_of
from penstock_console.survey.histograms import Times, grown, times, total
from penstock_console.survey.processes import Reading
from penstock_console.survey.survey import Survey

GIB = 2**30
# List prices of S3 Standard in us-east-1 per request, in dollars. Other stores have other prices.
PUT_USD = 0.005 / 1000
GET_USD = 0.0004 / 1000
# By their price: a list costs as much as a put, a deletion nothing.
_WRITES, _READS = ("put", "put_part", "begin_parts", "complete_parts", "list"), ("get", "get_range")

_NO_SURVEY = Problem(
    ERROR,
    "sequencer",
    "no sequencer answers: topics and groups are not known, and writes wait",
    "Look for a sequencer that hangs, at its log, and at NATS.",
)


class StageTime(msgspec.Struct, frozen=True):
    """The time of one stage of a record's way."""

    name: str
    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float


class Zone(msgspec.Struct, frozen=True):
    """A zone and the number of its instances by role."""

    name: str
    instances: dict[str, int]


class Overview(msgspec.Struct, frozen=True):
    """The state of the cluster. Rates and times cover the last `span_s` seconds; without a span they are None.

    The numbers of topics, groups and records are None while no sequencer answers.
    """

    cluster: str
    is_ready: bool
    problems: list[Problem]
    topics: int | None
    partitions: int | None
    groups: int | None
    records: int | None
    size_bytes: int | None
    span_s: float
    records_in_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    requests_per_s: float | None
    connections: int
    produce: StageTime | None  # whole produce requests at gateways
    fetch: StageTime | None  # from the announcement of new data to the answer of a waiting fetch
    stages: list[StageTime]
    puts_per_gib: float | None
    gets_per_gib: float | None
    store_usd_per_hour: float | None  # at the prices of S3 Standard
    zones: list[Zone]


async def overview(sources: Sources, _request: Request) -> Overview:
    """The state of the cluster now."""
    reading = await sources.processes.current()
    problems = problems_of(reading)
    survey = await _survey(sources)
    if survey is None:
        problems.insert(0, _NO_SURVEY)
    bytes_in = _rate(reading, "penstock_gateway_produced_bytes_total")
    puts = _requests(reading, _WRITES)
    gets = _requests(reading, _READS)
    price = None if puts is None or gets is None else (puts * PUT_USD + gets * GET_USD) * 3600
    return Overview(
        cluster=sources.cluster,
        is_ready=not any(each.severity == "error" for each in problems),
        problems=problems,
        **_counts(survey),
        span_s=reading.span_s,
        records_in_per_s=sum(survey.records_per_s.values()) if survey and survey.records_per_s else None,
        bytes_in_per_s=bytes_in,
        bytes_out_per_s=_rate(reading, "penstock_gateway_read_bytes_total"),
        requests_per_s=_rate(reading, "penstock_gateway_request_seconds_count"),
        connections=int(total(reading.sums, "penstock_gateway_connections")),
        produce=_stage(reading, "produce", "penstock_gateway_request_seconds", api="Produce"),
        fetch=_stage(reading, "new data to answer", "penstock_gateway_tail_answer_seconds"),
        stages=[found for stage in STAGES if (found := _stage_of(reading, stage)) is not None],
        puts_per_gib=puts / (bytes_in / GIB) if puts is not None and bytes_in else None,
        gets_per_gib=gets / (bytes_in / GIB) if gets is not None and bytes_in else None,
        store_usd_per_hour=price,
        zones=_zones(reading),
    )


async def _survey(sources: Sources) -> Survey | None:
    try:
        async with asyncio.timeout(sources.overview_s):
            return await sources.survey.current()
    except (Unavailable, TimeoutError):
        return None


def _counts(survey: Survey | None) -> dict[str, int | None]:
    if survey is None:
        return dict.fromkeys(("topics", "partitions", "groups", "records", "size_bytes"))
    return {
        "topics": len(survey.topics),
        "partitions": sum(len(each.size_bytes) for each in survey.topics.values()),
        "groups": len(survey.groups),
        "records": sum(each.records for each in survey.totals.values()),
        "size_bytes": sum(each.size_bytes for each in survey.totals.values()),
    }


def _rate(reading: Reading, name: str, **labels: str) -> float | None:
    if reading.before is None:
        return None
    return grown(reading.before, reading.sums, name, **labels) / reading.span_s


def _requests(reading: Reading, verbs: tuple[str, ...]) -> float | None:
    rates = [_rate(reading, "penstock_store_requests_total", verb=verb) for verb in verbs]
    return None if None in rates else sum(each for each in rates if each is not None)


def _stage_of(reading: Reading, stage: Stage) -> StageTime | None:
    return _stage(reading, stage.name, stage.metric, **dict(stage.labels))


def _stage(reading: Reading, name: str, metric: str, **labels: str) -> StageTime | None:
    found: Times | None = None
    if reading.before is not None:
        found = times(reading.before, reading.sums, metric, **labels)
    if found is None:
        return None
    return StageTime(name, found.count, found.mean_ms, found.p50_ms, found.p99_ms)


def _zones(reading: Reading) -> list[Zone]:
    counts: dict[str, Counter[str]] = {}
    for each in reading.processes:
        counts.setdefault(each.presence.zone, Counter())[each.presence.role] += 1
    return [Zone(name, dict(found)) for name, found in sorted(counts.items())]
