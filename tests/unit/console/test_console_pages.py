"""Pages have the rows that a user asks for, the problems of the cluster, and the extents of a partition."""

import functools
import inspect
import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from penstock.cli import parse_arguments
from penstock.cli.topics.deleted import parse_topic_id
from penstock.contracts.commands import (
    AlterConfigs,
    CommitOffsets,
    ConfigChange,
    ConfigOperation,
    DeleteRecords,
    DeleteTopic,
    LogOffset,
    OffsetToCommit,
    RaiseLevel,
)
from penstock.contracts.errors import Unavailable
from penstock.contracts.ids import NO_TOPIC_ID, topic_id_text
from penstock.contracts.levels import JANITOR_LEVEL
from penstock_console.pages import cluster, groups, overview, storage, topics, transactions
from penstock_console.pages.context import ROWS_PER_PAGE_MAX, ListQuery, Request, part_of
from penstock_console.pages.errors import NotFound
from penstock_console.pages.problems import ERROR, WARNING, problems_of
from penstock_console.survey.processes import NEEDED_ROLES, SupervisedProcess
from penstock_sequencer.core.state.limits import AnswerLimits, Limits
from tests.unit.console.console_rig import LOGIN, READY, ROLES, Rig, process, reading
from tests.unit.sequencer.core.core_world import START_MS, batch, topic_id

REQUEST = Request(LOGIN)
TIMEOUT_MS = 60_000


class Row(msgspec.Struct, frozen=True):
    """A row with a column that may be unknown."""

    name: str
    rate: float | None

    def method(self) -> None:
        """Not a column."""


ROWS = st.lists(st.builds(Row, st.text(max_size=3), st.none() | st.floats(0, 9)), max_size=30)


@given(
    ROWS,
    st.sampled_from(["", "name", "-name", "rate", "-rate", "gone", "--rate", "method", "__class__", "-__init__", "-"]),
    st.integers(-3, 40),
    st.integers(-3, 700),
)
def test_all_pages_together_have_each_row_once_in_the_order_of_the_column(
    rows: list[Row], sort: str, page: int, size: int
) -> None:
    first = part_of(rows, ListQuery(sort=sort, size=size), "-rate")
    parts = [part_of(rows, ListQuery(sort=sort, size=size, page=number + 1), "-rate") for number in range(first.pages)]
    listed = [row for part in parts for row in part.rows]
    assert first.found == len(rows) == len(listed)
    assert all(len(part.rows) <= min(max(size, 1), ROWS_PER_PAGE_MAX) for part in parts)
    assert all(part.rows for part in parts) or not rows
    if rows:
        column = first.sort.removeprefix("-")
        assert column in ("name", "rate")
        assert first.sort == (sort if sort.removeprefix("-") in ("name", "rate") else "-rate")
        known = [value for row in listed if (value := getattr(row, column)) is not None]
        assert known == sorted(known, reverse=first.sort.startswith("-"))
    one = part_of(rows, ListQuery(sort=sort, size=size, page=page), "-rate")
    assert 1 <= one.page <= one.pages and one.rows == parts[one.page - 1].rows


def test_unknown_values_come_before_all_others_or_last_if_the_order_is_reversed() -> None:
    rows = [Row("a", 2.0), Row("b", None), Row("c", 0.0)]
    assert "".join(each.name for each in part_of(rows, ListQuery(), "rate").rows) == "bca"
    assert "".join(each.name for each in part_of(rows, ListQuery(), "-rate").rows) == "acb"


async def test_topics_are_found_by_a_part_of_their_name_in_any_case() -> None:
    rig = Rig()
    for number, name in enumerate(["orders", "Orders.old", "other", "__internal"], 1):
        rig.world.topic(name, number=number)
    page = await topics.topics(rig.sources, REQUEST, ListQuery(q="ORD"))
    assert ([each.name for each in page.list.rows], page.list.found, page.total) == (["Orders.old", "orders"], 2, 4)
    (internal,) = (await topics.topics(rig.sources, REQUEST, ListQuery(q="__"))).list.rows
    assert internal.is_internal


async def test_a_topic_has_its_partitions_configurations_and_groups() -> None:
    rig = Rig()
    rig.world.topic(partitions=2)
    rig.world.produce(batch(6, timestamp=START_MS), partition=1)
    rig.world.commit_offset(2, partition=1)
    page = await topics.topic(rig.sources, REQUEST, "t")
    assert [(each.start_offset, each.end_offset, each.records) for each in page.partitions] == [(0, 0, 0), (0, 6, 6)]
    assert [(each.name, each.lag) for each in page.groups] == [("g", 4)]
    assert (page.row.lag, page.row.records, page.row.newest_ms, page.row.records_per_s) == (4, 6, START_MS, None)
    assert [each.name for each in page.configs] == ["retention.ms"]
    with pytest.raises(NotFound, match="there is no topic 'gone'"):
        await topics.topic(rig.sources, REQUEST, "gone")


async def test_without_gateways_a_topic_and_a_group_are_shown_without_their_parts_from_there() -> None:
    rig = Rig()
    rig.world.topic()
    rig.world.commit_offset(0)
    rig.kafka.is_available = False
    topic = await topics.topic(rig.sources, REQUEST, "t")
    group = await groups.group(rig.sources, REQUEST, "g")
    assert (topic.configs, topic.configs_error) == ([], "no gateway accepts a connection")
    assert (group.members, group.members_error) == ([], "no gateway accepts a connection")


async def test_a_rate_in_bytes_is_that_in_records_of_the_mean_size() -> None:
    rig = Rig()
    rig.world.topic()
    await topics.topics(rig.sources, REQUEST, ListQuery())
    rig.clock.now_s += 10
    rig.world.produce(batch(20, length=1_000))
    (row,) = (await topics.topics(rig.sources, REQUEST, ListQuery())).list.rows
    assert (row.records_per_s, row.bytes_per_s) == (2.0, 100.0)


async def test_a_group_has_the_lag_of_each_partition_and_its_member_there() -> None:
    rig = Rig()
    rig.world.topic(partitions=2)
    rig.world.produce(batch(6, timestamp=START_MS - 9_000))
    rig.world.commit_offset(1)
    rig.world.commit_offset(0, partition=1)
    rig.world.classic.join("m1")
    page = await groups.group(rig.sources, REQUEST, "g")
    assert [(each.partition, each.offset, each.end_offset, each.lag, each.member) for each in page.partitions] == [
        (0, 1, 6, 5, "client@127.0.0.1"),
        (1, 0, 0, 0, ""),
    ]
    assert (page.row.behind_seconds, page.row.members, page.trend) == (9.0, 1, [5])
    assert [(each.member_id, each.partitions) for each in page.members] == [("m1", ["t/0"])]
    with pytest.raises(NotFound, match="there is no group 'gone'"):
        await groups.group(rig.sources, REQUEST, "gone")


async def test_groups_with_the_most_lag_come_first() -> None:
    rig = Rig()
    rig.world.topic()
    rig.world.produce(batch(9))
    for group, offset in (("a", 8), ("b", 1), ("c", 9)):
        rig.world.do(CommitOffsets(0, group, -1, "", None, [OffsetToCommit("t", 0, offset, -1, "")]))
    page = await groups.groups(rig.sources, REQUEST, ListQuery())
    assert [(each.name, each.lag) for each in page.list.rows] == [("b", 8), ("a", 1), ("c", 0)]


async def test_deleted_topics_are_listed_while_they_can_come_back_the_newest_first() -> None:
    rig = Rig()
    rig.world.do(RaiseLevel(rig.world.now_ms, JANITOR_LEVEL))
    window = ConfigChange("penstock.undelete.window.ms", ConfigOperation.SET, "60000")
    rig.world.do(AlterConfigs(rig.world.now_ms, "", [window]))
    for number, name in enumerate(("first", "second"), 1):
        rig.world.topic(name, number=number)
        rig.world.do(DeleteTopic(rig.world.now_ms, name, NO_TOPIC_ID))
    page = await topics.deleted_topics(rig.sources, REQUEST)
    assert [each.command for each in page.topics] == [
        f"penstock topic undelete --cluster=test --id={each.topic_id} {each.name}" for each in page.topics
    ]
    assert [(each.name, each.until_ms) for each in page.topics] == [
        ("second", START_MS + 60_000),
        ("first", START_MS + 60_000),
    ]


@pytest.mark.parametrize("cluster_name", ["default", "other"])
@pytest.mark.parametrize("name", ["orders", "-x", "--id", "-", "a.b_c-9"])
@pytest.mark.parametrize("id_bytes", [bytes(16), b"\xff" * 16, b"\xfb" + bytes(15)])
def test_the_command_that_brings_a_topic_back_names_it_exactly(name: str, id_bytes: bytes, cluster_name: str) -> None:
    program, *words = shlex.split(topics.undelete_command(cluster_name, name, topic_id_text(id_bytes)))
    arguments = parse_arguments(words)
    assert (program, arguments.command, arguments.verb) == ("penstock", "topic", "undelete")
    assert (arguments.name, parse_topic_id(arguments.id)) == (name, id_bytes)
    assert arguments.cluster == ("" if cluster_name == "default" else cluster_name)


def test_without_problems_there_are_none() -> None:
    assert problems_of(reading([process(role) for role in ROLES])) == []


@pytest.mark.parametrize("role", NEEDED_ROLES)
def test_a_missing_service_is_an_error_and_a_missing_helper_is_none(role: str) -> None:
    (problem,) = problems_of(
        reading([process(each) for each in ("gateway", "flusher", "sequencer", "cacher") if each != role])
    )
    assert (problem.severity, problem.where, problem.text) == (
        ERROR,
        role,
        f"there is no {role}: clients are not served",
    )


def test_errors_come_before_warnings_and_each_has_an_advice() -> None:
    degraded = READY | {"degraded": {"journal": "its server acknowledges too soon"}}
    waiting = READY | {"ready": False, "reason": "starting"}
    found = problems_of(
        reading(
            [process("gateway", degraded), process("flusher", waiting), process("sequencer"), process("cacher")],
            supervised=[
                SupervisedProcess("cacher-2", "hangs", 7, 0),
                SupervisedProcess("janitor-1", "does not run", None, 3),
                SupervisedProcess("gateway-1", "runs", 8, 0),
            ],
        )
    )
    assert [(each.severity, each.where, each.text) for each in found] == [
        (ERROR, "cacher-2", "the process hangs"),
        (ERROR, "janitor-1", "the process does not run"),
        (ERROR, "flusher-1", "not ready: starting"),
        (WARNING, "gateway-1", "its server acknowledges too soon"),
    ]
    assert all(each.advice.endswith(".") for each in found)


def test_a_process_that_hangs_is_one_problem_with_all_its_roles() -> None:
    silent = {"ready": False, "reason": "no answer", "degraded": {}}
    found = problems_of(
        reading(
            [process(role, silent if role in ("gateway", "flusher") else READY) for role in NEEDED_ROLES],
            supervised=[SupervisedProcess("gateway-1", "hangs", 7, 0)],
        )
    )
    assert [(each.where, each.text) for each in found] == [
        ("gateway-1", "the process hangs"),
        ("flusher-1", "not ready: no answer"),
    ]


async def test_the_overview_has_no_rates_before_the_second_reading() -> None:
    rig = Rig()
    page = await overview.overview(rig.sources, REQUEST)
    assert page.is_ready
    assert (page.records_in_per_s, page.bytes_in_per_s, page.store_usd_per_hour) == (None, None, None)
    assert (page.produce, page.stages) == (None, [])


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_overview_shows_the_problems_while_no_sequencer_answers(hangs: bool) -> None:
    rig = Rig()
    rig.world.topic()
    rig.sequencers.is_available, rig.sequencers.hangs = False, hangs
    rig.reading = reading(
        [process(role) for role in ROLES], supervised=[SupervisedProcess("sequencer-1", "hangs", 7, 0)]
    )
    sources = msgspec.structs.replace(rig.sources, overview_s=0.01)
    page = await overview.overview(sources, REQUEST)
    assert [each.text.partition(":")[0] for each in page.problems] == ["no sequencer answers", "the process hangs"]
    assert (page.is_ready, page.topics, page.groups, page.size_bytes) == (False, None, None, None)
    assert page.connections == 0


async def test_the_overview_has_rates_and_prices_between_two_readings() -> None:
    rig = Rig()
    put = (("verb", "put"),)
    rig.reading = reading(
        [process(role) for role in ROLES],
        sums={
            ("penstock_gateway_produced_bytes_total", ()): 2.0**30,
            ("penstock_store_requests_total", put): 100.0,
            ("penstock_store_requests_total", (("verb", "get"),)): 50.0,
            ("penstock_store_requests_total", (("verb", "delete"),)): 9_999.0,
            ("penstock_gateway_connections", ()): 7.0,
        },
        before={("penstock_store_requests_total", put): 40.0},
        span_s=10.0,
    )
    page = await overview.overview(rig.sources, REQUEST)
    assert (page.bytes_in_per_s, page.connections) == (2**30 / 10, 7)
    assert (page.puts_per_gib, page.gets_per_gib) == (pytest.approx(60), pytest.approx(50))
    assert page.store_usd_per_hour == pytest.approx((6 * 0.005 + 5 * 0.0004) / 1000 * 3600)
    assert [(each.name, sum(each.instances.values())) for each in page.zones] == [("z1", len(ROLES))]


async def test_the_cluster_has_a_row_for_each_role_with_its_problems() -> None:
    rig = Rig()
    bad = {"ready": False, "reason": "starting", "degraded": {"a": "full", "b": ""}}
    rig.reading = reading([process("gateway", bad, process_start_time_seconds=START_MS / 1000 - 60)])
    rig.supervise(SupervisedProcess("gateway-1", "runs", 7, 2))
    page = await cluster.cluster(rig.sources, REQUEST)
    (row,) = page.processes
    assert (row.role, row.is_ready, row.problem, row.uptime_seconds, row.memory_bytes) == (
        "gateway",
        False,
        "starting; full",
        60.0,
        None,
    )
    assert ([each.restarts for each in page.supervised], page.has_versions) == ([2], ["0.1.0"])


def transaction_rig(count: int = 3, limits: AnswerLimits | None = None) -> Rig:
    rig = Rig(limits=Limits(answers=limits or AnswerLimits()))
    rig.world.transactions.begin()
    for number in range(count):
        writer = rig.world.transactions.init(f"tx-{number}", timeout_ms=TIMEOUT_MS)
        if number % 2 == 0:
            rig.world.transactions.add(writer)
            rig.world.transactions.write(writer)
    return rig


async def test_open_transactions_come_first_and_one_beyond_twice_its_timeout_hangs() -> None:
    rig = transaction_rig()
    page = await transactions.transactions(rig.sources, REQUEST, ListQuery())
    assert [(each.name, each.age_seconds, each.is_hanging) for each in page.list.rows] == [
        ("tx-0", 0.0, False),
        ("tx-2", 0.0, False),
        ("tx-1", None, False),
    ]
    assert (page.total, page.open, page.hanging, page.is_cut) == (3, 2, 0, False)
    rig.clock.now_s = 2 * TIMEOUT_MS / 1000
    assert (await transactions.transactions(rig.sources, REQUEST, ListQuery())).hanging == 0
    rig.clock.now_s += 0.001
    page = await transactions.transactions(rig.sources, REQUEST, ListQuery(q="tx-2"))
    assert (page.hanging, [each.is_hanging for each in page.list.rows]) == (2, [True])


async def test_all_pages_of_transactions_are_read() -> None:
    rig = transaction_rig(12, AnswerLimits(transactions_listed_max=5, transaction_partitions_listed_max=2))
    page = await transactions.transactions(rig.sources, REQUEST, ListQuery(sort="name"))
    assert [each.name for each in page.list.rows] == sorted(f"tx-{number}" for number in range(12))
    assert (page.total, page.open) == (12, 6)
    assert all((each.age_seconds is not None) == (each.state == "Ongoing") for each in page.list.rows)


async def test_one_transaction_has_its_partitions_while_it_is_open() -> None:
    rig = transaction_rig()
    page = await transactions.transaction(rig.sources, REQUEST, "tx-0")
    assert (page.partitions, page.row.state, page.started_ms) == (["t/0"], "Ongoing", START_MS)
    idle = await transactions.transaction(rig.sources, REQUEST, "tx-1")
    assert (idle.partitions, idle.started_ms, idle.row.age_seconds) == ([], None, None)
    with pytest.raises(NotFound):
        await transactions.transaction(rig.sources, REQUEST, "gone")


def check_strip(page: storage.PartitionPage, end_offset: int) -> None:
    assert len(page.strip) <= storage.STRIP_PARTS_MAX
    assert sum(each.extents for each in page.strip) == page.extents
    if page.strip:
        assert page.strip[0].base_offset <= page.start_offset
        assert page.strip[-1].last_offset == end_offset - 1
    else:
        assert page.start_offset == end_offset
    for one, other in zip(page.strip, page.strip[1:], strict=False):
        assert other.base_offset == one.last_offset + 1


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3), max_size=30), st.data())
async def test_the_strip_covers_all_offsets_and_has_one_part_for_neighbours_of_a_level(
    written: list[int], data: st.DataObject
) -> None:
    rig = Rig(limits=Limits(answers=AnswerLimits(plan_extents_max=7)))
    rig.world.topic()
    for records in written:
        rig.world.produce(batch(records))
    for level in (1, 1, 2):
        count = len(rig.world.extents())
        if count:
            first = data.draw(st.integers(0, count - 1))
            rig.world.do(rig.world.job((1, 0, first, data.draw(st.integers(first + 1, count))), level=level))
    end = sum(written)
    rig.world.do(DeleteRecords(rig.world.now_ms, [LogOffset(topic_id(1), 0, data.draw(st.integers(0, end)))]))
    page = await storage.partition(rig.sources, REQUEST, "t", 0)
    check_strip(page, end)
    assert all(one.level != other.level for one, other in zip(page.strip, page.strip[1:], strict=False))
    assert page.size_bytes == sum(each.size_bytes for each in page.strip)


async def test_a_strip_of_many_levels_is_shortened_and_still_covers_all_offsets() -> None:
    rig = Rig()
    rig.world.topic()
    for _ in range(450):
        rig.world.produce(batch())
    for row in range(0, 450, 2):
        rig.world.do(rig.world.job((1, 0, row, row + 1)))
    page = await storage.partition(rig.sources, REQUEST, "t", 0)
    assert page.extents == 450 and not page.is_cut
    check_strip(page, 450)
    assert len(page.strip) > storage.STRIP_PARTS_MAX / 2


async def test_markers_are_a_part_of_their_own() -> None:
    rig = transaction_rig(1)
    world = rig.world
    writer = world.transactions.init("other")
    world.transactions.add(writer)
    world.transactions.write(writer)
    world.transactions.end(writer)
    page = await storage.partition(rig.sources, REQUEST, "t", 0)
    assert [(each.level, each.base_offset, each.last_offset, each.extents) for each in page.strip] == [
        (0, 0, 1, 2),
        (storage.MARKER_LEVEL, 2, 2, 1),
    ]
    assert (page.stable_offset, page.end_offset) == (0, 3)


async def test_records_that_are_removed_while_a_strip_is_read_are_left_out() -> None:
    rig = Rig(limits=Limits(answers=AnswerLimits(plan_extents_max=2)))
    rig.world.topic()
    for _ in range(10):
        rig.world.produce(batch())
    changes: list[Callable[[], Any]] = [
        functools.partial(rig.world.do, DeleteRecords(rig.world.now_ms, [LogOffset(topic_id(1), 0, start)]))
        for start in (5, 8)
    ]

    def change(name: str) -> None:
        if name == "plan" and changes:
            changes.pop(0)()

    rig.sequencers.before = change
    page = await storage.partition(rig.sources, REQUEST, "t", 0)
    assert (page.start_offset, page.end_offset) == (8, 10)
    assert page.strip[-1].last_offset == 9


async def test_a_topic_that_is_deleted_while_a_strip_is_read_is_not_found() -> None:
    rig = Rig()
    rig.world.topic()

    def change(name: str) -> None:
        if name == "plan":
            rig.world.do(DeleteTopic(rig.world.now_ms, "t", NO_TOPIC_ID))

    rig.sequencers.before = change
    with pytest.raises(NotFound):
        await storage.partition(rig.sources, REQUEST, "t", 0)
    for number in (-1, 1):
        with pytest.raises(NotFound):
            await storage.partition(rig.sources, REQUEST, "t", number)


async def test_the_storage_has_the_levels_of_all_segments_and_the_work_of_helpers() -> None:
    rig = Rig(limits=Limits(answers=AnswerLimits(segments_listed_max=2)))
    rig.world.topic()
    for _ in range(5):
        rig.world.produce(batch())
    rig.world.do(rig.world.job((1, 0, 0, 2)))
    rig.reading = reading(
        [
            process("sequencer", penstock_sequencer_applied_sequence=10.0, penstock_sequencer_archived_sequence=4.0),
            process("janitor", penstock_janitor_retention_lag_seconds=3.0),
        ],
        sums={
            ("penstock_compactor_running_jobs", (("kind", "merge"),)): 2.0,
            ("penstock_compactor_waiting_bytes", (("level", "0"),)): 300.0,
            ("penstock_janitor_bytes", (("state", "orphaned"),)): 11.0,
            ("penstock_janitor_bytes", (("state", "live"),)): 500.0,
        },
    )
    page = await storage.storage(rig.sources, REQUEST)
    assert [(each.level, each.segments, each.live_bytes, each.waiting_bytes) for each in page.levels] == [
        (0, 3, 300, 300),
        (1, 1, 200, 0),
    ]
    assert (page.pending_delete_segments, page.orphaned_bytes, page.overdue_bytes) == (2, 11.0, None)
    assert (page.archive_lag_entries, page.retention_lag_seconds) == (6.0, 3.0)
    assert [(each.kind, each.running) for each in page.jobs] == [("merge", 2)]


@pytest.mark.parametrize("page", [topics.topics, groups.groups, storage.storage, transactions.transactions])
async def test_without_sequencers_a_page_is_not_available(page: Callable[..., Any]) -> None:
    rig = Rig()
    rig.sequencers.is_available = False
    query = [ListQuery()] if "query" in inspect.signature(page).parameters else []
    with pytest.raises(Unavailable, match="no sequencer answers"):
        await page(rig.sources, REQUEST, *query)
