"""Long lists: a page of a cluster with very many users and entries stays small."""

from penstock_console.pages.security import Acl, SecurityPage, User, words
from penstock_console.web.rendering import Templates


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
