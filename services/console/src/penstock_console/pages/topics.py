"""Topics: the list, and one topic with its partitions, groups and configurations."""

from functools import partial

import msgspec

from penstock.cli.kafka.session import Session
from penstock.contracts.errors import PenstockError
from penstock.contracts.ids import topic_id_text
from penstock.contracts.queries.survey import UNKNOWN_TIME, TopicSurvey
from penstock.contracts.queries.topics import DeletedTopicsQuery, DeletedTopicsView
from penstock_console.kafka.changes import ConfigEntry, topic_configs
from penstock_console.pages.context import FIRST, ListQuery, Part, Request, Sources, TableQuery, part_of
from penstock_console.pages.errors import NotFound
from penstock_console.survey.background import computed
from penstock_console.survey.survey import Survey, behind_ms_of

RETENTION = "retention.ms"
RETENTION_DEFAULT = "604800000"
CLEANUP = "cleanup.policy"
LANE = "penstock.lane"
INTERNAL_PREFIX = "__"
CLUSTER_DEFAULT = "default"  # of commands, too


class TopicRow(msgspec.Struct, frozen=True):
    """A topic in the list; times and rates are None if they are unknown."""

    name: str
    partitions: int
    records: int
    size_bytes: int
    records_per_s: float | None
    bytes_per_s: float | None  # an estimate from the mean size of the records that are there
    cleanup: str
    retention_ms: int
    lane: str
    groups: int
    lag: int  # of the group that is furthest behind
    newest_ms: int | None
    is_internal: bool


class TopicList(msgspec.Struct, frozen=True):
    """The topics that fit, and how many there are."""

    total: int
    list: Part[TopicRow]


class PartitionRow(msgspec.Struct, frozen=True):
    """A partition of a topic."""

    partition: int
    start_offset: int
    end_offset: int
    records: int
    size_bytes: int


class TopicGroup(msgspec.Struct, frozen=True):
    """A group that has offsets in a topic."""

    name: str
    kind: str
    state: str
    members: int
    lag: int
    behind_seconds: float


class TopicPage(msgspec.Struct, frozen=True):
    """One topic."""

    row: TopicRow
    topic_id: str
    partitions: list[PartitionRow]
    groups: list[TopicGroup]
    configs: list[ConfigEntry]
    configs_error: str  # why the configurations cannot be read, "" if they can


class DeletedTopic(msgspec.Struct, frozen=True):
    """A deleted topic that can come back until a time."""

    name: str
    topic_id: str
    partitions: int
    size_bytes: int
    deleted_ms: int
    until_ms: int
    command: str  # brings it back: neither Kafka nor the console has a request for that


class DeletedTopics(msgspec.Struct, frozen=True):
    """All deleted topics that can come back."""

    topics: list[DeletedTopic]


async def topics(sources: Sources, _request: Request, query: ListQuery) -> TopicList:
    """The topics whose name contains the text."""
    survey = await sources.survey.current()
    return await computed(len(survey.topics), partial(_list, survey, query))


def _list(survey: Survey, query: ListQuery) -> TopicList:
    rows = [topic_row(survey, each) for name, each in survey.topics.items() if query.q.lower() in name.lower()]
    return TopicList(len(survey.topics), part_of(rows, query, "name"))


async def topic(sources: Sources, request: Request, name: str, query: TableQuery = FIRST) -> TopicPage:
    """One topic with all of its partitions; `page` is for HTML only. `Invalid` if there is none."""
    survey, found = await found_topic(sources, name)
    configs, configs_error = await _configs(sources, request, name)
    partitions = [
        PartitionRow(number, start, end, end - start, size_bytes)
        for number, (start, end, size_bytes) in enumerate(
            zip(found.log_start_offsets, found.high_watermarks, found.size_bytes, strict=True)
        )
    ]
    return TopicPage(
        topic_row(survey, found), found.topic_id.hex(), partitions, _groups(survey, name), configs, configs_error
    )


async def deleted_topics(sources: Sources, _request: Request) -> DeletedTopics:
    """Deleted topics in their undelete window, the newest first."""
    view = await sources.sequencers.query("deleted_topics", DeletedTopicsQuery(0, fresh=True), DeletedTopicsView)
    return DeletedTopics(
        [
            DeletedTopic(
                each.name,
                topic_id_text(each.topic_id),
                each.partitions,
                each.size_bytes,
                each.deleted_ms,
                each.until_ms,
                undelete_command(sources.cluster, each.name, topic_id_text(each.topic_id)),
            )
            for each in reversed(view.topics)
        ]
    )


def undelete_command(cluster: str, name: str, topic_id: str) -> str:
    """The command that brings a deleted topic back. A name of a topic needs no quotes in a shell."""
    given = "" if cluster == CLUSTER_DEFAULT else f" --cluster={cluster}"
    # A name or an id may begin with `-`, as flags do.
    return f"penstock topic undelete{given} --id={topic_id} {'-- ' if name.startswith('-') else ''}{name}"


async def found_topic(sources: Sources, name: str) -> tuple[Survey, TopicSurvey]:
    """The topic and the survey that has it; `NotFound` if there is none."""
    survey = await sources.survey.with_item(lambda found: name in found.topics)
    if name not in survey.topics:
        raise NotFound(f"there is no topic {name!r}")
    return survey, survey.topics[name]


def topic_row(survey: Survey, each: TopicSurvey) -> TopicRow:
    """A topic as the list shows it."""
    totals = survey.totals[each.name]
    rate = survey.records_per_s.get(each.name)
    groups = survey.groups_of_topic.get(each.name, [])
    lags = [sum(found.lags) for group in groups for found in survey.groups[group].topics if found.topic == each.name]
    mean_bytes = totals.size_bytes / totals.records if totals.records else 0.0
    return TopicRow(
        each.name,
        len(each.size_bytes),
        totals.records,
        totals.size_bytes,
        rate,
        None if rate is None else rate * mean_bytes,
        each.configs.get(CLEANUP, "delete"),
        int(each.configs.get(RETENTION, RETENTION_DEFAULT)),
        each.configs.get(LANE, "standard"),
        len(groups),
        max(lags, default=0),
        None if each.newest_ms == UNKNOWN_TIME else each.newest_ms,
        each.name.startswith(INTERNAL_PREFIX),
    )


def _groups(survey: Survey, name: str) -> list[TopicGroup]:
    found = []
    for group_id in survey.groups_of_topic.get(name, []):
        group = survey.groups[group_id]
        for topic in group.topics:
            if topic.topic == name:
                behind_s = behind_ms_of(topic, survey.taken_ms) / 1000
                found.append(TopicGroup(group_id, group.kind, group.state, group.members, sum(topic.lags), behind_s))
    return sorted(found, key=lambda each: -each.lag)


async def _configs(sources: Sources, request: Request, name: str) -> tuple[list[ConfigEntry], str]:
    def read(session: Session) -> list[ConfigEntry]:
        return topic_configs(session, name)

    try:
        return await sources.kafka.call(request.login, read), ""
    except PenstockError as error:
        return [], str(error)
