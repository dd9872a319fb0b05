"""The page of clients: connections, subscriptions to metrics, and the metrics that clients pushed."""

import re
from typing import Any

import msgspec

from penstock.contracts.messages import ListenerAddress
from penstock_console.pages.clients import ClientsPage, clients
from penstock_console.pages.context import ListQuery, Request
from penstock_console.survey.processes import Process
from tests.unit.console.console_rig import LOGIN, ROLES, Rig, process, reading
from tests.unit.console.console_security_fakes import subscribe
from tests.unit.console.console_served import SCRIPT, served

REQUEST = Request(LOGIN)
PUSHED = "penstock_client_consumer_coordinator_assigned_partitions"


def gateway(name: str, samples: dict[tuple[str, str, str], float], **own: float) -> Process:
    """A gateway with pushed metrics by name, client id and instance id, and with metrics of its own."""
    found = process("gateway", **own)
    listener = ListenerAddress("PLAINTEXT", name, 9092)
    presence = msgspec.structs.replace(found.presence, instance=name, listeners=(listener,))
    pushed = {
        (metric, (("client_id", client), ("client_instance_id", instance))): value
        for (metric, client, instance), value in samples.items()
    }
    return msgspec.structs.replace(found, presence=presence, samples={**found.samples, **pushed})


def rig_of(*gateways: Process) -> Rig:
    rig = Rig()
    rig.reading = reading([*gateways, *(process(role) for role in ROLES if role != "gateway")])
    return rig


async def page_of(rig: Rig, **query: Any) -> ClientsPage:
    return await clients(rig.sources, REQUEST, ListQuery(**query))


async def test_subscriptions_have_all_their_values_and_are_read_as_the_user() -> None:
    rig = Rig()
    subscribe(rig.world, "java", metrics="a.,b.", interval_ms="1500", match="client_id=x.*,client_source_port=1")
    subscribe(rig.world, "all", metrics="*")
    page = await page_of(rig)
    assert [(each.name, each.metrics, each.interval_seconds, each.match) for each in page.subscriptions] == [
        ("all", ["*"], 300.0, []),
        ("java", ["a.", "b."], 1.5, ["client_id=x.*", "client_source_port=1"]),
    ]
    assert set(rig.kafka.calls) == {LOGIN}


async def test_pushed_metrics_of_all_gateways_are_rows_by_client_instance_and_name() -> None:
    rig = rig_of(
        gateway("g1", {(PUSHED, "b", "i2"): 3.0, ("penstock_client_x_total", "b", "i2"): float("inf")}),
        gateway("g2", {(PUSHED, "a", "i1"): 1.0}, penstock_client_without_labels=1.0, penstock_bus_x=1.0),
    )
    page = await page_of(rig)
    assert [msgspec.structs.astuple(each) for each in page.list.rows] == [
        ("a", "i1", PUSHED, 1.0, "g2"),
        ("b", "i2", PUSHED, 3.0, "g1"),
        ("b", "i2", "penstock_client_x_total", None, "g1"),
    ]
    assert (page.instances, page.total) == (2, 3)


async def test_pushed_metrics_are_searched_sorted_and_paged() -> None:
    samples = {(f"penstock_client_m{number:03}", "app", f"i{number % 2}"): float(number) for number in range(120)}
    rig = rig_of(gateway("g1", samples))
    first = await page_of(rig, sort="-value")
    assert (len(first.list.rows), first.list.pages, first.list.rows[0].value) == (50, 3, 119.0)
    assert [each.value for each in (await page_of(rig, q="M11", sort="value")).list.rows] == list(range(110, 120))
    assert (await page_of(rig, q="i1")).list.found == 60
    assert (await page_of(rig, q="app")).list.found == 120
    assert (await page_of(rig, q="none")).list.found == 0


async def test_each_gateway_has_its_listeners_and_connections() -> None:
    rig = rig_of(
        gateway("g1", {}, penstock_gateway_connections=7.0),
        gateway("g2", {}),
        gateway("g3", {}, penstock_gateway_connections=1.0),
    )
    closed = {("penstock_gateway_connections_closed_total", (("cause", each),)): 2.0 for each in ("idle", "full")}
    first, *others = rig.reading.processes
    first = msgspec.structs.replace(first, samples={**first.samples, **closed})
    rig.reading = msgspec.structs.replace(rig.reading, processes=[first, *others])
    page = await page_of(rig)
    assert [(each.gateway, each.listeners, each.connections, each.closed) for each in page.gateways] == [
        ("g1", ["PLAINTEXT g1:9092"], 7.0, 4.0),
        ("g2", ["PLAINTEXT g2:9092"], None, None),
        ("g3", ["PLAINTEXT g3:9092"], 1.0, 0.0),
    ]


async def test_without_a_kafka_listener_the_page_has_the_reason_and_all_the_rest() -> None:
    rig = rig_of(gateway("g1", {(PUSHED, "a", "i1"): 1.0}))
    rig.kafka.is_available = False
    page = await page_of(rig)
    assert (page.subscriptions, page.subscriptions_error) == ([], "no gateway accepts a connection")
    assert page.total == 1


async def test_without_a_subscription_the_page_has_the_command_that_makes_one() -> None:
    rig = rig_of(gateway("g1", {}))
    async with served(rig) as web:
        text = (await web.get("/clients")).text
        (command,) = re.findall('<pre class="command">(.*)</pre>', text)
        assert command.startswith("kafka-client-metrics.sh --bootstrap-server g1:9092 --alter --name all-clients")
        subscribe(rig.world, "all", metrics="*")
        text = (await web.get("/clients")).text
        assert "kafka-client-metrics.sh" not in text
        assert "No client has pushed metrics." in text


async def test_texts_of_clients_and_subscriptions_cannot_be_html() -> None:
    rig = rig_of(gateway("g1", {(PUSHED, SCRIPT, SCRIPT): 0.12345, (f"{PUSHED}_total", "b", "i"): 12345.0}))
    subscribe(rig.world, SCRIPT, metrics=SCRIPT)
    async with served(rig) as web:
        text = (await web.get("/clients")).text
        assert SCRIPT not in text
        assert "0.1235" in text and "12,345" in text
