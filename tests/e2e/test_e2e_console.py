"""The console in a real browser, from a user's view: reading pages, changing topics and groups, keys only, errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.testkit.browser.audit import findings
from tests.testkit.browser.devtools import DevTools, running_chromium
from tests.testkit.browser.page import Page, opened_page
from tests.testkit.clusters.cluster import Cluster, running, wait_until
from tests.testkit.clusters.console import running_console, started_console
from tests.testkit.loads.shop import LONG_NAME, OPEN_ID, SLASH_GROUP, UNICODE_GROUP, Shop

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0
USER, PASSWORD = "carol", "correct-horse"
MANY_TOPICS = [f"tenant-{number:03}.events" for number in range(60)]
PATHS = {
    "overview": "/",
    "topics": "/topics",
    "no topic found": "/topics?q=zzz",
    "topic": "/topics/orders",
    "topic with a long name": f"/topics/{LONG_NAME}",
    "messages": "/topics/orders/messages",
    "messages that are hard to show": "/topics/customers/messages",
    "messages with a long key": f"/topics/{LONG_NAME}/messages",
    "no messages": "/topics/nothing-yet/messages",
    "partition": "/topics/orders/partitions/3",
    "deleted topics": "/deleted-topics",
    "groups": "/groups",
    "group": "/groups/billing",
    "group with letters of two alphabets": f"/groups/{quote(UNICODE_GROUP)}",
    "group with a slash": f"/groups/{quote(SLASH_GROUP, safe='')}",
    "reset": "/groups/fraud-detection/reset?to=earliest",
    "transactions": "/transactions",
    "transaction": f"/transactions/{OPEN_ID}",
    "clients": "/clients",
    "storage": "/storage",
    "cluster": "/cluster",
    "security": "/security",
    "access": "/security/check?principal=User:alice&operation=read&resource_type=topic&name=orders",
}
WINDOWS = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "narrow": {"width": 360, "height": 740},
    "4k": {"width": 3840, "height": 2160},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("console") / "data", "--janitors", "1", "--console-changes") as started:
        yield started


@pytest.fixture(scope="module")
def shop(cluster: Cluster) -> Iterator[Shop]:
    shop = Shop(cluster.kafka)
    shop.fill()
    shop.add_odd_records()
    shop.subscribe("all-clients", "*", 1_000)
    with shop.members("billing", "orders", 2), shop.transactions():
        yield shop


@pytest.fixture(scope="module")
def origin(cluster: Cluster, shop: Shop) -> str:
    return started_console(cluster)


@pytest.fixture(scope="module")
def devtools() -> Iterator[DevTools]:
    with running_chromium() as started:
        yield started


@pytest.fixture
def page(devtools: DevTools, origin: str) -> Iterator[Page]:
    """A page of a console with changes. A test reads the errors that it expects; others make it fail."""
    with opened_page(devtools, origin) as opened:
        yield opened
        assert opened.errors() == []


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_each_page_loads_without_an_error_and_can_be_read_in_all_windows(page: Page, path: str) -> None:
    page.open(path)
    assert page.heading
    _check_all_windows(page)


def _check_all_windows(page: Page) -> None:
    for window, settings in WINDOWS.items():
        page.show(**settings)  # type: ignore[arg-type]
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert (window, findings(page)) == (window, [])


def test_topics_are_searched_sorted_and_paged(page: Page, shop: Shop) -> None:
    shop.add_topics(MANY_TOPICS)
    page.open("/topics")
    wait_until(lambda: MANY_TOPICS[0] in _names(page, "/topics"), TIMEOUT_S, "the new topics in the list")
    first = page.column()
    assert len(first) == 50
    page.follow("Next")
    assert "page 2 of 2" in page.text
    assert not set(first) & set(page.column())
    page.follow("Previous")
    assert page.column() == first

    page.fill("Search", "TENANT-01")
    page.follow("Search")
    assert page.column() == MANY_TOPICS[10:20]
    assert f"10 of {len(shop.topics())} topics" in page.text
    page.follow("Name")  # it was ascending
    assert page.column() == MANY_TOPICS[19:9:-1]

    page.open("/topics")
    page.follow("Records")
    counts = [int(each.replace(",", "")) for each in page.column(3)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 0
    page.follow("orders")
    assert page.heading == "orders"


def _names(page: Page, path: str) -> list[str]:
    page.open(path)
    return page.column()


def test_a_topic_is_created_configured_extended_and_deleted(page: Page, shop: Shop) -> None:
    page.open("/topics")
    page.click("Create a topic")
    page.fill("Name", "invoices")
    page.fill("Partitions", "2")
    page.fill("Configurations", "retention.ms=3600000\ncleanup.policy=delete")
    page.follow("Create")
    assert "topic invoices is created" in page.text
    assert "done=" not in page.path  # a reload does not show it again
    page.open("/topics/invoices")
    assert "1 h" in page.text

    page.fill("retention.ms", "7200000")
    page.press("Enter")
    page.wait_for_text("retention.ms of invoices is 7200000")
    changed = page.evaluate("[...document.querySelectorAll('tr.changed th')].map(each => each.innerText)")
    assert sorted(changed) == ["cleanup.policy", "retention.ms"]
    page.fill("retention.ms", "")
    page.press("Enter")
    page.wait_for_text("retention.ms of invoices is the default")

    page.click("Add partitions")
    page.fill("New number of partitions", "5")
    page.follow("Add")
    assert "topic invoices has 5 partitions" in page.text
    assert page.evaluate("document.querySelector('dd').innerText") == "5"

    page.click("Delete the topic")
    page.fill("Type invoices to confirm", "invoice")
    page.follow("Delete")
    assert "to confirm, type the name 'invoices'" in page.text
    assert "invoices" in shop.topics()
    assert len(page.errors()) == 1  # the status 400
    page.open("/topics/invoices")
    page.click("Delete the topic")
    page.fill("Type invoices to confirm", "invoices")
    page.follow("Delete")
    assert "topic invoices is deleted" in page.text
    assert "invoices" not in shop.topics()


def test_records_are_read_from_a_position_through_a_filter_and_expanded(page: Page) -> None:
    page.open("/topics/orders/messages")
    page.fill("Partition", "4")
    page.fill("From", "earliest")
    page.fill("Records", "5")
    page.follow("Read")
    assert page.column() == [f"4@{offset}" for offset in range(5)]
    page.follow("Next records")
    assert page.column() == [f"4@{offset}" for offset in range(5, 10)]

    page.open("/topics/orders/messages?start=earliest")
    page.fill("Filter", "value.city == 'Oslo' && value.price > `800`")
    page.follow("Read")
    summaries = page.evaluate("[...document.querySelectorAll('td summary')].map(each => each.innerText)")
    assert summaries
    assert all('"city": "Oslo"' in each and '"price": 8' in each for each in summaries)
    page.click(summaries[0])
    shown = json.loads(page.evaluate("document.querySelector('details[open] pre').innerText"))
    assert shown["city"] == "Oslo"
    assert set(shown) == {"order", "price", "city", "items"}


def test_the_bytes_of_a_record_are_shown_and_never_run(page: Page) -> None:
    page.open("/topics/customers/messages")
    cells = dict(zip(page.column(3), page.column(4), strict=True))
    assert cells["customer-<b>9</b>"] == "<script>alert('no')</script> & \"quotes\""
    assert cells["customer-17"] == "null"
    assert cells["ff0001"].startswith("80818283")
    assert cells["ff0001"].endswith("hex")
    assert page.evaluate("document.querySelector('#messages b, #messages script')") is None


def test_a_record_is_written_and_a_live_tail_shows_new_ones(page: Page, shop: Shop) -> None:
    page.open("/topics/audit-log/messages")
    page.click("Write a record")
    page.fill("Key", "k-1")
    page.fill("Value", '{"action": "login"}')
    page.fill("Headers", "source=console\nactor=test")
    page.follow("Write")
    assert "written at 0@" in page.text
    assert page.column(3)[-1] == "k-1"
    assert "source=console" in page.column(4)[-1]

    page.fill("Filter", "starts_with(key, 'customer-')")
    page.click("Live")
    page.wait_for_text("live: waiting for new records")

    def is_shown() -> bool:  # the tail starts at the end, some time after the click
        shop.write("audit-log", 3)
        return len(page.column()) >= 3

    wait_until(is_shown, TIMEOUT_S, "new records in the tail")
    places = [int(each.removeprefix("0@")) for each in page.column()]
    assert places == sorted(places, reverse=True)
    assert all(each.startswith("customer-") for each in page.column(3))
    assert page.evaluate("document.querySelector('#tail-state').getAttribute('role')") == "status"
    page.click("Stop")
    page.wait_for_text("stopped")
    assert page.evaluate("document.querySelectorAll('#messages th[scope=row]').length") >= 3


def test_a_group_moves_after_a_preview_and_is_deleted(page: Page, shop: Shop) -> None:
    before = shop.committed("fraud-detection")
    page.open("/groups/fraud-detection")
    page.click("Move the group to another position")
    page.fill("Position", "earliest")
    page.fill("Topic or TOPIC/PARTITION", "payments")
    page.follow("Preview")
    assert page.heading == "Move fraud-detection to earliest"
    assert dict(enumerate(page.column(3))) == {number: str(before["payments", number]) for number in range(6)}
    assert set(page.column(4)) == {"0"}
    assert shop.committed("fraud-detection") == before
    page.follow("Set these offsets")
    assert "6 offsets of fraud-detection are set" in page.text
    assert set(shop.committed("fraud-detection").values()) == {0}
    assert set(page.column(3)) == {"0"}

    page.click("Delete the group")
    page.fill("Type fraud-detection to confirm", "fraud-detection")
    page.follow("Delete")
    assert "group fraud-detection is deleted" in page.text
    assert "fraud-detection" not in shop.groups()


def test_a_group_with_members_is_not_moved(page: Page, shop: Shop) -> None:
    before = shop.committed("billing")
    page.open("/groups/billing/reset?to=earliest")
    page.follow("Set these offsets")
    assert page.heading == "This cannot be done"
    assert shop.committed("billing") == before
    assert len(page.errors()) == 1


def test_an_open_transaction_is_found_and_aborted(page: Page) -> None:
    page.open("/transactions")
    assert page.column()[0] == OPEN_ID
    assert page.column(2)[0] == "Ongoing"
    page.follow(OPEN_ID)
    assert "payments/0" in page.text
    page.follow("Abort the transaction")
    assert f"the transaction of {OPEN_ID} is aborted" in page.text
    states = dict(zip(page.column(), page.column(2), strict=True))
    assert states[OPEN_ID] != "Ongoing"


def test_a_user_is_created_gets_and_loses_a_right_and_is_deleted(page: Page) -> None:
    page.open("/security")
    page.click("Create a user")
    page.fill("User name", USER)
    page.fill("Password", PASSWORD)
    page.fill("The same password again", PASSWORD)
    page.follow("Create the user")
    assert f"user {USER} is created" in page.text
    page.follow(USER)
    page.click("Add an entry")
    page.fill("Resource name", "orders")  # the other fields have the user, and the first words
    page.follow("Add the entry")
    assert f"the entry is added: allow User:{USER} to read topic orders" in page.text

    page.follow(USER)
    page.fill("Name", "orders")
    page.follow("Check")
    assert page.heading == f"May User:{USER} read topic orders? yes"
    asked = "[...document.querySelectorAll('main form input')].map(each => each.value)"
    assert page.evaluate(asked) == [f"User:{USER}", "orders", "127.0.0.1"]
    page.follow(f"Remove: User:{USER} allow read topic orders")
    assert page.heading == "Remove an entry"
    _check_all_windows(page)
    page.follow("Remove this entry")
    assert f"the entry is removed: allow User:{USER} to read topic orders" in page.text

    page.follow(USER)
    _check_all_windows(page)  # this opens all forms
    page.fill(f"Type {USER} to confirm", USER)
    page.follow("Delete")
    assert f"user {USER} is deleted" in page.text
    assert "There are no users with passwords." in page.text


@pytest.mark.parametrize(
    ("path", "heading", "text"),
    [
        ("/topics/none", "Not found", "there is no topic 'none'"),
        ("/nowhere", "Not found", "Not Found"),
        ("/topics/orders/partitions/99", "Not found", "has no partition 99"),
        ("/groups/none", "Not found", "there is no group 'none'"),
        ("/topics/orders/messages?filter=value.%5B", "This cannot be done", "Incomplete expression"),
        ("/topics/orders/messages?start=yesterday", "This cannot be done", "yesterday"),
        ("/topics/orders/messages?limit=many", "This cannot be done", "limit"),
        ("/groups/fraud-detection/reset?to=nonsense", "This cannot be done", "nonsense"),
    ],
)
def test_an_error_is_a_page_with_the_reason_and_a_way_out(page: Page, path: str, heading: str, text: str) -> None:
    page.open(path)
    assert page.heading == heading
    assert text in page.text
    assert findings(page) == []
    assert len(page.errors()) == 1  # the status of the page itself
    page.follow("Overview")
    assert page.path == "/"


def test_a_console_without_changes_offers_none_and_refuses_them(
    cluster: Cluster, shop: Shop, devtools: DevTools
) -> None:
    with running_console(cluster) as origin, opened_page(devtools, origin) as page:
        for path in ("/topics", "/topics/orders", "/topics/orders/messages", "/groups/billing", "/security"):
            page.open(path)
            assert page.evaluate("document.querySelectorAll('form[method=post]').length") == 0
            assert "read-only" in page.text
        assert page.errors() == []
        body = "new URLSearchParams({name: 'refused'})"
        status = page.evaluate(f"fetch('/topics', {{method: 'POST', body: {body}}}).then(answer => answer.status)")
        assert status == 403
        assert "refused" not in shop.topics()


def test_everything_is_reached_with_keys(page: Page, shop: Shop) -> None:
    page.open("/topics")
    page.press("Tab")
    assert page.focused == "Skip to the content"
    page.press("Enter")
    page.press("Tab")
    assert page.focused == "Search"

    page.focus("Create a topic")
    page.press("Enter")
    page.press("Tab")
    assert page.focused == "Name"
    page.call("Input.insertText", text="typed-with-keys")
    for expected in ("Partitions", "Configurations", "Create"):
        page.press("Tab")
        assert page.focused == expected
    page.press("Tab", shift=True)
    assert page.focused == "Configurations"
    page.press("Tab")
    page.press("Space")
    page.wait_for_text("topic typed-with-keys is created")
    assert "typed-with-keys" in shop.topics()


def test_a_refresh_keeps_the_focus_the_typed_text_and_the_note(page: Page, shop: Shop) -> None:
    page.open("/topics?q=orders&done=it%20is%20done")
    page.click("Create a topic")
    page.fill("Name", "half-typed")
    shop.add_topics(["a-first-of-orders"])
    page.wait_for_text("a-first-of-orders")
    assert page.focused == "Name"
    assert page.evaluate("document.activeElement.value") == "half-typed"
    assert "it is done" in page.text

    page.focus("orders")
    shop.add_topics(["a-second-of-orders"])
    page.wait_for_text("a-second-of-orders")
    assert page.focused == "orders"  # its row has moved


def test_a_paused_page_does_not_change(page: Page, shop: Shop) -> None:
    page.open("/topics?q=pause")
    page.click("Pause")
    shop.add_topics(["pause-1"])
    wait_until(lambda: _is_listed(page, "pause-1"), TIMEOUT_S, "the topic in the survey")
    assert "pause-1" not in page.text
    page.click("Refresh again")
    page.wait_for_text("pause-1")


def _is_listed(page: Page, name: str) -> bool:
    return bool(
        page.evaluate(f"fetch('/topics?q={name}').then(got => got.text()).then(got => got.includes('/{name}'))")
    )


def test_a_page_of_a_console_that_is_gone_reports_that_it_is_old(cluster: Cluster, devtools: DevTools) -> None:
    with running_console(cluster) as origin:
        context = opened_page(devtools, origin)
        page = context.__enter__()
        page.open("/")
        assert "This page is old" not in page.text
    page.wait_for_text("The console does not answer. This page is old.")
    assert page.heading.startswith("Overview")
    context.__exit__(None, None, None)


def test_a_process_that_hangs_is_a_problem_on_the_overview(cluster: Cluster, page: Page) -> None:
    page.open("/")
    cluster.pause("janitor-1")
    try:
        page.wait_for_text("the process hangs")
        assert page.heading == "Overview has problems"
        page.open("/cluster")
        states = page.evaluate("[...document.querySelectorAll('tr')].map(each => each.innerText)")
        assert any("janitor-1" in each and "hangs" in each for each in states)
        assert findings(page) == []
    finally:
        cluster.resume("janitor-1")


def test_users_log_in_with_their_kafka_password(tmp_path: Path, devtools: DevTools) -> None:
    with running(tmp_path / "data", "--secure", "--console-changes") as cluster:
        password = (cluster.data / "secure" / "password").read_text().strip()
        with opened_page(devtools, started_console(cluster)) as page:
            page.open("/topics?q=x")
            assert page.heading == "Log in"
            assert page.focused == "User"
            assert findings(page) == []
            page.fill("User", "admin")
            page.fill("Password", "wrong")
            page.follow("Log in")
            assert page.heading == "Log in"
            assert page.evaluate("document.querySelector('[role=alert]:not([hidden])').innerText")
            assert len(page.errors()) == 1  # the status 401
            page.fill("User", "admin")
            page.fill("Password", password)
            page.press("Enter")
            page.wait_for("document.querySelector('h1').innerText === 'Topics'", "the page after the login")
            assert page.path == "/topics?q=x"
            page.open("/security")
            assert "admin" in page.column()
            assert findings(page) == []
            page.click("Create a user")
            page.fill("User name", USER)
            page.fill("Password", PASSWORD)
            page.fill("The same password again", PASSWORD)
            page.follow("Create the user")
            assert page.column() == ["admin", USER]
            page.follow("Log out")
            page.open("/topics")
            assert page.heading == "Log in"
            assert page.errors() == []
            page.fill("User", USER)
            page.fill("Password", PASSWORD)
            page.follow("Log in")  # the password is right, and the user has no rights yet
            assert f"the user '{USER}' needs the right to describe the cluster" in page.text
            logs = {each.name: each.read_text() for each in (cluster.data / "logs").iterdir()}
            assert "change_made" in "".join(logs.values())
            assert not [name for name, text in logs.items() if PASSWORD in text]
            assert len(page.errors()) == 1
