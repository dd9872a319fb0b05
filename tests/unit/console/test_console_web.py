"""The web server has HTML and JSON of each page, answers errors, and lets no other site in."""

import io
import json
import re
import urllib.parse
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from openapi_spec_validator import validate
from yarl import URL

from penstock.contracts.commands import CommitOffsets, OffsetToCommit
from penstock.contracts.errors import Unavailable
from penstock_console.kafka.sessions import TooManyLogins
from penstock_console.web.openapi import description
from penstock_console.web.routes import ACTIONS, API, PAGES, TAIL, Action, Page
from penstock_console.web.server import BODY_BYTES_MAX
from tests.unit.console.console_rig import Rig
from tests.unit.console.console_security_fakes import security_of
from tests.unit.console.console_served import SCRIPT, Answer, Served, full_rig, served

PASSWORDS = {"alice": "secret"}
ALICE = {"Authorization": aiohttp.encode_basic_auth("alice", "secret")}
STRANGER = {"Authorization": aiohttp.encode_basic_auth("alice", "wrong")}
CHECK = "?principal=User:alice&operation=read&resource_type=topic&name=t"
REMOVAL = "?principal=User:alice&operation=read&resource_type=topic&name=t&permission=deny"
QUERIES = {"/security/check": CHECK, "/security/acls/remove": REMOVAL, "/groups/{name}/reset": "?to=earliest"}
ENTRY = {
    "principal": "User:alice",
    "operation": "read",
    "resource_type": "topic",
    "name": "t",
    "permission": "deny",
    "pattern": "literal",
    "host": "*",
}
NEW_PASSWORD = "correct-horse"
BODIES: dict[str, dict[str, Any]] = {
    "/topics": {"name": "new", "partitions": 2, "configs": ""},
    "/topics/{name}/configs": {"name": "retention.ms", "value": "1000"},
    "/topics/{name}/partitions": {"count": 5},
    "/topics/{name}/delete": {"confirm": "t"},
    "/topics/{name}/messages": {"partition": 1, "key": "k", "value": "v", "headers": "a=b", "is_tombstone": False},
    "/groups/{name}/reset": {"to": "earliest", "topic": "t"},
    "/groups/{name}/delete": {"confirm": "g"},
    "/transactions/{name}/abort": {},
    "/security/users": {"name": "carol", "password": NEW_PASSWORD, "again": NEW_PASSWORD, "mechanism": ""},
    "/security/users/{name}/password": {"password": NEW_PASSWORD, "mechanism": "SCRAM-SHA-512"},
    "/security/users/{name}/delete": {"confirm": "bob"},
    "/security/acls": {**ENTRY, "name": "u"},
    "/security/acls/remove": ENTRY,
}
NAMES = {"topics": "t", "groups": "g", "transactions": "tx", "security": "bob"}


def path_of(route: Page | Action) -> str:
    name = NAMES.get(route.path.split("/")[1], "")
    return route.path.format(name=name, number=0) + (QUERIES.get(route.path, "") if isinstance(route, Page) else "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_each_page_has_html_and_json_of_its_type(page: Page) -> None:
    for may_change in (True, False):
        async with served(full_rig(may_change=may_change)) as web:
            found = await web.get(path_of(page))
            assert (found.status, found.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            assert found.text.startswith("<!doctype html>") and found.text.rstrip().endswith("</html>")
            assert SCRIPT not in found.text
            assert found.text.count('<div class="note"') == 1, "the script fills it"
            assert ('<form method="post"' in found.text) <= may_change
            found = await web.get(API + (page.api_path or path_of(page)))
            assert (found.status, found.headers["Content-Type"]) == (200, "application/json")
            msgspec.convert(found.json, page.result, strict=False)  # names of JSON are texts


@pytest.mark.parametrize("page", [page for page in PAGES if "{" not in page.path and page.path not in QUERIES])
async def test_each_page_of_an_empty_cluster_has_html(page: Page) -> None:
    async with served() as web:
        assert (await web.get(page.path)).status == 200


@pytest.mark.parametrize("name", ["a.b_c-d", "%", "..", "a/b", "a?b=c#d", '"><b>', "\u00e9\U0001f600", "{name}", "+"])
async def test_a_name_in_a_path_is_the_name_that_was_quoted(name: str) -> None:
    """A group may have any name."""
    rig = Rig(may_change=True)
    rig.world.topic()
    rig.world.do(CommitOffsets(0, name, -1, "", None, [OffsetToCommit("t", 0, 0, -1, "")]))
    async with served(rig) as web:
        text = (await web.get("/groups")).text
        (link,) = re.findall(r'<th scope="row" class="name"><a href="(/groups/[^"]*)"', text)
        page = await web.get(link)
        assert (page.status, "<b>" in page.text) == (200, False)
        assert (await web.get(API + link)).json["row"]["name"] == name
        found = await web.post(f"{link}/delete", data={"confirm": name})
        assert (found.status, found.headers["Location"].partition("?")[0]) == (303, "/groups")
        assert name not in rig.world.state.groups


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/topics/gone", 404),
        ("/groups/gone", 404),
        ("/transactions/gone", 404),
        ("/topics/t/partitions/9", 404),
        ("/topics/t/partitions/x", 404),
        ("/topics/t/partitions/\u0663", 404),
        (f"/topics/t/partitions/{'9' * 5_000}", 404),
        ("/topics?page=x", 400),
        ("/topics?size=1.5", 400),
        ("/topics/t/messages?limit=many", 400),
        ("/topics/t/messages?start=tomorrow", 400),
        ("/topics/t/messages?filter=%5B", 400),
        ("/topics/gone/messages", 400),
        ("/topics/t/tail?partition=x", 400),
        ("/topics/gone/tail", 400),
        ("/security/check", 400),
        ("/security/check?principal=a&operation=x&resource_type=topic&name=t", 400),
        ("/groups/g/reset?to=nowhere", 400),
    ],
)
async def test_an_error_is_a_page_or_json_with_its_status(path: str, status: int) -> None:
    path = urllib.parse.quote(path, safe="/?=&%")
    async with served(full_rig()) as web:
        page, answer = await web.get(path), await web.get(API + path)
        assert (page.status, answer.status) == (status, status)
        assert "<h1>" in page.text and 'class="problem error"' in page.text
        assert answer.json.keys() == {"error"} and answer.json["error"]


@pytest.mark.parametrize("sort", ["__class__", "-__init__", "gone", "--name", "%3Cscript%3E"])
async def test_a_list_sorted_by_no_column_has_its_usual_order(sort: str) -> None:
    async with served(full_rig()) as web:
        assert (await web.get(f"/topics?sort={sort}")).status == 200
        assert (await web.get(f"{API}/topics?sort={sort}")).json["list"]["sort"] == "name"


@pytest.mark.parametrize("path", ["/", "/cluster"])
async def test_a_page_without_problems_has_the_place_for_them(path: str) -> None:
    async with served(full_rig()) as web:
        assert re.search(r'<div class="problems">\s*</div>', (await web.get(path)).text), "the script fills it"


async def test_a_hanging_transaction_is_marked_in_the_list_and_on_its_page() -> None:
    async with served(full_rig()) as web:
        (row,) = (await web.get(f"{API}/transactions")).json["list"]["rows"]
        web.rig.clock.now_s += 2 * row["timeout_seconds"]
        for path in ("/transactions", "/transactions/tx"):
            assert ">hanging</span>" not in (await web.get(path)).text
        web.rig.clock.now_s += 0.001
        text = (await web.get("/transactions")).text
        assert '<tr class="hanging">' in text and '<span class="state bad">hanging</span>' in text
        assert re.search(r"<h1>tx\s*<span class=\"state bad\">hanging</span>", (await web.get("/transactions/tx")).text)
        answer = (await web.get(f"{API}/transactions")).json
        assert (answer["open"], answer["hanging"], answer["list"]["rows"][0]["is_hanging"]) == (1, 1, True)


async def test_without_sequencers_or_gateways_pages_say_so() -> None:
    async with served(full_rig()) as web:
        web.rig.kafka.is_available = False
        found = await web.get("/topics/t/messages")
        assert (found.status, "no gateway accepts a connection" in found.text) == (503, True)
        web.rig.sequencers.is_available = False
        assert (await web.get(f"{API}/topics")).json == {"error": "no sequencer answers"}
        assert (await web.get("/topics")).status == 503
        found = await web.get("/")
        assert (found.status, "no sequencer answers" in found.text) == (200, True)


async def test_an_error_of_the_console_shows_nothing_of_its_cause() -> None:
    async with served() as web:
        web.rig.sequencers.before = lambda name: 1 / 0
        found = await web.get(f"{API}/topics")
        assert (found.status, found.json) == (500, {"error": "the console failed; its log has the reason"})
        assert "division" not in (await web.get("/topics")).text


async def test_a_right_that_the_user_lacks_is_not_an_outage() -> None:
    async with served() as web:
        web.rig.kafka.refusal = Unavailable("cluster authorization failed")
        assert (await web.get(f"/security/check{CHECK}")).status == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:99", 200),
        ("127.0.0.1:80", 200),
        ("10.1.2.3", 200),
        ("[::1]:8081", 200),
        ("console.example", 200),
        ("Console.Example:443", 200),
        ("evil.example", 403),
        ("console.example.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_a_console_without_logins_answers_under_its_own_names_only(host: str, status: int) -> None:
    """A page of another site could reach it under a name of that site (DNS rebinding)."""
    async with served(host_names=("console.example",)) as web:
        for path in ("/", f"{API}/topics", "/static/console.js"):
            assert (await web.get(path, headers={"Host": host})).status == status, path


async def test_a_console_with_logins_answers_under_any_name() -> None:
    async with served(Rig(passwords=PASSWORDS)) as web:
        assert (await web.get(f"{API}/topics", headers={"Host": "any.example", **ALICE})).status == 200


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://{host}"}, True),
        ({"Origin": "https://{host}"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://{host}.evil.example"}, False),
        ({"Origin": "http://[::1"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://{host}", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
async def test_a_form_of_another_site_changes_nothing(headers: dict[str, str], is_let_in: bool) -> None:
    async with served(full_rig(may_change=True)) as web:
        given = {name: value.format(host=web.address) for name, value in headers.items()}
        for path, body in (("/topics", {"data": {"name": "a"}}), (f"{API}/topics", {"json": {"name": "b"}})):
            found = await web.post(path, headers=given, **body)  # type: ignore[arg-type]
            assert (found.status < 400) == is_let_in
            assert is_let_in or found.status == 403
        assert ({"a", "b"} <= web.rig.world.state.topics.keys()) == is_let_in


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
async def test_no_change_is_made_for_another_site(action: Action) -> None:
    async with served(full_rig(may_change=True)) as web:
        sequence = web.rig.world.state.sequence
        for path, body in ((path_of(action), {"data": b""}), (API + path_of(action), {"json": BODIES[action.path]})):
            found = await web.post(path, headers={"Sec-Fetch-Site": "cross-site"}, **body)
            assert found.status == 403
        assert (web.rig.world.state.sequence, web.rig.kafka.calls) == (sequence, [])


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
async def test_a_console_that_only_shows_refuses_each_change(action: Action) -> None:
    async with served(full_rig()) as web:
        sequence = web.rig.world.state.sequence
        form = {name: str(value) for name, value in BODIES[action.path].items() if value is not False}
        found = await web.post(path_of(action), data=form)
        answer = await web.post(API + path_of(action), json=BODIES[action.path])
        assert (found.status, answer.status) == (403, 403)
        assert "this console only shows" in answer.json["error"]
        assert (web.rig.world.state.sequence, web.rig.kafka.calls) == (sequence, [])


DONE = [action for action in ACTIONS if action.path != "/transactions/{name}/abort"]


@pytest.mark.parametrize("action", DONE, ids=lambda action: action.path)
async def test_a_form_and_a_json_body_make_the_same_change(action: Action) -> None:
    states = []
    for is_form in (True, False):
        async with served(full_rig(may_change=True)) as web:
            body, path = BODIES[action.path], path_of(action)
            if is_form:
                given = {name: str(value) for name, value in body.items() if value is not False}
                found = await web.post(path, data=given)
                assert found.status == 303
                assert found.headers["Location"].startswith(action.back.format(name=path.split("/")[-2]) + "?done=")
                assert (await web.get(found.headers["Location"])).status in (200, 404)
            else:
                found = await web.post(API + path, json=body)
                assert (found.status, found.headers["Content-Type"]) == (200, "application/json")
            states.append(state_of(web.rig))
    assert states[0] == states[1]
    assert states[0] != state_of(full_rig())


def state_of(rig: Rig) -> Any:
    """Everything that a change of the console may change, without the salts of passwords."""
    state, found = rig.world.state, security_of(rig.world)
    committed = {name: group.offsets for name, group in state.groups.items()}
    topics = {name: (len(each.partitions), each.configs) for name, each in state.topics.items()}
    users = [(each.name, [(one.mechanism, one.iterations) for one in each.verifiers]) for each in found.users]
    return topics, str(committed), rig.kafka.session.records, users, found.bindings


async def test_a_change_that_was_made_is_reported_as_made_although_the_survey_after_it_fails() -> None:
    async with served(full_rig(may_change=True)) as web:
        web.rig.sequencers.is_available = False
        assert (await web.post(f"{API}/topics", json={"name": "new"})).json == {"message": "topic new is created"}


async def test_a_change_is_seen_by_the_page_that_follows() -> None:
    async with served(full_rig(may_change=True)) as web:
        found = await web.post("/topics", data={"name": "new", "partitions": "", "configs": " retention.ms=1000 \n\n"})
        page = await web.get(found.headers["Location"])
        assert "topic new is created" in page.text and ">new</a>" in page.text
        assert web.rig.world.state.topics["new"].configs == {"retention.ms": "1000"}


async def test_a_tombstone_is_a_record_without_a_value() -> None:
    async with served(full_rig(may_change=True)) as web:
        form = {"partition": "1", "key": "k", "value": "ignored", "is_tombstone": "on", "headers": ""}
        found = await web.post("/topics/t/messages", data=form)
        assert found.headers["Location"].startswith("/topics/t/messages?done=written")
        assert (web.rig.kafka.session.records[-1].key, web.rig.kafka.session.records[-1].value) == (b"k", None)


@pytest.mark.parametrize("confirm", ["", "T", "t ", "u"])
async def test_nothing_is_deleted_without_its_name(confirm: str) -> None:
    async with served(full_rig(may_change=True)) as web:
        found = await web.post(f"{API}/topics/t/delete", json={"confirm": confirm})
        assert (found.status, found.json) == (400, {"error": "to confirm, type the name 't'"})
        assert (await web.post("/topics/t/delete", data={"confirm": confirm})).status == 400
        assert "t" in web.rig.world.state.topics


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"name": 1}', 400),
        (b'{"name": "a", "partitions": "many"}', 400),
        (b'{"name": "\xff"}', 400),
        (b'{"name": "a b"}', 400),
        (b'{"name": "a", "configs": "retention.ms"}', 400),
        (b'{"name": "a", "configs": "no.such=1"}', 400),
        (b"[" * 100_000, 400),
        (b'{"name": "' + b"a" * BODY_BYTES_MAX + b'"}', 413),
    ],
)
async def test_a_malformed_json_body_changes_nothing(body: bytes, status: int) -> None:
    async with served(full_rig(may_change=True)) as web:
        found = await web.post(f"{API}/topics", data=io.BytesIO(body))
        assert (found.status, list(found.json)) == (status, ["error"])
        assert web.rig.world.state.topics.keys() == {"t"}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b""),
        ("application/x-www-form-urlencoded", b"name=%ff%fe&partitions=x"),
        ("application/x-www-form-urlencoded; charset=no-such", b"name=a"),
        ("application/x-www-form-urlencoded; charset=utf-16", b"name"),
        ("multipart/form-data", b"name"),
        ("multipart/form-data; boundary=x", b"--x\r\nno header"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\na'),
        ("multipart/mixed; boundary=x", b"--x--"),
        ("text/plain", b"name=a"),
    ],
)
async def test_a_malformed_form_changes_nothing(content_type: str, body: bytes) -> None:
    async with served(full_rig(may_change=True)) as web:
        found = await web.post("/topics", data=body, headers={"Content-Type": content_type})
        assert found.status == 400, found.text
        assert web.rig.world.state.topics.keys() == {"t"}


FIELDS = st.sampled_from(["name", "count", "confirm", "to", "partition", "value"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
)
BODY_BYTES = st.binary(max_size=50) | VALUES.map(json.dumps).map(str.encode)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(DONE), BODY_BYTES), max_size=10))
async def test_no_body_is_an_error_of_the_console(bodies: list[tuple[Action, bytes]]) -> None:
    async with served(full_rig(may_change=True)) as web:
        for action, body in bodies:
            for path in (path_of(action), API + path_of(action)):
                assert (await web.post(path, data=body)).status in (200, 303, 400, 404)


async def test_a_wrong_method_names_the_right_ones() -> None:
    async with served() as web:
        found = await web.send("PUT", f"{API}/topics")
        assert (found.status, set(found.headers["Allow"].split(","))) == (405, {"GET", "HEAD", "POST"})
        assert (await web.send("DELETE", "/")).status == 405
        assert (await web.send("HEAD", "/topics")).status == 200


@pytest.mark.parametrize("name", ["console.js", "console.css", "icon.svg"])
async def test_static_files_need_no_login(name: str) -> None:
    async with served(Rig(passwords=PASSWORDS)) as web:
        assert (await web.get(f"/static/{name}")).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static//etc/passwd",
        "/static/",
        "/static/gone",
    ],
)
async def test_no_other_file_is_served(path: str) -> None:
    async with served() as web:
        assert (await web.get(path)).status in (403, 404)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_without_a_login_each_page_leads_to_it_and_the_api_asks_for_it(page: Page) -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        found = await web.get(path_of(page))
        assert found.status == 303
        location = URL(found.headers["Location"])
        assert (location.path, location.query["next"]) == ("/login", str(URL(path_of(page))))
        answer = await web.get(API + (page.api_path or path_of(page)))
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="penstock"')
        assert answer.json.keys() == {"error"}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.path)
async def test_without_a_login_nothing_is_changed(action: Action) -> None:
    async with served(full_rig(passwords=PASSWORDS, may_change=True)) as web:
        sequence = web.rig.world.state.sequence
        assert (await web.post(path_of(action), data=BODIES[action.path])).status == 303
        assert (await web.post(API + path_of(action), json=BODIES[action.path])).status == 401
        assert web.rig.world.state.sequence == sequence


@pytest.mark.parametrize(
    "path", [f"{API}/openapi.json", TAIL.format(name="t"), API + TAIL.format(name="t"), "/nothing"]
)
async def test_other_paths_need_a_login_too(path: str) -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        assert (await web.get(path)).status in (303, 401)


async def log_in(web: Served, **fields: str) -> Answer:
    return await web.post("/login", data={"username": "alice", "password": "secret", **fields})


async def test_a_user_logs_in_sees_the_page_that_was_asked_for_and_logs_out() -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        form = await web.get("/login?next=/topics%3Fq%3Da%26page%3D2")
        assert (form.status, 'value="/topics?q=a&amp;page=2"' in form.text) == (200, True)
        found = await log_in(web, next="/topics?q=a&page=2")
        assert (found.status, found.headers["Location"]) == (303, "/topics?q=a&page=2")
        cookie = found.cookies["penstock_session"]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "/", "")
        given = {"Cookie": f"penstock_session={cookie.value}"}
        page = await web.get("/topics", headers=given)
        assert (page.status, ">alice<" in page.text) == (200, True)
        assert (await web.get(f"{API}/topics", headers=given)).status == 200
        left = await web.post("/logout", headers=given)
        assert (left.status, left.headers["Location"], left.cookies["penstock_session"].value) == (303, "/login", "")
        assert (await web.get("/topics", headers=given)).status == 303


async def test_a_session_ends_after_its_time() -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        given = {"Cookie": f"penstock_session={(await log_in(web)).cookies['penstock_session'].value}"}
        assert (await web.get("/topics", headers=given)).status == 200
        web.rig.clock.now_s += 100
        assert (await web.get("/topics", headers=given)).status == 303


async def test_behind_tls_the_cookie_is_sent_over_tls_only() -> None:
    async with served(full_rig(passwords=PASSWORDS), has_secure_cookies=True) as web:
        assert (await log_in(web)).cookies["penstock_session"]["secure"] is True


@pytest.mark.parametrize("fields", [{"password": "wrong"}, {"username": ""}, {"username": SCRIPT}])
async def test_a_wrong_login_is_refused_with_its_reason(fields: dict[str, str]) -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        found = await log_in(web, **fields)
        assert (found.status, "refuses the login" in found.text, SCRIPT in found.text) == (401, True, False)
        assert "penstock_session" not in found.cookies
        assert "secret" not in found.text


async def test_a_login_from_another_site_is_refused() -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        found = await web.post(
            "/login", data={"username": "alice", "password": "secret"}, headers={"Sec-Fetch-Site": "cross-site"}
        )
        assert (found.status, "penstock_session" in found.cookies) == (403, False)


async def test_a_script_logs_in_with_each_request_and_only_at_the_api() -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        assert (await web.get(f"{API}/topics", headers=ALICE)).status == 200
        assert (await web.get(f"{API}/topics", headers=STRANGER)).status == 401
        assert (await web.get("/topics", headers=ALICE)).status == 303
        web.rig.kafka.session.admin.operations = []
        web.rig.clock.now_s += 100
        assert (await web.get(f"{API}/topics", headers=ALICE)).status == 403


async def test_a_script_whose_login_cannot_be_checked_now_is_not_refused() -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        web.rig.kafka.refusal = TooManyLogins("16 logins are being checked: try again in a few seconds")
        found = await web.get(f"{API}/topics", headers=ALICE)
        assert (found.status, found.json["error"]) == (503, str(web.rig.kafka.refusal))


TARGETS = st.text(st.sampled_from("/\\\t\n\r .:@ahtpsevil?#%"), max_size=12)


@settings(max_examples=40)
@given(st.lists(TARGETS.map(lambda text: f"/{text}") | TARGETS, max_size=20))
async def test_no_login_leads_to_another_site(targets: list[str]) -> None:
    async with served(full_rig(passwords=PASSWORDS)) as web:
        own = f"http://{web.address}/login"
        for target in ("//evil.example", "/\\evil.example", "/\t/evil.example", "http://evil.example", *targets):
            location = (await log_in(web, next=target)).headers["Location"]
            # Browsers read a backslash as a slash, and skip control characters.
            read = re.sub(r"[\t\r\n]", "", location).replace("\\", "/").strip()
            assert urllib.parse.urlsplit(urllib.parse.urljoin(own, read)).netloc == web.address, (target, location)


async def test_the_description_of_the_api_is_valid_and_names_every_route() -> None:
    async with served(full_rig()) as web:
        found = (await web.get(f"{API}/openapi.json")).json
        validate(found)
        assert found == json.loads(json.dumps(description("0.1.0")))
        described = {(path, method) for path, methods in found["paths"].items() for method in methods}
        pages = {(API + (page.api_path or page.path), "get") for page in PAGES}
        assert described == pages | {(API + action.path, "post") for action in ACTIONS} | {(API + TAIL, "get")}
        for path, methods in found["paths"].items():
            for each in methods.values():
                names = [one["name"] for one in each["parameters"] if one["in"] == "path"]
                assert names == re.findall(r"\{(\w+)\}", path)
                assert each["summary"] and {"200", "400", "401", "403", "404", "503"} <= each["responses"].keys()
        messages = found["paths"][f"{API}/topics/{{name}}/messages"]["get"]["parameters"]
        assert not [each for each in messages if each["in"] == "query" and each["required"]]


@pytest.mark.parametrize("prefix", ["", API])
async def test_new_records_come_as_events_until_the_time_is_over(prefix: str) -> None:
    async with served(full_rig()) as web:
        web.rig.kafka.session.on_poll = lambda: setattr(web.rig.clock, "now_s", web.rig.clock.now_s + 400)
        found = await web.get(f"{prefix}/topics/t/tail?partition=0")
        assert found.headers["Content-Type"] == "text/event-stream"
        events = found.text.strip().split("\n\n")
        assert events[-1] == "event: end\ndata: {}"
        assert [json.loads(each.removeprefix("data: ")) for each in events[:-1]] == [[], []]


async def test_a_tail_whose_gateway_is_lost_ends_without_its_last_event() -> None:
    """A second answer in the middle of the first would be a malformed one."""
    async with served(full_rig()) as web:
        polls = []

        def lose() -> None:
            polls.append(1)
            if len(polls) > 1:
                raise Unavailable("the gateway is lost")

        web.rig.kafka.session.on_poll = lose
        found = await web.get("/topics/t/tail")
        assert (found.status, found.text) == (200, "data: []\n\n")
