"""Long lists: a page of a cluster with very many users, entries, partitions or members stays small."""

import re
from typing import Any

import pytest

from penstock_console.kafka.changes import OffsetMove
from penstock_console.pages.groups import GroupMember, GroupPage, GroupPartition, GroupRow
from penstock_console.pages.resetting import ResetPreview
from penstock_console.pages.security import Acl, SecurityPage, User, words
from penstock_console.pages.topics import (
    DeletedTopic,
    DeletedTopics,
    PartitionRow,
    TopicGroup,
    TopicPage,
    TopicRow,
)
from penstock_console.web.rendering import Templates

MANY = 10_000
PAGE_CHARACTERS_MAX = 300_000
VALUES = {"cluster": "c", "title": "t", "here": "/", "user": "a", "done": "", "version": "1", "name": "n"}
SWITCHES = {"may_change": True, "has_logins": True}
TOPIC_ROW = TopicRow("n", MANY, 0, 0, None, None, "delete", -1, "standard", MANY, 0, None, is_internal=False)
TOPIC_PAGE = TopicPage(
    TOPIC_ROW,
    "",
    [PartitionRow(each, 0, 0, 0, 0) for each in range(MANY)],
    [TopicGroup(f"g{each}", "classic", "Empty", 0, 0, 0.0) for each in range(MANY)],
    [],
    "",
)
GROUP_PAGE = GroupPage(
    GroupRow("n", "consumer", "Stable", MANY, 1, 0, 0.0),
    [],
    [GroupPartition("t", each, 0, 0, 0, 0.0, "") for each in range(MANY)],
    "",
    [GroupMember(f"m{each}", "c", "h", "", []) for each in range(MANY)],
    "",
)
PREVIEW = ResetPreview("n", "latest", "", [OffsetMove("t", each, None, 0) for each in range(MANY)])
DELETED = DeletedTopics([DeletedTopic(f"t{each}", "", 1, 0, 0, 0, "") for each in range(MANY)])


def rendered(template: str, view: object, **query: Any) -> str:
    return Templates().render(template, VALUES | SWITCHES | {"view": view, "query": query})


@pytest.mark.parametrize(
    ("template", "view", "hint"),
    [
        ("topic.html", TOPIC_PAGE, "10,000 groups: the 500 with the most lag are shown"),
        ("group.html", GROUP_PAGE, "10,000 members: the first 500 are shown"),
        ("reset.html", PREVIEW, "10,000 offsets: the first 500 are shown"),
        ("deleted.html", DELETED, "10,000 topics: the newest 500 are shown"),
    ],
)
def test_a_page_with_very_many_rows_is_small_and_reports_the_number_of_all(
    template: str, view: object, hint: str
) -> None:
    page = rendered(template, view, page=1)
    assert len(page) < PAGE_CHARACTERS_MAX
    assert hint in page


@pytest.mark.parametrize(
    ("template", "view", "path", "partition"),
    [
        ("topic.html", TOPIC_PAGE, "/topics/n", r'/topics/n/partitions/(\d+)"'),
        ("group.html", GROUP_PAGE, "/groups/n", r'/topics/t">t</a></th><td class="number">(\d+)<'),
    ],
)
@pytest.mark.parametrize(("number", "first"), [(1, 0), (7, 1_200), (50, 9_800), (51, 9_800)])
def test_each_partition_is_on_one_page_of_its_table(
    template: str, view: object, path: str, partition: str, number: int, first: int
) -> None:
    page = rendered(template, view, page=number)
    assert [int(each) for each in re.findall(partition, page)] == [*range(first, first + 200)]
    assert (f'href="{path}?page={number + 1}"' in page) == (number < 50)


def test_a_page_shows_the_first_of_very_many_users_and_entries() -> None:
    acls = [Acl(f"User:u{index}", "allow", "read", "topic", "t", "literal", "*") for index in range(1_001)]
    users = [User(f"u{index}", ["SCRAM-SHA-256"]) for index in range(1_002)]
    values = {"cluster": "c", "title": "t", "here": "/security", "user": "a", "done": "", "version": "1"}
    view = SecurityPage("a", True, users, "", acls, "", words())
    page = Templates().render(
        "security.html", values | {"view": view, "query": {}, "may_change": True, "has_logins": True}
    )
    assert ("User:u499<" in page, "User:u500<" in page) == (True, False)
    assert "1,001 entries: the first 500 are shown" in page
    assert "1,002 users: the first 500 are shown" in page
