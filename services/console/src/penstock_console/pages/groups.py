"""Groups of all kinds: the list, and one group with its lag, members and trend."""

from functools import partial

import msgspec

from penstock.cli.groups.members import Group
from penstock.cli.groups.reading import assignment_text
from penstock.cli.kafka.session import Session
from penstock.contracts.errors import PenstockError
from penstock.contracts.queries.survey import UNKNOWN_TIME, GroupSurvey
from penstock_console.kafka.changes import describe_group
from penstock_console.pages.context import FIRST, ListQuery, Part, Request, Sources, TableQuery, part_of
from penstock_console.pages.errors import NotFound
from penstock_console.survey.background import computed
from penstock_console.survey.survey import Survey, behind_ms_of, lag_of


class GroupRow(msgspec.Struct, frozen=True):
    """A group in the list."""

    name: str
    kind: str
    state: str
    members: int
    topics: int
    lag: int
    behind_seconds: float  # the age of the oldest record that is not consumed, an estimate


class GroupList(msgspec.Struct, frozen=True):
    """The groups that fit, and how many there are."""

    total: int
    list: Part[GroupRow]


class GroupPartition(msgspec.Struct, frozen=True):
    """The position of a group in a partition."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    behind_seconds: float
    member: str  # client and host of the member that has the partition, "" if none has


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    instance: str
    partitions: list[str]  # such as `orders/0-3`


class GroupPage(msgspec.Struct, frozen=True):
    """One group."""

    row: GroupRow
    trend: list[int]  # total lags, the newest last
    partitions: list[GroupPartition]
    assignor: str
    members: list[GroupMember]
    members_error: str  # why the members cannot be read, "" if they can


async def groups(sources: Sources, _request: Request, query: ListQuery) -> GroupList:
    """The groups whose name contains the text, those with the most lag first."""
    survey = await sources.survey.current()
    return await computed(len(survey.groups), partial(_list, survey, query))


def _list(survey: Survey, query: ListQuery) -> GroupList:
    rows = [group_row(survey, each) for name, each in survey.groups.items() if query.q.lower() in name.lower()]
    return GroupList(len(survey.groups), part_of(rows, query, "-lag"))


async def group(sources: Sources, request: Request, name: str, query: TableQuery = FIRST) -> GroupPage:
    """One group with all of its partitions; `page` is for HTML only. `Invalid` if there is none."""
    survey = await sources.survey.with_item(lambda taken: name in taken.groups)
    found = survey.groups.get(name)
    if found is None:
        raise NotFound(f"there is no group {name!r}")
    described, members_error = await _members(sources, request, name)
    partitions = sum(len(each.partitions) for each in found.topics)
    return await computed(partitions, partial(_page, survey, found, described, members_error))


def _page(survey: Survey, found: GroupSurvey, described: Group | None, members_error: str) -> GroupPage:
    members = [] if described is None else described.members
    owners = {
        (topic, number): f"{member.client_id}@{member.host.lstrip('/')}"
        for member in members
        for topic, numbers in member.partitions.items()
        for number in numbers
    }
    return GroupPage(
        group_row(survey, found),
        list(survey.trends.get(found.group_id, ())),
        _partitions(survey, found, owners),
        "" if described is None else described.assignor,
        [
            GroupMember(
                each.member_id,
                each.client_id,
                each.host.lstrip("/"),
                each.instance or "",
                assignment_text(each.partitions),
            )
            for each in members
        ],
        members_error,
    )


def group_row(survey: Survey, each: GroupSurvey) -> GroupRow:
    """A group as the list shows it."""
    behind_ms = max((behind_ms_of(topic, survey.taken_ms) for topic in each.topics), default=0)
    return GroupRow(
        each.group_id, each.kind, each.state, each.members, len(each.topics), lag_of(each), behind_ms / 1000
    )


def _partitions(survey: Survey, found: GroupSurvey, owners: dict[tuple[str, int], str]) -> list[GroupPartition]:
    rows = []
    for topic in found.topics:
        ends = survey.topics[topic.topic].high_watermarks if topic.topic in survey.topics else []
        for number, offset, lag, oldest_ms in zip(
            topic.partitions, topic.offsets, topic.lags, topic.oldest_ms, strict=True
        ):
            end = ends[number] if number < len(ends) else offset + lag
            behind_s = 0.0 if oldest_ms == UNKNOWN_TIME else max(survey.taken_ms - oldest_ms, 0) / 1000
            owner = owners.get((topic.topic, number), "")
            rows.append(GroupPartition(topic.topic, number, offset, end, lag, behind_s, owner))
    return sorted(rows, key=lambda row: (row.topic, row.partition))


async def _members(sources: Sources, request: Request, name: str) -> tuple[Group | None, str]:
    def read(session: Session) -> Group:
        return describe_group(session, name)

    try:
        return await sources.kafka.call(request.login, read), ""
    except PenstockError as error:
        return None, str(error)
