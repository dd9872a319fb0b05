"""Users and access control lists change as a form asks, with the login of its user, and no password shows."""

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import aiohttp
import msgspec
import pytest
from markupsafe import escape
from structlog.testing import capture_logs

from penstock.contracts.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.contracts.commands import ScramMechanism
from penstock.contracts.errors import Unavailable
from penstock_console.kafka.sessions import Login
from penstock_console.web.actions import NewPassword, NewUser
from penstock_console.web.routes import API
from tests.unit.console.console_rig import Rig
from tests.unit.console.console_security_fakes import add_bindings, add_user, has_password, security_of
from tests.unit.console.console_served import BINDING, SCRIPT, Served, full_rig, served

SECRET, OTHER_SECRET = "correct-horse", "battery-staple"
HOSTILE_NAMES = ["a.b_c-d", "%", "a/b", "a?b=c#d", '"><b>', "\u00e9\U0001f600", "{name}", "+", " ", "a&b", SCRIPT]
ENTRY = {"principal": "User:alice", "operation": "write", "resource_type": "topic", "name": "t"}
WRITE = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", AclOperation.WRITE, AclPermission.ALLOW
)


def rig(**more: Any) -> Rig:
    return Rig(**{"may_change": True, **more})


def user_names(found: Rig) -> list[str]:
    return [each.name for each in security_of(found.world).users]


async def create(web: Served, **fields: str) -> Any:
    return await web.post("/security/users", data={"name": "carol", "password": SECRET, "again": SECRET, **fields})


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [("", list(ScramMechanism)), ("SCRAM-SHA-256", [ScramMechanism.SHA_256]), ("SCRAM-SHA-512", [ScramMechanism(2)])],
)
async def test_a_new_user_can_log_in_by_the_mechanisms_that_were_asked_for(
    mechanism: str, expected: list[ScramMechanism]
) -> None:
    async with served(rig()) as web:
        found = await create(web, mechanism=mechanism)
        assert (found.status, found.headers["Location"]) == (303, "/security?done=user%20carol%20is%20created")
        (user,) = security_of(web.rig.world).users
        assert [each.mechanism for each in user.verifiers] == expected
        assert has_password(web.rig.world, "carol", SECRET) and not has_password(web.rig.world, "carol", OTHER_SECRET)
        page = await web.get(found.headers["Location"])
        assert '<a href="/security/users/carol">carol</a>' in page.text


async def test_a_user_that_exists_keeps_its_password_until_a_new_one_is_set() -> None:
    async with served(rig()) as web:
        assert (await web.post(f"{API}/security/users", json={"name": "carol", "password": SECRET})).status == 200
        found = await web.post(f"{API}/security/users", json={"name": "carol", "password": OTHER_SECRET})
        assert (found.status, found.json) == (400, {"error": "user 'carol' exists already"})
        assert has_password(web.rig.world, "carol", SECRET)
        found = await web.post(f"{API}/security/users/carol/password", json={"password": OTHER_SECRET})
        assert (found.status, found.json) == (200, {"message": "user carol has a new password"})
        assert has_password(web.rig.world, "carol", OTHER_SECRET)


async def test_a_user_without_a_password_gets_none_and_one_that_is_gone_is_not_deleted() -> None:
    async with served(rig()) as web:
        for path, body in (("password", {"password": SECRET}), ("delete", {"confirm": "carol"})):
            found = await web.post(f"{API}/security/users/carol/{path}", json=body)
            assert found.status == 400 and "there is no user 'carol'" in found.json["error"]
        assert (await web.get("/security/users/carol")).status == 404
        assert user_names(web.rig) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"password": "", "again": ""},
        {"password": "1234567", "again": "1234567"},
        {"again": OTHER_SECRET},
        {"again": ""},
        {"name": ""},
        {"name": "n" * 256},
        {"mechanism": "PLAIN"},
        {"mechanism": "scram-sha-256"},
    ],
)
async def test_a_user_with_a_malformed_name_or_password_is_not_created(fields: dict[str, str]) -> None:
    async with served(rig()) as web:
        found = await create(web, **fields)
        assert (found.status, user_names(web.rig), SECRET in found.text) == (400, [], False)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_user_may_have_any_name_from_its_creation_to_its_end(name: str) -> None:
    async with served(rig()) as web:
        found = await create(web, name=name)
        page = await web.get(found.headers["Location"])
        (link,) = re.findall(r'<th scope="row" class="name"><a href="(/security/users/[^"]*)"', page.text)
        page = await web.get(link)
        assert (page.status, "<b>" in page.text, SCRIPT in page.text) == (200, False, False)
        assert (await web.get(API + link)).json["user"]["name"] == name
        found = await web.post(f"{link}/password", data={"password": OTHER_SECRET, "again": OTHER_SECRET})
        page = await web.get(found.headers["Location"])
        assert f'<p class="done">user {escape(name)} has a new password</p>' in page.text
        assert has_password(web.rig.world, name, OTHER_SECRET)
        found = await web.post(f"{link}/delete", data={"confirm": name})
        assert (found.status, user_names(web.rig)) == (303, [])


@pytest.mark.parametrize("confirm", ["", "Bob", "bob ", "alice"])
async def test_a_user_is_not_deleted_without_its_name(confirm: str) -> None:
    async with served(full_rig(may_change=True)) as web:
        for path, more in ((API, {"json": {"confirm": confirm}}), ("", {"data": {"confirm": confirm}})):
            assert (await web.post(f"{path}/security/users/bob/delete", **more)).status == 400
        assert "bob" in user_names(web.rig)


async def test_the_entries_of_a_deleted_user_stay() -> None:
    async with served(rig()) as web:
        add_user(web.rig.world, "alice")
        add_bindings(web.rig.world, BINDING)
        assert (await web.post(f"{API}/security/users/alice/delete", json={"confirm": "alice"})).status == 200
        assert security_of(web.rig.world).bindings == [BINDING]


async def test_no_password_is_in_a_log_line_an_address_a_page_or_an_error() -> None:
    """Each way in which a change ends, with the same password."""
    texts = []
    async with served(rig()) as web:
        with capture_logs() as logged:
            short = {"password": SECRET[:7], "again": SECRET[:7]}
            for fields in ({}, {}, {"again": "x"}, {"name": ""}, {"mechanism": "PLAIN"}, short):
                found = await create(web, **fields)
                texts += [found.text, str(found.headers)]
                if found.status == 303:
                    texts.append((await web.get(found.headers["Location"])).text)
            body: dict[str, Any] = {"name": "dora", "password": SECRET}
            for more in ({"name": 1}, {"password": [SECRET]}, {"mechanism": 1}):
                texts.append((await web.post(f"{API}/security/users", json=body | more)).text)
            texts.append((await web.post(f"{API}/security/users", data=f'{{"password": "{SECRET}"')).text)
            web.rig.kafka.refusal = Unavailable("cluster authorization failed")
            found = await web.post(f"{API}/security/users", json=body)
            assert found.status == 403
            web.rig.kafka.refusal = RuntimeError("unforeseen")
            texts += [found.text, (await web.post(f"{API}/security/users", json=body)).text]
    texts += [repr(NewUser(name="a", password=SECRET)), repr(NewPassword(password=SECRET)), str(logged)]
    assert not [each for each in texts if SECRET[:7] in each]


async def test_each_change_leaves_a_line_with_its_user_and_its_object() -> None:
    async with served(rig(passwords={"alice": "secret"})) as web:
        alice = {"Authorization": aiohttp.encode_basic_auth("alice", "secret")}
        with capture_logs() as logged:
            for path, body in (
                ("users", {"name": "carol", "password": SECRET}),
                ("users/carol/password", {"password": OTHER_SECRET, "mechanism": "SCRAM-SHA-256"}),
                ("users/carol/delete", {"confirm": "carol"}),
                ("acls", ENTRY),
                ("acls/remove", ENTRY),
                ("acls/remove", ENTRY),
            ):
                await web.post(f"{API}/security/{path}", json=body, headers=alice)
    entry = ENTRY | {"permission": "allow", "pattern": "literal", "host": "*"}
    expected = [
        ("change_made", "Create a user", {"name": "carol", "mechanism": ""}),
        ("change_made", "Give a user a new password", {"name": "carol", "mechanism": "SCRAM-SHA-256"}),
        ("change_made", "Delete a user", {"name": "carol"}),
        ("change_made", "Add an entry to the access control lists", entry),
        ("change_made", "Remove one entry of the access control lists", entry),
        ("change_rejected", "Remove one entry of the access control lists", entry),
    ]
    lines: list[dict[str, Any]] = [dict(each) for each in logged if str(each["event"]).startswith("change_")]
    for line, (event, action, facts) in zip(lines, expected, strict=True):
        line.pop("reason", None)
        assert line == {"event": event, "log_level": "info", "user": "alice", "action": action, **facts}
    assert set(web.rig.kafka.calls) == {Login("alice", "secret")}


async def test_an_entry_is_added_with_the_usual_values_of_the_fields_that_are_left_out() -> None:
    async with served(rig()) as web:
        found = await web.post(f"{API}/security/acls", json=ENTRY)
        assert found.json == {"message": "the entry is added: allow User:alice to write topic t"}
        assert (await web.post(f"{API}/security/acls", json=ENTRY)).status == 200  # it exists, as was asked for
        assert security_of(web.rig.world).bindings == [WRITE]
        cluster = {"principal": "User:*", "operation": "all", "resource_type": "cluster", "name": "ignored"}
        assert (await web.post(f"{API}/security/acls", json=cluster)).status == 200
        found = await web.post(f"{API}/security/acls", json=ENTRY | {"pattern": "prefixed", "host": "::1"})
        assert found.json["message"].endswith("allow User:alice to write topic names that begin with t from ::1")
        assert security_of(web.rig.world).bindings[1:] == [
            AclBinding(
                ResourceType.CLUSTER,
                "kafka-cluster",
                PatternType.LITERAL,
                "User:*",
                "*",
                AclOperation.ALL,
                AclPermission.ALLOW,
            ),
            msgspec.structs.replace(WRITE, pattern_type=PatternType.PREFIXED, host="::1"),
        ]


@pytest.mark.parametrize(
    "fields",
    [
        {"principal": "alice"},
        {"principal": ""},
        {"principal": "User:" + "a" * 300},
        {"operation": "any"},
        {"operation": "fly"},
        {"operation": SCRIPT},
        {"resource_type": "any"},
        {"resource_type": "broker"},
        {"name": ""},
        {"permission": "any"},
        {"pattern": "match"},
        {"pattern": "any"},
        {"host": ""},
    ],
)
async def test_a_malformed_entry_is_not_added(fields: dict[str, str]) -> None:
    async with served(rig()) as web:
        for path, more in ((API, {"json": ENTRY | fields}), ("", {"data": ENTRY | fields})):
            found = await web.post(f"{path}/security/acls", **more)  # type: ignore[arg-type]
            assert (found.status, SCRIPT in found.text) == (400, bool(path) and SCRIPT in fields.values())
        assert security_of(web.rig.world).bindings == []


VARIANTS = [
    WRITE,
    BINDING,
    *(
        msgspec.structs.replace(WRITE, **{name: value})
        for name, value in (
            ("pattern_type", PatternType.PREFIXED),
            ("host", "10.0.0.1"),
            ("principal", "User:*"),
            ("name", "*"),
            ("name", '"><b>&a=b'),
            ("principal", f"User:{SCRIPT}"),
            ("operation", AclOperation.ALL),
            ("operation", AclOperation.IDEMPOTENT_WRITE),
            ("resource_type", ResourceType.TRANSACTIONAL_ID),
            ("permission", AclPermission.DENY),
        )
    ),
]


@pytest.mark.parametrize("number", range(len(VARIANTS)))
async def test_the_link_of_an_entry_shows_it_and_its_form_removes_it_and_no_other(number: int) -> None:
    async with served(rig()) as web:
        add_bindings(web.rig.world, *VARIANTS)
        page = await web.get("/security")
        links = [unescape(each) for each in re.findall(r'<a href="(/security/acls/remove[^"]*)"', page.text)]
        assert len(links) == len(VARIANTS)
        preview = await web.get(links[number])
        assert (preview.status, SCRIPT in preview.text, "<b>" in preview.text) == (200, False, False)
        shown = (await web.get(API + links[number])).json
        fields = {
            name: unescape(value)
            for name, value in re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', preview.text)
        }
        assert fields == shown == {name: values[0] for name, values in parse_qs(urlsplit(links[number]).query).items()}
        assert len(security_of(web.rig.world).bindings) == len(VARIANTS), "a preview changes nothing"
        found = await web.post("/security/acls/remove", data=fields)
        assert (found.status, found.headers["Location"].partition("?")[0]) == (303, "/security")
        assert security_of(web.rig.world).bindings == [*VARIANTS[:number], *VARIANTS[number + 1 :]]
        assert (await web.get(links[number])).status == 404
        assert (await web.post("/security/acls/remove", data=fields)).status == 400


async def test_a_page_without_changes_shows_no_way_to_make_them() -> None:
    async with served(full_rig()) as web:
        for path in ("/security", "/security/users/bob", f"/security/acls/remove?{urlencode(ENTRY)}"):
            text = (await web.get(path)).text
            assert 'type="password"' not in text and "Remove<" not in text and "<details>" not in text


async def test_a_browser_proposes_a_new_password_and_none_that_it_knows() -> None:
    async with served(full_rig(may_change=True)) as web:
        for path in ("/security", "/security/users/bob"):
            fields = re.findall(r'<input [^>]*type="password"[^>]*>', (await web.get(path)).text)
            assert len(fields) == 2 and all('autocomplete="new-password"' in each for each in fields)
            assert not any(" value=" in each for each in fields)


async def test_the_page_of_a_user_has_the_entries_of_that_user_and_of_all_users() -> None:
    every = msgspec.structs.replace(WRITE, principal="User:*")
    async with served(rig(passwords={"alice": "secret"})) as web:
        add_user(web.rig.world, "alice", "a-password", ScramMechanism.SHA_512)
        add_user(web.rig.world, "bob")
        add_bindings(web.rig.world, WRITE, every, msgspec.structs.replace(WRITE, principal="User:bob"))
        alice = {"Authorization": aiohttp.encode_basic_auth("alice", "secret")}
        page = (await web.get(f"{API}/security/users/alice", headers=alice)).json
        assert [each["principal"] for each in page["acls"]] == ["User:alice", "User:*"]
        assert (page["user"]["mechanisms"], page["is_own"]) == (["SCRAM-SHA-512"], True)
        assert (await web.get(f"{API}/security/users/bob", headers=alice)).json["is_own"] is False


async def test_the_answer_to_a_question_has_the_form_of_the_next_one_filled_in() -> None:
    async with served(full_rig()) as web:
        asked = {"principal": SCRIPT, "operation": "alter", "resource_type": "group", "name": '"g"', "host": "::1"}
        text = (await web.get(f"/security/check?{urlencode(asked)}")).text
        assert re.findall(r"<option selected>([^<]*)</option>", text) == ["alter", "group"]
        values = dict(re.findall(r'<input name="([^"]*)" value="([^"]*)"', text))
        assert {name: unescape(value) for name, value in values.items()} == {
            name: asked[name] for name in ("principal", "name", "host")
        }
        found = (await web.get(f"{API}/security/check?{urlencode(asked)}")).json
        assert {"alter", "describe-configs"} <= set(found["words"]["operations"])


async def test_a_change_that_the_user_may_not_make_is_refused_as_such() -> None:
    async with served(rig()) as web:
        web.rig.kafka.refusal = Unavailable("cluster authorization failed")
        for path, body in (
            ("users", {"name": "a", "password": SECRET}),
            (f"users/{quote(SCRIPT, safe='')}/delete", {"confirm": SCRIPT}),
            ("acls", ENTRY),
            ("acls/remove", ENTRY),
        ):
            assert (await web.post(f"{API}/security/{path}", json=body)).status == 403
